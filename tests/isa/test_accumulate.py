"""The tensor core's sums: against exact fractions rounded by hand, and against what is known of each chip."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import floor

import numpy as np
import pytest

from ptxlab.isa import accumulate as isa
from ptxlab.isa.accumulate import DOWNWARD, FRACTION_BITS, LEAST_EXPONENT, NEAREST, TOWARD_ZERO, Arithmetic
from ptxlab.isa.numbers import decode, encode

HOPPER = isa.mma_arithmetic("f16", "f32", 16, 90)
RULES = [
    HOPPER,
    replace(HOPPER, fraction_bits=13, result_bits=13),
    replace(HOPPER, step=4, alignment=DOWNWARD, rounding=NEAREST),
    replace(HOPPER, step=8, interleaved=True, adds_c_last=True),
    replace(HOPPER, fraction_bits=10, alignment=NEAREST, rounding=DOWNWARD),
    replace(HOPPER, zero_counts=True),
]


def whole(value: Fraction, rounding: str) -> int:
    """Return a fraction as a whole number; ``round`` of a Fraction takes ties to the even one."""
    if rounding == NEAREST:
        return round(value)
    return floor(value) if rounding == DOWNWARD or value > 0 else -floor(-value)


def exponent(value: float, least: int) -> int:
    """Return the exponent with which a factor counts."""
    return max(least, int(np.frexp(value)[1]) - 1) if value else least


def by_hand(a: list[float], b: list[float], c: float, dtype: str, rule: Arithmetic) -> float:
    """Return one sum in f32, term by term, with fractions in place of shifted integers."""
    least = LEAST_EXPONENT[dtype]
    total = 0.0 if rule.adds_c_last else c
    for step in rule.steps(len(a)):
        terms = [(a[i] * b[i], exponent(a[i], least) + exponent(b[i], least)) for i in step]
        terms.append((total, exponent(total, -126)))
        tops = [e for value, e in terms if value or rule.zero_counts]
        unit = Fraction(2) ** (max(tops, default=0) - rule.fraction_bits)
        exact = unit * sum(whole(Fraction(value) / unit, rule.alignment) for value, _ in terms)
        last = Fraction(2) ** (exponent(float(exact), -126) - rule.result_bits)
        total = float(last * whole(exact / last, rule.rounding))
    return float(np.float32(c) + np.float32(total)) if rule.adds_c_last else total


def drawn(dtype: str, spread: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return A, B and C of one 16x8x16 tile: powers of two of many sizes times short significands."""
    draw = np.random.default_rng(5)
    steps = 2.0 ** FRACTION_BITS[dtype]

    def some(*shape: int) -> np.ndarray:
        short = 1 + draw.integers(0, int(steps), shape) / steps
        signs = draw.choice([-1.0, 0.0, 1.0], shape, p=[0.45, 0.1, 0.45])
        return signs * short * np.exp2(draw.integers(-spread, spread, shape))

    return some(16, 16), some(16, 8), some(16, 8) * 2.0**-3


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize(("dtype", "spread"), [("f16", 10), ("bf16", 40), ("e5m2", 12)])
def test_sums_of_numbers_of_many_sizes(dtype: str, spread: int, rule: Arithmetic) -> None:
    """128 sums, each equal to the same sum in exact fractions."""
    a, b, c = drawn(dtype, spread)
    words = isa.multiply_add(a, b, c, dtype, "f32", rule)
    expected = [
        [by_hand(a[m].tolist(), b[:, n].tolist(), float(c[m, n]), dtype, rule) for n in range(8)]
        for m in range(16)
    ]
    assert np.array_equal(decode(words, "f32"), np.array(expected))


def one(
    products: list[tuple[float, float]],
    c: float,
    rule: Arithmetic = HOPPER,
    dtype: str = "f16",
    acc: str = "f32",
) -> int:
    """Return the bits of one sum."""
    a, b = (np.array([pair[i] for pair in products]) for i in (0, 1))
    return int(isa.multiply_add(a[None], b[:, None], np.array([[c]]), dtype, acc, rule)[0, 0])


def f32(value: float) -> int:
    """Return the bits of an f32."""
    return int(np.float32(value).view(np.uint32))


def test_small_whole_numbers_are_summed_exactly() -> None:
    """As any matrix product."""
    draw = np.random.default_rng(1)
    a, b, c = (draw.integers(-8, 8, shape).astype(np.float64) for shape in ((16, 32), (32, 8), (16, 8)))
    for rule in (isa.wgmma_arithmetic("e5m2", "f32", 32), isa.mma_arithmetic("e5m2", "f32", 32, 90)):
        assert np.array_equal(decode(isa.multiply_add(a, b, c, "e5m2", "f32", rule), "f32"), a @ b + c)


def test_what_is_25_bits_below_survives_and_the_next_does_not() -> None:
    """Beside 1 - 1; a chip that keeps 24 bits loses one more."""
    for bits, kept in ((24, 2.0**-24), (25, 2.0**-25), (26, 0.0)):
        assert one([(1, 1), (-1, 1), (2.0 ** (12 - bits), 2.0**-12)], 0.0) == f32(kept)
    assert one([(1, 1), (-1, 1), (2.0**-20, 2.0**-5)], 0.0, replace(HOPPER, fraction_bits=24)) == f32(0.0)


def test_a_product_that_reaches_2_counts_with_its_factors_exponents() -> None:
    """1.5 x 1.5 is aligned as if it were below 2."""
    assert one([(1.5, 1.5), (-1.5, 1.5), (2.0**-20, 2.0**-5)], 0.0) == f32(2.0**-25)


def test_a_subnormal_factor_counts_with_the_least_exponent() -> None:
    """2^-24 x 2^15 hides what is below 2^(1-25), though it is only 2^-9 itself."""
    subnormal = (2.0**-24, 2.0**15)
    assert one([subnormal, (-subnormal[0], subnormal[1]), (2.0**-13, 2.0**-12)], 0.0) == f32(0.0)
    assert one([subnormal, (-subnormal[0], subnormal[1]), (2.0**-12, 2.0**-12)], 0.0) == f32(2.0**-24)


def test_f16_results_are_rounded_as_numpy_rounds() -> None:
    """A product of f16 into f16 is the f16 nearest to the exact one; for -0 an H200 answers +0."""
    draw = np.random.default_rng(2)
    a = draw.normal(size=500).astype(np.float16).astype(np.float64) * np.exp2(draw.integers(-8, 8, 500))
    b = draw.normal(size=500).astype(np.float16).astype(np.float64) * np.exp2(draw.integers(-14, 12, 500))
    a, b = (x.astype(np.float16).astype(np.float64) for x in (a, b))
    rule = isa.mma_arithmetic("f16", "f16", 16, 90)
    words = isa.multiply_add(a[:, None, None], b[:, None, None], np.zeros((500, 1, 1)), "f16", "f16", rule)
    with np.errstate(over="ignore"):
        expected = (a * b).astype(np.float16).view(np.uint16)
    assert np.isinf(expected.view(np.float16)).any()
    assert np.array_equal(words.ravel(), np.where(expected == 0x8000, 0, expected))


@pytest.mark.parametrize(
    ("products", "c", "bits"),
    [([(np.inf, 1.0)], 0.0, 0x7F800000), ([(np.inf, -1.0)], 5.0, 0xFF800000),
     ([(np.inf, 1.0), (np.inf, -1.0)], 0.0, 0x7FFFFFFF), ([(np.inf, 0.0)], 0.0, 0x7FFFFFFF),
     ([(np.nan, 1.0)], np.inf, 0x7FFFFFFF), ([(1.0, 1.0)], -np.inf, 0xFF800000),
     ([(1.0, 1.0), (-1.0, 1.0)], 0.0, 0), ([(-0.0, 1.0)], -0.0, 0)],
)  # fmt: skip
def test_what_is_not_finite(products: list[tuple[float, float]], c: float, bits: int) -> None:
    """Infinities as in IEEE arithmetic, one NaN for all, and sums of nothing are +0."""
    assert one(products, c) == bits


def test_too_large_and_too_small() -> None:
    """Beyond the largest number lies infinity, or the largest number where the rule says so."""
    wide = isa.mma_arithmetic("bf16", "f32", 16, 90)
    largest = float(np.finfo(np.float32).max)
    over: list[tuple[float, float]] = [(2.0**52, 2.0**52)]
    assert one(over, largest, wide, "bf16") == 0x7F800000
    assert one(over, largest, replace(wide, saturates=True), "bf16") == 0x7F7FFFFF
    assert one([(2.0**51, 2.0**52)], largest, wide, "bf16") == 0x7F7FFFFF
    assert one([(-(2.0**-75), 2.0**-75)], 0.0, wide, "bf16") == 0  # as an H200 answers, not -0
    assert one([(-0.0, 1.0)], -0.0, replace(wide, negative_zero=True), "bf16") == 0x80000000


def test_the_low_bits_of_a_tf32_word_are_ignored() -> None:
    """They are cut off, not rounded; other types come through whole."""
    words = np.array([0x3F801FFF, 0xBF803FFF], dtype=np.uint64)
    assert isa.operands(words, "tf32").tolist() == [1.0, -(1 + 2.0**-10)]
    assert isa.operands(encode(np.array([-1.75]), "e4m3"), "e4m3").tolist() == [-1.75]


@pytest.mark.parametrize(
    ("a", "k", "number", "bits", "steps"),
    [("f16", 8, 75, 24, 1), ("f16", 16, 80, 24, 2), ("tf32", 8, 80, 24, 2), ("bf16", 16, 90, 25, 1),
     ("tf32", 8, 90, 25, 1), ("f16", 16, 100, 25, 1), ("e4m3", 32, 89, 13, 2), ("e4m3", 32, 90, 25, 2),
     ("e5m2", 16, 100, 25, 2), ("e4m3", 32, 120, 25, 1)],
)  # fmt: skip
def test_each_chips_rule(a: str, k: int, number: int, bits: int, steps: int) -> None:
    """Bits that are kept and steps in which an instruction sums, for every generation."""
    rule = isa.mma_arithmetic(a, "f32", k, number)
    assert (rule.fraction_bits, len(rule.steps(k))) == (bits, steps)
    assert sorted(np.concatenate(rule.steps(k)).tolist()) == list(range(k))
    assert rule.adds_c_last == (a in ("e4m3", "e5m2") and number in (90, 100))


def test_8_bit_wgmma_keeps_13_bits() -> None:
    """In the terms and in an f32 result; 16-bit wgmma keeps as many as mma.sync."""
    rule = isa.wgmma_arithmetic("e4m3", "f32", 32)
    assert (rule.fraction_bits, rule.result_bits, rule.rounding) == (13, 13, TOWARD_ZERO)
    assert isa.wgmma_arithmetic("e4m3", "f16", 32).result_bits == 10
    assert isa.wgmma_arithmetic("bf16", "f32", 16) == isa.mma_arithmetic("bf16", "f32", 16, 90)


def test_neighbours_are_other_rules() -> None:
    """Each field that a recording can contradict has an alternative."""
    found = list(isa.neighbours(HOPPER, "f32", 16))
    for field in ("fraction_bits", "step", "result_bits", "alignment", "rounding", "interleaved",
                  "adds_c_last", "zero_counts", "saturates", "negative_zero"):  # fmt: skip
        assert len({getattr(rule, field) for rule in found}) > 1, field
