"""Outputs that are counters of launches: read in a run of ncu for each set of them, missing without ncu."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.device.job import Job, Launch
from ptxlab.errors import MissingError, ToolError
from ptxlab.experiments import counted as module
from ptxlab.experiments import registry, runner
from ptxlab.experiments.counted import counted
from ptxlab.experiments.probe import Probe
from ptxlab.toolchain import ncu

LAUNCH = Launch("unit", "k", (1, 1, 1), (32, 1, 1), ())
JOBS = [Job({}, (), (LAUNCH, LAUNCH)), Job({}, (), (LAUNCH,)), Job({}, (), (LAUNCH,))]
WANTED = [{"wavefronts": "a.sum"}, {"wavefronts": "a.sum", "conflicts": "b.sum"}, {"wavefronts": "a.sum"}]


Runs = dict[tuple[str, ...], list[dict[str, Any]]]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """What ncu finds when it is asked for these metrics; the lists may be changed."""
    found: Runs = {
        ("a.sum",): [{"metrics": {"a.sum": 10.0 * n}} for n in range(3)],
        ("a.sum", "b.sum"): [{"metrics": {"a.sum": 7.0, "b.sum": 2.0}}],
    }

    def collect(tool: Any, request: ncu.Request, report: Path) -> ncu.Outcome:
        del tool, report
        assert request.kernel == "regex:^(k)$"
        return ncu.Outcome(found[tuple(request.metrics)], (), None)

    monkeypatch.setattr(ncu, "collect", collect)
    monkeypatch.setattr(ncu, "find_ncu", lambda: None)
    return found


def test_each_job_gets_the_counters_of_its_own_launches(runs: Runs) -> None:
    """In the order in which they were launched; and none is asked for what it does not want."""
    assert runs
    found = counted(JOBS, WANTED, 0)
    assert [{name: values.tolist() for name, values in each.items()} for each in found] == [
        {"wavefronts": [0, 10]},
        {"wavefronts": [7], "conflicts": [2]},
        {"wavefronts": [20]},
    ]
    assert found[0]["wavefronts"].dtype == np.uint64


def test_a_launch_or_a_value_that_is_missing_is_told(runs: Runs) -> None:
    """Nothing is filled up with zeros."""
    runs["a.sum",][1]["metrics"]["a.sum"] = None
    with pytest.raises(MissingError, match=r"could not read the counter a\.sum"):
        counted(JOBS, WANTED, 0)
    runs["a.sum",].pop()
    with pytest.raises(ToolError, match="profiled 2 of 3 launches"):
        counted(JOBS, WANTED, 0)


class Silicon:
    """A worker that answers with what the model predicts."""

    def __init__(self, probe: Any, case: Any) -> None:
        self._probe, self._case = probe, case

    def close(self) -> None:
        """Do nothing."""

    def run(self, job: Job) -> Any:
        """Return every buffer that is asked for."""
        predicted = self._probe.expected(self._case)
        arrays = {
            each.name: np.ascontiguousarray(predicted[each.name]).view(np.uint8).ravel()
            if each.name in predicted
            else np.zeros(each.nbytes, np.uint8)
            for each in job.buffers
            if each.download
        }
        return type("Result", (), {"clusters": {}, "damaged_canaries": [], "arrays": arrays})()


def run(monkeypatch: pytest.MonkeyPatch, answer: Any) -> Any:
    """Run a probe that has counters on a stand-in for a device, with this answer of ncu."""
    probes = (each for each in registry.usable_probes() if isinstance(each, Probe))
    probe = next(each for each in probes if each.counters(each.case("sm_90a")))
    case = probe.case("sm_90a")

    def read(*_: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        counters = probe.counters(case)
        return [{name: probe.expected(case)[name].astype(np.uint64) + np.uint64(answer) for name in counters}]

    monkeypatch.setattr(module, "counted", read)
    lab = runner.Lab("sm_90a", Silicon(probe, case), None, "")  # type: ignore[arg-type]
    record, _ = runner.run_probe(probe, case, lab)
    return record


def test_counters_are_compared_like_all_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is a disagreement that names the launch."""
    assert [each["ok"] for each in run(monkeypatch, 0).checks if each["name"] == "prediction"] == [True]
    (check,) = [each for each in run(monkeypatch, 1).checks if each["name"] == "prediction"]
    assert not check["ok"]
    assert "launch 0: predicted" in check["detail"]


def test_without_ncu_the_rest_is_compared_and_the_counters_are_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the reason."""
    record = run(monkeypatch, MissingError("no ncu here"))
    assert {"case": "counters", "reason": "no ncu here"} in record.skipped
    assert [each["ok"] for each in record.checks if each["name"] == "prediction"] == [True]
