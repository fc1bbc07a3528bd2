"""The tensor map of TMA: its arguments, their limits, and the 128 bytes that the driver makes of them.

NVIDIA does not document the bytes. Their layout was derived from what the driver 580.159.04 of an H200
returned for 647 calls of cuTensorMapEncodeTiled and 37 of cuTensorMapEncodeIm2col (2026-11-30) in which one
argument changed at a time; tests/isa/data holds them. Words have 64 bits; dimension 0 is the innermost:

    word 0    address
    word 1    0: im2col   4-6: rank - 1   7-10: type   11-12: interleave   13-14: swizzle   15: NaN fill
              16: round to tf32   17-18: L2 promotion   32-63: stride of dimension 1, divided by 16
    word 2    strides of dimensions 2 and 3, divided by 16, low 32 bits of each
    word 3    0-31: stride of dimension 4   32-47: bits 32-35 of each stride, dimension 1 first
    word 4, 5 sizes of dimensions 0 to 3, minus 1
    word 6    0-31: size of dimension 4, minus 1   32-46: element strides, minus 1   56-63: box 0, minus 1
    word 7    0-31: boxes 1 to 4, minus 1; im2col: lower corners, upper ones from bit 16, pixels - 1 from 32
    word 8, 9 not the hardware's, by all that is seen: bytes of the box, period of the swizzle

Order: shape, strides, box and element strides are written outermost first, as in numpy. Messages name the
driver's arguments and count as it does, innermost first. Sizes and boxes of the innermost dimension count
elements; those of interleaved tensors slices of 16 or 32 bytes (see tma.py).
Source of the limits: CUDA driver API, "Tensor Map Object Management"; where the driver refuses less or more
than that text says, a comment tells it here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ptxlab.errors import UsageError, unknown_name

NBYTES = 128
"""Bytes of a map."""

ALIGNMENT = 128
"""Of a map in memory: cuda.h of CUDA 13 declares CUtensorMap so; that of CUDA 12 says 64."""

TYPES = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32_ftz", "tf32", "tf32_ftz",
    "b4x16", "b4x16_p64", "b6x16_p32",
)  # fmt: skip
"""Element types as the driver numbers them (CUtensorMapDataType)."""

NOT_HOPPER_TYPES = TYPES[13:]
"""Packed types, which an sm_100 has."""

SIZES = {
    "u8": 1, "u16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8, "f16": 2, "f32": 4, "f64": 8, "bf16": 2,
    "f32_ftz": 4, "tf32": 4, "tf32_ftz": 4,
}  # fmt: skip
"""Bytes of an element."""

INTERLEAVES = ("none", "16B", "32B")
SWIZZLES = ("none", "32B", "64B", "128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B")
PROMOTIONS = ("none", "64", "128", "256")
FILLS = ("zero", "nan")
"""Names in the order of the driver's numbers."""

NOT_HOPPER_SWIZZLES = SWIZZLES[4:]
"""Swizzles of larger atoms, which an sm_100 has."""

SPANS = {"none": 0, "32B": 32, "64B": 64, "128B": 128}
"""Bytes within which a swizzle moves chunks of 16 bytes; the inner box may not be longer."""

PERIODS = {"none": 16, "32B": 256, "64B": 512, "128B": 1024}
"""Bytes after which the pattern of a swizzle begins anew."""

MOST_RANK = 5
MOST_BOX = 256
MOST_PIXELS = 1024
MOST_ELEMENT_STRIDE = 8
CHUNK = 16

# How the hardware names the types; two of the driver's become a float type and the bit "round to tf32".
_CODES = {
    "u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f32_ftz": 8, "f64": 9,
    "bf16": 10, "tf32": 7, "tf32_ftz": 8,
}  # fmt: skip
_CORNER_BITS = {3: 16, 4: 8, 5: 5}


@dataclass(frozen=True)
class Corners:
    """The bounding box of an im2col map: offsets of its corners along the spatial dimensions.

    Attributes:
        lower: from the first element of each dimension, outermost first (D, H, W).
        upper: from the last element.

    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]


@dataclass(frozen=True)
class TensorMap:
    """What cuTensorMapEncodeTiled gets (or, with corners, cuTensorMapEncodeIm2col).

    Attributes:
        dtype: one of TYPES.
        shape: elements along each dimension, outermost first.
        strides: bytes from one element to the next along each dimension but the innermost.
        box: elements along each dimension that one instruction covers; of im2col (pixels, channels).
        element_strides: every how many elements of the box is taken.
        interleave: one of INTERLEAVES.
        swizzle: one of SWIZZLES.
        l2: bytes that L2 fetches at once: one of PROMOTIONS. It never changes data.
        oob: what stands for elements outside the tensor: one of FILLS.
        address: of the first element.
        corners: of an im2col map, else None.

    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: str = "none"
    swizzle: str = "none"
    l2: str = "none"
    oob: str = "zero"
    address: int = 0
    corners: Corners | None = None

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return SIZES[self.dtype]

    @property
    def inner_bytes(self) -> int:
        """Bytes of one row of the box."""
        return self.box[-1] * self.size

    def problems(self) -> list[str]:
        """Return what the driver would refuse, each with the argument, its value and the legal set.

        The driver answers all of them with the same CUDA_ERROR_INVALID_VALUE.
        """
        found = list(_names(self)) or list(_lengths(self))
        if found:
            return found
        found += [*_address(self), *_sizes(self), *_strides(self), *_element_strides(self)]
        return found + list(_box(self) if self.corners is None else _pixels(self, self.corners))

    def check(self) -> None:
        """Check every limit before the driver sees it.

        Raises:
            UsageError: with all that problems() finds.

        """
        found = self.problems()
        if found:
            hint = "indices count as the driver does: 0 is the innermost" if "[" in "".join(found) else ""
            raise UsageError("; ".join(found), hint)

    def encode(self) -> bytes:
        """Return the 128 bytes, of a map that check() passes."""
        words = [self.address, *_layout_words(self), *_size_words(self), _box_word(self)]
        words += [_noted_bytes(self), PERIODS[self.swizzle]]
        return struct.pack("<16Q", *words, *[0] * (16 - len(words)))

    @classmethod
    def decode(cls, data: bytes) -> TensorMap:
        """Return what 128 bytes stand for.

        Raises:
            UsageError: they are no map of an sm_90.

        """
        if len(data) != NBYTES:
            raise UsageError(f"a tensor map has {NBYTES} bytes; {len(data)} given")
        words = struct.unpack("<16Q", data)
        rank = _field(words[1], 4, 3) + 1
        dtype = _type_of(_field(words[1], 7, 4), to_tf32=_field(words[1], 16, 1))
        interleave = _field(words[1], 11, 2)
        if rank > MOST_RANK or not dtype or interleave >= len(INTERLEAVES):
            raise UsageError(f"these {NBYTES} bytes are no tensor map of an sm_90: word 1 is 0x{words[1]:x}")
        if words[1] & 1 and rank not in _CORNER_BITS:
            raise UsageError(f"tensorRank={rank} of an im2col map; legal: 3 to {MOST_RANK}")
        box, corners = _box_of(words, rank) if not words[1] & 1 else _pixels_of(words, rank)
        return cls(
            dtype=dtype,
            shape=_outermost_first(_sizes_of(words), rank),
            strides=_outermost_first(_strides_of(words), rank - 1),
            box=box,
            element_strides=_outermost_first([_field(words[6], 32 + 3 * i, 3) + 1 for i in range(5)], rank),
            interleave=INTERLEAVES[interleave],
            swizzle=SWIZZLES[_field(words[1], 13, 2)],
            l2=PROMOTIONS[_field(words[1], 17, 2)],
            oob=FILLS[_field(words[1], 15, 1)],
            address=words[0],
            corners=corners,
        )


def offset_limit(rank: int) -> int:
    """Return the largest im2col offset of an instruction on a map of this rank."""
    return int((1 << _CORNER_BITS[rank]) - 1)


def unexplained(data: bytes) -> list[int]:
    """Return the numbers of the words that differ from what encode() makes of their own meaning."""
    words = struct.unpack("<16Q", data)
    again = struct.unpack("<16Q", TensorMap.decode(data).encode())
    return [i for i, (word, own) in enumerate(zip(words, again, strict=True)) if word != own]


def arguments(m: TensorMap, address: str = "") -> list[dict[str, str]]:
    """Return the arguments of a map as the driver takes them, and where the 128 bytes hold each.

    Args:
        m: the map.
        address: what is said of the address in place of its value.

    """
    box = ("boxDim", m.box, "word 6 bits 56-63, word 7")
    pixels = ("channelsPerPixel, pixelsPerColumn", m.box, "word 6 bits 56-63, word 7 bits 32-41")
    rows: list[tuple[str, str | tuple[int, ...], str]] = [
        ("tensorDataType", m.dtype, "word 1 bits 7-10, 16"),
        ("tensorRank", str(m.rank), "word 1 bits 4-6"),
        ("globalAddress", address or f"0x{m.address:x}", "word 0"),
        ("globalDim", m.shape, "words 4-6"),
        ("globalStrides", m.strides, "words 1-3, divided by 16"),
        box if m.corners is None else pixels,
        ("elementStrides", m.element_strides, "word 6 bits 32-46"),
        ("interleave", m.interleave, "word 1 bits 11-12"),
        ("swizzle", m.swizzle, "word 1 bits 13-14"),
        ("l2Promotion", m.l2, "word 1 bits 17-18"),
        ("oobFill", m.oob, "word 1 bit 15"),
    ]
    if m.corners is not None:
        rows.append(("pixelBoxLowerCorner", m.corners.lower, "word 7 bits 0-15"))
        rows.append(("pixelBoxUpperCorner", m.corners.upper, "word 7 bits 16-31"))
    return [{"argument": name, "value": _text(value), "lies in": where} for name, value, where in rows]


def _text(value: str | tuple[int, ...]) -> str:
    """Return numbers innermost first."""
    return value if isinstance(value, str) else ", ".join(map(str, reversed(value))) or "none"


def packed(shape: tuple[int, ...], size: int, row_pitch: int = 0) -> tuple[int, ...]:
    """Return the strides of a tensor without gaps; ``row_pitch`` is the bytes of a row where it has some."""
    strides = [row_pitch or shape[-1] * size]
    for extent in reversed(shape[1:-1]):
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides[: len(shape) - 1]))


def _names(m: TensorMap) -> Iterator[str]:
    given: tuple[tuple[str, str, tuple[str, ...]], ...] = (
        ("tensorDataType", m.dtype, TYPES), ("interleave", m.interleave, INTERLEAVES),
        ("swizzle", m.swizzle, SWIZZLES), ("l2Promotion", m.l2, PROMOTIONS), ("oobFill", m.oob, FILLS),
    )  # fmt: skip
    for what, value, legal in given:
        if value not in legal:
            yield unknown_name(what, value, legal).message
    for value, later, here in (
        (m.dtype, NOT_HOPPER_TYPES, tuple(SIZES)), (m.swizzle, NOT_HOPPER_SWIZZLES, tuple(SPANS))
    ):  # fmt: skip
        if value in later:
            yield f"{value} exists from sm_100 on and is not modelled; legal: {', '.join(here)}"


def _lengths(m: TensorMap) -> Iterator[str]:
    if not 1 <= m.rank <= MOST_RANK:
        yield f"tensorRank={m.rank}; legal: 1 to {MOST_RANK}"
    steps = ("element strides", m.element_strides, m.rank)
    box = ("sizes of the box", m.box, m.rank if m.corners is None else 2)
    for what, values, count in (("strides", m.strides, m.rank - 1), box, steps):
        if len(values) != count:
            yield f"{len(values)} {what} for {m.rank} dimensions; legal: {count}"
    if m.corners is not None and m.rank not in _CORNER_BITS:
        yield f"tensorRank={m.rank} of an im2col map; legal: 3 to {MOST_RANK}"
    if m.interleave != "none" and m.rank < 3:
        legal = f"rank 3 to {MOST_RANK}, or interleave none"
        yield f"interleave={m.interleave} with tensorRank={m.rank}; legal: {legal}"


def _address(m: TensorMap) -> Iterator[str]:
    # The driver 580 makes a map of a null address without a word; older ones refused it.
    if m.address == 0:
        yield "globalAddress=0x0 is null: is the tensor allocated, or an operand that was left out?"
    unit = _unit(m)
    # 2 ** 57 is what the driver 580 allows; the text gives no limit.
    if m.address % unit or not 0 <= m.address < 1 << 57:
        yield f"globalAddress=0x{m.address:x} is misaligned; legal: multiples of {unit} B below 2^57"


def _sizes(m: TensorMap) -> Iterator[str]:
    for i, extent in enumerate(reversed(m.shape)):
        if not 1 <= extent <= 1 << 32:
            yield f"globalDim[{i}]={extent}; legal: 1 to 2^32"
    if m.oob == "nan" and m.dtype[0] in "us":
        floats = ", ".join(each for each in SIZES if each[0] not in "us")
        yield f"oobFill=nan with integers ({m.dtype}); legal: zero, or one of the types {floats}"


def _strides(m: TensorMap) -> Iterator[str]:
    # The text wants each stride to be at least the extent below it; the driver takes any, 0 too.
    for i, stride in enumerate(reversed(m.strides)):
        if stride % _unit(m) or not 0 <= stride < 1 << 40:
            unit = _unit(m)
            what = f"not a multiple of {unit}" if stride % unit else "not below 2^40"
            yield (
                f"stride[{i}]={stride} B, {what} (globalStrides[{i}]); legal: multiples of {unit} B below "
                f"2^40, so rows of a multiple of {unit // m.size} {m.dtype} elements, or padded to one"
            )


def _element_strides(m: TensorMap) -> Iterator[str]:
    # Without interleave the innermost one is said to be ignored; the driver checks it all the same.
    for i, stride in enumerate(reversed(m.element_strides)):
        if not 1 <= stride <= MOST_ELEMENT_STRIDE:
            yield f"elementStrides[{i}]={stride}; legal: 1 to {MOST_ELEMENT_STRIDE}"


def _box(m: TensorMap) -> Iterator[str]:
    for i, extent in enumerate(reversed(m.box)):
        if not 1 <= extent <= MOST_BOX:
            yield f"boxDim[{i}]={extent}; legal: 1 to {MOST_BOX}"
    yield from _inner(m, "boxDim[0]")


def _pixels(m: TensorMap, corners: Corners) -> Iterator[str]:
    pixels, channels = m.box
    if not 1 <= pixels <= MOST_PIXELS:
        yield f"pixelsPerColumn={pixels}; legal: 1 to {MOST_PIXELS}"
    if not 1 <= channels <= MOST_BOX:
        yield f"channelsPerPixel={channels}; legal: 1 to {MOST_BOX}"
    yield from _inner(m, "channelsPerPixel")
    reach = 1 << (_CORNER_BITS[m.rank] - 1)
    extents = m.shape[1:-1]
    for i, (extent, low, high) in enumerate(zip(extents, corners.lower, corners.upper, strict=True)):
        told = f"corners {low} and {high} of dimension {m.rank - 2 - i}"
        if not (-reach <= low < reach and -reach <= high < reach):
            yield f"{told}; legal: {-reach} to {reach - 1}"
        elif extent + high - low <= 0:
            yield f"{told} leave nothing of its {extent} elements"


def _inner(m: TensorMap, name: str) -> Iterator[str]:
    """Say what is wrong with the bytes of a row of the box.

    The text wants multiples of 16 B without interleave alone; the driver 580 always does. The text wants
    swizzle 32B with interleave 32B; the driver takes any.
    """
    told = f"{name}={m.box[-1]} x {m.size} B = {m.inner_bytes} B"
    if m.inner_bytes % CHUNK:
        yield f"{told}; legal: multiples of {CHUNK} B, so of {CHUNK // m.size} {m.dtype} elements"
    span = SPANS[m.swizzle]
    if m.interleave == "none" and span and m.inner_bytes > span:
        elements = span // m.size
        yield (
            f"{told}, more than the {span} B span of swizzle {m.swizzle}; "
            f"legal: at most {elements} elements of {m.dtype}: load {math.ceil(m.inner_bytes / span)} boxes, "
            f"or make a map of one dimension more (3-D for a matrix) whose inner size is {elements}"
        )


def _unit(m: TensorMap) -> int:
    """Return what address and strides must be multiples of."""
    return 32 if m.interleave == "32B" else CHUNK


def _layout_words(m: TensorMap) -> list[int]:
    """Return words 1 to 3: what kind of map it is, and its strides."""
    kind = int(m.corners is not None) | m.rank - 1 << 4 | _CODES[m.dtype] << 7
    kind |= INTERLEAVES.index(m.interleave) << 11 | SWIZZLES.index(m.swizzle) << 13
    kind |= FILLS.index(m.oob) << 15 | int(m.dtype.startswith("tf32")) << 16 | PROMOTIONS.index(m.l2) << 17
    units = [stride // CHUNK for stride in reversed(m.strides)] + [0] * (5 - m.rank)
    low = [each & 0xFFFFFFFF for each in units]
    high = sum(each >> 32 << 4 * i for i, each in enumerate(units))
    return [kind | low[0] << 32, low[1] | low[2] << 32, low[3] | high << 32]


def _size_words(m: TensorMap) -> list[int]:
    """Return words 4 to 6: sizes, element strides, and the inner box."""
    sizes = [extent - 1 for extent in reversed(m.shape)] + [0] * (5 - m.rank)
    steps = sum(step - 1 << 3 * i for i, step in enumerate(reversed(m.element_strides)))
    last = sizes[4] | steps << 32 | m.box[-1] - 1 << 56
    return [sizes[0] | sizes[1] << 32, sizes[2] | sizes[3] << 32, last]


def _box_word(m: TensorMap) -> int:
    """Return word 7: the rest of the box, or pixels and corners."""
    if m.corners is None:
        return sum(extent - 1 << 8 * i for i, extent in enumerate(reversed(m.box[:-1])))
    bits = _CORNER_BITS[m.rank]
    word = m.box[0] - 1 << 32
    for start, corner in ((0, m.corners.lower), (16, m.corners.upper)):
        word |= sum((each & (1 << bits) - 1) << start + bits * i for i, each in enumerate(reversed(corner)))
    return word


def _noted_bytes(m: TensorMap) -> int:
    """Return the bytes of a box as the driver notes them: rounded down, where the hardware rounds up."""
    if m.corners is not None:
        return math.prod(m.box) * m.size
    return math.prod(b // s for b, s in zip(m.box, m.element_strides, strict=True)) * m.size


def _field(word: int, low: int, width: int) -> int:
    return word >> low & (1 << width) - 1


def _type_of(code: int, *, to_tf32: int) -> str:
    names = [name for name, own in _CODES.items() if own == code and name.startswith("tf32") == bool(to_tf32)]
    return names[0] if names else ""


def _sizes_of(words: tuple[int, ...]) -> list[int]:
    return [_field(words[4 + i // 2], i % 2 * 32, 32) + 1 for i in range(5)]


def _strides_of(words: tuple[int, ...]) -> list[int]:
    low = [words[1] >> 32, _field(words[2], 0, 32), words[2] >> 32, _field(words[3], 0, 32)]
    return [(each | _field(words[3], 32 + 4 * i, 4) << 32) * CHUNK for i, each in enumerate(low)]


def _box_of(words: tuple[int, ...], rank: int) -> tuple[tuple[int, ...], None]:
    sizes = [words[6] >> 56, *(_field(words[7], 8 * i, 8) for i in range(4))]
    return _outermost_first([each + 1 for each in sizes], rank), None


def _pixels_of(words: tuple[int, ...], rank: int) -> tuple[tuple[int, ...], Corners]:
    bits = _CORNER_BITS[rank]
    corners = []
    for start in (0, 16):
        raw = [_field(words[7], start + bits * i, bits) for i in range(rank - 2)]
        signed = [each - (each >> (bits - 1) << bits) for each in raw]
        corners.append(_outermost_first(signed, rank - 2))
    return ((words[7] >> 32) + 1, (words[6] >> 56) + 1), Corners(*corners)


def _outermost_first(values: list[int], count: int) -> tuple[int, ...]:
    return tuple(reversed(values[:count]))
