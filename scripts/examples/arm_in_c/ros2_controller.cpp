// A library of `fraxenv export` as a controller of ros2_control, with effort interfaces.
//
// The controller manager calls `update` at its update rate, which is to be the library's. Actions
// come from elsewhere, as by a subscription through a realtime buffer: `act`.

#include <controller_interface/controller_interface.hpp>

#include <array>
#include <string>
#include <vector>

#include "arm.hpp"

namespace fraxenv_arm {

using controller_interface::CallbackReturn;
using controller_interface::InterfaceConfiguration;
using controller_interface::interface_configuration_type;
using controller_interface::return_type;

class HandController : public controller_interface::ControllerInterface {
 public:
  CallbackReturn on_init() override {
    joints_ = auto_declare<std::vector<std::string>>("joints", {});
    return joints_.size() == Arm::joints ? CallbackReturn::SUCCESS : CallbackReturn::ERROR;
  }

  InterfaceConfiguration command_interface_configuration() const override {
    return {interface_configuration_type::INDIVIDUAL, named({"effort"})};
  }

  InterfaceConfiguration state_interface_configuration() const override {
    return {interface_configuration_type::INDIVIDUAL, named({"position", "velocity"})};
  }

  CallbackReturn on_activate(const rclcpp_lifecycle::State &) override {
    read();
    arm_.begin(q_, v_);
    step_ = 0;
    return CallbackReturn::SUCCESS;
  }

  return_type update(const rclcpp::Time &, const rclcpp::Duration &) override {
    constexpr long control_steps = 20;
    read();
    if (step_++ % control_steps == 0) arm_.aim(q_, action_);
    const auto tau = arm_.control(q_, v_);
    for (std::size_t k = 0; k < tau.size(); k++) {
      if (!command_interfaces_[k].set_value(tau[k])) return return_type::ERROR;
    }
    return return_type::OK;
  }

  void act(const std::array<float, Arm::actions> &action) { action_ = action; }

 private:
  std::vector<std::string> named(const std::vector<std::string> &interfaces) const {
    std::vector<std::string> names;
    for (const auto &interface : interfaces) {
      for (const auto &joint : joints_) names.push_back(joint + "/" + interface);
    }
    return names;
  }

  void read() {
    for (std::size_t k = 0; k < Arm::joints; k++) {
      q_[k] = state_interfaces_[k].get_value();
      v_[k] = state_interfaces_[Arm::joints + k].get_value();
    }
  }

  Arm arm_;
  Arm::Joints q_{}, v_{};
  std::array<float, Arm::actions> action_{};
  std::vector<std::string> joints_;
  long step_ = 0;
};

}  // namespace fraxenv_arm
