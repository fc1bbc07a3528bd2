"""``--plot``: lines by size and stage, the libraries and ceilings beside them, and what is not drawn."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gemm_stand_in import request

from ptxlab.errors import MissingError, UsageError
from ptxlab.experiments import runner
from ptxlab.experiments.gemm import run
from ptxlab.experiments.record import Record
from ptxlab.experiments.registry import ceiling_entries
from ptxlab.render.plot import (
    apart,
    clocks,
    drawn,
    limits,
    marks_of,
    numbers,
    remarks,
    save_plot,
    series,
    style_of,
    unrecorded,
    unverified,
    varied,
)

Run = Callable[..., Any]


def test_lines_of_a_plot(gemm: Any) -> None:
    """Each stage by size, and what ran beside them: the libraries, and the ceiling."""
    record, _ = gemm(request(16, 16, 16, "ints", sweeps=("size=16,32",)))
    rows = record.result["stages"]
    assert varied(rows) == "m = n = k"
    lines = series(rows, lambda row: float(row["m"]))
    assert set(lines) == {"wmma-naive"}
    assert [x for x, _ in lines["wmma-naive"]] == [16, 32]
    beside = limits(rows, lambda row: float(row["m"]))
    assert set(beside) == {"cuBLAS 13.1", "torch 2.11", "ceiling of mma-sync"}
    assert beside["cuBLAS 13.1"][0][1] == pytest.approx(4 * lines["wmma-naive"][0][1], rel=1e-3)
    other = [row | {"dtype": "bf16"} for row in rows]
    assert set(series(rows + other, lambda row: float(row["m"]))) == {"wmma-naive f16", "wmma-naive bf16"}
    assert varied(rows[:1]) == ""


def test_options_tell_points_of_one_problem_apart(gemm: Any) -> None:
    """Only those that differ there: a plan that changes with the size is one line."""
    record, _ = gemm(request(16, 16, 16, "ints", sweeps=("size=16,32",)))
    small, large = record.result["stages"]
    plans = [small | {"options": {"block": 1, "group": 8}}, large | {"options": {"block": 2, "group": 8}}]
    assert set(series(plans, lambda row: float(row["m"]))) == {"wmma-naive"}
    both = [*plans, large | {"options": {"block": 3, "group": 8}}]
    names = [f"wmma-naive block={block}" for block in (1, 2, 3)]
    assert list(series(both, lambda row: float(row["m"]))) == names


def test_lines_beside_the_stages_say_their_types(gemm: Any) -> None:
    """Where several are shown: one of another type is no measure. A ceiling has the inputs' type alone."""
    record, _ = gemm(request(16, 16, 16, "ints"))
    (row,) = record.result["stages"]
    other = row | {"dtype": "e4m3", "out": "bf16", "peak": row["peak"] | {"dtype": "e4m3", "tflops": 9.0}}
    beside = limits([row, other], lambda _: 0.0)
    assert beside["ceiling of mma-sync e4m3"] == [(0.0, 9.0)]
    assert beside["ceiling of mma-sync f16"] == [(0.0, row["peak"]["tflops"])]
    assert {"cuBLAS 13.1 f16 f16", "cuBLAS 13.1 e4m3 bf16"} <= set(beside)


def test_a_ladder_is_drawn_in_one_type(gemm: Any) -> None:
    """That of most rungs, and what is left out is said; not where a type or one stage was asked for."""
    record, _ = gemm(request(16, 16, 16, "ints", sweeps=("size=16,32",)))
    document = record.document()
    small, large = document["result"]["stages"]
    other = small | {"stage": "hopper-fp8", "dtype": "e4m3"}
    document["result"]["stages"].insert(0, other)
    ladder = document | {"params": document["params"] | {"stage": None, "sweep": ["size=16,32"]}}
    assert drawn(ladder) == [small, large]
    assert remarks(ladder) == ["without hopper-fp8 e4m3: the others are f16"]
    by_type = document | {"params": ladder["params"] | {"sweep": ["dtype=f16,e4m3"]}}
    for several in (document, by_type):
        assert drawn(several) == [other, small, large]
        assert remarks(several) == []


def test_what_is_not_recorded_is_said(gemm: Any) -> None:
    """By what tells a point from the others; a problem of which nothing is recorded is told as one."""
    record, _ = gemm(request(16, 16, 16, "ints"))
    document = record.document()
    (row,) = document["result"]["stages"]
    (asked,) = document["result"]["explanations"]
    points = [asked | {"options": {"l2": l2, "group": 8}} for l2 in ("normal", "keep-a")]
    recorded = row | {"options": points[0]["options"], "date": "2026-11-30", "stale": False}
    document["result"] |= {"stages": [], "recorded": [recorded], "explanations": points}
    assert unrecorded(document) == ["wmma-naive l2=keep-a"]
    assert remarks(document) == ["without wmma-naive l2=keep-a: not recorded"]
    assert list(series(drawn(document), lambda _: 0.0, points)) == ["wmma-naive l2=normal"]
    larger = [each | {"problem": "32x32x32 f16 tn, f32 accumulate"} for each in points]
    document["result"]["explanations"] = [*points, *larger]
    assert unrecorded(document) == ["wmma-naive l2=keep-a at 16x16x16 f16", "all of 32x32x32 f16"]
    many = [asked | {"options": {"group": group}} for group in range(9)]
    first = recorded | {"options": many[0]["options"]}
    document["result"] |= {"recorded": [first], "explanations": many}
    (told,) = remarks(document)
    assert told.endswith("wmma-naive group=6, 2 more: not recorded")


def test_a_ceiling_at_several_clocks_is_no_line(gemm: Any, tmp_path: Path) -> None:
    """Its points are marks, and the caption says at which clocks they were reached."""
    record, _ = gemm(request(16, 16, 16, "ints", sweeps=("size=16,32",)))
    small, large = record.result["stages"]
    for mhz, found in ((1740.0, {}), (1360.0, {"ceiling of mma-sync": (1360.0, 1700.0)})):
        small["peak"] |= {"sm_mhz": 1700.0}
        large["peak"] |= {"sm_mhz": mhz}
        assert clocks([small, large]) == found
    large["throttle"] = ["sw_power_cap"]
    marked = picture(record, tmp_path)
    large["peak"]["sm_mhz"] = 1700.0
    joined = picture(record, tmp_path)
    told = (
        "crosses: ceiling of mma-sync at the power limit, each at the clock of its own run (1360 to 1700 MHz)"
    )
    assert (told in marked, "clock of its own run" in joined) == (True, False)
    assert joined.count("stroke-dasharray") == marked.count("stroke-dasharray") + 1


def picture(record: Record, folder: Path) -> str:
    """Return the picture of a run as an SVG."""
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip('matplotlib is not here: pip install "ptxlab[plot]"')
    save_plot(record.document(), folder / "x.svg")
    return (folder / "x.svg").read_text(encoding="utf-8")


def test_a_line_looks_the_same_in_every_picture() -> None:
    """By the name of the library or ceiling, whatever its version and types; no two look the same."""
    names = ["cuBLAS 13.1.0.3 (torch 2.11)", "cuBLASLt 13.1.0 (nvmath-python 1.0.0)"]
    names += [f"ceiling of {entry.name}" for entry in ceiling_entries()]
    styles = [style_of(name)["linestyle"] for name in names]
    assert len(set(styles)) == len(names) > 2
    assert [style_of(f"{name} e4m3 bf16")["linestyle"] for name in names] == styles
    assert style_of("cuBLAS (torch 3.0)") == style_of(names[0])
    marks = [marks_of(name)["marker"] for name in names[2:]]
    assert len(set(marks)) == len(marks)


def test_one_bar_is_as_wide_as_others(gemm: Any, tmp_path: Path) -> None:
    """A picture of one point is lower than that of nine."""
    record, _ = gemm(request(16, 16, 16, "ints"))
    heights = [height(picture(record, tmp_path))]
    (row,) = record.result["stages"]
    record.result["stages"] = [row | {"stage": f"s{rank}"} for rank in range(9)]
    heights.append(height(picture(record, tmp_path)))
    assert 72 < heights[0] < heights[1] / 1.5


def height(svg: str) -> float:
    """Return the height of an SVG in points."""
    return float(svg.partition('height="')[2].partition("pt")[0])


def test_without_a_gpu_recordings_are_drawn(gemm: Any) -> None:
    """Those of just what was asked for, by the kernel of today: problem, options, data, and state of L2."""
    record, _ = gemm(request(16, 16, 16, "ints"))
    document = record.document()
    (row,) = drawn(document)
    recorded = row | {"date": "2026-11-30", "device": "NVIDIA H200", "stale": False}
    others: list[dict[str, Any]] = [
        {"stale": True},
        {"l2": "hot"},
        {"init": "normal"},
        {"problem": "other"},
        {"options": {"x": 1}},
    ]
    document["result"] |= {"stages": [], "recorded": [recorded, *(recorded | other for other in others)]}
    assert drawn(document) == [recorded]


def test_what_is_not_verified_is_not_drawn(gemm: Any, tmp_path: Path) -> None:
    """Neither a stage nor a library, timed or recorded: how long a wrong result took says nothing."""
    record, _ = gemm(request(16, 16, 16, "ints", sweeps=("size=16,32",)))
    document = record.document()
    small, large = document["result"]["stages"]
    small["verified"] = False
    assert drawn(document) == [large]
    assert unverified(document) == ["wmma-naive 16x16x16"]
    large["libraries"][0]["verified"] = False
    beside = limits([large], lambda row: float(row["m"]))
    assert large["libraries"][0]["name"].partition(", ")[0] not in beside
    large["verified"] = False
    with pytest.raises(MissingError, match="no result is verified"):
        save_plot(document, tmp_path / "x.svg")
    recorded = small | {"date": "2026-11-30", "device": "NVIDIA H200", "stale": False}
    document["result"] |= {"stages": [], "recorded": [recorded]}
    assert drawn(document) == []


@pytest.mark.parametrize(
    ("size", "note"),
    [("4096", "x.svg shows recordings: nothing ran here"), ("16", "x.svg is not drawn: nothing was timed")],
)
def test_a_run_without_a_gpu_says_what_its_picture_shows(
    run_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str, note: str
) -> None:
    """It still ends with 3: nothing was measured."""
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip('matplotlib is not here: pip install "ptxlab[plot]"')
    monkeypatch.setattr(runner, "has_driver", lambda: False)
    monkeypatch.chdir(tmp_path)
    done = run_here("gemm", "--stage", "wmma-naive", "-m", size, "--plot", "x.svg")
    assert (done.returncode, Path("x.svg").is_file()) == (3, size == "4096")
    assert note in " ".join(done.stdout.split())


def test_without_matplotlib_the_answer_is_there(
    run_here: Run, gemm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without --plot, as tables and as a document; then the picture that is missing, and exit 3."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    measured, _ = gemm(request(16, 16, 16, "ints"))
    monkeypatch.setattr(run, "run_gemm", lambda *_: measured)
    command = ("gemm", "--stage", "wmma-naive", "-m", "16")
    plain, drawn = run_here(*command), run_here(*command, "--plot", "x.svg")
    assert (plain.returncode, drawn.returncode) == (0, 3)
    assert drawn.stdout == plain.stdout
    assert drawn.stderr == 'ptxlab: matplotlib is not here\nhint: pip install "ptxlab[plot]"\n'
    document = json.loads(run_here(*command, "--plot", "x.svg", "--json").stdout)
    assert document["error"]["message"] == "matplotlib is not here"
    assert document["result"] == json.loads(json.dumps(measured.result))


def test_without_matplotlib_and_gpu_both_are_said(run_here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside what was recorded: the run's own failure comes first, and its code stays."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(runner, "has_driver", lambda: False)
    done = run_here("gemm", "--stage", "wmma-naive", "--plot", "x.svg", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["error"]["code"]) == (3, "no-device")
    assert document["result"]["recorded"]
    why = "x.svg is not drawn: matplotlib is not here"
    assert why in document["result"]["notes"]
    assert why in document["error"]["message"]
    assert "not run: " in done.stderr
    assert 'pip install "ptxlab[plot]"' in done.stderr


@pytest.mark.parametrize(
    ("heights", "moved"),
    [
        ([0, 5, 9], [0, 5, 9]),
        ([0, 9, 9], [0, 8, 10]),
        ([4, 4, 4, 20], [2, 4, 6, 20]),
        ([0, 3, 3, 3], [-0.75, 1.25, 3.25, 5.25]),
        ([], []),
    ],
)
def test_names_of_lines_stand_apart(heights: list[float], moved: list[float]) -> None:
    """At least a gap of 2, around the ends of lines that are closer, in the same order."""
    assert apart(heights, 2) == pytest.approx(moved)


def test_the_numbers_of_a_plot_are_text(gemm: Any) -> None:
    """A line for each line of the picture, with sizes where it goes along them."""
    record, _ = gemm(request(16, 16, 16, "ints", sweeps=("size=16,32",)))
    rows = record.result["stages"]
    for row, tflops in zip(rows, (1.23, 4.56), strict=True):
        row["tflops"], row["libraries"] = tflops, [row["libraries"][0] | {"tflops": 2.0, "name": "library"}]
        row["peak"] = None
    assert numbers(rows) == "wmma-naive: 1.2 at 16, 4.6 at 32\nlibrary: 2.0 at 16, 2.0 at 32"
    assert numbers(rows[:1]) == "wmma-naive: 1.2\nlibrary: 2.0"


@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_a_plot_is_a_picture(gemm: Any, tmp_path: Path, form: str) -> None:
    """By size, and of one problem; the same rows give the same file."""
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip('matplotlib is not here: pip install "ptxlab[plot]"')
    from ptxlab.render.plot import check_plot

    for sweeps in ((), ("size=16,32",)):
        record, _ = gemm(request(16, 16, 16, "ints", sweeps=sweeps))
        file = tmp_path / f"plot.{form}"
        check_plot(file)
        save_plot(record.document(), file)
        first = file.read_bytes()
        assert first.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[form])
        save_plot(record.document(), file)
        assert file.read_bytes() == first


def test_a_plot_of_another_format_is_refused() -> None:
    """Before anything is measured."""
    from ptxlab.render.plot import check_plot

    with pytest.raises(UsageError, match="unknown format of a plot 'gif'; legal: png, svg, pdf"):
        check_plot(Path("x.gif"))


def test_a_plot_that_cannot_be_written_is_told_first(run_here: Run, tmp_path: Path) -> None:
    """Before anything is compiled or measured for it."""
    file = tmp_path / "no" / "x.png"
    done = run_here("gemm", "--stage", "wmma-naive", "--plot", str(file))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"ptxlab: cannot write {file}: {file.parent} is no folder that you can")


def test_a_plot_is_replaced_whole(gemm: Any, tmp_path: Path) -> None:
    """Who has the old picture open keeps it as it was."""
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip('matplotlib is not here: pip install "ptxlab[plot]"')
    file, old = tmp_path / "plot.svg", tmp_path / "old.svg"
    file.write_text("old")
    old.hardlink_to(file)
    record, _ = gemm(request(16, 16, 16, "ints"))
    save_plot(record.document(), file)
    assert (old.read_text(), file.read_text()[:5]) == ("old", "<?xml")
    assert set(tmp_path.glob("*.svg*")) == {file, old}
