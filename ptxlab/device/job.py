"""What is sent to the worker and what comes back: plain data, no CUDA.

A job is a list of steps over named buffers. It runs in the worker process under one time limit;
when it hangs or faults, the worker ends and the caller gets a DeviceError.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import PtxlabError
from ptxlab.isa.tensor_map import TensorMap

POISON = 0xFF
"""Every output byte before a launch: NaN in every floating-point type, -1 in every signed one."""

Array = NDArray[np.generic]
Dim3 = tuple[int, int, int]
Scalar = np.generic
"""A kernel argument passed by value: a numpy scalar, whose width is what the kernel declares."""


@dataclass(frozen=True)
class MapArgument:
    """A tensor map passed by value, as ``const __grid_constant__ ptxlab::TensorMap``.

    The driver makes the map's bytes, for where the buffer really lies.

    Attributes:
        map: all but the address, which is not looked at.
        buffer: the name of the buffer that holds the tensor.
        offset: bytes from the buffer's start to the tensor's first element.

    """

    map: TensorMap
    buffer: str
    offset: int = 0


Argument = str | Scalar | MapArgument
"""A kernel argument: a buffer's name, which becomes a pointer, a scalar, or a tensor map."""


@dataclass(frozen=True)
class Buffer:
    """A piece of device memory.

    Attributes:
        name: how steps refer to it.
        nbytes: its size.
        data: its contents before the first step; poison (0xFF in every byte) when None.
        download: whether its bytes come back in JobResult.arrays (as uint8; the caller views them).
        canary: whether both ends are guarded by pattern bytes that are checked after the last step.
        copies: how many of it there are, for a Timing that takes them in turn. All other steps work on
            the first, which alone is filled, downloaded and guarded.

    Every buffer starts at a multiple of 1024 bytes, with and without canaries.

    """

    name: str
    nbytes: int
    data: Array | None = None
    download: bool = False
    canary: bool = False
    copies: int = 1


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Attributes:
        module: key into Job.modules.
        kernel: the extern "C" name.
        grid: size in blocks (not in clusters).
        block: size in threads.
        arguments: buffer names (str) become pointers; numpy scalars and tensor maps are passed by value
            and their sizes are checked against the kernel's own parameters.
        shared_bytes: dynamic shared memory of a block; more than 48 KB is asked for as needed.
        cluster: size in blocks, or None. More than 8 blocks is asked for as non-portable unless
            ``portable`` is set, which leaves the refusal to the driver.
        portable: whether the cluster must be one that every chip with clusters runs.
        programmatic: whether it may start before the launch ahead of it has ended, as soon as all of
            that one's blocks allow it (programmatic dependent launch).

    """

    module: str
    kernel: str
    grid: Dim3
    block: Dim3
    arguments: tuple[Argument, ...]
    shared_bytes: int = 0
    cluster: Dim3 | None = None
    portable: bool = False
    programmatic: bool = False


LT, TORCH = "cuBLASLt", "torch"
"""The libraries that a worker may have: the one with a search for the fastest algorithm, torch as it is."""


@dataclass(frozen=True)
class CublasGemm:
    """A library's C = activation(alpha A x B + beta C + bias) on the same buffers: a baseline of every stage.

    ``layout`` is BLAS letters, A then B (tn = both K-contiguous). C is row-major, m x n; ``bias`` is the
    buffer of a vector of n elements of the type of C, or ""; ``promoted`` asks for sums of 8-bit floats that
    are more exact than those of the tensor cores. Of several ways that the library (LT or TORCH)
    offers, the fastest on these buffers is taken.
    """

    m: int
    n: int
    k: int
    dtype: str
    accumulate: str
    out: str
    layout: str
    a: str
    b: str
    c: str
    alpha: float = 1.0
    beta: float = 0.0
    bias: str = ""
    activation: str = "none"
    promoted: bool = False
    library: str = LT


@dataclass(frozen=True)
class Timing:
    """Time several sides against each other, interleaved sample by sample in one run.

    A sample is one replay, between two events, of a CUDA graph that holds ``calls_per_sample`` calls of one
    side, as many as it takes to last 4 ms (at most 5000). Its milliseconds are those of the replay divided by
    the calls.

    Hot (``copies`` 1): every call works on the same buffers, and inputs that fit lie in the L2.

    Cold (more ``copies``): the calls take the copies of each buffer in turn. Before its turn comes again the
    others have passed through the L2: they must be as many as it takes to fill that twice.

    Attributes:
        name: key into JobResult.timings.
        sides: per side its name and what one call of it is.
        samples: how many samples each side gets.
        warmup_ms: how long all sides run before the first sample; an H200 under a large GEMM took
            about a second to settle at its power limit (2026-11-29).
        copies: of every buffer that has so many.

    """

    name: str
    sides: tuple[tuple[str, Launch | CublasGemm], ...]
    samples: int = 20
    warmup_ms: float = 1000.0
    copies: int = 1


Step = Launch | CublasGemm | Timing
"""What a job does; a library that is not here leaves its step out, which its timing tells."""


@dataclass(frozen=True)
class Job:
    """What the worker does in one go."""

    modules: dict[str, bytes]  # cubins by name
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class DeviceInfo:
    """The device that the worker holds."""

    name: str
    arch: str  # with its suffix where it has one: sm_90a
    multiprocessors: int
    l2_bytes: int
    shared_bytes_per_block: int  # the opt-in limit
    memory_bytes: int
    driver: str
    cuda_driver_version: str


@dataclass(frozen=True)
class Samples:
    """Timings of one side.

    Attributes:
        milliseconds: per sample, of one call.
        clock_mhz: the SM clock as NVML told it once while each sample ran; [] without NVML.
        power_w: the board's power as NVML averages it (over a second on Hopper); [] without NVML.
        throttle: what held the clock down during each sample ("sw_power_cap"; several are joined by
            "+"), "" where nothing did; [] without NVML.
        calls_per_sample: how many calls one sample is the mean of.
        baseline: which library this side ran, with its version; "" for a launch.
        note: why this side has no samples (no cuBLAS here), or "".
        sm_mhz: per sample the clock that the SMs counted themselves, its mean; [] where they cannot.

    """

    milliseconds: list[float]
    clock_mhz: list[int]
    power_w: list[float]
    throttle: list[str]
    calls_per_sample: int
    baseline: str = ""
    note: str = ""
    sm_mhz: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class ClusterLimits:
    """What the device says of a launch in clusters.

    Attributes:
        largest: blocks of the largest cluster that this kernel, block and shared memory allow.
        active: how many clusters of the launch's own size the whole device holds at once; 0 means that
            it cannot run.

    """

    largest: int
    active: int


@dataclass(frozen=True)
class JobResult:
    """What a job brought back.

    Attributes:
        arrays: the bytes of each buffer that was to be downloaded.
        damaged_canaries: for each buffer beside which something was written its name, a colon and
            where; [] is good.
        timings: per Timing step its sides.
        clusters: per kernel that was launched in clusters (the last launch of it) what fits.

    """

    arrays: dict[str, NDArray[np.uint8]]
    damaged_canaries: list[str]
    timings: dict[str, dict[str, Samples]] = field(default_factory=dict)
    clusters: dict[str, ClusterLimits] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """How far a timing is.

    Attributes:
        doing: what is going on.
        done: samples of each side that were taken.
        total: of how many.
        milliseconds: per side the median so far.

    """

    doing: str
    done: int
    total: int
    milliseconds: dict[str, float] = field(default_factory=dict)


Report = Callable[[Progress], None]
"""What the progress of a job is told to."""


@dataclass(frozen=True)
class Reply:
    """What the worker sends: first which device it holds, then for each job its progress, and one reply.

    After a DeviceError the worker ends: nothing that it has on the device can be trusted any more.
    """

    value: DeviceInfo | JobResult | Progress | None = None
    error: PtxlabError | None = None
