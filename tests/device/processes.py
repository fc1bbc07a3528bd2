"""Whether a process still runs, seen from outside."""

from __future__ import annotations

import time
from pathlib import Path


def running(pid: int) -> bool:
    """Return whether a process lives; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int) -> bool:
    """Wait a moment for a process to end, and return whether it did."""
    end = time.monotonic() + 10
    while running(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not running(pid)
