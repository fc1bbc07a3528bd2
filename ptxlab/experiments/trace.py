"""The record of ``ptxlab layout trace``: the way of one element, step by step, and pictures of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np

from ptxlab.errors import UsageError, malformed, unknown_name
from ptxlab.experiments.base import sizes
from ptxlab.experiments.record import Record
from ptxlab.isa.mma import MmaForm, dense_forms, find_form
from ptxlab.isa.numbers import is_integer
from ptxlab.isa.registers import Ints
from ptxlab.isa.threads import thread
from ptxlab.isa.types import BITS
from ptxlab.isa.wgmma import ACCUMULATORS, WgmmaForm, check_form, parse_form
from ptxlab.isa.wgmma_descriptor import SPANS, UNIT
from ptxlab.layout.tile import spans
from ptxlab.layout.trace import MisfitError, Setup, contributions, trace
from ptxlab.toolchain.arch import DEFAULT_ARCH

TYPES = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8")
SWIZZLES = tuple(SPANS)
OPERANDS = ("A", "B")
MAJORS = ("K", "MN")
COPIES = ("tma", "cp.async")

_ROW_BYTES = 128  # of a tile's row where none is given: the span of the longest swizzle
_HIGH = 128  # rows of m or n of such a tile
_TILES = 4  # of such a matrix, each way
_LINE = 128  # bytes of shared memory that all banks hold once
_LINES = 8
_SHOWN = 8  # tiles of the matrix that are drawn at most, each way
_D_ROWS, _D_COLS = 16, 8  # of D that are drawn
_RANGES = 8  # of numbers that a sentence lists
_HUE = 4  # colours of neighbouring numbers differ in lightness, every fourth in hue

_INSTRUCTION = r"((wg)?mma(\.(m\d{0,4}(n\d{0,4}(k\d{0,4})?)?)?)?)?"
"""Every beginning of an instruction's name."""

Values = dict[str, int]
Owner = tuple[int, str | None]
"""The colour of what lies somewhere, and the name of who points at it, where a page shows it elsewhere."""
Picture = dict[str, Any]


def trace_record(
    at: str | None,
    *,
    tile: str | None,
    matrix: str | None,
    dtype: str,
    swizzle: str,
    instr: str | None,
    operand: str,
    major: str,
    stages: int,
    copy: str,
) -> Record:
    """Return the way of the element at "ROW,COL" of the matrix; what is None is chosen.

    Raises:
        UsageError: an option is illegal, or does not fit the others.

    """
    legal = {"type": (dtype, TYPES), "swizzle": (swizzle, SWIZZLES), "operand": (operand, OPERANDS)}
    for what, (name, names) in (legal | {"major": (major, MAJORS), "copy": (copy, COPIES)}).items():
        if name not in names:
            raise unknown_name(what, name, names)
    form = _form(instr or f"mma.m16n8k{256 // BITS[dtype]}", dtype, operand, major)
    shape = sizes(tile, parts=2, what="tile") if tile else _usual_tile(form, dtype, operand, major)
    whole = sizes(matrix, parts=2, what="matrix") if matrix else (_TILES * shape[0], _TILES * shape[1])
    with _located({"tile": tile, "matrix": matrix, "element": at}):
        setup = Setup(
            (whole[0], whole[1]), (shape[0], shape[1]), dtype, swizzle, form, operand, major, stages, copy
        )
        row, col = _place(at) if at else _usual_place(setup)
        return _record(setup, row, col)


@contextmanager
def _located(texts: Mapping[str, str | None]) -> Iterator[None]:
    """Tell of what does not fit the others with the text that was typed, and the column in it."""
    try:
        yield
    except MisfitError as error:
        text = texts.get(error.text)
        if not text:
            raise
        column = 1 + error.part * (1 + len(re.split("[xX,]", text)[0]))
        raise UsageError(f"{error.text} '{text}', column {column}: {error.message}") from error


def _form(instr: str, dtype: str, operand: str, major: str) -> MmaForm | WgmmaForm:
    """Return the instruction of this name and type."""
    found = re.fullmatch(r"(mma|wgmma)\.(m\d{1,4}n\d{1,4}k\d{1,4})", instr)
    if not found:
        wanted = "neither mma.mMnNkK nor wgmma.m64nNkK; legal: such as mma.m16n8k16, wgmma.m64n256k16"
        raise malformed("instruction", instr, _INSTRUCTION, wanted)
    find = _mma if found[1] == "mma" else _wgmma
    try:
        return find(found[2], dtype, operand, major)
    except UsageError as error:
        where = f"instruction '{instr}', column {1 + found.start(2)}"
        raise UsageError(f"{where}: {error.message}", error.hint) from error


def _mma(shape: str, dtype: str, operand: str, major: str) -> MmaForm:
    del operand, major  # ldmatrix brings either into the one order that mma has
    acc = "s32" if is_integer(dtype) else "f32"
    form: MmaForm = find_form(
        dense_forms(), DEFAULT_ARCH, shape=shape, a=dtype, b=dtype, acc=acc, layout="row.col"
    )
    return form


def _wgmma(shape: str, dtype: str, operand: str, major: str) -> WgmmaForm:
    a_major, b_major = (major, "K") if operand == "A" else ("K", major)
    wide = WgmmaForm(8, dtype, dtype, ACCUMULATORS[dtype][0], a_major=a_major, b_major=b_major)
    parsed = parse_form(shape, wide)
    check_form(parsed, DEFAULT_ARCH)
    return parsed


def _usual_tile(form: MmaForm | WgmmaForm, dtype: str, operand: str, major: str) -> tuple[int, int]:
    """Return a tile of whole operands, whose rows are as long as the longest swizzle where they are k."""
    high = form.n if isinstance(form, WgmmaForm) and operand == "B" else _HIGH
    k = 8 * _ROW_BYTES // BITS[dtype]
    return (high, k) if major == "K" else (k, high)


def _place(at: str) -> tuple[int, int]:
    """Return row and column of "37,21"."""
    found = re.fullmatch(r"(\d{1,9}),(\d{1,9})", at)
    if not found:
        sound = r"(\d{1,9}(,\d{0,9})?)?"
        raise malformed("element", at, sound, "not of the form ROW,COL; legal: such as 37,21")
    return int(found[1]), int(found[2])


def _usual_place(setup: Setup) -> tuple[int, int]:
    """Return an element that is first nowhere: neither tile, stage, matrix, register nor slot are 0."""
    row, col = ((1 if whole > part else 0) * part + at % part
                for whole, part, at in zip(setup.matrix, setup.tile, (45, 29), strict=True))  # fmt: skip
    return min(row, setup.matrix[0] - 1), min(col, setup.matrix[1] - 1)


def _record(setup: Setup, row: int, col: int) -> Record:
    steps = trace(setup, row, col)
    at = {step.name: step.value for step in steps}
    params = {name: value for name, value in asdict(setup).items() if name != "form"}
    record = Record(
        backend="model", arch=DEFAULT_ARCH, params=params | {"instr": setup.name, "at": [row, col]}
    )
    record.result |= {
        "element": [row, col],
        "ptx": setup.form.ptx,
        "trace": [vars(step) for step in steps],
        "contributes": _contributes(setup, at),
        "pictures": _pictures(setup, at),
        "legend": _legend(setup),
        "conclusion": _conclusion(setup, at),
    }
    _check(record, setup, at)
    return record


def _check(record: Record, setup: Setup, at: Values) -> None:
    """Add that neighbouring instructions mean the same place."""
    if isinstance(setup.form, MmaForm):
        left = [at[name] for name in ("lane", "register", "slot")]
        wanted = [at[f"{setup.operand}_{name}"] for name in ("lane", "register", "slot")]
        told = "lane {}, register {}, slot {}"
        detail = f"ldmatrix: {told.format(*left)}; mma: {told.format(*wanted)}"
        record.check("ldmatrix leaves it where mma expects it", left == wanted, detail)
    else:
        detail = f"written at byte {at['shared']}, read at byte {at['read']}"
        record.check("the descriptor reads where the copy wrote", at["read"] == at["shared"], detail)
    if setup.is_c_order and setup.size == setup.c_size:
        detail = f"read from byte {at['byte']}, written to byte {at['c_byte']}"
        record.check("it comes back to its own place", at["byte"] == at["c_byte"], detail)


def _conclusion(setup: Setup, at: Values) -> str:
    reader = (
        f"ldmatrix leaves it in lane {at['lane']}, register {at['register']}, slot {at['slot']}, as "
        f"operand {setup.operand}"
        if "lane" in at
        else f"wgmma reads it there through the descriptor that starts at {at['start']}"
    )
    warp = f"warp {at['D_warp']}, " if "D_warp" in at else ""
    return (
        f"Element [{at['row']}, {at['col']}] lies at byte {at['shared']} of shared memory, in bank "
        f"{at['bank']}; {reader}. Times the identity it is in accumulator {at['D_register']} of {warp}lane "
        f"{at['D_lane']}, and goes to byte {at['c_byte']} of C, [{at['c_row']}, {at['c_col']}]."
    )


def _legend(setup: Setup) -> str:
    """Say what cells and colours of the pictures are."""
    reads = "the lane that points at it" if isinstance(setup.form, MmaForm) else "its row"
    writes = "the lane that points at it" if setup.c_size == 2 else "its row"
    held = "In 3 and 4" if isinstance(setup.form, MmaForm) else "In 4"
    return (
        "Framed is the element. In 1 the tiles that are walked along k have the colour of their stage. In 2 "
        "and 5 a cell is 16 bytes, four banks wide, named by the row and column of the tile at which they "
        f"begin; what one instruction reads or stores has the colour of {reads}"
        f"{'' if reads == writes else f', in 5 of {writes}'}. {held} a cell names lane and register; in 4 "
        "the accumulators that the element is added to are coloured."
    )


def _contributes(setup: Setup, at: Values) -> dict[str, Any]:
    """Return the accumulators of one instruction that the element is added to."""
    places = list(contributions(setup, at))
    warps, lanes, registers = (sorted({place[i] for place in places}) for i in range(3))
    whole = f"D[{at['m']}, :]" if setup.operand == "A" else f"D[:, {at['n']}]"
    warp = f", {_named('warp', warps)}" if isinstance(setup.form, WgmmaForm) else ""
    held = f"{_named('register', registers)} of {_named('lane', lanes)}{warp}"
    return {
        "accumulators": [dict(zip(("warp", "lane", "register"), place, strict=True)) for place in places],
        "conclusion": f"One {setup.name} adds it to {whole}: {held}.",
    }


def _named(what: str, numbers: list[int]) -> str:
    """Return "warp 2" or "lanes 20-23"; of many ranges the first and the last."""
    ranges = spans(numbers).split(", ")
    told = ", ".join(ranges if len(ranges) <= _RANGES else [*ranges[:2], "...", ranges[-1]])
    return f"{what}{'s' if len(numbers) > 1 else ''} {told}"


def _pictures(setup: Setup, at: Values) -> list[Picture]:
    """Return where the element is at each step, as matrices of cells; "marked" is its own cell."""
    found = [_matrix_picture(setup, at), _tile_picture(setup, at)]
    if isinstance(setup.form, MmaForm):
        found.append(_operand_picture(setup, setup.form, at))
    return [*found, _d_picture(setup, at), _c_picture(setup, at)]


def _matrix_picture(setup: Setup, at: Values) -> Picture:
    """Draw the tiles of the matrix; those that this block walks along k have the colour of their stage."""
    (rows, cols), (high, wide) = setup.matrix, setup.tile
    own = (at["row"] // high, at["col"] // wide)
    first = [place // _SHOWN * _SHOWN for place in own]
    down = range(first[0], min(-(-rows // high), first[0] + _SHOWN))
    along = range(first[1], min(-(-cols // wide), first[1] + _SHOWN))
    stage = [[(j if setup.k_axis else i) % setup.stages for j in along] for i in down]
    walked = [[(i == own[0]) if setup.k_axis else (j == own[1]) for j in along] for i in down]
    return _picture(
        f"1  global memory, {rows} x {cols} in tiles of {high} x {wide}",
        [[f"stage {number}" for number in line] for line in stage],
        [[_HUE * number if on else None for number, on in zip(*each, strict=True)]
         for each in zip(stage, walked, strict=True)],
        [f"{i * high}-{(i + 1) * high - 1}" for i in down],
        [f"{j * wide}-{(j + 1) * wide - 1}" for j in along],
        (own[0] - first[0], own[1] - first[1]),
    )  # fmt: skip


def _tile_picture(setup: Setup, at: Values) -> Picture:
    """Draw shared memory around the element; what the instruction reads has the colour of its lane or row."""
    per_chunk = UNIT // setup.size
    where = setup.places + at["stage"] * setup.stage_bytes
    across, along = ("r", "c") if setup.k_axis else ("c", "r")
    unit, k = setup.form_sides[setup.side], setup.form.k

    def owner(row: int, chunk: int) -> Owner | None:
        place = {"r": row, "c": chunk * per_chunk}
        if place[across] // unit != at[across] // unit or place[along] // k != at[along] // k:
            return None
        if not isinstance(setup.form, MmaForm):
            return _HUE * (row % 8), None
        high, deep = place[across] % unit, place[along] % k
        matrix = high // 8 + unit // 8 * (deep // (8 if setup.major == "MN" else per_chunk))
        lane = 8 * matrix + row % 8
        return lane, thread({"lane": lane})

    title = f"2  shared memory, swizzle {setup.swizzle}"
    return _memory_picture(title, where, at["shared"], per_chunk, owner)


def _c_picture(setup: Setup, at: Values) -> Picture:
    """Draw C's tile in shared memory; what is stored with the element has the colour of its lane."""
    per_chunk = UNIT // setup.c_size
    pairs = 2 if setup.c_size == 2 else 1
    warp = {"warp": at["D_warp"]} if "D_warp" in at else {}

    def owner(row: int, chunk: int) -> Owner | None:
        col = chunk * per_chunk
        if row // 16 != at["c_r"] // 16 or col // (8 * pairs) != at["c_c"] // (8 * pairs):
            return None
        if setup.c_size == 4:
            return _HUE * (row % 8), None
        lane = row % 8 + 8 * (row % 16 // 8) + 16 * (col // 8 % 2)
        return lane, thread({"lane": lane} | warp)

    title = f"5  C in shared memory, swizzle {setup.swizzle}"
    return _memory_picture(title, setup.c_places, at["c_shared"], per_chunk, owner)


def _memory_picture(
    title: str, where: Ints, byte: int, per_chunk: int, owner: Callable[[int, int], Owner | None]
) -> Picture:
    """Draw eight lines of 128 bytes: what lies at each chunk of 16 bytes, four banks wide.

    What has an owner has its colour, and belongs to it where that has a name.
    """
    first = byte // (_LINES * _LINE) * _LINES * _LINE
    cells = [[""] * (_LINE // UNIT) for _ in range(_LINES)]
    colours: list[list[int | None]] = [[None] * (_LINE // UNIT) for _ in range(_LINES)]
    keys: list[list[str | None]] = [[None] * (_LINE // UNIT) for _ in range(_LINES)]
    for row, chunk in np.argwhere((where >= first) & (where < first + _LINES * _LINE)).tolist():
        line, slot = divmod((int(where[row, chunk]) - first) // UNIT, _LINE // UNIT)
        cells[line][slot] = f"{row},{chunk * per_chunk}"
        found = owner(row, chunk)
        if found:
            number, name = found
            colours[line][slot], keys[line][slot] = number, name or f"{title} {number}"
    line, slot = divmod((byte - first) // UNIT, _LINE // UNIT)
    names = [f"byte {first + line * _LINE}" for line in range(_LINES)]
    banks = [f"b{bank}-{bank + 3}" for bank in range(0, 32, 4)]
    return _picture(title, cells, colours, names, banks, (line, slot)) | {"keys": keys}


def _operand_picture(setup: Setup, form: MmaForm, at: Values) -> Picture:
    """Draw the operand of mma register by register."""
    where = form.maps[setup.operand]
    rows, cols = form.extents[setup.operand]
    width = 1 + int(where.slot.max())
    high, wide = (1, width) if setup.operand == "A" else (width, 1)
    cells = [[""] * (cols // wide) for _ in range(rows // high)]
    colours: list[list[int | None]] = [[None] * (cols // wide) for _ in range(rows // high)]
    keys: list[list[str | None]] = [[None] * (cols // wide) for _ in range(rows // high)]
    for entry in where.entries():
        row, col = entry["row"] // high, entry["col"] // wide
        cells[row][col] = f"{entry['lane']} r{entry['register']}"
        colours[row][col], keys[row][col] = entry["lane"], thread(entry)
    at_row, at_col = (at["m"], at["k"]) if setup.operand == "A" else (at["k"], at["n"])
    return _picture(
        f"3  operand {setup.operand} of {setup.name}",
        cells, colours, _spans(rows, high), _spans(cols, wide), (at_row // high, at_col // wide),
    ) | {"keys": keys}  # fmt: skip


def _d_picture(setup: Setup, at: Values) -> Picture:
    """Draw the part of D around the accumulator; those that the element contributes to are coloured."""
    form = setup.form
    entries = form.c_map.entries() if isinstance(form, MmaForm) else form.d_map.entries()
    top, left = at["d_m"] // _D_ROWS * _D_ROWS, at["d_n"] // _D_COLS * _D_COLS
    rows = min(_D_ROWS, setup.form_sides["m"])
    cells = [[""] * _D_COLS for _ in range(rows)]
    colours: list[list[int | None]] = [[None] * _D_COLS for _ in range(rows)]
    keys: list[list[str | None]] = [[None] * _D_COLS for _ in range(rows)]
    side, own = ("row", at["m"]) if setup.operand == "A" else ("col", at["n"])
    for entry in entries:
        row, col = entry["row"] - top, entry["col"] - left
        if 0 <= row < rows and 0 <= col < _D_COLS:
            cells[row][col] = f"{entry['lane']} r{entry['register']}"
            colours[row][col] = entry["lane"] if entry[side] == own else None
            keys[row][col] = thread(entry)
    warp = f", warp {at['D_warp']}" if "D_warp" in at else ""
    return _picture(
        f"4  D of {setup.name}{warp}",
        cells, colours,
        [str(top + row) for row in range(rows)], [str(left + col) for col in range(_D_COLS)],
        (at["d_m"] - top, at["d_n"] - left),
    ) | {"keys": keys}  # fmt: skip


def _spans(count: int, size: int) -> list[str]:
    return [f"{i}-{i + size - 1}" if size > 1 else str(i) for i in range(0, count, size)]


def _picture(
    title: str,
    cells: list[list[str]],
    colours: list[list[int | None]],
    row_names: list[str],
    column_names: list[str],
    marked: tuple[int, int],
) -> Picture:
    return {
        "title": title,
        "cells": cells,
        "colours": colours,
        "row_names": row_names,
        "column_names": column_names,
        "marked": list(marked),
    }
