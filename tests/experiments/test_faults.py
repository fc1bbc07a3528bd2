"""Planted faults: what the device must refuse is predicted, and its refusal is agreement."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ptxlab.device.job import DeviceInfo, Job, JobResult
from ptxlab.errors import DeviceError
from ptxlab.experiments import recording, registry, runner, verify
from ptxlab.experiments.base import Case
from ptxlab.experiments.probe import Fault, Probe

CARD = DeviceInfo("Test Card", "sm_90a", 132, 1, 1, 1, "1.2", "13.0")


class StandIn:
    """A worker that faults, or answers what the model says."""

    def __init__(self, probe: Probe, *, faults: bool) -> None:
        self._probe = probe
        self._faults = faults

    def run(self, job: Job) -> JobResult:
        """Do what it was made for."""
        del job
        if self._faults:
            raise DeviceError("the kernel faulted: misaligned address")
        predicted = self._probe.expected(self._probe.case("sm_90a"))
        return JobResult({name: array.reshape(-1).view("u1") for name, array in predicted.items()}, [])


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    """A copy of a built-in probe without recordings."""
    found = registry.find_probe("ldmatrix")
    shutil.copytree(found.folder, tmp_path / found.name, ignore=shutil.ignore_patterns("recordings"))
    found.folder = tmp_path / found.name
    return found


def plant(probe: Probe, monkeypatch: pytest.MonkeyPatch, *, certain: bool) -> None:
    """Make the probe say that its points fault."""
    planted = Fault("the plant", "something is wrong; mend it", certain=certain)

    def fault(case: Case) -> Fault:
        del case
        return planted

    monkeypatch.setattr(probe, "fault", fault)


def run(probe: Probe, *, faults: bool) -> dict[str, bool]:
    """Run the default point on the stand-in and return each check's verdict."""
    worker: Any = StandIn(probe, faults=faults)
    record, _ = runner.run_probe(probe, probe.case("sm_90a"), runner.Lab("sm_90a", worker, CARD, ""))
    return {check["name"]: check["ok"] for check in record.checks}


def test_a_predicted_fault_agrees_and_is_a_finding(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model was right, and what the user chose is wrong: exit 1."""
    plant(probe, monkeypatch, certain=True)
    checks = run(probe, faults=True)
    assert checks["prediction"]
    assert not checks["the plant"]


def test_a_fault_that_does_not_come_is_a_disagreement(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it is a race, which the device need not notice."""
    plant(probe, monkeypatch, certain=True)
    assert not run(probe, faults=False)["prediction"]
    plant(probe, monkeypatch, certain=False)
    assert run(probe, faults=False)["prediction"]


def test_a_fault_that_nobody_predicted_is_an_error(probe: Probe) -> None:
    """It ends the run with exit 5."""
    with pytest.raises(DeviceError, match="misaligned"):
        run(probe, faults=True)


@pytest.mark.parametrize("certain", [True, False])
def test_how_the_device_ended_is_recorded(
    probe: Probe, monkeypatch: pytest.MonkeyPatch, *, certain: bool
) -> None:
    """A machine without a GPU then knows that silicon faulted."""
    plant(probe, monkeypatch, certain=certain)
    case = probe.case("sm_90a")
    worker: Any = StandIn(probe, faults=True)
    record, outputs = runner.run_probe(probe, case, runner.Lab("sm_90a", worker, CARD, ""))
    kept = recording.start(probe, CARD.name, {})
    kept.add(probe, case, *verify.kept_of(probe, case, outputs, record))
    recording.save(probe, kept)
    again, _ = runner.run_probe(probe, case, runner.Lab("sm_90a", None, None, "no GPU in this test"))
    verdict = next(check for check in again.checks if check["name"] == "recording")
    assert verdict["ok"]
    assert "misaligned address" in verdict["detail"]
