"""What is not modelled is refused, each by an error of its own that names the element."""

from __future__ import annotations

from functools import partial

import jax
import mujoco
import numpy as np
import pytest

from fraxenv import dynamics
from fraxenv.dynamics import SceneLoadError
from fraxenv.dynamics.scene.scene import check_precision
from fraxenv.dynamics.scene.step import constrained_acceleration, scene_step


def mjcf(
    *, option: str = "", world: str = "", inside: str = "", joint: str = "", rest: str = ""
) -> str:
    """A body with a hinge over a floor, and what is asked for."""
    return f"""<mujoco>{option}
    <asset><mesh name="wedge" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/>
    <hfield name="hills" nrow="2" ncol="2" size="1 1 1 1" elevation="0 1 1 0"/></asset>
    <worldbody><geom name="floor" type="plane" size="1 1 1"/>{world}
    <body name="arm" pos="0 0 1"><joint name="hinge" {joint}/><geom name="ball" size=".1"/>
    {inside}</body></worldbody>{rest}</mujoco>"""


def actuator(text: str) -> str:
    return mjcf(
        world='<site name="s"/><site name="s2"/>',
        inside='<site name="s3"/><body><joint type="ball" name="b"/><geom size=".1"/></body>',
        rest=f"<actuator>{text}</actuator>",
    )


MUSCLE = '.75 1.05 -1 200 .5 1.6 1.5 1.3 1.2" lengthrange="0 1'

REFUSED = {
    "rk4": (mjcf(option='<option integrator="RK4"/>'), "integrator='RK4'.*Use 'Euler'"),
    "implicit": (mjcf(option='<option integrator="implicit"/>'), "integrator='implicit'"),
    "pgs": (mjcf(option='<option solver="PGS"/>'), "solver='PGS'.*Use solver='Newton'"),
    "noslip": (mjcf(option='<option noslip_iterations="3"/>'), "noslip_iterations='3'.*impratio"),
    "density": (mjcf(option='<option density="1.2"/>'), "density='1.2'.*Set it to 0"),
    "viscosity": (mjcf(option='<option viscosity="1e-5"/>'), "viscosity='1e-05'"),
    "wind": (mjcf(option='<option wind="1 0 0"/>'), "wind='1 0 0'"),
    "groups": (mjcf(option='<option actuatorgroupdisable="1"/>'), "actuatorgroupdisable"),
    **{
        flag: (
            mjcf(option=f'<option><flag {flag}="disable"/></option>'),
            f"disables the flag '{flag}'.*Leave the flag enabled",
        )
        for flag in (
            *("constraint", "equality", "frictionloss", "limit", "contact", "spring", "damper"),
            *("gravity", "clampctrl", "actuation", "refsafe", "eulerdamp"),
        )
    },
    **{
        flag: (
            mjcf(option=f'<option integrator="discrete"><flag {flag}="enable"/></option>'),
            f"enables the flag '{flag}'.*Leave it disabled",
        )
        for flag in ("override", "sleep", "diagexact", "ipc", "speculative")
    },
    "tendon": (
        mjcf(
            rest='<tendon><fixed name="t" stiffness="1"><joint joint="hinge" coef="1"/></fixed>'
            "</tendon>"
        ),
        "tendon 't': it pulls, and tendons are not modelled.*<equality><joint",
    ),
    "flex": (
        mjcf(world='<flexcomp name="cloth" type="grid" count="3 3 1" spacing=".1 .1 .1" dim="2"/>'),
        "flex 'cloth': deformable bodies",
    ),
    "mocap": (
        mjcf(world='<body name="m" mocap="true"><geom size=".1"/></body>'),
        "body 'm': mocap.*freejoint",
    ),
    "mesh": (
        mjcf(inside='<geom name="hull" type="mesh" mesh="wedge"/>'),
        "geom 'hull' is of type 'mesh' and may touch geom 'floor'.*only shows",
    ),
    "ellipsoid": (
        mjcf(inside='<geom type="ellipsoid" size=".1 .2 .3"/>'),
        "geom 'arm_geom' is of type 'ellipsoid' and may touch",
    ),
    "hfield": (
        mjcf(world='<geom name="h" type="hfield" hfield="hills"/>'),
        "geom 'h' is of type 'hfield' and may touch geom 'ball'",
    ),
    "pair": (
        mjcf(
            inside='<geom name="can" type="cylinder" size=".1 .1"/>',
            world='<body><freejoint/><geom name="crate" type="box" size=".1 .1 .1"/></body>',
        ),
        "geoms 'can' and 'crate', a cylinder and a box, may touch.*<exclude>",
    ),
    "named pair": (
        mjcf(
            inside='<geom name="hull" type="mesh" mesh="wedge" contype="0" conaffinity="0"/>',
            rest='<contact><pair geom1="floor" geom2="hull"/></contact>',
        ),
        "geom 'hull' is of type 'mesh' and may touch geom 'floor'",
    ),
    "equality": (
        mjcf(
            rest='<tendon><fixed name="t"><joint joint="hinge" coef="1"/></fixed></tendon>'
            '<equality><tendon tendon1="t"/></equality>'
        ),
        "equality 0 of type 'tendon'",
    ),
    "stiffness": (mjcf(joint='stiffness="1 2 3"'), "joint 'hinge': its stiffness is a polynomial"),
    "damping": (mjcf(joint='damping="1 2"'), "joint 'hinge': its damping is a polynomial"),
    "gravcomp": (
        mjcf(
            joint='actuatorgravcomp="true"',
            inside='<body gravcomp="1"><geom size=".1"/></body>',
        ),
        "joint 'hinge': actuatorgravcomp",
    ),
    "muscle": (
        actuator('<muscle name="a" joint="hinge" lengthrange="0 1"/>'),
        "actuator 'a': dyntype='muscle'",
    ),
    "filter": (
        actuator('<general name="a" joint="hinge" dyntype="filter"/>'),
        "actuator 'a': dyntype='filter'.*no state of their own",
    ),
    "integrated": (
        actuator('<intvelocity name="a" joint="hinge" kp="1" actrange="-1 1"/>'),
        "actuator 'a': dyntype='integrator'",
    ),
    "gain": (
        actuator(f'<general name="a" joint="hinge" gaintype="muscle" gainprm="{MUSCLE}"/>'),
        "actuator 'a': gaintype='muscle'.*Use 'fixed' or 'affine'",
    ),
    "bias": (
        actuator(f'<general name="a" joint="hinge" biastype="muscle" biasprm="{MUSCLE}"/>'),
        "actuator 'a': biastype='muscle'",
    ),
    "site": (actuator('<motor name="a" site="s3"/>'), "actuator 'a': transmissions.*'site'"),
    "crank": (
        actuator('<motor name="a" cranksite="s" slidersite="s2" cranklength="1"/>'),
        "actuator 'a': transmissions.*'slidercrank'",
    ),
    "adhesion": (
        actuator('<adhesion name="a" body="arm" ctrlrange="0 1"/>'),
        "actuator 'a': transmissions.*'body'",
    ),
    "ball joint": (actuator('<motor name="a" joint="b"/>'), "actuator 'a': it drives joint 'b'"),
    "delay": (
        actuator('<motor name="a" joint="hinge" delay=".01" nsample="8"/>'),
        "actuator 'a': delay and history",
    ),
    "actuator damping": (
        actuator('<motor name="a" joint="hinge" damping="1 2 3"/>'),
        "actuator 'a': its damping is a polynomial",
    ),
    "static": ("<mujoco/>", "no body in it has a joint"),
    "syntax": ("<mujoco><wordlbody/></mujoco>", "MJCF text: MuJoCo cannot compile it.*wordlbody"),
    "massless": (
        "<mujoco><worldbody><body name='light'><joint/></body></worldbody></mujoco>",
        "MuJoCo cannot compile it.*mass",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    text, message = REFUSED[name]
    with pytest.raises(SceneLoadError, match=f"(?s){message}"):
        dynamics.load_mjcf(text)


def test_the_body_of_these_is_not_refused() -> None:
    scene = dynamics.load_mjcf(
        mjcf(inside='<geom type="mesh" mesh="wedge" contype="0" conaffinity="0"/>')
    )
    assert scene.pair_names == (("floor", "ball"),)
    dynamics.load_mjcf(actuator('<motor joint="hinge"/>'))


def test_fields_that_only_a_model_has() -> None:
    def changed(field: str, value: float) -> mujoco.MjModel:
        model = mujoco.MjModel.from_xml_string(
            mjcf(inside='<geom name="two" size=".2" pos="1 0 0"/>')
        )
        getattr(model, field)[1] = value
        return model

    for field, value, message in (
        ("body_mass", 0.0, "body 'arm': it moves, and its mass is 0 kg"),
        ("body_inertia", 0.0, "body 'arm': it turns, and its moments of inertia are"),
        ("geom_surfacevel", 1.0, "geom 'ball': surfacevel"),
        ("geom_adhesion", 1.0, "geom 'ball': adhesion"),
    ):
        with pytest.raises(SceneLoadError, match=message):
            dynamics.load_mjcf(changed(field, value))


def test_callbacks_are_refused() -> None:
    model = mujoco.MjModel.from_xml_string(mjcf())
    mujoco.set_mjcb_passive(lambda model, data: None)
    try:
        with pytest.raises(SceneLoadError, match="callback mjcb_passive is set"):
            dynamics.load_mjcf(model)
    finally:
        mujoco.set_mjcb_passive(None)


def test_what_is_no_model() -> None:
    with pytest.raises(SceneLoadError, match=r"nowhere\.xml: there is no such file"):
        dynamics.load_mjcf("nowhere.xml")
    with pytest.raises(SceneLoadError, match="load_mjcf got a MjSpec, expected"):
        dynamics.load_mjcf(mujoco.MjSpec())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<mujoco/>", "0 kinematic trees, expected one"),
        (
            mjcf(world='<body name="cube"><freejoint/><geom size=".1"/></body>'),
            "2 kinematic trees begin with 'cube', 'arm'",
        ),
        (mjcf(joint='stiffness="3"'), "joint 'hinge': it has a spring"),
        (
            mjcf(inside='<body name="held" gravcomp="1"><geom size=".1"/></body>'),
            "body 'held': gravcomp",
        ),
        (
            mjcf(
                rest='<tendon><fixed name="t" damping="1"><joint joint="hinge" coef="1"/></fixed>'
                "</tendon>"
            ),
            "tendon 't': it pulls",
        ),
    ],
)
def test_what_a_robot_cannot_have(text: str, message: str) -> None:
    with pytest.raises(SceneLoadError, match=message):
        dynamics.load_mjcf_robot(text)


def test_unknown_end_effector() -> None:
    with pytest.raises(dynamics.UnknownNameError, match="unknown body or site 'hnd'"):
        dynamics.load_mjcf_robot(mjcf(), end_effectors={"hand": "hnd"})


def test_flat_pyramids_are_refused_in_float32() -> None:
    scene = dynamics.load_mjcf(mjcf(option='<option cone="pyramidal"/>'))
    check_precision(scene, np.float32)
    flat = scene.with_geom("ball", friction=0.04).with_geom("floor", friction=0.01)
    check_precision(flat, np.float64)
    with pytest.raises(dynamics.FraxenvError, match=r"'floor' and 'ball' have the friction 0\.04"):
        check_precision(flat, np.float32)
    nothing = np.zeros(flat.nv, np.float32)
    q = np.asarray(flat.constraints.reference, np.float32)
    for refused in (constrained_acceleration, scene_step):
        with pytest.raises(dynamics.FraxenvError, match=r"pyramidal cone, expected at least 0\.05"):
            jax.eval_shape(partial(refused, flat), q, nothing, nothing)
    # Friction that is being traced cannot be looked at.
    jax.eval_shape(constrained_acceleration, flat, q, nothing, nothing)


def test_contradictory_sizes() -> None:
    scene = dynamics.load_mjcf(mjcf())
    with pytest.raises(dynamics.ArrayError, match=r"stiffness has shape \(2,\), expected \(1,\)"):
        scene.replace(stiffness=np.zeros(2))
    with pytest.raises(dynamics.FraxenvError, match="integrator='rk4', expected one of 'euler'"):
        scene.replace(integrator="rk4")
    with pytest.raises(dynamics.UnknownNameError, match="unknown field 'stifness'"):
        scene.replace(stifness=1.0)
    other = dynamics.load_mjcf(mjcf(inside='<site name="x"/>'))
    with pytest.raises(dynamics.FraxenvError, match="of another topology"):
        scene.with_system(other.system)
    assert scene.replace(timestep=np.full(3, 0.01)).timestep.shape == (3,)
