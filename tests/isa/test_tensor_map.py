"""The 128 bytes of a tensor map and the limits of its arguments, held against what a driver answered."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path

import pytest

from ptxlab.errors import UsageError
from ptxlab.isa.tensor_map import (
    FILLS,
    INTERLEAVES,
    NBYTES,
    PROMOTIONS,
    SWIZZLES,
    TYPES,
    Corners,
    TensorMap,
    arguments,
    packed,
    unexplained,
)

DATA = Path(__file__).parent / "data" / "tensor_maps.txt"
BASE = 0x7F1234560000


def numbers(text: str) -> tuple[int, ...]:
    """The numbers of a field, which lists the innermost first, as a map has them."""
    return tuple(reversed([int(each) for each in text.split(",")])) if text != "-" else ()


def recorded(line: str) -> tuple[TensorMap, bytes]:
    """The arguments of a recorded call, and the map that it returned (b"" when it was refused)."""
    dtype, where, sizes, strides, *more, steps, modes, words = line.split(" ")
    address = BASE if where == "*" else int(where, 16)
    corners = Corners(numbers(more[0]), numbers(more[1])) if len(more) == 3 else None
    shape = numbers(sizes)
    found = TensorMap(
        TYPES[int(dtype)],
        shape,
        numbers(strides),
        numbers(more[-1]),
        numbers(steps) if steps != "1" else (1,) * len(shape),
        INTERLEAVES[int(modes[0])],
        SWIZZLES[int(modes[1])],
        PROMOTIONS[int(modes[2])],
        FILLS[int(modes[3])],
        address,
        corners,
    )
    if words == "refused":
        return found, b""
    values = [address if each == "@" else int(each or "0", 16) for each in words.split(",")]
    return found, struct.pack("<16Q", *values, *[0] * (16 - len(values)))


CALLS = [recorded(line) for line in DATA.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
MADE = [(m, data) for m, data in CALLS if data]


def plain(**changes: object) -> TensorMap:
    """A map that is legal, with some arguments changed."""
    legal = TensorMap("f16", (128, 128), (256,), (64, 64), (1, 1), address=BASE)
    return dataclasses.replace(legal, **changes)  # type: ignore[arg-type]


def test_every_recorded_map_is_encoded_bit_for_bit() -> None:
    """All 128 bytes, of tiled and im2col maps."""
    assert len(MADE) > 600
    assert [m for m, data in MADE if m.encode() != data] == []


def test_every_recorded_map_is_decoded_into_its_arguments() -> None:
    """Nothing but what was asked for, whatever was varied."""
    assert [m for m, data in MADE if TensorMap.decode(data) != m] == []
    assert [m for m, data in MADE if unexplained(data)] == []


def test_refused_is_what_the_driver_refuses() -> None:
    """All calls, but for a null address, which this driver lets pass.

    The refused calls of rank 1 say nothing: they gave no array of strides, of which rank 1 needs none.
    """
    asked = [(m, data) for m, data in CALLS if m.rank > 1 and m.address]
    assert [m for m, data in asked if bool(m.problems()) == bool(data)] == []
    assert sum(not data for _, data in asked) > 200


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strides": (200,)}, r"stride\[0\]=200 B, not a multiple of 16"),
        ({"strides": (1 << 40,)}, r"stride\[0\]=1099511627776 B, not below 2\^40"),
        ({"address": 0}, r"^globalAddress=0x0 is null[^;]*$"),
        ({"address": BASE + 8}, r"globalAddress=0x7f1234560008 is misaligned; legal: multiples of 16 B"),
        ({"shape": (128, 0)}, r"globalDim\[0\]=0; legal: 1 to 2\^32"),
        ({"box": (257, 64)}, r"boxDim\[1\]=257; legal: 1 to 256"),
        ({"box": (64, 12)}, r"boxDim\[0\]=12 x 2 B = 24 B; legal: multiples of 16 B, so of 8 f16"),
        ({"element_strides": (9, 1)}, r"elementStrides\[1\]=9; legal: 1 to 8"),
        ({"interleave": "16B"}, r"interleave=16B with tensorRank=2; legal: rank 3 to 5"),
        ({"dtype": "u16", "oob": "nan"}, r"oobFill=nan with integers \(u16\); legal: zero, or .*f16, f32"),
        ({"dtype": "f17"}, r"unknown tensorDataType 'f17'; legal: u8, u16"),
        ({"dtype": "b4x16"}, r"b4x16 exists from sm_100 on.*legal: u8, u16"),
        ({"swizzle": "128B_ATOM_32B"}, r"128B_ATOM_32B exists from sm_100 on.*legal: none, 32B, 64B, 128B"),
        ({"strides": ()}, r"0 strides for 2 dimensions; legal: 1"),
        ({"shape": (2,) * 6}, r"tensorRank=6; legal: 1 to 5"),
    ],
)
def test_a_refusal_names_argument_value_and_legal_set(changes: dict[str, object], message: str) -> None:
    """The driver itself answers all of them with error 1."""
    with pytest.raises(UsageError, match=message):
        plain(**changes).check()


def test_an_inner_box_wider_than_the_span_is_refused_with_the_split() -> None:
    """128 x f16 under 128B."""
    with pytest.raises(UsageError, match=r"at most 64 elements of f16: load 2 boxes, or .* \(3-D"):
        plain(box=(16, 128), swizzle="128B").check()


def test_interleave_32b_wants_addresses_and_strides_of_32() -> None:
    """16 are not enough then."""
    m = plain(shape=(8, 8, 8), strides=(144, 16), box=(2, 2, 8), element_strides=(1, 1, 1), interleave="32B")
    found = dataclasses.replace(m, address=BASE + 16).problems()
    assert len(found) == 3
    assert all("multiples of 32 B" in each for each in found)


def test_im2col_limits() -> None:
    """Pixels, channels, and corners whose range shrinks with the rank."""
    m = TensorMap(
        "f16", (8, 32, 32, 64), (131072, 4096, 128), (64, 32), (1,) * 4,
        address=BASE, corners=Corners((-1, -1), (-1, -1)),
    )  # fmt: skip
    assert m.problems() == []
    for changes, message in (
        ({"box": (1025, 32)}, "pixelsPerColumn=1025; legal: 1 to 1024"),
        ({"box": (64, 257)}, "channelsPerPixel=257; legal: 1 to 256"),
        ({"corners": Corners((-129, 0), (0, 0))}, "corners -129 and 0 of dimension 2; legal: -128 to 127"),
        ({"corners": Corners((0, 20), (0, -20))}, "dimension 1 leave nothing of its 32 elements"),
        ({"shape": (8, 64), "strides": (128,), "element_strides": (1, 1)}, "legal: 3 to 5"),
    ):
        assert message in "; ".join(dataclasses.replace(m, **changes).problems())


def test_bytes_that_are_no_map() -> None:
    """Too few of them, or a rank that does not exist."""
    with pytest.raises(UsageError, match="a tensor map has 128 bytes; 64 given"):
        TensorMap.decode(b"\0" * 64)
    with pytest.raises(UsageError, match="are no tensor map"):
        TensorMap.decode(b"\xff" * NBYTES)


def test_a_bit_that_means_nothing_is_told() -> None:
    """Of a damaged map: which words hold something that its meaning does not explain."""
    data = bytearray(plain().encode())
    data[80] = 1
    data[9] ^= 0x08
    assert unexplained(bytes(data)) == [10]
    data[7 * 8 + 7] = 1
    assert unexplained(bytes(data)) == [7, 10]


def test_strides_of_a_tensor_without_gaps() -> None:
    """And of one whose rows are padded."""
    assert packed((2, 3, 4, 5), 2) == (120, 40, 10)
    assert packed((2, 3, 4, 5), 2, row_pitch=16) == (192, 64, 16)
    assert packed((5,), 2) == ()


def test_arguments_are_named_and_counted_as_the_driver_does() -> None:
    """Innermost first, with the bits that hold each."""
    found = {each["argument"]: each["value"] for each in arguments(plain(shape=(100, 128)), "its own")}
    assert found["globalDim"] == "128, 100"
    assert found["globalStrides"] == "256"
    assert found["globalAddress"] == "its own"
    im2col = plain(shape=(2, 9, 128), strides=(2304, 256), box=(64, 16), corners=Corners((-1,), (1,)))
    found = {each["argument"]: each["value"] for each in arguments(im2col)}
    assert found["channelsPerPixel, pixelsPerColumn"] == "16, 64"
    assert found["pixelBoxLowerCorner"] == "-1"
