"""Plans beside Crocoddyl's and Ipopt's, of the same problems. The results are in docs/planning.md.

    python -m venv .plan && .plan/bin/pip install -e ".[bench-plan]"
    .plan/bin/python scripts/measure/planning_peers.py
    .plan/bin/python scripts/measure/planning_peers.py --only panda many

`kinova`  Crocoddyl's example of an arm, term for term, to its own stop: iterations, cost, time
`panda`   a Panda, 50 knots: time of an iteration
`many`    1024 Pandas, random starts and targets: problems solved per second
`around`  a Panda past two spheres: cost and violation beside Ipopt's
`limits`  torques that reach their limits: a pendulum of two links with one motor swings up, a Panda
          of 0.3 times its torques reaches
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from fraxenv import dynamics, plan
from fraxenv.controllers import barriers
from fraxenv.dynamics.model.bundled import bundled_urdf

Workload = Literal["kinova", "panda", "many", "around", "limits"]
Line = list[str]

REACH = np.array([0.5, 0.2, 0.4])
DOWN = np.diag([1.0, -1.0, -1.0])
"""Where the Panda's hand is to be, and how."""


@dataclass(frozen=True)
class Options:
    """Options of the measurement."""

    only: tuple[Workload, ...] = ("kinova", "panda", "many", "around", "limits")
    """Which of them."""
    rounds: int = 15
    """Of each measurement of time; contenders take turns."""
    problems: int = 1024
    """Of `many`, ours at once."""
    theirs: int = 128
    """Of them that Crocoddyl solves, in two processes."""
    most: int = 100
    """Iterations of each of them."""


def medians(contenders: dict[str, Callable[[], Any]], rounds: int) -> dict[str, tuple[float, str]]:
    """Seconds of each, and their spread: they take turns."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        run()
    for _ in track(range(rounds), description="in turns"):
        for name, run in contenders.items():
            began = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - began)
    found = {}
    for name, seconds in times.items():
        low, middle, high = np.quantile(seconds, [0.1, 0.5, 0.9])
        found[name] = float(middle), f"±{50 * (high - low) / middle:.0f} %"
    return found


def solver(problem: plan.Problem, options: plan.Options, dtype: type) -> Callable[..., plan.Plan]:
    """`plan.solve`, compiled, in a precision."""

    def solve(q: Any, v: Any, guess: Any = None) -> plan.Plan:
        with jax.enable_x64(dtype is np.float64):
            begin = jnp.asarray(q, dtype), jnp.asarray(v, dtype)
            return jax.block_until_ready(jitted(*begin, guess))  # type: ignore[no-any-return]

    jitted = jax.jit(lambda q, v, guess: plan.solve(problem, (q, v), guess, options))
    return solve


# --- Crocoddyl ------------------------------------------------------------------------------------


def shooting(model: Any, begin: np.ndarray, costs: Any, horizon: int, dt: float) -> Any:
    """A shooting problem of an arm.

    Args:
        model: Pinocchio's.
        begin: state.
        costs: `(state, actuation)` -> two dicts of residual, weights and their factor, by name: of
            the steps, and of the end.
        horizon: steps.
        dt: s.
    """
    import crocoddyl

    state = crocoddyl.StateMultibody(model)
    actuation = crocoddyl.ActuationModelFull(state)
    actions = []
    for part, step in zip(costs(state, actuation), (dt, 0.0), strict=True):
        total = crocoddyl.CostModelSum(state)
        for name, (residual, weights, factor) in part.items():
            activation = crocoddyl.ActivationModelWeightedQuad(weights)
            total.addCost(name, crocoddyl.CostModelResidual(state, activation, residual), factor)
        motion = crocoddyl.DifferentialActionModelFreeFwdDynamics(state, actuation, total)
        actions.append(crocoddyl.IntegratedActionModelEuler(motion, step))
    return crocoddyl.ShootingProblem(begin, [actions[0]] * horizon, actions[1])


def pinocchio_panda() -> Any:
    """The bundled Panda as Pinocchio reads it."""
    import pinocchio

    return pinocchio.buildModelFromUrdf(str(bundled_urdf("panda")))


def reaching(model: Any, begin: np.ndarray, target: np.ndarray) -> Any:
    """`panda_problem` as Crocoddyl has it."""
    import crocoddyl
    import pinocchio

    n = model.nv
    frame, rest = model.getFrameId("panda_hand_tcp"), np.concatenate([begin[:n], np.zeros(n)])
    goal = pinocchio.SE3(DOWN, target)

    def costs(state: Any, actuation: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        pose = crocoddyl.ResidualModelFramePlacement(state, frame, goal, actuation.nu)
        where = crocoddyl.ResidualModelState(state, rest, actuation.nu)
        effort = crocoddyl.ResidualModelControl(state, actuation.nu)
        ones = np.ones(6), np.ones(2 * n), np.ones(n)
        running = {"pose": (pose, ones[0], 1.0), "state": (where, ones[1], 0.1)}
        return running | {"effort": (effort, ones[2], 1e-3)}, {"pose": (pose, ones[0], 1e3)}

    return shooting(model, begin, costs, 50, 0.02)


def fixed_iterations(problem: Any, first: Any, count: int) -> None:
    """Crocoddyl's solver for so many iterations."""
    import crocoddyl

    fddp = crocoddyl.SolverFDDP(problem)
    fddp.th_stop = 1e-30
    fddp.solve(*first, count, False)


# --- ours -----------------------------------------------------------------------------------------


def plain(robot: dynamics.Robot) -> dynamics.Robot:
    """The robot with nothing at its joints that URDF's readers leave out."""
    none = np.zeros(robot.nv)
    return robot.replace(
        armature=none, damping=none, friction=none, stop_stiffness=none, stop_damping=none
    )


def panda_problem(robot: dynamics.Robot, q: Any, target: Any) -> plan.Problem:
    """The hand to a pose in a second."""
    pose = [plan.pose("hand", target, DOWN, w) for w in (1.0, 1e3)]
    running = {
        "pose": pose[0], "posture": plan.posture(q, 0.1), "speed": plan.velocity(0.0, 0.1),
        "effort": plan.torque(0.0, 1e-3),
    }  # fmt: skip
    return plan.Problem(robot, horizon=50, dt=0.02, running=running, terminal={"pose": pose[1]})


def kinova(options: Options, table: Callable[..., None]) -> None:
    """Crocoddyl's `arm_manipulation_fwddyn.py`, term for term, to a stop of 1e-9, in float64."""
    import crocoddyl
    import pinocchio
    from example_robot_data.robots_loader import getModelPath

    urdf, srdf = "kinova_description/robots/kinova.urdf", "kinova_description/srdf/kinova.srdf"
    folder = getModelPath(urdf)
    model = pinocchio.buildModelFromUrdf(f"{folder}/{urdf}")
    pinocchio.loadReferenceConfigurations(model, f"{folder}/{srdf}", False)
    up, n = model.referenceConfigurations["arm_up"], model.nv
    begin, frame = np.concatenate([up, np.zeros(n)]), model.getFrameId("j2s6s200_end_effector")
    goal = pinocchio.SE3(np.eye(3), np.array([0.6, 0.2, 0.5]))

    def costs(state: Any, actuation: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        pose = crocoddyl.ResidualModelFramePlacement(state, frame, goal, actuation.nu)
        where = crocoddyl.ResidualModelState(state, begin, actuation.nu)
        effort = crocoddyl.ResidualModelControl(state, actuation.nu)
        running = {"pose": (pose, np.ones(6), 1.0), "state": (where, np.ones(2 * n), 0.1)}
        running |= {"effort": (effort, np.ones(n), 0.1)}
        return running, {"pose": (pose, np.ones(6), 1e3)}

    problem = shooting(model, begin, costs, 100, 0.01)
    first = [np.concatenate([pinocchio.neutral(model), np.zeros(n)])] * 101, [np.zeros(n)] * 100

    def theirs() -> Any:
        fddp = crocoddyl.SolverFDDP(problem)
        fddp.th_stop = 1e-9
        fddp.solve(*first, 100, False)
        return fddp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dynamics.RobotLoadWarning)
        robot = plain(dynamics.load_urdf(f"{folder}/{urdf}"))
    q = np.array([1.5707, 2.618, -1.5707, 3.1415, 2.618, 0.0])
    pose = [plan.pose("j2s6s200_end_effector", goal.translation, np.eye(3), w) for w in (1.0, 1e3)]
    running = {
        "pose": pose[0], "posture": plan.posture(q, 0.1), "speed": plan.velocity(0.0, 0.1),
        "effort": plan.torque(0.0, 0.1),
    }  # fmt: skip
    ours = plan.Problem(robot, horizon=100, dt=0.01, running=running, terminal={"pose": pose[1]})
    zero = np.zeros((101, n))
    guess = plan.Guess(zero, zero, zero[1:])
    solvers = {
        name: solver(ours, plan.Options(hessian=name), np.float64)
        for name in ("gauss-newton", "exact")
    }
    runs: dict[str, Callable[[], Any]] = {"Crocoddyl, SolverFDDP": theirs}
    for name, solve in solvers.items():
        runs[f"fraxenv, {name}"] = lambda solve=solve: solve(q, zero[0], guess)
    ends = {name: run() for name, run in runs.items()}
    lines = []
    for name, (seconds, spread) in medians(runs, options.rounds).items():
        end = ends[name]
        count = int(end.iterations) if isinstance(end, plan.Plan) else int(end.iter)
        lines.append([
            name, f"{count}", f"{float(end.cost):.9f}", f"{1e3 * seconds:.1f} {spread}",
            f"{1e3 * seconds / count:.3f}",
        ])  # fmt: skip
    table(
        "Kinova, 100 knots, to a stop of 1e-9, float64",
        ["", "iterations", "cost", "ms", "ms per iteration"], lines,
    )  # fmt: skip


def panda(options: Options, table: Callable[..., None]) -> None:
    """Time of an iteration: of 25, less that of 5, by 20."""
    robot, few, many = plain(dynamics.load_robot("panda")), 5, 25
    q, v = np.asarray(robot.q_default), np.zeros(robot.nv)
    problem = panda_problem(robot, q, REACH)
    model = pinocchio_panda()
    theirs = reaching(model, np.concatenate([q, v]), REACH)
    at_rest = np.concatenate([q, v])
    first = [at_rest] * 51, [np.asarray(dynamics.gravity_forces(robot, q))] * 50
    runs: dict[str, Callable[[], Any]] = {}

    def crocoddyls(threads: int, count: int) -> None:
        theirs.nthreads = threads
        fixed_iterations(theirs, first, count)

    for count in (few, many):
        for threads in (1, 2):
            name = f"Crocoddyl, threads: {threads}"
            runs[f"{name}/{count}"] = lambda t=threads, n=count: crocoddyls(t, n)
        for dtype in (np.float32, np.float64):
            for hessian in ("gauss-newton", "exact"):
                how = plan.Options(count, tolerance=0.0, hessian=hessian)
                solve = solver(problem, how, dtype)
                name = f"fraxenv, {np.dtype(dtype).name}, {hessian}"
                runs[f"{name}/{count}"] = lambda solve=solve: solve(q, v)
    found = medians(runs, options.rounds)
    names = dict.fromkeys(name.rsplit("/", 1)[0] for name in runs)
    lines = []
    for name in names:
        (short, _), (long, spread) = found[f"{name}/{few}"], found[f"{name}/{many}"]
        each = (long - short) / (many - few)
        lines.append([name, f"{1e3 * each:.3f}", f"{1e3 * long / many:.3f} {spread}"])
    table(
        "Panda, 50 knots, one problem",
        ["", "ms per iteration", "with what a call costs, of 25 iterations"], lines,
    )  # fmt: skip


def drawn(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Random starts and targets: hands at poses that the arm reaches, pointing down or not."""
    robot, draw = dynamics.load_robot("panda"), np.random.default_rng(0)
    rest = np.asarray(robot.q_default)
    starts, others = (rest + 0.5 * draw.normal(size=(count, robot.nv)) for _ in range(2))
    limits = np.asarray(robot.position_limits)
    starts, others = (np.clip(q, limits[:, 0], limits[:, 1]) for q in (starts, others))
    place = jax.jit(jax.vmap(lambda q: dynamics.frame_pose(robot, q, "hand")[0]))
    return starts, np.asarray(place(others), np.float64)


STOP = 1e-4
"""What a full step promises, below which a problem is solved."""


def solve_share(starts: np.ndarray, targets: np.ndarray, most: int) -> tuple[int, list[int], float]:
    """Crocoddyl's: how many are solved, iterations, and seconds."""
    import crocoddyl

    model = pinocchio_panda()
    robot = dynamics.load_robot("panda")
    hold = [np.asarray(dynamics.gravity_forces(robot, q), np.float64) for q in starts]
    solved, counts = 0, []
    began = time.perf_counter()
    for q, target, tau in zip(starts, targets, hold, strict=True):
        begin = np.concatenate([q, np.zeros(model.nv)])
        fddp = crocoddyl.SolverFDDP(reaching(model, begin, target))
        fddp.th_stop = STOP
        solved += bool(fddp.solve([begin] * 51, [tau] * 50, most, False))
        counts.append(int(fddp.iter))
    return solved, counts, time.perf_counter() - began


def many(options: Options, table: Callable[..., None]) -> None:
    """Problems solved per second, to an improvement of 1e-4 of costs of 1 to 100, float32."""
    robot = plain(dynamics.load_robot("panda"))
    starts, targets = drawn(options.problems)

    @jax.jit
    @jax.vmap
    def solve(q: Any, target: Any) -> plan.Plan:
        problem = panda_problem(robot, q, target)
        how = plan.Options(options.most, tolerance=STOP)
        return plan.solve(problem, (q, jnp.zeros_like(q)), None, how)

    given = jnp.asarray(starts, jnp.float32), jnp.asarray(targets, jnp.float32)
    found = solve(*given)
    runs = {"ours": lambda: jax.block_until_ready(solve(*given))}
    seconds, spread = medians(runs, max(3, options.rounds // 5))["ours"]
    good = int(np.sum(np.asarray(found.status) == plan.STATUS.index("converged")))
    half = options.theirs // 2
    shares = [(starts[k : k + half], targets[k : k + half], options.most) for k in (0, half)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        ends = pool.starmap(solve_share, shares)
    their_seconds = max(s for *_, s in ends)
    theirs = sum(good for good, *_ in ends)
    counts = [c for _, own, _ in ends for c in own]
    lines = []
    for name, solved, count, taken, its, how in (
        ("Crocoddyl, two processes", theirs, 2 * half, their_seconds, counts, ""),
        (
            "fraxenv, one call",
            good,
            options.problems,
            seconds,
            np.asarray(found.iterations),
            spread,
        ),
    ):
        p50, p99 = np.quantile(np.asarray(its), [0.5, 0.99])
        lines.append([
            name, f"{100 * solved / count:.1f} of {count}", f"{p50:.0f}, {p99:.0f}",
            f"{solved / taken:.0f} {how}",
        ])  # fmt: skip
    table(
        f"Pandas, random starts and targets, at most {options.most} iterations",
        ["", "solved, %", "iterations, median and 99 %", "solved per second"], lines,
    )  # fmt: skip


class Limited(NamedTuple):
    """A problem whose torques reach their limits, as either has it."""

    ours: plan.Problem
    theirs: Any
    q: np.ndarray
    """Of the start, at rest."""


def limited(problem: Any, lower: np.ndarray, upper: np.ndarray) -> Any:
    """A shooting problem of Crocoddyl with limits."""
    for action in problem.runningModels:
        action.u_lb, action.u_ub = lower, upper
    return problem


def swinging(robot: dynamics.Robot, terms: dynamics.Terms, tau: Any, reference: Any) -> Any:
    """Sines and cosines of the two joints less those of standing, and their speeds."""
    return jnp.concatenate([jnp.sin(terms.q), 1 - jnp.cos(terms.q), terms.v])


def swing_up(most: float) -> Limited:
    """Crocoddyl's `double_pendulum_fwddyn.py`, its one motor limited, N m."""
    import crocoddyl
    import pinocchio
    from crocoddyl.utils.pendulum import ActuationModelDoublePendulum, CostModelDoublePendulum
    from example_robot_data.robots_loader import getModelPath

    urdf = "double_pendulum_description/urdf/double_pendulum.urdf"
    urdf, dt = f"{getModelPath(urdf)}/{urdf}", 0.01
    weights, q = np.array([1.0] * 4 + [0.1] * 2), np.array([3.14, 0.0])
    state = crocoddyl.StateMultibody(pinocchio.buildModelFromUrdf(urdf))
    motor = ActuationModelDoublePendulum(state, actLink=1)
    total = [crocoddyl.CostModelSum(state, 1) for _ in range(2)]
    effort = crocoddyl.CostModelResidual(state, crocoddyl.ResidualModelControl(state, 1))
    for part, weight in zip(total, (1e-5 / dt, 100.0), strict=True):
        by = crocoddyl.ActivationModelWeightedQuad(weights)
        part.addCost("up", CostModelDoublePendulum(state, by, 1), weight)
    total[0].addCost("effort", effort, 1e-4 / dt)
    motions = [crocoddyl.DifferentialActionModelFreeFwdDynamics(state, motor, x) for x in total]
    steps = [crocoddyl.IntegratedActionModelEuler(x, dt) for x in motions]
    theirs = crocoddyl.ShootingProblem(np.r_[q, 0.0, 0.0], [steps[0]] * 100, steps[1])
    robot = plain(dynamics.load_urdf(urdf))
    up = [plan.residual(swinging, None, w * weights) for w in (1e-5 / dt, 100.0)]
    bound = np.array([most, 0.0])
    ours = plan.Problem(
        robot,
        horizon=100,
        dt=dt,
        running={"up": up[0], "effort": plan.torque(0.0, 1e-4 / dt)},
        terminal={"up": up[1]},
        control_limits=(-bound, bound),
    )
    return Limited(ours, limited(theirs, -bound[:1], bound[:1]), q)


def weak_panda() -> Limited:
    """`panda_problem` by 0.3 of the torques of its motors."""
    robot = plain(dynamics.load_robot("panda"))
    q, bound = np.asarray(robot.q_default), 0.3 * np.asarray(robot.effort_limits)
    theirs = reaching(pinocchio_panda(), np.concatenate([q, np.zeros(robot.nv)]), REACH)
    ours = dataclasses.replace(panda_problem(robot, q, REACH), control_limits=(-bound, bound))
    return Limited(ours, limited(theirs, -bound, bound), q)


def limits(options: Options, table: Callable[..., None]) -> None:
    """Beside Box-FDDP, from rest and no torques, to a stop of 1e-9, float64."""
    import crocoddyl

    lines = []
    for name, it in (
        ("pendulum, 0.6 N m", swing_up(0.6)),
        ("pendulum, 0.5 N m", swing_up(0.5)),
        ("Panda, 0.3 of its torques", weak_panda()),
    ):
        n, count = it.ours.robot.nv, it.ours.horizon
        nu = it.theirs.runningModels[0].nu
        begin = np.concatenate([it.theirs.x0[: len(it.q)], np.zeros(n)])

        def theirs(it: Limited = it, begin: np.ndarray = begin, nu: int = nu) -> Any:
            box = crocoddyl.SolverBoxFDDP(it.theirs)
            box.th_stop = 1e-9
            box.solve([begin] * (it.theirs.T + 1), [np.zeros(nu)] * it.theirs.T, 200, False)
            return box

        q, v = np.broadcast_to(it.q, (count + 1, len(it.q))), np.zeros((count + 1, n))
        guess = plan.Guess(q, v, np.zeros((count, n)))
        runs: dict[str, Callable[[], Any]] = {"Box-FDDP": theirs}
        for hessian in ("gauss-newton", "exact"):
            solve = solver(it.ours, plan.Options(200, hessian=hessian), np.float64)
            runs[hessian] = lambda solve=solve, it=it, v=v, guess=guess: solve(it.q, v[0], guess)
        ends = {who: run() for who, run in runs.items()}
        lower, upper = (np.asarray(x) for x in it.ours.control_limits)
        for who, (seconds, spread) in medians(runs, options.rounds).items():
            end = ends[who]
            if isinstance(end, plan.Plan):
                tau = np.asarray(end.tau)
                least, most, iterations = lower, upper, int(end.iterations)
                done = plan.STATUS[int(end.status)]
            else:
                tau, iterations = np.asarray(end.us.tolist()), int(end.iter)
                least, most = it.theirs.runningModels[0].u_lb, it.theirs.runningModels[0].u_ub
                done = "converged" if end.stop < 1e-9 else "not converged"
            beyond = max(0.0, float(np.max(tau - most)), float(np.max(least - tau)))
            free = np.asarray(most) > np.asarray(least)
            at_limit = (np.isclose(tau, most) | np.isclose(tau, least))[:, free].mean()
            lines.append([
                f"{name}, {who}", f"{iterations}, {done}", f"{float(end.cost):.7f}",
                f"{beyond:.1g}", f"{100 * at_limit:.0f}", f"{1e3 * seconds:.1f} {spread}",
            ])  # fmt: skip
    table(
        "Torques at their limits",
        ["", "iterations", "cost", "beyond, N m and N", "at a limit, %", "ms"], lines,
    )  # fmt: skip


TOUCHING = ("link5_1", "hand_1", "hand_5")
"""Spheres of the Panda that are kept off obstacles."""


def around(options: Options, table: Callable[..., None]) -> None:
    """The hand to a place behind two spheres, within the limits of joints and torques, float64."""
    import pinocchio
    from arm_by_ipopt import Arm, solved

    robot = plain(dynamics.load_robot("panda"))
    q, limits = np.asarray(robot.q_default), np.asarray(robot.position_limits)
    target, effort = np.array([0.4, -0.45, 0.35]), np.asarray(robot.effort_limits)
    places, radii = np.array([[0.5, -0.2, 0.45], [0.35, 0.3, 0.6]]), np.array([0.1, 0.08])
    weights = 0.1, 1e-3, 1e3, 10.0
    problem = plan.Problem(
        robot,
        horizon=50,
        dt=0.02,
        running={
            "still": plan.velocity(weight=weights[0]),
            "effort": plan.torque(weight=weights[1], beyond_gravity=True),
        },
        terminal={
            "reach": plan.position("hand", target, weights[2]),
            "still": plan.velocity(weight=weights[3]),
        },
        control_limits=True,
        constraints=(barriers.obstacles(TOUCHING), barriers.joint_position()),
        obstacles=dynamics.Obstacles(dynamics.Sphere(places, radii)),
    )
    solve = solver(problem, plan.Options(200), np.float64)
    ours = solve(q, np.zeros(robot.nv))
    seconds, _ = medians({"ours": lambda: solve(q, np.zeros(robot.nv))}, options.rounds)["ours"]
    free = dataclasses.replace(problem, constraints=())
    loose = solver(free, plan.Options(200), np.float64)(q, np.zeros(robot.nv))

    model = pinocchio_panda()
    data = model.createData()
    pinocchio.forwardKinematics(model, data, q)

    def on(joint: int, place: Any) -> np.ndarray:
        at = data.oMi[joint]
        return np.asarray(at.rotation.T @ (np.asarray(place, np.float64) - at.translation))

    shapes = [s.name for s in robot.topology.collision_shapes]
    with jax.enable_x64(True):
        spheres = dynamics.robot_geometry(robot, q).spheres
        hand = dynamics.frame_pose(robot, q, "hand")[0]
    touching = [(5 if name.startswith("link5") else 7, shapes.index(name)) for name in TOUCHING]
    arm = Arm(
        model,
        q,
        50,
        0.02,
        (7, on(7, hand)),
        target,
        [(j, on(j, spheres.position[k]), float(spheres.radius[k])) for j, k in touching],
        list(zip(places, radii.tolist(), strict=True)),
        effort,
        limits,
        weights,
    )
    theirs = solved(arm)
    lines = [
        ["Ipopt, CasADi", str(theirs["iterations"]), f"{theirs['cost']:.9f}", "",
         f"{1e3 * theirs['seconds']:.0f}"],
        ["fraxenv", str(int(ours.iterations)), f"{float(ours.cost):.9f}",
         f"{float(ours.violation):.1e}", f"{1e3 * seconds:.1f}"],
        ["fraxenv, no constraints", str(int(loose.iterations)), f"{float(loose.cost):.9f}", "", ""],
    ]  # fmt: skip
    table(
        "Panda past two spheres, 50 knots",
        ["", "iterations", "cost", "violation, m and rad", "ms"], lines,
    )  # fmt: skip


RUNS = {"kinova": kinova, "panda": panda, "many": many, "around": around, "limits": limits}


def main(options: Options) -> None:
    """Measure, and print tables."""
    console = Console(width=120)

    def table(title: str, head: Line, lines: list[Line]) -> None:
        it = Table(*head, title=title, title_justify="left")
        for line in lines:
            it.add_row(*line)
        console.print(it)

    for name in options.only:
        RUNS[name](options, table)


if __name__ == "__main__":
    main(tyro.cli(Options, config=(tyro.conf.AvoidSubcommands,)))
