"""The operands of a matrix instruction as blocks: who holds which element, drawn and as a table.

Works on the lists "A", "B", "C", "D" and "E" of a result: entries with lane, register, slot,
row and col, and matrix or warp where there are several.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ptxlab.isa.threads import thread, warp_of
from ptxlab.render.blocks import EVERYWHERE, FILES, SCREEN, Block, Cell, Grid, Medium, Table, Text

OPERANDS = ("A", "B", "C", "D", "E")
LEFT_OUT = Text(
    "Left out here: --full prints the registers of every lane and whole matrices; --svg FILE and --html FILE "
    "draw them, --format csv lists them.",
    "faint",
    SCREEN,
)
_LETTERS = "abcdefgh"  # slot of a register, from the low bits up
_NAMED = 16  # a side longer than this is drawn register by register, not element by element
_LINES = 64  # rows and columns that are drawn at most
_CORE_ROWS, _CORE_COLUMNS = 32, 16  # a matrix with more is not drawn whole on a terminal ...
_CORE = 8  # ... but as many columns of it: mma and wgmma repeat themselves there

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
            self.words[warp_of(entry), entry["lane"], entry["register"]].append(entry)

    @cached_property
    def run(self) -> tuple[int, int]:
        """Rows and columns that one cell stands for: a whole register where a side is long."""
        word = next(iter(self.words.values()))
        for side, extent in (("row", self.rows), ("col", self.cols)):
            places = [each[side] for each in word]
            if extent > _NAMED and places == list(range(places[0], places[0] + len(word))):
                return (len(word), 1) if side == "row" else (1, len(word))
        return 1, 1

    @cached_property
    def cells(self) -> tuple[int, int]:
        """Rows and columns of cells."""
        high, wide = self.run
        return self.rows // high, self.cols // wide

    @cached_property
    def lettered(self) -> bool:
        """Whether cells name slots."""
        return self.run == (1, 1) and any(entry["slot"] for entry in self.entries)

    @cached_property
    def warps(self) -> list[int]:
        """The warps that hold it."""
        return sorted({warp for warp, _, _ in self.words})

    @cached_property
    def registers(self) -> list[int]:
        """The registers that hold it."""
        return sorted({register for _, _, register in self.words})

    @cached_property
    def core(self) -> tuple[int, int]:
        """Rows and columns of cells that a terminal shows: those of the first warp, of few columns."""
        rows, cols = self.cells
        if len(self.warps) > 1:
            own = (entry["row"] for entry in self.entries if warp_of(entry) == self.warps[0])
            rows = 1 + max(own) // self.run[0]
        return min(rows, _CORE_ROWS), cols if cols <= _CORE_COLUMNS else _CORE

    def repeated_after(self) -> int:
        """Return after how many registers they hold the same again; all of them where they do not."""
        registers = self.registers
        for period in range(1, len(registers)):
            again = list(zip(registers[period:], registers, strict=False))
            if all(
                _places(self.words[warp, lane, later]) == _places(self.words[warp, lane, first])
                for warp, lane in {(warp, lane) for warp, lane, _ in self.words}
                for later, first in again
            ):
                return period
        return len(registers)


def _places(word: list[Entry]) -> list[tuple[int, int, int]]:
    return [(entry.get("matrix", 0), entry["row"], entry["col"]) for entry in word]


def operand_blocks(
    result: dict[str, Any],
    source: str,
    operands: Iterable[str] = OPERANDS,
    *,
    full: bool = False,
    lane: int | None = None,
) -> list[Block]:
    """Return the closed forms of all operands, their pictures and register tables.

    A terminal gets no register tables, and of large matrices a part, unless they are asked for.

    Args:
        result: the result of a document; without operands there are no blocks.
        source: "measured" or "predicted".
        operands: the names under which the result may hold them.
        full: show everything everywhere.
        lane: the one lane that the result is about; its registers are shown, and no large matrix.

    """
    shown = [each for each in _operands(result, operands) if each.entries]
    if not shown:
        return []
    formulas = result.get("formulas", {})
    blocks: list[Block] = [formula_table(formulas)] if formulas else []
    drawn = [each for each in shown if lane is None or each.core == each.cells]
    blocks += [grid for operand in drawn for grid in _grids(operand, full=full)]
    blocks += [caption for operand in drawn for caption in _repeats(operand)]
    if drawn:
        blocks.append(_legend(drawn))
    media = EVERYWHERE if full or lane is not None else FILES
    return blocks + [_registers(each, source, media) for each in shown]


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


def _grids(operand: _Operand, *, full: bool) -> Iterator[Grid]:
    """Draw each matrix of an operand; one that is large is drawn whole in files alone."""
    rows, cols = (min(_LINES, size) for size in operand.cells)
    part = None if full or operand.core == operand.cells else operand.core
    for matrix in sorted({entry.get("matrix", 0) for entry in operand.entries}):
        yield _grid(operand, matrix, rows, cols, FILES if part else EVERYWHERE)
        if part:
            yield _grid(operand, matrix, *part, SCREEN)


def _grid(operand: _Operand, matrix: int, rows: int, cols: int, media: tuple[Medium, ...]) -> Grid:
    """Draw rows and columns of cells: each is an element, or a register full of them."""
    high, wide = operand.run
    cells = [[""] * cols for _ in range(rows)]
    colours: list[list[int | None]] = [[None] * cols for _ in range(rows)]
    keys: list[list[str | None]] = [[None] * cols for _ in range(rows)]
    warps: list[set[int]] = [set() for _ in range(rows)]
    own = [entry for entry in operand.entries if entry.get("matrix", 0) == matrix]
    for entry in sorted(own, key=lambda each: each["register"], reverse=True):  # of copies the first remains
        row, col = entry["row"] // high, entry["col"] // wide
        if row < rows and col < cols:
            slot = _LETTERS[entry["slot"]] if operand.lettered else ""
            cells[row][col] = f"{entry['lane']} r{entry['register']}{slot}"
            colours[row][col] = entry["lane"]
            keys[row][col] = thread(entry)
            warps[row].add(warp_of(entry))
    return Grid(
        _title(operand, matrix, rows * high, cols * wide),
        cells,
        colours,
        [f"{_warp(operand, own)}{name}" for name, own in zip(_spans(rows, high), warps, strict=True)],
        _spans(cols, wide),
        media,
        keys=keys,
    )


def _warp(operand: _Operand, warps: set[int]) -> str:
    """Return what the name of a row begins with: its warps, where there are several."""
    return "".join(f"w{warp} " for warp in sorted(warps)) if len(operand.warps) > 1 else ""


def _title(operand: _Operand, matrix: int, rows: int, cols: int) -> str:
    which = f" of matrix {matrix}" if "matrix" in operand.entries[0] else ""
    cut = rows < operand.rows or cols < operand.cols
    shown = f" (rows 0-{rows - 1}, columns 0-{cols - 1} shown)" if cut else ""
    return f"{operand.names}{which}, {operand.rows} x {operand.cols}{shown}"


def _spans(count: int, size: int) -> list[str]:
    """Return names of rows or columns that stand for ``size`` of them each."""
    return [f"{i * size}-{(i + 1) * size - 1}" if size > 1 else str(i) for i in range(count)]


def _legend(drawn: list[_Operand]) -> Text:
    """Say what a cell and the name of a row tell."""
    cell = "A cell names the lane that holds the element"
    if any(each.lettered for each in drawn):
        cell += ", its register, and the slot in it: a is the lowest bits."
    else:
        cell += " and its register."
    return Text(cell + (" w0 and so on are warps." if any(len(each.warps) > 1 for each in drawn) else ""))


def _repeats(operand: _Operand) -> list[Text]:
    """Say which registers hold again what others hold."""
    registers, period = operand.registers, operand.repeated_after()
    if period == len(registers):
        return []
    later, first = (_range(each) for each in (registers[period:], registers[:period]))
    verb = "repeats" if len(registers) - period == 1 else "repeat"
    return [Text(f"{operand.names}: {later} {verb} {first}; the picture shows {first}.")]


def _range(registers: list[int]) -> str:
    return f"r{registers[0]}" + (f"-r{registers[-1]}" if len(registers) > 1 else "")


def _registers(operand: _Operand, source: str, media: tuple[Medium, ...]) -> Table:
    """Return what each lane's registers hold, low bits first, as row,col."""
    registers = operand.registers
    lanes = sorted({(warp, lane) for warp, lane, _ in operand.words})
    several = len(operand.warps) > 1
    rows: list[tuple[Cell, ...]] = [
        (
            *((warp,) if several else ()),
            lane,
            *(_held(operand.words.get((warp, lane, r), [])) for r in registers),
        )
        for warp, lane in lanes
    ]
    columns = (*(("warp",) if several else ()), "lane", *(f"r{register}" for register in registers))
    whose = "" if operand.names == "registers" else f" of {operand.names}"
    return Table(f"registers{whose}, {source}: row,col, low bits first", columns, rows, media)


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
