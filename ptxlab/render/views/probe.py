"""What ``ptxlab probe`` shows: matrices coloured by lane, the registers of every lane, and the verdict."""

from __future__ import annotations

from typing import Any

from ptxlab.render.blocks import Block, Cell, Grid, Table, Text
from ptxlab.render.operands import OPERANDS, formula_table, operand_blocks

_LETTERS = "abcdefgh"  # slot of a register, from the low bits up


def view(document: dict[str, Any]) -> list[Block]:
    """Return the blocks for whichever of the probe commands made the document."""
    result = document["result"]
    if "probes" in result and "agree" in result:
        return _verified(document)
    if "probes" in result:
        return _listed(result)
    if "files" in result:
        return _created(result)
    return _ran(document)


def _listed(result: dict[str, Any]) -> list[Block]:
    rows: list[tuple[Cell, ...]] = [
        (each["name"], each["question"], ", ".join(each["recordings"]) or None, each["problem"] or None)
        for each in result["probes"]
    ]
    return [Table("probes", ("name", "question", "recorded on", "problem"), rows)]


def _created(result: dict[str, Any]) -> list[Block]:
    made = ", ".join(result["files"])
    return [Text(f"{result['folder']}: {made}", "good"), *(Text(line) for line in result["next"])]


def _verified(document: dict[str, Any]) -> list[Block]:
    result = document["result"]
    columns = ("probe", "variants", "agree", "disagree", "skipped")
    rows: list[tuple[Cell, ...]] = [tuple(each[name] for name in columns) for each in result["probes"]]
    if len(rows) != 1:
        rows.append(("all", *(result[name] for name in columns[1:])))
    blocks: list[Block] = [Table(f"model against {_other(document)}", columns, rows)]
    if document["skipped"]:
        blocks.append(_skipped(document["skipped"]))
    failed: list[tuple[Cell, ...]] = [
        (each["name"], each["detail"]) for each in document["checks"] if not each["ok"]
    ]
    if failed:
        blocks.append(Table("disagreements", ("variant", "detail"), failed))
    verdict = f"{result['agree']} of {result['variants']} variants agree."
    if not result["agree"] and not result["disagree"]:
        verdict = f"None of {result['variants']} variants could be compared: no device, and no recording."
    return [*blocks, Text(verdict, "bad" if result["disagree"] else "conclusion")]


def _skipped(skips: list[dict[str, str]]) -> Table:
    """Return one row a reason; the JSON document names every variant."""
    cases: dict[str, list[str]] = {}
    for each in skips:
        cases.setdefault(each["reason"], []).append(each["case"])
    rows: list[tuple[Cell, ...]] = [
        (len(names), f"{names[0]}{', ...' if len(names) > 1 else ''}", reason)
        for reason, names in cases.items()
    ]
    return Table("skipped", ("variants", "such as", "reason"), rows)


def _other(document: dict[str, Any]) -> str:
    device = document["environment"].get("device")
    return str(device["name"]) if device else "recordings of silicon"


def _ran(document: dict[str, Any]) -> list[Block]:
    result = document["result"]
    title = f"{result.get('ptx', document['command'][1])}  ({document['arch']})"
    blocks: list[Block] = [Text(title, "heading")]
    if "registers" in result:
        legend = "A cell names the lane that holds the element, and its slot: a is the lowest bits."
        blocks += [*_matrices(document), Text(legend), *_lines(result), _dump(document)]
        blocks.append(formula_table(result["formulas"], "in closed form, row and col inside each matrix"))
    blocks += operand_blocks(result, _source(document))
    for name, rows in result.items():
        if name == "pictures":
            blocks += [_picture(each) for each in rows]
        elif name not in ("registers", "holds", "recordings", *OPERANDS) and _is_table(rows):
            blocks.append(Table(name, tuple(rows[0]), [tuple(row.values()) for row in rows]))
    return [*blocks, *_verdict(document)]


def _picture(picture: dict[str, Any]) -> Grid:
    """Draw a grid that a probe describes, with the fields of Grid."""
    return Grid(**picture)


def _claimed(opcode: str, claims: dict[str, int]) -> bool:
    return any(opcode == claim or opcode.startswith(f"{claim}.") for claim in claims)


def _is_table(value: Any) -> bool:
    """Whether this is shown as a table; a register map is not: it is long, and a picture tells more."""
    is_rows = isinstance(value, list) and bool(value) and isinstance(value[0], dict)
    return is_rows and not {"lane", "register", "slot"} <= set(value[0])


def _matrices(document: dict[str, Any]) -> list[Block]:
    """Draw each matrix as it lies in memory; a cell names the lane that holds it, and the slot."""
    result = document["result"]
    entries, (rows, cols) = result["registers"], (result["matrix"]["rows"], result["matrix"]["cols"])
    slots = 1 + max(entry["slot"] for entry in entries)
    grids: list[Block] = []
    for matrix in sorted({entry.get("matrix", 0) for entry in entries}):
        own = [entry for entry in entries if entry.get("matrix", 0) == matrix]
        cells = [[""] * cols for _ in range(rows)]
        colours: list[list[int | None]] = [[None] * cols for _ in range(rows)]
        for entry in own:
            cells[entry["row"]][entry["col"]] = f"{entry['lane']}{_slot(entry['slot'], slots)}"
            colours[entry["row"]][entry["col"]] = entry["lane"]
        registers = ", ".join(f"r{r}" for r in sorted({entry["register"] for entry in own}))
        grids.append(Grid(f"matrix {matrix} in memory, {registers} of lane", cells, colours))
    return grids


def _slot(slot: int, slots: int) -> str:
    return _LETTERS[slot] if slots > 1 else ""


def _dump(document: dict[str, Any]) -> Table:
    """Return what each lane's registers hold, low half first, as row,col of the tile in shared memory."""
    holds: dict[tuple[int, int], list[str]] = {}
    for each in document["result"]["holds"]:
        place = "-" if each["tile_row"] is None else f"{each['tile_row']},{each['tile_col']}"
        holds.setdefault((each["lane"], each["register"]), []).append(place)
    lanes = sorted({lane for lane, _ in holds})
    registers = sorted({register for _, register in holds})
    rows: list[tuple[Cell, ...]] = [
        (lane, *("  ".join(holds[lane, register]) for register in registers)) for lane in lanes
    ]
    columns = ("lane", *(f"r{register}" for register in registers))
    return Table(f"registers, {_source(document)}: row,col of the tile, low bits first", columns, rows)


def _source(document: dict[str, Any]) -> str:
    return "measured" if document["backend"] == "device" else "predicted"


def _lines(result: dict[str, Any]) -> list[Block]:
    """Draw shared memory in lines of 128 bytes: lanes of one matrix in one column conflict."""
    if not result.get("banks"):
        return []
    rows = result["matrix"]["rows"]
    readers: dict[int, list[int]] = {}
    for lane, address in enumerate(result["addresses"]):
        readers.setdefault(address, []).append(lane)
    lines = sorted({address // 128 for address in readers})
    at = [[readers.get(128 * line + 16 * piece, []) for piece in range(8)] for line in lines]
    cells = [[",".join(map(str, lanes)) for lanes in line] for line in at]
    colours: list[list[int | None]] = [
        [lanes[0] // rows * 9 if lanes else None for lanes in line] for line in at
    ]
    names = [f"{4 * piece}-{4 * piece + 3}" for piece in range(8)]
    legend = "In shared memory a cell is the lane whose 16 bytes lie there, a colour is a matrix."
    grid = Grid("shared memory by banks", cells, colours, [f"+{128 * line}" for line in lines], names)
    return [grid, Text(f"{legend} One colour twice in a column is a conflict.")]


def _verdict(document: dict[str, Any]) -> list[Block]:
    """Say what the compiled kernel holds, what ran, whether silicon agrees, and the conclusion."""
    result = document["result"]
    blocks: list[Block] = []
    if "sass" in result:
        counts = result["sass"]["counts"]
        held = [f"{count} {name}" for name, count in counts.items() if _claimed(name, result["claims"])]
        among = f"among the {result['sass']['instructions']} instructions of the kernel"
        blocks.append(Text(f"SASS: {', '.join(held) or 'no opcode that the claim names'} {among}"))
    device = document["environment"].get("device")
    ran = f"device ({device['name']})" if device else "model"
    blocks.append(Text(f"backend: {ran}"))
    held = [check["name"] for check in document["checks"] if check["ok"]]
    if held:
        blocks.append(Text(f"checks that held: {', '.join(held)}", "faint"))
    blocks += [
        Text(f"FAILED: {check['name']}: {check['detail']}", "bad")
        for check in document["checks"]
        if not check["ok"]
    ]
    blocks += [
        Text(f"model and {device['name']}: {check['detail']}", "good")
        for check in document["checks"]
        if check["ok"] and check["name"] == "prediction" and device
    ]
    blocks += [Text(f"not done: {each['case']}: {each['reason']}", "faint") for each in document["skipped"]]
    blocks += [
        Text(f"model agrees with {each['device']}, recorded {each['date']}", "good")
        for each in result.get("recordings", [])
    ]
    return [*blocks, Text(result["conclusion"], "conclusion")]
