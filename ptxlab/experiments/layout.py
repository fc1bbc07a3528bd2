"""The records of ``ptxlab layout``: who holds what, asked of any probe that reports register maps.

The maps are the model's: what the probe reports of its own prediction, so nothing here knows any instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptxlab.errors import MissingError, UsageError, unknown_name
from ptxlab.experiments.answers import check_result, claims_of, is_map, report_of
from ptxlab.experiments.base import Case, Value, flag
from ptxlab.experiments.probe import Probe, usual_arch
from ptxlab.experiments.record import Record
from ptxlab.isa.threads import thread
from ptxlab.layout.banks import BANKS, WORD_BYTES
from ptxlab.toolchain.arch import ARCHS, base_number

Entry = dict[str, int]
Picture = dict[str, Any]
_OTHER_LISTS = ("forms", "moves", "operands", "places", "holds")
"""Results of these commands that are no register maps."""

_NEAR = 16  # rows and columns of a picture of where an element is


@dataclass(frozen=True)
class Asked:
    """A point of a probe, and what it reports of it.

    Attributes:
        probe: the probe.
        case: the point.
        report: the model's report.
        maps: operand -> its register map, a flat list of entries.

    """

    probe: Probe
    case: Case
    report: dict[str, Any]
    maps: dict[str, list[Entry]]

    @property
    def title(self) -> str:
        """The instruction's text where the probe tells it, else the probe's name."""
        return str(self.report.get("ptx", self.probe.name))

    @property
    def in_memory(self) -> dict[str, Any]:
        """Operands that are in shared memory: the byte of each element, and where bytes count from."""
        found: dict[str, Any] = self.report.get("shared", {})
        return found

    def named(self, typed: str, *, in_memory: bool = False) -> str:
        """Return the name of an operand, which may be typed in small letters.

        Raises:
            UsageError: there is no such operand; the message names those that there are.

        """
        names: list[str] = [*self.maps, *(self.in_memory if in_memory else ())]
        typed = self.report.get("aliases", {}).get(typed.upper(), typed)
        for name in names:
            if typed.lower() == name.lower():
                return name
        error = unknown_name(f"operand of {self.title}", typed, names)
        hints = {str(name).lower(): str(hint) for name, hint in self.probe.hints.items()}
        error.hint = hints.get(typed.lower(), error.hint)
        raise error

    def shape(self, operand: str) -> tuple[int, int]:
        """Return rows and columns of one matrix of an operand."""
        told = self.report.get("shapes", {}).get(operand)
        if told:
            return told["rows"], told["cols"]
        entries = self.maps[operand]
        return _extent(entries, "row"), _extent(entries, "col")

    def record(self, **params: Value) -> Record:
        """Return a record of this point with more parameters, its result begun."""
        record = Record(backend="model", arch=self.case.arch, params=self.case.params | params)
        record.result["ptx"] = self.title
        return record


def ask(probe: Probe, own: Mapping[str, Value], arch: str | None, *, in_memory: bool = False) -> Asked:
    """Return what the probe's model reports of one point.

    Args:
        probe: the probe.
        own: a value for each of its options.
        arch: the architecture, or None for the usual one.
        in_memory: operands in shared memory will do.

    Raises:
        UsageError: the point is illegal, or the probe reports no register map.

    """
    case = probe.case(arch or usual_arch(probe), **own)
    _refuse_others(probe, own)
    report = report_of(probe, case, probe.expected(case), measured=False)
    check_result(probe, report)
    maps = {name: value for name, value in report.items() if is_map(value) and name not in _OTHER_LISTS}
    if not maps and not (in_memory and report.get("shared")):
        raise UsageError(f"{probe.name} reports no register map", _instead(probe, report))
    return Asked(probe, case, report, maps)


def _instead(probe: Probe, report: Mapping[str, Any]) -> str:
    """Return what tells more of a probe that reports no register map."""
    names = report.get("shared", ())
    told = [f"ptxlab layout where {probe.name} {name} ROW COL tells bytes" for name in names]
    told += [
        f"ptxlab probe {probe.name} shows its report",
        "ptxlab layout where --help names probes with maps",
    ]
    return "; ".join(told)


def _refuse_others(probe: Probe, own: Mapping[str, Value]) -> None:
    """Refuse options that change no register map: the answer would be as if they had not been given."""
    options = probe.options()
    given = [name for name, value in own.items() if not options[name].maps and value != options[name].default]
    if given:
        names = ", ".join(f"--{flag(name)}" for name in given)
        raise UsageError(
            f"{names}: this changes nothing of who holds what, which is all that layout tells",
            f"ptxlab probe {probe.name} takes it",
        )


def _extent(entries: list[Entry], name: str) -> int:
    return 1 + max(entry[name] for entry in entries)


def where_record(asked: Asked, operand: str, row: int, col: int) -> Record:
    """Return every place that holds an element.

    Raises:
        UsageError: there is no such operand, or it has no such row or column.

    """
    operand = asked.named(operand, in_memory=True)
    for name, value, count in zip(("row", "column"), (row, col), asked.shape(operand), strict=True):
        _check_range(f"{name} {value}", value, count, f"{operand} of {asked.title}")
    record = asked.record(operand=operand, row=row, col=col)
    element = _element(operand, {"row": row, "col": col})
    if operand in asked.maps:
        found = [entry for entry in asked.maps[operand] if (entry["row"], entry["col"]) == (row, col)]
        told = f"in {'; '.join(map(_place, found)) or 'no register'}.{_remark(asked, operand, found)}"
    else:
        byte = asked.in_memory[operand]["bytes"][row][col]
        found = [{"row": row, "col": col, "byte": byte}]
        told = f"shared byte {byte}, {asked.in_memory[operand]['where']}."
    conclusion = f"{element[0].upper()}{element[1:]} is {told}"
    record.result |= {
        "operand": operand,
        "places": found,
        "pictures": _pictures(asked, operand, (row, col)),
        "conclusion": conclusion,
    }
    return record


def _remark(asked: Asked, operand: str, entries: list[Entry]) -> str:
    """Return what the probe remarks on an element."""
    remark = asked.probe.remark(asked.case, operand, entries[0]) if entries else ""
    return f" {remark}" if remark else ""


def what_record(asked: Asked, operand: str, lane: int, register: int, slot: int | None) -> Record:
    """Return the elements that a register of a lane holds, or the one in a slot of it.

    Raises:
        UsageError: there is no such operand, lane, register or slot.

    """
    operand = asked.named(operand)
    entries = asked.maps[operand]
    given = {"lane": lane, "register": register} | ({} if slot is None else {"slot": slot})
    for name, value in given.items():
        count = 32 if name == "lane" else _extent(entries, name)
        _check_range(f"{name} {value}", value, count, f"{operand} of {asked.title}")
    found = [entry for entry in entries if all(entry[name] == value for name, value in given.items())]
    record = asked.record(operand=operand, lane=lane, register=register, slot=slot)
    elements = "; ".join(
        _element(operand, entry) + (f" in slot {entry['slot']}" if slot is None else "") for entry in found
    )
    record.result |= {
        "operand": operand,
        "holds": found,
        "pictures": _held_pictures(asked, operand, found),
        "conclusion": f"Register {register} of lane {lane} holds {elements or 'no element'}.",
    }
    return record


def _pictures(asked: Asked, operand: str, at: tuple[int, int]) -> list[Picture]:
    """Draw the neighbourhood of an element, of each matrix: who holds what there."""
    if operand not in asked.maps:
        return [_memory_picture(asked, operand, at)]
    entries = asked.maps[operand]
    corner = (at[0] // _NEAR * _NEAR, at[1] // _NEAR * _NEAR)
    matrices = sorted({entry.get("matrix", 0) for entry in entries})
    return [
        _register_picture(asked, operand, corner, matrix) | {"marked": _inside(at)} for matrix in matrices
    ]


def _held_pictures(asked: Asked, operand: str, held: list[Entry]) -> list[Picture]:
    """Draw the neighbourhood of the first element that a register holds; what else it holds is coloured."""
    if not held:
        return []
    first = held[0]
    corner = (first["row"] // _NEAR * _NEAR, first["col"] // _NEAR * _NEAR)
    drawn = _register_picture(asked, operand, corner, first.get("matrix", 0))
    own = {(entry["row"] - corner[0], entry["col"] - corner[1]) for entry in held}
    colours = [
        [colour if (row, col) in own else None for col, colour in enumerate(line)]
        for row, line in enumerate(drawn["colours"])
    ]
    return [drawn | {"colours": colours}]


def _inside(at: tuple[int, int]) -> list[int]:
    return [place % _NEAR for place in at]


def _register_picture(asked: Asked, operand: str, corner: tuple[int, int], matrix: int) -> Picture:
    """Draw a part of one matrix of an operand: lane, register and slot of each element."""
    rows, cols = (
        range(at, min(size, at + _NEAR)) for at, size in zip(corner, asked.shape(operand), strict=True)
    )
    cells = [[""] * len(cols) for _ in rows]
    colours: list[list[int | None]] = [[None] * len(cols) for _ in rows]
    keys: list[list[str | None]] = [[None] * len(cols) for _ in rows]
    own = [entry for entry in asked.maps[operand] if entry.get("matrix", 0) == matrix]
    for entry in reversed(own):  # of copies the first remains
        row, col = entry["row"] - corner[0], entry["col"] - corner[1]
        if 0 <= row < len(rows) and 0 <= col < len(cols):
            warp = f"w{entry['warp']} " if "warp" in entry else ""
            cells[row][col] = f"{warp}{entry['lane']} r{entry['register']}.{entry['slot']}"
            colours[row][col] = entry["lane"]
            keys[row][col] = thread(entry)
    which = f" of matrix {matrix}" if "matrix" in own[0] else ""
    return {
        "title": f"{operand}{which}: lane, register and slot",
        "cells": cells,
        "colours": colours,
        "keys": keys,
        "row_names": [str(row) for row in rows],
        "column_names": [str(col) for col in cols],
    }


def _memory_picture(asked: Asked, operand: str, at: tuple[int, int]) -> Picture:
    """Draw the bytes at which the elements around one lie in shared memory, coloured by bank."""
    top, left = (place // _NEAR * _NEAR for place in at)
    near = [line[left : left + _NEAR] for line in asked.in_memory[operand]["bytes"][top : top + _NEAR]]
    return {
        "title": f"{operand}: byte of shared memory, coloured by bank",
        "cells": [[str(byte) for byte in line] for line in near],
        "colours": [[int(byte) // WORD_BYTES % BANKS for byte in line] for line in near],
        "row_names": [str(top + row) for row in range(len(near))],
        "column_names": [str(left + col) for col in range(len(near[0]))],
        "marked": _inside(at),
    }


def _check_range(what: str, value: int, count: int, whose: str) -> None:
    if not 0 <= value < count:
        raise UsageError(f"{what} is outside {whose}; legal: 0 to {count - 1}")


def _place(entry: Entry) -> str:
    slot = f"lane {entry['lane']}, register {entry['register']}, slot {entry['slot']}"
    return ", ".join([*_whose(entry), slot])


def _element(operand: str, entry: Entry) -> str:
    """Return "A[3, 5]"; of what has no other name than registers "row 3, col 5 of matrix 1"."""
    row, col = entry["row"], entry["col"]
    element = f"row {row}, col {col}" if operand == "registers" else f"{operand}[{row}, {col}]"
    return " of ".join([element, *_whose(entry)])


def _whose(entry: Entry) -> list[str]:
    """Return which matrix an entry is of, and which warp holds it, where there are several."""
    return [f"{name} {entry[name]}" for name in ("matrix", "warpgroup", "warp") if name in entry]


def table_record(asked: Asked, operand: str | None, lane: int | None = None) -> Record:
    """Return the flat lists of all operands, or of one; those of all lanes, or of one."""
    names = [asked.named(operand)] if operand else list(asked.maps)
    record = asked.record(operand=operand, lane=lane)
    record.result |= {
        name: [entry for entry in asked.maps[name] if lane in (None, entry["lane"])] for name in names
    }
    shapes = {name: asked.shape(name) for name in names}
    record.result["shapes"] = {name: {"rows": rows, "cols": cols} for name, (rows, cols) in shapes.items()}
    return record


def detail_record(asked: Asked) -> Record:
    """Return registers, formulas, architectures, SASS and FLOP of one form."""
    record = asked.record()
    legal = [arch for arch in ARCHS if _is_legal(asked, arch)]
    record.result |= {
        "operands": [_operand(asked, name) for name in asked.maps],
        "pictures": [_register_picture(asked, name, (0, 0), 0) for name in asked.maps],
        "formulas": _formulas(asked),
        "minimum": min(legal, key=_plainest),
        "legal_on": legal,
        "later": legal == list(ARCHS[ARCHS.index(legal[0]) :]),
        "flop": _flop(asked),
        "emulated": str(asked.report.get("emulated", "")),
    }
    _add_sass(asked, record)
    return record


def _plainest(arch: str) -> tuple[int, str]:
    """Order architectures by number; of one number plain code comes first, then that of one chip alone."""
    return base_number(arch), arch


def _is_legal(asked: Asked, arch: str) -> bool:
    try:
        asked.probe.case(arch, **asked.case.params)
    except UsageError:
        return False
    return True


def _operand(asked: Asked, name: str) -> dict[str, Any]:
    entries = asked.maps[name]
    rows, cols = asked.shape(name)
    return {
        "operand": name,
        "rows": rows,
        "cols": cols,
        "matrices": len({entry.get("matrix", 0) for entry in entries}),
        "warps": len({(entry.get("warpgroup", 0), entry.get("warp", 0)) for entry in entries}),
        "registers": _extent(entries, "register"),
        "elements_per_register": _extent(entries, "slot"),
    }


def _formulas(asked: Asked) -> dict[str, dict[str, str]]:
    """Return the closed formulas of each operand; a probe with one operand gives them without its name."""
    told = asked.report.get("formulas", {})
    nested = any(isinstance(each, dict) for each in told.values())
    if nested or not told:
        return dict(told)
    return dict.fromkeys(asked.maps, told)


def _flop(asked: Asked) -> int | None:
    """Return the operations of one instruction: a multiplication and an addition for each m, n and k.

    B's rows are k, which is also right for a sparse A. None where this is no multiplication.
    """
    shapes = asked.report.get("shapes", {})
    if "flop" in asked.report:
        return int(asked.report["flop"])
    if not {"A", "B"} <= set(shapes):
        return None
    matrices = {entry.get("matrix", 0) for entries in asked.maps.values() for entry in entries}
    m, n, k = shapes["A"]["rows"], shapes["B"]["cols"], shapes["B"]["rows"]
    return int(2 * m * n * k * len(matrices))


def _add_sass(asked: Asked, record: Record) -> None:
    """Compile the point's kernel, and add what of it the probe claims; without a compiler, why not."""
    from ptxlab.experiments.runner import check_sass, kernel_report
    from ptxlab.experiments.unit import build_unit, kernel_name
    from ptxlab.sass.instructions import has_prefix

    probe, case = asked.probe, asked.case
    try:
        build = build_unit(probe, [case], case.arch)
        kernel = kernel_report(build, kernel_name(probe, probe.macros(case)))
    except MissingError as error:
        record.skip("sass", error.message)
        return
    claims = claims_of(probe, case)
    check_sass(kernel, claims, record)
    record.result["sass"] = {
        opcode: count
        for opcode, count in kernel["counts"].items()
        if any(has_prefix(opcode, claim) for claim in claims)
    }
