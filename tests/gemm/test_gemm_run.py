"""A whole run of ``ptxlab gemm`` with a stand-in for the device that answers from numpy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gemm_jobs import copied_kernels, problem
from gemm_stand_in import STAGE_MS, request

from ptxlab import assets
from ptxlab.device.job import Launch
from ptxlab.errors import DeviceError, ExitCode, MissingError, UsageError
from ptxlab.experiments import recording, unit
from ptxlab.experiments.gemm import run
from ptxlab.experiments.gemm.catalogue import list_record, recorded
from ptxlab.experiments.gemm.check import PANEL_MACS, Check
from ptxlab.experiments.gemm.measure import SIDE_SECONDS, Entrant, Method, Trial
from ptxlab.experiments.gemm.run import run_gemm
from ptxlab.experiments.registry import find_stage
from ptxlab.experiments.runner import Lab
from ptxlab.render.show import blocks
from ptxlab.render.terminal import to_terminal


def test_a_right_result_is_a_row_that_scripts_can_read(gemm: Any) -> None:
    """All names of the contract, and numbers that follow from the samples."""
    record, _ = gemm(request(48, 40, 64))
    assert record.exit_code == ExitCode.OK
    document = json.loads(json.dumps(record.document(), default=str))
    (row,) = document["result"]["stages"]
    assert (row["stage"], row["m"], row["n"], row["k"]) == ("wmma-naive", 48, 40, 64)
    assert (row["dtype"], row["acc"], row["out"], row["layout"]) == ("f16", "f32", "f16", "tn")
    assert row["milliseconds"]["median"] == pytest.approx(STAGE_MS, rel=1e-4)
    assert row["tflops"] == pytest.approx(2 * 48 * 40 * 64 / 2e-3 / 1e12, rel=1e-4)
    assert row["percent_of_cublas"] == pytest.approx(25, rel=1e-4)
    assert (row["baseline"], row["verdict"]) == ("cuBLAS 13.1", "slower")
    assert row["percent_of_measured_peak"] == pytest.approx(100 * row["tflops"] / row["peak"]["tflops"])
    assert (row["peak"]["ceiling"], row["peak_note"]) == (find_stage("wmma-naive").ceiling, "")
    assert row["verified"] is True
    assert (row["overflow"], row["wrong"], row["nan_references"]) == (0, 0, 0)
    assert (row["clock_mhz"], row["power_w"]) == (1830, 500)
    assert 0 < row["max_error"] <= row["max_error_at"]["permitted"]
    assert row["cublas"]["verified"] is True


def test_an_error_of_half_an_ulp_is_said_to_be_rounding(gemm: Any) -> None:
    """Not a bug, and the message says so."""
    record, _ = gemm(request(48, 40, 64))
    detail = record.checks[-1]["detail"]
    assert "ulp of f16" in detail
    assert detail.endswith("output rounding, not a bug")


def test_the_clock_is_the_one_that_the_sms_counted(gemm: Any) -> None:
    """With it, what was done per cycle is known, of 4096 operations of an SM's tensor cores."""
    record, _ = gemm(request(48, 40, 64), sm_mhz=1600.0)
    (row,) = record.result["stages"]
    assert (row["clock_mhz"], row["clock_source"], row["nvml_mhz"]) == (1600, "SM", 1830)
    cycles = 1600e6 * row["milliseconds"]["median"] / 1e3
    share = 100 * 2 * 48 * 40 * 64 / (4096 * 132 * cycles)
    assert row["percent_of_tensor_peak_at_clock"] == pytest.approx(share)
    record.command = ["gemm"]
    text = " ".join(to_terminal(blocks(record.document())).split())
    assert "NVML, once a sample, told 1830 where they counted 1600 (wmma-naive)" in text


def test_without_it_nvml_tells_the_clock_and_no_share_is_known(gemm: Any) -> None:
    """NVML's can be another one than the kernel's, by which a share would be no share."""
    record, _ = gemm(request(48, 40, 64))
    (row,) = record.result["stages"]
    assert (row["clock_mhz"], row["clock_source"], row["nvml_mhz"]) == (1830, "NVML", 1830)
    assert row["percent_of_tensor_peak_at_clock"] is None


def test_one_wrong_element_fails(gemm: Any) -> None:
    """Exit 1, and the message says where it is and what would be right."""
    record, _ = gemm(request(48, 40, 64), change=(31, 7, 1.0))
    assert record.exit_code == ExitCode.CHECK_FAILED
    (row,) = record.result["stages"]
    assert (row["verified"], row["wrong"]) == (False, 1)
    assert (row["first_wrong"][0]["row"], row["first_wrong"][0]["col"]) == (31, 7)
    assert "1919 of 1920 elements verified" in record.checks[-1]["detail"]
    assert "1 wrong" in record.checks[-1]["detail"]
    assert "row 31, column 7" in record.checks[-1]["detail"]
    assert "not a bug" not in record.checks[-1]["detail"]


def test_a_wrong_result_is_compared_with_nothing(gemm: Any) -> None:
    """No share of the library and no verdict; the conclusion says why its time counts for nothing."""
    record, _ = gemm(request(48, 40, 64), change=(31, 7, 1.0))
    (row,) = record.result["stages"]
    assert row["percent_of_cublas"] is row["baseline"] is row["verdict"] is None
    assert row["baseline_note"] == "not compared: its result is not verified"
    assert "NOT VERIFIED (1919 of 1920 elements verified" in record.result["conclusion"]
    assert "reaches" not in record.result["conclusion"]


@pytest.mark.parametrize(("wrong", "baseline"), [("c.cublas", "torch"), ("c.torch", "cuBLAS 13.1")])
def test_a_library_that_is_wrong_is_no_baseline(gemm: Any, wrong: str, baseline: str) -> None:
    """The other one is, however slow it is."""
    record, _ = gemm(request(48, 40, 64), change=(31, 7, 1.0), changed=wrong)
    (row,) = record.result["stages"]
    assert row["baseline"].startswith(baseline)


def test_a_wrong_point_of_a_sweep_is_neither_the_fastest_nor_slower(gemm: Any) -> None:
    """The stand-in's second point is the fastest, and wrong: the others are held against the third."""
    sweep = request(16, 16, 16, stage="wmma-warptile", sweeps=("tile_k=16,32,64",))
    record, _ = gemm(sweep, change=(3, 7, 1.0), changed="c.2")
    verdicts = [point["verdict"] for point in record.result["sweep"]["points"]]
    assert verdicts == ["slower", "fastest", None]
    assert "Fastest: wmma-warptile tile_k=32." in record.result["conclusion"]
    assert record.result["conclusion"].endswith("that are not verified: wmma-warptile tile_k=64.")
    record.command = ["gemm"]
    assert "NOT VERIFIED" in to_terminal(blocks(record.document()))


def test_a_repeated_run_that_fails_is_named(gemm: Any) -> None:
    """With what was wrong in it; the row shows that run, and each run says whether it is verified."""
    record, _ = gemm(request(48, 40, 64, repeat=3), change=(31, 7, 1.0), changed_runs=(1,))
    assert record.exit_code == ExitCode.CHECK_FAILED
    (row,) = record.result["stages"]
    assert [run["verified"] for run in row["repeats"]["runs"]] == [True, False, True]
    assert (row["verified"], row["wrong"], row["repeats"]["failed"]) == (False, 1, [2])
    assert record.checks[-1]["detail"].startswith("run 2 of 3: 1919 of 1920 elements verified")
    record.command = ["gemm"]
    assert "NO" in to_terminal(blocks(record.document()))


def test_nan_fails(gemm: Any) -> None:
    """NaN never passes."""
    record, _ = gemm(request(16, 16, 16), change=(0, 0, np.nan))
    assert record.exit_code == ExitCode.CHECK_FAILED
    assert record.result["stages"][0]["wrong"] == 1


def test_damaged_canaries_fail(gemm: Any) -> None:
    """A stage that writes beside its result is not verified; damage by the library is not its fault."""
    record, _ = gemm(request(16, 16, 16), damaged=["c: 4 bytes past its end from +0"])
    assert record.exit_code == ExitCode.CHECK_FAILED
    assert "past its end" in record.checks[-1]["detail"]
    record, _ = gemm(request(16, 16, 16), damaged=["c.cublas: 4 bytes past its end from +0"])
    assert record.exit_code == ExitCode.OK


def test_overflow_is_no_pass(gemm: Any) -> None:
    """Seq from 85 on: counted apart from wrong ones, and the run ends with exit 1."""
    record, _ = gemm(request(84, 84, 84, "seq"))
    assert record.exit_code == ExitCode.OK
    record, _ = gemm(request(85, 85, 85, "seq"))
    assert record.exit_code == ExitCode.CHECK_FAILED
    (row,) = record.result["stages"]
    assert (row["verified"], row["overflow"], row["wrong"]) == (False, 248, 0)
    assert "248 overflow f16" in record.checks[-1]["detail"]


@pytest.mark.parametrize(
    ("init", "notes"), [("normal", 0), ("ints", 1), ("naturals", 1), ("seq", 1), ("ones", 2), ("zeros", 2)]
)
def test_inputs_that_are_not_random_are_labelled(gemm: Any, init: str, notes: int) -> None:
    """They draw other power; and a fill that looks alike after any permutation is warned about."""
    record, _ = gemm(request(16, 16, 16, init))
    assert len(record.result["notes"]) == notes
    assert all(init in note for note in record.result["notes"])
    assert record.result["stages"][0]["init"] == init


def test_without_cublas_there_is_no_percent(gemm: Any) -> None:
    """Null, with the reason; the stage is timed all the same."""
    for how, vs in (({"library": False}, "cublas"), ({}, "none")):
        record, _ = gemm(request(16, 16, 16, method={"versus": vs}), **how)
        (row,) = record.result["stages"]
        assert row["percent_of_cublas"] is row["baseline"] is row["verdict"] is row["cublas"] is None
        assert row["baseline_note"]
        assert row["tflops"] > 0
        assert record.exit_code == ExitCode.OK


def test_a_stage_that_is_not_what_it_claims_is_not_timed(gemm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim fails the run; no row."""
    stage = find_stage("wmma-naive")
    monkeypatch.setattr(type(stage), "claims", lambda *_: {"HGMMA": 1})
    monkeypatch.setattr(run, "find_stage", lambda _: stage)
    record, stand_in = gemm(request(16, 16, 16))
    assert record.exit_code == ExitCode.CHECK_FAILED
    assert record.result["stages"] == stand_in.timeouts == []
    assert "not what it claims" in record.skipped[0]["reason"]


def test_a_stage_that_stores_by_tma_without_a_fence_is_not_timed(
    gemm: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No run would prove that TMA sees what lanes wrote to shared memory; the SASS tells."""
    folder = tmp_path / "kernels"
    shutil.copytree(assets.kernels_folder(), folder)
    store = folder / "include" / "ptxlab" / "gemm_store.cuh"
    text = store.read_text(encoding="utf-8")
    assert text.count("fence_proxy_async();") == 1
    store.write_text(text.replace("fence_proxy_async();", ""), encoding="utf-8")
    monkeypatch.setattr(assets, "kernels_folder", lambda: folder)
    record, _ = gemm(request(256, 256, 64, stage="cluster"))
    (failed,) = (check for check in record.checks if not check["ok"])
    assert failed["name"] == "proxy fence"
    assert "UTMASTG" in failed["detail"]
    assert record.result["stages"] == []


def test_what_does_not_fit_is_refused(gemm: Any) -> None:
    """Exit 3: a and b of 192 GiB each, c of 128 GiB, twice."""
    with pytest.raises(MissingError, match=r"takes \d+\.\d GiB; NVIDIA H200 has 141\.0 GiB"):
        gemm(request(2**18, 2**18, 3 * 2**17))


def test_the_time_limit_grows_with_the_work() -> None:
    """16384^3 is checked in panels, each below the limit of one launch, and is given minutes."""
    stage = find_stage("wmma-naive")
    case = stage.case("sm_90a", m=16384, n=16384, k=16384)
    check = Check(problem(16384, 16384, 16384), "normal", 0)
    panels = check.compares("c")
    assert len(panels) == 16384**3 // PANEL_MACS
    assert all(isinstance(each, Launch) for each in panels)
    assert sum(each.grid[1] for each in panels) == 16384 // 64
    sizes = [[value for value in each.arguments if isinstance(value, np.int64)] for each in panels]
    firsts = [int(each[7]) for each in sizes]  # behind m, n, k and the strides of A and B
    assert firsts == list(range(0, 256, panels[0].grid[1]))
    large = (Entrant(stage, case, b""),)
    assert 60 <= Trial(large, check, Method(versus="none")).seconds <= 600
    small = Check(problem(64, 64, 64), "normal", 0)
    point = (Entrant(stage, stage.case("sm_90a", m=64, n=64, k=64), b""),)
    alone = Trial(point, small, Method(versus="none", warmup_ms=0)).seconds
    assert alone == pytest.approx(SIDE_SECONDS, abs=0.1)
    assert Trial(point * 9, small, Method(versus="none", warmup_ms=0)).seconds == pytest.approx(9 * alone)


def test_the_view_shows_all_of_it(gemm: Any) -> None:
    """Every number of the row, the checks, the explanation and the conclusion."""
    record, _ = gemm(request(48, 40, 64, "ints"))
    record.command = ["gemm"]
    text = to_terminal(blocks(record.document()))
    row = record.result["stages"][0]
    for part in ("wmma-naive", "48x40x64", "ints", "slower", "25.0", "cuBLAS 13.1", "yes"):
        assert part in text
    assert f"{row['tflops']:.1f}" in text
    assert "shared memory of a block" in text
    assert "What limits it is expected to be" in text
    assert "other power" in text


def test_recordings_are_shown_and_grow_stale(
    gemm: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """--record keeps the row; without a GPU it is shown; a changed kernel makes it stale."""
    folder = copied_kernels(tmp_path)
    monkeypatch.setattr(assets, "kernels_folder", lambda: folder)
    stage = find_stage("wmma-naive")
    assert stage.folder.is_relative_to(tmp_path)
    shutil.rmtree(stage.recordings, ignore_errors=True)
    assert recorded(stage) == []
    record, _ = gemm(request(48, 40, 64, keep=True))
    assert [Path(each).name for each in record.result["recordings"]] == ["nvidia-h200.json"]
    (row,) = recorded(stage)
    assert (row["device"], row["m"], row["stale"]) == ("NVIDIA H200", 48, False)
    assert row["percent_of_cublas"] == pytest.approx(25, rel=1e-4)
    (listed,) = list_record().result["available"]
    assert listed["recorded"][0]["tflops"] == row["tflops"]
    stage.source.write_text(stage.source.read_text(encoding="utf-8") + "#define CHANGED\n", encoding="utf-8")
    assert recorded(stage)[0]["stale"] is True
    monkeypatch.setattr(run, "open_lab", lambda *_: Lab("sm_90a", None, None, "no driver"))
    with pytest.raises(MissingError, match="not run: no driver") as caught:
        run_gemm(request(48, 40, 64), lambda *_: None)
    assert caught.value.record is not None
    assert caught.value.record.result["recorded"][0]["m"] == 48
    monkeypatch.undo()
    monkeypatch.setattr(assets, "kernels_folder", lambda: folder)
    monkeypatch.setenv("PTXLAB_HISTORY", str(tmp_path / "history.jsonl"))
    gemm(request(16, 16, 16, keep=True))
    assert [(row["m"], row["stale"]) for row in recorded(find_stage("wmma-naive"))] == [(16, False)]


def test_a_hot_run_is_recorded_beside_a_cold_one(
    gemm: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither takes the other's place; what is quoted of the kernel is the cold one."""
    folder = copied_kernels(tmp_path)
    monkeypatch.setattr(assets, "kernels_folder", lambda: folder)
    stage = find_stage("wmma-naive")
    shutil.rmtree(stage.recordings, ignore_errors=True)
    for cold in (True, False, False, True):
        gemm(request(16, 16, 16, keep=True, method={"cold": cold}))
    assert sorted(row["l2"] for row in recorded(stage)) == ["cold", "hot"]
    (kept,) = recording.recordings(stage)
    case = stage.case("sm_90a", **request(16, 16, 16).options)
    quoted = kept.find(stage, case)
    assert quoted is not None
    assert quoted["result"]["l2"] == "cold"


def test_a_recording_says_each_thing_once(gemm: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A row of less than 3 KB, so that a hundred fit; each library has its name, its time and its check."""
    folder = copied_kernels(tmp_path)
    monkeypatch.setattr(assets, "kernels_folder", lambda: folder)
    stage = find_stage("wmma-naive")
    shutil.rmtree(stage.recordings, ignore_errors=True)
    record, _ = gemm(request(16, 16, 16, keep=True))
    (measured,), (row,) = record.result["stages"], recorded(stage)
    names = ("name", "verified", "milliseconds")
    for kept, library in zip(row["libraries"], measured["libraries"], strict=True):
        assert [kept[name] for name in names] == [library[name] for name in names]
    assert "cublas" not in row
    lines = (stage.recordings / "nvidia-h200.json").read_text(encoding="utf-8").splitlines()
    assert max(map(len, lines)) < 3000


def test_a_wrong_result_is_not_recorded(gemm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings hold what is right."""
    monkeypatch.setattr(recording, "save", lambda *_: pytest.fail("it was recorded"))
    record, _ = gemm(request(16, 16, 16, keep=True), change=(0, 0, 9.0))
    assert record.result["recordings"] == []


def test_a_device_that_fails_is_told_after_the_other_stages(gemm: Any) -> None:
    """Exit 5, and the record says which stage it was."""
    with pytest.raises(DeviceError, match="timed out") as caught:
        gemm(request(16, 16, 16), fault=DeviceError("the device timed out after 20 s"))
    assert caught.value.record is not None
    assert caught.value.record.skipped[-1] == {
        "case": "wmma-naive",
        "reason": "the device timed out after 20 s",
    }
    assert len(caught.value.record.result["explanations"]) == 1


def test_without_a_compiler_the_work_is_still_explained(gemm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 3 even with --explain: what the SASS would tell is missing."""

    def no_compiler(*_: object) -> None:
        raise MissingError("NVRTC is not here", "pip install nvidia-cuda-nvrtc")

    monkeypatch.setattr(unit, "unit_builder", no_compiler)
    with pytest.raises(MissingError, match="NVRTC is not here") as caught:
        gemm(request(16, 16, 16, explain_only=True))
    (said,) = caught.value.record.result["explanations"]  # type: ignore[union-attr]
    assert said["occupancy"] is None
    assert said["limiter"]["resource"] == "device memory"


def test_the_ladder_runs_what_it_can(gemm: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stage that does not load is skipped with the reason; asked for by name it is an error."""
    folder = copied_kernels(tmp_path)
    broken = folder / "gemm" / "broken"
    broken.mkdir()
    (broken / "stage.py").write_text('"""Does not load."""\n1 / 0\n', encoding="utf-8")
    monkeypatch.setattr(assets, "kernels_folder", lambda: folder)
    record, _ = gemm(request(16, 16, 16, stage=None))
    assert [row["stage"] for row in record.result["stages"]] == ["wmma-naive"]
    assert record.skipped[0]["case"] == "broken"
    assert "ZeroDivisionError" in record.skipped[0]["reason"]
    rows = {row["stage"]: row for row in list_record().result["available"]}
    assert "ZeroDivisionError" in rows["broken"]["problem"]
    with pytest.raises(UsageError, match="unknown stage 'wmma'; legal: broken, wmma-naive"):
        gemm(request(16, 16, 16, stage="wmma"))
