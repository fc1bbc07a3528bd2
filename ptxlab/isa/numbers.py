"""The bits of numbers: encoding and decoding every element type, as functions on numpy arrays.

Source: PTX ISA, "Fundamental types" and "Alternate floating-point data formats"; OCP 8-bit floating point
specification for e4m3 (no infinities, one NaN) and e5m2; OCP microscaling formats for e2m1, e2m3 and e3m2.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.isa.types import BITS

Numbers = NDArray[np.float64] | NDArray[np.int64]
Words = NDArray[np.uint64]

_EXPONENT_BITS = {
    "f16": 5,
    "bf16": 8,
    "tf32": 8,
    "f32": 8,
    "e4m3": 4,
    "e5m2": 5,
    "e2m1": 2,
    "e2m3": 2,
    "e3m2": 3,
}
_FINITE_ONLY = ("e2m1", "e2m3", "e3m2")


def is_integer(dtype: str) -> bool:
    """Say whether a type holds whole numbers (b1 does: 0 and 1)."""
    return dtype[0] in "su" or dtype == "b1"


def decode(words: Words, dtype: str) -> Numbers:
    """Return the numbers that these bits (in the low end of each word) stand for.

    Integers come back as int64, floating-point types as float64, which holds each of them exactly.
    """
    width = BITS[dtype]
    if is_integer(dtype):
        values = words.astype(np.int64)
        return (
            np.where(values >> (width - 1) & 1, values - (1 << width), values) if dtype[0] == "s" else values
        )
    if dtype == "f64":
        return words.view(np.float64)
    if dtype in ("f32", "tf32"):
        return words.astype(np.uint32).view(np.float32).astype(np.float64)
    return _table(dtype)[words.astype(np.int64)]


def encode(values: Numbers, dtype: str) -> Words:
    """Return the bits of numbers that the type holds exactly.

    Raises:
        UsageError: a number is not one of the type's; the message names the first.

    """
    width = BITS[dtype]
    if is_integer(dtype):
        words = values.astype(np.int64).astype(np.uint64) & np.uint64((1 << width) - 1)
    elif dtype == "f64":
        words = values.astype(np.float64).view(np.uint64)
    elif dtype in ("f32", "tf32"):
        words = values.astype(np.float32).view(np.uint32).astype(np.uint64)
        words &= np.uint64(0xFFFFE000 if dtype == "tf32" else 0xFFFFFFFF)
    else:
        words = _nearest(values.astype(np.float64), dtype)
    wrong = np.flatnonzero(decode(words, dtype) != values)
    if len(wrong):
        raise UsageError(f"{values.ravel()[wrong[0]]} is no number of type {dtype}")
    return words


@cache
def _table(dtype: str) -> NDArray[np.float64]:
    """Return the value of every bit pattern of a floating-point type of at most 16 bits."""
    width, exponent_bits = BITS[dtype], _EXPONENT_BITS[dtype]
    fraction_bits = width - 1 - exponent_bits
    words = np.arange(1 << width)
    sign = np.where(words >> (width - 1), -1.0, 1.0)
    exponent = words >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = (words & ((1 << fraction_bits) - 1)) / (1 << fraction_bits)
    bias = (1 << (exponent_bits - 1)) - 1
    normal = exponent > 0
    values = sign * (normal + fraction) * np.exp2(np.maximum(exponent, 1) - bias)
    top = exponent == (1 << exponent_bits) - 1
    if dtype == "e4m3":
        return np.where(top & (fraction == 0.875), np.nan, values)
    if dtype in _FINITE_ONLY:
        return np.asarray(values)
    return np.asarray(np.where(top, np.where(fraction == 0, sign * np.inf, np.nan), values))


def _nearest(values: NDArray[np.float64], dtype: str) -> Words:
    """Return the bit pattern of the nearest value of the type (of a tie, either; callers want exact ones)."""
    table = _table(dtype)
    order = np.argsort(np.where(np.isnan(table), np.inf, table), kind="stable")
    finite = order[np.isfinite(table[order])]
    index = np.clip(np.searchsorted(table[finite], values), 0, len(finite) - 1)
    below = np.maximum(index - 1, 0)
    closer = np.abs(table[finite[below]] - values) < np.abs(table[finite[index]] - values)
    return finite[np.where(closer, below, index)].astype(np.uint64)
