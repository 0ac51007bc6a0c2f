"""Coverage-guided fuzzing of everything that reads a file: only our own errors may come out.

Atheris (libFuzzer for Python) changes files of ours for a number of seconds per target, keeps what
reaches new code, and stops a target at the first input that raises anything but a `FraxenvError`,
gives something impossible, or takes more than ten seconds or 4 GiB. Such an input is kept as
`crash-...` in the output folder; `--replay FILE` repeats it. Exits 1 if there is one. The results
are in docs/reliability.md.

    pip install -e ".[fuzz]"
    python scripts/harden/fuzz.py --seconds 600
    python scripts/harden/fuzz.py --targets urdf --replay runs/fuzz/urdf/crash-da39a3
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import re
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

INSTRUMENTED = ("fraxenv", "yaml", "yourdfpy")
"""Packages in which it is seen which code an input reaches."""

TIMEOUT, MEMORY = 10, 4096  # s, MiB
METADATA = "__metadata__"

Read = Callable[[bytes], object]


# --- targets: how to read bytes, and bytes to begin with ---


def urdf(folder: Path) -> tuple[Read, list[bytes]]:
    """Robots: loaded with finite numbers, or refused."""
    from fraxenv import dynamics
    from fraxenv.dynamics.model.bundled import bundled_urdf
    from fraxenv.errors import RobotLoadError, RobotLoadWarning

    path = folder / "robot.urdf"
    warnings.simplefilter("ignore", RobotLoadWarning)

    def read(data: bytes) -> None:
        path.write_bytes(data)
        try:
            robot = dynamics.load_urdf(path)
        except RobotLoadError:
            return
        top = robot.topology
        for x in (robot.mass, robot.com, robot.inertia, top.position, top.rotation):
            assert np.isfinite(x).all()
        assert (robot.mass > 0).all()
        assert (np.linalg.eigvalsh(robot.inertia) > 0).all()

    return read, [SMALL_ROBOT, bundled_urdf("panda").read_bytes()]


def training(folder: Path) -> tuple[Read, list[bytes]]:
    """Configurations of training runs."""
    from fraxenv.errors import FraxenvError
    from fraxenv.training import load_config, save_config

    path = folder / "config.yaml"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        try:
            config = load_config(path)
        except FraxenvError:
            return
        save_config(path, config)
        # By its text: a NaN is not equal to itself.
        assert repr(load_config(path)) == repr(config)

    return read, _presets("training")


def environment(folder: Path) -> tuple[Read, list[bytes]]:
    """Configurations of environments, and the environments that these make."""
    import fraxenv
    from fraxenv.errors import FraxenvError
    from fraxenv.kernels import KernelError
    from fraxenv.making.make import load_env_config

    path = folder / "environment.yaml"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        try:
            config = load_env_config(path)
            if not config.keys() & {"reset_pool"}:  # which is compiled for seconds
                fraxenv.make(**config)
        except (FraxenvError, KernelError):
            return

    return read, _presets("environments")


def checkpoint(folder: Path) -> tuple[Read, list[bytes]]:
    """Checkpoints of training."""
    from fraxenv.errors import CheckpointError
    from fraxenv.storage.pytrees import load_pytree, save_pytree

    path = folder / "checkpoint.npz"
    template = {"weights": np.eye(3, dtype=np.float32), "step": np.int32(7), "done": np.array(True)}
    save_pytree(path, template, {"round": 3, "train_seconds": 1.5})
    saved = path.read_bytes()

    def read(data: bytes) -> None:
        path.write_bytes(archive(data, saved))
        try:
            tree, metadata = load_pytree(path, template)
        except CheckpointError:
            return
        assert isinstance(metadata, dict)
        assert tree["weights"].shape == (3, 3)

    return read, parts(saved)


def state(folder: Path) -> tuple[Read, list[bytes]]:
    """Environment states."""
    import jax

    import fraxenv
    from fraxenv.errors import CheckpointError

    path = folder / "state.npz"
    env, params = fraxenv.make("PandaReach-v0", action="torque")
    key = jax.random.key(0)
    fraxenv.save_state(path, env, env.reset(key, params)[1], params, key)
    saved = path.read_bytes()

    def read(data: bytes) -> None:
        path.write_bytes(archive(data, saved))
        try:
            state, _, _ = fraxenv.load_state(path, env)
        except CheckpointError:
            return
        assert state.q.shape[-1] == env.robot.nq

    return read, parts(saved)


def recording(folder: Path) -> tuple[Read, list[bytes]]:
    """Recordings: what is loaded can be taken apart."""
    import jax

    import fraxenv
    from fraxenv.errors import CheckpointError

    path = folder / "recording.npz"
    overrides = {"action": "torque", "control_hz": 50, "physics_hz": 50, "max_steps_in_episode": 2}
    env, params = fraxenv.make("PandaReach-v0", **overrides)
    fraxenv.record(env, params, None, jax.random.key(0), num_envs=2, steps=3).save(path)
    saved = path.read_bytes()

    def read(data: bytes) -> None:
        path.write_bytes(archive(data, saved))
        try:
            recording = fraxenv.load_recording(path)
        except CheckpointError:
            return
        for episode in recording.episodes():
            assert len(episode.observations) == len(episode) + 1

    return read, parts(saved)


TARGETS = {f.__name__: f for f in (urdf, training, environment, checkpoint, state, recording)}


def _presets(kind: str) -> list[bytes]:
    return [path.read_bytes() for path in (Path("configs") / kind).glob("*.yaml")]


SMALL_ROBOT = b"""<robot name="r"><link name="a"/><link name="b"><inertial><origin xyz="0 0 .1"/>
<mass value="1"/><inertia ixx=".1" iyy=".1" izz=".1" ixy="0" ixz="0" iyz="0"/></inertial>
<visual><geometry><box size="1 2 3"/></geometry><material name="red"/></visual>
<collision name="c"><origin rpy="1 2 3"/><geometry><cylinder radius=".1" length="1"/></geometry>
</collision><visual><geometry><mesh filename="package://a/b.stl" scale="1 1 1"/></geometry></visual>
</link><link name="d"/><joint name="j" type="revolute"><parent link="a"/><child link="b"/>
<axis xyz="0 1 0"/><limit lower="-1" upper="1" effort="5" velocity="2"/>
<dynamics damping=".1" friction=".2"/></joint><joint name="k" type="fixed"><parent link="b"/>
<child link="d"/></joint><material name="red"><color rgba="1 0 0 1"/></material></robot>"""


# --- archives: checksums would stop every change, so that parts are changed and packed again ---


def archive(data: bytes, saved: bytes) -> bytes:
    """The file that an input stands for, by its first byte.

    Even: the rest of the input as it is. Odd: the saved archive, the member that the second byte
    counts replaced by the rest.
    """
    if len(data) < 2 or data[0] % 2 == 0:
        return data[1:]
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved)) as old, zipfile.ZipFile(changed, "w") as new:
        names = sorted(old.namelist())
        chosen = names[data[1] % len(names)]
        for name in names:
            content = data[2:] if name == chosen else old.read(name)
            if name == chosen == f"{METADATA}.npy":
                buffer = io.BytesIO()
                np.save(buffer, np.array(data[2:].decode("utf-8", "replace")), allow_pickle=False)
                content = buffer.getvalue()
            new.writestr(name, content)
    return changed.getvalue()


def parts(saved: bytes) -> list[bytes]:
    """Inputs that stand for an archive as it was saved: the whole, and member by member."""
    with zipfile.ZipFile(io.BytesIO(saved)) as old:
        names = sorted(old.namelist())
        contents = [old.read(name) for name in names]
    k = names.index(f"{METADATA}.npy")
    text = str(np.load(io.BytesIO(contents[k]), allow_pickle=False))
    contents[k] = text.encode()
    return [b"\0" + saved, *(bytes([1, i]) + c for i, c in enumerate(contents))]


# --- changes that keep an input well-formed more often than random bytes do ---

VALUES = (
    *("", "0", "-1", "1e308", "1e-320", "nan", "inf", "9" * 400, "1 2 3", "1_0", "0x", "\u0661"),
    *("[]", "{}", "null", "true", "a", "fixed", "floating", "planar", "..", "!!bool x"),
)


def change_xml(data: bytes, rng: random.Random) -> bytes | None:
    """Change, forget, copy, move or remove something of a document; None if it is none."""
    from lxml import etree

    try:
        root = etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))
    except (etree.XMLSyntaxError, ValueError):
        return None
    elements = [e for e in root.iter(etree.Element) if e is not root]
    if not elements:
        return None
    one, other = rng.choice(elements), rng.choice(elements)
    names = sorted(one.attrib)
    what = rng.choice(("value", "value", "value", "forget", "remove", "copy", "move", "tag"))
    if what == "value" and names:
        theirs = [v for e in elements for v in e.attrib.values()]
        one.set(rng.choice(names), rng.choice((*VALUES, *theirs)))
    elif what == "forget" and names:
        del one.attrib[rng.choice(names)]
    elif what == "remove":
        one.getparent().remove(one)
    elif what == "copy":
        other.append(copy.deepcopy(one))
    elif what == "move" and one not in (other, *other.iterancestors()):
        other.append(one)
    elif what == "tag":
        one.tag = other.tag
    return bytes(etree.tostring(root))


def change_json(data: bytes, rng: random.Random) -> bytes | None:
    """Change, forget or move something of the metadata of an archive; None if it is not that."""
    try:
        root = json.loads(data[2:])
    except (ValueError, RecursionError):
        return None
    if not isinstance(root, dict):
        return None
    places: list[tuple[Any, Any]] = []

    def visit(node: Any) -> None:
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(child, dict | list):
                visit(child)

    with contextlib.suppress(RecursionError):
        visit(root)
    if not places:
        return None
    node, key = rng.choice(places)
    if rng.random() < 0.3:
        del node[key]
    else:
        own = [n[k] for n, k in places]
        node[key] = rng.choice((*own, None, -1, 1.5, "", "a", True, [], {}, [[]], 10**30))
    return data[:2] + json.dumps(root).encode()


def change_yaml(data: bytes, rng: random.Random) -> bytes | None:
    """Change a value of a file of `key: value` lines."""
    lines = data.decode("utf-8", "replace").splitlines()
    keyed = [i for i, line in enumerate(lines) if ":" in line]
    if not keyed:
        return None
    i = rng.choice(keyed)
    theirs = [lines[j].partition(":")[2].strip() for j in keyed]
    lines[i] = f"{lines[i].partition(':')[0]}: {rng.choice((*VALUES, *theirs))}"
    return "\n".join(lines).encode()


CHANGES = {"urdf": change_xml, "training": change_yaml, "environment": change_yaml}


# --- running ---


@dataclass(frozen=True)
class Options:
    """Options of the fuzzing."""

    targets: tuple[str, ...] = tuple(TARGETS)
    """What to fuzz, one after the other."""
    seconds: int = 60
    """Of each target."""
    output: Path = Path("runs/fuzz")
    """Folder for what was found; a corpus that is in it is gone on from."""
    seed: int = 1
    """Seed of the changes."""
    replay: Path | None = None
    """An input to run once, in place of fuzzing."""
    worker: bool = False
    """Fuzz in this process, which ends at the first target's end; what others are started with."""


def work(target: str, options: Options) -> None:
    """Fuzz one target in this process, which libFuzzer ends."""
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED):
        import yaml  # noqa: F401
        import yourdfpy  # noqa: F401

        import fraxenv.dynamics.model.urdf
        import fraxenv.recording
        import fraxenv.storage.state
        import fraxenv.training.config  # noqa: F401

    folder = Path(tempfile.mkdtemp(prefix="fraxenv-fuzz-"))
    read, seeds = TARGETS[target](folder)
    if options.replay is not None:
        read(options.replay.read_bytes())
        return
    found = options.output / target
    (found / "corpus").mkdir(parents=True, exist_ok=True)
    for k, data in enumerate(seeds):
        (found / "corpus" / f"seed-{k}").write_bytes(data)
        read(data)
    change = CHANGES.get(target, change_json)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.7 and (changed := change(data, rng)) is not None:
            return changed[:max_size]
        return bytes(atheris.Mutate(data, max_size))

    arguments = (
        f"-max_total_time={options.seconds}", f"-timeout={TIMEOUT}", f"-rss_limit_mb={MEMORY}",
        f"-artifact_prefix={found}/", f"-seed={options.seed}", "-max_len=20000",
        "-print_final_stats=1", str(found / "corpus"),
    )  # fmt: skip
    atheris.Setup([sys.argv[0], *arguments], read, custom_mutator=mutate)
    atheris.Fuzz()


def fuzz(target: str, options: Options, progress: Progress) -> dict[str, Any]:
    """Fuzz one target in a process of its own: what was counted."""
    found = options.output / target
    found.mkdir(parents=True, exist_ok=True)
    before = set(found.iterdir())
    command = [sys.executable, __file__, "--worker", "--targets", target]
    command += ["--seconds", str(options.seconds), "--seed", str(options.seed)]
    task = progress.add_task(target, total=options.seconds)
    began = time.monotonic()
    with (found / "log.txt").open("w") as log:
        process = subprocess.Popen(
            [*command, "--output", str(options.output)], stdout=log, stderr=subprocess.STDOUT
        )
        try:
            while process.poll() is None:
                progress.update(task, completed=min(time.monotonic() - began, options.seconds))
                time.sleep(0.5)
        finally:
            process.kill()
    progress.update(task, completed=options.seconds)
    text = (found / "log.txt").read_text("utf-8", "replace")
    inputs = re.findall(r"stat::number_of_executed_units:\s*(\d+)", text) or re.findall(
        r"^#(\d+)\s", text, re.MULTILINE
    )
    covered = re.findall(r"cov: (\d+)", text)
    kinds = ("crash-*", "timeout-*", "oom-*", "leak-*")
    crashes = sorted({p for kind in kinds for p in found.glob(kind)} - before)
    return {
        "target": target,
        "seconds": round(time.monotonic() - began, 1),
        "inputs": int(inputs[-1]) if inputs else 0,
        "edges": int(covered[-1]) if covered else 0,
        "kept": len(list((found / "corpus").glob("*"))),
        "crashes": [str(p) for p in crashes],
        "status": process.returncode,
    }


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = tyro.cli(Options, args=argv)
    if options.worker or options.replay is not None:
        for target in options.targets:
            work(target, options)
        return 0
    from fraxenv.errors import import_extra, unknown_name  # which the above has to instrument

    for target in options.targets:
        if target not in TARGETS:
            raise unknown_name("target", target, TARGETS)
    import_extra("atheris", "fuzz", "Fuzzing")
    with Progress(transient=True) as progress:
        results = [fuzz(target, options, progress) for target in options.targets]
    table = Table("target", "seconds", "inputs", "edges reached", "inputs kept", "crashes")
    for r in results:
        counts = (f"{r[k]:,}" for k in ("seconds", "inputs", "edges", "kept"))
        table.add_row(r["target"], *counts, str(len(r["crashes"])))
    Console().print(table)
    (options.output / "results.json").write_text(json.dumps(results, indent=2))
    failed = [r for r in results if r["crashes"] or r["status"]]
    for r in failed:
        log = options.output / r["target"] / "log.txt"
        print(f"{r['target']}: {', '.join(r['crashes']) or 'no input kept'}; see {log}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
