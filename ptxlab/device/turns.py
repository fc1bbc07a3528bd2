"""In which order the sides of a timing take their turns."""

from __future__ import annotations

from collections.abc import Iterator


def turns(sides: int, rounds: int) -> Iterator[list[int]]:
    """Yield the order of the sides in each round.

    What ran just before leaves its mark: a kernel that draws little power lets the clock rise, another leaves
    its data in the L2. So over as many rounds as there are sides each of them takes every place once, and
    follows each other one once; with an odd number of sides that takes twice as many rounds, of which the
    second half goes backwards (Williams, "Experimental designs balanced for the estimation of residual
    effects of treatments", 1949). Fewer rounds come as close to it as they can.
    """
    zigzag = [place // 2 if place % 2 == 0 else sides - 1 - place // 2 for place in range(sides)]
    for index in range(rounds):
        order = [(each + index) % sides for each in zigzag]
        yield order if index // sides % 2 == 0 else order[::-1]
