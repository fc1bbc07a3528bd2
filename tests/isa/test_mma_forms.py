"""The forms of mma.sync: which there are, what they compute, and where they are legal."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.isa.mma import (
    MmaForm,
    dense_forms,
    element_places,
    find_form,
    from_registers,
    to_registers,
)
from ptxlab.isa.mma_lowering import emulation, tensor_operations
from ptxlab.isa.mma_sparse import SparseForm, sparse_forms


def find(arch: str = "sm_90a", **names: str) -> MmaForm:
    """The dense form with these names, m16n8k16 of f16 where they are left out."""
    usual = {"shape": "m16n8k16", "a": "f16", "b": "f16", "acc": "f32", "layout": "row.col"}
    found: MmaForm = find_form(list(dense_forms()), arch, **(usual | names))
    return found


def test_every_dense_form_is_there_once() -> None:
    """66 of them, each with a name of its own."""
    names = [form.ptx for form in dense_forms()]
    assert len(names) == len(set(names)) == 66


@pytest.mark.parametrize(
    ("arch", "names", "words"),
    [("sm_80", {"a": "f64", "b": "f64", "acc": "f64"}, "sm_90 or later; legal on sm_80 for f64: m8n8k4"),
     ("sm_80", {"a": "e4m3", "b": "e4m3", "shape": "m16n8k32"}, "sm_89 or later; legal on sm_80 .*: nothing"),
     ("sm_75", {}, "needs sm_80 or later; legal on sm_75 for f16: m16n8k8, m8n8k4"),
     ("sm_90a", {"shape": "m16n8k32"}, r"no shape m16n8k32; legal: m8n8k4 \(sm_75\), m16n8k8"),
     ("sm_90a", {"b": "bf16"}, r"takes no B of type bf16; legal: f16 \(sm_80\)"),
     ("sm_90a", {"a": "bf16", "b": "bf16", "acc": "f16"}, r"does not accumulate in f16; legal: f32"),
     ("sm_90a", {"a": "e2m1"}, r"no A of type e2m1; legal: f16 \(sm_75\), bf16"),
     ("sm_90a", {"op": "xor"}, r"has no --op xor; legal: none"),
     ("sm_90a", {"layout": "col.row"}, r"has no col\.row layout; legal: row\.col")],
)  # fmt: skip
def test_illegal_forms_name_the_legal_ones(arch: str, names: dict[str, str], words: str) -> None:
    """With the reason, and the lowest architecture of each."""
    with pytest.raises(UsageError, match=words):
        find(arch, **names)


def test_f64_of_sixteen_columns_needs_hopper() -> None:
    """sm_90 has it in one operation, sm_100 in eight, and the message says where to look."""
    form = find("sm_90", a="f64", b="f64", acc="f64")
    assert tensor_operations(form, "sm_90") == {"DMMA.16x8x16": 1}
    assert tensor_operations(form, "sm_100a") == {"DMMA.8x8x4": 8}
    with pytest.raises(UsageError) as caught:
        find("sm_80", a="f64", b="f64", acc="f64")
    assert caught.value.hint == "--arch sm_90 has it"


def test_flop_of_one_instruction() -> None:
    """16 * 8 * 16 multiplications and as many additions; a 4096 cube is MNK / 2048 of them."""
    form = find()
    assert form.flop == 4096
    assert 2 * 4096**3 // form.flop == 33_554_432
    assert 2 * 4096**3 // find(shape="m16n8k8").flop == 67_108_864
    assert find(shape="m8n8k4").flop == 4 * 2 * 8 * 8 * 4


@pytest.mark.parametrize(
    ("arch", "names", "made"),
    [("sm_75", {"shape": "m8n8k4"}, {"HMMA.884.F32.F32": 4}), ("sm_90a", {"shape": "m8n8k4"}, {}),
     ("sm_80", {"shape": "m16n8k4", "a": "tf32", "b": "tf32"}, {"HMMA.1684.F32.TF32": 1}),
     ("sm_89", {"shape": "m16n8k32", "a": "e4m3", "b": "e4m3"}, {"QMMA.16832.F32.E4M3.E4M3": 1}),
     ("sm_120a", {"shape": "m16n8k32", "a": "e4m3", "b": "e5m2"}, {"QMMA.16832.F32.E4M3.E5M2": 1}),
     ("sm_90", {"shape": "m16n8k32", "a": "e4m3", "b": "e4m3"}, {"HMMA.16816.F32": 2}),
     ("sm_100a", {"shape": "m16n8k16", "a": "e4m3", "b": "e4m3"}, {"HMMA.1688.F32": 2}),
     ("sm_86", {"shape": "m16n8k64", "a": "s4", "b": "u4", "acc": "s32"}, {"IMMA.16864.S4.U4": 1}),
     ("sm_90a", {"shape": "m16n8k64", "a": "s4", "b": "s4", "acc": "s32"}, {"IMMA.16832.S8.S8": 2}),
     ("sm_90a", {"shape": "m8n8k16", "a": "s8", "b": "s8", "acc": "s32"}, {"IMMA.8816.S8.S8": 1}),
     ("sm_100a", {"shape": "m8n8k16", "a": "s8", "b": "s8", "acc": "s32"}, {"IMMA.16816.S8.S8": 1}),
     ("sm_90a", {"shape": "m16n8k256", "a": "b1", "b": "b1", "acc": "s32", "op": "and"},
      {"BMMA.168256.AND.POPC": 1}),
     ("sm_90a", {"shape": "m16n8k256", "a": "b1", "b": "b1", "acc": "s32", "op": "xor"},
      {"BMMA.168256.AND.POPC": 2}),
     ("sm_100a", {"shape": "m16n8k256", "a": "b1", "b": "b1", "acc": "s32", "op": "and"},
      {"IMMA.16832.U8.U8": 8}),
     ("sm_80", {"shape": "m8n8k4", "a": "f64", "b": "f64", "acc": "f64"}, {"DMMA.884": 1})],
)  # fmt: skip
def test_what_becomes_of_a_form(arch: str, names: dict[str, str], made: dict[str, int]) -> None:
    """The tensor operations on each chip, and whether they are called an emulation."""
    form = find(arch, **names)
    assert tensor_operations(form, arch) == made
    native = "HMMA.884.F32.F32" in made or list(made.values()) == [1]
    assert (emulation(form, arch) == "") == native


def test_fp8_on_hopper_is_told_apart() -> None:
    """The sentence names what runs instead, and what would be faster."""
    told = emulation(find(shape="m16n8k32", a="e4m3", b="e4m3"), "sm_90a")
    assert "2 HMMA.16816.F32" in told
    assert "wgmma" in told
    assert "wgmma" not in emulation(find(shape="m16n8k32", a="e4m3", b="e4m3"), "sm_100a")
    assert "no tensor operation" in emulation(find(shape="m8n8k4"), "sm_90a")


@pytest.mark.parametrize("form", [*dense_forms(), *sparse_forms()], ids=lambda form: form.ptx)
def test_registers_hold_what_was_packed(form: MmaForm | SparseForm) -> None:
    """Out of the registers come the numbers that went in, wherever they lie."""
    for name, dtype in (("A", form.a), ("B", form.b), ("C", form.acc)):
        where = form.maps[name]
        numbers = np.arange(np.prod([2, form.matrices, *form.extents[name]])) % 2
        numbers = numbers.reshape(2, form.matrices, *form.extents[name]).astype(np.float64)
        packed = to_registers(where, numbers, dtype)
        assert packed.shape[:2] == (2, 32)
        out = from_registers(where, packed, dtype)
        assert np.array_equal(out, numbers[(..., *element_places(where))])


def test_ones_are_counted() -> None:
    """b1: the ones of A and B, or those in which A and B differ."""
    bits = np.random.default_rng(1).integers(0, 2, (2, 1, 16, 128)).astype(np.float64)
    a, b, c = bits[0], bits[1, :, :8].swapaxes(-1, -2), np.full((1, 16, 8), 3.0)
    both = find(shape="m16n8k128", a="b1", b="b1", acc="s32", op="and").multiply(a, b, c)
    differ = find(shape="m16n8k128", a="b1", b="b1", acc="s32", op="xor").multiply(a, b, c)
    for m, n in np.ndindex(16, 8):
        row, col = a[0, m].astype(bool), b[0, :, n].astype(bool)
        assert both[0, m, n] == 3 + np.count_nonzero(row & col)
        assert differ[0, m, n] == 3 + np.count_nonzero(row ^ col)
