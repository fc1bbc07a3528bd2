"""The SMs' own clock: the kernel that reads it, and what is made of the readings."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.toolchain.build import build_ptx

clock = pytest.importorskip("ptxlab.device.sm_clock", reason="cuda-python is not here", exc_type=ImportError)


def readings(*samples: dict[int, tuple[int, int, int, int]]) -> np.ndarray:
    """Return what was read: per sample for some SMs cycles and nanoseconds before and after."""
    found = np.zeros((len(samples), 2, clock.PLACES, 2), np.uint64)
    for index, sample in enumerate(samples):
        for place, values in sample.items():
            found[index, :, place] = np.array(values, np.uint64).reshape(2, 2)
    return found


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_kernel_assembles_for_every_chip_that_gemm_runs_on(arch: str) -> None:
    """Without a spill or a message."""
    assert build_ptx(clock.PTX, name="sm_clock.ptx", arch=arch).cubin


def test_the_clock_is_cycles_by_time() -> None:
    """Of each sample; nanoseconds since 1970 are more than a float64 holds exactly."""
    now = 1_795_000_000_123_456_789
    first = {0: (5_000, now, 8_005_000, now + 5_000_000)}
    second = {0: (2**62, now, 2**62 + 7_000_000, now + 4_000_000)}
    assert clock.clock_mhz(readings(first, second)) == pytest.approx([1600.0, 1750.0])


def test_sms_that_only_one_reading_found_do_not_count() -> None:
    """The clock is the median of the others."""
    sample = {
        3: (0, 1, 1_500_000, 1_000_001),
        7: (0, 1, 1_600_000, 1_000_001),
        131: (0, 1, 1_900_000, 1_000_001),
        9: (0, 0, 77, 1_000_001),
        11: (77, 1, 0, 0),
    }
    assert clock.clock_mhz(readings(sample)) == pytest.approx([1600.0])
