"""The stmatrix probe: the answers to the questions that people ask about stmatrix."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.record import Record
from ptxlab.layout import banks

PROBE = registry.find_probe("stmatrix")


def run(arch: str = "sm_90a", **params: Any) -> Record:
    """Run one point on the model."""
    lab = runner.Lab(arch, None, None, "the model was asked for")
    return runner.run_probe(PROBE, PROBE.case(arch, **params), lab)[0]


def landed(record: Record, register: int) -> set[tuple[int, int]]:
    """The (row, col) of the tile where a register of any lane went."""
    return {(e["tile_row"], e["tile_col"]) for e in record.result["holds"] if e["register"] == register}


def test_sm_80_is_refused_in_one_line(run_cli: Any) -> None:
    """It has ldmatrix and no stmatrix: the message names the minimum, and no compiler is asked."""
    done = run_cli("probe", "stmatrix", "--arch", "sm_80")
    assert done.returncode == 2
    assert "sm_80 has no stmatrix (though it has ldmatrix), the minimum is sm_90" in done.stderr
    assert "ptxas" not in done.stderr
    assert list(PROBE.variants("sm_80")) == []


@pytest.mark.parametrize(
    ("arch", "params", "opcode"),
    [("sm_90", {}, "STSM.16.M88.4"), ("sm_90a", {"num": "x1"}, "STSM.16.M88"),
     ("sm_90a", {"trans": True}, "STSM.16.MT88.4"), ("sm_100a", {"num": "x2"}, "STSM.16.M88.2"),
     ("sm_120a", {"shape": "m16n8", "dtype": "b8", "trans": True}, "STSM.8.MT168.4")],
)  # fmt: skip
def test_one_instruction_of_sass(arch: str, params: dict[str, Any], opcode: str) -> None:
    """Each form is one STSM."""
    record = run(arch, **params)
    assert record.result["sass"]["counts"][opcode] == 1
    assert record.exit_code == 0


def test_the_8_bit_form_has_not_run_on_this_chip() -> None:
    """Compiled and predicted for sm_100a; the record says that no device ran it."""
    record = run("sm_100a", shape="m16n8", dtype="b8", trans=True, num="x1")
    assert "device" in [skip["case"] for skip in record.skipped]
    place = record.result["holds"][2]  # lane 0, third byte: row 8, column 0 of the accumulator
    assert (place["tile_row"], place["tile_col"], place["byte"]) == (0, 8, 8)


@pytest.mark.parametrize(("num", "used"), [("x1", 8), ("x2", 16), ("x4", 32)])
def test_lanes_that_supply_addresses(num: str, used: int) -> None:
    """Lanes below 8 times the matrices place one row each, those above none, wherever they point."""
    for poison in (True, False):
        record = run(num=num, poison_unused_lanes=poison)
        check = next(check for check in record.checks if check["name"] == "lane addresses")
        assert check["ok"]
        assert f"lanes 0-{used - 1} supplies the place of exactly one row" in check["detail"]
        assert len(record.result["addresses"]) == used


def test_a_lane_that_writes_another_row_is_noticed() -> None:
    """Silicon in which lane 3 places row 4 would fail the check, and so would an unused lane that writes."""
    case = PROBE.case("sm_90a", num="x1")
    for lane in (3, 20):
        outputs = {"image": PROBE.expected(case)["image"].copy()}
        outputs["image"][0, 1 + lane, -16:] = 5
        record = Record()
        PROBE.examine(case, outputs, record)
        assert record.exit_code == 1
        assert f"lanes {lane} did not move just their own rows" in record.checks[0]["detail"]


def test_sub_matrices_go_down_the_rows_first() -> None:
    """A 16x8 tile by x2: register 0 lands in rows 0-7, register 1 in rows 8-15."""
    record = run(num="x2", tile="16x8")
    assert {row for row, _ in landed(record, 0)} == set(range(8))
    assert {row for row, _ in landed(record, 1)} == set(range(8, 16))


def test_a_wrong_sub_matrix_origin_is_explained() -> None:
    """Both matrices at the same rows: rows 8-15 stay blank, and one register's elements are lost."""
    record = run(num="x2", tile="16x8", addr="lane % 8 * 16")
    assert "rows 8-15 not written, 0-7 written more than once" in record.result["conclusion"]
    assert record.exit_code == 1
    assert {(None, None)} in (landed(record, 0), landed(record, 1))


def test_another_order_is_not_a_mistake() -> None:
    """Matrices 1 and 2 exchanged: every row once, the order is named, and the run succeeds."""
    record = run(addr="lane % 8 * 32 + lane // 16 * 256 + lane // 8 % 2 * 16")
    assert record.exit_code == 0
    assert "matrix 1 goes to rows 0-7 of columns 8-15" in record.result["conclusion"]


def test_a_map_into_padding_is_explained() -> None:
    """A lane that points between two rows writes padding, and is named."""
    record = run(num="x1", pitch=32, addr="lane % 8 * 32 + (lane == 3) * 16")
    assert "lanes 3 write into padding" in record.result["conclusion"]
    assert record.exit_code == 1


@pytest.mark.parametrize("params", [{}, {"tile": "16x64", "swizzle": "128B"}, {"pitch": 272, "trans": True}])
def test_read_back_where_it_belongs(params: dict[str, Any]) -> None:
    """Measured registers carry the number that memory holds at their place: their own."""
    case = PROBE.case("sm_90a", **params)
    result = PROBE.report(case, PROBE.expected(case), measured=True)
    assert [entry["value"] for entry in result["registers"]] == list(range(256))
    assert len({place["byte"] for place in result["holds"]}) == 256


def test_a_swizzle_moves_bytes_not_meaning() -> None:
    """The elements land in the same rows and columns of the tile, at other bytes."""
    plain, swizzled = (run(tile="16x64", **params).result["holds"] for params in ({}, {"swizzle": "128B"}))
    for one, other in zip(plain, swizzled, strict=True):
        assert (one["tile_row"], one["tile_col"]) == (other["tile_row"], other["tile_col"])
    assert [each["byte"] for each in plain] != [each["byte"] for each in swizzled]


@pytest.mark.parametrize(
    ("columns", "wavefronts"),
    [(8, 4), (16, 8), (24, 4), (32, 16), (40, 4), (48, 8), (64, 32), (72, 4), (80, 8), (96, 16), (128, 32),
     (136, 4), (256, 32), (264, 4)],
)  # fmt: skip
def test_wavefronts_by_row_length(columns: int, wavefronts: int) -> None:
    """x4 on row-major 16-bit tiles: four at best, eight times that where a row is a multiple of 128 bytes."""
    tile = f"32x{columns}" if columns == 8 else f"16x{columns}"
    case = PROBE.case("sm_90a", tile=tile)
    cost = PROBE.report(case, PROBE.expected(case), measured=False)["banks"]
    assert cost == {"wavefronts": wavefronts, "ideal": 4, "conflicts": wavefronts - 4}


@pytest.mark.parametrize(
    ("swizzle", "wavefronts"),
    [("1,3,3", (4, 8, 16, 32)), ("2,3,3", (4, 4, 8, 16)), ("3,3,3", (4, 4, 4, 8)), ("3,3,4", (8, 8, 8, 4)),
     ("2,3,4", (8, 8, 8, 8))],
)  # fmt: skip
def test_wavefronts_by_swizzle(swizzle: str, wavefronts: tuple[int, ...]) -> None:
    """x4 on tiles of 16, 32, 64 and 128 columns of 16 bits, swizzles given in elements."""
    found = []
    for columns in (16, 32, 64, 128):
        case = PROBE.case("sm_90a", tile=f"16x{columns}", swizzle=swizzle)
        found.append(PROBE.report(case, PROBE.expected(case), measured=False)["banks"]["wavefronts"])
    assert tuple(found) == wavefronts


@pytest.mark.gpu
@pytest.mark.parametrize(
    "params", [{}, {"tile": "16x64"}, {"tile": "16x64", "swizzle": "128B"}, {"pitch": 80}], ids=str
)
def test_wavefronts_on_silicon(run_cli: Any, params: dict[str, Any]) -> None:
    """What Nsight Compute counts for the probe's 33 launches of STSM is what the bank model adds up."""
    case = PROBE.case("sm_90a", **params)
    kind = banks.access(f"stmatrix.{case.num}")
    costs = [banks.wavefronts(kind, addresses.tolist()) for addresses in PROBE.inputs(case)["addresses"]]
    options = [f"--option={name}={value}" for name, value in params.items()]
    done = run_cli("profile", PROBE.name, *options, "--json")
    assert done.returncode == 0, done.stderr
    counted = json.loads(done.stdout)["result"]["kernels"][0]["shared"]["stsm"]
    assert counted["wavefronts"] == sum(cost.wavefronts for cost in costs)


@pytest.mark.parametrize(
    ("params", "words"),
    [({"tile": "16x12"}, "multiples of 8 rows and 8 columns"), ({"tile": "big"}, "not of the form RxC"),
     ({"pitch": 40}, "pitch of 40 bytes; legal: multiples of 16"), ({"addr": "lane * 8"}, "the address 8"),
     ({"addr": "lane * 4096"}, "gives lane 1 the address 4096"), ({"num": "x3"}, "legal: x1, x2, x4"),
     ({"swizzle": "5"}, "neither a mode nor B,M,S"), ({"dtype": "b8"}, "m8n8 takes b16"),
     ({"num": "x1", "pitch": 32, "addr": "16"}, "writes no row of the tile")],
)  # fmt: skip
def test_bad_options_name_the_legal_ones(params: dict[str, Any], words: str) -> None:
    """One line, with the value and what would be legal."""
    with pytest.raises(UsageError, match=words):
        PROBE.case("sm_90a", **params)


@pytest.mark.parametrize(
    ("params", "swizzle", "words"),
    [({}, "32B", "--swizzle 32B or --pitch 48."),
     ({"tile": "16x64"}, "128B", "--swizzle 128B or --pitch 144."),
     ({"tile": "16x64", "swizzle": "32B"}, "128B", "--swizzle 128B")],
)  # fmt: skip
def test_conflicts_come_with_a_remedy(params: dict[str, Any], swizzle: str, words: str) -> None:
    """The smallest swizzle that fits the tile, and a longer pitch; following the advice leaves none."""
    assert f"Without conflicts: {words}" in run(**params).result["conclusion"]
    assert run(**params | {"swizzle": swizzle}).result["banks"]["conflicts"] == 0


def test_no_conflicts_no_remedy() -> None:
    """Nor where the map is the user's own."""
    assert "Without conflicts" not in run(num="x1").result["conclusion"]
    assert (
        "Without conflicts"
        not in run(addr="lane % 16 * 32 + lane // 16 * 16 + 512", tile="32x16").result["conclusion"]
    )


def test_accumulators_are_packed_first() -> None:
    """It stores 16-bit elements, which f32 accumulators are not."""
    (note,) = run().result["notes"]
    assert "two f32 accumulators go into one register first, cvt.rn.f16x2.f32" in note
