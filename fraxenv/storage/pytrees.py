"""Pytrees on disk, their leaves by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import CheckpointError
from .files import load_arrays, save_arrays

T = TypeVar("T")


def save_pytree(path: str | Path, tree: Any, metadata: Mapping[str, Any] | None = None) -> None:
    """Save the leaves of a pytree, by name, with JSON metadata; atomic.

    Args:
        path: the file, an uncompressed npz archive.
        tree: a pytree of arrays and numbers.
        metadata: anything that JSON can hold.
    """
    save_arrays(path, {name: np.asarray(leaf) for name, leaf in named_leaves(tree)}, metadata)


def load_pytree(path: str | Path, template: T) -> tuple[T, dict[str, Any]]:
    """Load what `save_pytree` saved, into the structure of a template.

    Args:
        path: the file.
        template: a pytree with the structure, shapes and dtypes to expect.

    Returns:
        The pytree, its leaves JAX arrays, and the metadata.

    Raises:
        CheckpointError: the file is missing or damaged, or does not fit the template.
    """
    stored, metadata = load_arrays(path)
    expected = named_leaves(template)
    missing = [name for name, _ in expected if name not in stored]
    extra = sorted(set(stored) - {name for name, _ in expected})
    if missing or extra:
        raise CheckpointError(
            f"{path}: the checkpoint belongs to another configuration: it lacks {missing[:3]} and "
            f"has {extra[:3]} in addition. Load it with the configuration it was saved with."
        )
    leaves = []
    for name, leaf in expected:
        want, have = np.asarray(leaf), stored[name]
        if (have.shape, have.dtype) != (want.shape, want.dtype):
            raise CheckpointError(
                f"{path}: {name} is {have.dtype}{list(have.shape)}, expected "
                f"{want.dtype}{list(want.shape)}. Load it with the configuration it was saved with."
            )
        leaves.append(jnp.asarray(have))
    return jax.tree.unflatten(jax.tree.structure(template), leaves), metadata


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """The leaves of a pytree with their paths in it, such as `.task.goal_low`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]
