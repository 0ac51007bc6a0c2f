r"""Whether the filter keeps somebody's arm off what stands around it, in a million control steps.

An arm of an MJCF file stands among a floor, a post, a ball, a shelf and a pipe. Random actions,
each for 0.8 s; printed is what the arm touched, and in how many steps the filter found no torque.
Results are in docs/extend/environment.md.

    python scripts/harden/guarded_arm.py panda/robot.xml right_hand --root link0 \
        --posture 0 -.3 0 -2.2 0 2 .785 --velocity-limits 2.175 --exclude link5:link7
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import tyro
from numpy.typing import NDArray
from rich.progress import track

from fraxenv.wrappers import EndEffectorAction

HELD = 40
"""Steps of the environment for which an action is held."""
POLICY_HZ = 50


@dataclass(frozen=True)
class Options:
    """Options of the soak."""

    file: tyro.conf.Positional[Path]
    """An MJCF file of an arm with motors."""
    end_effector: tyro.conf.Positional[str]
    """A body or site of it."""
    posture: tuple[float, ...]
    """rad and m, of all joints, where it begins."""
    root: str | None = None
    """The body at which the arm begins."""
    velocity_limits: float = 2.0
    """rad/s, of all joints."""
    exclude: tuple[str, ...] = ()
    """Pairs of bodies, BODY:BODY, that do not collide, where hulls of meshes touch at rest."""
    steps: int = 1_000_000
    """Of control."""
    hz: int = 500
    """Of physics and control."""
    safety: str = "cbf"
    """The filter; "none" for comparison."""
    seed: int = 0
    """Of the actions."""


class Crowded(gymnasium.Env[Any, Any]):
    """The arm among things that stand around it."""

    def __init__(self, options: Options) -> None:
        kinds = mujoco.mjtGeom
        spec = mujoco.MjSpec.from_file(str(options.file))
        for name, kind, place, size in (
            ("floor", kinds.mjGEOM_PLANE, (0, 0, -0.02), (2, 2, 0.1)),
            ("post", kinds.mjGEOM_CAPSULE, (0.45, 0.3, 0.3), (0.04, 0.3, 0)),
            ("ball", kinds.mjGEOM_SPHERE, (0.5, -0.35, 0.3), (0.08, 0, 0)),
            ("shelf", kinds.mjGEOM_BOX, (0.5, 0, 1.25), (0.3, 0.3, 0.02)),
            ("pipe", kinds.mjGEOM_CYLINDER, (-0.3, 0.35, 0.5), (0.05, 0.4, 0)),
        ):
            spec.worldbody.add_geom(name=name, type=kind, pos=place, size=size)
        for pair in options.exclude:
            one, other = pair.split(":")
            spec.add_exclude(bodyname1=one, bodyname2=other)
        spec.option.timestep = 1 / options.hz
        self.model = spec.compile()
        self.data, self.posture = mujoco.MjData(self.model), options.posture
        self.substeps = options.hz // POLICY_HZ
        self.touched: set[str] = set()
        low, high = self.model.actuator_ctrlrange.T
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float64)
        size = self.model.nq + self.model.nv
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """The arm in its posture."""
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = self.posture
        mujoco.mj_forward(self.model, self.data)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        """A few steps of the physics."""
        self.data.ctrl[:] = action
        for _ in range(self.substeps):
            mujoco.mj_step(self.model, self.data)
            if self.data.ncon:
                self.touched |= {self._pair(geoms) for geoms in self.data.contact.geom}
        return self._seen(), 0.0, False, False, {}

    def _pair(self, geoms: NDArray[np.int32]) -> str:
        return " - ".join(self.model.geom(int(g)).name or f"geom{g}" for g in geoms)

    def _seen(self) -> NDArray[np.floating[Any]]:
        return np.concatenate([self.data.qpos, self.data.qvel])


def main(options: Options) -> None:
    """Run, and print what was touched."""
    inner = Crowded(options)
    env = EndEffectorAction(
        inner,
        end_effector=options.end_effector,
        root=options.root,
        velocity_limits=options.velocity_limits,
        safety=options.safety,
    )
    env.reset(seed=options.seed)
    random = np.random.default_rng(options.seed)
    action = random.uniform(-1, 1, env.action_space.shape)
    reports = []
    count = options.steps // inner.substeps
    for k in track(range(count), f"{options.file.parent.name} among obstacles"):
        if k % HELD == 0:
            action = random.uniform(-1, 1, env.action_space.shape)
        *_, info = env.step(action)
        reports.append(info.get("safety"))
    print(f"{count * inner.substeps} control steps at {options.hz} Hz, {count} of the environment")
    print(f"  touched: {', '.join(sorted(inner.touched)) or 'nothing'}")
    if options.safety != "none":
        print(f"  filter changed torques in {sum(r['intervened'] for r in reports)} of these,")
        print(f"  found none that do in {sum(not r['feasible'] for r in reports)};")
        print(f"  smallest barrier {min(r['min_barrier'] for r in reports):.4f} rad/s, rad or m")


if __name__ == "__main__":
    main(tyro.cli(Options))
