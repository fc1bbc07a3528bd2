"""Multicast: who receives, and what barriers count."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.isa import multicast


def test_each_destination_counts_all_bytes() -> None:
    """And a block outside the mask none."""
    assert multicast.account(4, 0b0101, 2048) == [2048, 0, 2048, 0]


def test_only_destinations_change() -> None:
    """All of them hold the whole source."""
    source = np.arange(8, dtype=np.uint32)
    found = multicast.windows(3, 0b110, source, 99)
    assert (found[0] == 99).all()
    assert (found[1:] == source).all()


@pytest.mark.parametrize(("mask", "warps", "count"), [(0b1, 8, 8), (0b11, 8, 16), (0b1111, 2, 8)])
def test_empty_barriers_count_the_consumers_of_all_destinations(mask: int, warps: int, count: int) -> None:
    """Multicast to two blocks doubles the count."""
    assert multicast.empty_count(mask, warps) == count


def test_wrong_accounts() -> None:
    """Nothing ends at once, too much never, too little maybe halfway."""
    assert multicast.phase(2048, 2048) == (0, 1)
    assert multicast.phase(0, 2048) == (1, 1)
    assert multicast.phase(4096, 2048) == (0, 0)
    assert multicast.ends_halfway(1024, 2048)
    assert not multicast.ends_halfway(2048, 2048)


@pytest.mark.parametrize("mask", [0, 0b100])
def test_a_mask_names_blocks_of_the_cluster(mask: int) -> None:
    """At least one, and none that is not there."""
    with pytest.raises(UsageError, match="legal: 0b1 to 0b11"):
        multicast.check_mask(mask, 2)
