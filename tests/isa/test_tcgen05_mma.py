"""tcgen05.mma: its forms, where D lies, and its two kinds of descriptors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.isa import wgmma_descriptor as wgmma
from ptxlab.isa.tcgen05_descriptor import (
    BLACKWELL,
    TensorDescriptor,
    bit_places,
    instruction_fields,
    instruction_word,
    lint,
    lint_instruction,
    written,
)
from ptxlab.isa.tcgen05_mma import KINDS, MmaForm, check_form, legal_m, legal_n, parse_shape, scale_words
from ptxlab.isa.wgmma_descriptor import ATOMS, SharedOperand

F16 = MmaForm("f16", 128, 64, "f16", "f16", "f32")
NVF4 = MmaForm("mxf4nvf4", 128, 64, "e2m1", "e2m1", "f32", block=16, scale="ue4m3")
LAYOUTS = {
    "A": replace(F16, m=256, cta_group=2), "B": replace(F16, cta_group=2), "D": F16,
    "E": replace(F16, m=64, weights_stationary=True), "F": replace(F16, m=64),
    "G": replace(F16, m=32, weights_stationary=True),
}  # fmt: skip


@pytest.mark.parametrize(("letter", "form"), LAYOUTS.items())
def test_every_element_of_d_has_a_cell_of_its_own(letter: str, form: MmaForm) -> None:
    """In the columns that it says, and in no more."""
    assert form.layout == letter
    block, lane, column = form.d_places()
    cells = set(zip(block.ravel().tolist(), lane.ravel().tolist(), column.ravel().tolist(), strict=True))
    assert len(cells) == form.m * form.n
    assert column.max() + 1 == form.d_columns
    assert block.max() + 1 == form.cta_group
    assert lane.max() < 128


@pytest.mark.parametrize(
    ("letter", "element", "cell"),
    [("A", (200, 5), (1, 72, 5)), ("B", (70, 40), (1, 70, 8)), ("D", (100, 63), (0, 100, 63)),
     ("E", (10, 33), (0, 74, 1)), ("F", (20, 7), (0, 36, 7)), ("G", (3, 50), (0, 99, 2))],
)  # fmt: skip
def test_cells_by_hand(letter: str, element: tuple[int, int], cell: tuple[int, int, int]) -> None:
    """One of each layout, with n = 64."""
    assert tuple(int(each[element]) for each in LAYOUTS[letter].d_places()) == cell


def test_layout_f_can_begin_at_lane_16() -> None:
    """It then takes the other halves of the quarters."""
    low, high = (LAYOUTS["F"].d_places(lane)[1] for lane in (0, 16))
    np.testing.assert_array_equal(high, low + 16)
    assert set(low[:, 0] % 32) == set(range(16))


@pytest.mark.parametrize(
    ("form", "word"),
    [(MmaForm("f8f6f4", 64, 64, "e4m3", "e4m3", "f32"), 1 << 4 | 8 << 17 | 4 << 24),
     (MmaForm("f16", 64, 16, "bf16", "bf16", "f32"), 1 << 4 | 1 << 7 | 1 << 10 | 2 << 17 | 4 << 24),
     (MmaForm("tf32", 128, 256, "tf32", "tf32", "f32", b_major="MN"),
      1 << 4 | 2 << 7 | 2 << 10 | 1 << 16 | 32 << 17 | 8 << 24),
     (MmaForm("i8", 128, 32, "s8", "u8", "s32", a_major="MN"), 2 << 4 | 1 << 7 | 1 << 15 | 4 << 17 | 8 << 24),
     (MmaForm("f16", 256, 64, "f16", "f16", "f16", cta_group=2), 8 << 17 | 16 << 24),
     (MmaForm("mxf8f6f4", 256, 64, "e2m1", "e3m2", "f32", cta_group=2, block=32, scale="ue8m0"),
      5 << 7 | 4 << 10 | 8 << 17 | 1 << 23 | 2 << 27),
     (NVF4, 1 << 7 | 1 << 10 | 8 << 17 | 1 << 27)],
)  # fmt: skip
def test_instruction_descriptors_by_hand(form: MmaForm, word: int) -> None:
    """The first two are those of public kernels."""
    assert instruction_word(form) == word
    assert lint_instruction(word, form) == []


@pytest.mark.parametrize("name", KINDS)
def test_fields_say_what_was_meant(name: str) -> None:
    """Types, rows, columns and majors, of every pair of types of every kind."""
    kind = KINDS[name]
    for a in kind.types:
        for b in kind.types if kind.mixed else (a,):
            block = next(iter(kind.scales), 0)
            scale = kind.scales[block][0] if block else ""
            form = MmaForm(name, 128, 48, a, b, "f32" if name != "i8" else "s32", block=block, scale=scale)
            word = instruction_word(form)
            said = {each["field"]: each["is"] for each in instruction_fields(word, name)}
            assert (said["type of A"], said["type of B"], said["N / 8"]) == (a, b, "N = 48")
            assert said.get("M / 16", said.get("M / 128")) == "M = 128"
            assert lint_instruction(word, form) == []


@pytest.mark.parametrize(
    ("form", "change", "words"),
    [(F16, 1 << 6, "reserved bits are set: 6"), (F16, 1 << 3, "saturate is set"),
     (F16, 1 << 2, "tcgen05.mma.sp"),
     (F16, 1 << 30, "which is for .ws"), (F16, 1 << 7, "type of A says bf16"),
     (F16, 1 << 17, "N / 8 says N = 72"),
     (F16, 3 << 7, "no type of this kind"), (F16, 1 << 16, "transpose B says MN-major"),
     (NVF4, 1 << 31, "the bit for K = 96 is set"),
     (NVF4, 2 << 29, "scale id of A is 2; legal with 4 scales a row: 0"),
     (NVF4, 1 << 23, "type of scales says ue8m0"),
     (MmaForm("i8", 128, 32, "s8", "s8", "s32"), 1 << 13, "negate is set")],
)  # fmt: skip
def test_mistakes_of_instruction_descriptors(form: MmaForm, change: int, words: str) -> None:
    """Each is named."""
    assert any(words in each for each in lint_instruction(instruction_word(form) ^ change, form))


@pytest.mark.parametrize("swizzle", ATOMS)
def test_decoding_is_the_inverse_of_encoding(swizzle: str) -> None:
    """Every field survives, and the version is there."""
    found = TensorDescriptor(0x3FFF0, 16, 0x2000, swizzle, base_offset=5)
    assert TensorDescriptor.of(found.word) == found
    assert found.word >> 46 & 7 == 1
    assert found.word >> 61 == BLACKWELL.modes[swizzle]


def test_the_descriptor_of_a_swizzled_operand() -> None:
    """128B, eight rows of 128 bytes: the constant of many kernels."""
    assert TensorDescriptor(0, 16, 1024, "128B").word == 1 << 16 | 64 << 32 | 1 << 46 | 2 << 61


@pytest.mark.parametrize(
    ("word", "words"),
    [(wgmma.Descriptor(0, 16, 1024, "128B").word, "is this one of wgmma's descriptors?"),
     (TensorDescriptor(0, 16, 1024, "128B").word | 3 << 61,
      "swizzle mode 3 stands for nothing; legal: 0 none"),
     (TensorDescriptor(0, 16, 1024, "128B").word | 1 << 52, "bit 52"),
     (TensorDescriptor(0, 16, 1024, "128B").word | 1 << 53, "reserved bits are set: 53"),
     (TensorDescriptor(0, 16, 512, "128B").word, "SBO = 512 B, expected a multiple of 1024"),
     (TensorDescriptor(0, 16, 512, "128B_base32B").word, "is for MN-major ones of 32 bits")],
)  # fmt: skip
def test_mistakes_of_descriptors(word: int, words: str) -> None:
    """Of a K-major operand of 16 bits."""
    assert any(words in each for each in lint(word, rows=128, k=16, bits=16, major="K"))


def test_wgmma_s_lint_knows_these_descriptors() -> None:
    """The version is where wgmma has reserved bits."""
    word = TensorDescriptor(0, 16, 1024, "32B").word
    assert any("tcgen05" in each for each in wgmma.lint(word, rows=64, k=16, bits=16, major="K"))


@pytest.mark.parametrize(("bits", "slot"), [(16, 16), (8, 8), (6, 8), (4, 8), (4, 4), (32, 32)])
@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
def test_every_element_has_bits_of_its_own(bits: int, slot: int, swizzle: str) -> None:
    """Padded ones too: what was written at their places is read there again."""
    k = 256 // slot
    own = SharedOperand(0, 64, k, slot, "K", swizzle)
    at = own.descriptor(0, 0)
    places = bit_places(at, 64, k, bits, slot, "K")
    taken = (places[..., None] + np.arange(bits)).ravel()
    assert len(set(taken.tolist())) == 64 * k * bits
    assert taken.max() < 8 * own.nbytes
    words = np.arange(64 * k, dtype=np.uint64).reshape(64, k) % np.uint64(1 << bits)
    image = written(np.full(own.nbytes, 0xFF, dtype=np.uint8), places, words, bits)
    each = np.unpackbits(image, bitorder="little")[places[..., None] + np.arange(bits)]
    np.testing.assert_array_equal(each @ (1 << np.arange(bits, dtype=np.uint64)), words)


def test_padded_elements_fill_units_of_16_bytes() -> None:
    """Sixteen of 6 bits in the first 12 bytes of each, the next unit 16 bytes on."""
    own = SharedOperand(0, 8, 32, 8, "K", "32B").descriptor(0, 0)
    places = bit_places(own, 8, 32, 6, 8, "K")
    assert places[0, [0, 1, 15, 16]].tolist() == [0, 6, 90, 128]


def test_the_swizzle_with_units_of_32_bytes() -> None:
    """MN-major, 32 bits: four k of 128 bytes to an atom, 32-byte units XORed with k."""
    own = SharedOperand(0, 64, 8, 32, "MN", "128B_base32B")
    assert (own.lbo, own.sbo) == (1024, 512)
    places = bit_places(own.descriptor(0, 0), 64, 8, 32, 32, "MN") // 8
    assert places[[0, 4, 8, 32], 0].tolist() == [0, 16, 32, 1024]
    assert places[0, [1, 2, 3, 4]].tolist() == [128 + 32, 256 + 64, 384 + 96, 512]
    assert len(set(places.ravel().tolist())) == 64 * 8


def test_scales_are_in_every_quarter() -> None:
    """Row r in lane r % 32, column r // 32, the first scale lowest."""
    scales = np.arange(128 * 4, dtype=np.uint64).reshape(128, 4).astype(np.uint8)
    cells = scale_words(NVF4, scales)
    assert cells.shape == (128, 4)
    for quarter in range(4):
        word = int(cells[32 * quarter + 5, 2])
        assert [word >> 8 * byte & 255 for byte in range(4)] == scales[69].tolist()


@pytest.mark.parametrize(
    ("form", "rows", "columns"),
    [(F16, (64, 128), (8, 256, 32)), (replace(F16, cta_group=2), (128, 256), (16, 256, 16)),
     (replace(F16, weights_stationary=True), (32, 64, 128), (64, 256, 3)), (NVF4, (128,), (8, 256, 32)),
     (MmaForm("i8", 128, 32, "s8", "s8", "s32"), (64, 128), (8, 256, 18)),
     (MmaForm("i8", 128, 32, "s8", "s8", "s32", cta_group=2), (128, 256), (32, 256, 8)),
     (MmaForm("f8f6f4", 128, 32, "e4m3", "e4m3", "f32", b_major="MN"), (64, 128), (16, 256, 16))],
)  # fmt: skip
def test_shapes(form: MmaForm, rows: tuple[int, ...], columns: tuple[int, int, int]) -> None:
    """Rows, and the first, the last and the number of the columns that D can have."""
    legal = legal_n(form)
    assert legal_m(form) == rows
    assert (legal[0], legal[-1], len(legal)) == columns
    for m in rows:
        assert parse_shape(f"m{m}n{legal[-1]}k{form.k}", form).m == m


@pytest.mark.parametrize("shape", ["m96n64k16", "m128n12k16", "m128n64k8", "m128n264k16", "128x64", ""])
def test_other_shapes_are_refused(shape: str) -> None:
    """With the legal M, N and K."""
    with pytest.raises(UsageError, match="legal: mMnNk16 with M of 64 or 128, N of 8 to 256 in steps of 8"):
        parse_shape(shape, F16)


@pytest.mark.parametrize(
    ("form", "swizzle", "words"),
    [(replace(F16, b="bf16"), "128B", "legal: f16 twice"),
     (replace(F16, a="bf16", b="bf16", acc="f16"), "128B", "legal: f32"),
     (replace(F16, acc="s32"), "128B", "legal: f32 or f16"), (replace(F16, block=16), "128B", "legal: none"),
     (replace(NVF4, block=8), "128B", "legal: 16 or 32"), (replace(NVF4, block=32), "128B", "legal: ue8m0"),
     (replace(NVF4, weights_stationary=True), "128B", "legal: one block"),
     (replace(NVF4, a_major="MN"), "128B", "only types of 8"),
     (replace(F16, a_in_tmem=True, a_major="MN"), "128B", "has no major"),
     (replace(F16, a_major="MN"), "128B_base32B", "types of 32 bits"),
     (MmaForm("tf32", 128, 64, "tf32", "tf32", "f32", b_major="MN"), "64B", "legal: 128B_base32B alone"),
     (MmaForm("f8f6f4", 128, 64, "e2m1", "e4m3", "f32", a_in_tmem=True), "128B", "not modelled")],
)  # fmt: skip
def test_illegal_forms_name_the_legal_set(form: MmaForm, swizzle: str, words: str) -> None:
    """The reason and what would be legal."""
    with pytest.raises(UsageError, match=words):
        check_form(form, "sm_100a", swizzle)
