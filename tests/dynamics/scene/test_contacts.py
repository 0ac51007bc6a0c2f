"""`dynamics.contacts`: names, shapes, and MuJoCo's numbers."""

from __future__ import annotations

from functools import partial

import jax
import mujoco
import numpy as np

from fraxenv import dynamics

XML = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 .1"/>
    <body name="cube" pos="0 0 .019"><freejoint/><geom name="cube" type="box" size=".02 .03 .02"/>
    </body>
    <body name="ball" pos="0 .5 .5"><freejoint/><geom name="ball" size=".1"/></body>
  </worldbody>
</mujoco>
"""


def test_contacts_of_a_scene_have_names_and_the_numbers_of_mujoco(x64: None) -> None:
    model = mujoco.MjModel.from_xml_string(XML)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    scene = dynamics.load_mjcf(model)
    found = jax.jit(partial(dynamics.contacts, scene))(np.array(data.qpos))
    assert len(found.pair) == len(found.distance) == scene.constraints.layout.slots
    active = np.flatnonzero(found.active)
    assert {found.pair[i] for i in active} == {("floor", "cube")}
    assert len(active) == data.ncon == 4
    ours = np.asarray(found.position)[active]
    for contact in data.contact:
        nearest = np.argmin(np.linalg.norm(ours - contact.pos, axis=1))
        assert np.abs(ours[nearest] - contact.pos).max() < 1e-12
        assert abs(float(found.distance[active[nearest]]) - contact.dist) < 1e-12
        frame = np.asarray(found.frame)[active[nearest]]
        assert np.abs(frame - contact.frame.reshape(3, 3)).max() < 1e-12
    assert np.isfinite(np.asarray(found.distance)).all()
