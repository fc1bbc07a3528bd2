"""Sums in tensor memory, and one thread that multiplies, by tcgen05: for sm_100a, not run on one yet.

kernel.cu says the idea and what limits it. It is compiled, and its descriptors, tiles and sums are modelled.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ptxlab.device.job import Argument, Dim3
from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, option
from ptxlab.experiments.gemm.pipeline import (
    EMPTY,
    FILL,
    FULL,
    STEP,
    TILE,
    Act,
    Barrier,
    Pipeline,
    Role,
    pipeline_of,
)
from ptxlab.experiments.gemm.problem import TYPES, Problem
from ptxlab.experiments.gemm.wgmma import DEPTH, LINE, PanelStage
from ptxlab.isa.tcgen05 import WARPS
from ptxlab.isa.tcgen05_descriptor import TensorDescriptor, instruction_word
from ptxlab.isa.tcgen05_mma import MmaForm
from ptxlab.isa.wgmma_descriptor import SharedOperand

SUMS = 2  # tiles that tensor memory holds
LOAD = 32  # columns that a warp loads from it at once
ADDRESS = 4  # bytes, of what is allocated there
PANEL = 64  # rows of an operand, of which a box has that is not contiguous in k


class Blackwell(PanelStage):
    """Sums in tensor memory, and one thread that multiplies, by tcgen05."""

    only: ClassVar = "sm_100a"
    why_only: ClassVar = "for whose tcgen05 it is written"
    oldest: ClassVar = 100
    below = "hopper"
    panel_lines: ClassVar = 32

    block = option("128x256", choices=("128x64", "128x128", "128x256"), help="rows and columns of a block")
    stages = option(4, choices=(2, 3, 4, 6, 8), help="tiles that are on their way or being multiplied")
    blocks = option(148, help="blocks that stay: one for each SM", metavar="BLOCKS")

    def ring(self, case: Case) -> int:
        """Return what was chosen."""
        return int(case.stages)

    def threads(self, case: Case) -> int:
        """Return the warps that store, the one that copies and the one that multiplies."""
        return 32 * (self.storing_warps(case) + 2)

    def math_warps(self, case: Case) -> int:
        """Return the one whose thread multiplies."""
        del case
        return 1

    def warp_tile(self, case: Case) -> tuple[int, int]:
        """Return the lanes of tensor memory that a warp reaches, as wide as the block."""
        return self.panel_lines, self.tile(case)[1]

    def storing_warps(self, case: Case) -> int:
        """Return a warp for each quarter of tensor memory."""
        del case
        return WARPS

    def barriers(self, case: Case) -> int:
        """Return those of the stages and of the sums."""
        return super().barriers(case) + 2 * SUMS

    def shared(self, case: Case) -> dict[str, int]:
        """Return, beside the rest, where it stands which columns of tensor memory the block has."""
        return super().shared(case) | {"address of tensor memory": ADDRESS}

    def tensor_memory(self, case: Case) -> dict[str, int]:
        """Return a column for each of a tile's, twice: one tile is stored while the next is added up."""
        return {f"{SUMS} tiles of sums": SUMS * self.tile(case)[1]}

    def pipeline(self, case: Case) -> Pipeline:
        """Return what each warp does: sums wait in tensor memory until they are stored."""
        stages, storing = self.ring(case), self.storing_warps(case)
        step = (Act("wait", FULL), Act("multiply"), Act("commit", EMPTY))
        store = (Act("wait", "sums"), Act("write"), Act("arrive", "drained", 0, storing))
        roles = (
            Role("producer", 32, step=FILL),
            Role("multiplier", 32, begin=(Act("wait", "drained"),), step=step, end=(Act("commit", "sums"),)),
            Role(f"{storing} warps", 32 * storing, end=store),
        )
        barriers = (
            Barrier(FULL, stages, 1, 0, STEP, "all bytes of the stage have landed"),
            Barrier(EMPTY, stages, 1, stages, STEP, "the products that read the stage are finished"),
            Barrier("sums", SUMS, 1, 0, TILE, "all products of the tile are finished"),
            Barrier("drained", SUMS, storing, SUMS, TILE, "all warps have read the tile's sums"),
        )
        words = ("TMA", "tcgen05.mma", "tcgen05.ld, st.shared, fence.proxy.async and TMA store")
        return pipeline_of(self, case, stages, (roles, barriers), words)

    def grid(self, case: Case) -> Dim3:
        """Return the blocks that stay, or fewer where there are not so many tiles."""
        return min(self.tiles(case), int(case.blocks)), 1, 1

    def check(self, case: Case) -> None:
        """Refuse, beside what no such stage takes, no blocks.

        Raises:
            UsageError: there are none.

        """
        super().check(case)
        if int(case.blocks) < 1:
            raise UsageError(f"--set blocks={case.blocks}; legal: 1 and more")

    def macros(self, case: Case) -> Macros:
        """Return the stages too."""
        return {**super().macros(case), "STAGES": self.ring(case)}

    def form(self, case: Case) -> MmaForm:
        """Return the product that one instruction computes."""
        rows, cols, _ = self.tile(case)
        problem = Problem.of(case)
        major_a, major_b = ("MN" if problem.a.by_columns else "K", "K" if problem.b.by_columns else "MN")
        return MmaForm("f16", rows, cols, case.dtype, case.dtype, "f32", a_major=major_a, b_major=major_b)

    def operands(self, case: Case) -> tuple[TensorDescriptor, TensorDescriptor]:
        """Return the descriptors of a tile of A and of B that lie at the start of shared memory."""
        form = self.form(case)
        a, b = ((form.m, form.a_major), (form.n, form.b_major))
        lie = (SharedOperand(0, size, DEPTH, 16, major, "128B").descriptor(0, 0) for size, major in (a, b))
        first, second = (TensorDescriptor(each.start, each.lbo, each.sbo, each.swizzle) for each in lie)
        return first, second

    def arguments(self, case: Case) -> tuple[Argument, ...]:
        """Return what the instruction is told, too: the kernel adds the addresses."""
        a, b = (np.uint64(each.word) for each in self.operands(case))
        instruction = np.uint32(instruction_word(self.form(case)))
        return (*super().arguments(case), a, b, instruction)

    def mma_of(self, case: Case, opcode: str) -> int:
        """Return what one product counts: it has the whole tile, whatever its opcode says."""
        rows, cols, _ = self.tile(case)
        return rows // 16 * (cols // 8) if opcode.startswith("UTCHMMA") else 0

    def claims(self, case: Case) -> dict[str, int]:
        """Return the products of a step, and what fills and empties shared and tensor memory."""
        rows, cols, _ = self.tile(case)
        boxes = ((rows, case.layout[0] == "t"), (cols, case.layout[1] == "n"))
        return {
            "UTCHMMA": DEPTH // self.form(case).k,
            "UTMALDG.2D": sum(1 if along_k else lines // PANEL for lines, along_k in boxes),
            f"LDTM.x{LOAD}": LINE // TYPES[case.out].nbytes // LOAD,
            "UTMASTG.2D": 1,
            "UTCBAR": 2,
            "UTCATOMSWS.FIND_AND_SET.ALIGN": 2,
            "UTCATOMSWS.AND": 1,
        }
