"""The ldmatrix probe: the answers to the questions that people ask about ldmatrix."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.record import Record
from ptxlab.layout import banks

MODEL = runner.Lab("sm_90a", None, None, "the model was asked for")
PROBE = registry.find_probe("ldmatrix")


def run(arch: str = "sm_90a", **params: Any) -> Record:
    """Run one point on the model."""
    case = PROBE.case(arch, **params)
    return runner.run_probe(PROBE, case, MODEL)[0]


def holds(record: Record, register: int) -> set[tuple[int, int]]:
    """The (row, col) of the tile that a register of any lane holds."""
    return {(e["tile_row"], e["tile_col"]) for e in record.result["holds"] if e["register"] == register}


def test_addresses_of_lanes_that_supply_none_do_not_matter() -> None:
    """Lanes 8 and up of .x1 may have any, negative ones too."""
    assert run(num="x1", addr="(7 - lane) * 16").result["addresses"] == [16 * (7 - lane) for lane in range(8)]


@pytest.mark.parametrize(("num", "used"), [("x1", 8), ("x2", 16), ("x4", 32)])
def test_lanes_that_supply_addresses(num: str, used: int) -> None:
    """Lanes below 8 times the matrices supply one row each, those above none, wherever they point."""
    for poison in (True, False):
        record = run(num=num, poison_unused_lanes=poison)
        check = next(check for check in record.checks if check["name"] == "lane addresses")
        assert check["ok"]
        assert f"lanes 0-{used - 1} supplies exactly one row of one matrix" in check["detail"]
        assert len(record.result["addresses"]) == used


def test_sub_matrices_go_down_the_rows_first() -> None:
    """A 16x8 tile by x2: register 0 holds rows 0-7, register 1 rows 8-15."""
    record = run(num="x2", tile="16x8")
    assert {row for row, _ in holds(record, 0)} == set(range(8))
    assert {row for row, _ in holds(record, 1)} == set(range(8, 16))
    assert record.exit_code == 0


def test_a_wrong_sub_matrix_origin_is_explained() -> None:
    """The divisor taken from the column extent: rows 8-15 never come, rows 0-7 come twice."""
    record = run(num="x2", tile="16x8", addr="lane % 8 * 16")
    assert "rows 8-15 missing, 0-7 duplicated" in record.result["conclusion"]
    assert record.exit_code == 1
    assert {row for row, _ in holds(record, 1)} == set(range(8))


def test_another_order_is_not_a_mistake() -> None:
    """Matrices 1 and 2 exchanged: every row once, the order is named, and the run succeeds."""
    record = run(addr="lane % 8 * 32 + lane // 16 * 256 + lane // 8 % 2 * 16")
    assert record.exit_code == 0
    assert "matrix 1 holds rows 0-7 of columns 8-15" in record.result["conclusion"]
    assert "matrix 2 holds rows 8-15 of columns 0-7" in record.result["conclusion"]


def test_a_forgotten_swizzle_is_named() -> None:
    """The tile lies swizzled and the addresses do not: the data is permuted, and the conflicts are back."""
    record = run(tile="16x64", swizzle="128B", addr="lane % 16 * 128 + lane // 16 * 16")
    assert record.exit_code == 1
    assert "without swizzle" in record.result["conclusion"]
    assert "Wavefronts: 32, ideal 4" in record.result["conclusion"]
    right = "lane % 16 * 128 + (lane // 16 ^ lane % 8) * 16"
    assert run(tile="16x64", swizzle="128B", addr=right).exit_code == 0


def test_the_example_of_the_help_is_right() -> None:
    """The expression in --help is the default map of an x4."""
    text = PROBE.options()["addr"].help
    record = run(addr=text.split("'")[1])
    assert record.exit_code == 0
    assert record.result["addresses"] == run().result["addresses"]


def test_a_map_into_padding_is_explained() -> None:
    """A lane that points between two rows reads padding, and is named."""
    record = run(num="x1", pitch=32, addr="lane % 8 * 32 + (lane == 3) * 16")
    assert "lanes 3 read padding" in record.result["conclusion"]
    assert record.exit_code == 1


@pytest.mark.parametrize("params", [{"shape": "m16n16", "dtype": "b8"}, {"dtype": "b8"}, {"dtype": "s8"}])
def test_no_8_bit_transpose_on_hopper(params: dict[str, str]) -> None:
    """Refused on sm_90a with the K-major way out."""
    with pytest.raises(UsageError) as caught:
        PROBE.case("sm_90a", trans=True, **params)
    assert "K-contiguous (K-major)" in caught.value.hint


def test_8_bit_transpose_on_blackwell_compiles() -> None:
    """sm_100a has it: one LDSM.8.MT1616.2, predicted and not run on this chip."""
    record = run("sm_100a", shape="m16n16", trans=True, dtype="b8")
    assert record.result["sass"]["counts"]["LDSM.8.MT1616.2"] == 1
    assert record.exit_code == 0
    first = record.result["registers"][0]
    assert (first["row"], first["col"]) == (0, 0)


@pytest.mark.parametrize("dtype", ["tf32", "f32"])
def test_no_transpose_of_32_bit_elements(dtype: str) -> None:
    """.trans would tear them apart; 32-bit loads are the way."""
    with pytest.raises(UsageError, match="tear elements of 32 bits apart") as caught:
        PROBE.case("sm_90a", trans=True, dtype=dtype)
    assert "32-bit ld.shared" in caught.value.hint


def test_tf32_without_transpose() -> None:
    """Each lane receives one 32-bit element: row lane // 4, column lane % 4 of every matrix."""
    record = run(dtype="tf32")
    for entry in record.result["registers"]:
        assert (entry["row"], entry["col"], entry["slot"]) == (
            entry["lane"] // 4,
            entry["lane"] % 4,
            0,
        )


@pytest.mark.parametrize(
    ("params", "wavefronts"),
    [({}, 8), ({"tile": "16x32"}, 16), ({"tile": "16x64"}, 32), ({"tile": "16x64", "swizzle": "128B"}, 4),
     ({"tile": "16x64", "swizzle": "3,3,3"}, 4), ({"tile": "16x64", "pitch": 144}, 4), ({"num": "x1"}, 1)],
)  # fmt: skip
def test_wavefronts(params: dict[str, Any], wavefronts: int) -> None:
    """What one instruction costs at the shared-memory port, by tile, pitch and swizzle."""
    assert run(**params).result["banks"]["wavefronts"] == wavefronts


def test_a_swizzle_moves_bytes_not_meaning() -> None:
    """The registers hold the same elements with and without a swizzle or a pitch."""
    plain = run(tile="16x64").result["holds"]
    assert run(tile="16x64", swizzle="128B").result["holds"] == plain
    assert run(tile="16x64", pitch=272).result["holds"] == plain


def test_the_sass_claim_is_checked() -> None:
    """Exactly one LDSM, of the claimed form."""
    record = run()
    assert record.result["sass"]["counts"]["LDSM.16.M88.4"] == 1
    assert sum(check["ok"] for check in record.checks if "LDSM" in check["name"]) == 2


@pytest.mark.gpu
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"tile": "16x64"},
        {"tile": "16x64", "swizzle": "128B"},
        {"pitch": 80},
        {"num": "x2", "tile": "16x32"},
    ],
    ids=str,
)
def test_wavefronts_on_silicon(run_cli: Any, params: dict[str, Any]) -> None:
    """What Nsight Compute counts for the probe's 33 launches of LDSM is what the bank model adds up."""
    case = PROBE.case("sm_90a", **params)
    kind = banks.access(f"ldmatrix.{case.num}")
    costs = [banks.wavefronts(kind, addresses.tolist()) for addresses in PROBE.inputs(case)["addresses"]]
    options = [f"--option={name}={value}" for name, value in params.items()]
    done = run_cli("profile", PROBE.name, *options, "--json")
    assert done.returncode == 0, done.stderr
    counted = json.loads(done.stdout)["result"]["kernels"][0]["shared"]["ldsm"]
    assert counted["instructions"] == len(costs)
    assert counted["wavefronts"] == sum(cost.wavefronts for cost in costs)
    assert counted["ideal"] == sum(cost.ideal for cost in costs)


@pytest.mark.parametrize(
    ("params", "words"),
    [({"tile": "16x12"}, "multiples of 8 rows and 8 columns"), ({"tile": "big"}, "not of the form RxC"),
     ({"tile": "\u00b2x8"}, "not of the form RxC"),
     ({"pitch": 40}, "pitch of 40 bytes; legal: multiples of 16"), ({"pitch": -16}, "pitch of -16"),
     ({"addr": "lane * 8"}, "gives lane 1 the address 8"),
     ({"addr": "lane * 4096"}, "gives lane 1 the address 4096"),
     ({"swizzle": "5"}, "neither a mode nor B,M,S"), ({"num": "x3"}, "legal: x1, x2, x4"),
     ({"tile": "248x1024"}, "legal: up to 131072 bytes"), ({"dtype": "e2m3"}, "do not fill 16-bit units")],
)  # fmt: skip
def test_bad_options_name_the_legal_ones(params: dict[str, Any], words: str) -> None:
    """One line, with the value and what would be legal."""
    with pytest.raises(UsageError, match=words):
        PROBE.case("sm_90a", **params)


@pytest.mark.parametrize("typed", [("--pitch", "4k"), ("--pitch=4k",)])
def test_a_value_of_the_wrong_type_is_shown(run_cli: Any, typed: tuple[str, ...]) -> None:
    """The message holds what was typed."""
    done = run_cli("probe", PROBE.name, *typed)
    assert done.returncode == 2
    assert "'4k' is no value for --pitch" in done.stderr


@pytest.mark.parametrize(
    ("arch", "num", "first"),
    [("sm_75", "x1", 8), ("sm_75", "x2", 16), ("sm_75", "x4", None), ("sm_80", "x1", None)],
)
def test_turing_wants_valid_addresses_of_all_lanes(arch: str, num: str, first: int | None) -> None:
    """Also of those that supply no row, which later chips do not look at."""
    lab = runner.Lab(arch, None, None, "the model was asked for")
    conclusion = runner.run_probe(PROBE, PROBE.case(arch, num=num), lab)[0].result["conclusion"]
    assert ("must hold valid addresses too" in conclusion) == (first is not None)
    assert first is None or f"lanes {first}-31" in conclusion
