"""TFLOP/s of a run of ``gemm`` as a picture: by size or stage, with libraries and ceilings as lines.

The same rows give the same file; an SVG also holds its numbers as text.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ptxlab.errors import MissingError, unknown_name
from ptxlab.files import check_writable, write_whole

FORMATS = ("png", "svg", "pdf")
SIZES = ("m", "n", "k")

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A100", "#666666", "#882255")
"""Told apart by most colour-blind people (Okabe and Ito; the yellow is darker, the black a grey).

The second time round their markers are hollow.
"""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")

FONT, LINE = 8, 0.16
"""Of a label: points, and inches from one to the next."""

BAR, FEWEST_BARS = 0.25, 3
"""Inches from one bar to the next, and for how many there is room at least."""

STYLES = {
    "cuBLAS": "--",
    "cuBLASLt": ":",
    "mma-sync": "-.",
    "wgmma": (0, (1, 4)),
}
"""How the line of a library or ceiling looks: by its name, so that it is the same in every picture."""

MARKS = {"mma-sync": ("x", "crosses"), "wgmma": ("_", "dashes")}
"""How the points of a ceiling look that no line joins, and in words."""

ANY_STYLE, ANY_MARK = (0, (6, 2, 1, 2, 1, 2)), ("+", "plus signs")
"""Of a library or ceiling that is none of these."""

SAME_CLOCK = 1.03
"""Up to this ratio of clocks the points of a ceiling are joined by a line."""

MOST_NAMED = 6

Row = dict[str, Any]
Series = dict[str, list[tuple[float, float]]]
Place = Callable[[Row], float]


def check_plot(path: Path) -> None:
    """Look at the name of a plot and where it will be, before anything is measured for it.

    Raises:
        UsageError: it is another format.
        MissingError: it cannot be written there.

    """
    form = _form(path)
    if form not in FORMATS:
        raise unknown_name("format of a plot", form, FORMATS)
    check_writable(path)


def save_plot(document: dict[str, Any], path: Path) -> None:
    """Draw what was timed, or recordings of it, into a file; its suffix says which format.

    Raises:
        MissingError: neither is there, no result is verified, matplotlib is not here, or the file cannot be
            written.

    """
    rows, left_out = drawn(document), unverified(document)
    if left_out and not rows:
        raise MissingError("no result is verified: there is nothing to plot")
    if not rows:
        raise MissingError("nothing was timed, and no recording answers the same: there is nothing to plot")
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingError("matplotlib is not here", 'pip install "ptxlab[plot]"') from error

    picture, form, asked = io.BytesIO(), _form(path), document["result"].get("explanations", [])
    with mpl.rc_context({"svg.hashsalt": "ptxlab", "svg.fonttype": "none"}):
        figure = _figure(rows, asked, left_out)
        figure.savefig(picture, format=form, dpi=150, metadata=_metadata(form, rows, asked))
    write_whole(path, picture.getvalue())


def _form(path: Path) -> str:
    return path.suffix.lower().lstrip(".")


def drawn(document: dict[str, Any]) -> list[Row]:
    """Return the rows of a picture, all with right results: what was timed, or else recordings of that.

    Of a ladder those of one type: a rung for another is held against other libraries and ceilings.
    """
    rows = _answers(document)
    if not rows or not _of_one_type(document["params"]):
        return rows
    ((usual, _),) = Counter(row["dtype"] for row in rows).most_common(1)
    return [row for row in rows if row["dtype"] == usual]


def _of_one_type(params: dict[str, Any]) -> bool:
    """Return whether a ladder is shown for whose types nobody asked one by one."""
    swept = [text.partition("=")[0] for text in params.get("sweep", [])]
    return params.get("stage", "") is None and "dtype" not in swept


def _answers(document: dict[str, Any]) -> list[Row]:
    """Return what was timed and is right, or else the recordings of just what was asked for."""
    result, params = document["result"], document["params"]
    if timed := _timed(document):
        return [row for row in timed if row["verified"]]
    asked = [_point(each) for each in result["explanations"]]
    return [
        row
        for row in result["recorded"]
        if _point(row) in asked
        and not row["stale"]
        and row["verified"]
        and all(row[name] == params[name] for name in ("init", "l2"))
    ]


def _point(each: Row) -> tuple[str, str, Row]:
    return each["stage"], each["problem"], each["options"]


def remarks(document: dict[str, Any]) -> list[str]:
    """Return what a reader of the picture would miss: "without hopper l2=keep-a: not recorded"."""
    lost, shown = unrecorded(document), drawn(document)
    others = dict.fromkeys(f"{row['stage']} {row['dtype']}" for row in _answers(document) if row not in shown)
    found = [f"without {_several(lost)}: not recorded"] if lost else []
    if others:
        found.append(f"without {_several(list(others))}: the others are {shown[0]['dtype']}")
    return found


def _several(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join([*names[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])])


def unrecorded(document: dict[str, Any]) -> list[str]:
    """Return the points that no recording answers, where recordings are shown; a whole problem as one."""
    if _timed(document):
        return []
    asked, there = document["result"]["explanations"], [_point(row) for row in _answers(document)]
    own, problems = _differing(asked), dict.fromkeys(each["problem"] for each in asked)
    found: list[str] = []
    for problem in problems:
        points = [each for each in asked if each["problem"] == problem]
        lost = [each for each in points if _point(each) not in there]
        place = " ".join(problem.split()[:2])  # its sizes and the type of A and B
        if len(lost) == len(points) > 1:
            found.append(f"all of {place}")
        else:
            names = [_named(each, own) for each in lost]
            found += [f"{name} at {place}" for name in names] if len(problems) > 1 else names
    return found


def unverified(document: dict[str, Any]) -> list[str]:
    """Return what was timed and is not drawn: how long a wrong result took says nothing."""
    wrong = [row for row in _timed(document) if not row["verified"]]
    return [f"{row['stage']} {row['m']}x{row['n']}x{row['k']}" for row in wrong]


def _timed(document: dict[str, Any]) -> list[Row]:
    return [row for row in document["result"]["stages"] if row["milliseconds"]]


def series(rows: list[Row], x: Place, asked: Sequence[Row] = ()) -> Series:
    """Return the lines of the stages, named by what differs: the stage, types, layout, its own options.

    An option tells points of one problem apart, of those that were asked for, too, which may not be here;
    one that follows the size, as a plan does, makes no new line.
    """
    varying, own = _varying(rows), _differing([*rows, *asked])
    lines: Series = {}
    for row in rows:
        lines.setdefault(_named(row, own, varying), []).append((x(row), row["tflops"]))
    return {name: sorted(values) for name, values in lines.items()}


def _varying(rows: list[Row]) -> list[str]:
    return [name for name in ("dtype", "acc", "out", "layout") if len({row[name] for row in rows}) > 1]


def _named(each: Row, own: dict[str, list[str]], varying: Sequence[str] = ()) -> str:
    """Return a point's stage, and of its types and options those that are to be told."""
    options = [f"{name}={each['options'][name]}" for name in own[each["stage"]]]
    return " ".join((each["stage"], *(each[name] for name in varying), *options))


def _differing(points: Sequence[Row]) -> dict[str, list[str]]:
    """Return for each stage the options in which its points of one problem differ."""
    together: dict[tuple[str, str], list[Row]] = {}
    for each in points:
        together.setdefault((each["stage"], each["problem"]), []).append(each["options"])
    found: dict[str, dict[str, None]] = {stage: {} for stage, _ in together}
    for (stage, _), options in together.items():
        differ = [name for name in options[0] if len({each[name] for each in options}) > 1]
        found[stage] |= dict.fromkeys(differ)
    return {stage: list(names) for stage, names in found.items()}


def limits(rows: list[Row], x: Place) -> Series:
    """Return the lines that stages are held against: each library, and each ceiling, that ran beside them.

    Of several runs at one place the best counts. A library is told without its algorithm, which may differ,
    and as the stages are with the types and layout where these differ.
    """
    varying = _varying(rows)
    best: dict[str, dict[float, float]] = {}
    for row in rows:
        for name, tflops in _beside(row, varying).items():
            places = best.setdefault(name, {})
            places[x(row)] = max(places.get(x(row), 0.0), tflops)
    return {name: sorted(values.items()) for name, values in best.items()}


def _beside(row: Row, varying: list[str]) -> dict[str, float]:
    """Return the TFLOP/s of the libraries and the ceiling that ran beside a stage."""
    right = [each for each in row["libraries"] if each["verified"]]
    types = [row[name] for name in varying]
    found = {" ".join([each["name"].partition(", ")[0], *types]): each["tflops"] for each in right}
    if row["peak"]:
        found[_ceiling(row["peak"], varying)] = row["peak"]["tflops"]
    return found


def _ceiling(peak: Row, varying: list[str]) -> str:
    """Return the name of a ceiling; of all that may vary it has a type of A and B alone."""
    return f"ceiling of {peak['ceiling']}{' ' + peak['dtype'] if 'dtype' in varying else ''}"


def clocks(rows: list[Row]) -> dict[str, tuple[float, float]]:
    """Return for each ceiling whose runs had different clocks the lowest and the highest, in MHz."""
    varying = _varying(rows)
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["peak"]:
            found.setdefault(_ceiling(row["peak"], varying), []).append(row["peak"]["sm_mhz"])
    spans = {name: (min(each), max(each)) for name, each in found.items()}
    return {name: (low, high) for name, (low, high) in spans.items() if high > SAME_CLOCK * low}


def varied(rows: list[Row]) -> str:
    """Return the name of what the picture goes along: "m = n = k", a size, or "" for one problem."""
    several = [name for name in SIZES if len({row[name] for row in rows}) > 1]
    if all(row["m"] == row["n"] == row["k"] for row in rows) and several:
        return "m = n = k"
    return several[0] if several else ""


def _place(along: str) -> Place:
    """Return where a row stands in a picture that goes along this; all at 0 for one problem."""
    name = "m" if along == "m = n = k" else along
    return lambda row: float(row[name]) if name else 0.0


def _figure(rows: list[Row], asked: list[Row], left_out: list[str]) -> Any:
    from matplotlib.figure import Figure

    along = varied(rows)
    lines, beside = series(rows, _place(along), asked), limits(rows, _place(along))
    caption = [*_title(rows), *_missing(left_out), *(_clocks_told(rows) if along else [])]
    height = max(5.5, 2 + LINE * len(lines | beside))
    if not along:
        height = max(0.3 + LINE * len(beside), _height_of_bars(len(lines), len(caption)))
    figure = Figure(figsize=(10, height), layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    if along:
        _lines(axes, lines, beside, along, set(clocks(rows)))
        figure.suptitle("\n".join(caption), fontsize=10)
    else:
        _bars(axes, lines, beside, list(dict.fromkeys(row["dtype"] for row in rows)))
        axes.set_xlabel(f"TFLOP/s at {rows[0]['m']}x{rows[0]['n']}x{rows[0]['k']}")
        axes.set_title("\n".join(caption), fontsize=10)  # a title of the figure would run into the legend
        figure.legend(fontsize=FONT, loc="outside right upper", frameon=False)
    axes.set_axisbelow(True)
    axes.grid(axis="y" if along else "x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _height_of_bars(bars: int, lines: int) -> float:
    """Return the height of a picture of bars, in inches, under a caption of so many lines."""
    return 0.8 + 0.2 * lines + BAR * max(bars, FEWEST_BARS)


def _metadata(form: str, rows: list[Row], asked: list[Row]) -> dict[str, str | None]:
    """Return what the file says of itself: no date, so that the same rows give the same file."""
    if form == "svg":
        return {"Date": None, "Title": "; ".join(_title(rows)), "Description": numbers(rows, asked)}
    return {"CreationDate": None} if form == "pdf" else {}


def numbers(rows: list[Row], asked: Sequence[Row] = ()) -> str:
    """Return the lines of a picture as text: "hopper: 676.2 at 2048, 709.1 at 4096"."""
    along = varied(rows)
    lines = series(rows, _place(along), asked) | limits(rows, _place(along))
    return "\n".join(
        f"{label}: {', '.join(f'{y:.1f} at {x:.0f}' if along else f'{y:.1f}' for x, y in points)}"
        for label, points in lines.items()
    )


def _title(rows: list[Row]) -> list[str]:
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


def _clocks_told(rows: list[Row]) -> list[str]:
    """Return a line for each ceiling whose points do not have one clock: there the size is not the cause."""
    held = any("power" in cause for row in rows for cause in row["throttle"])
    why = " at the power limit" if held else ""
    return [
        f"{_mark(name)[1]}: {name}{why}, each at the clock of its own run ({low:.0f} to {high:.0f} MHz)"
        for name, (low, high) in clocks(rows).items()
    ]


def _lines(axes: Any, stages: Series, beside: Series, along: str, unsteady: set[str]) -> None:
    """Draw several problems: a line for each stage, and for what it is held against, its name at its end.

    What is unsteady has points and no line, which would look like an effect of the size.
    """
    lines: list[tuple[str, list[tuple[float, float]], str]] = []
    for index, (label, points) in enumerate(stages.items()):
        color, marker = COLORS[index % len(COLORS)], MARKERS[index % len(MARKERS)]
        inside = color if index // len(COLORS) % 2 == 0 else "white"
        axes.plot(*zip(*points, strict=True), color=color, marker=marker, markerfacecolor=inside)
        lines.append((label, points, color))
    for label, points in beside.items():
        style = marks_of(label) if label in unsteady else style_of(label)
        axes.plot(*zip(*points, strict=True), color="black", **style)
        lines.append((label, points, "black"))
    ticks = sorted({int(x) for points in stages.values() for x, _ in points})
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


def _bars(axes: Any, stages: Series, beside: Series, types: list[str]) -> None:
    """Draw one problem: a bar for each point, a line across for what it is held against.

    Of several types each has a colour, of its bars and its lines.
    """
    values = [max(y for _, y in points) for points in stages.values()]
    colors = [_color(label, types, COLORS[0]) for label in stages]
    paler = 1.0 if len(types) == 1 else 0.5  # for a line of the same colour to be seen on it
    bars = axes.barh(list(stages), values, color=colors, alpha=paler)
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # no line runs through a number
    axes.bar_label(bars, fmt="%.0f", padding=3, fontsize=FONT, bbox=ground)
    room = max(0, FEWEST_BARS - len(values)) / 2
    axes.set_ylim(len(values) - 0.4 + room, -0.6 - room)  # the first rung on top
    for label, ((_, tflops), *_rest) in beside.items():
        color = _color(label, types, "black")
        axes.axvline(tflops, color=color, label=f"{label}, {tflops:.0f}", **style_of(label))


def _color(label: str, types: list[str], usual: str) -> str:
    """Return the colour of the type that a label names, the usual one where there is one type alone."""
    named = [types.index(word) for word in label.split() if word in types]
    return COLORS[named[0] % len(COLORS)] if named and len(types) > 1 else usual


def style_of(label: str) -> dict[str, Any]:
    """Return how the line of a library or ceiling of this label is drawn."""
    return {"linestyle": STYLES.get(_family(label), ANY_STYLE), "linewidth": 1.2}


def marks_of(label: str) -> dict[str, Any]:
    """Return how a ceiling of this label is drawn without a line."""
    return {"linestyle": "none", "marker": _mark(label)[0], "markersize": 9}


def _mark(label: str) -> tuple[str, str]:
    return MARKS.get(_family(label), ANY_MARK)


def _family(label: str) -> str:
    """Return the name of a library or ceiling without version and types."""
    return label.removeprefix("ceiling of ").split()[0]
