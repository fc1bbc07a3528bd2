"""Which lane receives what from movmatrix?

Method: every 16-bit element that a lane hands in carries its row and column; each lane writes what it
receives. Moved twice, the matrix must be back where it was.
Counting: one warp; MOVM is a static count.
Source: PTX ISA, "Warp-level matrix transpose instruction: movmatrix".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.experiments.base import Case, Macros, option
from ptxlab.experiments.probe import Arrays, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import movmatrix as isa
from ptxlab.layout.coordinates import Coordinates

NAMES = Coordinates(8, 8, 16)


class MovMatrixProbe(Probe):
    times = option(1, choices=(1, 2), help="how often the matrix is transposed")

    def variants(self, arch: str) -> Iterator[Case]:
        for times in (1, 2):
            yield self.case(arch, times=times)

    def macros(self, case: Case) -> Macros:
        return {"TIMES": case.times}

    def claims(self, case: Case) -> dict[str, int]:
        return {"MOVM": case.times, isa.SASS: case.times}

    def inputs(self, case: Case) -> Arrays:
        del case
        where = isa.register_map(trans=False)
        names = where.place["row"] << NAMES.column_bits | where.place["col"]
        return {"source": where.pack(names, 1)}

    def outputs(self, case: Case) -> dict[str, Output]:
        del case
        return {"registers": Output((32, 1), np.uint32, ("lane", "register"))}

    def geometry(self, case: Case) -> Geometry:
        del case
        return Geometry(arguments=("source", "registers"))

    def expected(self, case: Case) -> Arrays:
        held: NDArray[Any] = self.inputs(case)["source"]
        for _ in range(case.times):
            held = isa.movmatrix(held)
        return {"registers": held}

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        trans = case.times % 2 == 1
        where = isa.register_map(trans=trans)
        values = where.slots_of(outputs["registers"]).tolist()
        entries = where.entries(outputs["registers"]) if measured else where.entries()
        given = isa.register_map(trans=False).entries()
        return {
            "ptx": isa.PTX,
            "registers": entries,
            "source": [place_of(entry, entry["row"], entry["col"]) for entry in given],
            "holds": [
                place_of(entry, *NAMES.place(value)) for entry, value in zip(entries, values, strict=True)
            ],
            "formulas": isa.formulas(trans=trans),
            "matrix": {"rows": 8, "cols": 8},
        }

    def conclude(self, case: Case, record: Record) -> str:
        del record
        if case.times % 2 == 0:
            return "Transposed twice, every element is back in the lane and half that it came from."
        return (
            "Lane 4*i+j hands in elements 2*j and 2*j+1 of row i and receives those of column i: "
            "one register in, one out, and no shared memory."
        )


def place_of(entry: dict[str, int], row: int, col: int) -> dict[str, int]:
    """Return which element of the matrix a slot of a register holds."""
    return {name: entry[name] for name in ("lane", "register", "slot")} | {"tile_row": row, "tile_col": col}
