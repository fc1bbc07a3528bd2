"""A probe: one question about one instruction, asked of a model and of silicon with the same data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.device.job import Argument
from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Experiment, Value
from ptxlab.toolchain.arch import CHIPS, DEFAULT_ARCH

if TYPE_CHECKING:
    from ptxlab.experiments.record import Record

Arrays = Mapping[str, NDArray[Any]]
Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Output:
    """An array that the kernel writes.

    Attributes:
        shape: its shape.
        dtype: its numpy type.
        axes: what each axis counts ("lane", "register"), so that a difference can be named.

    """

    shape: tuple[int, ...]
    dtype: type[np.generic]
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Geometry:
    """How the kernel of a case is launched.

    Attributes:
        grid: in blocks.
        block: in threads.
        arguments: names of inputs and outputs (pointers), numpy scalars and tensor maps (by value), in order.
        shared_bytes: dynamic shared memory of a block.
        cluster: in blocks, or None.
        portable: leave the refusal of a cluster of more than 8 blocks to the driver.
        programmatic: start before the launch ahead of it has ended (programmatic dependent launch).

    """

    arguments: tuple[Argument, ...]
    grid: Dim3 = (1, 1, 1)
    block: Dim3 = (32, 1, 1)
    shared_bytes: int = 0
    cluster: Dim3 | None = None
    portable: bool = False
    programmatic: bool = False


@dataclass(frozen=True)
class Fault:
    """What the user planted: a launch that the device refuses, that faults, or that never ends.

    Attributes:
        name: what the finding is called: "exit barrier".
        reason: what is wrong and what mends it, in a sentence.
        certain: whether the device must notice. Where it may (a race), both outcomes agree with this.

    """

    name: str
    reason: str
    certain: bool = True


class Probe(Experiment):
    """Base of every probe. A subclass lives in probes/<name>/probe.py and says what the methods here ask.

    The docstring of its module says the question (first line), the method, the counting convention and
    the source.
    """

    findings: tuple[str, ...] = ()
    """Names of checks that judge what the user chose (a planted fault), not whether the model is right."""

    usage: str = ""
    """What --help says beside the question: how options go together."""

    maps: bool = True
    """Whether it reports register maps. Where it does not, say False: lists read that without running it."""

    in_memory: bool = False
    """Whether it reports no maps, but at which byte of shared memory the elements of an operand lie."""

    hints: Mapping[str, str] = {}
    """Operand that it does not report, but people ask for -> the command that answers."""

    def inputs(self, case: Case) -> Arrays:
        """Return the arrays that the kernel reads; every element carries its own coordinates."""
        raise NotImplementedError("inputs() is missing")

    def outputs(self, case: Case) -> Mapping[str, Output]:
        """Return what the kernel writes."""
        raise NotImplementedError("outputs() is missing")

    def geometry(self, case: Case) -> Geometry | tuple[Geometry, ...]:
        """Return how it is launched; several are launched in order, with the same kernel."""
        raise NotImplementedError("geometry() is missing")

    def readings(self, case: Case) -> Mapping[str, Output]:
        """Return what the kernel writes besides: times, which no model predicts bit for bit.

        Recordings keep them; they are compared with nothing.
        """
        del case
        return {}

    def counters(self, case: Case) -> Mapping[str, str]:
        """Return the outputs that are counters of the launches: name -> metric of ncu, a value a launch.

        The kernel does not write them, and does not get them as arguments. Without ncu they are missing.
        """
        del case
        return {}

    def fault(self, case: Case) -> Fault | None:
        """Return what keeps this point from ending well on a device, or None: it ends well."""
        del case
        return None

    def not_launched(self, case: Case) -> str:
        """Return why this point is left to the model even where there is a device; "" if it is not."""
        del case
        return ""

    def in_force(self, case: Case) -> Mapping[str, Value]:
        """Return every option with the value that it has here, those that were left out included."""
        return case.params

    def has_kernel(self, case: Case) -> bool:
        """Say whether this point is of a kernel at all; if not, nothing is compiled, launched or compared."""
        del case
        return True

    def beside(self, case: Case) -> Mapping[str, Case]:
        """Return points by what they are called whose kernels are compiled and shown beside this one's.

        They are where this point is run alone: ``result["beside"]`` holds of each what ``["sass"]`` does.
        """
        del case
        return {}

    def expected(self, case: Case) -> Arrays:
        """Return what the outputs must be, bit for bit: one call into ptxlab.isa."""
        raise NotImplementedError("expected() is missing")

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        """Return the JSON result for these outputs, which are the device's (measured) or the model's."""
        raise NotImplementedError("report() is missing")

    def examine(self, case: Case, outputs: Arrays, record: Record) -> None:
        """Add the checks that this probe makes on outputs beyond their being equal to the prediction."""

    def conclude(self, case: Case, record: Record) -> str:
        """Return one sentence for a person."""
        raise NotImplementedError("conclude() is missing")

    def remark(self, case: Case, operand: str, entry: Mapping[str, int]) -> str:
        """Return what a person must know beside an entry of an operand's register map; "" if nothing."""
        del case, operand, entry
        return ""


def usual_arch(probe: Probe) -> str:
    """Return the architecture that is meant where none is named and no device runs: one that has it."""
    for arch in (DEFAULT_ARCH, *CHIPS):
        try:
            if any(True for _ in probe.variants(arch)):
                return arch
        except UsageError:
            continue
    return DEFAULT_ARCH
