"""Clusters: which block has which rank, which sizes launch, and how many clusters a device holds.

A launch counts its blocks in x, y and z, x first; so does a cluster. All blocks of a cluster lie in one GPC
(a group of SMs). How many clusters of each size an H200 said it holds (driver 580.159.04, 2026-11-30) is
explained by three rules, none of them documented:
    - it has GPCs of 18, 18, 16, 16, 16, 16, 16 and 8 SMs, and 8 SMs that only hold clusters of up to 2;
    - a cluster needs a GPC with as many SMs as it has blocks, be there room for several blocks in each;
    - an SM holds up to 8 blocks of clusters, of 32 threads each, whatever else would fit.
Sources: PTX ISA, "Special registers" and "barrier.cluster"; CUDA programming guide, "Thread block clusters"
and "Compute capabilities".
"""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError

Dim3 = tuple[int, int, int]

PORTABLE = 8
"""Blocks of the largest cluster that every chip with clusters launches."""

MOST = 16
"""Blocks of the largest cluster of an sm_90, for kernels that allow sizes that are not portable."""

_PORTABLE_ALONE = ("sm_110", "sm_121")
"""Whose largest cluster is the portable one: Thor and Spark. Source: the documentation of NVIDIA Warp,
get_cuda_max_cluster_dim."""

MOST_SHARED = 227 * 1024
"""Shared memory that one block can have (compute capability 9.0, 10.x, 11.0)."""

_MOST_SHARED_OF_120 = 99 * 1024

SHARED_OF_SM, RESERVED, GRANULE = 228 * 1024, 1024, 128
BLOCKS_OF_SM, THREADS_OF_SM = 32, 2048

FACTS = (
    *(f"ctaid.{d}" for d in "xyz"), *(f"nctaid.{d}" for d in "xyz"), *(f"clusterid.{d}" for d in "xyz"),
    *(f"nclusterid.{d}" for d in "xyz"), *(f"cluster_ctaid.{d}" for d in "xyz"),
    *(f"cluster_nctaid.{d}" for d in "xyz"), "cluster_ctarank", "cluster_nctarank",
)  # fmt: skip
"""Registers that tell a block its place, in the order of places()."""

ARRIVE_SASS, WAIT_SASS = "UCGABAR_ARV", "UCGABAR_WAIT"


GPCS_OF_H200 = (18, 18, 16, 16, 16, 16, 16, 8, 2, 2, 2, 2)
"""SMs that lie together, in the H200 that was asked; another card may have lost other SMs."""

CLUSTER_BLOCKS_OF_SM = 8
"""As the H200 said for blocks of 32 threads."""


def exists(arch: str) -> bool:
    """Say whether an architecture has clusters."""
    return int(arch.strip("sm_af")) >= 90


def check_arch(arch: str) -> None:
    """Raise UsageError if an architecture has no clusters."""
    if not exists(arch):
        raise UsageError(f"clusters do not exist on {arch}; legal: sm_90 and later", "--arch sm_90a")


def parse_dims(text: str, what: str) -> Dim3:
    """Return "8" or "2x2x1" as numbers of blocks along x, y and z.

    Raises:
        UsageError: it is something else.

    """
    if not re.fullmatch(r"[1-9][0-9]{0,4}(x[1-9][0-9]{0,4}){0,2}", text):
        raise UsageError(f"{what} '{text}'; legal: N, XxY or XxYxZ (x first), each 1 or more, such as 2x2x1")
    x, y, z, *_ = (*map(int, text.split("x")), 1, 1)
    return x, y, z


def most_blocks(arch: str) -> int:
    """Return the blocks of an architecture's largest cluster, for kernels that allow what is not portable."""
    return PORTABLE if arch.startswith(_PORTABLE_ALONE) else MOST


def most_shared(arch: str) -> int:
    """Return the bytes of shared memory that one block can have."""
    return _MOST_SHARED_OF_120 if arch.startswith("sm_12") else MOST_SHARED


def check_size(cluster: Dim3, arch: str) -> None:
    """Raise UsageError if an architecture has no clusters of this size."""
    most = most_blocks(arch)
    if math.prod(cluster) > most:
        raise UsageError(
            f"a cluster of {text_of(cluster)} has {math.prod(cluster)} blocks; legal: 1 to {PORTABLE}"
            + (f", and to {most} with --non-portable" if most > PORTABLE else f" on {arch}")
        )


def check_grid(grid: Dim3, cluster: Dim3) -> None:
    """Raise UsageError if the grid holds no whole number of clusters."""
    for axis, blocks, size in zip("xyz", grid, cluster, strict=True):
        if blocks % size:
            raise UsageError(
                f"the grid has {blocks} blocks along {axis}, no multiple of the cluster's {size}; "
                f"legal: {size}, {2 * size}, {3 * size}, …"
            )


def text_of(dims: Dim3) -> str:
    """Return "8" or "2x2x1"."""
    return str(dims[0]) if dims[1:] == (1, 1) else "x".join(map(str, dims))


def rank(block: Dim3, cluster: Dim3) -> int:
    """Return the rank in its cluster of the block at this place of the grid: x counts first."""
    x, y, z = (at % size for at, size in zip(block, cluster, strict=True))
    return x + cluster[0] * (y + cluster[1] * z)


def places(grid: Dim3, cluster: Dim3) -> NDArray[np.uint32]:
    """Return FACTS of every block of a grid, x counted first."""
    found = [
        (
            *block, *grid, *(at // size for at, size in zip(block, cluster, strict=True)),
            *(all_ // size for all_, size in zip(grid, cluster, strict=True)),
            *(at % size for at, size in zip(block, cluster, strict=True)),
            *cluster, rank(block, cluster), math.prod(cluster),
        )
        for block in blocks(grid)
    ]  # fmt: skip
    return np.array(found, dtype=np.uint32)


def blocks(grid: Dim3) -> list[Dim3]:
    """Return the places of all blocks, x counted first."""
    return [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]


def neighbours(grid: Dim3, cluster: Dim3) -> list[int]:
    """Return for each block, by number, the number of the block whose rank in its cluster is one higher."""
    all_, size = blocks(grid), math.prod(cluster)
    members: dict[tuple[Dim3, int], int] = {}
    for number, block in enumerate(all_):
        members[_cluster_of(block, cluster), rank(block, cluster)] = number
    return [members[_cluster_of(block, cluster), (rank(block, cluster) + 1) % size] for block in all_]


def _cluster_of(block: Dim3, cluster: Dim3) -> Dim3:
    x, y, z = (at // size for at, size in zip(block, cluster, strict=True))
    return x, y, z


def blocks_of_sm(shared_bytes: int, threads: int) -> int:
    """Return how many blocks with so much shared memory, and few registers, an SM of an sm_90 holds."""
    each = -(-shared_bytes // GRANULE) * GRANULE + RESERVED
    return min(BLOCKS_OF_SM, THREADS_OF_SM // threads, SHARED_OF_SM // each)


def most_active(size: int, of_sm: int, multiprocessors: int) -> int:
    """Return a bound: no device with so many SMs holds more clusters at once."""
    return multiprocessors * of_sm // size


def active(size: int, of_sm: int, gpcs: tuple[int, ...] = GPCS_OF_H200) -> int:
    """Return how many clusters a device with these GPCs holds at once; the rest of each GPC stays idle."""
    room = min(of_sm, CLUSTER_BLOCKS_OF_SM)
    return sum(sms * room // size for sms in gpcs if sms >= size)
