"""The worker process: the only one that loads CUDA.

    python -m ptxlab.device.worker --device N --socket PATH
        jobs from the parent, until it says stop
    python -m ptxlab.device.worker --device N --jobs FILE --results FILE
        a pickled list of jobs, for ncu and compute-sanitizer to wrap

The loops know nothing of CUDA: they serve any engine, so that a test can make a process hang or die
without a GPU. What an engine prints goes to the worker's log, never among the answers.
"""

from __future__ import annotations

import argparse
import os
import pickle
import select
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from ptxlab.device.job import DeviceInfo, Job, JobResult, Progress, Reply, Report
from ptxlab.errors import DeviceError, MissingError, PtxlabError


class Engine(Protocol):
    """What runs jobs."""

    def info(self) -> DeviceInfo:
        """Return what the device is."""
        ...

    def run(self, job: Job, report: Report) -> JobResult:
        """Run one job; what takes long is reported meanwhile.

        Raises:
            DeviceError: the device faulted, and the process must end.
            PtxlabError: the job is wrong, and the next one can run.

        """
        ...


EngineMaker = Callable[[int], Engine]
"""Makes the engine of device N; raises PtxlabError where it cannot."""


def serve(make_engine: EngineMaker, device: int, connection: Connection[Any, Any]) -> None:
    """Say which device this is, then answer job after job until None comes or the device faults.

    An exception that is no PtxlabError ends the process: its traceback stands in the log, whose
    last lines the parent shows.
    """
    try:
        engine = make_engine(device)
        connection.send(Reply(value=engine.info()))
    except PtxlabError as error:
        connection.send(Reply(error=error))
        return

    def report(progress: Progress) -> None:
        connection.send(Reply(value=progress))

    while (job := connection.recv()) is not None:
        try:
            connection.send(Reply(value=engine.run(job, report)))
        except PtxlabError as error:
            connection.send(Reply(error=error))
            if isinstance(error, DeviceError):
                return


def serve_socket(make_engine: EngineMaker, device: int, path: str) -> None:
    """Serve the parent that listens at ``path``, and end when it vanishes, whatever is running."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        connection: Connection[Any, Any] = Connection(link.detach())
    threading.Thread(target=_end_with_peer, args=(connection.fileno(),), daemon=True).start()
    serve(make_engine, device, connection)


def _end_with_peer(descriptor: int) -> None:
    """End the process when the other side has closed, even in the middle of an endless kernel.

    An orderly parent waits for this process before it closes; this is for one that was killed.
    """
    poller = select.poll()
    poller.register(descriptor, 0)  # no event is asked for: a hang-up is always reported
    poller.poll()
    os._exit(1)


def serve_files(make_engine: EngineMaker, device: int, jobs: Path, results: Path) -> None:
    """Run the pickled jobs of one file and write their results, pickled, to the other.

    Raises:
        PtxlabError: a job failed; no results are written.

    """
    engine = make_engine(device)
    done = [engine.run(job, lambda _: None) for job in pickle.loads(jobs.read_bytes())]  # noqa: S301 - from our parent
    results.write_bytes(pickle.dumps(done))


def main(arguments: Sequence[str] | None = None, make_engine: EngineMaker | None = None) -> int:
    """Serve as the command line says; return the process's exit code."""
    parser = argparse.ArgumentParser(prog="ptxlab.device.worker")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--socket")
    parser.add_argument("--jobs", type=Path)
    parser.add_argument("--results", type=Path)
    options = parser.parse_args(arguments)
    make_engine = make_engine or _cuda_engine
    try:
        if options.socket:
            serve_socket(make_engine, options.device, options.socket)
        elif options.jobs and options.results:
            serve_files(make_engine, options.device, options.jobs, options.results)
        else:
            parser.error("give --socket, or --jobs and --results")
    except PtxlabError as error:
        sys.stderr.write(f"ptxlab worker: {error.message}\n")
        return int(error.exit_code)
    return 0


def _cuda_engine(device: int) -> Engine:
    """Load CUDA, which is done here and nowhere else.

    Raises:
        MissingError: NVIDIA's Python packages are not installed, or there is no such device.

    """
    try:
        from ptxlab.device.engine import CudaEngine
    except ModuleNotFoundError as error:
        raise MissingError(f"{error}", 'pip install "cuda-python>=13"') from error
    return CudaEngine(device)


if __name__ == "__main__":
    sys.exit(main())
