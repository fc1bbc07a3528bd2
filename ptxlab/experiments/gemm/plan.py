"""How a problem is cut up for blocks that stay on their SM: a model of what each way takes, in cycles.

A wave is as many pieces of work as there are SMs. Within a wave an SM takes, for each step of 64 along k,
what its slowest part needs: the tensor cores, or the L2, from which the tiles come. What is not hidden behind
products comes on top: the start, the way out of C, and adding up the parts of a tile that was split along k.
A step takes a while, however little there is to multiply; two blocks of an SM hide it from each other.
The model only has to put the ways in order; it says nothing that a timing would not say better.

The constants without a source were fitted to timings of the stage hopper on an H200 (2026-11-30). In 45
problems the way that the model thought fastest took 7 % longer than the fastest of 630 that were timed; since
then parts that pass through memory became faster; their constants were lowered by hand, and still give 10 %
more than the median of 32 timings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from ptxlab.experiments.gemm.machine import L2_A_CYCLE, at_once
from ptxlab.experiments.gemm.wgmma import INSTRUCTION_ROWS, SWIZZLED_LINES, WARPGROUP

STEP = 64
"""Depth of a step: 128 bytes of 16-bit elements."""

SPLITS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24)
LARGEST_CLUSTER = 8
"""Blocks, of one that every device can run (CUDA programming guide, "Thread block clusters")."""
IN_MEMORY, IN_CLUSTER, STREAM_K = ADDING = ("memory", "cluster", "stream-k")
"""Where the parts of a tile meet: they pass through memory, or lie in the shared memory of a cluster. With
stream-K they pass through memory, too, but those of the last wave alone: even shares for all blocks.
"""

CLUSTERS = ((1, 1), (2, 1), (1, 2))
COOPERATIVE, PING_PONG, SINGLE, ALONE = ROLES = ("cooperative", "ping-pong", "single", "alone")
"""Two consumers share a tile; two have tiles of their own, and one writes while the other multiplies; there
is one, in half of an SM; there is one, and has all of it.
"""

TENSOR = 4096 / 2
"""Multiply-adds of 16-bit elements that an SM of Hopper does a cycle (NVIDIA H100 white paper)."""

REACHED = 0.98
"""Of them, in the loop over k: 0.97 to 0.99 by the SM's own clock (H200, 2026-11-30)."""

MEMORY_BYTES = 2230.0
"""Of A and B that pass through a cycle, all SMs together."""

LATENCY = 270.0
"""Cycles that a step takes at least."""

START, AGAIN = 730.0, 2330.0
"""Cycles until a block multiplies, and between blocks that follow each other, each with one tile."""

WAY_OUT, IMAGE_OUT = 4700.0, 8400.0
"""Cycles that 128x256 sums take from the last product until all of C is written: by TMA, or from an image."""

PAIR, LARGER = 2300.0, 1600.0
"""Cycles that blocks start later in a cluster, and those in one of more than two besides."""

SHARED = 0.85
"""Of the time that lines of a tile take on their way from the L2, what those take that blocks share. At
4096^3 0.97 fits pairs of 64x128 best, 0.8 to 0.92 fours of it.
"""

ADD_IN_CLUSTER = 3600.0
"""Cycles that parts of 128x256 take to be added up in a cluster."""

ADD_START, ADD_BYTES = 3000.0, 35.0
"""Cycles until parts that pass through memory are added, and bytes that are added a cycle."""

STREAM_START = 25000.0
"""The same for even shares."""


@dataclass(frozen=True)
class Plan:
    """One way to cut up a problem.

    Attributes:
        rows: of a tile of C.
        cols: of it.
        role: of the consumers; one of ROLES.
        down: tiles of a cluster, one below the other.
        across: tiles of it beside each other.
        splits: into how many parts k is cut, each for another block.
        adding: where they meet; one of ADDING.

    """

    rows: int
    cols: int
    role: str
    down: int
    across: int
    splits: int
    adding: str = IN_MEMORY

    @property
    def swapped(self) -> bool:
        """Whether the product is one of B and A, transposed: rows are then no multiple of wgmma's."""
        return self.rows % INSTRUCTION_ROWS != 0

    @property
    def product(self) -> tuple[int, int]:
        """Rows and columns of what wgmma makes of a block."""
        return (self.cols, self.rows) if self.swapped else (self.rows, self.cols)

    @property
    def image(self) -> bool:
        """Whether sums leave by an image of the tile in shared memory: a block then has one tile.

        They do if they are transposed, or to be added in a cluster.
        """
        return self.layers > 1 or self.swapped

    @property
    def layers(self) -> int:
        """How many of the parts of a tile lie in one cluster."""
        return self.splits if self.adding == IN_CLUSTER else 1

    @property
    def passing(self) -> int:
        """How many parts of a tile pass through memory, as far as it is known."""
        return 2 if self.adding == STREAM_K else self.splits // self.layers

    @property
    def consumers(self) -> int:
        """Warpgroups of a block that multiply."""
        return 1 if self.role in (SINGLE, ALONE) else 2

    @property
    def sharing(self) -> int:
        """Those of them that multiply a tile together."""
        return 1 if self.role == PING_PONG else self.consumers

    @property
    def of_an_sm(self) -> int:
        """Blocks that an SM has room for."""
        return 2 if self.role == SINGLE else 1

    @property
    def sums(self) -> int:
        """Registers of a thread that hold sums."""
        return self.rows * self.cols // WARPGROUP // self.sharing

    def tiles(self, m: int, n: int) -> int:
        """Return how many tiles there are, with those outside of C that make up clusters."""
        down, across = self.rows * self.down, self.cols * self.across
        return -(-m // down) * -(-n // across) * self.down * self.across

    def shares(self, size: tuple[int, int, int], blocks: int) -> bool:
        """Return whether there are tiles beside whole waves, and steps of them for every cluster."""
        m, n, k = size
        of_cluster = self.down * self.across
        clusters = max(1, at_once(blocks, of_cluster, self.of_an_sm) // of_cluster)
        rest = self.tiles(m, n) // of_cluster % clusters
        return rest * -(-k // STEP) >= clusters

    def cycles(self, size: tuple[int, int, int], blocks: int) -> float:
        """Return how long a problem of (m, n, k) is expected to take on so many SMs."""
        m, n, k = size
        waves = self._waves(m, n, blocks)
        busy = waves * -(-k // (STEP * self.splits)) * self._step(m, n, blocks)
        return (
            START
            + max(busy, (m + n) * k * 2 / MEMORY_BYTES)
            + self._out(m, math.ceil(waves))
            + self._adding(m)
            + (PAIR if self._cluster > 1 else 0)
            + (LARGER if self._cluster > 2 else 0)
        )

    @property
    def _cluster(self) -> int:
        """Blocks of a cluster."""
        return self.down * self.across * self.layers

    def _waves(self, m: int, n: int, blocks: int) -> float:
        """Return how often every block has something to do; with stream-K no block has less than others."""
        places = max(1, at_once(blocks, self._cluster, self.of_an_sm))
        waves = self.tiles(m, n) * self.splits / places
        return waves if self.adding == STREAM_K else math.ceil(waves)

    def _step(self, m: int, n: int, blocks: int) -> float:
        """Return the cycles of a step, of all blocks of an SM. Rows outside of A are not brought."""
        beside = min(self.of_an_sm, max(1.0, self.tiles(m, n) * self.splits / blocks))
        products = self.rows * self.cols * STEP / TENSOR / REACHED
        lines = self._rows(m) * (SHARED if self.across > 1 else 1)
        lines += self.cols * (SHARED if self.down > 1 else 1)
        return max(beside * products, beside * lines * STEP * 2 / L2_A_CYCLE, LATENCY)

    def _rows(self, m: int) -> int:
        """Return the rows of a tile that are in A, in groups as TMA lays them down."""
        return min(self.rows, -(-m // SWIZZLED_LINES) * SWIZZLED_LINES)

    def _out(self, m: int, waves: int) -> float:
        area = self._rows(m) * self.cols / (128 * 256)
        if self.image:
            return IMAGE_OUT * area + AGAIN * (waves - 1)
        return WAY_OUT * area * (waves if self.role == COOPERATIVE else 1)

    def _adding(self, m: int) -> float:
        """Return the cycles from the last product until parts are added up."""
        sums = min(self.rows, max(m, 16)) * self.cols
        if self.adding == STREAM_K:
            return STREAM_START + sums * 4 * 3 / ADD_BYTES
        if self.layers > 1:
            return ADD_IN_CLUSTER * self._rows(m) * self.cols / (128 * 256)
        return ADD_START + sums * 4 * (self.splits + 1) / ADD_BYTES if self.splits > 1 else 0.0


def plans(
    tiles: Iterable[tuple[int, int, str]],
    size: tuple[int, int, int],
    blocks: int,
    clusters: Iterable[tuple[int, ...]] = CLUSTERS,
) -> Iterator[Plan]:
    """Yield the ways that make sense: no more splits than it takes to give every SM something to do."""
    for (rows, cols, role), (down, across) in product(tiles, clusters):
        whole = Plan(rows, cols, role, down, across, splits=1)
        yield whole
        if whole.shares(size, blocks):
            yield replace(whole, adding=STREAM_K)
        yield from _split(whole, size, blocks)


def _split(whole: Plan, size: tuple[int, int, int], blocks: int) -> Iterator[Plan]:
    m, n, k = size
    most = min(math.ceil(k / STEP) // 2, 2 * blocks // whole.tiles(m, n))
    for splits in SPLITS:
        if 1 < splits <= most:
            yield replace(whole, splits=splits)
            if splits * whole.down * whole.across <= LARGEST_CLUSTER:
                yield replace(whole, splits=splits, adding=IN_CLUSTER)
