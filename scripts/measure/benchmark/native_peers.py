"""Peers written in C and C++, in float64: they have no other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import contact, manipulation
from .contenders import Case, Prepare, UnavailableError
from .workloads import Workload, inputs, robot

_CONVERTED = 1024
"""States converted to a peer's conventions; larger batches repeat them."""


def pinocchio(parallel: bool) -> Prepare:
    """Pinocchio's `aba`, `rnea` and `crba`: called one by one, or many at a time by threads."""
    import pinocchio as pin

    from fraxenv.cross_check.pinocchio import PinocchioOracle
    from fraxenv.dynamics.model.bundled import bundled_urdf

    def prepare(workload: Workload, batch: int, threads: int) -> Case:
        ours = robot(workload.robot)
        oracle = PinocchioOracle.from_urdf(ours, bundled_urdf(workload.robot))
        model = oracle.model
        few = inputs(workload, min(batch, _CONVERTED))
        states = zip(*few[:2], strict=True) if len(few) > 1 else ()
        maps = [oracle.transform(*s) for s in states]
        theirs = [np.stack([oracle.configuration(q) for q in few[0]])]
        if maps:
            theirs.append(np.stack([T @ v for (T, _), v in zip(maps, few[1], strict=True)]))
            solve = [np.linalg.solve(T.T, f) for (T, _), f in zip(maps, few[2], strict=True)]
            theirs.append(np.stack(solve))
        arrays = [np.ascontiguousarray(np.resize(x, (batch, x.shape[1]))) for x in theirs]
        out = np.zeros((batch, model.nv))

        if not parallel:
            data, name = model.createData(), workload.quantity
            one = {"forward_dynamics": pin.aba, "rnea": pin.rnea, "crba": pin.crba}[name]
            matrices = np.zeros((batch, model.nv, model.nv)) if name == "crba" else out

            def loop() -> None:
                for i, arguments in enumerate(zip(*arrays, strict=True)):
                    matrices[i] = one(model, data, *arguments)

            call: Callable[[], None] = loop
        else:
            pool = pin.ModelPool(model, threads)
            # Its columns are states: these are views of the rows, in the order it wants.
            columns, result = [x.T for x in arrays], out.T
            many = pin.abaInParallel if workload.quantity != "rnea" else pin.rneaInParallel

            def call() -> None:
                many(threads, pool, *columns, result)

        def rows() -> np.ndarray:
            if workload.quantity == "crba":
                upper = np.triu(matrices)
                return upper + np.swapaxes(np.triu(upper, 1), 1, 2)
            both = zip(out, maps, few[1], strict=False)
            if workload.quantity == "rnea":
                return np.stack([T.T @ tau for tau, (T, _), _ in both])
            return np.stack([np.linalg.solve(T, a - T_dot @ v) for a, (T, T_dot), v in both])

        note = "" if parallel else "called from Python, state by state"
        return Case(call, rows, batch, compiles=False, note=note)

    return prepare


def mujoco(parallel: bool) -> Prepare:
    """MuJoCo's `mj_forward`, state by state, or its `rollout` of one step, by threads.

    In contact `mj_step`, or a `rollout` of as many steps.
    """
    import mujoco as package
    from mujoco import rollout

    from fraxenv.cross_check.mujoco import MujocoOracle

    def prepare(workload: Workload, batch: int, threads: int) -> Case:
        if workload.quantity == "contact":
            return contact.mujoco(parallel, False, workload, batch, threads)
        if workload.quantity == "pick":
            return manipulation.mujoco(workload, batch, threads)
        oracle = MujocoOracle.from_robot(robot(workload.robot))
        model = oracle.model
        q, v, tau = inputs(workload, batch)
        theirs = [np.zeros((batch, n)) for n in (model.nq, model.nv, model.nv)]
        theirs[0][:, oracle.coordinates] = q
        theirs[1][:, oracle.dofs], theirs[2][:, oracle.dofs] = v, tau
        out = np.zeros((batch, model.nv))

        if not parallel:
            data = package.MjData(model)

            def call() -> None:
                for i, (q, v, tau) in enumerate(zip(*theirs, strict=True)):
                    data.qpos[:], data.qvel[:], data.qfrc_applied[:] = q, v, tau
                    package.mj_forward(model, data)
                    out[i] = data.qacc

            note = "called from Python, state by state"
            return Case(call, lambda: out[:, oracle.dofs], batch, compiles=False, note=note)

        size = package.mj_stateSize(model, package.mjtState.mjSTATE_FULLPHYSICS)
        start = np.concatenate([np.zeros((batch, 1)), *theirs[:2]], axis=1)  # time, qpos, qvel
        if start.shape[1] != size:
            raise UnavailableError(f"its state has {size} numbers, expected {start.shape[1]}")
        states = np.zeros((batch, 1, size))
        control = np.ascontiguousarray(theirs[2][:, None])
        datas = [package.MjData(model) for _ in range(threads)]
        pool = rollout.Rollout(nthread=threads)
        spec = int(package.mjtState.mjSTATE_QFRC_APPLIED)

        def call() -> None:
            pool.rollout(model, datas, start, control, control_spec=spec, nstep=1, state=states)

        def result() -> np.ndarray:
            faster = states[:, 0, 1 + model.nq : 1 + model.nq + model.nv]
            return ((faster - theirs[1]) / model.opt.timestep)[:, oracle.dofs]

        note = "one step: its integration is included"
        return Case(call, result, batch, compiles=False, note=note)

    return prepare
