"""``ptxlab sass --expect``: what a kernel must hold, and why it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from ptxlab.errors import UsageError
from ptxlab.sass.expectations import parse_expectation

RunCli = Callable[..., CompletedProcess[str]]
SOURCE = """extern "C" __global__ void BOUND ws(float* p) {
  if (threadIdx.x >= 128) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  p[threadIdx.x] = 1;
}
"""


@pytest.fixture
def source(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that writes the kernel with this bound and returns its file."""

    def write(bound: str) -> str:
        file = tmp_path / "ws.cu"
        file.write_text(SOURCE.replace("BOUND", bound))
        return str(file)

    return write


@pytest.mark.parametrize("bound", ["", "__launch_bounds__(384)"])
def test_an_ignored_setmaxnreg_is_explained(
    run_here: RunCli, source: Callable[[str], str], bound: str
) -> None:
    """One site in PTX, none in SASS, and what would help: a bound on the threads alone does not."""
    done = run_here("sass", source(bound), "--expect", "USETMAXREG", "--json")
    assert done.returncode == 1
    (check,) = json.loads(done.stdout)["checks"]
    assert not check["ok"]
    assert check["detail"].startswith("PTX sites 1, SASS 0, expected at least 1; (C7508)")
    assert "__launch_bounds__(threads, 1)" in check["detail"]


def test_a_bound_on_threads_and_blocks_keeps_it(run_here: RunCli, source: Callable[[str], str]) -> None:
    """The same kernel passes."""
    done = run_here("sass", source("__launch_bounds__(384, 1)"), "--expect", "USETMAXREG", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["checks"][0]["detail"] == "PTX sites 1, SASS 1, expected at least 1"


@pytest.mark.parametrize(
    ("expectation", "code"), [("STG", 0), ("STG=1", 0), ("STG.E=1", 0), ("STG=2", 1), ("LDSM=0", 0)]
)
def test_opcodes_and_counts(
    run_here: RunCli, source: Callable[[str], str], expectation: str, code: int
) -> None:
    """Whole parts of an opcode, at least once or exactly so often."""
    assert run_here("sass", source(""), "--expect", expectation).returncode == code


def test_only_the_kernels_shown_are_held_to_it(run_here: RunCli, tmp_path: Path) -> None:
    """--kernel chooses; else every kernel must hold it."""
    file = tmp_path / "two.cu"
    file.write_text(
        'extern "C" __global__ void one(int* p) { *p = 1; }\nextern "C" __global__ void none(int* p) {}\n'
    )
    assert run_here("sass", str(file), "--expect", "STG").returncode == 1
    assert run_here("sass", str(file), "--expect", "STG", "--kernel", "one").returncode == 0


@pytest.mark.parametrize("text", ["", "stg", "STG=", "STG=-1", "STG >= 1"])
def test_what_is_no_expectation_is_refused(text: str) -> None:
    """With the form that it has."""
    with pytest.raises(UsageError, match="legal: OPCODE or OPCODE=N"):
        parse_expectation(text)
