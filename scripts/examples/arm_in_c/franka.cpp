// A library of `fraxenv export` in libfranka's control loop of 1 kHz.
//
// The arm adds the torques of gravity and of friction itself, so that those of gravity are taken
// away from ours. `next_action` is the policy's, at its own rate.

#include <franka/robot.h>

#include <array>
#include <functional>

#include "arm.hpp"

void run(franka::Robot &robot, const std::function<std::array<float, Arm::actions>()> &next_action,
         long steps) {
  constexpr long control_steps = 20;
  Arm arm;
  long step = 0;
  robot.control([&](const franka::RobotState &state, franka::Duration) -> franka::Torques {
    if (step == 0) arm.begin(state.q, state.dq);
    if (step % control_steps == 0) arm.aim(state.q, next_action());
    auto tau = arm.control(state.q, state.dq);
    const auto gravity = arm.gravity(state.q);
    for (std::size_t k = 0; k < tau.size(); k++) tau[k] -= gravity[k];
    franka::Torques command(tau);
    return ++step < steps ? command : franka::MotionFinished(command);
  });
}
