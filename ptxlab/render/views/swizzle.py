"""What ``ptxlab swizzle`` shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ptxlab.render.blocks import Block, Cell, Table, Text, drawn


def view(document: dict[str, Any]) -> list[Block]:
    """Return the answer in its units, the cost before and after, and the sentence."""
    result = document["result"]
    if "converted" in result:
        return [
            Text(f"Swizzle {document['params']['swizzle']} of {document['params']['from']}", "heading"),
            _conclusion(document),
            _table("one swizzle in several units", result["converted"]),
            *_pictures(result),
        ]
    return [
        Text(_title(document), "heading"),
        _conclusion(document),
        *([_table("busiest instruction by padding", result["tried"])] if "tried" in result else []),
        _costs(document),
        *([_table("by access", result["accesses"])] if len(result["accesses"]) > 1 else []),
        Text(_summed(result), "faint"),
        *[
            Text(f"{name} is a model: no counter tells its wavefronts.", "warning")
            for name in result["modelled"]
        ],
        *_failures(document),
        *_pictures(result),
        *([Text(result["cuda"])] if "cuda" in result else []),
    ]


def _summed(result: dict[str, Any]) -> str:
    """Say what the sums are over; expressions may leave elements out, and use others more than once."""
    several = "" if result["instructions"] == 1 else "s"
    whole = ", which use the whole tile once" if result["whole_tile"] else ""
    return f"Summed over {result['instructions']} warp instruction{several}{whole}."


def _pictures(result: dict[str, Any]) -> list[Block]:
    """Return what is drawn into files."""
    return [replace(drawn(each), media=("picture",)) for each in result["pictures"]]


def _failures(document: dict[str, Any]) -> list[Block]:
    """Say why the exit code is 1, unless the conclusion says it, and what was not done."""
    said = document["result"]["conclusion"]
    failed = [each for each in document["checks"] if not each["ok"] and each["detail"] != said]
    return [
        *(Text(f"FAILED: {each['name']}: {each['detail']}", "bad") for each in failed),
        *(Text(f"not done: {each['case']}: {each['reason']}", "faint") for each in document["skipped"]),
    ]


def _conclusion(document: dict[str, Any]) -> Text:
    """Return the sentence; where checks failed, what they say."""
    failed = [f"{each['name']} FAILED: {each['detail']}" for each in document["checks"] if not each["ok"]]
    return Text("; ".join(failed), "bad") if failed else Text(document["result"]["conclusion"], "conclusion")


def _table(title: str, rows: list[dict[str, Cell]]) -> Table:
    return Table(title, tuple(rows[0]), [tuple(row.values()) for row in rows])


def _title(document: dict[str, Any]) -> str:
    params = document["params"]
    used = " and ".join([params["access"], *params["also"]])
    return f"{params['rows']}x{params['cols']} {params['dtype']} in {params['order']} order, {used}"


def _costs(document: dict[str, Any]) -> Table:
    result = document["result"]
    rows: list[tuple[Cell, ...]] = [
        (name, each["wavefronts"], each["ideal"], each["conflicts"])
        for name, each in (("as it is", result["naive"]), (_answer(result), result))
        if name
    ]
    return Table("wavefronts", ("layout", "wavefronts", "ideal", "conflicts"), rows)


def _answer(result: dict[str, Any]) -> str:
    if result.get("swizzle") and result["swizzle"][0]:
        forms = (",".join(map(str, result[key])) for key in ("swizzle", "swizzle_bytes", "swizzle_bits"))
        elements, in_bytes, in_bits = forms
        return f"Swizzle<{elements}> of elements, <{in_bytes}> of bytes, <{in_bits}> of bits"
    if result.get("padding"):
        return f"{result['padding']} bytes of padding a row"
    return ""
