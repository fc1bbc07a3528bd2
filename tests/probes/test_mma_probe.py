"""The mma probe: the answers to the questions that people ask about mma.sync and mma.sp."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.base import Case
from ptxlab.experiments.record import Record
from ptxlab.experiments.unit import build_unit, kernel_name
from ptxlab.isa import mma as isa
from ptxlab.isa.mma_sparse import SparseForm, sparse_forms
from ptxlab.isa.numbers import decode
from ptxlab.layout import operands

PROBE = registry.find_probe("mma")
SPARSE: dict[str, Any] = {"sparse": True, "shape": "m16n8k32"}
FP8 = ("e4m3", "e5m2")


def run(arch: str = "sm_90a", **params: Any) -> Record:
    """Run one point on the model."""
    lab = runner.Lab(arch, None, None, "the model was asked for")
    return runner.run_probe(PROBE, PROBE.case(arch, **params), lab)[0]


def check_of(record: Record, name: str) -> dict[str, Any]:
    """The check of that name."""
    return next(check for check in record.checks if check["name"] == name)


def form_of(case: Case) -> operands.Form:
    """The form of a point."""
    names = {"shape": case.shape, "a": case.dtype, "b": case.dtype_b, "acc": case.acc, "op": case.op}
    if not case.sparse:
        dense: isa.MmaForm = isa.find_form(list(isa.dense_forms()), case.arch, **names, layout=case.layout)
        return dense
    k = int(case.shape.partition("k")[2])
    return SparseForm(16, 8, k, case.dtype, case.dtype_b, case.acc, case.selector)


def unpacked(registers: np.ndarray, where: isa.RegisterMap, dtype: str, extent: tuple[int, ...]) -> Any:
    """Operands out of registers, entry by entry as a document lists them."""
    out = np.zeros((len(registers), *extent))
    for entry in where.entries():
        word = registers[:, entry["lane"], entry["register"]].astype(np.uint64)
        bits = word >> np.uint64(entry["slot"] * where.bits) & np.uint64((1 << where.bits) - 1)
        out[:, entry.get("matrix", 0), entry["row"], entry["col"]] = decode(bits, dtype)
    return out


@pytest.mark.parametrize("case", list(PROBE.variants("sm_90a")), ids=lambda case: case.key)
def test_the_registers_given_make_the_registers_predicted(case: Case) -> None:
    """Multiplying what the kernel reads, as the maps have it, gives the D that is predicted."""
    form, given = form_of(case), PROBE.inputs(case)
    a, b, c = (
        unpacked(given[name.lower()], form.maps[name], dtype, (form.matrices, *form.extents[name]))
        for name, dtype in (("A", form.a), ("B", form.b), ("C", form.acc))
    )
    if isinstance(form, SparseForm):
        a = form.expand(a, form.nibbles_of(given["e"]))
    product = np.einsum("eqmk,eqkn->eqmn", a, b)
    if form.op == "xor":
        product = np.einsum("eqmk,eqkn->eqmn", a, 1 - b) + np.einsum("eqmk,eqkn->eqmn", 1 - a, b)
    d = unpacked(PROBE.expected(case)["d"], form.maps["D"], form.acc, (form.matrices, form.m, form.n))
    assert np.array_equal(d, product + c)


def test_more_than_ninety_variants_on_hopper() -> None:
    """Every dense form, every sparse one with every selector, and the planted faults."""
    cases = list(PROBE.variants("sm_90a"))
    assert sum(not case.sparse for case in cases) == 66 + 3
    assert sum(case.sparse for case in cases) == 52
    assert len({case.key for case in cases}) == len(cases)


def test_exchanged_registers_are_named() -> None:
    """Registers 1 and 2 of A: exactly these, where each belongs, and exit code 1."""
    record = run(perm_a="0,2,1,3")
    assert record.exit_code == 1
    assert check_of(record, "element places")["detail"] == (
        "registers 1 and 2 of A are exchanged: register 1 holds rows 0-7, columns 8-15 where rows 8-15, "
        "columns 0-7 belong, and register 2 the reverse"
    )
    assert "registers 1 and 2 of A are exchanged" in record.result["conclusion"]


def test_a_rotation_of_registers_is_named() -> None:
    """Each register, with what it was given."""
    detail = check_of(run(perm_a="1,2,0,3"), "element places")["detail"]
    assert "register 0 of A holds rows 8-15, columns 0-7 where rows 0-7, columns 0-7 belong" in detail
    assert "register 2 of A holds rows 0-7, columns 0-7" in detail
    assert "register 3" not in detail


@pytest.mark.parametrize(
    "form",
    [{}, {"dtype": "s8", "shape": "m16n8k32"}, {"dtype": "bf16"}, {"sparse": True, "shape": "m16n8k16"},
     {"shape": "m8n8k4"}, {"shape": "m8n8k4", "layout": "col.row"}, {"dtype": "s4", "shape": "m16n8k64"},
     {"dtype": "b1", "shape": "m16n8k256", "op": "xor"}, {"dtype": "f64", "shape": "m16n8k8"}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("operand", ["A", "B"])
def test_exchanged_registers_are_blamed_on_their_operand_alone(form: dict[str, Any], operand: str) -> None:
    """The last two registers of A or of B: exactly these, nothing of the other, and metadata untouched."""
    count = 1 + max(entry["register"] for entry in run(**form).result[operand])
    order = [*range(count - 2), count - 1, count - 2]
    record = run(**form, **{f"perm_{operand.lower()}": ",".join(map(str, order))})
    detail = check_of(record, "element places")["detail"]
    assert detail.startswith(f"registers {count - 2} and {count - 1} of {operand} are exchanged: register ")
    assert detail.count("exchanged") == 1
    assert ";" not in detail
    assert [check["name"] for check in record.checks if not check["ok"]] == ["element places"]


def test_registers_of_both_operands_in_a_wrong_order() -> None:
    """Each is told of its own, whatever is wrong with the other."""
    faults = {"perm_a": "3,0,1,2"}, {"perm_b": "1,0"}
    alone = [check_of(run(**fault), "element places")["detail"] for fault in faults]
    assert alone[0].count("register") == 4
    assert "of B" not in alone[0]
    assert check_of(run(perm_a="3,0,1,2", perm_b="1,0"), "element places")["detail"] == "; ".join(alone)


def test_registers_in_the_usual_order_are_no_fault() -> None:
    """0,1,2,3 is what is meant anyway."""
    record = run(perm_a="0,1,2,3", perm_b="0, 1")
    assert record.exit_code == 0
    assert check_of(record, "recording")["ok"]


@pytest.mark.parametrize("params", [{}, {"perm_a": "0,2,1,3"}])
def test_a_uniform_fill_cannot_tell(params: dict[str, str]) -> None:
    """All ones: the same D with and without the exchange, no verdict, and a warning that says why."""
    record = run(fill="ones", **params)
    assert record.exit_code == 0
    assert record.result["conclusion"].startswith("Nothing is shown: every element is 1")
    assert any("cannot tell them apart" in each["reason"] for each in record.skipped)
    case, plain = PROBE.case("sm_90a", fill="ones", **params), PROBE.case("sm_90a", fill="ones")
    assert np.array_equal(PROBE.expected(case)["d"], PROBE.expected(plain)["d"])


def test_same_shape_different_tables() -> None:
    """m16n8k8: f16 registers hold two neighbours, tf32 registers one element, rows and columns swapped."""
    half, tf32 = run(shape="m16n8k8").result, run(shape="m16n8k8", dtype="tf32").result
    assert (len(half["A"]), len(half["B"]), len(half["C"])) == (128, 64, 128)
    for lane in range(32):
        g, t = divmod(lane, 4)
        own = {name: [e for e in half[name] if e["lane"] == lane] for name in "AB"}
        assert [(e["row"], e["col"]) for e in own["A"]] == [
            (g + 8 * (i > 1), 2 * t + i % 2) for i in range(4)
        ]
        own = {name: [e for e in tf32[name] if e["lane"] == lane] for name in "AB"}
        assert [(e["row"], e["col"]) for e in own["A"]] == [
            (g + 8 * (i % 2), t + 4 * (i > 1)) for i in range(4)
        ]
        assert [(e["row"], e["col"]) for e in own["B"]] == [(t, g), (t + 4, g)]


def test_fp8_is_emulated_on_hopper() -> None:
    """12 conversions and 2 HMMA, said in the result and in the sentence."""
    record = run(shape="m16n8k32", dtype="e4m3")
    counts = record.result["sass"]["counts"]
    assert (counts["F2FP.F16.E4M3.UNPACK_B"], counts["HMMA.16816.F32"]) == (12, 2)
    assert record.result["emulated"].startswith("Emulated on sm_90a: 2 HMMA.16816.F32")
    assert record.result["emulated"] in record.result["conclusion"]
    counts = run(shape="m16n8k16", dtype="e4m3").result["sass"]["counts"]
    assert (counts["F2FP.F16.E4M3.UNPACK_B"], counts["HMMA.1688.F32"]) == (6, 2)


def test_fp8_is_native_on_ada() -> None:
    """Dense and sparse QMMA: one each, and nothing of an emulation."""
    cases = [case for case in PROBE.variants("sm_89") if case.dtype in ("e4m3", "e5m2")]
    assert len(cases) == 20
    build = build_unit(PROBE, cases, "sm_89")
    for case in cases:
        kernel = runner.kernel_report(build, kernel_name(PROBE, PROBE.macros(case)))
        assert kernel["families"]["QMMA"] == kernel["tensor_ops"] == 1
        record = Record()
        runner.check_sass(kernel, PROBE.claims(case), record)
        assert record.exit_code == 0, record.checks


def test_fp8_sums_in_f16_on_a_few_chips() -> None:
    """mma.sp of 8-bit floats into f16: native on sm_120a, refused elsewhere with what is legal there."""
    cases = [
        case
        for case in PROBE.variants("sm_120a")
        if case.sparse and case.acc == "f16" and case.dtype[0] == "e"
    ]
    assert {(case.dtype, case.dtype_b) for case in cases} == {(a, b) for a in FP8 for b in FP8}
    build = build_unit(PROBE, cases, "sm_120a")
    for case in cases:
        kernel = runner.kernel_report(build, kernel_name(PROBE, PROBE.macros(case)))
        opcode = f"QMMA.SP.16864.F16.{case.dtype}.{case.dtype_b}".upper()
        assert (kernel["counts"][opcode], kernel["tensor_ops"]) == (1, 1)
    record = run("sm_120a", sparse=True, shape="m16n8k64", dtype="e5m2", acc="f16")
    assert record.exit_code == 0
    assert record.result["unproven"].endswith("what is shown for sm_120a is derived.")
    for arch in ("sm_90a", "sm_120"):
        with pytest.raises(
            UsageError, match=r"it needs sm_120a.*legal on .*: m16n8k64 with --acc f32"
        ) as caught:
            PROBE.case(arch, sparse=True, shape="m16n8k64", dtype="e4m3", acc="f16")
        assert caught.value.hint == "--acc f32, or --arch sm_120a has it"


def test_b1_on_turing_is_xor_alone() -> None:
    """The shape is legal with the other operation, which the hint names."""
    with pytest.raises(UsageError, match="legal on sm_75 for b1: m8n8k128 with --op xor") as caught:
        PROBE.case("sm_75", dtype="b1", shape="m8n8k128")
    assert caught.value.hint == "--op xor, or --arch sm_80 has it"
    assert PROBE.case("sm_75", dtype="b1", shape="m8n8k128", op="xor").op == "xor"


@pytest.mark.parametrize(("arch", "operations"), [("sm_75", 4), ("sm_90a", 0)])
def test_volta_form_on_newer_chips(arch: str, operations: int) -> None:
    """m8n8k4 of f16: four steps on sm_75, no tensor operation at all later, and a note."""
    record = run(arch, shape="m8n8k4")
    assert record.exit_code == 0
    assert record.result["sass"]["tensor_ops"] == record.result["tensor_ops"] == operations
    assert bool(record.result["emulated"]) == (operations == 0)
    assert {entry["matrix"] for entry in record.result["A"]} == {0, 1, 2, 3}


def test_f64_on_hopper() -> None:
    """m16n8k16: one DMMA, 8 registers of A and 4 of B; sm_80 refuses it with the reason."""
    record = run(shape="m16n8k16", dtype="f64")
    assert record.result["sass"]["counts"]["DMMA.16x8x16"] == record.result["sass"]["tensor_ops"] == 1
    registers = {name: 1 + max(e["register"] for e in record.result[name]) for name in "ABC"}
    assert registers == {"A": 8, "B": 4, "C": 4}
    with pytest.raises(UsageError, match="needs sm_90 or later; legal on sm_80 for f64: m8n8k4"):
        PROBE.case("sm_80", shape="m16n8k16", dtype="f64")


def test_flop_of_one_operation() -> None:
    """4096 for HMMA.16816."""
    result = run().result
    assert (result["flop"], result["tensor_ops"], result["flop_per_tensor_op"]) == (4096, 1, 4096)
    assert result["sass"]["tensor_ops"] == 1


def test_metadata_lanes() -> None:
    """A pair of lanes of each four; the others hold something else, and it does not matter."""
    for selector, lanes in ((0, "0-1"), (1, "2-3")):
        record = run(**SPARSE, selector=selector)
        assert record.exit_code == 0
        assert f"lane % 4 in {lanes} supply metadata" in check_of(record, "metadata lanes")["detail"]
        assert {entry["lane"] % 4 for entry in record.result["E"]} == {2 * selector, 2 * selector + 1}
    assert (
        "Every lane" in check_of(run(sparse=True, shape="m16n8k64", dtype="s8"), "metadata lanes")["detail"]
    )


def test_logical_columns_of_a_sparse_a() -> None:
    """Two stored columns for each four, in order."""
    entries = run(**SPARSE).result["A"]
    assert all(entry["logical_col"] // 4 == entry["col"] // 2 for entry in entries)
    columns = {(entry["row"], entry["col"]): entry["logical_col"] for entry in entries}
    assert all(columns[row, 2 * pair] < columns[row, 2 * pair + 1] for row in range(16) for pair in range(8))
    assert {column % 4 for column in columns.values()} == {0, 1, 2, 3}


def test_metadata_from_other_lanes_is_noticed() -> None:
    """What selector 1 gives, taken for selector 0: the lanes that govern other rows are named."""
    case, other = (PROBE.case("sm_90a", **SPARSE, selector=selector) for selector in (0, 1))
    record = Record(result={"emulated": ""})
    given = operands.bench(form_of(case))
    d = operands.multiply(form_of(other), given.a, given.b, given.c, given.e)
    where = form_of(case).c_map
    PROBE.examine(case, {"d": isa.to_registers(where, d, case.acc)}, record)
    check = check_of(record, "metadata lanes")
    assert not check["ok"]
    assert "metadata of lanes 0-31 governs other rows" in check["detail"]
    assert check["detail"].endswith("that of lane 0 none, predicted rows 0, 8, chunks 0-3")
    assert not check_of(record, "element places")["ok"]


def test_lanes_that_are_exchanged_are_noticed() -> None:
    """D of another lane: elements act elsewhere."""
    case = PROBE.case("sm_90a")
    d = PROBE.expected(case)["d"].copy()
    d[:, [3, 4]] = d[:, [4, 3]]
    record = Record(result={"emulated": ""})
    PROBE.examine(case, {"d": d}, record)
    assert not check_of(record, "element places")["ok"]


@pytest.mark.parametrize(
    "params", [{}, {"shape": "m8n8k4"}, SPARSE, {"shape": "m16n8k256", "dtype": "b1", "op": "xor"}]
)
def test_measured_values_are_the_coordinates(params: dict[str, Any]) -> None:
    """Where D says that each element acts is where the table has it."""
    case = PROBE.case("sm_90a", **params)
    result = PROBE.report(case, PROBE.expected(case), measured=True)
    for name in result["shapes"]:
        for entry in result[name]:
            row, col = entry["row"], entry.get("logical_col", entry["col"])
            assert entry["value"] == entry.get("matrix", 0) << 16 | row << 8 | col


@pytest.mark.parametrize(
    ("params", "words"),
    [({"perm_a": "0,1,2"}, "'0,1,2' does not name each register of A once; legal: 0,1,2,3 in any order"),
     ({"perm_b": "0,x"}, "--perm-b '0,x'"), ({"selector": 1}, "a dense mma has no selector"),
     ({"sparse": True, "selector": 4}, "has no selector 4; legal: 0-3, for 1 of each 4 lanes"),
     ({"sparse": True, "dtype": "s8", "shape": "m16n8k64", "selector": 1}, "legal: 0, for 4 of each 4"),
     ({"shape": "m16n8k12"}, "unknown value for --shape 'm16n8k12'"),
     ({"sparse": True, "dtype": "b1"}, "no A of type b1; legal: f16"),
     ({"dtype": "s8", "acc": "f32"}, "does not accumulate in f32; legal: s32")],
)  # fmt: skip
def test_bad_options_name_the_legal_ones(params: dict[str, Any], words: str) -> None:
    """One line, with the value and what would be legal."""
    with pytest.raises(UsageError, match=words):
        PROBE.case("sm_90a", **params)


def test_what_a_person_sees(run_cli: Any) -> None:
    """A picture and a register table for each operand, the closed forms, and the sentence."""
    done = run_cli("probe", "mma", "--backend", "model", "--lane", "5")
    assert done.returncode == 0, done.stderr
    for text in (
        "A, 16 x 16",
        "B, 16 x 8",
        "C and D, 16 x 8",
        "5 r2b",
        "8 * (register // 2) + 2 * (lane % 4) + slot",
    ):
        assert text in done.stdout
    assert "registers of A, predicted: row,col, low bits first" in done.stdout
    assert "One instruction is 4096 FLOP and becomes 1 HMMA.16816.F32." in done.stdout


@pytest.mark.parametrize(
    ("params", "shape"),
    [({}, "m16n8k16"), ({"dtype": "s4"}, "m16n8k64"), ({"dtype": "tf32"}, "m16n8k8"),
     ({"dtype": "b1"}, "m16n8k256"), ({"dtype": "f64"}, "m16n8k16"), ({"dtype": "s8"}, "m16n8k16"),
     ({"sparse": True}, "m16n8k16"), ({"sparse": True, "dtype": "s8"}, "m16n8k64"),
     ({"sparse": True, "dtype": "tf32"}, "m16n8k16"), ({"sparse": True, "dtype": "e4m3"}, "m16n8k64")],
)  # fmt: skip
def test_every_type_has_a_shape_that_is_meant_where_none_is_named(params: dict[str, Any], shape: str) -> None:
    """m16n8k16 where there is one, else the largest."""
    case = PROBE.case("sm_90a", **params)
    assert case.shape == shape
    with pytest.raises(UsageError, match="mma of s4 has no shape m16n8k16"):
        PROBE.case("sm_90a", dtype="s4", shape="m16n8k16")


def test_how_to_load_the_operands() -> None:
    """A and B with either side contiguous; what cannot be is said, with the way out."""
    rows = {(row["operand"], row["memory"], row["ldmatrix"]): row for row in run().result["ldmatrix"]}
    assert rows["A", "m x k", "x4"]["a lane points at"] == "[lane % 16][8 * (lane // 16)]"
    assert rows["B", "n x k", "x2"]["a lane points at"] == "[lane % 8][8 * (lane // 8 % 2)]"
    assert rows["B", "k x n", "x2.trans"]["a lane points at"] == "[lane % 16][0]"
    assert rows["B", "k x n", "x4.trans"]["fills"] == "r0-r1, r2-r3 of n+8"
    result = run(dtype="s8").result
    assert {row["memory"] for row in result["ldmatrix"]} == {"m x k", "n x k"}
    assert "A as k x m, B as k x n: .trans moves 16 bits, 2 elements, at once" in result["notes"][0]
    assert run(dtype="f64").result["ldmatrix"] == []


def test_metadata_is_explained() -> None:
    """Two indices of two bits for each four columns, which are legal, the selector, and a word of it."""
    record = run(sparse=True, selector=2)
    notes = " ".join(record.result["notes"])
    assert "Of each 4 columns of A 2 are stored" in notes
    assert "two indices of 2 bits, the first (bits 0-1) below the second (bits 2-3)" in notes
    assert "Legal: 0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110." in notes
    assert "The selector, 0-3, names the lanes" in notes
    words = {int(lane): int(word, 16) for lane, word in record.result["metadata"].items()}
    assert list(words) == list(range(2, 32, 4))
    assert (
        f"lane 6 holds 0x{words[6]:08x}. Bits 0-3 are 0b{words[6] & 15:04b}, of row 1, columns 0-3" in notes
    )
    columns = {e["logical_col"] for e in record.result["A"] if e["row"] == 1 and e["col"] < 2}
    assert f"stored are {', '.join(map(str, sorted(columns)))}." in notes
    assert "supply metadata (selector 2)" in record.result["conclusion"]


def test_metadata_of_other_widths_is_explained() -> None:
    """tf32 stores one of two, 4-bit types pairs of neighbours; a single selector is not spoken of."""
    tf32 = " ".join(run(sparse=True, dtype="tf32").result["notes"])
    assert "tf32 is 1:2: of each 2 columns of A one is stored" in tf32
    assert "0b0100 for the first, 0b1110 for the second" in tf32
    four = " ".join(run(sparse=True, dtype="s4").result["notes"])
    assert "Of each 8 columns of A 4 are stored, 2 pairs of neighbours" in four
    assert "selector" not in four


@pytest.mark.parametrize("form", list(sparse_forms()), ids=lambda form: f"{form.ptx} {form.selector}")
def test_a_remark_names_the_bits_that_place_an_element(form: SparseForm) -> None:
    """Turning just those bits round moves that element, and the bits of others do not."""
    params = {"shape": form.shape, "dtype": form.a, "dtype_b": form.b, "acc": form.acc}
    case = PROBE.case("sm_90a" if form.acc != "f16" or form.a == "f16" else "sm_120a", sparse=True,
                      selector=form.selector, **params)  # fmt: skip
    usual = form.metadata(operands.usual_nibbles(form)).astype(np.int64)
    columns = form.logical_columns(form.nibbles_of(usual.astype(np.uint32)))
    for row, col in ((0, 0), (3, 1), (13, form.k // 2 - 1)):
        remark = PROBE.remark(case, "A", {"row": row, "col": col})
        lane, first, last = (
            int(found)
            for found in re.search(r"bits (\d+)-(\d+) of the metadata of lane (\d+)", remark).group(3, 1, 2)
        )
        mask = ((1 << (last - first + 1)) - 1) << first
        turned = usual.copy()
        turned[lane] ^= mask & (0b1010 * 0x11111111 if form.chunk == 2 else mask)
        moved = form.logical_columns(form.nibbles_of(turned.astype(np.uint32))) != columns
        assert moved[row, col]
        assert moved.sum() <= form.unit
    assert PROBE.remark(case, "B", {"row": 0, "col": 0}) == ""


def test_json_of_a_sparse_form(run_cli: Any) -> None:
    """Maps of five operands, with the column that each stored element stands for."""
    done = run_cli("probe", "mma", "--sparse", "--selector", "2", "--backend", "model", "--json")
    result = json.loads(done.stdout)["result"]
    assert result["shapes"]["A"] == {"rows": 16, "cols": 8}
    assert len(result["E"]) == 64
    assert all({"lane", "register", "slot", "row", "col"} <= entry.keys() for entry in result["E"])
    assert all("logical_col" in entry for entry in result["A"])
