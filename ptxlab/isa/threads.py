"""What the thread is called that an entry of a register map is about. Light, as every page needs it."""

from __future__ import annotations

from collections.abc import Mapping


def warp_of(entry: Mapping[str, int]) -> int:
    """Return the warp of an entry, counted through all warpgroups, which have four."""
    return 4 * entry.get("warpgroup", 0) + entry.get("warp", 0)


def thread(entry: Mapping[str, int]) -> str:
    """Return the name of the thread of an entry: its lane, and its warp where there are several."""
    return f"warp {warp_of(entry)} lane {entry['lane']}" if "warp" in entry else f"lane {entry['lane']}"
