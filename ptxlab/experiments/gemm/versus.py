"""``ptxlab gemm compare A B``: two days, drivers, cards or files of results, side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ptxlab.bench.stats import RESOLUTION
from ptxlab.errors import MissingError, ToolError, UsageError
from ptxlab.experiments.gemm.history import history_file, lines_of
from ptxlab.experiments.record import Record

SAME = ("stage", "m", "n", "k", "dtype", "acc", "out", "layout", "alpha", "beta", "options", "init", "l2")
"""What two rows have in common that are held against each other."""

DEFAULTS: dict[str, Any] = {"alpha": 1.0, "beta": 0.0, "options": {}}
"""Of what older results do not say."""

COLUMNS = ("time", "device", "driver", "cuda")


def compare_record(first: str, second: str) -> Record:
    """Return the rows that both sides have: their times, and whether they differ.

    The sides did not run in turn, so a difference counts when the intervals of the medians lie apart by more
    than the larger noise floor of the two; clocks that differ are shown beside it.

    Raises:
        UsageError: a side is neither a file nor anything that the history knows.
        MissingError: the sides have no point in common.

    """
    sides = [_rows(each) for each in (first, second)]
    record = Record(params={"a": first, "b": second})
    pairs = [(sides[0][key], row) for key, row in sides[1].items() if key in sides[0]]
    if not pairs:
        counts = " and ".join(
            f"{name} has {len(side)}" for name, side in zip((first, second), sides, strict=True)
        )
        raise MissingError(f"nothing to compare: no stage ran the same problem on both sides ({counts} rows)")
    record.result["compared"] = [_compared(a, b) for a, b in pairs]
    record.result["sides"] = [_said_of(side) for side in sides]
    record.result["conclusion"] = _conclude(record.result["compared"])
    return record


def _rows(name: str) -> dict[str, dict[str, Any]]:
    """Return the newest row of each point of a side."""
    file = Path(name)
    rows = _rows_of_file(file) if file.is_file() else _rows_of_history(name)
    return {_key(row): row for row in rows if row.get("milliseconds")}


def _key(row: dict[str, Any]) -> str:
    return json.dumps([row.get(field, DEFAULTS.get(field)) for field in SAME], sort_keys=True)


def _rows_of_file(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a document of ``gemm --json``, a recording, or a history.

    Raises:
        ToolError: it is none of them.

    """
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ToolError(f"{file} is damaged: {error}") from error
    except ValueError:
        return lines_of(file)
    if not isinstance(document, dict):
        raise ToolError(f"{file} holds no results of gemm")
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
    raise ToolError(f"{file} holds no results of gemm")


def _rows_of_history(name: str) -> list[dict[str, Any]]:
    """Return the lines of the history with this date, driver or card.

    Raises:
        UsageError: there is none.

    """
    file = history_file()
    lines = lines_of(file) if file.is_file() else []
    found = [line for line in lines if _means(line, name)]
    if not found:
        days = sorted({str(line.get("time", ""))[:10] for line in lines})
        known = [*days, *sorted({str(line.get(key)) for line in lines for key in ("driver", "device")})]
        raise UsageError(
            f"'{name}' is no file, and no day, driver or device in {file}",
            f"it knows {', '.join(known)}" if known else "gemm adds to it each time it measures",
        )
    return found


def _means(line: dict[str, Any], name: str) -> bool:
    return str(line.get("time", "")).startswith(name) or name in (line.get("driver"), line.get("device"))


def _compared(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Return a point of both sides; ``ratio`` is the time of B over that of A: below 1, B is faster."""
    mine, theirs = a["milliseconds"], b["milliseconds"]
    floors = [(row.get("noise_floor_percent") or 0.0) / 100 for row in (a, b)]
    floor = max(RESOLUTION, *floors)
    verdict = "indistinguishable"
    if theirs["high"] < mine["low"] / (1 + floor):
        verdict = "faster"
    elif theirs["low"] > mine["high"] * (1 + floor):
        verdict = "slower"
    return {
        **{field: b.get(field, DEFAULTS.get(field)) for field in SAME},
        "a": _side(a),
        "b": _side(b),
        "ratio": theirs["median"] / mine["median"],
        "verdict": verdict,
    }


def _side(row: dict[str, Any]) -> dict[str, Any]:
    names = ("milliseconds", "tflops", "percent_of_cublas", "clock_mhz", "power_w", "verified", *COLUMNS)
    return {name: row.get(name) for name in names}


def _said_of(side: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Return the days, cards and drivers of a side."""
    return {name: sorted({str(row[name]) for row in side.values() if row.get(name)}) for name in COLUMNS}


def _conclude(rows: list[dict[str, Any]]) -> str:
    counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in ("faster", "slower")}
    same = len(rows) - sum(counts.values())
    return (
        f"Of {len(rows)} points B is faster in {counts['faster']}, slower in {counts['slower']}, and not to "
        f"be told from A in {same}. The sides did not run in turn: clock and card may differ."
    )
