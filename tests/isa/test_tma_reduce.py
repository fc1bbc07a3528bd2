"""Reductions of TMA: the table of types, integers, and the bits of floats as an H200 left them."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.isa.tensor_map import SIZES
from ptxlab.isa.tma_reduce import REDUCTIONS, check_reduction, combined


def reduced(operation: str, dtype: str, old: int, new: int) -> int:
    """Combine the bits of two elements."""
    size = SIZES[dtype]
    mask = (1 << 8 * size) - 1
    given = [
        np.frombuffer((each & mask).to_bytes(size, "little"), dtype=np.uint8)[None] for each in (old, new)
    ]
    return int.from_bytes(combined(operation, dtype, *given).tobytes(), "little")


@pytest.mark.parametrize(
    ("operation", "dtype", "old", "new", "result"),
    [
        ("add", "u32", 0xFFFFFFFF, 2, 1),
        ("add", "s32", -5, 3, 0xFFFFFFFE),
        ("add", "u64", 1 << 40, 5, (1 << 40) + 5),
        ("min", "s32", -5, 3, 0xFFFFFFFB),
        ("min", "u32", -5, 3, 3),
        ("max", "s64", -5, 3, 3),
        ("inc", "u32", 4, 5, 5),
        ("inc", "u32", 5, 5, 0),
        ("dec", "u32", 0, 5, 5),
        ("dec", "u32", 6, 5, 5),
        ("dec", "u32", 5, 5, 4),
        ("and", "u32", 12, 10, 8),
        ("or", "u64", 12, 10, 14),
        ("xor", "u32", 12, 10, 6),
    ],
)
def test_integers(operation: str, dtype: str, old: int, new: int, result: int) -> None:
    """What each operation leaves of two numbers."""
    assert reduced(operation, dtype, old, new) == result


@pytest.mark.parametrize(
    ("operation", "dtype", "old", "new", "measured"),
    [
        ("add", "f16", 0x3C00, 0x3C01, 0x4000),  # 1 + 1.0009765625, a tie: to even
        ("add", "f16", 0x7BFF, 0x7BFF, 0x7C00),
        ("add", "f16", 0x0001, 0x03FF, 0x0400),
        ("add", "f16", 0x0000, 0x7E00, 0x7FFF),
        ("add", "f16", 0x7C00, 0xFC00, 0x7FFF),
        ("add", "bf16", 0x3F80, 0x3F81, 0x4000),
        ("add", "bf16", 0x7F81, 0x8001, 0x7FFF),
        ("add", "f32", 0x00000001, 0x007FFFFF, 0x00800000),
        ("add", "f32", 0x00000000, 0xFFC12345, 0x7FFFFFFF),
        ("add", "f32_ftz", 0x00000000, 0x80000001, 0x00000000),
        ("add", "f32_ftz", 0x00000000, 0x007FFFFF, 0x00000000),
        ("add", "f32_ftz", 0x80000001, 0x80001000, 0x80000000),
        ("min", "f16", 0x7E00, 0x3C00, 0x3C00),
        ("min", "f16", 0x7E00, 0xFFFF, 0x7FFF),
        ("min", "f16", 0x8000, 0x0000, 0x8000),
        ("min", "f16", 0x0000, 0x8000, 0x8000),
        ("max", "bf16", 0x0000, 0x8000, 0x0000),
        ("max", "bf16", 0x8000, 0x0000, 0x0000),
        ("max", "bf16", 0xFF80, 0x7FC0, 0xFF80),
    ],
)
def test_floats(operation: str, dtype: str, old: int, new: int, measured: int) -> None:
    """Rounded once, NaN as 7fff..., zeros in order, subnormal numbers kept but for f32_ftz."""
    assert reduced(operation, dtype, old, new) == measured


def test_a_sum_of_bf16_is_rounded_once() -> None:
    """Through float32 it would be rounded twice: 1 + 2^-8 + a bit more is above the tie."""
    assert reduced("add", "bf16", 0x3F80, 0x3B80) == 0x3F80  # 1 + 2^-8: a tie, to even
    assert reduced("add", "bf16", 0x3F80, 0x3B81) == 0x3F81
    assert reduced("add", "bf16", 0x4B80, 0x3F80) == 0x4B80


@pytest.mark.parametrize(
    ("operation", "dtype"), [("add", "s64"), ("min", "f32"), ("inc", "s32"), ("add", "u8")]
)
def test_what_the_table_lacks_is_refused(operation: str, dtype: str) -> None:
    """With the types that have it."""
    with pytest.raises(UsageError, match=f"no reduction .{operation} of {dtype}; legal types: u32"):
        check_reduction(operation, dtype)


def test_an_unknown_reduction_is_refused() -> None:
    """With those there are."""
    with pytest.raises(UsageError, match="unknown reduction 'mul'; legal: add, min, max"):
        check_reduction("mul", "u32")
    for name, types in REDUCTIONS.items():
        for dtype in types:
            check_reduction(name, dtype)
