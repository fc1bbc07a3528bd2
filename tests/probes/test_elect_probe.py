"""The elect probe: who leads, and what the lanes are told."""

from __future__ import annotations

import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import registry, runner

PROBE = registry.find_probe("elect")


@pytest.mark.parametrize(("mask", "lane"), [("0xffffffff", 0), ("0xff00", 8), ("0x80000000", 31), ("6", 1)])
def test_the_lowest_lane_leads(mask: str, lane: int) -> None:
    """In both warps and both rounds, and all members are told."""
    lab = runner.Lab("sm_90a", None, None, "the model was asked for")
    record = runner.run_probe(PROBE, PROBE.case("sm_90a", mask=mask), lab)[0]
    assert record.exit_code == 0
    assert record.result["leader"] == lane
    assert [(each["leader"], each["told"]) for each in record.result["rounds"]] == [(str(lane),) * 2] * 4


def test_lanes_outside_the_mask_are_told_nothing() -> None:
    """They write that they took no part."""
    told = PROBE.expected(PROBE.case("sm_90a", mask="0xff00"))["told"]
    assert set(told[0, 0, :8, 0].tolist()) == {0xFFFFFFFF}
    assert told[0, 0, :, 1].sum() == 1


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ("0", "legal: 0x1"),
        ("lanes", "is no mask"),
        ("1 << 3", "no mask"),
        ("1_0", "no mask"),
        ("\u0661", "no mask"),
    ],
)
def test_a_bad_mask_is_refused(mask: str, words: str) -> None:
    """With the range that it must be in."""
    with pytest.raises(UsageError, match=words):
        PROBE.case("sm_90a", mask=mask)


def test_older_architectures_are_refused() -> None:
    """It came with Hopper."""
    with pytest.raises(UsageError, match="legal: sm_90 and later"):
        PROBE.case("sm_89")
