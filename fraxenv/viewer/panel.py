"""The controls and plots beside the scene."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import numpy as np

from fraxenv.envs import Environment, EnvParams
from fraxenv.envs.tasks.measures import told

from .plots import SECONDS, Plot
from .simulation import Simulation
from .snapshots import Snapshot, contact_forces, default_filter, rewards, torques

_NO_OBSTACLE: Final = "none"
_BARRIER_LIMITS: Final = (-0.05, 0.35)  # beyond which nothing is near
_PLOTS_WIDTH: Final = 400  # pixels
_SLIDER_STEP: Final = 1e-3  # s
_TOUCHES: Final = 6  # at most, that are listed


class Commands(Protocol):
    """The commands that the controls give, as a `Viewer` takes them."""

    @property
    def playing(self) -> bool:
        """Whether time goes on."""

    def play(self) -> None:
        """Go on from the snapshot that is shown."""

    def pause(self) -> None:
        """Stay at the snapshot that is shown."""

    def set_speed(self, speed: float) -> None:
        """Times real time, positive."""

    def seek(self, step: int) -> None:
        """Pause at a policy step."""

    def reset(self, seed: int | None = None) -> None:
        """Begin the first episode of a seed."""

    def drive(self, driver: str) -> None:
        """Choose what moves the robot."""

    def set_filter(self, on: bool) -> None:
        """Switch the safety filter on or off."""

    def show_contacts(self, on: bool) -> None:
        """Draw contact forces, or not."""

    def choose_obstacle(self, index: int | None) -> None:
        """Show the handle of one obstacle, or of none."""

    def show_env(self, index: int) -> None:
        """Show another environment of a recording."""

    def close_gripper(self, on: bool) -> None:
        """Have the gripper close, or open."""


class Panel:
    """The controls and plots beside the scene.

    Args:
        commands: what the controls act upon.
        gui: the viser server's.
        env: the environment.
        params: its parameters.
        simulation: None where nothing is simulated, and nothing can be dragged.
        recorded_envs: environments of a recording.
    """

    def __init__(
        self,
        commands: Commands,
        gui: Any,
        env: Environment,
        params: EnvParams,
        simulation: Simulation | None,
        recorded_envs: int,
    ) -> None:
        self._commands, self._gui, self._simulation = commands, gui, simulation
        self._env, self._params = env, params
        self._reported = env.reported
        self._dt = 1.0 / env.policy_hz
        turning = all(env.robot.topology.dof_rotates)
        self._torques = "Torques, N m" if turning else "Torques, N m, and forces, N"
        self._plots: dict[str, Plot] = {}
        self._plotted: Snapshot | None = None
        self._rows: tuple[str, ...] | None = None
        self._obstacles: dict[int, str] = {}
        gui.configure_theme(show_logo=False, show_share_button=False)
        gui.main_panel.dock_right()
        plots = gui.add_panel()
        self._tab = plots.add_tab("Plots")
        plots.dock_left()
        plots.set_width(_PLOTS_WIDTH)
        self._status = gui.add_markdown("compiling ...")
        self._play = gui.add_button("Pause")
        self._play.on_click(lambda _: commands.pause() if commands.playing else commands.play())
        self._time = gui.add_slider(
            "Time, s",
            0.0,
            self._dt,
            _SLIDER_STEP,
            0.0,
            hint="drag to look back; Play goes on from there",
        )
        _on_user(self._time, lambda value: commands.seek(round(value / self._dt)))
        speed = gui.add_slider("Speed", 0.1, 4.0, 0.1, 1.0, hint="times real time")
        _on_user(speed, commands.set_speed)
        if env.physics.pairs:
            _on_user(gui.add_checkbox("Contact forces", False), commands.show_contacts)
            self._touches = gui.add_markdown("")
        if simulation is not None:
            self._add_simulation(gui, simulation)
        if recorded_envs > 1:
            number = gui.add_slider("Environment", 0, recorded_envs - 1, 1, 0)
            _on_user(number, commands.show_env)

    def _add_simulation(self, gui: Any, simulation: Simulation) -> None:
        commands = self._commands
        seed = gui.add_number("Seed", simulation.seed, min=0, step=1)
        gui.add_button("Reset").on_click(lambda _: commands.reset(int(seed.value)))
        self._driver = gui.add_dropdown(
            "Moved by",
            simulation.drivers,
            initial_value=simulation.driver,
            hint="what moves the robot",
        )
        _on_user(self._driver, commands.drive)
        safety = gui.add_checkbox("Safety filter", simulation.filtered)
        _on_user(safety, commands.set_filter)
        self._gripper = gui.add_checkbox("Gripper closed", False, visible=simulation.has_gripper)
        _on_user(self._gripper, commands.close_gripper)
        self._obstacle = gui.add_dropdown(
            "Obstacle", (_NO_OBSTACLE,), hint="to be dragged; or click on one", visible=False
        )
        _on_user(self._obstacle, lambda value: commands.choose_obstacle(_index(value)))

    def say(self, text: str) -> None:
        """Write into the status."""
        self._status.content = text

    def show_playing(self, playing: bool) -> None:
        """Label the button with what it does."""
        self._play.label = "Pause" if playing else "Play"

    def offer_obstacles(self, kinds: Mapping[int, str]) -> None:
        """List the obstacles that can be chosen, kinds by index."""
        if kinds != self._obstacles:
            self._obstacles = dict(kinds)
            self._obstacle.options = (_NO_OBSTACLE, *map(self._label, kinds))
            self._obstacle.visible = bool(kinds)

    def show_obstacle(self, index: int | None) -> None:
        """Show which one is chosen."""
        self._obstacle.value = self._label(index) if index in self._obstacles else _NO_OBSTACLE

    def _label(self, index: int | None) -> str:
        return _NO_OBSTACLE if index is None else f"{index} ({self._obstacles[index]})"

    def show(self, past: list[Snapshot], last: Snapshot, rate: float) -> None:
        """Show the snapshot that the past ends with, and plot the past.

        Args:
            past: snapshots up to the one that is shown.
            last: the last snapshot that there is.
            rate: times real time.
        """
        snapshot, first = past[-1], past[0]
        self._time.min, self._time.max = first.step * self._dt, max(last.step, 1) * self._dt
        self._time.value = snapshot.step * self._dt
        self.say(self._report(snapshot, rate))
        if self._env.physics.pairs:
            self._touches.content = touches(contact_forces(self._env, snapshot))
        if self._simulation is not None:
            self._gripper.value = snapshot.closed
            self._driver.value = self._simulation.driver
        if snapshot is not self._plotted:
            self._plot(past[-round(SECONDS / self._dt) :])
            self._plotted = snapshot

    def _report(self, snapshot: Snapshot, rate: float) -> str:
        pace = f"{rate:.2f} x real time" if self._commands.playing else "paused"
        lines = [f"{snapshot.step * self._dt:.2f} s, {pace}"]
        info = snapshot.info or {}
        if "success" in info:
            lines.append(light("#2f9e5b", "**success**") if info["success"] else NO_SUCCESS)
        if parts := told(self._reported, info):
            lines.append(", ".join(parts))
        report = snapshot.safety
        if report is not None and np.isfinite(report["min_barrier"]):
            doing = "**intervenes**" if bool(report["intervened"]) else "leaves the torques alone"
            least = float(report["min_barrier"])
            filtered = self._simulation is None or self._simulation.filtered
            what = f"filter {doing}" if filtered else "filter off"
            lines.append(f"{what}, smallest barrier {least:.3f} ({self._row(snapshot, report)})")
        return "  \n".join(lines)

    def _row(self, snapshot: Snapshot, report: Mapping[str, Any]) -> str:
        """Name of the smallest barrier's row."""
        if self._rows is None:
            safety = self._params.safety or default_filter(self._env)
            around = snapshot.state.world.obstacles
            self._rows = safety.row_names(self._env.robot, around)
        row = int(report["min_barrier_row"])
        return self._rows[row] if 0 <= row < len(self._rows) else "none"

    def _plot(self, past: list[Snapshot]) -> None:
        shown = [f for f in past if f.info is not None]
        times = [f.step * self._dt for f in shown]
        for title, rows, limits in (
            (self._torques, [torques(self._env, f) for f in shown], None),
            ("Barrier values, m and rad, rad/s", [f.barriers for f in shown], _BARRIER_LIMITS),
            ("Reward by term, weighted", [rewards(self._params, f) for f in shown], None),
            ("Normal forces, N", [contact_forces(self._env, f) for f in shown], None),
        ):
            if title not in self._plots and rows and rows[-1]:
                with self._tab:
                    self._plots[title] = Plot(self._gui, title, tuple(rows[-1]), limits)
            if title in self._plots:
                self._plots[title].show(times, rows)


def light(color: str, text: str) -> str:
    """A lamp of a colour, and what it means, as Markdown."""
    return f'<span style="color: {color}; font-size: 1.4em">●</span> {text}'


NO_SUCCESS: Final = light("#ced4da", "no success yet")


def touches(forces: Mapping[str, float]) -> str:
    """Pairs that press on each other, and how strongly, the strongest first, as Markdown."""
    pressing = sorted(((f, name) for name, f in forces.items() if f > 0), reverse=True)
    if not pressing:
        return "Nothing touches."
    return "  \n".join(f"**{f:.1f} N** {name}" for f, name in pressing[:_TOUCHES])


def _index(label: str) -> int | None:
    """The obstacle that a label is of."""
    return None if label == _NO_OBSTACLE else int(label.split()[0])


def _on_user(handle: Any, act: Callable[[Any], None]) -> None:
    """Call with the value when a client changes it, not when the viewer itself does."""

    def changed(event: Any) -> None:
        if event.client is not None:
            act(event.target.value)

    handle.on_update(changed)
