"""``ptxlab gemm compare A B``: two days, drivers, cards or files of results, side by side."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ptxlab.bench.stats import RESOLUTION
from ptxlab.errors import MissingError, ToolError, UsageError
from ptxlab.experiments.gemm.fields import as_damage, wrong_in_compared
from ptxlab.experiments.gemm.history import bytes_of, history_file, kept_lines, lines_of
from ptxlab.experiments.record import Record
from ptxlab.experiments.registry import stage_entries
from ptxlab.files import is_file

SAME = ("stage", "m", "n", "k", "dtype", "acc", "out", "layout", "alpha", "beta", "options", "init", "l2")
"""What two rows have in common that are held against each other."""

DEFAULTS: dict[str, Any] = {"alpha": 1.0, "beta": 0.0, "options": {}}
"""Of what older results do not say."""

COLUMNS = ("time", "device", "driver", "cuda")

Row = dict[str, Any]


def compare_record(first: str, second: str) -> Record:
    """Return the rows that both sides have: their times, and whether they differ.

    The sides did not run in turn, so a difference counts when the intervals of the medians lie apart by more
    than the larger noise floor of the two; clocks that differ are shown beside it.

    Raises:
        UsageError: a side is neither a file nor anything that the history knows.
        MissingError: the sides have no point in common.

    """
    read = functools.cache(kept_lines)  # it may be long
    sides = [_rows(each, read) for each in (first, second)]
    record = Record(params={"a": first, "b": second})
    pairs = [(sides[0][key], row) for key, row in sides[1].items() if key in sides[0]]
    if not pairs:
        raise _nothing_in_common((first, second), sides)
    record.result["compared"] = [_compared(a, b) for a, b in pairs]
    record.result["sides"] = [_said_of(side) for side in sides]
    record.result["conclusion"] = _conclude(record.result["compared"])
    return record


def _nothing_in_common(names: tuple[str, str], sides: list[dict[str, Row]]) -> MissingError:
    """Return the error for sides without a common point: what each holds, and where rungs stand together."""
    stages = [sorted({row["stage"] for row in side.values()}) for side in sides]
    held = " and ".join(
        f"{name} has {len(side)} rows of {', '.join(those) or 'no stage'}"
        for name, side, those in zip(names, sides, stages, strict=True)
    )
    apart = set(stages[0]).isdisjoint(stages[1])
    hint = "a side is held against another of the same stage; gemm --ladder sets stages side by side"
    return MissingError(
        f"nothing to compare: no stage ran the same problem on both sides ({held})", hint if apart else ""
    )


def _rows(name: str, history: Callable[[], list[Row]]) -> dict[str, Row]:
    """Return the newest row of each point of a side."""
    file = Path(name)
    rows = _rows_of_file(file) if is_file(file) else _rows_of_history(name, history())
    return {_key(row): row for row in rows if row.get("milliseconds")}


def _key(row: Row) -> str:
    return json.dumps([row.get(field, DEFAULTS.get(field)) for field in SAME], sort_keys=True)


def _rows_of_file(file: Path) -> list[Row]:
    """Return the rows of a document of ``gemm --json``, a recording, or a history.

    Raises:
        MissingError: it cannot be read, or nothing was measured in that run.
        ToolError: it is none of them, or damaged.

    """
    try:
        document = json.loads(bytes_of(file))
    except (ValueError, RecursionError):
        return lines_of(file)
    try:
        rows = _rows_of_document(document)
    except (AttributeError, KeyError, TypeError) as error:
        raise ToolError(f"{file} is damaged: it is not laid out as results of gemm are") from error
    if rows is None:
        raise ToolError(f"{file} holds no results of gemm")
    if not rows:
        raise MissingError(f"nothing to compare: {file} holds no measurement", "gemm measures on a GPU")
    if wrong := next(filter(None, map(wrong_in_compared, rows)), ""):
        raise ToolError(f"{file} is damaged: a row {as_damage(wrong)}")
    return rows


def _rows_of_document(document: Any) -> list[Row] | None:
    """Return the rows of a document of any kind; None where it is of no kind that holds results."""
    if not isinstance(document, dict):
        return None
    if "variants" in document:
        said = {"time": document.get("date"), "device": document.get("device"), **document["environment"]}
        return [said | each["result"] for each in document["variants"].values()]
    if "stages" in document.get("result", {}):
        device = document["environment"].get("device") or {}
        said = {"device": device.get("name"), "driver": device.get("driver")}
        return [
            said | {"cuda": device.get("cuda_driver_version")} | row for row in document["result"]["stages"]
        ]
    if "stage" in document:
        return [document]  # a history of one line
    return None


def _rows_of_history(name: str, lines: list[Row]) -> list[Row]:
    """Return the lines of the history with this date, driver or card.

    Raises:
        UsageError: there is none.

    """
    found = [line for line in lines if _means(line, name)]
    if not found:
        days = sorted({str(line.get("time", ""))[:10] for line in lines})
        known = [*days, *sorted({str(line.get(key)) for line in lines for key in ("driver", "device")})]
        told = f"it knows {', '.join(known)}" if known else "gemm adds to it each time it measures"
        raise UsageError(
            f"'{name}' is no file, and no day, driver or device in {history_file()}",
            f"{told}; files work, too: of gemm --json, or recordings such as {_a_recording()}",
        )
    return found


def _a_recording() -> str:
    """Return the path of a recording that is here, or what such paths look like."""
    files = (file for each in stage_entries() for file in each.file.parent.glob("recordings/*.json"))
    return str(next(files, "kernels/gemm/NAME/recordings/CARD.json"))


def _means(line: Row, name: str) -> bool:
    return str(line.get("time", "")).startswith(name) or name in (line.get("driver"), line.get("device"))


def _compared(a: Row, b: Row) -> Row:
    """Return a point of both sides; ``ratio`` is the time of B over that of A: below 1, B is faster.

    There is no verdict, and no ratio, where a side is not verified.
    """
    mine, theirs = a["milliseconds"], b["milliseconds"]
    floors = [(row.get("noise_floor_percent") or 0.0) / 100 for row in (a, b)]
    floor = max(RESOLUTION, *floors)
    right = all(row.get("verified", True) for row in (a, b))
    verdict = "indistinguishable"
    if theirs["high"] < mine["low"] / (1 + floor):
        verdict = "faster"
    elif theirs["low"] > mine["high"] * (1 + floor):
        verdict = "slower"
    return {
        **{field: b.get(field, DEFAULTS.get(field)) for field in SAME},
        "a": _side(a),
        "b": _side(b),
        "ratio": theirs["median"] / mine["median"] if right else None,
        "verdict": verdict if right else None,
    }


def _side(row: Row) -> Row:
    names = ("milliseconds", "tflops", "percent_of_cublas", "clock_mhz", "power_w", "verified", *COLUMNS)
    return {name: row.get(name) for name in names}


def _said_of(side: dict[str, Row]) -> dict[str, list[str]]:
    """Return the days, cards and drivers of a side."""
    return {name: sorted({str(row[name]) for row in side.values() if row.get(name)}) for name in COLUMNS}


def _conclude(rows: list[Row]) -> str:
    counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in ("faster", "slower")}
    wrong = sum(row["verdict"] is None for row in rows)
    same = len(rows) - sum(counts.values()) - wrong
    left_out = f" {wrong} are not compared: a side is not verified." if wrong else ""
    return (
        f"Of {len(rows)} points B is faster in {counts['faster']}, slower in {counts['slower']}, and not to "
        f"be told from A in {same}.{left_out} The sides did not run in turn: clock and card may differ."
    )
