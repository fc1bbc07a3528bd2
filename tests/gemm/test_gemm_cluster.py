"""Blocks of a cluster that send on what they copied: what their kernels hold, what does not go together."""

from __future__ import annotations

import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments.gemm.explain import explain
from ptxlab.experiments.gemm.machine import MACHINES
from ptxlab.experiments.registry import find_stage
from ptxlab.experiments.unit import build_unit
from ptxlab.sass.claims import check_claims
from ptxlab.sass.report import kernels

STAGE = find_stage("cluster")


@pytest.mark.parametrize(
    ("shape", "layout", "neighbours", "boxes"),
    [("2x1", "tn", 1, 2), ("1x2", "nt", 1, 1 + 4), ("2x2", "tn", 2, 2), ("4x1", "tt", 3, 2)],
)
def test_each_share_is_sent_to_each_neighbour(shape: str, layout: str, neighbours: int, boxes: int) -> None:
    """One copy between shared memories for each, and no multicast beside it."""
    case = STAGE.case("sm_90a", share="dsmem", cluster_shape=shape, layout=layout)
    (kernel,) = kernels(build_unit(STAGE, [case], "sm_90a"))
    assert [detail for _, ok, detail in check_claims(kernel, STAGE.claims(case)) if not ok] == []
    copies = {op: count for op, count in kernel["counts"].items() if op.startswith(("UBLKCP", "UTMALDG"))}
    assert copies == {"UBLKCP.S.S": neighbours, "UTMALDG.2D": boxes}


def test_a_stage_that_is_sent_on_has_a_third_barrier() -> None:
    """It says that there is something to send."""
    both = [STAGE.shared(STAGE.case("sm_90a", share=share)) for share in ("multicast", "dsmem")]
    assert [buffers["barriers"] for buffers in both] == [4 * 2 * 8, 4 * 3 * 8]


@pytest.mark.parametrize(
    ("shape", "of_a_block"), [("2x1", 128 * 128), ("1x2", 64 * 128), ("2x2", (64 + 128) * 128)]
)
def test_bytes_that_are_sent_on_are_told(shape: str, of_a_block: int) -> None:
    """Halves of B in a column, halves of A in a row; by multicast nothing is sent on."""
    said = {
        share: explain(STAGE, STAGE.case("sm_90a", share=share, cluster_shape=shape), MACHINES[90], None)
        for share in ("multicast", "dsmem")
    }
    assert said["dsmem"]["work"]["sent_bytes"] == 512 * 64 * of_a_block
    assert f"each block sends {of_a_block} bytes on in each step" in said["dsmem"]["limiter"]["reason"]
    assert said["multicast"]["work"]["sent_bytes"] == 0
    assert "sends" not in said["multicast"]["limiter"]["reason"]


@pytest.mark.parametrize(
    ("shape", "limiter"), [("2x1", "distributed shared memory"), ("1x2", "tensor cores")]
)
def test_what_blocks_send_on_is_a_limit(shape: str, limiter: str) -> None:
    """At 11 bytes a cycle 16 KB take 1489 cycles, 8 KB 745; the products of a step take 1024."""
    case = STAGE.case("sm_90a", share="dsmem", cluster_shape=shape)
    said = explain(STAGE, case, MACHINES[90], None)
    (row,) = (each for each in said["bounds"] if each["key"] == "dsmem")
    cycles = said["work"]["sent_bytes"] / 132 / 11
    assert row["milliseconds"] == pytest.approx(cycles / row["at_mhz"] / 1e3)
    assert said["limiter"]["resource"] == limiter
    clocks = {each["at_mhz"] for each in said["bounds"] if each["key"] != "memory"}
    assert len(clocks) == 1, "limits are compared at one clock"


def test_by_multicast_there_is_no_such_limit() -> None:
    """TMA writes into both blocks."""
    keys = [row["key"] for row in explain(STAGE, STAGE.case("sm_90a"), MACHINES[90], None)["bounds"]]
    assert "dsmem" not in keys


def test_a_picture_shows_that_products_wait_for_what_is_sent() -> None:
    """A column is 512 cycles: the sender takes three for a step, the tensor cores two, so one stays empty."""
    case = STAGE.case("sm_90a", share="dsmem")
    line = explain(STAGE, case, MACHINES[90], {"registers": 168}, draw=True)["pipeline"]
    assert line["sending_cycles"] == pytest.approx(16384 / 11)
    assert line["findings"] == []
    start = line["pictures"][0]
    cells = dict(zip(start["row_names"], start["cells"], strict=True))
    assert cells["sender"][2:14] == list("000111222333")
    assert "".join(text or "." for text in cells["tensor cores"]).strip(".").startswith("00.11.22.33.00")


def test_a_block_alone_has_nobody_to_send_to() -> None:
    """The message names a cluster that would do."""
    with pytest.raises(
        UsageError, match="legal: a cluster of several blocks, such as --set cluster_shape=2x1"
    ):
        STAGE.case("sm_90a", share="dsmem", cluster_shape="1x1")
