// The loop of close_loop.c, in C++ and without a clock: how an arm's own callback would call it.
//
// usage: close_loop MODEL.mjb [STEPS]

#include <mujoco/mujoco.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "arm.hpp"

namespace {

struct Delete {
  void operator()(mjModel *model) const { mj_deleteModel(model); }
  void operator()(mjData *data) const { mj_deleteData(data); }
};

Arm::Joints joints(const mjtNum *x) {
  Arm::Joints y;
  std::copy_n(x, y.size(), y.begin());
  return y;
}

}  // namespace

int main(int count, char **words) {
  constexpr Arm::Joints posture = ARM_POSTURE;
  if (count < 2) {
    std::fprintf(stderr, "usage: close_loop MODEL.mjb [STEPS]\n");
    return 2;
  }
  const long steps = count > 2 ? std::atol(words[2]) : 2000;
  const std::unique_ptr<mjModel, Delete> model(mj_loadModel(words[1], nullptr));
  if (!model || model->nq != Arm::joints) {
    std::fprintf(stderr, "%s is no model of an arm of seven joints\n", words[1]);
    return 2;
  }
  const std::unique_ptr<mjData, Delete> data(mj_makeData(model.get()));
  std::copy(posture.begin(), posture.end(), data->qpos);

  Arm arm;
  arm.begin(joints(data->qpos), joints(data->qvel));
  const auto before = arm.hand(joints(data->qpos));
  for (long step = 0; step < steps; step++) {
    const auto q = joints(data->qpos), v = joints(data->qvel);
    if (step % 20 == 0) {
      const bool going = static_cast<double>(step) / 20 * ARM_STEP < 0.05 - 1e-6;
      arm.aim(q, {0.0F, 0.0F, going ? 1.0F : 0.0F, 0.0F, 0.0F, 0.0F});
    }
    const auto tau = arm.control(q, v);
    std::copy(tau.begin(), tau.end(), data->qfrc_applied);
    mj_step(model.get(), data.get());
  }
  const auto after = arm.hand(joints(data->qpos));
  std::printf("the hand moved by (%.2f, %.2f, %.2f) mm\n", 1e3 * (after[0] - before[0]),
              1e3 * (after[1] - before[1]), 1e3 * (after[2] - before[2]));
  return 0;
}
