"""Does the solved swizzle read a tile without bank conflicts, and every element of it?

Method: warps copy a tile into shared memory through the device function that `ptxlab swizzle solve --emit
cuda` prints, and read it with ldmatrix through the same function. Every 32-bit word of the tile carries its
own number, so that the registers tell whether each element came; wavefronts and conflicts of LDSM come from
hardware counters, read through ncu.
Counting: all ldmatrix of one block, which read the tile once.
Source: PTX ISA, "ldmatrix"; NVIDIA Nsight Compute, "Kernel Profiling Guide", metrics of the L1 data stage.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, option
from ptxlab.experiments.probe import Arrays, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.experiments.swizzle import Question, function, of_elements, question
from ptxlab.isa import ldmatrix as isa
from ptxlab.layout import solver
from ptxlab.layout.swizzle import Swizzle, parse_swizzle

ACCESSES = tuple(f"ldmatrix.x{n}{trans}" for n in (1, 2, 4) for trans in ("", ".trans"))
LANES = 32
ALIGNMENT = 8192
LARGEST = 128 * 1024
TABLE = ("1,3,3", "2,3,3", "3,3,3", "3,3,4", "2,3,4")


class SwizzleProbe(Probe):
    maps = False

    tile = option("16x64", metavar="ROWSxCOLS", help="the tile in shared memory; :m-major for columns")
    dtype = option(
        "f16", choices=("f16", "bf16", "tf32", "f32", "e4m3", "e5m2", "s8", "u8"), help="of its elements"
    )
    access = option("ldmatrix.x4", choices=ACCESSES, help="how it is read")
    warps = option(1, choices=(1, 2, 4, 8), help="warps that share the instructions")
    swizzle = option(
        "solved", metavar="solved|none|MODE|B,M,S", help="a mode, B,M,S in elements, or the solver's"
    )

    def check(self, case: Case) -> None:
        traffic, found = asked(case).traffic, chosen(case)
        if found.bits and (1 << found.base < solver.VECTOR_BYTES or found.period > ALIGNMENT):
            raise UsageError(
                f"swizzle {case.swizzle} is {found} of bytes; legal: M from 4, a period up to {ALIGNMENT}"
            )
        if not solver.stays_inside(found, traffic.nbytes):
            raise UsageError(
                f"swizzle {case.swizzle} moves elements outside the tile of {traffic.nbytes} bytes"
            )
        if traffic.nbytes > LARGEST:
            raise UsageError(f"the tile has {traffic.nbytes} bytes; legal: up to {LARGEST}")

    def identity(self, case: Case) -> Hashable:
        return (case.tile, case.dtype, case.access, case.warps, chosen(case))

    def variants(self, arch: str) -> Iterator[Case]:
        for tile, warps in (("16x16", 1), ("16x32", 2), ("16x64", 4)):
            for swizzle in ("none", "solved"):
                yield self.case(arch, tile=tile, warps=warps, swizzle=swizzle)
        for columns in (16, 32, 64, 128):
            for swizzle in TABLE:
                yield self.case(arch, tile=f"64x{columns}", swizzle=swizzle)
        for swizzle in ("none", "3,3,3", "3,3,4", "3,3,5"):
            yield self.case(arch, tile="128x8:m-major", access="ldmatrix.x4.trans", swizzle=swizzle)
        for dtype, columns in (("tf32", 32), ("e4m3", 64), ("e4m3", 128)):
            for swizzle in ("none", "solved"):
                yield self.case(arch, tile=f"16x{columns}", dtype=dtype, swizzle=swizzle)
        yield self.case(arch, tile="64x48", access="ldmatrix.x2")
        yield self.case(arch, tile="16x64", access="ldmatrix.x1", warps=8)

    def macros(self, case: Case) -> Macros:
        form = form_of(case)
        return {"NUM": form.num, "TRANS": int(form.trans), "PLACED": function(chosen(case).expression)}

    def claims(self, case: Case) -> dict[str, int]:
        return {"LDSM": 1, form_of(case).sass: 1}

    def inputs(self, case: Case) -> Arrays:
        return {"tile": words(case), "offsets": offsets(case).astype(np.uint32)}

    def outputs(self, case: Case) -> dict[str, Output]:
        shape = (len(offsets(case)), LANES, form_of(case).num)
        return {
            "registers": Output(shape, np.uint32, ("instruction", "lane", "register")),
            "wavefronts": Output((1,), np.uint64, ("launch",)),
            "conflicts": Output((1,), np.uint64, ("launch",)),
        }

    def counters(self, case: Case) -> dict[str, str]:
        del case
        return {
            "wavefronts": "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldsm.sum",
            "conflicts": "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum",
        }

    def geometry(self, case: Case) -> Geometry:
        chunks = words(case).nbytes // 16
        return Geometry(
            ("tile", "offsets", "registers", np.uint32(chunks), np.uint32(len(offsets(case)))),
            block=(LANES * case.warps, 1, 1),
            shared_bytes=words(case).nbytes + ALIGNMENT,
        )

    def expected(self, case: Case) -> Arrays:
        memory, form = words(case).view(np.uint8), form_of(case)
        registers = [isa.ldmatrix(memory, lanes, form) for lanes in offsets(case)]
        cost = asked(case).traffic.cost(chosen(case))
        return {
            "registers": np.array(registers, dtype=np.uint32),
            "wavefronts": np.array([cost], dtype=np.uint64),
            "conflicts": np.array([cost - asked(case).traffic.ideal], dtype=np.uint64),
        }

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        traffic, found = asked(case).traffic, chosen(case)
        naive = traffic.cost(solver.plain)
        rows = [
            {
                "": "predicted, no swizzle",
                "wavefronts": naive,
                "ideal": traffic.ideal,
                "conflicts": naive - traffic.ideal,
            },
            _row("predicted", traffic.cost(found), traffic.ideal),
        ]
        if measured and "wavefronts" in outputs:
            rows.append(_row("measured", int(outputs["wavefronts"][0]), traffic.ideal))
        return {
            "swizzle": list(of_elements(found, asked(case).area).parameters),
            "swizzle_bytes": list(found.parameters),
            "costs": rows,
            "cuda": function(found.expression),
            "pictures": [picture(case)],
            "titles": {"costs": f"{len(offsets(case))} {case.access}, which read the tile once"},
            "notes": [f"In CUDA: {function(found.expression)}"],
        }

    def conclude(self, case: Case, record: Record) -> str:
        del record
        traffic, found = asked(case).traffic, chosen(case)
        conflicts = traffic.cost(found) - traffic.ideal
        before = traffic.cost(solver.plain) - traffic.ideal
        name = f"Swizzle{of_elements(found, asked(case).area)}" if found.bits else "No swizzle"
        return f"{name}: {conflicts} conflicts in reading the tile once; {before} as it lies."


def _row(name: str, wavefronts: int, ideal: int) -> dict[str, Any]:
    return {"": name, "wavefronts": wavefronts, "ideal": ideal, "conflicts": max(0, wavefronts - ideal)}


def asked(case: Case) -> Question:
    """Return the tile and its access."""
    return question(case.tile, case.dtype, [case.access], "row")


def form_of(case: Case) -> isa.LdMatrixForm:
    """Return the form of ldmatrix: 16-bit units, whatever the elements are."""
    name = str(case.access)
    return isa.LdMatrixForm(num=int(name.split(".")[1][1:]), trans=name.endswith(".trans"))


def chosen(case: Case) -> Swizzle:
    """Return the swizzle of byte offsets."""
    if case.swizzle != "solved":
        found = parse_swizzle(case.swizzle, asked(case).area.bits)
        return found if found.bits else Swizzle(0, 0, 0)
    solved = solver.solve(asked(case).traffic)
    if solved is None:
        raise UsageError(f"no swizzle reads {case.tile} {case.dtype} without conflicts", "--swizzle none")
    return solved


def offsets(case: Case) -> NDArray[np.int64]:
    """Return each lane's offset in the plain tile, [instruction, lane]; idle lanes point where others do."""
    used = asked(case).traffic.passes[0].offsets
    return np.tile(used, (1, LANES // used.shape[1]))


def words(case: Case) -> NDArray[np.uint32]:
    """Return the plain tile: every word is its own number, so that halves differ within 256 KB."""
    return np.arange(asked(case).traffic.nbytes // 4, dtype=np.uint32) * np.uint32(0x10001) + np.uint32(
        0x80000000
    )


def picture(case: Case) -> dict[str, Any]:
    """Draw shared memory in lines of 128 bytes: a cell is the row and chunk of the tile that lie there."""
    traffic, found = asked(case).traffic, chosen(case)
    chunks = np.arange(min(traffic.nbytes, 1024) // 16)
    holder = np.full(-(-len(chunks) // 8) * 8, -1)
    placed = found(chunks * 16) // 16
    inside = placed < len(holder)
    holder[placed[inside]] = chunks[inside]
    rows = (holder * 16 // traffic.row_bytes).reshape(-1, 8)
    places = (holder * 16 % traffic.row_bytes // 16).reshape(-1, 8)
    cells = [
        ["" if row < 0 else f"{row}:{place}" for row, place in zip(*line, strict=True)]
        for line in zip(rows.tolist(), places.tolist(), strict=True)
    ]
    return {
        "title": "row:chunk of the tile in the first lines of shared memory",
        "cells": cells,
        "colours": [[place if row >= 0 else None for row, place in zip(*line, strict=True)]
                    for line in zip(rows.tolist(), places.tolist(), strict=True)],
        "row_names": [f"+{128 * line}" for line in range(len(cells))],
        "column_names": [f"banks {4 * piece}-{4 * piece + 3}" for piece in range(8)],
    }  # fmt: skip
