"""A policy that plans: model-predictive control of hands to their goals, of a cube, of a gait."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fraxenv.controllers import ArmWithGripper, JointImpedance, Torque, barriers
from fraxenv.controllers import planning as plan
from fraxenv.controllers.groups import finger_coordinate, finger_dof
from fraxenv.controllers.impedance import broadcast_gain, compensation, damping
from fraxenv.controllers.planning.mpc import state_at
from fraxenv.dynamics import (
    Robot,
    Terms,
    compute_terms,
    frame_pose,
    move_obstacles,
    restrict_terms,
    rotation_exp,
)
from fraxenv.dynamics.kinematics import frame_poses
from fraxenv.dynamics.manifold import driven_part, scalar_coordinates
from fraxenv.dynamics.math.algebra import matmul
from fraxenv.errors import ConfigError

from .actions.gripper import WithGripper
from .actions.joint import JointPosition, JointTorque
from .actions.poses import HandPoses, ways_to
from .contact_physics import ContactPhysics
from .environment import Environment
from .goal_environment import GoalEnvironment
from .observed import expected, joint_state, obstacles, terms_of, ways_to_goals
from .predictive_cube import (
    dragged_scene,
    pick_problem,
    pick_references,
    push_problem,
    push_references,
    seen_dragged,
    seen_free,
)
from .predictive_gait import (
    gait_problem,
    gait_references,
    pull_references,
    seen_reference,
    seen_state,
    seen_time,
    seen_with_sled,
)
from .state import EnvParams, EnvState
from .steering import steering
from .tasks.among_obstacles import AmongObstacles
from .tasks.object_goals import ObjectGoals
from .tasks.pick import Pick
from .tasks.pose_goals import PoseGoals
from .tasks.pull import Pull
from .tasks.push import Push
from .tasks.track import Track
from .tasks.trot import Trot
from .tasks.trot_track import TrotTrack
from .tasks.walking import foot_radius

HORIZON, STEP = 0.5, 0.02
"""s, of a plan, and of its steps at least, which are the policy's where that acts less often."""

AHEAD = 0.16
"""s, on the plan, where hands are sent to: as long as an OSC is behind a target that moves."""

CLEARANCE = 0.02
"""m, that a plan keeps off obstacles, softly."""

ROUND = 0.02
"""m, within which the cost of a distance is rounded off."""

FIRST = 8
"""Plans of a gait before the first action: to stand still is none that stands."""

_Act = Callable[[plan.MPC, Terms, plan.MPCState], Array]
_State = Callable[[Mapping[str, Array]], tuple[Array, Array]]


@dataclass(frozen=True)
class PredictivePolicy:
    """A policy with a memory, as `fraxenv.record` takes it: a new plan for every action.

    Attributes:
        env: the environment.
        mpc: what plans.
        aim: references of the problem, of an observation's terms and `q` (nq,).
        act: action (k,) of `mpc`, of the robot's terms, and of what `mpc` remembers.
        hands: names of the frames that it moves.
        state: `q` (nq,) and `v` (nv,) of what is planned, of an observation's terms.
        origin: where in the world (3,), m, plans have their origin, of a state.
        plans: how many are made before the first action, each from the one before.
    """

    env: Environment
    mpc: plan.MPC
    aim: Callable[[Mapping[str, Array], Array], dict[str, Any]]
    act: _Act
    hands: tuple[str, ...]
    state: _State
    origin: Callable[[EnvState], Array] = lambda state: jnp.zeros(3)
    plans: int = 0

    def begin(self, obs: Array) -> plan.MPCState:
        """The memory at the beginning of an episode, of its first observation (n,)."""
        seen = terms_of(self.env, obs)
        terms = self._terms(seen)
        memory = self.mpc.init(self.robot, terms)
        if not self.plans:
            return memory

        def again(memory: plan.MPCState, _: None) -> tuple[plan.MPCState, None]:
            return self.mpc.replan(self.robot, terms, self.aim(seen, terms.q), memory), None

        planned: plan.MPCState = jax.lax.scan(again, memory, None, self.plans)[0]
        return planned

    def __call__(
        self, obs: Array, key: Array, memory: plan.MPCState
    ) -> tuple[Array, plan.MPCState]:
        """The action (k,) for an observation (n,), and the next memory."""
        seen = terms_of(self.env, obs)
        terms = self._terms(seen)
        new = self.mpc.replan(self.robot, terms, self.aim(seen, terms.q), memory)
        return self.act(self.mpc, terms, new), self.mpc.later(new, 1.0 / self.env.policy_hz)

    def path(self, memory: plan.MPCState, state: EnvState) -> Array:
        """Positions (h, N + 1, 3), m, of the hands on the last plan, from where it began.

        Args:
            memory: with the plan.
            state: of the same episode.
        """
        positions: Array = jax.vmap(lambda q: frame_poses(self.robot, q, self.hands)[0])(
            memory.plan.q
        )
        return jnp.swapaxes(positions, 0, 1) + self.origin(state)

    def _terms(self, seen: Mapping[str, Array]) -> Terms:
        return compute_terms(self.robot, *self.state(seen))

    @property
    def robot(self) -> Robot:
        """What is planned: the environment's robot, and the objects of its scene."""
        planned: Robot = self.mpc.problem.robot
        return planned


def mpc_policy(
    env: Environment, params: EnvParams, iterations: int | None = None
) -> PredictivePolicy:
    """Model-predictive control of hands to their goals, off obstacles; of a cube; or of a gait.

    Actions that are torques are the plan's; others send the hands to where they are on the plan a
    little later, and in a gait the joints to where their springs pull as the plan says. What the
    environment has for safety acts as ever. A goal that moves (track) is expected on the parabola
    through what the observation tells of it, and an obstacle to move on as fast as it does. A cube
    that is pushed is planned in the plane, dragged; one that is picked up in the environment's
    scene; both by torques, best a hundred times a second.

    Args:
        env: the environment, of a task of hands and goals for them (reach, track, and those derived
            from them), of `Push`, `Pick` or `Trot`.
        params: its parameters.
        iterations: of each `plan.solve`; 1 if omitted, and 2 where goals or cubes move: after a
            single one a plan may be far off, from which it takes a second to come back.

    Raises:
        ConfigError: the task is not one of these, the robot's base floats, or actions are neither
            torques nor `Steerable`; for a cube, they are no torques; in a gait, they are neither
            torques nor joint positions, whose controller is a spring for each joint.
    """
    robot, task = env.robot, params.task
    if isinstance(task, Trot) and not isinstance(env, GoalEnvironment):
        return _walking(env, params, task, 1 if iterations is None else iterations)
    if -1 in robot.topology.dof_coordinate:
        raise ConfigError(
            f"{env.name} has no policy 'mpc': its base floats, which its observation tells too "
            "little of. Pass a policy of your own."
        )
    one_cube = type(task) in (Push, Pick) and not isinstance(env, GoalEnvironment)
    if one_cube and isinstance(task, ObjectGoals):
        return _handling(env, params, task, 2 if iterations is None else iterations)
    hands = isinstance(task, PoseGoals) and not isinstance(task, ObjectGoals)
    if not isinstance(task, PoseGoals) or not hands or isinstance(env, GoalEnvironment):
        raise ConfigError(
            f"{env.name} has no policy 'mpc': it needs a task of hands and goals for them, such as "
            "reach, track, push or pick, in a flat observation. Pass 'scripted', or a policy of "
            "your own."
        )
    torques = isinstance(params.action, JointTorque)
    act = _torques(env, params) if torques else _sent(env, params, task)
    nothing = terms_of(env, jnp.zeros(sum(env.observation_layout.values())))
    dt = max(1.0 / env.policy_hz, STEP)
    times = dt * jnp.arange(round(HORIZON / dt) + 1)
    aim = partial(_references, env, task, barriers.obstacles(margin=CLEARANCE), times)
    problem = _problem(robot, task, aim(nothing, jnp.asarray(robot.q_default)), dt)
    count = (2 if isinstance(task, Track) else 1) if iterations is None else iterations
    mpc = plan.MPC(problem, plan.Options(count))
    return PredictivePolicy(env, mpc, aim, act, task.hands.names, partial(joint_state, env))


def _handling(
    env: Environment, params: EnvParams, task: ObjectGoals, iterations: int
) -> PredictivePolicy:
    """The policy of a cube that is pushed, or picked up."""
    physics, space = env.physics, params.action
    joints = space.space if isinstance(space, WithGripper) else space
    alone = isinstance(physics, ContactPhysics) and set(physics.objects) == {task.object}
    if not isinstance(physics, ContactPhysics) or not alone or not isinstance(joints, JointTorque):
        raise ConfigError(
            f"{env.name} has no policy 'mpc' for the action space {type(joints).__name__} and "
            f"{type(physics).__name__}: plans go through contacts of one object, by torques. Make "
            "it with action='torque', policy_hz=100."
        )
    robot, dt = env.robot, 1.0 / env.policy_hz
    if isinstance(task, Push):
        problem = push_problem(dragged_scene(robot, task, dt), robot, task, dt)
        references, state = push_references, seen_dragged
    else:
        problem = pick_problem(physics.scene, robot, task, dt)
        references, state = pick_references, seen_free
    return PredictivePolicy(
        env,
        plan.MPC(problem, plan.Options(iterations)),
        partial(references, task),
        _torques(env, params),
        task.hands.names,
        partial(state, env),
    )


def _walking(env: Environment, params: EnvParams, task: Trot, iterations: int) -> PredictivePolicy:
    """The policy of a gait."""
    physics = env.physics
    if not isinstance(physics, ContactPhysics) or (physics.objects and not isinstance(task, Pull)):
        raise ConfigError(
            f"{env.name} has no policy 'mpc': a gait is planned through the contacts of a scene of "
            "one robot on the ground. Make it of one, such as envs.walking_scene(robot)."
        )
    sole = foot_radius(env.robot, task.feet[0])
    mpc = plan.MPC(gait_problem(physics.scene, task, sole), plan.Options(iterations))
    act = _torques(env, params) if isinstance(params.action, JointTorque) else _sprung(env, params)
    names = task.hands.names
    if isinstance(task, Pull):
        return PredictivePolicy(
            env,
            mpc,
            partial(pull_references, env, task),
            act,
            (task.hand,),
            partial(seen_with_sled, env, task),
            plans=FIRST,
        )

    def aim(seen: Mapping[str, Array], q: Array) -> dict[str, Any]:
        hand = seen_reference(env, task, seen, q) if isinstance(task, TrotTrack) else None
        return gait_references(task, seen_time(task, seen), jnp.zeros(2, q.dtype), hand)

    def origin(state: EnvState) -> Array:
        return jnp.append(state.task_state.goal, 0.0)

    if isinstance(task, TrotTrack):
        names = (*names, task.hand)
    seen_as = partial(seen_state, env, task)
    return PredictivePolicy(env, mpc, aim, act, names, seen_as, origin, FIRST)


def _own(env: Environment, terms: Terms) -> tuple[Terms, slice]:
    """Terms of the environment's robot in those of what is planned, and its entries in `v`."""
    physics = env.physics
    if not isinstance(physics, ContactPhysics):
        return terms, slice(None)
    return restrict_terms(terms, physics.member), physics.member.v


def _sprung(env: Environment, params: EnvParams) -> _Act:
    """Actions that send the joints to where their springs pull as the plan says."""
    robot, law, space = env.robot, params.controller, params.action
    springs = isinstance(law, JointImpedance) and law.decoupling == "none"
    if not isinstance(law, JointImpedance) or not (springs and isinstance(space, JointPosition)):
        raise ConfigError(
            f"{env.name} has no policy 'mpc' for the action space {type(space).__name__} and the "
            f"controller {type(law).__name__}, expected 'torque', or 'joint_position' with a "
            "JointImpedance(decoupling='none'). Choose one of these."
        )
    ends = [(axis.low, axis.high) for axis in space.axes(robot)]

    def act(mpc: plan.MPC, planned: Terms, state: plan.MPCState) -> Array:
        terms, own = _own(env, planned)
        shape, dtype = terms.v.shape, terms.v.dtype
        tau = mpc.torque(mpc.problem.robot, planned, state)[own]
        kp = broadcast_gain("kp", law.kp, shape, dtype)
        ratio = broadcast_gain("damping_ratio", law.damping_ratio, shape, dtype)
        added = compensation(
            robot, terms, gravity=law.gravity_compensation, coriolis=law.coriolis_compensation
        )
        damped = damping(kp * jnp.diagonal(terms.mass_matrix), ratio) * terms.v
        position = scalar_coordinates(robot, terms.q) + (tau - added + damped) / kp
        low, high = jnp.asarray(ends, dtype).T
        return jnp.clip(2.0 * (driven_part(robot, position) - low) / (high - low) - 1.0, -1.0, 1.0)

    return act


def _problem(
    robot: Robot, task: PoseGoals, references: Mapping[str, Any], dt: float
) -> plan.Problem:
    """To the goals as fast as effort allows, within the limits, off obstacles.

    Args:
        robot: the model.
        task: with hands.
        references: of its goals and obstacles.
        dt: s, of a step.
    """
    running = {
        "still": plan.velocity(weight=0.1),
        "effort": plan.torque(weight=1e-3, beyond_gravity=True),
        "position limits": plan.below(barriers.joint_position(margin=0.05), weight=100.0),
        "velocity limits": plan.below(barriers.joint_velocity(margin=0.1), weight=10.0),
    }
    terminal = {}
    moves = isinstance(task, Track)
    if moves:
        # Without it the arm, which the goal's path leaves free, would wander to its limits.
        running["still"] = plan.velocity(weight=1e-3)
        running["posture"] = plan.posture(robot.q_default, weight=0.5)
    else:
        terminal["still"] = plan.velocity(weight=1.0)
    for hand in task.hands.names:
        name, last = f"reach {hand}", f"arrive {hand}" if moves else f"reach {hand}"
        # The distance, and not its square: the pull is the same near the goal.
        options: Any = {"weight": 20.0, "norm": plan.l2(ROUND)}
        running[name] = plan.position(hand, references[name], each=moves, **options)
        terminal[last] = plan.position(hand, references[last], **options)
        if task.orientation:
            name = f"turn {hand}"
            turn = plan.orientation(hand, references[name], weight=20.0)
            running[name] = terminal[name] = turn
    if "obstacles" in references:
        barrier, around = references["obstacles"]
        each = isinstance(task, AmongObstacles) and task.moving_count > 0
        running["obstacles"] = plan.below(barrier, around, weight=500.0, each=each)
    return plan.Problem(
        robot,
        horizon=round(HORIZON / dt),
        dt=dt,
        running=running,
        terminal=terminal,
        control_limits=True,
    )


def _references(
    env: Environment,
    task: PoseGoals,
    off: barriers.Barrier,
    times: Array,
    seen: Mapping[str, Array],
    q: Array,
) -> dict[str, Any]:
    """Goals and obstacles, at the times (N + 1,) of knots where they move.

    Of an observation's terms and `q` (nq,).
    """
    found: dict[str, Any] = {}
    for i, (name, (way, turn)) in enumerate(
        zip(task.hands.names, ways_to_goals(seen), strict=True)
    ):
        position, rotation = frame_pose(env.robot, q, name)
        if isinstance(task, Track):
            places = position + _expected(task, times, i, seen)
            found[f"reach {name}"], found[f"arrive {name}"] = places[:-1], places[-1]
        else:
            found[f"reach {name}"] = position + way
        if task.orientation:
            found[f"turn {name}"] = matmul(rotation_exp(turn), rotation)
    if isinstance(task, AmongObstacles):
        around = obstacles(env, task, seen, q)
        if task.moving_count:
            found["obstacles"] = jax.vmap(lambda t: (off, move_obstacles(around, t)))(times[:-1])
        else:
            found["obstacles"] = off, around
    return found


def _expected(task: Track, times: Array, hand: int, seen: Mapping[str, Array]) -> Array:
    """Ways (n, 3), m, of a hand to where its goal will be at times (n,), s.

    By where it is, how fast it moves, and where it will be after the task's lookahead.
    """
    now, then = (0.1 * seen[name].reshape(-1, 3)[hand] for name in ("to_goal", "to_goal_ahead"))
    speed = seen["goal_velocity"].reshape(-1, 3)[hand]
    return expected(now, then, speed, task.lookahead, times)


def _torques(env: Environment, params: EnvParams) -> _Act:
    """Actions that are the plan's torques, and the width that has a gripper's spring pull so."""
    robot, law = env.robot, params.controller
    axes = params.action.axes(robot)
    low, high = (jnp.asarray([getattr(axis, end) for axis in axes]) for end in ("low", "high"))
    gripper = law if isinstance(law, ArmWithGripper) else None
    law = law.arm if isinstance(law, ArmWithGripper) else law
    law = law if isinstance(law, Torque) else Torque()

    def act(mpc: plan.MPC, planned: Terms, state: plan.MPCState) -> Array:
        terms, own = _own(env, planned)
        added = compensation(
            robot, terms, gravity=law.gravity_compensation, coriolis=law.coriolis_compensation
        )
        tau = mpc.torque(mpc.problem.robot, planned, state)[own]
        if gripper is None:
            return jnp.clip(driven_part(robot, tau - added) / high, -1.0, 1.0)
        finger = finger_dof(robot, gripper.joint)
        x = terms.q[finger_coordinate(robot, gripper.joint)]
        width = 2.0 * (x + tau[finger] / jnp.asarray(gripper.gripper_kp))
        wanted = driven_part(robot, (tau - added).at[finger].set(width))
        return jnp.clip(2.0 * (wanted - low) / (high - low) - 1.0, -1.0, 1.0)

    return act


def _sent(env: Environment, params: EnvParams, task: PoseGoals) -> _Act:
    """Actions that send the hands to where they are on the plan a little later."""
    robot, names = env.robot, task.hands.names
    steer = steering(env, params, names)

    def act(mpc: plan.MPC, terms: Terms, state: plan.MPCState) -> Array:
        q, _ = state_at(robot, state.plan, AHEAD / jnp.asarray(mpc.problem.dt))
        poses = HandPoses(*frame_poses(robot, q, names), jnp.zeros(()))
        return steer(terms.q, ways_to(robot, terms.q, names, poses), None)

    return act
