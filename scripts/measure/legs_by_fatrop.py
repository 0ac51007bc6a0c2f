"""A robot on legs by Fatrop: inverse dynamics written in CasADi, with its exact derivatives.

The other side of `loco_manipulation.py`. Accelerations and the forces on the feet are controls;
that the base has no motor, and that held feet do not accelerate, are equations of every stage.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from fraxenv.dynamics import Robot

BASE = 6
"""Degrees of freedom that nothing drives."""


@dataclass(frozen=True)
class Legs:
    """An optimal control problem of a robot with a floating base and revolute joints.

    Attributes:
        robot: the model, without damping and friction.
        feet: frames, n of them.
        hand: a frame.
        horizon: stages, N.
        dt: s.
        gain: 1/s, how fast velocities of held feet fade.
        posture: (nv - 6,), rad, of the joints.
        sides: (5, 3), what forces in a friction cone have less than zero of.
        weights: of the terms, by name.
    """

    robot: Robot
    feet: tuple[str, ...]
    hand: str
    horizon: int
    dt: float
    gain: float
    posture: np.ndarray
    sides: np.ndarray
    weights: dict[str, float]


class Solver:
    """Fatrop's, for any state, schedule and references; made once."""

    def __init__(self, legs: Legs, tolerance: float = 1e-6) -> None:
        self._legs = legs
        robot, n, N = legs.robot, legs.robot.nv, legs.horizon
        m, self._nx = 3 * len(legs.feet), robot.nq + n
        stage, end, limits = self._functions()
        p = ca.MX.sym("p", N + 1, self._parameters)
        begin = ca.MX.sym("begin", self._nx)
        x = [ca.MX.sym(f"x{k}", self._nx) for k in range(N + 1)]
        u = [ca.MX.sym(f"u{k}", n + m) for k in range(N)]
        cost, g, equal = ca.MX(0), [], []
        for k in range(N):
            after, dcost, zero, tau = stage(x[k], u[k], p[k, :].T)
            cost += dcost
            g += [x[k + 1] - after, zero, tau]
            equal += [True] * self._nx + [True] * zero.shape[0] + [False] * tau.shape[0]
            if k == 0:
                g.append(x[0] - begin)
                equal += [True] * self._nx
        cost += end(x[N], p[N, :].T)
        variables = [y for pair in zip(x, [*u, ca.MX(0, 1)], strict=True) for y in pair]
        nlp = {"x": ca.vertcat(*variables), "f": cost, "g": ca.vertcat(*g)}
        nlp["p"] = ca.vertcat(begin, ca.vec(p))
        options = {
            "structure_detection": "auto", "equality": equal, "print_time": False,
            "fatrop": {"print_level": 0, "tol": tolerance, "max_iter": 200},
        }  # fmt: skip
        self._solver = ca.nlpsol("legs", "fatrop", nlp, options)
        bound = []
        for k in range(N):
            bound += [np.zeros(self._nx + BASE + m), limits]
            if k == 0:
                bound.append(np.zeros(self._nx))
        self._bound = np.concatenate(bound)
        self._stage = stage

    def __call__(
        self,
        begin: tuple[np.ndarray, np.ndarray],
        held: np.ndarray,
        references: np.ndarray,
        guess: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    ) -> dict[str, Any]:
        """A solution: `cost`, `iterations`, `status`, `seconds`, `functions` of them, `q`, `v`.

        Args:
            begin: q and v.
            held: (N, n) bool.
            references: (N + 1, r), see `Legs`.
            guess: q, v, accelerations (N, nv) and forces (N, 3 n).
        """
        legs, n, N = self._legs, self._legs.robot.nv, self._legs.horizon
        q, v, a, force = guess
        rows = np.zeros((N + 1, self._parameters))
        rows[:N, : len(legs.feet)] = held
        rows[:, len(legs.feet) :] = references
        x0 = [np.concatenate([q[k], v[k], a[k], force[k]]) for k in range(N)]
        x0 = np.concatenate([*x0, q[N], v[N]])
        given = np.concatenate([*begin, rows.ravel(order="F")])
        began = time.perf_counter()
        end = self._solver(x0=x0, p=given, lbg=-self._bound, ubg=self._bound)
        seconds = time.perf_counter() - began
        stats = self._solver.stats()
        flat = np.asarray(end["x"]).ravel()
        width = self._nx + n + force.shape[1]
        states = np.array([flat[k * width : k * width + self._nx] for k in range(N + 1)])
        return {
            "cost": float(end["f"]),
            "iterations": int(stats["iter_count"]),
            "status": bool(stats["success"]),
            "seconds": seconds,
            "functions": sum(v for k, v in stats.items() if k.startswith("t_wall_nlp")),
            "q": states[:, : legs.robot.nq],
            "v": states[:, legs.robot.nq :],
        }

    @property
    def _parameters(self) -> int:
        return len(self._legs.feet) + 3 + 3 + 3 * len(self._legs.feet) + len(self._legs.feet)

    def _functions(self) -> tuple[Any, Any, np.ndarray]:
        """Of a stage, of the end, and the largest torques."""
        legs = self._legs
        robot, w, dt, n, k = legs.robot, legs.weights, legs.dt, legs.robot.nv, len(legs.feet)
        q, v = ca.SX.sym("q", robot.nq), ca.SX.sym("v", n)
        a, force = ca.SX.sym("a", n), ca.SX.sym("f", 3 * k)
        p = ca.SX.sym("p", self._parameters)
        held, hand_at, speed = p[:k], p[k : k + 3], p[k + 3 : k + 6]
        feet_at, follows = p[k + 6 : 4 * k + 6], p[4 * k + 6 :]
        tau, points = inverse_dynamics(robot, q, v, a, legs.feet, force)
        _, (hand,) = inverse_dynamics(robot, q, v, a, (legs.hand,), ca.SX(3, 1))
        zero = [tau[:BASE]]
        for i, (_, velocity, acceleration) in enumerate(points):
            own = force[3 * i : 3 * i + 3]
            zero.append(held[i] * (acceleration + legs.gain * velocity) + (1 - held[i]) * own)
        moving = v - ca.vertcat(speed, ca.SX(n - 3, 1))
        state = (
            w["hand"] * ca.sumsqr(hand[0] - hand_at)
            + w["upright"] * ca.sumsqr(2 * q[4:7])
            + w["height"] * (q[2] - robot.q_default[2]) ** 2
            + w["posture"] * ca.sumsqr(q[7:] - legs.posture)
            + w["speed"] * ca.sumsqr(moving)
        )
        running = state + w["effort"] * ca.sumsqr(tau[BASE:])
        for i, (place, _, _) in enumerate(points):
            running += w["feet"] * follows[i] * ca.sumsqr(place - feet_at[3 * i : 3 * i + 3])
            beyond = ca.fmax(ca.mtimes(ca.DM(legs.sides), force[3 * i : 3 * i + 3]), 0)
            running += w["cones"] * ca.sumsqr(beyond)
        v_after = v + dt * a
        after = ca.vertcat(_integrated(q, v_after, dt), v_after)
        x, u = ca.vertcat(q, v), ca.vertcat(a, force)
        outputs = [after, dt * running / 2, ca.vertcat(*zero), tau[BASE:]]
        stage = ca.Function("stage", [x, u, p], outputs)
        end = ca.Function("end", [x, p], [w["end"] * state / 2])
        return stage, end, np.asarray(robot.effort_limits)[BASE:]


def inverse_dynamics(
    robot: Robot, q: Any, v: Any, a: Any, frames: tuple[str, ...], force: Any
) -> tuple[Any, list[tuple[Any, Any, Any]]]:
    """Generalized forces (nv,) under forces on frames; and where these are, and how they move.

    Newton and Euler's recursion in world axes, the base's velocity in ours: linear in the world's,
    angular in its own.
    """
    topology = robot.topology
    gravity = ca.DM(np.asarray(robot.gravity))
    R, p, w, dw, u, du = [], [], [], [], [], []
    for i, joint in enumerate(topology.joints):
        if joint.kind == "floating":
            R.append(_rotation(q[3:7]))
            p.append(q[:3])
            w.append(ca.mtimes(R[0], v[3:6]))
            dw.append(ca.mtimes(R[0], a[3:6]))
            u.append(v[:3])
            du.append(a[:3])
            continue
        j, k = int(topology.parent[i]), topology.v_index[i]
        place = ca.DM(topology.position[i])
        turn = ca.DM(topology.rotation[i])
        lever = ca.mtimes(R[j], place)
        rotation = ca.mtimes(ca.mtimes(R[j], turn), _about(joint.axis, q[topology.q_index[i]]))
        axis = ca.mtimes(ca.mtimes(R[j], turn), ca.DM(joint.axis))
        R.append(rotation)
        p.append(p[j] + lever)
        u.append(u[j] + ca.cross(w[j], lever))
        du.append(du[j] + ca.cross(dw[j], lever) + ca.cross(w[j], ca.cross(w[j], lever)))
        dw.append(dw[j] + axis * a[k] + ca.cross(w[j], axis * v[k]))
        w.append(w[j] + axis * v[k])
    forces, moments = [], []  # about bodies' origins
    for i, (mass, com, inertia) in enumerate(
        zip(robot.mass, robot.com, robot.inertia, strict=True)
    ):
        c = ca.mtimes(R[i], ca.DM(np.asarray(com)))
        own = ca.mtimes(ca.mtimes(R[i], ca.DM(np.asarray(inertia))), R[i].T)
        moved = du[i] + ca.cross(dw[i], c) + ca.cross(w[i], ca.cross(w[i], c)) - gravity
        push = float(mass) * moved
        spin = ca.mtimes(own, dw[i]) + ca.cross(w[i], ca.mtimes(own, w[i]))
        forces.append(push)
        moments.append(spin + ca.cross(c, push))
    points = []
    for k, name in enumerate(frames):
        frame = robot.frame(name)
        i, lever = frame.body, ca.mtimes(R[frame.body], ca.DM(frame.position))
        own = force[3 * k : 3 * k + 3]
        forces[i] = forces[i] - own
        moments[i] = moments[i] - ca.cross(lever, own)
        points.append((
            p[i] + lever,
            u[i] + ca.cross(w[i], lever),
            du[i] + ca.cross(dw[i], lever) + ca.cross(w[i], ca.cross(w[i], lever)),
        ))  # fmt: skip
    tau: list[Any] = [None] * robot.nv
    for i in reversed(range(len(topology.joints))):
        joint, k = topology.joints[i], topology.v_index[i]
        if joint.kind == "floating":
            own = ca.mtimes(R[i].T, moments[i])
            for d in range(3):
                tau[k + d], tau[k + 3 + d] = forces[i][d], own[d]
            continue
        j = int(topology.parent[i])
        axis = ca.mtimes(R[i], ca.DM(joint.axis))
        tau[k] = ca.dot(axis, moments[i]) + float(robot.armature[k]) * a[k]
        forces[j] = forces[j] + forces[i]
        moments[j] = moments[j] + moments[i] + ca.cross(p[i] - p[j], forces[i])
    return ca.vertcat(*tau), points


def _rotation(quaternion: Any) -> Any:
    w, v = quaternion[0], quaternion[1:]
    cross = ca.skew(v)
    return ca.SX.eye(3) + 2 * (w * cross + ca.mtimes(cross, cross))


def _about(axis: np.ndarray, angle: Any) -> Any:
    cross = ca.DM(np.cross(np.eye(3), axis))
    return ca.SX.eye(3) + ca.sin(angle) * cross + (1 - ca.cos(angle)) * ca.mtimes(cross, cross)


def _integrated(q: Any, v: Any, dt: float) -> Any:
    """Configuration after moving at a velocity; its quaternion is turned on the right."""
    half = 0.5 * dt * v[3:6]
    angle = ca.sqrt(ca.sumsqr(half) + 1e-20)
    s, c = ca.sin(angle) / angle * half, ca.cos(angle)
    w, x = q[3], q[4:7]
    turned = ca.vertcat(w * c - ca.dot(x, s), w * s + c * x + ca.cross(x, s))
    return ca.vertcat(q[:3] + dt * v[:3], turned, q[7:] + dt * v[6:])
