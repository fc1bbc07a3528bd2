r"""How far a GEMM on tensor cores may be from the exact sum: a bound, not a tolerance.

Notation: S is the exact running sum of an element after each 16 values of k (one step), P the sum of all
|a||b|, u = 2^-23 the spacing of float32 just above 1. The check kernel computes both per element.

What one step adds to the error, float32 accumulator:

* A product of two 16-bit inputs is exact before it is added.
* The tensor core adds g products and the accumulator at once: all g + 1 addends are aligned to the largest
  and cut to 24 bits, each losing less than u * max(|S|, |a||b|); the result is cut once more. g is 8 on
  sm_80 and 16 on sm_90, without counting on the one or two guard bits that were observed (Fasi, Higham,
  Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021; Li et al., "FTTN", 2024).
* g = 16: at most 17 u (|S_before| + P_step) + u |S_after|.
* g = 8, in either order of the halves: 9 u (|S_before| + P_half) + u |S_mid|, and the same from S_mid.
  With |S_mid| <= (|S_before| + |S_after| + P_step) / 2 that is at most
  14 u |S_before| + 6 u |S_after| + 14 u P_step.
* Summed over the steps each |S| stands once as "before" and once as "after": 20 u (sum |S| + P) covers both.

An f16 accumulator is also rounded once per addition; in whatever direction, that is less than 2^-10 |S|,
and with |S_mid| as above 2 * 2^-10 (sum |S| + P) covers the two roundings of a step. Where |S| is subnormal
in f16 a rounding loses up to 2^-24 whatever |S| is: the floor.

The bound speaks of exact S; the computed one is off by the error so far, which makes the error grow by at
most 1 / (1 - unit) a step. Assumed: one accumulator per element, k in ascending steps. Subnormal inputs are
taken as aligned like others. The float64 reference itself is off by at most k 2^-53 P, far below u P.

Scaling: C = alpha * sum + beta * C in float32. With T = alpha * sum and U = beta * C each product loses at
most u/2 of itself, and the addition u/2 of |T| + |U|, grown by 1 + u/2; whether products are fused into the
addition or not, that is at most u (1 + u) (|T| + |U|). Each of the three roundings may also meet a subnormal:
the floor. By alpha = 1 and beta = 0 nothing is rounded. With integer inputs, and D the common denominator of
alpha and beta (both are binary fractions), T, U and T + U are multiples of 1/D, and exact up to 2^24 / D.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

STEP = 16  # values of k between two terms of the bound; SLAB in kernels/check/compare.cu
_PER_STEP = {"f32": (20 * 2.0**-23, 0.0), "f16": (20 * 2.0**-23 + 2 * 2.0**-10, 2 * 2.0**-24)}
_EXACT_LIMIT = {"f32": 2.0**24 - 1, "f16": 2.0**11}
_LARGEST_EXPONENT = 700.0  # e^700 is infinite for every purpose here, and still a float64


@dataclass(frozen=True)
class Bound:
    """The error that is permitted: ``unit * (sum over the steps of |S| + P) + floor``.

    Attributes:
        unit: the factor, growth included.
        floor: what an element of any size may be off by.
        exact_limit: elements with P at most this must be the rounded exact sum; negative when none must.
        scale_unit: what scaling may lose of |T| + |U|.
        scale_floor: what it may lose of any element.
        scale_exact_limit: it loses nothing where |alpha| P + |U| is at most this.

    """

    unit: float
    floor: float
    exact_limit: float
    scale_unit: float = 0.0
    scale_floor: float = 0.0
    scale_exact_limit: float = -1.0


def bound(k: int, acc: str, *, integers: bool, alpha: float = 1.0, beta: float = 0.0) -> Bound:
    """Return the bound for sums of k products in an accumulator of type ``acc`` ("f32" or "f16").

    With integer inputs every partial sum is an integer no larger than P. An f32 accumulator holds it
    exactly while P < 2^24, an f16 one while P <= 2^11.
    """
    unit, floor = _PER_STEP[acc]
    steps = -(-k // STEP)
    growth = math.exp(min(-steps * math.log1p(-unit), _LARGEST_EXPONENT))
    exact_limit = _EXACT_LIMIT[acc] if integers else -1.0
    return Bound(
        unit * growth, floor * steps * growth, exact_limit, *_scaling(alpha, beta, integers=integers)
    )


def _scaling(alpha: float, beta: float, *, integers: bool) -> tuple[float, float, float]:
    """Return unit, floor and exact limit of the scaling."""
    if (alpha, beta) == (1.0, 0.0):
        return 0.0, 0.0, -1.0
    denominator = max(each.as_integer_ratio()[1] for each in (alpha, beta))  # powers of two
    return 2.0**-23 * (1 + 2.0**-23), 3 * 2.0**-150, 2.0**24 / denominator if integers else -1.0
