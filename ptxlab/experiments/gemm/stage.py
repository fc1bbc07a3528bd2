"""A GEMM stage: one way to multiply matrices, in a folder of its own, kernels/gemm/<name>/."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import ClassVar

import numpy as np

from ptxlab.device.job import Argument, Buffer, Dim3, Launch
from ptxlab.errors import MissingError, UsageError
from ptxlab.experiments.base import Case, Experiment, Macros, Value, option
from ptxlab.experiments.gemm.machine import LIMITS
from ptxlab.experiments.gemm.pipeline import Pipeline
from ptxlab.experiments.gemm.problem import TYPES, Problem
from ptxlab.experiments.unit import kernel_name
from ptxlab.toolchain.arch import base_number

MODULE = "stage"
"""The stage's cubin in a job."""

TYPE_NAMES = ("dtype", "acc", "out")

LARGEST_SIZE = 2**31 - 512
"""Of m, n and k: kernels count in 32 bits, and the last tiles, of a whole cluster, may reach past the end."""

MOST_INTEGERS = 2**17 - 1
"""Products of 8-bit integers that surely add up to less than 2^31."""

MMA_MACS = 16 * 8 * 16
"""Multiply-adds of one m16n8k16 instruction (HMMA.16816), which a whole warp executes."""


class GemmStage(Experiment):
    """Base of every stage. A subclass lives in kernels/gemm/<name>/stage.py and says what is asked here.

    The first line of its docstring says what the stage does. Its kernel takes
    ``(const TYPE* a, const TYPE* b, OUT* c, int m, int n, int k, float alpha, float beta)`` and computes
    C = alpha A x B + beta C, the scales in float32; it reads C only where beta is not zero.

    A stage may have options of its own, ``tile_k = option(32, choices=(16, 32, 64), help=...)``, which are
    given as ``--set tile_k=64``.
    """

    m = option(4096, help="rows of A and C", metavar="ROWS")
    n = option(4096, help="columns of B and C", metavar="COLUMNS")
    k = option(4096, help="columns of A, rows of B", metavar="DEPTH")
    dtype = option("f16", choices=("f16", "bf16"), help="type of A and B")
    acc = option("f32", choices=("f32", "f16"), help="type that sums are kept in")
    out = option("f16", choices=("f16", "bf16", "f32"), help="type of C")
    layout = option("tn", choices=("nn", "nt", "tn", "tt"), help="A then B; t or n as in BLAS")
    alpha = option(1.0, help="factor of A x B", metavar="FACTOR")
    beta = option(0.0, help="factor of what C holds before", metavar="FACTOR")

    oldest: ClassVar[int] = 80
    """The first architecture that the stage, and the error bound of its check, are made for."""

    only: ClassVar[str] = ""
    """The one architecture that the stage is for, or "" where it is for all from the oldest on."""

    granule: ClassVar[int] = 1
    """Sizes that are multiples of it are taken in every layout and type."""

    below: ClassVar[str] = ""
    """The rung of the ladder that this one improves on: the name of a stage, or "" for the lowest."""

    ceiling: ClassVar[str] = ""
    """Which ceiling (kernels/ceiling/<name>/) says what its instruction can reach at most, or ""."""

    planned: ClassVar[tuple[str, ...]] = ()
    """Options that are a plan together: how a problem is cut up. Those left out are the stage's to choose."""

    reasons: ClassVar[Mapping[str, str]] = {}
    """Why a resource (a key of demands()) limits this stage, in words."""

    def tile(self, case: Case) -> tuple[int, int, int]:
        """Return what a block computes per step: rows and columns of C, and its depth in k."""
        raise NotImplementedError("tile() is missing")

    def warp_tile(self, case: Case) -> tuple[int, int]:
        """Return rows and columns of C that one warp computes: wrong elements are told by them."""
        rows, cols, _ = self.tile(case)
        return rows, cols

    def threads(self, case: Case) -> int:
        """Return the threads of a block."""
        raise NotImplementedError("threads() is missing")

    def shared(self, case: Case) -> dict[str, int]:
        """Return the shared memory of a block: what each buffer is for, and its bytes.

        Buffers of a pipeline are told by their number: "4 tiles of A".
        """
        raise NotImplementedError("shared() is missing")

    def tensor_memory(self, case: Case) -> dict[str, int]:
        """Return the tensor memory of a block: what is held there, and its columns. Most stages have none."""
        del case
        return {}

    def dynamic_shared_bytes(self, case: Case) -> int:
        """Return the part of it that is asked for at launch."""
        del case
        return 0

    def demands(self, case: Case) -> dict[str, float]:
        """Return how much of each resource the problem takes: keys of RESOURCES, in their units.

        Every stage needs its operations, whole tiles being multiplied, and each byte from memory once; and
        where blocks send on what they copied, the way between their SMs.
        """
        operations = 2.0 * MMA_MACS * self.mma_count(case)
        problem, sent = Problem.of(case), self.sent_bytes(case)
        needs = {problem.tensor: operations, "memory": float(problem.nbytes)}
        return needs | ({"dsmem": float(sent)} if sent else {})

    def remarks(self, case: Case) -> list[str]:
        """Return what slows this very problem down, in words."""
        del case
        return []

    def typed(self, name: str) -> str:
        """Return how an option is typed: its own ones have no flag."""
        return super().typed(name) if name in GemmStage.options() else f"--set {name}"

    def own_options(self, case: Case) -> dict[str, Value]:
        """Return the values of those options that not every stage has."""
        return {name: value for name, value in case.params.items() if name not in GemmStage.options()}

    def check(self, case: Case) -> None:
        """Raise the error that says what is illegal about a point.

        Raises:
            UsageError: a size or a factor is out of range, there are more tiles than a grid has blocks,
                no instruction has these types, or a block's shared memory does not hold the buffers.
            MissingError: the stage is not for this architecture.

        """
        for name in ("m", "n", "k"):
            size = getattr(case, name)
            if not 1 <= size <= LARGEST_SIZE:
                raise UsageError(f"-{name} {size} is no size; legal: 1 to {LARGEST_SIZE}")
        for name in ("alpha", "beta"):
            factor = getattr(case, name)
            if not abs(factor) <= TYPES["f32"].largest:
                raise UsageError(f"--{name} {factor:g} is no factor; legal: finite float32 numbers")
        if case.acc == "f16" and case.dtype != "f16":
            raise UsageError(f"--acc f16 is not for --dtype {case.dtype}; legal: {TYPES[case.dtype].sums}")
        self._check_integers(case)
        self._check_shared(case)
        if self.tiles(case) >= 2**31:
            raise UsageError(f"{self.tiles(case)} tiles are more blocks than a grid has; legal: below 2^31")
        if base_number(case.arch) < self.oldest:
            raise MissingError(
                f"stage {self.name} is not for {case.arch}; it is for sm_{self.oldest} and later",
                f"--arch sm_{self.oldest}",
            )

    def complete(self, params: dict[str, Value]) -> None:
        """Take s32 for the 32 bits that integers are summed in: f32 is what every stage starts from."""
        if TYPES[str(params["dtype"])].whole and params["acc"] == "f32":
            params["acc"] = "s32"

    def _check_integers(self, case: Case) -> None:
        """Refuse integers beside what is none, and sums that may leave their 32 bits."""
        if TYPES[case.acc].whole != TYPES[case.dtype].whole:
            legal = TYPES[case.dtype].sums
            raise UsageError(f"--acc {case.acc} is not for --dtype {case.dtype}; legal: {legal}")
        if case.out == "s32" and case.acc != "s32":
            legal = ", ".join(str(each) for each in self.options()["out"].choices if each != "s32")
            raise UsageError(f"--out s32 is not for --dtype {case.dtype}; legal: {legal}")
        p = Problem.of(case)
        if case.out == "s32" and (p.alpha, p.beta, p.bias, p.activation) != (1.0, 0.0, False, "none"):
            raise UsageError(
                "--out s32 takes sums of integers as they are: no factors, bias or activation; legal beside "
                "these: --out f32, bf16, f16"
            )
        if case.acc == "s32" and case.k > MOST_INTEGERS:
            raise UsageError(f"-k {case.k}: sums may leave s32; legal: 1 to {MOST_INTEGERS}")

    def _check_shared(self, case: Case) -> None:
        buffers, most = self.shared(case), _shared_of_block(case.arch)
        if sum(buffers.values()) > most:
            listed = ", ".join(f"{name} {nbytes}" for name, nbytes in buffers.items())
            fits = ", ".join(self._that_fit(case, most))
            legal = f"legal: {fits}" if fits else "no option alone makes it fit"
            raise UsageError(
                f"{self.name} takes {sum(buffers.values())} bytes of shared memory ({listed}); a block on "
                f"{case.arch} can have {most}; {legal}"
            )

    def _that_fit(self, case: Case, most: float) -> Iterator[str]:
        """Yield how to set one of the stage's own options so that its buffers fit into a block."""
        for name, own in self.options().items():
            for value in () if name in GemmStage.options() else own.choices:
                other = Case(case.arch, case.params | {name: value}, {})
                with contextlib.suppress(UsageError):
                    if sum(self.shared(other).values()) <= most:
                        self.check(other)
                        yield f"--set {name}={value}"

    def variants(self, arch: str) -> Iterator[Case]:
        """Yield every legal combination of types, then every other choice alone, at the default sizes.

        None comes twice: what a choice stands for that is left open is one of the others.
        """
        points = (case for values in self._choices() for case in self._legal(arch, values))
        yield from {case.key: case for case in points}.values()

    def _choices(self) -> Iterator[dict[str, Value]]:
        """Yield the values of each variant that differ from the defaults, be they legal or not."""
        options = self.options()
        for values in product(*(options[name].choices for name in TYPE_NAMES)):
            yield dict(zip(TYPE_NAMES, values, strict=True))
        for name, each in options.items():
            if name not in TYPE_NAMES:
                yield from ({name: value} for value in each.choices if value != each.default)

    def _legal(self, arch: str, values: dict[str, Value]) -> Iterator[Case]:
        """Yield the point with these values if it is one that the stage takes."""
        with contextlib.suppress(UsageError):
            yield self.case(arch, **values)

    def plans(self, case: Case) -> Iterator[dict[str, Value]]:
        """Yield every plan for the problem of a point that makes sense, what should be the fastest first."""
        del case
        yield from ()

    def plan_source(self, case: Case) -> str:
        """Return where the plan of a point comes from, where the stage has chosen it."""
        del case
        return ""

    def macros(self, case: Case) -> Macros:
        """Return the -D macros that make the kernel of this point."""
        raise NotImplementedError("macros() is missing")

    @staticmethod
    def types(case: Case) -> Macros:
        """Return the macros that every kernel has: the types of A and B, of the sums, and of C."""
        names = {"TYPE": case.dtype, "ACCUMULATE": case.acc, "OUT": case.out}
        return {macro: TYPES[name].cuda for macro, name in names.items()}

    def tiles(self, case: Case) -> int:
        """Return how many tiles cover C."""
        rows, cols, _ = self.tile(case)
        return -(-int(case.m) // rows) * -(-int(case.n) // cols)

    def multiplied(self, case: Case) -> int:
        """Return how many tiles blocks multiply: those of C, and what else clusters cover."""
        return self.tiles(case)

    def work(self, case: Case) -> int:
        """Return the pieces of work that blocks are there for: tiles, or parts of tiles split along k."""
        return self.tiles(case)

    def streams(self, case: Case) -> bool:
        """Return whether blocks get even shares of the tiles that are left beside whole waves (stream-K)."""
        del case
        return False

    def pieces(self, case: Case) -> int:
        """Return how many blocks compute a tile, each a part of k."""
        del case
        return 1

    def pipeline(self, case: Case) -> Pipeline | None:
        """Return what the warps of a block do, step by step, and who waits for whom; None: not described."""
        del case
        return None

    def loaded_bytes(self, case: Case) -> int:
        """Return what all blocks together load of A and B."""
        rows, cols, depth = self.tile(case)
        steps = self.multiplied(case) * self.steps(case)
        return steps * (rows + cols) * depth * TYPES[case.dtype].nbytes

    def sent_bytes(self, case: Case) -> int:
        """Return what all blocks together send on to others of A and B: through distributed shared memory."""
        del case
        return 0

    def steps(self, case: Case) -> int:
        """Return how many steps a tile takes along k."""
        return -(-int(case.k) // self.tile(case)[2])

    def mma_count(self, case: Case) -> int:
        """Return how many m16n8k16 instructions run in all, counted per warp: mnk/2048 for whole tiles."""
        return math.prod(self.tile(case)) * self.multiplied(case) * self.steps(case) // MMA_MACS

    def mma_of(self, case: Case, opcode: str) -> int:
        """Return how many m16n8k16 a warp computes by one instruction: of a wgmma it has a quarter."""
        del case
        if opcode.startswith("HMMA.16816."):
            return 1
        wgmma = re.match(r"[HQI]GMMA\.64x(\d+)x(\d+)\.", opcode)  # each of its four warps has 16 of 64 rows
        return int(wgmma[1]) * int(wgmma[2]) // 128 if wgmma else 0

    def one_chain(self, case: Case) -> bool:
        """Return whether each sum is one chain of additions, k in ascending order."""
        del case
        return True

    def math_warps(self, case: Case) -> int:
        """Return the warps of a block that multiply."""
        return self.threads(case) // 32

    def grid(self, case: Case) -> Dim3:
        """Return the blocks of a launch: one a tile."""
        return self.tiles(case), 1, 1

    def cluster_tiles(self, case: Case) -> tuple[int, int]:
        """Return how many tiles the blocks of a cluster compute at once, down and across.

        Ranks go along the rows of these tiles.
        """
        del case
        return 1, 1

    def cluster(self, case: Case) -> Dim3 | None:
        """Return the blocks of a cluster, or None for blocks that stand alone."""
        del case
        return None

    def programmatic(self, case: Case) -> bool:
        """Return whether it may start while the kernel ahead of it still runs."""
        del case
        return False

    def scalars(self, case: Case) -> tuple[np.generic, ...]:
        """Return what the kernel gets beside the matrices: m, n, k, alpha, beta."""
        sizes = (np.int32(size) for size in (case.m, case.n, case.k))
        return (*sizes, np.float32(case.alpha), np.float32(case.beta))

    def arguments(self, case: Case) -> tuple[Argument, ...]:
        """Return the arguments of the kernel over the buffers "a", "b" and "c"."""
        return ("a", "b", "c", *self.scalars(case))

    def scratch(self, case: Case) -> tuple[Buffer, ...]:
        """Return buffers that the kernel works with, beside the matrices: arguments name them."""
        del case
        return ()

    def launch(self, case: Case) -> Launch:
        """Return one launch."""
        return Launch(
            module=MODULE,
            kernel=kernel_name(self, self.macros(case)),
            grid=self.grid(case),
            block=(self.threads(case), 1, 1),
            arguments=self.arguments(case),
            shared_bytes=self.dynamic_shared_bytes(case),
            cluster=self.cluster(case),
            programmatic=self.programmatic(case),
        )


def climbed(stages: Sequence[GemmStage]) -> list[GemmStage]:
    """Return the stages from the lowest rung up; those that stand equally high by name."""
    known = {stage.name: stage for stage in stages}
    return sorted(stages, key=lambda stage: (len(list(below(stage, known))), stage.name))


def below(stage: GemmStage, known: Mapping[str, GemmStage]) -> Iterator[GemmStage]:
    """Yield the rungs below a stage, the next one first, as far as they are known."""
    passed = {stage.name}
    while stage.below in known and stage.below not in passed:
        stage = known[stage.below]
        passed.add(stage.name)
        yield stage


def _shared_of_block(arch: str) -> float:
    """Return the bytes of shared memory that a block can have, without end where that is not known."""
    limits = LIMITS.get(base_number(arch))
    return limits.shared_of_block if limits else math.inf
