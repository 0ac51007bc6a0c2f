// As much of ros2_control's interface as ros2_controller.cpp needs, to compile it without ROS.

#pragma once

#include <string>
#include <vector>

namespace rclcpp {
class Time {};
class Duration {};
}  // namespace rclcpp

namespace rclcpp_lifecycle {
class State {};
}  // namespace rclcpp_lifecycle

namespace controller_interface {

enum class CallbackReturn { SUCCESS, ERROR };
enum class return_type { OK, ERROR };
enum class interface_configuration_type { ALL, INDIVIDUAL, NONE };

struct InterfaceConfiguration {
  interface_configuration_type type;
  std::vector<std::string> names;
};

struct LoanedInterface {
  double get_value() const { return value; }
  bool set_value(double x) {
    value = x;
    return true;
  }
  double value = 0.0;
};

class ControllerInterface {
 public:
  virtual ~ControllerInterface() = default;
  virtual CallbackReturn on_init() = 0;
  virtual InterfaceConfiguration command_interface_configuration() const = 0;
  virtual InterfaceConfiguration state_interface_configuration() const = 0;
  virtual CallbackReturn on_activate(const rclcpp_lifecycle::State &) = 0;
  virtual return_type update(const rclcpp::Time &, const rclcpp::Duration &) = 0;

 protected:
  template <typename T>
  T auto_declare(const std::string &, const T &value) {
    return value;
  }

  std::vector<LoanedInterface> command_interfaces_, state_interfaces_;
};

}  // namespace controller_interface
