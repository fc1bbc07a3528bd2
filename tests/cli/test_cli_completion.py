"""What TAB offers, asked for through the variables by which each shell asks."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Complete = Callable[[str], list[str]]


@pytest.fixture
def bash(run_here: Any, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """Return what completes a line in bash, which takes words apart at = and :, each in a line of its own."""

    def complete(line: str) -> list[str]:
        words = line.replace("=", " = ").replace(":", " : ").split(" ")
        if line[-1] in "=:":
            words.pop()
        monkeypatch.setenv("_PTXLAB_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(["ptxlab", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        done = run_here()
        assert done.stderr == ""
        found: list[str] = done.stdout.split()
        return found

    return complete


@pytest.fixture
def other(run_here: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Any]:
    """Return what completes a line in another shell: zsh or fish."""

    def complete(shell: str, line: str, fish: str = "get-args") -> Any:
        monkeypatch.setenv("_PTXLAB_COMPLETE", f"complete_{shell}")
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", f"ptxlab {line}")
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", fish)
        return run_here()

    return complete


OFFERED = [
    ("pro", ["probe", "profile"]),
    ("probe ldm", ["ldmatrix"]),
    ("probe ldmatrix --num ", ["x1", "x2", "x4"]),
    ("probe ldmatrix --dtype e5", ["e5m2"]),
    ("probe ldmatrix --backend ", ["auto", "device", "model"]),
    ("probe ldmatrix --format=", ["table", "csv", "md"]),
    ("probe ldmatrix --format=c", ["csv"]),
    ("probe ldmatrix --arch sm_9", ["sm_90", "sm_90a"]),
    ("probe verify --only mma-", ["mma-arithmetic"]),
    ("layout where stm", ["stmatrix"]),
    ("layout where mma ", ["A", "B", "C", "D"]),
    ("layout where mma --sparse ", ["A", "B", "C", "D", "E"]),
    ("layout support --only wg", ["wgmma", "wgmma.sp"]),
    ("swizzle solve --order ", ["row", "column"]),
    ("swizzle check ", ["none", "32B", "64B", "128B"]),
    ("sass --std c++2", ["c++20", "c++23"]),
    ("sass probe:ldm", ["ldmatrix"]),
    ("sass gemm:wmma-n", ["wmma-naive"]),
    ("gemm --stage wmma-", ["wmma-dbuf", "wmma-naive", "wmma-tiled", "wmma-warptile"]),
    ("gemm --init ", ["normal", "ints", "naturals", "seq", "ones", "zeros"]),
    ("gemm --stage wmma-naive --acc ", ["f32", "f16"]),
    ("gemm --stage hopper --acc ", ["f32", "s32"]),
    ("profile probe:mov", ["movmatrix"]),
    ("profile gemm:wmma-naive --option acc=", ["f32", "f16"]),
    ("profile --metrics sh", ["shared"]),
]


@pytest.mark.parametrize(("line", "offered"), OFFERED, ids=[line for line, _ in OFFERED])
def test_names_and_values_are_offered(bash: Complete, line: str, offered: list[str]) -> None:
    """Of a word that bash took apart only what is left of it."""
    assert bash(line) == offered


def test_options_are_offered(bash: Complete) -> None:
    """Those of the probe and those of all."""
    assert {"--num", "--json", "--debug"} <= set(bash("probe ldmatrix --"))


@pytest.mark.parametrize("line", ["nosuch ", "nosuch --", "probe nosuch ", "sass kern", "profile -- ./a"])
def test_nothing_is_offered_where_there_is_nothing(bash: Complete, line: str) -> None:
    """The shell then offers files."""
    assert bash(line) == []


def test_what_stands_on_the_line_does_nothing_yet(bash: Complete) -> None:
    """--version and --help print nothing while a line is being typed."""
    assert bash("--version pro") == bash("--help pro") == ["probe", "profile"]


def test_an_open_quote_is_completed_too(bash: Complete) -> None:
    """The user has not closed it yet."""
    assert bash("probe 'ldm") == ["ldmatrix"] or bash("probe 'ldm") == []


def test_zsh_gets_its_own_form(other: Any) -> None:
    """It evaluates the answer; a colon in a value is escaped, and a value keeps the option before it."""
    assert other("zsh", "sass gemm:wmma-n").stdout == "_arguments '*: :((\"gemm\\\\:wmma-naive\"))'\n"
    assert other("zsh", "probe ldmatrix --num=x4").stdout == "_arguments '*: :((\"--num=x4\"))'\n"
    assert other("zsh", "sass kern").stdout == "_files\n"
    assert other("zsh", "probe ldmatrix --svg=x").stdout == "_files\n"


def test_fish_gets_its_own_form(other: Any) -> None:
    """First it asks whether there is anything, then for all of it, with descriptions."""
    assert other("fish", "probe ldm").stdout == "ldmatrix\tWhich lane holds what after ldmatrix?\n"
    assert other("fish", "probe ldmatrix --num=").stdout.split() == ["--num=x1", "--num=x2", "--num=x4"]
    assert other("fish", "probe ldm", fish="is-args").returncode == 0
    assert other("fish", "sass kern", fish="is-args").returncode == 1


@pytest.mark.parametrize(("shell", "mark"), [("bash", "complete"), ("zsh", "compdef"), ("fish", "-c")])
def test_shells_get_a_completion_script(run_cli: Any, shell: str, mark: str) -> None:
    """What the user's start-up file would load."""
    done = run_cli(env={"_PTXLAB_COMPLETE": f"source_{shell}"})
    assert done.returncode == 0
    assert "ptxlab" in done.stdout
    assert mark in done.stdout


@pytest.mark.parametrize("asked", ["x", "complete_", "complete_nosh", "source_nosh", "bash_complete"])
def test_a_wrong_question_is_wrong_usage(run_cli: Any, asked: str) -> None:
    """It names the right ones."""
    done = run_cli(env={"_PTXLAB_COMPLETE": asked})
    assert (done.returncode, done.stdout) == (2, "")
    assert "legal: complete_bash, complete_zsh, complete_fish" in done.stderr


@pytest.mark.parametrize("word", [None, "two"])
def test_a_question_without_a_line_is_wrong_usage(
    run_here: Any, monkeypatch: pytest.MonkeyPatch, word: str | None
) -> None:
    """Somebody other than a shell asked."""
    monkeypatch.setenv("_PTXLAB_COMPLETE", "complete_bash")
    monkeypatch.delenv("COMP_WORDS", raising=False)
    if word:
        monkeypatch.setenv("COMP_WORDS", "ptxlab")
        monkeypatch.setenv("COMP_CWORD", word)
    done = run_here()
    assert (done.returncode, done.stdout) == (2, "")
    assert "which set COMP_WORDS and COMP_CWORD too" in done.stderr


def test_a_failure_to_find_something_is_silent(bash: Complete, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be printed in the middle of the line that is being typed."""

    def fail() -> None:
        raise RuntimeError

    monkeypatch.setattr("ptxlab.experiments.registry.stage_entries", fail)
    assert bash("gemm --stage ") == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("words", "offered"),
    [("probe ldm", "ldmatrix"), ("probe mma --dtype = e5", "e5m2"), ("sass probe : ldm", "ldmatrix")],
)
def test_the_script_for_bash_works_in_bash(
    run_cli: Any, tmp_path: Path, root: Path, words: str, offered: str
) -> None:
    """The function that it defines finds the same."""
    program = tmp_path / "ptxlab"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m ptxlab \"$@\"\n")
    program.chmod(0o755)
    script = run_cli(env={"_PTXLAB_COMPLETE": "source_bash"}).stdout
    asks = f"COMP_WORDS=(ptxlab {words}); COMP_CWORD={len(words.split())}; _ptxlab_completion ptxlab"
    done = subprocess.run(
        ["bash", "--norc", "-c", f'{script}\n{asks}; echo "${{COMPREPLY[@]}}"'],  # noqa: S607
        env={**os.environ, "PYTHONPATH": str(root), "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"{offered}\n", "")


def test_installing_ends_like_every_command(run_cli: Any, tmp_path: Path) -> None:
    """A home that cannot be written is told in one line."""
    (tmp_path / "file").write_text("")
    done = run_cli("--install-completion", env={"HOME": str(tmp_path / "file")})
    assert done.returncode == 3
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) <= 2
    assert "Traceback" not in done.stderr
