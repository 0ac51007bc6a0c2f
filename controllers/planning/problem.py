"""A plan's problem: what moves, for how long, and what it costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Obstacles, Robot, Scene, Terms
from fraxenv.dynamics.math.algebra import matmul, mirrored, symmetric_product
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ArrayError, ConfigError, check_count, is_concrete

from ..safety.barriers import NO_OBSTACLES, Barrier
from .norms import expansion
from .residuals import Residual, bend, factors, slopes, value
from .scheduled import Schedule, needs_contacts

CONTACTS = "contacts"
"""Name of the problem's contacts among the references of its terms."""


@pytree_dataclass(eq=False)
class Problem:
    """Optimal control of a robot over a number of time steps, from a state that is given later.

    The cost is the sum of the terms: of running ones at the beginning of every step times `dt`, of
    terminal ones after the last. Motion is `dynamics.step` with the integrator "euler"; with frames
    that are held, `dynamics.constrained_step`; of a scene, `dynamics.scene_step` with the scene's.

    Attributes:
        robot: the model; or a scene, with everything that touches, which is then in `scene`, and
            its forest of bodies here: states and torques have the objects' coordinates as well.
        horizon: number of steps, N.
        dt: of a step, s.
        running: terms at the beginnings of steps, by name.
        terminal: terms at the end, by name; torques are zero there.
        control_limits: True for the robot's effort limits, which are then kept exactly; or
            `(lower, upper)` of (nv,), N m and N; None for none. In a scene what nothing drives has
            no torque in either case: free objects, joints with an effort limit of 0, and those
            without a motor where others have one.
        constraints: barriers that are to be at their margins or above, at all knots but the first.
        obstacles: what they are kept off, at the first knot; moving on at their `velocity`.
        obstacles_each: whether `obstacles` says instead where they are at every knot: its arrays
            have a leading axis (N + 1).
        scene: what `robot` moves in, if it was given as a scene.
        contacts: frames that are held or hit something, of `plan.schedule`; not in a scene, which
            finds its own.
    """

    robot: Robot
    horizon: int = static(default=50)
    dt: ArrayLike = 0.01
    running: Mapping[str, Residual] = dataclasses.field(default_factory=dict)
    terminal: Mapping[str, Residual] = dataclasses.field(default_factory=dict)
    control_limits: Any = None
    constraints: tuple[Barrier, ...] = ()
    obstacles: Obstacles = NO_OBSTACLES
    obstacles_each: bool = static(default=False)
    scene: Scene | None = None
    contacts: Schedule | None = None

    if TYPE_CHECKING:
        # What may be given for `robot` is more than what it is then.
        def __init__(
            self,
            robot: Robot | Scene,
            horizon: int = 50,
            dt: ArrayLike = 0.01,
            running: Mapping[str, Residual] = ...,
            terminal: Mapping[str, Residual] = ...,
            control_limits: Any = None,
            constraints: tuple[Barrier, ...] = (),
            obstacles: Obstacles = NO_OBSTACLES,
            obstacles_each: bool = False,
            scene: Scene | None = None,
            contacts: Schedule | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        given: object = self.robot
        if isinstance(given, Scene):
            object.__setattr__(self, "scene", _without_servos(given))
            object.__setattr__(self, "robot", given.system)
        check_count("Problem: horizon", self.horizon)
        if is_concrete(self.dt) and not np.all(np.asarray(self.dt) > 0):
            raise ConfigError(f"Problem: dt={self.dt!r}, expected a positive time, s.")
        for part in ("running", "terminal"):
            terms = getattr(self, part)
            for name, term in terms.items():
                if not isinstance(term, Residual):
                    raise ConfigError(
                        f"Problem: {part}[{name!r}] is a {type(term).__name__}, expected a "
                        "Residual. `plan.residual(function)` makes one of a function."
                    )
            object.__setattr__(self, part, dict(sorted(terms.items())))
        _check_contacts(self)
        object.__setattr__(self, "constraints", tuple(self.constraints))
        for i, barrier in enumerate(self.constraints):
            if not isinstance(barrier, Barrier):
                raise ConfigError(
                    f"Problem: constraints[{i}] is a {type(barrier).__name__}, expected a Barrier, "
                    "such as controllers.barriers.joint_position()."
                )
            if constraint_term(i) in {**self.running, **self.terminal}:
                raise ConfigError(
                    f"Problem: a cost is named {constraint_term(i)!r}, as that of constraints[{i}] "
                    "is. Give it another name."
                )
        if self.control_limits is True or (self.control_limits is None and self.scene is not None):
            bound = jnp.asarray(self.robot.effort_limits)
            if self.scene is not None:
                driven = (bound > 0) & _motorised(self.scene)
                bound = jnp.where(driven, bound if self.control_limits else jnp.inf, 0.0)
            object.__setattr__(self, "control_limits", (-bound, bound))


def _check_contacts(problem: Problem) -> None:
    contacts = problem.contacts
    for part, terms in (("running", problem.running), ("terminal", problem.terminal)):
        for name, term in terms.items():
            if needs_contacts(term) and (contacts is None or part == "terminal"):
                raise ConfigError(
                    f"Problem: {part}[{name!r}] is of forces on held frames, and "
                    + (
                        "nothing says which are. Give `contacts=plan.schedule(...)`."
                        if contacts is None
                        else "no step follows the end. Make it a running term."
                    )
                )
    if contacts is None:
        return
    if CONTACTS in {**problem.running, **problem.terminal}:
        raise ConfigError(
            f"Problem: a cost is named {CONTACTS!r}, as its contacts are. Give it another name."
        )
    if problem.scene is not None:
        raise ConfigError(
            f"Problem: contacts of scene {problem.scene.name!r}, which finds its own. Give the "
            "robot in place of the scene, or leave them out."
        )
    for name in contacts.constraints.frames:
        problem.robot.frame(name)
    if contacts.impacts.shape != (problem.horizon,):
        raise ArrayError(
            f"Problem: contacts of {len(contacts.impacts)} steps, expected {problem.horizon}, the "
            "horizon."
        )


def _without_servos(scene: Scene) -> Scene:
    if is_concrete(scene.actuators.bias) and np.any(np.asarray(scene.actuators.bias)):
        raise ConfigError(
            f"Problem: scene {scene.name!r} has servos, which would act beside a plan's torques. "
            "Build it without actuators, or with motors, whose place the torques take."
        )
    return scene


def _motorised(scene: Scene) -> np.ndarray:
    """Degrees of freedom (nv,) with a motor: all in a scene that says nothing of motors."""
    dofs = scene.actuators.dofs
    has = np.full(scene.system.nv, not dofs)
    has[list(dofs)] = True
    return has


def constraint_term(i: int) -> str:
    """Name of the cost of being beyond a constraint, among those of the problem."""
    return f"constraint {i}"


class Quadratic(NamedTuple):
    """A cost to second order, by the tangent vector `[dq; dv]` and the torques.

    Attributes:
        value: ().
        x: (2 nv,).
        u: (nv,).
        xx: (2 nv, 2 nv).
        ux: (nv, 2 nv).
        uu: (nv, nv).
    """

    value: Array
    x: Array
    u: Array
    xx: Array
    ux: Array
    uu: Array


def cost(robot: Robot, residuals: Mapping[str, Residual], terms: Terms, tau: Array) -> Array:
    """Of the terms at a knot, ()."""
    return sum(
        (
            expansion(t.norm, t.weight, value(t, robot, terms, tau)).value
            for t in residuals.values()
        ),
        start=jnp.zeros((), terms.q.dtype),
    )


def quadratic_cost(
    robot: Robot, residuals: Mapping[str, Residual], terms: Terms, tau: Array
) -> Quadratic:
    """The cost at a knot to second order, as Gauss and Newton have it: of residuals to first."""
    n, dtype = robot.nv, terms.q.dtype
    parts = [(jnp.zeros((), dtype), jnp.zeros(3 * n, dtype), jnp.zeros((3 * n, 3 * n), dtype))]
    for term in residuals.values():
        it = expansion(term.norm, term.weight, value(term, robot, terms, tau))
        gradient, curvature = it.gradient, it.curvature
        outer, inner = factors(term, robot, terms, tau)
        if outer is not None:
            gradient, curvature = (
                matmul(outer.T, gradient),
                matmul(outer.T, matmul(curvature, outer)),
            )
        J = jnp.concatenate(inner, axis=1)
        parts.append((it.value, matmul(J.T, gradient), symmetric_product(J, matmul(curvature, J))))
    total, g, H = (sum(x) for x in zip(*parts, strict=True))
    H = mirrored(H)
    m = 2 * n
    return Quadratic(total, g[:m], g[m:], H[:m, :m], H[m:, :m], H[m:, m:])


def cost_bend(robot: Robot, residuals: Mapping[str, Residual], terms: Terms, tau: Array) -> Array:
    """What the cost's second derivative (3 nv, 3 nv) has besides.

    Of the residuals' curvature, and of norms that curve less than `Expansion.curvature`.
    """
    total = jnp.zeros((3 * robot.nv, 3 * robot.nv), terms.q.dtype)
    for term in residuals.values():
        it = expansion(term.norm, term.weight, value(term, robot, terms, tau))
        total = total + bend(term, robot, terms, tau, it.gradient)
        if it.bend is not None:
            J = jnp.concatenate(slopes(term, robot, terms, tau), axis=1)
            total = total + mirrored(symmetric_product(J, matmul(it.bend, J)))
    return total


def clipped(problem: Problem, tau: Array) -> Array:
    """Torques (..., nv) within the limits."""
    if problem.control_limits is None:
        return tau
    lower, upper = problem.control_limits
    within: Array = jnp.clip(tau, lower, upper)
    return within


def of_dtype(problem: Problem, dtype: Any) -> Problem:
    """The problem with its own numbers, but not the robot's, as floats of a type."""

    def cast(x: Any) -> Array:
        number: Array = jnp.asarray(x)
        return number if number.dtype == bool else number.astype(dtype)

    names = ("dt", "running", "terminal", "control_limits", "constraints", "obstacles", "contacts")
    numbers = jax.tree.map(cast, {name: getattr(problem, name) for name in names})
    return dataclasses.replace(problem, **numbers)


def spread(problem: Problem) -> Problem:
    """With a weight for every knot where there is a reference for every one."""

    def spread(term: Residual) -> Residual:
        w = jnp.asarray(term.weight)
        if not term.each or w.ndim == 2:
            return term
        return dataclasses.replace(term, weight=jnp.broadcast_to(w, (problem.horizon, *w.shape)))

    running = {name: spread(term) for name, term in problem.running.items()}
    return dataclasses.replace(problem, running=running)


def at_knot(term: Residual, own: tuple[Any, Array] | None) -> Residual:
    """The term at a knot that has a reference and a weight of its own."""
    return term if own is None else dataclasses.replace(term, reference=own[0], weight=own[1])


def shaped(what: str, x: ArrayLike, shape: tuple[int, ...], dtype: Any) -> Array:
    """An array of a shape.

    Raises:
        ArrayError: it has another; `what` says of what.
    """
    x = jnp.asarray(x, dtype)
    if x.shape != shape:
        raise ArrayError(f"{what} has shape {x.shape}, expected {shape}.")
    return x


def beginning(
    who: str, robot: Robot, state: tuple[ArrayLike, ArrayLike], dtype: Any
) -> tuple[Array, Array]:
    """The state (q (nq,), v (nv,)) in which a plan begins.

    Raises:
        ArrayError: an array has the wrong shape, or is known not to be finite; `who` was given it.
    """
    q = shaped(f"{who}: state, q", state[0], (robot.nq,), dtype)
    v = shaped(f"{who}: state, v", state[1], (robot.nv,), dtype)
    for name, x in (("q", q), ("v", v)):
        if is_concrete(x) and not np.all(np.isfinite(np.asarray(x))):
            raise ArrayError(f"{who}: state, {name} = {np.asarray(x)}, expected finite numbers.")
    return q, v
