"""What ``ptxlab swizzle`` shows."""

from __future__ import annotations

from typing import Any

from ptxlab.render.blocks import Block, Table, Text


def view(document: dict[str, Any]) -> list[Block]:
    """Return the answer in its units, the cost before and after, and the sentence."""
    result, params = document["result"], document["params"]
    title = (
        f"{params['rows']}x{params['cols']} {params['dtype']} in {params['order']} order, {params['access']}"
    )
    rows: list[tuple[str, int, int, int]] = [
        (name, each["wavefronts"], each["ideal"], each["conflicts"])
        for name, each in (("as it is", result["naive"]), (_answer(result), result))
        if name
    ]
    return [
        Table(title, ("layout", "wavefronts", "ideal", "conflicts"), list(rows)),
        Text(
            f"Summed over {result['instructions']} warp instructions, which read the whole tile once.",
            "faint",
        ),
        Text(result["conclusion"], "conclusion"),
    ]


def _answer(result: dict[str, Any]) -> str:
    if result["swizzle"] and result["swizzle"][0]:
        elements, in_bytes = (",".join(map(str, result[key])) for key in ("swizzle", "swizzle_bytes"))
        return f"Swizzle<{elements}> of elements, <{in_bytes}> of bytes"
    if result.get("padding"):
        return f"{result['padding']} bytes of padding a row"
    return ""
