"""Where ``ptxlab`` and ``python -m ptxlab`` begin: Ctrl-C ends them quietly from the first moment on."""

import sys

TYPE_CHECKING = False  # every import here comes before Ctrl-C is quiet
if TYPE_CHECKING:
    from collections.abc import Callable

INTERRUPTED = 130  # as in ptxlab.errors, which comes too late
ENDINGS = ("SIGINT", "SIGTERM", "SIGHUP")
"""Ctrl-C, a time limit, a terminal that closes. Windows has not all of them."""

_received: list[int] = []
"""The exit codes of the signals that came while the command ran."""


class _Ended(KeyboardInterrupt):
    """A signal came. Any other exception would be lost where Python folds constants of a file it imports.

    For a KeyboardInterrupt itself that passed through exec() Python kills the process in place of an exit.
    """


def main() -> None:
    """Run the command line and end the process with its exit code, or that of the signal that ended it.

    Before and after the command there is nothing to tidy up, so that a signal ends the process on the spot:
    a KeyboardInterrupt in the middle of an import, or while Python shuts down, would print a traceback.
    """
    try:
        _handle(_end_at_once)
        sys.unraisablehook = _end_if_interrupted
        from ptxlab.cli.main import run

        _handle(_end_in_order)
        code = run(sys.argv[1:])
        _handle(_end_at_once)
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(_received[0] if _received else code)  # a probe's code may have caught what the signal raised


def _handle(handler: "Callable[[int, object], None]") -> None:
    """Set what signals do; one that is ignored, as by nohup or in a shell's background, stays so."""
    import signal

    for number in (getattr(signal, name) for name in ENDINGS if hasattr(signal, name)):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _end_at_once(number: int, _: object) -> None:
    import os

    os._exit(128 + number)


def _end_in_order(number: int, _: object) -> None:
    """End as any command ends: what it started is ended, and its temporary files are removed."""
    _received.append(128 + number)
    raise _Ended


def _end_if_interrupted(lost: "sys.UnraisableHookArgs") -> None:
    """Let no signal be lost that came while Python ran a callback, such as those of its imports."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        import os

        os._exit(_received[0] if _received else INTERRUPTED)
    sys.__unraisablehook__(lost)


if __name__ == "__main__":
    main()
