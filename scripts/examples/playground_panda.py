"""MuJoCo Playground's Panda, whose policy says where the hand goes: our action space over its task.

`HandPickCube` is Playground's environment with another action: six numbers for the hand, and one
for the fingers. Reward, observation and the end of episodes are Playground's own. The script moves
the hands of a batch of worlds to their cubes by proportional control of their positions, and tells
how near they came. Playground downloads its robots when it is first used.

    pip install -e ".[cli,mjx]" playground
    python scripts/examples/playground_panda.py --num-envs 64
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import tyro
from jax import Array
from mujoco_playground import registry
from mujoco_playground._src.manipulation.franka_emika_panda.pick import PandaPickCube

from fraxenv.wrappers import ee_action

FINGERS = 7
"""Which of the model's inputs is the fingers'."""


@dataclass(frozen=True)
class Options:
    """Options of the example."""

    num_envs: int = 16
    """Worlds."""
    steps: int = 100
    """Policy steps, of 20 ms each."""
    impl: str = "jax"
    """MJX's implementation: "jax", or "warp" on a GPU."""
    seed: int = 0
    """Of the worlds."""


class HandPickCube(PandaPickCube):  # type: ignore[misc]
    """PandaPickCube, whose action is the hand's: dx, dy, dz, drx, dry, drz, and the fingers'."""

    def __init__(self, **options: Any) -> None:
        super().__init__(registry.get_default_config("PandaPickCube"), **options)
        self.arm = ee_action(self.mj_model, end_effector="gripper")

    @property
    def action_size(self) -> int:
        """Of an action: the hand's axes, and the fingers."""
        return len(self.arm.axes) + 1

    @property
    def n_substeps(self) -> int:
        """None for Playground's own step: the physics has moved already."""
        return 0

    def reset(self, rng: Array) -> Any:
        """Reset; the arm is told to stay where it is."""
        state = super().reset(rng)
        state.info["arm"] = self.arm.init(state.data.qpos, state.data.qvel)
        return state

    def step(self, state: Any, action: Array) -> Any:
        """One step of the task, the hand on its way."""
        data, memory = state.data, state.info["arm"]
        # Playground's automatic reset puts back the data, and leaves `info` as it is.
        fresh = self.arm.init(data.qpos, data.qvel)
        memory = jax.tree.map(lambda new, old: jnp.where(data.time == 0, new, old), fresh, memory)
        fingers = data.ctrl[FINGERS] + self._action_scale * action[-1]
        ctrl = data.ctrl.at[FINGERS].set(
            jnp.clip(fingers, self._lowers[FINGERS], self._uppers[FINGERS])
        )
        data, memory = self.arm.step(
            self.mjx_model, data, memory, action[:-1], ctrl, round(self.dt / self.sim_dt)
        )
        moved = state.replace(data=data, info={**state.info, "arm": memory})
        return super().step(moved, jnp.zeros(self.mjx_model.nu))


def towards_the_cube(env: HandPickCube, state: Any) -> Array:
    """An action (7,) that moves the open hand to the cube: 1 asks for 5 cm."""
    return jnp.concatenate([jnp.clip(gap(env, state) / 0.05, -1, 1), jnp.zeros(3), jnp.ones(1)])


def gap(env: HandPickCube, state: Any) -> Array:
    """From the hand to the cube (3,), m."""
    cube, hand = state.data.xpos[env._obj_body], state.data.site_xpos[env._gripper_site]
    return jnp.asarray(cube - hand)


def main(options: Options) -> Array:
    env = HandPickCube(config_overrides={"impl": options.impl})

    def one_step(state: Any, _: None) -> tuple[Any, tuple[Array, Array]]:
        state = env.step(state, towards_the_cube(env, state))
        return state, (jnp.linalg.norm(gap(env, state)), state.reward)

    @jax.jit
    @jax.vmap
    def episode(key: Array) -> tuple[Array, Array]:
        seen: tuple[Array, Array] = jax.lax.scan(one_step, env.reset(key), None, options.steps)[1]
        return seen

    keys = jax.random.split(jax.random.key(options.seed), options.num_envs)
    episode = episode.lower(keys).compile()
    start = time.perf_counter()
    far, reward = jax.block_until_ready(episode(keys))
    seconds = time.perf_counter() - start
    rate = options.num_envs * options.steps / seconds
    for k in range(0, options.steps, max(1, options.steps // 5)):
        print(f"step {k:4d}: the hands are {1e3 * far[:, k].mean():6.1f} mm from their cubes")
    print(
        f"last:      {1e3 * far[:, -1].mean():6.1f} mm, at worst {1e3 * far[:, -1].max():.1f} mm; "
        f"reward {reward.sum(axis=1).mean():.1f}; {rate:.0f} steps/s"
    )
    return far


if __name__ == "__main__":
    main(tyro.cli(Options))
