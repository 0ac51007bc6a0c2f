"""Environments of scenes: objects in the world, contacts as data, episodes in batches."""

from __future__ import annotations

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fraxenv
from fraxenv import dynamics
from fraxenv.dynamics import Scene, box_geom, build_scene, free_body, plane_geom, sphere_geom
from fraxenv.envs import ObjectState, SceneState, Task, World, pytree_dataclass

PUSHER = """
<robot name="pusher">
  <link name="base"/>
  <link name="slide_x"><inertial><mass value="1"/>
    <inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="hand"><inertial><mass value="0.5"/>
    <inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="x" type="prismatic"><parent link="base"/><child link="slide_x"/>
    <axis xyz="1 0 0"/><origin xyz="0 0 0.05"/>
    <limit lower="-0.5" upper="0.5" effort="50" velocity="2"/></joint>
  <joint name="y" type="prismatic"><parent link="slide_x"/><child link="hand"/>
    <axis xyz="0 1 0"/><limit lower="-0.5" upper="0.5" effort="50" velocity="2"/></joint>
</robot>
"""


def scene_of_pusher(**options: object) -> Scene:
    """A ball that slides in a plane, a cube on the floor before it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pusher.urdf"
        path.write_text(PUSHER)
        robot = dynamics.load_urdf(path, end_effectors={"hand": "hand"})
    cube = free_body("cube", box_geom("", (0.05,) * 3), mass=0.3, position=(0.12, 0.0, 0.05))
    return build_scene(
        robot,
        [cube],
        [plane_geom("floor", friction=0.4)],
        geoms=[sphere_geom("ball", 0.03, frame="hand")],
        pairs=[("floor", "cube"), ("ball", "cube")],
        name="pushing",
        **options,  # type: ignore[arg-type]
    )


@pytree_dataclass
class Push(Task):
    """Push the cube forwards; it is over when the ball presses too hard."""

    way: float = 0.1
    strongest: float = 1e3

    def reset(self, key, robot):
        return jnp.zeros(robot.nq), jax.random.uniform(key, (), minval=0.1, maxval=0.14)

    def world(self, key, robot, q, state):
        pose = jnp.stack([state, *jnp.array([0.0, 0.05, 1.0, 0.0, 0.0, 0.0])])
        return World(scene=SceneState({"cube": ObjectState(pose)}))

    def observation_terms(self, robot, motion, state):
        touch = motion.world.contacts.between("ball", "cube")
        cube = motion.world.objects["cube"]
        return {
            "joints": motion.q,
            "cube": cube.position,
            "cube_axes": cube.rotation[:, 0],
            "cube_velocity": cube.v,
            "touching": touch.active.astype(motion.q.dtype),
            "force": 0.1 * touch.normal_force,
        }

    def reward_terms(self, robot, motion, state):
        touch = motion.world.contacts.between("ball", "cube")
        return {
            "forwards": motion.world.objects["cube"].position[0] - state,
            "touching": jnp.sum(touch.active.astype(motion.q.dtype)),
        }

    def measures(self, robot, motion, state):
        moved = motion.world.objects["cube"].position[0] - state
        return {"moved": moved, "success": moved > self.way}

    def terminated(self, robot, motion, state):
        force = motion.world.contacts.between("ball", "cube").normal_force
        return jnp.any(force > jnp.asarray(self.strongest))
