"""One GEMM: C = alpha A x B + beta C, where A is m x k, B is k x n and C is m x n."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ptxlab.experiments.base import Case

Logical = NDArray[np.float64]
"""A matrix, or its elements, as float64, which holds every value of every type here."""


@dataclass(frozen=True)
class DataType:
    """A type of matrix elements.

    Attributes:
        cuda: its name in CUDA C++.
        nbytes: of one element.
        fraction_bits: behind the leading one of a normal number.
        least_exponent: of the smallest normal number; below, the spacing stays the same.
        largest: the largest finite number.

    """

    cuda: str
    nbytes: int
    fraction_bits: int
    least_exponent: int
    largest: float

    def spacing(self, values: Logical) -> Logical:
        """Return the distance to the next larger number of the type (an ulp)."""
        _, exponent = np.frexp(values)
        exponent = np.where(values == 0, self.least_exponent, np.maximum(exponent - 1, self.least_exponent))
        return np.asarray(np.ldexp(1.0, exponent - self.fraction_bits))

    def rounded(self, values: Logical) -> Logical:
        """Return the nearest numbers of the type (ties to even; what is too large becomes infinite)."""
        within = np.abs(values) < 2 * self.largest  # of what is larger, float64 cannot hold the nearest
        spacing = self.spacing(np.where(within, values, 0.0))
        nearest = np.rint(np.where(within, values, 0.0) / spacing) * spacing
        too_large = np.abs(np.where(within, nearest, values)) > self.largest
        nearest = np.where(too_large, np.copysign(np.inf, values), nearest)
        return np.where(np.isnan(values), values, nearest)


TYPES = {
    "f16": DataType("half", 2, 10, -14, 65504.0),
    "bf16": DataType("__nv_bfloat16", 2, 7, -126, float((2 - 2.0**-7) * 2.0**127)),
    "f32": DataType("float", 4, 23, -126, float(np.finfo(np.float32).max)),
}


@dataclass(frozen=True)
class Matrix:
    """A packed matrix. Logical indices are (row, col); ``by_columns`` says that columns are contiguous."""

    rows: int
    cols: int
    by_columns: bool
    dtype: DataType

    @property
    def nbytes(self) -> int:
        """Bytes of the whole matrix."""
        return self.rows * self.cols * self.dtype.nbytes

    @property
    def strides(self) -> tuple[int, int]:
        """How many elements lie between two rows, and between two columns."""
        return (1, self.rows) if self.by_columns else (self.cols, 1)

    @property
    def leading_dimension(self) -> int:
        """How many elements lie between two lines, a line being what is contiguous."""
        return self.rows if self.by_columns else self.cols


@dataclass(frozen=True)
class Problem:
    """The sizes, types and layout of one GEMM.

    ``layout`` is BLAS letters, A then B, as a library that stores by columns reads them: "t" makes A
    k-contiguous and B n-contiguous, "n" makes A m-contiguous and B k-contiguous. C is row-major. What C
    holds before is read only where ``beta`` is not zero.
    """

    m: int
    n: int
    k: int
    dtype: str
    acc: str
    out: str
    layout: str
    alpha: float = 1.0
    beta: float = 0.0

    @classmethod
    def of(cls, case: Case) -> Self:
        """Return the problem of a point of a GEMM stage."""
        scales = (float(np.float32(each)) for each in (case.alpha, case.beta))  # as the kernel gets them
        return cls(case.m, case.n, case.k, case.dtype, case.acc, case.out, case.layout, *scales)

    @property
    def a(self) -> Matrix:
        """The left operand, m x k."""
        return Matrix(self.m, self.k, self.layout[0] == "n", TYPES[self.dtype])

    @property
    def b(self) -> Matrix:
        """The right operand, k x n."""
        return Matrix(self.k, self.n, self.layout[1] == "n", TYPES[self.dtype])

    @property
    def c(self) -> Matrix:
        """The result, m x n, row-major."""
        return Matrix(self.m, self.n, by_columns=False, dtype=TYPES[self.out])

    @property
    def macs(self) -> int:
        """Multiply-adds: m n k."""
        return self.m * self.n * self.k

    @property
    def flop(self) -> int:
        """Floating-point operations: a multiply-add is two."""
        return 2 * self.macs

    @property
    def nbytes(self) -> int:
        """Bytes that must move at least: each operand read once, the result written once."""
        return self.a.nbytes + self.b.nbytes + self.c.nbytes * (2 if self.beta else 1)

    @property
    def shape(self) -> str:
        """The sizes as a person writes them: 4096x4096x4096."""
        return f"{self.m}x{self.n}x{self.k}"

    def __str__(self) -> str:
        text = f"{self.shape} {self.dtype} {self.layout}, {self.acc} accumulate, {self.out} out"
        return text if (self.alpha, self.beta) == (1, 0) else f"{text}, {self.alpha:g} AB + {self.beta:g} C"
