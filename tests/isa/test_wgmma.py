"""wgmma: who holds what, the closed formulas, the legal forms, and the names of CUTLASS atoms."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.isa.types import BITS
from ptxlab.isa.wgmma import (
    ACCUMULATORS,
    WARPS,
    WgmmaForm,
    check_form,
    explain_atom,
    formulas,
    legal_n,
    parse_atom,
    parse_form,
)

FORMS = [
    WgmmaForm(n, dtype, dtype, acc, a_in_registers=True)
    for dtype, accumulators in ACCUMULATORS.items()
    for acc in accumulators
    for n in (8, 24, 72)
]


@pytest.mark.parametrize("n", legal_n("f16"))
def test_every_element_of_d_has_one_place(n: int) -> None:
    """For each N, in f32 and f16, D is a bijection between slots and the 64 x N elements."""
    for acc in ("f32", "f16"):
        where = WgmmaForm(n, "f16", "f16", acc).d_map
        places = set(zip(where.row.ravel().tolist(), where.col.ravel().tolist(), strict=True))
        assert places == set(np.ndindex(64, n))
        assert where.row.size == 64 * n


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.ptx)
def test_printed_formulas_are_the_map(form: WgmmaForm) -> None:
    """Each printed formula, evaluated, gives the map in both directions."""
    for operand, where in (("D", form.d_map), ("A", form.a_map)):
        for name, text in formulas(form)[operand].items():
            expression = compile(text, name, "eval")
            for entry in where.entries():
                assert eval(expression, {}, entry) == entry[name], (operand, name, entry)  # noqa: S307 - own text


def test_formulas_hold_for_a_second_warpgroup() -> None:
    """Its four warps have rows 64 to 127, by the same expressions from row 64 on."""
    form = FORMS[0]
    entries = form.d_map.entries(warpgroup=1)
    assert {entry["row"] for entry in entries} == set(range(64, 128))
    for entry in entries:
        assert entry["warpgroup"] == 1
        own = entry | {"row": entry["row"] - 64}
        for name, expression in formulas(form)["D"].items():
            assert eval(expression, {}, own) == own[name]  # noqa: S307 - own text


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.ptx)
def test_a_in_registers_is_a_bijection(form: WgmmaForm) -> None:
    """Four registers in each thread hold the 64 x k elements of A once."""
    where = form.a_map
    assert where.row.shape == (WARPS, 32, 4, 32 // BITS[form.a])
    places = set(zip(where.row.ravel().tolist(), where.col.ravel().tolist(), strict=True))
    assert places == set(np.ndindex(64, form.k))


def test_places_by_hand() -> None:
    """Lane 13 of warp 2 (group 3, thread 1): read off the figures of the PTX ISA."""
    d = {
        (e["warp"], e["lane"], e["register"], e["slot"]): (e["row"], e["col"])
        for e in WgmmaForm(16, "f16", "f16", "f32").d_map.entries()
    }
    assert [d[2, 13, r, 0] for r in range(6)] == [(35, 2), (35, 3), (43, 2), (43, 3), (35, 10), (35, 11)]
    half = {
        (e["warp"], e["lane"], e["register"], e["slot"]): (e["row"], e["col"])
        for e in WgmmaForm(16, "f16", "f16", "f16").d_map.entries()
    }
    assert [half[2, 13, r, s] for r in (0, 1, 2) for s in (0, 1)] == [
        (35, 2), (35, 3), (43, 2), (43, 3), (35, 10), (35, 11),
    ]  # fmt: skip
    a = {
        (e["warp"], e["lane"], e["register"], e["slot"]): (e["row"], e["col"])
        for e in WgmmaForm(8, "e4m3", "e4m3", "f32", a_in_registers=True).a_map.entries()
    }
    assert [a[2, 13, r, 0] for r in range(4)] == [(35, 4), (43, 4), (35, 20), (43, 20)]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.ptx)
def test_packing_and_unpacking(form: WgmmaForm) -> None:
    """What is packed into registers comes out of them again."""
    for where, cols, bits in ((form.d_map, form.n, BITS[form.acc]), (form.a_map, form.k, BITS[form.a])):
        matrix = np.random.default_rng(1).integers(0, 1 << bits, (2, 64, cols), dtype=np.uint64)
        registers = where.pack(matrix)
        assert registers.shape[:3] == (2, WARPS, 32)
        assert registers.dtype == np.uint32
        np.testing.assert_array_equal(where.unpack(registers), matrix)


def test_shapes_by_type() -> None:
    """Floats have every eighth N, 8-bit integers fewer; k is 32 bytes."""
    assert legal_n("f16") == legal_n("e4m3") == tuple(range(8, 257, 8))
    assert legal_n("s8") == legal_n("u8") == (8, 16, 24, *range(32, 257, 16))
    assert [WgmmaForm(8, t, t, "f32").k for t in ("f16", "bf16", "tf32", "e5m2")] == [16, 16, 8, 32]


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("f16", "m64n12k16"), ("f16", "m64n264k16"), ("f16", "m64n64k8"), ("f16", "m128n64k16"),
     ("f16", "64x64"), ("s8", "m64n40k32"), ("e4m3", "m64n64k16")],
)  # fmt: skip
def test_illegal_shapes(dtype: str, shape: str) -> None:
    """N of 12 and the like; the message holds the legal set."""
    acc = ACCUMULATORS[dtype][0]
    with pytest.raises(UsageError, match=rf"has no shape {shape}; legal: m64nNk\d+ with N of 8"):
        parse_form(shape, WgmmaForm(64, dtype, dtype, acc))


@pytest.mark.parametrize(
    ("form", "words", "hint"),
    [(WgmmaForm(64, "e4m3", "e4m3", "f32", b_major="MN"), "B cannot be MN-major", "transpose it there"),
     (WgmmaForm(64, "tf32", "tf32", "f32", a_major="MN"), "A cannot be MN-major", "only 16-bit types"),
     (WgmmaForm(64, "s8", "u8", "s32", b_major="MN"), "legal MN-major: f16, bf16", "K-major"),
     (WgmmaForm(64, "bf16", "bf16", "f16"), "does not accumulate in f16; legal: f32", "only f16 and 8-bit"),
     (WgmmaForm(64, "s8", "s8", "f32"), "legal: s32", ""),
     (WgmmaForm(64, "f16", "bf16", "f32"), "does not multiply f16 by bf16; legal: f16", ""),
     (WgmmaForm(64, "e4m3", "s8", "f32"), "legal: e4m3 or e5m2", ""),
     (WgmmaForm(64, "f64", "f64", "f32"), "no type f64; legal: f16", ""),
     (WgmmaForm(64, "f16", "f16", "f32", a_in_registers=True, a_major="MN"), "legal: --major K", "-b MN")],
)  # fmt: skip
def test_illegal_forms_are_refused_with_the_reason(form: WgmmaForm, words: str, hint: str) -> None:
    """What types combine, and that only 16-bit ones are transposed."""
    with pytest.raises(UsageError, match=words) as caught:
        check_form(form, "sm_90a")
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("arch", "hint"),
    [("sm_90", "--arch sm_90a"), ("sm_100a", "tcgen05"), ("sm_103a", "tcgen05"), ("sm_120a", "mma.sync"),
     ("sm_80", "mma.sync")],
)  # fmt: skip
def test_it_exists_on_hopper_alone(arch: str, hint: str) -> None:
    """Newer is no superset; the hint names what is there instead."""
    with pytest.raises(UsageError, match=f"exists only on sm_90a, and not on {arch}") as caught:
        check_form(WgmmaForm(64, "f16", "f16", "f32"), arch)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("name", "shape", "form"),
    [("SM90_64x256x16_F32BF16BF16F32_SS", "m64n256k16", WgmmaForm(256, "bf16", "bf16", "f32")),
     ("SM90_64x256x16_F32BF16BF16_SS", "m64n256k16", WgmmaForm(256, "bf16", "bf16", "f32")),
     ("SM90_64x64x32_S32S8U8_RS_TN", "m64n64k32", WgmmaForm(64, "s8", "u8", "s32", a_in_registers=True)),
     ("SM90_64x8x8_F32TF32TF32_SS_TN", "m64n8k8", WgmmaForm(8, "tf32", "tf32", "f32")),
     ("SM90_64x8x32_F16E5M2E4M3_SS_TN", "m64n8k32", WgmmaForm(8, "e5m2", "e4m3", "f16")),
     ("SM90_64x16x16_F16F16F16_RS", "m64n16k16", WgmmaForm(16, "f16", "f16", "f16", a_in_registers=True)),
     ("MMA_64x256x16_F32BF16BF16_SS", "m64n256k16", WgmmaForm(256, "bf16", "bf16", "f32")),
     ("SM90::GMMA::MMA_64x8x8_F32TF32TF32_SS_TN", "m64n8k8", WgmmaForm(8, "tf32", "tf32", "f32"))],
)  # fmt: skip
def test_names_of_atoms(name: str, shape: str, form: WgmmaForm) -> None:
    """What a CUTLASS name stands for, with and without D's type at its end."""
    assert parse_atom(name) == (shape, form)


def test_names_of_atoms_are_explained() -> None:
    """Shape, each type, where A and B are, and the majors."""
    told = explain_atom("SM90_64x256x16_F32BF16BF16_SS")
    assert "m64n256k16: D is f32, A bf16, B bf16; SS: A and B both from shared memory" in told
    assert "template arguments" in told
    told = explain_atom("MMA_64x64x32_S32S8U8_RS_TN")
    assert "A s8, B u8; RS: A from registers, B from shared memory; TN: both K-major" in told


@pytest.mark.parametrize(
    "name", ["SM80_16x8x16_F32F16F16F32_TN", "SM90_64x64x16_F32F16F16F16_SS", "SM90_64x64x16_F32F16_SS", ""]
)
def test_names_that_are_no_atoms(name: str) -> None:
    """The message shows what one looks like."""
    with pytest.raises(UsageError, match="SM90_64x256x16_F32BF16BF16_SS"):
        parse_atom(name)
