"""mma.sp: stored elements, metadata, and the lanes that supply it."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.isa.mma_sparse import LOWER, UPPER, SparseForm, sparse_forms


def form_of(a: str, k: int, selector: int = 0) -> SparseForm:
    """The form of a type with itself."""
    acc = "s32" if a in ("s8", "u8", "s4", "u4") else "f32"
    return SparseForm(16, 8, k, a, a, acc, selector)


@pytest.mark.parametrize("form", list(sparse_forms()), ids=lambda form: f"{form.ptx} {form.selector}")
def test_metadata_has_one_place_for_each_chunk(form: SparseForm) -> None:
    """Every row and chunk in one slot of one lane; two kept of four, or four of eight, or one of two."""
    where = form.e_map
    places = set(zip(where.place["row"].tolist(), where.place["col"].tolist(), strict=True))
    assert places == set(np.ndindex(*form.extents["E"]))
    assert len(where.lane) == len(places)
    assert form.extents["E"][1] * form.chunk == form.k


@pytest.mark.parametrize(
    ("a", "k", "selectors", "lanes"),
    [("f16", 16, 4, {0}), ("f16", 32, 2, {0, 1}), ("tf32", 8, 4, {0}), ("tf32", 16, 2, {0, 1}),
     ("s8", 32, 2, {0, 1}), ("s8", 64, 1, {0, 1, 2, 3}), ("s4", 64, 2, {0, 1}), ("s4", 128, 1, {0, 1, 2, 3}),
     ("e4m3", 64, 1, {0, 1, 2, 3})],
)  # fmt: skip
def test_the_selector_names_lanes(a: str, k: int, selectors: int, lanes: set[int]) -> None:
    """One lane of four, a pair, or all."""
    assert len(form_of(a, k).selectors) == selectors
    for selector in range(selectors):
        used = set((form_of(a, k, selector).e_map.lane % 4).tolist())
        assert used == {lane + selector * len(lanes) for lane in lanes}


def place(form: SparseForm, lane: int, slot: int) -> tuple[int, int]:
    """The row and chunk of a slot."""
    where = form.e_map
    (at,) = np.flatnonzero((where.lane == lane) & (where.slot == slot))
    return int(where.place["row"][at]), int(where.place["col"][at])


def test_halves_of_a_register_are_rows_of_16_bit_types() -> None:
    """f16 of 16 columns: bits 0-15 are row g, bits 16-31 row g + 8, four bits a chunk."""
    assert place(form_of("f16", 16, 2), lane=22, slot=3) == (5, 3)
    assert place(form_of("f16", 16, 2), lane=22, slot=4) == (13, 0)
    assert place(form_of("f16", 32), lane=21, slot=4) == (13, 4)


def test_a_register_is_one_row_of_8_bit_types() -> None:
    """s8 of 64 columns: odd lanes hold row g + 8, the upper pair of four the upper columns."""
    assert place(form_of("s8", 64), lane=20, slot=7) == (5, 7)
    assert place(form_of("s8", 64), lane=21, slot=0) == (13, 0)
    assert place(form_of("s8", 64), lane=22, slot=0) == (5, 8)


def test_registers_hold_the_metadata() -> None:
    """Out come the four bits that went in; idle lanes hold something else."""
    form = form_of("f16", 16, 1)
    nibbles = np.array(form.nibbles)[np.arange(64).reshape(16, 4) % 6]
    registers = form.metadata(nibbles)
    assert np.array_equal(form.nibbles_of(registers), nibbles)
    assert registers[1] == 0xEDC9_C984
    assert set(registers[np.arange(32) % 4 != 1].tolist()) == {UPPER * 0x11111111}


@pytest.mark.parametrize(
    ("a", "k", "nibble", "columns"),
    [("f16", 16, 0b1100, [0, 3, 4, 7]), ("f16", 16, 0b1001, [1, 2, 5, 6]), ("tf32", 8, LOWER, [0, 2, 4, 6]),
     ("tf32", 8, UPPER, [1, 3, 5, 7]), ("s4", 64, 0b1000, [0, 1, 4, 5]), ("s4", 64, 0b1101, [2, 3, 6, 7])],
)  # fmt: skip
def test_stored_elements_in_the_full_matrix(a: str, k: int, nibble: int, columns: list[int]) -> None:
    """The first four stored elements of a row, and zeros elsewhere."""
    form = form_of(a, k)
    nibbles = np.full(form.extents["E"], nibble)
    assert form.logical_columns(nibbles)[3, :4].tolist() == columns
    stored = np.arange(1.0, 1 + 16 * k // 2).reshape(1, 16, k // 2)
    full = form.expand(stored, nibbles)
    assert full[0, 3, columns].tolist() == stored[0, 3, :4].tolist()
    assert np.count_nonzero(full) == np.count_nonzero(stored)
