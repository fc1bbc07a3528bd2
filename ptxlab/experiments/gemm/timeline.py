"""A pipeline, run column by column: what each role, each stage and the tensor cores do meanwhile.

A column is the time that the tensor cores take for what one role multiplies in a step. They do one such thing
after the other, in the order in which it was started. Barriers count arrivals and pass by parity, as those of
the device do. Copies land, and sums are written, after a fixed number of columns.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ptxlab.experiments.gemm.pipeline import FULL, STEP, Act, Pipeline, Role
from ptxlab.experiments.gemm.plan import WAY_OUT
from ptxlab.isa.mbarrier import MBarrier, MBarrierError

WRITES, ON_ITS_WAY, LANDED, MULTIPLIED = "w", ">", "=", "*"
"""What a cell says, beside the number of a stage, and the first letter of a barrier that is waited for."""

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"

LANDING = 1000.0
"""Cycles from asking for the tiles of a step until they have landed: a guess, from the L2 or from memory."""

WAY_OUT_SUMS = 128 * 256
"""Sums of the tile that is written in WAY_OUT cycles."""

MOST_STEPS = 64
"""Of a tile that are drawn."""

MOST_STAGES = 8
"""Of a ring, that have a row."""

WINDOW = 32
"""Columns of a picture: a terminal of 80 letters shows them in one piece."""

BEFORE = 6
"""Columns that are shown before the first product, and before the end of a tile."""

TENSOR_CORES = "tensor cores"


@dataclass(frozen=True)
class Pace:
    """How many columns pass until copies have landed, and while sums are written.

    ``sending`` is how many bytes a column takes to other SMs: whoever sends is busy meanwhile.
    """

    landing: int
    writing: int
    sending: float = math.inf


@dataclass
class Timeline:
    """What happened, column by column.

    Attributes:
        rows: what each row shows: by its name the text of each column.
        tile_ends: for each tile the column in which its last product was finished.
        findings: what went wrong: a wait that never ends, a stage that is overwritten or read too early.

    """

    rows: dict[str, list[str]]
    tile_ends: dict[int, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)


def simulate(line: Pipeline, pace: Pace) -> Timeline:
    """Return what happens until all tiles are written, or nobody can go on."""
    block = _Block(line, pace)
    while not block.is_done:
        block.column()
    return block.seen


def acts(role: Role, line: Pipeline) -> Iterator[tuple[Act, int]]:
    """Yield all that a role does in its order, each with the number of the step, or tile, that is meant."""
    tiles = {barrier.name for barrier in line.barriers if barrier.follows != STEP}
    total = line.tiles * line.steps
    yield from ((act, act.ahead) for act in role.first if act.ahead < total)
    for tile in range(role.tile, line.tiles, role.stride):
        first, last = tile * line.steps, (tile + 1) * line.steps - 1
        steps = ((role.step, step) for step in range(first, last + 1))
        for part, step in ((role.begin, first), *steps, (role.end, last)):
            for act in part:
                number = (tile if act.barrier in tiles else step * act.every) + act.ahead
                of_step = act.barrier not in tiles and act.every == 1
                if not of_step or first <= number < total:
                    yield act, number


class _Agent:
    """A role at work.

    It has its next act, so many columns still to write or to send, the step that it copied for in this
    column, and the last step whose products it has started.
    """

    def __init__(self, role: Role, line: Pipeline) -> None:
        self.role = role
        self.rest = acts(role, line)
        self.next = next(self.rest, None)
        self.writing = 0
        self.sending = 0
        self.copied: int | None = None
        self.started = -1

    @property
    def busy(self) -> bool:
        """Whether something takes it more columns."""
        return self.writing > 0 or self.sending > 0

    def go_on(self) -> None:
        """Turn to what is next."""
        self.next = next(self.rest, None)

    def end_column(self) -> None:
        """Have a column less to be busy."""
        self.writing, self.sending = max(0, self.writing - 1), max(0, self.sending - 1)
        self.copied = self.copied if self.sending else None


class _Block:
    """A block at work."""

    def __init__(self, line: Pipeline, pace: Pace) -> None:
        self.line, self.pace, self.time = line, pace, 0
        self.agents = [_Agent(role, line) for role in line.roles]
        self.kinds = {each.name: each for each in line.barriers}
        self.barriers = {
            each.name: [MBarrier(each.arrivals) for _ in range(each.places)] for each in line.barriers
        }
        self.copies: list[tuple[int, str, int]] = []  # when each lands, at which barrier, its step
        self.products: deque[tuple[str, int]] = deque()  # that were started: by whom, and in which step
        self.commits: dict[tuple[str, int], list[tuple[Act, int]]] = {}  # by whose products, of which step
        self.landed: set[int] = set()
        self.finished: Counter[int] = Counter()  # by step, products of how many roles
        self.done: dict[str, int] = {}  # the last step whose products are finished, by role
        self.held: list[int | None] = [None] * line.stages  # the step that a stage is filled for
        self.readers = Counter(role.tile for role in line.roles if role.does("multiply"))  # by tile
        self.teams = max(role.stride for role in line.roles)
        roles = (role.name for role in line.roles)
        stages = (f"stage {stage}" for stage in range(line.stages))
        self.seen = Timeline({name: [] for name in (*roles, TENSOR_CORES, *stages)})

    @property
    def is_done(self) -> bool:
        """Whether all roles are at their end, or something went wrong."""
        ended = all(agent.next is None and not agent.busy for agent in self.agents)
        return bool(self.seen.findings) or ended

    def column(self) -> None:
        """Let a column pass."""
        passes = bool(self.copies or self.products or any(agent.busy for agent in self.agents))
        try:
            moved = self._begin()
        except MBarrierError as error:
            self.seen.findings.append(f"more arrive than a barrier counts: {error}")
            return
        if not moved and not passes:
            self._tell_deadlock()
            return
        product = self.products.popleft() if self.products else None
        self._draw(product)
        if product:
            self._finish(*product)
        for agent in self.agents:
            agent.end_column()
        self.time += 1

    def _begin(self) -> bool:
        """Let copies land, and all roles go on until each must wait; return whether anything happened."""
        moved = False
        while self.copies and self.copies[0][0] <= self.time:
            _, name, step = heapq.heappop(self.copies)
            self._barrier(name, step).arrive()
            self.landed |= {step} if name == FULL else set()
            moved = True
        while any([self._goes_on(agent) for agent in self.agents]):  # noqa: C419 - all of them, not up to one
            moved = True
        return moved

    def _goes_on(self, agent: _Agent) -> bool:
        """Do the next thing of a role, if it can be done now."""
        if agent.busy or agent.next is None:
            return False
        act, number = agent.next
        if act.does == "wait" and not self._passes(act.barrier, number):
            return False
        if act.does == "finish" and self.done.get(agent.role.name, -1) < number:
            return False
        if act.does == "arrive":
            self._barrier(act.barrier, number).arrive(act.count)
        elif act.does == "copy":
            agent.sending = math.ceil(act.nbytes / self.pace.sending)
            self._copy(act.barrier, number, max(self.pace.landing, agent.sending))
            agent.copied = number
        elif act.does == "multiply":
            self._check_read(agent.role, number)
            self.products.append((agent.role.name, number))
            agent.started = number
        elif act.does == "commit":
            self.commits.setdefault((agent.role.name, agent.started), []).append((act, number))
        elif act.does == "write":
            agent.writing = self.pace.writing
        agent.go_on()
        return True

    def _barrier(self, name: str, number: int) -> MBarrier:
        return self.barriers[name][number % self.kinds[name].places]

    def _passes(self, name: str, number: int) -> bool:
        """Say whether a wait passes: for the phase that this step or tile ends, or frees, by its parity."""
        round_, place = divmod(number, self.kinds[name].places)
        phases = round_ + (place >= self.kinds[name].free)
        return self._barrier(name, number).passes((phases - 1) & 1)

    def _copy(self, name: str, step: int, columns: int) -> None:
        stage = step % self.line.stages
        before = self.held[stage]
        if before not in (None, step) and not self._is_read(before):
            self.seen.findings.append(f"stage {stage} is overwritten in step {step}, before it was read")
        self.held[stage] = step
        heapq.heappush(self.copies, (self.time + columns, name, step))

    def _check_read(self, role: Role, step: int) -> None:
        if step not in self.landed or self.held[step % self.line.stages] != step:
            self.seen.findings.append(f"{role.name} reads stage {step % self.line.stages} without its tiles")

    def _is_read(self, step: int) -> bool:
        return self.finished[step] == self.readers[step // self.line.steps % self.teams]

    def _finish(self, name: str, step: int) -> None:
        for act, number in self.commits.pop((name, step), ()):
            self._barrier(act.barrier, number).arrive(act.count)
        self.done[name] = step
        self.finished[step] += 1
        tile, rest = divmod(step + 1, self.line.steps)
        if not rest and self._is_read(step):
            self.seen.tile_ends[tile - 1] = self.time

    def _tell_deadlock(self) -> None:
        for agent in self.agents:
            if agent.next:
                act, number = agent.next
                self.seen.findings.append(
                    f"{agent.role.name} waits for ever: {act.does} {act.barrier} {number}"
                )

    def _draw(self, product: tuple[str, int] | None) -> None:
        rows = self.seen.rows
        for agent in self.agents:
            rows[agent.role.name].append(self._said(agent))
        rows[TENSOR_CORES].append(self._digit(product[1]) if product else "")
        for stage, step in enumerate(self.held):
            said = (
                "" if step is None or self._is_read(step) else LANDED if step in self.landed else ON_ITS_WAY
            )
            rows[f"stage {stage}"].append(MULTIPLIED if product and product[1] == step else said)

    def _said(self, agent: _Agent) -> str:
        """Return what a role does: it writes, copied, or waits for a barrier or its products of a stage."""
        if agent.writing:
            return WRITES
        if agent.copied is not None and not agent.role.does("multiply"):
            return self._digit(agent.copied)
        if agent.next is None:
            return ""
        act, number = agent.next
        return act.barrier[0] if act.does == "wait" else self._digit(number)

    def _digit(self, step: int) -> str:
        return DIGITS[step % self.line.stages]


def pictures(line: Pipeline, seen: Timeline) -> list[dict[str, Any]]:
    """Return two windows, as the renderers draw them: the start, and the end of the first tile."""
    tensor_cores = seen.rows[TENSOR_CORES]
    length, product = len(tensor_cores), next((i for i, text in enumerate(tensor_cores) if text), 0)
    end = min(max(0, product - BEFORE) + WINDOW, length)
    found = [_picture("the start", line, seen, max(0, end - WINDOW), end)]
    if length > end:
        first = max(end, min(seen.tile_ends.get(0, length) - BEFORE, length - WINDOW))
        found.append(_picture("the end of a tile", line, seen, first, min(first + WINDOW, length)))
    return found


def _picture(what: str, line: Pipeline, seen: Timeline, first: int, end: int) -> dict[str, Any]:
    shown = list(seen.rows)[: len(line.roles) + 1 + MOST_STAGES]
    cells = {name: seen.rows[name][first:end] for name in shown}
    some = f", {MOST_STAGES} of {line.stages} stages" if line.stages > MOST_STAGES else ""
    return {
        "title": f"pipeline: {what}, columns {first} to {end - 1}{some}",
        "cells": list(cells.values()),
        "colours": [[_colour(name, text, line) for text in texts] for name, texts in cells.items()],
        "row_names": list(cells),
        "column_names": [str(column % 10) for column in range(first, end)],
    }


def _colour(name: str, text: str, line: Pipeline) -> int | None:
    """Return the stage that a cell is about: it is named there, or is the row's and holds tiles."""
    if text in (LANDED, MULTIPLIED):
        return int(name.rpartition(" ")[2])
    return DIGITS.index(text) if text and text in DIGITS[: line.stages] else None


def drawn(
    line: Pipeline, macs_per_cycle: float, blocks: int, sent_a_cycle: float = math.inf
) -> dict[str, Any]:
    """Return the pipeline at work as JSON: two pictures, their time scale, and what goes wrong.

    Args:
        line: the pipeline.
        macs_per_cycle: multiply-adds of an SM.
        blocks: that share an SM, and its tensor cores.
        sent_a_cycle: bytes that a block sends to other SMs in a cycle.

    """
    teams = max(role.stride for role in line.roles)
    short = replace(line, steps=min(line.steps, MOST_STEPS), tiles=min(line.tiles, teams + 1))
    column = line.macs * blocks / macs_per_cycle
    writing = WAY_OUT * line.sums / WAY_OUT_SUMS
    sent = sum(act.nbytes for role in line.roles for act in role.step)
    landing, writes = math.ceil(LANDING / column), math.ceil(writing / column)
    seen = simulate(short, Pace(landing, writes, sent_a_cycle * column))
    return {
        "column_cycles": column,
        "blocks": blocks,
        "landing_cycles": LANDING,
        "writing_cycles": writing,
        "sending_cycles": sent / sent_a_cycle,
        "drawn_steps": short.steps,
        "drawn_tiles": short.tiles,
        "pictures": pictures(short, seen),
        "findings": seen.findings,
    }
