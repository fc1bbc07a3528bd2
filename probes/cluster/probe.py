"""Which cluster sizes launch, which block has which rank, and what does the barrier of a cluster order?

Method: every block writes out the registers that tell its place. Then, 8 times over, each block puts a number
into its own shared memory, waits for its cluster, and reads the number of the block one rank higher. A size
that needs permission and does not get it is left to the driver's refusal. What fits is asked from the device.
Counting: sizes in blocks, x first; clusters at once on the whole device; static SASS. Without a device the
number of clusters at once is a bound for 132 SMs, and what explains all that one H200 said; cards differ, and
for other architectures none is told.
Source: PTX ISA, "Special registers", "barrier.cluster"; CUDA programming guide, "Thread block clusters".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, option
from ptxlab.experiments.probe import Arrays, Fault, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import cluster as isa
from ptxlab.isa.cluster import FACTS, Dim3

ROUNDS = 8
THREADS = 32
STATIC_BYTES = 4
MOST_BLOCKS = 2048
SMS = sum(isa.GPCS_OF_H200)
SHOWN_BLOCKS = 32
SHOWN_GRIDS = 2


class ClusterProbe(Probe):
    maps = False
    size = option("2", metavar="N|XxY|XxYxZ", help="blocks of a cluster; several (3,8,16) in order")
    non_portable = option(default=False, help="allow more than 8 blocks")
    smem = option(0, metavar="BYTES", help="dynamic shared memory of a block")
    grid = option("", metavar="N|XxY|XxYxZ", help="blocks of the grid; left out: two clusters")
    barrier = option(
        "release",
        choices=("release", "relaxed", "aligned"),
        help="form of the arrive; relaxed has a fence before it",
    )

    def complete(self, params: dict[str, Value]) -> None:
        """Write every point in one way: permission changes nothing where none is needed."""
        sizes = [isa.parse_dims(each, "--size") for each in str(params["size"]).split(",")]
        params["size"] = ",".join(map(isa.text_of, sizes))
        if max(map(math.prod, sizes)) <= isa.PORTABLE:
            params["non_portable"] = False

    def check(self, case: Case) -> None:
        isa.check_arch(case.arch)
        whole = isa.most_shared(case.arch)
        if not 0 <= case.smem <= whole - STATIC_BYTES:
            raise UsageError(
                f"--smem {case.smem}; legal: 0 to {whole - STATIC_BYTES} bytes: of the {whole} that a block "
                f"can have, this probe's kernel needs {STATIC_BYTES} itself"
            )
        for cluster, grid in launches(case):
            isa.check_size(cluster, case.arch)
            isa.check_grid(grid, cluster)
        if total(case) > MOST_BLOCKS:
            raise UsageError(f"{total(case)} blocks in all; this probe takes up to {MOST_BLOCKS}")

    def variants(self, arch: str) -> Iterator[Case]:
        if isa.exists(arch):
            yield from (self.case(arch, **params) for params in points(arch))

    def macros(self, case: Case) -> Macros:
        return {"BARRIER": case.barrier}

    def claims(self, case: Case) -> dict[str, int]:
        waits = 4 if case.barrier == "relaxed" else 2  # a fence acquires, too
        return {isa.ARRIVE_SASS: 2, isa.WAIT_SASS: 2, "MEMBAR.ALL.GPU": 2, "CCTL.IVALL": waits}

    def inputs(self, case: Case) -> Arrays:
        del case
        return {}

    def outputs(self, case: Case) -> dict[str, Output]:
        return {
            "places": Output((total(case), len(FACTS)), np.uint32, ("block", "fact")),
            "received": Output((total(case), ROUNDS), np.uint32, ("block", "round")),
        }

    def geometry(self, case: Case) -> tuple[Geometry, ...]:
        found, first = [], 0
        for cluster, grid in launches(case):
            found.append(
                Geometry(
                    arguments=("places", "received", np.uint32(first), np.uint32(ROUNDS)),
                    grid=grid,
                    block=(THREADS, 1, 1),
                    shared_bytes=case.smem,
                    cluster=cluster,
                    portable=not case.non_portable,
                )
            )
            first += math.prod(grid)
        return tuple(found)

    def fault(self, case: Case) -> Fault | None:
        refused = [each for each, _ in launches(case) if needs_permission(each) and not case.non_portable]
        if not refused:
            return None
        text = isa.text_of(refused[0])
        return Fault(
            "cluster size",
            f"a cluster of {text} has {math.prod(refused[0])} blocks; the driver launches up to "
            f"{isa.PORTABLE}, as every chip with clusters does, and more with --non-portable",
        )

    def expected(self, case: Case) -> Arrays:
        places, received, first = [], [], 0
        for cluster, grid in launches(case):
            places.append(isa.places(grid, cluster))
            numbers = first + np.array(isa.neighbours(grid, cluster), dtype=np.uint32)
            received.append(numbers[:, None] * ROUNDS + np.arange(ROUNDS, dtype=np.uint32))
            first += math.prod(grid)
        return {
            "places": np.concatenate(places),
            "received": np.concatenate(received).astype(np.uint32),
        }

    def examine(self, case: Case, outputs: Arrays, record: Record) -> None:
        del outputs
        said = record.result.get("clusters")
        if not said:
            return
        cluster, _ = launches(case)[-1]
        size = math.prod(cluster)
        sms = record.environment["device"]["multiprocessors"]
        bound = isa.most_active(size, blocks_of_sm(case), sms)
        told = f"{said['active']} clusters of {isa.text_of(cluster)} at once; the SMs hold {bound} or less"
        record.check("clusters at once", ok=1 <= said["active"] <= bound, detail=told)
        largest = isa.most_blocks(case.arch) if needs_permission(cluster) else isa.PORTABLE
        told = f"the device says that {said['largest']} blocks are the most, the model {largest}"
        record.check("largest cluster", ok=said["largest"] == largest, detail=told)

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        del measured
        pictures: list[dict[str, Any]] = []
        first = 0
        for cluster, grid in launches(case):
            own = outputs["places"][first : first + math.prod(grid)]
            runs = case.non_portable or not needs_permission(cluster)
            pictures += [picture(cluster, grid, own)] if runs and len(pictures) < SHOWN_GRIDS else []
            first += math.prod(grid)
        cluster, grid = launches(case)[0]
        runs = case.non_portable or not needs_permission(cluster)
        shown = [i for i in range(math.prod(grid)) if runs and not outputs["places"][i, 6:9].any()]
        return {
            "ptx": f"barrier.cluster.arrive, --size {case.size}",
            "launches": [launch_row(case, cluster, grid) for cluster, grid in launches(case)],
            "first_cluster": [
                {
                    "block": dims(place[0:3]),
                    "clusterid": dims(place[6:9]),
                    "cluster_ctaid": dims(place[12:15]),
                    "cluster_nctaid": dims(place[15:18]),
                    "cluster_ctarank": int(place[18]),
                    "received from block": int(outputs["received"][i, -1]) // ROUNDS,
                }
                for i, place in ((i, outputs["places"][i]) for i in shown)
            ],
            "pictures": pictures,
            "titles": {"first_cluster": "blocks of the first cluster, as %clusterid, %cluster_ctaid, … say"},
        }

    def conclude(self, case: Case, record: Record) -> str:
        fault = self.fault(case)
        if fault:
            return f"Refused: {fault.reason}."
        fits = ""
        said = record.result.get("clusters")
        if said:
            fits = f" This device holds {said['active']} clusters of {case.size.split(',')[-1]} at once."
        return (
            f"Clusters of {case.size.replace(',', ', ')} launch; a rank counts x first, then y and z. What a "
            f"block wrote before it arrived was read by its neighbour after the wait, {ROUNDS} times.{fits}"
        )


def _of(**params: Value) -> dict[str, Value]:
    return params


def points(arch: str) -> Iterator[dict[str, Value]]:
    """Yield the points that an architecture has clusters and shared memory for."""
    for params in every_point():
        sizes = [isa.parse_dims(each, "size") for each in str(params["size"]).split(",")]
        room = isa.most_shared(arch) - STATIC_BYTES
        if max(map(math.prod, sizes)) <= isa.most_blocks(arch) and int(params.get("smem") or 0) <= room:
            yield params


def every_point() -> Iterator[dict[str, Value]]:
    """Yield sizes, shapes, grids, the forms of the barrier, and what is refused."""
    for blocks in range(1, 9):
        yield _of(size=str(blocks))
    for size in ("1x2", "2x2", "1x1x2", "2x1x2", "2x2x2", "3x1x2", "1x4x2"):
        yield _of(size=size, grid="6x8x4")
    for size in ("9", "12", "16", "4x4", "2x4x2"):
        yield _of(size=size, non_portable=True)
    yield _of(size="3,8,16", non_portable=True, smem=229_376)
    yield _of(size="16")
    yield _of(size="3,8,16", smem=229_376)
    yield _of(size="16", non_portable=True, smem=229_376)
    for size in ("2", "4", "8"):
        yield _of(size=size, smem=229_376, grid=str(16 * int(size)))
    for barrier in ("relaxed", "aligned"):
        for size in ("2", "8"):
            yield _of(size=size, barrier=barrier)


@lru_cache(maxsize=256)
def launches(case: Case) -> list[tuple[Dim3, Dim3]]:
    """Return the cluster and the grid of each launch."""
    found = []
    for text in case.size.split(","):
        x, y, z = isa.parse_dims(text, "--size")
        grid = isa.parse_dims(case.grid, "--grid") if case.grid else (2 * x, y, z)
        found.append(((x, y, z), grid))
    return found


def total(case: Case) -> int:
    """Return the blocks of all launches."""
    return sum(math.prod(grid) for _, grid in launches(case))


def needs_permission(cluster: Dim3) -> bool:
    """Say whether a cluster is larger than the portable ones."""
    return math.prod(cluster) > isa.PORTABLE


def blocks_of_sm(case: Case) -> int:
    """Return how many blocks an SM holds."""
    return isa.blocks_of_sm(case.smem + STATIC_BYTES, THREADS)


def launch_row(case: Case, cluster: Dim3, grid: Dim3) -> dict[str, Any]:
    """Return what the model says of one launch."""
    size, of_sm = math.prod(cluster), blocks_of_sm(case)
    refused = needs_permission(cluster) and not case.non_portable
    row = {
        "cluster": isa.text_of(cluster),
        "blocks": size,
        "grid": isa.text_of(grid),
        "launches": "refused" if refused else "yes, not portable" if needs_permission(cluster) else "yes",
    }
    if not is_hopper(case.arch):  # another chip has other SMs, and others of them together
        return row
    return row | {
        "blocks an SM holds": of_sm,
        f"at once, {SMS} SMs: at most": isa.most_active(size, of_sm, SMS),
        "by an H200's GPCs": isa.active(size, of_sm),
    }


def is_hopper(arch: str) -> bool:
    """Say whether an H200 is a chip of this architecture."""
    return arch.startswith("sm_90")


def dims(numbers: Any) -> str:
    """Return "1,0,0"."""
    return ",".join(str(int(each)) for each in numbers)


def picture(cluster: Dim3, grid: Dim3, places: Any) -> dict[str, Any]:
    """Draw the blocks of the first layer of a grid: their ranks, coloured by cluster."""
    columns, rows = min(grid[0], SHOWN_BLOCKS), min(grid[1], SHOWN_BLOCKS)
    at = [[places[y * grid[0] + x] for x in range(columns)] for y in range(rows)]
    across = grid[0] // cluster[0]
    return {
        "title": f"rank of each block, coloured by cluster of {isa.text_of(cluster)}; z = 0",
        "cells": [[str(int(place[18])) for place in row] for row in at],
        "colours": [[int(place[6] + across * place[7]) for place in row] for row in at],
        "row_names": [f"y {y}" for y in range(rows)],
        "column_names": [f"x {x}" for x in range(columns)],
    }
