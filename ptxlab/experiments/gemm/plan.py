"""How a problem is cut up for blocks that stay on their SM: a model of what each way takes, in cycles.

A wave is as many pieces of work as there are SMs. Within a wave an SM takes, for each step of 64 along k,
what its slowest part needs: the tensor cores, or the L2, from which the tiles come. What is not hidden behind
products comes on top: the start, the way out of C, and adding up the parts of a tile that was split along k.
The model only has to put the ways in order; it says nothing that a timing would not say better.

The constants without a source were fitted to 211 timings of the stage hopper on an H200 (2026-11-30): START
and WAY_OUT hold what is lost at the ends of a wave, whatever the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from ptxlab.experiments.gemm.wgmma import INSTRUCTION_ROWS, WARPGROUP

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
COOPERATIVE, PING_PONG, SINGLE = "cooperative", "ping-pong", "single"
ROLES = (COOPERATIVE, PING_PONG, SINGLE)
"""Two consumers share a tile; two have tiles of their own, and one writes while the other multiplies; there
is one, in half of an SM.
"""

TENSOR = 4096 / 2
"""Multiply-adds of 16-bit elements that an SM of Hopper does a cycle (NVIDIA H100 white paper)."""

REACHED = 0.98
"""Of them, in the loop over k: 0.97 to 0.99 by the SM's own clock (H200, 2026-11-30)."""

L2_BYTES = 42.0
"""That an SM gets out of the L2 a cycle while all ask for some."""

MEMORY_BYTES = 2200.0
"""Of A and B that pass through a cycle, all SMs together."""

NARROW = 60.0
"""Cycles that a step of one instruction's height waits for the next."""

START = 1300.0
WAY_OUT = 9400.0
"""Cycles that 128x256 sums take from the last product until all of C is written."""
ADD_START, ADD_BYTES = 3750.0, 60.0
"""Cycles until parts are added, and bytes that are added a cycle."""


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

        They do if they are transposed, no whole panels for TMA, or to be added in a cluster.
        """
        return self.layers > 1 or self.swapped or self.cols % INSTRUCTION_ROWS != 0

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
        return 1 if self.role == SINGLE else 2

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
        clusters = max(1, blocks // of_cluster)
        rest = self.tiles(m, n) // of_cluster % clusters
        return rest * -(-k // STEP) >= clusters

    def cycles(self, size: tuple[int, int, int], blocks: int) -> float:
        """Return how long a problem of (m, n, k) is expected to take on so many SMs."""
        m, n, k = size
        waves = -(-self.tiles(m, n) * self.splits // blocks)
        busy = waves * -(-k // (STEP * self.splits)) * self._step(m)
        exposed = waves if self.role == COOPERATIVE else 1
        out = exposed * WAY_OUT * self.rows * self.cols / (128 * 256)
        return START + max(busy, (m + n) * k * 2 / MEMORY_BYTES) + out + self._adding(m)

    def _step(self, m: int) -> float:
        """Return the cycles of a step. Rows outside of A are not brought."""
        products = self.rows * self.cols * STEP / TENSOR / REACHED
        lines = min(self.rows, m) / self.across + self.cols / self.down
        return max(products, lines * STEP * 2 / L2_BYTES) + (NARROW if self.rows == STEP else 0.0)

    def _adding(self, m: int) -> float:
        if self.splits == 1:
            return 0.0
        return ADD_START + min(self.rows, max(m, 16)) * self.cols * 4 * (self.splits + 1) / ADD_BYTES


def plans(tiles: Iterable[tuple[int, int, str]], size: tuple[int, int, int], blocks: int) -> Iterator[Plan]:
    """Yield the ways that make sense: no more splits than it takes to give every SM something to do."""
    m, n, k = size
    for (rows, cols, role), (down, across), splits, adding in product(tiles, CLUSTERS, SPLITS, ADDING):
        plan = Plan(rows, cols, role, down, across, splits, adding)
        busy = plan.tiles(m, n) * splits
        if adding == IN_CLUSTER and not 1 < splits <= LARGEST_CLUSTER // (down * across):
            continue
        if adding == STREAM_K and (splits > 1 or not plan.shares(size, blocks)):
            continue
        if splits == 1 or (2 * splits <= math.ceil(k / STEP) and busy <= 2 * blocks):
            yield plan
