"""Data for experiments with TMA that says where it came from, and how to tell from it what lies where."""

from __future__ import annotations

import dataclasses

import numpy as np

from ptxlab.isa import tma
from ptxlab.isa.tensor_map import CHUNK, SIZES, TensorMap
from ptxlab.isa.tma import Bytes


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
    if dtype.startswith("tf32"):  # numbers in the bits that are kept, all sorts of bits in the rest
        index = np.arange(nbytes // 4, dtype=np.uint32)
        return ((index + 1 << 13) + (index * 0x9E3 & 0x1FFF) + 0x20000000).view(np.uint8)
    width = max(SIZES[dtype], 2)
    found = np.arange(1, nbytes // width + 1, dtype=np.uint64).astype(np.dtype(f"u{width}"))
    return np.ascontiguousarray(found).view(np.uint8)


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
    m: TensorMap, image: Bytes, address: int, memory: Bytes, start: tuple[int, ...], offsets: tuple[int, ...]
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
    """Return where in shared memory the chunks of ``ordered``, the box row by row, are found."""
    known: dict[bytes, int | None] = {}
    for i, chunk in enumerate(ordered.reshape(-1, CHUNK)):
        known.setdefault(chunk.tobytes(), i if inside[i] else None)
    per_row = tma.counts(m)[-1] * tma.unit_bytes(m) // CHUNK
    found = []
    for at in range(address // tma.ALIGNMENT * tma.ALIGNMENT, address + tma.room(m), CHUNK):
        held = image[at : at + CHUNK].tobytes()
        if held in known:
            index = known[held]
            row, chunk_of_row = (None, None) if index is None else divmod(index, per_row)
            found.append(Chunk(at, row, chunk_of_row))
    return found
