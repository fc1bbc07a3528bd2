"""Multicast: one read of global memory that lands in several blocks of a cluster.

Each block whose bit is set in the mask gets all the bytes at the offset that the issuer's address has in its
own shared memory; the mbarrier at the same offset in each of them counts all of them. So every destination
arms its own barrier with the whole size, and a block outside the mask with nothing, be it the issuer.
Source: PTX ISA, "cp.async.bulk" and "cp.async.bulk.tensor", .multicast::cluster.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError

FORMS = ("bulk", "tensor")
PTX = {
    "bulk": "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster",
    "tensor": "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    ".multicast::cluster",
}
SASS = {"bulk": "UBLKCP.S.G.MULTICAST", "tensor": "UTMALDG.2D.MULTICAST"}
ROW = 256
"""Bytes of a row of the tensor."""


def exists(arch: str) -> bool:
    """Say whether an architecture has multicast: for sm_120 ptxas 13.5 makes a call of it."""
    return 90 <= int(arch.strip("sm_af")) < 120


def check_arch(arch: str) -> None:
    """Raise UsageError if an architecture has no multicast."""
    if not exists(arch):
        emulated = arch.startswith("sm_12")
        what = "is not native on" if emulated else "does not exist on"
        more = ": ptxas makes a call of it, beside a copy to one block" if emulated else ""
        raise UsageError(f"multicast {what} {arch}{more}; legal: sm_90 to sm_110a", "--arch sm_90a")


def check_mask(mask: int, blocks: int) -> None:
    """Raise UsageError if this is no mask of blocks of the cluster, at least one of them."""
    if not 0 < mask < 1 << blocks:
        raise UsageError(
            f"mask {mask:#b} for a cluster of {blocks} blocks; legal: 0b1 to {(1 << blocks) - 1:#b}, "
            "rank 0 in the lowest bit"
        )


def members(mask: int) -> list[int]:
    """Return the ranks of a mask."""
    return [rank for rank in range(mask.bit_length()) if mask >> rank & 1]


def account(blocks: int, mask: int, nbytes: int) -> list[int]:
    """Return the bytes that the barrier of each block counts."""
    return [nbytes if mask >> rank & 1 else 0 for rank in range(blocks)]


def windows(blocks: int, mask: int, source: NDArray[np.uint32], poison: int) -> NDArray[np.uint32]:
    """Return shared memory of each block after it."""
    found = np.full((blocks, source.size), poison, dtype=np.uint32)
    found[members(mask)] = source
    return found


def phase(expected: int, landing: int) -> tuple[int, int]:
    """Return whether a phase ended before anything was sent, and whether it ended at all.

    Only for accounts that cannot end it halfway: see ends_halfway().
    """
    return int(expected == 0), int(expected in (0, landing))


def ends_halfway(expected: int, landing: int) -> bool:
    """Say whether the count can pass zero while bytes are on their way: a wait may then return too early."""
    return 0 < expected < landing


def empty_count(mask: int, warps: int) -> int:
    """Return the count of the barrier that tells an issuer that a stage is free.

    Its bytes land in every destination, so that the consumer warps of all of them arrive at it, one thread
    each: with one block's alone it overwrites what another still reads.
    """
    return mask.bit_count() * warps
