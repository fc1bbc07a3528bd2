"""The fragments of mma in closed form, both directions, as expressions that a test evaluates.

Names: lane, register, slot on one side; row, col, and matrix of Volta's form, on the other; // is floor
division. They say what ptxlab.isa.mma and ptxlab.isa.mma_sparse compute.
"""

from __future__ import annotations

from ptxlab.isa.mma import MmaForm
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
        found["A"]["logical_col"] = _logical(form)
        found["E"] = _metadata(form)
    return found


def _times(factor: int, text: str) -> str:
    return text if factor == 1 else f"{factor} * {text}"


def _a(form: MmaForm | SparseForm) -> Formulas:
    width = max(1, 32 // BITS[form.a])
    block = 4 * width
    two = form.m == 16
    return {
        "row": f"lane // 4{' + 8 * (register % 2)' if two else ''}",
        "col": f"{block} * {'(register // 2)' if two else 'register'} + "
        f"{_times(width, '(lane % 4)')}{' + slot' if width > 1 else ''}",
        "lane": f"4 * {'(row % 8)' if two else 'row'} + col % {block}{_over(width)}",
        "register": f"{'row // 8 + 2 * ' if two else ''}{f'(col // {block})' if two else f'col // {block}'}",
        "slot": _slot("col", width),
    }


def _b(form: MmaForm | SparseForm) -> Formulas:
    width = max(1, 32 // BITS[form.b])
    block = 4 * width
    return {
        "row": f"{block} * register + {_times(width, '(lane % 4)')}{' + slot' if width > 1 else ''}",
        "col": "lane // 4",
        "lane": f"4 * col + row % {block}{_over(width)}",
        "register": f"row // {block}",
        "slot": _slot("row", width),
    }


def _accumulator(form: MmaForm | SparseForm) -> Formulas:
    two = form.m == 16
    lane = f"4 * {'(row % 8)' if two else 'row'} + col // 2"
    if form.acc == "f16":
        return {
            "row": "lane // 4 + 8 * register", "col": "2 * (lane % 4) + slot",
            "lane": lane, "register": "row // 8", "slot": "col % 2",
        }  # fmt: skip
    return {
        "row": f"lane // 4{' + 8 * (register // 2)' if two else ''}",
        "col": "2 * (lane % 4) + register % 2",
        "lane": lane,
        "register": f"{'2 * (row // 8) + ' if two else ''}col % 2",
        "slot": "0",
    }


def _over(width: int) -> str:
    return f" // {width}" if width > 1 else ""


def _slot(along: str, width: int) -> str:
    return f"{along} % {width}" if width > 1 else "0"


def _logical(form: SparseForm) -> str:
    """Return the column of the full A; index is the two bits of metadata that stand for the element."""
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
