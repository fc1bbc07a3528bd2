"""What ``ptxlab cache`` shows."""

from __future__ import annotations

from typing import Any

from ptxlab.render.blocks import Block, Table, Text

_MEGABYTE = 1_000_000


def view(document: dict[str, Any]) -> list[Block]:
    """Return where the cache is and how full, or what was removed from it."""
    result = document["result"]
    if "removed" in result:
        removed = result["removed"]
        size = removed["bytes"] / _MEGABYTE
        return [Text(f"{removed['entries']} builds ({size:.1f} MB) removed from {result['folder']}.", "good")]
    return [
        Table(
            "compile cache",
            ("folder", "builds", "MB", "limit MB"),
            [
                (
                    result["folder"],
                    result["entries"],
                    round(result["bytes"] / _MEGABYTE, 1),
                    round(result["limit_bytes"] / _MEGABYTE),
                )
            ],
        )
    ]
