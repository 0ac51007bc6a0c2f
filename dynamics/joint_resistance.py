"""What resists the motion of joints: viscous damping, Coulomb friction, soft stops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from .manifold import integrate, scalar_coordinates
from .model.robot import Robot

FRICTION_VELOCITY = 0.01
"""Joint speed `s`, rad/s or m/s, that smooths Coulomb friction: `friction v / sqrt(v^2 + s^2)`."""


def implicit_resistance(robot: Robot, q: Array, v: Array, dt: Array) -> tuple[Array, Array]:
    """Joint force (nv,), N m and N, of damping, friction and stops, and `dt` times its slope (nv,).

    The slope is by the joint velocity.
    """
    damping = jnp.asarray(robot.damping, v.dtype)
    friction = jnp.asarray(robot.friction, v.dtype)
    # The slope of friction is its secant through zero, not its derivative. The derivative vanishes
    # at speed: friction would then be explicit, and turn a joint around instead of stopping it.
    slope = damping + friction * jax.lax.rsqrt(v * v + FRICTION_VELOCITY**2)

    lower, upper = jnp.asarray(robot.position_limits, v.dtype).T
    stiffness = jnp.asarray(robot.stop_stiffness, v.dtype)
    stop_damping = jnp.asarray(robot.stop_damping, v.dtype)
    # Positive above the upper limit, negative below the lower one, zero between.
    x = scalar_coordinates(robot, q)
    beyond = jnp.maximum(x - upper, 0) + jnp.minimum(x - lower, 0)
    touching = (beyond != 0).astype(v.dtype)
    slope = slope + touching * (stop_damping + dt * stiffness)
    return stiffness * beyond + slope * v, dt * slope


Resistance = tuple[Array, Array]
"""A joint force (nv,) and `dt` times its slope (nv,); or their derivatives."""


def resistance_slopes(
    robot: Robot, q: Array, v: Array, dt: Array
) -> tuple[Resistance, Resistance, Resistance]:
    """`implicit_resistance`, and its derivatives by `q`, on the tangent space, and by `v`.

    The resistance of a joint depends on that joint alone: its derivatives are diagonal, (nv,).
    """
    one, zero = jnp.ones_like(v), jnp.zeros_like(v)

    def resistance(displacement: Array, v: Array) -> Resistance:
        return implicit_resistance(robot, integrate(robot, q, displacement, 1.0), v, dt)

    here, by_q = jax.jvp(lambda d: resistance(d, v), (zero,), (one,))
    _, by_v = jax.jvp(lambda v: resistance(zero, v), (v,), (one,))
    return here, by_q, by_v
