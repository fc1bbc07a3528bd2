"""The same measurement several times: how much it spreads, and whether the order of the sides matters."""

from __future__ import annotations

from typing import Any

from ptxlab.bench import stats

ORDER_EFFECT_PERCENT = 3.0
"""A larger difference between the two orders is told: then something of one side lasts into the other."""

FORWARD, REVERSED = "forward", "reversed"


def order_of(index: int, order: str) -> str:
    """Return the order of one of the runs: with "reversed" every other one runs backwards."""
    return REVERSED if order == REVERSED and index % 2 else FORWARD


def repeated(runs: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return what several runs of a point say together; ``runs`` holds the order and the row of each.

    ``spread_percent`` is how much longer the slowest took than the fastest, ``order_effect_percent`` how much
    longer the reversed runs took than the others (None where all ran one way), ``failed`` counts from 1 and
    names the runs whose result was not verified.
    """
    medians = [float(row["milliseconds"]["median"]) for _, row in runs]
    by_order = {
        name: [median for (order, _), median in zip(runs, medians, strict=True) if order == name]
        for name in (FORWARD, REVERSED)
    }
    effect = None
    if by_order[REVERSED]:
        effect = 100 * (stats.median(by_order[REVERSED]) / stats.median(by_order[FORWARD]) - 1)
    said = ("milliseconds", "tflops", "percent_of_cublas", "verdict", "verified", "clock_mhz", "power_w")
    return {
        "runs": [{"order": order} | {name: row[name] for name in said} for order, row in runs],
        "spread_percent": 100 * (max(medians) / min(medians) - 1),
        "order_effect_percent": effect,
        "failed": [number for number, (_, row) in enumerate(runs, 1) if not row["verified"]],
    }


def order_note(row: dict[str, Any]) -> str:
    """Return what has to be said where the order of the sides matters."""
    effect = row["repeats"]["order_effect_percent"] if row["repeats"] else None
    if effect is None or abs(effect) < ORDER_EFFECT_PERCENT:
        return ""
    changed = f"{abs(effect):.1f} % {'more' if effect > 0 else 'less'} time"
    return (
        f"{row['stage']} {row['problem']} takes {changed} when the sides run in the opposite order: "
        "warm up longer (--warmup)"
    )
