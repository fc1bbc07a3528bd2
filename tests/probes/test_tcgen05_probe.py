"""The tcgen05 probe: what it shows, refuses and judges; and that it says what is not proven."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.base import Case
from ptxlab.experiments.record import Record
from ptxlab.isa.numbers import decode
from ptxlab.isa.tcgen05_descriptor import TensorDescriptor, bit_places
from ptxlab.isa.types import BITS
from ptxlab.layout.tensor_operands import TensorOperands

MODEL = runner.Lab("sm_100a", None, None, "the model was asked for")
PROBE = registry.find_probe("tcgen05")
CASES = list(PROBE.variants("sm_100a"))
MOVES = [each for each in CASES if each.op != "mma"]
PRODUCTS = [each for each in CASES if each.op == "mma"]
EMPTY = 0xFFFFFFFF


def run(**params: Any) -> Record:
    """Run one point on the model."""
    return runner.run_probe(PROBE, PROBE.case("sm_100a", **params), MODEL)[0]


def operands(case: Case) -> TensorOperands:
    """Return the operands of a product."""
    form = sys.modules[type(PROBE).__module__].form_of(case)
    return TensorOperands(form, case.swizzle, case.tmem_lane)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.key)
def test_what_is_predicted_has_the_shape_of_the_outputs(case: Case) -> None:
    """Names, shapes and types; and the kernel's columns fit what it allocates."""
    (output,) = PROBE.outputs(case).values()
    predicted = PROBE.expected(case)["after"]
    assert predicted.shape == output.shape
    assert predicted.dtype == np.uint32
    assert len(output.axes) == len(output.shape)
    macros = PROBE.macros(case)
    assert int(macros["WIDTH"]) % 8 == 0
    assert int(macros["WIDTH"]) <= int(macros["ALLOC"]) <= 512


@pytest.mark.parametrize("case", MOVES, ids=lambda case: case.key)
def test_a_change_of_place_would_be_seen(case: Case) -> None:
    """The cells that are written differ from one another, except copies of the same."""
    after = PROBE.expected(case)["after"]
    cells = after[after != EMPTY]
    copies = {"ld": 1, "st": 1, "shift": 2, "alloc": 1}.get(case.op, 4) * case.cta_group
    assert len(np.unique(cells)) * copies >= cells.size // 2


@pytest.mark.parametrize("case", PRODUCTS, ids=lambda case: case.key)
def test_the_outputs_name_every_element(case: Case) -> None:
    """Of A, of B and of D: what a chip wrote would tell where each was read and written."""
    own = operands(case)
    block, lane, column = own.form.d_places(own.lane)
    d = PROBE.expected(case)["after"][:, block, lane, column]
    for name, extents in (("A", (own.form.m, own.form.k)), ("B", (own.form.k, own.form.n))):
        row, col = np.indices(extents)
        np.testing.assert_array_equal(own.trials.shown(name, d), row << 8 | col)
    row, col = np.indices((own.form.m, own.form.n))
    np.testing.assert_array_equal(own.trials.placed(d), row << 8 | col)


@pytest.mark.parametrize("case", [each for each in PRODUCTS if each.scale_block], ids=lambda case: case.key)
def test_the_outputs_depend_on_every_scale(case: Case) -> None:
    """In the last trial: another scale changes its row or column of D."""
    own = operands(case)
    a, b = decode(own.trials.a[-1], own.form.a), decode(own.trials.b[-1], own.form.b)
    blocks = (-1, own.form.k // own.form.block, own.form.block)
    by_block = np.einsum("mbk,nbk->mnb", a.reshape(blocks), b.T.reshape(blocks))
    assert by_block.any(axis=1).all()
    assert by_block.any(axis=0).all()


def test_a_load_shows_the_quarter_of_a_warp() -> None:
    """16x256b: lane 5 holds row 1, columns 2 and 3, and row 9; each warp reaches its own 32 lanes."""
    result = run(shape="16x256b", num="x1").result
    held = {(e["warp"], e["register"]): (e["row"], e["col"]) for e in result["tmem"] if e["lane"] == 5}
    assert [held[0, r] for r in range(4)] == [(1, 2), (1, 3), (9, 2), (9, 3)]
    assert held[3, 0] == (97, 2)
    assert [each["lanes of tensor memory"] for each in result["reach"]] == [
        "0-15",
        "32-47",
        "64-79",
        "96-111",
    ]
    assert result["pictures"][0]["cells"][1][2] == "5 r0"


@pytest.mark.parametrize("params", [{}, {"shape": "16x64b", "num": "x2", "tmem_lane": 16}, {"pack": True}])
def test_the_closed_form_holds_for_all_warps(params: dict[str, Any]) -> None:
    """Row is a lane of tensor memory; there and back."""
    result = run(**params).result
    closed = result["formulas"]["tmem"]
    for entry in result["tmem"]:
        for name, text in closed.items():
            assert eval(text, {}, dict(entry)) == entry[name]  # noqa: S307


@pytest.mark.parametrize(
    ("params", "opcode"),
    [({"op": "ld"}, "LDTM.x4"), ({"op": "st", "shape": "16x64b"}, "STTM.16dp64bit.x4"),
     ({"op": "ld", "pack": True}, "LDTM.x4.PACK16BIT"), ({"op": "cp"}, "UTCCP.T.S"),
     ({"op": "shift"}, "UTCSHIFT.DOWN"),
     ({"op": "alloc"}, "UTCATOMSWS.FIND_AND_SET.ALIGN"), ({"op": "mma"}, "UTCHMMA"),
     ({"op": "mma"}, "UTCBAR"),
     ({"op": "mma", "kind": "i8"}, "UTCIMMA"), ({"op": "mma", "kind": "mxf4nvf4"}, "UTCOMMA.4X"),
     ({"op": "mma", "cta_group": 2}, "UTCHMMA.2CTA"), ({"op": "mma", "kind": "f8f6f4"}, "UTCQMMA")],
)  # fmt: skip
def test_the_sass_is_claimed(params: dict[str, Any], opcode: str) -> None:
    """Each operation is one instruction of its own."""
    record = run(**params)
    assert record.exit_code == 0
    assert opcode in record.result["sass"]["counts"]
    assert opcode in record.result["claims"]


def test_nothing_is_called_proven() -> None:
    """Without a device and a recording that is said once, and the record says why."""
    for op in ("ld", "st", "cp", "shift", "mma", "alloc"):
        record = run(op=op)
        assert "Not proven on silicon" in record.result["unproven"]
        assert "Not proven" not in record.result["conclusion"]
        assert {each["case"] for each in record.skipped} == {"device", "recording"}


@pytest.mark.parametrize(
    "params",
    [{"shape": "m128n256k16"}, {"shape": "m64n256k16"}, {"shape": "m256n256k16", "cta_group": 2},
     {"kind": "i8", "shape": "m128n256k32"}, {"kind": "tf32", "shape": "m64n256k8"},
     {"kind": "mxf4", "shape": "m128n256k64"}, {"ws": True, "shape": "m128n256k16"}],
)  # fmt: skip
def test_d_has_up_to_256_columns(params: dict[str, Any]) -> None:
    """The largest shapes are shown like the others; of D's map the register is its column."""
    entries = run(op="mma", **params).result["tmem"]
    assert max(entry["register"] for entry in entries) == 255


@pytest.mark.parametrize("op", ["ld", "st", "cp", "shift", "mma", "alloc"])
def test_every_operation_is_drawn(run_cli: Any, tmp_path: Path, op: str) -> None:
    """With --svg."""
    done = run_cli("probe", PROBE.name, "--arch", "sm_100a", "--op", op, "--svg", str(tmp_path / "a.svg"))
    assert done.returncode == 0, done.stderr
    assert "<rect" in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize(
    ("params", "cells"),
    [({}, {(0, 0): "0-15, 0-7", (7, 7): "112-127, 56-63"}),
     ({"shape": "m64n24k16", "tmem_lane": 16}, {(0, 0): "", (1, 0): "0-15, 0-2", (7, 7): "48-63, 21-23"}),
     ({"shape": "m64n64k16", "ws": True}, {(3, 0): "48-63, 0-3", (4, 0): "0-15, 32-35"}),
     ({"shape": "m128n64k16", "cta_group": 2}, {(0, 0): "0-15, 0-3", (4, 7): "0-15, 60-63"})],
)  # fmt: skip
def test_the_picture_of_d(params: dict[str, Any], cells: dict[tuple[int, int], str]) -> None:
    """A row is 16 lanes: which rows and columns of D lie there."""
    picture = run(op="mma", **params).result["pictures"][0]
    assert {at: picture["cells"][at[0]][at[1]] for at in cells} == cells


def test_the_picture_of_an_allocation() -> None:
    """64 of 512 columns: two of sixteen pieces, in the lanes of every warp."""
    cells = run(op="alloc", columns=64).result["pictures"][0]["cells"]
    assert cells == [[f"warp {warp}"] * 2 + [""] * 14 for warp in range(4)]


def test_a_guess_is_called_one() -> None:
    """The direction of the shift is inferred."""
    assert "guess" in run(op="shift").result["conclusion"]


@pytest.mark.parametrize(
    ("params", "letter", "row"),
    [({"shape": "m64n64k16"}, "F", {"warp": 1, "lanes of tensor memory": "32-47", "rows of D": "16-31"}),
     ({"shape": "m128n64k16"}, "D", {"warp": 1, "rows of D": "32-63", "columns of D": "0-63"}),
     ({"shape": "m64n64k16", "ws": True}, "E", {"warp": 3, "rows of D": "32-63", "columns of D": "32-63"}),
     ({"shape": "m32n64k16", "ws": True}, "G", {"warp": 2, "rows of D": "0-31", "columns of D": "32-47"}),
     ({"shape": "m128n64k16", "cta_group": 2}, "B", {"block": 1, "warp": 2, "rows of D": "64-95",
      "columns of D": "32-63"}),
     ({"shape": "m256n64k16", "cta_group": 2}, "A", {"block": 1, "warp": 0, "rows of D": "128-159"})],
)  # fmt: skip
def test_where_d_lies(params: dict[str, Any], letter: str, row: dict[str, Any]) -> None:
    """The warps that reach it, and their rows and columns."""
    record = run(op="mma", **params)
    assert f"D has layout {letter}:" in record.result["conclusion"]
    rows = record.result["D in tensor memory"]
    assert any(row.items() <= each.items() for each in rows)


@pytest.mark.parametrize(
    ("params", "wrong"),
    [({"decode_idesc": "0x08100010"}, []), ({"decode_idesc": "0x04100010"}, ["instruction descriptor"]),
     ({"decode_desc": "0x4000404000010000"}, []), ({"decode_desc": "0x4000004000010040"}, ["descriptor"])],
)  # fmt: skip
def test_descriptors_are_judged(params: dict[str, str], wrong: list[str]) -> None:
    """A wrong one is a finding, exit 1: here another M, and one of wgmma's."""
    record = run(op="mma", **params)
    assert [check["name"] for check in record.checks if not check["ok"]] == wrong
    assert record.exit_code == (1 if wrong else 0)


@pytest.mark.parametrize(
    ("params", "words"),
    [({"op": "ld", "kind": "tf32"}, "--kind is not looked at by --op ld; legal: --shape"),
     ({"op": "cp", "shape": "16x64b"}, "legal: 128x256b"),
     ({"op": "alloc", "columns": 48}, "legal: 32, 64"), ({"op": "mma", "tmem_lane": 16}, "legal: 0"),
     ({"op": "cp", "swizzle": "128B_base32B"}, "K-major"),
     ({"op": "mma", "decode_desc": "zz"}, "legal: 64 bits"),
     ({"op": "mma", "decode_desc": "0x1_0"}, "legal: 64 bits"),
     ({"op": "mma", "kind": "mxf8f6f4", "cta_group": 2, "shape": "m128n64k32"}, "not modelled; legal: m256")],
)  # fmt: skip
def test_bad_options_name_the_legal_ones(params: dict[str, Any], words: str) -> None:
    """One line, with the value and what would be legal."""
    with pytest.raises(UsageError, match=words):
        PROBE.case("sm_100a", **params)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100", "sm_120a"])
def test_other_architectures_are_refused_with_one_that_works(run_cli: Any, arch: str) -> None:
    """Exit 2, the legal names, and an option that can be typed."""
    done = run_cli("probe", PROBE.name, "--arch", arch)
    assert done.returncode == 2
    assert f"does not exist on {arch}; legal: sm_100a" in done.stderr
    assert "hint: --arch sm_100a" in done.stderr


@pytest.mark.parametrize("arch", ["sm_100f", "sm_103f", "sm_110f", "sm_90a"])
def test_the_shift_wants_a_name_with_a(arch: str) -> None:
    """The others are not called legal."""
    with pytest.raises(UsageError) as caught:
        PROBE.case(arch, op="shift")
    told = f"tcgen05.shift does not exist on {arch}; legal: sm_100a, sm_103a, sm_107a, sm_110a"
    assert caught.value.message == told
    assert caught.value.hint == f"--arch {arch.replace('f', 'a') if arch != 'sm_90a' else 'sm_100a'}"


@pytest.mark.parametrize("case", PRODUCTS, ids=lambda case: case.key)
def test_shared_memory_holds_the_operands(case: Case) -> None:
    """Read back bit by bit, as the descriptors of the kernel say, in both blocks of a pair."""
    own, given = operands(case), PROBE.inputs(case)
    bits = np.unpackbits(given["memory"], axis=-1, bitorder="little")
    for index, (name, shared) in enumerate(own.shared.items(), start=2 - len(own.shared)):
        dtype = own.form.a if name == "A" else own.form.b
        at = TensorDescriptor.of(int(given["descriptors"][index]))
        places = bit_places(at, shared.rows, own.form.k, BITS[dtype], shared.bits, shared.major)
        each = bits[..., places[..., None] + np.arange(BITS[dtype])]
        words = each @ (1 << np.arange(BITS[dtype], dtype=np.uint64))
        whole = own.trials.a if name == "A" else own.trials.b.swapaxes(1, 2)
        np.testing.assert_array_equal(np.concatenate(list(words.swapaxes(0, 1)), axis=1), whole)
