"""compute-sanitizer over every probe: what is used correctly must be clean."""

from __future__ import annotations

import pickle
import shutil
import subprocess
from pathlib import Path

import pytest

from ptxlab.device.client import Worker, wrapped_command
from ptxlab.device.job import Job
from ptxlab.experiments import registry
from ptxlab.experiments.base import Case
from ptxlab.experiments.probe import Probe
from ptxlab.experiments.record import Record
from ptxlab.experiments.runner import probe_job
from ptxlab.experiments.unit import build_unit

TOOL = shutil.which("compute-sanitizer")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(TOOL is None, reason="no compute-sanitizer on PATH (it comes with the CUDA toolkit)"),
]


@pytest.fixture(scope="module")
def jobs() -> list[Job]:
    """A job for every variant on this device that plants no fault and leads to no finding."""
    with Worker() as worker:
        arch = worker.info().arch
    found = []
    for probe in registry.usable_probes():
        if not isinstance(probe, Probe):
            continue
        cases = list(probe.variants(arch))
        sound = [case for case in cases if probe.fault(case) is None and _has_no_finding(probe, case)]
        if sound:
            build = build_unit(probe, cases, arch)
            found += [probe_job(probe, case, build) for case in sound]
    return found


def _has_no_finding(probe: Probe, case: Case) -> bool:
    record = Record(backend="model", arch=case.arch, params=dict(case.params))
    probe.examine(case, probe.expected(case), record)
    return all(check["ok"] for check in record.checks)


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
def test_correct_use_is_clean(jobs: list[Job], tool: str, tmp_path: Path) -> None:
    """No error, and the worker came to its end."""
    files = tmp_path / "jobs", tmp_path / "results"
    files[0].write_bytes(pickle.dumps(jobs))
    command = [str(TOOL), "--tool", tool, "--report-api-errors", "no", "--error-exitcode", "9"]
    done = subprocess.run(
        [*command, "--target-processes", "all", *wrapped_command(*files, 0)],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert len(pickle.loads(files[1].read_bytes())) == len(jobs) > 0  # noqa: S301 - our own worker's
