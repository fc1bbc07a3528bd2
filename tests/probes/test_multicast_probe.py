"""The multicast probe: who gets what, and whose account is wrong."""

from __future__ import annotations

import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.base import Value
from ptxlab.experiments.record import Record

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
        ("twice", "block 1 expects 4096 B, its wait never ends: 2048 B stay missing"),
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
        ({"issuer": 2}, "legal: 0 to 1, or -1"),
        ({"bytes": 100}, "legal: multiples of 512"),
        ({"mask": "0b01", "expect": "twice", "expect_rank": 1}, "legal: 0, or -1"),
    ],
)
def test_what_does_not_exist_is_refused(params: dict[str, Value], words: str) -> None:
    """With the legal set."""
    with pytest.raises(UsageError, match=words):
        PROBE.case("sm_90a", **params)


def test_an_sm_120_has_none() -> None:
    """The compiler makes calls of it there."""
    with pytest.raises(UsageError, match="multicast does not exist on sm_120a"):
        PROBE.case("sm_120a")
