"""The table of the ladder in README.md, made of recordings: python tests/gemm/readme_ladder.py writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ptxlab.experiments.gemm.catalogue import recorded
from ptxlab.experiments.gemm.stage import GemmStage, climbed
from ptxlab.experiments.registry import find_stage, stage_entries

README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- the ladder, from its recordings -->\n", "<!-- end of the ladder -->\n"
ARCH, SIZES, DTYPE = "sm_90a", (2048, 4096, 8192), "bf16"
NONE = "Not recorded yet: `ptxlab gemm --ladder --record` on a GPU.\n"


def rungs() -> list[GemmStage]:
    """Return the stages that the recorded chip has and that take the type, from the lowest rung up."""
    stages = [find_stage(entry.name) for entry in stage_entries()]
    return [
        stage
        for stage in climbed(stages)
        if stage.only in ("", ARCH) and DTYPE in stage.options()["dtype"].choices
    ]


def table() -> str:
    """Return what stands between the marks."""
    rows = {stage.name: {row["m"]: row for row in recorded(stage) if _counts(row)} for stage in rungs()}
    sizes = [size for size in SIZES if all(size in found for found in rows.values())]
    if not sizes:
        return NONE
    shown = [found[size] for found in rows.values() for size in sizes]
    first = shown[0]
    said = f"{first['device']}, {first['date']}, {DTYPE} tn, cold; TFLOP/s (% of the faster library, % of the"
    head = ["stage", *(f"{size}³" for size in sizes)]
    lines = [head, ["---"] * len(head)]
    lines += [[name, *(_cell(found[size]) for size in sizes)] for name, found in rows.items()]
    beside = _beside(shown)
    lines += [[name, *(beside[name].get(size, "-") for size in sizes)] for name in beside]
    body = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"{said}\nceiling of its instruction).\n{_held_down(shown)}\n{body}"


def _beside(rows: list[dict[str, Any]]) -> dict[str, dict[int, str]]:
    """Return what libraries and ceilings reached in the same runs, by name and size."""
    found: dict[str, dict[int, str]] = {}
    for row in rows:
        rates = {each["name"].partition(" (")[0]: each["tflops"] for each in row["libraries"]}
        for name, tflops in sorted(rates.items(), reverse=True):
            found.setdefault(name, {})[row["m"]] = f"{tflops:.0f}"
    for row in rows:
        if peak := row["peak"]:
            name = f"ceiling {peak['ceiling']}, {peak['dtype']}"
            found.setdefault(name, {})[row["m"]] = f"{peak['tflops']:.0f}"
    return found


def _held_down(rows: list[dict[str, Any]]) -> str:
    causes = sorted({cause for row in rows for cause in row["throttle"]})
    held, samples = (sum(row[name] for row in rows) for name in ("throttled_samples", "samples"))
    return f"The clock was held down in {held} of {samples} samples: {', '.join(causes)}.\n" if causes else ""


def _counts(row: dict[str, Any]) -> bool:
    square = row["m"] == row["n"] == row["k"] and row["layout"] == "tn" and row["init"] == "normal"
    return square and row["dtype"] == row["out"] == DTYPE and not row["stale"]


def _cell(row: dict[str, Any]) -> str:
    shares = [row["percent_of_cublas"], row["percent_of_measured_peak"]]
    told = ", ".join("-" if share is None else f"{share:.0f}" for share in shares)
    return f"{row['tflops']:.0f} ({told})"


def written(text: str) -> str:
    """Return the README with the table of today's recordings."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
