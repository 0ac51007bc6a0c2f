"""Scenes in contact as MJCF, with MuJoCo solving them to convergence, and comparison with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax import Array

from fraxenv import dynamics
from fraxenv.dynamics.contact.constraint_rows import constraint_rows
from fraxenv.dynamics.contact.equality_rows import in_world_axes
from fraxenv.dynamics.contact.narrowphase import Contacts, find_contacts
from fraxenv.dynamics.contact.newton import Solution
from fraxenv.dynamics.contact.rows import Rows
from fraxenv.dynamics.scene.step import constrained_acceleration, scene_step
from fraxenv.dynamics.terms import compute_terms

EXACT = 'tolerance="0" iterations="200" ls_tolerance="1e-8" ls_iterations="200" jacobian="dense"'


def option(cone: str = "elliptic", impratio: float = 1, more: str = "") -> str:
    return f'<option timestep="0.002" cone="{cone}" impratio="{impratio}" {EXACT} {more}/>'


def cube(cone: str = "elliptic") -> str:
    """A box above a floor."""
    return f"""<mujoco>{option(cone)}<worldbody>
<geom name="floor" type="plane" size="1 1 .1"/>
<body name="cube" pos="0 0 .031"><freejoint/>
<geom name="cube" type="box" size=".05 .04 .03" mass="1"/></body></worldbody></mujoco>"""


def ball() -> str:
    """A ball that touches the floor: the least that a contact takes to compile."""
    return f"""<mujoco>{option()}<worldbody>
<geom name="floor" type="plane" size="1 1 .1"/>
<body name="ball" pos="0 0 .031"><freejoint/>
<geom name="ball" size=".03" mass="1"/></body></worldbody></mujoco>"""


def held(impratio: float = 10) -> str:
    """A cube between two pads, stiffer than most, that motors press; nothing else holds it."""
    pad = """<body name="{n}" pos="0 {y} 0"><joint name="{n}" type="slide" axis="0 {s} 0"
 damping="10" armature=".1"/><geom name="{n}" type="box" size=".012 .01 .02" mass=".05"/></body>"""
    pads = pad.format(n="left", y=".0301", s="-1") + pad.format(n="right", y="-.0301", s="1")
    return f"""<mujoco>{option(impratio=impratio)}
<default><geom solref=".004 1" solimp=".999 .999 .001"/></default><worldbody>{pads}
<body name="cube"><freejoint/><geom name="cube" type="box" size=".02 .02 .0205" mass=".064"/></body>
</worldbody><actuator><motor joint="left"/><motor joint="right"/></actuator></mujoco>"""


def _arm(inner: str) -> str:
    """Seven bodies in a chain, around `inner`, as heavy as a Panda's."""
    links = [  # position, axis, mass, centre of mass, inertia
        ("0 0 .333", "0 0 1", "3", "0 -.03 -.07", ".03 .03 .01", "-2.9 2.9"),
        ("0 0 0", "0 1 0", "3", "0 -.07 .03", ".03 .01 .03", "-1.8 1.8"),
        ("0 0 .316", "0 0 1", "3", ".04 .03 -.03", ".02 .02 .02", "-2.9 2.9"),
        (".08 0 0", "0 -1 0", "2.5", "-.04 .03 .03", ".02 .02 .02", "-3.07 -.07"),
        ("-.08 0 .384", "0 0 1", "2.5", "0 .04 -.1", ".03 .03 .01", "-2.9 2.9"),
        ("0 0 0", "0 -1 0", "1.5", ".05 .01 0", ".005 .005 .005", "-.02 3.75"),
        (".088 0 0", "0 0 1", "1", "0 0 .1", ".01 .01 .005", "-2.9 2.9"),
    ]
    for i, (at, axis, mass, com, inertia, limits) in reversed([*enumerate(links)]):
        turned = 'euler="3.141592653589793 0 0"' if i == 6 else ""
        loss = ".2" if i == 0 else "0"
        inner = f"""<body name="link{i}" pos="{at}" {turned} gravcomp="1">
<joint name="arm{i}" axis="{axis}" armature=".1" damping="1" frictionloss="{loss}"
 range="{limits}"/><inertial pos="{com}" mass="{mass}" diaginertia="{inertia}"/>{inner}</body>"""
    return inner


def grasp(cone: str = "elliptic", condim: int = 3, impratio: float = 1) -> str:
    """An arm with two fingers, whose pads are boxes, and a box on the floor between them."""
    finger = """<body name="{n}" pos="0 0 .16" gravcomp="1"><joint name="{n}" type="slide"
 axis="0 {s} 0" range="0 .04" armature=".05" damping="10"/><geom name="{n}" type="box"
 size=".012 .01 .02" pos="0 {p} .03" mass=".05" friction="1.2 .01 .001"/></body>"""
    fingers = finger.format(n="left", s="1", p=".01") + finger.format(n="right", s="-1", p="-.01")
    gains = [(600, 40)] * 4 + [(250, 15), (150, 10), (50, 5)]
    servos = "".join(
        f'<position joint="arm{i}" kp="{p}" kv="{d}"/>' for i, (p, d) in enumerate(gains)
    )
    return f"""<mujoco><compiler angle="radian"/>{option(cone, impratio)}
<default><geom condim="{condim}"/></default><worldbody>
<geom name="floor" type="plane" size="1 1 .1"/>{_arm(fingers)}
<body name="cube" pos=".5 0 .0205"><freejoint/>
<geom name="cube" type="box" size=".021 .02 .0205" mass=".1"/></body></worldbody>
<contact><exclude body1="left" body2="right"/></contact>
<actuator>{servos}<motor joint="left"/><motor joint="right"/></actuator></mujoco>"""


GRASP = np.array([0, 0.3648, 0, -2.3013, 0, 2.6662, 0, 0.03, 0.03, 0.5, 0, 0.0205, 1, 0, 0, 0])
"""A configuration of `grasp` with the pads on both sides of the box (found by `pregrasp`)."""


def pregrasp(model: mujoco.MjModel, height: float = 0.03) -> np.ndarray:
    """Configuration with the pads on both sides of the box, by damped least squares."""
    data = mujoco.MjData(model)
    data.qpos[:] = GRASP
    down = np.array([[1.0, 0, 0], [0, -1, 0], [0, 0, -1]])
    for _ in range(100):
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        at = 0.5 * (data.geom("left").xpos + data.geom("right").xpos)
        R = data.body("link6").xmat.reshape(3, 3)
        turn = 0.5 * np.cross(R.T, down.T).sum(axis=0)
        linear, angular = np.zeros((3, model.nv)), np.zeros((3, model.nv))
        mujoco.mj_jac(model, data, linear, angular, at, model.body("link6").id)
        J = np.concatenate([linear[:, :7], angular[:, :7]])
        error = np.concatenate([np.array([0.5, 0, height]) - at, turn])
        data.qpos[:7] += 0.5 * J.T @ np.linalg.solve(J @ J.T + 1e-6 * np.eye(6), error)
    return data.qpos.copy()


def quadruped(cone: str = "elliptic", condim: int = 3) -> str:
    """A trunk on four legs of three joints, with spheres as feet."""
    legs = ""
    for name, x, y in (("fl", 1, 1), ("fr", 1, -1), ("bl", -1, 1), ("br", -1, -1)):
        joint = 'damping=".2" armature=".01"'
        legs += f"""<body name="{name}hip" pos="{0.2 * x} {0.1 * y} 0">
<joint name="{name}0" axis="1 0 0" {joint} range="-40 40"/>
<inertial pos="0 0 0" mass=".5" diaginertia=".001 .001 .001"/>
<body name="{name}thigh" pos="0 {0.05 * y} 0"><joint name="{name}1" axis="0 1 0" {joint}
 range="-90 90"/><inertial pos="0 0 -.1" mass=".6" diaginertia=".003 .003 .0005"/>
<body name="{name}shank" pos="0 0 -.2"><joint name="{name}2" axis="0 1 0" {joint}
 range="-150 -10" frictionloss=".1"/><inertial pos="0 0 -.1" mass=".2"
 diaginertia=".001 .001 .0001"/><geom name="{name}" type="sphere" size=".02" pos="0 0 -.2"
 friction=".8 .02 .001" condim="{condim}"/></body></body></body>"""
    return f"""<mujoco>{option(cone)}<worldbody>
<geom name="floor" type="plane" size="1 1 .1" condim="{condim}"/>
<body name="trunk" pos="0 0 .4"><freejoint/>
<inertial pos="0 0 0" mass="6" diaginertia=".05 .2 .22"/>{legs}</body></worldbody></mujoco>"""


EQUALITIES = f"""<mujoco>{option()}<worldbody>
<body name="a" pos="0 0 1"><joint name="a1" axis="0 1 0"/><joint name="a2" axis="1 0 0"/>
<geom size=".1 .05 .03" type="box" mass="1" contype="0" conaffinity="0"/>
<body name="b" pos=".4 0 0"><joint name="b" axis="0 0 1" frictionloss=".3"/>
<geom size=".1 .05 .03" type="box" mass=".5" contype="0" conaffinity="0"/></body></body>
<body name="c" pos=".5 .2 1"><freejoint/><geom size=".1 .05 .03" type="box" mass=".7"
 contype="0" conaffinity="0"/></body>
<body name="e" pos="0 1 1"><joint name="e" type="slide" axis="0 0 1" range="-.1 .1" margin=".02"
 solreflimit="-300 -20"/><geom size=".1" mass=".7" contype="0" conaffinity="0"/></body>
<body name="d" pos="-.5 .2 1"><joint name="d" type="ball" limited="true" range="0 40"
 solimplimit=".8 .95 .02 .3 3"/>
<geom size=".1 .05 .03" pos=".1 0 0" type="box" mass=".7" contype="0" conaffinity="0"/></body>
</worldbody><equality>
<joint joint1="b" joint2="a1" polycoef=".1 .5 .2 -.1 .05"/>
<joint joint1="a2" polycoef=".2 0 0 0 0"/>
<connect body1="b" body2="c" anchor=".1 .02 .03" solref=".03 .8"/>
<weld body1="c" body2="a" torquescale=".7" solimp=".7 .9 .05 .4 2"/>
<weld body1="d" relpose=".1 .1 .9 1 .2 .1 0"/>
</equality></mujoco>"""


SCENES = {
    "cube": cube(),
    "cube, pyramidal": cube("pyramidal"),
    "equalities": EQUALITIES,
}
SLOW = {
    "grasp": grasp(),
    **{
        f"quadruped, {c}, {d}": quadruped(c, d)
        for c in ("elliptic", "pyramidal")
        for d in (1, 3, 4, 6)
    },
    **{f"grasp, {c}, {d}": grasp(c, d) for c in ("elliptic", "pyramidal") for d in (1, 3, 6)},
    "grasp, condim 4, impratio 10": grasp(condim=4, impratio=10),
}


class Trial(NamedTuple):
    """A scene of MuJoCo's and of ours, and what ours computes at a state."""

    model: mujoco.MjModel
    scene: dynamics.Scene
    solve: Callable[..., tuple[Contacts, Rows, jax.Array, Solution]]


def trial(xml: str) -> Trial:
    """The scene, with one compiled function of q, v, generalized forces, controls, warm start."""
    model = mujoco.MjModel.from_xml_string(xml)
    scene = dynamics.load_mjcf(model)

    @jax.jit
    def solve(
        q: jax.Array, v: jax.Array, tau: jax.Array, ctrl: jax.Array, warm: jax.Array
    ) -> tuple[Contacts, Rows, jax.Array, Solution]:
        kin = compute_terms(scene.system, q, v).kin
        contacts = find_contacts(scene.system, scene.constraints, kin)
        rows = constraint_rows(
            scene.system,
            scene.constraints,
            kin,
            q,
            v,
            contacts,
            jnp.asarray(scene.timestep, q.dtype),
        )
        jacobian, reference = (
            in_world_axes(scene.constraints.layout, kin, x)
            for x in (rows.scalar.jacobian, rows.scalar.reference)
        )
        scalar = dataclasses.replace(rows.scalar, jacobian=jacobian, reference=reference)
        rows = dataclasses.replace(rows, scalar=scalar)
        a, solution = constrained_acceleration(scene, q, v, tau, warm, ctrl)
        return contacts, rows, a, solution

    return Trial(model, scene, solve)


def kicked(model: mujoco.MjModel, data: mujoco.MjData, rng: np.random.Generator) -> None:
    """Random targets of servos, a firm grip; without actuators, random forces."""
    if model.nu:
        data.ctrl[:7] = GRASP[:7] + 0.05 * rng.normal(size=7)
        data.ctrl[7:] = -10 + 3 * rng.normal(size=model.nu - 7)
    else:
        size = [2, 2, 2, 0.1, 0.1, 0.1] if model.nv == 6 else [3] * model.nv
        data.qfrc_applied[:] = np.array(size) * rng.normal(size=model.nv)


def rollout(
    model: mujoco.MjModel, steps: int, every: int, seed: int = 0
) -> Iterator[mujoco.MjData]:
    """Every few steps of a random motion, forward dynamics evaluated."""
    data, rng = mujoco.MjData(model), np.random.default_rng(seed)
    if model.nq == len(GRASP):
        data.qpos[:] = pregrasp(model)
    for step in range(steps):
        if step % 10 == 0:
            kicked(model, data, rng)
        mujoco.mj_step(model, data)
        if step % every == 0:
            mujoco.mj_forward(model, data)
            yield data


def solved(t: Trial, data: mujoco.MjData, dtype: type = np.float64) -> tuple:
    """`t.solve` at MuJoCo's state, with its warm start."""
    arrays = (data.qpos, data.qvel, data.qfrc_applied, data.ctrl, data.qacc_warmstart)
    return t.solve(*(np.array(x, dtype) for x in arrays))


def matched(t: Trial, data: mujoco.MjData, contacts: Contacts) -> np.ndarray:
    """The slot of each of MuJoCo's contacts: that of the same pair nearest to it.

    Raises:
        AssertionError: there are other contacts.
    """
    layout, active = t.scene.constraints.layout, np.flatnonzero(contacts.active)
    assert len(active) == data.ncon
    names = [set(t.scene.pair_names[layout.slot_pair[k]]) for k in range(layout.slots)]
    free, slots = list(active), []
    for contact in data.contact:
        geoms = {t.model.geom(int(g)).name for g in contact.geom}
        near = [
            (np.abs(np.asarray(contacts.position[k]) - contact.pos).max(), k)
            for k in free
            if names[k] == geoms
        ]
        distance, slot = min(near)
        assert distance < 1e-8
        free.remove(slot)
        slots.append(slot)
    return np.array(slots, int)


def error(actual: object, expected: object) -> float:
    """Largest difference, relative to the largest entry."""
    a, b = np.asarray(actual, float), np.asarray(expected, float)
    assert a.shape == b.shape
    return float(np.abs(a - b).max(initial=0) / max(np.abs(b).max(initial=0), 1e-12))


@jax.jit
def _jacobians(rows: Rows) -> list[Array]:
    """Jacobians (n, d, nv) of the contacts' rows."""
    zero = jnp.zeros(rows.scalar.jacobian.shape[1])
    return [jax.jacobian(c.apply)(zero) for c in rows.contacts]


def ordered(rows: Rows, slots: np.ndarray, t: Trial) -> dict[str, np.ndarray]:
    """Our active rows in MuJoCo's order."""
    s = rows.scalar
    active = np.asarray(s.weight) > 0
    J, aref, D = ([np.asarray(x)[active]] for x in (s.jacobian, s.reference, s.weight))
    jacobians = [np.asarray(J) for J in _jacobians(rows)]
    for slot in slots:
        group, i = next(
            (g, c.slots.index(slot)) for g, c in enumerate(rows.contacts) if slot in c.slots
        )
        c, own = rows.contacts[group], jacobians[group][i]
        edges = np.eye(len(own))
        if c.cone == "pyramidal" and len(own) > 1:
            mu = np.asarray(c.coefficients)[i]
            sides = [(k, s) for k in range(1, len(own)) for s in (1, -1)]
            edges = np.array([edges[0] + s * mu[k - 1] * edges[k] for k, s in sides])
            weight = np.full(len(edges), c.weight[i])
        elif len(own) > 1:
            mu = np.asarray(c.coefficients)[i]
            weight = c.weight[i] / c.regularised[i] ** 2 * np.array([c.regularised[i], *mu]) ** 2
        else:
            weight = np.asarray(c.weight[i])[None]
        J.append(edges @ own)
        aref.append(edges @ np.asarray(c.reference)[i])
        D.append(weight)
    return {"J": np.concatenate(J), "aref": np.concatenate(aref), "D": np.concatenate(D)}


def stepper(t: Trial, integrator: str) -> jax.stages.Wrapped:
    @jax.jit
    def step(
        q: Array, v: Array, tau: Array, ctrl: Array, warm: Array
    ) -> tuple[Array, Array, Solution]:
        return scene_step(t.scene, q, v, tau, None, warm, integrator, ctrl)

    return step


def farthest(xml: str, integrator: str, steps: int) -> float:
    """Largest difference of configurations from MuJoCo's over pick and lift, or under kicks."""
    t = trial(xml)
    t.model.opt.integrator = {
        "euler": mujoco.mjtIntegrator.mjINT_EULER,
        "implicitfast": mujoco.mjtIntegrator.mjINT_IMPLICITFAST,
    }[integrator]
    step, data, rng = stepper(t, integrator), mujoco.MjData(t.model), np.random.default_rng(0)
    lifts = t.model.nq == len(GRASP)
    if lifts:
        data.qpos[:], up = pregrasp(t.model, 0.03), pregrasp(t.model, 0.12)
    start = data.qpos.copy()
    q, v, warm = data.qpos.copy(), data.qvel.copy(), np.zeros(t.model.nv)
    worst = 0.0
    for k in range(steps):
        if lifts:
            share = np.clip((k - 200) / 500, 0, 1)
            data.ctrl[:7] = (1 - share) * start[:7] + share * up[:7]
            data.ctrl[7:] = -15
        elif k % 10 == 0:
            kicked(t.model, data, rng)
        q, v, solution = step(q, v, data.qfrc_applied, data.ctrl, warm)
        warm = solution.acceleration
        mujoco.mj_step(t.model, data)
        worst = max(worst, np.abs(q - data.qpos).max())
    if lifts:
        assert data.qpos[11] > 0.06  # the box is in the air
    return worst
