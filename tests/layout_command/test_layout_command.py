"""``ptxlab layout`` but for support: of every probe with register maps, and as a user types it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import layout, registry
from ptxlab.experiments.probe import Probe
from ptxlab.isa import mma

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
    assert set(record.result["formulas"]) <= set(asked.maps)
    assert record.result["minimum"] == record.result["legal_on"][0]
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
    """C17: one m16n8k16 is 4096 FLOP; and where the form is legal is tried, not remembered."""
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
        ("where ldmatrix registers 0", "Missing argument"),
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
    rows = list(csv.DictReader(io.StringIO(text[text.index("lane,register") :])))
    assert [{name: int(value) for name, value in row.items()} for row in rows] == own
    marked = run_here(*words, "--format", "md").stdout
    assert "| 31 | 0 | 1 | 0 | 7 | 7 |" in marked


def test_the_table_is_drawn(run_here: RunCli, tmp_path: Path) -> None:
    """Lane, register and slot of each element, on the lane's colour."""
    svg, page = tmp_path / "map.svg", tmp_path / "map.html"
    done = run_here("layout", "table", "ldmatrix", "--num", "x1", "--svg", str(svg), "--html", str(page))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == ["31", "0", "1", "0", "7", "7"]
    for picture in (svg.read_text(), page.read_text()):
        assert picture.count('data-n="5"') >= 2
        assert "5 r0b" in picture
    assert run_here("layout", "table", "ldmatrix", "--svg", str(tmp_path / "no" / "x.svg")).returncode == 3


def test_eight_bit_accumulators_need_a_shuffle(run_here: RunCli) -> None:
    """C15: a lane has 2 neighbours of C and needs 4 of A; sixteen-bit operands fit."""
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


def test_moves_are_those_of_the_maps() -> None:
    """Element by element: who has it in C, who needs it in A."""
    c, a = mma.c_map(16, 32), mma.a_map(16, 32, 8)
    moves, permutable = layout.lane_moves(c, a, k="col")
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
