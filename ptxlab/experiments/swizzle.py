"""The records of ``ptxlab swizzle``: the smallest clean swizzle of a tile, and the cost of a given one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ptxlab.errors import UsageError, unknown_name
from ptxlab.experiments.base import sizes
from ptxlab.experiments.record import Record
from ptxlab.isa import mma
from ptxlab.isa.registers import RegisterMap
from ptxlab.isa.types import BITS
from ptxlab.layout.banks import ACCESSES, WORD_BYTES
from ptxlab.layout.solver import VECTOR_BYTES, Reads, cost, least_padding, solve, stays_inside
from ptxlab.layout.swizzle import MODES, Swizzle, parse_swizzle

ACCESS_NAMES = (
    *(f"ldmatrix.x{n}{trans}" for n in (1, 2, 4) for trans in ("", ".trans")),
    "mma.A",
    "mma.B",
)
ORDERS = ("row", "column")
_BITS = BITS | {"b8": 8, "b16": 16, "b32": 32, "b64": 64}  # what is moved may be known by its width alone
TYPES = tuple(_BITS)
LARGEST_TILE = 227 * 1024
"""Bytes of shared memory that a block may have on sm_90. Source: CUDA programming guide."""


@dataclass(frozen=True)
class Question:
    """A tile and how it is read.

    Attributes:
        rows, cols: in elements, of the matrix.
        dtype: of the elements.
        access: one of ACCESS_NAMES; mma.A and mma.B read fragments register by register with 32-bit loads.
        order: "row": rows of the matrix are contiguous (K-major); "column": columns are.

    """

    rows: int
    cols: int
    dtype: str
    access: str
    order: str

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return _BITS[self.dtype]


def question(tile: str, dtype: str, access: str, order: str) -> Question:
    """Return the question that these options ask.

    Raises:
        UsageError: an option is illegal, or the tile does not consist of whole fragments.

    """
    rows, cols = sizes(tile, parts=2, what="tile")
    for kind, name, legal in (
        ("type", dtype, TYPES),
        ("access", access, ACCESS_NAMES),
        ("order", order, ORDERS),
    ):
        if name not in legal:
            raise unknown_name(kind, name, legal)
    asked = Question(rows, cols, dtype, access, order)
    if rows * cols * asked.bits > 8 * LARGEST_TILE:
        raise UsageError(
            f"a tile of {rows}x{cols} {dtype} does not fit a block's shared memory; "
            f"legal: up to {LARGEST_TILE} bytes"
        )
    return asked


def reads_of(asked: Question) -> Reads:
    """Return the warp instructions that read the tile once.

    Raises:
        UsageError: the access cannot read such elements, or the tile is not whole fragments.

    """
    if asked.access.startswith("ldmatrix"):
        return _ldmatrix_reads(asked)
    return _mma_reads(asked)


def _ldmatrix_reads(asked: Question) -> Reads:
    """Read 8 rows of 16 bytes a matrix; matrices go down the rows of memory first."""
    kind, trans = asked.access.removesuffix(".trans"), asked.access.endswith(".trans")
    if trans and asked.bits != 16:
        raise UsageError(
            f"ldmatrix .trans moves 16-bit units and would tear {asked.bits}-bit {asked.dtype} apart; "
            "legal with .trans: 16-bit types",
            "--access mma.A or mma.B reads fragments with 32-bit ld.shared",
        )
    lines, row_bytes = _memory_shape(asked)
    number = int(kind[-1])
    matrices = [(r, c) for c in range(0, row_bytes, VECTOR_BYTES) for r in range(0, lines, 8)]
    if lines % 8 or row_bytes % VECTOR_BYTES or len(matrices) % number:
        raise UsageError(
            f"a tile of {lines} memory rows of {row_bytes} bytes is not whole {asked.access}; "
            f"legal: multiples of 8 rows and of 16 bytes, {number} matrices at a time"
        )
    groups = [matrices[i : i + number] for i in range(0, len(matrices), number)]
    instructions = tuple(
        tuple((row + q) * row_bytes + col for row, col in group for q in range(8)) for group in groups
    )
    return Reads(ACCESSES[kind], instructions, row_bytes, lines)


def _mma_reads(asked: Question) -> Reads:
    """Read each register of each fragment with one 32-bit load; its first element gives the address."""
    fragment, rows, cols = _fragment(asked)
    lines, row_bytes = _memory_shape(asked)
    per_word = 32 // asked.bits
    contiguous = asked.cols if asked.order == "row" else asked.rows
    if asked.bits > 32 or (per_word > 1 and _splits_words(asked)):
        raise UsageError(
            f"{asked.access} of {asked.dtype} in {asked.order} order is not 32-bit words in memory; "
            "legal: 32-bit types in any order, narrower ones with k contiguous",
            f"--order {'row' if asked.access == 'mma.A' else 'column'}" if asked.bits < 32 else "",
        )
    if asked.rows % rows or asked.cols % cols:
        raise UsageError(
            f"tile {asked.rows}x{asked.cols} is not whole fragments; legal: multiples of {rows}x{cols}"
        )
    instructions = []
    for row in range(0, asked.rows, rows):
        for col in range(0, asked.cols, cols):
            for register in range(int(fragment.register.max()) + 1):
                chosen = (fragment.register == register) & (fragment.slot == 0)
                r, c = fragment.place["row"][chosen] + row, fragment.place["col"][chosen] + col
                offsets = r * contiguous + c if asked.order == "row" else c * contiguous + r
                instructions.append(tuple((offsets * asked.bits // 8).tolist()))
    return Reads(ACCESSES["32"], tuple(instructions), row_bytes, lines)


def _fragment(asked: Question) -> tuple[RegisterMap, int, int]:
    """Return the fragment of the largest mma.sync of the type, and its extent in the tile."""
    k = 256 // asked.bits
    if asked.access == "mma.A":
        return mma.a_map(16, k, asked.bits), 16, k
    return mma.b_map(k, asked.bits), k, 8


def _splits_words(asked: Question) -> bool:
    """Say whether neighbours along k do not lie side by side in memory."""
    k_order = "row" if asked.access == "mma.A" else "column"
    return asked.order != k_order


def _memory_shape(asked: Question) -> tuple[int, int]:
    """Return how many rows the tile has as it lies in memory, and the bytes of one."""
    lines, along = (asked.rows, asked.cols) if asked.order == "row" else (asked.cols, asked.rows)
    return lines, along * asked.bits // 8


def solve_record(tile: str, dtype: str, access: str, order: str) -> Record:
    """Return the smallest swizzle that reads the tile without conflicts, else the least padding."""
    asked = question(tile, dtype, access, order)
    reads = reads_of(asked)
    found = solve(reads)
    record = _record(asked, reads)
    record.result |= _answer(asked, reads, found)
    if record.result["swizzle"] is None and record.result["padding"] is None:
        record.check("solution", ok=False, detail=record.result["conclusion"])
    return record


def tma_mode(swizzle: Swizzle, row_bytes: int) -> str | None:
    """Return the mode in which TMA writes such a tile, or None.

    A mode's box has rows of at most as many bytes as its name says, so a wider tile is none of its.
    """
    names = (name for name, p in MODES.items() if swizzle.bits and p == swizzle.parameters)
    return next((name for name in names if row_bytes <= int(name.removesuffix("B"))), None)


def padded_answer(reads: Reads) -> dict[str, Any]:
    """Return the least padding that keeps accesses aligned, or that it does not help either, and why."""
    padding = least_padding(reads, reads.access.bytes_per_lane)
    conclusion = "No swizzle of whole 16-byte vectors reads this tile without conflicts"
    if padding is None:
        conclusion += (
            f", and no padding does: a vector's {VECTOR_BYTES} bytes stay together, and the lanes that are "
            "served together want the same bytes of different vectors."
        )
        costs = _costs(reads, lambda offset: offset)
    else:
        conclusion += f"; {padding} bytes of padding after each row do ({padding * reads.rows} bytes in all)."
        costs = _costs(reads, lambda offset: offset + offset // reads.row_bytes * padding)
    return {
        "swizzle": None,
        "swizzle_bytes": None,
        "padding": padding,
        "conclusion": conclusion,
    } | costs


def _answer(asked: Question, reads: Reads, found: Swizzle | None) -> dict[str, Any]:
    if found is None:
        return padded_answer(reads)
    own, mode = _of_elements(found, asked), tma_mode(found, reads.row_bytes)
    equal = f", the TMA mode {mode}" if mode else ""
    conclusion = (
        f"Swizzle{own} of {asked.dtype} elements ({found} of bytes{equal}) reads the tile without conflicts; "
        f"its base must be a multiple of {found.period} bytes."
        if found.bits
        else "The tile reads without conflicts as it is."
    )
    told = {"tma_mode": mode, "conclusion": conclusion}
    return _parameters(asked, found) | told | _costs(reads, found)


def _parameters(asked: Question, given: Swizzle) -> dict[str, Any]:
    """Return B, M, S in elements and in bytes."""
    return {
        "swizzle": list(_of_elements(given, asked).parameters),
        "swizzle_bytes": list(given.parameters),
    }


def _of_elements(given: Swizzle, asked: Question) -> Swizzle:
    """Return a swizzle of bytes as one of the tile's elements."""
    return given.rescaled(8, asked.bits) if given.bits else given


def check_record(swizzle: str, tile: str, dtype: str, access: str, order: str) -> Record:
    """Return what reading the tile costs with a given swizzle; conflicts fail the check."""
    asked = question(tile, dtype, access, order)
    reads = reads_of(asked)
    given = parse_swizzle(swizzle, asked.bits)
    _refuse_misfit(swizzle, given, asked, reads)
    given = given if given.bits else Swizzle(0, 0, 0)
    record = _record(asked, reads)
    record.params["swizzle"] = swizzle
    costs = _costs(reads, given)
    each = costs["wavefronts"] / len(reads.instructions)
    conclusion = (
        f"{swizzle} reads the tile in {costs['wavefronts']} wavefronts, {reads.ideal} are ideal: "
        f"{each:g} for each of {len(reads.instructions)} instructions."
    )
    if costs["conflicts"]:
        conclusion += " `ptxlab swizzle solve` finds the smallest that is clean."
    record.result |= costs | _parameters(asked, given) | {"conclusion": conclusion}
    record.check("conflict-free", ok=costs["conflicts"] == 0, detail=conclusion)
    return record


def _refuse_misfit(name: str, given: Swizzle, asked: Question, reads: Reads) -> None:
    """Refuse a swizzle that such reads, or such a tile, cannot have."""
    whole = VECTOR_BYTES if asked.access.startswith("ldmatrix") else WORD_BYTES
    if given.bits and 1 << given.base < whole:
        raise UsageError(
            f"swizzle {name} tears the {whole} bytes that {asked.access} reads in one piece; "
            f"legal: M of at least {(whole * 8 // asked.bits).bit_length() - 1} in {asked.dtype} elements"
        )
    if not stays_inside(given, reads.nbytes):
        raise UsageError(
            f"swizzle {name} moves elements outside the tile of {reads.nbytes} bytes; "
            f"its period is {given.period} bytes"
        )


def _record(asked: Question, reads: Reads) -> Record:
    record = Record(backend="model", params=dict(vars(asked)))
    record.result |= {"instructions": len(reads.instructions), "access_class": reads.access.name}
    return record


def _costs(reads: Reads, place: Callable[[int], int]) -> dict[str, Any]:
    """Return the wavefronts before and after, over reading the whole tile once."""
    naive = cost(reads, lambda offset: offset)
    now = cost(reads, place)
    return {
        "naive": {"wavefronts": naive, "ideal": reads.ideal, "conflicts": naive - reads.ideal},
        "wavefronts": now,
        "ideal": reads.ideal,
        "conflicts": now - reads.ideal,
    }
