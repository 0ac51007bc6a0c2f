"""An arm's control as `EndEffectorAction` calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..envs.mujoco_arm import Numbers
from ..envs.mujoco_guarded import GuardedArm
from ..kernels import direct, resolve
from .gymnasium.packing import layout_of, pack, unpack, unpack_here


class Programs(NamedTuple):
    """An arm's control, compiled; its memory is one array, which only these programs read.

    `source` and `source_of_aim` are what `control` and `aim` are compiled from.
    """

    begin: Callable[[Numbers, Numbers], Array]
    aim: Callable[..., Array]
    control: Callable[..., tuple[Array, Array]]
    report: Callable[[Array], dict[str, Any]]
    source: Callable[..., tuple[Array, Array]]
    source_of_aim: Callable[..., Array]

    @staticmethod
    def of(arm: GuardedArm, backend: str) -> Programs:
        """Machine code that Python calls, where kernels are native; elsewhere programs of JAX."""
        dtype = jnp.result_type(float)
        still = (jax.ShapeDtypeStruct((n,), dtype) for n in (arm.law.robot.nq, arm.law.robot.nv))
        layout = layout_of(jax.eval_shape(arm.begin, *still))

        def begin(q: Array, v: Array) -> Array:
            return pack(arm.begin(q, v), layout)

        def aim(memory: Array, q: Array, action: Array, *load: Array) -> Array:
            return pack(arm.aim(unpack(memory, layout), q, action, *load), layout)

        def control(memory: Array, q: Array, v: Array, *seen: Array) -> tuple[Array, Array]:
            torque, after = arm.control(unpack(memory, layout), q, v, *seen)
            return torque, pack(after, layout)

        def report(memory: Array) -> dict[str, Any]:
            found: dict[str, Any] = unpack_here(np.asarray(memory), layout).report
            return found

        def program(fn: Callable[..., Any]) -> Callable[..., Any]:
            if resolve(backend) == "native":
                return direct(fn)
            jitted = jax.jit(fn)

            def called(*args: Numbers) -> Any:
                # Copies: they may be MuJoCo's own memory, which moves on.
                return jitted(*(x if x.dtype == np.int32 else jnp.array(x, dtype) for x in args))

            return called

        compiled = program(begin), program(aim), program(control)
        return Programs(*compiled, report, control, aim)
