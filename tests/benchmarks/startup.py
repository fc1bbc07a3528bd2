"""How long ptxlab takes to start, against its budgets. A script, as a timed test fails by chance.

    python tests/benchmarks/startup.py

Each figure is the least of several runs of a fresh process, in turn with the others, which is what the
program takes when nothing else disturbs it: let the machine be idle. The budgets are for two cores.
Exit 1 when one is exceeded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
RUNS = 9
COLD_RUNS = 3

EMPTY = """
import sys, typer
app = typer.Typer(%s)
for name in sys.argv.pop(1).split():
    app.command(name)(lambda: None)
app()
"""
"""A typer program with commands that do nothing; %s is how the typer manual writes it, or without the
panels that rich draws around its help, which are most of its time."""

PTXLAB = [sys.executable, "-m", "ptxlab"]
PROBE = [*PTXLAB, "probe", "ldmatrix", "--backend", "model"]


def run(command: list[str], cache: Path) -> str:
    """Run a command in the checkout and return what it prints."""
    environment = {
        **os.environ,
        "PTXLAB_CACHE": str(cache),
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "",  # an installed program is compiled to bytecode
    }
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, encoding="utf-8", check=True
    )
    return done.stdout


def seconds(command: list[str], cache: Path) -> float:
    """Return how long one run takes."""
    start = time.perf_counter()
    run(command, cache)
    return time.perf_counter() - start


def least(runs: int, *sides: Callable[[], float]) -> list[float]:
    """Return the least time of each side; the sides take turns."""
    rounds = [[side() for side in sides] for _ in range(runs)]
    return [min(column) for column in zip(*rounds, strict=True)]


def main() -> int:
    """Measure, print the table, return the exit code."""
    with tempfile.TemporaryDirectory() as scratch:
        warm = Path(scratch, "warm")

        def cold() -> float:
            return seconds(PROBE, Path(tempfile.mkdtemp(dir=scratch)))

        run(PROBE, warm)
        names = "from ptxlab.cli.main import COMMANDS; print(*COMMANDS)"
        commands = run([sys.executable, "-c", names], warm).strip()
        empty = [sys.executable, "-c", EMPTY % "", commands, "--help"]
        plain = [sys.executable, "-c", EMPTY % "rich_markup_mode=None", commands, "--help"]
        sides = (empty, plain, [*PTXLAB, "--help"])
        with_panels, without, own = least(RUNS, *(partial(seconds, side, warm) for side in sides))
        (again,) = least(RUNS, partial(seconds, PROBE, warm))
        (first,) = least(COLD_RUNS, cold)
    rows = [
        ("--help, times an empty typer program", own / with_panels, 1.6),
        ("--help, times one without rich's panels", own / without, 1.6),
        ("probe ldmatrix on the model, cache warm, seconds", again, 0.7),
        ("probe ldmatrix on the model, cache cold, seconds", first, 1.8),
    ]
    table = Table(title=f"start of ptxlab on {os.cpu_count()} cores")
    for name in ("what", "measured", "budget", ""):
        table.add_column(name)
    for what, measured, budget in rows:
        verdict = "ok" if measured <= budget else "exceeded"
        table.add_row(what, f"{measured:.2f}", f"{budget:g}", verdict)
    Console().print(table)
    return int(any(measured > budget for _, measured, budget in rows))


if __name__ == "__main__":
    sys.exit(main())
