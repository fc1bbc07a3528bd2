"""What a probe hands back, held against what commands, views and recordings rely on.

A probe may be a user's own and say anything: what cannot be shown ends here, as that file's fault, and in
the words in which ``ptxlab probe new`` explains what may be said.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ptxlab.device.job import MapArgument
from ptxlab.errors import ToolError
from ptxlab.experiments.base import Case, Experiment, fault
from ptxlab.experiments.probe import Arrays, Geometry, Probe
from ptxlab.experiments.record import Record

PLACE = ("lane", "register", "slot", "row", "col")
"""What each entry of a register map says."""

OPERANDS = ("A", "B", "C", "D", "E")
"""Names under which a report may hold the register maps of a matrix instruction's operands."""

_REGISTERS = 512  # a thread has 255; where the operand is tensor memory, register is its column
_MOST = {"lane": 32, "register": _REGISTERS, "slot": 32, "row": 2**20, "col": 2**20, "matrix": 2**20,
         "warp": 32, "warpgroup": 8}  # fmt: skip
_PLAIN = {str, float, bool, type(None)}
_MOST_DRAWN = 1024  # rows or columns of a matrix
_RESERVED = ("probes", "files")  # results of ``probe list`` and ``probe new``, which are shown otherwise
_WORDS: dict[str, type] = {"notes": list, "titles": dict, "shown": list, "minor": list}
_COMPARISONS = ("prediction", "recording")  # checks that prove a variant right


def claims_of(experiment: Experiment, case: Case) -> dict[str, int]:
    """Return what an experiment claims about the SASS of a case.

    Raises:
        ToolError: it is no dict of opcodes and counts.

    """
    told: Any = experiment.claims(case)
    if not isinstance(told, dict) or not all(
        isinstance(opcode, str) and isinstance(count, int) for opcode, count in told.items()
    ):
        raise fault(experiment, f"claims() returns {told!r}; legal: a dict of opcode prefix -> count")
    return told


def report_of(probe: Probe, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
    """Return what a probe reports of these outputs.

    Raises:
        ToolError: it is no dict; see check_result for what it holds.

    """
    report: Any = probe.report(case, outputs, measured=measured)
    if not isinstance(report, dict):
        raise _wrong(probe, f"is a {type(report).__name__}", "a dict")
    return report


def check_result(probe: Probe, result: Any) -> None:
    """Refuse a result that is no JSON, or whose tables, register maps or formulas cannot be drawn.

    Raises:
        ToolError: with the field that is wrong.

    """
    for name, value in result.items():
        if not isinstance(name, str) or name in _RESERVED:
            raise _wrong(probe, f"has {name!r}", "any other name")
        if is_table(value):
            _check_table(probe, name, value)
        else:
            _check_json(probe, name, value)
    if not isinstance(result.get("ptx", ""), str):
        raise _wrong(probe, f"has {result['ptx']!r} as 'ptx'", "text")
    _check_formulas(probe, result.get("formulas", {}))
    _check_operands(probe, result)
    if "registers" in result:
        _check_registers(probe, result)
    _check_words(probe, result)
    _check_pictures(probe, result.get("pictures", []))
    _check_shared(probe, result)


def check_said(probe: Probe, said: Record, before: Record) -> None:
    """Refuse what a probe has made of its copy of the record, if it cannot be shown.

    Args:
        probe: whose.
        said: the copy after examine(), report() and conclude().
        before: the record that was copied.

    Raises:
        ToolError: with what is wrong.

    """
    check_result(probe, said.result)
    checks: Any = said.checks
    skipped: Any = said.skipped
    kept = len(before.checks)
    if not isinstance(checks, list) or checks[:kept] != before.checks:
        raise fault(probe, "examine() changes checks that are not its own; legal: record.check() adds one")
    for check in checks[kept:]:
        if not _has_fields(check, {"name": str, "ok": bool, "detail": str}):
            raise fault(probe, f"examine() adds the check {check!r}; legal: a text, a bool and a text")
        if check["name"] in _COMPARISONS:
            raise fault(probe, f"examine() adds a check '{check['name']}'; legal: any other name")
    if not isinstance(skipped, list) or not all(
        _has_fields(each, {"case": str, "reason": str}) for each in skipped
    ):
        raise fault(
            probe, f"examine() leaves {skipped!r} as skipped; legal: record.skip(text, text) adds one"
        )


def check_launch(probe: Probe, inputs: Mapping[str, Any], outputs: Mapping[str, Any], how: Geometry) -> None:
    """Refuse what the worker could make nothing of.

    Raises:
        ToolError: an input is no array of numbers, an output has no size, the launch has none, or an
            argument of it is neither a name nor a number whose width is known.

    """
    for name, data in inputs.items():
        if not isinstance(data, np.ndarray) or data.dtype.hasobject:
            raise fault(probe, f"inputs()['{name}'] is no numpy array of numbers")
    for name, output in outputs.items():
        if not _are_sizes(output.shape) or np.dtype(output.dtype).hasobject:
            raise fault(probe, f"outputs()['{name}'] is {output}; legal: sizes from 1 up and a numpy type")
    for shape in (how.grid, how.block, *([how.cluster] if how.cluster else [])):
        if not _are_sizes(shape) or len(shape) != 3:
            raise fault(probe, f"geometry() has {shape!r} as a size; legal: three numbers from 1 up")
    if how.shared_bytes not in range(2**31):
        raise fault(probe, f"geometry() asks for {how.shared_bytes!r} bytes of shared memory")
    names = [*inputs, *outputs]
    for each in how.arguments:
        if not (each in names if isinstance(each, str) else isinstance(each, np.generic | MapArgument)):
            legal = ", ".join(names)
            raise fault(probe, f"geometry() has the argument {each!r}; legal: {legal}, or a numpy scalar")


def is_table(value: Any) -> bool:
    """Say whether a value of a report is a list of dicts, which is shown as a table."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def is_map(value: Any) -> bool:
    """Say whether a value of a report is a register map."""
    return is_table(value) and set(PLACE) <= set(value[0])


def _wrong(probe: Probe, what: str, legal: str) -> ToolError:
    return fault(probe, f"report() {what}; legal: {legal}")


def _check_json(probe: Probe, name: str, value: Any) -> None:
    try:
        json.dumps(value, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        legal = "text, numbers, bool, None, list and dict"
        raise _wrong(probe, f"has no JSON as '{name}' ({error})", legal) from error


def _plain(value: Any) -> Any:
    """Return what a document holds in place of a value that JSON has no word for, as render does."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a {type(value).__name__}")


def _check_table(probe: Probe, name: str, rows: Sequence[Any]) -> None:
    """Refuse a table whose rows differ in their fields, and in a register map an entry that is nowhere."""
    fields = list(rows[0])
    if not all(isinstance(field, str) for field in fields):
        raise _wrong(probe, f"has {fields} as the fields of '{name}'", "text")
    if any(not isinstance(row, dict) or list(row) != fields for row in rows):
        raise _wrong(probe, f"has rows in '{name}' that differ in their fields", f"{fields} in each")
    placed = is_map(rows) or name == "holds"
    for field in fields:
        values = [row[field] for row in rows]
        kinds = set(map(type, values))
        if placed and field in _MOST:
            numbers = all(issubclass(kind, int | np.integer) for kind in kinds)
            if not numbers or min(values) < 0 or max(values) >= _MOST[field]:
                raise _wrong(probe, f"has a {field} in '{name}' that is none", f"0 to {_MOST[field] - 1}")
        elif not kinds <= _PLAIN:  # JSON is slow, and there may be thousands of rows
            _check_json(probe, name, values)


def _check_formulas(probe: Probe, formulas: Any) -> None:
    """Refuse closed forms that are neither name -> expression nor operand -> name -> expression."""
    told: dict[Any, Any] = formulas if isinstance(formulas, dict) else {"": None}
    texts = list(told.values())
    if told and all(isinstance(each, dict) for each in texts):
        texts = [*told, *(text for each in texts for text in each.values())]
    if not all(isinstance(text, str) for text in texts):
        raise _wrong(probe, "has 'formulas' that are none", "a dict of text, or one such dict an operand")


def _check_operands(probe: Probe, result: Mapping[str, Any]) -> None:
    """Refuse operands that are no register maps, or whose shape is not told or is left by an entry."""
    shapes = result.get("shapes", {})
    if not isinstance(shapes, dict):
        raise _wrong(probe, f"has {shapes!r} as 'shapes'", "a dict of {'rows', 'cols'}")
    for name, value in result.items():
        if (name in OPERANDS and isinstance(value, list)) or (name in shapes and is_map(value)):
            _check_drawn(probe, name, value, f"shapes['{name}']", shapes.get(name))


def _check_drawn(probe: Probe, name: str, entries: Any, shape_name: str, shape: Any) -> None:
    """Refuse a register map that cannot be drawn as matrices of this shape."""
    if not is_map(entries):
        raise _wrong(probe, f"has no register map as '{name}'", f"a list of {{{', '.join(PLACE)}}}")
    if not _has_fields(shape, {"rows": int, "cols": int}) or not all(
        1 <= size <= _MOST_DRAWN for size in shape.values()
    ):
        raise _wrong(probe, f"has {shape!r} as {shape_name}", f"{{'rows', 'cols'}} of 1 to {_MOST_DRAWN}")
    for field, size in (("row", shape["rows"]), ("col", shape["cols"])):
        most = max(entry[field] for entry in entries)
        if most >= size:
            raise _wrong(probe, f"has {field} {most} in '{name}'", f"0 to {size - 1}, as {shape_name} says")


def _check_registers(probe: Probe, result: Mapping[str, Any]) -> None:
    """Refuse a "registers" map that comes without what it is shown with."""
    _check_drawn(probe, "registers", result["registers"], "'matrix'", result.get("matrix"))
    if "formulas" not in result:
        raise _wrong(probe, "has 'registers' and no 'formulas'", "both")
    holds: Any = result.get("holds")
    fields = ("lane", "register", "tile_row", "tile_col")
    if not is_table(holds) or not set(fields) <= set(holds[0]):
        raise _wrong(probe, "has 'registers' and not what they hold", f"'holds', a list of {fields}")
    words = {(each["lane"], each["register"]) for each in holds}
    if len(words) != len({lane for lane, _ in words}) * len({register for _, register in words}):
        raise _wrong(probe, "has 'holds' in which some lane lacks a register", "all registers of each lane")
    addresses = result.get("addresses")
    numbers = isinstance(addresses, list) and all(isinstance(each, int) for each in addresses)
    if result.get("banks") and not numbers:
        raise _wrong(probe, f"has 'banks', and {addresses!r} as 'addresses'", "a list of byte addresses")


def _check_words(probe: Probe, result: Mapping[str, Any]) -> None:
    """Refuse notes, titles and choices of tables that are not text."""
    notes, titles, shown, minor = (result.get(name, kind()) for name, kind in _WORDS.items())
    if not isinstance(notes, list) or not all(isinstance(each, str) for each in notes):
        raise _wrong(probe, f"has {notes!r} as 'notes'", "a list of text")
    if not isinstance(titles, dict) or not all(isinstance(each, str) for each in (*titles, *titles.values())):
        raise _wrong(probe, f"has {titles!r} as 'titles'", "a dict of name -> text")
    if not isinstance(minor, list) or not all(isinstance(each, str) for each in minor):
        raise _wrong(probe, f"has {minor!r} as 'minor'", "a list of names of columns")
    if not isinstance(shown, list) or not all(isinstance(each, str) and each in result for each in shown):
        raise _wrong(probe, f"has {shown!r} as 'shown'", "a list of names in the result")


def _check_pictures(probe: Probe, pictures: Any) -> None:
    """Refuse pictures that are no matrices of named and coloured cells."""
    lists = ("cells", "colours", "row_names", "column_names")
    kinds: dict[str, type] = {"title": str, **dict.fromkeys(lists, list)}
    for each in pictures if isinstance(pictures, list) else [pictures]:
        if not _has_fields(each, kinds) or not all(
            isinstance(row, list) and len(row) == len(each["column_names"])
            for row in (*each["cells"], *each["colours"])
        ):
            raise _wrong(probe, "has a picture that is none", f"title, {', '.join(lists)}, row by row")
        texts = (*each["row_names"], *each["column_names"], *(cell for row in each["cells"] for cell in row))
        numbers = (cell for row in each["colours"] for cell in row)
        rows = {len(each[name]) for name in ("cells", "colours", "row_names")}
        fine = all(isinstance(text, str) for text in texts) and len(rows) == 1
        if not fine or not all(cell is None or isinstance(cell, int) for cell in numbers):
            raise _wrong(probe, "has a picture that is none", "text in its cells, numbers or None as colours")


def _check_shared(probe: Probe, result: Mapping[str, Any]) -> None:
    """Refuse operands in shared memory that lack the byte of an element."""
    shared, shapes = result.get("shared", {}), result.get("shapes", {})
    operands: dict[Any, Any] = shared if isinstance(shared, dict) else {"": shared}
    for name, each in operands.items():
        extent = [shapes[name]["cols"]] * shapes[name]["rows"] if name in shapes else []
        fine = _has_fields(each, {"bytes": list, "where": str}) and all(
            isinstance(row, list) for row in each["bytes"]
        )
        if not fine or [len(row) for row in each["bytes"]] != extent:
            raise _wrong(probe, f"has no bytes of '{name}' in 'shared'", "bytes, row by row, and where")


def _has_fields(value: Any, kinds: Mapping[str, type]) -> bool:
    """Say whether a value is a dict of exactly these fields, each of its type."""
    return (
        isinstance(value, dict)
        and value.keys() == kinds.keys()
        and all(isinstance(value[name], kind) for name, kind in kinds.items())
    )


def _are_sizes(shape: Any) -> bool:
    whole = isinstance(shape, tuple) and all(isinstance(size, int | np.integer) for size in shape)
    return whole and all(size >= 1 for size in shape)
