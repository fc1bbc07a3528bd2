"""movmatrix: the map before and after, its closed formulas, and that it transposes."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.isa.ldmatrix import LdMatrixForm, ldmatrix
from ptxlab.isa.movmatrix import formulas, movmatrix, register_map

REGISTERS = np.random.default_rng(4).integers(0, 1 << 32, (32, 1), dtype=np.uint32)


@pytest.mark.parametrize("trans", [False, True])
def test_printed_formulas_are_the_map(trans: bool) -> None:
    """Each printed formula, evaluated, gives the map in both directions."""
    where = register_map(trans=trans)
    names = {"lane": where.lane, "register": where.register, "slot": where.slot, **where.place}
    for name, expression in formulas(trans=trans).items():
        assert np.all(eval(expression, {}, names) == names[name]), (name, expression)  # noqa: S307 - own text


def test_it_transposes_by_hand() -> None:
    """Lane 13 (row 3, columns 2 and 3) receives row 2 and row 3 of column 3: of lanes 9, 13: high halves."""
    assert movmatrix(REGISTERS)[13, 0] == REGISTERS[9, 0] >> 16 | (REGISTERS[13, 0] >> 16) << 16


def test_twice_is_not_at_all() -> None:
    """A matrix transposed twice is itself, and a random one transposed once is not."""
    assert np.array_equal(movmatrix(movmatrix(REGISTERS)), REGISTERS)
    assert not np.array_equal(movmatrix(REGISTERS), REGISTERS)


def test_it_is_a_load_with_trans_after_a_load_without() -> None:
    """The register of ldmatrix, moved, is the register of ldmatrix.trans from the same addresses."""
    memory = np.random.default_rng(5).integers(0, 256, 128, dtype=np.uint8)
    rows = np.arange(32, dtype=np.int64) % 8 * 16
    plain, trans = (ldmatrix(memory, rows, LdMatrixForm("m8n8", 1, trans)) for trans in (False, True))
    assert np.array_equal(movmatrix(plain), trans)
