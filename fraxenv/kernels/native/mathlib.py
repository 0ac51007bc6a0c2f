"""Elementary functions as scalar programs of basic operations: those in float32, and `mathlib64`.

Polynomials follow Cephes (Moshier, "Methods and Programs for Mathematical Functions", 1989), the
reduction of angles Cody and Waite ("Software Manual for the Elementary Functions", 1980) with the
intermediate steps in float64. What is rare, or beyond the range of a polynomial, asks the C
library lane by lane. Errors over the whole range: `docs/kernels.md`, measured by the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ..ops import OPERATIONS
from ..program import Id, Program
from . import mathlib64
from .mathlib64 import ANGLE_LIMIT
from .values import F32, F64, I32, Value, guarded, libm, polynomial, rounded, where

# --- trigonometry ---


def _reduced_angle(x: Value) -> tuple[Value, Value]:
    """`x - n pi/2`, within pi/4 of zero, and `n` modulo 2^32."""
    wide = x.to(F64)
    n, quarters = rounded(wide * (2 / np.pi))
    # pi/2 in two parts; the first has 33 bits, so that its product with n < 2^20 is exact.
    r = (wide - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11
    return r.to(F32), quarters


def _sine_and_cosine(r: Value) -> tuple[Value, Value]:
    s = r * r
    sine = r + r * s * polynomial(s, [-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1])
    tail = polynomial(s, [2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2])
    return sine, (1.0 - s * 0.5) + s * s * tail


def _turned(x: Value, quarter: int, name: str) -> Value:
    r, n = _reduced_angle(x)
    sine, cosine = _sine_and_cosine(r)
    n = n + quarter
    odd = (n & 1).do("ne", 0)
    sign = (n & 2).do("shift_left", 30)
    usual = (where(odd, cosine, sine).bits(I32).do("xor", sign)).bits(F32)
    return guarded(abs(x) > ANGLE_LIMIT, name, x, usual)


def sin(x: Value) -> Value:
    """Sine."""
    usual = _turned(x, 0, "sinf")
    return where(x.do("eq", 0.0), x, usual)  # keeps the sign of zero


def cos(x: Value) -> Value:
    """Cosine."""
    return _turned(x, 1, "cosf")


HALF_PI, HALF_PI_LOW = 1.5707963705062866, -4.371139000186241e-8
"""A quarter turn: the nearest float32, and the remainder."""


def _atan_fraction(t: Value, steep: Value) -> Value:
    """Arctangent of 0 <= t <= 1, or of 1 / t where steep: minimax on all of the range."""
    s = t * t
    series = [2.92035984e-3, -1.63665209e-2, 4.32094261e-2, -7.55199343e-2, 1.06658928e-1,
              -1.42110243e-1, 1.99937686e-1, -3.33331525e-1]  # fmt: skip
    tail = t * s * polynomial(s, series)
    return where(steep, (HALF_PI - t) + (HALF_PI_LOW - tail), t + tail)


def _with_sign_of(magnitude: Value, y: Value) -> Value:
    sign = y.bits(I32) & -(2**31)
    return (magnitude.bits(I32) | sign).bits(F32)


def atan2(y: Value, x: Value) -> Value:
    """Angle of the point (x, y)."""
    ax, ay = abs(x), abs(y)
    steep = ay > ax
    small, large = where(steep, ax, ay), where(steep, ay, ax)
    ratio = small / where(large.do("eq", 0.0), large.like(1.0), large)
    ratio = where(small.do("eq", np.inf), ratio.like(1.0), ratio)
    angle = _atan_fraction(ratio, steep)
    angle = where(x.bits(I32) < 0, 2 * HALF_PI - (angle - 2 * HALF_PI_LOW), angle)
    nan = x.do("ne", x) | y.do("ne", y)
    return where(nan, x + y, _with_sign_of(angle, y))


def atan(x: Value) -> Value:
    """Arctangent."""
    a = abs(x)
    steep = a > 1.0
    angle = _atan_fraction(where(steep, a.like(1.0) / a, a), steep)
    return where(x.do("ne", x), x, _with_sign_of(angle, x))


def _asin_small(a: Value) -> Value:
    """Arcsine of 0 <= a <= 0.5."""
    s = a * a
    series = [4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1]
    return a + a * s * polynomial(s, series)


def asin(x: Value) -> Value:
    """Arcsine."""
    a = abs(x)
    big = a > 0.5
    half = _asin_small(where(big, ((1.0 - a) * 0.5).do("sqrt"), a))
    angle = where(big, (HALF_PI - (half + half)) + HALF_PI_LOW, half)
    return where(x.do("ne", x), x, _with_sign_of(angle, x))


def acos(x: Value) -> Value:
    """Arccosine."""
    a = abs(x)
    big = a > 0.5
    half = _asin_small(where(big, ((1.0 - a) * 0.5).do("sqrt"), a))
    twice = half + half
    outer = where(x < 0.0, np.pi - twice, twice)
    return where(big, outer, 1.57079632679489661923 - _with_sign_of(half, x))


# --- exponentials ---


def _power_of_two(n: Value) -> Value:
    return (n + 127).do("shift_left", 23).bits(F32)


def exp(x: Value) -> Value:
    """Exponential."""
    x = where(x > 89.0, x.like(89.0), where(x < -104.0, x.like(-104.0), x))
    n, whole = rounded(x * 1.44269504088896341)
    r = (x - n * 0.693359375) - n * -2.12194440e-4
    series = [1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2,
              1.6666665459e-1, 5.0000001201e-1]  # fmt: skip
    result = (r * r * polynomial(r, series) + r) + 1.0
    # In two steps, so that the ends of the range are reached.
    half = whole.do("shift_right_arithmetic", 1)
    return result * _power_of_two(half) * _power_of_two(whole - half)


def log(x: Value) -> Value:
    """Natural logarithm."""
    bits = x.bits(I32)
    exponent = bits.do("shift_right_logical", 23) - 126
    mantissa = ((bits & 0x007FFFFF) | 0x3F000000).bits(F32)  # [0.5, 1)
    low = mantissa < 0.707106781186547524
    n = where(low, exponent - 1, exponent).to(F32)
    f = where(low, mantissa + mantissa, mantissa) - 1.0
    s = f * f
    series = [7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1,
              1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1,
              3.3333331174e-1]  # fmt: skip
    tail = f * s * polynomial(f, series) + n * -2.12194440e-4
    usual = (f + (tail - s * 0.5)) + n * 0.693359375
    usual = where(x.do("eq", np.inf), x, usual)
    usual = where(x.do("eq", 0.0), usual.like(-np.inf), usual)
    return where((x < 0.0) | x.do("ne", x), usual.like(np.nan), usual)


def log1p(x: Value) -> Value:
    """`log(1 + x)`, exact near zero: the rounding error of the sum is compensated."""
    u = x + 1.0
    d = u - 1.0
    usual = log(u)
    usual = where(abs(usual) < np.inf, usual + (x - d) / u, usual)
    return where(d.do("eq", 0.0), x, usual)


def tanh(x: Value) -> Value:
    """Hyperbolic tangent."""
    a = abs(x)
    s = x * x
    series = [-5.69581287e-3, 2.06308253e-2, -5.37371412e-2, 1.33314103e-1, -3.33332807e-1]
    near = a + a * s * polynomial(s, series)
    far = 1.0 - a.like(2.0) / (exp(a + a) + 1.0)
    return where(x.do("ne", x), x, _with_sign_of(where(a < 0.625, near, far), x))


def erf_inv(x: Value) -> Value:
    """Inverse of the error function (Giles, "Approximating the erfinv function", 2012)."""
    w = -log1p(-x * x)
    near = polynomial(w - 2.5, [2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06,
                                0.00021858087, -0.00125372503, -0.00417768164, 0.246640727,
                                1.50140941])  # fmt: skip
    far = polynomial(w.do("sqrt") - 3.0, [-0.000200214257, 0.000100950558, 0.00134934322,
                                          -0.00367342844, 0.00573950773, -0.0076224613,
                                          0.00943887047, 1.00167406, 2.83297682])  # fmt: skip
    usual = where(w < 5.0, near, far) * x
    return where(abs(x).do("eq", 1.0), x * np.inf, usual)


def _erf_inv_wide(x: Value) -> Value:
    """In float64: the float32 result, improved by Newton's method on `erf`."""
    y = erf_inv(x.to(F32)).to(F64)
    for _ in range(3):
        slope = libm("exp", -(y * y)) * (2 / np.sqrt(np.pi))
        better = y - (libm("erf", y) - x) / slope
        y = where(better.do("is_finite"), better, y)
    return where(abs(x) < 1.0, y, where(abs(x).do("eq", 1.0), x * np.inf, x.like(np.nan)))


_OWN: dict[tuple[str, str], Callable[..., Value]] = {
    **{(function.__name__, F32.char): function
       for function in (sin, cos, atan2, atan, asin, acos, exp, log, log1p, tanh, erf_inv)},
    **{(function.__name__, F64.char): function
       for function in (mathlib64.sin, mathlib64.cos, mathlib64.atan2, mathlib64.atan)},
    ("erf_inv", F64.char): _erf_inv_wide,
}  # fmt: skip
"""Functions by polynomials, by the operation's name and dtype; others are the C library's."""

_ELEMENTARY = frozenset(
    {name for name, _ in _OWN} | {o.name for o in OPERATIONS.values() if o.library is not None}
)


def expand(program: Program, op: str, args: tuple[Id, ...]) -> Id | None:
    """An elementary function as basic operations; None for an operation that is basic."""
    if op not in _ELEMENTARY:
        return None
    char = program.dtypes[args[0]].char
    function = _OWN.get((op, char))
    if function is None:
        name = OPERATIONS[op].library
        if name is None or char not in (F32.char, F64.char):
            return None
        function = partial(libm, f"{name}f" if char == F32.char else name)
    return function(*(Value(program, a) for a in args)).id
