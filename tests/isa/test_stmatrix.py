"""stmatrix: the map of every form, its closed formulas, its model, and what is illegal."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.isa.ldmatrix import BLACKWELL, LdMatrixForm, ldmatrix
from ptxlab.isa.mma import c_map
from ptxlab.isa.stmatrix import (
    TOO_OLD,
    StMatrixForm,
    check_form,
    formulas,
    legal_forms,
    register_map,
    stmatrix,
)

FORMS = list(legal_forms("sm_100a"))
RNG = np.random.default_rng(3)


def test_forms_by_architecture() -> None:
    """None before sm_90; 8x8 from there on; 16x8 on Blackwell's a and f targets alone."""
    assert [len(list(legal_forms(arch))) for arch in (*TOO_OLD, "sm_90", "sm_90a", "sm_100", "sm_120")] == [
        *(0 for _ in TOO_OLD), 6, 6, 6, 6,
    ]  # fmt: skip
    assert all(len(list(legal_forms(arch))) == 6 + 3 for arch in BLACKWELL)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.ptx)
def test_every_element_has_exactly_one_place(form: StMatrixForm) -> None:
    """The map is a bijection between slots of registers and elements of matrices."""
    where = register_map(form)
    places = set(zip(*(where.place[axis].tolist() for axis in ("matrix", "row", "col")), strict=True))
    assert places == set(np.ndindex(form.num, form.rows, form.cols))
    assert len(where.lane) == len(places)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.ptx)
def test_printed_formulas_are_the_map(form: StMatrixForm) -> None:
    """Each printed formula, evaluated, gives the map in both directions."""
    where = register_map(form)
    names = {"lane": where.lane, "register": where.register, "slot": where.slot, **where.place}
    for name, expression in formulas(form).items():
        assert np.all(eval(expression, {}, names) == names[name]), (name, expression)  # noqa: S307 - own text


@pytest.mark.parametrize("form", [form for form in FORMS if form.shape == "m8n8"], ids=lambda form: form.ptx)
def test_ldmatrix_brings_back_what_was_stored(form: StMatrixForm) -> None:
    """Every m8n8 form: store random registers at random rows, load them with the same form and addresses."""
    registers = RNG.integers(0, 1 << 32, (32, form.num), dtype=np.uint32)
    addresses = RNG.permutation(64)[:32].astype(np.int64) * 16
    memory = stmatrix(np.zeros(1024, np.uint8), addresses, registers, form)
    loading = LdMatrixForm("m8n8", form.num, form.trans)
    assert np.array_equal(ldmatrix(memory, addresses, loading), registers)


def test_a_transposing_load_of_a_plain_store_transposes() -> None:
    """Stored plain, loaded with .trans: lane 4i + j gets what lane 8j + i // 2 and 8j + 4 + i // 2 hold."""
    registers = RNG.integers(0, 1 << 32, (32, 1), dtype=np.uint32)
    rows = np.arange(32, dtype=np.int64) % 8 * 16
    memory = stmatrix(np.zeros(128, np.uint8), rows, registers, StMatrixForm(num=1))
    loaded = ldmatrix(memory, rows, LdMatrixForm("m8n8", 1, trans=True))
    halves = registers.astype(np.uint32) >> np.array([0, 16], dtype=np.uint32) & 0xFFFF
    for lane in range(32):
        i, j = divmod(lane, 4)
        low, high = halves[8 * j + i // 2, i % 2], halves[8 * j + 4 + i // 2, i % 2]
        assert loaded[lane, 0] == low | high << 16


def test_16x8_stores_an_accumulator_by_columns() -> None:
    """Element (row, col) of the 16x8 C of mma, narrowed to a byte, is byte ``row`` of memory row ``col``."""
    names = np.arange(128).reshape(16, 8)
    where = c_map(16, 32)
    narrow = names[where.place["row"], where.place["col"]].astype(np.uint8).reshape(32, 4)
    rows = np.arange(32, dtype=np.int64) % 8 * 16
    form = StMatrixForm("m16n8", 1, trans=True, dtype="b8")
    memory = stmatrix(np.zeros(128, np.uint8), rows, narrow.view(np.uint32), form)
    assert np.array_equal(memory.reshape(8, 16), names.T)


@pytest.mark.parametrize("num", [1, 2, 4])
def test_only_the_first_lanes_supply_addresses(num: int) -> None:
    """Nothing is written where only lanes from 8 times the matrices up point."""
    addresses = np.arange(32, dtype=np.int64) * 16
    memory = stmatrix(
        np.zeros(512, np.uint8), addresses, np.full((32, num), 0xFFFFFFFF, np.uint32), StMatrixForm(num=num)
    )
    assert memory[: 128 * num].all()
    assert not memory[128 * num :].any()


@pytest.mark.parametrize(
    ("form", "arch", "words"),
    [(StMatrixForm(), "sm_80", ("the minimum is sm_90", "st.shared")),
     (StMatrixForm(dtype="b8"), "sm_90a", ("m8n8 takes b16 and not b8", "in pairs")),
     (StMatrixForm("m16n8", 1, trans=True, dtype="b8"), "sm_90a", ("needs sm_100a", "--shape m8n8")),
     (StMatrixForm("m16n8", 1, trans=False, dtype="b8"), "sm_100a", ("without .trans", "--trans")),
     (StMatrixForm("m16n8", 1, trans=True), "sm_120a", ("takes b8 and not b16", "--dtype b8"))],
)  # fmt: skip
def test_illegal_forms_are_refused_with_the_reason(
    form: StMatrixForm, arch: str, words: tuple[str, str]
) -> None:
    """A refusal says why, holds the legal forms, and its hint says what to do instead."""
    with pytest.raises(UsageError) as caught:
        check_form(form, arch)
    assert words[0] in caught.value.message
    assert "legal: m8n8 x1|x2|x4 [trans] b16 (sm_90 and later)" in caught.value.message
    assert words[1] in caught.value.hint


@pytest.mark.parametrize("address", [8, -16, 512])
def test_bad_addresses_are_refused(address: int) -> None:
    """An address that is misaligned or outside names its lane and the legal range."""
    addresses = np.full(32, address, dtype=np.int64)
    with pytest.raises(UsageError, match=rf"lane 0 supplies address {address}; legal: multiples of 16"):
        stmatrix(np.zeros(512, np.uint8), addresses, np.zeros((32, 4), np.uint32), StMatrixForm())
