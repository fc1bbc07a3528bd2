"""The closed forms of mma's fragments: each is evaluated, in both directions."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.isa.mma import MmaForm, dense_forms
from ptxlab.isa.mma_formulas import formulas
from ptxlab.isa.mma_sparse import SparseForm, sparse_forms

FORMS = [*dense_forms(), *sparse_forms()]


def name(form: MmaForm | SparseForm) -> str:
    """Its text, and its selector where it has one."""
    return f"{form.ptx} {getattr(form, 'selector', '')}"


@pytest.mark.parametrize("form", FORMS, ids=name)
def test_formulas_are_the_maps(form: MmaForm | SparseForm) -> None:
    """From lane, register and slot to the place, and back."""
    told = formulas(form)
    assert told.keys() == form.maps.keys()
    for operand, where in form.maps.items():
        here = {"lane": where.lane, "register": where.register, "slot": where.slot}
        there = dict(where.place)
        for target, given in ((there, here), (here, there)):
            for key, values in target.items():
                if key in told[operand] or key != "register":  # metadata has a single register
                    found = eval(told[operand][key], {}, given)  # noqa: S307 - our own text
                    assert np.array_equal(np.broadcast_to(found, values.shape), values), (operand, key)


@pytest.mark.parametrize("form", FORMS, ids=name)
def test_no_part_of_a_formula_is_always_zero(form: MmaForm | SparseForm) -> None:
    """Such as 16 * (register // 2) of an operand that has two registers."""
    told = formulas(form)
    for operand, where in form.maps.items():
        given = {"lane": where.lane, "register": where.register, "slot": where.slot, **where.place}
        for key in given.keys() & told[operand].keys():
            for term in told[operand][key].split(" + "):
                value = eval(term, {}, given)  # noqa: S307 - our own text
                assert term == "0" or np.any(value), (operand, key, term)


@pytest.mark.parametrize("form", list(sparse_forms()), ids=name)
def test_the_logical_column_is_what_metadata_says(form: SparseForm) -> None:
    """For each legal value of the four bits: index is the two of them that stand for the element."""
    told = formulas(form)["A"]
    for nibble in form.nibbles:
        four_bits = np.full(form.extents["E"], nibble)
        columns = form.logical_columns(four_bits)
        row, col = np.indices(columns.shape)
        index = eval(told["index"], {}, {"E": four_bits, "row": row, "col": col})  # noqa: S307 - our own text
        found = eval(told["logical_col"], {}, {"col": col, "index": index})  # noqa: S307 - our own text
        assert np.array_equal(found, columns)
