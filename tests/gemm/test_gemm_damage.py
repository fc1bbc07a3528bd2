"""Damaged recordings of stages: told by file, point and field, and cured by recording again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gemm_jobs import copied_kernels
from gemm_stand_in import H200, request

from ptxlab import assets
from ptxlab.errors import MissingError, ToolError
from ptxlab.experiments import recording, runner
from ptxlab.experiments.gemm import GemmStage, run
from ptxlab.experiments.gemm.catalogue import recorded, without_stale
from ptxlab.experiments.gemm.ceiling import recorded_peak
from ptxlab.experiments.registry import find_ceiling, find_stage

Run = Callable[..., Any]
Change = Callable[[dict[str, Any]], object]

TIMES = {"low": 1.0, "median": 2.0, "high": 3.0}
GAIN = {"over": "s", "percent": 1.0, "low": 0.5, "high": 1.5}


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> GemmStage:
    """Return a copy of wmma-naive, with its recordings, that a test may damage."""
    folder = copied_kernels(tmp_path)
    monkeypatch.setattr(assets, "kernels_folder", lambda: folder)
    return find_stage("wmma-naive")


def changed(file: Path, change: Change) -> str:
    """Change the first variant of a recording, and return its name."""
    text = json.loads(file.read_text(encoding="utf-8"))
    name, variant = next(iter(text["variants"].items()))
    change(variant)
    file.write_text(json.dumps(text), encoding="utf-8")
    return str(name)


def file_of(stage: GemmStage) -> Path:
    """Return the recording of the H200."""
    return recording.recording_file(stage, H200.name)


@pytest.mark.parametrize(
    "field", ["stage", "problem", "options", "throttle", "libraries", "peak", "nvml_mhz"]
)
def test_a_field_that_is_shown_must_be_there(stage: GemmStage, field: str) -> None:
    """The error names file, point and field."""
    name = changed(file_of(stage), lambda variant: variant["result"].pop(field))
    with pytest.raises(ToolError) as caught:
        recorded(stage)
    assert caught.value.message == f"{file_of(stage)} is damaged: '{name}' has no {field} such as gemm writes"


@pytest.mark.parametrize(
    ("field", "value"),
    [("options", "x"), ("options", {"tile": {}}), ("problem", None), ("throttle", None), ("throttle", [1]),
     ("tflops", 10**400), ("tflops", float("inf")), ("tflops", -1), ("tflops", 0), ("tflops", True),
     ("milliseconds", None), ("milliseconds", TIMES | {"median": float("nan")}),
     ("milliseconds", TIMES | {"low": 2.5}), ("milliseconds", TIMES | {"low": 0}),
     ("verified", False), ("verified", "yes"), ("m", 4096.5), ("k", 0), ("clock_mhz", None),
     ("power_w", -1), ("max_error", float("nan")), ("samples", 0), ("throttled_samples", -1),
     ("percent_interval", {"low": 0, "high": 1}), ("percent_interval", {"low": 2, "high": 1}),
     ("gain", {}), ("gain", GAIN | {"low": -100}), ("gain", GAIN | {"over": 1}),
     ("libraries", "x"), ("libraries", [{}]), ("peak", "x"), ("peak", {})],
    ids=str,
)  # fmt: skip
def test_a_field_must_be_what_gemm_writes(stage: GemmStage, field: str, value: object) -> None:
    """A number is finite and not impossible, and nothing is kept that is not verified."""
    changed(file_of(stage), lambda variant: variant["result"].update({field: value}))
    with pytest.raises(ToolError, match=rf"is damaged: '.*' has no {field} such as gemm writes"):
        recorded(stage)


def test_tables_and_documents_tell_the_same_damage(
    stage: GemmStage, run_here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 4, whichever is asked for; the list shows it in the place of the stage."""
    monkeypatch.setattr(runner, "has_driver", lambda: False)
    changed(file_of(stage), lambda variant: variant["result"].pop("options"))
    command = ("gemm", "--stage", "wmma-naive", "-m", "64")
    table, document = run_here(*command), run_here(*command, "--json")
    assert table.returncode == document.returncode == 4
    told = json.loads(document.stdout)["error"]["message"]
    assert "has no options such as gemm writes" in told
    assert table.stderr.splitlines()[0] == f"ptxlab: {told}"
    listed = run_here("gemm", "--list")
    assert listed.returncode == 0
    assert "has no options such as gemm writes" in " ".join(listed.stdout.split())


def test_a_kernel_that_cannot_be_read_makes_nothing_stale(stage: GemmStage) -> None:
    """Whether it has changed is not known: that is told."""
    stage.source.write_bytes(b"\xff")
    with pytest.raises(ToolError, match=r"kernel\.cu cannot be read"):
        recorded(stage)


def test_an_architecture_that_is_none_is_damage_and_not_kept(stage: GemmStage) -> None:
    """A run that records drops it as it drops what is stale."""
    text = json.loads(file_of(stage).read_text(encoding="utf-8"))
    name = next(iter(text["variants"]))
    text["variants"] = {name: text["variants"][name], "sm_1 x": text["variants"][name]}
    file_of(stage).write_text(json.dumps(text), encoding="utf-8")
    with pytest.raises(ToolError, match=r"is damaged: 'sm_1 x' is of no architecture; legal: sm_75, "):
        recorded(stage)
    kept = recording.start(stage, H200.name, {})
    without_stale(stage, kept)
    assert list(kept.variants) == [name]


def test_a_ceiling_that_is_damaged_is_named(stage: GemmStage) -> None:
    """It is a limit of each stage that uses the instruction."""
    ceiling = find_ceiling(stage.ceiling)
    (file,) = ceiling.recordings.glob("*.json")
    name = changed(file, lambda variant: variant["result"].pop("sm_mhz"))
    dtype = recording.load(file).variants[name]["params"]["dtype"]
    with pytest.raises(ToolError, match=rf"{file} is damaged: '{name}' has no sm_mhz such as gemm writes"):
        recorded_peak(stage.ceiling, dtype, H200.name)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:300])


def _without_tflops(file: Path) -> None:
    changed(file, lambda variant: variant["result"].pop("tflops"))


@pytest.mark.parametrize("damage", [_cut, _without_tflops])
def test_recording_again_cures_it(stage: GemmStage, gemm: Any, damage: Callable[[Path], None]) -> None:
    """As the hint of the error says, of the stage and of its ceiling; what was there is kept beside it."""
    files = [file_of(stage), recording.recording_file(find_ceiling(stage.ceiling), H200.name)]
    for file in files:
        damage(file)
    before = [file.read_bytes() for file in files]
    record, _ = gemm(request(16, 16, 16, keep=True))
    assert record.result["recordings"] == [str(files[0])]
    assert 16 in [row["m"] for row in recorded(stage)]
    assert [file.with_name(f"{file.name}.damaged").read_bytes() for file in files] == before


def test_what_cannot_be_cured_is_told_before_anything_runs(
    stage: GemmStage, gemm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No time is spent on a result that could not be kept."""
    _cut(file_of(stage))
    file_of(stage).with_name("nvidia-h200.json.damaged").mkdir()
    monkeypatch.setattr(run, "measure", lambda *_: pytest.fail("it was measured"))
    with pytest.raises(MissingError, match=f"cannot write {file_of(stage)}"):
        gemm(request(16, 16, 16, keep=True))
