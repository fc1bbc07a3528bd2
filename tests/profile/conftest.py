"""A stand-in for ncu, which ends in whatever way a test wants."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"

MakeStub = Callable[[str], None]

_HEAD = f"""#!{sys.executable}
import pathlib, shutil, subprocess, sys, time
argv = sys.argv
if "--version" in argv:
    sys.exit(print("Version 2025.3.1.0 (build 36398880) (public-release)"))
if "--list-sets" in argv:
    sys.exit(print("Identifier Sections\\nbasic      LaunchStats\\nfull       LaunchStats, Occupancy"))
log = pathlib.Path(argv[argv.index("--log-file") + 1])
report = pathlib.Path(argv[argv.index("-o") + 1])
program = argv[argv.index("--") + 1 :]
data = pathlib.Path({str(DATA)!r})
pathlib.Path(argv[0] + ".ran").touch()
"""


@pytest.fixture
def stub_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeStub:
    """Return a function that puts an ncu in the place of the real one.

    It gets the lines of Python that say what ncu does; they may use ``argv``, ``log``, ``report``,
    ``program`` and ``data``.
    """
    folder = tmp_path / "ncu-here"
    folder.mkdir()
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def make(body: str) -> None:
        path = folder / "ncu"
        path.write_text(_HEAD + body + "\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    return make


@pytest.fixture
def banks_report() -> Path:
    """Return the report of one launch of banks.cu on an H200 (see data/README.md)."""
    return DATA / "banks.ncu-rep"
