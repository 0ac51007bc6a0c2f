"""Where a run took place, and with which versions."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

PACKAGES = (
    "fraxenv", "jax", "jaxlib", "llvmlite", "numpy", "frax", "mujoco", "mujoco-mjx", "mujoco-warp",
    "brax", "pin", "pybullet", "panda-gym", "gymnasium", "gymnasium-robotics", "robosuite",
)  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """The machine and its software.

    Attributes:
        cpu: its name.
        cores: that this process may use.
        threads: that each contender may use.
        gpu: its name; empty if none is used.
        system: the operating system.
        load: processes that were running, or waiting to, when the run began (the last minute's
            average): with nothing else on the machine it is about 0.
        versions: of packages, the compiler and Python.
    """

    cpu: str
    cores: int
    threads: int
    gpu: str
    system: str
    load: float | None
    versions: dict[str, str]

    @staticmethod
    def here(threads: int, gpu: bool) -> Machine:
        """The one this runs on."""
        versions = {"python": platform.python_version()}
        for name in PACKAGES:
            try:
                versions[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
        gcc = _said("gcc", "-dumpfullversion")
        if gcc:
            versions["gcc"] = gcc
        commit = _said("git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD")
        if commit:
            versions["fraxenv"] = f"{versions.get('fraxenv', '')} ({commit})".strip()
        code = "import jax; print(jax.devices()[0].device_kind)"
        return Machine(
            cpu=_cpu(),
            cores=cores(),
            threads=threads,
            gpu=_said(sys.executable, "-c", code) if gpu else "",
            system=f"{platform.system()} {platform.machine()}",
            load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
            versions=versions,
        )

    def text(self) -> str:
        """For people."""
        cores = f"{self.cores} core{'s' * (self.cores != 1)}"
        threads = f"{self.threads} thread{'s' * (self.threads != 1)} each"
        parts = [self.cpu, cores, threads, self.gpu, self.system]
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        busy = ""
        if self.load is not None and self.load > 0.5:
            busy = (
                f" Other programs were using the machine (a load of {self.load:g} before the run): "
                "these figures are preliminary."
            )
        return f"{', '.join(p for p in parts if p)}. {versions}.{busy}"


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return _said("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    flags = next((line for line in lines if line.startswith("flags")), "")
    vectors = next((v for v in ("avx512f", "avx2", "avx") if v in flags.split()), "")
    vectors = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX"}.get(vectors, "")
    name = names[0] if names else platform.processor()
    return f"{name} ({vectors})" if vectors else name


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
