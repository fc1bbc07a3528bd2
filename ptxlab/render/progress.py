"""How far a long run is, on stderr, and only where someone is watching."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ptxlab.errors import printable

if TYPE_CHECKING:  # rich is imported where something is drawn, and a run of gemm where one is asked for
    from rich.table import Table

    from ptxlab.experiments.gemm.live import Show

Report = Callable[[str, int, int], None]
"""Takes what is being done, how many parts of it are done, and how many there are."""

BAR_WIDTH = 40


@contextmanager
def reporter(*, quiet: bool) -> Iterator[Report]:
    """Yield the function that a long run reports to; the bar is gone when the block ends.

    Nothing is drawn when ``quiet``, or when stderr is no terminal.
    """
    with live(quiet=quiet) as show:
        yield show


@contextmanager
def live(*, quiet: bool) -> Iterator[Show]:
    """Yield what a run is shown with: a bar of progress, below it one for each side, the longest the best.

    Nothing is drawn when ``quiet``, or when stderr is no terminal. All of it is gone when the block ends.
    """
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield lambda _what, _done, _total, _rates=None: None
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.markup import escape
    from rich.progress import Progress

    console = Console(stderr=True)
    bar = Progress(console=console)
    task = bar.add_task("", total=None)
    with Live(bar, console=console, transient=True, redirect_stdout=False) as drawn:

        def show(what: str, done: float, total: float, rates: dict[str, float] | None = None) -> None:
            bar.update(task, description=escape(printable(what)), completed=done, total=total)
            drawn.update(Group(bar, bars(rates)) if rates else bar)

        yield show


def bars(rates: dict[str, float]) -> Table:
    """Return a table with a bar for each side."""
    from rich.bar import Bar
    from rich.markup import escape
    from rich.table import Table

    table = Table("", "", "TFLOP/s", box=None, padding=(0, 1))
    table.columns[2].justify = "right"
    most = max(rates.values())
    for name, rate in rates.items():
        table.add_row(escape(printable(name)), Bar(most, 0, rate, width=BAR_WIDTH), f"{rate:.1f}")
    return table
