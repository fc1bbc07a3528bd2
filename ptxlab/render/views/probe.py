"""What ``ptxlab probe`` shows: matrices coloured by lane, the registers of every lane, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ptxlab.isa.threads import thread
from ptxlab.render.blocks import EVERYWHERE, FILES, SCREEN, Block, Cell, Grid, Medium, Table, Text
from ptxlab.render.operands import LEFT_OUT, OPERANDS, formula_table, operand_blocks

_LETTERS = "abcdefgh"  # slot of a register, from the low bits up
_LINES = 16  # of a picture, that a terminal shows
_CUT = Text(
    "Left out here: --full prints whole pictures and every column; --svg, --html and --format have them.",
    "faint",
    SCREEN,
)
_LEGEND = "A cell names the lane that holds the element, and its slot: a is the lowest bits."
_DRAWN = ("registers", "holds", "recordings", *OPERANDS)  # what is shown elsewhere in the view


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
    compared = result["agree"] + result["disagree"]
    rest = f"; {result['skipped']} were skipped" if result["skipped"] else ""
    verdict = f"{result['agree']} of {compared} variants agree{rest}."
    if not result["agree"] and not result["disagree"]:
        verdict = f"None of {result['variants']} variants could be compared: no device, and no recording."
    if not result["variants"]:
        verdict = f"Nothing to compare on {document['arch']}."
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
    """Return the answer first, then what it stands on."""
    result = document["result"]
    title = f"{result.get('ptx', document['command'][1])}  ({document['arch']})"
    blocks: list[Block] = [
        Text(title, "heading"),
        Text(result["conclusion"], "conclusion"),
        *([Text(result["unproven"], "warning")] if result.get("unproven") else []),
        *_failed(document),
    ]
    if "shown" in result:  # the user asked for just these
        extras = _extras(result, result["shown"], full=bool(document["params"].get("full")))
        return [*blocks, *extras, *_notes(result), _backend(document)]
    lane, full = (document["params"].get(name) for name in ("lane", "full"))
    whole = bool(full) or lane is not None
    if "registers" in result:
        blocks.append(formula_table(result["formulas"], "in closed form, row and col inside each matrix"))
        blocks += [*_matrices(document), Text(_LEGEND), *_lines(result)]
        blocks.append(_dump(document, EVERYWHERE if whole else FILES))
    blocks += operand_blocks(result, _source(document), full=bool(full), lane=lane)
    drawn = (*_DRAWN, "source") if "registers" in result else _DRAWN
    left_out = [] if whole or not any(block.media == FILES for block in blocks) else [LEFT_OUT]
    blocks += _extras(result, [name for name in result if name not in drawn], full=bool(full))
    return [*blocks, *_notes(result), *left_out, *_footing(document)]


def _extras(result: dict[str, Any], names: Iterable[str], *, full: bool) -> list[Block]:
    """Return the pictures and tables of a result that have no place of their own.

    A terminal gets the first lines of a picture and the columns that are not minor, unless all is asked for.
    """
    titles = result.get("titles", {})
    minor = [] if full else result.get("minor", [])
    blocks: list[Block] = []
    for name in names:
        rows = result[name]
        if name == "pictures":
            blocks += [part for each in rows for part in _parts(Grid(**each), full=full)]
        elif _is_table(rows):
            blocks += _tables(titles.get(name, name), rows, titles, minor)
    return [*blocks, _CUT] if any(block.media == FILES for block in blocks) else blocks


def _parts(grid: Grid, *, full: bool) -> list[Grid]:
    """Return the picture, or its first lines for a terminal and the whole of it for files."""
    if full or len(grid.cells) <= _LINES:
        return [grid]
    first = replace(
        grid,
        title=f"{grid.title}: the first {_LINES} of {len(grid.cells)} lines",
        cells=grid.cells[:_LINES],
        colours=grid.colours[:_LINES],
        row_names=grid.row_names[:_LINES],
        media=SCREEN,
    )
    return [first, replace(grid, media=FILES)]


def _tables(title: str, rows: list[dict[str, Any]], titles: dict[str, str], minor: list[str]) -> list[Table]:
    """Return the table, or without minor columns for a terminal and the whole of it for files."""
    whole = _table(title, rows, list(rows[0]), titles, EVERYWHERE)
    kept = [name for name in rows[0] if name not in minor]
    if len(kept) == len(rows[0]):
        return [whole]
    return [_table(title, rows, kept, titles, SCREEN), replace(whole, media=FILES)]


def _table(
    title: str,
    rows: list[dict[str, Any]],
    names: list[str],
    titles: dict[str, str],
    media: tuple[Medium, ...],
) -> Table:
    columns = tuple(titles.get(name, name) for name in names)
    return Table(title, columns, [tuple(row[name] for name in names) for row in rows], media)


def _notes(result: dict[str, Any]) -> list[Block]:
    return [Text(note) for note in result.get("notes", [])]


def _claimed(opcode: str, claims: dict[str, int]) -> bool:
    return any(opcode == claim or opcode.startswith(f"{claim}.") for claim in claims)


def _is_table(value: Any) -> bool:
    """Whether this is shown as a table; a register map is not: it is long, and a picture tells more."""
    is_rows = isinstance(value, list) and bool(value) and isinstance(value[0], dict)
    return is_rows and not {"lane", "register", "slot"} <= set(value[0])


def _matrices(document: dict[str, Any]) -> list[Block]:
    """Draw each matrix; a cell names the lane that holds the element, and the slot.

    Of an instruction that moves registers to registers: before, and after it.
    """
    result = document["result"]
    entries = result["registers"]
    if "source" in result:
        before = [each | {"row": each["tile_row"], "col": each["tile_col"]} for each in result["source"]]
        return [
            _matrix(result, before, "before: r0 of lane"),
            _matrix(result, entries, "after: r0 of lane"),
        ]
    grids: list[Block] = []
    for matrix in sorted({entry.get("matrix", 0) for entry in entries}):
        own = [entry for entry in entries if entry.get("matrix", 0) == matrix]
        registers = ", ".join(f"r{r}" for r in sorted({entry["register"] for entry in own}))
        grids.append(_matrix(result, own, f"matrix {matrix} in memory, {registers} of lane"))
    return grids


def _matrix(result: dict[str, Any], entries: list[dict[str, int]], title: str) -> Grid:
    rows, cols = result["matrix"]["rows"], result["matrix"]["cols"]
    cells = [[""] * cols for _ in range(rows)]
    colours: list[list[int | None]] = [[None] * cols for _ in range(rows)]
    keys: list[list[str | None]] = [[None] * cols for _ in range(rows)]
    lettered = any(entry["slot"] for entry in result["registers"])
    for entry in entries:
        slot = _LETTERS[entry["slot"]] if lettered else ""
        cells[entry["row"]][entry["col"]] = f"{entry['lane']}{slot}"
        colours[entry["row"]][entry["col"]] = entry["lane"]
        keys[entry["row"]][entry["col"]] = thread(entry)
    return Grid(title, cells, colours, keys=keys)


def _dump(document: dict[str, Any], media: tuple[Medium, ...]) -> Table:
    """Return what each lane's registers hold, low half first, as row,col of the tile in shared memory."""
    result = document["result"]
    parts = {"": result["holds"]}
    if "source" in result:
        parts = {"source ": result["source"], "result ": result["holds"]}
    columns: dict[str, dict[int, list[str]]] = {}  # title -> lane -> what it holds
    for part, entries in parts.items():
        for each in sorted(entries, key=lambda each: each["register"]):
            place = "-" if each["tile_row"] is None else f"{each['tile_row']},{each['tile_col']}"
            of_lane = columns.setdefault(f"{part}r{each['register']}", {})
            of_lane.setdefault(each["lane"], []).append(place)
    lanes = sorted({each["lane"] for each in result["holds"]})
    rows: list[tuple[Cell, ...]] = [
        (lane, *("  ".join(held[lane]) for held in columns.values())) for lane in lanes
    ]
    of = "matrix" if "source" in result else "tile"
    title = f"registers, {_source(document)}: row,col of the {of}, low bits first"
    return Table(title, ("lane", *columns), rows, media)


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
    grid = Grid("shared memory by banks", cells, colours, [f"+{128 * line}" for line in lines], names)
    several = f" lanes 0-{rows - 1} are matrix 0, the next {rows} matrix 1, and so on: two of one matrix"
    who = several if len(result["addresses"]) > rows else " two of them"
    legend = "In shared memory a cell is the lane whose 16 bytes lie there;"
    return [grid, Text(f"{legend}{who} in one column conflict.")]


def _failed(document: dict[str, Any]) -> list[Block]:
    """Say which checks did not hold; what the conclusion said is not said again."""
    told = document["result"]["conclusion"].casefold()
    failed = [check for check in document["checks"] if not check["ok"]]
    return [
        Text(f"FAILED: {name}" if detail.casefold() in told else f"FAILED: {name}: {detail}", "bad")
        for name, detail in ((each["name"], each["detail"]) for each in failed)
    ]


def _backend(document: dict[str, Any]) -> Text:
    device = document["environment"].get("device")
    ran = f"device ({device['name']})" if device else "model"
    return Text(f"backend: {ran}")


def _footing(document: dict[str, Any]) -> list[Block]:
    """Say what the compiled kernel holds, what ran, and whether silicon agrees."""
    result = document["result"]
    blocks: list[Block] = []
    if "sass" in result:
        counts = result["sass"]["counts"]
        held = [f"{count} {name}" for name, count in counts.items() if _claimed(name, result["claims"])]
        among = f"among the {result['sass']['instructions']} instructions of the kernel"
        absent = [f"no {claim}, as claimed," for claim, count in result["claims"].items() if not count]
        what = ", ".join(held) or " ".join(absent) or "nothing of what was claimed"
        blocks.append(Text(f"SASS: {what} {among}"))
    blocks.append(_backend(document))
    titles = result.get("titles", {})
    held = [titles.get(check["name"], check["name"]) for check in document["checks"] if check["ok"]]
    if held:
        blocks.append(Text(f"checks that held: {', '.join(held)}", "faint"))
    device = document["environment"].get("device")
    blocks += [
        Text(f"model and {device['name']}: {check['detail']}", "good")
        for check in document["checks"]
        if check["ok"] and check["name"] == "prediction" and device
    ]
    told = {"recording"} if result.get("unproven") else set()  # above, as a warning
    skipped = [each for each in document["skipped"] if each["case"] not in told]
    blocks += [Text(f"not done: {each['case']}: {each['reason']}", "faint") for each in skipped]
    return blocks + [
        Text(f"model agrees with {each['device']}, recorded {each['date']}", "good")
        for each in result.get("recordings", [])
    ]
