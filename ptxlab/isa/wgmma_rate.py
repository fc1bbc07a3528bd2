"""How fast wgmma can be: what its products take, and what it takes to bring A and B to the tensor cores.

The four tensor cores of an SM take n / 2 cycles for 64 rows by n columns of 32 bytes along K: 4096 floating
point operations a cycle of 16-bit types, twice as many of 8-bit ones, half as many of tf32. Shared memory
delivers 128 bytes a cycle, and each instruction reads B there and, if it lies there, A. The slowest decides,
and the others hide behind it. Sources: NVIDIA, "H100 Tensor Core GPU Architecture", dense rates; CUDA
programming guide, compute capability 9.0, 32 banks of 4 bytes. That an operand is read once, and that nothing
else costs, is what the wgmma-throughput probe shows on silicon, as it does the cycles of A from registers.
"""

from __future__ import annotations

from ptxlab.isa.wgmma import M, WgmmaForm

LINE = 32
"""Bytes of a row of A, or of a column of B, in one instruction."""

SHARED_BYTES_PER_CYCLE = 128

FROM_REGISTERS = 13
"""Cycles that A from registers takes at any n. Source: wgmma-throughput, NVIDIA H200, 2026-11-30."""

TENSOR_CORES, SHARED_MEMORY, REGISTERS = "tensor cores", "reads of shared memory", "A from registers"
"""What can decide."""


def costs(form: WgmmaForm) -> dict[str, float]:
    """Return the cycles of an SM that a wgmma takes in each part, with others on their way around it."""
    rows = form.n + (0 if form.a_in_registers else M)
    return {
        TENSOR_CORES: form.n / 2,
        SHARED_MEMORY: rows * LINE / SHARED_BYTES_PER_CYCLE,
        REGISTERS: FROM_REGISTERS if form.a_in_registers else 0,
    }


def cycles(form: WgmmaForm) -> float:
    """Return the cycles of the slowest part."""
    return max(costs(form).values())


def bound(form: WgmmaForm) -> str:
    """Return the slowest part; of two the one that is named first."""
    found = costs(form)
    return max(found, key=found.__getitem__)


def flop(form: WgmmaForm) -> int:
    """Return the operations of one wgmma: a multiplication and an addition for each product."""
    return 2 * M * form.n * form.k


def peak(form: WgmmaForm) -> float:
    """Return the operations a cycle that the tensor cores of an SM can do on this form's types."""
    return flop(form) / costs(form)[TENSOR_CORES]
