"""TFLOP/s of a run of ``gemm`` as a picture: by size or stage, with libraries and ceilings as lines."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ptxlab.errors import MissingError, unknown_name

FORMATS = ("png", "svg", "pdf")
SIZES = ("m", "n", "k")

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A100", "#666666", "#882255")
"""Told apart by most colour-blind people (Okabe and Ito; the yellow is darker, the black a grey).

The second time round their markers are hollow.
"""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")

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
    """Draw what was timed, or recordings of it, into a file; its suffix says which format.

    Raises:
        MissingError: neither is there, no result is verified, or the file cannot be written.

    """
    rows, left_out = drawn(document), unverified(document)
    if left_out and not rows:
        raise MissingError("no result is verified: there is nothing to plot")
    if not rows:
        raise MissingError("nothing was timed, and no recording answers the same: there is nothing to plot")
    picture = io.BytesIO()
    _figure(rows, left_out).savefig(picture, format=_form(path), dpi=150)
    try:
        path.write_bytes(picture.getvalue())
    except OSError as error:
        raise MissingError(f"cannot write {path}: {error.strerror or error}") from error


def _form(path: Path) -> str:
    return path.suffix.lower().lstrip(".")


def drawn(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a picture, all with right results: what was timed, or else recordings of that."""
    result, params = document["result"], document["params"]
    if timed := _timed(document):
        return [row for row in timed if row["verified"]]
    asked = [(each["stage"], each["problem"], each["options"]) for each in result["explanations"]]
    return [
        row
        for row in result["recorded"]
        if (row["stage"], row["problem"], row["options"]) in asked
        and not row["stale"]
        and row["verified"]
        and all(row[name] == params[name] for name in ("init", "l2"))
    ]


def unverified(document: dict[str, Any]) -> list[str]:
    """Return what was timed and is not drawn: how long a wrong result took says nothing."""
    wrong = [row for row in _timed(document) if not row["verified"]]
    return [f"{row['stage']} {row['m']}x{row['n']}x{row['k']}" for row in wrong]


def _timed(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in document["result"]["stages"] if row["milliseconds"]]


def series(rows: list[dict[str, Any]], x: Callable[[dict[str, Any]], float]) -> Series:
    """Return the lines of the stages, named by what differs: the stage, types, layout, its own options.

    An option tells points of one problem apart; one that follows the size, as a plan does, makes no new line.
    """
    varying = [name for name in ("dtype", "acc", "out", "layout") if len({row[name] for row in rows}) > 1]
    own = _differing(rows)
    lines: Series = {}
    for row in rows:
        options = [f"{name}={row['options'][name]}" for name in own[row["stage"]]]
        label = " ".join((row["stage"], *(row[name] for name in varying), *options))
        lines.setdefault(label, []).append((x(row), row["tflops"]))
    return {name: sorted(values) for name, values in lines.items()}


def _differing(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return for each stage the options in which its points of one problem differ."""
    together: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        together.setdefault((row["stage"], row["problem"]), []).append(row["options"])
    found: dict[str, dict[str, None]] = {stage: {} for stage, _ in together}
    for (stage, _), options in together.items():
        differ = [name for name in options[0] if len({each[name] for each in options}) > 1]
        found[stage] |= dict.fromkeys(differ)
    return {stage: list(names) for stage, names in found.items()}


def limits(rows: list[dict[str, Any]], x: Callable[[dict[str, Any]], float]) -> Series:
    """Return the lines that stages are held against: each library, and each ceiling, that ran beside them.

    Of several runs at one place the best counts. A library is told without its algorithm, which may differ.
    """
    best: dict[str, dict[float, float]] = {}
    for row in rows:
        right = [each for each in row["libraries"] if each["verified"]]
        found = {each["name"].partition(", ")[0]: each["tflops"] for each in right}
        if peak := row["peak"]:
            found[f"ceiling of {peak['ceiling']}"] = peak["tflops"]
        for name, tflops in found.items():
            places = best.setdefault(name, {})
            places[x(row)] = max(places.get(x(row), 0.0), tflops)
    return {name: sorted(values.items()) for name, values in best.items()}


def varied(rows: list[dict[str, Any]]) -> str:
    """Return the name of what the picture goes along: "m = n = k", a size, or "" for one problem."""
    several = [name for name in SIZES if len({row[name] for row in rows}) > 1]
    if all(row["m"] == row["n"] == row["k"] for row in rows) and several:
        return "m = n = k"
    return several[0] if several else ""


def _figure(rows: list[dict[str, Any]], left_out: list[str]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5.5), layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    along = varied(rows)
    if along:
        _lines(axes, rows, along)
    else:
        _bars(axes, rows)
    axes.set_axisbelow(True)
    axes.grid(axis="y" if along else "x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("\n".join([*_title(rows), *_missing(left_out)]), fontsize=10)
    figure.legend(fontsize=8, loc="outside right upper", frameon=False)
    return figure


def _title(rows: list[dict[str, Any]]) -> list[str]:
    """Return a line for each combination of types, and one for each recording that is shown."""
    types = {
        f"{row['dtype']} {row['layout']}, {row['acc']} sums, {row['out']} out "
        f"({row['init']} data, {row['l2']} L2)"
        for row in rows
    }
    recordings = {f"recorded on an {row['device']}, {row['date']}" for row in rows if "date" in row}
    return [*sorted(types), *sorted(recordings)]


def _missing(left_out: list[str]) -> list[str]:
    """Return a line for what is not drawn, if there is such."""
    told = left_out[0] if len(left_out) == 1 else f"{len(left_out)} results"
    return [f"not verified and not drawn: {told}"] if left_out else []


def _lines(axes: Any, rows: list[dict[str, Any]], along: str) -> None:
    """Draw several problems: a line for each stage, and for what it is held against."""
    name = "m" if along == "m = n = k" else along

    def x(row: dict[str, Any]) -> float:
        return float(row[name])

    for index, (label, values) in enumerate(series(rows, x).items()):
        color, marker = COLORS[index % len(COLORS)], MARKERS[index % len(MARKERS)]
        inside = color if index // len(COLORS) % 2 == 0 else "white"
        axes.plot(*zip(*values, strict=True), label=label, color=color, marker=marker, markerfacecolor=inside)
    for index, (label, values) in enumerate(limits(rows, x).items()):
        axes.plot(*zip(*values, strict=True), label=label, color="black", **_style(index))
    ticks = sorted({row[name] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(along)
    axes.set_ylabel("TFLOP/s")
    axes.set_ylim(bottom=0)


def _bars(axes: Any, rows: list[dict[str, Any]]) -> None:
    """Draw one problem: a bar for each point, a line across for what it is held against."""
    names = list(series(rows, lambda _: 0.0))
    values = [max(y for _, y in points) for points in series(rows, lambda _: 0.0).values()]
    bars = axes.barh(names, values, color=COLORS[0])
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # no line runs through a number
    axes.bar_label(bars, fmt="%.0f", padding=3, fontsize=8, bbox=ground)
    axes.invert_yaxis()  # the first rung on top
    for index, (label, ((_, tflops), *_rest)) in enumerate(limits(rows, lambda _: 0.0).items()):
        axes.axvline(tflops, color="black", label=f"{label}, {tflops:.0f}", **_style(index))
    axes.set_xlabel(f"TFLOP/s at {rows[0]['m']}x{rows[0]['n']}x{rows[0]['k']}")


def _style(index: int) -> dict[str, Any]:
    return {"linestyle": ("--", ":", "-.", (0, (1, 4)))[index % 4], "linewidth": 1.2}
