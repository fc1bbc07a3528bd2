"""What README.md says of the ladder, and its picture, made of recordings.

Written by python tests/gemm/readme_ladder.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import readme_hopper
from readme_rows import COLD, Row, problem, quoted, source, table

from ptxlab.experiments.gemm.stage import GemmStage, climbed
from ptxlab.experiments.registry import find_stage, stage_entries
from ptxlab.render.plot import check_plot, save_plot

ROOT = Path(__file__).parents[2]
README, PICTURE = ROOT / "README.md", ROOT / "kernels" / "gemm" / "ladder.svg"
BEGIN, END = "<!-- the ladder, from its recordings -->\n", "<!-- end of the ladder -->\n"
ARCH, SIZES = "sm_90a", (1024, 2048, 4096, 8192)
DTYPES = ("bf16", "f16")
NONE = "Not recorded yet: `ptxlab gemm --ladder --record` on a GPU.\n"


def rungs() -> list[GemmStage]:
    """Return the stages that the recorded chip has and that take the types, from the lowest rung up."""
    stages = [find_stage(entry.name) for entry in stage_entries()]
    return [
        stage
        for stage in climbed(stages)
        if stage.only in ("", ARCH) and set(DTYPES) <= set(stage.options()["dtype"].choices)
    ]


def by_size(dtype: str) -> dict[str, dict[int, Row]]:
    """Return for each rung its rows at the sizes at which all were recorded in one run, with a cold L2."""
    names = {size: problem(size, size, size, dtype, dtype) for size in SIZES}
    rows = {stage.name: quoted(stage.name) for stage in rungs()}
    sizes = [
        size for size in SIZES if _in_one_run([found.get((names[size], COLD)) for found in rows.values()])
    ]
    return {stage: {size: found[names[size], COLD] for size in sizes} for stage, found in rows.items()}


def _in_one_run(rows: list[Row | None]) -> bool:
    """Say whether all rungs have a row and were timed beside the very same runs of the libraries."""
    first = rows[0]
    return first is not None and all(row and row["libraries"] == first["libraries"] for row in rows)


def ladder() -> str:
    """Return the picture of the rungs, and a table for each type."""
    found = [(dtype, by_size(dtype)) for dtype in DTYPES]
    tables = [_table(dtype, rows) for dtype, rows in found if any(rows.values())]
    picture = f"![TFLOP/s of each rung by size]({PICTURE.relative_to(ROOT).as_posix()})\n"
    return "\n".join([picture, *tables]) if tables else NONE


def _table(dtype: str, rows: dict[str, dict[int, Row]]) -> str:
    """Return a line for each rung, and for what was measured beside them."""
    shown = [row for found in rows.values() for row in found.values()]
    sizes = sorted({row["m"] for row in shown})
    lines = [["stage", *(f"{size}³" for size in sizes)]]
    lines += [[stage, *(_cell(row) for row in found.values())] for stage, found in rows.items()]
    beside = _beside(shown)
    lines += [[name, *(beside[name].get(size, "-") for size in sizes)] for name in beside]
    shares = "% of the faster library in its run, % of the ceiling of its instruction"
    return f"{dtype} tn, cold: TFLOP/s ({shares}).\n{source(shown)}.\n{_held_down(shown)}\n{table(lines)}"


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


def _cell(row: dict[str, Any]) -> str:
    shares = [row["percent_of_cublas"], row["percent_of_measured_peak"]]
    told = ", ".join("-" if share is None else f"{share:.0f}" for share in shares)
    return f"{row['tflops']:.0f} ({told})"


def written(text: str) -> str:
    """Return the README with what today's recordings say between the marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    said = "\n".join([ladder(), *readme_hopper.blocks()])
    return f"{before}{BEGIN}{said}{END}{after}"


def document() -> dict[str, Any]:
    """Return what the picture shows, as a run would that had just measured it."""
    rows = [row for found in by_size(DTYPES[0]).values() for row in found.values()]
    return {"params": {}, "result": {"stages": rows}}


def main() -> None:
    """Write the README, and the picture where there is something to draw."""
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
    if document()["result"]["stages"]:
        check_plot(PICTURE)
        save_plot(document(), PICTURE)


if __name__ == "__main__":
    main()
