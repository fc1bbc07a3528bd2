"""Products that show from where A and B were read: one operand names its elements, the other selects them.

In most trials one operand holds its own row or column numbers, a digit at a time, and the other has a single
1 in each of its rows or columns: an element of D then is that digit of one element. In the last trial both
hold small integers, all of which add up. No element of D is zero, and every sum is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from ptxlab.isa.numbers import Words, decode, encode
from ptxlab.isa.registers import Ints
from ptxlab.isa.types import BITS
from ptxlab.isa.wgmma import accumulator_bits


@dataclass(frozen=True)
class Trial:
    """What one product shows.

    Attributes:
        operand: "A" or "B", which names its elements; "" where all elements add up.
        axis: 0 or 1: its rows or its columns are named.
        digit: which digit of them, the lowest first.
        shift: the first element that the other operand selects.

    """

    operand: str
    axis: int = 0
    digit: int = 0
    shift: int = 0


@dataclass(frozen=True)
class Products:
    """Several trials.

    Attributes:
        trials: what each shows.
        a: bits of A, [trial, m, k].
        b: bits of B, [trial, k, n].
        types: of A, of B, and of D.

    """

    trials: tuple[Trial, ...]
    a: Words
    b: Words
    types: tuple[str, str, str]

    def shown(self, operand: str, d: Words) -> Ints:
        """Return row * 256 + column of each element of A or B, as D's bits [trial, m, n] show it."""
        of_a = operand == "A"
        shape = (self.a if of_a else self.b).shape[1:]
        k = self.b.shape[1]
        found = np.zeros((2, *shape), dtype=np.int64)
        for index, trial in enumerate(self.trials):
            if trial.operand == operand:
                digits, scale = self._digits(trial, d[index])
                digits = digits if of_a else digits.T
                chosen = (np.arange(min(k, digits.shape[1])) + trial.shift) % k
                along = found[trial.axis].T if not of_a else found[trial.axis]
                along[:, chosen] = along[:, chosen] % scale + scale * digits[:, : len(chosen)]
        return np.asarray(found[0] << 8 | found[1])

    def placed(self, d: Words) -> Ints:
        """Return row * 256 + column of each element of D, as its bits [trial, m, n] show it."""
        found = np.zeros((2, *d.shape[1:]), dtype=np.int64)
        for index, trial in enumerate(self.trials):
            if (trial.operand, trial.axis) in (("A", 0), ("B", 1)) and not trial.shift:
                digits, scale = self._digits(trial, d[index])
                found[trial.axis] += scale * digits
        return np.asarray(found[0] << 8 | found[1])

    def _digits(self, trial: Trial, d: Words) -> tuple[Ints, int]:
        """Return the digit that each element of D is (one beyond the last for none), and its weight."""
        a, b, acc = self.types
        known = _letters_of_d(a if trial.operand == "A" else b, acc)
        digit = np.minimum(np.searchsorted(known, d), len(known) - 1)
        return np.where(known[digit] == d, digit, len(known)), len(known) ** trial.digit


def products(m: int, n: int, k: int, types: tuple[str, str, str]) -> Products:
    """Return the trials of D[m, n] = A[m, k] x B[k, n]; types are those of A, of B and of D."""
    trials: list[Trial] = []
    pairs: list[tuple[Words, Words]] = []
    for operand, shape, dtype, across in (("A", (m, k), types[0], n), ("B", (k, n), types[1], m)):
        alphabet = letters(dtype)
        for axis, index in enumerate(np.indices(shape)):
            for digit in range(_digits_of(shape[axis], len(alphabet))):
                named = alphabet[index // len(alphabet) ** digit % len(alphabet)]
                for shift in range(0, k, across):
                    trials.append(Trial(operand, axis, digit, shift))
                    chosen = _selecting(k, across, shift, types[operand == "A"])
                    pairs.append((named, chosen) if operand == "A" else (chosen.T, named))
    pairs.append(_integers(m, n, k, types))
    a, b = (np.stack(each) for each in zip(*pairs, strict=True))
    return Products((*trials, Trial("")), a, b, types)


@cache
def letters(dtype: str) -> Words:
    """Return bits of numbers in ascending order, none of them zero, that a product by 1 keeps exactly."""
    if dtype in ("e4m3", "e5m2"):
        return np.arange(8, 72, dtype=np.uint64)  # normal numbers
    if dtype in ("e2m1", "e2m3", "e3m2"):
        return np.arange(1, 1 << (BITS[dtype] - 1), dtype=np.uint64)  # all positive ones
    most = {"bf16": 256, "s8": 64, "u8": 128}.get(dtype, 1024)
    return encode(np.arange(1, most + 1), dtype)


@cache
def _letters_of_d(dtype: str, acc: str) -> Words:
    return accumulator_bits(decode(letters(dtype), dtype), acc)


def _digits_of(extent: int, base: int) -> int:
    """Return how many digits it takes to number so many things."""
    return 1 if extent <= base else 1 + _digits_of(-(-extent // base), base)


def _selecting(k: int, across: int, shift: int, dtype: str) -> Words:
    """Return k x across zeros with a 1 in each column: in column j at j + shift, counted round k."""
    chosen = np.arange(k)[:, None] == (np.arange(across) + shift) % k
    return np.where(chosen, _one(dtype), np.uint64(0))


@cache
def _one(dtype: str) -> np.uint64:
    return np.uint64(encode(np.ones(1, dtype=np.int64), dtype)[0])


def _integers(m: int, n: int, k: int, types: tuple[str, str, str]) -> tuple[Words, Words]:
    """Return A and B of small integers with positive and (where the type has them) negative products."""
    a = 1 + np.add.outer(np.arange(m), np.arange(k)) % 2
    odd = np.add.outer(np.arange(k), np.arange(n)) % 2 == 1
    return encode(a, types[0]), encode(np.where(odd, 3, 2 if types[1] == "u8" else -2), types[1])
