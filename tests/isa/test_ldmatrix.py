"""ldmatrix: the map of every form, its closed formulas, its model, and what is illegal."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.isa.ldmatrix import (
    BLACKWELL,
    LdMatrixForm,
    check_form,
    formulas,
    ldmatrix,
    legal_forms,
    register_map,
)

FORMS = [*legal_forms("sm_100a"), LdMatrixForm(element_bits=32), LdMatrixForm(element_bits=8)]


def test_forms_by_architecture() -> None:
    """8x8 from sm_75 on; the 16x16 and 8x16 shapes on Blackwell's a and f targets alone."""
    assert len(list(legal_forms("sm_75"))) == len(list(legal_forms("sm_90a"))) == 6
    blackwell = list(legal_forms("sm_100a"))
    assert len(blackwell) == 6 + 2 * 3 + 3 * 2
    for arch in ("sm_90a", "sm_100", "sm_120"):
        assert all(form.shape == "m8n8" for form in legal_forms(arch))
    assert all(list(legal_forms(arch)) == blackwell for arch in BLACKWELL)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_element_has_exactly_one_place(form: LdMatrixForm) -> None:
    """The map is a bijection between slots of registers and elements of matrices."""
    where = register_map(form)
    places = set(zip(*(where.place[axis].tolist() for axis in ("matrix", "row", "col")), strict=True))
    assert places == set(np.ndindex(form.num, form.rows, form.cols))
    slots = set(zip(where.lane.tolist(), where.register.tolist(), where.slot.tolist(), strict=True))
    assert slots == set(np.ndindex(32, form.registers, 32 // form.slot_bits))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_printed_formulas_are_the_map(form: LdMatrixForm) -> None:
    """Each printed formula, evaluated, gives the map in both directions."""
    text = formulas(form)
    for entry in register_map(form).entries():
        for name, expression in text.items():
            assert eval(expression, {}, entry) == entry[name], (name, expression, entry)  # noqa: S307 - own text


def test_m8n8_by_hand() -> None:
    """Lane 4g + t holds elements 2t and 2t + 1 of row g; with .trans of column g. PTX ISA, figure of m8n8."""
    plain = {(e["lane"], e["register"], e["slot"]): e for e in register_map(LdMatrixForm()).entries()}
    assert (plain[13, 2, 1]["matrix"], plain[13, 2, 1]["row"], plain[13, 2, 1]["col"]) == (2, 3, 3)
    trans = {
        (e["lane"], e["register"], e["slot"]): e for e in register_map(LdMatrixForm(trans=True)).entries()
    }
    assert (trans[13, 2, 1]["row"], trans[13, 2, 1]["col"]) == (3, 3)
    assert (trans[12, 0, 1]["row"], trans[12, 0, 1]["col"]) == (1, 3)


@pytest.mark.parametrize("num", [1, 2, 4])
def test_only_the_first_lanes_supply_addresses(num: int) -> None:
    """x1 takes rows from lanes 0-7, x2 from 0-15, x4 from 0-31; what lies above is ignored."""
    rng = np.random.default_rng(1)
    memory = rng.integers(0, 256, 4096, dtype=np.uint8)
    form = LdMatrixForm(num=num)
    base = rng.permutation(4096 // 16)[:32].astype(np.int64) * 16
    before = ldmatrix(memory, base, form)
    for lane in range(32):
        moved = base.copy()
        moved[lane] = next(a for a in range(0, 4096, 16) if a not in base)
        changed = ldmatrix(memory, moved, form) != before
        if lane >= 8 * num:
            assert not changed.any()
        else:  # the row's four lanes, in the register of the row's matrix
            lanes, registers = np.nonzero(changed)
            assert set(registers.tolist()) == {lane // 8}
            assert set(lanes.tolist()) <= set(range(4 * (lane % 8), 4 * (lane % 8) + 4))


def test_values_of_a_row_major_tile() -> None:
    """A 16x8 tile of a[r][c] = 16r + c loaded by x2: register 1 holds rows 8 to 15."""
    tile = (16 * np.arange(16)[:, None] + np.arange(8)).astype(np.uint16)
    addresses = np.arange(32, dtype=np.int64) % 16 * 16
    registers = ldmatrix(tile.view(np.uint8).ravel(), addresses, LdMatrixForm(num=2))
    for lane in range(32):
        g, t = divmod(lane, 4)
        for register in (0, 1):
            low = 16 * (g + 8 * register) + 2 * t
            assert registers[lane, register] == low | (low + 1) << 16


@pytest.mark.parametrize(
    ("form", "arch", "words"),
    [
        (LdMatrixForm("m16n16", 2, True, "b8"), "sm_90a", ("sm_90a", "K-major")),
        (
            LdMatrixForm("m8n16", 4, False, "b4x16_p64"),
            "sm_90a",
            ("m8n16 does not exist", "widen them in registers"),
        ),
        (LdMatrixForm("m8n8", 4, True, "b8"), "sm_90a", ("m8n8 takes b16", "K-major")),
        (LdMatrixForm("m8n8", 4, True, "b16", 8), "sm_90a", ("16-bit units", "K-major")),
        (LdMatrixForm("m8n8", 4, True, "b16", 32), "sm_90a", ("tear", "32-bit ld.shared")),
        (LdMatrixForm("m16n16", 4, True, "b8"), "sm_100a", ("one or two matrices", "x2")),
        (LdMatrixForm("m16n16", 2, False, "b8"), "sm_100a", ("without .trans", "--trans")),
        (
            LdMatrixForm("m8n16", 4, True, "b4x16_p64"),
            "sm_100a",
            ("no .trans", "leave --trans out"),
        ),
        (LdMatrixForm("m8n16", 4, False, "b8"), "sm_100a", ("b6x16_p32 or b4x16_p64", "--dtype")),
    ],
)
def test_illegal_forms_are_refused_with_the_reason(
    form: LdMatrixForm, arch: str, words: tuple[str, str]
) -> None:
    """A refusal says why, holds the legal forms, and its hint says what to do instead."""
    with pytest.raises(UsageError) as caught:
        check_form(form, arch)
    assert words[0] in caught.value.message
    assert "legal: m8n8 x1|x2|x4" in caught.value.message
    assert words[1] in caught.value.hint


@pytest.mark.parametrize("address", [8, -16, 4096])
def test_bad_addresses_are_refused(address: int) -> None:
    """An address that is misaligned or outside names its lane and the legal range."""
    addresses = np.zeros(32, dtype=np.int64)
    addresses[5] = address
    with pytest.raises(UsageError, match=rf"lane 5 supplies address {address}; legal: multiples of 16"):
        ldmatrix(np.zeros(4096, dtype=np.uint8), addresses, LdMatrixForm())


def test_padded_types_skip_their_padding() -> None:
    """16 values of 4 bits, then 64 bits of padding, become 16 bytes with the value in the low bits."""
    row = np.full(16, 0xFF, dtype=np.uint8)
    row[:8] = [0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE]
    memory = np.tile(row, 8)
    form = LdMatrixForm("m8n16", 1, trans=False, dtype="b4x16_p64")
    registers = ldmatrix(memory, np.arange(32, dtype=np.int64) % 8 * 16, form)
    assert registers[:4, 0].tolist() == [0x03020100, 0x07060504, 0x0B0A0908, 0x0F0E0D0C]
