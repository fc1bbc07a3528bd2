"""A GEMM stage whose blocks bring tiles to shared memory by TMA, where tensor cores read them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from ptxlab.device.job import Argument, Dim3, MapArgument
from ptxlab.errors import MissingError, UsageError
from ptxlab.experiments.base import Case, Macros, option, sizes
from ptxlab.experiments.gemm.machine import at_once
from ptxlab.experiments.gemm.pipeline import Pipeline, Warpgroups, pipeline_of, taking_turns
from ptxlab.experiments.gemm.problem import TYPES, Matrix, Problem
from ptxlab.experiments.gemm.stage import GemmStage
from ptxlab.isa.tensor_map import TensorMap
from ptxlab.isa.wgmma import WgmmaForm

DEPTH = 64
"""Of a tile of 16-bit elements in k: the 128 bytes of a swizzled line."""

INSTRUCTION_ROWS, WIDEST = 64, 256
"""Of one wgmma: m, and the largest n."""

TMA_UNIT = 16
"""Bytes that the distance between two lines of a tensor map is a multiple of."""

MAPPED_AS = dict.fromkeys(("e4m3", "e5m2", "s8"), "u8")
"""What a tensor map calls types that it does not know."""

LARGEST_BOX = 256  # lines
SWIZZLED_LINES = 8
"""After which the swizzle begins anew: a tile is some such groups of lines."""

WARPGROUP = 128  # threads
BARRIER = 8  # bytes
MOST_BLOCKS = 2**31 - 1
"""Of a grid, in its first direction (CUDA programming guide, "Compute Capabilities")."""

LINE = 128
"""Bytes of a swizzled line, and of one of a panel (kernels/include/ptxlab/gemm_store.cuh)."""


class TmaStage(GemmStage):
    """Base of such a stage. A subclass says which chip it is for, how deep its ring is, and who reads it.

    Its kernel takes ``(TensorMap a, TensorMap b, OUT* c, int m, int n, int k, float alpha, float beta)``.
    """

    acc = option("f32", choices=("f32",), help="type that sums are kept in")
    block = option("128x256", choices=("128x256",), help="rows and columns of a block")
    group = option(8, choices=(1, 2, 4, 8, 16, 32), help="tile rows that blocks walk through together")

    oldest: ClassVar = 90
    granule: ClassVar = TMA_UNIT // TYPES["f16"].nbytes

    why_only: ClassVar[str]
    """Why it is for one architecture, in words that follow its name."""

    def tile(self, case: Case) -> tuple[int, int, int]:
        """Return the block that was chosen, and the depth of a swizzled line."""
        rows, cols = sizes(case.block, parts=2, what="block")
        return rows, cols, LINE // TYPES[case.dtype].nbytes

    def ring(self, case: Case) -> int:
        """Return how many stages hold tiles."""
        raise NotImplementedError("ring() is missing")

    def shared(self, case: Case) -> dict[str, int]:
        """Return the tiles of each stage, and the barriers."""
        rows, cols, _ = self.tile(case)
        stages = self.ring(case)
        return {
            f"{stages} tiles of A": stages * rows * LINE,
            f"{stages} tiles of B": stages * cols * LINE,
            "barriers": self.barriers(case) * BARRIER,
        }

    def barriers(self, case: Case) -> int:
        """Return how many mbarriers there are: full and empty ones."""
        return 2 * self.ring(case)

    def dynamic_shared_bytes(self, case: Case) -> int:
        """Return all of it: it is more than the 48 KB that a kernel can declare."""
        return sum(self.shared(case).values())

    def macros(self, case: Case) -> Macros:
        """Return the types, which operands are contiguous in k, the tile and the order."""
        rows, cols, _ = self.tile(case)
        problem = Problem.of(case)
        return {
            "TYPE": TYPES[case.dtype].cuda,
            "OUT": TYPES[case.out].cuda,
            "A_K": int(not problem.a.by_columns),
            "B_K": int(problem.b.by_columns),
            "BM": rows,
            "BN": cols,
            "GROUP": int(case.group),
        }

    def check(self, case: Case) -> None:
        """Refuse, beside what no stage takes, other chips, and lines that TMA cannot step over.

        Raises:
            MissingError: the architecture is another one.
            UsageError: a leading dimension is no multiple of 16 bytes.

        """
        if case.arch != self.only:
            what = f"stage {self.name} is not for {case.arch}; it is for {self.only}, {self.why_only}"
            raise MissingError(what, f"--arch {self.only}")
        super().check(case)
        problem = Problem.of(case)
        for name, matrix in (("A", problem.a), ("B", problem.b)):
            size = matrix.dtype.nbytes
            if matrix.leading_dimension * size % TMA_UNIT:
                raise UsageError(
                    f"{self.name} reads by TMA, whose lines start at multiples of {TMA_UNIT} bytes: those of "
                    f"{name} have {matrix.leading_dimension} {case.dtype}; legal: multiples of "
                    f"{TMA_UNIT // size}"
                )

    def box_lines(self, case: Case) -> tuple[int, int]:
        """Return how many lines of k-contiguous A, and of B, one copy brings."""
        rows, cols, _ = self.tile(case)
        return rows, cols

    def arguments(self, case: Case) -> tuple[Argument, ...]:
        """Return the tensor maps of A and B, the pointer to C, sizes and factors."""
        problem, (lines_a, lines_b), (_, _, depth) = Problem.of(case), self.box_lines(case), self.tile(case)
        a = operand_map(problem.a, case.dtype, lines_a if not problem.a.by_columns else depth)
        b = operand_map(problem.b, case.dtype, lines_b if problem.b.by_columns else depth)
        return (MapArgument(a, "a"), MapArgument(b, "b"), "c", *self.scalars(case))


class WgmmaStage(TmaStage):
    """Base of a stage whose warpgroups multiply by wgmma. A subclass says which warps do what."""

    only: ClassVar = "sm_90a"
    why_only: ClassVar = "which alone has wgmma"

    goes_on: ClassVar[bool] = False
    """Whether a block goes on to other tiles."""

    def warp_tile(self, case: Case) -> tuple[int, int]:
        """Return the rows that a warp has of an instruction, as wide as the block."""
        return INSTRUCTION_ROWS // 4, self.tile(case)[1]

    def consumers(self, case: Case) -> int:
        """Return how many warpgroups multiply."""
        return self.tile(case)[0] // INSTRUCTION_ROWS

    def producers(self, case: Case) -> int:
        """Return how many warpgroups do nothing but copy."""
        del case
        return 0

    def threads(self, case: Case) -> int:
        """Return the threads of all warpgroups."""
        return WARPGROUP * (self.producers(case) + self.consumers(case))

    def math_warps(self, case: Case) -> int:
        """Return the warps of the consumers."""
        return 4 * self.consumers(case)

    def pipeline(self, case: Case) -> Pipeline:
        """Return what its warpgroups do around the ring of stages."""
        stages, sharing = self.ring(case), self.consumers(case)
        words = (self.bringing(case), "wgmma", self.writing(case))
        if stages == 1:
            threads = self.threads(case)
            alone = taking_turns("warpgroup", threads, stages=stages, ahead=0)
            return pipeline_of(self, case, stages, alone, words, sharing=sharing)
        return pipeline_of(self, case, stages, self.groups(case).parties(), words, sharing=sharing)

    def groups(self, case: Case) -> Warpgroups:
        """Return how many warpgroups do what."""
        copying = self.producers(case)
        return Warpgroups(
            self.ring(case),
            copying=copying,
            multiplying=self.threads(case) // WARPGROUP - copying,
            sharing=self.consumers(case),
            neighbours=sum(self.cluster_tiles(case)) - 1,
            registers=self.registers(case),
            goes_on=self.goes_on,
        )

    def bringing(self, case: Case) -> str:
        """Return by what tiles come."""
        return "TMA" if self.cluster_tiles(case) == (1, 1) else "TMA multicast"

    def writing(self, case: Case) -> str:
        """Return by what sums leave."""
        del case
        return "st.global"

    def registers(self, case: Case) -> tuple[int, int] | None:
        """Return those of a thread that copies and of one that multiplies, where they change hands."""
        if not self.claims(case).get("USETMAXREG"):
            return None
        macros = self.macros(case)
        return int(macros["PRODUCER_REGISTERS"]), int(macros["CONSUMER_REGISTERS"])

    def product(self, case: Case) -> tuple[int, int]:
        """Return rows and columns of what is multiplied for a tile: its own, unless it is made transposed."""
        rows, cols, _ = self.tile(case)
        return rows, cols

    def instruction(self, case: Case) -> tuple[int, int]:
        """Return the n of a wgmma, and how many of them cover a warpgroup's part of a tile, once in k."""
        rows, cols = self.product(case)
        across = -(-cols // WIDEST)
        return cols // across, rows // self.consumers(case) // INSTRUCTION_ROWS * across

    def claims(self, case: Case) -> dict[str, int]:
        """Return the products of one tile: the loop over k is not unrolled."""
        n, parts = self.instruction(case)
        form = WgmmaForm(n, case.dtype, case.dtype, case.acc)
        return {form.sass: parts * self.tile(case)[2] // form.k}

    def check(self, case: Case) -> None:
        """Refuse, beside what no such stage takes, what wgmma does not read.

        Raises:
            UsageError: elements that are not of 16 bits are not contiguous in k.

        """
        if TYPES[case.dtype].nbytes != 2 and case.layout != "tn":
            raise UsageError(
                f"--layout {case.layout} is not for --dtype {case.dtype}, which wgmma reads contiguous in k; "
                "legal: tn"
            )
        super().check(case)


class PanelStage(TmaStage):
    """Base of a stage that writes C by TMA: each of some warps hands it panels, lines of 128 bytes.

    Its kernel takes a third TensorMap, that of C, behind those of A and B.
    """

    buffers = option(2, choices=(1, 2, 4), help="panels of C that each warp has on their way")

    panel_lines: ClassVar[int]
    """Of a panel: the rows of C that a warp holds."""

    def storing_warps(self, case: Case) -> int:
        """Return the warps that hold sums."""
        raise NotImplementedError("storing_warps() is missing")

    def panel_line(self, case: Case) -> int:
        """Return the bytes of a line of a panel, as many as its swizzle has."""
        del case
        return LINE

    def panels(self, case: Case) -> int:
        """Return how many panels each warp has on their way."""
        return int(case.buffers)

    def scaled(self, case: Case) -> bool:
        """Return whether sums are more than rounded on their way out."""
        return (case.alpha, case.beta) != (1.0, 0.0)

    def staging(self, case: Case) -> int:
        """Return the bytes that C passes through: some panels for each warp that holds sums."""
        return self.storing_warps(case) * self.panels(case) * self.panel_lines * LINE

    def shared(self, case: Case) -> dict[str, int]:
        """Return the stages, the panels of C and the barriers."""
        tiles = super().shared(case)
        barriers = tiles.pop("barriers")
        return tiles | {"panels of C": self.staging(case), "barriers": barriers}

    def check(self, case: Case) -> None:
        """Refuse, beside what no such stage takes, lines of C that TMA cannot step over.

        Raises:
            UsageError: they start at no multiples of 16 bytes.

        """
        super().check(case)
        size = TYPES[case.out].nbytes
        if Problem.of(case).c.leading_dimension * size % TMA_UNIT:
            raise UsageError(
                f"{self.name} writes C by TMA, whose lines start at multiples of {TMA_UNIT} bytes: -n is "
                f"{case.n}; legal for {case.out}: multiples of {TMA_UNIT // size}"
            )

    def macros(self, case: Case) -> Macros:
        """Return how C passes through, and whether it is scaled."""
        passing: Macros = {"BUFFERS": self.panels(case), "SCALED": int(self.scaled(case))}
        return {**super().macros(case), **passing}

    def arguments(self, case: Case) -> tuple[Argument, ...]:
        """Return the map of C too."""
        a, b, *others = super().arguments(case)
        box = (self.panel_lines, self.panel_line(case) // TYPES[case.out].nbytes)
        c = matrix_map((int(case.m), int(case.n)), case.out, box)
        return (a, b, MapArgument(c, "c"), *others)


class StoringStage(PanelStage, WgmmaStage):
    """Base of a stage whose consumers write C by TMA, and leave the copies to a warpgroup of its own."""

    panel_lines: ClassVar = INSTRUCTION_ROWS // 4
    goes_on: ClassVar = True

    def storing_warps(self, case: Case) -> int:
        """Return the warps of all warpgroups but the one that copies."""
        return 4 * (self.threads(case) // WARPGROUP - self.producers(case))

    def writing(self, case: Case) -> str:
        """Return the way over panels in shared memory."""
        del case
        return "st.shared, fence.proxy.async and TMA store"

    def producers(self, case: Case) -> int:
        """Return the warpgroup that copies."""
        del case
        return 1

    def claims(self, case: Case) -> dict[str, int]:
        """Return, beside the products, that registers change hands."""
        return {**super().claims(case), "USETMAXREG": 2}


class ClusterStage(StoringStage):
    """Base of a stage whose blocks stay on their SM, in clusters that share what they copy."""

    cluster_shape = option(
        "2x1", choices=("1x1", "1x2", "2x1", "2x2", "4x1"), help="blocks that share tiles, down and across"
    )
    blocks = option(
        132, help="blocks that stay, one for each SM: of clusters as many as run at once", metavar="BLOCKS"
    )

    def cluster_tiles(self, case: Case) -> tuple[int, int]:
        """Return how many tiles a cluster computes at once, down and across."""
        down, across = sizes(case.cluster_shape, parts=2, what="cluster")
        return down, across

    def cluster(self, case: Case) -> Dim3 | None:
        """Return the blocks of a cluster in a row."""
        size = math.prod(self.cluster_tiles(case))
        return (size, 1, 1) if size > 1 else None

    def grid(self, case: Case) -> Dim3:
        """Return whole clusters: as many as there is work for, or as many as stay."""
        return min(self.work(case), self.staying(case)), 1, 1

    def of_an_sm(self, case: Case) -> int:
        """Return the blocks that an SM has room for."""
        del case
        return 1

    def staying(self, case: Case) -> int:
        """Return the blocks of whole clusters that stay: what was asked for, as far as it runs at once."""
        return at_once(int(case.blocks), math.prod(self.cluster_tiles(case)), self.of_an_sm(case))

    def remarks(self, case: Case) -> list[str]:
        """Return that some SMs have nothing to do, where clusters are too large to find room on all."""
        size = math.prod(self.cluster(case) or (1,))
        blocks, of_sm = int(case.blocks), self.of_an_sm(case)
        room = at_once(blocks, size, of_sm) // size
        wanted = min(self.work(case), blocks * of_sm) // size
        return [f"of {wanted} clusters of {size} an H200 runs {room} at once"] if room < wanted else []

    def work(self, case: Case) -> int:
        """Return the parts of all tiles, with those tiles that make up clusters."""
        return math.prod(self.padded_tiles(case)) * self.pieces(case)

    def loaded_bytes(self, case: Case) -> int:
        """Return what all blocks together load: what a cluster shares it loads once."""
        lines = sum(self.box_lines(case))
        return math.prod(self.padded_tiles(case)) * lines * LINE * self.steps(case)

    def multiplied(self, case: Case) -> int:
        """Return the tiles of whole clusters: blocks whose tile is outside of C multiply all the same."""
        return math.prod(self.padded_tiles(case))

    def padded_tiles(self, case: Case) -> tuple[int, int]:
        """Return the tiles that cover C, down and across, with those outside of it that make up clusters."""
        rows, cols, _ = self.tile(case)
        down, across = self.cluster_tiles(case)
        return -(-int(case.m) // (rows * down)) * down, -(-int(case.n) // (cols * across)) * across

    def box_lines(self, case: Case) -> tuple[int, int]:
        """Return the lines that each block of a cluster copies of what it shares."""
        rows, cols, _ = self.tile(case)
        down, across = self.cluster_tiles(case)
        return rows // across, cols // down

    def check(self, case: Case) -> None:
        """Refuse, beside what no such stage takes, what does not go together.

        Raises:
            UsageError: there is not one cluster, a block's share is no whole panels, or more than a box.

        """
        super().check(case)
        size = math.prod(self.cluster_tiles(case))
        if not 1 <= int(case.blocks) <= MOST_BLOCKS:
            raise UsageError(f"--set blocks={case.blocks}; legal: 1 to {MOST_BLOCKS}")
        if int(case.blocks) < size:
            raise UsageError(f"--set blocks={case.blocks} in clusters of {size}; legal: {size} and more")
        for what, lines, along_k in self.shares(case):
            if lines > LARGEST_BOX or lines % (SWIZZLED_LINES if along_k else INSTRUCTION_ROWS):
                legal = (
                    f"at most {LARGEST_BOX}; multiples of {SWIZZLED_LINES}, and multiples of "
                    f"{INSTRUCTION_ROWS} where lines are not along k"
                )
                raise UsageError(
                    f"block {case.block} in clusters of {case.cluster_shape}: each would copy {lines} rows "
                    f"of {what}; legal: {legal}"
                )

    def shares(self, case: Case) -> Iterator[tuple[str, int, bool]]:
        """Yield A and B: the rows that a block copies of a tile, and whether lines are along k."""
        lines_a, lines_b = self.box_lines(case)
        yield "A", lines_a, case.layout[0] == "t"
        yield "B", lines_b, case.layout[1] == "n"

    def macros(self, case: Case) -> Macros:
        """Return the shape of a cluster too."""
        down, across = self.cluster_tiles(case)
        return {**super().macros(case), "CLUSTER_M": down, "CLUSTER_N": across}

    def claims(self, case: Case) -> dict[str, int]:
        """Return, beside the products, the copies into both blocks."""
        down, across = self.cluster_tiles(case)
        blocks = {"A": across, "B": down}
        copies = sum(
            1 if along_k else lines // INSTRUCTION_ROWS
            for what, lines, along_k in self.shares(case)
            if blocks[what] > 1
        )
        return {**super().claims(case), "UTMALDG.2D.MULTICAST": copies}


def operand_map(matrix: Matrix, dtype: str, lines: int) -> TensorMap:
    """Return the map of an operand, whose box is so many lines of 128 swizzled bytes."""
    size = (matrix.cols, matrix.rows) if matrix.by_columns else (matrix.rows, matrix.cols)
    return matrix_map(size, dtype, (lines, LINE // TYPES[dtype].nbytes))


def matrix_map(size: tuple[int, int], dtype: str, box: tuple[int, int]) -> TensorMap:
    """Return the map of a packed matrix of (lines, width) elements, swizzled as wide as the box."""
    nbytes = TYPES[dtype].nbytes
    swizzle = f"{box[1] * nbytes}B"
    kind = MAPPED_AS.get(dtype, dtype)
    return TensorMap(kind, size, (size[1] * nbytes,), box, (1, 1), swizzle=swizzle, l2="256")
