"""What a MuJoCo model may have that is not modelled here: refused, each with reason and remedy."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, get_args

import numpy as np
from numpy.typing import NDArray

from fraxenv.errors import SceneLoadError

from ..model.inertia import SMALLEST_MASS, SMALLEST_MOMENT

_FLAGS = {
    "CONSTRAINT": "constraints are always on; a scene without any has none to begin with",
    "EQUALITY": "remove the <equality> elements, or set active='false' on them",
    "FRICTIONLOSS": "set frictionloss='0'",
    "LIMIT": "set limited='false' on the joints",
    "CONTACT": "set contype='0' conaffinity='0' on the geoms",
    "SPRING": "set stiffness='0' on the joints",
    "DAMPER": "set damping='0' on the joints",
    "GRAVITY": "set <option gravity='0 0 0'/>",
    "CLAMPCTRL": "set ctrllimited='false' on the actuators",
    "ACTUATION": "remove the actuators, or leave their controls at zero",
    "REFSAFE": "time constants of solref are held above two timesteps; use a smaller timestep",
    "EULERDAMP": "the Euler step treats damping implicitly; use integrator='implicitfast', or none",
}
"""Flags of `<option><flag .../>` that, disabled, change the motion, and what to do instead."""

_ENABLED = {
    "OVERRIDE": "write solref, solimp, margin and friction at the geoms, or in <default>",
    "SLEEP": "bodies never sleep here; the motion of those that do not is the same",
    "DIAGEXACT": "softness is scaled by the weights at the reference configuration",
    "IPC": "contacts are those of MuJoCo's default colliders",
    "SPECULATIVE": "contacts count from geoms' margins on; set margin",
}
"""Flags that, enabled, change the motion, and what to do instead."""

LeftOut = Literal["springs", "tendons", "gravity compensation"]
LEFT_OUT: Final[tuple[LeftOut, ...]] = get_args(LeftOut)
"""Forces that a robot may do without."""

_CALLBACKS = ("passive", "control", "contactfilter", "act_dyn", "act_gain", "act_bias")


@dataclass(frozen=True)
class Part:
    """What a robot takes of a model.

    Attributes:
        bodies: (nbody,) bool, the bodies.
        joints: (njnt,) bool, the joints that move; others of these bodies are welded.
    """

    bodies: NDArray[np.bool_]
    joints: NDArray[np.bool_]

    def moves(self, model: Any) -> NDArray[np.bool_]:
        """(nbody,) bool, whether a joint of the part carries the body."""
        moves = np.zeros(model.nbody, bool)
        for body in range(1, model.nbody):
            first = model.body_jntadr[body]
            own = (
                self.joints[first : first + model.body_jntnum[body]].any() if first >= 0 else False
            )
            moves[body] = own or moves[model.body_parentid[body]]
        return moves


def _joints_of(model: Any, body: int) -> slice:
    first = model.body_jntadr[body]
    return slice(first, first + model.body_jntnum[body])


def refuse(where: str, what: str, why: str, remedy: str) -> NoReturn:
    """Raise the error about one element.

    Raises:
        SceneLoadError: always.
    """
    raise SceneLoadError(f"{where}: {what}: {why}. {remedy}")


def named(mujoco: Any, model: Any, kind: str, index: int) -> str:
    """An element as errors name it: "tendon 'left'", or "tendon 3" where it has no name."""
    name = mujoco.mj_id2name(model, getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}"), index)
    return f"{kind} {name!r}" if name else f"{kind} {index}"


def check_supported(mujoco: Any, model: Any, where: str) -> None:
    """Check all of a model but its pairs of geoms, which `mjcf` checks as it lists them.

    Raises:
        SceneLoadError: something is not modelled; names the element, the reason and the remedy.
    """
    _check_options(mujoco, model, where)
    everything = Part(np.ones(model.nbody, bool), np.ones(model.njnt, bool))
    _check_bodies(mujoco, model, where, everything)
    _check_joints(mujoco, model, where, everything)
    _check_geoms(mujoco, model, where)
    _check_tendons(mujoco, model, where, range(model.ntendon))
    _check_equalities(mujoco, model, where)
    _check_actuators(mujoco, model, where)
    for name in _CALLBACKS:
        if getattr(mujoco, f"get_mjcb_{name}")() is not None:
            refuse(
                where,
                f"the callback mjcb_{name} is set",
                "Python functions that MuJoCo calls cannot be part of a compiled program",
                f"Clear it, mujoco.set_mjcb_{name}(None), and write the force in JAX.",
            )


def check_robot_supported(
    mujoco: Any, model: Any, where: str, part: Part, leave_out: Collection[LeftOut]
) -> None:
    """Check what a `Robot` takes from a model: bodies, joints, and forces of neither.

    Raises:
        SceneLoadError: something is not modelled; names the element, the reason and the remedy.
    """
    _check_bodies(mujoco, model, where, part)
    _check_joints(mujoco, model, where, part)
    moves = part.moves(model)
    if model.nflex and moves[model.flex_vertbodyid].any():
        _refuse_flex(mujoco, model, where)
    if "tendons" not in leave_out:
        pulled = [t for t in range(model.ntendon) if _pulls(mujoco, model, t, part, moves)]
        _check_tendons(mujoco, model, where, pulled, "; or leave_out=['tendons']")
    springs = np.flatnonzero(part.joints & (model.jnt_stiffness != 0))
    if len(springs) and "springs" not in leave_out:
        refuse(
            where,
            named(mujoco, model, "joint", int(springs[0])),
            "it has a spring, and a Robot has none",
            "Set stiffness='0', leave_out=['springs'], or take load_mjcf, whose scenes have "
            "springs.",
        )
    held = np.flatnonzero(moves & (model.body_gravcomp != 0))
    if len(held) and "gravity compensation" not in leave_out:
        refuse(
            where,
            named(mujoco, model, "body", int(held[0])),
            "gravcomp, a force that holds its weight, is nothing a Robot has",
            "Remove it; controllers compensate gravity. Or leave_out=['gravity compensation'], or "
            "take load_mjcf, whose scenes have it.",
        )


def _pulls(mujoco: Any, model: Any, tendon: int, part: Part, moves: NDArray[np.bool_]) -> bool:
    """Whether a tendon goes along a joint of the part, or by what it moves."""
    kinds, first = mujoco.mjtWrap, model.tendon_adr[tendon]
    carried = {
        int(kinds.mjWRAP_JOINT): part.joints,
        int(kinds.mjWRAP_SITE): moves[model.site_bodyid],
        int(kinds.mjWRAP_SPHERE): moves[model.geom_bodyid],
        int(kinds.mjWRAP_CYLINDER): moves[model.geom_bodyid],
    }
    wraps = range(first, first + model.tendon_num[tendon])
    kinds_and_ids = ((int(model.wrap_type[i]), int(model.wrap_objid[i])) for i in wraps)
    return any(bool(carried[kind][at]) for kind, at in kinds_and_ids if kind in carried)


def _any(model: Any, field: str, index: Any = slice(None)) -> bool:
    """Whether a field, which older versions of MuJoCo lack, has an entry that is not zero."""
    return bool(np.any(getattr(model, field, np.zeros(1))[index if hasattr(model, field) else 0]))


# --- options --------------------------------------------------------------------------------------


def _check_options(mujoco: Any, model: Any, where: str) -> None:
    opt = model.opt
    for flag, remedy in _FLAGS.items():
        bit = getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}", None)
        if bit is not None and opt.disableflags & int(bit):
            refuse(
                where,
                f"<option> disables the flag {flag.lower()!r}",
                "this part of the physics is always computed here",
                f"Leave the flag enabled; {remedy}.",
            )
    for flag, remedy in _ENABLED.items():
        bit = getattr(mujoco.mjtEnableBit, f"mjENBL_{flag}", None)
        if bit is not None and opt.enableflags & int(bit):
            refuse(
                where,
                f"<option> enables the flag {flag.lower()!r}",
                "it is not modelled",
                f"Leave it disabled; {remedy}.",
            )
    integrator = mujoco.mjtIntegrator(opt.integrator).name.removeprefix("mjINT_")
    if integrator in ("RK4", "IMPLICIT"):
        name = "RK4" if integrator == "RK4" else "implicit"
        refuse(
            where,
            f"<option integrator={name!r}>",
            "steps of this kind are not implemented",
            "Use 'Euler', 'implicitfast' or 'discrete'.",
        )
    if opt.solver == mujoco.mjtSolver.mjSOL_PGS:
        refuse(
            where,
            "<option solver='PGS'>",
            "the constraints' convex problem is solved to convergence by Newton's method, which "
            "sweeps of PGS do not reach",
            "Use solver='Newton'.",
        )
    if opt.noslip_iterations > 0:
        refuse(
            where,
            f"<option noslip_iterations='{opt.noslip_iterations}'>",
            "the no-slip pass is no part of the convex problem",
            "Set it to 0; cone='elliptic' impratio='10' slips little.",
        )
    for name in ("density", "viscosity"):
        if getattr(opt, name) != 0:
            refuse(
                where,
                f"<option {name}='{getattr(opt, name):g}'>",
                "forces of a fluid are not modelled",
                "Set it to 0; joint damping is modelled.",
            )
    if np.any(opt.wind):
        refuse(
            where,
            f"<option wind='{' '.join(f'{x:g}' for x in opt.wind)}'>",
            "forces of a fluid are not modelled",
            "Set it to 0 0 0.",
        )
    if getattr(opt, "disableactuator", 0):
        refuse(
            where,
            "<option actuatorgroupdisable>",
            "disabled actuators are not modelled",
            "Remove these actuators.",
        )
    if getattr(model, "nplugin", 0):
        refuse(
            where,
            f"{model.nplugin} plugin instances",
            "plugins are machine code of their own",
            "Remove them.",
        )
    if model.nflex:
        _refuse_flex(mujoco, model, where)


def _check_tendons(
    mujoco: Any, model: Any, where: str, tendons: Iterable[int], otherwise: str = ""
) -> None:
    for tendon in tendons:
        acts = any(
            _any(model, f"tendon_{field}", tendon)
            for field in ("stiffness", "stiffnesspoly", "damping", "dampingpoly", "armature")
        )
        if acts or model.tendon_frictionloss[tendon] or model.tendon_limited[tendon]:
            refuse(
                where,
                named(mujoco, model, "tendon", tendon),
                "it pulls, and tendons are not modelled",
                "Remove it; fingers that move together are coupled by <equality><joint "
                f"joint1=... joint2=.../></equality>{otherwise}.",
            )


def _refuse_flex(mujoco: Any, model: Any, where: str) -> NoReturn:
    refuse(
        where,
        named(mujoco, model, "flex", 0),
        "deformable bodies are not modelled",
        "Remove it, or replace it by rigid bodies.",
    )


# --- bodies, joints, geoms ------------------------------------------------------------------------


def _check_bodies(mujoco: Any, model: Any, where: str, part: Part) -> None:
    for body in range(1, model.nbody):
        if part.bodies[body] and model.body_mocapid[body] >= 0:
            refuse(
                where,
                named(mujoco, model, "body", body),
                "mocap='true', bodies that are moved from outside, are not modelled",
                "Remove mocap, which leaves it fixed, or give it a <freejoint/> and a weld.",
            )
        if not part.joints[_joints_of(model, body)].any():
            continue
        welded = np.flatnonzero(model.body_weldid == body)
        if not model.body_mass[welded].sum() >= SMALLEST_MASS:
            refuse(
                where,
                named(mujoco, model, "body", body),
                f"it moves, and its mass is {model.body_mass[welded].sum():g} kg",
                "Give it an <inertial>, or geoms with a positive mass or density.",
            )
        turns = any(
            model.jnt_type[model.body_jntadr[body] + k] != mujoco.mjtJoint.mjJNT_SLIDE
            for k in range(model.body_jntnum[body])
        )
        massive = welded[model.body_mass[welded] > 0]
        if turns and len(massive) == 1 and not model.body_inertia[massive].min() >= SMALLEST_MOMENT:
            refuse(
                where,
                named(mujoco, model, "body", body),
                f"it turns, and its moments of inertia are {model.body_inertia[massive[0]]} kg m^2",
                "Give it an <inertial> with three positive moments.",
            )


def _check_joints(mujoco: Any, model: Any, where: str, part: Part) -> None:
    for joint in map(int, np.flatnonzero(part.joints)):
        what = named(mujoco, model, "joint", joint)
        dof = model.jnt_dofadr[joint]
        if _any(model, "jnt_stiffnesspoly", joint):
            refuse(
                where,
                what,
                "its stiffness is a polynomial, and springs are linear here",
                "Give stiffness one number.",
            )
        if _any(model, "dof_dampingpoly", dof):
            refuse(
                where,
                what,
                "its damping is a polynomial, and damping is linear here",
                "Give damping one number.",
            )
        if _any(model, "jnt_springyield", joint):
            refuse(where, what, "plastic springs are not modelled", "Remove springyield.")
        if model.jnt_actgravcomp[joint] and np.any(model.body_gravcomp):
            refuse(
                where,
                what,
                "actuatorgravcomp, gravity compensation within the limits of actuators, is not "
                "modelled",
                "Remove it: gravcomp is then a passive force.",
            )


def _check_geoms(mujoco: Any, model: Any, where: str) -> None:
    for geom in range(model.ngeom):
        what = named(mujoco, model, "geom", geom)
        if _any(model, "geom_surfacevel", geom):
            refuse(where, what, "surfacevel, as of a conveyor, is not modelled", "Remove it.")
        if _any(model, "geom_adhesion", geom):
            refuse(where, what, "adhesion is not modelled", "Remove it.")
    for pair in range(model.npair):
        if _any(model, "pair_adhesion", pair):
            refuse(
                where,
                named(mujoco, model, "pair", pair),
                "adhesion is not modelled",
                "Remove it.",
            )


# --- equalities, actuators ------------------------------------------------------------------------


def _check_equalities(mujoco: Any, model: Any, where: str) -> None:
    modelled = [
        int(kind)
        for kind in (mujoco.mjtEq.mjEQ_JOINT, mujoco.mjtEq.mjEQ_CONNECT, mujoco.mjtEq.mjEQ_WELD)
    ]
    for equality in range(model.neq):
        if int(model.eq_type[equality]) not in modelled:
            kind = mujoco.mjtEq(model.eq_type[equality]).name.removeprefix("mjEQ_").lower()
            refuse(
                where,
                f"{named(mujoco, model, 'equality', equality)} of type {kind!r}",
                "equality constraints of this type are not modelled",
                "Use joint, connect or weld.",
            )


def _check_actuators(mujoco: Any, model: Any, where: str) -> None:
    trn = mujoco.mjtTrn
    scalar = [int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE)]
    for i in range(getattr(model, "nactuator", model.nu)):
        what = named(mujoco, model, "actuator", i)
        kind = trn(model.actuator_trntype[i])
        if kind not in (trn.mjTRN_JOINT, trn.mjTRN_JOINTINPARENT):
            refuse(
                where,
                what,
                f"transmissions of the kind {kind.name.removeprefix('mjTRN_').lower()!r} are not "
                "modelled",
                "Give it joint=..., a hinge or a slide.",
            )
        if model.jnt_type[model.actuator_trnid[i, 0]] not in scalar:
            refuse(
                where,
                what,
                f"it drives {named(mujoco, model, 'joint', model.actuator_trnid[i, 0])}, and "
                "actuators of ball and free joints are not modelled",
                "Drive hinges or slides; forces on a free body go into tau.",
            )
        for part, expected in _ACTUATOR_TYPES.items():
            types = getattr(mujoco, f"mjt{part.capitalize()}")
            value = types(getattr(model, f"actuator_{part}type")[i])
            name = value.name.partition("_")[2].lower()
            if name not in expected:
                refuse(
                    where,
                    what,
                    f"{part}type={name!r} is not modelled: actuators have no state of their own, "
                    "and are affine in control, position and velocity",
                    f"Use {' or '.join(map(repr, expected))}, as <motor>, <position> and "
                    "<velocity> do.",
                )
        if model.actuator_actadr[i] >= 0:
            refuse(where, what, "it has a state of its own (activation)", "Use dyntype='none'.")
        if _any(model, "actuator_delay", i) or _any(model, "actuator_history", (i, 0)):
            refuse(
                where,
                what,
                "delay and history of controls are not modelled in scenes",
                "Remove delay and nsample; fraxenv.dynamics.Actuators has delays.",
            )
        if _any(model, "actuator_dampingpoly", i):
            refuse(
                where,
                what,
                "its damping is a polynomial, and damping is linear here",
                "Give damping one number.",
            )


_ACTUATOR_TYPES = {
    "dyn": ("none",),
    "gain": ("fixed", "affine"),
    "bias": ("none", "affine"),
}
