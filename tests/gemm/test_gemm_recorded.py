"""What is shown of recordings: verdicts by the rule in force, the answer first, one problem beside itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from readme_ladder import rungs

from ptxlab.bench.stats import RESOLUTION
from ptxlab.experiments import recording, runner
from ptxlab.experiments.gemm import run
from ptxlab.experiments.gemm.catalogue import recorded, without_stale
from ptxlab.experiments.gemm.verdict import judged
from ptxlab.experiments.registry import find_stage, stage_entries
from ptxlab.render.show import blocks
from ptxlab.render.terminal import to_terminal
from ptxlab.render.views.gemm_recorded import MOST_POINTS

Run = Callable[..., Any]


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch, run_here: Run) -> Run:
    """Return a function that runs the command as on a machine without a driver."""
    monkeypatch.setattr(runner, "has_driver", lambda: False)
    return run_here


def _rows() -> Iterator[dict[str, Any]]:
    for entry in stage_entries():
        yield from recorded(find_stage(entry.name))


def test_a_recorded_gain_is_real_when_its_interval_says_so() -> None:
    """Recomputed from low and high: the whole interval lies above what is never told apart, or below it."""
    above, below = 100 * RESOLUTION, 100 * (1 / (1 + RESOLUTION) - 1)
    gains = [row["gain"] for row in _rows() if row["gain"]]
    assert gains
    for gain in gains:
        assert gain["low"] <= gain["percent"] <= gain["high"]
        assert gain["real"] == (gain["low"] > above or gain["high"] < below)
        assert gain["verdict"] == (
            "indistinguishable" if not gain["real"] else "faster" if gain["low"] > 0 else "slower"
        )


def test_the_files_say_what_is_shown() -> None:
    """No recording holds a verdict of another rule."""
    for entry in stage_entries():
        for kept in recording.recordings(find_stage(entry.name)):
            for name, variant in kept.variants.items():
                assert judged(variant["result"]) == variant["result"], f"{kept.file}: {name}"


def test_a_verdict_is_drawn_from_the_interval() -> None:
    """Against the library, too, where the recording holds the interval of the share."""
    row = {"verdict": "slower", "noise_floor_percent": 30.0, "gain": None}
    said = judged(row | {"percent_interval": {"low": 100.4, "high": 101.0}})
    assert said["verdict"] == "faster"
    assert said["noise_floor_percent"] == pytest.approx(100 * RESOLUTION)
    assert judged(row | {"percent_interval": {"low": 99.0, "high": 101.0}})["verdict"] == "indistinguishable"


def test_without_the_interval_only_what_a_stricter_rule_found_stays() -> None:
    """What it could not tell from noise is not known; its noise floor is not that of today."""
    row = {"noise_floor_percent": 30.0, "gain": None}
    assert judged(row | {"verdict": "slower"})["verdict"] == "slower"
    assert judged(row | {"verdict": "indistinguishable"})["verdict"] is None
    assert judged(row | {"verdict": "slower"})["noise_floor_percent"] is None


def test_without_a_gpu_the_recorded_ladder_comes_first(without_gpu: Run) -> None:
    """A line a rung: what was recorded of this problem, its gain, what limits it; the rest by --explain."""
    size = ("-m", "8192", "-n", "8192", "-k", "8192", "--dtype", "bf16")
    done = without_gpu("gemm", "--ladder", *size, "--format", "md")
    lines = done.stdout.splitlines()
    assert done.returncode == 3
    assert lines[0].startswith("**8192x8192x8192 bf16")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[4 : 4 + len(rungs())]]
    asked = {"m": 8192, "n": 8192, "dtype": "bf16", "l2": "cold"}
    recorded_there = {row["stage"]: row for row in _rows() if asked.items() <= row.items()}
    for name, tflops, share, _, most, mhz, limit in cells:
        assert float(most) > recorded_there[name]["tflops"]
        assert mhz == f"{recorded_there[name]['clock_mhz']:.0f}"
        assert tflops == f"{recorded_there[name]['tflops']:.1f}"
        assert share == f"{recorded_there[name]['percent_of_cublas']:.1f}"
        assert limit
    assert "shared memory of a block" not in done.stdout
    assert "--explain adds" in done.stdout


def test_ceilings_beside_the_recorded_ladder_are_those_of_its_runs(without_gpu: Run) -> None:
    """As README.md has them; and what does not depend on the clock, which differs from run to run."""
    size = ("-m", "8192", "-n", "8192", "-k", "8192", "--dtype", "bf16")
    shown = without_gpu("gemm", "--ladder", *size, "--format", "csv").stdout
    asked = {"m": 8192, "n": 8192, "dtype": "bf16", "l2": "cold"}
    peaks = [row["peak"] for row in _rows() if asked.items() <= row.items()]
    told = {
        f"{peak['ceiling']},8192x8192x8192,bf16,{peak['tflops']:.1f},{peak['flop_per_clock_and_sm']:.0f},"
        for peak in peaks
    }
    assert {each.partition(",")[0] for each in told} == {"mma-sync", "wgmma"}
    for start in told:
        assert shown.count(start) == 1
    assert "FLOP/clock/SM do not" in shown


def test_recordings_of_other_options_do_not_answer(without_gpu: Run) -> None:
    """It says that there is none, and what there is."""
    done = without_gpu("gemm", "--stage", "wmma-warptile", "--set", "tile_k=16")
    assert "None recorded of this kernel and problem." in done.stdout
    assert "None recorded for this problem and these options. Recorded are: " in done.stdout
    row = recorded(find_stage("wmma-warptile"))[0]
    assert f"tile_k={row['options']['tile_k']}" in done.stdout
    assert "recorded on" not in done.stdout


def test_points_of_a_sweep_are_told_by_what_differs(without_gpu: Run) -> None:
    """The options that all of them have go without saying."""
    done = without_gpu("gemm", "--stage", "wmma-warptile", "--sweep", "tile_k=16,32", "--format", "csv")
    names = [line.partition(",")[0] for line in done.stdout.splitlines() if line.startswith("wmma-")]
    assert names == ["wmma-warptile tile_k=16", "wmma-warptile tile_k=32"]


@pytest.mark.parametrize(
    "change",
    [{"barrier": "yes"}, {"block": "96x96"}, {"m": -1}, {"layout": []}, {"m": {}}, {"m": 4096.5}, {"m": "1"},
     {"alpha": None}, {"arch": "sm_90a"}, {"self": 1}],
    ids=str,
)  # fmt: skip
def test_a_point_that_is_no_more_is_stale_not_damage(
    change: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Options come and go: what was recorded with one that is gone is shown, as of an older kernel."""
    stage = find_stage("ampere")
    (file,) = stage.recordings.glob("*.json")
    text = json.loads(file.read_text(encoding="utf-8"))
    name, first = next(iter(text["variants"].items()))
    first["params"] |= change
    (tmp_path / file.name).write_text(json.dumps(text), encoding="utf-8")
    monkeypatch.setattr(type(stage), "recordings", tmp_path)
    rows = recorded(stage)
    assert [row["stale"] for row in rows] == [True] + [False] * (len(rows) - 1)
    kept = recording.load(tmp_path / file.name)
    without_stale(stage, kept)
    assert name not in kept.variants


def test_the_list_compares_the_same_problem(run_here: Run) -> None:
    """Every number is of the shape, the types and the state of the L2 that the title names."""
    document = json.loads(run_here("gemm", "--list", "--json").stdout)
    listed = {each["stage"]: each["recorded"] for each in document["result"]["available"]}
    shown = to_terminal(blocks(document))
    title = next(line for line in shown.splitlines() if line.startswith("stages; recorded: "))
    problem = title.removeprefix("stages; recorded: ").partition(", cold L2, NVIDIA")[0]
    same = {name: [row for row in rows if row["problem"] == problem] for name, rows in listed.items()}
    quoted = {name: row for name, rows in same.items() for row in rows if row["l2"] == "cold"}
    assert set(quoted) >= {rung.name for rung in rungs()}
    for name, row in quoted.items():
        (line,) = (line for line in shown.splitlines() if line.strip().startswith(f"{name} "))
        assert f" {row['tflops']:.1f} " in line


def test_where_none_answers_a_few_of_many_are_named(
    without_gpu: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same problem those with other options; else the first, and how many more there are.

    Before all others one of the same size in another type, with the option that asks for it.
    """
    rows = recorded(find_stage("wmma-naive"))[:1]
    many = [rows[0] | {"problem": f"problem {i}"} for i in range(MOST_POINTS + 2)]
    monkeypatch.setattr(run, "recorded", lambda _: many)
    done = without_gpu("gemm", "--stage", "wmma-naive", "-m", "64")
    assert f"problem {MOST_POINTS - 1} on NVIDIA H200; and 2 more." in " ".join(done.stdout.split())
    same_size = "64x4096x4096 bf16 tn, f32 accumulate, bf16 out"
    many.append(many[0] | {"problem": same_size, "dtype": "bf16"})
    done = without_gpu("gemm", "--stage", "wmma-naive", "-m", "64")
    first = f"Recorded are: {same_size} on NVIDIA H200 (--dtype bf16); problem 0 on NVIDIA H200; "
    assert first in " ".join(done.stdout.split())
    asked = "64x4096x4096 f16 tn, f32 accumulate, f16 out"
    many.append(many[0] | {"problem": asked, "options": {"colour": "red"}})
    done = without_gpu("gemm", "--stage", "wmma-naive", "-m", "64")
    assert f"Recorded are: {asked} on NVIDIA H200, colour=red." in " ".join(done.stdout.split())


@pytest.mark.parametrize(("dtype", "told"), [("f16", True), ("bf16", False)])
def test_a_ladder_says_where_more_of_it_is_recorded(
    without_gpu: Run, monkeypatch: pytest.MonkeyPatch, dtype: str, told: bool
) -> None:
    """At which sizes several stages were recorded in the other 16-bit type; one stage makes no ladder."""
    row = recorded(find_stage("wmma-naive"))[0]

    def rows(stage: Any) -> list[dict[str, Any]]:
        sizes = [("f16", 4096), ("bf16", 4096), ("bf16", 8192)]
        sizes += [("f16", 64), ("f16", 128)] if stage.name == "ampere" else []
        return [row | {"stage": stage.name, "dtype": kind, "m": m, "n": 512, "k": 64} for kind, m in sizes]

    monkeypatch.setattr(run, "recorded", rows)
    done = without_gpu("gemm", "--ladder", "-m", "64", "-n", "64", "-k", "64", "--dtype", dtype)
    line = "In bf16 the ladder is recorded at 4096x512x64, 8192x512x64: --dtype bf16."
    assert (line in done.stdout) == told
    assert ("the ladder is recorded at" in done.stdout) == told
    alone = without_gpu("gemm", "--stage", "ampere", "-m", "64", "--dtype", dtype)
    assert "the ladder is recorded at" not in alone.stdout


def test_a_reason_is_told_once(without_gpu: Run) -> None:
    """A stage that takes none of the points is named once, points that have a reason in common together."""
    sizes = ("-n", "64", "-k", "64", "--dtype", "bf16", "--sweep", "m=64,128")
    shown = without_gpu("gemm", "--ladder", *sizes).stdout.splitlines()
    lines = [line for line in shown if line.startswith("Skipped hopper-fp8")]
    assert lines == ["Skipped hopper-fp8: unknown value for --dtype 'bf16'; legal: e4m3, e5m2"]
    some = without_gpu("gemm", "--stage", "hopper", "-k", "64", "--sweep", "splits=1,16,24").stdout
    reason = "-k 64: each of the splits takes a step of k; legal: at most 1"
    assert f"Skipped hopper splits=16; hopper splits=24: {reason}" in some
