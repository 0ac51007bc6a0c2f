"""Teleoperation: what keys mean, undo, demonstrations that are recorded, and the page."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from pages import browsed, free_port, wait

import fraxenv
from fraxenv.dynamics import frame_pose, load_robot
from fraxenv.envs import Environment, EnvParams
from fraxenv.errors import CheckpointError, ConfigError
from fraxenv.recording import record_actions
from fraxenv.recording.scripted import expert_policy, scripted_policy
from fraxenv.training import BCConfig
from fraxenv.training.demonstrations import demonstrations as learnt_from

viser = pytest.importorskip("viser")

from fraxenv.viewer import Viewer, open_viewer
from fraxenv.viewer.demonstrations import Demonstrations, marked
from fraxenv.viewer.panel import touches
from fraxenv.viewer.simulation import KEYS, POLICY, SHARED, TARGET, Simulation
from fraxenv.viewer.snapshots import Snapshot
from fraxenv.viewer.teleoperation import (
    CODES,
    DEADZONE,
    FULL,
    LEGEND,
    MARK,
    RECORD,
    STICKS,
    Command,
    Pilot,
    beyond_deadzone,
    motion,
    read_controls,
    seen_from,
)

RECIPE: dict[str, Any] = {
    "id": "PandaReach-v0",
    "control_hz": 250,
    "physics_hz": 250,
    "task_options": {"position_tolerance": 0.05},
}
AHEAD, UP = np.eye(3)[[0, 2]]

Made = tuple[Environment, EnvParams]


@pytest.fixture(scope="module")
def reach() -> Made:
    return fraxenv.make(**RECIPE)


class Person:
    """Someone at a page, who writes what the page would."""

    def __init__(self, tell: Callable[[str], Any], page: str = "here") -> None:
        self._tell, self._page = tell, page
        self._held: set[str] = set()
        self._presses: dict[str, int] = {}

    def press(self, *codes: str, axes: list[float] | None = None) -> None:
        for code in codes:
            self._presses[code] = self._presses.get(code, 0) + 1
        self._held |= set(codes)
        self.say(axes)

    def release(self, *codes: str) -> None:
        self._held -= set(codes)
        self.say()

    def tap(self, *codes: str) -> None:
        self.press(*codes)
        self.release(*codes)

    def say(self, axes: list[float] | None = None) -> None:
        told = {"page": self._page, "held": sorted(self._held), "presses": self._presses}
        self._tell(json.dumps({**told, "axes": axes or []}))

    def push(self, action: NDArray[Any], closes: bool) -> None:
        """The sticks as an action of `ee_delta_pose` needs them; button A if the gripper is to."""
        ways = [sign * (DEADZONE + abs(a) * (1 - DEADZONE)) * np.sign(a)
                for a, sign in ((float(action[i]), sign) for i, sign in STICKS)]  # fmt: skip
        if closes:
            self.press("Pad0", axes=ways)
        self._held -= {"Pad0"}
        self.say(ways)


def act(
    simulation: Simulation, policy: Any, snapshot: Snapshot, done: Callable[[Snapshot], bool]
) -> tuple[list[Snapshot], list[Command]]:
    """What comes of a policy's actions as a person's at a gamepad, until it is done; and these."""
    pilot = Pilot()
    pilot.speed = 1.0
    person = Person(pilot.tell)
    policy, past = jax.jit(policy), [snapshot]
    commands: list[Command] = []
    while not done(past[-1]):
        assert len(past) < 300, "it is never done"
        action = np.asarray(policy(past[-1].obs, jax.random.key(0)))
        closes = simulation.has_gripper and (action[-1] < 0) != past[-1].closed
        person.push(action, closes)
        commands.append(pilot.take()[0])
        past.append(simulation.step(past[-1], commands[-1]))
    return past, commands


def succeeded(snapshot: Snapshot) -> bool:
    return snapshot.info is not None and bool(snapshot.info["success"])


@functools.cache
def hand_of(env: Environment) -> Callable[[Any], Any]:
    return jax.jit(lambda q: frame_pose(env.robot, q, "hand")[0])


def hand(env: Environment, snapshot: Snapshot) -> NDArray[np.float64]:
    return np.asarray(hand_of(env)(snapshot.state.q), float)


def same(one: Any, other: Any) -> None:
    """Of two trees, that they are equal bit for bit."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), strict=True)


# --- keys and sticks ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "meant"),
    [
        ("KeyW", [1, 0, 0, 0, 0, 0]),
        ("ArrowDown", [-1, 0, 0, 0, 0, 0]),
        ("KeyA KeyR", [0, 1, 1, 0, 0, 0]),
        ("KeyW ArrowUp", [1, 0, 0, 0, 0, 0]),
        ("KeyW ArrowUp KeyS", [1, 0, 0, 0, 0, 0]),
        ("KeyR KeyF", [0, 0, 0, 0, 0, 0]),
        ("KeyZ KeyT KeyV", [0, 0, 0, 1, 1, -1]),
        ("Space KeyM", [0, 0, 0, 0, 0, 0]),
    ],
)
def test_keys_move_as_they_are_labelled(keys: str, meant: list[float]) -> None:
    np.testing.assert_array_equal(motion(frozenset(keys.split())), meant)


def test_sticks_have_a_deadzone_and_no_jump() -> None:
    assert beyond_deadzone(DEADZONE) == beyond_deadzone(-0.1) == 0.0
    assert beyond_deadzone(DEADZONE + 1e-6) < 1e-5
    assert (beyond_deadzone(1.0), beyond_deadzone(-1.0)) == (1.0, -1.0)
    # Left stick back and to the right, right stick forwards and to the left: up, and turning left.
    np.testing.assert_allclose(
        motion(frozenset(), (1.0, 1.0, -1.0, -1.0)), [-1, -1, 1, 0, 0, 1], atol=1e-12
    )
    np.testing.assert_array_equal(motion(frozenset({"KeyW"}), (0.0, -1.0))[0], 1.0)


def test_ahead_is_where_one_looks() -> None:
    six = np.array([1.0, 0.0, 0.5, 0.0, 1.0, 0.2])
    np.testing.assert_allclose(
        seen_from(np.pi / 2, six), [0.0, 1.0, 0.5, -1.0, 0.0, 0.2], atol=1e-12
    )
    np.testing.assert_allclose(seen_from(0.3, seen_from(0.4, six)), seen_from(0.7, six))


def test_the_table_names_all_keys_and_no_others() -> None:
    from fraxenv.viewer.controls_page import _CODES, controls_page

    named = {code for keys, *_ in LEGEND for k in keys for code in _CODES.get(k, f"Key{k}").split()}
    assert named == {code for code in CODES if not code.startswith("Pad")} - {"Backspace"}
    assert "</script" not in controls_page()


@pytest.mark.parametrize(
    "text", ["", "W", "[]", "{}", '{"page": "a", "held": 3, "presses": {}, "axes": []}', "null"]
)
def test_what_no_page_writes_is_ignored(text: str) -> None:
    assert read_controls(text) is None
    pilot = Pilot()
    assert not pilot.tell(text)
    assert not pilot.take()[0].given


def test_what_is_no_number_is_no_stick() -> None:
    told = read_controls('{"page": "a", "held": ["KeyW", "F5"], "presses": {}, "axes": [NaN, 7]}')
    assert told is not None
    assert told.axes == (0.0, 1.0)
    assert told.held == {"KeyW"}


def test_taps_between_two_steps_are_not_lost() -> None:
    pilot = Pilot()
    one, other = Person(pilot.tell, "one"), Person(pilot.tell, "other")
    one.tap("KeyW")
    one.tap("Space")
    command, asked = pilot.take()
    np.testing.assert_array_equal(command.move, 0.5 * FULL[:3] * AHEAD)
    assert command.toggles
    assert asked == []
    assert not pilot.take()[0].given
    one.tap("Space")
    one.tap("Space")
    assert not pilot.take()[0].toggles  # and back again
    # Each page counts by itself.
    other.tap("Space")
    other.tap("KeyM")
    other.tap("Enter")
    command, asked = pilot.take()
    assert command.toggles
    assert asked == [RECORD, MARK]


def test_slowly_and_let_go() -> None:
    pilot = Pilot()
    pilot.speed = 1.0
    person = Person(pilot.tell)
    person.press("KeyR", "ShiftLeft")
    np.testing.assert_array_equal(pilot.take()[0].move, 0.25 * FULL[:3] * UP)
    person.release("ShiftLeft")
    np.testing.assert_array_equal(pilot.take()[0].move, FULL[:3] * UP)
    pilot.release()
    assert not pilot.take()[0].given
    person.release("KeyR")
    person.press("KeyI")
    command, _ = pilot.take()
    assert command.given
    assert not command.move.any()


# --- the simulation -------------------------------------------------------------------------------


def test_who_has_no_keys_says_why() -> None:
    env, params = fraxenv.make("PandaReach-v0", action="torque")
    simulation = Simulation(env, params)
    assert KEYS not in simulation.drivers
    with pytest.raises(ConfigError, match="for JointTorque, and no keys"):
        open_viewer(env, params, teleop=True)
    assert Simulation(*fraxenv.make("PandaTrack-v0", action="joint_delta")).no_keys is None


@pytest.mark.slow
def test_a_person_takes_over_from_a_policy_while_keys_are_held(reach: Made, tmp_path: Path) -> None:
    env, params = reach[0], reach[1].replace(max_steps_in_episode=5)

    def up(obs: Any, key: Any) -> Any:
        return jnp.zeros(6).at[2].set(1.0)

    simulation = Simulation(env, params, up)
    simulation.driver = SHARED
    pilot = Pilot()
    person = Person(pilot.tell)
    past = [simulation.reset()]
    for t in range(9):
        if t == 3:
            person.press("KeyI")
        if t == 5:
            person.press("KeyW")
        if t == 7:
            person.release("KeyI", "KeyW")
        past.append(simulation.step(past[-1], pilot.take()[0]))
    taken_over = [False] * 3 + [True] * 4 + [False] * 2
    assert [s.intervention for s in past[1:]] == taken_over
    actions = np.stack([s.action for s in past[1:] if s.action is not None])
    expected = np.zeros((9, 6))
    expected[[0, 1, 2, 7, 8], 2] = 1.0
    expected[5:7, 0] = 0.5
    np.testing.assert_allclose(actions, expected, atol=1e-6)
    path = Demonstrations(env, tmp_path, RECIPE).save(past, simulation.own_params)
    (episode,) = fraxenv.load_recording(path).episodes()
    assert episode.infos["intervention"].tolist() == taken_over
    # Only a policy by itself has no more than its time.
    simulation.driver = POLICY
    assert simulation.step(past[3]).info is not None
    assert simulation.step(past[4]).info is None


@pytest.mark.slow
def test_the_gripper_is_held_where_it_is_told_to_be() -> None:
    """Of a hand that follows the target, too."""
    robot = load_robot("panda_gripper")
    env, params = fraxenv.make(
        "PandaReach-v0", robot=robot, gripper="width", control_hz=250, physics_hz=250
    )
    simulation = Simulation(env, params)
    assert simulation.driver == TARGET
    snapshot = simulation.reset()
    aim = hand(env, snapshot) + np.array([0.0, 0.1, 0.05])
    kept = simulation.targets(snapshot.state)[0][1]
    snapshot = replace(snapshot, state=simulation.with_target(snapshot.state, 0, (aim, kept)))
    for closed, width in ((True, 0.0), (False, 0.08)):
        snapshot = replace(snapshot, closed=closed)
        for _ in range(100):
            snapshot = simulation.step(snapshot)
        assert snapshot.info is not None
        np.testing.assert_allclose(snapshot.info["controller"]["gripper_width"], width, atol=1e-3)
        np.testing.assert_allclose(hand(env, snapshot), aim, atol=3e-3)


# --- demonstrations -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_demonstration_is_an_ordinary_recording(reach: Made, tmp_path: Path) -> None:
    env, params = reach
    simulation = Simulation(env, params, seed=1)
    simulation.driver = KEYS
    straight = scripted_policy(env, params)
    saved = Demonstrations(env, tmp_path / "demos", RECIPE)
    pasts = [act(simulation, straight, simulation.reset(), succeeded)[0] for _ in range(2)]
    for past in pasts:
        saved.save(past, simulation.own_params)
    assert saved.successes == [True, True]
    assert Demonstrations(env, tmp_path / "demos").successes == [True, True]
    with pytest.raises(CheckpointError, match="it is of PandaReach-v0"):
        Demonstrations(fraxenv.make("PandaTrack-v0")[0], tmp_path / "demos")

    recording = fraxenv.load_recording(tmp_path / "demos" / "demo-0002.npz")
    (episode,) = recording.episodes()
    assert len(episode) == len(pasts[1]) - 1
    assert episode.success
    assert episode.infos["intervention"].all()
    report = fraxenv.replay(recording)
    assert report.identical, report
    # Behaviour cloning learns from all that the folder holds.
    config = BCConfig(env="PandaReach-v0", recording=str(tmp_path / "demos"), demonstrations=2)
    found = learnt_from(config, env, params)
    shown = [s for past in pasts for s in past[:-1]]
    taken = [s for past in pasts for s in past[1:]]
    np.testing.assert_array_equal(found.observations, np.stack([s.obs for s in shown]))
    np.testing.assert_array_equal(found.actions, np.stack([s.action for s in taken]))
    with pytest.raises(ConfigError, match="2 successful episodes, expected demonstrations=3"):
        learnt_from(replace(config, demonstrations=3), env, params)

    # What is not of the actions alone is not saved.
    simulation.driver = TARGET
    with pytest.raises(ConfigError, match="0 of 0 steps"):
        saved.save([simulation.reset()], simulation.own_params)
    with pytest.raises(ConfigError, match=f"{len(past) - 1} of {len(past)} steps"):
        saved.save([*past, simulation.step(past[-1])], simulation.own_params)
    goal, rotation = simulation.targets(past[3].state)[0]
    moved = simulation.with_target(past[3].state, 0, (goal + 0.1, rotation))
    simulation.driver = KEYS
    dragged = simulation.step(replace(past[3], state=moved))
    with pytest.raises(ConfigError, match="do not lead where it is now"):
        saved.save([*past[:4], dragged], simulation.own_params)
    assert len(list((tmp_path / "demos").iterdir())) == 2


def test_annotations_have_names_of_their_own(reach: Made) -> None:
    env, params = reach
    actions, key = np.zeros((2, 6), np.float32), jax.random.key(0)
    for notes in ({"success": [True, True]}, {"mine": [1]}):
        with pytest.raises(ConfigError, match="expected 2, and a name that steps do not report"):
            record_actions(env, params, actions, key, annotations=notes, recipe=RECIPE)


def test_undo_goes_to_the_last_mark_before_now() -> None:
    def past(*infos: int) -> list[Snapshot]:
        """Zeros for resets."""
        return [Snapshot(i, None, info={} if info else None) for i, info in enumerate(infos)]  # type: ignore[arg-type]

    episode = past(0, 1, 1, 0, 1, 1, 1, 1)
    for marks, there in (([], 3), ([5, 6], 6), ([5, 7], 5), ([1, 2], 3), ([7], 3)):
        assert marked(episode, marks).step == there
    assert marked(past(0), [0]).step == 0


@pytest.fixture
def opened(reach: Made, tmp_path: Path) -> Iterator[Viewer]:
    viewer = open_viewer(
        *reach, teleop=True, demonstrations=tmp_path / "demos", recipe=RECIPE, port=free_port()
    )
    assert viewer._simulation is not None
    wait(lambda: viewer.snapshot is not None and viewer._simulation.compiled)
    yield viewer
    viewer.close()


def now(viewer: Viewer) -> Snapshot:
    assert viewer.snapshot is not None
    return viewer.snapshot


def test_recorded_marked_undone_and_saved(opened: Viewer, reach: Made, tmp_path: Path) -> None:
    person = Person(opened.tell)
    person.tap("Enter")
    wait(lambda: opened._session.recording and now(opened).step > 0)
    begin = now(opened).step
    assert now(opened).info is None  # it waits for the person
    person.press("KeyR")
    wait(lambda: now(opened).step >= begin + 5)
    opened.pause()
    wait(lambda: not opened.playing)
    person.release("KeyR")
    kept = jax.tree.map(np.array, now(opened).state)
    there, closed = now(opened).step, now(opened).closed
    person.tap("KeyM")
    wait(lambda: opened._session.marks == [there])
    opened.close_gripper(False)

    opened.play()
    person.press("KeyA")
    wait(lambda: now(opened).step >= there + 4)
    person.release("KeyA")
    person.tap("KeyU")
    wait(lambda: opened._session.waits)
    assert now(opened).step == there
    same(now(opened).state, kept)
    assert now(opened).closed == closed
    assert opened.playing  # but it waits

    person.press("KeyW")
    wait(lambda: now(opened).step >= there + 3)
    person.release("KeyW")
    opened.record()
    wait(lambda: (tmp_path / "demos" / "demo-0001.npz").exists() and not opened._session.recording)
    recording = fraxenv.load_recording(tmp_path / "demos" / "demo-0001.npz")
    (episode,) = recording.episodes()
    # What was undone has left it: up and ahead, and nothing to the left.
    assert np.abs(episode.actions[:, 1]).max() < 1e-6
    up, ahead = (episode.actions[: there - begin], episode.actions[there - begin :])
    np.testing.assert_allclose(up[:, 2], 0.5, atol=1e-6)
    assert (ahead[:3, 0] > 0.49).all()
    assert fraxenv.replay(recording).identical
    wait(lambda: "saved demo-0001.npz, no success" in opened._session.note)

    # Not without a person.
    opened.drive("random actions")
    opened.record()
    wait(lambda: "choose 'keys or gamepad'" in opened._session.note)
    with pytest.raises(ConfigError, match=r"hand speed 1\.5"):
        opened.set_hand_speed(1.5)


def test_forces_are_listed_by_their_size() -> None:
    listed = touches({"table and cube": 0.63, "pad and cube": 12.34, "table and pad": 0.0})
    assert listed == "**12.3 N** pad and cube  \n**0.6 N** table and cube"
    assert touches({"table and cube": 0.0}) == "Nothing touches."


@pytest.mark.slow
def test_a_person_picks_and_stacks_a_cube(tmp_path: Path) -> None:
    """By sticks and button A, pushed as the expert's actions need them."""
    env, params = fraxenv.make("PandaStack-v0")
    simulation = Simulation(env, params)
    simulation.driver = KEYS
    past, commands = act(simulation, expert_policy(env, params), simulation.reset(), succeeded)
    assert any(s.closed and s.info["grasped"] for s in past[1:] if s.info is not None)
    saved = Demonstrations(env, tmp_path, {"id": "PandaStack-v0"})
    recording = fraxenv.load_recording(saved.save(past, simulation.own_params))
    assert saved.successes == [True]
    assert fraxenv.replay(recording).identical
    config = BCConfig(env="PandaStack-v0", recording=str(tmp_path), demonstrations=1)
    found = learnt_from(config, env, params)
    assert found.actions.shape == (len(past) - 1, 7)
    # From halfway on, once more: the same bits.
    again = past[60]
    for command, step in zip(commands[60:], past[61:], strict=True):
        again = simulation.step(again, command)
        same(again.state, step.state)


# --- in a browser ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_page_listens_to_keys_and_gamepad(opened: Viewer, reach: Made) -> None:
    env, _ = reach
    with browsed(opened) as (page, _):
        page.locator("#fraxenv-keys").wait_for()
        assert not page.get_by_text("keys held").is_visible()
        page.keyboard.press("Enter")
        wait(lambda: opened._session.recording and now(opened).info is None)
        start = hand(env, now(opened))
        page.keyboard.down("r")
        wait(lambda: hand(env, now(opened))[2] > start[2] + 0.03)
        assert page.locator("kbd.held").all_inner_texts() == ["R"]
        page.keyboard.up("r")
        wait(lambda: not opened._session.pilot._now.held)
        page.keyboard.press(" ")
        wait(lambda: now(opened).closed)

        # What is typed into a field is text.
        seed = page.get_by_label("Seed")
        page.keyboard.down("d")
        wait(lambda: opened._session.pilot._now.held == {"KeyD"})
        seed.focus()
        page.keyboard.press("m")
        page.keyboard.up("d")  # there, too, is a key let go of
        wait(lambda: not opened._session.pilot._now.held)
        # A gamepad: its left stick ahead, as the camera looks.
        page.evaluate(
            "navigator.getGamepads = () => [{connected: true, axes: [0.1, -1, 0, 0], buttons: []}]"
        )
        before = hand(env, now(opened))
        wait(lambda: np.linalg.norm(hand(env, now(opened)) - before) > 0.03)
        assert opened._session.client is not None
        ahead = np.subtract(
            opened._session.client.camera.look_at, opened._session.client.camera.position
        )[:2]
        way = (hand(env, now(opened)) - before)[:2]
        assert way @ ahead > 0.98 * np.linalg.norm(way) * np.linalg.norm(ahead)
        page.evaluate("navigator.getGamepads = () => []")
        wait(lambda: not opened._session.pilot._now.axes)
        assert opened._session.marks == []
        page.get_by_role("button", name="Stop and save").click()
        wait(lambda: opened._session.note.startswith("saved demo-0001.npz"))
    # Whoever goes away lets go.
    wait(lambda: opened._session.client is None)
