"""An arm with a gripper's finger for MuJoCo, MJX and MuJoCo Warp: its model, and how C moves it."""

from __future__ import annotations

from typing import Any

import gymnasium
import mujoco
import numpy as np

HOME = np.array([0.0, 0.4, -1.2, 0.1, -1.0, 0.2, 0.0])
SUBSTEPS = 10
"""Physics steps of an action, of 2 ms each."""

_ARM = """<mujoco><option timestep="0.002">{option}</option>
<default><geom contype="1" conaffinity="0"/>
 <default class="around"><geom contype="0" conaffinity="1"/></default></default>
<worldbody>{around}
<body name="base" pos="0 0 .3" {compensated}>
 <joint name="j1" axis="0 0 1" range="-180 180"/><geom type="capsule" size=".06 .1" mass="4"/>
 <body pos="0 0 .1" {compensated}><joint name="j2" axis="0 1 0" range="-120 120" {spring}/>
  <geom type="capsule" fromto="0 0 0 .4 0 0" size=".04" mass="3"/>
  <body pos=".4 0 0"><joint name="j3" axis="0 -1 0" range="-160 160"/>
   <geom type="capsule" fromto="0 0 0 .35 0 0" size=".03" mass="2"/>
   <body pos=".35 0 0"><joint name="j4" axis="1 0 0" range="-180 180" {spring}/>
    <geom type="box" size=".04 .03 .03" mass=".6"/>
    <body pos=".08 0 0"><joint name="j5" axis="0 1 0" range="-120 120"/>
     <geom type="box" size=".04 .03 .03" mass=".5"/>
     <body name="wrist" pos=".08 0 0"><joint name="j6" axis="1 0 0" range="-180 180"/>
      <geom type="box" size=".02 .03 .03" mass=".3"/><site name="grasp" pos=".1 0 0"/>
      <body name="finger" pos=".05 0 0">
       <joint name="finger" type="slide" axis="0 1 0" range="0 .04"/>
       <geom type="box" size=".02 .005 .01" mass=".01"/></body>
 </body></body></body></body></body></body></worldbody>
<actuator>
 <position name="finger" joint="finger" kp="200" kv="2" ctrlrange="0 .04"/>
 {actuators}
</actuator></mujoco>"""

MOTORS = "".join(f'<motor joint="j{i}" gear="{10 * i}" ctrlrange="-40 40"/>' for i in range(1, 7))
SERVOS = "".join(
    f'<position joint="j{i}" kp="3000" kv="100"/>' if i % 2 else f'<velocity joint="j{i}" kv="80"/>'
    for i in range(1, 7)
)
POST = """<geom name="post" class="around" type="capsule" fromto=".45 .25 -.3 .45 .25 1"
 size=".04"/>"""
CART = """<body name="cart" pos=".39 .5 -.48" gravcomp="1">
 <joint name="cart" type="slide" axis="0 -1 0"/><joint name="turn" axis="1 0 .3"/>
 <geom name="ball" class="around" type="sphere" pos=".1 0 .2" size=".1" mass="50"/>
 <geom type="box" pos="0 0 -.3" size=".05 .05 .05" mass="40" contype="0"/></body>"""


def arm_model(
    actuators: str = MOTORS,
    around: str = "",
    spring: str = "",
    compensated: str = "",
    option: str = "",
) -> Any:
    """A `mujoco.MjModel`; input 0 and the last coordinate are the finger's."""
    parts = {"spring": spring, "compensated": compensated, "option": option}
    text = _ARM.format(actuators=actuators, around=around, **parts)
    return mujoco.MjModel.from_xml_string(text)


def start(seed: int) -> np.ndarray:
    """Coordinates of the arm and its finger (7,) near `HOME`."""
    random = np.random.default_rng(seed)
    return HOME + random.uniform(-0.05, 0.05, 7) * (np.arange(7) < 6)


class ArmEnv(gymnasium.Env[Any, Any]):
    """The model moved by MuJoCo: what `EndEffectorAction` wraps."""

    def __init__(self, model: Any) -> None:
        self.model, self.data = model, mujoco.MjData(model)
        low, high = np.full(7, -40.0), np.full(7, 40.0)
        low[0], high[0] = 0.0, 0.04
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float64)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (model.nq,), np.float64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[-7:] = start(seed or 0)
        mujoco.mj_forward(self.model, self.data)
        return self.data.qpos.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.data.ctrl[:] = action
        mujoco.mj_step(self.model, self.data, nstep=SUBSTEPS)
        return self.data.qpos.copy(), 0.0, False, False, {}
