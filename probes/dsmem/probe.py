"""How does a block reach into the shared memory of another block of its cluster, and until when may it?

Method: every lane of every block does one operation in the shared memory of every block, its own among them;
each word carries its block, slot, lane and number, so that nothing can stand for another. Shared memory is
written out at the end, and what operations return. Atomics are done one block after the other, so that their
answers are known. Waits on barriers are bounded: a wrong byte count is reported, and nothing hangs. With
--exit-barrier no all blocks but the first end at once, and the first reaches into what they left.
An H200 (2026-11-30) ended each such kernel with a launch failure, which the tool's worker does not outlive.
Counting: bytes as the mbarrier of the block that gets them counts them: a lane's 4 to 16, from every lane.
Source: PTX ISA, "mapa", "ld", "st", "st.async", "atom", "red", "red.async".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, option
from ptxlab.experiments.probe import Arrays, Fault, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import cluster, mbarrier
from ptxlab.isa import dsmem as isa
from ptxlab.isa.dsmem import LANES

LEFT_OUT = -1
CODES = {"mapa": 0, "ld": 1, "st": 2, "st.async": 3, "atom": 4, "red": 5, "red.async": 6}
KEYWORDS = {"and": "and_", "or": "or_", "xor": "xor_"}  # as ptxlab::Reduce has them
MOVES, REDUCES = ("ld", "st", "st.async"), ("atom", "red", "red.async")
SHOWN_LANES, DRAWN_LANES = 4, 8
WORD = (
    "The bytes of a word, from the highest: the block that wrote it (0x80 more where that was before the "
    "launch), slot, lane, and number of the word."
)


class DsmemProbe(Probe):
    maps = False
    findings = ("bytes expected",)

    op = option("ld", choices=isa.OPS, help="what every block does in every block")
    size = option(4, metavar="N", help="blocks of the cluster")
    words = option(1, choices=(1, 2, 4), help="32-bit words of a lane: .u32, .v2, .v4 (ld, st, st.async)")
    redop = option("add", choices=tuple(isa.REDUCTIONS), help="operation of atom, red and red.async")
    expect = option(LEFT_OUT, metavar="BYTES", help="that each mbarrier is armed with; left out: all")
    exit_barrier = option("yes", choices=("yes", "no"), help="wait for the cluster before a block ends")

    def complete(self, params: dict[str, Value]) -> None:
        """Write every point in one way, so that it finds its recording."""
        landing = isa.bytes_landing(str(params["op"]), int(str(params["size"])), int(str(params["words"])))
        if params["expect"] == landing:
            params["expect"] = LEFT_OUT

    def check(self, case: Case) -> None:
        cluster.check_arch(case.arch)
        if not 1 <= case.size <= cluster.PORTABLE:
            raise UsageError(f"a cluster of {case.size} blocks; this probe takes 1 to {cluster.PORTABLE}")
        if case.words != 1 and case.op not in MOVES:
            raise UsageError(f"--words {case.words} with --op {case.op}; legal: with {', '.join(MOVES)}")
        if case.redop != "add" and case.op not in REDUCES:
            raise UsageError(f"--redop {case.redop} with --op {case.op}; legal: with {', '.join(REDUCES)}")
        if case.expect != LEFT_OUT and not (counts(case) and 0 <= case.expect <= mbarrier.MOST):
            raise UsageError(
                f"--expect {case.expect} with --op {case.op}; legal: 0 to {mbarrier.MOST} with st.async and "
                "red.async"
            )

    def variants(self, arch: str) -> Iterator[Case]:
        if cluster.exists(arch):
            yield from (self.case(arch, **params) for params in points())

    def macros(self, case: Case) -> Macros:
        return {
            "OP": CODES[case.op],
            "WORDS": words(case),
            "REDUCE": KEYWORDS.get(case.redop, case.redop),
            "EXIT_BARRIER": int(case.exit_barrier == "yes"),
        }

    def claims(self, case: Case) -> dict[str, int]:
        barriers = 1 + (case.exit_barrier == "yes") + (case.op == "atom")
        found = {cluster.ARRIVE_SASS: barriers, cluster.WAIT_SASS: barriers}
        return found | isa.sass(case.op, case.words, case.redop)

    def inputs(self, case: Case) -> Arrays:
        return {"before": isa.before(case.op, case.size, words(case))}

    def outputs(self, case: Case) -> dict[str, Output]:
        axes = ("block", "slot", "lane", "word")
        found = {"after": Output(self.inputs(case)["before"].shape, np.uint32, axes)}
        if outcome(case).answers is not None:
            shape = (case.size, case.size, LANES, words(case))
            found["answers"] = Output(shape, np.uint32, ("block", "peer", "lane", "word"))
        return found | ({"ended": Output((case.size,), np.int32, ("block",))} if counts(case) else {})

    def geometry(self, case: Case) -> Geometry:
        outputs = self.outputs(case)
        names = [name if name in outputs else "before" for name in ("answers", "ended")]
        slots = outputs["after"].shape[1]
        return Geometry(
            arguments=("before", "after", *names, np.uint32(slots), np.uint32(expected(case))),
            grid=(case.size, 1, 1),
            block=(LANES, 1, 1),
            shared_bytes=slots * LANES * 4 * words(case),
            cluster=(case.size, 1, 1),
        )

    def fault(self, case: Case) -> Fault | None:
        if case.exit_barrier == "no" and reaches(case):
            return Fault(
                "exit barrier",
                "blocks end while another still reaches into their shared memory: end every block with "
                "barrier.cluster.arrive and .wait (--exit-barrier yes); a run that went well proves nothing",
                certain=False,
            )
        if counts(case) and expected(case) < landing(case):
            return Fault("bytes expected", f"{armed(case)}; the phase ends {mbarrier.MAY_END}", certain=False)
        return None

    def expected(self, case: Case) -> Arrays:
        found = outcome(case)
        arrays: dict[str, Any] = {"after": found.after}
        if found.answers is not None:
            arrays["answers"] = found.answers
        if counts(case):
            arrays["ended"] = np.full(case.size, expected(case) == landing(case), dtype=np.int32)
        return arrays

    def examine(self, case: Case, outputs: Arrays, record: Record) -> None:
        if counts(case) and not self.fault(case):
            late = np.flatnonzero(outputs["ended"] != 1).tolist()
            told = f"{armed(case)}; the phase ends in {case.size - len(late)} of {case.size} blocks"
            record.check("bytes expected", ok=not late, detail=told)

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        forms = {1: ".u32", 2: ".v2.u32", 4: ".v4.u32"}
        suffix = {"mapa": ""}.get(case.op, f".{case.redop}" if case.op in REDUCES else forms[case.words])
        result: dict[str, Any] = {"ptx": isa.PTX[case.op] + suffix, "block": "0"}
        if case.op == "mapa":
            result["addresses"] = address_rows(case, outputs["answers"])
            return result | {"pictures": [address_picture(case, outputs["answers"])]}
        if counts(case):
            left = expected(case) - landing(case)
            unsure = left < 0 and not measured
            result["barriers"] = [
                {
                    "block": i,
                    "armed with": expected(case),
                    "bytes that land": landing(case),
                    "phase ended": mbarrier.MAY_END if unsure else mbarrier.ended(done=bool(e), left=left),
                    "bytes": mbarrier.account(left),
                }
                for i, e in enumerate(outputs["ended"].tolist())
            ]
        if case.op in REDUCES:
            result["memory"] = atomic_rows(case, outputs)
            result["pictures"] = [memory_picture(case, outputs["after"])]
        else:
            result["pictures"] = [picture(case, outputs)]
            result["notes"] = [WORD]
        return result

    def conclude(self, case: Case, record: Record) -> str:
        failed = [each["detail"] for each in record.checks if not each["ok"]]
        if failed:
            return f"{failed[0][0].upper()}{failed[0][1:]}."
        if case.op == "mapa":
            return (
                f"An address in the window of the cluster is rank << {isa.RANK_BIT} | offset: mapa puts in "
                "another rank, and a block's own addresses have its own."
            )
        if counts(case):
            return (
                f"The barrier of each block counts {landing(case)} bytes: {4 * words(case)} from each of "
                f"{LANES} lanes of {case.size} blocks, and its phase ends when all are there."
            )
        return {
            "ld": "Each block reads every block's words, and ends when all have read.",
            "st": "What a block stores in another is there after release, barrier and acquire.",
            "atom": "Each block gets what those before it left; all answers and the memory are as predicted.",
            "red": "All operands of all blocks are in; the SASS is an ATOM whose answer is not used.",
        }[str(case.op)]


def _of(**params: Value) -> dict[str, Value]:
    return params


def points() -> Iterator[dict[str, Value]]:
    """Yield every operation, sizes of clusters and lanes, wrong accounts, and early exits."""
    for size in (1, 2, 3, 8):
        yield _of(op="mapa", size=size)
    for op in MOVES:
        yield from (_of(op=op, words=each) for each in (1, 2, 4))
        yield from (_of(op=op, size=size, words=4) for size in (2, 8))
    for redop in isa.REDUCTIONS:
        yield from (_of(op=op, redop=redop) for op in REDUCES)
    yield _of(op="st.async", expect=2 * isa.bytes_landing("st.async", 4, 1))
    yield _of(op="red.async", expect=isa.bytes_landing("red.async", 4, 1) + 4)
    yield _of(op="st.async", expect=128)
    yield _of(op="st.async", expect=0)
    for op in ("ld", "st", "st.async", "atom"):
        yield _of(op=op, size=2, exit_barrier="no")


def words(case: Case) -> int:
    """Return the words of a lane; mapa answers with four numbers."""
    return 4 if case.op == "mapa" else int(case.words)


def outcome(case: Case) -> isa.Outcome:
    """Return what the model says."""
    return isa.run(case.op, case.size, words(case), case.redop)


def reaches(case: Case) -> bool:
    """Say whether a block touches the memory of another: mapa just computes addresses."""
    return bool(case.op != "mapa" and case.size > 1)


def counts(case: Case) -> bool:
    """Say whether an mbarrier counts the bytes."""
    return str(case.op).endswith(".async")


def landing(case: Case) -> int:
    """Return the bytes that each barrier counts."""
    return isa.bytes_landing(case.op, case.size, words(case))


def expected(case: Case) -> int:
    """Return the bytes that each barrier is armed with."""
    return landing(case) if case.expect == LEFT_OUT else int(case.expect)


def armed(case: Case) -> str:
    """Return what each barrier is told and what it counts."""
    told = f"armed with {expected(case)} B, and {landing(case)} B land in each block"
    left = expected(case) - landing(case)
    return f"{told}: {mbarrier.account(left)}" if left else told


def address_rows(case: Case, answers: Any) -> list[dict[str, Any]]:
    """Return lane 0's addresses, a row for each pair of blocks."""
    return [
        {
            "block": own,
            "peer": peer,
            "own address": f"0x{int(answers[own, peer, 0, 0]):08x}",
            "mapa": f"0x{int(answers[own, peer, 0, 1]):08x}",
            "getctarank": int(answers[own, peer, 0, 2]),
            "generic moved by": f"0x{int(answers[own, peer, 0, 3]):08x}",
        }
        for own in range(min(case.size, 4))
        for peer in range(case.size)
    ]


def address_picture(case: Case, answers: Any) -> dict[str, Any]:
    """Draw what mapa makes of lane 0's address in each block, for each peer."""
    places = [[answers[own, peer, 0] for peer in range(case.size)] for own in range(case.size)]
    return {
        "title": "what mapa makes of lane 0's address in block (row) for block (column), coloured by rank",
        "cells": [[f"0x{int(at[1]):08x}" for at in row] for row in places],
        "colours": [[int(at[2]) for at in row] for row in places],
        "row_names": [f"block {own}" for own in range(case.size)],
        "column_names": [f"block {peer}" for peer in range(case.size)],
    }


def memory_picture(case: Case, after: Any) -> dict[str, Any]:
    """Draw what the atomics leave in each block."""
    return {
        "title": "what lies in block (row) at the word of lane (column) after it, coloured by the block",
        "cells": [[f"0x{int(word):08x}" for word in block[0, :DRAWN_LANES, 0]] for block in after],
        "colours": [[block] * DRAWN_LANES for block in range(case.size)],
        "row_names": [f"block {block}" for block in range(case.size)],
        "column_names": [f"lane {lane}" for lane in range(DRAWN_LANES)],
    }


def atomic_rows(case: Case, outputs: Arrays) -> list[dict[str, str]]:
    """Return the first lanes of block 0's memory: before, what each block gave and got, after."""
    before = isa.before(case.op, case.size, 1)
    rows = []
    for lane in range(SHOWN_LANES):
        row = {"lane": str(lane), "before": f"0x{int(before[0, 0, lane, 0]):08x}"}
        for own in range(case.size):
            row[f"from {own}"] = str(int(isa.operands(own, case.redop)[lane, 0]))
            if "answers" in outputs:
                row[f"old for {own}"] = f"0x{int(outputs['answers'][own, 0, lane, 0]):08x}"
        rows.append(row | {"after": f"0x{int(outputs['after'][0, 0, lane, 0]):08x}"})
    return rows


def picture(case: Case, outputs: Arrays) -> dict[str, Any]:
    """Draw lane 0's first word of each block and peer: whose it is."""
    if case.op == "ld":
        data, title = outputs["answers"], "lane 0, word 0: what block (row) reads from block (column)"
    else:
        data, title = outputs["after"], "lane 0, word 0: what lies in block (row), slot (column)"
    owner = [[int(data[i, j, 0, 0]) >> 24 & 0x7F for j in range(case.size)] for i in range(case.size)]
    return {
        "title": f"{title}; coloured by the block that wrote it",
        "cells": [[f"0x{int(data[i, j, 0, 0]):08x}" for j in range(case.size)] for i in range(case.size)],
        "colours": owner,
        "row_names": [f"block {i}" for i in range(case.size)],
        "column_names": [f"{'block' if case.op == 'ld' else 'slot'} {j}" for j in range(case.size)],
    }
