"""Sine, cosine and arctangent in float64, as scalar programs of basic operations.

So a step of an arm in float64 has the same bits everywhere: C libraries differ in the last one.
Angles are reduced and polynomials are chosen as in fdlibm (Sun Microsystems, 1993), without its
branches; a quotient carries what its rounding left.
"""

from __future__ import annotations

import numpy as np

from .values import F64, I64, Value, guarded, polynomial, rounded, where

ANGLE_LIMIT = 1e6
"""Larger angles, rad, are reduced by the C library."""

SIGN = -(2**63)

PI_LOW = 1.2246467991473532e-16
"""What pi is more than the nearest float64."""

_SINE = (1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
         -1.98412698298579493134e-04, 8.33333333332248946124e-03)  # fmt: skip
_SINE_FIRST = -1.66666666666666324348e-01
_COSINE = (-1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
           2.48015872894767294178e-05, -1.38888888888741095749e-03,
           4.16666666666666019037e-02)  # fmt: skip
_ARCTANGENT_EVEN = (1.62858201153657823623e-02, 4.97687799461593236017e-02,
                    6.66107313738753120669e-02, 9.09088713343650656196e-02,
                    1.42857142725034663711e-01, 3.33333333333329318027e-01)  # fmt: skip
_ARCTANGENT_ODD = (-3.65315727442169155270e-02, -5.83357013379057348645e-02,
                   -7.69187620504482999495e-02, -1.11111104054623557880e-01,
                   -1.99999999998764832476e-01)  # fmt: skip
_ANGLES = (
    (7 / 16, 0.5, 4.63647609000806093515e-01, 2.26987774529616870924e-17),
    (11 / 16, 1.0, 7.85398163397448278999e-01, 3.06161699786838301793e-17),
    (19 / 16, 1.5, 9.82793723247329054082e-01, 1.39033110312309984516e-17),
    (39 / 16, np.inf, 1.57079632679489655800e00, 6.12323399573676603587e-17),
)
"""From which tangent on it is compared with another one, that of an angle in two parts."""


def _reduced_angle(x: Value) -> tuple[Value, Value, Value]:
    """`x - n pi/2` in two parts, the first within pi/4 of zero, and `n` modulo 2^32."""
    n, quarters = rounded(x * (2 / np.pi))
    # pi/2 in three parts; the first two have 33 bits: their products with n < 2^20 are exact.
    begun = x - n * 1.57079632673412561417
    second = n * 6.07710050630396597660e-11
    r = begun - second
    left = n * 2.02226624879595063154e-21 - ((begun - r) - second)
    high = r - left
    return high, (r - high) - left, quarters


def _sine(x: Value, low: Value) -> Value:
    z = x * x
    v = z * x
    tail = polynomial(z, _SINE)
    return x - ((z * (low * 0.5 - v * tail) - low) - v * _SINE_FIRST)


def _cosine(x: Value, low: Value) -> Value:
    z = x * x
    tail = z * polynomial(z, _COSINE)
    half = z * 0.5
    most = 1.0 - half
    return most + (((1.0 - most) - half) + (z * tail - x * low))


def _turned(x: Value, quarter: int, name: str) -> Value:
    high, low, n = _reduced_angle(x)
    n = n + quarter
    odd = (n & 1).do("ne", 0)
    sign = (n & 2).to(I64).do("shift_left", 62)
    value = where(odd, _cosine(high, low), _sine(high, low))
    usual = value.bits(I64).do("xor", sign).bits(F64)
    return guarded(abs(x) > ANGLE_LIMIT, name, x, usual)


def sin(x: Value) -> Value:
    """Sine."""
    return where(x.do("eq", 0.0), x, _turned(x, 0, "sin"))  # keeps the sign of zero


def cos(x: Value) -> Value:
    """Cosine."""
    return _turned(x, 1, "cos")


def _angle(y: Value, x: Value) -> tuple[Value, Value]:
    """The angle of the point (x, y), neither of them negative, in two parts."""
    over, under, high, low = y, x, x.like(0.0), x.like(0.0)
    for begins, tangent, angle, rest in _ANGLES:
        beyond = y.do("ge", x * begins) if tangent != np.inf else y > x * begins
        turned = (-x, y) if tangent == np.inf else (y - x * tangent, x + y * tangent)
        over, under = where(beyond, turned[0], over), where(beyond, turned[1], under)
        high, low = where(beyond, x.like(angle), high), where(beyond, x.like(rest), low)
    t = over / under
    z = t * t
    w = z * z
    series = z * polynomial(w, _ARCTANGENT_EVEN) + w * polynomial(w, _ARCTANGENT_ODD)
    # What the quotient's rounding left, and the angle's slope there.
    missed = (over - t * under) / under * (1.0 - z)
    return high, t - ((t * series - low) - missed)


def _with_sign_of(magnitude: Value, y: Value) -> Value:
    sign = y.bits(I64) & SIGN
    return (magnitude.bits(I64) | sign).bits(F64)


def atan2(y: Value, x: Value) -> Value:
    """Angle of the point (x, y)."""
    ax, ay = abs(x), abs(y)
    far, up = ax.do("eq", np.inf), ay.do("eq", np.inf)
    ax = where(far, x.like(1.0), where(up, x.like(0.0), ax))
    ay = where(up, y.like(1.0), where(far, y.like(0.0), ay))
    larger = where(ay > ax, ay, ax)
    # Far from where numbers end, so that products of both do not.
    scale = where(larger > 1e280, x.like(2.0**-100), where(larger < 1e-180, x.like(2.0**400), 1.0))
    ax, ay = ax * scale, ay * scale
    ax = where(larger.do("eq", 0.0), ax.like(1.0), ax)
    high, low = _angle(ay, ax)
    behind = x.bits(I64) < 0
    angle = where(behind, np.pi - (high + (low - PI_LOW)), high + low)
    nan = x.do("ne", x) | y.do("ne", y)
    return where(nan, x + y, _with_sign_of(angle, y))


def atan(x: Value) -> Value:
    """Arctangent."""
    most = float(np.finfo(np.float64).max)
    size = where(abs(x) < most, abs(x), x.like(most))
    high, low = _angle(size, x.like(1.0))
    return where(x.do("ne", x), x, _with_sign_of(high + low, x))
