"""What ``ptxlab layout`` shows: places, register maps as pictures and lists, and the matrix of support."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from ptxlab.render.blocks import EVERYWHERE, FILES, SCREEN, Block, Cell, Medium, Table, Text, drawn
from ptxlab.render.operands import formula_table, operand_blocks

_KINDS = 3
"""So many kinds of instructions of an emulation stand in the matrix."""

_OPERANDS = 2
"""So many operands that results make are shown: the others follow the same pattern."""

_PATTERNS = 8
"""So many ways in which lanes exchange elements are shown on a terminal."""

_NAMES = {"logical_col": "col of the full A, with this metadata"}
"""Columns that need another name than their key: this one depends on the metadata that is in use."""


def view(document: dict[str, Any]) -> list[Block]:
    """Return the blocks for whichever of the layout commands made the document."""
    from ptxlab.render.views import layout_algebra

    result = document["result"]
    views = {
        "grid": layout_algebra.evaluated,
        "steps": layout_algebra.explained,
        "forms": _support,
        "moves": _compared,
        "operands": _detail,
        "trace": _traced,
        "places": _where,
        "holds": _what,
    }
    return next((views[key] for key in views if key in result), _table)(document)


def _where(document: dict[str, Any]) -> list[Block]:
    return _answered(document, "where it is", document["result"]["places"])


def _what(document: dict[str, Any]) -> list[Block]:
    return _answered(document, "what is held", document["result"]["holds"])


def _answered(document: dict[str, Any], title: str, entries: list[dict[str, Any]]) -> list[Block]:
    result = document["result"]
    return [_title(document), _conclusion(result), *_entries(title, entries), *_pictures(result)]


def _pictures(result: dict[str, Any]) -> list[Block]:
    """Return what is drawn into files: on a terminal the answer is enough."""
    return [replace(drawn(each), media=("picture",)) for each in result["pictures"]]


def _title(document: dict[str, Any]) -> Text:
    return Text(f"{document['result']['ptx']}  ({document['arch']})", "heading")


def _conclusion(result: dict[str, Any]) -> Text:
    return Text(result["conclusion"], "conclusion")


def _entries(title: str, entries: list[dict[str, Any]]) -> list[Block]:
    if not entries:
        return []
    columns = tuple(_NAMES.get(name, name) for name in entries[0])
    return [Table(title, columns, [tuple(each.values()) for each in entries])]


def _table(document: dict[str, Any]) -> list[Block]:
    """Return pictures and registers of the operands; in files for programs one flat list."""
    result = document["result"]
    names = list(result["shapes"])
    lane = document["params"].get("lane")
    drawn = operand_blocks(result, "predicted", names, full=True, lane=lane)
    media: tuple[Medium, ...] = ("table", "md", "picture")
    return [_title(document), *(replace(block, media=media) for block in drawn), _flat(result, names)]


def _flat(result: dict[str, Any], names: list[str]) -> Table:
    """Return every entry of every operand as one row; what an operand has not is left empty."""
    entries = [(name, entry) for name in names for entry in result[name]]
    columns = list(dict.fromkeys(column for _, entry in entries for column in entry))
    rows: list[tuple[Cell, ...]] = [(name, *(entry.get(each) for each in columns)) for name, entry in entries]
    return Table("every element", ("operand", *columns), rows, ("csv", "md"))


def _detail(document: dict[str, Any]) -> list[Block]:
    result = document["result"]
    blocks: list[Block] = [_title(document), *_entries("operands", result["operands"]), *_pictures(result)]
    if result["emulated"]:
        blocks.insert(1, Text(result["emulated"], "warning"))
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


def _traced(document: dict[str, Any]) -> list[Block]:
    """Return the steps of one element, and where it is at each; the cell that holds it is marked."""
    result = document["result"]
    params = document["params"]
    tile = "x".join(map(str, params["tile"]))
    element = ", ".join(map(str, result["element"]))
    setup = f"{params['dtype']}, tile {tile}, swizzle {params['swizzle']}"
    user = f"{params['operand']} of {params['instr']}"
    title = Text(f"The way of element [{element}]: {setup}, {user}", "heading")
    grids = [drawn(each) for each in result["pictures"]]
    told = [Text(text) for text in (result["contributes"]["conclusion"], result["legend"])]
    return [title, _conclusion(result), told[0], *_held(document), *grids, told[1], *_steps(result["trace"])]


def _steps(trace: list[dict[str, Any]]) -> list[Block]:
    """Return a table for each place where the element is; in files for programs one flat list."""
    columns = ("name", "value", "formula", "what it is")
    flat: list[tuple[Cell, ...]] = [
        (step["stage"], step["name"], step["value"], step["formula"] or "given", step["meaning"])
        for step in trace
    ]
    places: list[Block] = [
        Table(place, columns, [row[1:] for row in rows], ("table", "picture"))
        for place, rows in ((each, list(own)) for each, own in groupby(flat, key=lambda row: str(row[0])))
    ]
    return [*places, Table("step by step", ("where", *columns), flat, ("csv", "md"))]


def _held(document: dict[str, Any]) -> list[Block]:
    """Return each check: what holds, or that it failed."""
    return [
        Text(f"{each['name']}: {each['detail']}", "good")
        if each["ok"]
        else Text(f"FAILED: {each['name']}: {each['detail']}", "bad")
        for each in document["checks"]
    ]


def _compared(document: dict[str, Any]) -> list[Block]:
    """Return the verdict, what each register is made of, and which lanes exchange elements."""
    result = document["result"]
    groups: dict[tuple[Cell, ...], list[int]] = {}
    for each in result["lanes"]:
        steps = ", ".join(f"lane {source - each['lane']:+}" for source in each["takes_from"])
        groups.setdefault((each["keeps"], each["takes"], steps or None), []).append(each["lane"])
    rows: list[tuple[Cell, ...]] = [(_lanes(lanes), *what) for what, lanes in groups.items()]
    title = f"elements that become {result['operand']}, of each lane"
    media = EVERYWHERE if len(rows) <= _PATTERNS else FILES
    table = Table(title, ("lanes", "keeps", "takes", "from"), rows, media)
    return [_conclusion(result), *_recipe(result), table]


def _recipe(result: dict[str, Any]) -> list[Block]:
    """Return which registers of the results each register of the operands is made of."""
    parts, operand = result["recipe"], result["operand"]
    if not parts:
        return []
    tiles, results = (1 + max(part[name] for part in parts) for name in ("tile", "from_tile"))
    made: dict[tuple[int, int], list[dict[str, int]]] = {}
    for part in parts:
        made.setdefault((part["tile"], part["register"]), []).append(part)
    rows: list[tuple[Cell, ...]] = [
        (f"{operand}{tile} r{register}", _made_of(sources))
        for (tile, register), sources in made.items()
        if tile < _OPERANDS
    ]
    side = f"{results} results C side by side make" if results > 1 else "1 result C makes"
    more = f" (the first {_OPERANDS} shown)" if tiles > _OPERANDS else ""
    blocks: list[Block] = [Table(f"{side} {tiles} {operand}{more}", ("register", "low bits first"), rows)]
    if result["k_order"] != sorted(result["k_order"]):
        order = " ".join(map(str, result["k_order"]))
        blocks.append(Text(f"In this order of k: {order}. The other operand needs it, too."))
    return blocks


def _made_of(parts: list[dict[str, int]]) -> str:
    """Return a register of C where it is taken as it is, else what is packed."""
    sources = [(part["from_tile"], part["from_register"]) for part in parts]
    names = [f"C{tile} r{register}" for tile, register in sources]
    if len(set(names)) == 1 and [part["from_slot"] for part in parts] == list(range(len(parts))):
        return names[0]
    slots = any(part["from_slot"] for part in parts)
    packed = (
        f"{name}[{part['from_slot']}]" if slots else name for name, part in zip(names, parts, strict=True)
    )
    return f"pack({', '.join(packed)})"


def _lanes(lanes: list[int]) -> str:
    """Return "all", "lane % 4 = 1", or the lanes themselves."""
    if len(lanes) == 32:
        return "all"
    if len(lanes) == 8 and lanes == list(range(lanes[0], 32, 4)):
        return f"lane % 4 = {lanes[0]}"
    return ", ".join(map(str, lanes))


def _support(document: dict[str, Any]) -> list[Block]:
    """Return a matrix for each instruction, and why forms are refused."""
    result = document["result"]
    archs = tuple(result["archs"])
    reasons = _reasons(result["forms"])
    numbers = {reason: str(number) for number, reason in enumerate(reasons, 1)}
    blocks: list[Block] = [_conclusion(result)]
    for name in dict.fromkeys(form["instruction"] for form in result["forms"]):
        forms = [form for form in result["forms"] if form["instruction"] == name]
        each_arch: dict[str, tuple[str, ...]] = {arch: (arch,) for arch in archs}
        blocks.append(_matrix(name, forms, each_arch, numbers, FILES))
        blocks.append(_matrix(name, forms, _agreeing(forms, archs), numbers, SCREEN))
    if reasons:
        refused: list[tuple[Cell, ...]] = [
            (numbers[reason], reason, len(names), ", ".join(where))
            for reason, (names, where) in reasons.items()
        ]
        blocks.append(Table("refused by ptxas", ("refused", "reason", "forms", "on"), refused))
    legend = (
        "native: one operation of the chip does it; emulated: other code stands for it; -: ptxas refuses it, "
        "for the reason whose number is under refused."
    )
    return [
        *blocks,
        Text(legend, "faint"),
        Text(f"Compiled by {document['environment']['compiler']}.", "faint"),
    ]


def _matrix(
    name: str,
    forms: list[dict[str, Any]],
    columns: dict[str, tuple[str, ...]],
    numbers: dict[str, str],
    media: tuple[Medium, ...],
) -> Table:
    """Return a row for each form, a column for each group of architectures, which agree on all of them."""
    rows: list[tuple[Cell, ...]] = [
        (
            form["ptx"],
            *(_status(form["support"][group[0]]) for group in columns.values()),
            ", ".join(dict.fromkeys(numbers[each] for _, each in _refusals(form))) or None,
            _sass(form["support"]),
        )
        for form in forms
    ]
    return Table(name, ("PTX", *columns, "refused", "SASS"), rows, media)


def _agreeing(forms: list[dict[str, Any]], archs: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return neighbouring architectures that have all of the forms alike, under the name "sm_80-89"."""
    alike = groupby(archs, key=lambda arch: [form["support"][arch]["status"] for form in forms])
    groups = (tuple(own) for _, own in alike)
    return {own[0] if len(own) == 1 else f"{own[0]}-{own[-1].removeprefix('sm_')}": own for own in groups}


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


def _refusals(form: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the architectures that refuse a form, each with ptxas' own words, without its name."""
    return [
        (arch, cell["reason"].replace(f" on .target '{arch}'", ""))
        for arch, cell in form["support"].items()
        if cell["reason"]
    ]


def _reasons(forms: list[dict[str, Any]]) -> dict[str, tuple[set[str], dict[str, None]]]:
    """Return each reason once, with the forms that are refused so, and where."""
    refused: dict[str, tuple[set[str], dict[str, None]]] = {}
    for form in forms:
        for arch, reason in _refusals(form):
            names, archs = refused.setdefault(reason, (set(), {}))
            names.add(form["ptx"])
            archs[arch] = None
    return refused
