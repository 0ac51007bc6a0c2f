"""Machine code for 64-bit ARM, run by QEMU's emulator (the package `unicorn`)."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

_STACK, _DATA, _SIZE, _END = 0x7000_0000, 0x6000_0000, 0x0100_0000, 0x5000_0000
_LOAD = 1


def link(object_file: Path, entry: str) -> bytes:
    """A program of an object file and the C library's mathematics, at fixed addresses."""
    program, main = object_file.with_suffix(".elf"), object_file.with_suffix(".main.c")
    main.write_text(
        f"void {entry}(void *, void *);\nint main(void) {{ {entry}(0, 0); return 0; }}\n"
    )
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-static"]
    files = ["-o", str(program), str(main), str(object_file)]
    subprocess.run([*zig, *files, f"-Wl,-e,{entry}", "-lm"], check=True)
    return program.read_bytes()


def call(
    program: bytes, given: Sequence[np.ndarray[Any, Any]], shaped: Sequence[np.ndarray[Any, Any]]
) -> list[np.ndarray[Any, Any]]:
    """The results, shaped as the arrays are, of the program's entry for these arguments."""
    from unicorn import UC_ARCH_ARM64, UC_MODE_ARM, Uc
    from unicorn.arm64_const import (
        UC_ARM64_REG_LR,
        UC_ARM64_REG_SP,
        UC_ARM64_REG_X0,
        UC_ARM64_REG_X1,
    )

    machine = Uc(UC_ARCH_ARM64, UC_MODE_ARM)
    entry, offset = struct.unpack_from("<QQ", program, 24)
    size, count = struct.unpack_from("<HH", program, 54)
    for k in range(count):
        kind, _, at, address, _, held, room, _ = struct.unpack_from(
            "<IIQQQQQQ", program, offset + k * size
        )
        if kind == _LOAD:
            first, end = address & ~0xFFF, (address + room + 0xFFF) & ~0xFFF
            machine.mem_map(first, end - first)
            machine.mem_write(address, program[at : at + held])
    for start in (_STACK, _DATA, _END):
        machine.mem_map(start, _SIZE)
    place = _DATA + 0x10000

    def pointers(table: int, arrays: Sequence[np.ndarray[Any, Any]]) -> list[int]:
        nonlocal place
        places = []
        for array in arrays:
            places.append(place)
            machine.mem_write(place, array.tobytes())
            place += (array.nbytes + 63) & ~63
        machine.mem_write(table, struct.pack(f"<{len(places)}Q", *places))
        return places

    pointers(_DATA, given)
    found = pointers(_DATA + 0x8000, shaped)
    machine.reg_write(UC_ARM64_REG_X0, _DATA)
    machine.reg_write(UC_ARM64_REG_X1, _DATA + 0x8000)
    machine.reg_write(UC_ARM64_REG_SP, _STACK + _SIZE - 64)
    machine.reg_write(UC_ARM64_REG_LR, _END)
    machine.emu_start(entry, _END)
    return [
        np.frombuffer(bytes(machine.mem_read(at, a.nbytes)), a.dtype).reshape(a.shape)
        for at, a in zip(found, shaped, strict=True)
    ]
