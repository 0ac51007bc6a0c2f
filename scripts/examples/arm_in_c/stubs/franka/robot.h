// As much of libfranka's interface as franka.cpp needs, to compile it without libfranka.

#pragma once

#include <array>
#include <functional>

namespace franka {

class Duration {};

struct RobotState {
  std::array<double, 7> q{}, dq{};
};

struct Torques {
  explicit Torques(const std::array<double, 7> &torques) : tau_J(torques) {}
  std::array<double, 7> tau_J;
  bool motion_finished = false;
};

inline Torques MotionFinished(Torques command) {
  command.motion_finished = true;
  return command;
}

class Robot {
 public:
  void control(std::function<Torques(const RobotState &, Duration)> callback) {
    while (!callback(RobotState{}, Duration{}).motion_finished) continue;
  }
};

}  // namespace franka
