"""tcgen05: tensor memory, and what moves between it, registers and shared memory.

A block has 128 lanes of 512 columns of 32 bits. Warp w of a warpgroup reaches lanes 32w to 32w + 31 and no
others. With lane l of the warp and register r, tcgen05.ld and st move between that register and, counted from
the address that is given,

    32x32b     lane l                         column r
    16x64b     lane l // 4 + 8 (l % 2)        column l // 2 % 2 + 2r
    16x128b    lane l // 4 + 8 (r % 2)        column l % 4 + 4 (r // 2)
    16x256b    lane l // 4 + 8 (r // 2 % 2)   column r % 2 + 2 (l % 4) + 8 (r // 4)
    16x32bx2   lane l % 16                    column r, and `split` more for the lanes from 16 up

Packed, a column of these is two of tensor memory, whose low halves a register holds, the first in its low
half.

Modelled from the documentation and compiled; not run on a chip that has it. Sources: PTX ISA 9.0, "TensorCore
5th generation family instructions": "Tensor Memory", "Data movement shape", "tcgen05.ld", "tcgen05.st",
"tcgen05.cp", "tcgen05.shift"; CUTLASS, include/cute/atom/copy_traits_sm100.hpp: the layouts of its
tensor-memory atoms, which these maps equal. Copies that widen 4- and 6-bit elements are not modelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError, unknown_name
from ptxlab.isa.registers import Ints, RegisterMap, Where

LANES, COLUMNS = 128, 512
"""Tensor memory of a block, in cells of 32 bits."""

WARPS = 4
QUARTER = LANES // WARPS
"""Lanes that a warp of a warpgroup reaches."""

SHIFTED_COLUMNS = 8
"""What tcgen05.shift moves: 32 bytes of each lane."""

_FAMILIES = ("sm_100", "sm_103", "sm_107", "sm_110")
ARCHS = tuple(f"{name}{suffix}" for name in _FAMILIES for suffix in "af")
"""Who has tensor memory. Source: PTX ISA, the target notes of tcgen05; ptxas 13.5: sm_107."""

PER_NUM = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
"""Registers of a lane for each repetition. Source: PTX ISA, tcgen05.ld, table of .num and .shape."""

_CELLS = {"32x32b": 1, "16x64b": 2, "16x128b": 4, "16x256b": 8, "16x32bx2": 1}  # columns of a repetition
NUMS = (1, 2, 4, 8, 16, 32, 64, 128)

Cells = NDArray[np.uint32]
"""Tensor memory, shape [lanes, columns]."""


def check_arch(arch: str, op: str = "") -> None:
    """Raise UsageError if an architecture has no tensor memory, or not this instruction for it.

    Only the names with a have the shift: ptxas 13.5 refuses it for those with f.
    """
    legal = tuple(each for each in ARCHS if op != "shift" or each.endswith("a"))
    if arch not in legal:
        own = arch.rstrip("af") + "a"
        what = f"tcgen05.{op}" if op else "tcgen05"
        raise UsageError(
            f"{what} does not exist on {arch}; legal: {', '.join(legal)}",
            f"--arch {own if own in legal else legal[0]}",
        )


def check_columns(columns: int) -> None:
    """Raise UsageError if so many columns cannot be allocated. Source: PTX ISA, tcgen05.alloc."""
    if columns not in (32, 64, 128, 256, 512):
        raise UsageError(
            f"{columns} columns; legal: 32, 64, 128, 256, 512: a power of 2 from 32 to {COLUMNS}"
        )


def allocation(columns: int) -> int:
    """Return the least number of columns that can be allocated and holds so many."""
    return max(32, 1 << (columns - 1).bit_length())


def address(lane: int, column: int) -> int:
    """Return a tensor-memory address. Source: PTX ISA, "Tensor Memory Addressing"."""
    return lane << 16 | column


@dataclass(frozen=True)
class MoveForm:
    """One form of tcgen05.ld or tcgen05.st.

    Attributes:
        op: ld or st.
        shape: 32x32b, 16x64b, 16x128b, 16x256b or 16x32bx2.
        num: repetitions to the right.
        pack: two columns' low halves in one register (.pack::16b of ld, .unpack::16b of st).
        split: columns from the first half of 16x32bx2 to the second.

    """

    op: str
    shape: str
    num: int
    pack: bool = False
    split: int = 0

    @property
    def registers(self) -> int:
        """Registers of each lane."""
        return self.num * PER_NUM[self.shape]

    @property
    def lanes(self) -> int:
        """Lanes of tensor memory that a warp touches."""
        return 32 if self.shape == "32x32b" else 16

    @property
    def columns(self) -> int:
        """Columns from the address to the last that is touched."""
        return self.num * _CELLS[self.shape] * (2 if self.pack else 1) + self.split

    @property
    def ptx(self) -> str:
        """The instruction's text up to its operands."""
        pack = {"ld": ".pack::16b", "st": ".unpack::16b"}[self.op] if self.pack else ""
        return f"tcgen05.{self.op}.sync.aligned.{self.shape}.x{self.num}{pack}.b32"

    @property
    def sass(self) -> dict[str, int]:
        """The opcodes that ptxas 13 makes of it (seen in the disassembly of the tcgen05 probe).

        16x32bx2 becomes two, each for half of the lanes.
        """
        family = {"ld": "LDTM", "st": "STTM"}[self.op]
        which = {"32x32b": ("",), "16x32bx2": (".16dp32bit_t0_t15", ".16dp32bit_t16_t31")}.get(
            self.shape, (f".16dp{self.shape[3:-1]}bit",)
        )
        count = f".x{self.num}" if self.num > 1 else ""
        pack = {"ld": ".PACK16BIT", "st": ".EXPAND16BIT"}[self.op] if self.pack else ""
        return {f"{family}{each}{count}{pack}": 1 for each in which}

    @property
    def map(self) -> RegisterMap:
        """Who holds which cell of the warp's quarter: row is its lane, col its column."""

        def element(lane: Ints, register: Ints, slot: Ints) -> Where:
            row, cell = _places(self.shape, lane, register)
            wide = 2 if self.pack else 1
            return {"row": row, "col": wide * cell + slot + self.split * (lane // 16)}

        width = 16 if self.pack else 32
        return RegisterMap.of(self.registers, 32 // width, width, element)


def _places(shape: str, lane: Ints, register: Ints) -> tuple[Ints, Ints]:
    """Return row and column of each lane's register, as the module says, without the split."""
    if shape == "32x32b":
        return lane, register
    if shape == "16x32bx2":
        return lane % 16, register
    if shape == "16x64b":
        return lane // 4 + 8 * (lane % 2), lane // 2 % 2 + 2 * register
    if shape == "16x128b":
        return lane // 4 + 8 * (register % 2), lane % 4 + 4 * (register // 2)
    return lane // 4 + 8 * (register // 2 % 2), register % 2 + 2 * (lane % 4) + 8 * (register // 4)


_FORMULAS = {
    "32x32b": ("lane", "register", "row", "CELL"),
    "16x64b": ("lane // 4 + 8 * (lane % 2)", "lane // 2 % 2 + 2 * register",
               "4 * (row % 8) + row // 8 + 2 * (CELL % 2)", "CELL // 2"),
    "16x128b": ("lane // 4 + 8 * (register % 2)", "lane % 4 + 4 * (register // 2)",
                "4 * (row % 8) + CELL % 4", "row // 8 + 2 * (CELL // 4)"),
    "16x256b": ("lane // 4 + 8 * (register // 2 % 2)", "register % 2 + 2 * (lane % 4) + 8 * (register // 4)",
                "4 * (row % 8) + CELL % 8 // 2", "CELL % 2 + 2 * (row // 8) + 4 * (CELL // 8)"),
}  # fmt: skip


def formulas(form: MoveForm) -> dict[str, str]:
    """Return the map in closed form, both directions, as expressions that a test evaluates.

    Names: lane, register, slot on one side; row, col on the other; // is floor division.
    """
    wide = 2 if form.pack else 1
    packed = ("2 * ({})", " + slot", "(col // 2)", "col % 2") if form.pack else ("{}", "", "col", "0")
    if form.shape == "16x32bx2":
        cell = f"col % {form.split}" if form.split else "col"
        second = f"16 * (col // {form.split})" if form.split else "0"
        return {
            "row": "lane % 16",
            "col": packed[0].format("register") + f" + {form.split} * (lane // 16)" + packed[1],
            "lane": f"row + {second}",
            "register": f"{cell} // {wide}",
            "slot": f"{cell} % {wide}",
        }
    row, col, lane, register = (text.replace("CELL", packed[2]) for text in _FORMULAS[form.shape])
    return {
        "row": row, "col": packed[0].format(col) + packed[1], "lane": lane, "register": register,
        "slot": packed[3],
    }  # fmt: skip


def check_move(form: MoveForm, lane: int = 0) -> None:
    """Say why a load or store is illegal, if it is.

    Args:
        form: the form.
        lane: the lane of the address in the warp's quarter.

    Raises:
        UsageError: with the reason and the legal set.

    """
    if form.shape not in PER_NUM:
        raise unknown_name(f"shape of tcgen05.{form.op}", form.shape, PER_NUM)
    most = 128 // PER_NUM[form.shape]
    if form.num not in NUMS or form.num > most:
        legal = ", ".join(f"x{n}" for n in NUMS if n <= most)
        raise UsageError(f"tcgen05.{form.op} of {form.shape} has no x{form.num}; legal: {legal}")
    wide = form.columns - form.split
    if form.shape != "16x32bx2" and form.split:
        raise UsageError(f"--split {form.split} of {form.shape}; legal: only 16x32bx2 has a second half")
    if form.shape == "16x32bx2" and not wide <= form.split <= COLUMNS - wide:
        raise UsageError(
            f"--split {form.split}: the halves of {form.shape}.x{form.num} are {wide} columns wide; legal: "
            f"{wide} to {COLUMNS - wide}, so that they do not overlap"
        )
    legal_lanes = (0,) if form.lanes == 32 else (0, 16)
    if lane not in legal_lanes:
        names = " or ".join(map(str, legal_lanes))
        raise UsageError(f"lane {lane} of a warp's quarter for {form.shape}; legal: {names}")


def move_forms() -> Iterator[MoveForm]:
    """Yield every form of ld and st; the halves of 16x32bx2 lie side by side."""
    for op in ("ld", "st"):
        for shape, registers in PER_NUM.items():
            for num in NUMS:
                for pack in (False, True):
                    split = num * (2 if pack else 1) if shape == "16x32bx2" else 0
                    if num * registers <= 128:
                        yield MoveForm(op, shape, num, pack, split)


def loaded(memory: Cells, form: MoveForm, lane: int = 0) -> NDArray[np.uint32]:
    """Return the registers of four warps, shape [warp, lane, register], each at ``lane`` of its quarter."""
    where = form.map
    rows = np.arange(WARPS)[:, None] * QUARTER + lane + where.place["row"]
    cells = memory[rows, where.place["col"]] & np.uint32((1 << where.bits) - 1)
    return np.stack([where.pack(each.astype(np.uint64), form.registers) for each in cells])


def stored(memory: Cells, form: MoveForm, registers: NDArray[np.uint32], lane: int = 0) -> Cells:
    """Return tensor memory after four warps stored their registers; of unpacked cells the low half counts."""
    where, after = form.map, memory.copy()
    rows = np.arange(WARPS)[:, None] * QUARTER + lane + where.place["row"]
    after[rows, where.place["col"]] = np.stack([where.slots_of(each) for each in registers]).astype(np.uint32)
    return after


@dataclass(frozen=True)
class Copy:
    """One shape of tcgen05.cp.

    Attributes:
        rows: of the matrix in shared memory.
        nbytes: of a row.
        copies: lanes from one copy of the matrix to the next, () for a single one.
        spread: lanes from the first row to the next block of ``block`` rows.
        block: rows that lie in neighbouring lanes.

    """

    rows: int
    nbytes: int
    block: int
    spread: int
    copies: tuple[int, ...] = (0,)

    @property
    def lanes(self) -> Ints:
        """The lanes that each row goes to, shape [rows, copies], counted from the address."""
        row = np.arange(self.rows)
        first = row // self.block * self.spread + row % self.block
        return np.asarray(first[:, None] + np.array(self.copies), dtype=np.int64)

    @property
    def columns(self) -> int:
        """Columns of a row."""
        return self.nbytes // 4


COPIES = {
    "128x256b": Copy(128, 32, 128, 128),
    "4x256b": Copy(4, 32, 1, QUARTER),
    "128x128b": Copy(128, 16, 128, 128),
    "64x128b.warpx2::02_13": Copy(64, 16, 64, 64, (0, 64)),
    "64x128b.warpx2::01_23": Copy(64, 16, 32, 64, (0, 32)),
    "32x128b.warpx4": Copy(32, 16, 32, 32, (0, 32, 64, 96)),
}
"""The shapes of tcgen05.cp with their multicast."""

_COPY_SASS = {
    "128x256b": "", "4x256b": ".4dp256bit", "128x128b": ".128dp128bit",
    "64x128b.warpx2::02_13": ".2x64dp128bit_lw02_lw13", "64x128b.warpx2::01_23": ".2x64dp128bit_lw01_lw23",
    "32x128b.warpx4": ".4x32dp128bit",
}  # fmt: skip


def copy_sass(shape: str, cta_group: int) -> str:
    """Return the opcode that ptxas 13 makes of a copy (seen in the disassembly of the tcgen05 probe)."""
    return f"UTCCP.T.S{'.2CTA' if cta_group == 2 else ''}{_COPY_SASS[shape]}"


def copied(memory: Cells, shape: str, rows: NDArray[np.uint8]) -> Cells:
    """Return tensor memory after a copy of these bytes, shape [rows, bytes], to lane 0, column 0."""
    form, after = COPIES[shape], memory.copy()
    words = np.ascontiguousarray(rows).view(np.uint32)
    after[form.lanes, : form.columns] = words[:, None]
    return after


def shifted(memory: Cells) -> Cells:
    """Return tensor memory after a shift at lane 0, column 0.

    A guess: PTX has all rows of a warp but the last go down by one, and shows no figure. That lane i takes
    over lane i + 1 is inferred from CUTLASS, which writes the last lane of each quarter anew afterwards
    (copy_traits_sm100.hpp, the 4x256b copy).
    """
    after = memory.copy()
    after[: QUARTER - 1, :SHIFTED_COLUMNS] = memory[1:QUARTER, :SHIFTED_COLUMNS]
    return after
