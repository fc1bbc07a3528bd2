"""compute-sanitizer over every probe: what is used correctly must be clean."""

from __future__ import annotations

import pickle
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
AT_ONCE = 8

# What the tools of CUDA 13.0 take for an error although it is none, and the run ends with it.
LEFT_OUT: Mapping[str, Mapping[str, Callable[[Case], bool]]] = {
    # a block may send to itself: "not located in remote CTA"
    "memcheck": {"bulk-copy": lambda case: "send" in case.op and case.cluster == 1},
    "synccheck": {
        # the arrival that cp.async.mbarrier.arrive without .noinc adds is not counted: "Barrier overflow"
        "cp-async": lambda case: case.wait == "mbarrier-inc",
        # whoever arrives in phase after phase waits for none of them: "Missing wait"
        "mbarrier": lambda case: not case.sim,
    },
}
# A thread makes a barrier and arms it, in this order, before its cluster meets.
HARMLESS = re.compile(
    r"Warning: Race reported between Write access at ptxlab::mbarrier_init\(.*\n"
    r".* and Read access at ptxlab::mbarrier_arrive_expect_tx\(.*"
)
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(TOOL is None, reason="no compute-sanitizer on PATH (it comes with the CUDA toolkit)"),
]


@pytest.fixture(scope="module")
def jobs() -> Mapping[str, Sequence[tuple[Case, Job]]]:
    """For each probe a job for every variant on this device that plants no fault and leads to no finding.

    Of probes that repeat for a counter there is the first variant alone: each launch runs what the others
    run, and 65536 repetitions under a sanitizer take minutes.
    """
    with Worker() as worker:
        arch = worker.info().arch
    found = {}
    for probe in registry.usable_probes():
        if not isinstance(probe, Probe):
            continue
        cases = list(probe.variants(arch))
        sound = [case for case in cases if probe.fault(case) is None and _has_no_finding(probe, case)]
        if sound and probe.counters(sound[0]):
            sound = [min(sound, key=lambda case: len(probe_launches(probe, case)))]
        if sound:
            build = build_unit(probe, cases, arch)
            found[probe.name] = [(case, probe_job(probe, case, build)) for case in sound]
    return found


def probe_launches(probe: Probe, case: Case) -> Sequence[object]:
    """Return the launches of a variant."""
    geometry = probe.geometry(case)
    return geometry if isinstance(geometry, tuple) else (geometry,)


def _has_no_finding(probe: Probe, case: Case) -> bool:
    record = Record(backend="model", arch=case.arch, params=dict(case.params))
    probe.examine(case, probe.expected(case), record)
    return all(check["ok"] for check in record.checks)


def errors(tool: str, jobs: Sequence[Job], folder: Path) -> str:
    """Run jobs under a tool of compute-sanitizer; return what it found, or why they did not end."""
    folder.mkdir()
    files = folder / "jobs", folder / "results"
    files[0].write_bytes(pickle.dumps(list(jobs)))
    command = [str(TOOL), "--tool", tool, "--report-api-errors", "no", "--target-processes", "all"]
    done = subprocess.run(
        [*command, *wrapped_command(*files, 0)], capture_output=True, text=True, check=False, timeout=300
    )
    found = re.findall(r"=+ +((?:Error|Warning|Invalid|Barrier error|Race|Misaligned).*\n.*)", done.stdout)
    grave = [each for each in found if not HARMLESS.match(each)]
    if done.returncode or grave:
        return f"{done.returncode} {grave[:3]} {done.stdout[:1000]} … {done.stderr[-500:]}"
    results = pickle.loads(files[1].read_bytes())  # noqa: S301 - our own worker's
    return "" if len(results) == len(jobs) else f"{len(results)} of {len(jobs)} jobs ended"


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
def test_correct_use_is_clean(
    jobs: Mapping[str, Sequence[tuple[Case, Job]]], tool: str, tmp_path: Path
) -> None:
    """No error in any probe, and each worker came to its end."""
    left_out = LEFT_OUT.get(tool, {})

    def unclean(name: str) -> str:
        checked = [job for case, job in jobs[name] if name not in left_out or not left_out[name](case)]
        return errors(tool, checked, tmp_path / name)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(zip(jobs, pool.map(unclean, jobs), strict=True))
    assert not any(found.values()), "\n".join(f"== {name}\n{text}" for name, text in found.items() if text)
    assert found
