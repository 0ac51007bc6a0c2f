"""Nothing that is loaded can run code, reach out, or blow up; see docs/reliability.md.

What is refused in URDF is in tests/dynamics/model/test_urdf.py, in the kernel cache in
tests/kernels/native/test_cache.py, in checkpoints in tests/fraxenv/storage/test_checkpoint.py.
"""

from __future__ import annotations

import ast
import pickle
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fraxenv
from fraxenv.errors import CheckpointError, ConfigError
from fraxenv.making.make import load_env_config
from fraxenv.storage.config import parse_yaml
from fraxenv.storage.files import load_arrays, save_arrays
from fraxenv.training import load_config

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("dynamics", "controllers", "envs", "fraxenv", "configs", "scripts")
    for path in sorted((ROOT / folder).rglob("*.py"))
]

FORBIDDEN_MODULES = {
    # run what they load
    *("pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"),
    # follow entities, or names into the network
    *("xml", "defusedxml", "requests", "httpx", "urllib.request", "http.client", "ftplib"),
}
FORBIDDEN_CALLS = {
    *("eval", "exec", "__import__", "compile"),
    *("yaml.unsafe_load", "yaml.full_load", "yaml.load_all", "yaml.Loader", "yaml.UnsafeLoader"),
    *("os.system", "os.popen", "tempfile.mktemp", "pd.read_pickle", "torch.load"),
    *("jax.export.deserialize",),
}
ALLOWED = {
    # A custom Loader that derives from SafeLoader.
    ("fraxenv/storage/config.py", "yaml.load"),
    # Hardened: no entities, no document types, no network.
    ("fraxenv/cross_check/scenes.py", "etree.XMLParser"),
    ("fraxenv/cross_check/scenes.py", "etree.fromstring"),
    ("dynamics/model/urdf.py", "etree.XMLParser"),
    ("dynamics/model/urdf.py", "etree.fromstring"),
    ("dynamics/rebuild/source.py", "etree.XMLParser"),
    ("dynamics/rebuild/source.py", "etree.fromstring"),
}
WATCHED = {
    *("yaml.load", "etree.parse", "etree.XML", "etree.fromstring", "etree.XMLParser"),
    *("etree.iterparse",),
}


def uses(path: Path) -> Iterator[tuple[int, str]]:
    """What a file imports and calls that it must not: line and reason."""
    where = path.relative_to(ROOT).as_posix()
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
            if isinstance(node, ast.ImportFrom) and node.level:
                continue  # siblings
            for name in names:
                parents = {str(name).split(".")[0], str(name)}
                if parents & FORBIDDEN_MODULES and name != "xml.sax.saxutils":  # which only writes
                    yield node.lineno, f"imports {name}"
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        keywords = {k.arg: ast.unparse(k.value) for k in node.keywords}
        if name in FORBIDDEN_CALLS:
            yield node.lineno, f"calls {name}"
        if name in WATCHED and (where, name) not in ALLOWED and not where.startswith("scripts/"):
            yield node.lineno, f"calls {name}"
        if name in ("np.load", "numpy.load", "jnp.load"):
            if keywords.get("allow_pickle") != "False":
                yield node.lineno, f"{name} without allow_pickle=False"
        elif keywords.get("allow_pickle") not in (None, "False"):
            yield node.lineno, f"{name} with allow_pickle"
        if keywords.get("shell") == "True":
            yield node.lineno, f"{name} by a shell"


def test_the_source_uses_nothing_that_runs_what_it_loads() -> None:
    assert len(SOURCES) > 100
    found = [f"{p.relative_to(ROOT)}:{line}: {why}" for p in SOURCES for line, why in uses(p)]
    assert not found, "\n".join(found)


def test_the_search_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    path = tmp_path / "bad.py"
    lines = [
        "import pickle",
        "from xml.etree import ElementTree",
        "np.load('a')",
        "np.load('a', allow_pickle=True)",
        "yaml.load(text, Loader=yaml.Loader)",
        "etree.parse('a')",
        "eval('1')",
        "subprocess.run('ls', shell=True)",
    ]
    path.write_text("\n".join(lines))
    assert {line for line, _ in uses(path)} == set(range(1, len(lines) + 1))


@pytest.fixture
def unpickled() -> Iterator[list[Any]]:
    """What pickles look for in modules while the test runs."""
    found: list[Any] = []
    listening = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if listening and event == "pickle.find_class":
            found.append(arguments)

    sys.addaudithook(hook)  # cannot be removed
    yield found
    listening = False


class Bomb:
    def __reduce__(self) -> Any:
        return print, ("exploded",)


READERS: dict[str, Callable[[Path], Any]] = {
    "arrays": load_arrays,
    "state": lambda path: fraxenv.load_state(path, fraxenv.make("PandaReach-v0")[0]),
    "recording": fraxenv.load_recording,
}


@pytest.mark.parametrize("reader", READERS)
def test_pickles_are_never_opened(
    reader: str, tmp_path: Path, unpickled: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file.npz"
    np.savez(path, bomb=np.array([Bomb()], dtype=object), __metadata__=np.array("{}"))
    archive = path.read_bytes()
    np.save(tmp_path / "alone.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    alone = (tmp_path / "alone.npy").read_bytes()
    for content in (pickle.dumps(Bomb()), archive, alone):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"file\.npz"):
            READERS[reader](path)
    assert unpickled == []
    assert capsys.readouterr().out == ""


def test_an_archive_is_not_larger_than_its_file(tmp_path: Path) -> None:
    """A compressed one could be, a thousandfold."""
    path = tmp_path / "bomb.npz"
    save_arrays(path, {"x": np.zeros(3)})
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in members.items():
            new.writestr(name, content)
    with pytest.raises(CheckpointError, match=r"bomb\.npz: .*it is compressed"):
        load_arrays(path)


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(["a0: &a0 [x]", *(f"a{i}: &a{i} [{8 * f'*a{i - 1}, '}]" for i in range(1, 30))]),
        "a: &a [*a]",
        "<<: &a {b: 1}\nc: *a",
    ],
)
def test_yaml_has_no_aliases(tmp_path: Path, text: str) -> None:
    """A few lines of them are as many values as one likes, or endless."""
    with pytest.raises(ConfigError, match=r"aliases .* are refused"):
        parse_yaml(text, "here")
    path = tmp_path / "c.yaml"
    path.write_text(text)
    for load in (load_config, load_env_config):
        with pytest.raises(ConfigError, match=r"c\.yaml: .*aliases"):
            load(path)


@pytest.mark.parametrize("tag", ["python/object/apply:print [1]", "python/name:os.system", "x y"])
def test_yaml_has_plain_types_only(tag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="here: not valid YAML"):
        parse_yaml(f"a: !!{tag}", "here")
    assert capsys.readouterr().out == ""
