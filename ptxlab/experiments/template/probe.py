"""Whose value does each lane hold after shfl.sync.bfly?

Method: every lane hands in its own number, so what it receives names the lane it came from.
Counting: one warp instruction.
Source: PTX ISA, "Data movement and conversion instructions: shfl.sync".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ptxlab.experiments.base import Case, Macros, option
from ptxlab.experiments.probe import Arrays, Geometry, Output, Probe
from ptxlab.experiments.record import Record


class ShuffleProbe(Probe):
    mask = option(1, choices=(1, 2, 4, 8, 16), help="bits in which the two lanes' numbers differ")

    def variants(self, arch: str) -> Iterator[Case]:
        """Every point that `ptxlab probe verify` runs and --record keeps."""
        for mask in (1, 2, 4, 8, 16):
            yield self.case(arch, mask=mask)

    def macros(self, case: Case) -> Macros:
        """The -D macros of kernel.cu."""
        return {"MASK": case.mask}

    def claims(self, case: Case) -> dict[str, int]:
        """What the SASS must hold: opcode -> how often it stands there."""
        return {"SHFL.BFLY": 1}

    def inputs(self, case: Case) -> Arrays:
        """What the kernel reads: data that says where it came from."""
        return {"given": np.arange(32, dtype=np.uint32)}

    def outputs(self, case: Case) -> dict[str, Output]:
        """What the kernel writes; the names of the axes appear where a value differs."""
        return {"received": Output((32,), np.uint32, ("lane",))}

    def geometry(self, case: Case) -> Geometry:
        """The launch: pointers by name, in the order of the kernel's parameters; numpy scalars by value."""
        return Geometry(arguments=("given", "received"), block=(32, 1, 1))

    def expected(self, case: Case) -> Arrays:
        """The prediction, bit for bit; for an instruction of ptxlab this is one call into ptxlab.isa."""
        return {"received": np.arange(32, dtype=np.uint32) ^ np.uint32(case.mask)}

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        """The JSON result. A list of dicts is shown as a table.

        A "registers" list of {"lane", "register", "slot", "row", "col"} is drawn as matrices; "matrix" then
        says their {"rows", "cols"}, "holds" what the registers hold, and "formulas" the map in closed form.
        "notes" are sentences that follow the tables, "titles" what tables, their columns and checks are
        called besides their names, "minor" the columns that a terminal gets with --full alone.
        """
        rows = [{"lane": lane, "from_lane": int(value)} for lane, value in enumerate(outputs["received"])]
        return {"lanes": rows}

    def conclude(self, case: Case, record: Record) -> str:
        """One sentence for a person."""
        return f"Lane i holds the value of lane i ^ {case.mask}."
