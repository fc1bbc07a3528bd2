"""``ptxlab doctor``: what it finds, what it misses, and that its checks can fail."""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from ptxlab.device.job import DeviceInfo, Job, JobResult
from ptxlab.device.presence import has_driver
from ptxlab.errors import DeviceError, MissingError
from ptxlab.experiments import doctor
from ptxlab.toolchain import nvrtc, tools

H200 = DeviceInfo("NVIDIA H200", "sm_90a", 132, 60 << 20, 227 << 10, 140 << 30, "580.1", "13.0")
COUNT = doctor.BLOCKS * doctor.THREADS
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="compilers are for Linux")


class FakeWorker:
    """A worker that answers with what a test wants."""

    answer: Any = None
    start: Any = H200

    def __init__(self, **_: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def info(self) -> DeviceInfo:
        """Say which device there is, or that there is none."""
        if isinstance(self.start, Exception):
            raise self.start
        return H200

    def run(self, job: Job) -> JobResult:
        """Return the answer as what the kernel wrote."""
        assert job.modules["doctor"].startswith(b"\x7fELF")
        if isinstance(self.answer, Exception):
            raise self.answer
        return JobResult({"out": self.answer.astype(np.uint32).view(np.uint8)}, [])


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> type[FakeWorker]:
    """Return the class of the worker that doctor will start."""
    fake = type("Fake", (FakeWorker,), {})
    monkeypatch.setattr(doctor, "Worker", fake)
    return fake


def row_of(result: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the row of a part."""
    return next(row for row in result["tools"] if row["name"] == name)


def checks_of(document: dict[str, Any]) -> dict[str, bool]:
    """Return whether each check held, by name."""
    return {check["name"]: check["ok"] for check in document["checks"]}


@linux
def test_an_installation_is_well_with_and_without_a_gpu(run_here: Any) -> None:
    """Every needed tool is there with its version, and the kernel gets as far as it can."""
    done = run_here("doctor", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    for name in ("nvrtc", "ptxas", "nvdisasm", "cuobjdump"):
        row = row_of(document["result"], name)
        assert (row["status"], row["hint"]) == ("ok", "")
        assert Path(row["path"]).is_file()
        assert re.fullmatch(r"\d+(\.\d+)+", row["version"])
    checks = checks_of(document)
    assert checks["compile"]
    assert all(checks[name] for name in checks if name.startswith("disassemble"))
    assert any("STG" in name for name in checks)
    assert has_driver() == ("launch" in checks) == (document["result"]["device"] is not None)


def test_the_rows_have_the_shape_that_scripts_read(run_here: Any) -> None:
    """Whatever is not well has a hint."""
    result = json.loads(run_here("doctor", "--json").stdout)["result"]
    for row in result["tools"]:
        assert set(row) == {"name", "path", "version", "found_via", "status", "hint"}
        assert row["hint"] or row["status"] == "ok", row
    assert set(result) == {"tools", "device", "environment_variables"}


@linux
def test_a_right_answer_of_the_device_is_well(worker: type[FakeWorker], run_here: Any) -> None:
    """With a device the kernel is launched, and the record says which device."""
    worker.answer = 3 * np.arange(COUNT) + 1
    done = run_here("doctor", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["backend"]) == (0, "device")
    assert checks_of(document)["launch"]
    assert row_of(document["result"], "device")["found_via"] == "NVIDIA H200"


@linux
@pytest.mark.parametrize(
    "answer", [3 * np.arange(COUNT), DeviceError("an illegal instruction"), np.full(COUNT, 2**32 - 1)]
)
def test_a_wrong_answer_and_a_fault_are_exit_1(worker: type[FakeWorker], run_here: Any, answer: Any) -> None:
    """The launch is the check that fails, and the only one."""
    worker.answer = answer
    done = run_here("doctor", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert {name: ok for name, ok in checks_of(document).items() if not ok} == {"launch": False}


@linux
@pytest.mark.parametrize(
    ("start", "device", "code"),
    [
        (MissingError("no device 0"), "0", 0),
        (MissingError("no device 3"), "3", 3),
        (DeviceError("the worker ended"), "0", 1),
    ],
)
def test_a_device_that_is_named_must_be_there_and_one_that_fails_is_no_absence(
    worker: type[FakeWorker], run_here: Any, start: Exception, device: str, code: int
) -> None:
    """Without --device a machine without a GPU is well; a broken one never is."""
    worker.start = start
    done = run_here("doctor", "--device", device, "--json")
    assert done.returncode == code
    assert row_of(json.loads(done.stdout)["result"], "device")["hint"] == str(start)


@linux
def test_a_compiler_that_refuses_a_right_kernel_is_exit_1(
    run_here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is given here is no C++, which the doctor cannot know."""
    monkeypatch.setattr(doctor, "SOURCE", "no C++")
    done = run_here("doctor")
    assert done.returncode == 1
    assert "Not well: compile failed." in done.stdout


@linux
def test_sass_without_the_expected_opcode_is_exit_1(run_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disassembly is held against a claim that can fail."""
    monkeypatch.setattr(doctor, "CLAIMS", {"HGMMA": 1})
    done = run_here("doctor", "--json")
    assert done.returncode == 1
    (failed,) = [name for name, ok in checks_of(json.loads(done.stdout)).items() if not ok]
    assert failed.startswith("disassemble")
    assert "HGMMA" in failed


def test_without_any_compiler_it_is_exit_3_and_names_what_brings_it(
    run_here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS, or where the packages are not installed."""
    monkeypatch.setattr(tools, "_places", lambda _: iter(()))
    done = run_here("doctor", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == document["error"]["exit"] == 3
    for name in ("nvrtc", "ptxas", "nvdisasm", "cuobjdump"):
        assert name in document["error"]["message"]
        row = row_of(document["result"], name)
        assert row["status"] == "missing"
        assert row["hint"]
    assert row_of(document["result"], "ncu")["status"] == "absent"
    assert document["checks"] == []
    assert "compile" in [skip["case"] for skip in document["skipped"]]


def test_the_table_is_shown_although_something_is_missing(
    run_here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes with the record, which is shown first."""
    monkeypatch.setattr(tools, "_places", lambda _: iter(()))
    done = run_here("doctor")
    assert "Not complete: nvrtc, ptxas, nvdisasm, cuobjdump" in done.stdout
    assert done.stderr.startswith("ptxlab: missing: nvrtc")


def test_a_missing_package_is_named_with_its_command(run_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is needed makes it exit 3; one that is not is a row."""
    real = metadata.distribution

    def distribution(name: str) -> metadata.Distribution:
        if name in ("pyelftools", "ncu-report"):
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(doctor.metadata, "distribution", distribution)
    done = run_here("doctor", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 3
    assert "pyelftools" in document["error"]["message"]
    assert row_of(document["result"], "ncu-report")["hint"] == "pip install ncu-report"


@linux
def test_a_ptxas_older_than_nvrtc_is_a_warning(run_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot read the PTX that NVRTC writes, but kernels of .cu files still compile."""
    real = tools.find_tool

    def find_tool(name: str) -> tools.Tool:
        if name != "ptxas":
            return real(name)
        return tools.Tool(name, Path("/usr/local/cuda-12.4/bin/ptxas"), (12, 4, 99), "system")

    monkeypatch.setattr(tools, "find_tool", find_tool)
    done = run_here("doctor", "--json")
    row = row_of(json.loads(done.stdout)["result"], "ptxas")
    assert done.returncode == 0
    assert row["status"] == "warning"
    assert "12.4.99" in row["hint"]
    assert "older than NVRTC" in row["hint"]


@linux
@pytest.mark.parametrize(
    ("name", "reason"),
    [("file", "Not a directory"), ("x" * 300, "File name too long"), ("locked", "Permission denied")],
)
def test_a_cache_that_cannot_be_used_is_a_warning_with_the_reason(
    run_here: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, reason: str
) -> None:
    """It costs time and nothing else."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("PTXLAB_CACHE", str(tmp_path / name))
    if name == "locked":  # root may look everywhere

        def refuse(path: Path) -> None:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(Path, "iterdir", refuse)
    done = run_here("doctor", "--json")
    assert done.returncode == 0, done.stderr
    row = row_of(json.loads(done.stdout)["result"], "cache")
    assert row["status"] == "warning"
    assert reason in row["hint"]


@linux
def test_a_limit_of_the_cache_that_is_no_number_is_a_warning(
    run_here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row names the variable."""
    monkeypatch.setenv("PTXLAB_CACHE_LIMIT_MB", "much")
    row = row_of(json.loads(run_here("doctor", "--json").stdout)["result"], "cache")
    assert row["status"] == "warning"
    assert "PTXLAB_CACHE_LIMIT_MB is 'much'" in row["hint"]


@linux
def test_it_compiles_anew_whatever_the_cache_holds(run_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run still asks the compiler."""

    def broken(*_: Any) -> nvrtc.Compiled:
        raise MissingError("NVRTC is gone")

    assert run_here("doctor").returncode == 0
    monkeypatch.setattr(nvrtc, "compile_cuda", broken)
    skipped = json.loads(run_here("doctor", "--json").stdout)["skipped"]
    assert {"case": "compile", "reason": "NVRTC is gone"} in skipped


def test_an_unknown_architecture_is_exit_2(run_here: Any) -> None:
    """Before anything is examined."""
    assert run_here("doctor", "--arch", "sm_91").returncode == 2


def test_every_variable_that_the_sources_read_is_listed(root: Path) -> None:
    """The table is held against the sources."""
    read = re.compile(r"environ(?:\.get)?[(\[]\s*\"(\w+)\"")
    names = {
        name for file in (root / "ptxlab").rglob("*.py") for name in read.findall(file.read_text("utf-8"))
    }
    told_by_a_shell = ("COMP_", "_")  # when it completes a command line
    names = {name for name in names if not name.startswith(told_by_a_shell)}
    assert names
    assert names <= {variable.name for variable in doctor.VARIABLES}
