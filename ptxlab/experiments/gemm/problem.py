"""One GEMM: C = A x B, where A is m x k, B is k x n and C is m x n."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from ptxlab.experiments.base import Case


@dataclass(frozen=True)
class DataType:
    """A type of matrix elements: its name in CUDA C++ and its numpy type."""

    cuda: str
    numpy: type[np.floating]

    @property
    def nbytes(self) -> int:
        """Bytes of one element."""
        return np.dtype(self.numpy).itemsize


TYPES = {"f16": DataType("half", np.float16), "f32": DataType("float", np.float32)}


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
    k-contiguous and B n-contiguous, "n" makes A m-contiguous and B k-contiguous. C is row-major.
    """

    m: int
    n: int
    k: int
    dtype: str
    acc: str
    out: str
    layout: str

    @classmethod
    def of(cls, case: Case) -> Self:
        """Return the problem of a point of a GEMM stage."""
        return cls(case.m, case.n, case.k, case.dtype, case.acc, case.out, case.layout)

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
        return self.a.nbytes + self.b.nbytes + self.c.nbytes

    @property
    def shape(self) -> str:
        """The sizes as a person writes them: 4096x4096x4096."""
        return f"{self.m}x{self.n}x{self.k}"

    def __str__(self) -> str:
        return f"{self.shape} {self.dtype} {self.layout}, {self.acc} accumulate, {self.out} out"
