"""The clock of the SMs while something ran: cycles that they counted, by the time that passed.

NVML tells a clock of one moment, which can lie several percent above the one that a kernel counts. So a
small kernel before and one behind what is timed read, on every SM, its cycles and the nanoseconds. These may
tick in steps of a microsecond: what is timed should last thousands of them. Loaded by the worker alone.
"""

from __future__ import annotations

import numpy as np
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, ObjectCode, Stream, launch
from numpy.typing import NDArray

from ptxlab.device.driver import checked

PLACES = 256
"""Of a reading: an SM writes at its number, and numbers may have gaps (PTX ISA, "%smid")."""

PAIR = 16  # bytes: cycles, nanoseconds
READING = PLACES * PAIR
SAMPLE = 2 * READING
NOTHING = 0
"""What stands at the place of an SM that no block has been on."""

PTX = f"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry sm_clock(.param .u64 reading)
{{
    .reg .u64 %to, %cycles, %nanoseconds;
    .reg .u32 %sm;
    .reg .pred %beyond;
    mov.u32 %sm, %smid;
    setp.ge.u32 %beyond, %sm, {PLACES};
    @%beyond ret;
    ld.param.u64 %to, [reading];
    mad.wide.u32 %to, %sm, {PAIR}, %to;
    mov.u64 %cycles, %clock64;
    mov.u64 %nanoseconds, %globaltimer;
    st.global.v2.u64 [%to], {{%cycles, %nanoseconds}};
    ret;
}}
"""
"""The driver compiles it, for any chip from sm_80 on."""


def clock_mhz(readings: NDArray[np.uint64]) -> list[float]:
    """Return the clock of each sample: the median of those SMs that both of its readings found.

    Args:
        readings: per sample, reading and place the cycles and nanoseconds.

    """
    taken = (readings[..., 1] != NOTHING).all(axis=1)
    cycles, nanoseconds = np.moveaxis(readings[:, 1] - readings[:, 0], -1, 0)
    pairs = zip(cycles, nanoseconds, taken, strict=True)
    return [float(np.median(1e3 * c[both] / np.maximum(ns[both], 1))) for c, ns, both in pairs]


class SmClock:
    """Takes readings on a stream, two for each sample, and returns what the clock was between those two.

    Raises:
        CUDAError: the driver does not compile the kernel.

    """

    def __init__(self, device: Device, stream: Stream) -> None:
        self._stream = stream
        self._kernel = ObjectCode.from_ptx(PTX.encode(), name="sm_clock").get_kernel("sm_clock")
        self._config = LaunchConfig(grid=device.properties.multiprocessor_count, block=1)
        self._readings = self._room = self._taken = 0

    def start(self, samples: int) -> None:
        """Forget what was read, and make room for so many samples."""
        if samples > self._room:
            checked(driver.cuMemFree(self._readings))  # which nothing is at first, and that may be freed
            self._readings = int(checked(driver.cuMemAlloc(samples * SAMPLE)))
            self._room = samples
        checked(driver.cuMemsetD8Async(self._readings, NOTHING, samples * SAMPLE, self._stream.handle))
        self._taken = 0

    def read(self) -> None:
        """Queue the next reading."""
        launch(self._stream, self._config, self._kernel, self._readings + self._taken * READING)
        self._taken += 1

    def mhz(self) -> list[float]:
        """Return the clock of each sample."""
        found = np.empty((self._taken // 2, 2, PLACES, 2), np.uint64)
        self._stream.sync()
        checked(driver.cuMemcpyDtoH(found.ctypes.data, self._readings, found.nbytes))
        return clock_mhz(found)
