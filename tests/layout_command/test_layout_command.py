"""``ptxlab layout`` but for support: of every probe with register maps, and as a user types it."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import compare, layout, registry
from ptxlab.experiments.probe import Probe
from ptxlab.isa import mma
from ptxlab.isa.movmatrix import movmatrix

RunCli = Callable[..., CompletedProcess[str]]
PLACE = ("lane", "register", "slot")
PROBES = [probe.name for probe in registry.usable_probes() if isinstance(probe, Probe)]


def ask(name: str, **own: Any) -> layout.Asked:
    """Return a point of a probe, on an architecture that it has; skip one without register maps."""
    probe = registry.find_probe(name)
    arch = next(each for each in ("sm_90a", "sm_100a") if any(probe.variants(each)))
    try:
        return layout.ask(probe, own, arch)
    except UsageError as error:
        assert error.message == f"{name} reports no register map"  # noqa: PT017 - anything else is a failure
        pytest.skip(error.message)


def result(done: CompletedProcess[str]) -> dict[str, Any]:
    """Return the result of the JSON document on stdout."""
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["result"]
    return found


@pytest.mark.parametrize("name", PROBES)
def test_where_and_what_are_each_other_s_inverse(name: str) -> None:
    """For elements all over every operand, of every probe that reports a map."""
    asked = ask(name)
    for operand, entries in asked.maps.items():
        for entry in entries[:: max(1, len(entries) // 40)]:
            places = layout.where_record(asked, operand, entry["row"], entry["col"]).result["places"]
            assert entry in places
            held = layout.what_record(asked, operand, *(entry[key] for key in PLACE)).result["holds"]
            assert entry in held
            whole = layout.what_record(asked, operand, entry["lane"], entry["register"], None).result["holds"]
            assert all(each in whole for each in held)


@pytest.mark.parametrize("name", PROBES)
def test_the_framed_cell_is_the_element(name: str) -> None:
    """It names a lane and a register that hold it; what a register holds is all that has its colour."""
    asked = ask(name)
    for operand, entries in asked.maps.items():
        for entry in entries[:: max(1, len(entries) // 10)]:
            found = layout.where_record(asked, operand, entry["row"], entry["col"]).result
            row, col = found["pictures"][entry.get("matrix", 0)]["marked"]
            cell = found["pictures"][entry.get("matrix", 0)]["cells"][row][col]
            named = (f"{each['lane']} r{each['register']}.{each['slot']}" for each in found["places"])
            assert any(cell.endswith(text) for text in named)
            held = layout.what_record(asked, operand, *(entry[key] for key in PLACE[:2]), None).result
            (drawn,) = held["pictures"]
            lit = {colour for line in drawn["colours"] for colour in line} - {None}
            assert lit == {entry["lane"]}


@pytest.mark.parametrize("name", PROBES)
def test_detail_counts_what_the_table_lists(name: str) -> None:
    """Registers times elements times lanes is no fewer than there are; every formula has its operand."""
    asked = ask(name)
    record = layout.detail_record(asked)
    table = layout.table_record(asked, None).result
    assert (
        [each["operand"] for each in record.result["operands"]] == list(table["shapes"]) == list(asked.maps)
    )
    for each in record.result["operands"]:
        entries = table[each["operand"]]
        room = 32 * each["warps"] * each["registers"] * each["elements_per_register"]
        assert 0 < len(entries) <= room
        assert len(entries) >= each["rows"] * each["cols"] * each["matrices"] or each["operand"] in ("A", "E")
    assert set(record.result["formulas"]) <= set(asked.maps) | set(asked.in_memory)
    assert record.result["minimum"] in record.result["legal_on"]
    assert record.result["sass"]
    assert [check for check in record.checks if not check["ok"]] == []


def test_an_element_that_is_held_in_several_places_is_named_in_all(run_here: RunCli) -> None:
    """Each of four matrices has its row 3, column 5; .trans swaps the two."""
    plain = result(run_here("layout", "where", "ldmatrix", "registers", "3", "5", "--json"))
    assert [(each["matrix"], each["lane"], each["register"], each["slot"]) for each in plain["places"]] == [
        (matrix, 14, matrix, 1) for matrix in range(4)
    ]
    moved = result(run_here("layout", "where", "ldmatrix", "--trans", "registers", "3", "5", "--json"))
    assert {(each["lane"], each["slot"]) for each in moved["places"]} == {(21, 1)}
    assert "matrix 3, lane 21, register 3, slot 1" in moved["conclusion"]


def test_the_probe_s_own_options_are_typed_and_checked(run_here: RunCli) -> None:
    """They mean what they mean for the probe; a form that is none is refused in its words."""
    found = result(run_here("layout", "what", "ldmatrix", "--num", "x2", "registers", "5", "1", "--json"))
    assert [(each["row"], each["col"]) for each in found["holds"]] == [(1, 2), (1, 3)]
    for wrong, said in (("--num x3", "legal: x1, x2, x4"), ("--shape m16n16", "needs one of sm_100a")):
        done = run_here("layout", "where", "ldmatrix", *wrong.split(), "registers", "0", "0")
        assert done.returncode == 2
        assert said in done.stderr


def test_an_operand_of_mma(run_here: RunCli) -> None:
    """A[3, 5] of m16n8k16: group 3 has row 3, its third lane columns 4 and 5 in one register."""
    point = ("mma", "--shape", "m16n8k16", "--dtype", "f16")
    (place,) = result(run_here("layout", "where", *point, "A", "3", "5", "--json"))["places"]
    assert place == {"lane": 14, "register": 0, "slot": 1, "row": 3, "col": 5}
    (held,) = result(run_here("layout", "what", *point, "A", "14", "0", "1", "--json"))["holds"]
    assert held == place


def test_detail_of_an_mma(run_here: RunCli) -> None:
    """One m16n8k16 is 4096 FLOP; and where the form is legal is tried, not remembered."""
    double = ("layout", "detail", "mma", "--shape", "m16n8k16", "--dtype")
    half = result(run_here(*double, "f16", "--json"))
    assert (half["flop"], half["minimum"], half["later"]) == (4096, "sm_80", True)
    assert half["sass"] == {"HMMA.16816.F32": 1}
    registers = {each["operand"]: each["registers"] for each in half["operands"]}
    assert registers == {"A": 4, "B": 2, "C": 4, "D": 4}
    assert result(run_here(*double, "f64", "--json"))["minimum"] == "sm_90"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("where ldmatrix registers 8 0", "row 8 is outside registers of ldmatrix.sync"),
        ("where ldmatrix registers 0 8", "column 8 is outside registers of ldmatrix.sync"),
        ("where ldmatrix registers 8 0", "legal: 0 to 7"),
        ("what ldmatrix registers 32 0", "lane 32 is outside registers"),
        ("what ldmatrix registers 0 4", "register 4 is outside registers"),
        ("what ldmatrix registers 0 0 2", "slot 2 is outside registers"),
        ("what ldmatrix --num x2 registers 0 2", "legal: 0 to 1"),
        (
            "where ldmatrix A 0 0",
            "unknown operand of ldmatrix.sync.aligned.m8n8.x4.shared.b16 'A'; legal: reg",
        ),
        ("table ldmatrix register", "unknown operand"),
        ("where ldmatrix registers 0", "needs col"),
        ("where ldmatrix registers -1 0", "row -1 is outside registers of ldmatrix.sync"),
        ("where mma A 0 -16", "column -16 is outside A of mma.sync"),
        ("what mma A 32 0", "lane 32 is outside A of mma"),
        ("what mma A 0 0 -1", "slot -1 is outside A of mma"),
        ("what wgmma A 0 0", "hint: it is in shared memory: layout where tells its bytes"),
        ("where ldmatrix --trans B 3 5", "hint: ptxlab probe mma tells which ldmatrix loads its A and B"),
        (
            "compare --c m64n12k16:f32 --a m64n64k16:bf16",
            "wgmma of f16 has no shape m64n12k16; legal: m64nNk16",
        ),
        ("compare --c m64n64k9:f32 --a m64n64k16:bf16", "legal: m64nNk8, m64nNk16, m64nNk32"),
        (
            "compare --c m64n64k16:s32 --a m64n64k16:f16",
            "unknown type of D of m64n64k16 's32'; legal: f32, f16",
        ),
        (
            "compare --c m64n64k16:f32 --a m64n64k16:s8",
            "unknown type of A of m64n64k16 's8'; legal: f16, bf16",
        ),
        ("compare --c m64n64k16:f32 --b m64n64k16:f16", "B of wgmma is always in shared memory"),
        ("where ldmatrix registers x 0", "x"),
        ("where ldmatrx registers 0 0", "did you mean ldmatrix?"),
        ("where", "ptxlab layout where needs a command: "),
        ("compare --c m16n8k32:s32", "compare needs one of --a and --b"),
        ("compare --c m16n8k32:s32 --a m16n8k32:s8 --b m16n8k32:s8", "compare needs one of --a and --b"),
        ("compare --c m16n8k32 --a m16n8k32:s8", "unknown type of C of m16n8k32 ''; legal: s32"),
        ("compare --c m16n8k32:s32 --a m16n8k32:f64", "unknown type of A of m16n8k32 'f64'; legal: s8, u8"),
        ("compare --c m16n8k7:s32 --a m16n8k32:s8", "unknown shape 'm16n8k7'; legal: m8n8k4"),
    ],
)
def test_wrong_usage_is_answered_with_what_is_legal(run_here: RunCli, words: str, said: str) -> None:
    """Exit 2, one line, no traceback."""
    done = run_here("layout", *words.split())
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_probe_without_register_maps_says_so(
    run_here: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's own, that reports something else."""
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "probe.py").write_text(
        "from ptxlab.experiments.probe import Probe\n"
        "class Plain(Probe):\n"
        "    def expected(self, case): return {}\n"
        "    def report(self, case, outputs, *, measured): return {'sums': [{'lane': 0, 'sum': 1}]}\n"
    )
    monkeypatch.setenv("PTXLAB_PROBES", str(tmp_path))
    done = run_here("layout", "where", "plain", "A", "0", "0")
    assert done.returncode == 2
    assert done.stderr.startswith("ptxlab: plain reports no register map\nhint: ptxlab probe plain ")


def test_the_table_is_the_probe_s_own_list_in_every_form(run_here: RunCli) -> None:
    """JSON, CSV and Markdown hold the same elements."""
    words = ("layout", "table", "ldmatrix", "--num", "x1", "registers")
    own = result(run_here("probe", "ldmatrix", "--num", "x1", "--backend", "model", "--json"))["registers"]
    assert result(run_here(*words, "--json"))["registers"] == own
    text = run_here(*words, "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(text[text.index("operand,lane,register") :])))
    assert {row.pop("operand") for row in rows} == {"registers"}
    assert [{name: int(value) for name, value in row.items()} for row in rows] == own
    marked = run_here(*words, "--format", "md").stdout
    assert "| registers | 31 | 0 | 1 | 0 | 7 | 7 |" in marked


def test_csv_is_one_flat_list_of_all_operands(run_here: RunCli) -> None:
    """One header; what an operand has not is empty."""
    text = run_here("layout", "table", "mma", "--sparse", "--format", "csv").stdout
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    assert set(rows[0]) == {"operand", "lane", "register", "slot", "row", "col", "logical_col"}
    assert [row["operand"] for row in rows] == [
        *["A"] * 128, *["B"] * 128, *["C"] * 128, *["D"] * 128, *["E"] * 64,
    ]  # fmt: skip
    assert {row["logical_col"] == "" for row in rows if row["operand"] == "B"} == {True}


def test_one_lane_of_a_table(run_here: RunCli) -> None:
    """Just its entries, in every form."""
    words = ("layout", "table", "wgmma", "--lane", "5")
    assert {entry["lane"] for entry in result(run_here(*words, "--json"))["D"]} == {5}
    rows = [line.split(",") for line in run_here(*words, "--format", "csv").stdout.splitlines()]
    assert {row[2] for row in rows if row[0] == "D"} == {"5"}
    assert "D, 64 x 64" not in run_here(*words).stdout


def test_the_table_is_drawn(run_here: RunCli, tmp_path: Path) -> None:
    """Lane, register and slot of each element, on the lane's colour."""
    svg, page = tmp_path / "map.svg", tmp_path / "map.html"
    done = run_here("layout", "table", "ldmatrix", "--num", "x1", "--svg", str(svg), "--html", str(page))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == ["31", "0:", "7,6", "7,7"]
    assert "registers, predicted: row,col, low bits first" in done.stdout
    for picture in (svg.read_text(), page.read_text()):
        assert picture.count('data-n="5"') >= 2
        assert "5 r0b" in picture
    assert run_here("layout", "table", "ldmatrix", "--svg", str(tmp_path / "no" / "x.svg")).returncode == 3


def test_hovering_lights_the_lane_of_one_warp(run_here: RunCli, tmp_path: Path) -> None:
    """Of the 64 x 64 results of wgmma, lane 4 of warp 0 holds 32; its row of the table is lit, too."""
    page = tmp_path / "map.html"
    done = run_here("layout", "table", "wgmma", "--shape", "m64n64k16", "--html", str(page))
    assert done.returncode == 0, done.stderr
    keys = re.findall(r'data-key="([^"]*)"', page.read_text(encoding="utf-8"))
    assert len(set(keys)) == 4 * 32
    assert keys.count("warp 0 lane 4") == 32 + 1


@pytest.mark.parametrize(
    "words",
    ["where mma A 3 5", "where wgmma B 1 2", "what ldmatrix --trans registers 5 0", "detail mma --dtype s8"],
)
def test_every_answer_can_be_drawn(run_here: RunCli, tmp_path: Path, words: str) -> None:
    """As a picture, and as a page that loads nothing; the element that was asked for is framed."""
    picture, page = tmp_path / "map.svg", tmp_path / "map.html"
    done = run_here("layout", *words.split(), "--svg", str(picture), "--html", str(page))
    assert done.returncode == 0, done.stderr
    for text in (picture.read_text(encoding="utf-8"), page.read_text(encoding="utf-8")):
        assert "data-n=" in text
        assert ('class="frame"' in text) == words.startswith("where")
    assert "http" not in page.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


def test_eight_bit_accumulators_need_a_shuffle(run_here: RunCli) -> None:
    """A lane has 2 neighbours of C and needs 4 of A; sixteen-bit operands fit."""
    words = ("layout", "compare", "--c", "m16n8k32:s32", "--a", "m16n8k32:s8", "--json")
    found = result(run_here(*words))
    assert found["register_local"] is False
    assert found["conclusion"].startswith("not register-local, needs shuffle: 384 of 512 elements")
    assert "lanes 0, 1, 2, 3 exchange among themselves" in found["conclusion"]
    assert {(move["from_lane"] // 4, move["to_lane"] // 4) for move in found["moves"]} == {
        (group, group) for group in range(8)
    }
    assert found["lanes"][1] == {"lane": 1, "keeps": 0, "takes_from": [2, 3], "takes": 16}
    assert sum(lane["takes"] for lane in found["lanes"]) == 384
    for acc in ("f16", "f32"):
        half = result(
            run_here("layout", "compare", "--c", f"m16n8k16:{acc}", "--a", "m16n8k16:f16", "--json")
        )
        assert half["register_local"] is True
        assert half["conclusion"].startswith("register-local: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [("--c m8n8k4:f32 --a m16n8k16:f16", "m8n8k4:f32 and m16n8k16:f16 are not to be compared"),
     ("--c m16n8k16:f32 --b m8n8k4:f16", "legal: both of m8n8k4 of f16, or neither")],
)  # fmt: skip
def test_four_products_are_not_compared_with_one(run_here: RunCli, words: str, said: str) -> None:
    """Volta's form is four products in one warp: one of them is not the whole of it."""
    done = run_here("layout", "compare", *words.split())
    assert done.returncode == 2
    assert said in done.stderr


def test_volta_is_compared_with_itself(run_here: RunCli) -> None:
    """Each of the four products is compared with its own, and the architecture is told."""
    done = run_here("layout", "compare", "--c", "m8n8k4:f16", "--a", "m8n8k4:f16", "--json")
    assert json.loads(done.stdout)["arch"] == "sm_90a"
    assert {move["from_lane"] % 16 // 4 for move in result(done)["moves"]} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("words", "option"),
    [("where mma --perm-a 0,2,1,3 A 0 0", "--perm-a"), ("what mma --fill ones A 0 0", "--fill"),
     ("where ldmatrix --addr lane%16*32+lane//16*16 registers 0 0", "--addr"),
     ("table ldmatrix --pitch 48", "--pitch"), ("detail stmatrix --swizzle 128B", "--swizzle"),
     ("where wgmma --decode-desc 0x4000004000010040 D 0 0", "--decode-desc"),
     ("where wgmma --lbo 0 --sbo 512 D 0 0", "--lbo, --sbo"), ("detail wgmma --k-advance", "--k-advance")],
)  # fmt: skip
def test_options_that_change_no_map_are_refused(run_here: RunCli, words: str, option: str) -> None:
    """The answer would be as if they had not been given; --help does not show them."""
    action, probe, *rest = words.split()
    done = run_here("layout", action, probe, *rest)
    assert done.returncode == 2
    assert f"{option}: this changes nothing of who holds what" in done.stderr
    assert f"ptxlab probe {probe} takes it" in done.stderr
    shown = run_here("layout", action, probe, "--help").stdout
    assert option.partition(",")[0] not in shown
    assert "--shape" in shown


def test_the_minimum_is_called_as_everywhere_else(run_here: RunCli) -> None:
    """sm_100a, as the refusals of other chips have it."""
    form = "--shape m16n16 --trans --dtype b8 --arch sm_120a --json"
    assert result(run_here("layout", "detail", "ldmatrix", *form.split()))["minimum"] == "sm_100a"


def test_one_instruction_is_counted_once(run_here: RunCli) -> None:
    """FLOP are those of one wgmma, though five of them follow along K, in each of two warpgroups."""
    done = run_here("layout", "detail", "wgmma", "--k-step", "5", "--warpgroups", "2", "--json")
    found = result(done)
    assert found["flop"] == 2 * 64 * 64 * 16
    assert {each["operand"]: each["warps"] for each in found["operands"]}["D"] == 8


def test_moves_are_those_of_the_maps() -> None:
    """Element by element: who has it in C, who needs it in A."""
    c, a = mma.c_map(16, 32), mma.a_map(16, 32, 8)
    moves, permutable = compare.lane_moves(c, a, k="col")
    holders = {(e["row"], e["col"]): e["lane"] for e in c.entries()}
    wanted = {(e["row"], e["col"]): e["lane"] for e in a.entries()}
    assert len(moves) == len(wanted) == 16 * 32
    for move in moves:
        assert move["from_lane"] == holders[move["row"], move["col"] % 8]
        assert move["to_lane"] == wanted[move["row"], move["col"]]
    assert permutable


def test_the_order_of_k_that_spares_the_shuffle_exists() -> None:
    """The claim is proven by building it: each lane's columns of C become its columns of A."""
    c, a = mma.c_map(16, 32), mma.a_map(16, 32, 8)
    of_lane = {lane: sorted({e["col"] for e in a.entries() if e["lane"] == lane}) for lane in range(4)}
    order: dict[int, int] = {}
    for lane, columns in of_lane.items():
        held = sorted({e["col"] + 8 * tile for tile in range(4) for e in c.entries() if e["lane"] == lane})
        order |= dict(zip(columns, held, strict=True))
    assert sorted(order.values()) == list(range(32))
    holders = {(e["row"], e["col"]): e["lane"] for e in c.entries()}
    assert all(holders[e["row"], order[e["col"]] % 8] == e["lane"] for e in a.entries())


def test_a_result_as_b_moves_in_any_order(run_here: RunCli) -> None:
    """C's rows are spread over the groups of lanes, B's over the lanes of a group: no order of k helps."""
    found = result(run_here("layout", "compare", "--c", "m16n8k16:f32", "--b", "m16n8k16:f16", "--json"))
    assert (found["operand"], found["register_local"]) == ("B", False)
    assert found["register_local_with_k_permuted"] is False
    assert "Without a shuffle" not in found["conclusion"]


def test_answers_are_sentences_that_name_things(run_here: RunCli) -> None:
    """Elements by operand, or by row and matrix; matrices and warps where there are several."""
    for words, said in (
        (
            "what ldmatrix registers 5 0",
            "Register 0 of lane 5 holds row 1, col 2 of matrix 0 in slot 0; row 1",
        ),
        (
            "where ldmatrix registers 3 5",
            "Row 3, col 5 is in matrix 0, lane 14, register 0, slot 1; matrix 1",
        ),
        ("what mma --shape m8n8k4 A 5 0", "A[1, 0] of matrix 1 in slot 0; A[1, 1] of matrix 1 in slot 1."),
        ("where wgmma D 60 2", "D[60, 2] is in warp 3, lane 17, register 2, slot 0."),
        ("what mma A 14 0 1", "Register 0 of lane 14 holds A[3, 5]."),
    ):
        lines = run_here("layout", *words.split()).stdout.splitlines()
        assert lines[1].startswith(said) or lines[1].endswith(said), words  # the answer, before its table
        assert "of registers" not in lines[1]


def test_operands_may_be_typed_in_small_letters(run_here: RunCli) -> None:
    """As anyone would type them."""
    for command in ("where mma {} 3 5", "what mma {} 3 1", "table mma {}"):
        small, large = (
            result(run_here("layout", *command.format(name).split(), "--json")) for name in ("a", "A")
        )
        assert small == large


def test_a_stored_element_of_a_sparse_a_has_several_columns(run_here: RunCli) -> None:
    """Which one is up to the metadata: the sentence says where, and does not say one."""
    done = run_here("layout", "where", "mma", "--sparse", "A", "3", "5")
    conclusion = done.stdout.splitlines()[1]
    assert conclusion.startswith("A[3, 5] is in lane 14, register 0, slot 1.")
    assert "stands for logical col 8-11 of the full A" in conclusion
    assert "say index bits 10-11 of the metadata of lane 12 (E[3, 2] is its bits 8-11)" in conclusion
    assert "logical col 10" not in done.stdout
    tf32 = run_here("layout", "where", "mma", "--sparse", "--dtype", "tf32", "A", "3", "5").stdout
    assert "logical col 10-11 of the full A: which one, say bits 4-7 of the metadata of lane 13" in tf32


@pytest.mark.parametrize(
    ("options", "operand", "row", "col", "byte"),
    [("", "A", 1, 2, 128 + 16 + 4), ("", "B", 1, 2, 2 * 128 + 32 + 2),
     ("--swizzle none", "A", 9, 8, 1024 + 144), ("--major MN --swizzle 64B", "A", 0, 2, 128 + 16)],
)  # fmt: skip
def test_operands_in_shared_memory_have_bytes(
    run_here: RunCli, options: str, operand: str, row: int, col: int, byte: int
) -> None:
    """Of wgmma; JSON has the byte, too."""
    words = ("layout", "where", "wgmma", *options.split(), operand, str(row), str(col))
    found = result(run_here(*words, "--json"))
    assert found["places"] == [{"row": row, "col": col, "byte": byte}]
    said = f"{operand}[{row}, {col}] is shared byte {byte}, counted from the first of {operand}, "
    assert said in run_here(*words).stdout
    assert f"shared byte {byte}, counted from" in found["conclusion"]


def test_detail_says_what_is_emulated(run_here: RunCli) -> None:
    """4-bit integers on Hopper, right under the title; and without a shape the type's own is taken."""
    lines = run_here("layout", "detail", "mma", "--dtype", "s4").stdout.splitlines()
    assert lines[0].startswith("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
    assert lines[1].startswith("Emulated on sm_90a: 2 IMMA.16832.S8.S8 and conversions around them")
    assert result(run_here("layout", "detail", "mma", "--json"))["emulated"] == ""


def test_only_what_has_maps_is_offered(run_here: RunCli) -> None:
    """Help and the legal set leave out a probe that would refuse."""
    for command in ("where", "what", "table", "detail"):
        listed = run_here("layout", command, "--help").stdout
        assert "mma " in listed
        assert "mma-arithmetic" not in listed
    assert "mma-arithmetic" in run_here("probe", "--help").stdout


def test_accumulators_as_a_of_the_next_product(run_here: RunCli) -> None:
    """Two tiles of eight columns make one A of sixteen: which registers are packed into which."""
    found = result(run_here("layout", "compare", "--c", "m16n8k16:f32", "--a", "m16n8k16:f16", "--json"))
    assert found["k_order"] == list(range(16))
    assert len(found["recipe"]) == 8
    assert found["recipe"][5] == {
        "tile": 0, "register": 2, "slot": 1, "from_tile": 1, "from_register": 1, "from_slot": 0,
    }  # fmt: skip
    text = run_here("layout", "compare", "--c", "m16n8k16:f32", "--a", "m16n8k16:f16").stdout
    assert text.startswith("register-local: ")
    assert "2 results C side by side make 1 A" in text
    assert re.search(r"A0 r2 +pack\(C1 r0, C1 r1\)", text)
    assert re.search(r"^ all +8 +0 ", text, re.MULTILINE)


def test_accumulators_of_wgmma_as_a_in_registers(run_here: RunCli) -> None:
    """64 columns of D are four A of bf16; each warp has its own rows, so one speaks for all."""
    words = ("layout", "compare", "--c", "m64n64k16:f32", "--a", "m64n64k16:bf16")
    found = result(run_here(*words, "--json"))
    assert found["register_local"]
    packed = {
        (each["tile"], each["register"], each["slot"]): each["from_register"] for each in found["recipe"]
    }
    assert packed == {(t, r, s): 8 * t + 2 * r + s for t in range(4) for r in range(4) for s in range(2)}
    assert "1 result C makes 4 A (the first 2 shown)" in run_here(*words).stdout
    bytes_ = result(run_here("layout", "compare", "--c", "m64n64k32:f32", "--a", "m64n64k32:e4m3", "--json"))
    assert (bytes_["register_local"], bytes_["k_order"][:8]) == (False, [0, 1, 8, 9, 2, 3, 10, 11])


def test_accumulators_as_b_are_turned_by_movmatrix(run_here: RunCli) -> None:
    """The recipe in the sentence, carried out with the models."""
    found = result(run_here("layout", "compare", "--c", "m16n8k16:f32", "--b", "m16n8k16:f16", "--json"))
    assert "registers 2i and 2i+1 of C (rows 8i to 8i+7) become register i of B" in found["conclusion"]
    names = np.arange(16 * 8, dtype=np.uint64).reshape(16, 8)
    c, b = mma.c_map(16, 32), mma.b_map(16, 16)
    held = c.pack(names[c.place["row"], c.place["col"]], 4)
    for i in range(2):
        packed = (held[:, [2 * i]] | held[:, [2 * i + 1]] << 16).astype(np.uint32)
        meant = b.pack(names[b.place["row"], b.place["col"]], 2)
        np.testing.assert_array_equal(movmatrix(packed), meant[:, [i]])


def test_help_of_compare_lists_every_shape_and_type(run_here: RunCli) -> None:
    """Nobody has to try."""
    text = run_here("layout", "compare", "--help").stdout
    for form in mma.dense_forms():
        assert all(name in text for name in (form.shape, form.a, form.b, form.acc))
