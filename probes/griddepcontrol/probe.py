"""When does a dependent kernel start, and what does it see of the kernel ahead of it?

Method: a kernel is launched twice in a row. The first waits a bounded time for a sign that the second gives
as soon as it runs, then writes words that carry their place; the second waits for it as told, and passes on
what it reads. Whether the sign was seen tells whether the two ran at the same time.
Counting: ACQBULK and PREEXIT are static counts; blocks of either launch.
Source: PTX ISA, "Parallel synchronization and communication instructions: griddepcontrol".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, option
from ptxlab.experiments.probe import Arrays, Fault, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import griddepcontrol as isa

LANES = 32
MOST_BLOCKS = 64  # of both launches together they fit on the chip at once
ALL = -1
RULES = {
    "launch_dependents": "lets the next grid start once all blocks have called it or ended; orders no memory",
    "wait": "returns when the grid ahead has ended altogether and its writes are seen",
    "without the attribute": "of the launch, the grids run one after the other, and both do nothing",
    "before the wait": "is the place for what does not depend on the grid ahead: barriers, tensor maps",
    "in every thread": "that reads what the grid ahead wrote: the wait is no barrier for the others",
}


class GridDepControlProbe(Probe):
    maps = False
    launch = option(
        "early", choices=tuple(isa.LAUNCHES), help="where the first kernel calls launch_dependents"
    )
    wait = option("yes", choices=("yes", "no"), help="whether the second calls griddepcontrol.wait")
    attribute = option("yes", choices=("yes", "no"), help="whether the second is launched as a dependent")
    blocks = option(1, metavar="N", help="of each launch")
    callers = option(ALL, metavar="N", help="blocks that call launch_dependents; left out: all")

    def complete(self, params: dict[str, Value]) -> None:
        """Write every point in one way, whichever way it was typed, so that it finds its recording."""
        if params["launch"] == "never" and params["callers"] != ALL:
            raise UsageError(f"--callers {params['callers']} with --launch never; legal: with early and late")
        if params["callers"] == params["blocks"]:
            params["callers"] = ALL

    def check(self, case: Case) -> None:
        isa.check_arch(case.arch)
        if not 1 <= case.blocks <= MOST_BLOCKS:
            raise UsageError(f"{case.blocks} blocks; this probe takes 1 to {MOST_BLOCKS}: all run at once")
        if not 0 <= callers(case) <= case.blocks:
            raise UsageError(f"{case.callers} callers; legal: 0 to {case.blocks}, the number of blocks")

    def variants(self, arch: str) -> Iterator[Case]:
        if int(arch.strip("sm_af")) < 90:
            return
        for launch in isa.LAUNCHES:
            yield self.case(arch, launch=launch)
        yield self.case(arch, attribute="no")
        yield self.case(arch, attribute="no", wait="no")
        yield self.case(arch, wait="no")
        yield from (self.case(arch, blocks=4, callers=callers) for callers in (4, 3))
        yield self.case(arch, blocks=64)

    def macros(self, case: Case) -> Macros:
        return {"LAUNCH": ("never", "early", "late").index(case.launch), "WAIT": int(case.wait == "yes")}

    def claims(self, case: Case) -> dict[str, int]:
        return {
            isa.SASS["wait"]: int(case.wait == "yes"),
            isa.SASS["launch_dependents"]: int(case.launch != "never"),
        }

    def inputs(self, case: Case) -> Arrays:
        return {"values": values(case), "sign": np.zeros(1, dtype=np.uint32)}

    def outputs(self, case: Case) -> dict[str, Output]:
        words = Output((case.blocks, LANES), np.uint32, ("block", "lane"))
        return {"data": words, "met": Output((case.blocks,), np.uint32, ("block",)), "passed_on": words}

    def geometry(self, case: Case) -> tuple[Geometry, ...]:
        rest = (np.uint32(callers(case)), "values", "sign", "data", "met", "passed_on")
        return tuple(
            Geometry(
                arguments=(np.uint32(dependent), *rest),
                grid=(case.blocks, 1, 1),
                programmatic=bool(dependent) and case.attribute == "yes",
            )
            for dependent in (0, 1)
        )

    def fault(self, case: Case) -> Fault | None:
        if is_ordered(case):
            return None
        return Fault(
            "grid dependency",
            "the dependent reads what the kernel ahead writes without griddepcontrol.wait: it may come too "
            "early; a run that went well proves nothing",
            certain=False,
        )

    def expected(self, case: Case) -> Arrays:
        met = np.full(case.blocks, overlaps(case), dtype=np.uint32)
        return {"data": values(case), "met": met, "passed_on": values(case)}

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        known = measured or is_ordered(case)
        met, right = int(outputs["met"].sum()), int((outputs["passed_on"] == values(case)).sum())
        return {
            "ptx": "griddepcontrol.launch_dependents, griddepcontrol.wait",
            "launches": [
                {"launch": "the kernel ahead", "SASS": isa.SASS["launch_dependents"],
                 "calls it": isa.LAUNCHES[case.launch], "blocks that call it": calling(case)},
                {"launch": "the dependent", "SASS": isa.SASS["wait"],
                 "calls it": "before it reads" if case.wait == "yes" else "not at all",
                 "blocks that call it": case.blocks if case.wait == "yes" else 0},
            ],
            "run": [
                {"blocks that saw the dependent run": met, "of": case.blocks,
                 "right words that it read": right if known else "not known",
                 "of words": case.blocks * LANES},
            ],
            "pictures": [picture(case, met=met > 0)],
            "rules": [{"of": name, "rule": rule} for name, rule in RULES.items()],
        }  # fmt: skip

    def conclude(self, case: Case, record: Record) -> str:
        del record
        if not is_ordered(case):
            return (
                "Nothing orders the two: what the dependent reads is left to chance. Put the wait before it."
            )
        if case.attribute == "no":
            return "Without the attribute of the launch the second kernel starts when the first has ended."
        if overlaps(case):
            return (
                "The dependent runs while the kernel ahead still does, and reads what that writes later all "
                "the same: griddepcontrol.wait waits for its end, not for launch_dependents."
            )
        if callers(case) < case.blocks:
            missing = f"{case.blocks - callers(case)} of {case.blocks} blocks"
            return f"{missing} do not call launch_dependents: the dependent starts when they have ended."
        where = isa.LAUNCHES[case.launch].partition(":")[0]
        return f"launch_dependents stands {where}: the dependent does not run while it is waited for."


def callers(case: Case) -> int:
    """Return how many blocks may call launch_dependents."""
    return int(case.blocks if case.callers == ALL else case.callers)


def calling(case: Case) -> int:
    """Return how many blocks do."""
    return 0 if case.launch == "never" else callers(case)


def overlaps(case: Case) -> bool:
    """Say whether the kernel ahead sees the dependent run."""
    return isa.overlaps(case.launch, case.blocks, callers(case), programmatic=case.attribute == "yes")


def is_ordered(case: Case) -> bool:
    """Say whether the dependent sees what the kernel ahead wrote."""
    return isa.is_ordered(wait=case.wait == "yes", programmatic=case.attribute == "yes")


def picture(case: Case, *, met: bool) -> dict[str, Any]:
    """Draw what the two launches do one after the other, from left to right."""
    ahead = [
        "allows" if case.launch == "early" else "",
        "meets it" if met else "in vain",
        "writes",
        "allows" if case.launch == "late" else "",
        "ends",
        "",
    ]
    waits = "waits" if case.wait == "yes" else ""
    dependent = [""] * 5 + ["reads"]
    if met:
        dependent = ["", "starts", waits, waits, waits, "reads"] if waits else ["", "reads", *[""] * 4]
    rows = {"kernel ahead": ahead, "dependent": dependent}
    return {
        "title": "what runs at the same time, from left to right",
        "cells": list(rows.values()),
        "colours": [[9 * i if cell else None for cell in row] for i, row in enumerate(rows.values())],
        "row_names": list(rows),
        "column_names": ["start", "watch", "data", "late", "end", "after"],
    }


def values(case: Case) -> NDArray[np.uint32]:
    """Return words that carry their block and lane."""
    block, lane = np.indices((case.blocks, LANES), dtype=np.uint32)
    words: NDArray[np.uint32] = np.uint32(1 << 20) | block << np.uint32(8) | lane
    return words
