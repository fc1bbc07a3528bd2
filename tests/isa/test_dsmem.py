"""Distributed shared memory: addresses, and what operations leave."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.isa import dsmem


def test_mapa_replaces_the_rank_and_keeps_the_offset() -> None:
    """Whatever block's address it gets."""
    assert dsmem.map_to_block(0x00000400, 3) == 0x03000400
    assert dsmem.map_to_block(0x07012340, 1) == 0x01012340
    assert dsmem.rank_of_address(0x07012340) == 7


def test_own_addresses_are_in_the_window_of_the_cluster() -> None:
    """Mapa to the own rank changes nothing."""
    found = dsmem.addresses(4)
    own = np.arange(4)
    assert (found[own, own, :, 0] == found[own, own, :, 1]).all()
    assert (found[own, own, :, 3] == 0).all()


def test_an_atom_returns_what_lower_ranks_left() -> None:
    """Block 2 finds what blocks 0 and 1 added."""
    found = dsmem.run("atom", 4, 1, "add")
    assert found.answers is not None
    start = int(dsmem.before("atom", 4, 1)[1, 0, 5, 0])
    assert found.answers[:, 1, 5, 0].tolist() == [start, start + 6, start + 6 + 38, start + 6 + 38 + 70]


@pytest.mark.parametrize("redop", dsmem.REDUCTIONS)
def test_the_order_of_blocks_does_not_matter(redop: str) -> None:
    """For red and red.async nobody orders the blocks, so that the result must be the same."""
    memory = dsmem.before("red", 4, 1)[0, 0]
    backwards = memory
    for block in reversed(range(4)):
        backwards = dsmem.combined(redop, backwards, dsmem.operands(block, redop))
    assert (dsmem.run("red", 4, 1, redop).after[0, 0] == backwards).all()


def test_a_barrier_counts_every_lane_of_every_block() -> None:
    """4 blocks of 32 lanes with 4 or 16 bytes each; a plain store counts at none."""
    assert dsmem.bytes_landing("st.async", 4, 1) == 512
    assert dsmem.bytes_landing("st.async", 4, 4) == 2048
    assert dsmem.bytes_landing("st", 4, 4) == 0
