"""What a tensor core computes from floating-point operands, bit for bit: no chain of IEEE additions.

The products of one step, and what has been summed so far, are exact. All of them are aligned to the largest
exponent among them, keep a fixed number of fraction bits below it, lose the rest, and are added as integers;
only the sum is rounded to the type of the result. A product counts with the sum of its factors' exponents,
whether or not its significand reaches 2, and a subnormal factor with the exponent of the smallest normal.

Source: Xie et al., "MMA-Sim", arXiv 2511.10909, and Fasi et al., "Numerical behavior of NVIDIA tensor cores",
PeerJ CS 330, for the parameters of each architecture. Those of sm_90a are proven by the H200's recording of
the mma-arithmetic probe; those of the others are claims. That 8-bit floats become f16 on some chips is read
from the SASS of that probe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ptxlab.isa.numbers import decode
from ptxlab.isa.registers import Ints

Reals = NDArray[np.float64]
Words = NDArray[np.uint64]

TOWARD_ZERO, DOWNWARD, NEAREST = ROUNDINGS = ("toward zero", "downward", "to nearest even")

FRACTION_BITS = {"f16": 10, "bf16": 7, "tf32": 10, "f32": 23, "e4m3": 3, "e5m2": 2}
LEAST_EXPONENT = {"f16": -14, "bf16": -126, "tf32": -126, "f32": -126, "e4m3": -6, "e5m2": -14}
_OVERFLOW = {"f16": 65536.0, "f32": 2.0**128}
_LARGEST = {"f16": 65504.0, "f32": float(np.finfo(np.float32).max)}
NAN = {"f16": 0x7FFF, "f32": 0x7FFFFFFF}
"""The one NaN that these instructions answer, by type of the accumulator."""

_FP8 = ("e4m3", "e5m2")


@dataclass(frozen=True)
class Arithmetic:
    """How one instruction sums.

    Attributes:
        fraction_bits: what a term keeps below the largest exponent of its step.
        step: how many products are summed at once.
        result_bits: fraction bits of what a step hands on.
        alignment: how the bits that a term loses are rounded away.
        rounding: how the sum is rounded to the result.
        interleaved: the steps take, of each four products, the first two, then the last two; otherwise
            they take them in their order.
        operand: the type that factors are converted to beforehand, or "" for none.
        adds_c_last: C is no term of the first step, but added to the result by an ordinary addition.
        zero_counts: a product of zero takes part in the search for the largest exponent.
        saturates: what is too large for the result becomes its largest number, not infinity.
        negative_zero: a sum of nothing but negative zeros is negative.

    """

    fraction_bits: int
    step: int
    result_bits: int
    alignment: str = TOWARD_ZERO
    rounding: str = TOWARD_ZERO
    interleaved: bool = False
    operand: str = ""
    adds_c_last: bool = False
    zero_counts: bool = False
    saturates: bool = False
    negative_zero: bool = False

    def steps(self, k: int) -> list[Ints]:
        """Return the indices of the products of each step, in the order of the steps."""
        order = np.arange(k)
        if self.interleaved:
            order = np.concatenate([order[order % 4 < 2], order[order % 4 >= 2]])
        return np.split(order, k // min(self.step, k))


def mma_arithmetic(a: str, acc: str, k: int, number: int) -> Arithmetic:
    """Return how mma.sync sums.

    Args:
        a: type of A's and B's elements.
        acc: type of C and D.
        k: products of one element of D.
        number: of the architecture, such as 90.

    """
    result, rounding = _result(acc)
    wide = Arithmetic(25 if number >= 90 else 24, 0, result, rounding=rounding)
    if a not in _FP8:
        return replace(wide, step=(16 if number >= 90 else 8) * 2 // (4 if a == "tf32" else 2))
    if number == 89:
        return replace(wide, fraction_bits=13, step=16, result_bits=min(13, result))
    if number >= 120:
        return replace(wide, step=32)
    return replace(wide, step=k // 2, interleaved=True, operand="f16", adds_c_last=True)


def wgmma_arithmetic(a: str, acc: str, k: int) -> Arithmetic:
    """Return how wgmma of Hopper sums; arguments of mma_arithmetic."""
    result, rounding = _result(acc)
    if a in _FP8:
        return Arithmetic(13, k, min(13, result), rounding=rounding)
    return Arithmetic(25, k, result, rounding=rounding)


def _result(acc: str) -> tuple[int, str]:
    return FRACTION_BITS[acc], NEAREST if acc == "f16" else TOWARD_ZERO


def neighbours(rule: Arithmetic, acc: str, k: int) -> Iterator[Arithmetic]:
    """Yield the rules for sums of ``k`` products into ``acc`` that differ from ``rule`` in one respect."""
    steps = [step for step in (2, 4, 8, 16, 32) if step <= k]
    for kept, alignment in product(range(10, 29), ROUNDINGS):
        yield replace(rule, fraction_bits=kept, alignment=alignment)
    for step, interleaved in product(steps, (False, True)):
        yield replace(rule, step=step, interleaved=interleaved)
    for bits in range(7, FRACTION_BITS[acc] + 1):
        yield replace(rule, result_bits=bits)
    for rounding in ROUNDINGS:
        yield replace(rule, rounding=rounding)
    yield replace(rule, adds_c_last=not rule.adds_c_last)
    yield replace(rule, zero_counts=not rule.zero_counts)
    yield replace(rule, saturates=not rule.saturates)
    yield replace(rule, negative_zero=not rule.negative_zero)


def operands(words: Words, dtype: str) -> Reals:
    """Return the factors that the bits stand for; of tf32 the low 13 bits of a word are ignored."""
    kept = words & np.uint64(0xFFFFE000) if dtype == "tf32" else words
    return decode(kept, dtype).astype(np.float64)


def multiply_add(a: Reals, b: Reals, c: Reals, dtype: str, acc: str, rule: Arithmetic) -> Words:
    """Return the bits of D = A x B + C.

    Args:
        a: [..., M, K], numbers of ``dtype``.
        b: [..., K, N].
        c: [..., M, N], numbers of ``acc``.
        dtype: type of A's and B's elements.
        acc: type of C and D, f16 or f32.
        rule: how the instruction sums.

    """
    left, right = a[..., :, None, :], np.swapaxes(b, -1, -2)[..., None, :, :]
    factor = rule.operand or dtype
    total = np.zeros_like(c) if rule.adds_c_last else c
    for index in rule.steps(a.shape[-1]):
        total = _step(left[..., index], right[..., index], total, factor, acc, rule)
    if rule.adds_c_last:
        native = np.float16 if acc == "f16" else np.float32
        with np.errstate(all="ignore"):
            total = (c.astype(native) + total.astype(native)).astype(np.float64)
    return _bits(total, acc)


def _bits(values: Reals, acc: str) -> Words:
    """Return the bits of numbers of type ``acc``, every NaN being the same one."""
    kinds = (np.float16, np.uint16) if acc == "f16" else (np.float32, np.uint32)
    with np.errstate(invalid="ignore"):
        words = values.astype(kinds[0]).view(kinds[1]).astype(np.uint64)
    return np.where(np.isnan(values), np.uint64(NAN[acc]), words)


def _step(left: Reals, right: Reals, c: Reals, factor: str, acc: str, rule: Arithmetic) -> Reals:
    """Return the sum of the products along the last axis and c, rounded to a number of type ``acc``."""
    with np.errstate(invalid="ignore"):
        naive = (left * right).sum(axis=-1) + c  # beyond float64's range only where an operand is infinite
    (sa, ea), (sb, eb), (sc, ec) = _split(left, factor), _split(right, factor), _split(c, acc)
    significands, exponents = sa * sb, ea + eb
    counts = (significands != 0) | rule.zero_counts
    top = np.maximum(
        np.where(counts, exponents, _NOWHERE).max(axis=-1),
        np.where((sc != 0) | rule.zero_counts, ec, _NOWHERE),
    )
    fraction = 2 * FRACTION_BITS[factor]
    aligned = _aligned(significands, fraction, exponents - top[..., None], rule)
    total = aligned.sum(axis=-1) + _aligned(sc, FRACTION_BITS[acc], ec - top, rule)
    value = _rounded(total, top - rule.fraction_bits, acc, rule)
    if rule.negative_zero:
        negative = np.signbit(left) ^ np.signbit(right)
        value = np.where((total == 0) & negative.all(axis=-1) & np.signbit(c), -0.0, value)
    return np.where(np.isfinite(naive), value, naive)


_NOWHERE = -10_000  # an exponent below every other


def _split(values: Reals, dtype: str) -> tuple[Ints, Ints]:
    """Return (significand, exponent): value = significand * 2**(exponent - fraction bits of the type)."""
    finite = np.where(np.isfinite(values), values, 0.0)
    exponents = np.maximum(np.frexp(finite)[1].astype(np.int64) - 1, LEAST_EXPONENT[dtype])
    exponents = np.where(finite == 0, LEAST_EXPONENT[dtype], exponents)
    return np.ldexp(finite, FRACTION_BITS[dtype] - exponents).astype(np.int64), exponents


def _aligned(significands: Ints, fraction: int, below: Ints, rule: Arithmetic) -> Ints:
    """Return terms as integers whose unit is the last bit that is kept.

    Args:
        significands: with ``fraction`` fraction bits.
        fraction: their fraction bits.
        below: each term's exponent less the largest one, at most 0 for a term that is not 0.
        rule: how many bits are kept, and how the others are lost.

    """
    shift = np.maximum(fraction - rule.fraction_bits - below, -rule.fraction_bits)
    return _shifted(significands << np.maximum(-shift, 0), np.clip(shift, 0, 62), rule.alignment)


def _shifted(values: Ints, right: Ints, rounding: str) -> Ints:
    """Return values / 2**right as whole numbers."""
    if rounding == DOWNWARD:
        return values >> right
    size = np.abs(values)
    kept = size >> right
    if rounding == NEAREST:
        rest, half = size - (kept << right), (np.int64(1) << right) >> 1
        kept = kept + ((rest > half) | ((rest == half) & (kept % 2 == 1) & (right > 0)))
    return np.asarray(np.sign(values) * kept)


def _rounded(total: Ints, unit: Ints, acc: str, rule: Arithmetic) -> Reals:
    """Return total * 2**unit as a number of type ``acc``."""
    lead = np.frexp(np.abs(total).astype(np.float64))[1] - 1 + unit
    last = np.maximum(lead, LEAST_EXPONENT[acc]) - rule.result_bits
    shift = last - unit
    kept = _shifted(total, np.clip(shift, 0, 62), rule.rounding)
    # a negative sum too small for the type is +0, not -0: an H200 answers so
    value = np.ldexp(kept.astype(np.float64), np.where(shift > 0, last, unit))
    beyond = np.abs(value) >= _OVERFLOW[acc]
    return np.where(beyond, np.copysign(_LARGEST[acc] if rule.saturates else np.inf, value), value)
