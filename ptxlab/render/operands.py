"""The operands of a matrix instruction as blocks: who holds which element, drawn and as a table.

Works on the lists "A", "B", "C", "D" and "E" of a result: entries with lane, register, slot,
row and col, and matrix or warp where there are several.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ptxlab.render.blocks import Block, Cell, Grid, Table, Text

OPERANDS = ("A", "B", "C", "D", "E")
_LETTERS = "abcdefgh"  # slot of a register, from the low bits up
_NAMED = 16  # a side longer than this is drawn register by register, not element by element
_LINES = 64  # rows and columns that are drawn
_REGISTERS = 16  # columns of the register table
_LEGEND = (
    "A cell names the lane that holds the element, its register, and the slot in it: a is the lowest bits."
)

Entry = dict[str, int]
Word = tuple[int, int, int]
"""(warp, lane, register)."""


@dataclass
class _Operand:
    """One operand, or two that lie alike, such as C and D."""

    names: str
    entries: list[Entry]
    rows: int
    cols: int
    words: dict[Word, list[Entry]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for entry in self.entries:
            self.words[entry.get("warp", 0), entry["lane"], entry["register"]].append(entry)

    @property
    def run(self) -> tuple[int, int]:
        """Rows and columns that one cell stands for: a whole register where a side is long."""
        word = next(iter(self.words.values()))
        for side, extent in (("row", self.rows), ("col", self.cols)):
            places = [each[side] for each in word]
            if extent > _NAMED and places == list(range(places[0], places[0] + len(word))):
                return (len(word), 1) if side == "row" else (1, len(word))
        return 1, 1


def operand_blocks(result: dict[str, Any], source: str, operands: Iterable[str] = OPERANDS) -> list[Block]:
    """Return pictures and register tables of all operands, and their closed forms.

    Args:
        result: the result of a document; without operands there are no blocks.
        source: "measured" or "predicted".
        operands: the names under which the result may hold them.

    """
    shown = [each for each in _operands(result, operands) if each.entries]
    if not shown:
        return []
    grids = [grid for operand in shown for grid in _grids(operand)]
    blocks: list[Block] = [*grids, Text(_LEGEND, "faint"), *(_registers(each, source) for each in shown)]
    formulas = result.get("formulas", {})
    return [*blocks, formula_table(formulas)] if formulas else blocks


def formula_table(formulas: dict[str, Any], title: str = "in closed form") -> Table:
    """Return closed forms as a table: a dict of expressions, or one for each operand."""
    if not all(isinstance(each, dict) for each in formulas.values()):
        return Table(title, ("", "is"), list(formulas.items()))
    alike = dict(_alike(formulas))
    names = dict.fromkeys(name for operand in alike.values() for name in operand)
    rows: list[tuple[Cell, ...]] = [(name, *(each.get(name) for each in alike.values())) for name in names]
    return Table(title, ("", *alike), rows)


def _operands(result: dict[str, Any], names: Iterable[str]) -> Iterator[_Operand]:
    held = {name: result[name] for name in names if isinstance(result.get(name), list)}
    plain = {
        name: [{key: value for key, value in each.items() if key != "value"} for each in entries]
        for name, entries in held.items()
    }
    for title, entries in _alike(plain):
        extent = result["shapes"][title.split()[0]]
        yield _Operand(title, entries, extent["rows"], extent["cols"])


def _alike(operands: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return names and contents, C and D as one where they are the same."""
    if "C" in operands and operands["C"] == operands.get("D"):
        return [("C and D" if name == "C" else name, each) for name, each in operands.items() if name != "D"]
    return list(operands.items())


def _grids(operand: _Operand) -> Iterator[Grid]:
    """Draw each matrix of an operand; a cell is an element, or a register full of them."""
    high, wide = operand.run
    rows, cols = (min(_LINES, size) for size in (operand.rows // high, operand.cols // wide))
    letters = high == wide == 1 and any(entry["slot"] for entry in operand.entries)
    several = len({entry.get("warp", 0) for entry in operand.entries}) > 1
    for matrix in sorted({entry.get("matrix", 0) for entry in operand.entries}):
        cells = [[""] * cols for _ in range(rows)]
        colours: list[list[int | None]] = [[None] * cols for _ in range(rows)]
        for entry in operand.entries:
            row, col = entry["row"] // high, entry["col"] // wide
            if entry.get("matrix", 0) == matrix and row < rows and col < cols:
                slot = _LETTERS[entry["slot"]] if letters else ""
                warp = f"w{entry['warp']}:" if several else ""
                cells[row][col] = f"{warp}{entry['lane']} r{entry['register']}{slot}"
                colours[row][col] = entry["lane"]
        yield Grid(
            _title(operand, matrix, rows * high, cols * wide),
            cells,
            colours,
            row_names=_spans(rows, high),
            column_names=_spans(cols, wide),
        )


def _title(operand: _Operand, matrix: int, rows: int, cols: int) -> str:
    which = f" of matrix {matrix}" if "matrix" in operand.entries[0] else ""
    cut = rows < operand.rows or cols < operand.cols
    shown = f" (rows 0-{rows - 1}, columns 0-{cols - 1} shown)" if cut else ""
    return f"{operand.names}{which}, {operand.rows} x {operand.cols}{shown}"


def _spans(count: int, size: int) -> list[str]:
    """Return names of rows or columns that stand for ``size`` of them each."""
    return [f"{i * size}-{(i + 1) * size - 1}" if size > 1 else str(i) for i in range(count)]


def _registers(operand: _Operand, source: str) -> Table:
    """Return what each lane's registers hold, low bits first, as row,col."""
    registers = sorted({register for _, _, register in operand.words})
    shown = registers[:_REGISTERS]
    more = f", r0 to r{shown[-1]} of {len(registers)}" if len(shown) < len(registers) else ""
    lanes = sorted({(warp, lane) for warp, lane, _ in operand.words})
    several = len({warp for warp, _ in lanes}) > 1
    rows: list[tuple[Cell, ...]] = [
        (*((warp,) if several else ()), lane, *(_held(operand.words.get((warp, lane, r), [])) for r in shown))
        for warp, lane in lanes
    ]
    columns = (*(("warp",) if several else ()), "lane", *(f"r{register}" for register in shown))
    return Table(f"registers of {operand.names}, {source}: row,col, low bits first{more}", columns, rows)


def _held(word: list[Entry]) -> str | None:
    """Return the elements of one register: "1,2  1,3", or "1,0-7" for a longer run."""
    if not word:
        return None
    matrix = f"{word[0]['matrix']}: " if "matrix" in word[0] else ""
    rows, cols = ([each[side] for each in word] for side in ("row", "col"))
    if len(word) > 2:
        for first, second, form in ((rows, cols, "{},{}-{}"), (cols, rows, "{1}-{2},{0}")):
            if len(set(first)) == 1 and second == list(range(second[0], second[0] + len(word))):
                return matrix + form.format(first[0], second[0], second[-1])
    return matrix + "  ".join(f"{row},{col}" for row, col in zip(rows, cols, strict=True))
