"""What each kernel's header says was measured, made of recordings: python tests/gemm/headers.py writes it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

from readme_rows import COLD, Row, problem, quoted

from ptxlab.experiments.gemm.problem import TYPES
from ptxlab.experiments.gemm.stage import GemmStage
from ptxlab.experiments.registry import find_stage, stage_entries

BEGIN, END = "// Measured (", "\n//\n"
"""Around the paragraph; others stand before and behind it."""

WIDTH = 110

SIZES, DTYPE, ALSO = (2048, 4096, 8192), "bf16", "f16"


def measured() -> dict[Path, list[Row]]:
    """Return the source of each stage whose kernel of today was recorded, and a row for each size."""
    stages = (find_stage(entry.name) for entry in stage_entries())
    found = {stage.source: _rows(stage) for stage in stages}
    return {source: rows for source, rows in found.items() if rows}


def _rows(stage: GemmStage) -> list[Row]:
    """Return a row for each size, and for each again where sums of 8-bit floats were promoted."""
    legal = stage.options()["dtype"].choices
    dtype = DTYPE if DTYPE in legal else str(legal[0])
    rows, out = quoted(stage.name), TYPES[dtype].out
    names = [problem(n, n, n, dtype, out, promoted=each) for each in (False, True) for n in SIZES]
    names += [problem(n, n, n, ALSO, ALSO) for n in SIZES if ALSO in legal]
    return [rows[name, COLD] for name in names if (name, COLD) in rows]


def written(text: str, rows: list[Row]) -> str:
    """Return a kernel with what the rows say; its header must have such a paragraph."""
    before, begin, rest = text.partition(BEGIN)
    assert begin, f"no paragraph begins with '{BEGIN}'"
    _, _, after = rest.partition(END)
    return f"{before}{paragraph(rows)}{END}{after}"


def paragraph(rows: list[Row]) -> str:
    """Return what the rows say, as lines of a comment."""
    first = rows[0]
    device = first["device"].removeprefix("NVIDIA ")
    beside = "all rungs in turn in one run" if first["dtype"] == DTYPE else "in turn with the libraries"
    how = f"{first['dtype']} tn, normal values, cold, {beside}"
    promoted = [row for row in rows if "promoted" in row["problem"]]
    also = [row for row in rows if row["dtype"] != first["dtype"]]
    said = _said([row for row in rows if row not in promoted and row not in also])
    said += [f"promoted {each}" if i == 0 else each for i, each in enumerate(_said(promoted))]
    text = f"Measured ({device}, {first['date']}; {how}): {'; '.join(said)}."
    if also:
        text += f" With {also[0]['dtype']} {'; '.join(_said(_of_the_ladder(also)))}."
    return textwrap.fill(text, WIDTH, initial_indent="// ", subsequent_indent="// ", break_on_hyphens=False)


def _of_the_ladder(rows: list[Row]) -> list[Row]:
    """Return those that were timed beside the rung below, if there are any: the others are of another run."""
    return [row for row in rows if row["gain"]] or rows


def _said(rows: list[Row]) -> list[str]:
    """Return what is to be said of one problem at several sizes."""
    if not rows:
        return []
    first = rows[0]
    sizes, tflops = _each(rows, lambda row: f"{row['m']}^3"), _each(rows, lambda row: f"{row['tflops']:.0f}")
    said = [f"at {sizes} {tflops} TFLOP/s"]
    if first["percent_of_cublas"]:
        said.append(f"{_each(rows, _percent('percent_of_cublas'))} % of the faster library")
    if first["peak"]:
        share = _each(rows, _percent("percent_of_measured_peak"))
        said.append(f"{share} % of the ceiling of {first['peak']['ceiling']}")
    if first["gain"]:
        said.append(f"over {first['gain']['over']} {_each(rows, lambda row: _gain(row['gain']))} %")
    return said


def _each(rows: list[Row], say: Callable[[Row], str]) -> str:
    """Return what is to be said of each row: "1, 2 and 3"."""
    *others, last = map(say, rows)
    return f"{', '.join(others)} and {last}" if others else last


def _percent(name: str) -> Callable[[Row], str]:
    return lambda row: f"{row[name]:.0f}"


def _gain(gain: Row) -> str:
    """Return the percent of a gain, which may be no more than noise."""
    return f"{gain['percent']:+.1f}" + ("" if gain["real"] else " (noise)")


def main() -> None:
    """Write the headers."""
    texts = {source: written(source.read_text(encoding="utf-8"), rows) for source, rows in measured().items()}
    for source, text in texts.items():
        source.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
