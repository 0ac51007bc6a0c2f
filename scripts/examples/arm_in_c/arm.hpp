// A library of `fraxenv export` as a class: memory, gains and obstacles of one arm.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "arm.h"

class Arm {
 public:
  static constexpr std::size_t joints = 7, actions = 6;
  using Joints = std::array<double, joints>;

  Arm() {
    if (std::string(arm_version) != ARM_VERSION) {
      throw std::runtime_error(std::string("the library is of version ") + arm_version +
                               ", its header of " ARM_VERSION);
    }
    std::fill(std::begin(obstacles.active), std::end(obstacles.active), std::uint8_t{0});
  }

  // The arm is to stay where it is.
  void begin(const Joints &q, const Joints &v) { arm_begin(in(q).data(), in(v).data(), &memory_); }

  // What a policy says, each number in [-1, 1].
  void aim(const Joints &q, const std::array<float, actions> &action) {
    arm_aim(&memory_, in(q).data(), action.data(), &memory_);
  }

  // Torques, N m, with those that hold the arm against gravity.
  Joints control(const Joints &q, const Joints &v) {
    Numbers tau;
    arm_control(&memory_, in(q).data(), in(v).data(), &gains, &obstacles, tau.data(), &memory_,
                &report);
    return out(tau);
  }

  // Torques, N m, of gravity.
  Joints gravity(const Joints &q) const {
    const Numbers still{};
    Numbers bias;
    arm_hand hand;
    std::array<float, joints * joints> mass_matrix;
    arm_terms(in(q).data(), still.data(), bias.data(), &hand, mass_matrix.data());
    return out(bias);
  }

  std::array<double, 3> hand(const Joints &q) const {
    const Numbers still{};
    Numbers bias;
    arm_hand hand;
    std::array<float, joints * joints> mass_matrix;
    arm_terms(in(q).data(), still.data(), bias.data(), &hand, mass_matrix.data());
    return {hand.position[0], hand.position[1], hand.position[2]};
  }

  arm_gains gains = ARM_GAINS_EXAMPLE;
  arm_obstacles obstacles = ARM_OBSTACLES_EXAMPLE;
  arm_report report{};

 private:
  using Numbers = std::array<float, joints>;

  static Numbers in(const Joints &x) {
    Numbers y;
    std::transform(x.begin(), x.end(), y.begin(), [](double a) { return static_cast<float>(a); });
    return y;
  }

  static Joints out(const Numbers &x) {
    Joints y;
    std::copy(x.begin(), x.end(), y.begin());
    return y;
  }

  arm_memory memory_{};
};
