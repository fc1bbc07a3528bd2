"""Matrices whose rows of 16 bytes lie in a tile, each at the address of one lane: ldmatrix and stmatrix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.layout import banks
from ptxlab.layout.address import lane_addresses
from ptxlab.layout.swizzle import parse_swizzle
from ptxlab.layout.tile import CHUNK_BYTES, Chunk, Selection, Tile, selection, spans

SWIZZLES = ("32B", "64B", "128B")
"""Those that undo conflicts, the smallest first."""

LARGEST_TILE = 1 << 17
"""Bytes; so that a bit plane of a tile fits into shared memory."""


class Matrices(Protocol):
    """The part of an instruction's form that says which matrices it moves.

    Lane ``rows * j + r`` supplies the address of row r of matrix j.
    """

    @property
    def num(self) -> int:
        """How many matrices."""

    @property
    def rows(self) -> int:
        """Rows of one matrix in memory, of 16 bytes each."""

    @property
    def cols(self) -> int:
        """Elements in a row."""

    @property
    def stored_bits(self) -> int:
        """Bits of an element in memory."""

    @property
    def addresses(self) -> int:
        """How many lanes supply an address, from lane 0 up."""


@dataclass(frozen=True)
class Wording:
    """How an instruction speaks of what its addresses select."""

    missing: str
    twice: str
    padding: str
    once: str
    holds: str


LOADS = Wording("missing", "duplicated", "read padding", "loaded", "holds")
STORES = Wording("not written", "written more than once", "write into padding", "stored", "goes to")


@dataclass(frozen=True)
class Placement:
    """Matrices in a tile in shared memory, and the address that each lane supplies for them.

    Attributes:
        form: the matrices.
        tile: where they lie. A spare row of 16 bytes follows it.
        offsets: the byte offset that each of the 32 lanes supplies.

    """

    form: Matrices
    tile: Tile
    offsets: tuple[int, ...]

    @classmethod
    def of(
        cls,
        form: Matrices,
        *,
        extent: tuple[int, ...] | None,
        pitch: int,
        swizzle: str,
        expression: str,
        spare: bool,
    ) -> Placement:
        """Return the placement that options describe.

        Args:
            form: the matrices.
            extent: rows and columns of the tile, or None for one that holds just the matrices.
            pitch: bytes from one row to the next; 0 for rows that touch.
            swizzle: as options name it.
            expression: the user's map of lanes to addresses, or "" for the one that is meant.
            spare: whether lanes that supply no address point at the spare row, or at rows of lower lanes.

        Raises:
            UsageError: the tile does not hold the matrices or is too large, the swizzle is none, or the map
                leaves the tile.

        """
        tile = _tile(form, extent, pitch, swizzle)
        used = _chosen_offsets(form, tile, expression) if expression else _meant_offsets(form, tile)
        rest = range(form.addresses, 32)
        return cls(form, tile, (*used, *(tile.nbytes if spare else used[i % form.addresses] for i in rest)))

    @property
    def used(self) -> list[int]:
        """The offsets that the instruction looks at."""
        return list(self.offsets[: self.form.addresses])

    @property
    def hits(self) -> bool:
        """Whether any lane selects a row of the tile."""
        return any(self.tile.chunk_at(offset) is not None for offset in self.offsets)

    @property
    def nbytes(self) -> int:
        """Bytes of the tile and the spare row."""
        return self.tile.nbytes + CHUNK_BYTES

    def maps(self) -> NDArray[np.int64]:
        """Return 33 lane-to-address maps: this one, then with each lane in turn at the spare row."""
        base = np.array(self.offsets, dtype=np.int64)
        return np.concatenate([base[None], np.where(np.eye(32, dtype=bool), self.tile.nbytes, base)])

    def selection(self) -> Selection:
        """Return how the rows that the lanes select differ from those of the fragment."""
        return selection(_meant(self.form, self.tile), [self.tile.chunk_at(offset) for offset in self.used])

    @property
    def forgets_swizzle(self) -> bool:
        """Whether the lanes' map fits the same tile without its swizzle, and not this one."""
        meant = _meant(self.form, self.tile)
        plain = [row * self.tile.pitch + chunk * CHUNK_BYTES for row, chunk in meant]
        return self.used == plain != [self.tile.offset(*chunk) for chunk in meant]

    @property
    def mistaken(self) -> bool:
        """Whether no fragment needs such a map: a row twice, padding, or a forgotten swizzle."""
        return self.forgets_swizzle or self.selection().mistaken

    def explanation(self, words: Wording) -> str:
        """Return what is unusual about the map: a mistake, another order, or nothing ("")."""
        if self.forgets_swizzle:
            return "The map is that of a tile without swizzle: XOR every address with it."
        chosen = self.selection()
        if chosen.mistaken:
            return self._mistake(chosen, words)
        return self._order(chosen, words) if chosen.moved else ""

    def banks(self, access: str) -> dict[str, int]:
        """Return the wavefronts of the one instruction, of an access class of ptxlab.layout.banks."""
        cost = banks.wavefronts(banks.access(access), self.offsets)
        return {"wavefronts": cost.wavefronts, "ideal": cost.ideal, "conflicts": cost.conflicts}

    def remedies(self, access: str) -> list[str]:
        """Return the options, of --swizzle and of --pitch, with which the meant map has no conflicts.

        None where it has none as it is, or where the map is the user's own.
        """
        tile = self.tile
        if self.used != _meant_offsets(self.form, tile) or not self.banks(access)["conflicts"]:
            return []
        plain = replace(tile, swizzle=parse_swizzle("none", self.form.stored_bits))
        tried = {
            f"--swizzle {mode}": replace(plain, swizzle=parse_swizzle(mode, self.form.stored_bits))
            for mode in SWIZZLES
        }
        fit = {text: each for text, each in tried.items() if each.nbytes <= tile.rows * tile.pitch}
        swizzled = [text for text, each in fit.items() if not self._in(each).banks(access)["conflicts"]]
        padded = replace(plain, pitch=tile.pitch + CHUNK_BYTES)
        is_free = not self._in(padded).banks(access)["conflicts"]
        return swizzled[:1] + ([f"--pitch {padded.pitch}"] if is_free else [])

    def _in(self, tile: Tile) -> Placement:
        """Return the same matrices in another tile, where they are meant to be."""
        spare = [tile.nbytes] * (32 - self.form.addresses)
        return Placement(self.form, tile, (*_meant_offsets(self.form, tile), *spare))

    def _mistake(self, chosen: Selection, words: Wording) -> str:
        """Return which rows are missing and which come twice, register by register."""
        parts = []
        if chosen.missing:
            parts.append(f"rows {self._rows(chosen.missing)} {words.missing}")
        if chosen.duplicated:
            parts.append(f"{'' if parts else 'rows '}{self._rows(chosen.duplicated)} {words.twice}")
        if chosen.padding:
            parts.append(f"lanes {spans(chosen.padding)} {words.padding}")
        lanes = [lane for lane, _, _ in chosen.moved]
        matrices = spans(lane // self.form.rows for lane in lanes + chosen.padding)
        return f"Mistaken lane-to-address map: {', '.join(parts)} (seen in matrix {matrices})."

    def _order(self, chosen: Selection, words: Wording) -> str:
        """Return which rows each matrix has where the map is a permutation of the fragment's."""
        parts = []
        for matrix in sorted({lane // self.form.rows for lane, _, _ in chosen.moved}):
            own = self.used[matrix * self.form.rows : (matrix + 1) * self.form.rows]
            chunks = [chunk for chunk in map(self.tile.chunk_at, own) if chunk]
            parts.append(f"matrix {matrix} {words.holds} rows {self._rows(chunks)}")
        order = "in another order than the A operand of mma has"
        return f"Every row is {words.once} once, {order}: {'; '.join(parts)}."

    def _rows(self, chunks: list[Chunk]) -> str:
        """Return "8-15" or, in a tile of several chunks a row, "8-15 of columns 0-7"."""
        if self.tile.chunks == 1:
            return spans(row for row, _ in chunks)
        cols = self.form.cols
        return " and ".join(
            f"{spans(row for row, each in chunks if each == chunk)} of columns "
            f"{chunk * cols}-{(chunk + 1) * cols - 1}"
            for chunk in sorted({c for _, c in chunks})
        )


def _tile(form: Matrices, extent: tuple[int, ...] | None, pitch: int, swizzle: str) -> Tile:
    high = 1 if form.num == 1 else 2
    rows, cols = extent or (high * form.rows, form.num // high * form.cols)
    if rows % form.rows or cols % form.cols or (rows // form.rows) * (cols // form.cols) < form.num:
        raise UsageError(
            f"tile {rows}x{cols} does not hold {form.num} whole matrices of {form.rows}x{form.cols}; "
            f"legal: multiples of {form.rows} rows and {form.cols} columns, {form.num} matrices or more"
        )
    row_bytes = cols // form.cols * CHUNK_BYTES
    pitch = pitch or row_bytes
    if rows * pitch > LARGEST_TILE:
        raise UsageError(
            f"tile {rows}x{cols} at a pitch of {pitch} bytes takes {rows * pitch}; "
            f"legal: up to {LARGEST_TILE} bytes"
        )
    return Tile(rows, row_bytes, pitch, parse_swizzle(swizzle, form.stored_bits))


def _meant(form: Matrices, tile: Tile) -> list[Chunk]:
    """Return the row of the tile that each address is meant to select, as the A operand of mma has it.

    The matrices tile the fragment down the rows first, then along them.
    """
    down = tile.rows // form.rows
    return [
        (lane % form.rows + form.rows * (lane // form.rows % down), lane // form.rows // down)
        for lane in range(form.addresses)
    ]


def _meant_offsets(form: Matrices, tile: Tile) -> list[int]:
    return [tile.offset(*chunk) for chunk in _meant(form, tile)]


def _chosen_offsets(form: Matrices, tile: Tile, expression: str) -> list[int]:
    used = lane_addresses(expression, alignment=CHUNK_BYTES, lanes=range(form.addresses))
    for lane, address in enumerate(used):
        if address + CHUNK_BYTES > tile.nbytes:
            raise UsageError(
                f"address expression '{expression}' gives lane {lane} the address {address}; "
                f"legal: up to {tile.nbytes - CHUNK_BYTES}, the last row of the tile"
            )
    return used
