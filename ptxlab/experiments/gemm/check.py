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
from ptxlab.experiments.gemm.bound import HARDWARE_TANH, Bound, bound
from ptxlab.experiments.gemm.problem import FLOAT8, PROMOTED, TYPES, Matrix, Problem
from ptxlab.experiments.gemm.reference import INTEGER_INITS, MATRICES, TILE, Comparison, Element, stream
from ptxlab.experiments.unit import unit_source
from ptxlab.toolchain.build import build_cuda

FILL, FILL_OUT, COMPARE = "fill", "fill_out", "compare"
"""Cubins in a job: fills of A and B, fills of C, and the check. Kernels are named like their files."""

BEFORE = "c.before"
"""The buffer that holds what C held before, where beta is not zero."""

BIAS = "bias"
"""The buffer that holds the bias, where there is one."""

INPUTS = ("a", "b", BEFORE, BIAS)

THREADS = 256
FILL_BLOCKS = 4096
PANEL_MACS = 2**36
"""Multiply-adds of one launch: less than a second even where float64 is slow."""

SLOWEST_MACS_PER_SECOND = 1e11
"""What any card is expected to check per second; a time limit is made of it, no estimate."""

ENDLESS = 2**62
"""Values of k after which sums that are not promoted would be: never."""

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
        return bound(
            p.k,
            p.acc,
            integers=self.init in INTEGER_INITS,
            alpha=p.alpha,
            beta=p.beta,
            bias=p.bias,
            activation=p.activation,
            dtype=p.dtype,
            promoted=p.promoted,
        )

    def modules(self, arch: str) -> dict[str, bytes]:
        """Compile the check's kernels and return their cubins.

        Raises:
            MissingError: there is no compiler here.

        """
        types = {name: TYPES[getattr(self.problem, name)].cuda for name in ("dtype", "acc", "out")}
        compare: Macros = {"TYPE": types["dtype"], "ACCUMULATE": types["acc"], "OUT": types["out"]}
        compare |= {"BIAS": int(self.problem.bias), "ACTIVATION": self.problem.activation}
        modules = {FILL: self._fill_of(self.problem.dtype, arch), COMPARE: _cubin(COMPARE, compare, arch)}
        if self.problem.beta or self.problem.bias:
            modules[FILL_OUT] = self._fill_of(self.problem.out, arch)
        return modules

    def _fill_of(self, dtype: str, arch: str) -> bytes:
        """Compile the kernel that fills matrices of a type."""
        kind = TYPES[dtype]
        return _cubin(FILL, {"TYPE": kind.cuda, "INIT": self.init, "SPREAD": str(kind.spread)}, arch)

    def inputs(self) -> tuple[Buffer, ...]:
        """Return the buffers of the inputs, and of the number of infinite elements in them."""
        before = (Buffer(BEFORE, self.problem.c.nbytes),) if self.problem.beta else ()
        bias = (Buffer(BIAS, self.problem.bias_row.nbytes),) if self.problem.bias else ()
        return (
            Buffer("a", self.problem.a.nbytes),
            Buffer("b", self.problem.b.nbytes),
            *(*before, *bias),
            Buffer("infinite_inputs", 8, data=np.zeros(1, np.uint64), download=True),
            Buffer("infinite_again", 8),  # the same elements in a matrix that is filled once more
        )

    def fills(self) -> tuple[Launch, ...]:
        """Return the launches that fill A and B, where beta is not zero what C held before, and the bias."""
        p = self.problem
        operands = (self._fill("a", "a", p.a), self._fill("b", "b", p.b))
        bias = (self._fill(BIAS, "bias", p.bias_row),) if p.bias else ()
        return (*operands, *self.refills(BEFORE), *bias)

    def refills(self, name: str) -> tuple[Launch, ...]:
        """Return what makes a result matrix hold again what C held before: nothing where beta is zero."""
        return (self._fill(name, "c", self.problem.c),) if self.problem.beta else ()

    def _fill(self, name: str, which: str, matrix: Matrix) -> Launch:
        scalars = (
            *(np.uint64(matrix.rows), np.uint64(matrix.cols), np.int32(matrix.by_columns)),
            *(np.uint64(stream(self.seed, which)), np.int32(MATRICES.index(which))),
        )
        blocks = min(FILL_BLOCKS, -(-matrix.rows * matrix.cols // THREADS))
        module = FILL if which in ("a", "b") else FILL_OUT
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

    def compares(self, name: str, *, by_library: bool = False, one_chain: bool = False) -> tuple[Launch, ...]:
        """Return the launches that check a result, one for each panel of rows.

        Args:
            name: the buffer that holds it.
            by_library: whether it may be as far off as a library's.
            one_chain: whether each sum is one chain, k in ascending order: of 8-bit floats each bit is known.

        """
        across, down = _blocks(self.problem.n), _blocks(self.problem.m)
        work = TILE * TILE * across * self.problem.k
        height = max(1, min(PANEL_MACS // work, down, 65535))  # a grid has 65535 rows of blocks
        return tuple(
            self._compare(
                *(name, first, min(height, down - first)), by_library=by_library, one_chain=one_chain
            )
            for first in range(0, down, height)
        )

    def _compare(self, name: str, first: int, height: int, *, by_library: bool, one_chain: bool) -> Launch:
        p = self.problem
        chain = (PROMOTED if p.promoted else ENDLESS) if one_chain and p.dtype in FLOAT8 else 0
        limit = self.bound
        before = BEFORE if p.beta else name  # not read where beta is zero
        bias = BIAS if p.bias else name
        buffers = ("a", "b", name, before, bias, f"{name}.summaries", f"{name}.list", f"{name}.listed")
        sizes = (p.m, p.n, p.k, *p.a.strides, *p.b.strides, first)
        tanh = HARDWARE_TANH if by_library and p.activation == "gelu" else 0.0
        numbers = (
            *(limit.unit, limit.magnitude_unit, limit.floor, limit.exact_limit, p.alpha, p.beta),
            *(limit.scale_unit, limit.scale_floor, limit.scale_exact_limit, limit.activation_unit + tanh),
        )
        arguments: tuple[str | np.generic, ...] = (
            *buffers,
            np.uint32(LISTED),
            *(np.int64(size) for size in sizes),
            *(np.float64(each) for each in numbers),
            np.int64(chain),
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
        return Comparison(
            **counts,
            worst=worst,
            first_wrong=[_element(each) for each in wrong],
            wrong_blocks=self._wrong_blocks(rows),
        )

    def _wrong_blocks(self, rows: NDArray[np.void]) -> dict[tuple[int, int], int]:
        """Return how many elements of each block of the check are wrong, of those blocks that have some."""
        wrong = rows["wrong"].reshape(-1, _blocks(self.problem.n))
        return {(TILE * i, TILE * j): int(wrong[i, j]) for i, j in np.argwhere(wrong).tolist()}

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
