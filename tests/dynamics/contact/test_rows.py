"""Rows of constraints against MuJoCo's: Jacobians, weights, reference accelerations."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from contact_scenes import (
    EQUALITIES,
    Trial,
    cube,
    error,
    grasp,
    matched,
    option,
    ordered,
    quadruped,
    rollout,
    solved,
    trial,
)
from jax import Array
from support import with_slow

from fraxenv.dynamics.contact.impedance import impedance, spring, weights
from fraxenv.dynamics.contact.rows import Rows

TOLERANCE = 1e-12

PILE = f"""<mujoco>{option(impratio=3)}<default><geom condim="4"/></default><worldbody>
<geom name="floor" type="plane" size="1 1 .1"/>
<body name="a" pos="0 0 .0495"><freejoint/><geom name="a" size=".05" mass="30"/></body>
<body name="b" pos=".02 .01 .146"><freejoint/><geom name="b" size=".05" mass="30"/></body>
</worldbody></mujoco>"""
"""A ball on a ball: a pair of which both sides move."""
SCENES = {"pile": PILE, "quadruped, condim 6": quadruped(condim=6)}
SLOW = {
    # What results from their rows is compared in scene/test_step.py, which is quick.
    "cube": cube(),
    "cube, pyramidal": cube("pyramidal"),
    "equalities": EQUALITIES,
    "grasp, condim 4, impratio 3": grasp(condim=4, impratio=3),
    **{
        f"quadruped, {c}, {d}": quadruped(c, d)
        for c in ("elliptic", "pyramidal")
        for d in (1, 3, 4)
    },
    **{f"grasp, {c}, {d}": grasp(c, d) for c in ("elliptic", "pyramidal") for d in (1, 3, 6)},
    "grasp, impratio 10": grasp(impratio=10),
}


@cache
def compiled(name: str) -> Trial:
    """In float64, once for all tests of this file."""
    with jax.enable_x64(True):
        return trial({**SCENES, **SLOW}[name])


@pytest.fixture(params=[*SCENES, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
def compared(request: pytest.FixtureRequest) -> Trial:
    return compiled(request.param)


def test_rows_equal_mujoco_s(compared: Trial) -> None:
    touching = 0
    with jax.enable_x64(True):
        for data in rollout(compared.model, steps=160, every=8):
            touching += data.ncon > 0
            contacts, rows, *_ = solved(compared, data)
            ours = ordered(rows, matched(compared, data, contacts), compared)
            J = data.efc_J.reshape(-1, compared.model.nv)
            # A Jacobian is to be compared as a whole: its entries cancel.
            assert error(ours["J"], J) < TOLERANCE
            assert error(ours["aref"], data.efc_aref) < TOLERANCE
            np.testing.assert_allclose(ours["D"], data.efc_D, rtol=2e-12)
    assert touching > 5 or compared.model.neq


SLIDING = """<mujoco>{option}<worldbody><geom name="floor" type="plane" size="1 1 .1"/>
<body name="a" pos="0 0 .0495"><freejoint/><geom name="a" size=".05" mass="1"/></body>
<body name="b" pos="1 0 .0495"><freejoint/><geom name="b" size=".05" mass="1"/></body>
</worldbody><contact><pair geom1="floor" geom2="a" condim="6" friction=".5 .4 .01 .002 .001" {a}/>
<pair geom1="b" geom2="floor" condim="3" solref="-900 -60" {b}/></contact></mujoco>"""


@pytest.mark.parametrize("cone", with_slow(["elliptic", "pyramidal"], "pyramidal"))
def test_friction_of_an_explicit_pair_has_its_own_reference(cone: str) -> None:
    """`solreffriction`: a time constant, and a damping; pyramids, whose rows mix both, lack it."""
    own = {"a": 'solreffriction=".05 1.5"', "b": 'solreffriction="-100 -7"'}
    with jax.enable_x64(True):
        t = trial(SLIDING.format(option=option(cone), **own))
        plain = mujoco.MjModel.from_xml_string(SLIDING.format(option=option(cone), a="", b=""))
        data, without = mujoco.MjData(t.model), mujoco.MjData(plain)
        data.qvel[:] = [0.2, 0.1, 0, 0.3, -0.5, 2, 0.02, 0.01, 0, 0, 0, 0.1]
        without.qvel[:] = data.qvel
        mujoco.mj_forward(plain, without)
        mujoco.mj_forward(t.model, data)
        contacts, rows, a, _ = solved(t, data)
        ours = ordered(rows, matched(t, data, contacts), t)
        assert data.ncon == 2
        assert error(ours["aref"], data.efc_aref) < TOLERANCE
        assert error(ours["D"], data.efc_D) < TOLERANCE
        assert error(a, data.qacc) < 1e-10
        changes = error(without.efc_aref, data.efc_aref)
        assert changes > 0.01 if cone == "elliptic" else changes == 0


def test_impedance_and_spring_equal_mujoco_s() -> None:
    """Random solref and solimp, standard, direct and contradictory, of a joint's limit."""
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><option timestep="0.004" jacobian="dense"/><worldbody><body><joint type="slide" '
        'range="-.1 .1" limited="true"/><geom size=".1" mass="2"/></body></worldbody></mujoco>'
    )
    data, rng = mujoco.MjData(model), np.random.default_rng(3)

    @jax.jit
    def ours(solref: Array, solimp: Array, gap: Array, weight: Array) -> tuple[Array, ...]:
        K, B = spring(solref, solimp, jnp.array(0.004))
        d = impedance(solimp, gap)
        return K, B, d, weights(d, weight)

    with jax.enable_x64(True):
        for case in range(500):
            solref = (
                rng.uniform([0.001, 0.1], [0.1, 2])
                * [(1, 1), (-1e3, -10), (1, -1), (-1, 1)][case % 4]
            )
            solimp = rng.uniform([-0.1, 0.5, 0, 0, 0.5], [1, 1.1, 0.05, 1, 4])
            solimp[4] = [solimp[4], 1, 2][case % 3]
            solimp[2] *= case % 7 != 0
            model.jnt_solref[0], model.jnt_solimp[0] = solref, solimp
            data.qpos[0] = 0.1 + rng.uniform(0, 0.06)
            data.qvel[0] = rng.normal()
            mujoco.mj_forward(model, data)
            gap, weight = np.array([0.1 - data.qpos[0]]), np.array([model.dof_invweight0[0]])
            *found, D = ours(solref[None], solimp[None], gap, weight)
            np.testing.assert_allclose(np.ravel(found), data.efc_KBIP[0][:3], rtol=1e-12)
            np.testing.assert_allclose(D, data.efc_D, rtol=2e-12)


def test_impedance_has_finite_derivatives_everywhere() -> None:
    gaps, powers = [0.0, -1e-300, -0.005, -0.01, -0.02], [1.0, 2.0, 3.0]
    slope = jax.jit(jax.jacobian(impedance, (0, 1)))
    with jax.enable_x64(True):
        for power in powers:
            solimp = np.tile([0.5, 0.9, 0.01, 0.5, power], (len(gaps), 1))
            assert all(np.isfinite(x).all() for x in slope(solimp, np.array(gaps)))


@pytest.mark.parametrize(
    "name",
    with_slow(
        ["pile", "grasp, condim 4, impratio 3", "grasp, elliptic, 6"],
        "grasp, condim 4, impratio 3",
        "grasp, elliptic, 6",
    ),
)
def test_products_per_pair_equal_those_of_the_whole_jacobian(name: str) -> None:
    """`apply`, `transpose` and `hessian` are those of one matrix."""

    @jax.jit
    def both_ways(rows: Rows, a: Array, y: Array) -> tuple[tuple[Array, Array], ...]:
        def flat(values: Any) -> Array:
            return jnp.concatenate([v.reshape(-1) for v in values])

        J = jax.jacobian(lambda z: flat(rows.apply(z)))(y)
        x = rows.violation(a)
        f = rows.force(x)
        whole = jax.hessian(lambda z: rows.cost(rows.violation(z)))(a)
        return (
            (rows.transpose(f), J.T @ flat(f)),
            (rows.hessian(x), whole),
        )

    with jax.enable_x64(True):
        t = compiled(name)
        data = [*rollout(t.model, steps=60, every=59)][-1]
        assert data.ncon >= 2
        _, rows, a, _ = solved(t, data)
        y = jnp.asarray(np.random.default_rng(0).normal(size=t.model.nv))
        products, hessians = both_ways(rows, a, y)
        assert error(*products) < 1e-12
        assert error(*hessians) < 1e-11


def test_rows_are_an_ordinary_pytree() -> None:
    t = trial(PILE)
    nq, nv = t.model.nq, t.model.nv
    _, rows, *_ = jax.eval_shape(t.solve, *(np.zeros(n, np.float32) for n in (nq, nv, nv, 0, nv)))
    same = jax.tree.map(lambda x: x, rows)
    assert dataclasses.asdict(same).keys() == dataclasses.asdict(rows).keys()
    assert all(x.dtype == np.float32 for x in jax.tree.leaves(rows))
