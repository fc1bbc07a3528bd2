"""A worker whose engine needs no GPU: the name of a job's one buffer says what it shall do."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from ptxlab.device.job import Buffer, DeviceInfo, Job, JobResult, Progress, Report
from ptxlab.device.worker import main
from ptxlab.errors import DeviceError, MissingError, UsageError

DEVICES = 2
NOTHING = JobResult({}, [])


class FakeEngine:
    """Does what the job's first buffer is named, with the rest of the name as detail."""

    def __init__(self, device: int) -> None:
        if device >= DEVICES:
            raise MissingError(f"no device {device}: there are {DEVICES}", code="no-device")
        self._device = device

    def info(self) -> DeviceInfo:
        """Return something that shows which device was asked for."""
        return DeviceInfo(f"fake {self._device}", "sm_90a", 132, 1, 1, 1, "1.2", "13.0")

    def run(self, job: Job, report: Report) -> JobResult:
        """Call the action, after a word on how far it is."""
        report(Progress("acting", 1, 2, {"side": 0.5}))
        buffer = job.buffers[0]
        action, _, detail = buffer.name.partition(" ")
        result = ACTIONS[action](buffer, detail)
        assert isinstance(result, JobResult)
        return result


def echo(buffer: Buffer, _detail: str) -> JobResult:
    """Return the data, back to front."""
    assert buffer.data is not None
    return JobResult({"out": np.frombuffer(buffer.data.tobytes(), np.uint8)[::-1].copy()}, [])


def pid(_buffer: Buffer, _detail: str) -> JobResult:
    """Return which process this is."""
    return JobResult({"pid": np.array([os.getpid()], np.int64).view(np.uint8)}, [])


def chatter(_buffer: Buffer, _detail: str) -> JobResult:
    """Print in every way there is, a kernel's printf included (it goes through C's stdout)."""
    sys.stdout.write("from Python\n")
    libc = ctypes.CDLL(None)
    libc.printf(b"from the kernel\n")
    libc.fflush(None)
    os.write(1, b"straight to stdout\n")
    return NOTHING


def hang(_buffer: Buffer, file: str) -> JobResult:
    """Write who we are and which child we have into a file, and never answer."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(file).write_text(f"{os.getpid()} {child.pid}", encoding="utf-8")
    time.sleep(600)
    return NOTHING


def stop(_buffer: Buffer, _detail: str) -> JobResult:
    """Stand still, so that not even a signal that asks is heard."""
    os.kill(os.getpid(), signal.SIGSTOP)
    return NOTHING


def vanish(_buffer: Buffer, name: str) -> JobResult:
    """Die in the middle, as when the device falls off the bus."""
    sys.stdout.write("GPU has fallen off the bus\n")
    os.kill(os.getpid(), getattr(signal, name))
    return NOTHING


def leave(_buffer: Buffer, code: str) -> JobResult:
    """End without a word."""
    os._exit(int(code))


def bug(_buffer: Buffer, _detail: str) -> JobResult:
    """Raise what is no PtxlabError."""
    raise ZeroDivisionError("a fault of ptxlab")


def fault(_buffer: Buffer, _detail: str) -> JobResult:
    """Raise what the engine raises when the device faults."""
    raise DeviceError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access")


def misuse(_buffer: Buffer, _detail: str) -> JobResult:
    """Raise what the engine raises for a wrong job."""
    raise UsageError("kernel k takes 2 arguments", "look at kernel.cu")


ACTIONS = {
    each.__name__: each for each in (echo, pid, chatter, hang, stop, vanish, leave, bug, fault, misuse)
}

if __name__ == "__main__":
    sys.exit(main(make_engine=FakeEngine))
