"""The handler of XLA's FFI that launches a GPU's kernel, as LLVM IR for the CPU.

It puts the kernel on the stream that XLA computes on and returns at once. So XLA may record it as
part of a graph. What `ffi` says of the layout of structures holds here too.
"""

from __future__ import annotations

from .ffi import METADATA, TARGET


def write_handler(kernel: int, launch: int, describe: int, block: int) -> str:
    """The handler, `fraxenv_kernel`, which runs `kernel(in, out, total)`, a thread for each row.

    Args:
        kernel: the kernel, as CUDA's driver knows it.
        launch: address of the driver's `cuLaunchKernel`.
        describe: address of its `cuGetErrorString`.
        block: threads of a block.
    """
    text = _TEMPLATE.replace("<<METADATA>>", METADATA.replace("<<TRAITS>>", str(_RECORDABLE)))
    for name, value in {
        "KERNEL": kernel, "LAUNCH": launch, "DESCRIBE": describe, "BLOCK": block,
        "TARGET": TARGET,
    }.items():  # fmt: skip
        text = text.replace(f"<<{name}>>", str(value))
    return text


_RECORDABLE = 1
"""XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE."""

_TEMPLATE = """
define internal void @gather(ptr %to, ptr %from, i64 %count) {
entry:
  br label %check
check:
  %k = phi i64 [ 0, %entry ], [ %k1, %one ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %one, label %end
one:
  %buffer.p = getelementptr ptr, ptr %from, i64 %k
  %buffer = load ptr, ptr %buffer.p
  %data.p = getelementptr i8, ptr %buffer, i64 24
  %data = load ptr, ptr %data.p
  %place = getelementptr ptr, ptr %to, i64 %k
  store ptr %data, ptr %place
  %k1 = add i64 %k, 1
  br label %check
end:
  ret void
}

define ptr @<<TARGET>>(ptr %frame) {
entry:
  %asked.s = alloca [4 x i64]
  %failed.s = alloca [4 x i64]
  %total.m = alloca i64
  %why.m = alloca ptr
  %parameters = alloca [3 x ptr]
<<METADATA>>execute:
  %n.p = getelementptr i8, ptr %frame, i64 56
  %args.p = getelementptr i8, ptr %frame, i64 72
  %m.p = getelementptr i8, ptr %frame, i64 96
  %rets.p = getelementptr i8, ptr %frame, i64 112
  %n = load i64, ptr %n.p
  %args = load ptr, ptr %args.p
  %m = load i64, ptr %m.p
  %rets = load ptr, ptr %rets.p
  %first = load ptr, ptr %rets
  %dims.p = getelementptr i8, ptr %first, i64 40
  %dims = load ptr, ptr %dims.p
  %total = load i64, ptr %dims
  %some = icmp sgt i64 %total, 0
  br i1 %some, label %plan, label %empty
empty:
  ret ptr null
plan:
  %in = alloca ptr, i64 %n
  %out = alloca ptr, i64 %m
  call void @gather(ptr %in, ptr %args, i64 %n)
  call void @gather(ptr %out, ptr %rets, i64 %m)
  %api.p = getelementptr i8, ptr %frame, i64 16
  %api = load ptr, ptr %api.p
  %context.p = getelementptr i8, ptr %frame, i64 24
  %context = load ptr, ptr %context.p
  %stream.f = getelementptr i8, ptr %api, i64 80
  %stream.c = load ptr, ptr %stream.f
  %s1 = getelementptr i64, ptr %asked.s, i64 1
  %s2 = getelementptr i64, ptr %asked.s, i64 2
  %s3 = getelementptr i64, ptr %asked.s, i64 3
  store i64 32, ptr %asked.s
  store ptr null, ptr %s1
  store ptr %context, ptr %s2
  store ptr null, ptr %s3
  %error = call ptr %stream.c(ptr %asked.s)
  %good = icmp eq ptr %error, null
  br i1 %good, label %go, label %refused
refused:
  ret ptr %error
go:
  %stream = load ptr, ptr %s3
  store i64 %total, ptr %total.m
  %p1 = getelementptr ptr, ptr %parameters, i64 1
  %p2 = getelementptr ptr, ptr %parameters, i64 2
  store ptr %in, ptr %parameters
  store ptr %out, ptr %p1
  store ptr %total.m, ptr %p2
  %up = add i64 %total, <<BLOCK>>
  %up1 = sub i64 %up, 1
  %blocks = udiv i64 %up1, <<BLOCK>>
  %grid = trunc i64 %blocks to i32
  %kernel = inttoptr i64 <<KERNEL>> to ptr
  %launch = inttoptr i64 <<LAUNCH>> to ptr
  %code = call i32 %launch(ptr %kernel, i32 %grid, i32 1, i32 1, i32 <<BLOCK>>, i32 1, i32 1, i32 0,
                           ptr %stream, ptr %parameters, ptr null)
  %launched = icmp eq i32 %code, 0
  br i1 %launched, label %empty, label %failed
failed:
  %describe = inttoptr i64 <<DESCRIBE>> to ptr
  store ptr null, ptr %why.m
  %described = call i32 %describe(i32 %code, ptr %why.m)
  %why = load ptr, ptr %why.m
  %create.f = getelementptr i8, ptr %api, i64 48
  %create.c = load ptr, ptr %create.f
  %f1 = getelementptr i64, ptr %failed.s, i64 1
  %f2 = getelementptr i64, ptr %failed.s, i64 2
  %f3 = getelementptr i64, ptr %failed.s, i64 3
  store i64 32, ptr %failed.s
  store ptr null, ptr %f1
  store ptr %why, ptr %f2
  store i64 13, ptr %f3
  %told = call ptr %create.c(ptr %failed.s)
  ret ptr %told
}
"""
