"""The stages that there are, and what silicon answered to them before."""

from __future__ import annotations

from typing import Any

from ptxlab.errors import PtxlabError
from ptxlab.experiments import recording
from ptxlab.experiments.gemm.stage import GemmStage, climbed
from ptxlab.experiments.gemm.verdict import judged
from ptxlab.experiments.record import Record
from ptxlab.experiments.registry import Entry, find_stage, stage_entries
from ptxlab.toolchain.arch import parse_arch

TYPE_OPTIONS = ("dtype", "acc", "out", "layout")

_NUMBER = int | float
_FIELDS = (
    dict.fromkeys(("stage", "init", "l2", *TYPE_OPTIONS), str)
    | dict.fromkeys(("m", "n", "k"), int)
    | dict.fromkeys(("median", "low", "high", "tflops"), _NUMBER)
    | dict.fromkeys(("percent_of_cublas", "clock_mhz", "power_w", "max_error"), _NUMBER | None)
    | {"verdict": str | None, "verified": bool}
)
"""What a row of a run says that is shown again from a recording, its times among the rest."""


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
            missing = _missing(variant["result"])
            if missing:
                raise recording.damaged(newest.file, f"'{name}' has no {missing}")
            stale = _is_stale(stage, newest, name)
            driver = newest.environment.get("driver")
            said = {"device": newest.device, "driver": driver, "date": newest.date, "stale": stale}
            try:
                rows.append(judged(variant["result"]) | said)
            except (LookupError, TypeError, ValueError, ArithmeticError) as error:
                raise recording.damaged(newest.file, f"'{name}' has no such interval: {error}") from error
    return rows


def without_stale(stage: GemmStage, kept: recording.Recording) -> None:
    """Drop what was recorded with an older kernel or other options: a run at other sizes would leave it."""
    for name in list(kept.variants):
        if _is_stale(stage, kept, name):
            del kept.variants[name]


def _missing(row: dict[str, Any]) -> str:
    """Return the name of a field that a recorded row lacks, or holds as something else; "" if none."""
    times = row.get("milliseconds")
    fields = row | (times if isinstance(times, dict) else {})
    return next((name for name, kind in _FIELDS.items() if not isinstance(fields.get(name, ()), kind)), "")


def _is_stale(stage: GemmStage, kept: recording.Recording, name: str) -> bool:
    """Say whether the kernel has changed since, or the stage has no such point any more.

    Raises:
        ToolError: it is of an architecture that does not exist.

    """
    variant = kept.variants[name]
    try:
        arch = parse_arch(name.partition(" ")[0])
    except PtxlabError as error:
        raise recording.damaged(kept.file, f"'{name}' is of no architecture: {error}") from error
    try:
        return recording.is_stale(stage, stage.case(arch, **variant["params"]), variant)
    except (PtxlabError, TypeError):  # an option, or a value of one, that the stage had then
        return True
