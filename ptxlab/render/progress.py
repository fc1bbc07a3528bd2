"""How far a long run is, on stderr, and only where someone is watching."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ptxlab.errors import printable

Report = Callable[[str, int, int], None]
"""Takes what is being done, how many parts of it are done, and how many there are."""


@contextmanager
def reporter(*, quiet: bool) -> Iterator[Report]:
    """Yield the function that a long run reports to; the bar is gone when the block ends.

    Nothing is drawn when ``quiet``, or when stderr is no terminal.
    """
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield lambda _what, _done, _total: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("", total=None)

        def report(what: str, done: int, total: int) -> None:
            bar.update(task, description=escape(printable(what)), completed=done, total=total)

        yield report
