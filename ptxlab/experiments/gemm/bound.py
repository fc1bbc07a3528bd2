r"""How far a GEMM on tensor cores may be from the exact sum: a bound, not a tolerance.

Notation: S is the exact running sum of an element after each 16 values of k (one step), P the sum of all
|a||b|, u = 2^-23 the spacing of float32 just above 1. The check kernel computes both per element.

What one step adds to the error:

* A product of two inputs of 8 or 16 bits, or of tf32, is exact before it is added.
* The tensor core adds g products and the accumulator at once (g, F and R of each chip, and where they are
  known from: ptxlab/isa/accumulate.py). All are aligned to the largest, which loses nothing, and keep F bits
  behind its first: the g others together lose less than a = g 2^-F times max(|S|, |a||b|). The result keeps
  R bits behind its first: less than c = 2^-R of it is cut off, or half of that lost where it is rounded to
  nearest.
* So one addition loses at most a (|S_before| + P) + c |S_after|. A step has h = 16/g of them, or one where g
  is larger. With |S_mid| <= (|S_before| + |S_after| + P_step) / 2 in between, whatever the order of the
  products, they lose no more than h (a + c) P_step beside |S_before| and |S_after|, whose weights make h (a
  + c) together. Summed over the steps each |S| stands once as "before" and once as "after": h (a + c) (sum
  |S| + P) covers all.
* 16-bit types: g = 8, F = 24, R = 23 on sm_80 make 10 u; g = 16, F = 25 on sm_90 make 5 u. The bound is for
  all chips and takes the larger. An f16 accumulator has R = 10, and where |S| is subnormal in it a rounding
  loses up to 2^-25 whatever |S| is: the floor.
* 8-bit floats in wgmma: g = 32, F = R = 13 make 33 v with v = 2^-13, though every other |S| counts in vain.
  So much is lost where all products have one sign; with random ones a hundredth of it is. Where sums are
  promoted, no |S| within 128 products exceeds their P, and four instructions lose at most 33 v (3 P + P) + 4
  v P = 136 v P; to add them up in float32 rounds the sum of all: u / 2 |S|, once in eight steps. These
  errors do not grow.

Parts: who sums k in parts and adds those up in float32, in any order, rounds |S| at the end of each once
more: u / 2 of it. The sums of a part start at zero. That makes them smaller where signs are random (the sum
of |S| is 0.65 of the whole's with 4 parts, 0.4 with 12) and where they are all the same. Where the whole
comes back to zero within a part they can be twice as large; only inputs that are made for it do worse.

How tight: the largest error of 2048 random normal sums, added bit for bit as sm_90 does, is 0.3 to 0.4 u
(sum |S| + P), and less in parts: a thirtieth of the bound, which takes every cut for a whole bit in the same
direction. Four parts that pass through f16 on their way are found all the same: nine of ten sums for a k of
256, half of them for 2048, one of a hundred for 16384. Integers tell every one of them that is not a
multiple of what f16 can hold.

Integers: sums in s32 are exact while P < 2^31. Of 8-bit floats they are while P < 2^14; promoted, while P <
2^24 and no 128 products come to 2^14, which those of numbers up to 8 do not.

The bound speaks of exact S; the computed one is off by the error so far, which makes the error grow by at
most 1 / (1 - unit) a step. Assumed: k in ascending steps. Subnormal inputs are taken as aligned like others.
The float64 reference itself is off by at most k 2^-53 P, far below u P.

Scaling: C = alpha * sum + beta * C in float32. With T = alpha * sum and U = beta * C each product loses at
most u/2 of itself, and the addition u/2 of |T| + |U|, grown by 1 + u/2; whether products are fused into the
addition or not, that is at most u (1 + u) (|T| + |U|). Each of the three roundings may also meet a
subnormal: the floor. An s32 sum is rounded to float32 before: u/2 |T| more. By alpha = 1 and beta = 0
nothing is rounded. With integer inputs, and D the common denominator of alpha and beta (both are binary
fractions), T, U and T + U are multiples of 1/D, and exact up to 2^24 / D.

Bias: one more addition. What T, U and the bias V lose together, in whatever order they are added, is at most
3/2 u (1 + u) (|T| + |U| + |V|); V is an integer where the inputs are.

Activation: relu is exact, and monotone as rounding is. Who computes gelu(x) = x / (1 + e^-2u) in float32
loses at most 2^-21 |x| (kernels/include/ptxlab/gemm_epilogue.cuh): the argument of the exponential is off by
2^-22 of itself, ex2.approx by 2^-22 (PTX ISA), r = 1 / (1 + e) therefore by r (1 - r) (|2u| + 1) 2^-22 and
by 1.5 * 2^-23 of itself, the last product by 2^-24 of itself; r (1 - r) |2u| is nowhere larger than 0.225.
Who takes the hardware's tanh, x / 2 (1 + tanh.approx(u)), which is off by 2^-11 of itself (PTX ISA), loses
2^-12 |x| more. That is permitted to libraries alone: cuBLASLt 13.1 needs it, and no more (H200, 2026-11-30).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ptxlab.isa.accumulate import (
    LEAST_EXPONENT,
    NEAREST,
    Arithmetic,
    mma_arithmetic,
    wgmma_arithmetic,
)

STEP = 16  # values of k between two terms of the bound; STEP in kernels/check/compare.cu too
CHIPS = 80, 90
"""The architectures whose arithmetic the bound allows for: those between and after sum like one of them."""

_EXACT_LIMIT = {"f32": 2.0**24 - 1, "f16": 2.0**11, "s32": 2.0**31 - 1}
_FLOAT8 = ("e4m3", "e5m2")
_FLOAT8_EXACT_LIMIT = {False: 2.0**14 - 1, True: 2.0**24 - 1}
"""By whether sums are promoted."""

_SPLIT = 2.0**-24
"""Of each |S|: what the addition of a part may lose."""

_ACTIVATION_UNIT = {"gelu": 2.0**-21}
HARDWARE_TANH = 2.0**-12
"""What gelu loses more, of its argument, where it takes the hardware's tanh."""

_LARGEST_EXPONENT = 700.0  # e^700 is infinite for every purpose here, and still a float64


@dataclass(frozen=True)
class Bound:
    """The error that is permitted: ``unit * sum over the steps of |S| + magnitude_unit * P + floor``.

    Attributes:
        unit: a factor, growth included.
        floor: what an element of any size may be off by.
        exact_limit: elements with P at most this must be the rounded exact sum; negative when none must.
        scale_unit: what scaling and adding a bias may lose of |T| + |U| + |V|.
        scale_floor: what it may lose of any element.
        scale_exact_limit: it loses nothing where |alpha| P + |U| + |V| is at most this.
        activation_unit: what an activation may lose of its argument.
        magnitude_unit: the factor of P.

    """

    unit: float
    floor: float
    exact_limit: float
    scale_unit: float = 0.0
    scale_floor: float = 0.0
    scale_exact_limit: float = -1.0
    activation_unit: float = 0.0
    magnitude_unit: float = 0.0


def bound(
    k: int,
    acc: str,
    *,
    integers: bool,
    alpha: float = 1.0,
    beta: float = 0.0,
    bias: bool = False,
    activation: str = "none",
    dtype: str = "f16",
    promoted: bool = False,
) -> Bound:
    """Return the bound for sums of k products in an accumulator of type ``acc`` ("f32", "f16" or "s32").

    With integer inputs every partial sum is an integer no larger than P. An f32 accumulator holds it
    exactly while P < 2^24, an f16 one while P <= 2^11.
    """
    unit, magnitude_unit, floor, exact_limit = _sums(k, acc, dtype, promoted=promoted)
    return Bound(
        unit,
        floor,
        exact_limit if integers else -1.0,
        *_scaling(acc, alpha, beta, bias=bias, integers=integers),
        _ACTIVATION_UNIT.get(activation, 0.0),
        magnitude_unit,
    )


def _sums(k: int, acc: str, dtype: str, *, promoted: bool) -> tuple[float, float, float, float]:
    """Return the factors of |S| and of P, the floor, and up to which P integers are exact."""
    if dtype in _FLOAT8 and promoted:
        return 2.0**-24, 136 * 2.0**-13, 0.0, _FLOAT8_EXACT_LIMIT[promoted]
    float8 = dtype in _FLOAT8
    unit, floor = _of_step(dtype, acc)
    exact_limit = _FLOAT8_EXACT_LIMIT[promoted] if float8 else _EXACT_LIMIT[acc]
    steps = -(-k // STEP)
    growth = math.exp(min(-steps * math.log1p(-unit), _LARGEST_EXPONENT))
    return unit * growth, unit * growth, floor * steps * growth, exact_limit


def _of_step(dtype: str, acc: str) -> tuple[float, float]:
    """Return the factor of |S| and P that a step adds, and the floor: the largest of all chips."""
    if acc == "s32":
        return 0.0, 0.0
    if dtype in _FLOAT8:
        rules = [wgmma_arithmetic(dtype, acc, 2 * STEP)]
    else:
        rules = [mma_arithmetic(dtype, acc, STEP, chip) for chip in CHIPS]
    units, floors = zip(*(_of_rule(rule, acc) for rule in rules), strict=True)
    return max(units) + _SPLIT, max(floors)


def _of_rule(rule: Arithmetic, acc: str) -> tuple[float, float]:
    """Return h (a + c), and what rounding subnormal sums loses."""
    additions = max(1, STEP // rule.step)
    cut = 2.0**-rule.result_bits / (2 if rule.rounding == NEAREST else 1)
    floor = 2.0 ** LEAST_EXPONENT[acc] * cut if acc == "f16" else 0.0
    return additions * (rule.step * 2.0**-rule.fraction_bits + cut), additions * floor


def _scaling(
    acc: str, alpha: float, beta: float, *, bias: bool, integers: bool
) -> tuple[float, float, float]:
    """Return unit, floor and exact limit of the scaling, and of the addition of a bias."""
    if (alpha, beta, bias) == (1.0, 0.0, False):
        return 0.0, 0.0, -1.0
    denominator = max(each.as_integer_ratio()[1] for each in (alpha, beta))  # powers of two
    unit = (1.0 + 0.5 * bias + 0.5 * (acc == "s32")) * 2.0**-23 * (1 + 2.0**-23)
    return unit, 3 * 2.0**-150, 2.0**24 / denominator if integers else -1.0
