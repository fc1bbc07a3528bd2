"""Products that show places: what they show is what was put there, and a misplaced element is seen."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.isa.numbers import Words, decode
from ptxlab.isa.types import BITS
from ptxlab.isa.wgmma import ACCUMULATORS, accumulator_bits
from ptxlab.layout.selection import Products, letters, products

TYPES = [(a, a, acc) for a, accumulators in ACCUMULATORS.items() for acc in accumulators]


def multiplied(own: Products, a: Words, b: Words) -> Words:
    """Bits of D."""
    left, right = decode(a, own.types[0]).astype(np.float64), decode(b, own.types[1]).astype(np.float64)
    return accumulator_bits(left @ right, own.types[2])


def coordinates(rows: int, cols: int) -> np.ndarray:
    """Row * 256 + column of every element."""
    return np.add.outer(np.arange(rows) << 8, np.arange(cols))


@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize(("m", "n", "k"), [(64, 8, 32), (64, 256, 16), (128, 24, 96)])
def test_products_show_the_places(types: tuple[str, str, str], m: int, n: int, k: int) -> None:
    """A's, B's and D's elements all name themselves, though types are narrow and sides are long or short."""
    own = products(m, n, k, types)
    d = multiplied(own, own.a, own.b)
    np.testing.assert_array_equal(own.shown("A", d), coordinates(m, k))
    np.testing.assert_array_equal(own.shown("B", d), coordinates(k, n))
    np.testing.assert_array_equal(own.placed(d), coordinates(m, n))


@pytest.mark.parametrize("types", TYPES, ids=str)
def test_no_element_of_d_is_zero_by_accident(types: tuple[str, str, str]) -> None:
    """The sign of a zero is nobody's promise; a D of zeros shows nothing."""
    own = products(64, 24, 32, types)
    magnitude = multiplied(own, own.a, own.b) & np.uint64((1 << (BITS[types[2]] - 1)) - 1)
    assert (magnitude != 0).all()


def test_a_misplaced_element_is_named() -> None:
    """Two elements of A exchanged show each other's coordinates, and all others their own."""
    own = products(64, 16, 16, ("f16", "f16", "f32"))
    a = own.a.copy()
    a[:, 3, 5], a[:, 40, 9] = own.a[:, 40, 9], own.a[:, 3, 5]
    shown = own.shown("A", multiplied(own, a, own.b))
    expected = coordinates(64, 16)
    expected[3, 5], expected[40, 9] = 40 << 8 | 9, 3 << 8 | 5
    np.testing.assert_array_equal(shown, expected)


@pytest.mark.parametrize("dtype", ACCUMULATORS)
def test_letters_are_told_apart(dtype: str) -> None:
    """They ascend, so that each is found again, and none is zero."""
    values = decode(letters(dtype), dtype)
    assert (np.diff(values) > 0).all()
    assert values[0] > 0
