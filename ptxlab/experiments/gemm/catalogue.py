"""The stages that there are, and what silicon answered to them before."""

from __future__ import annotations

from typing import Any

from ptxlab.errors import PtxlabError
from ptxlab.experiments import recording
from ptxlab.experiments.gemm.stage import GemmStage
from ptxlab.experiments.record import Record
from ptxlab.experiments.registry import Entry, find_stage, stage_entries

TYPE_OPTIONS = ("dtype", "acc", "out", "layout")


def list_record() -> Record:
    """Return every stage that is found: what it does, its legal types, and what was recorded."""
    record = Record()
    record.result["available"] = [_listed(entry) for entry in stage_entries()]
    return record


def _listed(entry: Entry) -> dict[str, Any]:
    """Return a row of the list; a stage that cannot be loaded has the reason instead of the rest."""
    row: dict[str, Any] = {"stage": entry.name, "summary": entry.summary, "problem": entry.problem}
    try:
        stage = find_stage(entry.name)
        options = stage.options()
        row["types"] = {name: list(options[name].choices) for name in TYPE_OPTIONS}
        row["oldest_arch"] = f"sm_{stage.oldest}"
        row["recorded"] = recorded(stage)
    except PtxlabError as error:
        row["problem"] = error.message
    return {"types": {}, "oldest_arch": "", "recorded": []} | row


def recorded(stage: GemmStage) -> list[dict[str, Any]]:
    """Return what the newest recording of a stage holds: rows like those of a run.

    Each also says the device, the date, and whether the kernel has changed since (``stale``).

    Raises:
        ToolError: a recording is damaged.

    """
    rows = []
    for newest in recording.recordings(stage)[:1]:
        for name, variant in newest.variants.items():
            case = stage.case(name.partition(" ")[0], **variant["params"])
            stale = recording.is_stale(stage, case, variant)
            rows.append({**variant["result"], "device": newest.device, "date": newest.date, "stale": stale})
    return rows
