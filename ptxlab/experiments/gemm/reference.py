"""The fills and the check of a GEMM once more, in numpy: what the device's kernels are held against.

Written from the same definitions as kernels/check/*.cu, not from their code; the random bits are equal bit
for bit. Logical matrices are float64 arrays that hold values of their type.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ptxlab.experiments.gemm.activation import activated, image
from ptxlab.experiments.gemm.bound import STEP, Bound
from ptxlab.experiments.gemm.problem import PROMOTED, TYPES, DataType, Logical, Problem
from ptxlab.isa.accumulate import multiply_add, wgmma_arithmetic
from ptxlab.isa.numbers import decode

INTEGER_INITS = ("ints", "naturals", "ones", "zeros")
BLIND_INITS = ("ones", "zeros")
"""Fills that look the same after any permutation: they cannot prove a layout right."""

MATRICES = ("a", "b", "c", "bias")
"""What is filled: the operands, what C holds before where beta is not zero, and a bias where there is one."""

AT_ONCE = 32
"""8-bit floats that wgmma multiplies along k at once."""

TILE = 64
"""Rows and columns of C that one block of the check recomputes (kernels/check/compare.cu)."""

_WEIGHT = np.uint64(0x9E3779B97F4A7C15)


def stream(seed: int, which: str) -> int:
    """Return the number that keeps the random elements of each matrix and seed apart."""
    return (len(MATRICES) * seed + MATRICES.index(which)) % 2**64


def fill(problem: Problem, init: str, seed: int, which: str) -> Logical:
    """Return a matrix (one of MATRICES) as the check's kernel fills it, rounded to its type.

    Normal values agree with the device's up to the last bits of float64, so that very rarely one rounds
    to the neighbouring value of its type; all others agree exactly.
    """
    matrix = {"a": problem.a, "b": problem.b, "c": problem.c, "bias": problem.bias_row}[which]
    index = np.arange(matrix.rows * matrix.cols, dtype=np.uint64)
    if init == "seq":
        values = {"a": index / 256, "b": (index + 1.25) / 128}.get(which, (index + 0.5) / 64)
    elif init in BLIND_INITS:
        values = np.full(index.shape, 1.0 if init == "ones" else 0.0)
    elif init == "ints":
        bits = random_bits(index, stream(seed, which)) >> np.uint64(32)
        values = (bits % np.uint64(5)).astype(np.float64) - 2
    elif init == "naturals":
        bits = random_bits(index, stream(seed, which)) >> np.uint64(32)
        values = (bits % np.uint64(8)).astype(np.float64) + 1
    else:
        values = matrix.dtype.spread * _normal(random_bits(index, stream(seed, which)))
    return matrix.dtype.rounded(values).reshape(matrix.rows, matrix.cols)


def random_bits(index: NDArray[np.uint64], number: int) -> NDArray[np.uint64]:
    """Return 64 random bits for each index of a stream: splitmix64's finalizer over a counter."""
    start = _mixed(np.array([number], dtype=np.uint64))
    return _mixed(start + (index + np.uint64(1)) * _WEIGHT)


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _normal(bits: NDArray[np.uint64]) -> Logical:
    """Return standard normal values (Box and Muller; radius from the upper half, angle from the lower)."""
    upper = ((bits >> np.uint64(32)) + np.uint64(1)).astype(np.float64) * 2.0**-32
    lower = (bits & np.uint64(0xFFFFFFFF)).astype(np.float64) * 2.0**-32
    values: Logical = np.sqrt(-2 * np.log(upper)) * np.cos(2 * np.pi * lower)
    return values


@dataclass(frozen=True)
class Element:
    """One element of C, and what was expected there.

    Attributes:
        row: its row.
        col: its column.
        result: what the GEMM wrote.
        reference: the float64 reference.
        low: the least result that is right.
        high: the greatest.

    """

    row: int
    col: int
    result: float
    reference: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """Every element of C in exactly one class, and the largest error.

    Attributes:
        verified: compared and right.
        wrong: compared and not right; NaN always is.
        overflow: the reference is finite, but its rounding or the permitted result is infinite.
        infinite: the reference is infinite because an input is; not compared.
        nan: the reference is NaN, such as 0 x infinity; not compared.
        worst: an element with the largest finite error; None if no error is finite.
        first_wrong: some wrong elements, in row-major order.
        wrong_blocks: how many each block of the check found, by the first row and column of those that did.

    """

    verified: int
    wrong: int
    overflow: int
    infinite: int
    nan: int
    worst: Element | None
    first_wrong: list[Element] = field(default_factory=list)
    wrong_blocks: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def elements(self) -> int:
        """How many elements were looked at."""
        return self.verified + self.wrong + self.overflow + self.infinite + self.nan

    @property
    def max_error(self) -> float | None:
        """The largest |result - reference| of those that are finite."""
        return abs(self.worst.result - self.worst.reference) if self.worst else None


@dataclass(frozen=True)
class Sums:
    """Per element: the float64 sum, the sum of its absolute values after each step, and of all |a||b|."""

    reference: Logical
    partials: Logical
    magnitude: Logical


def sums(a: Logical, b: Logical) -> Sums:
    """Return the reference and what its bound is made of, with k in ascending order like the device."""
    shape = (a.shape[0], b.shape[1])
    result = Sums(np.zeros(shape), np.zeros(shape), np.zeros(shape))
    depth = a.shape[1]
    with np.errstate(invalid="ignore"):
        for i in range(depth):
            product = np.multiply.outer(a[:, i], b[i, :])
            np.add(result.reference, product, out=result.reference)
            np.add(result.magnitude, np.abs(product), out=result.magnitude)
            if i % STEP == STEP - 1 or i == depth - 1:
                np.add(result.partials, np.abs(result.reference), out=result.partials)
    return result


def chained(problem: Problem, a: Logical, b: Logical) -> Logical:
    """Return sums of 8-bit floats as wgmma makes them, bit for bit: in one chain, k in ascending order.

    They are float32 as float64; every PROMOTED values of k they are added up, if the problem says so.
    """
    rule, at_once = wgmma_arithmetic(problem.dtype, problem.acc, AT_ONCE), range(0, problem.k, AT_ONCE)
    depth = -(-problem.k // AT_ONCE) * AT_ONCE - problem.k
    a, b = np.pad(a, ((0, 0), (0, depth))), np.pad(b, ((0, depth), (0, 0)))
    total, part = np.zeros((problem.m, problem.n)), np.zeros((problem.m, problem.n))
    for first in at_once:
        end = first + AT_ONCE
        words = multiply_add(a[:, first:end], b[first:end], part, problem.dtype, problem.acc, rule)
        part = decode(words, problem.acc).astype(np.float64)
        if end >= problem.k or (problem.promoted and end % PROMOTED == 0):
            total, part = (total + part).astype(np.float32).astype(np.float64), np.zeros_like(part)
    return total


def compare(
    problem: Problem,
    total: Sums,
    c: Logical,
    limit: Bound,
    before: Logical | None = None,
    bias: Logical | None = None,
    known: Logical | None = None,
) -> Comparison:
    """Return what the check's kernel must find for the result ``c``, where C held ``before``.

    Where the sums are known to the last bit no others are right, whatever the bound permits.
    Infinite and NaN are told by what goes into the activation, which may hide them.
    """
    with np.errstate(invalid="ignore"):
        error = limit.unit * total.partials + limit.magnitude_unit * total.magnitude + limit.floor
        error = np.where(total.magnitude <= limit.exact_limit, 0.0, error)
        old = np.zeros(c.shape) if before is None or not problem.beta else problem.beta * before
        added = np.broadcast_to(bias, c.shape) if bias is not None and problem.bias else np.zeros(c.shape)
        around, error = (total.reference, error) if known is None else (known, np.zeros(c.shape))
        sums_permitted = around - error, around + error
        slack = _slack(problem, total, sums_permitted, limit, np.abs(old) + np.abs(added))
        old = old + added
        argument = problem.alpha * total.reference + old
        ends = [_scaled(problem, each) + old for each in sums_permitted]
        low, high = ends if problem.alpha >= 0 else ends[::-1]
        low, high = _permitted(problem, limit, low - slack, high + slack)
        reference = activated(problem.activation, argument)
        rounded = _written(problem, activated(problem.activation, _scaled(problem, total.reference) + old))
        distance = np.abs(c - reference)
    nan, infinite = np.isnan(argument), np.isinf(argument)
    unknown = np.isnan(low) | np.isnan(high)  # an infinite sum is permitted, and scaled by zero
    inside = unknown | ((low <= c) & (c <= high))
    comparable = ~nan & ~infinite
    bounded = ~unknown & np.isfinite(c) & np.isfinite(rounded)
    wrong = comparable & ~inside

    def element(flat: int) -> Element:
        row, col = divmod(flat, problem.n)
        at = (row, col)
        values = (float(each[at]) for each in (c, reference, low, high))
        return Element(row, col, *values)

    finite = np.isfinite(distance)
    worst = element(int(np.argmax(np.where(finite, distance, -1.0)))) if finite.any() else None
    return Comparison(
        verified=int((comparable & inside & bounded).sum()),
        wrong=int(wrong.sum()),
        overflow=int((comparable & inside & ~bounded).sum()),
        infinite=int(infinite.sum()),
        nan=int(nan.sum()),
        worst=worst,
        first_wrong=[element(flat) for flat in np.flatnonzero(wrong).tolist()],
        wrong_blocks=_by_block(wrong),
    )


def _by_block(wrong: NDArray[np.bool_]) -> dict[tuple[int, int], int]:
    """Return how many elements of each block of the check are wrong, of those blocks that have some."""
    firsts = np.argwhere(wrong) // TILE * TILE
    blocks, counts = np.unique(firsts, axis=0, return_counts=True)
    return {(row, col): count for (row, col), count in zip(blocks.tolist(), counts.tolist(), strict=True)}


def _scaled(problem: Problem, values: Logical) -> Logical:
    """Return alpha times the values as they come out of the accumulator."""
    return problem.alpha * TYPES[problem.acc].rounded(values)


def _written(problem: Problem, values: Logical) -> Logical:
    """Return the values as they come out of where they are scaled, and of the output type."""
    return TYPES[problem.out].rounded(_between(problem).rounded(values))


def _between(problem: Problem) -> DataType:
    """Return the type in which sums are scaled: float32, where they do not stay integers."""
    return TYPES["s32" if problem.out == "s32" else "f32"]


def _permitted(problem: Problem, limit: Bound, low: Logical, high: Logical) -> tuple[Logical, Logical]:
    """Return the least and the greatest result, where the activation's argument lies between these two."""
    low, high = (_between(problem).rounded(each) for each in (low, high))
    lost = limit.activation_unit * np.maximum(np.abs(low), np.abs(high)) if limit.activation_unit else 0.0
    least, greatest = image(problem.activation, low, high)
    return _written(problem, least - lost), _written(problem, greatest + lost)


def _slack(
    problem: Problem, total: Sums, sums_permitted: tuple[Logical, Logical], limit: Bound, addends: Logical
) -> Logical:
    """Return what scaling and adding may lose of each element; ``addends`` is |U| + |V|."""
    if not limit.scale_unit:
        return np.zeros(addends.shape)
    ends = [np.abs(_scaled(problem, each)) for each in sums_permitted]
    lost = limit.scale_unit * (np.maximum(*ends) + addends) + limit.scale_floor
    exact = abs(problem.alpha) * total.magnitude + addends <= limit.scale_exact_limit
    return np.where(exact, 0.0, lost)
