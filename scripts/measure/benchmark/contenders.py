"""Who takes part, and what each needs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

from .workloads import Workload


class UnavailableError(Exception):
    """A contender cannot take part here; the message says why."""


@dataclass
class Case:
    """Something that a worker can measure.

    Attributes:
        call: compute once, and wait for the result.
        result: (batch, numbers), of the last call, in fraxenv's conventions; None if there is
            nothing to compare.
        evaluations: per call.
        compiles: whether something is compiled, before or in the first call.
        compile_seconds: what was compiled before the first call.
        operations: floating-point operations per evaluation, if somebody counts them.
        note: what the reader should know.
        work: of contacts: how many, rounds of the solver, residual; see `Measurement`.
    """

    call: Callable[[], Any]
    result: Callable[[], NDArray[Any]] | None
    evaluations: float
    compiles: bool = True
    compile_seconds: float = 0.0
    operations: Callable[[], float | None] = lambda: None
    note: str = ""
    work: Callable[[], dict[str, float]] | None = None


Prepare = Callable[[Workload, int, int], Case]
"""A case of a workload, a batch size and a number of threads."""

FORWARD = ("forward_dynamics", "gradient_step")
DYNAMICS = ("forward_dynamics", "rnea", "crba", "osc", "control_step")
ENVIRONMENTS = ("environment", "gymnasium")
CONTACT = ("contact",)
GRADIENTS = ("gradient_step", "gradient_rollout")


@dataclass(frozen=True)
class Contender:
    """A program that computes workloads, in a process of its own.

    Attributes:
        name: for the command line.
        title: for people.
        maker: `module:function` of this package, called with `options` for a `Prepare`.
        options: see `maker`.
        offers: quantities that it can compute.
        dtype: what it computes in.
        environment: variables set before anything is imported.
        device: where it runs; "any" if JAX may choose.
        one_each: whether it computes one environment per thread and no batches.
        quick: whether it is part of a quick run.
    """

    name: str
    title: str
    maker: str
    options: tuple[Any, ...] = ()
    offers: tuple[str, ...] = DYNAMICS
    dtype: str = "float32"
    environment: dict[str, str] = field(default_factory=dict)
    device: Literal["any", "cpu", "gpu"] = "cpu"
    one_each: bool = False
    quick: bool = False

    def prepare(self) -> Prepare:
        """Import what it needs."""
        module, function = self.maker.split(":")
        make = getattr(importlib.import_module(f"benchmark.{module}"), function)
        return make(*self.options)  # type: ignore[no-any-return]


_X64 = {"JAX_ENABLE_X64": "1"}
# What frax 0.1.0 advises when it is imported, other than an older JAX.
_FRAX_FLAGS = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false "
    "--xla_cpu_scheduler_type=CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
    "OPENBLAS_NUM_THREADS": "1",
}
# Idle threads of GCC's OpenMP spin for milliseconds before they sleep: where anything else runs on
# the machine, they hold up the thread that they wait for.
_OPENMP = {"GOMP_SPINCOUNT": "1000"}
# With as many threads as two cores have, XLA (JAX 0.10.2) never ends MJX's step of 4096
# environments in contact: all of them wait. With more it does, on the same cores, to which the
# process is held.
_MANY_TASKS = {"NPROC": "8"}

_ALL = [
    Contender(
        "native", "fraxenv, native", "ours:executor", ("native",),
        (*DYNAMICS, *ENVIRONMENTS, *CONTACT, *GRADIENTS, "pick", "memory"), device="any",
        quick=True,
    ),
    Contender(
        "pallas", "fraxenv, pallas", "ours:executor", ("pallas",),
        (*DYNAMICS, "environment", *CONTACT, "pick", "memory"), device="gpu",
    ),
    Contender(
        "xla", "fraxenv, xla", "ours:executor", ("xla",), (*DYNAMICS, *ENVIRONMENTS, *CONTACT),
        device="any", quick=True,
    ),
    Contender(
        "vmap", "fraxenv, vmap", "ours:executor", ("vmap",), (*DYNAMICS, *ENVIRONMENTS, *GRADIENTS),
        device="any", quick=True,
    ),
    Contender("c", "C (the limit)", "ours:c", environment=_OPENMP, quick=True),
    Contender("frax", "frax", "jax_peers:frax", device="any", quick=True),
    Contender("frax-flags", "frax, its flags", "jax_peers:frax", environment=_FRAX_FLAGS),
    Contender(
        "frax-flags-x64", "frax, its flags and precision", "jax_peers:frax",
        dtype="float64", environment=_FRAX_FLAGS | _X64,
    ),
    Contender(
        "mjx", "MJX", "jax_peers:mjx", offers=(*FORWARD, *CONTACT), device="any",
        environment=_MANY_TASKS,
    ),
    Contender("brax", "Brax, generalized", "jax_peers:brax", offers=FORWARD, device="any"),
    Contender(
        "pinocchio", "Pinocchio", "native_peers:pinocchio", (False,),
        ("forward_dynamics", "rnea", "crba"), "float64",
    ),
    Contender(
        "pinocchio-parallel", "Pinocchio, InParallel", "native_peers:pinocchio", (True,),
        ("forward_dynamics", "rnea"), "float64", _OPENMP, quick=True,
    ),
    Contender(
        "mujoco", "MuJoCo C, in a loop", "native_peers:mujoco", (False,),
        ("forward_dynamics", *CONTACT),
        "float64",
    ),
    Contender(
        "mujoco-rollout", "MuJoCo C, rollout", "native_peers:mujoco", (True,),
        ("forward_dynamics", *CONTACT, "pick"),
        "float64", quick=True,
    ),
    Contender(
        "mujoco-warp", "MuJoCo Warp", "contact:peer", ("warp",), CONTACT, device="gpu"
    ),
    Contender(
        "panda-gym", "panda-gym", "env_peers:peer", ("panda_gym",), (*ENVIRONMENTS, "pick"),
        "float64", one_each=True,
    ),
    Contender(
        "fetch", "Gymnasium-Robotics Fetch", "env_peers:peer", ("fetch",), (*ENVIRONMENTS, "pick"),
        "float64", one_each=True,
    ),
    Contender(
        "robosuite", "robosuite Lift, OSC_POSE", "env_peers:peer", ("robosuite",),
        (*ENVIRONMENTS, "pick"),
        "float64", one_each=True,
    ),
    # `jax.vmap` of fraxenv's functions in float64, which the others' dynamics are compared with.
    Contender(
        "reference", "fraxenv, vmap in float64", "ours:executor", ("vmap",), (), "float64", _X64
    ),
    # MuJoCo solving to convergence, which steps in contact are compared with.
    Contender(
        "mujoco-exact", "MuJoCo C, solved exactly", "contact:peer", ("exact",), (), "float64"
    ),
]  # fmt: skip

CONTENDERS = {c.name: c for c in _ALL}
