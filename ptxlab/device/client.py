"""The parent's side of the worker: starts it, sends jobs, and survives whatever it does.

A job has a time limit. When it is over, when the device faults, or when the worker dies, the
worker's whole process group is killed, the caller gets a DeviceError, and the next call starts a
fresh worker.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ptxlab.device.job import DeviceInfo, Job, JobResult, Progress, Reply, Report
from ptxlab.device.presence import require_driver
from ptxlab.errors import DeviceError, MissingError, PtxlabError

START_SECONDS = 60.0
"""How long a worker may take until it holds its device: loading CUDA, and a profiler around it."""

STOP_SECONDS = 10.0
"""How long a worker may take to end when it was told to, before it is killed."""

LOG_LINES = 3
"""How many of the last lines of a dead worker's log its error shows."""

BOOT = (
    "import sys; root = sys.argv.pop(1); root in sys.path or sys.path.insert(0, root);"
    "from ptxlab.device.worker import main; sys.exit(main())"
)
"""What the worker's interpreter runs: this very ptxlab, and nothing from the current folder."""


def worker_command() -> list[str]:
    """Return the command that starts a worker, without its options."""
    root = Path(__file__).resolve().parents[2]
    return [sys.executable, "-u", "-P", "-X", "faulthandler", "-c", BOOT, str(root)]


def wrapped_command(jobs_file: Path, results_file: Path, device: int) -> list[str]:
    """Return the command that runs a pickled list of jobs, for ncu or compute-sanitizer to wrap.

    It writes a pickled list of JobResult; when a job fails it writes none, says why in one line on
    stderr, and ends with that error's exit code. It has no time limit of its own.
    """
    files = ["--jobs", str(jobs_file), "--results", str(results_file)]
    return [*worker_command(), "--device", str(device), *files]


class Worker:
    """A worker process that is started by the first call and again after each failure.

    Args:
        device: CUDA's index of the device.
        timeout: seconds that a job may take.
        wrapper: a command that runs the worker, such as ("compute-sanitizer",).
        command: what to start in place of ptxlab's own worker, given --device and --socket.

    """

    def __init__(
        self,
        *,
        device: int = 0,
        timeout: float = 20.0,
        wrapper: Sequence[str] = (),
        command: Sequence[str] | None = None,
    ) -> None:
        self.timeout = timeout
        self._command = [*wrapper, *(command or worker_command()), "--device", str(device)]
        self._needs_driver = command is None
        self._process: _Process | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(at_once=kind is not None)

    def close(self, *, at_once: bool = False) -> None:
        """End the worker: by asking it and waiting a while, or at once."""
        process, self._process = self._process, None
        if process:
            process.close(at_once=at_once)

    def info(self) -> DeviceInfo:
        """Return what the device is.

        Raises:
            MissingError: there is no driver, or no device with this index.
            DeviceError: the worker cannot start.

        """
        return self._started().info

    def run(self, job: Job, *, timeout: float | None = None, report: Report = lambda _: None) -> JobResult:
        """Run a job in the worker and return what it brought back; meanwhile its progress is reported.

        Raises:
            DeviceError: it took longer than ``timeout`` seconds (by default the worker's own), or
                the device faulted, or the worker died. The next call starts a fresh worker.
            MissingError: there is no driver or device, or the cubin is for another architecture.
            PtxlabError: the job is wrong, as its message says; the worker goes on.

        """
        process = self._started()
        try:
            answer = process.ask(job, self.timeout if timeout is None else timeout, report)
        except BaseException:  # Ctrl-C too: nothing that runs on is left behind
            self.close(at_once=True)
            raise
        if isinstance(answer, DeviceError):
            self.close(at_once=True)
        if isinstance(answer, PtxlabError):
            raise answer
        return answer

    def _started(self) -> _Process:
        if self._process is None:
            if self._needs_driver:
                require_driver()
            self._process = _Process(self._command)
        return self._process


class _Process:
    """One life of the worker: a process group, a connection, a folder with the socket and the log.

    Raises:
        DeviceError: the worker ended, or was not ready in time.
        MissingError: it says that there is no such device, or the command does not exist.

    """

    def __init__(self, command: Sequence[str]) -> None:
        self._late = False
        with contextlib.ExitStack() as undo:  # a start that fails leaves nothing behind
            folder = tempfile.TemporaryDirectory(prefix="ptxlab-", dir=_short_folder())
            self._folder = Path(undo.enter_context(folder))
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(self._folder / "socket"))
                listener.listen(1)
                self._process = self._spawn(command)
                undo.callback(self._reap)
                undo.callback(self._kill)
                self._link = undo.enter_context(self._accept(listener))
            self._connection: Connection[Any, Any] = Connection(os.dup(self._link.fileno()))
            undo.enter_context(self._connection)
            self.info = self._hello()
            self._resources = undo.pop_all()

    def _spawn(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        try:
            with (self._folder / "log").open("wb") as log:
                return subprocess.Popen(
                    [*command, "--socket", str(self._folder / "socket")],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # its own group: Ctrl-C is ours, a kill reaches all
                )
        except OSError as error:
            raise MissingError(f"cannot start {command[0]}: {error.strerror}") from error

    def _accept(self, listener: socket.socket) -> socket.socket:
        """Wait until the process has connected."""
        listener.settimeout(0.05)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                return listener.accept()[0]
            if self._process.poll() is not None:
                raise self._death()
        raise _timed_out("the worker's start", START_SECONDS)

    def _hello(self) -> DeviceInfo:
        """Return which device the worker holds."""
        hello: DeviceInfo | PtxlabError
        hello = self._receive(None, "the worker's start", START_SECONDS)
        if isinstance(hello, PtxlabError):
            raise hello
        return hello

    def ask(self, job: Job, seconds: float, report: Report) -> JobResult | PtxlabError:
        """Send a job, pass on its progress, and return what became of it.

        Raises:
            DeviceError: there was no answer in time, or the worker died.

        """
        answer: JobResult | PtxlabError = self._receive(job, "the device", seconds, report)
        return answer

    def _receive(self, job: Job | None, what: str, seconds: float, report: Report = lambda _: None) -> Any:
        """Send the job, if there is one, and return what the next reply holds that is no progress."""
        answer: Reply | None = None
        with self._limit(seconds), contextlib.suppress(EOFError, OSError):
            if job is not None:
                self._connection.send(job)
            answer = self._last(report)
        if self._late:
            raise _timed_out(what, seconds)
        if answer is None:
            raise self._death()
        return answer.error or answer.value

    def _last(self, report: Report) -> Reply:
        """Pass on progress until another reply comes, and return that."""
        while True:
            reply: Reply = self._connection.recv()
            if not isinstance(reply.value, Progress):
                return reply
            report(reply.value)

    @contextlib.contextmanager
    def _limit(self, seconds: float) -> Iterator[None]:
        """Kill the worker when the time is over, which also ends a send or receive in progress."""
        timer = threading.Timer(seconds, self._give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    def _give_up(self) -> None:
        self._late = True
        self._kill()
        with contextlib.suppress(OSError):  # the other side may have closed just now
            self._link.shutdown(socket.SHUT_RDWR)

    def _death(self) -> DeviceError:
        """Return the error that says how the worker ended and what it said last."""
        self._reap()
        code = self._process.poll()
        if code is None:
            how = "closed its connection"
        elif code < 0:
            how = f"was ended by signal {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}"
        text = (self._folder / "log").read_text(encoding="utf-8", errors="replace")
        last = [line.strip() for line in text.splitlines() if line.strip()][-LOG_LINES:]
        error = DeviceError(
            f"the worker {how}" + (f": {' | '.join(last)}" if last else ""),
            "ptxlab doctor checks the device",
            code="worker-died",
        )
        error.add_note(text)  # all of it, for --debug
        return error

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Wait for the process; one that the driver holds on to is left to the system."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)

    def close(self, *, at_once: bool) -> None:
        """End the process, by asking it first unless ``at_once``, and remove every trace of it."""
        with self._resources:
            if not at_once:
                with contextlib.suppress(OSError):  # it may be gone already
                    self._connection.send(None)
                self._reap()


def _timed_out(what: str, seconds: float) -> DeviceError:
    return DeviceError(
        f"{what} timed out after {seconds:g} s; the worker was ended",
        "a longer limit: --timeout SECONDS",
        code="timeout",
    )


def _short_folder() -> str | None:
    """Return where sockets may lie: a socket's path has at most 107 bytes."""
    return None if len(tempfile.gettempdir()) < 80 else "/tmp"  # noqa: S108 - mkdtemp makes it private
