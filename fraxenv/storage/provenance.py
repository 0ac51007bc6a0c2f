"""Provenance: versions, processor, precision. Equal bits are promised only where all are equal."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax
import jax.numpy as jnp

_PACKAGES = ("fraxenv", "jax", "jaxlib", "llvmlite", "numpy")


def provenance() -> dict[str, Any]:
    """Versions, processor, accelerator and precision of this process, as JSON can hold them."""
    device = jax.local_devices()[0]
    return {
        "versions": {name: _version(name) for name in _PACKAGES},
        "x64": x64_enabled(),
        "matmul_precision": str(jax.config.values["jax_default_matmul_precision"]),
        "platform": device.platform,
        "device": device.device_kind,
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
    }


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The differences of two provenances, a phrase each, such as `jax 0.10.1 -> 0.10.2`."""
    before, after = ({**p, **p.get("versions", {}), "versions": None} for p in (then, now))
    names = sorted(set(before) | set(after))
    return [
        f"{name} {before.get(name)} -> {after.get(name)}"
        for name in names
        if before.get(name) != after.get(name)
    ]


def x64_enabled() -> bool:
    """Whether JAX's floats are of 64 bits by default."""
    return bool(jnp.result_type(float) == jnp.float64)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """Name and instruction sets of the processor, as far as they can be found out."""
    try:
        import llvmlite.binding as llvm
    except ImportError:
        return platform.processor()
    features = sorted(name for name, on in llvm.get_host_cpu_features().items() if on)
    return f"{llvm.get_host_cpu_name()} {' '.join(features)}"
