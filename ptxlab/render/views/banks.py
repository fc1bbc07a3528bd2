"""What ``ptxlab banks`` shows."""

from __future__ import annotations

from typing import Any

from ptxlab.render.blocks import Block, Table, Text, drawn


def view(document: dict[str, Any]) -> list[Block]:
    """Return the sentence, the counts, the phases, and the lanes in each bank."""
    result, params = document["result"], document["params"]
    masked = f", lanes {params['mask']}" if params["mask"] else ""
    title = f"{result['opcode']} ({result['access']}), {params['addr']}{masked}"
    return [
        Text(title, "heading"),
        Text(result["conclusion"], "conclusion"),
        Table(
            "one warp instruction",
            ("wavefronts", "ideal of full warps", "conflicts"),
            [(result["wavefronts"], result["ideal"], result["conflicts"])],
        ),
        *_total(result["total"]),
        Table(
            "phases",
            ("lanes", "wavefronts"),
            [(each["lanes"], each["wavefronts"]) for each in result["phases"]],
        ),
        *(drawn(each) for each in result["pictures"]),
    ]


def _total(total: dict[str, Any]) -> list[Block]:
    """Return the sums that counters show, where the instruction runs more than once."""
    if total["instructions"] == 1:
        return []
    return [Table("all of them", tuple(total), [tuple(total.values())])]
