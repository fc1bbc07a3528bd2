"""One GEMM: C = activation(alpha A x B + beta C + bias), where A is m x k, B is k x n and C is m x n."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

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
        saturates: whether what is larger becomes that number, not infinity.
        spread: the standard deviation of what is called normal values.
        sums: the type that products of two elements are added in, unless a stage has others.
        out: the type of C where none is asked for.

    Whole numbers are numbers whose spacing never falls below one.
    """

    cuda: str
    nbytes: int
    fraction_bits: int
    least_exponent: int
    largest: float
    saturates: bool = False
    spread: float = 1.0
    sums: str = "f32"
    out: str = "f32"

    @property
    def whole(self) -> bool:
        """Whether its numbers are integers."""
        return self.least_exponent == self.fraction_bits

    def spacing(self, values: Logical) -> Logical:
        """Return the distance to the next larger number of the type (an ulp)."""
        _, exponent = np.frexp(values)
        exponent = np.where(values == 0, self.least_exponent, np.maximum(exponent - 1, self.least_exponent))
        return np.asarray(np.ldexp(1.0, exponent - self.fraction_bits))

    def rounded(self, values: Logical) -> Logical:
        """Return the nearest numbers of the type (ties to even; too large ones saturate or are infinite)."""
        within = np.abs(values) < 2 * self.largest  # of what is larger, float64 cannot hold the nearest
        spacing = self.spacing(np.where(within, values, 0.0))
        nearest = np.rint(np.where(within, values, 0.0) / spacing) * spacing
        too_large = np.abs(np.where(within, nearest, values)) > self.largest
        beyond = self.largest if self.saturates else np.inf
        nearest = np.where(too_large, np.copysign(beyond, values), nearest)
        return np.where(np.isnan(values), values, nearest)


TYPES = {
    "f16": DataType("half", 2, 10, -14, 65504.0, out="f16"),
    "bf16": DataType("__nv_bfloat16", 2, 7, -126, float((2 - 2.0**-7) * 2.0**127), out="bf16"),
    "tf32": DataType("ptxlab::Tf32", 4, 10, -126, float((2 - 2.0**-10) * 2.0**127)),
    "f32": DataType("float", 4, 23, -126, float(np.finfo(np.float32).max)),
    "e4m3": DataType("__nv_fp8_e4m3", 1, 3, -6, 448.0, saturates=True, out="bf16"),
    "e5m2": DataType("__nv_fp8_e5m2", 1, 2, -14, 57344.0, saturates=True, out="bf16"),
    "s8": DataType("ptxlab::S8", 1, 7, 7, 127.0, saturates=True, spread=32.0, sums="s32", out="s32"),
    "s32": DataType("int", 4, 31, 31, 2.0**31 - 1, saturates=True, sums="s32", out="s32"),
}


FLOAT8 = ("e4m3", "e5m2")

PROMOTED = 128
"""Values of k between two additions of what the tensor cores have summed to float32 (Problem.promoted)."""


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
    holds before is read only where ``beta`` is not zero. A bias has one element for each column of C, in
    its type; ``activation`` is one of ACTIVATIONS. ``promoted`` says that sums of 8-bit floats, of which the
    tensor cores keep 14 bits, are added up in float32 every PROMOTED values of k.
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
    bias: bool = False
    activation: str = "none"
    promoted: bool = False

    @classmethod
    def of(cls, case: Case) -> Self:
        """Return the problem of a point of a GEMM stage."""
        return cls(
            *(case.m, case.n, case.k, case.dtype, case.acc, case.out, case.layout),
            alpha=float(np.float32(case.alpha)),  # as the kernel gets it
            beta=float(np.float32(case.beta)),
            bias=case.params.get("bias") == "yes",
            activation=str(case.params.get("activation", "none")),
            promoted=case.params.get("accumulate") == "promoted",
        )

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
    def bias_row(self) -> Matrix:
        """The bias, which is added to each row of C."""
        return Matrix(1, self.n, by_columns=False, dtype=TYPES[self.out])

    @property
    def macs(self) -> int:
        """Multiply-adds: m n k."""
        return self.m * self.n * self.k

    @property
    def tensor(self) -> str:
        """Which of RESOURCES multiplies: 16-bit types are told apart by their sums, others by themselves."""
        return f"tensor {self.acc if self.dtype in ('f16', 'bf16') else self.dtype}"

    @property
    def flop(self) -> int:
        """Floating-point operations: a multiply-add is two."""
        return 2 * self.macs

    @property
    def nbytes(self) -> int:
        """Bytes that must move at least: each operand read once, the result written once."""
        bias = self.bias_row.nbytes if self.bias else 0
        return self.a.nbytes + self.b.nbytes + bias + self.c.nbytes * (2 if self.beta else 1)

    @property
    def shape(self) -> str:
        """The sizes as a person writes them: 4096x4096x4096."""
        return f"{self.m}x{self.n}x{self.k}"

    def told(self) -> dict[str, Any]:
        """Return its parts as JSON values; what follows the sums, and promotion, only where there is one."""
        more = {"bias": False, "activation": "none", "promoted": False}
        return {name: value for name, value in asdict(self).items() if value != more.get(name)}

    def __str__(self) -> str:
        parts = [f"{self.shape} {self.dtype} {self.layout}", f"{self.acc} accumulate", f"{self.out} out"]
        if (self.alpha, self.beta) != (1, 0):
            parts.append(f"{self.alpha:g} AB + {self.beta:g} C")
        parts += ["promoted"] if self.promoted else []
        parts += ["bias"] if self.bias else []
        parts += [self.activation] if self.activation != "none" else []
        return ", ".join(parts)
