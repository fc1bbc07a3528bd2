"""Rows of what was measured of a GEMM, as columns of a table, and what is to be known beside them."""

from __future__ import annotations

from typing import Any

from ptxlab.experiments.gemm.conclude import differing
from ptxlab.render.blocks import Block, Cell, Table, Text

COLUMNS = (
    *("stage", "shape", "types", "layout", "init", "L2", "ms", "95 %", "TFLOP/s", "% of cuBLAS"),
    *("verdict", "% of ceiling", "MHz", "tensor %", "W", "verified", "max error"),
)

CLOCKS_DIFFER = (
    "At most: at the MHz beside it, which the SMs counted when that row was recorded, or else those of the "
    "rate. TFLOP/s of ceilings move with the clock, FLOP/clock/SM do not."
)
"""What has to be known to compare limits and ceilings of several rows."""


def yes_or_no(found: bool | None) -> str | None:  # noqa: FBT001 - a field of a row, as it stands there
    """Return whether a result is right; None where nobody asked."""
    return None if found is None else "yes" if found else "NO"


def shape_of(row: dict[str, Any]) -> str:
    """Return the sizes: MxNxK."""
    return f"{row['m']}x{row['n']}x{row['k']}"


def label_among(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Return a row's stage and what tells it apart: alone all its options, beside other stages none."""
    same = [each for each in rows if (each["stage"], each["problem"]) == (row["stage"], row["problem"])]
    alone = len(same) == len({each["stage"] for each in rows}) == 1
    return name_of(row) if alone else name_among(row, same)


def name_among(each: dict[str, Any], same: list[dict[str, Any]]) -> str:
    """Return a stage with those of its options in which several points of it differ."""
    return name_of({"stage": each["stage"], "options": differing(each, same)})


def cells_of(each: dict[str, Any], name: str | None = None) -> tuple[Cell, ...]:
    """Return a row as cells below COLUMNS, under its own name or another."""
    share, error = each["percent_of_cublas"], each["max_error"]
    return (
        *(
            name or name_of(each),
            shape_of(each),
            f"{each['dtype']} {each['acc']} {each['out']}",
        ),
        *(each["layout"], each["init"], each["l2"], *time_cells(each)),
        None if share is None else f"{share:.1f}",
        *(each["verdict"], tenths(each.get("percent_of_measured_peak"))),
        *(whole(each["clock_mhz"]), tenths(each.get("percent_of_tensor_peak_at_clock"))),
        whole(each["power_w"]),
        "yes" if each["verified"] else "NO",
        None if error is None else f"{error:.3g}",
    )


def name_of(each: dict[str, Any]) -> str:
    """Return a row's stage and all its options."""
    return " ".join(filter(None, (each["stage"], options_of(each))))


def options_of(each: dict[str, Any]) -> str:
    """Return a row's options as text."""
    return " ".join(f"{k}={v}" for k, v in each.get("options", {}).items())


def time_cells(each: dict[str, Any]) -> tuple[Cell, ...]:
    """Return milliseconds, their interval, and TFLOP/s; dashes where no time was asked for."""
    time = each["milliseconds"]
    if time is None:
        return None, None, None
    tflops = each["tflops"]
    rate = f"{tflops:.1f}" if tflops >= 1 else f"{tflops:.2g}"
    return f"{time['median']:.4g}", f"{time['low']:.4g} to {time['high']:.4g}", rate


def tenths(value: float | None) -> str | None:
    """Return a number with one digit behind the point."""
    return None if value is None else f"{value:.1f}"


def whole(value: float | None) -> int | None:
    """Return a number without its fraction."""
    return None if value is None else round(value)


def held_down(stages: list[dict[str, Any]]) -> list[Block]:
    """Return in how many samples something held the clock down, and what."""
    causes = sorted({cause for each in stages for cause in each["throttle"]})
    counts = [(each["throttled_samples"], each["samples"]) for each in stages if each["throttle"]]
    held, all_of_them = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
    text = f"The clock was held down in {held} of {all_of_them} samples: {', '.join(causes)}. They are kept."
    return [Text(text, "warning")] if causes else []


def clocks(stages: list[dict[str, Any]]) -> list[Block]:
    """Return where the clock comes from, and how far NVML's lies from one counted in the same run."""
    counted = [each for each in stages if each.get("clock_source") == "SM"]
    if counted:
        return [Text(_counted_clocks(counted), "faint")]
    peaks = [each["peak"] for each in stages if each.get("peak") and each["peak"]["clock_mhz"]]
    if not peaks:
        return []
    worst = max(peaks, key=lambda peak: abs(float(peak["clock_mhz"]) - float(peak["sm_mhz"])))
    text = (
        f"NVML's MHz can lie above the clock in a kernel: of the {worst['ceiling']} ceiling it said "
        f"{worst['clock_mhz']:.0f}, and the kernel counted {worst['sm_mhz']:.0f}."
    )
    return [Text(text, "faint")]


def _counted_clocks(stages: list[dict[str, Any]]) -> str:
    """Return what MHz and the share of the tensor cores mean."""
    text = (
        "MHz are what the SMs counted throughout each sample; tensor % is the work of a cycle, of what the "
        "tensor cores can do in one"
    )
    both = [each for each in stages if each["nvml_mhz"]]
    if not both:
        return f"{text}."
    worst = max(both, key=lambda each: abs(float(each["nvml_mhz"]) - float(each["clock_mhz"])))
    told = f"NVML, once a sample, told {worst['nvml_mhz']:.0f} where they counted {worst['clock_mhz']:.0f}"
    return f"{text}. {told} ({worst['stage']})."


def ceilings(found: list[dict[str, Any]]) -> list[Block]:
    """Return what the instructions reached that do nothing but multiply, in the same runs."""
    rows: list[tuple[Cell, ...]] = [
        (
            *(each["ceiling"], each["problem"].partition(" ")[0], each["dtype"], f"{each['tflops']:.1f}"),
            *(f"{each['flop_per_clock_and_sm']:.0f}", f"{each['sm_mhz']:.0f}"),
            *(whole(each["clock_mhz"]), whole(each["power_w"])),
        )
        for each in found
    ]
    columns = (
        "ceiling",
        "beside",
        "type",
        "TFLOP/s",
        "FLOP/clock/SM",
        "MHz in the kernel",
        "MHz by NVML",
        "W",
    )
    return [Table("ceilings: multiplications alone, timed in turn with it", columns, rows)] if rows else []


def first_word(text: str) -> str:
    """Return the sizes of a problem, or the stage of a point that was skipped."""
    return text.partition(" ")[0]
