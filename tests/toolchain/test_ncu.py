"""How ncu may end, in the words of ncu 2025.3.1, and what becomes of each ending."""

from __future__ import annotations

import os
import random
import stat
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ptxlab.errors import ExitCode, MissingError, PtxlabError, ToolError, UsageError
from ptxlab.toolchain import ncu
from ptxlab.toolchain.ncu import Request, Run, diagnose
from ptxlab.toolchain.tools import Tool

REPORT = Path(__file__).resolve().parents[1] / "profile" / "data" / "banks.ncu-rep"
APP = Request(command=("./app",), metrics=("gpu__time_duration.sum",))

CONNECTED = "==PROF== Connected to process 4242 (/home/user/app)\n"
NOTHING = CONNECTED + "==PROF== Disconnected from process 4242\n==WARNING== No kernels were profiled.\n"
PERMISSION = (
    CONNECTED + "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU"
    " Performance Counters on the target device 0.\n==PROF== Disconnected from process 4242\n"
    "==WARNING== No kernels were profiled.\n"
)
FILTERED = NOTHING + "Available Kernels:\n1. gemm_tile\n2. fill\n"


def stub(folder: Path, body: str) -> Tool:
    """Return a Tool whose program is a Python script; it knows ``argv``, ``log`` and ``report``."""
    path = folder / "ncu"
    path.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, sys, time\n"
        "argv = sys.argv\n"
        "log = pathlib.Path(argv[argv.index('--log-file') + 1])\n"
        "report = pathlib.Path(argv[argv.index('-o') + 1])\n"
        f"{body}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return Tool("ncu", path, (2025, 3, 1), "test")


def failure(run: Run, request: Request = APP, launches: int = 0) -> PtxlabError:
    """Return the error of a run that must have one."""
    found = diagnose(run, launches, request)
    assert found is not None
    return found


def test_a_run_that_profiled_something_has_no_failure() -> None:
    """Whatever else its log says."""
    assert diagnose(Run(0, CONNECTED), 1, APP) is None


def test_no_permission_is_told_with_the_cures() -> None:
    """For a container, for root, and for the host."""
    error = failure(Run(1, PERMISSION))
    assert (error.exit_code, error.code) == (ExitCode.MISSING, "no-permission")
    assert "SYS_ADMIN" in error.hint
    assert "NVreg_RestrictProfilingToAdminUsers=0" in error.hint


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "no-counters"),
        (
            "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool",
            "counters-taken",
        ),
        ("==ERROR== Cuda driver is not compatible with Nsight Compute.", "driver-too-old"),
    ],
)
def test_a_machine_that_cannot_profile_is_exit_3(line: str, code: str) -> None:
    """Nothing is wrong with the program."""
    error = failure(Run(1, CONNECTED + line + "\n"))
    assert (error.exit_code, error.code) == (ExitCode.MISSING, code)


def test_a_filter_that_matches_nothing_names_the_kernels_that_were_launched() -> None:
    """And the hint is the nearest of them."""
    error = failure(Run(0, FILTERED), replace(APP, kernel="gemm_tiel"))
    assert (error.exit_code, error.code) == (ExitCode.MISSING, "nothing-profiled")
    assert "matched 0 of the 2 kernels that ./app launched: gemm_tile, fill" in error.message
    assert error.hint.startswith("--kernel gemm_tile")


def test_a_launch_skip_past_the_last_launch_says_so() -> None:
    """There is no list of kernels in the log then."""
    error = failure(Run(0, NOTHING), replace(APP, skip=7))
    assert "made no launch after the first 7" in error.message


def test_with_a_filter_and_a_skip_the_listed_kernels_are_not_taken_for_all() -> None:
    """What ncu lists are the kernels that do not match; the one that did was passed over."""
    log = NOTHING + "Available Kernels:\n1. fill\n"
    error = failure(Run(0, log), replace(APP, kernel="gemm_tile", skip=5))
    assert "made no launch of 'gemm_tile' after the first 5" in error.message


def test_a_program_that_launches_nothing_differs_from_one_that_never_meets_cuda() -> None:
    """A process is connected to when it starts CUDA."""
    idle = failure(Run(0, NOTHING))
    assert "used CUDA but launched no kernel" in idle.message
    stranger = failure(Run(0, "==WARNING== No kernels were profiled.\n"))
    assert "neither ./app nor a process that it started used CUDA" in stranger.message
    assert "child processes" in stranger.hint
    elsewhere = failure(Run(0, NOTHING), replace(APP, device=1))
    assert "launched no kernel on device 1" in elsewhere.message


def test_a_program_that_fails_is_exit_4_with_its_code_and_last_words() -> None:
    """The last line of what it printed."""
    log = CONNECTED + "==ERROR== The application returned an error code (17).\n"
    error = failure(Run(1, log, "loading\nno such matrix: a.mtx\n"))
    assert (error.exit_code, error.code) == (ExitCode.TOOL_FAILED, "program-failed")
    assert error.message == "./app ended with exit code 17 under ncu: no such matrix: a.mtx"


def test_a_program_that_fails_after_a_profiled_launch_is_a_failure_too() -> None:
    """The launches are kept, the failure is told."""
    log = CONNECTED + "==ERROR== The application returned an error code (11).\n"
    assert "exit code 11" in failure(Run(1, log), launches=3).message


def test_a_program_that_ncu_ended_is_not_called_a_failure_of_the_program() -> None:
    """A program that cannot be profiled is killed."""
    log = (
        CONNECTED + '==ERROR== Failed to profile "k" in process 4242\n'
        "==PROF== Trying to shutdown target application\n"
        "==ERROR== The application returned an error code (9).\n"
    )
    error = failure(Run(9, log))
    assert error.code == "profiler-failed"
    assert error.message == 'ncu ended with exit code 9: Failed to profile "k" in process 4242'


def test_any_other_error_shows_ncus_own_words() -> None:
    """And its exit code."""
    error = failure(Run(255, "==ERROR== An unknown thing happened.\n"))
    assert error.exit_code == ExitCode.TOOL_FAILED
    assert "exit code 255: An unknown thing happened." in error.message


def test_the_command_line_is_independent_of_configuration_and_prints_no_values() -> None:
    """Every option in its place."""
    request = replace(
        APP,
        kernel="regex:^k$",
        skip=2,
        count=1,
        section_set="full",
        device=1,
        required=("a__b.sum",),
    )
    tool = Tool("ncu", Path("/opt/ncu"), (2025, 3, 1), "test")
    line = ncu.command_line(tool, request, Path("r.ncu-rep"), Path("r.log"))
    assert " ".join(line) == (
        "/opt/ncu --config-file off -f -o r.ncu-rep --log-file r.log --target-processes all"
        " --clock-control none --metrics gpu__time_duration.sum,a__b.sum --set full -k regex:^k$"
        " -s 2 -c 1 --devices 1 -- ./app"
    )


def test_a_version_that_refuses_metrics_is_run_again_without_them(tmp_path: Path) -> None:
    """One by one, as it names them."""
    body = (
        "names = argv[argv.index('--metrics') + 1].split(',')\n"
        "bad = [n for n in names if n.startswith('odd')]\n"
        "log.write_text(f'==ERROR== Failed to find metric {bad[0]}\\n' if bad else '')\n"
        f"pathlib.Path({str(tmp_path / 'asked')!r}).write_text(','.join(names))\n"
        "sys.exit(1 if bad else 0)"
    )
    request = replace(APP, metrics=("odd__a.sum", "gpu__time_duration.sum", "odd__b.sum"))
    outcome = ncu.collect(stub(tmp_path, body), request, tmp_path / "r.ncu-rep")
    assert (tmp_path / "asked").read_text() == "gpu__time_duration.sum"
    assert outcome.failure is not None
    assert outcome.failure.code == "nothing-profiled"


def test_a_metric_that_the_user_named_must_exist(tmp_path: Path) -> None:
    """In the words of ncu 2025.3.1 for a throughput without a suffix."""
    said = "==ERROR== Failed to find metric regex:^sm__throughput\\\\.(sum|min|max|avg|pct)$\\n"
    body = f"log.write_text('{said}'); sys.exit(9)"
    request = replace(APP, required=("sm__throughput",))
    failed = ncu.collect(stub(tmp_path, body), request, tmp_path / "r.ncu-rep").failure
    assert isinstance(failed, UsageError)
    assert failed.message == "ncu knows no metric 'sm__throughput' for this GPU"


def test_a_hang_ends_at_the_time_limit_and_leaves_no_process(tmp_path: Path) -> None:
    """Neither ncu nor the program that it started."""
    body = (
        "import subprocess\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(tmp_path / 'child')!r}).write_text(str(child.pid))\n"
        "time.sleep(60)"
    )
    begin = time.monotonic()
    with pytest.raises(ToolError, match="did not finish within 1 s") as caught:
        ncu.collect(stub(tmp_path, body), replace(APP, timeout=1), tmp_path / "r.ncu-rep")
    assert time.monotonic() - begin < 20
    assert "--timeout" in caught.value.hint
    assert _ended(int((tmp_path / "child").read_text()))


def _ended(pid: int) -> bool:
    """Wait until the process is gone, or is a zombie that nobody has to wait for."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    os.kill(pid, 9)
    return False


@pytest.mark.parametrize("content", [b"", b"not a report", b"NVR\0" + bytes(400)])
def test_an_empty_or_foreign_report_is_damaged_input(tmp_path: Path, content: bytes) -> None:
    """The reader itself reports no error."""
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(content)
    with pytest.raises(ToolError, match="damaged, or no report"):
        ncu.read_report(path)


@pytest.mark.parametrize("content", [b"", b"not a report"])
def test_a_run_that_leaves_a_damaged_report_is_no_run_without_cuda(tmp_path: Path, content: bytes) -> None:
    """The reader finds no launch in it, and that is not the program's doing."""
    body = f"log.write_text(''); report.write_bytes({content!r})"
    with pytest.raises(ToolError, match="damaged, or no report") as caught:
        ncu.collect(stub(tmp_path, body), APP, tmp_path / "r.ncu-rep")
    assert caught.value.code == "damaged-report"


def test_a_report_of_a_run_that_profiled_nothing_is_not_called_damaged(tmp_path: Path) -> None:
    """When ncu itself says that there was no kernel."""
    body = "log.write_text('==WARNING== No kernels were profiled.'); report.touch()"
    failed = ncu.collect(stub(tmp_path, body), APP, tmp_path / "r.ncu-rep").failure
    assert failed is not None
    assert failed.code == "nothing-profiled"


@pytest.mark.parametrize("seed", [4, 11, 26])
def test_no_damage_to_a_report_crashes_ptxlab(tmp_path: Path, seed: int) -> None:
    """NVIDIA's reader raises what it likes on the first two, and aborts on the third."""
    generator = random.Random(seed)  # noqa: S311 - the same damage each time
    content = bytearray(REPORT.read_bytes())
    for _ in range(generator.choice([1, 3, 30])):
        content[generator.randrange(len(content))] = generator.randrange(256)
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(content)
    with pytest.raises(ToolError) as caught:
        ncu.read_report(path)
    assert caught.value.code == "damaged-report"


def test_a_report_that_does_not_exist_is_wrong_usage(tmp_path: Path) -> None:
    """Not a damaged one."""
    with pytest.raises(UsageError, match="does not exist"):
        ncu.read_report(tmp_path / "none.ncu-rep")
    with pytest.raises(UsageError, match="does not exist"):
        ncu.read_report(tmp_path / f"{'x' * 300}.ncu-rep")


def test_an_ncu_older_than_needed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it meets options that it does not know."""
    old = Tool("ncu", Path("/usr/bin/ncu"), (2021, 3, 1), "PATH")
    monkeypatch.setattr(ncu, "find_tool", lambda _: old)
    with pytest.raises(MissingError, match=r"ncu 2021\.3\.1; needed: 2022\.4") as caught:
        ncu.find_ncu()
    assert caught.value.code == "ncu-too-old"
