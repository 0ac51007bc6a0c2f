"""Trips through the house: the files that one call leads through, in order, and what they hand on.

    python scripts/measure/trips.py step                    # action to torque and back
    python scripts/measure/trips.py step PandaReachObstacles-v0
    python scripts/measure/trips.py load | fuse | train     # the other three trips

What is counted, and why so, is said in `Trip`; `tests/test_trips.py` holds the numbers.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import fraxenv

ROOT = Path(fraxenv.__file__).resolve().parent
LAYERS = ("controllers", "dynamics", "envs")
"""Folders that stand beside the package in a checkout, and inside it where it is installed."""

STEP_ROOMS = ("envs/", "controllers/", "dynamics/")
STEP_GROUND = ("dynamics/math/",)
TRAIN_GROUND = tuple(f"fraxenv/{x}" for x in ("kernels/", "making/", "rendering/", "errors.py"))


class Place(NamedTuple):
    """A function of ours: its file, and its name there."""

    file: str
    function: str

    @property
    def room(self) -> str:
        """The folder, where everything below `dynamics` is one."""
        folder = str(PurePosixPath(self.file).parent)
        return "dynamics" if folder.startswith("dynamics") else folder


@dataclass
class Call:
    """One call of a function of ours.

    Attributes:
        caller: the function of ours that it came from, with Python's and JAX's own left out between
            them; None for the beginning.
        place: the function called.
        followed: whether it is read, or taken by its name.
        hands_on: whether it calls another file of ours, itself or through its own file's functions.
    """

    caller: Call | None
    place: Place
    followed: bool
    hands_on: bool = False

    @property
    def from_elsewhere(self) -> bool:
        """Whether it came from another file of ours, or from none."""
        return self.caller is None or self.caller.place.file != self.place.file


@dataclass
class Trip:
    """The calls of a trip, in order, and their counts.

    A *quantity* is taken by its name: a function of `dynamics` that is not given the torque, `tau`,
    and all that it calls. A mass matrix, a Jacobian or a distance is what the textbook says; who
    follows an action to the torque and back need not open it. All other functions are followed.

    Attributes:
        calls: all calls, quantities too.
    """

    calls: list[Call] = field(default_factory=list)

    def _files(self, chosen: Callable[[Call], bool]) -> list[str]:
        return list(dict.fromkeys(call.place.file for call in self.calls if chosen(call)))

    @property
    def entered(self) -> list[str]:
        """All files that a function is called of."""
        return self._files(lambda _: True)

    @property
    def opened(self) -> list[str]:
        """Files with a function that is followed."""
        return self._files(lambda call: call.followed)

    @property
    def stops(self) -> list[str]:
        """Files with a followed function that hands on to another file, be it for a quantity.

        The other opened files are leaves, which answer on the spot.
        """
        return self._files(lambda call: call.followed and call.hands_on)

    @property
    def handing_on(self) -> list[str]:
        """As `stops`, with the files of quantities."""
        return self._files(lambda call: call.hands_on)

    def entries(self) -> dict[str, list[tuple[Place | None, Place]]]:
        """Room -> how it is entered: pairs of a function elsewhere and a function that hands on.

        Functions that answer on the spot are no entries, and neither are returns: the caller is
        still open. A pair counts once, as often as it occurs: a loop's steps are read once.
        """
        rooms: dict[str, list[tuple[Place | None, Place]]] = {}
        for call in self.calls:
            caller = call.caller
            if not (call.followed and call.hands_on):
                continue
            if caller is not None and caller.place.room == call.place.room:
                continue
            pairs = rooms.setdefault(call.place.room, [])
            pair = (None if caller is None else caller.place, call.place)
            if pair not in pairs:
                pairs.append(pair)
        return rooms

    def hops(self) -> list[tuple[int, Place]]:
        """Depth and place of followed functions that another file calls, when it first does."""
        found: dict[Place, int] = {}
        for call in self.calls:
            if call.followed and call.from_elsewhere:
                depth, above = 0, call.caller
                while above is not None:
                    depth, above = depth + above.from_elsewhere, above.caller
                found.setdefault(call.place, depth)
        return [(depth, place) for place, depth in found.items()]


def _place(
    filename: str, function: str, rooms: tuple[str, ...], ground: tuple[str, ...]
) -> Place | None:
    """The place of a function in one of the rooms and not on the ground; None for all others."""
    path = Path(filename)
    for root in (ROOT, ROOT.parent):
        if path.is_relative_to(root):
            name = path.relative_to(root).as_posix()
            break
    else:
        return None
    if not name.startswith(LAYERS) and root == ROOT:
        name = f"fraxenv/{name}"
    if name.startswith(rooms) and not name.startswith(ground):
        return Place(name, function.replace(".<locals>", ""))
    return None


@contextmanager
def traced(rooms: tuple[str, ...], ground: tuple[str, ...] = ()) -> Iterator[Trip]:
    """The trip of what is called within the context.

    Args:
        rooms: beginnings of the paths of files whose functions count.
        ground: likewise, of those among them that do not: helpers that are known to all.
    """
    trip = Trip()
    open_calls: list[tuple[FrameType, Call]] = []
    places: dict[tuple[str, str], Place | None] = {}

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and open_calls and open_calls[-1][0] is frame:
            open_calls.pop()
        code = frame.f_code
        if event != "call" or not code.co_flags & inspect.CO_OPTIMIZED:
            return  # bodies of modules and classes, run by an import, are no hops
        key = (code.co_filename, code.co_qualname)
        if key not in places:
            real = str(Path(code.co_filename).resolve())
            places[key] = _place(real, code.co_qualname, rooms, ground)
        place = places[key]
        if place is None:
            return
        caller = open_calls[-1][1] if open_calls else None
        given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        followed = place.room != "dynamics" or "tau" in given or rooms != STEP_ROOMS
        call = Call(caller, place, followed and (caller is None or caller.followed))
        open_calls.append((frame, call))
        trip.calls.append(call)
        above = caller if caller is not None and caller.place.file != place.file else None
        while above is not None and above.place.file == caller.place.file:
            above.hands_on, above = True, above.caller

    sys.setprofile(watch)
    try:
        yield trip
    finally:
        sys.setprofile(None)


def step_trip(name: str) -> Trip:
    """A policy step of an environment as it is traced, without the reset that may follow."""
    env, params = fraxenv.make(name)
    _, state = env.reset(jax.random.key(0), params)
    action = jnp.zeros(env.num_actions)
    jax.clear_caches()  # what has been traced before would not be called again
    with traced(STEP_ROOMS, STEP_GROUND) as trip:
        jax.make_jaxpr(lambda *given: env.step_env(*given, params))(
            jax.random.key(0), state, action
        )
    return trip


def load_trip() -> Trip:
    """A robot by name, from its files to the model that an environment has."""
    import fraxenv.making.make  # an import reads files of its own

    os.environ["FRAXENV_CACHE"] = "0"  # the first time: later processes find what was read
    rooms = ("dynamics/model/", "fraxenv/making/", "fraxenv/storage/")
    with traced(rooms, ("fraxenv/making/registration.py",)) as trip:
        fraxenv.make("PandaReach-v0", robot="panda")
    return trip


def fuse_trip() -> Trip:
    """A fused function, from the call to machine code."""
    robot = fraxenv.dynamics.load_robot("panda")
    q = jnp.zeros((4, robot.nq))
    mass_matrix = fraxenv.fuse(lambda q: fraxenv.dynamics.crba(robot, q), backend="native")
    with traced(("fraxenv/kernels/",)) as trip:
        jax.block_until_ready(mass_matrix(q))
    return trip


def train_trip() -> Trip:
    """A short training by the command line, to its checkpoint."""
    from fraxenv.cli import main, train  # noqa: F401  # an import reads files of its own

    sizes = {"total-timesteps": 256, "num-envs": 8, "num-steps": 8, "eval-episodes": 2}
    sizes |= {"num-minibatches": 2, "updates-per-round": 4, "final-episodes": 2}
    options = [part for name, size in sizes.items() for part in (f"--{name}", str(size))]
    with tempfile.TemporaryDirectory() as runs, traced(("fraxenv/",), TRAIN_GROUND) as trip:
        main(["train", "PandaReach-v0", "--runs", runs, *options])
    return trip


def report(trip: Trip) -> str:
    """Counts, rooms and hops, as text."""
    leaves = [file for file in trip.opened if file not in trip.stops]
    lines = [
        f"{len(trip.stops)} stops; with {len(leaves)} leaves {len(trip.opened)} files opened; with "
        f"quantities {len(trip.entered)} entered, of which {len(trip.handing_on)} hand on",
        "",
        "rooms entered:",
    ]
    for room, pairs in trip.entries().items():
        lines.append(f"  {room}: {len(pairs)}")
        lines += [f"    {place.file}: {place.function}" for _, place in pairs]
    lines += ["", "hops:"]
    for depth, place in trip.hops():
        mark = "*" if place.file in trip.stops else " "
        lines.append(f"{mark} {'  ' * depth}{place.file}: {place.function}")
    return "\n".join(lines)


def as_json(trip: Trip) -> str:
    """Counts, rooms and functions, for tests."""
    functions: dict[str, list[str]] = {}
    for call in trip.calls:
        names = functions.setdefault(call.place.file, [])
        if call.place.function not in names:
            names.append(call.place.function)
    numbers = {"stops": trip.stops, "opened": trip.opened, "entered": trip.entered}
    entries = {
        room: [place.function for _, place in pairs] for room, pairs in trip.entries().items()
    }
    return json.dumps(numbers | {"entries": entries, "functions": functions})


def main() -> None:
    """Print one trip."""
    trips = {"step": step_trip, "load": load_trip, "fuse": fuse_trip, "train": train_trip}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trip", choices=trips)
    parser.add_argument("env", nargs="?", default="PandaReach-v0", help="of the trip 'step'")
    parser.add_argument("--json", action="store_true", help="for programs, as the last line")
    given = parser.parse_args()
    trip = step_trip(given.env) if given.trip == "step" else trips[given.trip]()
    print(as_json(trip) if given.json else report(trip))


if __name__ == "__main__":
    main()
