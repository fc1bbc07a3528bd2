"""Data that says where it came from: every element of a matrix carries its own row and column.

The coordinate of (row, col) is the number ``row << column_bits | col``. Elements too narrow for it show as
many of its bits as they hold at a time, the lowest in plane 0, so that an experiment runs once a plane.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError

ROW_BITS = 8


@dataclass(frozen=True)
class Coordinates:
    """Coordinates of a matrix of ``rows`` x ``cols`` elements of ``width`` bits each."""

    rows: int
    cols: int
    width: int

    def __post_init__(self) -> None:
        if self.rows >= 1 << ROW_BITS:  # the last row is left free: all bits set is what padding shows
            raise UsageError(f"{self.rows} rows; legal: up to {(1 << ROW_BITS) - 1}, so that each has a name")

    @property
    def column_bits(self) -> int:
        """Low bits that hold the column: 8, so that hexadecimal reads as RRCC, unless there are more."""
        return max(8, (self.cols - 1).bit_length())

    @property
    def planes(self) -> int:
        """How many elements it takes to show a whole coordinate."""
        return -(-(ROW_BITS + self.column_bits) // self.width)

    def packed(self, plane: int, per_chunk: int) -> NDArray[np.uint8]:
        """Return one plane as rows of bytes: chunks of ``per_chunk`` elements, each filled up to 16 bytes."""
        row, col = np.indices((self.rows, self.cols), dtype=np.int64)
        codes = (row << self.column_bits | col) >> (plane * self.width)
        bits = (codes[..., None] >> np.arange(self.width)) & 1
        chunks = bits.reshape(self.rows, -1, per_chunk * self.width).astype(np.uint8)
        padded = np.ones((*chunks.shape[:2], 128), dtype=np.uint8)
        padded[..., : chunks.shape[2]] = chunks
        return np.packbits(padded, axis=2, bitorder="little").reshape(self.rows, -1)

    def joined(self, planes: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return the coordinates out of the bits that each plane showed."""
        codes = np.zeros_like(planes[0])
        for plane, digits in enumerate(planes):
            codes |= digits << (plane * self.width)
        return codes

    def place(self, code: int) -> tuple[int, int]:
        """Return (row, col) of a coordinate."""
        return code >> self.column_bits, code & ((1 << self.column_bits) - 1)
