"""What ``ptxlab layout`` shows: places, register maps as pictures and lists, and the matrix of support."""

from __future__ import annotations

from typing import Any

from ptxlab.render.blocks import Block, Cell, Table, Text
from ptxlab.render.operands import formula_table, operand_blocks

_KINDS = 3
"""So many kinds of instructions of an emulation stand in the matrix."""


def view(document: dict[str, Any]) -> list[Block]:
    """Return the blocks for whichever of the layout commands made the document."""
    result = document["result"]
    if "forms" in result:
        return _support(document)
    if "moves" in result:
        return _compared(document)
    if "operands" in result:
        return _detail(document)
    for name in ("places", "holds"):
        if name in result:
            return [
                _title(document),
                *_entries(f"{name} of {result['operand']}", result[name]),
                _conclusion(result),
            ]
    return _table(document)


def _title(document: dict[str, Any]) -> Text:
    return Text(f"{document['result']['ptx']}  ({document['arch']})", "heading")


def _conclusion(result: dict[str, Any]) -> Text:
    return Text(result["conclusion"], "conclusion")


def _entries(title: str, entries: list[dict[str, Any]]) -> list[Block]:
    if not entries:
        return []
    return [Table(title, tuple(entries[0]), [tuple(each.values()) for each in entries])]


def _table(document: dict[str, Any]) -> list[Block]:
    """Return pictures and registers of the operands, then the lists themselves."""
    result = document["result"]
    blocks: list[Block] = [_title(document), *operand_blocks(result, "predicted", result["shapes"])]
    for name in result["shapes"]:
        blocks += _entries(name, result[name])
    return blocks


def _detail(document: dict[str, Any]) -> list[Block]:
    result = document["result"]
    blocks: list[Block] = [_title(document), *_entries("operands", result["operands"])]
    if result["formulas"]:
        blocks.append(formula_table(result["formulas"]))
    legal = "every later one too" if result["later"] else f"only {', '.join(result['legal_on'])}"
    blocks.append(Text(f"minimum architecture: {result['minimum']} ({legal})"))
    if "sass" in result:
        held = ", ".join(f"{count} {opcode}" for opcode, count in result["sass"].items())
        blocks.append(Text(f"SASS on {document['arch']}: {held or 'nothing of what was claimed'}"))
    if result["flop"]:
        blocks.append(Text(f"FLOP of one instruction: {result['flop']} (2 for each m, n and k)"))
    blocks += [Text(f"not done: {each['case']}: {each['reason']}", "faint") for each in document["skipped"]]
    return blocks + [
        Text(f"FAILED: {each['name']}: {each['detail']}", "bad")
        for each in document["checks"]
        if not each["ok"]
    ]


def _compared(document: dict[str, Any]) -> list[Block]:
    """Return what each lane takes from which, and the sentence."""
    result = document["result"]
    rows: list[tuple[Cell, ...]] = [
        (each["lane"], each["keeps"], each["takes"], ", ".join(map(str, each["takes_from"])) or None)
        for each in result["lanes"]
    ]
    columns = ("lane", "keeps", "takes", "from lanes")
    return [Table(f"elements that become {result['operand']}", columns, rows), _conclusion(result)]


def _support(document: dict[str, Any]) -> list[Block]:
    """Return a matrix for each instruction, and why forms are refused."""
    result = document["result"]
    archs = tuple(result["archs"])
    blocks: list[Block] = []
    for name in dict.fromkeys(form["instruction"] for form in result["forms"]):
        forms = [form for form in result["forms"] if form["instruction"] == name]
        rows: list[tuple[Cell, ...]] = [
            (form["ptx"], *(_status(form["support"][arch]) for arch in archs), _sass(form["support"]))
            for form in forms
        ]
        blocks.append(Table(name, ("PTX", *archs, "SASS"), rows))
    blocks += _reasons(result["forms"])
    legend = (
        "native: one operation of the chip does it; emulated: other code stands for it; -: ptxas refuses it."
    )
    return [
        *blocks,
        Text(legend, "faint"),
        Text(f"Compiled by {document['environment']['compiler']}.", "faint"),
    ]


def _status(cell: dict[str, str]) -> str | None:
    return None if cell["status"] == "rejected" else cell["status"]


def _sass(support: dict[str, dict[str, str]]) -> str | None:
    """Return what the form became; where that differs, which from which architecture on."""
    found: list[tuple[str, str]] = []
    for arch, cell in support.items():
        sass = _shortened(cell["sass"]) if cell["status"] == "emulated" else cell["sass"]
        if sass and (not found or found[-1][1] != sass):
            found.append((arch, sass))
    if len(found) < 2:
        return found[0][1] if found else None
    return "; ".join(f"from {arch}: {sass}" for arch, sass in found)


def _shortened(sass: str) -> str:
    """Return the first few kinds of instructions; the JSON document has them all."""
    parts = sass.split(" + ")
    if len(parts) <= _KINDS:
        return sass
    return " + ".join([*parts[: _KINDS - 1], "..."])


def _reasons(forms: list[dict[str, Any]]) -> list[Block]:
    """Return ptxas' own words, each once, with how many forms it refused so, and where."""
    refused: dict[str, tuple[set[str], dict[str, None]]] = {}
    for form in forms:
        for arch, cell in form["support"].items():
            if cell["reason"]:
                reason = cell["reason"].replace(f"'{arch}'", "that")
                names, archs = refused.setdefault(reason, (set(), {}))
                names.add(form["ptx"])
                archs[arch] = None
    rows: list[tuple[Cell, ...]] = [
        (reason, len(names), ", ".join(archs)) for reason, (names, archs) in refused.items()
    ]
    return [Table("refused by ptxas", ("reason", "forms", "on"), rows)] if rows else []
