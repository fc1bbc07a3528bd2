"""What a row of ``profile`` says, held against what ncu printed of the same report and what was launched."""

from __future__ import annotations

import copy
import csv
from pathlib import Path
from typing import Any

import pytest

from ptxlab.experiments import counters
from ptxlab.toolchain import ncu

BLOCKS, WARPS, ROUNDS = 2, 2, 8  # of data/banks.ncu-rep
ALL_WARPS = BLOCKS * WARPS


@pytest.fixture
def launch(banks_report: Path) -> dict[str, Any]:
    """Return the one launch of the report."""
    (only,) = ncu.read_report(banks_report, instances=counters.INSTANCES)
    return only


def without(launch: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the launch as a report would give it that was collected without these metrics."""
    other = copy.deepcopy(launch)
    for name in names:
        other["metrics"].pop(name, None)
        other["instances"].pop(name, None)
    return other


def test_the_reader_gives_the_values_that_ncu_prints(launch: dict[str, Any], banks_report: Path) -> None:
    """Every number of the raw page of the same report."""
    with banks_report.with_suffix(".csv").open(encoding="utf-8") as file:
        printed = {row["metric"]: float(row["value"]) for row in csv.DictReader(file)}
    assert len(printed) > 50
    found = {name: float(launch["metrics"][name]) for name in printed}
    assert found == pytest.approx(printed, rel=0, abs=0.005)  # printed with two decimals


def test_every_metric_that_is_asked_for_exists_on_hopper(launch: dict[str, Any]) -> None:
    """No name is misspelt: ncu would pass over it without a word."""
    missing = set(counters.metrics_of(list(counters.GROUPS))) - set(launch["metrics"])
    assert not missing


def test_the_launch_is_described(launch: dict[str, Any]) -> None:
    """Name, grid, block and duration."""
    row = counters.kernel_row(launch)
    assert (row["launch_id"], row["name"]) == (0, "banks")
    assert (row["grid"], row["block"]) == ([BLOCKS, 1, 1], [32 * WARPS, 1, 1])
    assert 1_000 < row["duration_ns"] < 100_000


def test_executed_counts_are_those_of_the_source(launch: dict[str, Any]) -> None:
    """A static count would say 1 LDSM and 2 HMMA."""
    counted = counters.counts(launch)
    per_round = {"ldsm": 1, "stsm": 1, "ldgsts": 1, "hmma": 2, "hgmma": 0, "imma": 0}
    assert {name: counted[name] for name in per_round} == {
        name: number * ROUNDS * ALL_WARPS for name, number in per_round.items()
    }
    assert counted["sts"] == (32 + ROUNDS) * ALL_WARPS
    assert sum(number or 0 for number in counted.values()) == counters.kernel_row(launch)["instructions"]


def test_instructions_that_the_compiler_switched_off_are_told_apart(launch: dict[str, Any]) -> None:
    """On sm_90 ptxas puts three ``@!PT LDS RZ, [RZ]`` before each cp.async: executed, in no thread."""
    assert counters.counts(launch)["lds"] == 4 * ROUNDS * ALL_WARPS
    assert (counters.switched_off_by_opcode(launch) or {})["lds"] == 3 * ROUNDS * ALL_WARPS


def test_each_class_of_shared_memory_has_its_row_and_only_the_32_way_lds_conflicts(
    launch: dict[str, Any],
) -> None:
    """Clean LDSM says nothing about LDS: the classes are counted apart."""
    rows = counters.shared(launch)
    table = {
        name: (r["instructions"], r["wavefronts"], r["ideal"], r["conflicts"]) for name, r in rows.items()
    }
    rounds = ROUNDS * ALL_WARPS
    stores = rounds + 32 * ALL_WARPS
    assert table == {
        "ld": (rounds, 32 * rounds, rounds, 31 * rounds),
        "st": (stores, stores, stores, 0),
        "ldsm": (rounds, 4 * rounds, 4 * rounds, 0),
        "stsm": (rounds, 2 * rounds, 2 * rounds, 0),
        "ldgsts": (rounds, 4 * rounds, 4 * rounds, 0),
    }


def test_the_counters_by_class_lead_to_the_same_rows(launch: dict[str, Any]) -> None:
    """Where a report has no values per instruction."""
    by_instruction = counters.shared(launch)
    by_class = counters.shared(without(launch, counters.WAVEFRONTS))
    assert {row.pop("source") for row in by_instruction.values()} == {"per instruction"}
    assert {row.pop("source") for row in by_class.values()} == {"per opcode"}
    assert by_class == by_instruction


def test_conflicts_that_no_instruction_accounts_for_are_not_bank_conflicts(launch: dict[str, Any]) -> None:
    """They are what the raw counter has above the sum of all classes."""
    classes = counters.shared(launch)
    assert counters.shared_raw(launch["metrics"], classes)["not_bank_conflicts"] == 0
    busy = launch["metrics"] | {counters.RAW_CONFLICTS: 31 * ROUNDS * ALL_WARPS + 77}
    assert counters.shared_raw(busy, classes)["not_bank_conflicts"] == 77


@pytest.mark.parametrize(
    ("wavefronts", "conflicts"), [(283_023_360, 247_645_440), (35_377_920, 0)], ids=["layout 1", "layout 2"]
)
def test_four_wavefronts_of_a_128_bit_load_are_no_conflicts(wavefronts: int, conflicts: int) -> None:
    """The numbers of a forum thread on 8,844,480 LDS.128 in two layouts: 32 and 4 wavefronts each."""
    launch = {
        "metrics": {"smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": wavefronts},
        "instances": {counters.OPCODE_THREADS: [("LDS.128", 32 * 8_844_480)]},
        "sass": {},
    }
    row = counters.shared(launch)["ld"]
    assert (row["instructions"], row["conflicts"]) == (8_844_480, conflicts)


@pytest.mark.parametrize(
    ("opcode", "ideal"),
    [
        *(("LDS", 1), ("LDS.U.64", 2), ("LDS.128", 4), ("STS.U16", 1), ("STS.128", 4)),
        *(("LDSM.16.M88", 1), ("LDSM.16.M88.2", 2), ("LDSM.16.MT88.4", 4), ("STSM.16.M88.2", 2)),
        *(("LDGSTS.E", 1), ("LDGSTS.E.64", 2), ("LDGSTS.E.BYPASS.128", 4)),
    ],
)
def test_a_wavefront_moves_128_bytes(opcode: str, ideal: int) -> None:
    """Or one 8x8 matrix."""
    assert counters.ideal_wavefronts(opcode) == ideal


def test_stalls_are_sorted_and_all_of_them_are_100_percent(launch: dict[str, Any]) -> None:
    """A warp that issues is in the state "selected" for one cycle per instruction."""
    stalls = counters.stalls(launch["metrics"])
    assert len(stalls) == len(counters.STALLS)
    assert sum(each["percent"] for each in stalls) == pytest.approx(100)
    sizes = [each["per_issue"] for each in stalls]
    assert sizes == sorted(sizes, reverse=True)
    assert stalls[0]["reason"] == "long_scoreboard"
    assert next(each for each in stalls if each["reason"] == "selected")["per_issue"] == 1


def test_what_a_report_does_not_hold_is_none_and_never_zero(launch: dict[str, Any]) -> None:
    """A report without any metric has a row without any number."""
    empty = {**launch, "metrics": {}, "instances": {}, "sass": {}}
    row = counters.kernel_row(empty)
    assert row["stalls"] == []
    assert (row["grid"], row["duration_ns"], row["switched_off"]) == (None, None, None)
    numbers = [row["tensor_pipe_percent"], row["dram_bytes"], row["l2_bytes"], row["instructions"]]
    numbers += [*row["counts"].values(), *row["tma"].values(), *row["shared_raw"].values()]
    numbers += [each["percent"] for each in row["limits"]]
    numbers += [
        each[key] for each in row["shared"].values() for key in ("instructions", "wavefronts", "ideal")
    ]
    numbers += [each["conflicts"] for each in row["shared"].values()]
    assert set(numbers) == {None}
    assert row["conclusion"] == ""


def test_without_counts_by_opcode_the_counters_stand_in(launch: dict[str, Any]) -> None:
    """Where there is one that counts nothing else."""
    counted = counters.counts(without(launch, counters.OPCODES))
    assert counted["ldsm"] == counted["stsm"] == counted["ldgsts"] == ROUNDS * ALL_WARPS
    assert counted["hmma"] is None  # its counter would hold HGMMA as well


@pytest.mark.parametrize(
    ("text", "opcode"),
    [
        ("      LDSM.16.M88.4 R4, [R25] ", "LDSM.16.M88.4"),
        ("@!PT  LDS RZ, [RZ] ", "LDS"),
        ("@P0   BRA 0x7efb037a00e0 ", "BRA"),
        ("NOP;", "NOP"),
        ("", ""),
    ],
)
def test_the_opcode_is_found_behind_a_predicate(text: str, opcode: str) -> None:
    """In the texts that the reader gives."""
    assert counters.opcode_of(text) == opcode


def test_chips_without_hoppers_metric_use_the_pipes_own(launch: dict[str, Any]) -> None:
    """And Hopper the one that leaves HFMA2.MMA out."""
    ampere = {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": 41.5}
    assert counters.tensor_percent(ampere) == 41.5
    assert 0 < (counters.tensor_percent(launch["metrics"]) or 0) < 5


@pytest.mark.parametrize(
    ("wavefronts", "conflicts", "told"),
    [
        (283_023_360, 247_645_440, "32 for each. The least is 4"),
        (35_377_920, 0, "4 for each. The least is 4, for a wavefront moves up to 128 bytes: none of them is"),
    ],
)
def test_wavefronts_of_wide_loads_are_explained(wavefronts: int, conflicts: int, told: str) -> None:
    """8844480 LDS.128 of two layouts: four wavefronts each are no conflicts, the other 28 are."""
    number = 8_844_480
    row = {
        "instructions": number,
        "wavefronts": wavefronts,
        "ideal": number * counters.ideal_wavefronts("LDS.128"),
    }
    text = counters.explain_class("LDS", row)
    assert told in text
    assert (f"The 28 above it, {conflicts} in all, are bank conflicts" in text) == (conflicts > 0)


def test_each_class_of_a_report_is_explained(launch: dict[str, Any]) -> None:
    """Those that ran, each with its own numbers; and what the raw counter has beyond them."""
    classes = counters.shared(launch)
    told = counters.explain_shared(classes, {"wavefronts": 1500, "conflicts": 1000, "not_bank_conflicts": 8})
    assert [text.partition(":")[0] for text in told[:-1]] == ["LDS", "STS", "LDSM", "STSM", "LDGSTS"]
    assert "1024 wavefronts, 32 for each. The least is 1" in told[0]
    assert "none of them is a bank conflict" in told[2]
    assert "1000 conflicts, of which 8 belong to no instruction" in told[-1]


def test_loads_that_are_served_together_are_no_conflicts() -> None:
    """Below the least of a full warp."""
    text = counters.explain_class("LDS", {"instructions": 10, "wavefronts": 20, "ideal": 40})
    assert text.endswith("The least of a full warp is 4: loads of the same words were served together.")
