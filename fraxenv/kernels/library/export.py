"""`export`: functions of small arrays as a library that any C program can call."""

from __future__ import annotations

import hashlib
import inspect
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..buffer import is_key
from ..errors import BuildError, KernelError, KernelWarning
from ..evaluator import PartialEvaluation, partially_evaluate
from ..executors import executor_for
from ..kernel import Kernel, kernel_for, nothing_collected
from ..native import mathlib, single
from ..traced import Traced, trace
from .check import write_check
from .header import write_header
from .linking import archive, link_shared
from .signature import Signature, Structures, is_identifier, signature

Kind = Literal["shared", "static", "object"]
KINDS = ("shared", "static", "object")

Arguments = Sequence[Any] | Mapping[str, Any]
"""Of a function, in its order, or by name."""

Names = str | Sequence[str]
"""Of all that a function returns, or of each part of a tuple."""


@dataclass(frozen=True)
class Library:
    """What was written, and for which processor.

    Attributes:
        library: the machine code.
        header: what C includes.
        test: the C program that tests it.
        version: what `NAME_version` says.
        target: the processor, one of `single.TARGETS`.
        functions: names in C.
    """

    library: Path
    header: Path
    test: Path
    version: str
    target: str
    functions: tuple[str, ...]


@dataclass(frozen=True)
class _Made:
    """A function on its way."""

    signature: Signature
    evaluation: PartialEvaluation
    given: list[Any]
    expected: list[Any]


def export(
    fn: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    example_args: Arguments | Mapping[str, Arguments],
    name: str,
    kind: Kind = "shared",
    *,
    target: str = "native",
    output: str | os.PathLike[str] = ".",
    results: Names | Mapping[str, Names] = (),
    units: Mapping[str, str] | None = None,
) -> Library:
    """Write functions as a library for C: machine code, a header, a program that tests it.

    A function needs no Python and no JAX, asks for no memory, takes no locks, and has no state of
    its own: what it remembers is a result that is an argument the next time. On the processor that
    it is for its results are the bits of the kernel that `fuse` makes of it.

    Every argument is an array in C, a number, or a structure of all arrays of a pytree, and so is
    every result, after the arguments. What has the same arrays shares a structure, and
    `STRUCTURE_EXAMPLE` has the values of `example_args` (of the first function that has it).

    Args:
        fn: a pure function of one environment's arrays, called `NAME` in C; or functions by name,
            called `NAME_key`, in one library.
        example_args: its arguments, for their shapes and dtypes and for the test; for several
            functions theirs by name.
        name: of the library, a name as C has it.
        kind: "shared", "static", or "object", which needs no compiler here.
        target: "native", this processor; or "x86-64-v3" (of 2013 and later), "x86-64-v4" (with
            AVX-512), "aarch64" (64-bit ARM), all for Linux.
        output: the folder, made if there is none.
        results: the name of what a function returns, or names of the parts of a tuple; for several
            functions theirs by name. By default a dict's keys, a named tuple's fields, numbers for
            a tuple's parts, and `result` for anything else.
        units: of arguments and results, by name, for the header.

    Returns:
        The files. They are written whole or not at all.

    Raises:
        KernelError: a name that C does not take; a dtype that C has not; a function that cannot be
            one kernel; no LLVM, or no compiler.
    """
    _check(name, kind, target)
    every = fn if isinstance(fn, Mapping) else {"": fn}
    given: Any = example_args if isinstance(fn, Mapping) else {"": example_args}
    named: Any = results if isinstance(results, Mapping) else dict.fromkeys(every, results)
    if not isinstance(given, Mapping) or given.keys() != every.keys():
        raise KernelError(
            f"export: example_args of {name} are not by name, expected those of {', '.join(every)}."
        )
    structures = Structures(name)
    made = [
        _make(f"{name}_{key}" if key else name, one, given[key], named.get(key, ()), units or {},
              structures)
        for key, one in every.items()
    ]  # fmt: skip
    machine = single.target_named(target)
    try:
        text = single.write_module([_function(m) for m in made], machine)
        digest = hashlib.sha256(f"{machine}\n{text}".encode()).hexdigest()[:16]
        version = f"fraxenv {version_of('fraxenv')}, {digest}"
        code = single.object_code(single.with_text(text, f"{name}_version", version), machine)
    except BuildError as error:
        raise KernelError(f"export: {name} cannot be made: {error}") from error
    signatures = [m.signature for m in made]
    header = write_header(name, version, target, signatures, structures.fields, _examples(made))
    check = write_check(name, [(m.signature, m.given, m.expected) for m in made])
    folder = Path(output)
    library = folder / _file_name(name, kind, machine.triple)
    texts = {folder / f"{name}.h": header, folder / f"{name}_test.c": check}
    _put(library, lambda path: _write(path, kind, target, code), texts)
    header_file, test_file = texts
    functions = tuple(s.name for s in signatures)
    return Library(library, header_file, test_file, version, target, functions)


def _put(library: Path, write: Callable[[Path], None], texts: Mapping[Path, str]) -> None:
    """Write all files of a library, or none."""
    folder = library.parent
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=f".{library.stem}-") as beside:
        write(Path(beside) / library.name)
        for path, text in texts.items():
            (Path(beside) / path.name).write_text(text)
        for path in (library, *texts):
            os.replace(Path(beside) / path.name, path)


def _check(name: str, kind: str, target: str) -> None:
    if not is_identifier(name):
        raise KernelError(
            f"export: name={name!r}, expected a name as C has it: letters, digits and underscores."
        )
    for what, value, known in (("kind", kind, KINDS), ("target", target, single.TARGETS)):
        if value not in known:
            raise KernelError(f"export: {what}={value!r}, expected one of {', '.join(known)}.")
    if executor_for("cpu") != "native":
        raise KernelError(
            "export needs LLVM, which is not there or does not work here; see the warning before. "
            "pip install 'fraxenv[native]'"
        )


def _make(
    name: str,
    fn: Callable[..., Any],
    given: Arguments,
    results: Names,
    units: Mapping[str, str],
    structures: Structures,
) -> _Made:
    """A function's signature and program, and what the kernel makes of its arguments."""
    if not is_identifier(name):
        raise KernelError(f"export: {name!r} is no name of a function in C.")
    bound = _bound(name, fn, given)
    arguments = {key: jax.tree.map(_array, x) for key, x in bound.arguments.items()}

    def called(*values: Any) -> Any:
        bound.arguments = dict(zip(arguments, values, strict=True))
        return fn(*bound.args, **bound.kwargs)

    called.__name__ = name
    values = tuple(arguments.values())
    returned = _named(name, jax.eval_shape(called, *values), results)
    about = (inspect.getdoc(fn) or "").partition("\n\n")[0]
    made = signature(name, about, arguments, returned, units, structures)
    with nothing_collected():
        traced, operands = trace(called, values, {})
    kernel, evaluation = _kernel(name, traced, len(operands))
    expected = [_bits(x[0]) for x in kernel(1, *(x[None] for x in operands))]
    return _Made(made, evaluation, [_bits(x) for x in operands], expected)


def _kernel(name: str, traced: Traced, operands: int) -> tuple[Kernel, PartialEvaluation]:
    """The kernel of a function, all of it, and its program."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", KernelWarning)
        kernel = kernel_for(traced, (True,) * operands, "native", "cpu")
        evaluation = kernel.evaluation
    if evaluation is None:
        raise KernelError(f"export: {name} is too much for one kernel: {said[-1].message}")
    for fallback in evaluation.fallbacks:
        raise KernelError(
            f"export: {name} has {fallback.equation.primitive.name!r} in it, which no kernel has: "
            f"{fallback.reason}. Write it without."
        )
    flags = (True,) * operands
    return kernel, partially_evaluate(
        traced, flags, "cpu", mathlib.expand, whole=("product", "matmul"), alone=True
    )


def _bound(name: str, fn: Callable[..., Any], given: Arguments) -> inspect.BoundArguments:
    """A function's arguments, by name."""
    try:
        how = inspect.signature(fn)
        bound = how.bind(**given) if isinstance(given, Mapping) else how.bind(*given)
    except TypeError as error:
        raise KernelError(f"export: {name} does not take example_args: {error}.") from error
    if not jax.tree.leaves(bound.arguments):
        raise KernelError(f"export: {name} has no arguments, expected an array at least.")
    return bound


def _array(x: Any) -> Array:
    """An argument as an array, whose dtype is not for others to choose."""
    return x if is_key(x) else jnp.asarray(x, jnp.result_type(x))


def _named(name: str, returned: Any, names: Names) -> dict[str, Any]:
    """What a function returns, by name, in the order of JAX's leaves."""
    if isinstance(names, str):
        return {names: returned}
    several = isinstance(returned, tuple | list)
    if names:
        if not several or len(names) != len(returned):
            many = f"{len(returned)} names" if several else "one name, as a string"
            raise KernelError(
                f"export: results={list(names)} of {name}, expected {many}: as many as it returns."
            )
        return dict(zip(names, returned, strict=True))
    if isinstance(returned, dict):
        return {str(key): returned[key] for key in sorted(returned)}
    if hasattr(returned, "_fields"):
        return dict(returned._asdict())
    if several:
        return {f"result_{k}": x for k, x in enumerate(returned, start=1)}
    return {"result": returned}


def _bits(x: Any) -> Any:
    """An array on the host; of a random key its bits."""
    return np.asarray(jax.random.key_data(x) if is_key(x) else x)


def _function(made: _Made) -> single.Function:
    e = made.evaluation
    dtypes = [r.dtype for r in e.results]
    return single.Function(f"{made.signature.name}_", e.program, e.buffers, e.outputs, dtypes)


def _examples(made: Sequence[_Made]) -> dict[str, list[Any]]:
    """The values of the arrays of each structure that is an argument, by its name."""
    found: dict[str, list[Any]] = {}
    for m in made:
        values = iter(m.given)
        for p in m.signature.arguments:
            own = [next(values) for _ in p.fields]
            if p.struct:
                found.setdefault(p.struct, own)
    return found


def _file_name(name: str, kind: str, triple: str) -> str:
    if kind == "object":
        return f"{name}.o"
    if kind == "static":
        return f"lib{name}.a"
    return f"lib{name}.dylib" if "darwin" in triple or "macos" in triple else f"lib{name}.so"


def _write(library: Path, kind: str, target: str, code: bytes) -> None:
    """Write the machine code."""
    if kind == "object":
        library.write_bytes(code)
        return
    source = library.with_suffix(".o")
    source.write_bytes(code)
    if kind == "static":
        archive(source, library)
    else:
        link_shared(source, library, target)
