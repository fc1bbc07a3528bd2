"""The numpy fills and the numpy check: right against definitions written once more, wrong when mutated."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from gemm_jobs import INITS, NUMPY, problem, rounded
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ptxlab.experiments.gemm import TYPES, Problem
from ptxlab.experiments.gemm.bound import CHIPS, STEP, Bound, bound
from ptxlab.experiments.gemm.reference import (
    INTEGER_INITS,
    MATRICES,
    Comparison,
    compare,
    fill,
    random_bits,
    stream,
    sums,
)
from ptxlab.experiments.gemm.stage import LARGEST_SIZE
from ptxlab.isa.accumulate import mma_arithmetic, multiply_add
from ptxlab.isa.numbers import decode

Array = NDArray[np.float64]


def checked(
    m: int, n: int, k: int, init: str, change: Array | None = None, **types: str
) -> tuple[Array, Comparison]:
    """Return the rounded reference of a problem, and the check of it plus ``change``."""
    p = problem(m, n, k, **types)
    total = sums(fill(p, init, 1, "a"), fill(p, init, 1, "b"))
    right = rounded(rounded(total.reference, p.acc), p.out)
    limit = bound(k, p.acc, integers=init in INTEGER_INITS)
    return right, compare(p, total, right if change is None else right + change, limit)


def test_random_bits_are_splitmix64() -> None:
    """The second value of a stream, in plain Python integers."""
    mask = 2**64 - 1

    def mixed(x: int) -> int:
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & mask
        return x ^ (x >> 31)

    expected = mixed((mixed(42) + 2 * 0x9E3779B97F4A7C15) & mask)
    assert random_bits(np.array([1], np.uint64), 42)[0] == expected


def test_streams_of_seeds_and_operands_are_apart() -> None:
    """A, B, what C holds before and the bias of the first hundred seeds are four hundred streams."""
    assert len({stream(seed, which) for seed in range(100) for which in MATRICES}) == 400


@pytest.mark.parametrize("init", INITS)
def test_fills_do_not_depend_on_the_layout(init: str) -> None:
    """The logical matrices are the same in all four layouts."""
    for which in ("a", "b"):
        fills = [fill(problem(5, 7, 3, layout=each), init, 1, which) for each in ("nn", "tt")]
        assert np.array_equal(*fills)


def test_seq_is_the_index() -> None:
    """A[i] = i / 256 and B[i] = (i + 1.25) / 128 over logical row-major indices, rounded to f16."""
    p = problem(3, 5, 4)
    for i, j in ((0, 0), (1, 2), (2, 3)):
        assert fill(p, "seq", 0, "a")[i, j] == np.float16((4 * i + j) / 256)
        assert fill(p, "seq", 0, "b")[i, j] == np.float16((5 * i + j + 1.25) / 128)


def test_ints_are_small_and_use_their_range() -> None:
    """-2 to 2, each of them about a fifth of the time."""
    values = fill(problem(200, 1, 200), "ints", 3, "a")
    numbers, counts = np.unique(values, return_counts=True)
    assert numbers.tolist() == [-2, -1, 0, 1, 2]
    assert np.abs(counts / values.size - 0.2).max() <= 6 * math.sqrt(0.2 * 0.8 / values.size)


def test_sums_of_naturals_leave_the_16_bit_types() -> None:
    """1 to 8, each about an eighth of the time; f32 holds every sum of 2^18 products, f16 few of 512."""
    values = fill(problem(200, 1, 200), "naturals", 3, "a")
    numbers, counts = np.unique(values, return_counts=True)
    assert numbers.tolist() == list(range(1, 9))
    assert np.abs(counts / values.size - 1 / 8).max() <= 6 * math.sqrt(1 / 8 * 7 / 8 / values.size)
    assert 64 * 2**18 <= 2**24
    p = problem(32, 32, 512)
    product = fill(p, "naturals", 3, "a") @ fill(p, "naturals", 3, "b")
    assert (rounded(product, "f16") != product).mean() > 0.5
    for dtype in TYPES:
        assert np.array_equal(rounded(numbers, dtype), numbers)


def test_normal_values_are_normal() -> None:
    """Mean, deviation and the share beyond two deviations, each within six standard errors."""
    values = fill(problem(300, 1, 300), "normal", 2, "a")
    share, count = 0.0455002638964, values.size
    assert abs(values.mean()) <= 6 / math.sqrt(count)
    assert abs(values.std() - 1) <= 6 / math.sqrt(2 * count)
    assert abs((np.abs(values) > 2).mean() - share) <= 6 * math.sqrt(share / count)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_sums_are_the_exact_ones(seed: int) -> None:
    """The float64 reference against rational arithmetic: its own error is far below the bound."""
    p = problem(2, 2, 40)
    a, b = (fill(p, "normal", seed, which) for which in ("a", "b"))
    total = sums(a, b)
    exact = sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[1], b[:, 0], strict=True))
    magnitude = sum(abs(Fraction(float(x) * float(y))) for x, y in zip(a[1], b[:, 0], strict=True))
    assert abs(Fraction(float(total.reference[1, 0])) - exact) <= 40 * Fraction(2) ** -53 * magnitude
    steps = [a[1, :end] @ b[:end, 0] for end in (16, 32, 40)]
    assert total.partials[1, 0] == pytest.approx(np.abs(steps).sum(), rel=1e-12)
    assert total.magnitude[1, 0] == pytest.approx(float(magnitude), rel=1e-12)


@pytest.mark.parametrize(("n", "overflow"), [(84, 0), (85, 248), (86, 657)])
def test_seq_overflows_f16_from_85_on(n: int, overflow: int) -> None:
    """The count is that of sums that round to infinity: 65520 and above. Those are not verified."""
    _, found = checked(n, n, n, "seq")
    a = [[float(np.float16((n * i + k) / 256)) for k in range(n)] for i in range(n)]
    b = [[float(np.float16((n * k + j + 1.25) / 128)) for k in range(n)] for j in range(n)]
    large = sum(np.dot(row, col) >= 65520 for row in a for col in b)
    assert large == overflow
    assert (found.overflow, found.verified, found.wrong) == (overflow, n * n - overflow, 0)


def test_equal_infinities_are_no_pass() -> None:
    """All results overflow: nothing is verified although every element equals its reference."""
    p = problem(2, 2, 2)
    large = np.full((2, 2), 60000.0)
    total = sums(large, large)
    found = compare(p, total, np.full((2, 2), np.inf), bound(2, "f32", integers=False))
    assert (found.verified, found.wrong, found.overflow) == (0, 0, 4)


def test_an_overflow_of_the_wrong_sign_is_wrong() -> None:
    """So is a finite result or NaN where the reference overflows by far."""
    p = problem(1, 1, 1)
    total = sums(np.full((1, 1), 60000.0), np.full((1, 1), 60000.0))
    for value in (-np.inf, np.nan, 60000.0):
        assert compare(p, total, np.full((1, 1), value), bound(1, "f32", integers=False)).wrong == 1


def test_infinite_inputs_start_at_2896() -> None:
    """B[i] rounds to infinity from 65520 on; A[i] only from n = 4096 on."""
    for n, count in ((2895, 0), (2896, 257)):
        last = np.arange(n * n - n, n * n, dtype=np.float64)
        assert np.isinf(rounded((last + 1.25) / 128, "f16")).sum() == count
        assert not np.isinf(rounded(last / 256, "f16")).any()
    assert not np.isinf(rounded(np.array([(4095**2 - 1) / 256]), "f16")).any()
    assert np.isinf(rounded(np.array([(4096**2 - 1) / 256]), "f16")).all()


def test_infinite_and_nan_references_are_counted_apart() -> None:
    """Infinity times 1 is infinite, times 0 is NaN; neither is compared, whatever the result is."""
    p = problem(3, 1, 1)
    total = sums(np.array([[np.inf], [np.inf], [1.0]]), np.array([[1.0]]))
    found = compare(p, total, np.array([[np.inf], [7.0], [1.0]]), Bound(0.0, 0.0, -1.0))
    assert (found.infinite, found.nan, found.verified) == (2, 0, 1)
    total = sums(np.array([[np.inf], [1.0], [1.0]]), np.array([[0.0]]))
    found = compare(p, total, np.array([[np.nan], [0.0], [np.nan]]), Bound(0.0, 0.0, -1.0))
    assert (found.nan, found.infinite, found.verified, found.wrong) == (1, 0, 1, 1)


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("acc", ["f32", "f16"])
@pytest.mark.parametrize("out", ["f32", "f16"])
def test_the_rounded_reference_is_right(init: str, acc: str, out: str) -> None:
    """And every element is in one class."""
    _, found = checked(17, 33, 40, init, acc=acc, out=out)
    assert (found.verified, found.wrong) == (17 * 33, 0)
    assert found.elements == 17 * 33


@pytest.mark.parametrize("k", [256, 2048, 16384])
def test_four_ulp_in_one_element_fail(k: int) -> None:
    """In the largest element, for all three depths; the untouched result passes."""
    right, clean = checked(12, 12, k, "normal")
    assert (clean.verified, clean.wrong) == (144, 0)
    change = np.zeros_like(right)
    at = np.unravel_index(np.argmax(np.abs(right)), right.shape)
    change[at] = -4 * np.sign(right[at]) * np.spacing(np.float16(np.abs(right[at])))
    _, found = checked(12, 12, k, "normal", change)
    assert (found.verified, found.wrong) == (143, 1)
    assert (found.first_wrong[0].row, found.first_wrong[0].col) == at


@pytest.mark.parametrize(("acc", "out"), [("f32", "f32"), ("f32", "f16"), ("f16", "f16")])
def test_integers_must_be_exact(acc: str, out: str) -> None:
    """The smallest step of the output type in one element is wrong, in either direction."""
    right, _ = checked(9, 9, 64, "ints", acc=acc, out=out)
    for sign in (1, -1):
        change = np.zeros_like(right)
        kind = np.float16 if out == "f16" else np.float32
        change[4, 4] = sign * float(np.spacing(kind(np.abs(right[4, 4]))))
        _, found = checked(9, 9, 64, "ints", change, acc=acc, out=out)
        assert found.wrong == 1


def test_integers_beyond_the_accumulator_are_bounded_not_exact() -> None:
    """With f16 sums of 4096 ones an odd partial sum has no exact value: one step off is permitted."""
    p = problem(1, 1, 4096, acc="f16")
    total = sums(np.ones((1, 4096)), np.ones((4096, 1)))
    for k, wrong in ((2048, 1), (4096, 0)):
        total = sums(np.ones((1, k)), np.ones((k, 1)))
        found = compare(p, total, np.full((1, 1), k - 4.0), bound(k, "f16", integers=True))
        assert found.wrong == wrong


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0])
def test_a_destroyed_element_fails(value: float) -> None:
    """NaN never passes; the poison of an element that was not written is NaN."""
    right, _ = checked(8, 8, 32, "normal")
    change = np.zeros_like(right)
    change[2, 3] = value - right[2, 3]
    _, found = checked(8, 8, 32, "normal", change)
    assert found.wrong == 1
    assert (found.first_wrong[0].row, found.first_wrong[0].col) == (2, 3)


def test_a_transposed_operand_fails() -> None:
    """Inputs are distinguishable: B read in the wrong order leaves hardly an element right."""
    p = problem(16, 16, 16)
    for init in ("normal", "ints", "seq"):
        a, b = (fill(p, init, 1, which) for which in ("a", "b"))
        limit = bound(16, "f32", integers=init in INTEGER_INITS)
        found = compare(p, sums(a, b), rounded(a @ b.T, "f16"), limit)
        assert found.wrong >= 128


def simulated(a: Array, b: Array, acc: str, chip: int = 90, parts: int = 1) -> list[Array]:
    """Return what the tensor cores of a chip make of f16 inputs, bit for bit, for each of the parts of k."""
    rule = mma_arithmetic("f16", acc, STEP, chip)
    bits = np.uint16 if acc == "f16" else np.uint32
    found = []
    for k in np.split(np.arange(a.shape[1]), parts):
        c = np.zeros((a.shape[0], b.shape[1]))
        for step in np.split(k, len(k) // STEP):
            words = multiply_add(a[:, step], b[step], c, "f16", acc, rule)
            c = words.astype(bits).view(NUMPY[acc]).astype(np.float64)
        found.append(c)
    return found


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("acc", ["f32", "f16"])
@pytest.mark.parametrize("init", ["normal", "ints", "naturals", "seq"])
def test_the_bound_holds_for_tensor_cores(chip: int, acc: str, init: str) -> None:
    """And their error is not nothing: what is cut off shows in f32 outputs, so the bound has to hold."""
    p = problem(24, 24, 512 if init != "seq" else 48, acc=acc, out="f32")
    a, b = (fill(p, init, 4, which) for which in ("a", "b"))
    total = sums(a, b)
    (c,) = simulated(a, b, acc, chip)
    limit = bound(p.k, acc, integers=init in INTEGER_INITS)
    found = compare(p, total, c, limit)
    assert (found.verified, found.wrong) == (24 * 24, 0)
    assert found.max_error is not None
    exact = bool((total.magnitude <= limit.exact_limit).all())
    assert (found.max_error > 0) == (not exact)


@pytest.mark.parametrize("parts", [1, 4])
def test_the_bound_is_thirty_times_the_largest_error(parts: int) -> None:
    """Of random normal numbers, in one sum and in four parts, whose additions it allows for."""
    p = problem(32, 32, 1024, out="f32")
    a, b = (fill(p, "normal", 6, which) for which in ("a", "b"))
    total, limit = sums(a, b), bound(p.k, "f32", integers=False)
    c = np.zeros((p.m, p.n))
    for part in simulated(a, b, "f32", parts=parts):
        c = rounded(c + part, "f32")
    assert compare(p, total, c, limit).verified == p.m * p.n
    used = np.abs(c - total.reference) / (limit.unit * (total.partials + total.magnitude))
    assert 1 / 100 < used.max() < 1 / 25


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(
    ("init", "k", "least"),
    [
        *(("naturals", k, 0.3) for k in (1024, 16384)),
        *(("normal", k, share) for k, share in ((256, 0.8), (2048, 0.4), (16384, 0.004))),
    ],
)
def test_parts_that_pass_through_16_bits_are_found(init: str, k: int, least: float, dtype: str) -> None:
    """Four parts of k, each rounded to a 16-bit type before they are added in f32: many sums are wrong."""
    p = problem(48, 48, k, out="f32")
    a, b = (fill(p, init, 7, which) for which in ("a", "b"))
    c = sum(rounded(a[:, part] @ b[part], dtype) for part in np.split(np.arange(k), 4))
    found = compare(
        p, sums(a, b), rounded(np.asarray(c), "f32"), bound(k, "f32", integers=init in INTEGER_INITS)
    )
    assert found.wrong / (p.m * p.n) > least


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_an_accumulator_of_16_bits_is_found_by_naturals(dtype: str) -> None:
    """Sums that are rounded after each step are wrong nearly everywhere; ints would not tell one of f16."""

    def wrong(init: str) -> float:
        p = problem(16, 16, 512, out="f32")
        a, b = (fill(p, init, 8, which) for which in ("a", "b"))
        c = np.zeros((p.m, p.n))
        for step in np.split(np.arange(p.k), p.k // STEP):
            c = rounded(c + a[:, step] @ b[step], dtype)
        return compare(p, sums(a, b), c, bound(p.k, "f32", integers=True)).wrong / (p.m * p.n)

    assert wrong("naturals") > 0.9
    assert wrong("ints") == 0 or dtype == "bf16"


def test_bounds_grow_with_depth_and_with_the_accumulator() -> None:
    """Growth stays finite however deep the product is."""
    depths = [bound(k, "f32", integers=False).unit for k in (16, 4096, 2**20)]
    assert depths == sorted(depths)
    assert bound(64, "f16", integers=False).unit > 100 * bound(64, "f32", integers=False).unit
    assert math.isfinite(bound(LARGEST_SIZE, "f16", integers=False).unit)


@given(values=st.lists(st.floats(allow_nan=False, width=64), min_size=1, max_size=20))
@settings(max_examples=200, deadline=None)
def test_types_round_as_numpy_does(values: list[float]) -> None:
    """To the nearest, ties to even, too large to infinity; the spacing is numpy's, too."""
    exact = np.array(values)
    for dtype, kind in NUMPY.items():
        with np.errstate(over="ignore"):
            expected = exact.astype(kind)
        assert np.array_equal(rounded(exact, dtype), expected.astype(np.float64))
        finite = expected[np.isfinite(expected) & (np.abs(expected) < TYPES[dtype].largest)]
        spacing = TYPES[dtype].spacing(finite.astype(np.float64))
        assert np.array_equal(spacing, np.spacing(np.abs(finite)).astype(np.float64))


def test_bf16_rounds_to_the_nearest_of_its_numbers() -> None:
    """Each number itself, a little beside it, and the middle between two, whose even neighbour is taken."""
    numbers = decode(np.arange(0, 0x7F80, dtype=np.uint64), "bf16").astype(np.float64)
    assert np.array_equal(rounded(numbers, "bf16"), numbers)
    middles = (numbers[:-1] + numbers[1:]) / 2
    assert np.array_equal(
        rounded(middles, "bf16"), np.where(np.arange(len(middles)) % 2, numbers[1:], numbers[:-1])
    )
    assert np.array_equal(rounded(middles * (1 + 2.0**-40), "bf16")[1:], numbers[2:])
    assert np.isinf(rounded(np.array([2.0**128]), "bf16")).all()
    assert np.isnan(rounded(np.array([np.nan]), "bf16")).all()


def scaled(p: Problem, init: str, scale: Callable[[Array, Array], Array], change: float = 0.0) -> Comparison:
    """Return the check of what ``scale`` makes of the exact sums and of what C held, in the output type."""
    total = sums(fill(p, init, 2, "a"), fill(p, init, 2, "b"))
    before = fill(p, init, 2, "c")
    c = rounded(scale(rounded(total.reference, p.acc), before), p.out)
    c[2, 3] += change
    limit = bound(p.k, p.acc, integers=init in INTEGER_INITS, alpha=p.alpha, beta=p.beta)
    return compare(p, total, c, limit, before)


@pytest.mark.parametrize("out", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("init", ["normal", "ints", "seq"])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (-2.0, 0.5), (0.1, 0.0), (0.0, 1.0), (0.3, -0.7)])
def test_scaling_is_permitted_in_any_order(out: str, init: str, alpha: float, beta: float) -> None:
    """Two products and a sum, each rounded, or one product fused into the sum: all are right."""
    p = problem(7, 9, 24, out=out)
    p = replace(p, alpha=float(np.float32(alpha)), beta=float(np.float32(beta)))
    ways = (
        lambda s, c: rounded(rounded(p.alpha * s, "f32") + rounded(p.beta * c, "f32"), "f32"),
        lambda s, c: rounded(p.alpha * s + rounded(p.beta * c, "f32"), "f32"),
        lambda s, c: rounded(rounded(p.alpha * s, "f32") + p.beta * c, "f32"),
    )
    for way in ways:
        found = scaled(p, init, way)
        assert (found.verified, found.wrong) == (63, 0)


@pytest.mark.parametrize("beta", [1.0, -1.0])
def test_what_c_held_must_be_added_once(beta: float) -> None:
    """Leaving it out, adding it twice or with the other sign is wrong; so is one step of a whole number."""
    p = replace(problem(7, 9, 24, out="f32"), beta=beta)
    for times in (0.0, 2.0, -1.0):
        found = scaled(p, "normal", lambda s, c, times=times: s + times * beta * c)  # type: ignore[misc]
        assert found.wrong > 50
    exact = scaled(p, "ints", lambda s, c: s + beta * c)
    assert (exact.verified, exact.max_error) == (63, 0)
    assert scaled(p, "ints", lambda s, c: s + beta * c, change=2.0**-10).wrong == 1


def test_poison_is_not_multiplied_by_zero() -> None:
    """With beta zero what C held is not looked at, and a result that did is NaN: wrong."""
    p = problem(7, 9, 24)
    assert scaled(p, "normal", lambda s, c: s + np.nan * c).wrong == 63


def test_an_infinite_sum_times_zero_proves_nothing() -> None:
    """Sums that overflow f16, scaled by zero, may be NaN or zero: counted as overflow, not as right."""
    p = replace(problem(1, 1, 2, acc="f16"), alpha=0.0)
    total = sums(np.full((1, 2), 60000.0), np.full((2, 1), 60000.0))
    for value in (0.0, np.nan):
        found = compare(p, total, np.full((1, 1), value), bound(2, "f16", integers=False, alpha=0.0))
        assert (found.overflow, found.verified, found.wrong) == (1, 0, 0)
