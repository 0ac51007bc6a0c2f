"""Newton's method ends where rounding is all that is left, and not before."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_scenes import held
from jax import Array

from fraxenv import dynamics
from fraxenv.dynamics.contact.newton import ROUNDING, minimise
from fraxenv.dynamics.contact.rows import Rows, ScalarRows
from fraxenv.dynamics.scene.step import scene_step


@pytest.mark.slow
def test_what_rests_between_stiff_pads_converges_in_single_precision() -> None:
    """Accelerations vanish there, and forces that are many times as large as any of them cancel."""
    with jax.enable_x64(False):
        scene = dynamics.load_mjcf(held())
        ctrl, start = jnp.full(2, 20.0), jnp.asarray(scene.system.q_default, jnp.float32)

        @jax.jit
        def motion() -> tuple[Array, Array, Array]:
            def step(state: tuple[Array, ...], _: None) -> tuple:  # type: ignore[type-arg]
                q, v, warm = state
                q, v, s = scene_step(scene, q, v, jnp.zeros_like(v), None, warm, None, ctrl)
                return (q, v, s.acceleration), (s.converged, s.rounds, s.acceleration)

            v = jnp.zeros(scene.nv, jnp.float32)
            return jax.lax.scan(step, (start, v, v), length=200)[1]

        converged, rounds, a = motion()
    assert converged.all()
    assert np.abs(a[-50:]).max() < 1e-2
    assert np.mean(rounds[-50:]) < 2


def test_what_is_not_finite_has_not_converged() -> None:
    """Whether it touches something or not."""

    def rows(m: int) -> ScalarRows:
        return ScalarRows(
            np.ones((m, 2)), *np.ones((2, m)), np.full(m, -np.inf), np.full(m, np.inf)
        )

    solve = jax.jit(lambda force, rows: minimise(jnp.eye(2), force, Rows(rows, ()))[1].converged)
    for m in (0, 1):
        found = [bool(solve(np.array([x, 0.0]), rows(m))) for x in (1.0, np.nan, np.inf)]
        assert found == [True, False, False]


def test_converged_is_as_near_as_single_precision_allows() -> None:
    """In the norm of the whole cost, to the solution of the same numbers in double precision."""
    n, nv, m = 400, 8, 7
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(n, nv, nv))
    metric = factor @ factor.swapaxes(1, 2) / nv + 0.1 * np.eye(nv)
    rows = ScalarRows(
        jacobian=rng.normal(size=(n, m, nv)),
        reference=rng.normal(size=(n, m)),
        weight=10 ** rng.uniform(0, 3, (n, m)),
        lower=np.zeros((n, m)),
        upper=np.full((n, m), np.inf),
    )
    problem = metric, rng.normal(size=(n, nv)), Rows(rows, ())
    single = jax.tree.map(np.float32, problem)
    double = jax.tree.map(np.float64, single)
    with jax.enable_x64(False):
        found, report = jax.jit(jax.vmap(minimise))(*single)
    assert report.converged.mean() > 0.99
    with jax.enable_x64(True):

        @jax.jit
        @jax.vmap
        def solved(metric: Array, force: Array, rows: Rows) -> tuple[Array, ...]:
            a, report = minimise(metric, force, rows)
            x = rows.violation(a)
            return a, report.converged, rows.hessian(x), rows.cost(x)

        exact, exactly, stiff, pressed = solved(*double)
    assert exactly.all()
    metric, force, _ = double
    away = np.asarray(found, float) - np.asarray(exact)
    smooth = np.linalg.solve(metric, force[..., None])[..., 0]
    error = np.einsum("ni,nij,nj->n", away, metric + np.asarray(stiff), away)
    energy = np.einsum("ni,ni->n", smooth, force)
    energy += np.einsum("ni,nij,nj->n", exact, metric + np.asarray(stiff), exact)
    energy += 2 * np.asarray(pressed)
    limit = 8 * ROUNDING * float(np.finfo(np.float32).eps) ** 2 * energy
    assert (error <= limit)[np.asarray(report.converged) > 0].all()
