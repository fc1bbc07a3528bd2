"""movmatrix: one warp transposes an 8x8 matrix of 16-bit elements that it holds in one register of each lane.

What goes in is laid out as ldmatrix leaves a matrix, what comes out as ldmatrix.trans does.
Source: PTX ISA, "Warp-level matrix transpose instruction: movmatrix"; proven on silicon by the recordings of
the movmatrix probe.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.isa import ldmatrix
from ptxlab.isa.ldmatrix import LdMatrixForm
from ptxlab.isa.registers import RegisterMap

PTX = "movmatrix.sync.aligned.m8n8.trans.b16"
SASS = "MOVM.16.MT88"
"""The opcode that ptxas 13 makes of it (seen in the disassembly of the movmatrix probe)."""


def register_map(*, trans: bool) -> RegisterMap:
    """Return who holds which element of the source matrix, before (not ``trans``) or after the move."""
    return ldmatrix.register_map(_form(trans=trans))


def formulas(*, trans: bool) -> dict[str, str]:
    """Return the same map in closed form, both directions, as expressions that a test evaluates."""
    return ldmatrix.formulas(_form(trans=trans))


def movmatrix(registers: NDArray[np.uint32]) -> NDArray[Any]:
    """Return the register of every lane after the move, shape [32, 1] as the one before."""
    before, after = register_map(trans=False), register_map(trans=True)
    matrix = np.zeros((8, 8), dtype=np.uint64)
    matrix[before.place["row"], before.place["col"]] = before.slots_of(registers)
    return after.pack(matrix[after.place["row"], after.place["col"]], 1)


def _form(*, trans: bool) -> LdMatrixForm:
    return LdMatrixForm("m8n8", 1, trans)
