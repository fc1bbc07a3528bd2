"""Everything together: persistent clusters that write C by TMA, with a plan for each problem.

kernel.cu says how it works, FINDINGS.md what was tried, plans.json which plan was the fastest for a shape.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np

from ptxlab.device.job import Argument, Buffer, Dim3
from ptxlab.errors import ToolError, UsageError
from ptxlab.experiments.base import Case, Macros, Value, in_words, option
from ptxlab.experiments.gemm import TYPES, Problem
from ptxlab.experiments.gemm.fused import FusedStage
from ptxlab.experiments.gemm.image import by_image
from ptxlab.experiments.gemm.machine import LIMITS, SHARED_RESERVED
from ptxlab.experiments.gemm.pipeline import Pipeline
from ptxlab.experiments.gemm.plan import (
    ADDING,
    ALONE,
    COOPERATIVE,
    IN_CLUSTER,
    IN_MEMORY,
    LARGEST_CLUSTER,
    PING_PONG,
    ROLES,
    SINGLE,
    SPLITS,
    STREAM_K,
    Plan,
)
from ptxlab.experiments.gemm.sums import most_sums
from ptxlab.experiments.gemm.ways import BLOCKS, PLANNED, misfit, plan_of, unshared, ways
from ptxlab.experiments.gemm.wgmma import (
    BARRIER,
    INSTRUCTION_ROWS,
    LINE,
    WARPGROUP,
    ClusterStage,
)

POLICIES = {
    "normal": ("normal", "normal", "normal"),
    "stream-c": ("normal", "normal", "first"),
    "keep-a": ("last", "first", "first"),
    "keep-b": ("first", "last", "first"),
}
"""When lines of A, of B and of C leave the L2, beside the others: C is not read again, and where the one
operand stays the other passes through.
"""

AUTO = "auto"

PANEL_LINES = (LINE, 64, 32)
"""Bytes of a row of a panel, each with a swizzle of its own."""


class Hopper(FusedStage, ClusterStage):
    """Persistent and warp-specialized, in clusters that share tiles, with C written by TMA."""

    below = "cluster"
    ceiling = "wgmma"
    planned = tuple(PLANNED)
    granule = 16
    dtype = option("f16", choices=("f16", "bf16", "tf32", "s8", "e4m3", "e5m2"), help="type of A and B")
    acc = option("f32", choices=("f32", "s32"), help="type that sums are kept in: of integers s32")
    out = option("f16", choices=("f16", "bf16", "f32", "s32"), help="type of C")
    block = option(AUTO, choices=(AUTO, *BLOCKS), help="rows and columns of a block")
    roles = option(AUTO, choices=(AUTO, *ROLES), help="two consumers that share a tile or not, or one")
    cluster_shape = option(
        AUTO, choices=(AUTO, "1x1", "1x2", "2x1", "2x2"), help="blocks that share tiles, down and across"
    )
    splits = option(
        0, choices=(0, *SPLITS), help="parts of k, each for another block, added in a fixed order; 0: auto"
    )
    adding = option(
        AUTO, choices=(AUTO, *ADDING), help="where parts meet; stream-k: even shares of the last wave"
    )
    buffers = option(0, choices=(0, 1, 2, 4), help="panels of C that each warp has on their way; 0: auto")
    stages = option(0, choices=(0, 2, 3, 4, 5, 6), help="of the ring of tiles; 0: all that fit")
    l2 = option("normal", choices=tuple(POLICIES), help="what leaves the L2 first, and what stays longest")
    early = option("yes", choices=("yes", "no"), help="starts while the kernel ahead runs, if it may")

    def complete(self, params: dict[str, Value]) -> None:
        """Fill in what was left open: the plan that was the fastest when it was timed, or by the model."""
        super().complete(params)
        given = {name: params[name] for name in PLANNED if params[name] not in (AUTO, 0)}
        if len(given) == len(PLANNED):
            return
        timed = self._timed_plan(params)
        if timed and given.items() <= timed.items() and self._takes(params | timed):
            params.update(timed)
        else:
            params.update(self._modelled_plan(params, given))

    def _timed_plan(self, params: Mapping[str, Value]) -> dict[str, Value]:
        """Return the plan that was the fastest on the device for this shape; none for other than all SMs."""
        if params["blocks"] != self.options()["blocks"].default:
            return {}
        return _measured(self.folder).get("x".join(str(params[name]) for name in ("m", "n", "k")), {})

    def _modelled_plan(self, params: dict[str, Value], given: dict[str, Value]) -> dict[str, Value]:
        """Return the fastest legal way of those that make sense, or else of all.

        Where none is legal it is one for which check() says what is wrong with what was given.
        """
        plain = {"cluster_shape": PLANNED["cluster_shape"], "adding": PLANNED["adding"], **given}
        found: dict[str, Value] = {}
        for sensible in (True, False):
            in_order = sorted(ways(params, given, sensible=sensible), key=lambda way: way[0])
            for _, options in in_order:
                if self._takes(params | options):
                    return options
                if not found and plain.items() <= options.items():
                    found = options
        return found or {**PLANNED, **given}

    def _takes(self, params: dict[str, Value]) -> bool:
        try:
            self.check(Case(self.only, params, {}))
        except UsageError:
            return False
        return True

    def plans(self, case: Case) -> Iterator[dict[str, Value]]:
        """Yield every plan that makes sense, in the order of the model."""
        yield from (plan for _, plan in sorted(ways(case.params, {}), key=lambda way: way[0]))

    def plan_source(self, case: Case) -> str:
        """Return whether the plan is one that was timed and comes with the stage, or the model's."""
        plan = self._timed_plan(case.params)
        if not plan or not plan.items() <= case.params.items():
            return "the model"
        device, types = _timed_on(self.folder)
        alike = str(Problem.of(case)).partition(" ")[2] == types
        return f"plans.json, where {device} timed it" + ("" if alike else f" with {types}")

    def variants(self, arch: str) -> Iterator[Case]:
        """Yield what every stage yields, and each plan that was timed; nothing twice."""
        plans = {tuple(plan.items()): plan for plan in _measured(self.folder).values()}
        timed = (case for plan in plans.values() for case in self._legal(arch, plan))
        found = {case.key: case for case in (*super().variants(arch), *timed)}
        yield from found.values()

    def plan(self, case: Case) -> Plan:
        """Return how the problem is cut up."""
        return plan_of(case.params)

    def one_chain(self, case: Case) -> bool:
        """Return whether no tile is split along k."""
        plan = self.plan(case)
        return plan.splits == 1 and plan.adding != STREAM_K

    def consumers(self, case: Case) -> int:
        """Return the warpgroups that multiply a tile together."""
        return self.plan(case).sharing

    def threads(self, case: Case) -> int:
        """Return the threads of the producer and of the consumers."""
        return WARPGROUP * (1 + self.plan(case).consumers)

    def pieces(self, case: Case) -> int:
        """Return into how many parts a tile is split."""
        return int(case.splits)

    def product(self, case: Case) -> tuple[int, int]:
        """Return rows and columns of what wgmma makes of a block: those of C, or of C transposed."""
        return self.plan(case).product

    def grid(self, case: Case) -> Dim3:
        """Return whole clusters, as many as there is work for, or as many as the SMs have room for."""
        work, stay = self.work(case), self.staying(case)
        if self.streams(case):
            return stay, 1, 1
        return work if self.plan(case).image else min(work, stay), 1, 1

    def of_an_sm(self, case: Case) -> int:
        """Return the blocks that an SM has room for: two of one consumer, if that is to have half of it."""
        return self.plan(case).of_an_sm

    def streams(self, case: Case) -> bool:
        """Return whether that was chosen."""
        return str(case.adding) == STREAM_K

    def cluster(self, case: Case) -> Dim3 | None:
        """Return the blocks of a cluster, those of one part of k behind those of another."""
        size = math.prod(self.cluster_tiles(case)) * self.plan(case).layers
        return (size, 1, 1) if size > 1 else None

    def panels(self, case: Case) -> int:
        """Return what was chosen, or 2: 1 where that makes room for one more stage."""
        if case.buffers or self.plan(case).image:
            return int(case.buffers) or 1
        return 1 if self._stages_beside(case, 1) > self._stages_beside(case, 2) else 2

    def panel_line(self, case: Case) -> int:
        """Return the widest of which a tile is whole panels."""
        _, cols, _ = self.tile(case)
        return next(line for line in PANEL_LINES if cols * TYPES[case.out].nbytes % line == 0)

    def ring(self, case: Case) -> int:
        """Return what was chosen, or as many stages as fit beside what C passes through, and are of use."""
        if case.stages or not self.plan(case).image:
            return int(case.stages) or self._stages_beside(case, self.panels(case))
        steps = -(-self.steps(case) // int(case.splits))
        of_image = -(-self.image_bytes(case) // self._stage_bytes(case))
        return min(self._stages_beside(case, 0), max(2, steps, of_image))

    def writing(self, case: Case) -> str:
        """Return by what sums leave, and where parts of them meet."""
        plan, usual = self.plan(case), super().writing(case)
        if plan.image and plan.layers > 1:
            return f"ld.shared::cluster from {plan.layers} blocks, added up, st.global"
        if plan.image:
            return "ld.shared, st.global"
        last = ", of split tiles by the last to come, who adds the parts from memory"
        return usual if self._deal(case) == "whole" else usual + last

    def pipeline(self, case: Case) -> Pipeline:
        """Return, where sums leave by an image, who lays and who reads it."""
        line, plan = super().pipeline(case), self.plan(case)
        if not plan.image:
            return line
        return by_image(line, math.prod(self.cluster(case) or (1,)) if plan.layers > 1 else 1)

    def image_bytes(self, case: Case) -> int:
        """Return the bytes of a tile's image: its lines are somewhat longer than the tile is wide."""
        rows, cols, _ = self.tile(case)
        plan = self.plan(case)
        line = (cols + (4 if plan.swapped else 8)) * TYPES[case.acc].nbytes
        return rows * line

    def staging(self, case: Case) -> int:
        """Return the bytes of panels; an image takes the place of the stages."""
        return 0 if self.plan(case).image else super().staging(case)

    def _stage_bytes(self, case: Case) -> int:
        rows, cols, _ = self.tile(case)
        return (rows + cols) * LINE

    def _stages_beside(self, case: Case, panels: int) -> int:
        """Return how many stages a block has room for beside so many panels of each warp."""
        stage = self._stage_bytes(case) + 2 * BARRIER
        room = LIMITS[90].shared_bytes // self.of_an_sm(case) - SHARED_RESERVED - 2 * BARRIER
        warps = 4 * self.plan(case).consumers
        return (room - warps * panels * self.panel_lines * LINE) // stage

    def shared(self, case: Case) -> dict[str, int]:
        """Return, beside the rest, the barriers by which consumers take turns."""
        buffers = super().shared(case)
        found = buffers | {"barriers": buffers["barriers"] + 2 * BARRIER}
        return {name: nbytes for name, nbytes in found.items() if nbytes}

    def programmatic(self, case: Case) -> bool:
        """Return whether it may start while the kernel ahead still runs."""
        return str(case.early) == "yes"

    def check(self, case: Case) -> None:
        """Refuse, beside what no such stage takes, what does not go together.

        Raises:
            UsageError: consumers cannot share the block, sums are too many, or splits more than steps.

        """
        super().check(case)
        plan = self.plan(case)
        wrong = misfit(plan)
        if wrong and (roles := unshared(plan, case.params)):
            raise UsageError(f"{wrong}; legal: --set roles={', '.join(roles)}")
        if plan.sums > (most := most_sums(plan, case.params)):
            raise UsageError(
                f"block {case.block}, {plan.role}: {plan.sums} sums a thread leave too few registers for the "
                f"rest; legal: at most {most} with these splits and what follows them"
            )
        if plan.image:
            self._check_image(case)
        if wrong:
            raise UsageError(f"{wrong}; legal: blocks with multiples of it")
        if self.streams(case):
            self._check_stream(case)
        if plan.splits > self.steps(case):
            most = self.steps(case)
            raise UsageError(f"-k {case.k}: each of the splits takes a step of k; legal: at most {most}")

    def _check_stream(self, case: Case) -> None:
        rest, clusters, _ = self._rest(case)
        if int(case.splits) > 1:
            raise UsageError(f"adding={STREAM_K} splits the last wave alone; legal: --set splits=1")
        if rest * self.steps(case) < clusters:
            what = f"{rest} tiles of {self.steps(case)} steps beside whole waves are no shares for {clusters}"
            raise UsageError(f"adding={STREAM_K}: {what} clusters; legal: --set adding={IN_MEMORY}")

    def _rest(self, case: Case) -> tuple[int, int, int]:
        """Return the clusters' tiles beside whole waves, the clusters, and the most parts that a tile has."""
        size = math.prod(self.cluster_tiles(case))
        clusters = self.grid(case)[0] // size
        rest = math.prod(self.padded_tiles(case)) // size % clusters
        return rest, clusters, (clusters - 1) // max(1, rest) + 2

    def _check_image(self, case: Case) -> None:
        of_cluster = math.prod(self.cluster(case) or (1,))
        what = f"block {case.block}, adding={case.adding}"
        if str(case.roles) == PING_PONG:
            legal = f"{COOPERATIVE}, {SINGLE}, {ALONE}"
            raise UsageError(f"{what}: a block has one tile; legal: --set roles={legal}")
        if self.plan(case).passing > 1:
            raise UsageError(f"{what}: parts cannot pass through memory; legal: --set adding={IN_CLUSTER}")
        if of_cluster > LARGEST_CLUSTER:
            raise UsageError(f"{what}: {of_cluster} blocks in a cluster; legal: at most {LARGEST_CLUSTER}")
        if self.image_bytes(case) > self.ring(case) * self._stage_bytes(case):
            least = math.ceil(self.image_bytes(case) / self._stage_bytes(case))
            raise UsageError(
                f"{what}: {self.ring(case)} stages do not hold a tile's sums; legal: {least} or more"
            )

    def warp_tile(self, case: Case) -> tuple[int, int]:
        """Return what a warp has of C: 16 rows of the product."""
        plan, rows = self.plan(case), INSTRUCTION_ROWS // 4
        return (plan.rows, rows) if plan.swapped else (rows, plan.cols)

    def macros(self, case: Case) -> Macros:
        """Return all that the kernel must know; of the product, where it is C transposed."""
        plan = self.plan(case)
        producer, consumer = _registers(plan.sums)
        own = super().macros(case)
        own |= dict(zip(("EVICT_A", "EVICT_B", "EVICT_C"), POLICIES[str(case.l2)], strict=True))
        if plan.swapped:
            for letters in ("A_K B_K", "BM BN", "CLUSTER_M CLUSTER_N", "EVICT_A EVICT_B"):
                one, other = letters.split()
                own = {**own, one: own[other], other: own[one]}
        return {
            **own,
            "SWAPPED": int(plan.swapped),
            "IMAGE": int(plan.image),
            "CLUSTER_K": plan.layers,
            "PANEL_LINE": self.panel_line(case),
            "STAGES": self.ring(case),
            "CONSUMERS": plan.consumers,
            "OF_AN_SM": self.of_an_sm(case),
            "PRODUCER_REGISTERS": producer,
            "CONSUMER_REGISTERS": consumer,
            "PINGPONG": int(plan.role == PING_PONG),
            "SPLITS": plan.splits // plan.layers,
            "DEAL": self._deal(case),
            "DEPENDENT": int(self.programmatic(case)),
        }

    def _deal(self, case: Case) -> str:
        if self.streams(case):
            return "stream"
        return "split" if int(case.splits) > self.plan(case).layers else "whole"

    def claims(self, case: Case) -> dict[str, int]:
        """Return the products and the copies, and that registers change hands where they must."""
        return {**super().claims(case), "USETMAXREG": 2 if self.plan(case).consumers > 1 else 0}

    def arguments(self, case: Case) -> tuple[Argument, ...]:
        """Return, beside the rest, what sums of split tiles pass through; where there are none, anything."""
        scratch = ("c", "c") if self._deal(case) == "whole" else ("partials", "arrived")
        return (*super().arguments(case), *scratch)

    def scratch(self, case: Case) -> tuple[Buffer, ...]:
        """Return what the sums of split tiles pass through, and how many warps have left theirs there."""
        if self._deal(case) == "whole":
            return ()
        rows, cols, _ = self.tile(case)
        tiles, parts = math.prod(self.padded_tiles(case)), int(case.splits)
        if self.streams(case):
            rest, _, parts = self._rest(case)
            tiles = rest * math.prod(self.cluster_tiles(case))
        arrived = np.zeros(tiles * 4 * self.consumers(case), np.uint32)
        return (
            Buffer("partials", tiles * parts * rows * cols * TYPES[case.acc].nbytes),
            Buffer("arrived", arrived.nbytes, data=arrived),
        )


@cache
def _measured(folder: Path) -> dict[str, dict[str, Value]]:
    """Return by shape, such as "4096x4096x4096", the plan that was the fastest on the device.

    Raises:
        ToolError: the file is damaged, or cannot be read. Where there is none the model alone decides.

    """
    file = folder / "plans.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))["plans"]
        return {shape: _plan_in(text) for shape, text in found.items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ToolError(f"{file} cannot be read: {error.strerror}") from error
    except Exception as error:  # whatever json says of what is none, and a text that is no plan
        hint = "without the file the model chooses plans"
        raise ToolError(f"{file} is damaged: {in_words(error)}", hint) from error


@cache
def _timed_on(folder: Path) -> tuple[str, str]:
    """Return the card and the types with which plans were timed: of a file that ``_measured`` has read."""
    said = json.loads((folder / "plans.json").read_text(encoding="utf-8"))
    return f"an {said.get('device', 'unnamed card')}", said.get("types", "unnamed types")


def _plan_in(text: str) -> dict[str, Value]:
    """Return the options of a plan such as "128x192 ping-pong 2x1 1 memory".

    Raises:
        ValueError: it is not of that form, or a value is none that can be asked for.

    """
    *names, splits, adding = text.split()
    plan: dict[str, Value] = dict(zip(PLANNED, [*names, int(splits), adding], strict=True))
    options = Hopper.options()
    for name, value in plan.items():
        if value == options[name].default or value not in options[name].choices:
            raise ValueError(f"'{value}' of '{text}' is no value of {name}")
    return plan


def _registers(sums: int) -> tuple[int, int]:
    """Return those of a thread that copies and of one that multiplies: 384 threads share 168 each."""
    return (24, 240) if sums >= 160 else (40, 232)
