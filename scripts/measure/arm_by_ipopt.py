"""An arm's motion by Ipopt: CasADi's own derivatives of an inverse dynamics written in it.

The other side of `planning_peers.py --only around`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

GRAVITY = 9.81


@dataclass(frozen=True)
class Arm:
    """A problem of an arm whose joints turn about the z axes of their frames, at rest at first.

    Attributes:
        model: Pinocchio's, of the arm.
        q: (n,), rad, where it begins, at rest.
        horizon: steps.
        dt: s.
        hand: joint that carries the hand, and the hand's place on it (3,), m.
        target: (3,), m, where the hand is to be.
        spheres: of the robot: joint, place on it (3,), m, and radius, m.
        obstacles: (3,), m, and radius, m.
        effort: (n,), N m.
        limits: (n, 2), rad.
        weights: of speed, torque beyond gravity, the hand's place at the end, and its speed.
    """

    model: Any
    q: np.ndarray
    horizon: int
    dt: float
    hand: tuple[int, np.ndarray]
    target: np.ndarray
    spheres: list[tuple[int, np.ndarray, float]]
    obstacles: list[tuple[np.ndarray, float]]
    effort: np.ndarray
    limits: np.ndarray
    weights: tuple[float, float, float, float]


def solved(arm: Arm) -> dict[str, Any]:
    """Ipopt's solution: `cost`, `iterations`, `status`, `seconds`, and `q` (horizon + 1, n)."""
    n, N, dt = arm.model.nv, arm.horizon, arm.dt
    q, v, a = (ca.SX.sym(name, n) for name in "qva")
    zero = ca.DM.zeros(n)
    inverse_dynamics = ca.Function("id", [q, v, a], [_rnea(arm.model, q, v, a)])
    gravity = ca.Function("gravity", [q], [_rnea(arm.model, q, zero, zero)])
    places = _places(arm.model, q)
    hand = ca.Function("hand", [q], [_point(places, *arm.hand)])
    rows = [
        ca.norm_2(_point(places, joint, place) - ca.DM(centre)) - radius - wide
        for joint, place, radius in arm.spheres
        for centre, wide in arm.obstacles
    ]
    distances = ca.Function("distances", [q], [ca.vertcat(*rows)])

    qs = [ca.DM(arm.q), *(ca.SX.sym(f"q{k}", n) for k in range(N))]
    vs = [zero, *(ca.SX.sym(f"v{k}", n) for k in range(N))]
    speed, torque, there, still = arm.weights
    cost, g, low, high = ca.SX(0), [], [], []
    for k in range(N):
        tau = inverse_dynamics(qs[k], vs[k], (vs[k + 1] - vs[k]) / dt)
        beyond = tau - gravity(qs[k])
        running = speed * ca.sumsqr(vs[k]) + torque * ca.sumsqr(beyond)
        cost += dt * running / 2
        g += [tau, qs[k + 1] - qs[k] - dt * vs[k + 1], distances(qs[k + 1])]
        low += [-arm.effort, np.zeros(n), np.zeros(len(rows))]
        high += [arm.effort, np.zeros(n), np.full(len(rows), np.inf)]
    cost += there * ca.sumsqr(hand(qs[N]) - ca.DM(arm.target)) / 2 + still * ca.sumsqr(vs[N]) / 2
    x = ca.vertcat(*qs[1:], *vs[1:])
    free = np.full(N * n, np.inf)
    below = np.concatenate([np.tile(arm.limits[:, 0], N), -free])
    above = np.concatenate([np.tile(arm.limits[:, 1], N), free])
    options = {"ipopt.tol": 1e-9, "ipopt.print_level": 0, "print_time": False}
    solver = ca.nlpsol("ipopt", "ipopt", {"x": x, "f": cost, "g": ca.vertcat(*g)}, options)
    began = time.perf_counter()
    end = solver(
        x0=np.concatenate([np.tile(arm.q, N), np.zeros(N * n)]), lbx=below, ubx=above,
        lbg=np.concatenate(low), ubg=np.concatenate(high),
    )  # fmt: skip
    stats = solver.stats()
    return {
        "cost": float(end["f"]),
        "iterations": int(stats["iter_count"]),
        "status": str(stats["return_status"]),
        "seconds": time.perf_counter() - began,
        "q": np.vstack([arm.q, np.asarray(end["x"]).ravel()[: N * n].reshape(N, n)]),
    }


def _rotations(model: Any, q: Any) -> list[Any]:
    """Of each joint's frame in its parent's."""
    found = []
    for j, placement in enumerate(list(model.jointPlacements)[1:]):
        c, s = ca.cos(q[j]), ca.sin(q[j])
        turn = ca.vertcat(ca.horzcat(c, -s, 0), ca.horzcat(s, c, 0), ca.horzcat(0, 0, 1))
        found.append(ca.mtimes(ca.DM(placement.rotation), turn))
    return found


def _places(model: Any, q: Any) -> list[tuple[Any, Any]]:
    """Rotation and position of each joint's frame in the world, the world's own first."""
    found = [(ca.DM.eye(3), ca.DM.zeros(3))]
    for turn, placement in zip(_rotations(model, q), list(model.jointPlacements)[1:], strict=True):
        R, p = found[-1]
        found.append((ca.mtimes(R, turn), p + ca.mtimes(R, ca.DM(placement.translation))))
    return found


def _point(places: list[tuple[Any, Any]], joint: int, place: np.ndarray) -> Any:
    R, p = places[joint]
    return p + ca.mtimes(R, ca.DM(place))


def _rnea(model: Any, q: Any, v: Any, a: Any) -> Any:
    """Torques of a chain of revolute joints, by Newton and Euler's recursion."""
    z, turns = ca.DM([0, 0, 1]), _rotations(model, q)
    inertias, placements = list(model.inertias)[1:], list(model.jointPlacements)[1:]
    w, dw, acceleration = ca.DM.zeros(3), ca.DM.zeros(3), ca.DM([0, 0, GRAVITY])
    forces = []
    for j, (R, placement, inertia) in enumerate(zip(turns, placements, inertias, strict=True)):
        p = ca.DM(placement.translation)
        moved = acceleration + ca.cross(dw, p) + ca.cross(w, ca.cross(w, p))
        acceleration, carried = ca.mtimes(R.T, moved), ca.mtimes(R.T, w)
        dw = ca.mtimes(R.T, dw) + z * a[j] + ca.cross(carried, z * v[j])
        w = carried + z * v[j]
        c, J = ca.DM(inertia.lever), ca.DM(inertia.inertia)
        force = inertia.mass * (acceleration + ca.cross(dw, c) + ca.cross(w, ca.cross(w, c)))
        torque = ca.mtimes(J, dw) + ca.cross(w, ca.mtimes(J, w)) + ca.cross(c, force)
        forces.append((force, torque))
    force, torque, found = ca.DM.zeros(3), ca.DM.zeros(3), []
    for (own, turning), R, placement in reversed(list(zip(forces, turns, placements, strict=True))):
        force, torque = own + force, turning + torque
        found.append(torque[2])
        force, p = ca.mtimes(R, force), ca.DM(placement.translation)
        torque = ca.mtimes(R, torque) + ca.cross(p, force)
    return ca.vertcat(*reversed(found))
