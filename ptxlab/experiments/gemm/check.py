"""The check of a GEMM on the device: fills the operands, recomputes every element, says what is wrong.

What the kernels do stands in kernels/check/; this module launches them and reads what they wrote.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxlab.assets import include_folder, kernels_folder
from ptxlab.device.job import Buffer, JobResult, Launch
from ptxlab.experiments.base import Macros
from ptxlab.experiments.gemm.bound import Bound, bound
from ptxlab.experiments.gemm.problem import TYPES, Matrix, Problem
from ptxlab.experiments.gemm.reference import INTEGER_INITS, MATRICES, Comparison, Element, stream
from ptxlab.experiments.unit import unit_source
from ptxlab.toolchain.build import build_cuda

FILL, FILL_OUT, COMPARE = "fill", "fill_out", "compare"
"""Cubins in a job: fills of A and B, fills of C, and the check. Kernels are named like their files."""

BEFORE = "c.before"
"""The buffer that holds what C held before, where beta is not zero."""

INPUTS = ("a", "b", BEFORE)

TILE = 64
"""Rows and columns of C that one block of the check recomputes (kernels/check/compare.cu)."""

THREADS = 256
FILL_BLOCKS = 4096
PANEL_MACS = 2**36
"""Multiply-adds of one launch: less than a second even where float64 is slow."""

SLOWEST_MACS_PER_SECOND = 1e11
"""What any card is expected to check per second; a time limit is made of it, no estimate."""

LISTED = 256
"""How many wrong elements are kept one by one."""

ELEMENT = np.dtype(
    [("row", "<i4"), ("col", "<i4"), *((name, "<f8") for name in ("result", "reference", "low", "high"))]
)
CLASSES = ("verified", "wrong", "overflow", "infinite", "nan")
SUMMARY = np.dtype([*((name, "<u4") for name in CLASSES), ("has_worst", "<u4"), ("worst", ELEMENT)])


@dataclass(frozen=True)
class Check:
    """The check of one problem with one kind of input."""

    problem: Problem
    init: str
    seed: int

    @property
    def bound(self) -> Bound:
        """How far an element may be from the exact one."""
        p = self.problem
        return bound(p.k, p.acc, integers=self.init in INTEGER_INITS, alpha=p.alpha, beta=p.beta)

    def modules(self, arch: str) -> dict[str, bytes]:
        """Compile the check's kernels and return their cubins.

        Raises:
            MissingError: there is no compiler here.

        """
        types = {name: TYPES[getattr(self.problem, name)].cuda for name in ("dtype", "acc", "out")}
        compare: Macros = {"TYPE": types["dtype"], "ACCUMULATE": types["acc"], "OUT": types["out"]}
        fill: Macros = {"TYPE": types["dtype"], "INIT": self.init}
        modules = {FILL: _cubin(FILL, fill, arch), COMPARE: _cubin(COMPARE, compare, arch)}
        if self.problem.beta:
            modules[FILL_OUT] = _cubin(FILL, {"TYPE": types["out"], "INIT": self.init}, arch)
        return modules

    def inputs(self) -> tuple[Buffer, ...]:
        """Return the buffers of the inputs, and of the number of infinite elements in them."""
        before = (Buffer(BEFORE, self.problem.c.nbytes),) if self.problem.beta else ()
        return (
            Buffer("a", self.problem.a.nbytes),
            Buffer("b", self.problem.b.nbytes),
            *before,
            Buffer("infinite_inputs", 8, data=np.zeros(1, np.uint64), download=True),
            Buffer("infinite_again", 8),  # the same elements in a matrix that is filled once more
        )

    def fills(self) -> tuple[Launch, ...]:
        """Return the launches that fill A and B, and where beta is not zero what C held before."""
        p = self.problem
        operands = (self._fill("a", "a", p.a), self._fill("b", "b", p.b))
        return (*operands, *self.refills(BEFORE))

    def refills(self, name: str) -> tuple[Launch, ...]:
        """Return what makes a result matrix hold again what C held before: nothing where beta is zero."""
        return (self._fill(name, "c", self.problem.c),) if self.problem.beta else ()

    def _fill(self, name: str, which: str, matrix: Matrix) -> Launch:
        scalars = (
            *(np.uint64(matrix.rows), np.uint64(matrix.cols), np.int32(matrix.by_columns)),
            *(np.uint64(stream(self.seed, which)), np.int32(MATRICES.index(which))),
        )
        blocks = min(FILL_BLOCKS, -(-matrix.rows * matrix.cols // THREADS))
        module = FILL_OUT if which == "c" else FILL
        counter = "infinite_inputs" if name in INPUTS else "infinite_again"
        return Launch(module, FILL, (blocks, 1, 1), (THREADS, 1, 1), (name, counter, *scalars))

    def outputs(self, name: str) -> tuple[Buffer, ...]:
        """Return the buffers of a result matrix of that name and of what the check finds in it."""
        summaries = _blocks(self.problem.m) * _blocks(self.problem.n) * SUMMARY.itemsize
        return (
            Buffer(name, self.problem.c.nbytes, canary=True),
            Buffer(f"{name}.summaries", summaries, download=True),
            Buffer(f"{name}.list", LISTED * ELEMENT.itemsize, download=True),
            Buffer(f"{name}.listed", 4, data=np.zeros(1, np.uint32), download=True),
        )

    def compares(self, name: str) -> tuple[Launch, ...]:
        """Return the launches that check a result, one for each panel of rows."""
        across, down = _blocks(self.problem.n), _blocks(self.problem.m)
        work = TILE * TILE * across * self.problem.k
        height = max(1, min(PANEL_MACS // work, down, 65535))  # a grid has 65535 rows of blocks
        return tuple(
            self._compare(name, first, min(height, down - first)) for first in range(0, down, height)
        )

    def _compare(self, name: str, first: int, height: int) -> Launch:
        p = self.problem
        limit = self.bound
        before = BEFORE if p.beta else name  # not read where beta is zero
        buffers = ("a", "b", name, before, f"{name}.summaries", f"{name}.list", f"{name}.listed")
        sizes = (p.m, p.n, p.k, *p.a.strides, *p.b.strides, first)
        arguments: tuple[str | np.generic, ...] = (
            *buffers,
            np.uint32(LISTED),
            *(np.int64(size) for size in sizes),
            *(np.float64(each) for each in (limit.unit, limit.floor, limit.exact_limit, p.alpha, p.beta)),
            *(np.float64(each) for each in (limit.scale_unit, limit.scale_floor, limit.scale_exact_limit)),
        )
        grid = (_blocks(p.n), height, 1)
        return Launch(COMPARE, COMPARE, grid, (THREADS, 1, 1), arguments)

    @property
    def seconds(self) -> float:
        """How long the check may take on a slow card: what a time limit must allow for."""
        return self.problem.macs / SLOWEST_MACS_PER_SECOND

    def read(self, arrays: dict[str, NDArray[np.uint8]], name: str) -> Comparison:
        """Return what the check found in the result of that name."""
        rows = arrays[f"{name}.summaries"].view(SUMMARY)
        counts = {key: int(rows[key].sum(dtype=np.int64)) for key in CLASSES}
        candidates = rows["worst"][rows["has_worst"] != 0]
        errors = np.abs(candidates["result"] - candidates["reference"])
        worst = _element(candidates[np.argmax(errors)]) if errors.size else None
        listed = min(int(arrays[f"{name}.listed"].view(np.uint32)[0]), LISTED)
        wrong = np.sort(arrays[f"{name}.list"].view(ELEMENT)[:listed], order=("row", "col"))
        return Comparison(**counts, worst=worst, first_wrong=[_element(each) for each in wrong])

    @staticmethod
    def infinite_inputs(result: JobResult) -> int:
        """Return how many elements of the inputs are infinite."""
        return int(result.arrays["infinite_inputs"].view(np.uint64)[0])


def _blocks(size: int) -> int:
    """Return how many tiles of the check cover a size."""
    return -(-size // TILE)


def _element(row: np.void) -> Element:
    return Element(*(row[name].item() for name in ELEMENT.names or ()))


def _cubin(name: str, macros: Macros, arch: str) -> bytes:
    source = kernels_folder() / "check" / f"{name}.cu"
    unit = str(source.with_name(f"{name}_unit.cu"))
    folders = (include_folder(), source.parent)
    return build_cuda(unit_source(source, {name: macros}), name=unit, arch=arch, include_dirs=folders).cubin
