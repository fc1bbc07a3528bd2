"""The wmma probe: what people ask about fragments, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.base import Case
from ptxlab.experiments.record import Record

PROBE = registry.find_probe("wmma")


def run(arch: str = "sm_90a", **params: Any) -> Record:
    """Run one point on the model."""
    lab = runner.Lab(arch, None, None, "the model was asked for")
    return runner.run_probe(PROBE, PROBE.case(arch, **params), lab)[0]


def swapped(case: Case, operand: str) -> dict[str, Any]:
    """The outputs of a card that exchanges two registers of an operand."""
    outputs = {name: array.copy() for name, array in PROBE.expected(case).items()}
    outputs[operand][..., [0, 1]] = outputs[operand][..., [1, 0]]
    return outputs


@pytest.mark.parametrize(("arch", "op"), [("sm_75", "xor"), ("sm_80", "and"), ("sm_90a", "and")])
def test_the_usual_operation_of_b1_is_one_that_the_chip_has(arch: str, op: str) -> None:
    """Left out: and, on sm_75 xor; and whichever was meant, its recording is found."""
    record = run(arch, dtype="b1")
    assert f".{op}.popc" in record.result["ptx"]
    assert record.exit_code == 0
    assert bool(record.result["recordings"]) == (arch == "sm_90a")


def test_f16_holds_every_element_of_a_and_b_twice() -> None:
    """16 elements a lane and 256 in the matrix: two lanes' worth, in registers 0-3 and again in 4-7."""
    result = run().result
    assert {each["operand"]: each["copies"] for each in result["fragments"]} == {
        "A": 2,
        "B": 2,
        "C": 1,
        "D": 1,
    }
    held = {(e["lane"], e["register"], e["slot"]): (e["row"], e["col"]) for e in result["A"]}
    assert all(held[lane, r, slot] == held[lane, r + 4, slot] for lane, r, slot in held if r < 4)
    assert "each of A stands in 2 places" in result["conclusion"]


def test_bf16_holds_them_once() -> None:
    """The same shape, half the registers."""
    assert {each["copies"] for each in run(dtype="bf16").result["fragments"]} == {1}


def test_layouts_in_memory_make_no_difference() -> None:
    """Loaded by rows or by columns, from shared or from global memory: the same lanes hold the same."""
    plain = run().result
    for params in ({"layout": "col.row", "acc_layout": "col"}, {"memory": "global"}):
        other = run(**params).result
        assert all(other[operand] == plain[operand] for operand in "ABCD")


@pytest.mark.parametrize(
    ("arch", "params", "opcode", "count"),
    [("sm_75", {}, "HMMA.1688.F32", 4), ("sm_80", {}, "HMMA.16816.F32", 2),
     ("sm_90a", {}, "HMMA.16816.F32", 2), ("sm_75", {"dtype": "s8"}, "IMMA.8816.S8.S8", 4),
     ("sm_90a", {"dtype": "s8"}, "IMMA.16816.S8.S8", 2), ("sm_80", {"dtype": "s4"}, "IMMA.8832.S4.S4", 1),
     ("sm_90a", {"dtype": "s4"}, "IMMA.8816.S8.S8", 2)],
)  # fmt: skip
def test_what_mma_sync_becomes(arch: str, params: dict[str, str], opcode: str, count: int) -> None:
    """The tensor-core instructions by architecture; 4-bit integers have none on Hopper."""
    record = run(arch, **params)
    assert record.result["sass"]["counts"][opcode] == count
    assert record.exit_code == 0


@pytest.mark.parametrize("operand", ["A", "B", "C"])
@pytest.mark.parametrize("dtype", ["f16", "s8", "tf32"])
def test_a_card_that_differs_is_described(dtype: str, operand: str) -> None:
    """Registers 0 and 1 exchanged: the table names each element that lies elsewhere, and where."""
    case = PROBE.case("sm_90a", dtype=dtype)
    result = PROBE.report(case, swapped(case, operand), measured=True)
    found = {(e["operand"], e["lane"], e["register"], e["slot"]): e for e in result["elsewhere"]}
    own = {(e["lane"], e["register"], e["slot"]): e for e in result[operand]}
    assert {key[0] for key in found} == {operand}
    first, second = found[operand, 5, 0, 0], own[5, 1, 0]
    assert (first["found_row"], first["found_col"]) == (second["row"], second["col"])


def test_the_product_tells_permutations_apart() -> None:
    """No two lanes hold the same of D, so that an exchange of any shows."""
    for case in PROBE.variants("sm_90a"):
        d = PROBE.expected(case)["D"]
        assert len(np.unique(d, axis=0)) == 32, case.key


@pytest.mark.parametrize(
    ("arch", "params", "words"),
    [("sm_90a", {"dtype": "tf32", "shape": "m32n8k16"}, "has no tf32 in m32n8k16; legal: m16n16k8"),
     ("sm_90a", {"dtype": "bf16", "acc": "f16"}, "no f16 accumulator of bf16; legal: f32"),
     ("sm_90a", {"dtype": "s4", "layout": "col.row"}, "loads s4 in no layout col.row; legal: row.col"),
     ("sm_90a", {"op": "xor"}, "no xor of f16; legal: --op with --dtype b1"),
     ("sm_75", {"dtype": "bf16"}, "no bf16 on sm_75; legal: sm_80 and later"),
     ("sm_75", {"dtype": "b1", "op": "and"}, "no --op and on sm_75; legal: sm_80 and later"),
     ("sm_90a", {"dtype": "e4m3"}, "legal: .*f16")],
)  # fmt: skip
def test_illegal_forms_name_the_legal_ones(arch: str, params: dict[str, str], words: str) -> None:
    """The reason, the value, what would be legal."""
    with pytest.raises(UsageError, match=words):
        PROBE.case(arch, **params)


def test_where_x_i_is() -> None:
    """Two elements to a register of f16, one to one of f32."""
    table = {each["operand"]: each["x[i]"] for each in run().result["fragments"]}
    assert table["A"] == "register i // 2, slot i % 2"
    assert table["C"] == "register i"


def test_which_registers_are_which_operand_of_mma() -> None:
    """Two columns of m16n8k16: B's r2 and r3 are n 8 to 15; of m8n32k16 all is transposed."""
    rows = [tuple(row.values()) for row in run().result["mma"]]
    assert ("B", "r0, r1", "0-15", "0-7", "B of m16n8k16") in rows
    assert ("B", "r2, r3", "0-15", "8-15", "B of m16n8k16") in rows
    assert ("A", "r0, r1, r2, r3", "0-15", "0-15", "A of m16n8k16") in rows
    turned = [tuple(row.values()) for row in run(shape="m8n32k16").result["mma"]]
    assert ("B", "r4, r5, r6, r7", "0-15", "16-31", "A of m16n8k16, transposed") in turned


def test_the_picture_agrees_with_the_closed_form(run_here: Any) -> None:
    """The first of two copies is drawn, and the caption says that the others repeat it."""
    text = run_here("probe", "wmma", "--backend", "model").stdout
    assert "A: r4-r7 repeat r0-r3; the picture shows r0-r3." in text
    (row,) = (line.split() for line in text.splitlines() if line.split()[:3] == ["1", "4", "r0a"])
    assert row[1:5] == ["4", "r0a", "4", "r0b"]
