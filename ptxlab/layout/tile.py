"""A tile in shared memory: rows at a pitch, cut into 16-byte chunks that a swizzle moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.layout.swizzle import Swizzle

CHUNK_BYTES = 16
Chunk = tuple[int, int]
"""(row, chunk within the row)."""


@dataclass(frozen=True)
class Tile:
    """Rows of ``row_bytes`` bytes, ``pitch`` bytes apart, at offset 0; ``swizzle`` acts on byte offsets.

    Raises:
        UsageError: a row or the pitch is not whole chunks, rows overlap, or the swizzle splits a chunk.

    """

    rows: int
    row_bytes: int
    pitch: int
    swizzle: Swizzle
    _chunk_at: dict[int, Chunk] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.row_bytes % CHUNK_BYTES:
            raise UsageError(f"a tile row has {self.row_bytes} bytes; legal: multiples of {CHUNK_BYTES}")
        if self.pitch % CHUNK_BYTES or self.pitch < self.row_bytes:
            raise UsageError(
                f"a pitch of {self.pitch} bytes; legal: multiples of {CHUNK_BYTES} "
                f"from the row's {self.row_bytes} up"
            )
        if self.swizzle.bits and self.swizzle.base < 4:
            raise UsageError(
                f"swizzle {self.swizzle} of bytes splits 16-byte chunks; legal: M of at least 4 in bytes"
            )
        chunks = ((row, chunk) for row in range(self.rows) for chunk in range(self.chunks))
        object.__setattr__(self, "_chunk_at", {self.offset(*each): each for each in chunks})

    @property
    def chunks(self) -> int:
        """Chunks in a row."""
        return self.row_bytes // CHUNK_BYTES

    @property
    def nbytes(self) -> int:
        """Bytes from offset 0 to the end of the last chunk, wherever the swizzle put it."""
        return max(self._chunk_at) + CHUNK_BYTES

    def offset(self, row: int, chunk: int) -> int:
        """Return the byte offset of a chunk."""
        return self.swizzle(row * self.pitch + chunk * CHUNK_BYTES)

    def chunk_at(self, offset: int) -> Chunk | None:
        """Return the chunk that lies at this offset, or None for padding."""
        return self._chunk_at.get(offset)

    def image(self, rows: NDArray[np.uint8], filler: int) -> NDArray[np.uint8]:
        """Return the bytes of the tile, shape [nbytes], from rows of shape [rows, row_bytes]."""
        memory = np.full(self.nbytes, filler, dtype=np.uint8)
        for offset, (row, chunk) in self._chunk_at.items():
            first = chunk * CHUNK_BYTES
            memory[offset : offset + CHUNK_BYTES] = rows[row, first : first + CHUNK_BYTES]
        return memory


@dataclass(frozen=True)
class Selection:
    """What a lane-to-address map selects, held against what was meant.

    Attributes:
        missing: chunks that were meant and that no lane reads.
        duplicated: chunks that more than one lane reads.
        padding: lanes that read bytes outside the tile's rows.
        moved: (lane, chunk meant, chunk read) where both differ.

    """

    missing: list[Chunk]
    duplicated: list[Chunk]
    padding: list[int]
    moved: list[tuple[int, Chunk, Chunk]]

    @property
    def mistaken(self) -> bool:
        """Whether a row comes twice or padding is read: no fragment needs that."""
        return bool(self.duplicated or self.padding)


def selection(meant: Sequence[Chunk], read: Sequence[Chunk | None]) -> Selection:
    """Return how the chunks that the lanes read differ from those that were meant, lane by lane."""
    counts = Counter(chunk for chunk in read if chunk is not None)
    return Selection(
        missing=[chunk for chunk in meant if chunk not in counts],
        duplicated=[chunk for chunk, count in counts.items() if count > 1],
        padding=[lane for lane, chunk in enumerate(read) if chunk is None],
        moved=[
            (lane, want, got)
            for lane, (want, got) in enumerate(zip(meant, read, strict=True))
            if got is not None and got != want
        ],
    )


def spans(numbers: Iterable[int]) -> str:
    """Return numbers as ranges: 0-7, 12, 14-15."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in found)
