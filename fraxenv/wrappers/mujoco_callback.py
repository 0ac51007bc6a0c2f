"""An arm's control as machine code that MuJoCo calls by itself, at every step of its physics.

It reads positions and velocities where `MjData` has them, and writes the inputs there. A callback
of Python's takes 13 us, of which 1 is the control.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ..envs.mujoco_arm import Numbers, Written
from ..kernels import assembled, entry

_Pointer = ctypes.c_void_p
_CALLBACK = ctypes.CFUNCTYPE(None, _Pointer, _Pointer)
_FUNCTION = _CALLBACK.__base__ or object

_NUMBERS = ("factor", "at_rest", "by_length", "by_speed")

_TEXT = """
%joint = type {{ {joint} }}
%arm = type {{ {arm} }}

@arm = global ptr null

define void @control(ptr %model, ptr %data) {{
  %first = load ptr, ptr @arm
  br label %next

next:
  %self = phi ptr [ %first, %0 ], [ %another, %done ]
  %none = icmp eq ptr %self, null
  br i1 %none, label %leave, label %somebody

somebody:
{own}
  %ours = icmp eq ptr %own, %data
  br i1 %ours, label %begin, label %done

begin:
{fields}
  br label %read

read:
  %i = phi i64 [ 0, %begin ], [ %i.next, %read ]
{seen}
  %q.real = {narrow} double %position.now to {real}
  %q.to = getelementptr {real}, ptr %q, i64 %i
  store {real} %q.real, ptr %q.to
  %v.real = {narrow} double %speed.now to {real}
  %v.to = getelementptr {real}, ptr %v, i64 %i
  store {real} %v.real, ptr %v.to
  %i.next = add i64 %i, 1
  %i.more = icmp ult i64 %i.next, %count
  br i1 %i.more, label %read, label %ready

ready:
  %time = load double, ptr %clock
  %asked.none = icmp eq ptr %aim, null
  br i1 %asked.none, label %within, label %asked.first

asked.first:
  call void %aim(ptr %asked, ptr %aimed)
  store ptr null, ptr %aim.at
  store double %time, ptr %last.at
  br label %compute

within:
  %gone = fsub double %time, %last
  %later = fcmp oge double %gone, 0.0
  %early = fcmp olt double %gone, %least
  %same = and i1 %later, %early
  br i1 %same, label %compute, label %remember

remember:
  %k = phi i64 [ 0, %within ], [ %k.next, %remember ]
  %from = getelementptr i32, ptr %after, i64 %k
  %word = load i32, ptr %from
  %to = getelementptr i32, ptr %before, i64 %k
  store i32 %word, ptr %to
  store double %time, ptr %last.at
  %k.next = add i64 %k, 1
  %k.more = icmp ult i64 %k.next, %words
  br i1 %k.more, label %remember, label %compute

compute:
  call void %function(ptr %taken, ptr %given)
  br label %write

write:
  %j = phi i64 [ 0, %compute ], [ %j.next, %write ]
{drive}
  %torque.from = getelementptr {real}, ptr %torque, i64 %j
  %torque.real = load {real}, ptr %torque.from
  %torque.whole = {widen} {real} %torque.real to double
  %active = fsub double %torque.whole, %passive.now
  %driving = fmul double %factor, %active
  %of.length = fmul double %by_length, %length.now
  %of.speed = fmul double %by_speed, %moving.now
  %still = fadd double %at_rest, %of.length
  %itself = fadd double %still, %of.speed
  %written = fsub double %driving, %itself
  store double %written, ptr %input
  %j.next = add i64 %j, 1
  %j.more = icmp ult i64 %j.next, %count
  br i1 %j.more, label %write, label %done

done:
{another}
  br label %next

leave:
  ret void
}}
"""


_JOINT: list[tuple[str, Any]] = [
    *((name, _Pointer) for name in ("position", "speed", "passive", "length", "input")),
    *((name, ctypes.c_double) for name in _NUMBERS),
]
_ARM: list[tuple[str, Any]] = [
    ("own", _Pointer), ("clock", _Pointer), ("last", ctypes.c_double), ("least", ctypes.c_double),
    ("count", ctypes.c_int64), ("joints", _Pointer),
    *((name, _Pointer) for name in ("q", "v", "torque", "taken", "given", "before", "after")),
    ("words", ctypes.c_int64), ("function", _Pointer),
    ("aim", _Pointer), ("asked", _Pointer), ("aimed", _Pointer), ("another", _Pointer),
]  # fmt: skip


class _Joint(ctypes.Structure):
    """Where `MjData` has a joint's numbers, and how its input is found; see `Written`."""

    _fields_ = _JOINT


class _Arm(ctypes.Structure):
    """What the callback knows of an arm that it controls.

    `last` is when a step of the physics began, and `least` how long one takes at least: an
    integrator may ask several times within one, each time with the memory from before. `aim` does
    what a new action asks for, and is none once it did. `another` arm is controlled besides.
    """

    _fields_ = _ARM


def _text(dtype: np.dtype[Any]) -> str:
    """The callback in LLVM's language, for a control in a precision."""
    single = dtype.itemsize == 4

    def field(name: str, structure: str, pointer: str, row: str, place: int, kind: str) -> str:
        at = f"getelementptr %{structure}, ptr %{pointer}, i64 {row}, i32 {place}"
        return f"  %{name}.at = {at}\n  %{name} = load {kind}, ptr %{name}.at"

    def number(name: str, row: str, place: int, kind: str) -> str:
        text = field(name, "joint", "joints", row, place, kind)
        return text if kind == "double" else f"{text}\n  %{name}.now = load double, ptr %{name}"

    kinds = {_Pointer: "ptr", ctypes.c_double: "double", ctypes.c_int64: "i64"}

    own, *fields, another = (
        field(name, "arm", "self", "0", k, kinds[kind]) for k, (name, kind) in enumerate(_ARM)
    )
    # The input is written, and not read.
    drive = [number("moving", "%j", 1, "ptr"), field("input", "joint", "joints", "%j", 4, "ptr")]
    drive += [number(name, "%j", k, "ptr") for k, name in ((2, "passive"), (3, "length"))]
    drive += [number(name, "%j", k, "double") for k, name in enumerate(_NUMBERS, 5)]
    return _TEXT.format(
        joint=", ".join(kinds[kind] for _, kind in _JOINT),
        arm=", ".join(kinds[kind] for _, kind in _ARM),
        own=own,
        another=another,
        fields="\n".join(fields),
        seen="\n".join(
            number(name, "%i", k, "ptr") for k, name in enumerate(("position", "speed"))
        ),
        drive="\n".join(drive),
        real="float" if single else "double",
        # A bitcast to the same type does nothing.
        narrow="fptrunc" if single else "bitcast",
        widen="fpext" if single else "bitcast",
    )


class _Shared:
    """The callback itself, one for all arms of a precision."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._engine = assembled(_text(dtype))
        self.function = _CALLBACK(self._engine.get_function_address("control"))
        self.arm = _Pointer.from_address(self._engine.get_global_value_address("arm"))


@functools.cache
def _shared(dtype: np.dtype[Any]) -> _Shared:
    return _Shared(dtype)


class NativeControl:
    """An arm's control, called by MuJoCo.

    Args:
        control: of memory, positions and velocities: torques, and the memory after.
        aim: of memory, positions and what is asked for: the memory after.
        memory: like its memory, an array of whole words.
        asked: arrays like what is asked for.
        at: where `MjData` has the arm's joints.
        written: what their inputs are.
        dt: s, of the physics.

    Raises:
        BuildError: no kernel can compute it.
    """

    def __init__(
        self,
        control: Callable[..., Any],
        aim: Callable[..., Any],
        memory: NDArray[Any],
        asked: Sequence[NDArray[Any]],
        at: Any,
        written: Written,
        dt: float,
    ) -> None:
        real = np.zeros(len(at.qvel), np.dtype(jnp.result_type(float)))
        code, aiming = entry(control, (memory, real, real)), entry(aim, (memory, real, *asked))
        self._shared = _shared(real.dtype)
        self._at, self._written, self._engines = at, written, (code.engine, aiming.engine)
        (before, q, v), (torque, self._memory) = code.taken, code.results
        self._asked = aiming.taken[2:]
        # Aiming goes from the memory after the last control to the one before the next.
        self._arrays = (
            [before, q, v],
            [torque, self._memory],
            [self._memory, q, *self._asked],
            [before],
        )
        self._tables = [
            (_Pointer * len(arrays))(*(x.ctypes.data for x in arrays)) for arrays in self._arrays
        ]
        taken, given, asking, aimed = map(ctypes.addressof, self._tables)
        self._joints, self._aim = (_Joint * len(real))(), aiming.address
        self._arm = _Arm(
            least=0.75 * dt,
            count=len(real),
            joints=ctypes.addressof(self._joints),
            q=q.ctypes.data,
            v=v.ctypes.data,
            torque=torque.ctypes.data,
            taken=taken,
            given=given,
            before=before.ctypes.data,
            after=self._memory.ctypes.data,
            words=memory.nbytes // 4,
            function=code.address,
            asked=asking,
            aimed=aimed,
        )
        self._address = ctypes.addressof(self._arm)
        self._data: Any = None

    @property
    def callback(self) -> Any:
        """For `mujoco.set_mjcb_control`; controls the arms that have begun."""
        return self._shared.function

    def __call__(self, data: Any) -> None:
        """Write the inputs of the arm's actuators, at this moment of the physics."""
        self._shared.function(None, data._address)

    def is_callback(self, other: Any) -> bool:
        """Whether a callback of MuJoCo's is this one."""
        return isinstance(other, _FUNCTION) and _address(other) == _address(self.callback)

    @property
    def memory(self) -> NDArray[Any]:
        """What is remembered."""
        return self._memory.copy()

    @memory.setter
    def memory(self, memory: NDArray[Any]) -> None:
        self._memory[...] = memory

    def begin(self, data: Any, asked: Sequence[NDArray[Any]]) -> None:
        """From now on the callback controls the arm of this `MjData`, and this is asked for."""
        for array, given in zip(self._asked, asked, strict=True):
            array[...] = given
        if data is not self._data:
            self._find(data)
        arm, self._arm.aim = self._shared.arm, self._aim
        self._arm.another, arm.value = arm.value, self._address

    def end(self) -> None:
        """The callback controls the arm no more; of several the last that began ends first."""
        self._shared.arm.value = self._arm.another

    def _find(self, data: Any) -> None:
        """Let the joints' numbers be those of this `MjData`."""
        self._data = data
        at, written = self._at, self._written
        self._arm.own, self._arm.clock = data._address, data._address + _clock()

        def place(array: Numbers, index: Any) -> Any:
            return array.ctypes.data + array.itemsize * np.asarray(index, np.int64)

        speeds = place(data.qvel, at.qvel)
        # Without actuators there are no lengths, and any number will do.
        lengths = place(data.actuator_length, written.actuator) if data.ctrl.size else speeds
        columns = [
            place(data.qpos, at.qpos),
            speeds,
            place(data.qfrc_passive, at.qvel),
            lengths,
            place(getattr(data, written.field), written.places),
            *(getattr(written, name) for name in _NUMBERS),
        ]
        for joint, *row in zip(self._joints, *(x.tolist() for x in columns), strict=True):
            for (name, _), number in zip(_JOINT, row, strict=True):
                setattr(joint, name, number)


def called(callback: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """A callback of MuJoCo's for Python to call, with its model and its data."""
    if not isinstance(callback, _FUNCTION):
        return callback
    return lambda model, data: callback(model._address, data._address)


def _address(function: Any) -> int | None:
    return ctypes.cast(function, _Pointer).value


@functools.cache
def _clock() -> int:
    """Bytes from the beginning of a `mjData` to its time, which Python does not tell."""
    import mujoco

    data = mujoco.MjData(mujoco.MjModel.from_xml_string("<mujoco/>"))
    found, k = -1, 0
    while found < 0:
        there = ctypes.c_double.from_address(data._address + k)
        for time in (1.2345678e-9, -8.7654321e9):
            data.time = time
            if there.value != time:
                break
        else:
            found = k
        k += ctypes.sizeof(ctypes.c_double)
    return found
