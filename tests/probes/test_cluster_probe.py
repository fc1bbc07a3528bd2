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
        ({"smem": 232_448}, "legal: 0 to 232444"),
        ({"size": "8,"}, "legal: N, XxY or XxYxZ"),
    ],
)
def test_what_no_chip_launches_is_refused(params: dict[str, Value], words: str) -> None:
    """With the legal set."""
    with pytest.raises(UsageError, match=words):
        PROBE.case("sm_90a", **params)


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
