"""When does a wait on an mbarrier pass, and what does the barrier hold after every step?

Method: a trace runs on a barrier in shared memory, whose 64 bits are read back after each step (block k
runs steps up to k); a wait that does not pass after a few polls is reported as "block". A round (--count,
--expect, ...) is a trace with a waiter whose waits must block until all has come, and pass then. A ring
(--sim, --stages, --cluster, ...) runs producers and consumers in lockstep, tick by tick alike on the model
and on the device; consumers write out the number that they find in a stage. With --free they just wait for
their barriers, and give up after 10 ms.
Counting: a step is one thread's unless "by N" lanes of a warp do it together; in a ring an agent is a warp.
Source: PTX ISA, "Parallel synchronization and communication instructions: mbarrier".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, flag, option
from ptxlab.experiments.probe import Arrays, Fault, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import mbarrier as isa
from ptxlab.isa import ring as rings
from ptxlab.isa.mbarrier import LANES, MOST, Step, Trace
from ptxlab.isa.ring import NEVER, Agent, Finding, Outcome, Ring
from ptxlab.layout.tile import spans

LEFT_OUT = -1
DEFAULT_TRACE = "init 1; wait 1; wait 0; arrive; wait 0; wait 1"
DEFAULT_BYTES = 4096
MOST_ARRIVALS = 1024  # of a round
LIMITS = {
    "count": (1, MOST), "arrivals": (0, MOST_ARRIVALS), "expect": (0, MOST), "land": (0, MOST),
    "stages": (1, 8), "iters": (1, 64), "consumers": (1, 16), "cluster": (1, 8), "empty_count": (1, MOST),
    "slowness": (2, 32), "quit_after": (1, 63),
}  # fmt: skip
ROUND = ("count", "arrivals", "expect", "land", "order", "arrival")
RING = (
    "sim", "stages", "iters", "consumers", "cluster", "empty_count", "slow", "slowness", "quit_after", "drop",
    "free",
)  # fmt: skip
NUMBERS = {"stages": 4, "iters": 10, "consumers": 2, "cluster": 1, "slowness": rings.SLOWNESS[0]}
USUAL: dict[str, Value] = {"trace": DEFAULT_TRACE, "slow": "none", "parity": "flip", **NUMBERS}
SHOWN_COLUMNS = 40
SHOWN_FINDINGS = 8
PASSES, BLOCKS = 8, 0  # colours: green, red
PHASES = (20, 4, 16, 24, 12, 28)  # colours of phases, in turn
TITLES = {
    "completed": "phase", "parity": "parity", "pending": "arrivals due", "tx": "bytes due",
    "expected": "arrivals a phase",
}  # fmt: skip
NONE_OF = ("deadlock", "overrun", "early read", "early return", "too few arrivals", "aliasing", "early exit")
"""Findings that are named by what is wrong."""


class MBarrierProbe(Probe):
    maps = False
    findings = (
        "early return", "aliasing", "too few arrivals", "transaction count", "deadlock", "overrun",
        "early read", "empty count", "early exit", "expected count",
    )  # fmt: skip

    usage = (
        "It runs one of three programs. A trace (--trace, or nothing) is steps one after the other. A round "
        f"(--{', --'.join(ROUND)}, --parity 0 or 1) is a trace with a waiter: its waits must block until all "
        "has come, and pass then. A ring (--sim, or any other option) is a pipeline of stages between "
        "producers and consumers."
    )
    trace = option(
        "",
        metavar="STEPS",
        help=f"trace: steps with ; between them: {', '.join(isa.WORDS)}; P is a parity or @N, the state of "
        f"arrival N; 'by 32' behind a step: 32 lanes at once; left out: '{DEFAULT_TRACE}'",
    )
    count = option(LEFT_OUT, metavar="N", help="round: arrivals that the barrier is made for; left out: 1")
    arrivals = option(LEFT_OUT, metavar="N", help="round: arrivals that come; left out: as many")
    expect = option(
        LEFT_OUT,
        metavar="BYTES",
        help="round: bytes that the barrier is told to expect; left out: 4096 where there is a copy",
    )
    land = option(LEFT_OUT, metavar="BYTES", help="round: bytes that land; left out: as many")
    order = option("", choices=("early", "late"), help="round: expect before the copy is issued, or after")
    arrival = option(
        "", choices=("own", "other"), help="round: who arrives: the thread that expects, or another"
    )
    parity = option(
        "",
        choices=("0", "1", *rings.PARITIES),
        help="round: of the waiter; ring: of both sides, flip is right",
    )
    sim = option(default=False, help="a ring of stages between producers and consumers")
    stages = option(LEFT_OUT, metavar="N", help="ring: stages; left out: 4")
    iters = option(LEFT_OUT, metavar="N", help="ring: how often a producer fills a stage; left out: 10")
    consumers = option(LEFT_OUT, metavar="N", help="ring: consumer warps of a block; left out: 2")
    cluster = option(LEFT_OUT, metavar="N", help="ring: blocks, each filling stages of all; left out: 1")
    empty_count = option(
        LEFT_OUT, metavar="N", help="ring: count of the empty barriers; left out: all arrive"
    )
    slow = option("", choices=rings.SLOW, help="ring: who is slow")
    slowness = option(LEFT_OUT, metavar="N", help="ring: acts in every N-th tick only; left out: 3")
    quit_after = option(
        LEFT_OUT, metavar="N", help="ring: the last consumer leaves after N iterations; left out: never"
    )
    drop = option(default=False, help="ring: and takes its arrival out of the counts (arrive_drop)")
    free = option(default=False, help="ring: no lockstep, all wait for barriers alone")

    def complete(self, params: dict[str, Value]) -> None:
        """Write every point in one way, whichever way it was typed, so that it finds its recording."""
        defaults = {name: each.default for name, each in self.options().items()}
        given = {name for name, value in params.items() if value != defaults[name]}
        modes = modes_of(given, str(params["parity"]))
        if len(modes) > 1:
            raise UsageError(f"{' and '.join(modes)} at once; legal: one of a trace, a round and a ring")
        params["sim"] = modes == ["a ring"]
        for name, usual in USUAL.items():
            if params[name] == usual:
                params[name] = defaults[name]
        if params["sim"] and params["empty_count"] == everybody(params):
            params["empty_count"] = LEFT_OUT

    def check(self, case: Case) -> None:
        isa.check_arch(case.arch)
        for name, (least, most) in LIMITS.items():
            value = case.params[name]
            if isinstance(value, int) and value != LEFT_OUT and not least <= value <= most:
                takes = "legal:" if most == MOST else "this probe takes"
                raise UsageError(f"--{flag(name)} {value} is out of range; {takes} {least} to {most}")
        if case.sim:
            check_ring(case)
        else:
            if is_round(case):
                check_round(case)
            steps_of(case)

    def variants(self, arch: str) -> Iterator[Case]:
        if isa.exists(arch):
            yield from (self.case(arch, trace=trace) for trace in TRACES)
            yield from (self.case(arch, **params) for params in (*ROUNDS, *RINGS))

    def in_force(self, case: Case) -> dict[str, Value]:
        typed = {name: None if value in (LEFT_OUT, "") else value for name, value in case.params.items()}
        return typed | values_of(case)

    def macros(self, case: Case) -> Macros:
        return {"RING": (2 if case.free else 1) if case.sim else 0}

    def claims(self, case: Case) -> dict[str, int]:
        if not case.sim:
            return isa.TRACE_SASS
        return rings.SASS | {isa.TRY_WAIT_SASS if case.free else isa.TEST_WAIT_SASS: 1}

    def inputs(self, case: Case) -> Arrays:
        if case.sim:
            return {"settings": rings.settings(ring_of(case), outcome_of(case).ticks)}
        return {"steps": isa.encoded(steps_of(case))}

    def outputs(self, case: Case) -> dict[str, Output]:
        if not case.sim:
            shape = (len(steps_of(case)),)
            return {
                "objects": Output(shape, np.uint64, ("step",)),
                "states": Output(shape, np.uint64, ("step",)),
                "passed": Output(shape, np.int32, ("step",)),
            }
        ring = ring_of(case)
        each, consumers = (ring.blocks, 1 + ring.consumers, ring.iters), (ring.blocks, ring.consumers)
        return {
            "acted": Output(each, np.int32, ("block", "warp", "iteration")),
            "reads": Output(
                (*consumers, ring.iters, ring.blocks), np.uint32, ("block", "consumer", "iteration", "writer")
            ),
            "objects": Output((ring.blocks, 2, ring.stages), np.uint64, ("block", "kind", "stage")),
        }

    def geometry(self, case: Case) -> Geometry:
        if not case.sim:
            blocks = len(steps_of(case))  # block k runs steps up to k
            return Geometry(arguments=("steps", "objects", "states", "passed"), grid=(blocks, 1, 1))
        ring = ring_of(case)
        return Geometry(
            arguments=("settings", "acted", "reads", "objects"),
            grid=(ring.blocks, 1, 1),
            block=(32 * (1 + ring.consumers), 1, 1),
            cluster=(ring.blocks, 1, 1) if ring.blocks > 1 else None,
        )

    def fault(self, case: Case) -> Fault | None:
        broken = None if case.sim else trace_of(case).broken
        return Fault(broken.name, str(broken), certain=broken.certain) if broken else None

    def expected(self, case: Case) -> Arrays:
        if case.sim:
            found = outcome_of(case)
            return {"acted": found.acted, "reads": found.reads, "objects": found.objects}
        trace = trace_of(case)
        return {"objects": trace.objects, "states": trace.states, "passed": trace.passed}

    def examine(self, case: Case, outputs: Arrays, record: Record) -> None:
        if case.sim:
            examine_ring(case, outputs, record)
        elif is_round(case) and not trace_of(case).broken:
            examine_round(case, outputs, record)
        else:
            for name, detail in beyond(case).items():
                record.check(name, ok=False, detail=detail)

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        del measured  # a table of bits is the same whoever answered
        if case.sim:
            return report_ring(case, outputs)
        rows = isa.rows(steps_of(case), trace_from(case, outputs))
        return {
            "ptx": "mbarrier, step by step",
            "steps": rows,
            "pictures": [trace_picture(rows)],
            "titles": TITLES | {name: f"no {name}" for name in NONE_OF},
            "minor": [*TITLES, "object", "state"],  # the picture has most of them
        }

    def conclude(self, case: Case, record: Record) -> str:
        failed = [each for each in record.checks if not each["ok"] and each["name"] in self.findings]
        if case.sim:
            return conclude_ring(case, "; ".join(f"{each['name']}: {each['detail']}" for each in failed))
        broken = trace_of(case).broken
        if broken:
            return f"{broken}: what the barrier does then is not defined."
        if is_round(case):
            return conclude_round(case, "; ".join(each["detail"] for each in failed))
        waits = ", ".join(row["wait"] for row in record.result["steps"] if row["wait"])
        return (
            f"{stuck(case)}{f'Waits: {waits}. ' if waits else ''}A wait on parity P passes while the current "
            "phase has the other parity: on a fresh barrier 1 passes and 0 blocks, so producers start with 1 "
            "and consumers with 0."
        )


def modes_of(given: set[str], parity: str) -> list[str]:
    """Return what the options that were given belong to."""
    modes = {
        "a trace": "trace" in given,
        "a round": bool(given & set(ROUND)) or parity in ("0", "1"),
        "a ring": bool(given & set(RING)) or parity in rings.PARITIES,
    }
    return [name for name, chosen in modes.items() if chosen]


# --- traces and rounds


def is_round(case: Case) -> bool:
    """Say whether the trace is made of a round's options."""
    return modes_of({name for name in ROUND if case.params[name] not in (LEFT_OUT, "")}, case.parity) == [
        "a round"
    ]


def beyond(case: Case) -> dict[str, str]:
    """Return what of a trace PTX does not define: what it is called -> where it begins."""
    found = isa.undefined(steps_of(case), trace_of(case))
    return {
        each.name: f"From step {each.step + 1} on this is not defined: {each.reason}"
        if each.name == "expected count"
        else f"The answer of step {each.step + 1} is not defined: {each.reason}"
        for each in reversed(found)
    }


def stuck(case: Case) -> str:
    """Return what of a trace is not defined, and which of its waits would never return, or nothing."""
    undefined = "".join(f"{each}. " for each in beyond(case).values())
    found = isa.never_pass(steps_of(case), trace_of(case))
    if not found:
        return undefined
    (number, phase, missing), *others = found
    more = f" Nor does step {', '.join(str(each + 1) for each, _, _ in others)}." if others else ""
    return f"{undefined}Step {number + 1} never passes: phase {phase} waits for {missing}.{more} "


def values_of(case: Case) -> dict[str, Value]:
    """Return the values that the options of a case's program have where they were left out."""
    if case.sim:
        ring = ring_of(case)
        return {name: number(case.params, name) for name in NUMBERS} | {
            "parity": ring.parity, "slow": ring.slow, "empty_count": ring.empty_count,
        }  # fmt: skip
    if not is_round(case):
        return {"trace": case.trace or DEFAULT_TRACE}
    count = 1 if case.count == LEFT_OUT else case.count
    arrivals = count if case.arrivals == LEFT_OUT else case.arrivals
    values: dict[str, Value] = {"count": count, "arrivals": arrivals, "parity": case.parity or "0"}
    if copies(case):
        expect = DEFAULT_BYTES if case.expect == LEFT_OUT else case.expect
        values |= {
            "expect": expect, "land": expect if case.land == LEFT_OUT else case.land,
            "order": case.order or "early", "arrival": case.arrival or "own",
        }  # fmt: skip
    return values


def copies(case: Case) -> bool:
    """Say whether a round has a copy."""
    return any(case.params[name] not in (LEFT_OUT, "") for name in ("expect", "land", "order", "arrival"))


@lru_cache(maxsize=256)
def steps_of(case: Case) -> tuple[Step, ...]:
    """Return the steps of a trace or of a round."""
    return isa.parse_trace("; ".join(round_of(case)[0]) if is_round(case) else case.trace or DEFAULT_TRACE)


@lru_cache(maxsize=256)
def trace_of(case: Case) -> Trace:
    """Return what the model says of a trace."""
    return isa.run(steps_of(case))


def trace_from(case: Case, outputs: Arrays) -> Trace:
    """Return the trace that outputs show; how many phases are complete no barrier says, but the model."""
    said = trace_of(case)
    return Trace(outputs["objects"], outputs["states"], outputs["passed"], said.completed, said.broken)


def round_of(case: Case) -> tuple[list[str], list[int]]:
    """Return the steps of a round, and which are waits that must block; the last is a wait that must pass."""
    count = 1 if case.count == LEFT_OUT else case.count
    arrivals = count if case.arrivals == LEFT_OUT else case.arrivals
    parity = case.parity or "0"
    guard = f"test_wait {parity}"
    steps = [f"init {count}", guard]
    steps += transfer(case, count, arrivals, guard) if copies(case) else arrive(arrivals, count, count)
    return [*steps, f"wait {parity}"], [i for i, step in enumerate(steps) if step == guard]


def check_round(case: Case) -> None:
    """Refuse a round of more arrivals, or of more steps, than this probe takes."""
    count, arrivals = values_of(case)["count"], int(str(values_of(case)["arrivals"]))
    if arrivals > MOST_ARRIVALS:
        raise UsageError(
            f"--count {count} and as many arrivals; this probe takes up to {MOST_ARRIVALS}",
            f"--arrivals {MOST_ARRIVALS}, or a trace: --trace 'init {count}; arrive {count}; wait 0'",
        )
    steps = len(round_of(case)[0])
    if steps > isa.MOST_STEPS:
        raise UsageError(
            f"{arrivals} arrivals at a count of {count} take {steps} steps; this probe takes up to "
            f"{isa.MOST_STEPS}",
            "fewer --arrivals",
        )


def transfer(case: Case, count: int, arrivals: int, guard: str) -> list[str]:
    """Return the steps of a round with a copy; where it is issued late, its bytes land at the worst time."""
    expect = DEFAULT_BYTES if case.expect == LEFT_OUT else case.expect
    land = [f"complete_tx {expect if case.land == LEFT_OUT else case.land}"]
    own = case.arrival != "other"
    if own and arrivals == 0:
        raise UsageError("--arrivals 0, and the thread that expects bytes arrives; legal: 1 or more")
    others = arrive(arrivals - own, count, count - own if case.order != "late" else count)
    tell = [f"{'arrive.' if own else ''}expect_tx {expect}"]
    guards = [guard] if expect else []
    if case.order != "late":
        return [*tell, *others, *guards, *land]
    return [*others, *land, *guards, *tell] if own else [*others, *guards, *land, *tell]


def arrive(arrivals: int, count: int, pending: int) -> list[str]:
    """Return the steps of so many arrivals: lanes of a warp together, but never more than are pending."""
    steps = []
    while arrivals:
        lanes = min(LANES, arrivals, pending or count)
        steps.append(f"arrive by {lanes}" if lanes > 1 else "arrive")
        arrivals -= lanes
        pending = (pending or count) - lanes
    return steps


def examine_round(case: Case, outputs: Arrays, record: Record) -> None:
    """Say of each way in which a round can fail whether it did."""
    held, completed = isa.fields(int(outputs["objects"][-1])), trace_of(case).completed[-1]
    guards = round_of(case)[1]
    passed = [str(i + 1) for i in guards if outputs["passed"][i]]
    record.check(
        "early return",
        ok=not passed,
        detail=f"the wait in step {', '.join(passed)} passes before all has come"
        if passed
        else "no wait passes before all has come",
    )
    turned = "unchanged" if completed % 2 == 0 else "flipped"
    alias = " (aliasing)" if completed > 1 else ""
    record.check("aliasing", ok=completed < 2, detail=f"{completed} phases completed, parity {turned}{alias}")
    short = completed == 0 and held["pending"] > 0
    record.check(
        "too few arrivals",
        ok=not short,
        detail=f"pending {held['pending']}{': waiters hang' if short else ''}",
    )
    detail = f"tx-count {held['tx']}: {isa.account(held['tx'])}"
    record.check("transaction count", ok=held["tx"] == 0, detail=detail if held["tx"] else "all bytes landed")
    through = bool(outputs["passed"][-1])
    record.check("deadlock", ok=through, detail=f"the last wait {'passes' if through else 'never passes'}")


def conclude_round(case: Case, failed: str) -> str:
    """Say what went wrong in a round, and what lanes of one warp would do where it was too many arrivals."""
    if not failed:
        return "Every wait blocked until all had come, and passed then."
    failed = f"{failed[0].upper()}{failed[1:]}"
    if trace_of(case).completed[-1] < 2:
        return f"{failed}."
    return (
        f"{failed}. So it is when arrivals come one by one; lanes of a warp that arrive together, more than "
        "are pending, stop the kernel on an H200 (--trace 'init 1; arrive by 32')."
    )


def trace_picture(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Draw the barrier step by step: the colour is the phase."""
    shown = [row for row in rows[:SHOWN_COLUMNS] if row["object"]]
    more = f", the first {SHOWN_COLUMNS} of {len(rows)} steps" if len(rows) > SHOWN_COLUMNS else ""
    names = ("completed", "parity", "pending", "tx")
    waits = {"pass": PASSES, "block": BLOCKS}
    return {
        "title": f"the barrier after each step, coloured by phase; waits green where they pass{more}",
        "cells": [[str(row[name]) for row in shown] for name in names]
        + [[row["wait"] or "" for row in shown]],
        "colours": [[PHASES[row["completed"] % len(PHASES)] for row in shown]] * len(names)
        + [[waits.get(row["wait"]) for row in shown]],
        "row_names": [*(TITLES[name] for name in names), "wait"],
        "column_names": [str(row["step"]) for row in shown],
    }


# --- rings


@lru_cache(maxsize=256)
def ring_of(case: Case) -> Ring:
    """Return the ring of a case."""
    stages, iters, consumers, blocks, slowness = (number(case.params, name) for name in NUMBERS)
    count = consumers * blocks if case.empty_count == LEFT_OUT else case.empty_count
    parity, slow = case.parity or "flip", case.slow or "none"
    return Ring(
        stages, iters, consumers, blocks, count, parity, slow, slowness, max(case.quit_after, 0), case.drop
    )


@lru_cache(maxsize=256)
def outcome_of(case: Case) -> Outcome:
    """Return what the model says of a ring."""
    found = rings.run(ring_of(case))
    return rings.without_ticks(found) if case.free else found


def number(params: dict[str, Value], name: str) -> int:
    """Return a number of the ring's, the usual one where it was left out."""
    value = params[name]
    return value if isinstance(value, int) and value != LEFT_OUT else NUMBERS[name]


def everybody(params: dict[str, Value]) -> int:
    """Return how many consumers arrive at an empty barrier in a lap."""
    return number(params, "consumers") * number(params, "cluster")


def check_ring(case: Case) -> None:
    """Refuse options that contradict each other, and races without lockstep.

    Raises:
        UsageError: with what would be legal.

    """
    ring = ring_of(case)
    if case.slowness != LEFT_OUT and not case.slow:
        raise UsageError("--slowness without --slow; legal: beside --slow producers, consumers or one")
    if ring.quits_after and not ring.stages <= ring.quits_after < ring.iters:
        raise UsageError(
            f"--quit-after {ring.quits_after}; legal: {ring.stages} (stages) to {ring.iters - 1}"
        )
    if ring.drops and (not ring.quits_after or ring.empty_count != ring.arrivals or ring.arrivals < 2):
        raise UsageError("--drop; legal: with --quit-after, two or more consumers, and all of them counted")
    if case.free and case.slow:
        raise UsageError("--slow with --free; legal: in lockstep, which knows ticks")
    if case.free and not ring.sound and rings.depends_on_speed(rings.at_every_speed(ring)):
        raise UsageError(
            "--free: what this ring does depends on who is slow; legal: rings without a race",
            "leave --free out: in lockstep it does the same every time",
        )


def outcome_from(case: Case, outputs: Arrays) -> Outcome:
    """Return the outcome that outputs show."""
    return Outcome(outputs["acted"], outputs["reads"], outputs["objects"], outcome_of(case).ticks)


def examine_ring(case: Case, outputs: Arrays, record: Record) -> None:
    """Say of each way in which a ring can fail whether it did."""
    ring = ring_of(case)
    found = list(rings.findings(ring, outcome_from(case, outputs)))
    for name, good in rings.NAMES.items():
        own = [each for each in found if each.name == name]
        record.check(name, ok=not own, detail=told(own) if own else good)
    counted = f"{ring.empty_count} counted, {ring.arrivals} arrive in a lap"
    record.check("empty count", ok=ring.empty_count == ring.arrivals, detail=counted + rings.why(ring))
    if ring.quits_after:
        missed = not ring.drops and any(each.name == "deadlock" for each in found)
        left = f"{agents_told([agent for agent in rings.agents(ring) if agent.quits])} left after "
        left += f"{ring.quits_after} of {ring.iters} iterations"
        record.check("early exit", ok=not missed, detail=f"{left}{', its arrivals are missing' * missed}")


def told(found: list[Finding]) -> str:
    """Tell of findings of one kind: the first, and of how many."""
    first = found[0]
    where = f"{agents_told([first.agent])} in iteration {first.iteration}"
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{where}: {first.detail}{more}"


def agents_told(those: list[Agent]) -> str:
    """Name agents of one block: "consumers 0-7 of block 1"."""
    block = f" of block {those[0].block}"
    if those[0].produces:
        return f"producer{block}"
    return f"consumer{'s' * (len(those) > 1)} {spans(agent.number - 1 for agent in those)}{block}"


def report_ring(case: Case, outputs: Arrays) -> dict[str, Any]:
    """Return what the agents did, what went wrong first, and the pictures."""
    ring, outcome = ring_of(case), outcome_from(case, outputs)
    found = list(rings.findings(ring, outcome))
    pace = "free" if case.free else "in lockstep"
    each = f"1 producer and {ring.consumers} consumer{'s' * (ring.consumers > 1)}"
    result: dict[str, Any] = {
        "ptx": f"mbarrier ring of {ring.stages} stages; {ring.blocks} x ({each}), {pace}",
        "agents": agent_rows(ring, outcome),
        "findings": finding_rows(found)[:SHOWN_FINDINGS],
        "titles": {"waits_for": "waits for"} | not_found(case),
    }
    if case.free:
        result["pictures"] = [reads_picture(ring, outcome, block) for block in range(ring.blocks)]
    else:
        result["ticks"] = outcome.ticks
        result["pictures"] = [ring_picture(ring, outcome, block) for block in range(ring.blocks)]
    return result


def not_found(case: Case) -> dict[str, str]:
    """Return what is said where there are none of a kind: just of this run, if it depends on who is slow."""
    ring = ring_of(case)
    here = "" if ring.sound or not rings.depends_on_speed(rings.at_every_speed(ring)) else " in this run"
    return {name: f"no {name}{here}" for name in NONE_OF}


def finding_rows(found: list[Finding]) -> list[dict[str, Any]]:
    """Return a row for the agents of a block to whom the same happened."""
    groups: dict[tuple[str, int, bool, int, str], list[Agent]] = {}
    for each in found:
        agent = each.agent
        key = (each.name, agent.block, agent.produces, each.iteration, each.detail)
        groups.setdefault(key, []).append(agent)
    return [
        {"finding": name, "who": agents_told(those), "iteration": iteration, "seen": detail}
        for (name, _, _, iteration, detail), those in groups.items()
    ]


def agent_rows(ring: Ring, outcome: Outcome) -> list[dict[str, Any]]:
    """Return a row for the agents of a block that got equally far."""
    groups: dict[tuple[int, bool, int, int], list[Agent]] = {}
    for agent in rings.agents(ring):
        done = int(np.count_nonzero(outcome.acted[agent.block, agent.number] != NEVER))
        groups.setdefault((agent.block, agent.produces, done, agent.iters), []).append(agent)
    rows = []
    for (_, produces, done, iters), those in groups.items():
        stage, parity = rings.waits_for(ring, those[0], done)
        waits = f"parity {parity} of {'empty' if produces else 'full'} {stage}" if done < iters else None
        rows.append({"agents": agents_told(those), "iterations": done, "of": iters, "waits_for": waits})
    return rows


def ring_picture(ring: Ring, outcome: Outcome, block: int) -> dict[str, Any]:
    """Draw the stages of a block tick by tick: the colour is the iteration that a stage holds."""
    texts, colours = rings.timeline(ring, outcome, block)
    ticks = min(outcome.ticks, SHOWN_COLUMNS)
    more = f", the first {ticks} of {outcome.ticks} ticks" if ticks < outcome.ticks else ""
    of = f" of block {block}" if ring.blocks > 1 else ""
    return {
        "title": f"stages{of} tick by tick: w written, r read, iteration; ! read of another one{more}",
        "cells": [row[:ticks] for row in texts],
        "colours": [row[:ticks] for row in colours],
        "row_names": [f"stage {stage}" for stage in range(ring.stages)],
        "column_names": [str(tick) for tick in range(ticks)],
    }


def reads_picture(ring: Ring, outcome: Outcome, block: int) -> dict[str, Any]:
    """Draw the numbers that each consumer of a block found, by its iteration."""
    shown = min(ring.iters, SHOWN_COLUMNS)
    numbers = outcome.reads[block, :, :shown].min(axis=-1)
    seen = outcome.acted[block, 1:, :shown] != NEVER
    more = f", the first {shown} of {ring.iters}" if shown < ring.iters else ""
    values: list[list[int | None]] = [
        [int(found) if known else None for found, known in zip(*row, strict=True)]
        for row in zip(numbers, seen, strict=True)
    ]
    of = f" of block {block}" if ring.blocks > 1 else ""
    return {
        "title": f"what consumers{of} found, by iteration{more}",
        "cells": [["" if value is None else str(value) for value in row] for row in values],
        "colours": values,
        "row_names": [f"consumer {consumer}" for consumer in range(ring.consumers)],
        "column_names": [str(iteration) for iteration in range(shown)],
    }


def conclude_ring(case: Case, failed: str) -> str:
    """Say whether the ring is sound, and whether that hangs on who is slow."""
    if failed:
        ring = ring_of(case)
        outcomes = rings.at_every_speed(ring)
        seen = {each.name for outcome in outcomes for each in rings.findings(ring, outcome)}
        names = ", ".join(name for name in rings.NAMES if name in seen)
        slow = f" Depending on who is slow: {names}." if names else ""
        return f"{failed}.{slow}"
    return (
        "Every consumer read its iterations, once and in order: producers start with parity 1, consumers "
        "with 0, and both flip it with every lap."
    )


TRACES = (
    "",
    "init 2; arrive; test_wait 0; arrive; test_wait 0; test_wait 1",
    "init 2; arrive; test_wait @2; try_wait @2; wait @2; arrive; test_wait @2; try_wait @6; arrive; wait @9",
    "init 7; arrive 3; arrive 4; try_wait 0; arrive 6; try_wait 1; arrive; try_wait 1",
    "init 32; arrive 31; test_wait 0; arrive; test_wait 0",
    "init 33; arrive by 32; test_wait 0; arrive; test_wait 0; arrive by 32",
    "init 1; arrive by 2",
    "; ".join(["init 1", *["arrive"] * 33, "wait 0"]),
    f"init {MOST}; arrive {MOST - 1}; test_wait 0; arrive; test_wait 0",
    f"init {MOST}; arrive {MOST}; test_wait 0",
    "init 1; arrive.expect_tx 100; complete_tx 60; test_wait 0; complete_tx 40; test_wait 0; test_wait 1",
    "init 2; expect_tx 16; arrive; complete_tx 16; test_wait 0; arrive; test_wait 0",
    "init 1; complete_tx 16; test_wait 0; expect_tx 16; arrive; test_wait 0",
    "init 1; complete_tx 16; arrive; test_wait 0; expect_tx 16; test_wait 0",
    "init 4; arrive 3; expect_tx 32; arrive; test_wait 0; complete_tx 32; test_wait 0; test_wait 1",
    f"init 1; expect_tx {MOST}; complete_tx {MOST}; arrive; test_wait 0",
    f"init 1; complete_tx {MOST}; expect_tx {MOST}; arrive; test_wait 0",
    f"init 1; arrive.expect_tx {MOST}; complete_tx 1; complete_tx {MOST - 1}; wait 0",
    "init 32; arrive.expect_tx 4 by 32; test_wait 0; complete_tx 4 by 32; test_wait 0",
    "init 32; complete_tx 128 by 31; arrive.expect_tx 128 by 32; complete_tx 128; wait 0",
    "init 3; arrive_drop; arrive 2; wait 0; arrive 2; wait 1; arrive; arrive; wait 0",
    "init 5; arrive_drop 2; arrive_drop; arrive 2; wait 0; arrive 2; wait 1",
    "init 32; arrive_drop by 31; arrive; wait 0; arrive; wait 1",
    "init 2; arrive_drop 2; test_wait 0; test_wait 1",
    "init 4; arrive; inval; init 2; arrive 2; wait 0; inval",
    f"init 2; expect_tx {MOST}; expect_tx 1; complete_tx {MOST}; complete_tx 1; arrive 2; wait 0",
    f"init 2; expect_tx {MOST}; expect_tx 2",
    f"init 2; complete_tx {MOST}; complete_tx 1",
    "init 2; arrive 3",
    "init 1; arrive.expect_tx 8; arrive; complete_tx 8",
)
ROUNDS: tuple[dict[str, Value], ...] = (
    {"count": 1, "arrivals": 32},
    {"count": 32, "arrivals": 1},
    {"count": 256},
    {"count": 3, "arrivals": 31},
    {"parity": "1"},
    {"expect": DEFAULT_BYTES},
    {"expect": 128, "land": 100},
    {"expect": 100, "land": 128, "count": 4},
    {"order": "late"},
    {"order": "late", "count": 8},
    {"order": "late", "arrival": "other"},
    {"order": "early", "arrival": "other"},
)
RINGS: tuple[dict[str, Value], ...] = (
    {"sim": True},
    {"stages": 1},
    {"stages": 8, "iters": 32},
    {"slow": "consumers"},
    {"slow": "producers"},
    {"slow": "one", "slowness": 8},
    {"parity": "stuck"},
    {"parity": "stuck", "slow": "one"},
    {"parity": "producer-0"},
    {"parity": "consumer-1"},
    {"parity": "consumer-1", "slow": "one"},
    {"cluster": 2, "consumers": 8},
    {"cluster": 2, "consumers": 8, "slow": "one", "slowness": 16},
    {"cluster": 2, "consumers": 8, "empty_count": 8},
    {"cluster": 2, "consumers": 8, "empty_count": 8, "slow": "one", "slowness": 16},
    {"cluster": 2, "consumers": 8, "empty_count": 17},
    {"cluster": 4, "stages": 3, "iters": 20},
    {"consumers": 4, "empty_count": 3, "slow": "one"},
    {"quit_after": 4},
    {"quit_after": 4, "drop": True, "slow": "one"},
    {"cluster": 2, "quit_after": 5, "drop": True},
    {"free": True},
    {"free": True, "stages": 1, "iters": 64},
    {"free": True, "cluster": 2, "consumers": 8, "iters": 64},
    {"free": True, "cluster": 8, "consumers": 4, "iters": 64},
    {"free": True, "parity": "producer-0"},
    {"free": True, "cluster": 2, "consumers": 8, "empty_count": 17},
    {"free": True, "quit_after": 4},
    {"free": True, "quit_after": 7, "drop": True, "iters": 40},
)
