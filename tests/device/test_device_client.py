"""The parent and the real worker process with an engine that needs no GPU: hangs, deaths, restarts."""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import gone, running

from ptxlab.device import client, presence
from ptxlab.device import worker as worker_module
from ptxlab.device.client import Worker
from ptxlab.device.job import Buffer, Job, Progress
from ptxlab.errors import DeviceError, ExitCode, MissingError, UsageError

FAKE = [sys.executable, "-u", str(Path(__file__).with_name("fake_worker.py"))]


def job(action: str, data: np.ndarray[Any, Any] | None = None) -> Job:
    """Return a job that makes the fake engine do something."""
    return Job({}, (Buffer(action, 0 if data is None else data.nbytes, data),), ())


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The fake worker imports this ptxlab, and whatever folders are made lie where a test can look."""
    monkeypatch.setenv("PYTHONPATH", str(Path(client.__file__).parents[2]))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("t")))


@pytest.fixture
def worker() -> Iterator[Worker]:
    """A worker with the fake engine, which has not started."""
    with Worker(command=FAKE, timeout=10) as it:
        yield it


def pid_of(worker: Worker) -> int:
    """Return which process answers."""
    return int(worker.run(job("pid")).arrays["pid"].view(np.int64)[0])


def test_info_comes_from_the_device_that_was_asked_for() -> None:
    """The index reaches the engine."""
    with Worker(command=FAKE, device=1) as worker:
        assert worker.info().name == "fake 1"
        assert worker.info().arch == "sm_90a"


def test_one_process_serves_all_jobs_and_ends_with_the_context() -> None:
    """And its folder goes with it."""
    with Worker(command=FAKE) as worker:
        pids = {pid_of(worker) for _ in range(3)}
        assert len(pids) == 1
        assert all(map(running, pids))
    assert all(map(gone, pids))
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_a_worker_that_is_never_asked_never_starts() -> None:
    """Entering and leaving the context costs nothing."""
    with Worker(command=["/nonexistent"]):
        pass


def test_big_arrays_go_both_ways(worker: Worker) -> None:
    """64 MB, which is more than any pipe or socket holds."""
    data = np.random.default_rng(1).integers(0, 256, 64 << 20, dtype=np.uint8)
    out = worker.run(job("echo", data)).arrays["out"]
    assert np.array_equal(out, data[::-1])


def test_progress_is_passed_on_before_the_result(worker: Worker) -> None:
    """Whoever does not ask for it is not told."""
    told: list[Progress] = []
    result = worker.run(job("echo", np.arange(3, dtype=np.uint8)), report=told.append)
    assert result.arrays["out"].tolist() == [2, 1, 0]
    assert told == [Progress("acting", 1, 2, {"side": 0.5})]
    assert worker.run(job("echo", np.arange(2, dtype=np.uint8))).arrays["out"].tolist() == [1, 0]


def test_what_the_engine_prints_disturbs_nobody(worker: Worker, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither our stdout nor the answers."""
    worker.run(job("chatter"))
    assert pid_of(worker) > 0
    assert capfd.readouterr() == ("", "")


def test_a_hang_ends_the_whole_process_group_and_the_next_job_runs(worker: Worker, tmp_path: Path) -> None:
    """The child of the worker ends, too."""
    before = pid_of(worker)
    started = time.monotonic()
    with pytest.raises(DeviceError, match=r"the device timed out after 0\.5 s") as caught:
        worker.run(job(f"hang {tmp_path / 'pids'}"), timeout=0.5)
    assert time.monotonic() - started < 5
    assert caught.value.exit_code == ExitCode.DEVICE_FAILED
    assert caught.value.code == "timeout"
    assert "--timeout" in caught.value.hint
    pids = [int(field) for field in (tmp_path / "pids").read_text().split()]
    assert pids[0] == before
    assert all(map(gone, pids))
    assert pid_of(worker) != before


def test_a_stopped_worker_cannot_block_a_big_send(worker: Worker) -> None:
    """Neither a receive nor a send waits for ever."""
    with pytest.raises(DeviceError, match="timed out"):
        worker.run(job("stop"), timeout=0.3)
    os.kill(pid_of(worker), signal.SIGSTOP)
    with pytest.raises(DeviceError, match="timed out"):
        worker.run(job("echo", np.zeros(16 << 20, np.uint8)), timeout=0.5)
    assert pid_of(worker) > 0


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT"])
def test_a_worker_that_dies_is_told_with_its_signal_and_its_last_words(worker: Worker, name: str) -> None:
    """In one line."""
    with pytest.raises(DeviceError, match=name) as caught:
        worker.run(job(f"vanish {name}"))
    assert caught.value.code == "worker-died"
    if name == "SIGKILL":
        assert "GPU has fallen off the bus" in caught.value.message
    assert "\n" not in caught.value.message
    assert pid_of(worker) > 0


def test_a_worker_that_leaves_is_told_with_its_exit_code(worker: Worker) -> None:
    """It said nothing, so there is no more to say."""
    with pytest.raises(DeviceError, match="ended with exit code 7"):
        worker.run(job("leave 7"))


def test_a_worker_that_dies_between_jobs_is_told_too(worker: Worker) -> None:
    """The job after that gets a fresh one."""
    os.kill(pid_of(worker), signal.SIGKILL)
    with pytest.raises(DeviceError, match="SIGKILL"):
        pid_of(worker)
    assert pid_of(worker) > 0


def test_a_bug_in_the_engine_shows_its_exception_and_keeps_the_traceback_for_debugging(
    worker: Worker,
) -> None:
    """A traceback is for --debug alone."""
    with pytest.raises(DeviceError, match="ZeroDivisionError: a fault of ptxlab") as caught:
        worker.run(job("bug"))
    assert "Traceback" in caught.value.__notes__[0]
    assert pid_of(worker) > 0


def test_a_device_fault_ends_the_worker_and_a_wrong_job_does_not(worker: Worker) -> None:
    """Only a fault leaves a broken context behind."""
    first = pid_of(worker)
    with pytest.raises(UsageError, match="takes 2 arguments") as caught:
        worker.run(job("misuse"))
    assert caught.value.hint == "look at kernel.cu"
    assert pid_of(worker) == first
    with pytest.raises(DeviceError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        worker.run(job("fault"))
    assert gone(first)
    assert pid_of(worker) != first


def test_a_device_that_does_not_exist() -> None:
    """Exit 3, with how many there are, and nothing left behind."""
    with (
        Worker(command=FAKE, device=7) as worker,
        pytest.raises(MissingError, match="no device 7: there are 2") as caught,
    ):
        worker.info()
    assert caught.value.exit_code == ExitCode.MISSING
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 3, with what to do without one."""
    monkeypatch.setattr(presence, "has_driver", lambda: False)
    with Worker() as worker, pytest.raises(MissingError, match="no NVIDIA driver") as caught:
        worker.info()
    assert caught.value.exit_code == ExitCode.MISSING
    assert "--backend model" in caught.value.hint


def test_a_wrapper_that_does_not_exist() -> None:
    """Exit 3 as well."""
    worker = Worker(command=FAKE, wrapper=["no-such-sanitizer"])
    with pytest.raises(MissingError, match="cannot start no-such-sanitizer"):
        worker.info()


def test_a_wrapper_runs_the_worker(tmp_path: Path) -> None:
    """And the worker ends by itself, so that a profiler can write its report."""
    log = tmp_path / "wrapped"
    wrapper = ["sh", "-c", f'echo wrapped > {log}; "$@"; echo done >> {log}', "sh"]
    with Worker(command=FAKE, wrapper=wrapper) as worker:
        assert pid_of(worker) > 0
    assert log.read_text() == "wrapped\ndone\n"


def test_a_command_that_is_no_worker() -> None:
    """What it said before it ended is shown."""
    worker = Worker(command=["sh", "-c", "echo cannot load libfoo >&2; exit 3"])
    with pytest.raises(DeviceError, match="ended with exit code 3: cannot load libfoo"):
        worker.info()


def test_a_worker_that_never_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start has a limit of its own."""
    monkeypatch.setattr(client, "START_SECONDS", 0.3)
    with pytest.raises(DeviceError, match="the worker's start timed out"):
        Worker(command=["sh", "-c", "sleep 600"]).info()


PARENT = """
import sys
from ptxlab.device.client import Worker
from ptxlab.device.job import Buffer, Job, Progress
with Worker(command=sys.argv[2:], timeout=60) as worker:
    worker.run(Job({}, (Buffer(f"hang {sys.argv[1]}", 0),), ()))
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_a_parent_that_is_interrupted_or_killed_leaves_no_worker_behind(tmp_path: Path, name: str) -> None:
    """Not even in the middle of a job that hangs."""
    pids = tmp_path / "pids"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(pids), *FAKE], stderr=subprocess.DEVNULL)
    while not (pids.exists() and len(pids.read_text().split()) == 2):
        assert parent.poll() is None
        time.sleep(0.01)
    hanging, child = map(int, pids.read_text().split())
    parent.send_signal(getattr(signal, name))
    parent.wait(10)
    assert gone(hanging)
    if running(child):  # the worker's own child; only an interrupted parent can reach that
        os.kill(child, signal.SIGKILL)
        assert name == "SIGKILL"


def files(tmp_path: Path, jobs: list[Job]) -> list[str]:
    """Write the jobs and return the options that run them."""
    (tmp_path / "jobs").write_bytes(pickle.dumps(jobs))
    return ["--device", "0", "--jobs", str(tmp_path / "jobs"), "--results", str(tmp_path / "results")]


def test_jobs_from_a_file(tmp_path: Path) -> None:
    """One result for each job, in order."""
    data = np.arange(5, dtype=np.uint8)
    options = files(tmp_path, [job("echo", data), job("pid")])
    subprocess.run([*FAKE, *options], check=True)
    first, second = pickle.loads((tmp_path / "results").read_bytes())  # noqa: S301 - our own
    assert first.arrays["out"].tolist() == [4, 3, 2, 1, 0]
    assert set(second.arrays) == {"pid"}


def test_a_job_from_a_file_that_fails(tmp_path: Path) -> None:
    """One line, its exit code, and no results."""
    options = files(tmp_path, [job("pid"), job("misuse")])
    done = subprocess.run([*FAKE, *options], capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr == "ptxlab worker: kernel k takes 2 arguments\n"
    assert not (tmp_path / "results").exists()


def test_the_command_that_a_profiler_wraps(tmp_path: Path) -> None:
    """It finds this ptxlab from any folder, with nothing in the environment."""
    command = client.wrapped_command(tmp_path / "jobs", tmp_path / "results", 3)
    done = subprocess.run(
        [*command[: len(client.worker_command())], "--help"],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--results" in done.stdout
    assert command[-6:] == [
        "--device",
        "3",
        "--jobs",
        str(tmp_path / "jobs"),
        "--results",
        str(tmp_path / "results"),
    ]


def test_the_real_worker_without_a_driver(tmp_path: Path) -> None:
    """Exit 3 in one line, where CUDA's own packages would raise or hang."""
    if presence.has_driver():
        pytest.skip("there is a driver here")
    files(tmp_path, [])
    command = client.wrapped_command(tmp_path / "jobs", tmp_path / "results", 0)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == ExitCode.MISSING
    assert re.fullmatch(r"ptxlab worker: no NVIDIA driver here \(.*\)\n", done.stderr)


def test_the_real_worker_without_nvidias_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 3 with the command that brings them."""
    monkeypatch.delitem(sys.modules, "ptxlab.device.engine", raising=False)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(MissingError) as caught:
        worker_module._cuda_engine(0)
    assert "pip install" in caught.value.hint
