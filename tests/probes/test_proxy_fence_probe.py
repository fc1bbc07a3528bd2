"""The proxy-fence probe: where the fence must stand, and that a run proves nothing."""

from __future__ import annotations

from typing import Any

import pytest

from ptxlab.device.job import DeviceInfo, Job, JobResult
from ptxlab.errors import UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.record import Record

PROBE = registry.find_probe("proxy-fence")
CARD = DeviceInfo("Test Card", "sm_90a", 132, 1, 1, 1, "1.2", "13.0")


class Obedient:
    """A worker whose device does what was hoped for."""

    def __init__(self, **params: Any) -> None:
        self._case = PROBE.case("sm_90a", **params)

    def run(self, job: Job) -> JobResult:
        """Return the prediction."""
        del job
        outputs = PROBE.expected(self._case)
        return JobResult({name: array.reshape(-1).view("u1") for name, array in outputs.items()}, [])


def run(worker: Any = None, **params: Any) -> Record:
    """Run one point, on the model unless there is a worker."""
    lab = runner.Lab("sm_90a", worker, CARD if worker else None, "the model was asked for")
    return runner.run_probe(PROBE, PROBE.case("sm_90a", **params), lab)[0]


def failed(record: Record) -> dict[str, str]:
    """Return the checks that failed, with their details."""
    return {check["name"]: check["detail"] for check in record.checks if not check["ok"]}


@pytest.mark.parametrize("read", ["store", "reduce"])
@pytest.mark.parametrize("write", ["st", "stmatrix", "cp.async"])
def test_with_the_fence_all_is_well(write: str, read: str) -> None:
    """However it is written and read; the machine code has no path without it."""
    record = run(write=write, read=read)
    assert record.exit_code == 0
    assert record.result["sass"]["unfenced"] == []
    assert record.result["sass"]["async_readers"] == 1


@pytest.mark.parametrize("write", ["st", "stmatrix", "cp.async"])
def test_without_it_the_finding_stands_whatever_the_device_does(write: str) -> None:
    """A run that went well is no proof: exit 1, and the words say so."""
    record = run(Obedient(fence="none", write=write), fence="none", write=write)
    assert record.exit_code == 1
    assert list(failed(record)) == ["proxy fence"]
    assert "a run that went well proves nothing" in failed(record)["proxy fence"]
    assert "no proof of safety" in record.result["conclusion"]
    assert record.result["run"][0]["can be relied on"].startswith("no")


def test_a_fence_behind_the_barrier_is_in_the_wrong_place() -> None:
    """It orders the writes of one thread."""
    assert "behind the barrier" in failed(run(fence="issuer"))["proxy fence"]


def test_a_fence_in_a_loop_is_missed_where_the_loop_is_left_out() -> None:
    """The run that takes the loop is sound, and the path that does not is found in the machine code."""
    case = PROBE.case("sm_90a", fence="loop")
    assert PROBE.fault(case) is None
    assert "reads what STS.128 at 0x" in failed(run(fence="loop"))["proxy fence"]
    fault = PROBE.fault(PROBE.case("sm_90a", fence="loop", steps=0))
    assert fault is not None
    assert not fault.certain


def test_nothing_is_claimed_without_a_device() -> None:
    """Of a race the model does not know how it ends."""
    assert run(fence="none").result["run"][0]["words that arrived"] == "not known"


@pytest.mark.parametrize(
    ("params", "words"),
    [({"steps": 9}, "legal: 0 to 8"), ({"fence": "all"}, "legal: none, each, loop, issuer")],
)
def test_other_points_are_refused(params: dict[str, Any], words: str) -> None:
    """One line, with the value and the legal set."""
    with pytest.raises(UsageError, match=words):
        PROBE.case("sm_90a", **params)


def test_older_chips_have_none() -> None:
    """There is no asynchronous proxy before sm_90."""
    with pytest.raises(UsageError, match="legal: sm_90 and later"):
        PROBE.case("sm_86")
