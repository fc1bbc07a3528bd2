"""mbarrier: a 64-bit object in shared memory that counts arrivals and bytes, phase by phase.

A phase is complete when all its arrivals have come (pending is 0) and all bytes that are expected have landed
(tx-count is 0); then the next phase begins with a fresh pending count. A wait asks whether the phase of a
parity is complete, and knows just two phases: the current one, which is not, and the one before, which is.

Where the counts lie in the 64 bits is no part of PTX. An H200 keeps the object of a living barrier where no
load sees it; mbarrier.inval puts it in memory (mbarrier probe):
    bit 63      parity of the current phase
    bits 43-62  minus the pending count
    bits 21-41  minus the tx-count, which is below 0 while bytes have landed that nothing expects yet
    bits 1-20   minus the expected count, with which the next phase begins

Source: PTX ISA, "Parallel synchronization and communication instructions: mbarrier".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError, unknown_name
from ptxlab.isa.shown import Shown

MOST = (1 << 20) - 1
"""The largest count of arrivals, and the most by which the tx-count may be off 0, either way."""
LANES = 32
MOST_STEPS = 256
NO_WAIT = -1
TEST_WAIT_SASS, TRY_WAIT_SASS = "SYNCS.PHASECHK.TRANS64", "SYNCS.PHASECHK.TRANS64.TRYWAIT"
TRACE_SASS = {"SYNCS.ARRIVE.TRANS64": 6, TEST_WAIT_SASS: 6, TRY_WAIT_SASS: 4, "SYNCS.CCTL.IV": 1}
"""What ptxas makes of every instruction once. Arrivals differ by their suffix: A1T0 is arrive, ART0 arrive N,
none arrive.expect_tx, OPTOUT arrive_drop, RED.A0TR expect_tx and RED.A0TX complete_tx."""
_PENDING, _TX, _EXPECTED = (43, 20), (21, 21), (1, 20)  # lowest bit and width of a field


class Op(IntEnum):
    """How the probe's kernel tells steps apart (kernel.cu has the same list)."""

    INIT = 0
    ARRIVE = 1
    ARRIVE_COUNT = 2
    ARRIVE_EXPECT_TX = 3
    ARRIVE_DROP = 4
    EXPECT_TX = 5
    COMPLETE_TX = 6
    TEST_WAIT = 7
    TEST_WAIT_STATE = 8
    TRY_WAIT = 9
    TRY_WAIT_STATE = 10
    WAIT = 11
    WAIT_STATE = 12
    INVAL = 13


@dataclass(frozen=True)
class Instruction:
    """What the language of traces knows of an instruction.

    Attributes:
        op: its code.
        operand: "count", "bytes", "phase" (a parity, or @N), or "" where it takes none.
        usual: the operand when it is left out, or None where it may not be.

    """

    op: Op
    operand: str
    usual: int | None = None


INSTRUCTIONS = {
    "init": Instruction(Op.INIT, "count"),
    "arrive": Instruction(Op.ARRIVE, "count", 1),
    "arrive.expect_tx": Instruction(Op.ARRIVE_EXPECT_TX, "bytes"),
    "arrive_drop": Instruction(Op.ARRIVE_DROP, "count", 1),
    "expect_tx": Instruction(Op.EXPECT_TX, "bytes"),
    "complete_tx": Instruction(Op.COMPLETE_TX, "bytes"),
    "test_wait": Instruction(Op.TEST_WAIT, "phase"),
    "try_wait": Instruction(Op.TRY_WAIT, "phase"),
    "wait": Instruction(Op.WAIT, "phase"),
    "inval": Instruction(Op.INVAL, "", 0),
}
WORDS = (
    "init N", "arrive [N]", "arrive.expect_tx BYTES", "arrive_drop [N]", "expect_tx BYTES",
    "complete_tx BYTES", "test_wait P", "try_wait P", "wait P", "inval",
)  # fmt: skip
"""How the words of a trace are written: P is a parity, or @N for the state that arrival N returned; "by
LANES" may stand behind arrivals and bytes."""
_LEGAL = {"count": (1, MOST), "bytes": (0, MOST), "phase": (0, 1), "": (0, 0)}
_TOGETHER = ("arrive", "arrive.expect_tx", "arrive_drop", "expect_tx", "complete_tx")
_STATES = ("arrive", "arrive.expect_tx", "arrive_drop")
_STEP = re.compile(
    r"(?P<name>[\w.]+)(?:\s+(?P<at>@?)(?P<operand>\d{1,9}))?(?:\s+by\s+(?P<lanes>\d{1,9}))?",
    re.ASCII,
)


@dataclass(frozen=True)
class Step:
    """One instruction of a trace.

    Attributes:
        name: a key of INSTRUCTIONS.
        op: its code.
        operand: a count, bytes, a parity, or the number (from 0) of the step whose state is meant.
        lanes: lanes of the warp that execute it together.
        text: as it was written.

    """

    name: str
    op: Op
    operand: int
    lanes: int
    text: str


class MBarrierError(Exception):
    """A count left its range: what the object does then is not defined.

    Attributes:
        name: which count.
        certain: whether an H200 stops the kernel because of it.

    """

    def __init__(self, name: str, reason: str, *, certain: bool) -> None:
        super().__init__(reason)
        self.name = name
        self.certain = certain


@dataclass
class MBarrier:
    """The object.

    Attributes:
        expected: arrivals of each phase to come.
        pending: arrivals that the current phase still waits for.
        tx: bytes that it still waits for.
        completed: phases that are complete.

    """

    expected: int
    pending: int = field(init=False)
    tx: int = 0
    completed: int = 0

    def __post_init__(self) -> None:
        self.pending = self.expected

    @property
    def parity(self) -> int:
        """Parity of the current phase."""
        return self.completed & 1

    @property
    def word(self) -> int:
        """The 64 bits."""
        fields = ((self.pending, _PENDING), (self.tx, _TX), (self.expected, _EXPECTED))
        return self.parity << 63 | sum((-value & (1 << bits) - 1) << at for value, (at, bits) in fields)

    def arrive(self, count: int = 1, *, tx: int = 0, drop: bool = False) -> int:
        """Count arrivals, after the bytes that they expect, and return the state from before.

        Those that come at once, as lanes of a warp do, must all belong to one phase.

        Raises:
            MBarrierError: more arrive than are pending, or the tx-count leaves its range.

        """
        state = self.word >> 32 << 32
        if count > self.pending:
            raise MBarrierError(
                "pending count out of range",
                f"{count} arrivals at once, {self.pending} pending",
                certain=True,
            )
        self._add_tx(tx)
        self.pending -= count
        self.expected -= count if drop else 0
        self._settle()
        return state

    def expect_tx(self, tx: int) -> None:
        """Expect so many bytes more (fewer, where negative: they have landed).

        Raises:
            MBarrierError: the tx-count leaves its range.

        """
        self._add_tx(tx)
        self._settle()

    def passes(self, parity: int) -> bool:
        """Say whether a wait for the phase of this parity passes."""
        return parity != self.parity

    def _add_tx(self, tx: int) -> None:
        if abs(self.tx + tx) > MOST:
            raise MBarrierError(
                "tx-count out of range",
                f"the tx-count would be {self.tx + tx}; legal: -{MOST} to {MOST}",
                certain=self.tx + tx != MOST + 1,  # which fits into the field
            )
        self.tx += tx

    def _settle(self) -> None:
        if self.pending == 0 and self.tx == 0:
            self.completed += 1
            self.pending = self.expected


def fields(word: int) -> dict[str, int]:
    """Return what an object or a state holds: parity, pending, tx and expected."""
    pending, tx, expected = (-(word >> at) & (1 << bits) - 1 for at, bits in (_PENDING, _TX, _EXPECTED))
    return {
        "parity": word >> 63,
        "pending": pending,
        "tx": tx - (1 << 21) if tx > MOST else tx,
        "expected": expected,
    }


def account(left: int) -> str:
    """Say how the bytes of a phase stand that still expects so many; below 0 they came unexpected."""
    if left < 0:
        return f"{-left} bytes more than expected came"
    return f"{left} bytes are missing" if left else "all came"


MAY_END = "too early, or never"
"""How a phase ends that expects fewer bytes than come, if some of them are just as many."""


def ended(*, done: bool, left: int) -> str:
    """Say how a phase ended, by whether it did and what its barrier still expects."""
    if not done:
        return "never"
    return "too early" if left else "yes"


def exists(arch: str) -> bool:
    """Say whether an architecture has the whole mbarrier."""
    return int(arch.strip("sm_af")) >= 90


def check_arch(arch: str) -> None:
    """Say why there is no mbarrier like this, if there is none.

    Raises:
        UsageError: the architecture is older than sm_90.

    """
    if not exists(arch):
        smaller = ": sm_80 has one that knows no bytes, no try_wait and no other blocks"
        raise UsageError(
            f"{arch} has no such mbarrier, the minimum is sm_90{smaller if arch >= 'sm_80' else ''}"
        )


def parse_trace(text: str) -> tuple[Step, ...]:
    """Return the steps of "init 2; arrive by 2; wait 0".

    Raises:
        UsageError: something else stands there; the message names what would be legal.

    """
    steps: list[Step] = []
    for part in text.split(";"):
        if part.strip():
            steps.append(_parse_step(part.strip(), steps))
    if not steps or steps[0].op is not Op.INIT:
        raise UsageError(f"the trace '{text}' does not begin with init", "such as: init 1; arrive; wait 0")
    if len(steps) > MOST_STEPS:
        raise UsageError(f"a trace of {len(steps)} steps; ptxlab takes 1 to {MOST_STEPS}")
    return tuple(steps)


def _parse_step(text: str, before: Sequence[Step]) -> Step:
    found = _STEP.fullmatch(text)
    name = found["name"] if found else text.split(maxsplit=1)[0]
    if name not in INSTRUCTIONS:
        raise unknown_name("step of a trace", name, INSTRUCTIONS)
    if found is None:
        raise UsageError(f"'{text}' is no step of a trace; legal: {name} {_form(name)}")
    instruction, lanes = INSTRUCTIONS[name], int(found["lanes"] or 1)
    if not 1 <= lanes <= (LANES if name in _TOGETHER else 1):
        raise UsageError(f"'{text}': legal: by 1 to {LANES}, of {', '.join(_TOGETHER)}")
    if found["operand"] is None and instruction.usual is None:
        raise UsageError(f"'{text}' lacks its operand; legal: {name} {_form(name)}")
    _check_order(name, before)
    if found["at"]:
        return Step(
            name, Op(instruction.op + 1), _state(text, instruction, int(found["operand"]), before), 1, text
        )
    operand = int(found["operand"] or instruction.usual or 0)
    least, most = _LEGAL[instruction.operand]
    if not least <= operand <= most:
        raise UsageError(f"'{text}': {operand} is out of range; legal: {name} {_form(name)}")
    op = Op.ARRIVE_COUNT if name == "arrive" and found["operand"] else instruction.op
    return Step(name, op, operand, lanes, text)


def _form(name: str) -> str:
    """Return what may stand after an instruction's name."""
    instruction = INSTRUCTIONS[name]
    least, most = _LEGAL[instruction.operand]
    if instruction.operand == "phase":
        return "0, 1 (a parity), or @N (the state that arrival N returned)"
    return f"{least} to {most}" if instruction.operand else "without operand"


def _state(text: str, instruction: Instruction, number: int, before: Sequence[Step]) -> int:
    """Return the number, from 0, of the step whose state a wait names, counted from 1: one of this object."""
    born = max((i for i, step in enumerate(before, 1) if step.op is Op.INIT), default=0)
    legal = [
        str(i) for i, step in enumerate(before, 1) if i > born and step.name in _STATES and step.lanes == 1
    ]
    if instruction.operand != "phase" or str(number) not in legal:
        steps = f"of step {', '.join(legal)}" if legal else "of an arrival before it"
        raise UsageError(f"'{text}': @{number} is no state; legal: a wait for the state {steps}")
    return number - 1


def _check_order(name: str, before: Sequence[Step]) -> None:
    """Hold a step against those before it: an object lives from init to inval.

    Raises:
        UsageError: it is used when it does not exist, or made a second time.

    """
    alive = bool(before) and before[-1].op is not Op.INVAL
    if before and name == "init" and alive:
        raise UsageError("init of a barrier that exists; legal: as the first step, and after inval")
    if before and name != "init" and not alive:
        raise UsageError(f"{name} after inval; legal: init")


@dataclass(frozen=True)
class Trace(Shown):
    """What a trace does.

    Attributes:
        objects: the object after each step.
        states: what the arrival of one lane returned, else 0.
        passed: of each step, 1 where a wait passed, 0 where it blocks, NO_WAIT where none waits.
        completed: phases that were complete after each step.
        broken: what left its range in the step after the last of ``completed``, or None.

    """

    objects: NDArray[np.uint64]
    states: NDArray[np.uint64]
    passed: NDArray[np.int32]
    completed: list[int]
    broken: MBarrierError | None = None

    def __repr__(self) -> str:
        lines = [
            f"step {row['step']}: {row['completed']} phases complete, parity {row['parity']}, "
            f"{row['pending']} pending, tx {row['tx']}" + (f", the wait {row['wait']}" if row["wait"] else "")
            for row in self.rows()
        ]
        return "\n".join([*lines, *([f"then {self.broken}"] if self.broken else [])])

    def rows(self) -> list[dict[str, Any]]:
        """Return the barrier after each step, up to the one in which a count leaves its range."""
        waits = {NO_WAIT: "", 0: "blocks", 1: "passes"}
        return [
            {"step": number + 1, "completed": done, **fields(int(word)), "wait": waits[int(passed)]}
            for number, (done, word, passed) in enumerate(
                zip(self.completed, self.objects, self.passed, strict=False)
            )
        ]


def run(steps: Sequence[Step]) -> Trace:
    """Run a trace on a barrier; it ends where a count leaves its range."""
    count = len(steps)
    trace = Trace(
        np.zeros(count, np.uint64), np.zeros(count, np.uint64), np.full(count, NO_WAIT, np.int32), []
    )
    barrier = MBarrier(1)
    for number, step in enumerate(steps):
        if step.op is Op.INIT:
            barrier = MBarrier(step.operand)
        try:
            trace.states[number] = _arrived(barrier, step)
        except MBarrierError as error:
            return Trace(trace.objects, trace.states, trace.passed, trace.completed, error)
        if INSTRUCTIONS[step.name].operand == "phase":
            named = step.op != INSTRUCTIONS[step.name].op
            parity = fields(int(trace.states[step.operand]))["parity"] if named else step.operand
            trace.passed[number] = barrier.passes(parity)
        trace.objects[number] = barrier.word
        trace.completed.append(barrier.completed)
    return trace


def _arrived(barrier: MBarrier, step: Step) -> int:
    """Let the lanes of a step do together what it does, and return the state of a single one."""
    amount = step.lanes * step.operand
    state = 0
    if step.name == "arrive.expect_tx":
        state = barrier.arrive(step.lanes, tx=amount)
    elif step.name in _STATES:
        state = barrier.arrive(amount, drop=step.name == "arrive_drop")
    elif step.name in ("expect_tx", "complete_tx"):
        barrier.expect_tx(amount if step.name == "expect_tx" else -amount)
    return state if step.lanes == 1 else 0


def encoded(steps: Sequence[Step]) -> NDArray[np.uint32]:
    """Return the steps as the kernel reads them: op, operand and lanes of each."""
    return np.array([(step.op, step.operand, step.lanes) for step in steps], dtype=np.uint32)


def rows(steps: Sequence[Step], trace: Trace) -> list[dict[str, Any]]:
    """Return a table of a trace: what the object holds after each step, and why a wait ended as it did."""
    table = []
    beyond = {each.step: each.reason for each in undefined(steps, trace)}
    for number, (step, completed) in enumerate(zip(steps, trace.completed, strict=False)):
        word, state = int(trace.objects[number]), int(trace.states[number])
        before = trace.completed[number - 1] if number and step.op is not Op.INIT else 0
        table.append({
            "step": number + 1, "op": step.text, "completed": completed, **fields(word),
            "object": f"0x{word:016x}", "state": f"0x{state:016x}" if state else None,
            "wait": {NO_WAIT: None, 0: "block", 1: "pass"}[int(trace.passed[number])],
            "note": _note(step, before, completed, fields(word), passed=bool(trace.passed[number])),
        })  # fmt: skip
        if number in beyond:
            own = table[-1]["note"] if table[-1]["wait"] is None else ""
            table[-1]["note"] = f"{own}{'; ' if own else ''}not defined: {beyond[number]}"
    if trace.broken:
        step, unknown = steps[len(table)], dict.fromkeys(table[0])
        table.append({**unknown, "step": len(table) + 1, "op": step.text, "note": str(trace.broken)})
    return table


def never_pass(steps: Sequence[Step], trace: Trace) -> list[tuple[int, int, str]]:
    """Return the waits that no later step lets pass: the number of each, its phase, what it lacks in the end.

    A wait is no mistake of a trace, which goes on behind it: at these a program would stay.
    """
    found: list[tuple[int, int, str]] = []
    beyond = {each.step for each in undefined(steps, trace)}
    for number, completed in enumerate(trace.completed):
        if steps[number].name != "wait" or trace.passed[number] or number in beyond:
            continue
        life = [*_life(steps[: len(trace.completed)], number)]
        last = life[-1]
        if trace.completed[last] == completed:
            held = fields(int(trace.objects[last]))
            found.append((number, completed, _missing(held["pending"], held["tx"])))
    return found


def _life(steps: Sequence[Step], number: int) -> Iterator[int]:
    """Yield this step and those after it until the barrier is gone."""
    for later in range(number, len(steps)):
        if steps[later].op in (Op.INIT, Op.INVAL):
            return
        yield later


@dataclass(frozen=True)
class Undefined:
    """What a trace does beyond what PTX defines; the model says how an H200 goes on.

    Attributes:
        name: what it is called.
        step: its number, from 0.
        reason: in a clause.

    """

    name: str
    step: int
    reason: str


def undefined(steps: Sequence[Step], trace: Trace) -> list[Undefined]:
    """Return every step whose outcome PTX does not define, though a barrier goes on.

    Source: PTX ISA, "mbarrier.test_wait" (a state is that of the current phase or of the one before) and
    "Contents of the mbarrier object" (the expected count is 1 to 2^20 - 1).
    """
    found = []
    for number, now in enumerate(trace.completed):
        step = steps[number]
        if INSTRUCTIONS[step.name].operand == "phase" and step.op is not INSTRUCTIONS[step.name].op:
            asked = trace.completed[step.operand - 1]
            if now - asked > 1:
                reason = f"the state is of phase {asked}, and a wait knows just phases {now - 1} and {now}"
                found.append(Undefined("aliasing", number, reason))
        if step.op is not Op.INVAL and not fields(int(trace.objects[number]))["expected"]:
            reason = f"phase {now} expects no arrivals, the count must be 1 to {MOST}"
            found.append(Undefined("expected count", number, reason))
    return found


def _note(step: Step, before: int, completed: int, held: dict[str, int], *, passed: bool) -> str:
    """Say in a few words what a step did."""
    if INSTRUCTIONS[step.name].operand == "phase":
        if not passed:
            return f"phase {completed} waits for {_missing(held['pending'], held['tx'])}"
        return f"phase {completed - 1} is complete" if completed else "as if a phase before 0 had completed"
    if completed > before + 1:
        return f"phases {before} to {completed - 1} complete"
    return f"phase {before} complete" if completed > before else ""


def _missing(pending: int, tx: int) -> str:
    """Say what a phase still waits for: "2 arrivals, 100 bytes"."""
    parts = [f"{pending} arrival{'s' * (pending != 1)}"] if pending else []
    if tx:
        parts.append(f"{tx} bytes" if tx > 0 else f"{-tx} bytes to be expected that have landed")
    return ", ".join(parts)
