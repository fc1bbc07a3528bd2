"""The README tells the truth: its commands run, its output is real, its numbers are the program's."""

import doctest
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from ptxlab.cli.main import COMMANDS
from ptxlab.device.presence import has_driver
from ptxlab.errors import ExitCode

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the contents of the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """Return the command lines of the shell blocks, without program name and comment."""
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.strip()]
    return [shlex.split(line, comments=True)[1:] for line in lines]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which the commands run one after the other."""
    return tmp_path_factory.mktemp("readme")


@pytest.mark.parametrize("argv", commands(), ids=" ".join)
def test_the_commands_run(run_cli: Any, folder: Path, argv: list[str]) -> None:
    """In order, in one folder; what needs a GPU ends with 3 where there is none."""
    legal = {ExitCode.OK}
    if "profile" in argv or "--plot" in argv:  # needs ncu and its permission, too
        legal = {ExitCode.OK, ExitCode.MISSING} if has_driver() else {ExitCode.MISSING}
    elif not has_driver() and ("--record" in argv or _measures(argv)):
        legal = {ExitCode.MISSING}
    # whoever tried the README in this very checkout has a probe of that name already
    argv = [word.replace("mine", "readme-probe") for word in argv]
    done = run_cli(*argv, cwd=folder)
    assert done.returncode in legal, done.stderr


def _measures(argv: list[str]) -> bool:
    return argv[0] == "gemm" and not {"--explain", "--list"} & set(argv)


def questions() -> list[list[str]]:
    """Return the commands that answer the questions of the table."""
    lines = re.findall(r"^\|[^|]+\| `(ptxlab [^`]+)` \|$", TEXT, re.MULTILINE)
    return [shlex.split(line)[1:] for line in lines]


@pytest.mark.parametrize("argv", questions(), ids=" ".join)
def test_the_commands_of_the_questions_answer(run_cli: Any, argv: list[str]) -> None:
    """With an answer, or with what is wrong: a finding, or a refusal that names the legal set."""
    done = run_cli(*argv)
    assert done.returncode in (ExitCode.OK, ExitCode.CHECK_FAILED, ExitCode.USAGE), done.stderr
    assert done.returncode != ExitCode.USAGE or "legal: multiples of 16 B" in done.stderr


def test_there_are_commands_to_run() -> None:
    """Five to begin with, and those of the section on probes."""
    assert len(commands()) >= 8


@pytest.mark.parametrize("block", blocks("console"))
def test_the_output_is_real(run_cli: Any, block: str) -> None:
    """Every line of it is a line of what the program prints; a lone … stands for lines left out."""
    first, *shown = block.splitlines()
    argv = shlex.split(first.removeprefix("$ ptxlab "))
    printed = run_cli(*argv).stdout.splitlines()
    for line in shown:
        assert line == "…" or line in printed, line


@pytest.mark.parametrize("block", blocks("python"))
def test_the_python_is_true(block: str) -> None:
    """Every example, typed as it stands, answers what it says."""
    examples = doctest.DocTestParser().get_doctest(block, {}, "README", "README.md", 0)
    assert len(examples.examples) >= 5
    assert doctest.DocTestRunner().run(examples).failed == 0


def test_there_are_examples_in_python() -> None:
    """For those who work in notebooks."""
    assert blocks("python")


def test_the_two_lines_of_the_set_up_are_there() -> None:
    """Exactly as .ci/run takes them from here."""
    assert (
        "    python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/ptxlab probe ldmatrix\n"
        '    .venv/bin/pip install ".[test]" && .venv/bin/python -m pytest\n'
    ) in TEXT


def test_every_command_is_mentioned() -> None:
    """A command that the README does not know is one that nobody finds."""
    for name in COMMANDS:
        assert re.search(rf"\b{name}\b", TEXT), name


def test_the_table_of_exit_codes_is_the_programs() -> None:
    """Each code of the enum has its row."""
    rows = {int(code) for code in re.findall(r"^\| (\d) \|", TEXT, re.MULTILINE)}
    assert rows == {code for code in ExitCode if code != ExitCode.INTERRUPTED}
