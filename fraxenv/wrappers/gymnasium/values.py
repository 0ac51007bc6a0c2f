"""Gymnasium's spaces, and observations, infos and frames in NumPy."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from ...envs import Environment, EnvState
from ...rendering import Renderer, render_env

Numbers = NDArray[np.floating[Any]]
Flags = NDArray[np.bool_]
Info = dict[str, Any]
Observation = Numbers | dict[str, Numbers]


def fresh(obs: Any) -> Observation:
    """A NumPy copy of an observation."""
    if isinstance(obs, dict):
        return {name: np.array(x) for name, x in obs.items()}
    return np.array(obs)


def plain_batch(info: Info) -> Info:
    """Fresh NumPy arrays; scalars in the dtypes in which NumPy holds Python's values."""
    return {
        name: plain_batch(x) if isinstance(x, dict) else _column(np.asarray(x))
        for name, x in info.items()
    }


def _column(x: NDArray[Any]) -> NDArray[Any]:
    if x.ndim > 1 or x.dtype == np.bool_:
        return x.copy()
    return x.astype(np.float64 if np.issubdtype(x.dtype, np.floating) else np.int64)


def masked(info: Info, mask: Flags) -> Info:
    """Gymnasium's format: a mask for every key, and zeros where it is False."""
    out: Info = {}
    for name, x in info.items():
        if isinstance(x, dict):
            out[name] = masked(x, mask)
        else:
            out[name] = np.where(mask.reshape(-1, *(1,) * (x.ndim - 1)), x, np.zeros((), x.dtype))
        out[f"_{name}"] = mask.copy()
    return out


def rows_of(obs: Observation, mask: Flags) -> NDArray[np.object_]:
    """Copies of the observations of single environments where the mask is True, None elsewhere."""
    rows = np.full(len(mask), None, dtype=object)
    for i in np.flatnonzero(mask):
        rows[i] = (
            {k: x[i].copy() for k, x in obs.items()} if isinstance(obs, dict) else obs[i].copy()
        )
    return rows


def frame(
    env: Environment,
    state: EnvState,
    size: tuple[int, int],
    renderer: Renderer,
    *,
    index: int | None = None,
    safety: Any,
) -> NDArray[np.uint8]:
    """A picture (height, width, 3), uint8, of one environment, or of one of a batch."""
    return render_env(
        env, state, env.default_params, *size, index=index, safety=safety, renderer=renderer
    )


def gymnasium_space(space: Any) -> gymnasium.Space[Any]:
    """Gymnasium's counterpart of gymnax's box, or dict of boxes."""
    if hasattr(space, "spaces"):
        return gymnasium.spaces.Dict(
            {name: gymnasium_box(box) for name, box in space.spaces.items()}
        )
    return gymnasium_box(space)


def gymnasium_box(space: Any) -> gymnasium.spaces.Box:
    """Gymnasium's counterpart of gymnax's box."""
    low, high = (np.broadcast_to(bound, space.shape) for bound in (space.low, space.high))
    return gymnasium.spaces.Box(
        low.astype(space.dtype), high.astype(space.dtype), space.shape, space.dtype
    )
