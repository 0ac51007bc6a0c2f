"""Workloads in contact: scenes, motions, and what fraxenv and its peers do with them.

All contenders start at the same states, of motions that MuJoCo computed, and take `STEPS` physics
steps from each, under the same forces and controls. So nobody gets the easier contacts, and the
configurations they arrive at can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .contenders import Case, Prepare
from .workloads import COMPARED, Workload

Array = NDArray[np.float64]

SCENES = Path(__file__).parent / "scenes"

STEPS = 10
"""Physics steps in one call, for which forces and controls stay what they are: 20 ms."""

_MOTIONS, _MOMENTS = 64, 16
"""Motions, and states of each; larger batches repeat them."""


class States(NamedTuple):
    """Where n environments are, each (n, ...), and what acts on them.

    Attributes:
        q: (n, nq), rad and m.
        v: (n, nv), rad/s and m/s.
        warm_start: (n, nv), rad/s^2 and m/s^2, of the step before.
        force: (n, nv), N m and N.
        ctrl: (n, nu).
        contacts: (n,), how many there are.
    """

    q: Array
    v: Array
    warm_start: Array
    force: Array
    ctrl: Array
    contacts: Array


# --- motions --------------------------------------------------------------------------------------

Drive = Callable[[Any, Any, int, np.random.Generator], None]
"""Sets controls and forces in MuJoCo's data, of a model, at the k-th multiple of `STEPS`."""


def _rest(model: Any, data: Any, k: int, rng: np.random.Generator) -> None:
    if k == 0:
        data.qpos[0::7] += rng.uniform(-0.1, 0.1)


def _tumble(model: Any, data: Any, k: int, rng: np.random.Generator) -> None:
    data.qfrc_applied[:] = np.array([8, 8, 4, 0.3, 0.3, 0.3]) * rng.normal(size=6)


def _lift(model: Any, data: Any, k: int, rng: np.random.Generator) -> None:
    """Grasp for 0.2 s, lift in one, hold."""
    share = np.clip((0.02 * k - 0.2) / 1.0, 0, 1)
    data.ctrl[:] = (1 - share) * model.key("grasp").ctrl + share * model.key("lift").ctrl
    data.ctrl[:7] += 0.002 * rng.normal(size=7)


def _grope(model: Any, data: Any, k: int, rng: np.random.Generator) -> None:
    """Random actions about the grasp."""
    data.ctrl[:] = model.key("grasp").ctrl
    data.ctrl[:7] += 0.05 * rng.normal(size=7)
    data.ctrl[7:] += 5 + 3 * rng.normal(size=2)


def _drag(model: Any, data: Any, k: int, rng: np.random.Generator) -> None:
    """Pads that are pressed onto the floor, the cube between them, swept about the arm's foot."""
    data.ctrl[:] = model.key("drag").ctrl
    data.ctrl[0] = 0.3 * np.sin(0.02 * k * 4 + rng.uniform(-0.1, 0.1))


def _stand(model: Any, data: Any, k: int, rng: np.random.Generator) -> None:
    data.ctrl[:] = model.key("stand").ctrl


def _kick(model: Any, data: Any, k: int, rng: np.random.Generator) -> None:
    """Random actions, and every 0.4 s a push of 100 N for 0.04 s."""
    data.ctrl[:] = model.key("stand").ctrl + 0.08 * rng.normal(size=model.nu)
    if k % 20 == 0:
        data.qfrc_applied[:2] = 100 * rng.normal(size=2)
    elif k % 20 == 2:
        data.qfrc_applied[:] = 0


class Motion(NamedTuple):
    """A scene's motion: how it is driven, and for how many multiples of `STEPS`."""

    scene: str
    drive: Drive
    length: int = 70


MOTIONS = {
    "contact-cube-rest": Motion("cube", _rest),
    "contact-cube-pushed": Motion("cube", _tumble),
    "contact-grasp-lift": Motion("grasp", _lift),
    "contact-grasp-random": Motion("grasp", _grope),
    "contact-drag": Motion("grasp", _drag),
    "contact-quadruped-stand": Motion("quadruped", _stand),
    "contact-quadruped-kicked": Motion("quadruped", _kick, 40),
    "contact-stack": Motion("stack", _rest),
}
"""By the name of the workload. A kicked quadruped has fallen after a second or so."""


@cache
def model(name: str) -> Any:
    """MuJoCo's model of a workload."""
    import mujoco

    return mujoco.MjModel.from_xml_path(str(SCENES / f"{MOTIONS[name].scene}.xml"))


def states(workload: Workload, batch: int) -> States:
    """The states of a batch: row by row the same for all."""
    return States(*(np.resize(x, (batch, *x.shape[1:])) for x in _bank(workload.name)))


@cache
def _bank(name: str) -> States:
    rng = np.random.default_rng(7)
    rows = list(_moments(name, rng))
    shuffled = np.random.default_rng(8).permutation(len(rows))  # neighbours differ
    stacked = [np.array(x, float)[shuffled] for x in zip(*rows, strict=True)]
    return States(*stacked)


def _moments(name: str, rng: np.random.Generator) -> Iterator[States]:
    import mujoco

    m, (_, drive, length) = model(name), MOTIONS[name]
    data = mujoco.MjData(m)
    for _ in range(_MOTIONS):
        mujoco.mj_resetDataKeyframe(m, data, 0)
        wanted = set(rng.choice(length, _MOMENTS, replace=False).tolist())
        for k in range(length):
            drive(m, data, k, rng)
            if k in wanted:
                mujoco.mj_fwdPosition(m, data)
                now = data.qpos, data.qvel, data.qacc_warmstart, data.qfrc_applied, data.ctrl
                yield States(*(x.copy() for x in now), np.array(data.ncon))
            for _ in range(STEPS):
                mujoco.mj_step(m, data)


# --- contenders -----------------------------------------------------------------------------------


def ours(backend: str, workload: Workload, batch: int) -> Case:
    """Our step, fused."""
    import jax
    import jax.numpy as jnp

    from fraxenv import dynamics, kernels
    from fraxenv.dynamics.scene.step import scene_step

    scene = dynamics.load_mjcf(model(workload.name))

    def one(q: Any, v: Any, warm_start: Any, force: Any, ctrl: Any) -> Any:
        q, v, s = scene_step(scene, q, v, force, None, warm_start, None, ctrl)
        return q, v, s.acceleration, s.rounds, s.residual, s.converged

    many = kernels.fuse(one, backend)

    @jax.jit
    def program(q: Any, v: Any, warm_start: Any, force: Any, ctrl: Any) -> Any:
        def step(state: Any, _: None) -> Any:
            *state, rounds, residual, converged = many(*state, force, ctrl)
            solved = jnp.sum(rounds), jnp.max(rounds), jnp.max(residual), jnp.sum(~converged)
            return tuple(state), solved

        return jax.lax.scan(step, (q, v, warm_start), length=STEPS)

    given = states(workload, batch)
    arguments = [jnp.asarray(x, jnp.result_type(float)) for x in given[:5]]
    latest: list[Any] = []

    def call() -> None:
        latest[:] = jax.block_until_ready(program(*arguments))

    def work() -> dict[str, float]:
        rounds, most, residual, unsolved = latest[1]
        return {
            "contacts": float(given.contacts.mean()),
            "rounds": float(np.sum(rounds)) / (batch * STEPS),
            "most_rounds": float(np.max(most)),
            "residual": float(np.max(residual)),
            "unsolved": float(np.sum(unsolved)) / (batch * STEPS),
        }

    return Case(call, lambda: np.asarray(latest[0][0]), batch * STEPS, work=work)


def mujoco(parallel: bool, exact: bool, workload: Workload, batch: int, threads: int) -> Case:
    """MuJoCo's `mj_step` in a loop, or its `rollout` by threads; with `exact`, to convergence."""
    import mujoco as package
    from mujoco import rollout

    m, given = model(workload.name), states(workload, batch)
    if exact:
        m.opt.tolerance, m.opt.iterations = 0, 200
        m.opt.ls_tolerance, m.opt.ls_iterations = 1e-8, 200
    data, out = package.MjData(m), np.zeros((batch, m.nq))

    def steps(i: int) -> Iterator[None]:
        """The steps of one environment."""
        data.qpos[:], data.qvel[:], data.qacc_warmstart[:] = (x[i] for x in given[:3])
        data.qfrc_applied[:], data.ctrl[:] = given.force[i], given.ctrl[i]
        for _ in range(STEPS):
            package.mj_step(m, data)
            yield

    def work() -> dict[str, float]:
        return {"contacts": float(given.contacts.mean()), **_solved(m, data, steps, batch)}

    if not parallel:

        def loop() -> None:
            for i in range(batch):
                data.qpos[:], data.qvel[:], data.qacc_warmstart[:] = (x[i] for x in given[:3])
                data.qfrc_applied[:], data.ctrl[:] = given.force[i], given.ctrl[i]
                package.mj_step(m, data, STEPS)
                out[i] = data.qpos

        note = f"called from Python, {STEPS} steps at a time"
        return Case(loop, lambda: out, batch * STEPS, compiles=False, note=note, work=work)

    kinds = package.mjtState
    size = package.mj_stateSize(m, kinds.mjSTATE_FULLPHYSICS)
    start = np.zeros((batch, size))
    start[:, 1 : 1 + m.nq + m.nv] = np.concatenate(given[:2], axis=1)  # after the time
    control = np.concatenate([given.ctrl, given.force], axis=1)[:, None].repeat(STEPS, axis=1)
    spec = int(kinds.mjSTATE_CTRL | kinds.mjSTATE_QFRC_APPLIED)
    ends, datas = np.zeros((batch, STEPS, size)), [package.MjData(m) for _ in range(threads)]
    pool = rollout.Rollout(nthread=threads)

    def call() -> None:
        pool.rollout(
            m, datas, start, control, control_spec=spec, nstep=STEPS, state=ends,
            initial_warmstart=given.warm_start,
        )  # fmt: skip

    note = f"{threads} threads"
    return Case(
        call, lambda: ends[:, -1, 1 : 1 + m.nq], batch * STEPS, compiles=False, note=note, work=work
    )


def _solved(
    m: Any, data: Any, steps: Callable[[int], Iterator[None]], batch: int
) -> dict[str, float]:
    """Rounds, and the residual as fraxenv has it, over the first environments."""
    import mujoco as package

    from fraxenv.cross_check.scenes import mass_matrix

    rounds, residuals, product = [], [], np.zeros(m.nv)
    for i in range(min(batch, COMPARED)):
        for _ in steps(i):
            islands = max(1, data.nisland)
            rounds.append(int(data.solver_niter[:islands].max()))
            # `data` has the step's forces, but its mass matrix is that of the step, too.
            package.mj_mulM(m, data, product, data.qacc)
            gradient = product - data.qfrc_smooth - data.qfrc_constraint
            residuals.append(float(np.linalg.norm(gradient) / np.trace(mass_matrix(m, data))))
    return {
        "rounds": float(np.mean(rounds)),
        "most_rounds": float(max(rounds)),
        "residual": max(residuals),
    }


def mjx(workload: Workload, batch: int) -> Case:
    """MuJoCo's JAX version. With XLA's fusion: without, steps in contact are slower."""
    import jax
    import jax.numpy as jnp
    from mujoco import mjx as package

    m, given = model(workload.name), states(workload, batch)
    theirs = package.put_model(m)
    blank = package.make_data(theirs)

    def many(q: Any, v: Any, warm_start: Any, force: Any, ctrl: Any) -> Any:
        state = blank.replace(
            qpos=q, qvel=v, qacc_warmstart=warm_start, qfrc_applied=force, ctrl=ctrl
        )
        step = partial(package.step, theirs)
        return jax.lax.scan(lambda s, _: (step(s), None), state, length=STEPS)[0].qpos

    program = jax.jit(jax.vmap(many))
    arguments = [jnp.asarray(x, jnp.result_type(float)) for x in given[:5]]
    latest: list[Any] = [None]

    def call() -> None:
        latest[0] = jax.block_until_ready(program(*arguments))

    def work() -> dict[str, float]:
        return {"contacts": float(given.contacts.mean())}

    note = "where boxes touch, four contacts at most; it does not say how many rounds it takes"
    return Case(call, lambda: np.asarray(latest[0]), batch * STEPS, note=note, work=work)


def warp(workload: Workload, batch: int) -> Case:
    """MuJoCo Warp: a captured graph of steps."""
    import mujoco_warp as package
    import warp as wp

    m, given = model(workload.name), states(workload, batch)
    theirs = package.put_model(m)
    # Room for every contact there is, and what else a motion may bring.
    room = int(given.contacts.max()) + 16
    rows = 4 * room + 4 * m.nv
    data = package.make_data(m, nworld=batch, nconmax=room, njmax=rows)
    fields = ("qpos", "qvel", "qacc_warmstart", "qfrc_applied", "ctrl")
    begin = [wp.array(x.astype(np.float32)) for x in given[:5]]

    def set_and_step() -> None:
        for name, x in zip(fields, begin, strict=True):
            wp.copy(getattr(data, name), x)
        for _ in range(STEPS):
            package.step(theirs, data)

    set_and_step()  # compiles
    with wp.ScopedCapture() as capture:
        set_and_step()

    def call() -> None:
        wp.capture_launch(capture.graph)
        wp.synchronize()

    def work() -> dict[str, float]:
        rounds = data.solver_niter.numpy()
        return {
            "contacts": float(given.contacts.mean()),
            "rounds": float(rounds.mean()),
            "most_rounds": float(rounds.max()),
        }

    note = "a graph of its kernels, with all copies; rounds of the last step"
    return Case(call, lambda: data.qpos.numpy(), batch * STEPS, note=note, work=work)


def peer(kind: str) -> Prepare:
    """One of the peers that do nothing but steps in contact."""

    def prepare(workload: Workload, batch: int, threads: int) -> Case:
        if kind == "warp":
            return warp(workload, batch)
        return mujoco(False, True, workload, batch, threads)

    return prepare
