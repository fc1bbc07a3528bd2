"""What the sources must not hold: names of single experiments, and words from outside the project."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ptxlab import assets

ROOT = Path(__file__).resolve().parents[2]


def experiments() -> list[str]:
    """Return the names of all probes and GEMM stages."""
    probes = [file.parent.name for file in (assets.asset_root() / "probes").glob("*/probe.py")]
    stages = [file.parent.name for file in (assets.kernels_folder() / "gemm").glob("*/stage.py")]
    return sorted(probes + stages)


def project_files() -> list[Path]:
    """Return every text file of the project, committed or about to be."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("no git here to list the files")
    listed = subprocess.run(
        [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [file for file in files if file.is_file() and b"\0" not in file.read_bytes()]


def test_there_are_experiments_to_look_for() -> None:
    """Else the next test would pass on nothing."""
    assert experiments()


ASKS = r"""(find_probe\(|find_stage\(|\.name == )["']NAME["']|(probes/|kernels/gemm/|probe:|gemm:)NAME\b"""
"""How code would ask for one experiment; the mere name of an instruction does not."""


@pytest.mark.parametrize("name", experiments())
def test_the_house_names_no_experiment(name: str) -> None:
    """They are found by looking into folders, so that adding one is adding one folder."""
    asks_for_it = re.compile(ASKS.replace("NAME", re.escape(name)))
    for file in (ROOT / "ptxlab").rglob("*.py"):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            assert not asks_for_it.search(line), f"{file}:{number}: {line.strip()}"


def test_pools_of_threads_come_from_one_place() -> None:
    """ahead.pool() gives up what is queued when it ends; Python's own would have Ctrl-C wait for it all."""
    makers = [
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "ptxlab").rglob("*.py")
        if "PoolExecutor(" in file.read_text(encoding="utf-8")
    ]
    assert makers == ["ptxlab/experiments/ahead.py"]


def test_the_project_refers_to_nothing_outside_it() -> None:
    """Whoever has the repository has all that it speaks of."""
    outside = re.compile("|".join(["\\.\\./" + "shared", "/work/" + "(main|shared)", "\\.lib" + "rary/"]))
    for file in project_files():
        found = outside.search(file.read_text(encoding="utf-8", errors="replace"))
        assert not found, f"{file} speaks of {found.group(0) if found else ''}"
