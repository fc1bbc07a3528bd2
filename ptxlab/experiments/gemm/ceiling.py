"""Ceilings: kernels that only multiply, in folders kernels/ceiling/<name>/.

No GEMM that uses the instruction can be faster on this card, at this power and temperature; so they are timed
in turn with the stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ptxlab.bench import stats
from ptxlab.device.job import Array, Buffer, DeviceInfo, JobResult, Launch, Samples
from ptxlab.errors import MissingError, PtxlabError, UsageError
from ptxlab.experiments import recording
from ptxlab.experiments.base import Case, Experiment, option
from ptxlab.experiments.gemm.fields import PEAK, as_damage, lacking
from ptxlab.experiments.gemm.problem import TYPES
from ptxlab.experiments.registry import ceiling_entries, find_ceiling
from ptxlab.experiments.unit import build_unit, kernel_name
from ptxlab.isa.numbers import encode
from ptxlab.toolchain.arch import base_number

SEED = 1


class Ceiling(Experiment):
    """Base of every ceiling. A subclass lives in kernels/ceiling/<name>/ceiling.py.

    Its kernel takes ``(const unsigned* data, float* sums, unsigned long long* clocks, int rounds)``: random
    normal elements, a place for the sums of each thread, one for the cycles and nanoseconds that each block's
    loop took, and how many rounds that has. There is one block for each SM.

    Attributes:
        oldest: the first architecture that has the instruction.
        only: the one architecture that has it, or "" for all from ``oldest`` on.
        threads: of a block.
        rounds: of a launch; it should last about a millisecond, so that its start does not count.
        nbytes: of the data, which are of ``dtype``.
        shared_bytes: dynamic shared memory of a block.

    """

    dtype = option("f16", choices=("f16", "bf16"), help="type of A and B")

    oldest: ClassVar[int] = 80
    only: ClassVar[str] = ""
    threads: ClassVar[int]
    rounds: ClassVar[int]
    nbytes: ClassVar[int]
    shared_bytes: ClassVar[int] = 0

    def check(self, case: Case) -> None:
        """Raise the error that says on which architectures the instruction exists.

        Raises:
            MissingError: it is not on this one.

        """
        if base_number(case.arch) < self.oldest or (self.only and case.arch != self.only):
            raise MissingError(f"{self.name} is not on {case.arch}", f"--arch {self.only or self.oldest}")

    def variants(self, arch: str) -> Iterator[Case]:
        """Yield each type."""
        yield from (self.case(arch, dtype=dtype) for dtype in self.options()["dtype"].choices)

    def flop(self, case: Case) -> int:
        """Return the operations of a block in a round."""
        raise NotImplementedError("flop() is missing")


@dataclass(frozen=True)
class Loop:
    """A ceiling that is ready to be timed on a device."""

    ceiling: Ceiling
    case: Case
    device: DeviceInfo
    cubin: bytes

    @property
    def side(self) -> str:
        """Its name among the sides of a timing, its cubin's in a job, and the start of its buffers' names."""
        return f"ceiling {self.ceiling.name}"

    @property
    def data(self) -> Array:
        """The bits of its random elements."""
        kind = TYPES[self.case.dtype]
        values = kind.spread * np.random.default_rng(SEED).standard_normal(self.ceiling.nbytes // kind.nbytes)
        return encode(kind.rounded(values), self.case.dtype).astype(f"<u{kind.nbytes}")

    def buffers(self) -> tuple[Buffer, ...]:
        """Return its buffers."""
        data, blocks = self.data, self.device.multiprocessors
        return (
            Buffer(f"{self.side}.data", data.nbytes, data=data),
            Buffer(f"{self.side}.sums", 4 * blocks * self.ceiling.threads, download=True),
            Buffer(f"{self.side}.clocks", 16 * blocks, download=True),
        )

    def launch(self) -> Launch:
        """Return the launch of one block for each SM."""
        return Launch(
            module=self.side,
            kernel=kernel_name(self.ceiling, self.ceiling.macros(self.case)),
            grid=(self.device.multiprocessors, 1, 1),
            block=(self.ceiling.threads, 1, 1),
            arguments=(
                *(f"{self.side}.{name}" for name in ("data", "sums", "clocks")),
                np.int32(self.ceiling.rounds),
            ),
            shared_bytes=self.ceiling.shared_bytes,
        )

    def read(self, result: JobResult, samples: Samples) -> dict[str, Any]:
        """Return what it reached, as JSON.

        ``flop_per_clock_and_sm`` and ``sm_mhz`` are those of its last launch, read in the kernel: the first
        does not depend on the clock. ``clock_mhz`` is NVML's.

        Raises:
            PtxlabError: its sums are not finite numbers, so it did something else.

        """
        sums = result.arrays[f"{self.side}.sums"].view(np.float32)
        if not np.isfinite(sums).all() or not sums.any():
            raise PtxlabError(f"{self.side}: its sums are no finite numbers; it did not multiply")
        cycles, nanoseconds = result.arrays[f"{self.side}.clocks"].view(np.uint64).reshape(-1, 2).T
        flop = self.ceiling.flop(self.case) * self.ceiling.rounds
        middle = stats.median(samples.milliseconds)
        interval = stats.median_interval(samples.milliseconds)
        return {
            "ceiling": self.ceiling.name,
            "dtype": self.case.dtype,
            "milliseconds": {"median": middle, "low": interval.low, "high": interval.high},
            "tflops": flop * self.device.multiprocessors / middle / 1e9,
            "flop_per_clock_and_sm": float(flop / np.median(cycles)),
            "sm_mhz": float(np.median(cycles / np.maximum(nanoseconds, 1)) * 1e3),
            "clock_mhz": float(np.median(samples.clock_mhz)) if samples.clock_mhz else None,
            "power_w": float(np.median(samples.power_w)) if samples.power_w else None,
        }


def loops(dtype: str, device: DeviceInfo) -> tuple[list[Loop], list[tuple[str, str]]]:
    """Return the ceilings that this device has, compiled; and of those that it has not, name and reason.

    Raises:
        MissingError: there is no compiler.

    """
    ready, missing = [], []
    for entry in ceiling_entries():
        ceiling = find_ceiling(entry.name)
        try:
            case = ceiling.case(device.arch, dtype=dtype)
        except (MissingError, UsageError) as error:
            missing.append((f"ceiling {entry.name}", error.message))
            continue
        ready.append(Loop(ceiling, case, device, build_unit(ceiling, [case], case.arch).cubin))
    return ready, missing


def recorded_peak(name: str, dtype: str, machine: str) -> dict[str, Any] | None:
    """Return what a ceiling reached on a card when it was recorded, with the date; None if it never was.

    Raises:
        ToolError: a recording is damaged.

    """
    if not name:
        return None
    for kept in recording.recordings(find_ceiling(name)):
        for point, variant in kept.variants.items():
            if kept.device == machine and variant["params"].get("dtype") == dtype:
                if damage := damage_of(point, variant):
                    raise recording.damaged(kept.file, f"'{point}' {damage}")
                return {**variant["result"], "device": kept.device, "date": kept.date}
    return None


def damage_of(_: str, variant: Mapping[str, Any]) -> str:
    """Return what is wrong with a recorded variant, such as "has no tflops"; "" if nothing is."""
    return as_damage(lacking(variant["result"], PEAK))


def keep(loop: Loop, row: dict[str, Any], environment: dict[str, Any]) -> None:
    """Write what a ceiling reached beside it, as a recording."""
    kept = recording.start(loop.ceiling, loop.device.name, environment)
    kept.add(loop.ceiling, loop.case, {}, row)
    recording.save(loop.ceiling, kept)
