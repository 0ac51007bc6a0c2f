"""An arm that pushes a cube: a scene, and a task of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from fraxenv import dynamics
from fraxenv.dynamics import Scene, box_geom, build_scene, free_body, plane_geom, sphere_geom
from fraxenv.envs import ObjectState, SceneState, Task, World, pytree_dataclass

ARM = """
<robot name="arm">
  <link name="base"/>
  <link name="upper"><inertial><origin xyz="0.15 0 0"/><mass value="1"/>
    <inertia ixx="0.002" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="lower"><inertial><origin xyz="0.15 0 0"/><mass value="1"/>
    <inertia ixx="0.002" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="hand"><inertial><origin xyz="0.03 0 0"/><mass value="0.3"/>
    <inertia ixx="0.001" iyy="0.001" izz="0.001" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="a" type="revolute"><parent link="base"/><child link="upper"/>
    <axis xyz="0 0 1"/><origin xyz="0 0 0.05"/>
    <limit lower="-3" upper="3" effort="50" velocity="5"/></joint>
  <joint name="b" type="revolute"><parent link="upper"/><child link="lower"/>
    <axis xyz="0 0 1"/><origin xyz="0.3 0 0"/>
    <limit lower="-3" upper="3" effort="50" velocity="5"/></joint>
  <joint name="c" type="revolute"><parent link="lower"/><child link="hand"/>
    <axis xyz="0 0 1"/><origin xyz="0.3 0 0"/>
    <limit lower="-3" upper="3" effort="20" velocity="5"/></joint>
</robot>
"""


def scene_of_arm(cube_mass: float = 0.3) -> Scene:
    """A planar arm with a ball for a hand, and a cube on the floor before it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arm.urdf"
        path.write_text(ARM)
        robot = dynamics.load_urdf(path, end_effectors={"hand": "hand"})
    cube = free_body(
        "cube", box_geom("", (0.05,) * 3, friction=0.4), mass=cube_mass, position=(0.52, 0, 0.05)
    )
    return build_scene(
        robot.replace(q_default=np.array([-0.8, 1.6, -0.8])),
        [cube],
        [plane_geom("floor", friction=0.4)],
        geoms=[sphere_geom("ball", 0.03, frame="hand", friction=0.4)],
        pairs=[("floor", "cube"), ("ball", "cube")],
        name="pushing",
    )


@pytree_dataclass
class Push(Task):
    """Push the cube forwards, from a random place; it is over when the ball presses too hard."""

    way: float = 0.1
    strongest: float = 1e3

    def reset(self, key, robot):
        return jnp.asarray(robot.q_default, float), jax.random.uniform(key, (), float, 0.51, 0.53)

    def world(self, key, robot, q, state):
        pose = jnp.concatenate([state[None], jnp.array([0.0, 0.05, 1.0, 0.0, 0.0, 0.0])])
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
