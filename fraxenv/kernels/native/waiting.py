"""Kernels that XLA knows before their machine code is made.

XLA asks for a kernel's handler when it compiles what calls it. Until LLVM has made the code, the
handler is one that waits for it. So kernels are compiled side by side, while Python goes on with
the next ones and XLA with what is around them. Nobody has to wait in a call: once XLA has compiled
a program, JAX says so, and is held up until all codes are made.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

import jax
import jax.monitoring

from . import cpu, ffi
from .cores import beside

_PAUSE = 1000 if os.name == "posix" else 1
"""Until a waiting thread looks again, in the units of `ffi.REST`: a millisecond."""

_COMPILED = "/jax/core/compile/backend_compile_duration"
"""What JAX records when XLA has compiled a program."""

_under_way: set[Future[Any]] = set()
_messages: list[Any] = []


def register(name: str, code: Callable[[], bytes]) -> None:
    """Hand XLA a kernel, and make its machine code in another thread.

    What goes wrong is an error of whoever calls the kernel.

    Args:
        name: of the kernel.
        code: makes the machine code, with the handler `ffi.TARGET` in it.
    """
    engine = cpu.register(name, _waiting_handler())
    made, failed = (
        ctypes.c_void_p.from_address(engine.get_global_value_address(symbol))
        for symbol in ("made", "failed")
    )

    def make() -> None:
        try:
            made.value = cpu.entry(code())
        except BaseException as error:  # whoever waits is to know
            text = f"LLVM could not compile a fused kernel: {error}. Pass backend='vmap'."
            message = ctypes.create_string_buffer(text.encode())
            _messages.append(message)
            failed.value = ctypes.addressof(message)

    _hold_up_programs()
    code_made = beside(make)
    _under_way.add(code_made)
    code_made.add_done_callback(_under_way.discard)


@functools.cache
def _hold_up_programs() -> None:
    def hold_up(event: str, duration_secs: float, **_: str | int) -> None:
        if event == _COMPILED:
            wait(_under_way.copy())

    jax.monitoring.register_event_duration_secs_listener(hold_up)


if hasattr(os, "register_at_fork"):  # what a forked process's parent makes is not its own
    os.register_at_fork(after_in_child=_under_way.clear)


@functools.cache
def _waiting_handler() -> bytes:
    text = _TEMPLATE.replace("<<METADATA>>", ffi.METADATA.replace("<<TRAITS>>", "0"))
    for key, value in {"TARGET": ffi.TARGET, "REST": ffi.REST, "PAUSE": _PAUSE}.items():
        text = text.replace(f"<<{key}>>", str(value))
    return cpu.machine_code(ffi.with_version(text, ffi.version()))


_TEMPLATE = """
@made = global ptr null
@failed = global ptr null
declare void @<<REST>>(i32)

define ptr @<<TARGET>>(ptr %frame) {
entry:
  %create = alloca [4 x i64]
<<METADATA>>execute:
  br label %look
look:
  %code = load atomic ptr, ptr @made acquire, align 8
  %there = icmp ne ptr %code, null
  br i1 %there, label %call, label %ask
call:
  %result = call ptr %code(ptr %frame)
  ret ptr %result
ask:
  %message = load atomic ptr, ptr @failed acquire, align 8
  %hopeless = icmp ne ptr %message, null
  br i1 %hopeless, label %tell, label %wait
wait:
  call void @<<REST>>(i32 <<PAUSE>>)
  br label %look
tell:
  %api.p = getelementptr i8, ptr %frame, i64 16
  %api = load ptr, ptr %api.p
  %create.p = getelementptr i8, ptr %api, i64 48
  %create.f = load ptr, ptr %create.p
  %c1 = getelementptr i64, ptr %create, i64 1
  %c2 = getelementptr i64, ptr %create, i64 2
  %c3 = getelementptr i64, ptr %create, i64 3
  store i64 32, ptr %create
  store ptr null, ptr %c1
  store ptr %message, ptr %c2
  store i64 13, ptr %c3
  %error = call ptr %create.f(ptr %create)
  ret ptr %error
}
"""
