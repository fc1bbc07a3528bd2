"""How a tile in shared memory is read and written: each access as the warp instructions that do it once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.isa import mma
from ptxlab.isa.registers import RegisterMap
from ptxlab.layout.address import coordinates
from ptxlab.layout.banks import ACCESSES, LINE_BYTES, OFF, WORD_BYTES, Access, access
from ptxlab.layout.solver import VECTOR_BYTES, Pass

LANES = 32
_MATRICES = tuple(
    f"{op}.x{n}{trans}" for op in ("ldmatrix", "stmatrix") for n in (1, 2, 4) for trans in ("", ".trans")
)
_ROWS = {"row": 0, "row.64": 8, "row.128": 16, "cp.async.4": 4, "cp.async.8": 8, "cp.async.16": 16}
"""Accesses along the rows of memory: bytes of a lane; 0 is one element."""

ACCESS_NAMES = (*_MATRICES, "mma.A", "mma.B", "wgmma", "tma", *_ROWS, "column")
_SHORT = {
    "ldmatrix": "ldmatrix.x4", "ldmatrix.trans": "ldmatrix.x4.trans",
    "stmatrix": "stmatrix.x4", "stmatrix.trans": "stmatrix.x4.trans", "cp.async": "cp.async.16",
}  # fmt: skip

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Area:
    """A tile in shared memory.

    Attributes:
        rows, cols: in elements, of the matrix.
        dtype: of the elements.
        bits: of an element.
        order: "row": rows of the matrix are contiguous (K-major); "column": columns are.

    """

    rows: int
    cols: int
    dtype: str
    bits: int
    order: str

    @property
    def lines(self) -> int:
        """Rows of the tile as it lies in memory."""
        return self.rows if self.order == "row" else self.cols

    @property
    def along(self) -> int:
        """Elements in one of them."""
        return self.cols if self.order == "row" else self.rows

    @property
    def row_bytes(self) -> int:
        """Bytes of one of them."""
        return self.along * self.bits // 8

    def offsets(self, row: Ints, col: Ints) -> Ints:
        """Return the byte offsets of elements of the matrix."""
        line, place = (row, col) if self.order == "row" else (col, row)
        return np.asarray((line * self.along + place) * self.bits // 8)


def plain_name(name: str) -> str:
    """Return the full name of an access: ldmatrix is ldmatrix.x4."""
    return _SHORT.get(name, name).strip()


def pass_of(area: Area, name: str) -> Pass:
    """Return the warp instructions that use the whole tile once.

    Args:
        area: the tile.
        name: one of ACCESS_NAMES; mma.A and mma.B read fragments register by register with 32-bit loads,
            row and column move one element a lane, in that direction of the matrix. Or the coordinates of
            each lane's element: "(lane % 16, lane // 16)", of one warp, or with ``warp`` of all of them.

    Raises:
        UsageError: the access cannot move such elements, or the tile is not whole instructions.

    """
    if name in _MATRICES:
        return _matrices(area, name)
    if name in _OF_TENSOR_UNITS:
        return _OF_TENSOR_UNITS[name](area, name)
    if name in _ROWS:
        return _along_rows(area, name)
    if name == "column":
        col, row = np.divmod(np.arange(area.rows * area.cols), area.rows)
        return _elements(area, name, row, col)
    return _chosen(area, name)


def _matrices(area: Area, name: str) -> Pass:
    """Move 8 rows of 16 bytes a matrix; matrices go down the rows of memory first."""
    kind = access(name)
    if name.endswith(".trans") and area.bits != 16:
        raise UsageError(
            f"{name.partition('.')[0]} .trans moves 16-bit units and would tear {area.bits}-bit "
            f"{area.dtype} apart; legal with .trans: 16-bit types",
            "--access mma.A or mma.B reads fragments with 32-bit ld.shared",
        )
    return Pass(kind, _rows_of_matrices(area, name, kind.lanes // 8), name=name)


def _rows_of_matrices(area: Area, name: str, number: int) -> Ints:
    """Return the offset of each row of the 8x8 matrices, [instruction, lane], ``number`` matrices each."""
    matrices = area.lines // 8 * (area.row_bytes // VECTOR_BYTES)
    if area.lines % 8 or area.row_bytes % VECTOR_BYTES or matrices % number:
        raise UsageError(
            f"a tile of {area.lines} memory rows of {area.row_bytes} bytes is not whole {name}; "
            f"legal: multiples of 8 rows and of 16 bytes, {number} matrices at a time"
        )
    chunk, line = np.divmod(np.arange(matrices * 8, dtype=np.int64), area.lines)
    return np.asarray((line * area.row_bytes + chunk * VECTOR_BYTES).reshape(-1, 8 * number))


def _fragments(area: Area, name: str) -> Pass:
    """Read each register of each fragment with one 32-bit load; its first element gives the address."""
    fragment, rows, cols = _fragment(area, name)
    if area.bits > 32 or (area.bits < 32 and _splits_words(area, name)):
        raise UsageError(
            f"{name} of {area.dtype} in {area.order} order is not 32-bit words in memory; "
            "legal: 32-bit types in any order, narrower ones with k contiguous",
            f"--order {'row' if name == 'mma.A' else 'column'}" if area.bits < 32 else "",
        )
    if area.rows % rows or area.cols % cols:
        raise UsageError(
            f"tile {area.rows}x{area.cols} is not whole fragments; legal: multiples of {rows}x{cols}"
        )
    first = fragment.slot == 0
    order = np.lexsort((fragment.lane[first], fragment.register[first]))
    row, col = (fragment.place[axis][first][order].reshape(-1, LANES) for axis in ("row", "col"))
    down, across = np.arange(0, area.rows, rows), np.arange(0, area.cols, cols)
    placed = area.offsets(
        row[None, None] + down[:, None, None, None], col[None, None] + across[None, :, None, None]
    )
    return Pass(ACCESSES["32"], placed.reshape(-1, LANES), name=name)


def _fragment(area: Area, name: str) -> tuple[RegisterMap, int, int]:
    """Return the fragment of the largest mma.sync of the type, and its extent in the tile."""
    k = 256 // area.bits
    if name == "mma.A":
        return mma.a_map(16, k, area.bits), 16, k
    return mma.b_map(k, area.bits), k, 8


def _splits_words(area: Area, name: str) -> bool:
    """Say whether neighbours along k do not lie side by side in memory."""
    return area.order != ("row" if name == "mma.A" else "column")


def _along_rows(area: Area, name: str) -> Pass:
    """Move the rows of memory from end to end, a vector or an element a lane."""
    size = _ROWS[name]
    if not size:
        row, col = np.divmod(np.arange(area.rows * area.cols), area.cols)
        return _elements(area, name, row, col)
    if area.row_bytes % size:
        raise UsageError(f"rows of {area.row_bytes} bytes are not whole {name}; legal: multiples of {size}")
    kind = access(name if name in ACCESSES else str(8 * size), "" if name in ACCESSES else "st")
    offsets = np.arange(0, area.lines * area.row_bytes, size, dtype=np.int64)
    sources = _by_warps(_in_global_memory(area, offsets)) if kind.by_line else None
    return Pass(kind, _by_warps(offsets), name=name, sources=sources)


def _in_global_memory(area: Area, offsets: Ints) -> Ints:
    """Return where the bytes of a tile lie in a matrix of which each row of the tile begins a line."""
    row, place = np.divmod(offsets, area.row_bytes)
    return np.asarray(row * -(-area.row_bytes // LINE_BYTES) * LINE_BYTES + place)


def _elements(area: Area, name: str, row: Ints, col: Ints) -> Pass:
    """Move one element a lane, lane after lane."""
    if area.bits < 8:
        raise UsageError(
            f"{area.bits}-bit {area.dtype} have no address each; legal: types of 8 bits and more"
        )
    return Pass(_of_one_element(area), _by_warps(area.offsets(row, col)), name=name)


def _of_one_element(area: Area) -> Access:
    """Return the class that moves one element: less than a word needs no more than its own alignment."""
    if area.bits < 8 * WORD_BYTES:
        return replace(ACCESSES["32"], bytes_per_lane=area.bits // 8)
    return ACCESSES[str(area.bits)]


def _by_warps(offsets: Ints) -> Ints:
    """Return offsets as [instruction, lane]; the lanes that the last one does not need are off."""
    missing = -len(offsets) % LANES
    return np.concatenate([offsets, np.full(missing, OFF)]).reshape(-1, LANES)


def _chosen(area: Area, text: str) -> Pass:
    """Move the elements whose coordinates an expression gives, lane by lane."""
    warps = area.rows * area.cols // LANES if re.search(r"\b(w|warp)\b", text) else 1
    warp, lane = np.divmod(np.arange(max(1, warps) * LANES), LANES)
    row, col = coordinates(text, {"lane": lane, "warp": warp})
    outside = (row < 0) | (row >= area.rows) | (col < 0) | (col >= area.cols)
    if outside.any():
        first = int(outside.argmax())
        raise UsageError(
            f"'{text}' gives lane {lane[first]} of warp {warp[first]} the element "
            f"({row[first]}, {col[first]}); legal: inside the tile of {area.rows}x{area.cols}"
        )
    return _elements(area, text, row, col)


def _core_matrices(area: Area, name: str) -> Pass:
    """Read one core matrix after the other, each a phase: a model, for no counter tells them apart."""
    return Pass(ACCESSES[name], _rows_of_matrices(area, name, 1), modes=True, name=name)


def _boxes(area: Area, name: str) -> Pass:
    """Write whole boxes: at no cost that is known, and with the swizzles that TMA has."""
    del area
    return Pass(ACCESSES["cp.async.16"], np.zeros((0, LANES), dtype=np.int64), modes=True, name=name)


_OF_TENSOR_UNITS: dict[str, Callable[[Area, str], Pass]] = {
    "mma.A": _fragments,
    "mma.B": _fragments,
    "wgmma": _core_matrices,
    "tma": _boxes,
}
