"""Which lane does elect.sync elect?

Method: the lanes of a mask elect a leader, and each writes the number that it was given and whether it is the
leader itself; lanes outside the mask take no part. Two warps do it twice: the answer must be the same.
Counting: one warp instruction. ELECT is a static count: each elect.sync whose mask the compiler does not know
stands twice in SASS, once for a warp that has diverged.
Source: PTX ISA, "Parallel synchronization and communication instructions: elect.sync".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, bits_of, option
from ptxlab.experiments.probe import Arrays, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import elect as isa

WARPS, ROUNDS = 2, 2
NOBODY = 0xFFFFFFFF  # what a lane outside the mask writes as the leader's number

MASKS = (
    isa.FULL, 0xFFFFFFFE, 0x7FFFFFFF, 0x0000FFFF, 0xFFFF0000, 0xAAAAAAAA, 0x55555555, 0xF0F0F0F0, 0x0F0F0F0F,
    0x00FF0000, 0x80000001, 0x00018000, 0x12345678, 0xDEADBEEF, 0xCAFE0000, 0x00000300,
    *(1 << lane for lane in (0, 1, 7, 15, 16, 30, 31)),
)  # fmt: skip


class ElectProbe(Probe):
    maps = False
    mask = option(f"{isa.FULL:#x}", metavar="0x…", help="the lanes that take part, lane 0 in the lowest bit")

    def check(self, case: Case) -> None:
        isa.check_arch(case.arch)
        isa.check_mask(mask_of(case))

    def variants(self, arch: str) -> Iterator[Case]:
        if int(arch.strip("sm_af")) >= 90:
            for mask in MASKS:
                yield self.case(arch, mask=f"{mask:#x}")

    def claims(self, case: Case) -> dict[str, int]:
        del case
        return {isa.SASS: 2 * ROUNDS}

    def inputs(self, case: Case) -> Arrays:
        del case
        return {}

    def outputs(self, case: Case) -> dict[str, Output]:
        del case
        axes = ("warp", "round", "lane", "told")
        return {"told": Output((WARPS, ROUNDS, 32, 2), np.uint32, axes)}

    def geometry(self, case: Case) -> Geometry:
        return Geometry(arguments=(np.uint32(mask_of(case)), "told"), block=(32 * WARPS, 1, 1))

    def expected(self, case: Case) -> Arrays:
        mask = mask_of(case)
        told = np.full((WARPS, ROUNDS, 32, 2), NOBODY, dtype=np.uint32)
        told[..., 1] = 0
        told[:, :, isa.members(mask), 0] = isa.leader(mask)
        told[:, :, isa.leader(mask), 1] = 1
        return {"told": told}

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        del measured
        mask, told = mask_of(case), outputs["told"]
        leaders = np.flatnonzero(told[0, 0, :, 1]).tolist()
        cells = [["leader" if n in leaders else "member" if mask >> n & 1 else "" for n in range(32)]]
        picture = {
            "title": f"lanes of mask {mask:#010x}",
            "cells": [row[first : first + 8] for row in cells for first in range(0, 32, 8)],
            "colours": [
                [0 if n in leaders else 9 if mask >> n & 1 else None for n in range(first, first + 8)]
                for first in range(0, 32, 8)
            ],
            "row_names": [f"{first}-{first + 7}" for first in range(0, 32, 8)],
            "column_names": [f"+{n}" for n in range(8)],
        }
        rounds = [
            {
                "warp": warp,
                "round": turn,
                "leader": ", ".join(map(str, np.flatnonzero(told[warp, turn, :, 1]).tolist())),
                "told": ", ".join(map(str, sorted(set(told[warp, turn, isa.members(mask), 0].tolist())))),
            }
            for warp in range(WARPS)
            for turn in range(ROUNDS)
        ]
        return {
            "ptx": isa.PTX,
            "mask": f"{mask:#010x}",
            "leader": leaders[0],
            "pictures": [picture],
            "rounds": rounds,
        }

    def conclude(self, case: Case, record: Record) -> str:
        lane = record.result["leader"]
        lowest = "the lowest" if lane == isa.members(mask_of(case))[0] else "not the lowest"
        return (
            f"Lane {lane}, {lowest} of the mask, is elected every time, and every member is told its number."
        )


def mask_of(case: Case) -> int:
    """Return the mask that was typed."""
    mask = bits_of(case.mask)
    if mask < 0:
        raise UsageError(f"'{case.mask}' is no mask; legal: 0x1 to {isa.FULL:#x}")
    return mask
