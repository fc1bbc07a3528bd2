"""The cluster probe: which sizes launch, ranks, and what is refused."""

from __future__ import annotations

import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.base import Value
from ptxlab.experiments.record import Record

PROBE = registry.find_probe("cluster")
LAB = runner.Lab("sm_90a", None, None, "the model was asked for")
SMEM = 229_376


def ran(**params: Value) -> Record:
    """What the model says of a point."""
    return runner.run_probe(PROBE, PROBE.case("sm_90a", **params), LAB)[0]


@pytest.mark.parametrize(
    ("size", "non_portable", "launches"),
    [("8", False, "yes"), ("3", False, "yes"), ("16", True, "yes, not portable"), ("16", False, "refused")],
)
def test_which_sizes_launch(size: str, non_portable: bool, launches: str) -> None:
    """Up to 8 always, odd ones too; 16 with permission."""
    record = ran(size=size, non_portable=non_portable, smem=SMEM)
    assert record.result["launches"][0]["launches"] == launches
    failed = [check["name"] for check in record.checks if not check["ok"]]
    assert failed == (["cluster size"] if launches == "refused" else [])
    drawn = [picture["title"].partition("cluster of ")[2] for picture in record.result["pictures"]]
    assert bool(drawn) == (launches != "refused")  # no ranks of blocks that never start
    assert bool(record.result["first_cluster"]) == bool(drawn)


def test_several_sizes_in_one_go() -> None:
    """Each is a launch; with permission all run, without the last is refused."""
    record = ran(size="3,8,16", smem=SMEM, non_portable=True)
    assert [row["by an H200's GPCs"] for row in record.result["launches"]] == [39, 15, 7]
    assert record.exit_code == 0
    assert ran(size="3,8,16", smem=SMEM).exit_code == 1


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"size": "3", "grid": "8"}, "8 blocks along x, no multiple of the cluster's 3"),
        ({"size": "1x2", "grid": "4x3"}, "3 blocks along y"),
        ({"size": "17", "non_portable": True}, "17 blocks; legal: 1 to 8"),
        ({"smem": 232_448}, "legal: 0 to 232444 bytes: of the 232448 .* this probe's kernel needs 4 itself"),
        ({"size": "8,"}, "legal: N, XxY or XxYxZ"),
    ],
)
def test_what_no_chip_launches_is_refused(params: dict[str, Value], words: str) -> None:
    """With the legal set."""
    with pytest.raises(UsageError, match=words):
        PROBE.case("sm_90a", **params)


@pytest.mark.parametrize(("arch", "legal"), [("sm_110a", 8), ("sm_121a", 8), ("sm_100a", 16), ("sm_90a", 16)])
def test_the_largest_cluster_depends_on_the_architecture(arch: str, legal: int) -> None:
    """Thor and Spark have the portable size alone, with or without permission."""
    assert PROBE.case(arch, size=str(legal), non_portable=True).arch == arch
    with pytest.raises(UsageError, match="legal: 1 to 8" + (f" on {arch}" if legal == 8 else ", and to 16")):
        PROBE.case(arch, size=str(legal + 1), non_portable=True)


def test_a_block_of_an_sm_120_has_less_shared_memory() -> None:
    """99 KB, of which the kernel needs 4 bytes."""
    assert PROBE.case("sm_120a", smem=101_372).smem == 101_372
    with pytest.raises(UsageError, match="legal: 0 to 101372 bytes"):
        PROBE.case("sm_120a", smem=101_373)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "sm_110a"])
def test_what_an_h200_holds_is_told_of_hopper_alone(arch: str) -> None:
    """Other chips have other SMs."""
    lab = runner.Lab(arch, None, None, "the model was asked for")
    row = runner.run_probe(PROBE, PROBE.case(arch), lab)[0].result["launches"][0]
    assert any("H200" in name or "132" in name for name in row) == (arch == "sm_90a")


def test_older_architectures_have_none() -> None:
    """Clusters came with Hopper."""
    with pytest.raises(UsageError, match="legal: sm_90 and later"):
        PROBE.case("sm_89")


def test_permission_that_is_not_needed_changes_nothing() -> None:
    """So that the point finds its recording."""
    assert PROBE.case("sm_90a", size="4", non_portable=True).key == PROBE.case("sm_90a", size="4").key


def test_ranks_of_a_cluster_in_two_dimensions() -> None:
    """X first."""
    ranks = ran(size="2x2", grid="4x2").result["first_cluster"]
    assert [row["block"] for row in ranks] == ["0,0,0", "1,0,0", "0,1,0", "1,1,0"]
    assert [row["cluster_ctarank"] for row in ranks] == [0, 1, 2, 3]
    assert [row["received from block"] for row in ranks] == [1, 4, 5, 0]


def test_the_device_is_held_against_the_model() -> None:
    """More clusters than the SMs hold, or another largest size, is a failed check."""
    case = PROBE.case("sm_90a", size="8", smem=SMEM)
    record = Record(environment={"device": {"multiprocessors": 132}})
    record.result["clusters"] = {"largest": 8, "active": 17}
    PROBE.examine(case, PROBE.expected(case), record)
    assert [check["ok"] for check in record.checks] == [False, True]
