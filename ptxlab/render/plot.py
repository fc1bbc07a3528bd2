"""TFLOP/s of a run of ``gemm`` as a picture: by size or stage, with libraries and ceilings as lines.

The same rows give the same file; an SVG also holds its numbers as text.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
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

FONT, LINE = 8, 0.16
"""Of a label: points, and inches from one to the next."""

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
    import matplotlib as mpl

    picture, form = io.BytesIO(), _form(path)
    with mpl.rc_context({"svg.hashsalt": "ptxlab", "svg.fonttype": "none"}):
        _figure(rows, left_out).savefig(picture, format=form, dpi=150, metadata=_metadata(form, rows))
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


def _place(along: str) -> Callable[[dict[str, Any]], float]:
    """Return where a row stands in a picture that goes along this; all at 0 for one problem."""
    name = "m" if along == "m = n = k" else along
    return lambda row: float(row[name]) if name else 0.0


def _figure(rows: list[dict[str, Any]], left_out: list[str]) -> Any:
    from matplotlib.figure import Figure

    along = varied(rows)
    labels = len(series(rows, _place(along))) + len(limits(rows, _place(along)))
    height = max(5.5, 2 + LINE * labels)
    figure = Figure(figsize=(10, height), layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    if along:
        _lines(axes, rows, along)
    else:
        _bars(axes, rows)
        figure.legend(fontsize=FONT, loc="outside right upper", frameon=False)
    axes.set_axisbelow(True)
    axes.grid(axis="y" if along else "x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("\n".join([*_title(rows), *_missing(left_out)]), fontsize=10)
    return figure


def _metadata(form: str, rows: list[dict[str, Any]]) -> dict[str, str | None]:
    """Return what the file says of itself: no date, so that the same rows give the same file."""
    if form == "svg":
        return {"Date": None, "Title": "; ".join(_title(rows)), "Description": numbers(rows)}
    return {"CreationDate": None} if form == "pdf" else {}


def numbers(rows: list[dict[str, Any]]) -> str:
    """Return the lines of a picture as text: "hopper: 676.2 at 2048, 709.1 at 4096"."""
    along = varied(rows)
    lines = series(rows, _place(along)) | limits(rows, _place(along))
    return "\n".join(
        f"{label}: {', '.join(f'{y:.1f} at {x:.0f}' if along else f'{y:.1f}' for x, y in points)}"
        for label, points in lines.items()
    )


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
    """Draw several problems: a line for each stage, and for what it is held against, its name at its end."""
    x = _place(along)
    lines: list[tuple[str, list[tuple[float, float]], str]] = []
    for index, (label, points) in enumerate(series(rows, x).items()):
        color, marker = COLORS[index % len(COLORS)], MARKERS[index % len(MARKERS)]
        inside = color if index // len(COLORS) % 2 == 0 else "white"
        axes.plot(*zip(*points, strict=True), color=color, marker=marker, markerfacecolor=inside)
        lines.append((label, points, color))
    for index, (label, points) in enumerate(limits(rows, x).items()):
        axes.plot(*zip(*points, strict=True), color="black", **_style(index))
        lines.append((label, points, "black"))
    ticks = sorted({int(x(row)) for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(along)
    axes.set_ylabel("TFLOP/s")
    axes.set_ylim(bottom=0)
    _name_ends(axes, lines)


def _name_ends(axes: Any, lines: Sequence[tuple[str, list[tuple[float, float]], str]]) -> None:
    """Write the name of each line beside its last point, as far up or down as it takes to be read."""
    lines = sorted(lines, key=lambda line: line[1][-1][1])
    inches = axes.figure.get_figheight() - 1.3  # without the title and what stands below the axis
    heights = apart([points[-1][1] for _, points, _ in lines], LINE * axes.get_ylim()[1] / inches)
    for (label, points, color), height in zip(lines, heights, strict=True):
        axes.annotate(
            label,
            points[-1],
            (1.04, height),
            textcoords=axes.get_yaxis_transform(),
            verticalalignment="center",
            fontsize=FONT,
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.6, "relpos": (0, 0.5)},
            annotation_clip=False,
        )


def apart(heights: Sequence[float], gap: float) -> list[float]:
    """Return rising heights moved until each is a gap above the one before, all by as little as can be.

    Where they are too close together they stand around their mean: least squares, by pooling neighbours.
    """
    pools: list[tuple[float, int]] = []
    for rank, height in enumerate(heights):
        pools.append((height - rank * gap, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (low, few), (high, more) = pools[-2:]
            pools[-2:] = [((low * few + high * more) / (few + more), few + more)]
    moved = [mean for mean, count in pools for _ in range(count)]
    return [each + rank * gap for rank, each in enumerate(moved)]


def _bars(axes: Any, rows: list[dict[str, Any]]) -> None:
    """Draw one problem: a bar for each point, a line across for what it is held against."""
    names = list(series(rows, lambda _: 0.0))
    values = [max(y for _, y in points) for points in series(rows, lambda _: 0.0).values()]
    bars = axes.barh(names, values, color=COLORS[0])
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # no line runs through a number
    axes.bar_label(bars, fmt="%.0f", padding=3, fontsize=FONT, bbox=ground)
    axes.invert_yaxis()  # the first rung on top
    for index, (label, ((_, tflops), *_rest)) in enumerate(limits(rows, lambda _: 0.0).items()):
        axes.axvline(tflops, color="black", label=f"{label}, {tflops:.0f}", **_style(index))
    axes.set_xlabel(f"TFLOP/s at {rows[0]['m']}x{rows[0]['n']}x{rows[0]['k']}")


def _style(index: int) -> dict[str, Any]:
    return {"linestyle": ("--", ":", "-.", (0, (1, 4)))[index % 4], "linewidth": 1.2}
