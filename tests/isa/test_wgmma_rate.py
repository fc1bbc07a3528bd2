"""The rate of wgmma: what the tensor cores and shared memory take."""

from __future__ import annotations

import pytest

from ptxlab.isa import wgmma_rate as rate
from ptxlab.isa.wgmma import WgmmaForm


def form(n: int, dtype: str = "f16", acc: str = "f32", *, a_in_registers: bool = False) -> WgmmaForm:
    """A form with both operands of one type."""
    return WgmmaForm(n, dtype, dtype, acc, a_in_registers)


@pytest.mark.parametrize(
    ("dtype", "acc", "peak"),
    [("f16", "f32", 4096), ("bf16", "f32", 4096), ("tf32", "f32", 2048), ("e4m3", "f16", 8192),
     ("s8", "s32", 8192)],
)  # fmt: skip
def test_the_peak_is_the_data_sheets(dtype: str, acc: str, peak: int) -> None:
    """Operations a cycle and SM by type, at every n."""
    assert rate.peak(form(8, dtype, acc)) == rate.peak(form(256, dtype, acc)) == peak


@pytest.mark.parametrize(
    ("n", "a_in_registers", "cycles", "bound"),
    [(256, False, 128, rate.TENSOR_CORES), (64, False, 32, rate.TENSOR_CORES),
     (32, False, 24, rate.SHARED_MEMORY), (8, False, 18, rate.SHARED_MEMORY),
     (32, True, 16, rate.TENSOR_CORES), (16, True, 13, rate.REGISTERS)],
)  # fmt: skip
def test_the_slower_decides(n: int, a_in_registers: bool, cycles: float, bound: str) -> None:
    """Below n = 64 it is A's 64 rows of 32 bytes that cost; from registers they cost below n = 32."""
    of = form(n, a_in_registers=a_in_registers)
    assert (rate.cycles(of), rate.bound(of)) == (cycles, bound)
