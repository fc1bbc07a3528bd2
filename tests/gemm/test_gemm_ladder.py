"""The ladder: one run, what each rung gains, and what becomes of a rung that fails."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gemm_jobs import copied_kernels
from gemm_stand_in import CEILING_MS, request

from ptxlab import assets
from ptxlab.device.job import Launch, Timing
from ptxlab.errors import DeviceError, ExitCode
from ptxlab.experiments.gemm.ceiling import loops
from ptxlab.experiments.gemm.stage import below, climbed
from ptxlab.experiments.registry import ceiling_entries, find_ceiling, find_stage, stage_entries
from ptxlab.render.progress import bars
from ptxlab.render.show import blocks
from ptxlab.render.terminal import to_terminal

RUNGS = ("first", "second", "third")


@pytest.fixture
def ladder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a folder of kernels with three rungs, each the same kernel."""
    folder = copied_kernels(tmp_path)
    naive = folder / "gemm" / "wmma-naive"
    for name, lower in zip(RUNGS, ("", *RUNGS), strict=False):
        rung = folder / "gemm" / name
        rung.mkdir()
        (rung / "kernel.cu").write_bytes((naive / "kernel.cu").read_bytes())
        said = (naive / "stage.py").read_text(encoding="utf-8")
        head = "    reasons: ClassVar = {\n"
        assert head in said
        (rung / "stage.py").write_text(said.replace(head, f'    below = "{lower}"\n{head}'), encoding="utf-8")
    for each in naive.rglob("*"):
        if each.is_file():
            each.unlink()
    monkeypatch.setattr(assets, "kernels_folder", lambda: folder)
    return folder


def test_rungs_stand_in_order() -> None:
    """Each names the one below, which exists, and its ceiling, which does too; there is one lowest rung."""
    stages = {entry.name: find_stage(entry.name) for entry in stage_entries()}
    ordered = climbed(list(stages.values()))
    assert [stage.name for stage in ordered if not stage.below] == [ordered[0].name]
    for stage in ordered[1:]:
        assert stage.below in stages, stage.name
        assert ordered[0] in below(stage, stages), stage.name
    ceilings = {stage.ceiling for stage in ordered if stage.only in ("", "sm_90a")}  # no other chip was there
    assert ceilings <= {entry.name for entry in ceiling_entries()}


def test_rungs_that_stand_on_each_other_have_an_end() -> None:
    """Two that name each other are no endless ladder."""
    first, second = find_stage("wmma-naive"), find_stage("wmma-naive")
    first.name, second.name = "first", "second"
    type(first).below, type(second).below = "second", "first"
    known = {"first": first, "second": second}
    assert [each.name for each in itertools.islice(below(first, known), 9)] == ["second"]


@pytest.mark.usefixtures("ladder")
def test_all_rungs_run_at_once(gemm: Any) -> None:
    """Each is tried alone, then all are timed in turn with the libraries and the ceilings, and checked."""
    record, stand_in = gemm(request(16, 16, 16, stage=None))
    *tried, job = stand_in.jobs
    assert [_launched(each.steps) for each in tried] == [[name] for name in RUNGS]
    (timing,) = (step for step in job.steps if isinstance(step, Timing))
    sides = dict(timing.sides)
    assert list(sides)[:5] == ["stage 0", "stage 1", "stage 2", "cublas", "torch"]
    assert all(name.startswith("ceiling ") for name in list(sides)[5:])
    assert record.exit_code == ExitCode.OK
    assert [row["stage"] for row in record.result["stages"]] == list(RUNGS)
    assert all(row["verified"] for row in record.result["stages"])


def _launched(steps: Any) -> list[str]:
    """Return the stages whose kernels are launched, by the names of their cubins: "stage NAME HASH"."""
    modules = [step.module for step in steps if isinstance(step, Launch)]
    return [module.split()[1] for module in modules if module.startswith("stage ")]


@pytest.mark.usefixtures("ladder")
def test_each_rung_is_told_from_the_one_below(gemm: Any) -> None:
    """The stand-in's points take 2, 1.8 and 1.6 ms: gains of 11 and 12.5 %, which are real."""
    record, _ = gemm(request(16, 16, 16, stage=None))
    lowest, *gains = [row["gain"] for row in record.result["stages"]]
    assert lowest is None
    assert [gain["over"] for gain in gains] == ["first", "second"]
    assert [gain["percent"] for gain in gains] == pytest.approx([100 / 9, 12.5])
    assert all(gain["low"] <= gain["percent"] <= gain["high"] and gain["real"] for gain in gains)
    record.command = ["gemm"]
    shown = to_terminal(blocks(record.document()))
    assert "what each rung gains over the one below" in shown
    assert "third is the fastest" in record.result["conclusion"]
    assert "Each rung gains over the one below." in record.result["conclusion"]


@pytest.mark.usefixtures("ladder")
@pytest.mark.parametrize(
    ("wrong", "over", "fastest"),
    [
        ("c", [None, None, "second"], "third"),
        ("c.1", [None, None, "first"], "third"),
        ("c.2", [None, "first", None], "second"),
    ],
)
def test_a_rung_that_is_wrong_is_not_compared(
    gemm: Any, wrong: str, over: list[str | None], fastest: str
) -> None:
    """It gains nothing, nothing is gained over it, and it is never the fastest; the conclusion names it."""
    record, _ = gemm(request(16, 16, 16, stage=None), change=(3, 7, 9.0), changed=wrong)
    rows = record.result["stages"]
    assert [row["gain"] and row["gain"]["over"] for row in rows] == over
    assert f"{fastest} is the fastest" in record.result["conclusion"]
    (name,) = (row["stage"] for row in rows if not row["verified"])
    assert f"Not compared, results that are not verified: {name}." in record.result["conclusion"]


@pytest.mark.usefixtures("ladder")
def test_a_rung_that_the_device_does_not_survive_leaves_the_others(gemm: Any) -> None:
    """It is skipped with the reason, the next is held against the rung below it, and the run ends with 5."""
    with pytest.raises(DeviceError, match="illegal address") as caught:
        gemm(request(16, 16, 16, stage=None), fault=DeviceError("illegal address"), faulty=("second",))
    record = caught.value.record
    assert record is not None
    assert [row["stage"] for row in record.result["stages"]] == ["first", "third"]
    assert record.result["stages"][1]["gain"]["over"] == "first"
    assert {"case": "second", "reason": "illegal address"} in record.skipped


def test_a_ceiling_is_timed_beside_the_stages(gemm: Any) -> None:
    """TFLOP/s by its own operations; clocks and FLOP of an SM as its kernel counted them."""
    record, _ = gemm(request(16, 16, 16))
    found = {row["ceiling"]: row for row in record.result["ceilings"]}
    assert set(found) == {entry.name for entry in ceiling_entries()}
    for name, row in found.items():
        ceiling = find_ceiling(name)
        flop = ceiling.flop(ceiling.case("sm_90a")) * ceiling.rounds
        assert row["tflops"] == pytest.approx(flop * 132 / CEILING_MS / 1e9, rel=1e-3)
        assert row["flop_per_clock_and_sm"] == pytest.approx(flop / 1e6)
        assert row["sm_mhz"] == pytest.approx(1e6 / 600e-6 / 1e6)
    (row,) = record.result["stages"]
    assert row["peak"].items() <= found[row["peak"]["ceiling"]].items()


def test_what_an_architecture_lacks_is_skipped() -> None:
    """Wgmma is on sm_90a alone; no ceiling is timed where nothing is."""
    from dataclasses import replace

    from gemm_stand_in import H200

    ready, missing = loops("f16", replace(H200, arch="sm_80"))
    assert [loop.ceiling.name for loop in ready] == ["mma-sync"]
    assert missing == [("ceiling wgmma", "wgmma is not on sm_80")]


def _ceiling_points() -> Iterator[tuple[str, Any]]:
    for entry in ceiling_entries():
        ceiling = find_ceiling(entry.name)
        yield from ((entry.name, case) for case in ceiling.variants("sm_90a"))


def test_ceilings_compile_to_what_they_claim() -> None:
    """The instruction, no spills, no advisory."""
    from ptxlab.experiments.record import Record
    from ptxlab.experiments.runner import check_sass, kernel_report
    from ptxlab.experiments.unit import build_unit, kernel_name

    for name, case in _ceiling_points():
        ceiling, record = find_ceiling(name), Record()
        kernel = kernel_report(
            build_unit(ceiling, [case], "sm_90a"), kernel_name(ceiling, ceiling.macros(case))
        )
        check_sass(kernel, ceiling.claims(case), record)
        assert [check for check in record.checks if not check["ok"]] == [], name
        assert kernel["tensor_ops"] > 0, name


def test_recorded_ceilings_are_of_these_kernels() -> None:
    """Each that was recorded; what it says is what such a kernel can reach."""
    from ptxlab.experiments import recording

    for entry in ceiling_entries():
        ceiling = find_ceiling(entry.name)
        for kept in recording.recordings(ceiling):
            for name, variant in kept.variants.items():
                case = ceiling.case(name.partition(" ")[0], **variant["params"])
                assert not recording.is_stale(ceiling, case, variant), "record it again: gemm --record"
                assert variant["result"]["tflops"] > 0


def test_against_itself_the_first_rung_alone_is_compared(gemm: Any) -> None:
    """A point has no verdict against another's second run."""
    asked = {"stage": "wmma-warptile", "sweeps": ("tile_k=16,32",), "method": {"versus": "self"}}
    record, _ = gemm(request(64, 64, 64, **asked))
    first, second = record.result["stages"]
    assert first["percent_of_itself"] == pytest.approx(100)
    assert second["percent_of_itself"] is second["verdict"] is None
    assert second["baseline_note"] == "the first point alone is timed once more"


def test_what_runs_is_drawn_as_bars() -> None:
    """One for each side, the fastest the longest."""
    from rich.console import Console

    console = Console(width=100, force_terminal=False, record=True)
    console.print(bars({"slow": 100.0, "fast": 400.0}))
    slow, fast = console.export_text().splitlines()[1:]
    assert slow.count("█") == 10
    assert fast.count("█") == 40
    assert "400.0" in fast


def test_progress_reaches_whoever_watches(gemm: Any) -> None:
    """What is being done, how far it is, and the rates by name."""
    shown: list[tuple[Any, ...]] = []
    record, _ = gemm(request(16, 16, 16), show=lambda *what: shown.append(what))
    told = [each for each in shown if len(each) == 4 and each[3]]
    assert told[0][0] == "16x16x16: sampling 1 of 20"
    assert told[0][1:3] == (pytest.approx(1 / 20), 1.0)
    assert set(told[0][3]) == {"wmma-naive", "cuBLASLt"}
    assert told[0][3]["wmma-naive"] == pytest.approx(record.result["stages"][0]["tflops"], rel=1e-3)
