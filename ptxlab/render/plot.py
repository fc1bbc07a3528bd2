"""TFLOP/s of a run of ``gemm`` as a picture: by size or stage, with the library and the peak as lines."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ptxlab.errors import MissingError, unknown_name

FORMATS = ("png", "svg", "pdf")
SIZES = ("m", "n", "k")

Series = dict[str, list[tuple[float, float]]]


def check_plot(path: Path) -> None:
    """Ask for what a plot needs, before anything is measured for it.

    Raises:
        UsageError: it is another format.
        MissingError: matplotlib is not here.

    """
    form = _form(path)
    if form not in FORMATS:
        raise unknown_name("format of a plot", form, FORMATS)
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingError("matplotlib is not here", 'pip install "ptxlab[plot]"') from error
    mpl.use("Agg")


def save_plot(document: dict[str, Any], path: Path) -> None:
    """Draw the rows of ``result.stages`` into a file; its suffix says which format.

    Raises:
        MissingError: nothing was timed, or the file cannot be written.

    """
    rows = [row for row in document["result"]["stages"] if row["milliseconds"]]
    if not rows:
        raise MissingError("nothing was timed, so there is nothing to plot")
    picture = io.BytesIO()
    _figure(rows, document["result"]["explanations"]).savefig(picture, format=_form(path), dpi=150)
    try:
        path.write_bytes(picture.getvalue())
    except OSError as error:
        raise MissingError(f"cannot write {path}: {error.strerror or error}") from error


def _form(path: Path) -> str:
    return path.suffix.lower().lstrip(".")


def series(rows: list[dict[str, Any]], x: Callable[[dict[str, Any]], float]) -> Series:
    """Return the lines of the picture: each stage, and each library that ran beside one (the best of it)."""
    lines: Series = {}
    library: dict[str, dict[float, float]] = {}
    for row in rows:
        options = " ".join(f"{name}={value}" for name, value in row["options"].items())
        lines.setdefault(f"{row['stage']} {options}".strip(), []).append((x(row), row["tflops"]))
        if row["cublas"]:
            best = library.setdefault(row["cublas"]["name"], {})
            best[x(row)] = max(best.get(x(row), 0.0), row["cublas"]["tflops"])
    drawn = {name: list(values.items()) for name, values in library.items()}
    return {name: sorted(values) for name, values in (lines | drawn).items()}


def varied(rows: list[dict[str, Any]]) -> str:
    """Return the name of what the picture goes along: "m = n = k", a size, or "" for one problem."""
    several = [name for name in SIZES if len({row[name] for row in rows}) > 1]
    if all(row["m"] == row["n"] == row["k"] for row in rows) and several:
        return "m = n = k"
    return several[0] if several else ""


def _figure(rows: list[dict[str, Any]], explanations: list[dict[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.add_subplot()
    along = varied(rows)
    if along:
        _lines(axes, rows, along)
    else:
        _bars(axes, rows)
    peak = max((row["tflops"] for row in _tensor_rows(explanations)), default=None)
    if peak:
        axes.axhline(peak, color="black", linewidth=1, linestyle=":", label=f"data sheet peak, {peak:.0f}")
    axes.set_ylabel("TFLOP/s")
    axes.set_ylim(bottom=0)
    axes.set_axisbelow(True)
    axes.grid(axis="y", alpha=0.3)
    types = sorted({f"{row['dtype']} {row['layout']}, {row['acc']} sums, {row['out']} out" for row in rows})
    inputs = sorted({f"{row['init']}, {row['l2']} L2" for row in rows})
    axes.set_title(f"{'; '.join(types)} ({'; '.join(inputs)})", fontsize=10)
    figure.legend(fontsize=8, loc="outside lower center", ncols=3)
    return figure


def _tensor_rows(explanations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the tensor cores permit where no tile is padded: their whole rate."""
    rates = [row for each in explanations for row in each["bounds"] if row["key"].startswith("tensor")]
    return [{"tflops": row["per_second"] / 1e12} for row in rates if row["per_second"]]


def _lines(axes: Any, rows: list[dict[str, Any]], along: str) -> None:
    name = "m" if along == "m = n = k" else along
    libraries = {row["cublas"]["name"] for row in rows if row["cublas"]}
    for label, values in series(rows, lambda row: float(row[name])).items():
        look = {"color": "black", "linestyle": "--"} if label in libraries else {"marker": "o"}
        axes.plot(*zip(*values, strict=True), label=label, **look)
    ticks = sorted({row[name] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(along)


def _bars(axes: Any, rows: list[dict[str, Any]]) -> None:
    """Draw one problem: a bar for each point, the library as a line across."""
    libraries = {row["cublas"]["name"] for row in rows if row["cublas"]}
    found = {name: values[0][1] for name, values in series(rows, lambda _: 0.0).items()}
    bars = [name for name in found if name not in libraries]
    axes.bar(bars, [found[name] for name in bars])
    axes.tick_params(axis="x", rotation=30 if len(bars) > 3 else 0)
    for name in libraries:
        axes.axhline(found[name], color="black", linestyle="--", label=f"{name}, {found[name]:.0f}")
    axes.set_xlabel(f"{rows[0]['m']}x{rows[0]['n']}x{rows[0]['k']}")
