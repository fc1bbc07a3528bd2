"""TMA: which element of a tensor lands at which byte of shared memory, and the way back.

A box begins at the coordinates of the instruction, where its rows are at a multiple of 16 bytes. Along a
dimension with element stride s it has ceil(box / s) elements, each s further on. In shared memory they lie in
rows, without gaps; but swizzled rows are as long as the span, and what a shorter box leaves of it is not
touched. Then the swizzle XORs bits 4.. of each byte's address with bits 7.. of it. These are bits of the
address itself: a destination off the multiples of the swizzle's period begins in the middle of the pattern.

A load counts every element of the box at the barrier and fills those outside the tensor. Maps of tf32 round
what is loaded to nearest even; those named ftz flush nothing, which only reductions do. A store leaves
alone what is outside, but for the innermost dimension, where it works in chunks of 16 bytes of global memory.

Of an interleaved tensor (NC/8DHWC8; from the innermost on W, H, D, slices of channels, N) dimension 0 counts
slices of 16 or 32 bytes, in its size, coordinate, box and element stride alike. The second outermost
dimension has a coordinate, but one instruction takes just one of it, whatever the box says.

Source: PTX ISA, "Tensors" (tiled mode, im2col mode, interleave layout, swizzling modes) and
"cp.async.bulk.tensor"; proven on silicon by the recordings of the tma probe. What PTX ISA does not say was
measured on an H200 (2026-11-30): the pitch of short swizzled rows, the bits of NaN, the interleaved box.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.isa.registers import Ints
from ptxlab.isa.tensor_map import CHUNK, SPANS, Corners, TensorMap, offset_limit
from ptxlab.isa.tma_reduce import combined
from ptxlab.isa.wgmma_descriptor import swizzled

Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]


class Memory(Protocol):
    """Global memory as a load needs it: an array of bytes, or what makes those that are asked for."""

    def __getitem__(self, offsets: Ints, /) -> Bytes:
        """Return the bytes at these offsets."""


ALIGNMENT = 128
"""Of a box in shared memory, in bytes."""

FILL = {"zero": 0, "nan": 0x7FF7}
"""What stands for elements outside the tensor: these 16 bits, repeated."""


def unit_bytes(m: TensorMap) -> int:
    """Return the bytes that dimension 0 counts in: an element, or a slice of an interleaved tensor."""
    return {"none": m.size, "16B": 16, "32B": 32}[m.interleave]


def counts(m: TensorMap) -> tuple[int, ...]:
    """Return how many units one instruction moves along each dimension, outermost first."""
    if m.corners is not None:
        return m.box
    found = [-(-extent // step) for extent, step in zip(m.box, steps_of(m), strict=True)]
    if m.interleave != "none":
        found[1] = 1
    return tuple(found)


def steps_of(m: TensorMap) -> tuple[int, ...]:
    """Return the element strides as the hardware takes them: without interleave dimension 0 has none."""
    return m.element_strides if m.interleave != "none" else (*m.element_strides[:-1], 1)


def box_bytes(m: TensorMap) -> int:
    """Return what one load counts at its barrier: the whole box, whatever lies outside the tensor."""
    return math.prod(counts(m)) * unit_bytes(m)


def inside_bytes(m: TensorMap, start: tuple[int, ...], offsets: tuple[int, ...] = ()) -> int:
    """Return the bytes of those elements of the box that lie inside the tensor."""
    return int(elements(m, start, offsets)[1].sum()) * unit_bytes(m)


def row_bytes(m: TensorMap) -> int:
    """Return the bytes from one row of the box to the next in shared memory."""
    return max(counts(m)[-1] * unit_bytes(m), SPANS[m.swizzle])


def room(m: TensorMap) -> int:
    """Return the bytes of shared memory that a box takes, unused ends of rows included."""
    return math.prod(counts(m)[:-1]) * row_bytes(m)


def places(m: TensorMap, address: int) -> Ints:
    """Return where in shared memory each byte of a box lies that begins at ``address``.

    The shape is that of counts(), and behind it the bytes of a unit.
    """
    *outer, inner = counts(m)
    row = np.arange(math.prod(outer), dtype=np.int64).reshape(*outer, 1, 1) * row_bytes(m)
    column = np.arange(inner * unit_bytes(m), dtype=np.int64).reshape(inner, -1)
    return swizzled(address + row + column, m.swizzle)


def moved_chunks(m: TensorMap, address: int) -> tuple[int, int]:
    """Return how many chunks of a box the base moves within it, and how many there are."""
    aligned = places(m, 0) + address
    moved = int((places(m, address) != aligned).sum())
    return moved // CHUNK, box_bytes(m) // CHUNK


def elements(m: TensorMap, start: tuple[int, ...], offsets: tuple[int, ...] = ()) -> tuple[Ints, Flags]:
    """Return the byte offset of each unit of a box from the tensor's first, and whether it lies inside.

    Args:
        m: the map.
        start: coordinates of the instruction, innermost first.
        offsets: im2col offsets of the instruction, of dimension 1 first.

    """
    at = coordinates(m, start) if m.corners is None else pixels(m, m.corners, start, offsets)
    strides = (*m.strides, unit_bytes(m))
    offset = sum(index * stride for index, stride in zip(at, strides, strict=True))
    return np.asarray(offset, dtype=np.int64), _within(at, m.shape)


def _within(at: list[Ints], limits: tuple[int, ...]) -> Flags:
    flags = [(index >= 0) & (index < limit) for index, limit in zip(at, limits, strict=True)]
    return np.asarray(np.logical_and.reduce(flags))


def coordinates(m: TensorMap, start: tuple[int, ...]) -> list[Ints]:
    """Return the coordinate of each unit of a box along each dimension, outermost first."""
    index = np.indices(counts(m), dtype=np.int64)
    return [first + i * step for first, i, step in zip(reversed(start), index, steps_of(m), strict=True)]


def pixels(m: TensorMap, corners: Corners, start: tuple[int, ...], offsets: tuple[int, ...]) -> list[Ints]:
    """Return the coordinates of each element of an im2col column, outermost first.

    From the pixel at ``start`` on they step through the bounding box, the innermost spatial dimension
    fastest; beyond an upper corner a dimension begins again at its lower one, and the next steps on: after
    all of them the image. Each pixel is read ``offsets`` further on.
    """
    at = list(start[1:])  # innermost spatial dimension first, the image last
    lower, upper = corners.lower[::-1], last_pixels(m, corners)
    visited = []
    for _ in range(m.box[0]):
        visited.append([place + shift for place, shift in zip(at, (*offsets, 0), strict=True)])
        for i, step in enumerate((*m.element_strides[1:-1][::-1], 1)):
            at[i] += step
            if i == len(lower) or at[i] <= upper[i]:
                break
            at[i] = lower[i]
    columns = np.array(visited, dtype=np.int64).T[::-1]
    channel = np.arange(start[0], start[0] + m.box[1], dtype=np.int64)
    return [*(np.broadcast_to(each[:, None], m.box) for each in columns), np.broadcast_to(channel, m.box)]


def last_pixels(m: TensorMap, corners: Corners) -> tuple[int, ...]:
    """Return the last coordinate of the bounding box along each spatial dimension, innermost first."""
    return tuple(extent - 1 + up for extent, up in zip(m.shape[-2:0:-1], corners.upper[::-1], strict=True))


def load(
    m: TensorMap,
    memory: Memory,
    start: tuple[int, ...],
    image: Bytes,
    address: int,
    offsets: tuple[int, ...] = (),
) -> Bytes:
    """Return shared memory after a load.

    Args:
        m: the map.
        memory: global memory, from the tensor's first element on.
        start: coordinates of the instruction, innermost first.
        image: shared memory before, its first byte at a multiple of 1024.
        address: of the box in ``image``.
        offsets: im2col offsets of the instruction, of dimension 1 first.

    """
    where, inside = elements(m, start, offsets)
    unit = unit_bytes(m)
    values = np.empty((*inside.shape, unit), dtype=np.uint8)
    values[:] = _fill(m.oob, unit)
    values[inside] = _converted(memory[_bytes_of(where[inside], unit)], m.dtype)
    found = image.copy()
    found[places(m, address)] = values
    return found


def store(m: TensorMap, memory: Bytes, start: tuple[int, ...], image: Bytes, address: int) -> Bytes:
    """Return global memory after a store: as load(), the other way."""
    where, written = elements(m, start)[0], reached(m, start)
    found = memory.copy()
    values = image[places(m, address)]
    found[_bytes_of(where[written], m.size)] = values[written]
    return found


def reduce(
    m: TensorMap, operation: str, memory: Bytes, start: tuple[int, ...], image: Bytes, address: int
) -> Bytes:
    """Return global memory after a reduction: as store(), each element combined with what was there."""
    where, written = elements(m, start)[0], reached(m, start)
    target = _bytes_of(where[written], m.size)
    values = image[places(m, address)][written]
    found = memory.copy()
    found[target] = combined(operation, m.dtype, found[target], values)
    return found


def reached(m: TensorMap, start: tuple[int, ...]) -> Flags:
    """Return which elements of a box a store writes.

    Along the innermost dimension it clips at the end of the 16 bytes of global memory in which the tensor
    ends, so elements beyond the tensor are written where those bytes are not full.
    """
    whole = -(-m.shape[-1] * m.size // CHUNK) * CHUNK // m.size
    return _within(coordinates(m, start), (*m.shape[:-1], whole))


def check_arch(arch: str) -> None:
    """Say that an architecture has no TMA, if it has none.

    Raises:
        UsageError: it is older than sm_90.

    """
    if int(arch.strip("sm_af")) < 90:
        raise UsageError(f"{arch} has no TMA; legal: sm_90 and later")


def check_offsets(m: TensorMap, offsets: tuple[int, ...]) -> None:
    """Check the im2col offsets of an instruction, of dimension 1 first.

    Raises:
        UsageError: one has more bits than the instruction has for it.

    """
    for i, offset in enumerate(offsets, start=1):
        if not 0 <= offset <= offset_limit(m.rank):
            legal = f"0 to {offset_limit(m.rank)} of a {m.rank}-D map"
            raise UsageError(f"im2col offset {offset} of dimension {i}; legal: {legal}")


def check_start(m: TensorMap, start: tuple[int, ...], *, store: bool) -> None:
    """Check the coordinates of an instruction, which no driver sees.

    An H200 ends a kernel that breaks these rules with an illegal instruction.

    Raises:
        UsageError: with the coordinate and the legal ones.

    """
    if start[0] * unit_bytes(m) % CHUNK:
        raise UsageError(
            f"coordinate {start[0]} of dimension 0 is byte {start[0] * m.size} of a row; legal: multiples of "
            f"{CHUNK} B, so of {CHUNK // m.size} {m.dtype} elements, below 0 too"
        )
    if store and min(start) < 0:
        raise UsageError(
            f"a store or reduction at coordinate {min(start)}; legal: 0 and more (a load takes any)"
        )
    if store and m.interleave != "none":
        raise UsageError("a store by an interleaved map is not modelled; legal: load, prefetch")
    if m.corners is not None:
        boxes = zip(start[1:-1], m.corners.lower[::-1], last_pixels(m, m.corners), strict=True)
        for i, (at, low, high) in enumerate(boxes, start=1):
            if not low <= at <= high:
                raise UsageError(
                    f"coordinate {at} of dimension {i} lies outside the bounding box; legal: {low} to {high}"
                )


def _fill(oob: str, unit: int) -> Bytes:
    """Return the bytes of a unit outside the tensor."""
    return np.frombuffer(FILL[oob].to_bytes(2, "little") * unit, dtype=np.uint8)[:unit]


def _converted(values: Bytes, dtype: str) -> Bytes:
    """Return elements as they land: those of tf32 maps are rounded to ten bits of fraction."""
    if not dtype.startswith("tf32"):
        return values
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = bits + 0xFFF + (bits >> 13 & 1) & 0xFFFFE000
    numbers = bits & 0x7FFFFFFF
    found = np.where(numbers > 0x7F800000, 0x7FFFE000, np.where(numbers == 0x7F800000, bits, rounded))
    return found.astype(np.uint32).view(np.uint8)


def _bytes_of(start: Ints, size: int) -> Ints:
    """Return the addresses of the bytes of elements that begin at these addresses."""
    return start[..., None] + np.arange(size, dtype=np.int64)


def ptx(op: str, rank: int, reduction: str = "add") -> str:
    """Return the instruction's name: of a load, prefetch, store or reduce, or of an im2col load."""
    kinds = {
        "load": f"cp.async.bulk.tensor.{rank}d.shared::cta.global.tile.mbarrier::complete_tx::bytes",
        "im2col": f"cp.async.bulk.tensor.{rank}d.shared::cta.global.im2col.mbarrier::complete_tx::bytes",
        "prefetch": f"cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile",
        "store": f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group",
        "reduce": f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{reduction}.tile.bulk_group",
    }
    return kinds[op]


def sass(op: str, rank: int, reduction: str = "add") -> str:
    """Return the opcode that it becomes."""
    kinds = {
        "load": f"UTMALDG.{rank}D",
        "im2col": f"UTMALDG.{rank}D.IM2COL",
        "prefetch": f"UTMAPF.L2.{rank}D",
        "store": f"UTMASTG.{rank}D",
        "reduce": f"UTMAREDG.{rank}D.{reduction.upper()}",
    }
    return kinds[op]
