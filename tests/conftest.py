"""What all tests share: a cache and a history of their own, the command line, why GPU tests are skipped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ptxlab.device.presence import DRIVER_LIBRARY, has_driver

ROOT = Path(__file__).resolve().parent.parent

Finished = subprocess.CompletedProcess[str]
RunCli = Callable[..., Finished]


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes of tests, even if a shell started these tests in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is no driver, and say so."""
    if has_driver():
        return
    skip = pytest.mark.skip(reason=f"needs an NVIDIA GPU: {DRIVER_LIBRARY} cannot be loaded here")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)


@pytest.fixture(scope="session", autouse=True)
def _own_surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's cache, history, probes and display settings out of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTXLAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("PTXLAB_HISTORY", str(tmp_path_factory.mktemp("history") / "gemm.jsonl"))
        for name in ("PTXLAB_PROBES", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "PYTHONUNBUFFERED"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the folder of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def run_cli() -> RunCli:
    """Return a function that runs ``ptxlab`` with these arguments in a process of its own.

    ``env`` adds to the environment, ``cwd`` is where it runs (the checkout).
    """

    def run(*args: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> Finished:
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        return subprocess.run(
            [sys.executable, "-m", "ptxlab", *args],
            env={**os.environ, "PYTHONPATH": path, **(env or {})},
            cwd=cwd or ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def run_here(capfd: pytest.CaptureFixture[str]) -> RunCli:
    """Return a function that runs ``ptxlab`` in this process: fast, but nothing starts afresh."""
    from ptxlab.cli.main import run as run_command_line

    def run(*args: str) -> Finished:
        capfd.readouterr()
        code = run_command_line(args)
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess(list(args), code, out, err)

    return run
