"""The program that tests a library: the same bits as the kernel's, and how long a call takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .header import declared, initialiser
from .signature import Parameter, Signature

Values = Sequence[Any]
"""Of the arrays of a function's arguments, or of its results."""


def write_check(library: str, functions: Sequence[tuple[Signature, Values, Values]]) -> str:
    """The text of the program.

    Args:
        library: its name.
        functions: each one's signature, its arguments, and the kernel's results.
    """
    parts = [_HEAD, *(_test(*function) for function in functions)]
    calls = [f'  wrong += checked("{s.name}", call_{s.name}, wrong_{s.name}, calls, times);'
             for s, *_ in functions]  # fmt: skip
    text = "\n".join((*parts, _TAIL.replace("<<CALLS>>", "\n".join(calls))))
    return text.replace("<<LIBRARY>>", library).replace("<<GUARD>>", library.upper())


def _test(s: Signature, given: Values, expected: Values) -> str:
    """A function's arguments, its call, and its comparison."""
    name = s.name
    ins, outs = (_with_values(p, v) for p, v in ((s.arguments, given), (s.results, expected)))
    numbers = [_initialisers(p, values) for p, values in ins]
    passed = [_passed(p, "given") for p, _ in ins] + [_passed(p, "found") for p, _ in outs]
    return "\n".join(
        (
            "static const struct {",
            *(f"  {_variable(p)};" for p, _ in ins),
            f"}} {name}_given = {{",
            ",\n".join(f"  {text}" for text in numbers),
            "};",
            "static struct {",
            *(f"  {_variable(p)};" for p, _ in outs),
            f"}} {name}_found;",
            "",
            f"static void call_{name}(void) {{",
            f"  {name}({', '.join(text.replace('<<', f'{name}_') for text in passed)});",
            "}",
            "",
            f"static int wrong_{name}(void) {{",
            "  int wrong = 0;",
            *(line for p, values in outs for line in _comparisons(name, p, values)),
            "  return wrong;",
            "}",
            "",
        )
    )


def _with_values(parameters: Sequence[Parameter], values: Values) -> list[tuple[Parameter, Values]]:
    """Those that C has, with the values of their arrays."""
    rest: Iterator[Any] = iter(values)
    each = [(p, [next(rest) for _ in p.fields]) for p in parameters]
    return [(p, own) for p, own in each if p.present]


def _variable(p: Parameter) -> str:
    return f"{p.struct} {p.name}" if p.struct else declared(p.fields[0])


def _initialisers(p: Parameter, values: Values) -> str:
    texts = [initialiser(f, x) for f, x in zip(p.fields, values, strict=True) if f.size]
    return f"{{{', '.join(texts)}}}" if p.struct else texts[0]


def _passed(p: Parameter, where: str) -> str:
    """A parameter in a call, `<<` before the name of its structure."""
    by_address = p.struct or (where == "found" and not p.fields[0].shape)
    return f"{'&' if by_address else ''}<<{where}.{p.name}"


def _comparisons(name: str, p: Parameter, expected: Values) -> list[str]:
    lines = []
    for field, value in zip(p.fields, expected, strict=True):
        if field.size:
            listed = ", ".join(f"0x{b:02x}" for b in np.asarray(value, field.dtype).tobytes())
            own = f"{p.name}.{field.name}" if p.struct else p.name
            lines += [
                f"  {{ static const unsigned char right[] = {{{listed}}};",
                f'    wrong += differ("{own}", {"" if field.shape else "&"}{name}_found.{own}, '
                "right, sizeof right); }",
            ]
    return lines


_HEAD = """\
/* A test of <<LIBRARY>>: the same bits as the kernel that it was made of; with a number behind its
   name, how long that many calls take. Compile it with the library and -lm. */

#define _POSIX_C_SOURCE 199309L

#include "<<LIBRARY>>.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int differ(const char *name, const void *result, const void *right, size_t size) {
  if (memcmp(result, right, size) == 0) return 0;
  printf("  %s differs from the kernel's\\n", name);
  return 1;
}

static double microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

static int shorter(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int checked(const char *name, void (*call)(void), int (*compare)(void), long calls,
                   double *times) {
  int wrong;
  long k;
  call();
  wrong = compare();
  printf("%s: %s\\n", name, wrong ? "wrong" : "the kernel's bits");
  for (k = 0; k < calls; k++) {
    const double began = microseconds();
    call();
    times[k] = microseconds() - began;
  }
  if (calls > 0) {
    qsort(times, (size_t)calls, sizeof *times, shorter);
    printf("%s: %ld calls, median %.2f us, 99.9 %% %.2f us, worst %.2f us\\n", name, calls,
           times[calls / 2], times[(long)((double)calls * 0.999)], times[calls - 1]);
  }
  return wrong;
}
"""

_TAIL = """\
int main(int count, char **words) {
  const long calls = count > 1 ? atol(words[1]) : 0;
  double *times = calls > 0 ? malloc((size_t)calls * sizeof *times) : NULL;
  int wrong = 0;
  if (calls < 0 || (calls > 0 && times == NULL)) {
    printf("expected a number of calls\\n");
    return 2;
  }
  if (strcmp(<<LIBRARY>>_version, <<GUARD>>_VERSION) != 0) {
    printf("the library is of version %s, its header of %s\\n", <<LIBRARY>>_version,
           <<GUARD>>_VERSION);
    return 2;
  }
<<CALLS>>
  free(times);
  return wrong ? 1 : 0;
}
"""
