"""The element types that options name, and their sizes in bits.

Source: PTX ISA, "Fundamental types" and "Alternate floating-point data formats".
"""

from __future__ import annotations

from ptxlab.errors import unknown_name

BITS: dict[str, int] = {
    "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64,
    "e4m3": 8, "e5m2": 8, "e2m1": 4, "e2m3": 6, "e3m2": 6,
    "s8": 8, "u8": 8, "s16": 16, "u16": 16, "s32": 32, "u32": 32, "s64": 64, "u64": 64,
    "s4": 4, "u4": 4, "b1": 1,
}  # fmt: skip
"""Type name -> bits of one element as it lies in memory."""


def bits(dtype: str) -> int:
    """Return the size of one element in bits.

    Raises:
        UsageError: there is no such type; the message holds the types there are.

    """
    if dtype not in BITS:
        raise unknown_name("type", dtype, BITS)
    return BITS[dtype]
