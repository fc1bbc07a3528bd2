"""A ring of stages in shared memory, with a full and an empty mbarrier for each.

In each block of a cluster a producer fills the stages in turn and consumers read them. A producer writes into
the same stage of every block (multicast), so it must know that the consumers of every block are done with it:
each consumer arrives at the empty barrier of every block. A full barrier counts one arrival of each producer
(it stands for the bytes of its copy).

The ring runs in lockstep. In a tick, whoever waits tests its barrier; those that pass read; then they write
and arrive. That gives the same end in every order within a tick, even where the ring is broken.

Source: PTX ISA, "Parallel synchronization and communication instructions: mbarrier"; measured by the mbarrier
probe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ptxlab.isa.mbarrier import MBarrier

NEVER = -1
"""The tick at which an agent acted, where it never did."""
EMPTY = 0xFFFFFFFF
"""What a stage holds that nothing was written to."""
SLOWNESS = (3, 16)
"""Speeds that a ring is tried at: a slow agent looks at its barrier in every so many-th tick."""
NAMES = {
    "deadlock": "all did all their iterations",
    "overrun": "no stage was written before all had read it",
    "early read": "no stage was read before it was written",
}
"""What can go wrong, and what is said where it does not."""
SASS = {"SYNCS.ARRIVE.TRANS64.RED.A1T0": 1, "SYNCS.ARRIVE.TRANS64.RED.OPTOUT.A1T0": 1}
"""Arrivals at barriers of any block, and those that leave."""
SLOW = ("none", "producers", "consumers", "one")
PARITIES = {
    "flip": (1, 0, True),
    "stuck": (1, 0, False),
    "producer-0": (0, 0, True),
    "consumer-1": (1, 1, True),
}
"""Parity of the first wait of producers and of consumers, and whether it flips with every lap."""


@dataclass(frozen=True)
class Ring:
    """A ring and what is wrong with it.

    Attributes:
        stages: how many.
        iters: how often each producer fills a stage.
        consumers: of each block.
        blocks: of the cluster.
        empty_count: arrivals that an empty barrier is made for.
        parity: a key of PARITIES; "flip" is right.
        slow: who is slow: one of SLOW; "one" is the last consumer.
        slowness: a slow agent looks at its barrier in every so many-th tick.
        quits_after: iterations after which the last consumer leaves; 0: it stays.
        drops: whether it takes its arrival out of the count before it leaves.

    """

    stages: int
    iters: int
    consumers: int
    blocks: int
    empty_count: int
    parity: str = "flip"
    slow: str = "none"
    slowness: int = SLOWNESS[0]
    quits_after: int = 0
    drops: bool = False

    @property
    def arrivals(self) -> int:
        """Arrivals at an empty barrier in a lap: what its count should be."""
        return self.consumers * self.blocks

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong with it, so that it does the same whoever is slow."""
        stays = not self.quits_after or self.drops
        return self.parity == "flip" and self.empty_count == self.arrivals and stays


@dataclass(frozen=True)
class Agent:
    """A warp: the producer of a block (number 0), or one of its consumers.

    Attributes:
        block: its rank in the cluster.
        number: 0 for the producer, from 1 on consumers.
        iters: how often it acts before it leaves.
        quits: whether that is earlier than the others.

    """

    block: int
    number: int
    iters: int
    quits: bool = False

    @property
    def produces(self) -> bool:
        """Whether it is a producer."""
        return self.number == 0

    @property
    def name(self) -> str:
        """Its name among those of its block."""
        return "producer" if self.produces else f"consumer {self.number - 1}"


@dataclass(frozen=True)
class Outcome:
    """What a ring did.

    Attributes:
        acted: [block, agent, iteration] the tick in which it read or wrote, or NEVER.
        reads: [block, consumer, iteration, writer] the iterations whose numbers a consumer found.
        objects: [block, full and empty, stage] the barriers at the end.
        ticks: how many passed until nothing could move any more.

    """

    acted: NDArray[np.int32]
    reads: NDArray[np.uint32]
    objects: NDArray[np.uint64]
    ticks: int


def agents(ring: Ring) -> list[Agent]:
    """Return every agent, the producer of a block before its consumers."""
    found = []
    for block in range(ring.blocks):
        for number in range(1 + ring.consumers):
            last = (block, number) == (ring.blocks - 1, ring.consumers)
            quits = last and 0 < ring.quits_after < ring.iters
            found.append(Agent(block, number, ring.quits_after if quits else ring.iters, quits))
    return found


def waits_for(ring: Ring, agent: Agent, iteration: int) -> tuple[int, int]:
    """Return the stage at whose barrier (empty: a producer, full: a consumer) it waits, and the parity."""
    lap, stage = divmod(iteration, ring.stages)
    producers, consumers, flips = PARITIES[ring.parity]
    return stage, (producers if agent.produces else consumers) ^ (lap & 1 if flips else 0)


def settings(ring: Ring, ticks: int) -> NDArray[np.uint32]:
    """Return the ring as the probe's kernel reads it (kernel.cu has the same list)."""
    producers, consumers, flips = PARITIES[ring.parity]
    slow = (ring.slow == who for who in ("producers", "consumers", "one"))
    leaves = ring.quits_after if ring.quits_after < ring.iters else 0
    values = (
        ring.stages, ring.iters, ring.consumers, ring.blocks, ring.empty_count, producers, consumers, flips,
        *slow, ring.slowness, leaves, ring.drops, ticks,
    )  # fmt: skip
    return np.array(values, dtype=np.uint32)


class _Lockstep:
    """A ring while it runs."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.full = [[MBarrier(ring.blocks) for _ in range(ring.stages)] for _ in range(ring.blocks)]
        self.empty = [[MBarrier(ring.empty_count) for _ in range(ring.stages)] for _ in range(ring.blocks)]
        self.slots = np.full((ring.blocks, ring.stages, ring.blocks), EMPTY, np.uint32)
        self.acted = np.full((ring.blocks, 1 + ring.consumers, ring.iters), NEVER, np.int32)
        shape = (ring.blocks, ring.consumers, ring.iters, ring.blocks)
        self.reads = np.full(shape, EMPTY, np.uint32)
        self.done = dict.fromkeys(agents(ring), 0)

    def tick(self, now: int) -> bool:
        """Let a tick pass, and say whether any agent acted."""
        passing = [agent for agent in self.done if self._awake(agent, now) and self._passes(agent)]
        for agent in passing:
            if not agent.produces:
                stage = self.done[agent] % self.ring.stages
                self.reads[agent.block, agent.number - 1, self.done[agent]] = self.slots[agent.block, stage]
        for agent in passing:
            self._act(agent)
            self.acted[agent.block, agent.number, self.done[agent]] = now
            self.done[agent] += 1
        return bool(passing)

    def _awake(self, agent: Agent, now: int) -> bool:
        last = (agent.block, agent.number) == (self.ring.blocks - 1, self.ring.consumers)
        slow = {"producers": agent.produces, "consumers": not agent.produces, "one": last}
        return not slow.get(self.ring.slow, False) or (now + 1) % self.ring.slowness == 0

    def _passes(self, agent: Agent) -> bool:
        if self.done[agent] == agent.iters:
            return False
        stage, parity = waits_for(self.ring, agent, self.done[agent])
        return (self.empty if agent.produces else self.full)[agent.block][stage].passes(parity)

    def _act(self, agent: Agent) -> None:
        """Write and arrive, or arrive."""
        iteration = self.done[agent]
        stage = iteration % self.ring.stages
        drops = agent.quits and self.ring.drops and iteration + self.ring.stages >= agent.iters
        for block in range(self.ring.blocks):
            if agent.produces:
                self.slots[block, stage, agent.block] = iteration
            (self.full if agent.produces else self.empty)[block][stage].arrive(drop=drops)


def run(ring: Ring) -> Outcome:
    """Run a ring until all are done, or none can move."""
    state = _Lockstep(ring)
    now, idle = 0, 0
    while idle < ring.slowness and any(done < agent.iters for agent, done in state.done.items()):
        idle = 0 if state.tick(now) else idle + 1
        now += 1
    pairs = zip(state.full, state.empty, strict=True)
    words = [[[each.word for each in barriers] for barriers in pair] for pair in pairs]
    return Outcome(state.acted, state.reads, np.array(words, dtype=np.uint64), now)


def without_ticks(outcome: Outcome) -> Outcome:
    """Return what is left of an outcome when nobody counts ticks: 0 where an agent acted."""
    return replace(outcome, acted=np.where(outcome.acted == NEVER, NEVER, 0).astype(np.int32), ticks=0)


def at_every_speed(ring: Ring) -> list[Outcome]:
    """Return what a ring does when all are equally fast, and when some are slow."""
    rings = [replace(ring, slow=slow, slowness=slowness) for slow in SLOW[1:] for slowness in SLOWNESS]
    return [run(each) for each in (replace(ring, slow="none"), *rings)]


def depends_on_speed(outcomes: list[Outcome]) -> bool:
    """Say whether it matters who is slow: then the ring, running freely, is a race."""
    first, *others = map(without_ticks, outcomes)
    return not all(
        np.array_equal(getattr(first, name), getattr(other, name))
        for other in others
        for name in ("acted", "reads", "objects")
    )


@dataclass(frozen=True)
class Finding:
    """Something that went wrong in a ring.

    Attributes:
        name: "deadlock", "overrun" or "early read".
        agent: to whom it happened.
        iteration: in which of its iterations.
        detail: what was seen.

    """

    name: str
    agent: Agent
    iteration: int
    detail: str


def findings(ring: Ring, outcome: Outcome) -> Iterator[Finding]:
    """Yield what went wrong, judged by an outcome alone."""
    for agent in agents(ring):
        acted = outcome.acted[agent.block, agent.number, : agent.iters]
        if not agent.produces:
            for iteration in np.flatnonzero(acted != NEVER).tolist():
                yield from _misread(ring, outcome, agent, iteration)
            yield from _overrun(ring, outcome, agent)
        if (acted == NEVER).any():
            iteration = int(np.flatnonzero(acted == NEVER)[0])
            stage, parity = waits_for(ring, agent, iteration)
            kind = "empty" if agent.produces else "full"
            yield Finding("deadlock", agent, iteration, f"waits for parity {parity} of {kind} {stage}")


def _misread(ring: Ring, outcome: Outcome, agent: Agent, iteration: int) -> Iterator[Finding]:
    """Yield where a consumer found what it was not looking for."""
    found = outcome.reads[agent.block, agent.number - 1, iteration].astype(np.int64)
    stage = iteration % ring.stages
    for value in np.unique(found[found != iteration]).tolist():
        held = "nothing yet" if value == EMPTY else f"iteration {value}"
        late = value != EMPTY and value > iteration
        yield Finding("overrun" if late else "early read", agent, iteration, f"stage {stage} held {held}")


def _overrun(ring: Ring, outcome: Outcome, agent: Agent) -> Iterator[Finding]:
    """Yield the stages that were written again before a consumer came to them."""
    for iteration in range(min(agent.iters, ring.iters - ring.stages)):
        read = outcome.acted[agent.block, agent.number, iteration]
        written = outcome.acted[:, 0, iteration + ring.stages]
        if np.any((written != NEVER) & ((read == NEVER) | (written < read))):
            stage = iteration % ring.stages
            again = iteration + ring.stages
            yield Finding("overrun", agent, iteration, f"stage {stage} was written again (iteration {again})")


def timeline(ring: Ring, outcome: Outcome, block: int) -> tuple[list[list[str]], list[list[int | None]]]:
    """Return what each stage of a block held, tick by tick, as [stage][tick] text and iteration.

    "w3" is the writing of iteration 3, "r3" its being read, "3" its waiting for a reader; "r3!" is a read in
    iteration 3 that found another iteration or nothing.
    """
    wrote = {int(t): i for i, t in enumerate(outcome.acted[block, 0]) if t != NEVER}
    texts = [[""] * outcome.ticks for _ in range(ring.stages)]
    colours: list[list[int | None]] = [[None] * outcome.ticks for _ in range(ring.stages)]
    for stage in range(ring.stages):
        held: int | None = None
        for now in range(outcome.ticks):
            read = _read_at(ring, outcome, block, stage, now)
            wrong = any(_misreads(outcome, block, iteration, now) for iteration in read)
            texts[stage][now] = f"r{read[-1]}{'!' * wrong}" if read else ""
            new = wrote.get(now, NEVER)
            if new != NEVER and new % ring.stages == stage:
                held = new
                texts[stage][now] += f"w{new}"
            elif not read and held is not None and not _all_read(ring, outcome, block, held, now):
                texts[stage][now] = str(held)
            colours[stage][now] = held if texts[stage][now] else None
    return texts, colours


def _read_at(ring: Ring, outcome: Outcome, block: int, stage: int, now: int) -> list[int]:
    """Return the iterations that consumers of a block were in when they read a stage in this tick."""
    iterations = np.nonzero(outcome.acted[block, 1:] == now)[1]
    return sorted({int(i) for i in iterations if i % ring.stages == stage})


def _misreads(outcome: Outcome, block: int, iteration: int, now: int) -> bool:
    """Say whether a consumer that read in this tick found something else than its iteration."""
    reading = outcome.acted[block, 1:, iteration] == now
    return bool((outcome.reads[block, reading, iteration] != iteration).any())


def _all_read(ring: Ring, outcome: Outcome, block: int, iteration: int, now: int) -> bool:
    reading = [agent for agent in agents(ring) if agent.block == block and not agent.produces]
    ticks = (outcome.acted[block, agent.number, iteration] for agent in reading if iteration < agent.iters)
    return all(NEVER != tick <= now for tick in ticks)


def why(ring: Ring) -> str:
    """Say what comes of a count of the empty barriers that is not the number of arrivals, or nothing."""
    if ring.empty_count > ring.arrivals:
        return ": no phase ever completes, producers wait in the second lap"
    if ring.empty_count < ring.arrivals:
        return ": a phase ends before all have read (early reuse); two leave parity as it was (aliasing)"
    return ""
