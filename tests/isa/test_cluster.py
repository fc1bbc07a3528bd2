"""Clusters: ranks, sizes, and how many a device holds at once."""

from __future__ import annotations

import pytest

from ptxlab.errors import UsageError
from ptxlab.isa import cluster

ONE_BLOCK_OF_SM = cluster.blocks_of_sm(229_376 + 4, 32)
TWO_BLOCKS_OF_SM = cluster.blocks_of_sm(110_000 + 4, 32)
MANY_BLOCKS_OF_SM = cluster.blocks_of_sm(4, 32)

# What an H200 answered (driver 580.159.04, 2026-11-30): blocks of the cluster -> clusters at once.
SAID = {
    ONE_BLOCK_OF_SM: dict(zip(range(1, 17), (132, 66, 39, 30, 22, 17, 15, 15, 9, *[7] * 7), strict=True)),
    TWO_BLOCKS_OF_SM: dict(
        zip(range(1, 17), (264, 132, 79, 62, 47, 39, 32, 30, 23, 21, 16, 16, 14, 14, 14, 14), strict=True)
    ),
    MANY_BLOCKS_OF_SM: {
        1: 1056, 2: 528, 3: 327, 4: 248, 5: 193, 6: 163, 7: 139, 8: 124, 9: 102, 12: 74, 16: 58,
    },
}  # fmt: skip


def test_a_rank_counts_x_first() -> None:
    """Then y, then z, inside the cluster."""
    shape = (2, 3, 2)
    assert [cluster.rank(block, shape) for block in cluster.blocks(shape)] == list(range(12))
    assert cluster.rank((4, 4, 1), shape) == 0 + 2 * (1 + 3 * 1)


def test_blocks_of_an_sm() -> None:
    """224 KB leave room for one block, 110,000 bytes for two, few bytes for as many as there are."""
    assert (ONE_BLOCK_OF_SM, TWO_BLOCKS_OF_SM, MANY_BLOCKS_OF_SM) == (1, 2, 32)


@pytest.mark.parametrize("of_sm", SAID)
def test_gpcs_explain_what_an_h200_holds(of_sm: int) -> None:
    """Every number that the device gave, from the sizes of its GPCs."""
    assert {size: cluster.active(size, of_sm) for size in SAID[of_sm]} == SAID[of_sm]
    assert all(n <= cluster.most_active(size, of_sm, 132) for size, n in SAID[of_sm].items())


def test_a_neighbour_is_in_the_same_cluster() -> None:
    """One rank higher, and from the last the first."""
    assert cluster.neighbours((6, 1, 1), (3, 1, 1)) == [1, 2, 0, 4, 5, 3]
    assert cluster.neighbours((2, 2, 1), (1, 2, 1)) == [2, 3, 0, 1]


@pytest.mark.parametrize("text", ["0", "2x", "2x2x2x2", "-1", "two"])
def test_a_size_is_one_to_three_numbers(text: str) -> None:
    """Everything else is refused with the form."""
    with pytest.raises(UsageError, match="legal: N, XxY or XxYxZ"):
        cluster.parse_dims(text, "--size")
