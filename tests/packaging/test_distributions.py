"""What people install: the wheel and the source archive, and that they do with nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
SETTINGS = PYPROJECT["tool"]["setuptools"]
FOLDERS = SETTINGS["package-dir"]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", *FOLDERS.values())


def run(command: Sequence[str | Path], **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both, made of a copy of the checkout; the wheel of the source archive."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            unwanted = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, ignore=unwanted)
        else:
            shutil.copy(ROOT / name, folder / name)
    run([sys.executable, "-m", "build", "--no-isolation", folder])
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


def folder_of(package: str) -> Path:
    """Where a package lies in the checkout."""
    for name, folder in sorted(FOLDERS.items(), reverse=True):  # the longest names first
        if package == name or package.startswith(f"{name}."):
            return ROOT.joinpath(folder, *package.removeprefix(name).split("."))
    raise AssertionError(package)


def intended() -> set[str]:
    """What the wheel should hold, beside its metadata."""
    files = set()
    for package in SETTINGS["packages"]:
        folder, patterns = folder_of(package), SETTINGS["package-data"].get(package, [])
        for pattern in ["*.py", *patterns]:
            found = [path.relative_to(folder).as_posix() for path in folder.glob(pattern)]
            files |= {f"{package.replace('.', '/')}/{name}" for name in found}
    return files


def test_the_wheel_holds_what_is_meant_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    metadata = {name for name in names if ".dist-info/" in name}
    assert {name.split("/")[-1] for name in metadata} == {
        "METADATA", "RECORD", "WHEEL", "LICENSE", "entry_points.txt", "top_level.txt",
    }  # fmt: skip
    assert names - metadata == intended()
    assert {name.split("/")[0] for name in names - metadata} == {"fraxenv"}
    suffixes = {Path(name).suffix or name.split("/")[-1] for name in names - metadata}
    assert suffixes == {".js", ".py", ".typed", ".toml", ".urdf", ".yaml"}
    assert not [name for name in names if "test" in name.lower()]


def test_no_package_and_no_preset_is_forgotten() -> None:
    inner = {f"{package}.{sub.parent.name}" for package in SETTINGS["packages"]
             for sub in folder_of(package).glob("*/__init__.py")}  # fmt: skip
    assert inner <= set(SETTINGS["packages"])
    presets = {path.relative_to(ROOT / "configs") for path in ROOT.glob("configs/**/*.yaml")}
    assert presets
    assert {f"fraxenv/configs/{path.as_posix()}" for path in presets} <= intended()


def test_the_source_archive_is_whole(dist: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "dynamics/robots/panda.urdf"} <= names
    assert not [name for name in names if "__pycache__" in name]


def test_extras_are_documented(wheel: Path) -> None:
    file = zipfile.ZipFile(wheel)
    (name,) = [name for name in file.namelist() if name.endswith("METADATA")]
    metadata = message_from_bytes(file.read(name))
    assert metadata["Requires-Python"] == ">=3.11"
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    documented = re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)
    assert sorted(documented) == sorted(metadata.get_all("Provides-Extra", []))


def test_importing_initialises_no_device_and_loads_little() -> None:
    """In a process of its own; pictures, trainers, even environments come when asked for."""
    script = """
import sys
import fraxenv
assert not {"jax", "numpy", "gymnasium", "yaml"} & set(sys.modules)
from jax._src import xla_bridge

extras = {"brax", "llvmlite", "matplotlib", "mujoco", "rejax", "rich", "tyro", "viser"}
heavy = {"fraxenv.envs", "flax", "gymnasium", "gymnax", "lxml", "optax", "scipy", "yourdfpy"}
fraxenv.list_envs()
assert not (extras | heavy) & set(sys.modules), (extras | heavy) & set(sys.modules)
assert not xla_bridge._backends
"""
    run([sys.executable, "-W", "error::UserWarning", "-c", script])


def interpreter(version: str) -> Path | None:
    """A Python of this version that runs: on the path, or among pyenv's, whose shims need not."""
    folders = [Path(folder) for folder in os.get_exec_path()]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders += pyenv.glob(f"versions/{version}.*/bin")
    for python in [folder / f"python{version}" for folder in folders]:
        if python.exists() and not subprocess.run([python, "-V"], capture_output=True).returncode:
            return python
    return None


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_an_empty_environment_does_the_readmes_first_example(
    wheel: Path, version: str, tmp_path: Path
) -> None:
    """With the base dependencies alone, and without the checkout in sight."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    run([python, "-m", "venv", tmp_path / "venv"])
    own = tmp_path / "venv" / "bin" / "python"
    run([own, "-m", "pip", "install", "--quiet", wheel])
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    check = "assert obs.shape == (29,), obs\nprint(jax.__version__, fraxenv.__file__)"
    printed = run([own, "-c", blocks[0] + check], cwd=tmp_path)
    assert str(tmp_path / "venv") in printed
    run([own, "-m", "pip", "check"])
    for command in ([own.with_name("fraxenv"), "list"], [own, "-m", "fraxenv"]):
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith("MissingExtraError: The command line needs")
        assert done.stderr.endswith('Install it with: pip install "fraxenv[cli]"\n')
        assert done.stderr.count("\n") == 1
