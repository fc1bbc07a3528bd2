"""NVRTC in an interpreter of its own: whatever a source does to it is an error like any other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ptxlab.errors import MissingError, ToolError
from ptxlab.toolchain import nvrtc
from ptxlab.toolchain.build import build_file

ROOT = Path(__file__).resolve().parents[2]
DEEP = "__global__ void k(int *p) {{ *p = {}1{}; }}\n".format("(" * 200_000, ")" * 200_000)
ENDLESS = """
template <int N, unsigned M> struct Sum { static const unsigned value = Sum<N - 1, 2 * M>::value + Sum<N - 1, 2 * M + 1>::value; };
template <unsigned M> struct Sum<0, M> { static const unsigned value = M; };
__global__ void k(unsigned *p) { *p = Sum<30, 0>::value; }
"""  # noqa: E501
COMMAND = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from ptxlab.cli.main import run; sys.exit(run(sys.argv[1:]))"
)


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """Write a source that takes the compiler longer than anybody waits."""
    path = tmp_path / "endless.cu"
    path.write_text(ENDLESS)
    return path


def children(pid: int) -> list[int]:
    """Return the processes that this one started and that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it ended just now
        if int(parent) == pid and state != "Z":
            found.append(int(stat.parent.name))
    return found


def wait_until(condition: object) -> None:
    """Wait at most half a minute for what is about to happen."""
    assert callable(condition)
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def compiling(path: Path) -> tuple[subprocess.Popen[str], int]:
    """Start ``ptxlab sass`` and return it and its compiler's process."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "sass", str(path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: children(process.pid))
    return process, children(process.pid)[0]


def is_running(pid: int) -> bool:
    """Whether the process is there and no corpse."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_source_that_crashes_the_compiler_is_exit_4_with_one_document(tmp_path: Path) -> None:
    """Parentheses that are nested deeper than its stack; a small stack makes it quick."""
    path = tmp_path / "deep.cu"
    path.write_text(DEEP)
    line = f'ulimit -s 512; exec "{sys.executable}" -m ptxlab sass "{path}" --json'
    done = subprocess.run(
        ["/bin/sh", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 4, done.stderr
    message = json.loads(done.stdout)["error"]["message"]
    assert message.startswith(f"{path}: NVRTC was ended by signal SIGSEGV")
    assert done.stderr.count("\n") == 1


def test_a_compile_has_a_time_limit(endless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line with the file, and the compiler is gone."""
    monkeypatch.setattr(nvrtc, "COMPILE_SECONDS", 0.7)
    with pytest.raises(ToolError) as caught:
        build_file(endless)
    assert caught.value.message == f"{endless}: NVRTC did not finish within 0.7 s"
    assert caught.value.code == "tool-timeout"
    assert children(os.getpid()) == []


def test_ctrl_c_ends_the_compiler_quietly(endless: Path) -> None:
    """Exit code 130, no word, nothing left behind."""
    process, compiler = compiling(endless)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 130
    assert not is_running(compiler)


def test_the_compiler_does_not_outlive_a_ptxlab_that_is_killed(endless: Path) -> None:
    """Nobody waits for its answer any more."""
    process, compiler = compiling(endless)
    time.sleep(0.5)  # it asks for this when it starts
    process.kill()
    process.communicate()
    wait_until(lambda: not is_running(compiler))


def test_a_library_that_cannot_be_loaded_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child's own error arrives with its exit code and hint."""
    library = tmp_path / "libnvrtc.so.13"
    library.write_bytes(b"\x7fELF and no more")
    monkeypatch.setattr(nvrtc, "locate_nvrtc", lambda: (library, "test"))
    with pytest.raises(MissingError, match="cannot be used") as caught:
        nvrtc.nvrtc_version()
    assert "pip install" in caught.value.hint


def test_the_child_starts_with_little() -> None:
    """Every cold command waits for it: no typer, rich or numpy."""
    code = "import ptxlab.toolchain.nvrtc, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"typer", "rich", "numpy", "cuda", "subprocess"} & set(done.stdout.split())
