"""Our contacts, rows, accelerations and motion of a scene against MuJoCo's.

Both get the same states, of random motions that MuJoCo computes, and the same forces and controls.
MuJoCo solves each state to convergence: what its default tolerance leaves is a thousand times more
than what is compared here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as JaxArray
from numpy.typing import DTypeLike, NDArray

from fraxenv import dynamics
from fraxenv.dynamics import Scene
from fraxenv.dynamics.contact.narrowphase import Contacts, find_contacts
from fraxenv.dynamics.contact.newton import Solution
from fraxenv.dynamics.contact.rows import ContactRows, constraint_rows
from fraxenv.dynamics.scene.step import constrained_acceleration, scene_step

from ..errors import SceneLoadError, import_extra
from .comparison import Trajectories

Array = NDArray[np.floating[Any]]

TOLERANCES: dict[str, dict[str, float | None]] = {
    "float64": {
        "geometry": 1e-12,
        "rows": 1e-12,
        "forces": 1e-10,
        "median": 1e-10,
        "trajectory": 1e-9,
    },
    "float32": {
        "geometry": 1e-6,
        "rows": 1e-5,
        "forces": 1e-3,
        "median": 1e-5,
        "trajectory": None,
    },
}
"""Of contact geometry, m; of rows, relative; of accelerations and forces, relative to the largest
entry, at worst and in the median; of a trajectory, rad and m, which is only reported in float32."""

NEAR_MARGIN = {"float64": 1e-9, "float32": 1e-6}
"""m; whether a contact counts that is nearer than this to its margin is a matter of rounding."""

EPISODE, SPACING, HOLD = 1.0, 0.02, 0.1
"""s: after which a motion begins anew, between states, and for which forces stay what they are."""

PUSH, TURN = 5.0, 30.0
"""m/s^2 of free bodies, less than gravity; rad/s^2 or m/s^2 of all else; at most."""

SERVO = 0.1
"""rad or m, by which the targets of servos without a range are moved at most."""

DISTURBANCE, CHAOS = 1e-14, 1e-10
"""rad/s and m/s, by which MuJoCo's twin begins beside it; rad and m, at which they have parted."""


def is_mjcf(path: Path) -> bool:
    """Whether a file is MJCF: XML whose root is `mujoco`, where that of a URDF is `robot`."""
    if path.suffix != ".xml" or not path.is_file():
        return False
    from lxml import etree

    # As for URDF: no entity, no file and no address in it is looked up.
    parser = etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True)
    try:
        root = etree.fromstring(path.read_bytes(), parser)
    except etree.XMLSyntaxError:
        return True  # MuJoCo says what is wrong with it
    return bool(root.tag == "mujoco")


def load_exact(path: Path) -> Any:
    """The `mujoco.MjModel` of a file: solved to convergence, and with a name for every geom.

    Raises:
        SceneLoadError: MuJoCo cannot compile it.
    """
    mujoco = import_extra("mujoco", "mujoco", "The cross-check")
    try:
        spec = mujoco.MjSpec.from_file(str(path))
        taken = {g.name for g in spec.geoms}
        for i, geom in enumerate(spec.geoms):
            if not geom.name:
                geom.name = next(n for n in (f"geom{i}", f"geom {i} of {path}") if n not in taken)
        model = spec.compile()
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise SceneLoadError(f"{path}: MuJoCo cannot compile it: {reason}") from error
    solve_exactly(model)
    return model


def solve_exactly(model: Any) -> None:
    """Let MuJoCo's solver go on until nothing changes."""
    mujoco = import_extra("mujoco", "mujoco", "The cross-check")
    opt = model.opt
    opt.tolerance, opt.ls_tolerance = 0.0, 1e-8
    opt.iterations, opt.ls_iterations = 200, 200
    opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE


# --- motions --------------------------------------------------------------------------------------


class Drive(NamedTuple):
    """What drives a motion: at n time steps forces (n, nv), N m and N, and controls (n, nu)."""

    force: Array
    ctrl: Array


class Start(NamedTuple):
    """Where a motion begins: `q` (nq,), `v` (nv,), and controls (nu,)."""

    q: Array
    v: Array
    ctrl: Array


def starts(model: Any) -> list[Start]:
    """The model's keyframes; if it has none, its reference, with servos that hold it."""
    if model.nkey:
        return [
            Start(*(np.array(x[k]) for x in (model.key_qpos, model.key_qvel, model.key_ctrl)))
            for k in range(model.nkey)
        ]
    at = model.jnt_qposadr[model.actuator_trnid[:, 0]] if model.nu else np.zeros(0, int)
    length = model.actuator_gear[:, 0] * model.qpos0[at]
    bias, gain = model.actuator_biasprm, model.actuator_gainprm[:, 0]
    force = bias[:, 0] + bias[:, 1] * length
    ctrl = np.divide(-force, gain, out=np.zeros(model.nu), where=gain != 0)
    return [Start(model.qpos0.copy(), np.zeros(model.nv), ctrl)]


def random_drive(model: Any, start: Start, steps: int, seed: int, dtype: DTypeLike) -> Drive:
    """New forces and controls every 0.1 s.

    Forces accelerate a free body by 5 m/s^2 and everything else by 30 rad/s^2 or m/s^2 at most, if
    it moves on its own. Controls are drawn from a tenth of their range about those of the start, or
    move a servo's target by 0.1 rad or m at most.
    """
    mujoco = import_extra("mujoco", "mujoco", "The cross-check")
    data, rng = mujoco.MjData(model), np.random.default_rng(seed)
    data.qpos[:] = start.q
    mujoco.mj_forward(model, data)
    inertia = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, inertia)
    most = np.full(model.nv, TURN)
    for j in np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE):
        most[model.jnt_dofadr[j] : model.jnt_dofadr[j] + 3] = PUSH
    hold = max(1, round(HOLD / model.opt.timestep))
    draws = -(-steps // hold)
    force = rng.uniform(-1, 1, (draws, model.nv)) * most * np.diagonal(inertia)
    limited = model.actuator_ctrllimited.astype(bool)
    low, high = model.actuator_ctrlrange.T
    servo = model.actuator_biasprm[:, 1] != 0
    reach = np.where(limited, 0.1 * (high - low), np.where(servo, SERVO, 0.0))
    ctrl = start.ctrl + rng.uniform(-1, 1, (draws, model.nu)) * reach
    ctrl = np.where(limited, np.clip(ctrl, low, high), ctrl)
    held = (x.repeat(hold, axis=0)[:steps].astype(dtype) for x in (force, ctrl))
    return Drive(*held)


class State(NamedTuple):
    """What is given at one state, or (n, ...) at n: all but `warm_start` matters.

    Attributes:
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        force: (nv,), N m and N.
        ctrl: (nu,).
        warm_start: (nv,), rad/s^2 and m/s^2.
    """

    q: Any
    v: Any
    force: Any
    ctrl: Any
    warm_start: Any


def random_states(model: Any, count: int, seed: int, dtype: DTypeLike) -> State:
    """States of random motions, every 0.02 s of them; they begin anew after 1 s."""
    mujoco = import_extra("mujoco", "mujoco", "The cross-check")
    steps = max(1, round(EPISODE / model.opt.timestep))
    every = max(1, round(SPACING / model.opt.timestep))
    begins = starts(model)
    found: list[State] = []
    data, episode = mujoco.MjData(model), 0
    while len(found) < count:
        start = begins[episode % len(begins)]
        drive = random_drive(model, start, steps, seed + episode, dtype)
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = start.q, start.v
        for k, (force, ctrl) in enumerate(zip(*drive, strict=True)):
            data.qfrc_applied[:], data.ctrl[:] = force, ctrl
            if k % every == 0:
                now = (data.qpos, data.qvel, force, ctrl, data.qacc_warmstart)
                found.append(State(*(np.array(x, dtype) for x in now)))
            mujoco.mj_step(model, data)
        episode += 1
    return State(*(np.stack(x) for x in zip(*found[:count], strict=True)))


# --- MuJoCo's numbers, and ours -------------------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    """What MuJoCo computes at one state: contacts (n, ...), rows (m, ...), and what they do.

    `smooth` is the acceleration (nv,) without constraints.
    """

    geoms: list[frozenset[str]]
    distance: Array
    position: Array
    frame: Array
    margin: Array
    force: Array
    J: Array
    R: Array
    D: Array
    aref: Array
    acceleration: Array
    smooth: Array
    joint_force: Array


def expected(model: Any, states: State) -> Iterator[Expected]:
    """What MuJoCo computes at the states, one after the other."""
    mujoco = import_extra("mujoco", "mujoco", "The cross-check")
    data = mujoco.MjData(model)
    for q, v, force, ctrl, warm_start in zip(*states, strict=True):
        data.qpos[:], data.qvel[:], data.qfrc_applied[:], data.ctrl[:] = q, v, force, ctrl
        data.qacc_warmstart[:] = warm_start
        mujoco.mj_forward(model, data)
        contact = data.contact
        forces = np.zeros((data.ncon, 6))
        for i, f in enumerate(forces):
            mujoco.mj_contactForce(model, data, i, f)
        yield Expected(
            geoms=[frozenset(model.geom(int(g)).name for g in pair) for pair in contact.geom],
            distance=contact.dist.copy(),
            position=contact.pos.copy(),
            frame=contact.frame.reshape(-1, 3, 3).copy(),
            margin=contact.includemargin.copy(),
            force=forces,
            J=data.efc_J.reshape(-1, model.nv).copy(),
            R=data.efc_R.copy(),
            D=data.efc_D.copy(),
            aref=data.efc_aref.copy(),
            acceleration=data.qacc.copy(),
            smooth=data.qacc_smooth.copy(),
            joint_force=data.qfrc_constraint.copy(),
        )


class Computed(NamedTuple):
    """What we compute, (n, ...) at n states.

    `blocks` are, for each group of contact rows in turn, Jacobians (slots, d, nv), reference
    accelerations (slots, d), weights, coefficients and regularised friction.
    """

    contacts: Contacts
    jacobian: Any
    reference: Any
    weight: Any
    blocks: tuple[tuple[Any, ...], ...]
    acceleration: Any
    solution: Solution


@dataclass(frozen=True)
class Ours:
    """What we compute at all states, and how contact rows are grouped."""

    scene: Scene
    computed: Computed
    groups: tuple[ContactRows, ...]

    def at(self, k: int) -> Computed:
        """At one state."""
        return jax.tree.map(lambda x: x[k], self.computed)  # type: ignore[no-any-return]

    @cached_property
    def limit_order(self) -> NDArray[np.intp]:
        """Our rows of joint limits in MuJoCo's order, that of joints, as indices."""
        layout, topology = self.scene.constraints.layout, self.scene.system.topology
        body = {int(topology.v_index[b]): b for b in range(len(topology.joints))}
        joints = [body[dof] for dof in layout.limited for _ in range(2)]
        return np.argsort(np.array([*joints, *layout.limited_balls], int), kind="stable")


def our_numbers(scene: Scene, states: State) -> Ours:
    """Everything that is compared, in the states' dtype."""
    groups: list[ContactRows] = []

    def one(s: State) -> Computed:
        kin = dynamics.compute_kinematics(scene.system, s.q)
        contacts = find_contacts(scene.system, scene.constraints, kin)
        timestep = jnp.asarray(scene.timestep, s.q.dtype)
        rows = constraint_rows(scene.system, scene.constraints, kin, s.q, s.v, contacts, timestep)
        groups[:] = rows.contacts
        a, solution = constrained_acceleration(scene, s.q, s.v, s.force, s.warm_start, s.ctrl)
        unit = jnp.eye(scene.nv, dtype=s.q.dtype)
        blocks = tuple(
            (
                jax.vmap(c.apply, out_axes=-1)(unit),
                c.reference,
                c.weight,
                c.coefficients,
                c.regularised,
            )
            for c in rows.contacts
        )
        scalar = rows.scalar
        return Computed(
            contacts, scalar.jacobian, scalar.reference, scalar.weight, blocks, a, solution
        )

    computed = jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(states))
    return Ours(scene, computed, tuple(groups))


def matched(ours: Ours, now: Computed, theirs: Expected) -> NDArray[np.intp] | None:
    """The slot of each of MuJoCo's contacts: the nearest of the same geoms; None if they differ."""
    layout, names = ours.scene.constraints.layout, ours.scene.pair_names
    free = np.flatnonzero(now.contacts.active).tolist()
    if len(free) != len(theirs.geoms):
        return None
    slots = []
    for geoms, position in zip(theirs.geoms, theirs.position, strict=True):
        alike = [k for k in free if frozenset(names[layout.slot_pair[k]]) == geoms]
        if not alike:
            return None
        away = np.abs(now.contacts.position[alike] - position).max(axis=1)
        slots.append(alike[int(away.argmin())])
        free.remove(slots[-1])
    return np.array(slots, int)


def is_borderline(ours: Ours, now: Computed, theirs: Expected, near: float) -> bool:
    """Whether some contact, here or there, is so near to its margin that rounding decides."""
    layout, system = ours.scene.constraints.layout, now.contacts
    if np.any(np.abs(theirs.distance - theirs.margin) < near):
        return True
    margins = _margins(ours.scene)[layout.slot_pair] if layout.slots else np.zeros(0)
    return bool(np.any(np.abs(system.distance - margins) < near))


def _margins(scene: Scene) -> Array:
    from fraxenv.dynamics.contact.mixing import mixed_parameters

    return np.asarray(mixed_parameters(scene.constraints, jnp.result_type(float)).margin)


def our_rows(ours: Ours, now: Computed, slots: NDArray[np.intp]) -> tuple[Array, Array, Array]:
    """J (m, nv), aref (m,) and D (m,) of the active rows, in MuJoCo's order."""
    n = len(now.weight) - len(ours.limit_order)
    order = np.concatenate([np.arange(n), n + ours.limit_order])
    order = order[now.weight[order] > 0]
    J, aref, D = [now.jacobian[order]], [now.reference[order]], [now.weight[order]]
    where = {s: (g, i) for g, c in enumerate(ours.groups) for i, s in enumerate(c.slots)}
    for slot in slots.tolist():
        g, i = where[slot]
        own, reference, weight, mu, regularised = (x[i] for x in now.blocks[g])
        dim = len(own)
        edges, weights = np.eye(dim, dtype=own.dtype), np.full(dim, weight)
        if dim > 1 and ours.groups[g].cone == "pyramidal":
            sides = [(k, side) for k in range(1, dim) for side in (1, -1)]
            edges = np.array([edges[0] + side * mu[k - 1] * edges[k] for k, side in sides])
            weights = np.full(len(edges), weight)
        elif dim > 1:
            weights = weight / regularised**2 * np.array([regularised, *mu]) ** 2
        J.append(edges @ own)
        aref.append(edges @ reference)
        D.append(weights)
    return np.concatenate(J), np.concatenate(aref), np.concatenate(D)


# --- comparison -----------------------------------------------------------------------------------


class Check(NamedTuple):
    """A line of the table: the worst error, and what is allowed; None: it is only reported."""

    quantity: str
    error: float
    allowed: float | None

    @property
    def within(self) -> bool:
        """Whether it is allowed; never if it is not a number."""
        return self.allowed is None or bool(self.error <= self.allowed)


@dataclass(frozen=True)
class Work:
    """What the solver had to do, at n states, each (n,): contacts, rounds, residual."""

    contacts: NDArray[np.intp]
    rounds: NDArray[np.intp]
    residual: Array
    borderline: int

    def text(self) -> str:
        """For people."""
        count, rounds = self.contacts, self.rounds
        text = (
            f"{count.sum()} contacts, {np.median(count):.0f} in the median state, {count.max()} at "
            f"most; {rounds.mean():.1f} rounds of Newton's method on average, {rounds.max()} at "
            f"most; residual {self.residual.max():.0e} at most."
        )
        if self.borderline:
            text += (
                f" In {self.borderline} states rounding decides whether a contact counts, and it "
                "was decided otherwise: they are left out."
            )
        return text


def compare(
    ours: Ours, theirs: Sequence[Expected], dtype: np.dtype[Any]
) -> tuple[list[Check], Work]:
    """The worst errors over all states; those where the contacts differ are counted, not compared.

    An error is relative to the largest entry of MuJoCo's in the same state, or in the median state
    if that is larger; of accelerations, which vanish at rest, to a hundredth of those without
    constraints at least.
    """
    allowed = TOLERANCES[dtype.name]
    found: dict[str, list[float]] = {}
    relative: dict[str, list[tuple[float, float]]] = {}
    different = borderline = 0
    for k, other in enumerate(theirs):
        now = ours.at(k)
        slots = matched(ours, now, other)
        if slots is None:
            near = is_borderline(ours, now, other, NEAR_MARGIN[dtype.name])
            borderline, different = borderline + near, different + (not near)
            continue
        c, s = now.contacts, now.solution
        J, aref, D = our_rows(ours, now, slots)
        alike = D.shape == other.D.shape
        absolute = {
            "contact distance, m": c.distance[slots] - other.distance,
            "contact position, m": c.position[slots] - other.position,
            "contact frame": c.frame[slots] - other.frame,
            "rows: R": (1 / D - other.R) / other.R if alike else np.inf,
            "rows: D": (D - other.D) / other.D if alike else np.inf,
        }
        pairs = {
            "rows: J": (J if alike else np.inf, other.J),
            "rows: aref": (aref if alike else np.inf, other.aref),
            "acceleration": (now.acceleration, other.acceleration),
            "contact forces": (s.force[slots], other.force),
            "joint forces of constraints": (s.joint_force, other.joint_force),
        }
        for quantity, difference in absolute.items():
            found.setdefault(quantity, []).append(_largest(difference))
        for quantity, (actual, reference) in pairs.items():
            numbers = _largest(actual - reference), _largest(reference)
            relative.setdefault(quantity, []).append(numbers)
    for quantity, values in relative.items():
        error, scale = np.array(values).T
        floor = float(np.median(scale))
        if quantity == "acceleration":
            floor = max(floor, 0.01 * float(np.median([_largest(x.smooth) for x in theirs])))
        scale = np.maximum(scale, floor)
        ratio = np.divide(error, scale, out=np.where(error > 0, np.inf, 0.0), where=scale > 0)
        found[quantity] = ratio.tolist()

    checks = [Check("states with other contacts", different, 0)]
    for quantity, errors in found.items():
        kind = {"contact": "geometry", "rows:": "rows"}.get(quantity.split()[0], "forces")
        kind = "forces" if "forces" in quantity else kind
        checks.append(Check(quantity, float(np.max(errors)), allowed[kind]))
        if quantity == "acceleration":
            checks.append(
                Check("acceleration, median", float(np.median(errors)), allowed["median"])
            )
    solution = ours.computed.solution
    checks.append(Check("states not converged", int(np.sum(~solution.converged)), 0))
    contacts = np.asarray(ours.computed.contacts.active).sum(axis=1)
    rounds, residual = np.asarray(solution.rounds), np.asarray(solution.residual)
    work = Work(contacts, rounds, residual, borderline)
    return checks, work


def _largest(x: Any) -> float:
    return float(np.abs(x).max(initial=0)) if np.isfinite(x).all() else np.inf


# --- trajectories ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Motion:
    """The same motion here and by MuJoCo.

    Attributes:
        moved: both trajectories.
        compared: steps until a twin of MuJoCo's, begun 1e-14 rad/s and m/s beside it, has parted
            by 1e-10: from there on no two programs agree.
        rounds: (n,), of each step.
        converged: (n,).
    """

    moved: Trajectories
    compared: int
    rounds: NDArray[np.intp]
    converged: NDArray[np.bool_]

    @property
    def error(self) -> float:
        """The largest difference while they are compared, rad and m."""
        return _largest(self.moved.difference[: self.compared])


def motion(scene: Scene, model: Any, seconds: float, seed: int, dtype: DTypeLike) -> Motion:
    """A random motion of the scene, from the first start."""
    start = starts(model)[0]
    steps = max(1, round(seconds / model.opt.timestep))
    drive = random_drive(model, start, steps, seed, dtype)
    theirs = _trajectory(model, start, drive)
    rng = np.random.default_rng(seed)
    beside = start._replace(v=start.v + DISTURBANCE * rng.choice([-1.0, 1.0], model.nv))
    twin = _trajectory(model, beside, drive)

    @jax.jit
    def program(q: JaxArray, v: JaxArray, drive: Drive) -> Any:
        def step(state: Any, x: Any) -> Any:
            q, v, warm_start = state
            force, ctrl = x
            q, v, s = scene_step(scene, q, v, force, None, warm_start, None, ctrl)
            return (q, v, s.acceleration), (q, s.rounds, s.converged)

        return jax.lax.scan(step, (q, v, jnp.zeros_like(v)), tuple(drive))[1]

    ours, rounds, converged = program(start.q.astype(dtype), start.v.astype(dtype), drive)
    difference = jax.jit(jax.vmap(lambda a, b: dynamics.difference(scene.system, a, b)))
    parted = np.abs(np.asarray(difference(theirs, twin))).max(axis=1) > CHAOS
    compared = int(parted.argmax()) if parted.any() else steps
    if np.dtype(dtype) != np.float64:  # the twin is far nearer than one rounding
        compared = steps
    time = model.opt.timestep * np.arange(1, steps + 1)
    apart = np.asarray(difference(theirs, np.asarray(ours, float)), float)
    return Motion(
        Trajectories(time, np.asarray(ours, float), theirs, apart),
        compared,
        np.asarray(rounds),
        np.asarray(converged),
    )


def _trajectory(model: Any, start: Start, drive: Drive) -> Array:
    """MuJoCo's configurations (n, nq)."""
    mujoco = import_extra("mujoco", "mujoco", "The cross-check")
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = start.q, start.v
    found = []
    for force, ctrl in zip(*drive, strict=True):
        data.qfrc_applied[:], data.ctrl[:] = force, ctrl
        mujoco.mj_step(model, data)
        found.append(data.qpos.copy())
    return np.array(found)


def load_scene(model: Any, path: Path) -> Scene:
    """Our scene of a model, named after its file if it has no name of its own.

    Raises:
        SceneLoadError: something in it is not modelled; names the element and the remedy.
    """
    scene = dynamics.load_mjcf(model)
    named = dataclasses.replace(scene.system.topology, name=path.stem)
    return scene.replace(system=dataclasses.replace(scene.system, topology=named), name=path.stem)
