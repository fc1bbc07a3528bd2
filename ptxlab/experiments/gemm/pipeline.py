"""What the warps of a block do, step by step, and who waits for whom: a description that can be simulated.

A role is some warps that all do the same. Shared memory has places for the tiles of some steps, its stages;
which step is in which stage, and how often a barrier has been passed, follows from the number of the step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from ptxlab.experiments.gemm.machine import REGISTERS

if TYPE_CHECKING:
    from ptxlab.experiments.base import Case
    from ptxlab.experiments.gemm.stage import GemmStage

Does = Literal["wait", "copy", "multiply", "finish", "arrive", "commit", "lay", "fetch", "write"]

STEP, TILE = "step", "tile"
"""What the phases of a barrier follow: the steps of all tiles, or the tiles."""

FULL, EMPTY, TURN = "full", "empty", "turn"

PARTS = ("first", "begin", "step", "end")
"""When a role does what: once before all tiles, for each tile, for each of its steps, after its steps."""

WARPS, THREADS = 4, 128
"""Of a warpgroup. Each warp arrives for itself."""


@dataclass(frozen=True)
class Act:
    """One thing that a role does.

    Attributes:
        does: waits for a barrier; copies tiles, whose bytes arrive at one when they land; starts products;
            waits until products are finished; arrives at a barrier, or has its products arrive when they are
            finished (commit); lays its sums down where the stages were; or writes C.
        barrier: which one.
        ahead: so many steps, or where the barrier follows tiles so many tiles, behind the present one.
        count: arrivals.
        every: phases of the barrier that belong to a step.
        by: what copies or writes, where that is not what does so otherwise; what fetches.
        nbytes: that a copy sends to other SMs, one step after the other; 0 if it takes no such way.

    """

    does: Does
    barrier: str = ""
    ahead: int = 0
    count: int = 1
    every: int = 1
    by: str = ""
    nbytes: int = 0


@dataclass(frozen=True)
class Role:
    """Warps that do the same.

    Attributes:
        name: what they are called.
        threads: how many.
        registers: of a thread, where it has another number than the compiler gave; else None.
        first: what they do once, before all tiles.
        begin: at the beginning of a tile.
        step: in each step along k.
        end: when a tile has no more steps.
        tile: the first tile that is theirs.
        stride: how many tiles on their next one lies.

    """

    name: str
    threads: int
    registers: int | None = None
    first: tuple[Act, ...] = ()
    begin: tuple[Act, ...] = ()
    step: tuple[Act, ...] = ()
    end: tuple[Act, ...] = ()
    tile: int = 0
    stride: int = 1

    @property
    def acts(self) -> tuple[Act, ...]:
        """All that they do, in their order."""
        return tuple(act for part in PARTS for act in getattr(self, part))

    def does(self, what: Does) -> bool:
        """Return whether they do that at all."""
        return any(act.does == what for act in self.acts)


@dataclass(frozen=True)
class Barrier:
    """An mbarrier, or one for each stage; or another one, at which threads meet.

    Attributes:
        name: what it is called.
        places: how many there are.
        arrivals: that end a phase.
        free: so many of the places are passed once before anyone has arrived.
        follows: STEP or TILE.
        means: what has happened when a phase ends.
        blocks: of a cluster, whose roles arrive.

    """

    name: str
    places: int
    arrivals: int
    free: int
    follows: str
    means: str
    blocks: int = 1


@dataclass(frozen=True)
class Pipeline:
    """What the warps of a block do.

    Attributes:
        stages: for so many steps shared memory has places.
        steps: of a tile along k.
        tiles: that a block computes one after the other.
        roles: who does what.
        barriers: by which they wait for each other.
        macs: multiply-adds of what one role starts in a step.
        sums: of a tile.
        copying: by what, in words.
        multiplying: likewise.
        writing: likewise.

    """

    stages: int
    steps: int
    tiles: int
    roles: tuple[Role, ...]
    barriers: tuple[Barrier, ...]
    macs: int
    sums: int
    copying: str
    multiplying: str
    writing: str


Parties = tuple[tuple[Role, ...], tuple[Barrier, ...]]


def pipeline_of(
    stage: GemmStage,
    case: Case,
    stages: int,
    parties: Parties,
    words: tuple[str, str, str],
    *,
    sharing: int = 1,
) -> Pipeline:
    """Return the pipeline of a stage at a point.

    Args:
        stage: the stage.
        case: the point.
        stages: of its ring.
        parties: the roles and their barriers.
        words: by what it copies, multiplies and writes.
        sharing: how many roles multiply a tile together.

    """
    rows, cols, depth = stage.tile(case)
    return Pipeline(
        stages,
        -(-stage.steps(case) // stage.pieces(case)),
        -(-stage.work(case) // prod(stage.grid(case))),
        *parties,
        rows * cols * depth // sharing,
        rows * cols,
        *words,
    )


def taking_turns(name: str, threads: int, *, stages: int, ahead: int) -> Parties:
    """Return the role of warps that copy, wait and multiply, and what they wait for.

    Each asks for the tiles of a later step, so many ahead, before it multiplies. All meet in each step: so
    nobody overwrites what others still read.
    """
    fill = tuple(Act("copy", FULL, step) for step in range(ahead))
    copy, wait = Act("copy", FULL, ahead), Act("wait", FULL)
    step = ((wait, copy) if ahead else (copy, wait)) + (Act("multiply"), Act("finish"))
    full = Barrier(FULL, stages, 1, 0, STEP, "the tiles have landed, and all warps know")
    return (Role(name, threads, first=fill, step=step, end=(Act("write"),)),), (full,)


FILL = (Act("wait", EMPTY), Act("copy", FULL))
"""What fills a stage."""


@dataclass(frozen=True)
class Warpgroups:
    """Warpgroups around a ring of stages.

    Attributes:
        stages: of the ring.
        copying: warpgroups that do nothing but copy; without any the first of the others does it, too.
        multiplying: warpgroups that multiply.
        sharing: how many of them multiply a tile together; others have tiles of their own and take turns.
        neighbours: blocks of the cluster that copy into each other's stages, itself among them.
        registers: of a thread that copies and of one that multiplies, where they change hands.
        goes_on: whether the last stage of a tile is given back: for the next tile.
        promotes: whether a step's sums are added to others outside of the tensor cores.
        turns: whether those that promote do it one after the other.

    """

    stages: int
    copying: int
    multiplying: int
    sharing: int
    neighbours: int = 1
    registers: tuple[int, int] | None = None
    goes_on: bool = False
    promotes: bool = False
    turns: bool = True

    @property
    def teams(self) -> int:
        """How many tiles are multiplied by turns."""
        return self.multiplying // self.sharing

    def parties(self) -> Parties:
        """Return the roles and their barriers."""
        copies = self.registers and self.registers[0]
        producer = Role("producer", THREADS * self.copying, copies, step=FILL)
        consumers = tuple(self._consumer(index) for index in range(self.multiplying))
        return ((producer, *consumers) if self.copying else consumers), self._barriers()

    def _consumer(self, index: int) -> Role:
        copies = not self.copying and index == 0
        later = tuple(replace(act, ahead=self.stages - 1) for act in FILL)
        step = self._promoted(index) if self.promotes else self._overlapped()
        return Role(
            f"consumer {index}" if self.multiplying > 1 else "consumer",
            THREADS,
            self.registers and self.registers[1],
            first=tuple(Act("copy", FULL, ahead) for ahead in range(self.stages - 1)) if copies else (),
            begin=(Act("wait", TURN),) if self.teams > 1 else (),
            step=step + (later if copies else ()),
            end=(*self._ending(), Act("write")),
            tile=index // self.sharing,
            stride=self.teams,
        )

    def _overlapped(self) -> tuple[Act, ...]:
        """Return a step whose products run while those of the step before are waited for."""
        return Act("wait", FULL), Act("multiply"), Act("finish", "", -1), self._release(-1)

    def _promoted(self, index: int) -> tuple[Act, ...]:
        """Return a step whose products are waited for, to be added while the other consumer multiplies."""
        take = Act("wait", TURN, index, every=self.multiplying)
        hand_over = Act("arrive", TURN, index + 1, WARPS, every=self.multiplying)
        products = (take, Act("multiply"), hand_over) if self.turns else (Act("multiply"),)
        return Act("wait", FULL), *products, Act("finish"), self._release(0)

    def _ending(self) -> tuple[Act, ...]:
        if self.promotes:
            return ()
        hand_over = (Act("arrive", TURN, 1, WARPS),) if self.teams > 1 else ()
        return (*hand_over, Act("finish"), *((self._release(0),) if self.goes_on else ()))

    def _release(self, step: int) -> Act:
        """Return that a stage is given back: by each warp for itself, to every block that copies into it."""
        return Act("arrive", EMPTY, step, WARPS * self.neighbours)

    def _barriers(self) -> tuple[Barrier, ...]:
        readers = WARPS * self.sharing * self.neighbours
        landed, read = "all bytes of the stage have landed", "the products that read the stage are finished"
        started = (
            "the other consumer has started the last products " + ("of a step", "of its tile")[self.teams > 1]
        )
        ring = (
            Barrier(FULL, self.stages, 1, 0, STEP, landed, self.neighbours),
            Barrier(EMPTY, self.stages, readers, self.stages, STEP, read, self.neighbours),
        )
        turn = Barrier(TURN, self.multiplying, WARPS, 1, STEP if self.promotes else TILE, started)
        return (*ring, turn) if (self.promotes and self.turns) or self.teams > 1 else ring


def described(line: Pipeline, registers: int | None) -> dict[str, Any]:
    """Return it as JSON: roles, barriers, and how the registers of an SM are spent.

    Args:
        line: the pipeline.
        registers: of a thread, as the compiler gave them; None if that is not known.

    """
    return {
        "stages": line.stages,
        "steps": line.steps,
        "tiles": line.tiles,
        "copying": line.copying,
        "multiplying": line.multiplying,
        "writing": line.writing,
        "roles": [_role(role, line, registers) for role in line.roles],
        "registers_of_an_sm": REGISTERS,
        "registers_at_launch": registers and registers * sum(role.threads for role in line.roles),
        "barriers": [_barrier(each, line) for each in line.barriers],
    }


def _role(role: Role, line: Pipeline, registers: int | None) -> dict[str, Any]:
    held = role.registers or registers
    return {
        "role": role.name,
        "threads": role.threads,
        "registers": held,
        "registers_in_all": role.threads * held if held else None,
        "changed": role.registers is not None,
        **{part: [_words(act, line) for act in getattr(role, part)] for part in PARTS},
    }


def _barrier(each: Barrier, line: Pipeline) -> dict[str, Any]:
    def who(*what: Does) -> list[str]:
        acts = ((role, act) for role in line.roles for act in role.acts)
        return list(dict.fromkeys(r.name for r, act in acts if act.does in what and act.barrier == each.name))

    return {
        "barrier": each.name,
        "number": each.places,
        "arrivals": each.arrivals,
        "blocks": each.blocks,
        "arrived_at_by": who("arrive", "commit", "copy"),
        "waited_for_by": who("wait"),
        "means": each.means,
    }


def _words(act: Act, line: Pipeline) -> str:
    """Return an act in words: s is the stage of the step, t the tile."""
    index = "t" if any(each.name == act.barrier and each.follows == TILE for each in line.barriers) else "s"
    index = f"{act.every}{index}" if act.every > 1 else index
    index += f"{act.ahead:+d}" if act.ahead else ""
    return {
        "wait": f"wait {act.barrier}[{index}]",
        "copy": f"{act.by or line.copying} into {index}",
        "multiply": f"{line.multiplying} {index}",
        "finish": f"until {index} is multiplied",
        "arrive": f"arrive {act.barrier}[{index}]",
        "commit": f"commit to {act.barrier}[{index}]",
        "lay": "sums into the stages",
        "fetch": f"sums by {act.by}",
        "write": f"C by {act.by or line.writing}",
    }[act.does]
