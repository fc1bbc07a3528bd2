"""Data for experiments with TMA that says where it came from, and how to tell from it what lies where."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.isa import tma
from ptxlab.isa.registers import Ints
from ptxlab.isa.tensor_map import CHUNK, SIZES, TensorMap
from ptxlab.isa.tma import Bytes, Memory

LARGE = 1 << 17
"""Elements from which on numbers of 16 bits, which come again and again, are shifted each time."""


@dataclasses.dataclass(frozen=True)
class Chunk:
    """16 bytes of shared memory and the part of a box that they hold.

    Attributes:
        address: of the first byte.
        row: of the box, counted through all dimensions but the innermost; None outside the tensor.
        chunk: within the row; None outside the tensor.

    """

    address: int
    row: int | None
    chunk: int | None


def numbered(dtype: str, nbytes: int) -> Bytes:
    """Return elements 1, 2, 3, ...; two bytes share a number, and those of tf32 survive its rounding."""
    numbers = _numbers(dtype, np.arange(nbytes // _width(dtype), dtype=np.int64))
    return np.ascontiguousarray(numbers).view(np.uint8)


class Numbered:
    """The memory of a tensor of numbered elements: as numbered(), of which just what is read is made."""

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype

    def __getitem__(self, offsets: Ints) -> Bytes:
        width = _width(self._dtype)
        numbers = _numbers(self._dtype, offsets // width).astype(np.uint64)
        return (numbers >> (8 * (offsets % width)).astype(np.uint64) & 0xFF).astype(np.uint8)


def _width(dtype: str) -> int:
    return max(SIZES[dtype], 2)


def _numbers(dtype: str, index: Ints) -> NDArray[np.unsignedinteger[Any]]:
    """Return the numbers of elements."""
    if dtype.startswith("tf32"):  # numbers in the bits that are kept, all sorts of bits in the rest
        low = index.astype(np.uint32)
        return (low + 1 << 13) + (low * 0x9E3 & 0x1FFF) + 0x20000000
    shift = np.where(index < LARGE, 0, (index >> 16) * 977) if _width(dtype) == 2 else 0
    return (index + 1 + shift).astype(np.dtype(f"u{_width(dtype)}"))


def operands(dtype: str, nbytes: int, series: int) -> Bytes:
    """Return elements to reduce, as different as the type allows; each side takes a series of its own."""
    size = SIZES[dtype]
    index = np.arange(nbytes // size, dtype=np.int64)
    if dtype[0] in "us":
        values = (index * (3 + 2 * series) - 40 * series).astype(np.dtype(f"i{size}"))
        return np.ascontiguousarray(values).view(np.uint8)
    numbers = (index * 7 + 13 * series) % 251 - 125 + (index % (8 * series)) / 64
    if dtype == "f16":
        return numbers.astype(np.float16).view(np.uint8)
    bits = numbers.astype(np.float32).view(np.uint32)
    return (bits >> 16).astype(np.uint16).view(np.uint8) if dtype == "bf16" else bits.view(np.uint8)


def chunks(
    m: TensorMap, image: Bytes, address: int, memory: Memory, start: tuple[int, ...], offsets: tuple[int, ...]
) -> list[Chunk]:
    """Return which chunks of a loaded box lie where in shared memory, told from the bytes there.

    Args:
        m: the map.
        image: shared memory after the load.
        address: of the box in ``image``.
        memory: global memory.
        start: coordinates of the instruction, innermost first.
        offsets: im2col offsets of the instruction, of dimension 1 first.

    """
    plain = dataclasses.replace(m, swizzle="none")
    loaded = tma.load(plain, memory, start, np.zeros(tma.room(plain), dtype=np.uint8), 0, offsets)
    inside = np.repeat(tma.elements(m, start, offsets)[1], tma.unit_bytes(m)).reshape(-1, CHUNK)
    return located(m, image, address, loaded, [any(each) for each in inside.tolist()])


def located(m: TensorMap, image: Bytes, address: int, ordered: Bytes, inside: list[bool]) -> list[Chunk]:
    """Return where in shared memory the chunks of ``ordered``, the box row by row, are found.

    Numbers come again in large tensors: of chunks that hold the same, the one is meant that belongs there.
    """
    chunks_of = ordered.reshape(-1, CHUNK)
    known: dict[bytes, int] = {}
    for i, chunk in enumerate(chunks_of):
        known.setdefault(chunk.tobytes(), i)
    belongs = {int(at): i for i, at in enumerate(tma.places(m, address).reshape(-1, CHUNK)[:, 0])}
    per_row = tma.counts(m)[-1] * tma.unit_bytes(m) // CHUNK
    found = []
    for at in range(address // tma.ALIGNMENT * tma.ALIGNMENT, address + tma.room(m), CHUNK):
        held = image[at : at + CHUNK].tobytes()
        if held not in known:
            continue
        own = belongs.get(at)
        index = own if own is not None and chunks_of[own].tobytes() == held else known[held]
        row, chunk_of_row = divmod(index, per_row) if inside[index] else (None, None)
        found.append(Chunk(at, row, chunk_of_row))
    return found
