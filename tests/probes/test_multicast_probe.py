"""The multicast probe: who gets what, and whose account is wrong."""

from __future__ import annotations

import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.base import Value
from ptxlab.experiments.record import Record
from ptxlab.experiments.unit import build_unit, kernel_name

PROBE = registry.find_probe("multicast")
LAB = runner.Lab("sm_90a", None, None, "the model was asked for")


def ran(**params: Value) -> Record:
    """What the model says of a point."""
    return runner.run_probe(PROBE, PROBE.case("sm_90a", **params), LAB)[0]


@pytest.mark.parametrize("form", ["bulk", "tensor"])
@pytest.mark.parametrize(
    ("size", "mask", "ranks"), [(2, "0b01", [0]), (2, "0b10", [1]), (2, "", [0, 1]), (4, "0b0101", [0, 2])]
)
def test_who_receives(form: str, size: int, mask: str, ranks: list[int]) -> None:
    """The blocks of the mask, all bytes each, whoever issues."""
    record = ran(form=form, size=size, mask=mask)
    landed = {row["block"]: row["bytes that land"] for row in record.result["blocks"]}
    assert landed == {rank: 2048 if rank in ranks else 0 for rank in range(size)}
    assert record.exit_code == 0


def test_slices_of_all_blocks_count_as_a_whole() -> None:
    """Each block issues a quarter, and each barrier expects all four."""
    rows = ran(size=4, issuer=-1).result["blocks"]
    assert [(row["issues"], row["expects"], row["bytes that land"]) for row in rows] == [
        (512, 2048, 2048)
    ] * 4


@pytest.mark.parametrize(
    ("expect", "words"),
    [
        ("twice", "block 1 expects 4096 B, its wait never ends: 2048 bytes are missing"),
        ("none", "block 1 expects 0 B, its wait returns before anything was sent"),
        ("share", "block 1 expects 1024 of the 2048 B"),
    ],
)
def test_a_wrong_account_is_told_by_rank(expect: str, words: str) -> None:
    """With the bytes that are right; the other block is not blamed."""
    record = ran(expect=expect, expect_rank=1)
    wrong = [check for check in record.checks if not check["ok"]]
    assert [check["name"] for check in wrong] == ["bytes expected"]
    assert words in wrong[0]["detail"]
    assert "block 0" not in wrong[0]["detail"]


def test_the_count_of_empty_barriers() -> None:
    """Eight consumer warps in each of two destinations make 16; a mask of one block leaves 8."""
    key = "count of an issuer's empty barrier"
    assert ran(consumers=8).result["empty_barrier"][0][key] == 16
    assert ran(consumers=8, mask="0b01").result["empty_barrier"][0][key] == 8


def test_a_mask_of_all_is_the_default() -> None:
    """However it is typed, so that the point finds its recording."""
    case = PROBE.case("sm_90a", size=4, mask="0xf")
    assert case.key == PROBE.case("sm_90a", size=4).key


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"mask": "0b100"}, "legal: 0b1 to 0b11"),
        ({"mask": "all"}, "is no mask"),
        ({"mask": "0b1_0"}, "is no mask"),
        ({"size": 10**11}, "this probe takes 1 to 8"),
        ({"size": -5}, "this probe takes 1 to 8"),
        ({"consumers": 33}, "legal: 1 to 32, the warps of a block"),
        ({"expect_rank": 1}, "--expect-rank 1 without --expect"),
        ({"issuer": 2}, "legal: 0 to 1, or -1"),
        ({"bytes": 100}, r"this probe takes multiples of 512 \(256 for each block\), up to 65536"),
        ({"mask": "0b01", "expect": "twice", "expect_rank": 1}, "legal: 0, or -1"),
    ],
)
def test_what_does_not_exist_is_refused(params: dict[str, Value], words: str) -> None:
    """With the legal set."""
    with pytest.raises(UsageError, match=words):
        PROBE.case("sm_90a", **params)


def test_an_sm_120_has_none() -> None:
    """The compiler makes calls of it there; older chips have nothing of it."""
    with pytest.raises(UsageError, match=r"not native on sm_120a: ptxas makes a call of it.*legal: sm_90 to"):
        PROBE.case("sm_120a")
    with pytest.raises(UsageError, match="multicast does not exist on sm_80; legal: sm_90 to sm_110a"):
        PROBE.case("sm_80")


@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_110a"])
def test_what_is_called_legal_compiles(arch: str) -> None:
    """To the native instruction, without a call: names without a suffix too."""
    lab = runner.Lab(arch, None, None, "the model was asked for")
    record = runner.run_probe(PROBE, PROBE.case(arch), lab)[0]
    assert record.exit_code == 0
    assert record.result["sass"]["counts"]["UBLKCP.S.G.MULTICAST"] == 1


def test_what_sm_120_makes_of_it_is_a_call() -> None:
    """As the refusal says: the copy goes to one block."""
    case = PROBE.case("sm_110a")
    counts = runner.kernel_report(
        build_unit(PROBE, [case], "sm_120a"), kernel_name(PROBE, PROBE.macros(case))
    )
    assert counts["counts"]["UBLKCP.S.G"] == 1
    assert counts["counts"]["CALL.ABS.NOINC"] == 1


def test_the_sentence_and_the_table_say_the_same_of_a_race() -> None:
    """Fewer bytes are expected than come: too many came, none is missing."""
    record = ran(size=4, mask="0b0101", expect="share")
    told = "1536 bytes more than expected came"
    assert told in record.result["conclusion"]
    assert "too early, or never" in record.result["conclusion"]
    rows = [row for row in record.result["blocks"] if row["receives"]]
    assert [(row["phase ended"], row["verdict"]) for row in rows] == [("too early, or never", told)] * 2
