"""Which recorded rows README.md quotes: right ones of the kernels of today, on random normal data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ptxlab.experiments.gemm.catalogue import recorded
from ptxlab.experiments.gemm.problem import Problem
from ptxlab.experiments.registry import find_stage

Row = dict[str, Any]

COLD, HOT = "cold", "hot"


def problem(m: int, n: int, k: int, dtype: str, out: str, *, promoted: bool = False) -> str:
    """Return the name of a problem whose operands are both contiguous in k."""
    return str(Problem(m, n, k, dtype, "f32", out, "tn", promoted=promoted))


def quoted(stage: str) -> dict[tuple[str, str], Row]:
    """Return the rows of a stage by problem and state of the L2; of several ways to do it the fastest."""
    rows = [row for row in recorded(find_stage(stage)) if _counts(row)]
    rows.sort(key=lambda row: float(row["tflops"]))
    return {(row["problem"], row["l2"]): row for row in rows}


def _counts(row: Row) -> bool:
    return row["verified"] and not row["stale"] and row["init"] == "normal"


def source(rows: Iterable[Row]) -> str:
    """Return on which card, with which driver and when rows were recorded, and how fast the SMs ran."""
    rows = list(rows)
    first, clocks = rows[0], [row["clock_mhz"] for row in rows if row["clock_mhz"]]
    said = [first["device"], f"driver {first['driver']}", first["date"]]
    return ", ".join([*said, f"{min(clocks):.0f} to {max(clocks):.0f} MHz"] if clocks else said)


def table(lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; the first line is its head."""
    head, *body = lines
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *body))


def cell(row: Row | None) -> str:
    """Return TFLOP/s, percent of the faster library, and MHz."""
    if row is None:
        return "-"
    share = row["percent_of_cublas"]
    told = f"{row['tflops']:.0f} ({'-' if share is None else f'{share:.1f}'})"
    return told + (f" {row['clock_mhz']:.0f}" if row["clock_mhz"] else "")
