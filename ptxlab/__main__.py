"""Where ``ptxlab`` and ``python -m ptxlab`` begin: Ctrl-C ends them quietly from the first moment on."""

import sys

INTERRUPTED = 130  # as in ptxlab.errors, which comes too late


def main() -> None:
    """Run the command line and end the process with its exit code.

    Before and after the command there is nothing to tidy up, so that Ctrl-C ends the process on the spot:
    a KeyboardInterrupt in the middle of an import, or while Python shuts down, would print a traceback.
    """
    try:
        import os
        import signal

        usual = signal.getsignal(signal.SIGINT)  # a job in the background ignores it, and goes on to
        quiet = usual if usual is signal.SIG_IGN else lambda *_: os._exit(INTERRUPTED)
        signal.signal(signal.SIGINT, quiet)
        sys.unraisablehook = _end_if_interrupted
        from ptxlab.cli.main import run

        signal.signal(signal.SIGINT, usual)
        for name in ("SIGTERM", "SIGHUP"):  # a time limit, a terminal that closes: no tool is left behind
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), _end_in_order)
        code = run(sys.argv[1:])
        signal.signal(signal.SIGINT, quiet)
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


def _end_in_order(number: int, _: object) -> None:
    """End as any command ends: what it started is ended, and its temporary files are removed."""
    raise SystemExit(128 + number)


def _end_if_interrupted(lost: "sys.UnraisableHookArgs") -> None:
    """Let no Ctrl-C be lost that came while Python ran a callback, such as those of its imports."""
    if lost.exc_type is KeyboardInterrupt:
        import os

        os._exit(INTERRUPTED)
    sys.__unraisablehook__(lost)


if __name__ == "__main__":
    main()
