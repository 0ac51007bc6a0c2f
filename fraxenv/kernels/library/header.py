"""The header of a library: structures, functions, their shapes and units."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .signature import Field, Parameter, Signature


def write_header(
    library: str,
    version: str,
    target: str,
    signatures: Sequence[Signature],
    structures: Mapping[str, tuple[Field, ...]],
    examples: Mapping[str, Sequence[Any]],
) -> str:
    """The text of the header.

    Args:
        library: its name.
        version: of the library.
        target: the processor that it is for.
        signatures: its functions.
        structures: each structure's arrays, by its name.
        examples: values of the arrays of structures, by their names.
    """
    guard = library.upper()
    parts = [
        f"/* {library}: functions compiled by fraxenv for {target}.",
        "",
        "   They have no state of their own, ask for no memory, take no locks, and may be called",
        "   by several threads at a time. A result may lie where an argument does. Arrays of",
        "   several axes lie row by row. Made by `fraxenv.export`; not to be edited. */",
        "",
        f"#ifndef {guard}_H",
        f"#define {guard}_H",
        "",
        "#include <math.h>",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        f'#define {guard}_VERSION "{version}"',
        "",
        f"/* The library's; `{guard}_VERSION` is this header's. */",
        f"extern const char {library}_version[];",
    ]
    for name, fields in structures.items():
        parts += ["", *_structure(name, fields)]
        if name in examples:
            parts += _example(name, fields, examples[name])
    for s in signatures:
        parts += ["", *_function(s)]
    parts += ["", "#ifdef __cplusplus", "}", "#endif", "", "#endif"]
    return "\n".join(parts) + "\n"


def _structure(name: str, fields: Sequence[Field]) -> list[str]:
    lines = [f"  {declared(f)};{_shape_note(f)}" for f in fields if f.size]
    return ["typedef struct {", *lines, f"}} {name};"]


def _example(name: str, fields: Sequence[Field], values: Sequence[Any]) -> list[str]:
    """The values that the library was exported with, to begin from."""
    whole = ", ".join(initialiser(f, x) for f, x in zip(fields, values, strict=True) if f.size)
    lines = textwrap.wrap(f"{{{whole}}}", 90, break_long_words=False)
    return [
        f"#define {name.upper()}_EXAMPLE \\",
        *(f"  {line} \\" for line in lines[:-1]),
        f"  {lines[-1]}",
    ]


def declared(field: Field) -> str:
    """A field's declaration; a number for an array of none."""
    return f"{field.type} {field.name}" + (f"[{field.size}]" if field.shape else "")


def _shape_note(field: Field) -> str:
    return f" /* {_shape(field)} */" if len(field.shape) > 1 else ""


def _shape(field: Field) -> str:
    """A shape as people write it."""
    return f"({', '.join(map(str, field.shape))}{',' if len(field.shape) == 1 else ''})"


def initialiser(field: Field, value: Any) -> str:
    """A field's value as C has it, to the last bit but for what is no number."""
    flat = np.asarray(value, field.dtype).ravel().tolist()
    texts = [_number(field, x) for x in flat]
    return texts[0] if not field.shape else f"{{{', '.join(texts)}}}"


def _number(field: Field, x: Any) -> str:
    if field.dtype.kind != "f":
        suffix = {"uint64": "u", "uint32": "u"}.get(field.dtype.name, "")
        if field.dtype.name == "int64" and x == np.iinfo(np.int64).min:
            return "INT64_MIN"
        if field.dtype.name == "int32" and x == np.iinfo(np.int32).min:
            return "INT32_MIN"
        return f"{int(x)}{suffix}"
    if np.isnan(x):
        return "NAN"
    if np.isinf(x):
        return "INFINITY" if x > 0 else "-INFINITY"
    if field.dtype == np.float32:
        return f"{np.float32(x)!r}".removeprefix("np.float32(").removesuffix(")") + "f"
    return repr(float(x))


def _function(s: Signature) -> list[str]:
    """A function, which hands the addresses of its arrays to the compiled one."""
    ins = [_address(p, f, given=True) for p in s.arguments for f in p.fields]
    outs = [_address(p, f, given=False) for p in s.results for f in p.fields]
    taken = [_parameter(p, given=True) for p in s.arguments if p.present]
    taken += [_parameter(p, given=False) for p in s.results if p.present]
    return [
        *_about(s),
        f"void {s.name}_(const void *const in[], void *const out[]);",
        "",
        *_wrapped(f"static inline void {s.name}(", taken, ") {"),
        *_wrapped("  const void *const in[] = {", ins or ["0"], "};"),
        *_wrapped("  void *const out[] = {", outs or ["0"], "};"),
        f"  {s.name}_(in, out);",
        "}",
    ]


def _about(s: Signature) -> list[str]:
    lines = textwrap.wrap(s.about, 88) if s.about else []
    for p in s.arguments + s.results:
        if not p.present:
            continue
        what = p.struct or _shape(p.fields[0])
        note = ", ".join(filter(None, (what if what != "()" else "a number", p.unit)))
        lines.append(f"{p.name}: {note}.")
    return [("/* " if k == 0 else "   ") + x + (" */" if k == len(lines) - 1 else "")
            for k, x in enumerate(lines)]  # fmt: skip


def _wrapped(head: str, items: Sequence[str], tail: str) -> list[str]:
    """A list in several lines, each of some items."""
    one = head + ", ".join(items) + tail
    if len(one) <= 100:
        return [one]
    text = textwrap.wrap(", ".join(items), 92, break_long_words=False, break_on_hyphens=False)
    return [head, *(f"    {line}" for line in text[:-1]), f"    {text[-1]}{tail}"]


def _parameter(p: Parameter, given: bool) -> str:
    if p.struct:
        return f"const {p.struct} *{p.name}" if given else f"{p.struct} *{p.name}"
    (field,) = p.fields
    if not field.shape:
        return f"{field.type} {p.name}" if given else f"{field.type} *{p.name}"
    return f"{'const ' if given else ''}{field.type} {p.name}[{field.size}]"


def _address(p: Parameter, field: Field, given: bool) -> str:
    """Where the compiled function finds, or puts, an array."""
    if not field.size:
        return "0"
    if p.struct:
        return f"{'&' if not field.shape else ''}{p.name}->{field.name}"
    return f"&{p.name}" if given and not field.shape else p.name
