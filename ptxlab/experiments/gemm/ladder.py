"""The ladder: what each rung gains over the one below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ptxlab.bench import stats
from ptxlab.device.job import JobResult
from ptxlab.experiments.gemm.measure import TIMING, Trial, side
from ptxlab.experiments.gemm.stage import GemmStage, below


def gains(
    trial: Trial, rows: Sequence[Mapping[str, Any]], result: JobResult, known: Mapping[str, GemmStage]
) -> list[dict[str, Any] | None]:
    """Return for each point of a run what it gains over the next rung below that ran beside it.

    ``percent`` is how much more it does in the same time, ``low`` and ``high`` the ends of the interval; the
    gain is ``real`` when the verdict is not "indistinguishable". Where several points of a rung ran, the
    first stands for it. What is not verified neither gains nor is gained over.
    """
    timings = result.timings.get(TIMING, {})
    first: dict[str, int] = {}
    for index, entrant in enumerate(trial.entrants):
        if rows[index]["verified"]:
            first.setdefault(entrant.stage.name, index)
    return [
        _gain(timings, index, lower, first[lower.name])
        if lower and timings and rows[index]["verified"]
        else None
        for index, lower in enumerate(_lower(trial, known, first))
    ]


def _lower(trial: Trial, known: Mapping[str, GemmStage], ran: Mapping[str, int]) -> list[GemmStage | None]:
    """Return for each point the next rung below that ran."""
    return [
        next((each for each in below(entrant.stage, known) if each.name in ran), None)
        for entrant in trial.entrants
    ]


def _gain(timings: Mapping[str, Any], own: int, lower: GemmStage, other: int) -> dict[str, Any]:
    compared = stats.compare(timings[side(own)].milliseconds, timings[side(other)].milliseconds)
    return {
        "over": lower.name,
        "percent": 100 * (1 / compared.ratio - 1),
        "low": 100 * (1 / compared.interval.high - 1),
        "high": 100 * (1 / compared.interval.low - 1),
        "noise_floor_percent": 100 * compared.noise_floor,
        "verdict": compared.verdict,
        "real": compared.verdict != "indistinguishable",
    }
