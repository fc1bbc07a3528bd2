"""The fragments of mma.sync: bijections, and values read off the PTX ISA's own formulas."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.isa.mma import MmaForm, a_map, b_map, dense_forms


@pytest.mark.parametrize(
    ("m", "k", "bits"),
    [(16, 8, 16), (16, 16, 16), (16, 4, 32), (16, 8, 32), (16, 16, 8), (16, 32, 8), (8, 16, 8), (16, 64, 4),
     (16, 256, 1), (8, 4, 64), (16, 8, 64)],
)  # fmt: skip
def test_a_is_a_bijection(m: int, k: int, bits: int) -> None:
    """Every element of A has one place."""
    where = a_map(m, k, bits)
    places = set(zip(where.place["row"].tolist(), where.place["col"].tolist(), strict=True))
    assert places == set(np.ndindex(m, k))
    assert len(where.lane) == m * k


@pytest.mark.parametrize(("k", "bits"), [(8, 16), (16, 16), (8, 32), (32, 8), (64, 4), (4, 64)])
def test_b_is_a_bijection(k: int, bits: int) -> None:
    """Every element of B has one place."""
    where = b_map(k, bits)
    places = set(zip(where.place["row"].tolist(), where.place["col"].tolist(), strict=True))
    assert places == set(np.ndindex(k, 8))


def test_same_name_different_layout() -> None:
    """m16n8k8: f16 a1 is the neighbour in the row, tf32 a1 is eight rows below."""
    half = {(e["lane"], e["register"], e["slot"]): (e["row"], e["col"]) for e in a_map(16, 8, 16).entries()}
    tf32 = {(e["lane"], e["register"]): (e["row"], e["col"]) for e in a_map(16, 8, 32).entries()}
    assert (half[5, 0, 0], half[5, 0, 1], half[5, 1, 0]) == ((1, 2), (1, 3), (9, 2))
    assert (tf32[5, 0], tf32[5, 1], tf32[5, 2], tf32[5, 3]) == ((1, 1), (9, 1), (1, 5), (9, 5))


@pytest.mark.parametrize("form", list(dense_forms()), ids=lambda form: form.ptx)
def test_every_form_has_one_place_for_each_element(form: MmaForm) -> None:
    """A, B and C of every dense form are bijections; Volta's form holds four matrices of each."""
    count = 4 if form.volta else 1
    for where, rows, cols in (
        (form.a_map, form.m, form.k),
        (form.b_map, form.k, form.n),
        (form.c_map, form.m, form.n),
    ):
        matrix = where.place.get("matrix", np.zeros_like(where.lane))
        places = set(
            zip(matrix.tolist(), where.place["row"].tolist(), where.place["col"].tolist(), strict=True)
        )
        assert places == set(np.ndindex(count, rows, cols))
        assert len(where.lane) == count * rows * cols
