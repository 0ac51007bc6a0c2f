"""Environment states on disk: saved at any step, and continued as if nothing had been."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..dynamics.model.fingerprint import fingerprint
from ..envs import Environment, EnvParams, EnvState
from ..errors import CheckpointError, ConfigError, FraxenvError
from .files import load_arrays, save_arrays
from .provenance import provenance, x64_enabled
from .pytrees import named_leaves

FORMAT = "fraxenv state"
VERSION = 3


def save_state(
    path: str | Path, env: Environment, state: EnvState, params: EnvParams, key: Array | None = None
) -> None:
    """Save all that an environment's future depends on, besides the actions; atomic.

    >>> save_state("run.npz", env, state, params, key)
    >>> state, params, key = load_state("run.npz", env)

    Args:
        path: the file, an npz archive without pickles.
        env: whose state it is.
        state: of one environment, or of a batch of any shape.
        params: its parameters, batched or not.
        key: the random key that the steps to come are drawn from, if it shall be kept too; typed or
            raw, of any shape.

    Raises:
        CheckpointError: the file cannot be written, or the state is another environment's.
        ConfigError: `env`, `state` or `params` is something else.
    """
    _check_arguments(env, state, params)
    packed = {"state": pack("state", state), "params": pack("params", params)}
    if key is not None:
        packed["key"] = pack("key", key)
    if packed["params"].about["structure"] == structure(env.default_params):
        _check_state(f"{env.name}: not saved", packed["state"], _template(env)[1])
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "environment": identity(env),
        "trees": {name: part.about for name, part in packed.items()},
        "provenance": {**provenance(), "backend": env.backend},
    }
    arrays = {name: array for part in packed.values() for name, array in part.arrays.items()}
    write(path, arrays, metadata)


def load_state(
    path: str | Path, env: Environment, params: EnvParams | None = None
) -> tuple[EnvState, EnvParams, Array | None]:
    """Load what `save_state` saved.

    With the same actions and keys the steps that follow are, bit for bit, those that would have
    followed had the state never left memory, as long as the versions of fraxenv and JAX, the
    `backend` of the environment, and the processor are the same.

    Args:
        path: the file.
        env: made as the one whose state was saved; `backend` and the numbers of its parameters may
            differ.
        params: parameters of the structure that the saved ones have, unbatched; needed only where
            that is not the structure of `env.default_params`, such as with a randomisation that was
            added afterwards. Their numbers do not matter.

    Returns:
        State, parameters, and the key, None if none was saved.

    Raises:
        CheckpointError: the file is missing, damaged, of another format, of another environment, of
            another precision, or does not fit the parameters' structure.
        ConfigError: `env` or `params` is something else.
    """
    arrays, metadata = read(path, FORMAT, VERSION)
    with checked_contents(path):
        check_identity(path, metadata, env)
        check_precision(path, metadata)
        state, params = unpack_environment(path, arrays, metadata, env, params)
        about = metadata["trees"].get("key")
        key = None if about is None else restore(path, "key", arrays, about, jax.random.key(0))
    return state, params, key


# --- pytrees as arrays with names ---


@dataclass(frozen=True)
class Packed:
    """A pytree as arrays.

    Attributes:
        arrays: the leaves, by names such as `state.q`.
        about: what JSON holds of it: the digest of its structure, the kinds of random keys, and
            which leaves are not JAX's.
    """

    arrays: dict[str, np.ndarray]
    about: dict[str, Any]


def pack(prefix: str, tree: Any) -> Packed:
    """Turn a pytree of arrays, numbers and random keys into arrays, their names with a prefix."""
    arrays, keys, host = {}, {}, []
    for path, leaf in named_leaves(tree):
        name = prefix + path
        if isinstance(leaf, Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            keys[name] = str(jax.random.key_impl(leaf))
            leaf = jax.random.key_data(leaf)
        elif not isinstance(leaf, Array):
            host.append(name)
        arrays[name] = np.asarray(leaf)
    return Packed(arrays, {"structure": structure(tree), "keys": keys, "host": host})


def restore(
    path: str | Path,
    prefix: str,
    arrays: Mapping[str, np.ndarray],
    about: Mapping[str, Any],
    template: Any,
) -> Any:
    """Turn arrays back into a pytree of the template's structure.

    Leaves that were NumPy's or Python's become NumPy's, the others JAX's: what is constant in a
    compiled program stays so, and in its own precision.

    Raises:
        CheckpointError: the structure is another one.
    """
    names = [prefix + name for name, _ in named_leaves(template)]
    stored = {name for name in arrays if _within(prefix, name)}
    missing, extra = sorted(set(names) - stored), sorted(stored - set(names))
    if missing or extra or structure(template) != about["structure"]:
        found = "the same numbers, but other options"
        if missing or extra:
            found = f"it lacks {missing[:3]} and has {extra[:3]} in addition"
        raise CheckpointError(
            f"{path}: the {prefix} of another configuration, or of another version of fraxenv: "
            f"{found}. Load it with the environment and the fraxenv that it was saved with, and "
            "with params=... if these were changed in more than numbers."
        )
    host = set(about["host"])

    def leaf(name: str) -> Any:
        if name in host:
            return arrays[name]
        array = jnp.asarray(arrays[name])
        implementation = about["keys"].get(name)
        return jax.random.wrap_key_data(array, impl=implementation) if implementation else array

    return jax.tree.unflatten(jax.tree.structure(template), [leaf(name) for name in names])


def unpack_environment(
    path: str | Path,
    arrays: Mapping[str, np.ndarray],
    metadata: Mapping[str, Any],
    env: Environment,
    params: EnvParams | None,
) -> tuple[EnvState, EnvParams]:
    """State and parameters from the arrays of a file.

    Raises:
        CheckpointError: they do not fit the environment.
        ConfigError: `params` is something else.
    """
    given = env.default_params if params is None else params
    _check_params(given)
    template = _template(env) if params is None else _traced_template(env, given)
    own = given
    scene = getattr(env.physics, "scene", None)
    for name, like in (("robot", env.robot), ("scene", scene), ("reset_pool", template)):
        stored = any(_within(f"params.{name}", leaf) for leaf in arrays)
        if not stored or getattr(own, name) is None:
            own = own.replace(**{name: like if stored else None})
    about = metadata["trees"]
    restored = restore(path, "params", arrays, about["params"], own)
    state = restore(path, "state", arrays, about["state"], template[1])
    _check_state(str(path), pack("state", state), template[1])
    return state, restored


def structure(tree: Any) -> str:
    """Digest of a pytree's structure: types, names and static options, without the leaves."""
    return fingerprint(_nodes(jax.tree.structure(tree)), functions="name").hex()


def _nodes(treedef: Any) -> Any:
    data = treedef.node_data()
    if data is None:
        return "*"
    kind, static = data
    return kind.__qualname__, static, [_nodes(child) for child in treedef.children()]


def _within(prefix: str, name: str) -> bool:
    """Whether the name of a leaf is the prefix, or a path below it."""
    return name.startswith(prefix) and name[len(prefix) : len(prefix) + 1] in ("", ".", "[")


# --- what a state has to look like ---


def _template(env: Environment) -> tuple[Any, Any]:
    return _cached_template(env, x64_enabled())


@functools.lru_cache(maxsize=16)
def _cached_template(env: Environment, x64: bool) -> tuple[Any, Any]:
    return _traced_template(env, env.default_params)


def _traced_template(env: Environment, params: EnvParams) -> tuple[Any, Any]:
    """Observation and state of one environment: shapes and dtypes."""
    own = params.without_pool
    shapes: tuple[Any, Any] = jax.eval_shape(lambda key: env.reset_env(key, own), jax.random.key(0))
    return shapes


def _check_state(where: str, packed: Packed, template: Any) -> None:
    """Check that a state, or a batch of them, is like the template.

    Raises:
        CheckpointError: it is not.
    """
    remedy = "Save and load a state with the environment whose reset or step returned it."
    if packed.about["structure"] != structure(template):
        raise CheckpointError(
            f"{where}: the state does not have the structure of this environment's. {remedy}"
        )
    batches = {}
    for path, want in named_leaves(template):
        name = f"state{path}"
        have = packed.arrays[name]
        if name in packed.about["keys"]:
            continue
        rank = have.ndim - len(want.shape)
        if rank < 0 or have.shape[rank:] != want.shape or have.dtype != want.dtype:
            raise CheckpointError(
                f"{where}: {name} is {have.dtype}{list(have.shape)}, expected {want.dtype} with "
                f"the shape of a batch and then {list(want.shape)}. {remedy}"
            )
        batches[have.shape[:rank]] = name
    if len(batches) > 1:
        found = ", ".join(f"{name} of {list(shape)}" for shape, name in batches.items())
        raise CheckpointError(
            f"{where}: the state's arrays are of different batches: {found}. {remedy}"
        )


def _check_arguments(env: Any, state: Any, params: Any) -> None:
    check_environment(env)
    if not isinstance(state, EnvState):
        raise ConfigError(
            f"state is a {type(state).__name__}, expected the EnvState of {env.name} that reset or "
            "step returned."
        )
    _check_params(params)


def _check_params(params: Any) -> None:
    if not isinstance(params, EnvParams):
        raise ConfigError(
            f"params is a {type(params).__name__}, expected EnvParams, such as fraxenv.make "
            "returned with the environment."
        )


def check_environment(env: Any) -> None:
    """Check that it is an environment.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(env, Environment):
        raise ConfigError(
            f"env is a {type(env).__name__}, expected the Environment that fraxenv.make returned, "
            "without wrappers."
        )


# --- which environment it was ---


def identity(env: Environment) -> dict[str, Any]:
    """Name, class, robot, scene, rates: a state's future depends on no more but its parameters."""
    scene = getattr(env.physics, "scene", None)
    return {
        "name": env.name,
        "kind": type(env).__qualname__,
        "robot": fingerprint(env.robot, functions="name").hex(),
        "scene": None if scene is None else fingerprint(scene, functions="name").hex(),
        "rates": [env.policy_hz, env.control_hz, env.physics_hz],
        "goal_reward": getattr(env, "goal_reward", None),
    }


def check_identity(path: str | Path, metadata: Mapping[str, Any], env: Environment) -> None:
    """Check that a file is of this environment.

    Raises:
        CheckpointError: it is of another; says in what they differ.
        ConfigError: `env` is something else.
    """
    check_environment(env)
    stored, own = metadata["environment"], identity(env)
    differ = [name for name in own if stored.get(name) != own[name]]
    if not differ:
        return
    what = {
        "name": f"it is of {stored.get('name')}",
        "robot": "its robot is another, or has other numbers",
        "scene": "its scene is another, or has other numbers",
        "rates": f"its rates are {stored.get('rates')} Hz (policy, control, physics), "
        f"here {own['rates']}",
    }
    phrases = [
        what.get(name, f"its {name} is {stored.get(name)}, here {own[name]}") for name in differ
    ]
    raise CheckpointError(
        f"{path}: saved from another environment than this {own['name']}: {'; '.join(phrases)}. "
        "Make the environment with the arguments it was made with then."
    )


def check_precision(path: str | Path, metadata: Mapping[str, Any]) -> None:
    """Check that JAX's precision is that of the file.

    Raises:
        CheckpointError: it is another.
    """
    stored, now = bool(metadata["provenance"]["x64"]), x64_enabled()
    if stored != now:
        raise CheckpointError(
            f"{path}: saved with jax_enable_x64={stored}, and it is {now} now. Set it with "
            f'jax.config.update("jax_enable_x64", {stored}) before anything else.'
        )


# --- files ---


@contextmanager
def checked_contents(path: str | Path) -> Iterator[None]:
    """A context in which contents that fraxenv never wrote raise an error that names the file.

    Raises:
        CheckpointError: in place of whatever such contents lead to.
    """
    try:
        yield
    except FraxenvError:
        raise
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path}: its contents are not what fraxenv writes ({type(error).__name__}: {error}). "
            "Use another copy of it."
        ) from error


def write(path: str | Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> None:
    """Write a file; atomic.

    Raises:
        CheckpointError: it cannot be written.
    """
    try:
        save_arrays(path, arrays, metadata)
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be written: {error.strerror or error}. Choose a folder with room in "
            "it, where you may write."
        ) from error


def read(
    path: str | Path, format: str, version: int
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read a file of a format.

    Raises:
        CheckpointError: it is missing, damaged, of another format, or of another version of it.
    """
    arrays, metadata = load_arrays(path)
    if metadata.get("format") != format:
        found = metadata.get("format", "checkpoint of another kind")
        raise CheckpointError(
            f"{path}: a {found}, expected a {format}. Use the function that reads this kind."
        )
    if metadata.get("version") != version:
        by = metadata.get("provenance", {}).get("versions", {}).get("fraxenv", "unknown")
        raise CheckpointError(
            f"{path}: version {metadata.get('version')} of the format, written by fraxenv {by}; "
            f"this one reads version {version}. Write it anew, or read it with that fraxenv."
        )
    return arrays, metadata
