"""The reductions of TMA: which types have them, and what two elements become, bit for bit.

Integers wrap. A float sum rounds once, to nearest even, and keeps subnormal numbers unless the map's type is
f32_ftz. Where the result is no number, it is 7fff... min and max take the number of a number and a NaN, and
minus zero for the smaller zero.

Source: PTX ISA, "Data movement and conversion instructions: cp.reduce.async.bulk.tensor" (types); the
float details and f32_ftz: measured on an H200, 2026-11-30. A reduction that the table lacks ended a kernel
there with an illegal instruction (add of s64, min of f32), but for the add of f64, which ran.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError, unknown_name

Bytes = NDArray[np.uint8]

REDUCTIONS = {
    "add": ("u32", "s32", "u64", "f16", "bf16", "f32", "f32_ftz"),
    "min": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "max": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("u32", "s32", "u64", "s64"),
    "or": ("u32", "s32", "u64", "s64"),
    "xor": ("u32", "s32", "u64", "s64"),
}
"""Operation of a reduction -> the types of a map that have it."""


def check_reduction(operation: str, dtype: str) -> None:
    """Check that a reduction exists for the elements of a map.

    Raises:
        UsageError: the message holds the types that have it.

    """
    if operation not in REDUCTIONS:
        raise unknown_name("reduction", operation, REDUCTIONS)
    if dtype not in REDUCTIONS[operation]:
        having = [name for name, types in REDUCTIONS.items() if dtype in types]
        raise UsageError(
            f"no reduction .{operation} of {dtype}; legal types: {', '.join(REDUCTIONS[operation])}",
            f"{dtype} has {', '.join(having)}" if having else "",
        )


def combined(operation: str, dtype: str, old: Bytes, new: Bytes) -> Bytes:
    """Return what a reduction leaves of two lists of elements, [n, bytes]."""
    if dtype in _TO_NARROW:
        return _combined_floats(operation, dtype, old, new)
    kind = np.dtype(f"{'i' if dtype[0] == 's' else 'u'}{old.shape[1]}")
    a, b = (np.ascontiguousarray(each).view(kind)[:, 0] for each in (old, new))
    with np.errstate(over="ignore"):  # integers wrap
        made = _INTEGERS[operation](a, b)
    return np.ascontiguousarray(made.astype(kind)[:, None]).view(np.uint8)


_INTEGERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda old, new: old + new,
    "min": np.minimum,
    "max": np.maximum,
    "inc": lambda old, new: np.where(old >= new, 0, old + 1),
    "dec": lambda old, new: np.where((old == 0) | (old > new), new, old - 1),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _combined_floats(operation: str, dtype: str, old: Bytes, new: Bytes) -> Bytes:
    a, b = _widened(old, dtype), _widened(new, dtype)
    if operation == "add":
        with np.errstate(invalid="ignore"):  # infinities of both signs make a NaN
            made = a + b
    else:
        first, second = (a, b) if operation == "min" else (b, a)
        chosen = np.where((b < a) | ((a == b) & np.signbit(b)), second, first)
        made = np.where(np.isnan(a), b, np.where(np.isnan(b), a, chosen))
    bits = _TO_NARROW[dtype](made)
    if dtype == "f32_ftz":
        bits = _flushed(bits)
    nan = np.array((1 << 8 * old.shape[1] - 1) - 1, dtype=bits.dtype)
    return np.ascontiguousarray(np.where(np.isnan(made), nan, bits)[:, None]).view(np.uint8)


def _widened(data: Bytes, dtype: str) -> NDArray[np.float64]:
    """Return the numbers of elements; their sums are exact in double precision, or round to the same."""
    data = np.ascontiguousarray(data)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        if dtype == "f16":
            return data.view(np.float16)[:, 0].astype(np.float64)
        if dtype == "bf16":
            return (data.view(np.uint16)[:, 0].astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        bits = data.view(np.uint32)[:, 0]
        return (_flushed(bits) if dtype == "f32_ftz" else bits).view(np.float32).astype(np.float64)


def _flushed(bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the bits of float32 with zeros, of the same sign, in place of numbers too small to be normal."""
    return np.where(bits & 0x7F800000, bits, bits & 0x80000000).astype(np.uint32)


def _to_float32(numbers: NDArray[np.float64]) -> NDArray[np.uint32]:
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32).view(np.uint32)


def _to_float16(numbers: NDArray[np.float64]) -> NDArray[np.uint16]:
    with np.errstate(over="ignore"):
        return numbers.astype(np.float16).view(np.uint16)


def _to_bfloat16(numbers: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Round once: float32 in between, rounded to odd so that no tie arises that was none."""
    with np.errstate(over="ignore"):
        near = numbers.astype(np.float32)
    bits = near.view(np.uint32)
    inexact = np.isfinite(numbers) & (near.astype(np.float64) != numbers)
    away = np.abs(near.astype(np.float64)) > np.abs(numbers)
    odd = np.where(inexact, np.where(away, bits - 1, bits) | 1, bits)
    rounded: NDArray[np.uint16] = (odd + 0x7FFF + (odd >> 16 & 1) >> 16).astype(np.uint16)
    return rounded


_TO_NARROW: dict[str, Callable[[NDArray[np.float64]], NDArray[Any]]] = {
    "f16": _to_float16, "bf16": _to_bfloat16, "f32": _to_float32, "f32_ftz": _to_float32,
}  # fmt: skip
