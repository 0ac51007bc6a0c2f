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
from fraxenv.dynamics.contact.constraint_rows import constraint_rows
from fraxenv.dynamics.contact.equality_rows import in_world_axes
from fraxenv.dynamics.contact.narrowphase import Contacts, find_contacts
from fraxenv.dynamics.contact.newton import Solution
from fraxenv.dynamics.contact.rows import ContactRows
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

ROUNDING = 1e-15
"""rad and m, by which a state is moved to see how accurate MuJoCo is there."""

DISTURBANCE, CHAOS = 1e-14, 1e-10
"""rad, m, and these per second, by which MuJoCo's twin begins beside it; rad and m, at which they
have parted."""


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


def mass_matrix(model: Any, data: Any) -> NDArray[np.float64]:
    """Mass matrix (nv, nv) where MuJoCo's data is, by products: `mj_fullM` changed in MuJoCo 4."""
    mujoco = import_extra("mujoco", "mujoco", "The cross-check")
    matrix = np.zeros((model.nv, model.nv))
    for row, axis in zip(matrix, np.eye(model.nv), strict=True):
        mujoco.mj_mulM(model, data, row, axis)
    return matrix


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
    inertia = mass_matrix(model, data)
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
        counts = np.flatnonzero(contact.exclude == 0)  # MuJoCo lists those in the gap, too
        forces = np.zeros((len(counts), 6))
        for i, f in zip(counts.tolist(), forces, strict=True):
            mujoco.mj_contactForce(model, data, i, f)
        pairs = contact.geom[counts]
        yield Expected(
            geoms=[frozenset(model.geom(int(g)).name for g in pair) for pair in pairs],
            distance=contact.dist[counts],
            position=contact.pos[counts],
            frame=contact.frame[counts].reshape(-1, 3, 3),
            margin=contact.includemargin[counts],
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
        jacobian, reference = (
            in_world_axes(scene.constraints.layout, kin, x)
            for x in (rows.scalar.jacobian, rows.scalar.reference)
        )
        return Computed(contacts, jacobian, reference, rows.scalar.weight, blocks, a, solution)

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
    ill: int

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
        if self.ill:
            text += (
                f" In {self.ill} states MuJoCo's own numbers move by as much, if the configuration "
                f"moves by {ROUNDING:g}: they are left out."
            )
        return text


def compare(
    model: Any, states: State, ours: Ours, theirs: Sequence[Expected], dtype: np.dtype[Any]
) -> tuple[list[Check], Work]:
    """The worst errors over all states; those where the contacts differ are counted, not compared.

    An error is relative to the largest entry of MuJoCo's in the same state, or in the median state
    if that is larger; of accelerations, which vanish at rest, to a hundredth of those without
    constraints at least. States where MuJoCo's own numbers move by as much, if the configuration
    moves by a rounding, are counted and left out: a cylinder that stands on a plane has distances
    of 1e-12 m only, by its formula.
    """
    kinds = {q: _kind(q) for q in (*_ABSOLUTE, *_RELATIVE)}
    allowed = TOLERANCES[dtype.name]
    compared: list[int] = []
    found: list[dict[str, float]] = []
    different = borderline = 0
    for k, other in enumerate(theirs):
        slots = matched(ours, ours.at(k), other)
        if slots is None:
            near = is_borderline(ours, ours.at(k), other, NEAR_MARGIN[dtype.name])
            borderline, different = borderline + near, different + (not near)
            continue
        compared.append(k)
        found.append(_differences(_in_their_order(ours, ours.at(k), slots, other), other))
    scales = _scales([theirs[k] for k in compared], theirs)

    ill = np.zeros(len(compared), bool)
    errors = {q: np.array([f[q] for f in found]) for q in kinds}
    for i, k in enumerate(compared):
        relative = {q: errors[q][i] / scales[q][i] for q in kinds}
        beyond = [q for q in kinds if not relative[q] <= allowed[kinds[q]]]
        if beyond:
            own = [_differences(x, theirs[k]) for x in _nearby(model, states, k)]
            ill[i] = all(errors[q][i] <= 4 * max(x[q] for x in own) for q in beyond)

    checks = [Check("states with other contacts", different, 0)]
    for quantity, kind in kinds.items():
        ratios = (errors[quantity] / scales[quantity])[~ill] if len(compared) else np.zeros(0)
        checks.append(Check(quantity, float(np.max(ratios, initial=0)), allowed[kind]))
        if quantity == "acceleration":
            median = float(np.median(ratios)) if len(ratios) else 0.0
            checks.append(Check("acceleration, median", median, allowed["median"]))
    solution = ours.computed.solution
    checks.append(Check("states not converged", int(np.sum(~solution.converged)), 0))
    contacts = np.asarray(ours.computed.contacts.active).sum(axis=1)
    rounds, residual = np.asarray(solution.rounds), np.asarray(solution.residual)
    work = Work(contacts, rounds, residual, borderline, int(ill.sum()))
    return checks, work


_ABSOLUTE = {
    "contact distance, m": "distance",
    "contact position, m": "position",
    "contact frame": "frame",
    "rows: R": "R",
    "rows: D": "D",
}
_RELATIVE = {
    "rows: J": "J",
    "rows: aref": "aref",
    "acceleration": "acceleration",
    "contact forces": "force",
    "joint forces of constraints": "joint_force",
}
"""Quantities and their fields: compared as they are, R and D entry by entry, or by the largest."""

NEARBY = 4
"""Number of neighbours by which MuJoCo's own accuracy at a state is judged."""


def _kind(quantity: str) -> str:
    if "forces" in quantity:
        return "forces"
    return {"contact": "geometry", "rows:": "rows"}.get(quantity.split()[0], "forces")


def _in_their_order(
    ours: Ours, now: Computed, slots: NDArray[np.intp], theirs: Expected
) -> Expected:
    """Our numbers at a state as MuJoCo lists its own."""
    c, s = now.contacts, now.solution
    J, aref, D = our_rows(ours, now, slots)
    return dataclasses.replace(
        theirs,
        distance=np.asarray(c.distance)[slots],
        position=np.asarray(c.position)[slots],
        frame=np.asarray(c.frame)[slots],
        force=np.asarray(s.force)[slots],
        J=J,
        R=1 / D,
        D=D,
        aref=aref,
        acceleration=now.acceleration,
        joint_force=np.asarray(s.joint_force),
    )


def _differences(one: Expected, other: Expected) -> dict[str, float]:
    """The largest difference of each quantity; infinite where there are other contacts or rows."""
    errors = {}
    for quantity, field in (*_ABSOLUTE.items(), *_RELATIVE.items()):
        a, b = getattr(one, field), getattr(other, field)
        if one.geoms != other.geoms or a.shape != b.shape:
            errors[quantity] = np.inf
        else:
            errors[quantity] = _largest((a - b) / b if field in ("R", "D") else a - b)
    return errors


def _scales(compared: Sequence[Expected], theirs: Sequence[Expected]) -> dict[str, Array]:
    """What errors of each quantity are relative to, at each state."""
    scales: dict[str, Array] = {quantity: np.ones(len(compared)) for quantity in _ABSOLUTE}
    for quantity, field in _RELATIVE.items():
        scale = np.array([_largest(getattr(x, field)) for x in compared])
        floor = float(np.median(scale)) if len(scale) else 0.0
        if quantity == "acceleration":
            floor = max(floor, 0.01 * float(np.median([_largest(x.smooth) for x in theirs])))
        # Where all is zero, any error is too large.
        scales[quantity] = np.maximum(np.maximum(scale, floor), np.finfo(float).tiny)
    return scales


def _nearby(model: Any, states: State, k: int) -> list[Expected]:
    """What MuJoCo computes at neighbours of a state, moved by a rounding of its configuration."""
    mujoco = import_extra("mujoco", "mujoco", "The cross-check")
    rng, (q, *rest) = np.random.default_rng(k), (np.asarray(x[k], float) for x in states)
    found = []
    for _ in range(NEARBY):
        moved = q.copy()
        mujoco.mj_integratePos(model, moved, ROUNDING * rng.choice([-1.0, 1.0], model.nv), 1.0)
        (one,) = expected(model, State(*(x[None] for x in (moved, *rest))))
        found.append(one)
    return found


def _largest(x: Any) -> float:
    return float(np.abs(x).max(initial=0)) if np.isfinite(x).all() else np.inf


# --- trajectories ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Motion:
    """The same motion here and by MuJoCo.

    Attributes:
        moved: both trajectories.
        compared: steps until a twin of MuJoCo's, begun 1e-14 beside it, has parted by 1e-10: from
            there on no two programs agree.
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
    twin = _trajectory(model, _beside(model, start, rng), drive)

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


def _beside(model: Any, start: Start, rng: np.random.Generator) -> Start:
    """A start next to another."""
    mujoco = import_extra("mujoco", "mujoco", "The cross-check")
    q = start.q.copy()
    mujoco.mj_integratePos(model, q, DISTURBANCE * rng.choice([-1.0, 1.0], model.nv), 1.0)
    return start._replace(q=q, v=start.v + DISTURBANCE * rng.choice([-1.0, 1.0], model.nv))


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
