"""What recorded intervals say by the rule in force: recordings outlive the rule they were made under."""

from __future__ import annotations

from typing import Any

from ptxlab.bench import stats


def judged(row: dict[str, Any]) -> dict[str, Any]:
    """Return a recorded row with the verdicts of the rule in force, drawn from the intervals that it holds.

    One that was recorded without the interval of its share of the library keeps a difference that an older,
    stricter rule found real; what that rule could not tell is not known.
    """
    gain, share = row.get("gain"), row.get("percent_interval")
    if gain:
        ratios = [1 / (1 + gain[end] / 100) for end in ("high", "low")]
        row = row | {"gain": gain | _said_by(*ratios)}
    if share:
        ratios = [100 / share[end] for end in ("high", "low")]
        return row | {name: value for name, value in _said_by(*ratios).items() if name != "real"}
    kept = row.get("verdict")
    return row | {"verdict": None if kept == "indistinguishable" else kept, "noise_floor_percent": None}


def _said_by(low: float, high: float) -> dict[str, Any]:
    """Return what an interval of ratios of times says; as few samples as say nothing are not recorded."""
    verdict = stats.judge(low, high)
    floor = 100 * stats.noise_floor(low, high)
    return {"noise_floor_percent": floor, "verdict": verdict, "real": verdict != "indistinguishable"}
