"""The limits of bulk copies, and what their reductions leave."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.isa.bulk_copy import BulkForm, check_arch, check_bytes, check_reduction, combined, operands


@pytest.mark.parametrize("value", [8, 24, 0, 1040, -16])
def test_sizes_are_multiples_of_16_in_a_range(value: int) -> None:
    """The message names the legal ones, the hint what silicon does with others."""
    check_bytes("a copy", 1024, 1024, 16)
    with pytest.raises(UsageError, match="legal: multiples of 16 from 16 to 1024") as caught:
        check_bytes("a copy", value, 1024, 16)
    assert "the barrier waits" in caught.value.hint


def test_ampere_has_none() -> None:
    """They came with sm_90."""
    check_arch("sm_90")
    with pytest.raises(UsageError, match="legal: sm_90 and later"):
        check_arch("sm_89")


def test_a_reduction_that_does_not_exist_names_the_types_that_have_it() -> None:
    """And what the type has instead; shared memory has fewer than global memory."""
    with pytest.raises(
        UsageError, match=r"\.min of f32 in global memory; legal types: u32, s32, u64"
    ) as caught:
        check_reduction(BulkForm("reduce", "min", "f32"))
    assert caught.value.hint == "f32 has add"
    check_reduction(BulkForm("reduce", "add", "f32"))
    with pytest.raises(UsageError, match=r"\.add of f32 in shared memory; legal types: u32, s32, u64"):
        check_reduction(BulkForm("send-reduce", "add", "f32"))


def test_sixteen_bit_sums_are_written_noftz() -> None:
    """There is no other way in PTX; min and max have no such suffix."""
    assert BulkForm("reduce", "add", "f16").ptx.endswith(".add.noftz.f16")
    assert BulkForm("reduce", "min", "f16").ptx.endswith(".min.f16")


def reduce(reduction: str, dtype: str, kind: Any, old: list[Any], new: list[Any]) -> list[Any]:
    """Combine lists of numbers of one type."""
    a, b = (np.array(each, dtype=kind).view(np.uint8) for each in (old, new))
    return list(combined(reduction, dtype, a, b).view(kind).tolist())


@pytest.mark.parametrize(
    ("reduction", "dtype", "kind", "old", "new", "after"),
    [
        ("add", "u32", np.uint32, [2**32 - 1, 3], [2, 4], [1, 7]),
        ("add", "u64", np.uint64, [2**64 - 1], [1], [0]),
        ("min", "s32", np.int32, [-5, 7], [3, -7], [-5, -7]),
        ("max", "u32", np.uint32, [2**31, 7], [3, 9], [2**31, 9]),
        ("inc", "u32", np.uint32, [4, 5, 9], [5, 5, 5], [5, 0, 0]),
        ("dec", "u32", np.uint32, [4, 0, 9], [5, 5, 5], [3, 5, 5]),
        ("and", "b32", np.uint32, [0b1100], [0b1010], [0b1000]),
        ("or", "b64", np.uint64, [0b1100 << 40], [0b1010 << 40], [0b1110 << 40]),
        ("xor", "b32", np.uint32, [0b1100], [0b1010], [0b0110]),
        ("add", "f32", np.float32, [1.5, 2.0**-149], [2.25, 2.0**-149], [3.75, 2.0**-148]),
        ("add", "f64", np.float64, [1.5, 2.0**-1074], [2.25, 2.0**-1074], [3.75, 2.0**-1073]),
        ("add", "f16", np.float16, [1.5, 2.0**-24], [2.25, 2.0**-24], [3.75, 2.0**-23]),
    ],
)  # fmt: skip
def test_what_a_reduction_leaves(
    reduction: str, dtype: str, kind: Any, old: list[Any], new: list[Any], after: list[Any]
) -> None:
    """Integers wrap; float sums keep subnormal numbers."""
    assert reduce(reduction, dtype, kind, old, new) == after


def test_sums_that_are_no_number() -> None:
    """NaNs of f64 stay, of two the new one; infinities make fff8..., and 7fff... in the narrower types."""
    inf, one, signalling = 0x7FF0 << 48, 0x3FF0 << 48, 0x7FF0 << 48 | 1
    old = [inf, 0xFFF8 << 48 | 0x456, one, 0x7FF8 << 48 | 0x123, signalling]
    new = [0xFFF0 << 48, one, signalling, 0x7FF8 << 48 | 0x777, one]
    made = combined("add", "f64", *(np.array(each, np.uint64).view(np.uint8) for each in (old, new)))
    after = [0xFFF8 << 48, 0xFFF8 << 48 | 0x456, signalling, 0x7FF8 << 48 | 0x777, signalling]
    assert made.view(np.uint64).tolist() == after
    inf = float("inf")
    narrow = combined("add", "f32", *(np.array([x], np.float32).view(np.uint8) for x in (inf, -inf)))
    assert narrow.view(np.uint32).tolist() == [0x7FFFFFFF]


@pytest.mark.parametrize("dtype", ["u32", "s64", "b64", "f16", "bf16", "f32", "f64"])
def test_operands_tell_elements_and_sides_apart(dtype: str) -> None:
    """The two sides differ almost everywhere, and neighbours do."""
    first, second = (operands(dtype, 256, series) for series in (1, 2))
    assert len(first) == len(second) == 256
    size = {"f16": 2, "bf16": 2, "f32": 4, "u32": 4}.get(dtype, 8)
    words = [np.ascontiguousarray(each).view(f"u{size}") for each in (first, second)]
    assert len(set(words[0].tolist())) > len(words[0]) * 3 // 4
    assert (words[0] != words[1]).sum() > len(words[0]) * 3 // 4
