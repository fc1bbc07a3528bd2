"""The bits of numbers: every pattern of the small types, against numpy and the formats' own limits."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.isa.numbers import decode, encode
from ptxlab.isa.types import BITS

PATTERNS = np.arange(1 << 16, dtype=np.uint64)


def test_f16_is_numpys() -> None:
    """All 65536 patterns."""
    assert np.array_equal(
        decode(PATTERNS, "f16"),
        PATTERNS.astype(np.uint16).view(np.float16).astype(np.float64),
        equal_nan=True,
    )


def test_bf16_is_the_upper_half_of_f32() -> None:
    """All 65536 patterns."""
    with np.errstate(invalid="ignore"):
        upper = (PATTERNS.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    assert np.array_equal(decode(PATTERNS, "bf16"), upper, equal_nan=True)


@pytest.mark.parametrize(
    ("dtype", "largest", "smallest", "not_finite"),
    [("e4m3", 448.0, 2.0**-9, 2), ("e5m2", 57344.0, 2.0**-16, 8), ("e2m1", 6.0, 0.5, 0),
     ("e2m3", 7.5, 0.125, 0), ("e3m2", 28.0, 0.0625, 0)],
)  # fmt: skip
def test_small_floats(dtype: str, largest: float, smallest: float, not_finite: int) -> None:
    """Largest and smallest numbers as the formats say, and how many patterns are none."""
    values = decode(np.arange(1 << BITS[dtype], dtype=np.uint64), dtype)
    finite = values[np.isfinite(values)]
    assert (finite.max(), finite[finite > 0].min()) == (largest, smallest)
    assert len(values) - len(finite) == not_finite


@pytest.mark.parametrize("dtype", [name for name, bits in BITS.items() if bits <= 16])
def test_encode_undoes_decode(dtype: str) -> None:
    """Every finite number of every small type comes back (-0 may come back as 0)."""
    values = decode(np.arange(1 << BITS[dtype], dtype=np.uint64), dtype)
    finite = values[np.isfinite(values)]
    assert np.array_equal(decode(encode(finite, dtype), dtype), finite)


@pytest.mark.parametrize(
    ("value", "dtype"), [(0.1, "f16"), (128, "s8"), (-1, "u4"), (17.0, "e4m3"), (1e-9, "tf32")]
)
def test_what_a_type_cannot_hold_is_refused(value: float, dtype: str) -> None:
    """The message names the number and the type."""
    with pytest.raises(UsageError, match=f"is no number of type {dtype}"):
        encode(np.array([value]), dtype)
