"""What was measured before: every run adds its rows to a file, one JSON line each."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path
from typing import Any

from ptxlab.device.job import DeviceInfo
from ptxlab.errors import MissingError, ToolError

VARIABLE = "PTXLAB_HISTORY"
FILE = "gemm-history.jsonl"

KEPT = (
    *("stage", "problem", "m", "n", "k", "dtype", "acc", "out", "layout", "alpha", "beta", "options"),
    *("init", "l2", "milliseconds", "tflops", "percent_of_cublas", "percent_interval", "baseline"),
    *("verdict", "verified"),
    "percent_of_measured_peak",
    *("noise_floor_percent", "clock_mhz", "clock_source", "power_w", "samples", "throttled_samples"),
)
"""What of a row a line keeps."""


def history_file() -> Path:
    """Return where the lines are: $PTXLAB_HISTORY, or a file among the user's data."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    from platformdirs import user_data_path

    return user_data_path("ptxlab", appauthor=False) / FILE


def keep(rows: list[dict[str, Any]], device: DeviceInfo) -> str:
    """Add a line for each row that was timed; return what went wrong, or ""."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    card = {"time": now, "device": device.name, "driver": device.driver, "cuda": device.cuda_driver_version}
    lines = [
        json.dumps(card | {name: row[name] for name in KEPT}) + "\n" for row in rows if row["milliseconds"]
    ]
    file = history_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as stream:
            stream.write("".join(lines))  # at once: two runs at the same time do not mix lines
    except OSError as error:
        return f"the history was not kept: {error}"
    return ""


def lines_of(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a history.

    Raises:
        MissingError: the file cannot be read.
        ToolError: it is no text, or a line is no JSON object.

    """
    found = []
    for number, text in enumerate(text_of(file).splitlines(), 1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ToolError(f"{file}:{number} is damaged: {error}") from error
        if not isinstance(line, dict):
            raise ToolError(f"{file}:{number} is damaged: it is no JSON object")
        found.append(line)
    return found


def text_of(file: Path) -> str:
    """Return what a file of results says.

    Raises:
        MissingError: it cannot be read.
        ToolError: it is no text.

    """
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ToolError(f"{file} is damaged: {error}") from error
    except OSError as error:
        raise MissingError(f"{file} cannot be read: {error.strerror}") from error
