"""The viewer: a timeline of snapshots, who computes them, and the page that shows them."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import logging
import os
import queue
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
from numpy.typing import ArrayLike

from fraxenv.controllers.hands import Hands
from fraxenv.envs import Environment, EnvParams, EnvState
from fraxenv.envs.world import world_shapes

from ..errors import ConfigError, FraxenvError, check_choice, check_count
from ..recording import MemoryPolicy, Policy, Recording, replay
from ..rendering import env_camera, env_scene, scene
from ..rendering.scenery import path_shapes
from .demonstrations import Demonstrations, marked
from .hand_panel import HandPanel
from .page import serve, url_of
from .panel import Panel
from .session import Session
from .simulation import BY_KEYS, KEYS, SHARED, Simulation, with_obstacle
from .snapshots import Snapshot, barrier_meter
from .stage import Stage, quaternions, rotation_of
from .teleoperation import MARK, RECORD, RESET, UNDO, Command

_LOG: Final = logging.getLogger("fraxenv")

_KEPT_SECONDS: Final = 300  # of the past, to scrub through
_PICTURES_HZ: Final = 30.0  # at most; the simulation goes on at the policy's rate between them
_PANEL_HZ: Final = 5.0  # of plots, slider and status
_LATE: Final = 0.2  # s; who is further behind gives up to catch up
_FIRST: Final = 2.5  # s, for which a page that draws its first picture has the processor to itself


def open_viewer(
    env: Environment,
    params: EnvParams,
    *,
    policy: Policy | MemoryPolicy | None = None,
    recording: Recording | None = None,
    teleop: bool = False,
    demonstrations: str | Path = "demonstrations",
    recipe: Mapping[str, Any] | None = None,
    host: str = "127.0.0.1",
    port: int = 8080,
    server: Any = None,
    seed: int = 0,
) -> Viewer:
    """Open a viewer in which the environment goes on by itself; returns at once.

    Args:
        env: the environment.
        params: its parameters.
        policy: what acts at first, as of `fraxenv.record`; None to follow the target that is
            dragged. Both can be chosen on the page.
        recording: of this environment, to scrub through instead of stepping it.
        teleop: whether a person's keys and gamepad move the hand at first, and where there is a
            policy take over from it while they are held.
        demonstrations: folder of those that are recorded on the page.
        recipe: the arguments of `make` that `env` was made with, as of `fraxenv.record`.
        host: address to serve on; "0.0.0.0" for all of the machine's.
        port: to serve on; a later one that is free if it is not.
        server: what `page.serve` returned, in place of `host` and `port`; closed with the viewer.
        seed: decides the episodes.

    Raises:
        MissingExtraError: the extra `viewer` is not installed.
        ConfigError: a recording, and a policy or `teleop`; no such port; or keys cannot move the
            robot.
        CheckpointError: the recording is not of this environment, or a demonstration cannot be
            read.
    """
    if recording is None:
        simulation = Simulation(env, params, policy, seed)
        if teleop:
            if simulation.no_keys is not None:
                raise simulation.no_keys
            simulation.driver = KEYS if policy is None else SHARED
        folder = Demonstrations(env, demonstrations, recipe)
        server = server or serve(host, port)
        return Viewer(env, params, server, simulation=simulation, demonstrations=folder)
    if policy is not None or teleop:
        raise ConfigError(
            f"open_viewer: a {'policy' if policy is not None else 'person'} and a recording, "
            "expected one of them: what was recorded has been decided. Leave one out."
        )
    recorded = recorded_snapshots(recording, env, params)
    server = server or serve(host, port)
    return Viewer(env, params, server, recorded=recorded, recorded_envs=recording.num_envs)


def watch(
    env: Environment, params: EnvParams, *, host: str = "127.0.0.1", port: int = 8080
) -> Viewer:
    """Open a viewer that shows what its `show` is told, by a program that steps by itself.

    Where there is a desktop, its browser opens the page.

    Args:
        env: the environment.
        params: its parameters.
        host: address to serve on.
        port: to serve on; a later one that is free if it is not.

    Raises:
        MissingExtraError: the extra `viewer` is not installed.
        ConfigError: no such port.
    """
    viewer = Viewer(env, params, serve(host, port))
    if sys.platform in ("darwin", "win32") or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        webbrowser.open(viewer.url)  # elsewhere it might start a browser of the terminal
    return viewer


class Viewer:
    """A page that shows an environment. Make it by `open_viewer` or `watch`.

    Everything that the page can do has a method here. They return at once, and the viewer's own
    thread does the work, so that they can be called from everywhere.

    Args:
        env: the environment.
        params: its parameters.
        server: of `page.serve`; the viewer's from now on.
        simulation: steps it; None if nobody here does.
        demonstrations: of a simulation, where those are that a person records.
        recorded: snapshots of an environment of a recording, by its number; None without one.
        recorded_envs: how many environments there are.

    Attributes:
        url: of the page.
    """

    def __init__(
        self,
        env: Environment,
        params: EnvParams,
        server: Any,
        *,
        simulation: Simulation | None = None,
        demonstrations: Demonstrations | None = None,
        recorded: Callable[[int], list[Snapshot]] | None = None,
        recorded_envs: int = 1,
    ) -> None:
        self._env, self._params, self._simulation = env, params, simulation
        self._recorded = recorded
        self._timeline: list[Snapshot] = [] if recorded is None else recorded(0)
        self._at = 0
        self._playing, self._speed = True, 1.0
        self._posts: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._dirty = True
        self._pictured = self._panelled = self._rate_since = self._opened = 0.0
        self._rate_steps, self._rate = 0, 0.0
        self._due = time.perf_counter()

        self._server = server
        self.url = url_of(server)
        server.gui.set_panel_label(env.name)
        self._stage = Stage(self._server, env_camera(env), self._pick)
        self._handles: dict[str, Any] = {}
        self._held: set[str] = set()
        self._contacts = False
        self._obstacle: int | None = None
        self._session = Session(demonstrations)
        self._server.on_client_disconnect(
            lambda client: self._post(lambda: self._session.leave(client))
        )
        self._panel = Panel(self, self._server.gui, env, params, simulation, recorded_envs)
        self._hand_panel = self._add_hand_panel()
        self._thread = threading.Thread(target=self._loop, name="fraxenv-viewer", daemon=True)
        self._thread.start()
        # A thread that computes while the interpreter goes away brings the process down.
        atexit.register(self.close)

    # --- what the page can do ---

    def play(self) -> None:
        """Go on from the snapshot that is shown; a simulation forgets what came after it."""
        self._post(lambda: self._set_playing(True))

    def pause(self) -> None:
        """Stay at the snapshot that is shown."""
        self._post(lambda: self._set_playing(False))

    def set_speed(self, speed: float) -> None:
        """Times real time, positive."""
        if not 0 < speed < np.inf:
            raise ConfigError(f"speed={speed!r}, expected a positive number.")
        self._post(lambda: setattr(self, "_speed", float(speed)))

    def seek(self, step: int) -> None:
        """Pause at a policy step, or at the nearest one that there is."""

        def seek() -> None:
            if self._timeline:
                self._set_playing(False)
                self._at = int(np.clip(step - self._timeline[0].step, 0, len(self._timeline) - 1))

        self._post(seek)

    def reset(self, seed: int | None = None) -> None:
        """Begin the first episode of a seed, by default of the last one; a recording, anew."""

        def reset() -> None:
            if self._simulation is None:
                self._at = 0
                return
            if seed is not None:
                self._simulation.seed = seed
            self._append(self._simulation.restart(self._next_step()))

        self._post(reset)

    def drive(self, driver: str) -> None:
        """Let something else move the robot: one of `Simulation.drivers`.

        "the target", "keys or gamepad", "the policy", "the policy, and keys" or "random actions".

        Raises:
            ConfigError: there is no such driver, or nothing that could be driven.
        """
        simulation = self._own_simulation("drive")
        check_choice("driver", driver, simulation.drivers)

        def drive() -> None:
            simulation.driver = driver
            self._session.pilot.release()
            if self._timeline:
                simulation.aim_here(self._timeline[self._at].state)
                self._show_hand_panel()

        self._post(drive)

    def set_filter(self, on: bool) -> None:
        """Have the safety filter change torques, or not.

        Raises:
            ConfigError: there is nothing that could be filtered.
        """
        simulation = self._own_simulation("set_filter")
        self._post(lambda: setattr(simulation, "filtered", bool(on)))

    def show_contacts(self, on: bool) -> None:
        """Draw contact forces, in an environment of a scene, or not."""
        self._post(lambda: setattr(self, "_contacts", bool(on)))

    def move_target(
        self, position: ArrayLike, rotation: ArrayLike | None = None, hand: int = 0
    ) -> None:
        """Put a hand's target somewhere else; in tasks of reaching, it is the goal.

        Args:
            position: (3,), m, world.
            rotation: (3, 3), hand to world; None to keep it.
            hand: which one.

        Raises:
            ConfigError: there is no such hand, or nobody to follow the target.
        """
        simulation = self._own_simulation("move_target")
        check_count("hand", hand, least=0, most=Hands.of(simulation.hands).count - 1)

        def move(snapshot: Snapshot) -> EnvState:
            kept = simulation.targets(snapshot.state)[hand][1]
            pose = np.asarray(position), kept if rotation is None else np.asarray(rotation)
            return simulation.with_target(snapshot.state, hand, pose)

        self._edit(move)

    def move_obstacle(
        self, index: int, position: ArrayLike, rotation: ArrayLike | None = None
    ) -> None:
        """Put an obstacle somewhere else.

        Args:
            index: which one, in the order spheres, capsules, boxes.
            position: (3,), m, of its middle, world.
            rotation: (3, 3), to the world; None to keep it.

        Raises:
            ConfigError: nobody would avoid it.
        """
        self._own_simulation("move_obstacle")

        def move(snapshot: Snapshot) -> EnvState:
            found = world_shapes(snapshot.state.world)
            if index not in found:
                return snapshot.state
            shape = dataclasses.replace(found[index], position=np.asarray(position))
            if rotation is not None:
                shape = dataclasses.replace(shape, rotation=np.asarray(rotation))
            return with_obstacle(snapshot.state, index, shape)

        self._edit(move)

    # --- what a person can do, by keys and gamepad ---

    def tell(self, text: str, client: Any = None) -> None:
        """Take what a page tells of keys and gamepad: what `teleoperation.read_controls` reads.

        Args:
            text: JSON.
            client: viser's, whose camera decides where ahead is; None for the world's x axis.
        """

        def tell() -> None:
            if self._session.pilot.tell(text):
                self._session.client = client

        self._posts.put(tell)

    def set_hand_speed(self, speed: float) -> None:
        """Of motions by keys and sticks, as a part of the fastest.

        Raises:
            ConfigError: it is not between 0 and 1.
        """
        if not 0 < speed <= 1:
            raise ConfigError(f"hand speed {speed!r}, expected a number above 0, and up to 1.")
        self._post(lambda: setattr(self._session.pilot, "speed", float(speed)))

    def choose_hand(self, index: int) -> None:
        """Move another hand by keys and sticks.

        Raises:
            ConfigError: there is no such hand, or nobody to move it.
        """
        simulation = self._own_simulation("choose_hand")
        check_count("hand", index, least=0, most=Hands.of(simulation.hands).count - 1)
        self._post(lambda: setattr(self._session.pilot, "hand", index))

    def close_gripper(self, on: bool) -> None:
        """Have the gripper close, or open, whoever moves the hand, unless it is a policy.

        Raises:
            ConfigError: there is nobody to close it.
        """
        self._own_simulation("close_gripper")
        self._change(lambda snapshot: dataclasses.replace(snapshot, closed=bool(on)))

    def record(self) -> None:
        """Begin a new episode as a demonstration; or save the one that has begun, up to now.

        Raises:
            ConfigError: there is nothing that could be recorded.
        """
        self._own_simulation("record")
        self._post(lambda: self._stop() if self._session.recording else self._start())

    def mark(self) -> None:
        """Remember this moment, for `undo`."""

        def mark() -> None:
            if self._timeline:
                self._session.marks.append(self._timeline[self._at].step)

        self._post(mark)

    def undo(self) -> None:
        """Go back to the last mark of this episode before now, or to its beginning.

        The state is what it was there, bit for bit, and what came after it is forgotten. Where keys
        move the hand, time goes on with the next of them.
        """

        def undo() -> None:
            if self._simulation is not None and self._timeline:
                there = marked(self._timeline[: self._at + 1], self._session.marks)
                self._at = there.step - self._timeline[0].step
                del self._timeline[self._at + 1 :]
                self._session.waits = True

        self._post(undo)

    def show_env(self, index: int) -> None:
        """Show another environment of a recording.

        Raises:
            ConfigError: there is no recording.
        """
        if self._recorded is None:
            raise ConfigError("show_env: there is no recording, expected one. Pass recording=...")
        recorded = self._recorded
        self._post(lambda: setattr(self, "_timeline", recorded(index)))

    def show(
        self, state: EnvState, reward: float = 0.0, info: Mapping[str, Any] | None = None
    ) -> None:
        """Show a state that somebody else computed; waits until its time has come.

        Args:
            state: of the environment.
            reward: of the step that led to it.
            info: of this step; None for a reset.
        """
        host = jax.device_get(state)
        self._post(lambda: self._append(Snapshot(self._next_step(), host, reward, info)))
        now = time.perf_counter()
        self._due = max(self._due + 1.0 / (self._env.policy_hz * self._speed), now - _LATE)
        time.sleep(max(0.0, self._due - now))

    @property
    def playing(self) -> bool:
        """Whether time goes on."""
        return self._playing

    @property
    def snapshot(self) -> Snapshot | None:
        """What is shown; None before the first state has been computed."""
        return self._timeline[self._at] if self._timeline else None

    def run(self) -> None:
        """Serve until Ctrl-C, or until `close` is called."""
        try:
            while not self._ended.wait(0.2):
                pass
        except KeyboardInterrupt:
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Stop serving. Closing twice does no harm."""
        if not self._ended.is_set():
            self._ended.set()
            atexit.unregister(self.close)
            self._thread.join()
            self._server.stop()

    # --- the viewer's thread ---

    def _post(self, work: Callable[[], None]) -> None:
        """Have the viewer's thread do something, and show what has become of it."""
        self._posts.put(work)

    def _loop(self) -> None:
        due = time.perf_counter()
        while not self._ended.is_set():
            try:
                self._tick()
            except Exception as error:
                # The page is to stay, whatever a task, a policy or a client has done.
                self._playing = False
                self._panel.say(f"**stopped**: {error}")
                if not isinstance(error, FraxenvError):
                    _LOG.exception("the viewer of %s has stopped", self._env.name)
            now = time.perf_counter()
            period = 1.0 / (self._env.policy_hz * self._speed)
            due = max(due + period, now - _LATE)
            self._ended.wait(max(0.0, due - now))

    def _tick(self) -> None:
        while not self._posts.empty():
            self._posts.get()()
            self._dirty = True
        command = self._listen()
        if self._simulation is not None and not self._timeline:
            self._timeline.append(self._simulation.reset())  # is measured when it has been drawn
            self._opened = time.perf_counter()
        elif self._playing and self._timeline and not self._draws_first():
            self._advance(command)
        now = time.perf_counter()
        if self._timeline and self._dirty and now - self._pictured > 1.0 / _PICTURES_HZ:
            self._pictured, self._dirty = now, False
            with self._server.atomic():
                self._picture()
        if self._timeline and now - self._panelled > 1.0 / _PANEL_HZ:
            self._measure_rate(now)
            self._panelled = now
            self._panel.show(self._timeline[: self._at + 1], self._timeline[-1], self._rate)
            self._show_hand_panel()

    def _draws_first(self) -> bool:
        """Whether a page may be drawing its first picture, which compiling would delay."""
        return time.perf_counter() < self._opened + _FIRST and bool(self._server.get_clients())

    def _advance(self, command: Command) -> None:
        before, simulation = self._at, self._simulation
        if simulation is not None:
            now = self._timeline[self._at]
            if not now.barriers:
                now = self._timeline[self._at] = with_barriers(self._env, now)
            if not simulation.compiled:
                self._panel.say("compiling ...")
            if self._stands(simulation, now, command):
                if not simulation.compiled:
                    simulation.step(now)  # so that the first command need not wait
                return
            self._session.waits = False
            del self._timeline[self._at + 1 :]
            self._append(simulation.step(now, command))
        elif self._recorded is None:
            self._at = len(self._timeline) - 1
        elif self._at + 1 < len(self._timeline):
            self._at += 1
        else:
            self._set_playing(False)
        self._dirty |= self._at != before
        self._rate_steps += self._at != before

    def _append(self, snapshot: Snapshot) -> None:
        self._session.marks = [step for step in self._session.marks if step < snapshot.step]
        self._timeline.append(with_barriers(self._env, snapshot))
        surplus = len(self._timeline) - _KEPT_SECONDS * self._env.policy_hz
        if surplus > 0 and not self._session.recording:
            del self._timeline[:surplus]
            self._at = max(0, self._at - surplus)
        if self._playing or self._simulation is not None:
            self._at = len(self._timeline) - 1

    def _set_playing(self, playing: bool) -> None:
        self._playing = playing
        if playing and self._recorded is not None and self._at + 1 >= len(self._timeline):
            self._at = 0
        self._panel.show_playing(playing)

    def _next_step(self) -> int:
        return self._timeline[-1].step + 1 if self._timeline else 0

    def _edit(self, change: Callable[[Snapshot], EnvState]) -> None:
        self._change(lambda snapshot: dataclasses.replace(snapshot, state=change(snapshot)))

    def _change(self, change: Callable[[Snapshot], Snapshot]) -> None:
        def edit() -> None:
            if self._timeline:
                self._timeline[self._at] = change(self._timeline[self._at])

        self._post(edit)

    def _own_simulation(self, what: str) -> Simulation:
        if self._simulation is None:
            raise ConfigError(
                f"{what}: this viewer steps nothing, expected one of open_viewer without a "
                "recording. Open one."
            )
        return self._simulation

    def _measure_rate(self, now: float) -> None:
        """Measure the speed of the last second, in multiples of real time."""
        if not self._playing or now - self._rate_since > 1.0:
            passed = now - self._rate_since
            self._rate = self._rate_steps / self._env.policy_hz / passed if self._playing else 0.0
            self._rate_since, self._rate_steps = now, 0

    # --- a person's commands, in the viewer's thread ---

    def _add_hand_panel(self) -> HandPanel | None:
        simulation = self._simulation
        if simulation is None or simulation.no_keys is not None:
            return None
        names = Hands.of(simulation.hands).names
        return HandPanel(self, self._server.gui, names, simulation.driver in BY_KEYS)

    def _listen(self) -> Command:
        """What a person commands now; what else was asked for is done."""
        command, asked = self._session.pilot.take(self._session.heading)
        does = {RECORD: self.record, MARK: self.mark, UNDO: self.undo, RESET: self._begin_anew}
        for what in asked:
            does[what]()
        return command

    def _stands(self, simulation: Simulation, now: Snapshot, command: Command) -> bool:
        """Whether time waits for a person: at the beginning of an episode, and after `undo`."""
        begins = now.info is None or self._session.waits
        return begins and simulation.driver == KEYS and not command.given

    def _begin_anew(self) -> None:
        def begin() -> None:
            if self._simulation is not None:
                self._append(self._simulation.reset(self._next_step()))

        self._post(begin)

    def _start(self) -> None:
        """Begin a demonstration."""
        if self._simulation is None or self._simulation.driver not in BY_KEYS:
            self._session.note = f"to record, choose {KEYS!r} under Moved by"
            return
        self._session.recording, self._session.note = True, ""
        self._begin_anew()
        self._post(lambda: self._set_playing(True))

    def _stop(self) -> None:
        """Save the demonstration that has begun."""
        if self._simulation is not None:
            past = self._timeline[: self._at + 1]
            self._session.save(past, self._simulation.own_params)

    def _show_hand_panel(self) -> None:
        if self._hand_panel is not None and self._simulation is not None:
            driver, past = self._simulation.driver, self._timeline[: self._at + 1]
            told = self._session.report(past, self._env.policy_hz, driver == SHARED)
            self._hand_panel.show(driver in BY_KEYS, self._session.recording, told)

    # --- the scene ---

    def _picture(self) -> None:
        """Bring the 3D scene to the snapshot that is shown."""
        snapshot = self._timeline[self._at]
        shapes = env_scene(
            self._env,
            snapshot.state,
            self._params,
            snapshot.safety,
            contacts=self._contacts,
        )
        bare = len(scene(self._env.robot, snapshot.state.q))
        planned = [] if snapshot.path is None else path_shapes(snapshot.path)
        self._stage.show([*shapes, *planned], range(bare, len(shapes)))
        if self._simulation is None:
            return
        for i, pose in enumerate(self._simulation.targets(snapshot.state)):
            name = f"/target/{i}"
            if self._simulation.shows_targets(snapshot.state):
                self._place(name, pose, functools.partial(self.move_target, hand=i), True)
            elif name in self._handles:
                self._handles.pop(name).remove()
        found = world_shapes(snapshot.state.world)
        self._panel.offer_obstacles({i: shape.kind for i, shape in found.items()})
        chosen = self._obstacle if self._obstacle in found else None
        for i, shape in found.items():
            name = f"/obstacle/{i}"
            if i == chosen:
                pose = shape.position, shape.rotation
                turns = shape.kind != "sphere"
                self._place(name, pose, functools.partial(self.move_obstacle, i), turns)
            elif name in self._handles:
                self._handles.pop(name).remove()

    def _place(self, name: str, pose: Any, move: Callable[..., None], turns: bool) -> None:
        """Put a handle for dragging at a pose, unless somebody is dragging it."""
        position, wxyz = pose[0], quaternions(np.asarray(pose[1])[None])[0]
        if name in self._handles:
            if name not in self._held:
                self._handles[name].position, self._handles[name].wxyz = position, wxyz
            return
        handle = self._server.scene.add_transform_controls(
            name,
            scale=0.16,
            line_width=3.0,
            disable_rotations=not turns,
            depth_test=False,
            position=position,
            wxyz=wxyz,
        )

        async def dragged(event: Any) -> None:  # asynchronous, because those come in order
            self._held.add(name)
            move(np.array(handle.position), rotation_of(handle.wxyz))
            if event.phase == "end":
                self._post(lambda: self._held.discard(name))

        handle.on_update(dragged)
        self._handles[name] = handle

    def _pick(self, position: Any) -> None:
        """Choose the obstacle that was clicked, or none if it is the one that is chosen."""

        def pick() -> None:
            if not self._timeline:
                return
            found = world_shapes(self._timeline[self._at].state.world)
            ways = {i: float(np.linalg.norm(s.position - position)) for i, s in found.items()}
            if ways and min(ways.values()) < 0.02:
                nearest = min(ways, key=ways.__getitem__)
                self._choose(None if nearest == self._obstacle else nearest)

        self._post(pick)

    def choose_obstacle(self, index: int | None) -> None:
        """Show the handle of one obstacle, or of none."""
        self._post(lambda: self._choose(index))

    def _choose(self, index: int | None) -> None:
        self._obstacle = index
        self._panel.show_obstacle(index)


def recorded_snapshots(
    recording: Recording, env: Environment, params: EnvParams
) -> Callable[[int], list[Snapshot]]:
    """The snapshots of a recording, by the number of the environment: its actions are taken again.

    Raises:
        CheckpointError: the recording is not of this environment.
    """
    states: list[EnvState] = []
    replay(recording, env, params, watch=lambda batch: states.append(jax.device_get(batch)))

    def snapshot(t: int, n: int) -> Snapshot:
        state = jax.tree.map(lambda x: x[n], states[t])
        info = jax.tree.map(lambda x: x[t, n], recording.infos)
        return with_barriers(env, Snapshot(t + 1, state, float(recording.rewards[t, n]), info))

    return lambda n: [snapshot(t, n) for t in range(len(states))]


def with_barriers(env: Environment, snapshot: Snapshot) -> Snapshot:
    """The snapshot with its barrier values."""
    return dataclasses.replace(snapshot, barriers=barrier_meter(env)(snapshot.state))
