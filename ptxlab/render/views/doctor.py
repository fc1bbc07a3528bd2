"""What ``ptxlab doctor`` shows."""

from __future__ import annotations

from typing import Any

from ptxlab.render.blocks import Block, Cell, Table, Text


def view(document: dict[str, Any]) -> list[Block]:
    """Return the verdict, the parts that are here, what was tried with them, and the variables."""
    result = document["result"]
    parts: list[tuple[Cell, ...]] = [
        (row["name"], row["status"], row["version"], row["found_via"], row["path"]) for row in result["tools"]
    ]
    blocks: list[Block] = [
        _verdict(document),
        Table("parts", ("part", "status", "version", "found via", "path"), parts),
    ]
    mends: list[tuple[Cell, ...]] = [(row["name"], row["hint"]) for row in result["tools"] if row["hint"]]
    if mends:
        blocks.append(Table("what would mend or extend it", ("part", "command or reason"), mends))
    tried: list[tuple[Cell, ...]] = [
        (check["name"], "ok" if check["ok"] else "FAILED", check["detail"]) for check in document["checks"]
    ]
    tried += [(skip["case"], "skipped", skip["reason"]) for skip in document["skipped"]]
    blocks.append(Table("tried", ("step", "result", "detail"), tried))
    variables: list[tuple[Cell, ...]] = [
        (each["name"], each["type"], each["meaning"], each["value"])
        for each in result["environment_variables"]
    ]
    columns = ("variable", "type", "meaning", "value")
    blocks.append(Table("environment variables that ptxlab reads", columns, variables))
    return blocks


def _verdict(document: dict[str, Any]) -> Text:
    failed = [check["name"] for check in document["checks"] if not check["ok"]]
    missing = [row["name"] for row in document["result"]["tools"] if row["status"] == "missing"]
    if failed:
        return Text(f"Not well: {', '.join(failed)} failed.", "bad")
    if missing:
        return Text(f"Not complete: {', '.join(missing)} missing.", "bad")
    if document["result"]["device"] is None:
        return Text("Well, without a GPU: kernels compile and disassemble; models answer.", "good")
    return Text("Well: a kernel was compiled, disassembled and launched, and its result is right.", "good")
