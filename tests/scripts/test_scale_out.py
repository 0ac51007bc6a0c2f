"""`scripts/examples/scale_out.py`: several devices or processes give what one device gives."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fraxenv.kernels.native.cores import available_cores
from fraxenv.storage.files import load_arrays
from fraxenv.storage.pytrees import save_pytree

SCRIPT = Path(__file__).parents[2] / "scripts" / "examples" / "scale_out.py"
QUICK = "--xla_backend_optimization_level=0"  # to compile
FOUR_DEVICES = "--xla_force_host_platform_device_count=4"


def load_script() -> Any:
    if "scale_out" in sys.modules:
        return sys.modules["scale_out"]
    spec = importlib.util.spec_from_file_location("scale_out", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["scale_out"] = module
    spec.loader.exec_module(module)
    return module


def run_here(folder: Path, options: Any, what: tuple[str, ...]) -> None:
    """What one process of several does, or one with several devices: train or measure, and save."""
    import jax
    from jax.sharding import Mesh

    scale_out = load_script()
    scale_out.join(options)
    sizes = {jax.device_count()} | ({1} if jax.process_count() == 1 else set())
    for size in sizes:
        mesh = Mesh(np.array(jax.devices()[:size]), ("devices",))
        for name in what:
            weights, envs, _ = getattr(scale_out, name)(options, mesh)
            tree = scale_out.gathered(weights, envs)
            if jax.process_index() == 0:
                save_pytree(folder / f"{name}-{jax.process_count()}-{size}.npz", tree)
    if jax.process_count() == 1:
        with pytest.raises(SystemExit, match="--num-envs 6 is not a multiple of the 4 devices"):
            scale_out.main(replace(options, num_envs=6))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, np.ndarray]]:
    folder = tmp_path_factory.mktemp("scale_out")
    command = [sys.executable, __file__, "--folder", str(folder), "--what", "train"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", QUICK)
        load_script().run(2, command, None)
        patch.setenv("XLA_FLAGS", f"{QUICK} {FOUR_DEVICES}")
        done = subprocess.run([*command, "measure"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return {path.stem: load_arrays(path)[0] for path in folder.iterdir()}


@pytest.mark.slow
def test_environments_are_the_same_bit_for_bit(results: Any) -> None:
    assert_same_bits(results["measure-1-1"], results["measure-1-4"])


@pytest.mark.slow
def test_environments_of_processes_are_the_same_bit_for_bit(results: Any, tmp_path: Path) -> None:
    command = [sys.executable, __file__, "--folder", str(tmp_path), "--what", "measure"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", QUICK)
        load_script().run(2, command, None)
    assert_same_bits(results["measure-1-1"], load_arrays(tmp_path / "measure-2-2.npz")[0])


def assert_same_bits(one: dict[str, np.ndarray], several: dict[str, np.ndarray]) -> None:
    assert one.keys() == several.keys()
    for name, array in one.items():
        assert len(array) == 8, name
        assert array.tobytes() == several[name].tobytes(), name


@pytest.mark.slow
@pytest.mark.parametrize("where", ["1-4", "2-2"], ids=["four devices", "two processes"])
def test_the_policy_is_the_same_to_rounding(results: Any, where: str) -> None:
    one, several = results["train-1-1"], results[f"train-{where}"]
    assert one.keys() == several.keys()
    weights = [name for name in one if "weights" in name]
    assert len(weights) == 13
    for name in weights:
        np.testing.assert_allclose(several[name], one[name], atol=2e-3, err_msg=name)
    moved = max(np.abs(one[n]).max() for n in weights if "log_std" in n)
    assert moved > 1e-2


two_cores = pytest.mark.skipif(available_cores() < 2, reason="wants two cores")


@pytest.mark.slow
@two_cores
def test_measuring_as_users_do(tmp_path: Path) -> None:
    options = ["--measure", "--launch", "1", "2", "--num-envs", "64", "--updates", "2"]
    done = subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^1 processes: [\d,]+ environment steps/s, 1\.00 x", done.stdout, re.M)
    assert re.search(r"^2 processes: [\d,]+ environment steps/s, [\d.]+ x", done.stdout, re.M)


@pytest.mark.slow
def test_it_learns() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--updates", "60"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    successes = [float(x) for x in re.findall(r"success +([\d.]+) %", done.stdout)]
    assert successes[-1] > 90


@pytest.mark.slow
@two_cores
def test_one_that_fails_ends_all() -> None:
    options = ["--launch", "2", "--num-envs", "3"]
    done = subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True)
    assert done.returncode != 0
    assert "--num-envs 3 is not a multiple of the 2 devices" in done.stderr


if __name__ == "__main__":
    import tyro

    def child(
        folder: Path,
        what: tuple[str, ...],
        coordinator: str | None = None,
        processes: int = 1,
        process_id: int = 0,
    ) -> None:
        options = load_script().Options(
            num_envs=8,
            updates=2,
            coordinator=coordinator,
            processes=processes,
            process_id=process_id,
        )
        run_here(folder, options, what)

    tyro.cli(child)
