"""What was measured before: every run adds its rows to a file, one JSON line each."""

from __future__ import annotations

import datetime
import json
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

from ptxlab.device.job import DeviceInfo
from ptxlab.errors import MissingError, ToolError, one_line
from ptxlab.experiments.gemm.fields import COMPARED, as_damage, lacking

VARIABLE = "PTXLAB_HISTORY"
FILE = "gemm-history.jsonl"

MOST_NAMED = 8
"""Of damaged lines."""

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
        with file.open("ab+") as stream:
            text = "".join(lines) if _ends_in_a_line(stream) else "\n" + "".join(lines)
            stream.write(text.encode())  # at once: two runs at the same time do not mix lines
    except OSError as error:
        return f"the history was not kept: {error}"
    return ""


def _ends_in_a_line(stream: BinaryIO) -> bool:
    """Say whether a file is empty or ends in a whole line: a full disk or a kill leaves half of one."""
    if stream.seek(0, os.SEEK_END) == 0:
        return True
    stream.seek(-1, os.SEEK_END)
    return stream.read() == b"\n"


def kept_lines() -> list[dict[str, Any]]:
    """Return the lines of the user's history, none where there is no such file; raises as lines_of does."""
    try:
        return lines_of(history_file())
    except MissingError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return []
        raise


def lines_of(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a history that are sound; the others are named in a warning on stderr.

    Raises:
        MissingError: the file cannot be read.
        ToolError: none of its lines is sound.

    """
    found, damage = [], {}
    for number, text in enumerate(bytes_of(file).splitlines(), 1):
        try:
            found.append(_line(text))
        except (ValueError, RecursionError) as error:
            damage[number] = error
    if damage:
        first, why = next(iter(damage.items()))
        if not found:
            raise ToolError(f"{file}:{first} is damaged: {why}")
        _warn(file, list(damage), f"{first}: {why}")
    return found


def _line(text: bytes) -> dict[str, Any]:
    """Return what a line says.

    Raises:
        ValueError: it is damaged.
        RecursionError: it is no line that gemm wrote, either.

    """
    line = json.loads(text.decode())
    if not isinstance(line, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - as json says of what is no JSON
    if wrong := lacking(line, COMPARED):
        raise ValueError(f"it {as_damage(wrong)}")
    return line


def _warn(file: Path, numbers: list[int], first: str) -> None:
    """Say which lines are left out."""
    named = ", ".join(map(str, numbers[:MOST_NAMED]))
    more = f" and {len(numbers) - MOST_NAMED} more" if len(numbers) > MOST_NAMED else ""
    told = one_line(f"damaged lines of {file} are left out: {named}{more} ({first})")
    sys.stderr.write(f"ptxlab: warning: {told}\n")


def bytes_of(file: Path) -> bytes:
    """Return what a file of results holds.

    Raises:
        MissingError: it cannot be read.

    """
    try:
        return file.read_bytes()
    except OSError as error:
        raise MissingError(f"{file} cannot be read: {error.strerror}") from error
