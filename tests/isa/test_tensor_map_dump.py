"""Tensor maps read out of raw bytes and out of the text of a failed encoding."""

from __future__ import annotations

import pytest

from ptxlab.errors import UsageError
from ptxlab.isa.tensor_map import TensorMap
from ptxlab.isa.tensor_map_dump import maps_of

DUMP = """\
Error: Failed to initialize the TMA descriptor 1
TMA Desc Addr:   0x7ffd7d2800c0
format         6
dim            3
gmem_address   0
globalDim      (1024,1024,1,1,1)
globalStrides  (2,2048,2097152,0,0)
boxDim         (64,128,1,1,1)
elementStrides (1,1,1,1,1)
interleave     0
swizzle        3
l2Promotion    0
oobFill        0
"""

MAP = TensorMap("f16", (1, 1024, 1024), (2097152, 2048), (1, 128, 64), (1, 1, 1), swizzle="128B")


def test_a_dump_is_read_innermost_first() -> None:
    """And its first stride, of the innermost dimension, is no argument of the driver."""
    assert maps_of(DUMP.encode()) == [MAP]


def test_the_null_address_is_all_that_is_wrong_with_it() -> None:
    """Shape, strides, box and swizzle are legal."""
    (problem,) = MAP.problems()
    assert problem.startswith("globalAddress=0x0 is null")


@pytest.mark.parametrize(
    "text",
    [
        DUMP.replace("\n", "\r\n"),
        "".join(f"[rank0] {line}\n" for line in DUMP.splitlines()),
        "".join(f"3: {line}\n" for line in DUMP.splitlines()),
        DUMP.replace("gmem_address   0", "gmem_address   (nil)"),
        DUMP.replace("(1024,1024,1,1,1)", "(1024, 1024, 1, 1, 1)"),
    ],
)
def test_a_dump_is_read_however_it_came_here(text: str) -> None:
    """Line ends of Windows, prefixes of launchers, a null pointer as glibc prints it, blanks in lists."""
    assert maps_of(text.encode()) == [MAP]


@pytest.mark.parametrize("rank", [0, 6, 9])
def test_a_rank_that_no_map_has_is_refused(rank: int) -> None:
    """The lists have five numbers whatever the rank is."""
    with pytest.raises(UsageError, match=f"tensorRank={rank}; legal: 1 to 5"):
        maps_of(DUMP.replace("dim            3", f"dim            {rank}").encode())


def test_raw_columns_have_three_dimensions_or_more() -> None:
    """Bit 0 of word 1 says im2col, bits 4 to 6 the rank."""
    data = bytearray(MAP.encode())
    data[8] = 1 | 1 << 4
    with pytest.raises(UsageError, match="tensorRank=2 of an im2col map; legal: 3 to 5"):
        maps_of(bytes(data))


def test_a_dump_repeated_is_one_map() -> None:
    """Programs try again and print the same; another one beside it is told apart."""
    other = DUMP.replace("(64,128,1,1,1)", "(64,64,1,1,1)")
    assert len(maps_of((DUMP * 3 + other).encode())) == 2


def test_raw_bytes_are_a_map() -> None:
    """As they lie in memory."""
    assert maps_of(MAP.encode()) == [MAP]


def test_mixed_dumps_are_refused_with_what_is_legible() -> None:
    """Lines that several threads printed into each other."""
    torn = DUMP + DUMP.replace("boxDim         (64,128", "boxDim         (64,1\n28")
    with pytest.raises(UsageError, match="mixed; 2 of the legible addresses are null"):
        maps_of(torn.encode())


@pytest.mark.parametrize("data", [b"", b"nothing", b"\0" * 127])
def test_what_is_no_dump_is_refused(data: bytes) -> None:
    """With what would be one."""
    with pytest.raises(UsageError, match="neither 128 bytes nor a dump of a tensor map: no line format, dim"):
        maps_of(data)
