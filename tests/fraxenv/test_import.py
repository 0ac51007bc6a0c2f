"""What an import loads, and that Gymnasium knows the environments in whatever order."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support import with_slow

import fraxenv
import fraxenv.training
import fraxenv.wrappers
from fraxenv.cli import COMMANDS
from fraxenv.rendering import raycast

FROM = "from fraxenv import dynamics"
ORDERS = ("import fraxenv, gymnasium", "import gymnasium, fraxenv")

OURS = (
    "making.make",
    "making.registry",
    "making.setups",
    "recording",
    "envs",
    "controllers",
    "wrappers",
    "storage",
)


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded(code: str) -> set[str]:
    return set(run(f"import sys\n{code}\nprint(*sys.modules)").split())


def test_fraxenv_alone_loads_nothing() -> None:
    """And so it touches no device and changes no flag; nor does it say anything."""
    assert run("import fraxenv") == ""
    modules = loaded("import fraxenv")
    assert not {"jax", "numpy", "yaml", "gymnasium"} & modules
    assert {m for m in modules if m.startswith("fraxenv")} == {
        "fraxenv",
        "fraxenv.lazy",
        "fraxenv.making",
        "fraxenv.making.registration",
    }


@pytest.mark.parametrize("code", with_slow((FROM, "import fraxenv.dynamics"), FROM))
def test_dynamics_loads_nothing_above_it(code: str) -> None:
    modules = loaded(code)
    assert "jax" in modules
    assert not {"gymnasium", "gymnax", "yaml"} & modules
    assert not {f"fraxenv.{name}" for name in OURS} & modules


def test_processes_that_draw_load_no_jax() -> None:
    modules = loaded(f"import {raycast.__name__}")
    assert "numpy" in modules
    assert "jax" not in modules


def test_ids_are_known_without_jax() -> None:
    modules = loaded("import fraxenv; assert fraxenv.list_envs()")
    assert not {"jax", "gymnasium", "gymnax"} & modules


DRAWN = """
import fraxenv
fraxenv.make("PandaReach-v0")
"""


@pytest.mark.slow
def test_what_gymnax_draws_with_waits_for_its_use() -> None:
    """One after the other: each finds what it needs that none before has loaded."""
    uses = """
assert "gymnax" in sys.modules
drawn = {"pandas", "scipy.stats", "matplotlib.figure", "seaborn.utils"} & set(sys.modules)
assert not drawn, drawn
import matplotlib.pyplot as plt
assert "matplotlib.figure" not in sys.modules
plt.close()
assert "matplotlib.figure" in sys.modules
from matplotlib import pyplot
assert pyplot is plt
import seaborn as sns
assert "seaborn.utils" not in sys.modules
assert sns.__version__ and sns.color_palette()
assert "seaborn.utils" in sys.modules
from gymnax.visualize import Visualizer
"""
    run(f"import sys\n{DRAWN}{uses}")


def test_a_gymnasium_environment_is_made_without_the_compiler() -> None:
    made = "import gymnasium, fraxenv; env = gymnasium.make('fraxenv/PandaReach-v0')"
    modules = loaded(f"{made}; assert env.observation_space.shape == (29,)")
    assert "jax" in modules
    assert "llvmlite" not in modules


@pytest.mark.slow
def test_and_so_are_parts_that_are_used_first() -> None:
    run(f"{DRAWN}from matplotlib.figure import Figure\nFigure().subplots()")


def test_help_and_lists_load_no_jax() -> None:
    """The commands' help, and the names, come at once."""
    commands = [["list"], ["--help"], *([c, "--help"] for c in COMMANDS)]
    run(
        f"""
import contextlib, io, sys
from fraxenv.cli import main
for arguments in {commands!r}:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert main(arguments) == 0
    assert "Reach-v0" in said.getvalue() or "usage" in said.getvalue()
    heavy = {{"jax", "gymnasium", "gymnax", "matplotlib"}} & set(sys.modules)
    assert not heavy, (arguments, heavy)
"""
    )


@pytest.mark.parametrize(
    "imports",
    [
        "import fraxenv, gymnasium",
        "import gymnasium, fraxenv",
        "import fraxenv; from gymnasium.envs.registration import registry; import gymnasium",
        pytest.param(f"{FROM}; import gymnasium", marks=pytest.mark.slow),
        "import fraxenv, importlib; importlib.import_module('gymnasium'); import gymnasium",
        "import fraxenv, importlib.util as u; u.find_spec('gymnasium'); import gymnasium",
    ],
)
def test_gymnasium_knows_the_environments(imports: str) -> None:
    code = """
names = [name for name in gymnasium.registry if name.startswith("fraxenv/")]
assert gymnasium.spec("fraxenv/PandaReach-v0").max_episode_steps == 150
assert not [f for f in __import__("sys").meta_path if "fraxenv" in type(f).__module__]
print(len(names))
"""
    assert int(run(f"{imports}\n{code}")) == len(fraxenv.list_envs()) + 1


@pytest.mark.slow  # tests/fraxenv/wrappers/test_gymnasium.py makes one in a process of its own
@pytest.mark.parametrize("imports", ORDERS)
def test_gymnasium_makes_them(imports: str) -> None:
    run(
        f"{imports}\nenv = gymnasium.make('fraxenv/PandaReach-v0', control_hz=50, physics_hz=50)\n"
        "assert env.unwrapped.environment.control_hz == 50"
    )


def test_gymnasium_that_is_missing_is_reported_as_ever() -> None:
    run(
        """
import importlib.util, sys
sys.meta_path.insert(0, type("Without", (), {"find_spec": staticmethod(
    lambda name, *_: None if name != "gymnasium" else (_ for _ in ()).throw(
        ModuleNotFoundError("No module named 'gymnasium'", name="gymnasium")))}))
import fraxenv
try:
    import gymnasium
except ModuleNotFoundError as error:
    assert error.name == "gymnasium"
else:
    raise AssertionError
"""
    )


@pytest.mark.parametrize("module", [fraxenv, fraxenv.wrappers, fraxenv.training])
def test_lazy_names(module: object) -> None:
    names = list(module.__all__)  # type: ignore[attr-defined]
    assert set(names) <= set(dir(module))
    for name in names:
        value = getattr(module, name)
        assert getattr(module, name) is value
        home = getattr(value, "__spec__", None)  # of a module, which may go by a shorter name
        assert home or getattr(value, "__name__", name) == name
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        module.no_such_name  # type: ignore[attr-defined]  # noqa: B018
