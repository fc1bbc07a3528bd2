"""Do registers move between warpgroups, and when does the compiler ignore setmaxnreg?

Method: of three warpgroups one gives registers back and two take them; these then hold more values at once
than a thread had registers at launch. All that was in a register before must be there afterwards, and the
block must end. The same kernel is compiled with less said about its launch: then SASS has no USETMAXREG.
Counting: registers of one thread; the pool of a block is counted as one thread of each of its warpgroups.
Source: PTX ISA, "Miscellaneous instructions: setmaxnreg".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, option
from ptxlab.experiments.probe import Arrays, Fault, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import setmaxnreg as isa

TAKERS = 2
THREADS = 128 * (1 + TAKERS)
FEW = 8  # values that a thread of the giving warpgroup keeps
SPARE = 40  # registers that are left for addresses
IGNORED_HOLD = 96  # values that fit into what a thread has where setmaxnreg is ignored
BOUND_MACRO = {"min-blocks": 2, "max-threads": 1, "none": 0}


class SetMaxNRegProbe(Probe):
    maps = False
    dec = option(24, metavar="N", help="registers of a thread of the first warpgroup afterwards")
    inc = option(240, metavar="N", help="registers of a thread of the two others afterwards")
    bound = option("min-blocks", choices=tuple(isa.BOUNDS), help="what is said about the launch")
    hold = option(0, metavar="N", help="values that a thread of the two holds; left out: what fits")

    def complete(self, params: dict[str, Value]) -> None:
        """Choose how many values are held where that was left out."""
        kept = params["bound"] == "min-blocks"
        params["hold"] = params["hold"] or (int(str(params["inc"])) - SPARE if kept else IGNORED_HOLD)

    def check(self, case: Case) -> None:
        isa.check_arch(case.arch)
        budget(case).check()
        most = case.inc - SPARE if is_kept(case) else IGNORED_HOLD
        if not FEW < case.hold <= most:
            raise UsageError(
                f"{case.hold} values held at once; legal: {FEW + 1} to {most}, so that all are in registers"
            )

    def variants(self, arch: str) -> Iterator[Case]:
        if not arch.endswith(("a", "f")) or int(arch.strip("sm_af")) < 90:
            return
        pairs = ((24, 240), (24, 168), (40, 232), (40, 200), (56, 224), (88, 208), (104, 192), (168, 168))
        yield from (self.case(arch, dec=dec, inc=inc) for dec, inc in pairs)
        for bound in ("max-threads", "none"):
            yield from (self.case(arch, dec=dec, inc=inc, bound=bound) for dec, inc in ((24, 240), (40, 232)))

    def macros(self, case: Case) -> Macros:
        return {"BOUND": BOUND_MACRO[case.bound], "DEC": case.dec, "INC": case.inc, "HOLD": case.hold}

    def claims(self, case: Case) -> dict[str, int]:
        if not is_kept(case):
            return {"USETMAXREG": 0, isa.ADVISORY: 1}
        return {"USETMAXREG": 2, isa.SASS["dec"]: 1, isa.SASS["inc"]: 1}

    def inputs(self, case: Case) -> Arrays:
        return {"values": numbered(case.hold, 128 * TAKERS), "few": numbered(FEW, 128)}

    def outputs(self, case: Case) -> dict[str, Output]:
        return {
            "held": Output((case.hold, 128 * TAKERS), np.uint32, ("value", "thread")),
            "kept": Output((FEW, 128), np.uint32, ("value", "thread")),
        }

    def geometry(self, case: Case) -> Geometry:
        del case
        return Geometry(arguments=("values", "few", "held", "kept"), block=(THREADS, 1, 1))

    def fault(self, case: Case) -> Fault | None:
        own = budget(case)
        if not is_kept(case) or own.wanted <= own.pool:
            return None
        return Fault(
            "register pool",
            f"{sums(case)}: {TAKERS - own.served} of {TAKERS} inc wait for ever; "
            f"legal: --inc up to {own.most}",
        )

    def expected(self, case: Case) -> Arrays:
        given = self.inputs(case)
        return {"held": given["values"] & np.uint32(0xFFFF), "kept": given["few"]}

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        del outputs, measured
        own, kept = budget(case), is_kept(case)
        rows = [
            {
                "warpgroup": group,
                "PTX": f"setmaxnreg.{'dec' if group == 0 else 'inc'} {own.dec if group == 0 else own.inc}",
                "at launch": own.launch if kept else "as compiled",
                "afterwards": granted(own, group) if kept else "the same",
                "holds at once": FEW if group == 0 else case.hold if not kept or served(own) else None,
            }
            for group in range(1 + TAKERS)
        ]
        pool = [
            {
                "when": "all have at launch",
                "of one thread of each": own.pool,
                "of all threads": 128 * own.pool,
            },
            {
                "when": "all want afterwards",
                "of one thread of each": own.wanted,
                "of all threads": 128 * own.wanted,
            },
        ]
        titles = {
            "warpgroups": "registers of one thread of each warpgroup",
            "pool": f"registers of a block of {1 + TAKERS} warpgroups",
        }
        found: dict[str, Any] = {"ptx": f"setmaxnreg, {isa.BOUNDS[case.bound] or 'no launch bound'}"}
        found |= {"warpgroups": rows, "titles": titles}
        return found | ({"pool": pool, "pictures": [picture(own)]} if kept else {})

    def conclude(self, case: Case, record: Record) -> str:
        own = budget(case)
        if not is_kept(case):
            said = next(iter(record.result.get("sass", {}).get("advisories", [])), isa.ADVISORY)
            return (
                f"ptxas ignores it: {said} It must know how many registers a thread has at launch, and that "
                f"takes {isa.BOUNDS['min-blocks']}; a bound on the threads alone does not do."
            )
        if fault := self.fault(case):
            return f"The block never ends: {fault.reason}."
        more = f", {case.hold - own.launch} more than it had registers" if case.hold > own.launch else ""
        return (
            f"A thread starts with {own.launch} registers; after dec to {own.dec} and inc to {own.inc} one "
            f"of the two other warpgroups holds {case.hold} values at once{more}: no value spills or is lost."
        )


def budget(case: Case) -> isa.Budget:
    """Return who has how many registers."""
    return isa.Budget(TAKERS, case.dec, case.inc)


def sums(case: Case) -> str:
    """Say what all warpgroups want of what they have, counted as one thread of each."""
    own = budget(case)
    wanted = " + ".join(map(str, (own.dec, *[own.inc] * TAKERS)))
    has = f"{1 + TAKERS} x {own.launch} = {own.pool}"
    return f"one thread of each warpgroup want {wanted} = {own.wanted} registers together, and have {has}"


def served(own: isa.Budget) -> bool:
    """Say whether every inc gets what it wants."""
    return own.served == TAKERS


def granted(own: isa.Budget, group: int) -> int | str:
    """Return the registers of a thread of a warpgroup afterwards; who is first no model knows."""
    if group == 0:
        return own.dec
    if served(own):
        return own.inc
    return f"{own.inc}, or waits" if own.served else "waits"


def picture(own: isa.Budget) -> dict[str, Any]:
    """Draw the registers of a thread of each warpgroup, before and after: the colour is their number."""
    cells = [[own.launch, granted(own, group)] for group in range(1 + TAKERS)]
    return {
        "title": "registers of one thread, coloured by their number",
        "cells": [[str(cell) for cell in row] for row in cells],
        "colours": [
            [cell // isa.LEGAL.step if isinstance(cell, int) else None for cell in row] for row in cells
        ],
        "row_names": [f"warpgroup {group}" for group in range(1 + TAKERS)],
        "column_names": ["at launch", "afterwards"],
    }


def is_kept(case: Case) -> bool:
    """Say whether ptxas keeps the instruction."""
    return bool(case.bound == "min-blocks")


def numbered(values: int, threads: int) -> Any:
    """Return values that each carry their index and thread."""
    value, thread = np.indices((values, threads), dtype=np.uint32)
    return value << np.uint32(16) | thread
