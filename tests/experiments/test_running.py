"""Predict, run, compare: the runner, with recordings standing in for silicon."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.device.job import DeviceInfo
from ptxlab.device.presence import has_driver
from ptxlab.errors import MissingError, UsageError
from ptxlab.experiments import recording, registry, runner, verify
from ptxlab.experiments.catalogue import probe_record
from ptxlab.experiments.probe import Arrays, Probe, usual_arch
from ptxlab.experiments.unit import kernel_name


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    """A copy of a built-in probe without recordings."""
    found = registry.find_probe("ldmatrix")
    shutil.copytree(found.folder, tmp_path / found.name, ignore=shutil.ignore_patterns("recordings"))
    found.folder = tmp_path / found.name
    return found


def record_of(probe: Probe, answer: Arrays) -> None:
    """Keep an answer for the default point, as if a card had given it."""
    kept = recording.start(probe, "Test Card", {})
    kept.add(probe, probe.case("sm_90a"), answer)
    recording.save(probe, kept)


MODEL = runner.Lab("sm_90a", None, None, "no GPU in this test")


def checks(record: Any) -> dict[str, bool]:
    """Return each check's verdict by name."""
    return {check["name"]: check["ok"] for check in record.checks}


def test_without_a_recording_it_says_so(probe: Probe) -> None:
    """No recording is a skip with the reason, never a pass."""
    record, _ = runner.run_probe(probe, probe.case("sm_90a"), MODEL)
    assert "recording" not in checks(record)
    assert {"device", "recording"} <= {skip["case"] for skip in record.skipped}
    assert record.backend == "model"
    assert record.exit_code == 0


def test_a_recording_that_agrees(probe: Probe) -> None:
    """The card and the date are named."""
    record_of(probe, probe.expected(probe.case("sm_90a")))
    record, _ = runner.run_probe(probe, probe.case("sm_90a"), MODEL)
    assert checks(record)["recording"]
    assert record.result["recordings"][0]["device"] == "Test Card"


def test_one_wrong_bit_is_found_and_named(probe: Probe) -> None:
    """The silicon is right: a difference fails the run and names the place, both values in hex."""
    answer = {name: array.copy() for name, array in probe.expected(probe.case("sm_90a")).items()}
    name, array = next(iter(answer.items()))
    array[(0,) * array.ndim] ^= np.array(1, dtype=array.dtype)
    record_of(probe, answer)
    record, _ = runner.run_probe(probe, probe.case("sm_90a"), MODEL)
    assert checks(record)["recording"] is False
    assert record.exit_code == 1
    detail = next(check["detail"] for check in record.checks if check["name"] == "recording")
    assert f"{name} " in detail
    assert "differs in 1 of" in detail
    assert "predicted 0x" in detail


def test_a_stale_recording_proves_nothing(probe: Probe) -> None:
    """A kernel that changed since is a skip that asks to record again."""
    record_of(probe, probe.expected(probe.case("sm_90a")))
    probe.source.write_text(probe.source.read_text() + "#define CHANGED\n")
    record, _ = runner.run_probe(probe, probe.case("sm_90a"), MODEL)
    assert "recording" not in checks(record)
    assert any("older than the kernel" in skip["reason"] for skip in record.skipped)


def test_verify_counts(probe: Probe) -> None:
    """The recorded point agrees, however it is typed; all others are skipped with the reason."""
    default = probe.case("sm_90a")
    record_of(probe, probe.expected(default))
    seen: list[str] = []
    record = verify.verify([probe], MODEL, lambda what, done, total: seen.append(what), keep=False)
    cases = list(probe.variants("sm_90a"))
    same = sum(probe.identity(case) == probe.identity(default) for case in cases)
    counts = record.result
    assert counts["variants"] == counts["agree"] + counts["disagree"] + counts["skipped"] >= len(cases)
    assert (counts["agree"], counts["disagree"]) == (same, 0)
    assert counts["skipped"] == len(record.skipped) > len(cases) - same
    assert seen == [probe.name, *(f"{probe.name} {case.key}" for case in cases), probe.name]


def test_verify_names_the_forms_of_other_chips() -> None:
    """They were not run, on this machine or on any with this chip; what this chip has is none of them."""
    record = verify.verify([registry.find_probe("stmatrix")], MODEL, lambda *_: None, keep=False)
    (row,) = record.result["probes"]
    assert (row["agree"], row["disagree"], row["skipped"]) == (row["variants"] - 3, 0, 3)
    assert {each["reason"] for each in record.skipped} == {
        "not run on this chip: sm_100a has it, sm_90a has not"
    }
    assert all("shape=m16n8" in each["case"] for each in record.skipped)


def test_a_chip_without_the_instruction_has_nothing_to_compare() -> None:
    """The reason is the chip, and no missing driver or recording."""
    older = runner.Lab("sm_80", None, None, "no GPU in this test")
    with pytest.raises(MissingError, match="nothing to compare: sm_80 has no wgmma"):
        verify.verify([registry.find_probe("wgmma")], older, lambda *_: None, keep=False)


@pytest.mark.parametrize(
    ("name", "arch", "params"),
    [("ldmatrix", "sm_100a", {"shape": "m16n16", "trans": True, "dtype": "b8"}),
     ("stmatrix", "sm_120a", {"shape": "m16n8", "trans": True, "dtype": "b8"}),
     ("mma-arithmetic", "sm_89", {"dtype": "e4m3"})],
)  # fmt: skip
def test_what_no_chip_has_shown_is_marked(name: str, arch: str, params: dict[str, Any]) -> None:
    """Derived, and said to be; nothing else is said to be proven elsewhere."""
    probe = registry.find_probe(name)
    record, _ = runner.run_probe(probe, probe.case(arch, **params), replace(MODEL, arch=arch))
    assert record.result["unproven"] == (
        f"Not proven on silicon (not run on this chip): what is shown for {arch} is derived."
    )
    assert {"case": "recording", "reason": "not run on this chip"} in record.skipped


def test_what_another_chip_has_shown_is_said() -> None:
    """mma.sync on sm_80: derived, and just what an H200 answered."""
    probe = registry.find_probe("mma")
    record, _ = runner.run_probe(probe, probe.case("sm_80"), replace(MODEL, arch="sm_80"))
    assert record.result["unproven"].endswith("NVIDIA H200 (sm_90a) answered just this.")
    for params in ({}, {"perm_b": "1,0"}):  # recorded; and the same kernel with other data
        record, _ = runner.run_probe(probe, probe.case("sm_90a", **params), MODEL)
        assert record.result["unproven"] == ""


def test_other_options_than_those_recorded_are_no_other_chip() -> None:
    """An H200 ran this probe, and not this point: said so, and once."""
    probe = registry.find_probe("setmaxnreg")
    record, _ = runner.run_probe(probe, probe.case("sm_90a", dec=40, inc=240), MODEL)
    told = record.result["unproven"]
    assert told.startswith(
        "Not proven on silicon with these options, which no recording has; NVIDIA H200 ran "
    )
    assert "not run on this chip" not in str(record.skipped)


def test_without_a_name_and_a_device_a_probe_chooses_its_architecture(run_here: Any) -> None:
    """The usual one where that has it, else the first that has."""
    names = ("mma", "tcgen05", "clusterlaunchcontrol")
    usual = {name: usual_arch(registry.find_probe(name)) for name in names}
    assert usual == {"mma": "sm_90a", "tcgen05": "sm_100a", "clusterlaunchcontrol": "sm_100a"}
    if has_driver():
        pytest.skip("a device chooses here")
    done = run_here("probe", "clusterlaunchcontrol", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["arch"] == "sm_100a"
    assert run_here("probe", "clusterlaunchcontrol", "--arch", "sm_90a").returncode == 2


def test_what_a_probe_leaves_to_the_model_is_not_launched_nor_recorded() -> None:
    """Too large to be copied to a device, or no kernel at all: the reason is told."""
    probe = registry.find_probe("tma")
    params: dict[str, Any] = {"shape": "65536x65536"}
    record, _ = runner.run_probe(probe, probe.case("sm_90a", **params), MODEL)
    assert any("this probe copies up to" in skip["reason"] for skip in record.skipped)
    lab = replace(MODEL, device=DeviceInfo(**dict.fromkeys(DeviceInfo.__annotations__, 0)))
    with pytest.raises(UsageError, match="nothing to record: a tensor of 8589934592 B"):
        probe_record(probe, params, lab, lane=None, keep=True)


def test_recording_needs_a_device(probe: Probe) -> None:
    """--record without a GPU ends before anything runs."""
    with pytest.raises(MissingError, match="nothing to record: no GPU in this test"):
        verify.verify([probe], MODEL, lambda *_: None, keep=True)


@pytest.mark.parametrize(
    ("code", "chip", "runs"),
    [("sm_90a", "sm_90a", True), ("sm_90", "sm_90a", True), ("sm_80", "sm_86", True),
     ("sm_86", "sm_80", False),
     ("sm_80", "sm_90a", False), ("sm_100a", "sm_90a", False), ("sm_100a", "sm_103a", False),
     ("sm_100f", "sm_103a", True), ("sm_90a", "sm_100a", False)],
)  # fmt: skip
def test_which_code_runs_on_which_chip(code: str, chip: str, runs: bool) -> None:
    """Binary compatibility: within a generation upwards, `a` code on its own chip alone."""
    assert runner.runs_on(code, chip) is runs


def test_the_model_can_be_asked_for() -> None:
    """--backend model never looks for a device."""
    lab = runner.open_lab("model", None, 0, 20.0)
    assert (lab.backend, lab.arch, lab.worker) == ("model", "sm_90a", None)


def test_no_driver_means_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Auto falls back with the reason; device refuses with it."""
    monkeypatch.setattr(runner, "has_driver", lambda: False)
    assert "no NVIDIA driver" in runner.open_lab("auto", "sm_80", 0, 20.0).why_no_device
    with pytest.raises(MissingError, match="no NVIDIA driver"):
        runner.open_lab("device", None, 0, 20.0)


def test_nothing_compared_is_no_success(probe: Probe) -> None:
    """Without a device and without a recording verify ends with exit 3, and shows what it skipped."""
    with pytest.raises(MissingError, match="nothing to compare") as caught:
        verify.verify([probe], MODEL, lambda *_: None, keep=False)
    record = caught.value.record
    assert record is not None
    assert record.result["skipped"] == len(record.skipped) >= record.result["variants"] > 0


@pytest.mark.parametrize(("first", "second"), [({"OP": "+"}, {"OP": "-"}), ({"A": "x.y"}, {"A": "x_y"})])
def test_macros_that_differ_in_punctuation_are_two_kernels(
    probe: Probe, first: dict[str, str | int], second: dict[str, str | int]
) -> None:
    """Or one variant would be launched, and recorded, as another."""
    assert kernel_name(probe, first) != kernel_name(probe, second)
    assert kernel_name(probe, first).isidentifier()
