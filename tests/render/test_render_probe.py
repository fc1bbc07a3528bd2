"""What ``ptxlab probe`` prints: long pictures in part, every finding once, options without blank values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

RunCli = Callable[..., CompletedProcess[str]]
LONG = ("probe", "tma", "--box", "64x64", "--swizzle", "128B", "--shape", "4096x4096")


def test_a_long_picture_is_shown_in_part_and_that_is_said(run_here: RunCli) -> None:
    """16 of 64 lines; --full has all of them."""
    shown = run_here(*LONG).stdout
    assert "the first 16 of 64 lines" in shown
    assert "Left out here: --full" in shown
    assert " +1920 " in shown
    assert " +2048 " not in shown
    whole = run_here(*LONG, "--full").stdout
    assert " +8064 " in whole
    assert "Left out here" not in whole


def test_files_have_the_whole_picture(run_here: RunCli, tmp_path: Path) -> None:
    """Nobody scrolls there."""
    picture = tmp_path / "tile.svg"
    assert run_here(*LONG, "--svg", str(picture)).returncode == 0
    text = picture.read_text(encoding="utf-8")
    assert "+8064" in text
    assert "the first 16" not in text
    assert "+8064" in run_here(*LONG, "--format", "csv").stdout


def test_a_finding_is_told_once_on_stdout(run_here: RunCli) -> None:
    """In the first sentence; below it just the name of the check that failed."""
    done = run_here("probe", "bulk-copy", "--expect", "512")
    assert done.returncode == 1
    assert done.stdout.casefold().count("armed with 512 b, and 1024 b are counted") == 1
    assert "FAILED: bytes expected\n" in done.stdout
    assert "512 bytes more than expected came; the phase ends too early, or never" in done.stdout


def test_values_of_an_option_do_not_begin_with_none(run_here: RunCli) -> None:
    """The empty value stands for leaving it out."""
    assert "--op ld|st" in " ".join(run_here("probe", "banks", "--help").stdout.split())
