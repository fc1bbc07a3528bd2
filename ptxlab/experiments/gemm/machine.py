"""What a GPU can hold and do: the constants that a prediction needs, each with its source."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ptxlab.isa.cluster import active
from ptxlab.toolchain.arch import base_number

REGISTERS = 65536  # of an SM, 32 bits each
REGISTER_UNIT = 256  # registers are handed out to a warp in these units
PARTITIONS = 4  # of an SM: warps are spread over them, registers are a quarter each
SHARED_UNIT = 128  # bytes in which shared memory is handed out to a block
SHARED_RESERVED = 1024  # bytes that CUDA takes for itself in every block


@dataclass(frozen=True)
class Limits:
    """What an SM of one architecture holds at once."""

    warps: int
    blocks: int
    shared_bytes: int

    @property
    def shared_of_block(self) -> int:
        """The most shared memory that one block can have: all of an SM but what CUDA takes."""
        return self.shared_bytes - SHARED_RESERVED


_HOPPER = Limits(64, 32, 228 * 1024)
_CONSUMER = Limits(48, 24, 100 * 1024)
LIMITS = {
    80: Limits(64, 32, 164 * 1024),
    86: Limits(48, 16, 100 * 1024),
    87: Limits(48, 16, 164 * 1024),
    88: Limits(48, 16, 100 * 1024),
    89: _CONSUMER,
    90: _HOPPER,
    100: _HOPPER,
    103: _HOPPER,
    107: Limits(32, 16, 228 * 1024),
    110: Limits(48, 24, 228 * 1024),
    120: _CONSUMER,
    121: _CONSUMER,
}
"""By compute capability. Source: CCCL 3.3, cuda::arch_traits; CUDA programming guide, "Technical
Specifications per Compute Capability", names the same figures and the units above.
"""


def at_once(multiprocessors: int, cluster: int, of_sm: int = 1) -> int:
    """Return how many blocks run at once on so many SMs, in whole clusters of ``cluster`` blocks.

    Those of more than two do not find room everywhere: then no more than an H200 holds.

    Args:
        multiprocessors: that blocks may lie on.
        cluster: blocks of one.
        of_sm: blocks that an SM holds.

    """
    clusters = multiprocessors * of_sm // cluster
    return (min(clusters, active(cluster, of_sm)) if cluster > 2 else clusters) * cluster


@dataclass(frozen=True)
class Resource:
    """What a kernel needs of a GPU: in words, and what amounts of it are counted in."""

    name: str
    unit: str


RESOURCES = {
    "tensor f32": Resource("tensor cores", "FLOP"),
    "tensor f16": Resource("tensor cores", "FLOP"),
    "tensor tf32": Resource("tensor cores", "FLOP"),
    "tensor e4m3": Resource("tensor cores", "FLOP"),
    "tensor e5m2": Resource("tensor cores", "FLOP"),
    "tensor s8": Resource("tensor cores", "OP"),
    "l1 wavefronts": Resource("L1 data banks", "wavefront"),
    "shared wavefronts": Resource("shared-memory port", "wavefront"),
    "dsmem": Resource("distributed shared memory", "byte"),
    "l2": Resource("L2", "byte"),
    "memory": Resource("device memory", "byte"),
}
"""By the keys of GemmStage.demands() and Machine.rates."""


@dataclass(frozen=True)
class Rate:
    """How much of a resource a GPU offers per second, and how that is known.

    ``at_mhz`` is the SM clock that the figure belongs to and grows with; None if it has another clock.
    ``per_cycle`` says that the source tells work per cycle: then it holds at every clock alike.
    """

    per_second: float
    source: str
    at_mhz: int | None = None
    per_cycle: bool = False

    def at(self, mhz: int | None) -> Rate:
        """Return the rate at another clock of the SMs, in MHz; what does not grow with it stays the same."""
        if mhz is None or self.at_mhz in (None, mhz):
            return self
        source = self.source if self.per_cycle else f"{self.source}, for {self.at_mhz} MHz"
        return Rate(self.per_second * mhz / (self.at_mhz or mhz), source, mhz, per_cycle=self.per_cycle)


@dataclass(frozen=True)
class Machine:
    """A GPU as a prediction sees it: its name, its SMs, what one holds, and the rates that are known.

    ``l2_bytes`` is the size of its L2; 0 where that is not known here.
    """

    name: str
    multiprocessors: int
    limits: Limits
    rates: dict[str, Rate]
    l2_bytes: int = 0

    def peak_at(self, resource: str, mhz: float) -> float | None:
        """Return how much of a resource there is per second at a clock, or None where that is not known.

        Per cycle an SM has a power of two of what grows with the clock; data sheets round what that makes.
        """
        rate = self.rates.get(resource)
        if rate is None or rate.at_mhz is None:
            return None
        per_cycle = rate.per_second / (1e6 * rate.at_mhz * self.multiprocessors)
        return float(2.0 ** round(math.log2(per_cycle)) * self.multiprocessors * 1e6 * mhz)


_A100_SHEET = "NVIDIA A100 80GB SXM data sheet, dense"
_A100_RATES = {
    "tensor f32": Rate(312e12, _A100_SHEET, 1410),
    "tensor f16": Rate(312e12, _A100_SHEET, 1410),
    "memory": Rate(2.039e12, _A100_SHEET),
}
_H200_SHEET = "NVIDIA H200 data sheet, dense"
_H200_L1 = "one a cycle and SM: ncu, l1tex__data_pipe_lsu_wavefronts, on an H200, 2026-11-29"
SENT_A_CYCLE = 11
"""Bytes that a block of an H200 sent on to its neighbours in a cycle, where that limited it (2026-11-30; the
kernel that can do so has the timings)."""
_H200_DSMEM = f"{SENT_A_CYCLE} a cycle and SM were seen: stage cluster on an H200, 2026-11-30"
L2_A_CYCLE = 72
"""Bytes that an SM of an H200 gets out of the L2 in a cycle while all ask for some: fitted to timings of the
stage hopper (2026-11-30), in which 79 were seen at most, where many SMs ask for the same lines.
"""
_H200_L2 = (
    f"{L2_A_CYCLE} a cycle and SM while all ask: fitted to timings of stage hopper on an H200, 2026-11-30"
)
_H200_RATES = {
    "tensor f32": Rate(989e12, _H200_SHEET, 1830),
    "tensor f16": Rate(989e12, _H200_SHEET, 1830),
    "tensor tf32": Rate(494.5e12, _H200_SHEET, 1830),
    "tensor e4m3": Rate(1979e12, _H200_SHEET, 1830),
    "tensor e5m2": Rate(1979e12, _H200_SHEET, 1830),
    "tensor s8": Rate(1979e12, _H200_SHEET, 1830),
    "l1 wavefronts": Rate(132 * 1.83e9, _H200_L1, 1830, per_cycle=True),
    # the same banks behind the same port
    "shared wavefronts": Rate(132 * 1.83e9, _H200_L1, 1830, per_cycle=True),
    "dsmem": Rate(SENT_A_CYCLE * 132 * 1.83e9, _H200_DSMEM, 1830, per_cycle=True),
    "l2": Rate(L2_A_CYCLE * 132 * 1.83e9, _H200_L2, 1830, per_cycle=True),
    "memory": Rate(4.8e12, _H200_SHEET),
}
_B200_SHEET = "NVIDIA HGX B200 data sheet, dense"
_B200_RATES = {
    "tensor f32": Rate(2250e12, _B200_SHEET, 1856),
    "tensor f16": Rate(2250e12, _B200_SHEET, 1856),
    "memory": Rate(8e12, _B200_SHEET),
}
MACHINES = {
    80: Machine("NVIDIA A100-SXM4-80GB", 108, LIMITS[80], _A100_RATES, 40 * 2**20),
    90: Machine("NVIDIA H200", 132, LIMITS[90], _H200_RATES, 60 * 2**20),
    100: Machine("NVIDIA B200", 148, LIMITS[100], _B200_RATES),
}
"""One known GPU for an architecture: what a prediction speaks of where no device is. The clocks are
those at which SMs, operations per cycle (2048, 4096 and 8192 an SM) and the data sheet's peak agree. The L2
of an A100 is that of NVIDIA's white paper; that of an H200 follows from the copies of recorded cold runs.
"""


def machine(arch: str, device_name: str = "", multiprocessors: int = 0) -> Machine | None:
    """Return the GPU to predict for, or None where nothing is known of the architecture.

    Args:
        arch: such as "sm_90a".
        device_name: the device that is here, or "" for the one that stands for the architecture.
        multiprocessors: of that device.

    """
    number = base_number(arch)
    known = MACHINES.get(number)
    if not device_name or (known and known.name == device_name):
        return known
    limits = LIMITS.get(number)
    return Machine(device_name, multiprocessors, limits, {}) if limits else None


@dataclass(frozen=True)
class Occupancy:
    """How many blocks an SM holds at once, and which limit says so.

    Attributes:
        blocks: the least of the limits.
        by: per limit the blocks that it alone would allow.
        limiter: the limits that are reached first.
        warps: resident warps.
        percent: of the warps that an SM can hold.

    """

    blocks: int
    by: dict[str, int]
    limiter: str
    warps: int
    percent: float


def occupancy(limits: Limits, *, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Return the occupancy of a kernel.

    Args:
        limits: what an SM holds.
        threads: of a block.
        registers: of a thread.
        shared_bytes: of a block, static and dynamic.

    """
    warps = math.ceil(threads / 32)
    per_warp = math.ceil(registers * 32 / REGISTER_UNIT) * REGISTER_UNIT
    warps_with_registers = REGISTERS // PARTITIONS // per_warp * PARTITIONS
    shared = math.ceil((shared_bytes + SHARED_RESERVED) / SHARED_UNIT) * SHARED_UNIT
    by = {
        "registers": warps_with_registers // warps,
        "shared memory": limits.shared_bytes // shared,
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
    }
    blocks = min(by.values())
    limiter = " and ".join(name for name, allowed in by.items() if allowed == blocks)
    return Occupancy(blocks, by, limiter, blocks * warps, 100 * blocks * warps / limits.warps)
