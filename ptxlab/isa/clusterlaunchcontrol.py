"""clusterlaunchcontrol: running blocks take over the work of clusters that have not started.

A request either cancels the launch of one cluster, whose first block's number is the answer, or fails; no two
requests of a grid get the same cluster. So whoever does it, the work of every block is done once. Source: PTX
ISA, "Parallel synchronization and communication instructions: clusterlaunchcontrol". Modelled from that text;
not run on silicon here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError

PTX = "clusterlaunchcontrol.try_cancel.async"
ANSWER_BYTES = 16
"""What an answer counts at the mbarrier."""


def sass(cluster: int) -> str:
    """Return the opcode that ptxas 13 makes of a request (seen in the disassembly of the probe)."""
    return "UGETNEXTWORKID." + ("SELFCAST" if cluster == 1 else "BROADCAST")


def exists_on(arch: str, cluster: int = 1) -> bool:
    """Say whether an architecture has it; an answer to several blocks takes a name with a or f.

    Source: PTX ISA, clusterlaunchcontrol.try_cancel, target notes.
    """
    return int(arch.strip("sm_af")) >= 100 and (cluster == 1 or arch.endswith(("a", "f")))


def check_form(arch: str, blocks: int, cluster: int) -> None:
    """Raise UsageError if an architecture has no such instruction, or a grid is none of whole clusters."""
    if not exists_on(arch, cluster):
        which = "" if cluster == 1 else ".multicast::cluster::all"
        legal = "sm_100 and later" + ("" if cluster == 1 else ", the names with a or f")
        raise UsageError(f"{PTX}{which} does not exist on {arch}; legal: {legal}", "--arch sm_100a")
    if blocks < 1 or blocks % cluster:
        raise UsageError(f"{blocks} blocks; legal: multiples of the {cluster} blocks of a cluster")


def times_done(blocks: int) -> NDArray[np.int64]:
    """Return how often the work of each block of a grid is done."""
    return np.ones(blocks, dtype=np.int64)
