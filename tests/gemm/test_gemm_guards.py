"""What keeps blocks from leaving, and shared memory from being written, too early: read in the PTX.

On a card a lost guard shows in rare runs at most; here it shows in each.
"""

from __future__ import annotations

import re

import pytest

from ptxlab.experiments.base import Value
from ptxlab.experiments.registry import find_stage
from ptxlab.experiments.unit import build_unit

Options = dict[str, Value]

SHARING: list[tuple[str, Options]] = [
    *(("hopper", {"cluster_shape": shape}) for shape in ("2x1", "1x2", "2x2")),
    ("hopper-fp8", {"cluster_shape": "2x1"}),
    *(("cluster", {"share": share}) for share in ("multicast", "dsmem")),
]
STORING: list[tuple[str, Options]] = [
    *SHARING,
    ("hopper", {"cluster_shape": "1x1"}),
    ("hopper", {"splits": 2, "adding": "memory", "k": 8192}),
    ("persistent", {}),
    ("blackwell", {}),
]


def ptx_of(name: str, options: Options) -> str:
    """Return the PTX of a stage's kernel."""
    stage = find_stage(name)
    case = stage.case(stage.only, **options)
    return build_unit(stage, [case], case.arch).ptx


@pytest.mark.parametrize(("name", "options"), SHARING)
def test_no_block_leaves_while_its_neighbours_may_arrive(name: str, options: Options) -> None:
    """Its producer waits for all stages to be empty, in the scope in which the others arrive."""
    assert "mbarrier.try_wait.parity.acquire.cluster" in ptx_of(name, options)


def test_a_block_alone_waits_for_nobody() -> None:
    """There are no neighbours."""
    assert "acquire.cluster" not in ptx_of("hopper", {"cluster_shape": "1x1"})


@pytest.mark.parametrize(("name", "options"), STORING)
def test_panels_are_written_and_left_when_tma_has_read_them(name: str, options: Options) -> None:
    """A wait for earlier reads goes before what each store hands on, and one for all of them to the end."""
    events = re.findall(r"cp\.async\.bulk\.(commit_group|wait_group\.read) ?(\d*)", ptx_of(name, options))
    order = "".join("C" if event == "commit_group" else "W" for event, _ in events)
    assert re.fullmatch("(W+C)+W+", order)
    assert events[-1] == ("wait_group.read", "0")


def test_sums_stay_until_the_other_parts_have_read_them() -> None:
    """Parts that lie in a cluster: whoever has fetched arrives, and all wait before they leave."""
    shape: Options = {"m": 128, "n": 576, "k": 7168, "block": "128x32", "roles": "cooperative"}
    ptx = ptx_of("hopper", {**shape, "cluster_shape": "1x1", "splits": 5, "adding": "cluster"})
    fetched, arrived = ptx.rindex("ld.shared::cluster"), ptx.rindex("barrier.cluster.arrive.release")
    assert fetched < arrived < ptx.rindex("barrier.cluster.wait.acquire")
