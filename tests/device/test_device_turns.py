"""The order in which the sides of a timing take their turns."""

from __future__ import annotations

from collections import Counter
from itertools import islice, pairwise

import pytest

from ptxlab.device.turns import turns


@pytest.mark.parametrize("sides", range(1, 12))
def test_every_side_takes_every_place_equally_often(sides: int) -> None:
    """Once in as many rounds as there are sides."""
    rounds = list(turns(sides, sides))
    assert all(sorted(order) == list(range(sides)) for order in rounds)
    assert all(sorted(place) == list(range(sides)) for place in zip(*rounds, strict=True))


@pytest.mark.parametrize("sides", range(2, 12))
def test_every_side_follows_every_other_equally_often(sides: int) -> None:
    """Once in as many rounds as there are sides; if they are odd, twice in twice as many."""
    times = 1 + sides % 2
    followed = Counter(pair for order in turns(sides, times * sides) for pair in pairwise(order))
    expected = {(a, b): times for a in range(sides) for b in range(sides) if a != b}
    assert followed == expected


def test_two_sides_take_turns_in_going_first() -> None:
    """Then the same again, backwards."""
    assert list(islice(turns(2, 9), 5)) == [[0, 1], [1, 0], [1, 0], [0, 1], [0, 1]]
    assert len(list(turns(3, 7))) == 7
