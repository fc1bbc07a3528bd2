"""Is there a fence between ordinary writes to shared memory and the asynchronous copy that reads them?

Method: all threads of a block write words that carry their step and place, and a bulk copy takes them to
global memory; the fence stands in one of several places. The machine code is searched for paths without one.
With the fence the copy must see every word. Without it, it often sees them all the same: that proves nothing,
so what is found then is said whatever the device answered.
Counting: FENCE.VIEW.ASYNC is a static count; one copy.
Source: PTX ISA, "Memory consistency model: proxies", "fence.proxy.async".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, option
from ptxlab.experiments.probe import Arrays, Fault, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import proxy_fence as isa
from ptxlab.isa.bulk_copy import BulkForm
from ptxlab.sass.proxy_fence import judged

WRITES = {"st": "STS.128", "stmatrix": "STSM.16.M88.4", "cp.async": "LDGSTS.E.BYPASS.128"}
READS = {"store": BulkForm("store"), "reduce": BulkForm("reduce", "add", "u32")}
FENCES = ("none", "each", "loop", "issuer")
THREADS, WORDS = 128, 4
MOST_STEPS = 8
PIECES = 16  # threads in a line of the picture
RULES = {
    "who": "each thread that wrote, not the one that issues the copy",
    "when": "after its last write, before the barrier that hands the data over; a barrier is no fence",
    "which writes": "st.shared, stmatrix, cp.async: all but asynchronous ones",
    "which readers": "TMA stores and reductions, bulk copies, wgmma",
    "the other way": "after an mbarrier wait for TMA, ordinary reads need no fence",
    "is it there?": "ptxlab sass FILE --check proxy-fence follows every path; no run can tell",
}


class ProxyFenceProbe(Probe):
    maps = False
    findings = ("proxy fence",)

    fence = option("each", choices=FENCES, help="where it stands: each thread before the barrier, …")
    write = option("st", choices=tuple(WRITES), help="how shared memory is written")
    read = option("store", choices=tuple(READS), help="what reads it")
    steps = option(1, metavar="N", help="times that the loop runs; 0: it is left out, with the fence in it")

    def check(self, case: Case) -> None:
        isa.check_arch(case.arch)
        if not 0 <= case.steps <= MOST_STEPS:
            raise UsageError(f"{case.steps} steps; legal: 0 to {MOST_STEPS}")

    def variants(self, arch: str) -> Iterator[Case]:
        if int(arch.strip("sm_af")) < 90:
            return
        for write in WRITES:
            for read in READS:
                yield self.case(arch, write=write, read=read)
            yield self.case(arch, write=write, fence="none")
        yield self.case(arch, steps=0)
        yield self.case(arch, fence="loop")
        yield self.case(arch, fence="loop", steps=0)
        yield self.case(arch, fence="issuer")

    def macros(self, case: Case) -> Macros:
        return {
            "WRITE": tuple(WRITES).index(case.write), "READ": tuple(READS).index(case.read),
            "FENCE": FENCES.index(case.fence),
        }  # fmt: skip

    def claims(self, case: Case) -> dict[str, int]:
        fences = int(case.fence != "none")
        return {WRITES[case.write]: 2, READS[case.read].sass: 1, isa.SASS: fences, isa.GLOBAL_SASS: 1}

    def inputs(self, case: Case) -> Arrays:
        return {"source": source(case)}

    def outputs(self, case: Case) -> dict[str, Output]:
        del case
        return {"target": Output((THREADS, WORDS), np.uint32, ("thread", "word"))}

    def geometry(self, case: Case) -> Geometry:
        return Geometry(arguments=("source", "target", np.uint32(case.steps)), block=(THREADS, 1, 1))

    def fault(self, case: Case) -> Fault | None:
        if isa.is_ordered(case.fence, case.steps):
            return None
        writer, reader = WRITES[case.write], READS[case.read].sass
        return Fault(
            "proxy fence",
            f"{writer} is not ordered before {reader}: {isa.PTX} stands {isa.PLACES[case.fence]}, and "
            f"belongs {isa.PLACES['each']}; a run that went well proves nothing",
            certain=False,
        )

    def expected(self, case: Case) -> Arrays:
        return {"target": source(case)[-1]}  # a sum with the zeros that were there

    def examine(self, case: Case, outputs: Arrays, record: Record) -> None:
        del outputs
        if "sass" not in record.result:
            return
        clear, told = judged(record.result["sass"])
        record.check("machine code as predicted", clear == (not isa.has_bare_path(case.fence)), told)
        if not self.fault(case):
            record.check("proxy fence", clear, told)

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        safe = isa.is_ordered(case.fence, case.steps)
        right = int((outputs["target"] == source(case)[-1]).sum())
        held = {"words that arrived": right if safe or measured else "not known", "of": THREADS * WORDS}
        proof = "yes" if safe else "no: it may go otherwise the next time"
        return {
            "ptx": f"{case.write}, {isa.PTX} ({case.fence}), {READS[case.read].ptx}",
            "run": [held | {"can be relied on": proof}],
            "order": ordered(case),
            "pictures": [picture(outputs["target"] if safe or measured else None)],
            "rules": [{"question": name, "answer": text} for name, text in RULES.items()],
        }

    def conclude(self, case: Case, record: Record) -> str:
        del record
        if self.fault(case):
            return (
                f"Nothing orders the writes before the read: the fence stands {isa.PLACES[case.fence]}. What "
                "the device answered is no proof of safety."
            )
        if isa.has_bare_path(case.fence):
            return "This run took the loop, and the fence in it; where the loop is left out, so is the fence."
        return "Each thread fences after its last write, then comes the barrier: the copy sees every word."


def source(case: Case) -> NDArray[np.uint32]:
    """Return words that carry step, thread and place, [1 + steps, thread, word]."""
    step, thread, word = np.indices((1 + case.steps, THREADS, WORDS), dtype=np.uint32)
    words: NDArray[np.uint32] = (1 + step) << np.uint32(16) | thread << np.uint32(8) | word
    return words


def picture(target: NDArray[np.uint32] | None) -> dict[str, Any]:
    """Draw which write of each thread the copy saw, 0 being the one ahead of the loop."""
    words: list[list[int]] = [[]] * THREADS if target is None else (target >> 16).tolist()
    seen = [sorted({word - 1 for word in each}) for each in words]
    rows = range(0, THREADS, PIECES)
    return {
        "title": "shared memory as the copy saw it: which write of the thread is in its 16 bytes",
        "cells": [[", ".join(map(str, each)) or "?" for each in seen[at : at + PIECES]] for at in rows],
        "colours": [[each[0] if len(each) == 1 else None for each in seen[at : at + PIECES]] for at in rows],
        "row_names": [f"threads {at}-{at + PIECES - 1}" for at in rows],
        "column_names": [f"+{n}" for n in range(PIECES)],
    }


def ordered(case: Case) -> list[dict[str, str]]:
    """Return what the threads do, in its order."""
    fence = (isa.PTX, isa.SASS)
    rows = [("each thread", case.write, WRITES[case.write]), ("in the loop", case.write, WRITES[case.write])]
    rows += [("in the loop", *fence)] if case.fence == "loop" else []
    rows += [("each thread", *fence)] if case.fence == "each" else []
    rows.append(("each thread", "bar.sync", "BAR.SYNC"))
    rows += [("thread 0", *fence)] if case.fence == "issuer" else []
    rows.append(("thread 0", READS[case.read].ptx, READS[case.read].sass))
    return [{"who": who, "PTX": ptx, "SASS": sass} for who, ptx, sass in rows]
