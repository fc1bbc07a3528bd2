"""The stages that there are, and what silicon answered to them before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ptxlab.errors import PtxlabError
from ptxlab.experiments import recording
from ptxlab.experiments.gemm.fields import as_damage, wrong_in_recorded
from ptxlab.experiments.gemm.stage import GemmStage, climbed
from ptxlab.experiments.gemm.verdict import judged
from ptxlab.experiments.record import Record
from ptxlab.experiments.registry import Entry, find_stage, stage_entries
from ptxlab.toolchain.arch import ARCHS

TYPE_OPTIONS = ("dtype", "acc", "out", "layout")


def list_record() -> Record:
    """Return every stage that is found, from the lowest rung up: what it does, its types, its recordings."""
    record = Record()
    rows = {entry.name: _listed(entry) for entry in stage_entries()}
    rungs = climbed([find_stage(name) for name, row in rows.items() if row["oldest_arch"]])
    order = [*(rung.name for rung in rungs), *(name for name, row in rows.items() if not row["oldest_arch"])]
    record.result["available"] = [rows[name] for name in order]
    return record


def _listed(entry: Entry) -> dict[str, Any]:
    """Return a row of the list; a stage that cannot be loaded has the reason instead of the rest."""
    row: dict[str, Any] = {"stage": entry.name, "summary": entry.said.summary, "problem": entry.said.problem}
    try:
        stage = find_stage(entry.name)
        options = stage.options()
        row["below"] = stage.below
        row["types"] = {name: list(options[name].choices) for name in TYPE_OPTIONS}
        row["oldest_arch"] = stage.only or f"sm_{stage.oldest}"
        row["recorded"] = recorded(stage)
    except PtxlabError as error:
        row["problem"] = error.message
    return {"below": "", "types": {}, "oldest_arch": "", "recorded": []} | row


def recorded(stage: GemmStage) -> list[dict[str, Any]]:
    """Return what the newest recording of a stage holds: rows like those of a run.

    Each also says the device, its driver, the date, and whether the kernel has changed since (``stale``); its
    verdicts are those of the rule in force.

    Raises:
        ToolError: a recording is damaged.

    """
    rows = []
    for newest in recording.recordings(stage)[:1]:
        for name, variant in newest.variants.items():
            if damage := damage_of(name, variant):
                raise recording.damaged(newest.file, f"'{name}' {damage}")
            stale = recording.is_past(stage, name, variant)
            driver = newest.environment.get("driver")
            said = {"device": newest.device, "driver": driver, "date": newest.date, "stale": stale}
            rows.append(judged(variant["result"]) | said)
    return rows


def without_stale(stage: GemmStage, kept: recording.Recording) -> None:
    """Drop what was recorded with an older kernel or other options: a run at other sizes would leave it."""
    for name, variant in list(kept.variants.items()):
        if recording.is_past(stage, name, variant):
            del kept.variants[name]


def damage_of(name: str, variant: Mapping[str, Any]) -> str:
    """Return what is wrong with a recorded variant, such as "has no tflops"; "" if nothing is."""
    arch = recording.arch_of(name)
    if arch not in ARCHS:
        return f"is of no architecture; legal: {', '.join(ARCHS)}"
    return as_damage(wrong_in_recorded(variant["result"]))
