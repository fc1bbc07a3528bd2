"""A worker whose engine needs no GPU: the name of a job's one buffer says what it shall do."""

import ctypes
import os
import signal
import subprocess
import sys
import time

import numpy as np

from ptxlab.device.job import DeviceInfo, Job, JobResult
from ptxlab.device.worker import main
from ptxlab.errors import DeviceError, MissingError, UsageError

DEVICES = 2


class FakeEngine:
    """Does what the job's first buffer is named."""

    def __init__(self, device: int) -> None:
        if device >= DEVICES:
            raise MissingError(f"no device {device}: there are {DEVICES}", code="no-device")
        self._device = device

    def info(self) -> DeviceInfo:
        return DeviceInfo(f"fake {self._device}", "sm_90a", 132, 1, 1, 1, str(os.getpid()), "13.0")

    def run(self, job: Job) -> JobResult:
        buffer = job.buffers[0]
        action, _, detail = buffer.name.partition(" ")
        return getattr(self, action)(buffer, detail)

    def echo(self, buffer, detail) -> JobResult:
        data = np.frombuffer(buffer.data.tobytes(), np.uint8)
        return JobResult({"out": data[::-1].copy()}, [])

    def pid(self, buffer, detail) -> JobResult:
        return JobResult({"pid": np.array([os.getpid()], np.int64).view(np.uint8)}, [])

    def chatter(self, buffer, detail) -> JobResult:
        print("from Python")
        libc = ctypes.CDLL(None)
        libc.printf(b"from the kernel\n")
        libc.fflush(None)
        os.write(1, b"straight to stdout\n")
        return JobResult({}, [])

    def hang(self, buffer, detail) -> JobResult:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open(detail, "w", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {child.pid}")
        time.sleep(600)

    def stop(self, buffer, detail) -> JobResult:
        os.kill(os.getpid(), signal.SIGSTOP)

    def vanish(self, buffer, detail) -> JobResult:
        print("GPU has fallen off the bus")
        os.kill(os.getpid(), getattr(signal, detail))

    def leave(self, buffer, detail) -> JobResult:
        os._exit(int(detail))

    def bug(self, buffer, detail) -> JobResult:
        raise ZeroDivisionError("a fault of ptxlab")

    def fault(self, buffer, detail) -> JobResult:
        raise DeviceError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access")

    def misuse(self, buffer, detail) -> JobResult:
        raise UsageError("kernel k takes 2 arguments", "look at kernel.cu")


if __name__ == "__main__":
    sys.exit(main(make_engine=FakeEngine))
