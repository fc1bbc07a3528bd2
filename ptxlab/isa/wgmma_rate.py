"""How fast wgmma can be: what its products take, and what it takes to bring A and B out of shared memory.

The four tensor cores of an SM take n / 2 cycles for 64 rows by n columns of 32 bytes along K: 4096 floating
point operations a cycle of 16-bit types, twice as many of 8-bit ones, half as many of tf32. Shared memory
delivers 128 bytes a cycle. Sources: NVIDIA, "H100 Tensor Core GPU Architecture", dense rates; CUDA
programming guide, compute capability 9.0, 32 banks of 4 bytes. That each instruction fetches A and B once,
and that the slower of both alone decides, is a guess.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.isa.wgmma import M, WgmmaForm

LINE = 32
"""Bytes of a row of A, or of a column of B, in one instruction."""

SHARED_BYTES_PER_CYCLE = 128

TENSOR_CORES, SHARED_MEMORY = "tensor cores", "reads of shared memory"
"""What can decide."""


@dataclass(frozen=True)
class Cost:
    """The cycles of an SM that one wgmma of a form takes at the least.

    Attributes:
        products: on the tensor cores.
        operands: until A, if it lies there, and B are out of shared memory.

    """

    products: float
    operands: float

    @property
    def cycles(self) -> float:
        """The larger of both."""
        return max(self.products, self.operands)

    @property
    def bound(self) -> str:
        """What decides."""
        return TENSOR_CORES if self.products >= self.operands else SHARED_MEMORY


def cost(form: WgmmaForm) -> Cost:
    """Return what one wgmma of a form costs where others are on their way before and behind it."""
    rows = form.n + (0 if form.a_in_registers else M)
    return Cost(form.n / 2, rows * LINE / SHARED_BYTES_PER_CYCLE)


def flop(form: WgmmaForm) -> int:
    """Return the operations of one wgmma: a multiplication and an addition for each product."""
    return 2 * M * form.n * form.k


def peak(form: WgmmaForm) -> float:
    """Return the operations a cycle that the tensor cores of an SM can do on this form's types."""
    return flop(form) / cost(form).products
