"""The fragments of mma in closed form, both directions, as expressions that a test evaluates.

Names: lane, register, slot on one side; row, col, and matrix of Volta's form, on the other; // is floor
division. E[row, chunk] are four bits of metadata. They say what ptxlab.isa.mma and ptxlab.isa.mma_sparse
compute.
"""

from __future__ import annotations

from ptxlab.isa.expressions import over, total
from ptxlab.isa.mma import MmaForm, register_count
from ptxlab.isa.mma_sparse import SLOTS, SparseForm
from ptxlab.isa.types import BITS

Formulas = dict[str, str]


def formulas(form: MmaForm | SparseForm) -> dict[str, Formulas]:
    """Return operand -> name -> expression."""
    if isinstance(form, MmaForm) and form.volta:
        c = _volta_c(form)
        return {"A": _volta_factor(form, "A"), "B": _volta_factor(form, "B"), "C": c, "D": c}
    c = _accumulator(form)
    found = {"A": _a(form), "B": _b(form), "C": c, "D": c}
    if isinstance(form, SparseForm):
        found["A"] |= {"index": _index(form), "logical_col": _logical(form)}
        found["E"] = _metadata(form)
    return found


def _a(form: MmaForm | SparseForm) -> Formulas:
    return factor("row", "col", BITS[form.a], high=form.m // 8, registers=register_count(form.a_map))


def _b(form: MmaForm | SparseForm) -> Formulas:
    return factor("col", "row", BITS[form.b], high=1, registers=register_count(form.b_map))


def factor(across: str, along: str, bits: int, *, high: int, registers: int) -> Formulas:
    """Return the closed forms of A (across is "row", along is "col") or of B (the reverse).

    Args:
        across: the side of m or n, eight to a block.
        along: the side of k, 16 bytes to a block.
        bits: of an element.
        high: blocks across.
        registers: all of them; those of one block along come first.

    """
    width, blocks = max(1, 32 // bits), registers // high
    size = 4 * width
    within = f"{along} % {size}" if blocks > 1 else along
    sides = {
        across: total((1, "lane // 4", 8), (8, f"register % {high}" if blocks > 1 else "register", high)),
        along: total((size, over("register", high), blocks), (width, "lane % 4", 4), (1, "slot", width)),
    }
    return {
        "row": sides["row"],
        "col": sides["col"],
        "lane": total((4, f"{across} % 8" if high > 1 else across, 8), (1, over(within, width), 4)),
        "register": total((1, f"{across} // 8", high), (high, f"{along} // {size}", blocks)),
        "slot": total((1, f"{along} % {width}", width)),
    }


def _accumulator(form: MmaForm | SparseForm) -> Formulas:
    high = form.m // 8
    lane = total((4, "row % 8" if high > 1 else "row", 8), (1, "col // 2", 4))
    if form.acc == "f16":
        return {
            "row": "lane // 4 + 8 * register", "col": "2 * (lane % 4) + slot",
            "lane": lane, "register": "row // 8", "slot": "col % 2",
        }  # fmt: skip
    return {
        "row": total((1, "lane // 4", 8), (8, "register // 2", high)),
        "col": total((2, "lane % 4", 4), (1, "register % 2" if high > 1 else "register", 2)),
        "lane": lane,
        "register": total((2, "row // 8", high), (1, "col % 2", 2)),
        "slot": "0",
    }


def _index(form: SparseForm) -> str:
    """Return the two bits of metadata that say where in its chunk a stored element belongs."""
    kept = form.chunk // 2
    if kept == 1:
        return "E[row, col] & 3"
    element = over(f"col % {kept}", form.unit)
    return f"E[row, col // {kept}] >> 2 * ({element}) & 3"


def _logical(form: SparseForm) -> str:
    """Return the column of the full A."""
    if form.chunk == 2:
        return "2 * col + index // 2"
    return "4 * (col // 2) + index" if form.chunk == 4 else "8 * (col // 4) + 2 * index + col % 2"


def _metadata(form: SparseForm) -> Formulas:
    first = form.selector * form.contributors
    member = f"(lane % 4 - {first})" if first else "(lane % 4)"
    offset = f" + {first}" if first else ""
    if BITS[form.a] >= 16:
        many = form.contributors > 1
        return {
            "row": "lane // 4 + 8 * (slot // 4)",
            "col": f"{f'4 * {member} + ' if many else ''}slot % 4",
            "lane": f"4 * (row % 8){' + col // 4' if many else ''}{offset}",
            "slot": "4 * (row // 8) + col % 4",
        }
    four = form.contributors == 4
    return {
        "row": f"lane // 4 + 8 * {'(lane % 2)' if four else member}",
        "col": f"{f'{SLOTS} * (lane % 4 // 2) + ' if four else ''}slot",
        "lane": f"4 * (row % 8) + row // 8{f' + 2 * (col // {SLOTS})' if four else ''}{offset}",
        "slot": f"col % {SLOTS}",
    }


def _volta_factor(form: MmaForm, operand: str) -> Formulas:
    """Return A's or B's: the lane counts along ``across``, the elements of a register along ``along``."""
    order = form.layout.split(".")[operand == "B"]
    wide = "row" if operand == "A" else "col"  # the side of 8, four by each half of the warp
    narrow = "col" if operand == "A" else "row"
    lane = f"{{}} + 4 * matrix + 16 * ({wide} // 4)"
    if (operand == "A") == (order == "row"):
        own = {wide: "lane % 4 + 4 * (lane // 16)", narrow: "2 * register + slot"}
        back = {
            "lane": lane.format(f"{wide} % 4"), "register": f"{narrow} // 2", "slot": f"{narrow} % 2",
        }  # fmt: skip
    else:
        own = {wide: "2 * register + slot + 4 * (lane // 16)", narrow: "lane % 4"}
        back = {"lane": lane.format(narrow), "register": f"{wide} % 4 // 2", "slot": f"{wide} % 2"}
    return {"matrix": "lane % 16 // 4", "row": own["row"], "col": own["col"], **back}


def _volta_c(form: MmaForm) -> Formulas:
    if form.acc == "f16":
        return {
            "matrix": "lane % 16 // 4", "row": "lane % 4 + 4 * (lane // 16)", "col": "2 * register + slot",
            "lane": "row % 4 + 4 * matrix + 16 * (row // 4)", "register": "col // 2", "slot": "col % 2",
        }  # fmt: skip
    return {
        "matrix": "lane % 16 // 4",
        "row": "lane % 2 + 2 * (register // 2 % 2) + 4 * (lane // 16)",
        "col": "4 * (register // 4) + 2 * (lane // 2 % 2) + register % 2",
        "lane": "row % 2 + 2 * (col // 2 % 2) + 4 * matrix + 16 * (row // 4)",
        "register": "4 * (col // 4) + 2 * (row // 2 % 2) + col % 2",
        "slot": "0",
    }
