"""Runs a function in an interpreter of its own.

Some of NVIDIA's libraries crash on a damaged input, or run for hours: NVRTC, the reader of ncu's reports.
In a child that is an error like any other, and Ctrl-C ends it.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from ptxlab.errors import PtxlabError
from ptxlab.toolchain.tools import Tool, run_program

BOOT = (
    "import sys; root = sys.argv.pop(1); root in sys.path or sys.path.insert(0, root);"
    "from ptxlab.toolchain.child import answer; answer()"
)
"""What the child's interpreter runs: this very ptxlab, and nothing from the current folder."""


def ask(function: Callable[..., Any], *args: Any, title: str, about: str, timeout: float) -> Any:
    """Return what a function of a module returns for these arguments, in a child.

    Args:
        function: the function; what it takes and returns is pickled.
        args: its arguments.
        title: what messages call the child, such as "NVRTC".
        about: the file that it works on, for messages, or "".
        timeout: seconds.

    Raises:
        PtxlabError: what the function raised.
        ToolError: a signal ended the child, it took too long, or it failed otherwise.

    """
    root = Path(__file__).resolve().parents[2]
    done = run_program(
        Tool(title, Path(sys.executable), (), "python"),
        ["-P", "-c", BOOT, root],
        stdin=pickle.dumps((function, args)),
        timeout=timeout,
        about=about,
    )
    reply = pickle.loads(done.stdout)  # noqa: S301 - our own child wrote it
    if isinstance(reply, PtxlabError):
        raise reply
    return reply


def answer() -> NoReturn:
    """Answer the question on stdin, in the child. What a library prints is kept out of the answer."""
    _end_with_the_parent()
    stdout = os.dup(1)
    os.dup2(2, 1)
    function, args = pickle.load(sys.stdin.buffer)  # noqa: S301 - our parent wrote it
    try:
        reply = function(*args)
    except PtxlabError as error:
        reply = error
    with os.fdopen(stdout, "wb") as stream:
        stream.write(pickle.dumps(reply))
    os._exit(0)  # to unload NVRTC in an orderly way would take a quarter of the child's time


def _end_with_the_parent() -> None:
    """Have the kernel end this process when the parent dies: nobody waits for the answer any more."""
    import ctypes

    if sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
