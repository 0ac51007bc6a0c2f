"""The handler of XLA's FFI around every native kernel, as LLVM IR.

It follows XLA's FFI ABI, version 0.x (xla/ffi/api/c_api.h): structures are laid out for 64-bit
machines. The thread that XLA calls in takes part in the work and waits only for pieces that another
thread has already begun, so that a kernel never waits for a thread that is not there.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path

import jax

from ..errors import BuildError
from .builder import aligned
from .workspace import ON_STACK

THREADS = "fraxenv_threads"
"""Symbol of the number (i32) of threads to use."""

YIELD = "fraxenv_yield"
"""Symbol of the function that gives the processor to another thread."""

REST = "fraxenv_rest"
"""Symbol of the function that lets a thread sleep: the C library's, or that of Windows."""

TARGET = "fraxenv_kernel"
"""Symbol of the FFI handler."""


def write_handler(
    width: int, inputs: Sequence[int], outputs: Sequence[int], grain: int, work: int = 0
) -> tuple[str, int]:
    """The handler, `fraxenv_kernel`, which calls `vectors(in, out, row, count)` for all the rows.

    With a workspace it is `vectors(in, out, row, count, work)`. The second result is the bytes that
    the rows of a batch's ragged end take of each thread's memory, if they are not on the stack.

    Args:
        width: rows of a vector.
        inputs: bytes of a row of each input; 0 for one that all rows share.
        outputs: bytes of a row of each output.
        grain: rows in the smallest piece of work for a thread, a multiple of `width`.
        work: bytes of the workspace of `vectors`.
    """
    n, m = max(1, len(inputs)), max(1, len(outputs))
    scratch, fill, back = [], [], []
    spare = sum(aligned(width * size) for size in (*inputs, *outputs))
    if spare <= ON_STACK:
        spare = 0
    end = aligned(work)

    def room(name: str, size: int) -> str:
        """Rows for a vector."""
        nonlocal end
        if not spare:
            return f"  %{name} = alloca [{width * size} x i8], align 64"
        end += aligned(width * size)
        return f"  %{name} = getelementptr i8, ptr %memory, i64 {end - aligned(width * size)}"

    for k, size in enumerate(inputs):
        fill.append(f"""
  %ip{k} = getelementptr ptr, ptr %in, i64 {k}
  %id{k} = load ptr, ptr %ip{k}
  %sp{k} = getelementptr ptr, ptr %sin, i64 {k}""")
        if size == 0:
            fill.append(f"  store ptr %id{k}, ptr %sp{k}")
            continue
        scratch.append(room(f"is{k}", size))
        fill.append(f"""  store ptr %is{k}, ptr %sp{k}
  call void @repeat(ptr %is{k}, ptr %id{k}, i64 %row, i64 %last, i64 {size})""")
    for k, size in enumerate(outputs):
        scratch.append(room(f"os{k}", size))
        fill.append(f"""
  %op{k} = getelementptr ptr, ptr %sout, i64 {k}
  store ptr %os{k}, ptr %op{k}""")
        back.append(f"""
  %dp{k} = getelementptr ptr, ptr %out, i64 {k}
  %dd{k} = load ptr, ptr %dp{k}
  %do{k} = mul i64 %row, {size}
  %dt{k} = getelementptr i8, ptr %dd{k}, i64 %do{k}
  %db{k} = mul i64 %count, {size}
  call void @llvm.memcpy.p0.p0.i64(ptr %dt{k}, ptr %os{k}, i64 %db{k}, i1 false)""")
    read = []
    for k in range(len(inputs)):
        read.append(_pointer("a", k, "%args", "%in"))
    for k in range(len(outputs)):
        read.append(_pointer("r", k, "%rets", "%out"))
    text = _TEMPLATE.replace("<<METADATA>>", METADATA.replace("<<TRAITS>>", "0"))
    for name, part in _with_memory(end, bool(work)).items():
        text = text.replace(f"<<{name}>>", part)
    for name, value in {
        "WIDTH": width, "GRAIN": grain, "INPUTS": n, "OUTPUTS": m,
        "SCRATCH": "\n".join(scratch), "FILL": "\n".join(fill), "BACK": "\n".join(back),
        "READ": "\n".join(read), "THREADS": THREADS, "YIELD": YIELD, "TARGET": TARGET,
    }.items():  # fmt: skip
        text = text.replace(f"<<{name}>>", str(value))
    return text, spare


def _with_memory(size: int, work: bool) -> dict[str, str]:
    """What the template has for so many bytes of memory for each thread, behind the job."""
    if not size:
        return dict.fromkeys(
            ("MESSAGE", "PASSED", "WORK", "MINE"), ""
        ) | {"JOB": "  %job = call ptr @malloc(i64 64)", "ASKING": "plan"}  # fmt: skip
    message = (
        f"a fused kernel found no memory: it needs {size / 2**20:.1f} MiB for each thread. Use "
        "fewer threads (FRAXENV_THREADS), fuse a smaller function, or pass backend='vmap'."
    )
    return {
        "MESSAGE": f"""
@message = private constant [{len(message) + 1} x i8] c"{message}\\00"
""",
        "ASKING": "begin",
        "PASSED": ", ptr %memory",
        "WORK": ", ptr %memory" if work else "",
        # Each thread takes the next part.
        "MINE": f"""
  %m.taken.p = getelementptr i8, ptr %job, i64 64
  %m.taken = atomicrmw add ptr %m.taken.p, i64 1 seq_cst
  %m.number = ptrtoint ptr %job to i64
  %m.beyond = add i64 %m.number, {64 + 16 + 63}
  %m.first = and i64 %m.beyond, -64
  %m.offset = mul i64 %m.taken, {size}
  %m.place = add i64 %m.first, %m.offset
  %memory = inttoptr i64 %m.place to ptr""",
        "JOB": f"""  %memory = mul i64 %references, {size}
  %bytes = add i64 %memory, {64 + 16 + 64}
  %job = call ptr @malloc(i64 %bytes)
  %nothing = icmp eq ptr %job, null
  br i1 %nothing, label %poor, label %begin
poor:
  %create.a = getelementptr i8, ptr %frame, i64 16
  %create.p = load ptr, ptr %create.a
  %create.f = getelementptr i8, ptr %create.p, i64 48
  %create.c = load ptr, ptr %create.f
  %c1 = getelementptr i64, ptr %schedule, i64 1
  %c2 = getelementptr i64, ptr %schedule, i64 2
  %c3 = getelementptr i64, ptr %schedule, i64 3
  store i64 32, ptr %schedule
  store ptr null, ptr %c1
  store ptr @message, ptr %c2
  store i64 8, ptr %c3
  %why = call ptr %create.c(ptr %schedule)
  ret ptr %why
begin:
  %counted = getelementptr i8, ptr %job, i64 64
  store i64 0, ptr %counted""",
    }


def _pointer(stem: str, k: int, array: str, target: str) -> str:
    return f"""
  %{stem}p{k} = getelementptr ptr, ptr {array}, i64 {k}
  %{stem}b{k} = load ptr, ptr %{stem}p{k}
  %{stem}f{k} = getelementptr i8, ptr %{stem}b{k}, i64 24
  %{stem}d{k} = load ptr, ptr %{stem}f{k}
  %{stem}t{k} = getelementptr ptr, ptr {target}, i64 {k}
  store ptr %{stem}d{k}, ptr %{stem}t{k}"""


METADATA = """\
  %extension.p = getelementptr i8, ptr %frame, i64 8
  %extension = load ptr, ptr %extension.p
  %none = icmp eq ptr %extension, null
  br i1 %none, label %execute, label %extended
extended:
  %type.p = getelementptr i8, ptr %extension, i64 8
  %type = load i32, ptr %type.p
  %asked = icmp eq i32 %type, 1
  br i1 %asked, label %metadata, label %execute
metadata:
  %metadata.p = getelementptr i8, ptr %extension, i64 24
  %metadata.v = load ptr, ptr %metadata.p
  %major = getelementptr i8, ptr %metadata.v, i64 24
  %minor = getelementptr i8, ptr %metadata.v, i64 28
  %traits = getelementptr i8, ptr %metadata.v, i64 32
  store i32 <<MAJOR>>, ptr %major
  store i32 <<MINOR>>, ptr %minor
  store i32 <<TRAITS>>, ptr %traits
  ret ptr null
"""
"""The beginning of a handler: what XLA asks for when it is registered."""

# A job: next piece, pieces done, references, rows, rows per piece, pieces, inputs, outputs.
_TEMPLATE = """
<<MESSAGE>>%Job = type { i64, i64, i64, i64, i64, i64, ptr, ptr }
@<<THREADS>> = external global i32
declare void @<<YIELD>>()
declare ptr @malloc(i64)
declare void @free(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @repeat(ptr %to, ptr %from, i64 %row, i64 %last, i64 %size) {
entry:
  br label %next
next:
  %lane = phi i64 [ 0, %entry ], [ %following, %next ]
  %own = add i64 %row, %lane
  %within = icmp slt i64 %own, %last
  %source = select i1 %within, i64 %own, i64 %last
  %a = mul i64 %source, %size
  %b = mul i64 %lane, %size
  %src = getelementptr i8, ptr %from, i64 %a
  %dst = getelementptr i8, ptr %to, i64 %b
  call void @llvm.memcpy.p0.p0.i64(ptr %dst, ptr %src, i64 %size, i1 false)
  %following = add i64 %lane, 1
  %more = icmp slt i64 %following, <<WIDTH>>
  br i1 %more, label %next, label %done
done:
  ret void
}

define internal void @ragged(ptr %in, ptr %out, i64 %row, i64 %total<<PASSED>>) noinline {
  %sin = alloca [<<INPUTS>> x ptr]
  %sout = alloca [<<OUTPUTS>> x ptr]
<<SCRATCH>>
  %count = sub i64 %total, %row
  %last = sub i64 %total, 1
<<FILL>>
  call void @vectors(ptr %sin, ptr %sout, i64 0, i64 1<<WORK>>)
<<BACK>>
  ret void
}

define internal void @rows(ptr %in, ptr %out, i64 %begin, i64 %end, i64 %total<<PASSED>>) {
  %range = sub i64 %end, %begin
  %count = sdiv i64 %range, <<WIDTH>>
  call void @vectors(ptr %in, ptr %out, i64 %begin, i64 %count<<WORK>>)
  %whole = mul i64 %count, <<WIDTH>>
  %row = add i64 %begin, %whole
  %more = icmp slt i64 %row, %end
  br i1 %more, label %rest, label %done
rest:
  call void @ragged(ptr %in, ptr %out, i64 %row, i64 %total<<PASSED>>)
  br label %done
done:
  ret void
}

define internal void @work(ptr %job) {
entry:
  %next = getelementptr %Job, ptr %job, i32 0, i32 0
  %finished = getelementptr %Job, ptr %job, i32 0, i32 1
  %total.p = getelementptr %Job, ptr %job, i32 0, i32 3
  %grain.p = getelementptr %Job, ptr %job, i32 0, i32 4
  %pieces.p = getelementptr %Job, ptr %job, i32 0, i32 5
  %in.p = getelementptr %Job, ptr %job, i32 0, i32 6
  %out.p = getelementptr %Job, ptr %job, i32 0, i32 7
  %total = load i64, ptr %total.p
  %grain = load i64, ptr %grain.p
  %pieces = load i64, ptr %pieces.p
  %in = load ptr, ptr %in.p
  %out = load ptr, ptr %out.p<<MINE>>
  br label %take
take:
  %piece = atomicrmw add ptr %next, i64 1 seq_cst
  %some = icmp slt i64 %piece, %pieces
  br i1 %some, label %run, label %done
run:
  %begin = mul i64 %piece, %grain
  %beyond = add i64 %begin, %grain
  %short = icmp slt i64 %beyond, %total
  %end = select i1 %short, i64 %beyond, i64 %total
  call void @rows(ptr %in, ptr %out, i64 %begin, i64 %end, i64 %total<<PASSED>>)
  %before = atomicrmw add ptr %finished, i64 1 seq_cst
  br label %take
done:
  ret void
}

define internal void @release(ptr %job) {
  %refs = getelementptr %Job, ptr %job, i32 0, i32 2
  %before = atomicrmw sub ptr %refs, i64 1 seq_cst
  %last = icmp eq i64 %before, 1
  br i1 %last, label %drop, label %keep
drop:
  call void @free(ptr %job)
  ret void
keep:
  ret void
}

define internal void @task(ptr %job) {
  call void @work(ptr %job)
  call void @release(ptr %job)
  ret void
}

define ptr @<<TARGET>>(ptr %frame) {
entry:
  %schedule = alloca [5 x i64]
  %destroy = alloca [3 x i64]
  %in = alloca [<<INPUTS>> x ptr]
  %out = alloca [<<OUTPUTS>> x ptr]
<<METADATA>>execute:
  %args.p = getelementptr i8, ptr %frame, i64 72
  %rets.p = getelementptr i8, ptr %frame, i64 112
  %args = load ptr, ptr %args.p
  %rets = load ptr, ptr %rets.p
<<READ>>
  %first = load ptr, ptr %rets
  %dims.p = getelementptr i8, ptr %first, i64 40
  %dims = load ptr, ptr %dims.p
  %total = load i64, ptr %dims
  %some = icmp sgt i64 %total, 0
  br i1 %some, label %plan, label %empty
empty:
  ret ptr null
plan:
  %wanted = load i32, ptr @<<THREADS>>
  %threads = sext i32 %wanted to i64
  ; Pieces large enough to be worth a thread, and several for each, so that none waits long.
  %share = mul i64 %threads, 4
  %up = add i64 %total, %share
  %up1 = sub i64 %up, 1
  %each = sdiv i64 %up1, %share
  %each.up = add i64 %each, <<WIDTH>>
  %each.up1 = sub i64 %each.up, 1
  %vectors = sdiv i64 %each.up1, <<WIDTH>>
  %even = mul i64 %vectors, <<WIDTH>>
  %large = icmp sgt i64 %even, <<GRAIN>>
  %chosen = select i1 %large, i64 %even, i64 <<GRAIN>>
  %single = icmp sle i64 %threads, 1
  %grain = select i1 %single, i64 %total, i64 %chosen
  %round = add i64 %total, %grain
  %round1 = sub i64 %round, 1
  %pieces = sdiv i64 %round1, %grain
  %spare = sub i64 %pieces, 1
  %others = sub i64 %threads, 1
  %few = icmp slt i64 %spare, %others
  %capped = select i1 %few, i64 %spare, i64 %others
  %positive = icmp sgt i64 %capped, 0
  %helpers = select i1 %positive, i64 %capped, i64 0
  %references = add i64 %helpers, 1
<<JOB>>
  %next = getelementptr %Job, ptr %job, i32 0, i32 0
  %finished = getelementptr %Job, ptr %job, i32 0, i32 1
  %refs = getelementptr %Job, ptr %job, i32 0, i32 2
  %total.p = getelementptr %Job, ptr %job, i32 0, i32 3
  %grain.p = getelementptr %Job, ptr %job, i32 0, i32 4
  %pieces.p = getelementptr %Job, ptr %job, i32 0, i32 5
  %in.p = getelementptr %Job, ptr %job, i32 0, i32 6
  %out.p = getelementptr %Job, ptr %job, i32 0, i32 7
  store i64 0, ptr %next
  store i64 0, ptr %finished
  store i64 %references, ptr %refs
  store i64 %total, ptr %total.p
  store i64 %grain, ptr %grain.p
  store i64 %pieces, ptr %pieces.p
  store ptr %in, ptr %in.p
  store ptr %out, ptr %out.p
  %api.p = getelementptr i8, ptr %frame, i64 16
  %api = load ptr, ptr %api.p
  %context.p = getelementptr i8, ptr %frame, i64 24
  %context = load ptr, ptr %context.p
  %schedule.f = getelementptr i8, ptr %api, i64 136
  %schedule.c = load ptr, ptr %schedule.f
  %destroy.f = getelementptr i8, ptr %api, i64 64
  %destroy.c = load ptr, ptr %destroy.f
  br label %ask
ask:
  %helper = phi i64 [ 0, %<<ASKING>> ], [ %helper1, %asked.next ]
  %again = icmp slt i64 %helper, %helpers
  br i1 %again, label %one, label %own
one:
  %s1 = getelementptr i64, ptr %schedule, i64 1
  %s2 = getelementptr i64, ptr %schedule, i64 2
  %s3 = getelementptr i64, ptr %schedule, i64 3
  %s4 = getelementptr i64, ptr %schedule, i64 4
  store i64 40, ptr %schedule
  store ptr null, ptr %s1
  store ptr %context, ptr %s2
  store ptr @task, ptr %s3
  store ptr %job, ptr %s4
  %error = call ptr %schedule.c(ptr %schedule)
  %good = icmp eq ptr %error, null
  br i1 %good, label %asked.next, label %refused
refused:
  ; There is no pool: this thread does it all.
  %d1 = getelementptr i64, ptr %destroy, i64 1
  %d2 = getelementptr i64, ptr %destroy, i64 2
  store i64 24, ptr %destroy
  store ptr null, ptr %d1
  store ptr %error, ptr %d2
  call void %destroy.c(ptr %destroy)
  call void @release(ptr %job)
  br label %asked.next
asked.next:
  %helper1 = add i64 %helper, 1
  br label %ask
own:
  call void @work(ptr %job)
  br label %wait
wait:
  %complete = load atomic i64, ptr %finished seq_cst, align 8
  %all = icmp sge i64 %complete, %pieces
  br i1 %all, label %end, label %yield
yield:
  call void @<<YIELD>>()
  br label %wait
end:
  call void @release(ptr %job)
  ret ptr null
}
"""


def with_version(text: str, version: tuple[int, int]) -> str:
    """The text with the version of XLA's FFI filled in."""
    major, minor = version
    return text.replace("<<MAJOR>>", str(major)).replace("<<MINOR>>", str(minor))


@functools.cache
def version() -> tuple[int, int]:
    """Version of XLA's FFI that the installed jaxlib was built with."""
    header = Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h"
    found = re.findall(r"#define XLA_FFI_API_(?:MAJOR|MINOR) (\d+)", header.read_text())
    major, minor = (int(x) for x in found)
    if major != 0:
        raise BuildError(f"XLA's FFI is of version {major}.{minor}, this was built for 0.x")
    return major, minor
