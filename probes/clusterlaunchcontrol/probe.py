"""Who does the work of blocks that never start?

Method: each block does its own work and then asks, until there is nothing left, for that of a cluster that
has not started; the work of a block is to count itself. Whoever does it, each count must be 1.
Counting: one grid; the opcode is a static count.
Source: PTX ISA, "Parallel synchronization and communication instructions: clusterlaunchcontrol".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, option
from ptxlab.experiments.probe import Arrays, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import clusterlaunchcontrol as isa

MOST_BLOCKS = 1 << 20
SHOWN, ACROSS = 64, 16
"""Blocks in the picture, and in a row of it."""


def picture(times: NDArray[Any], cluster: int) -> dict[str, Any]:
    """Return how often the work of the first blocks was done as a grid; a colour is a cluster."""
    rows = range(0, len(times), ACROSS)
    places = [[block if block < len(times) else None for block in range(row, row + ACROSS)] for row in rows]
    return {
        "title": f"how often the work of the first {len(times)} blocks was done; a colour is a cluster",
        "cells": [["" if block is None else str(times[block]) for block in row] for row in places],
        "colours": [[None if block is None else block // cluster for block in row] for row in places],
        "row_names": [f"from block {row}" for row in rows],
        "column_names": [f"+{column}" for column in range(ACROSS)],
    }


class ClusterLaunchControlProbe(Probe):
    maps = False
    blocks = option(4096, metavar="N", help="blocks of the grid: more than the device holds at once")
    cluster = option(1, choices=(1, 2, 4, 8), help="blocks of a cluster")

    def check(self, case: Case) -> None:
        isa.check_form(case.arch, case.blocks, case.cluster)
        if case.blocks > MOST_BLOCKS:
            raise UsageError(f"{case.blocks} blocks; this probe takes up to {MOST_BLOCKS}")

    def variants(self, arch: str) -> Iterator[Case]:
        for cluster in (1, 2, 4, 8):
            if isa.exists_on(arch, cluster):
                yield self.case(arch, cluster=cluster)

    def macros(self, case: Case) -> Macros:
        return {"CLUSTER": case.cluster}

    def claims(self, case: Case) -> dict[str, int]:
        return {"UGETNEXTWORKID": 1, isa.sass(case.cluster): 1}

    def inputs(self, case: Case) -> Arrays:
        del case
        return {}

    def outputs(self, case: Case) -> dict[str, Output]:
        return {"done": Output((case.blocks,), np.int32, ("block",))}

    def geometry(self, case: Case) -> Geometry:
        grid = (case.blocks, 1, 1)
        return Geometry(arguments=("done",), grid=grid, cluster=(case.cluster, 1, 1))

    def expected(self, case: Case) -> Arrays:
        counts = isa.times_done(case.blocks) - 1  # counters start at -1
        return {"done": counts.astype(np.int32)}

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        del measured
        times, blocks = np.unique(outputs["done"] + 1, return_counts=True)
        rows = zip(times.tolist(), blocks.tolist(), strict=True)
        return {
            "ptx": isa.PTX,
            "work": [{"done": f"{n} times" if n != 1 else "once", "blocks": count} for n, count in rows],
            "answer": [
                {"bytes at the mbarrier of each block": isa.ANSWER_BYTES, "blocks that get it": case.cluster}
            ],
            "titles": {
                "work": "how often the work of a block was done",
                "answer": "where the answer to a request lands",
            },
            "pictures": [picture(outputs["done"][:SHOWN] + 1, case.cluster)],
        }

    def conclude(self, case: Case, record: Record) -> str:
        del case, record
        return (
            "The work of every block is done once, by whichever block is running: a request that succeeds "
            "takes a cluster over, one that fails ends the asking."
        )
