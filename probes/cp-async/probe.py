"""What has arrived in shared memory after cp.async and a wait, and what becomes of bytes that are left out?

Method: every lane of a warp copies bytes that carry their copy, lane and place onto poison, in groups of its
own. After the wait it reads the copies that must have arrived, and no others; at the end all of them. Waits
on an mbarrier are bounded: a wrong count of arrivals is reported, and nothing hangs.
Counting: copies and groups of one thread; bytes of one copy; LDGSTS is a static count.
Source: PTX ISA, "Data Movement and Conversion Instructions: cp.async".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, option
from ptxlab.experiments.probe import Arrays, Fault, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import cp_async as isa
from ptxlab.layout.address import evaluate

POISON = 0xA5
LANES = 32
MOST_COPIES = 32
RIGHT = -1
RULES = {
    "wait_group N": "all groups of this thread but its latest N; empty groups count, loose copies do not",
    "wait_all": "all copies of this thread, in a group or not: SASS makes one more group and waits for it",
    "mbarrier.arrive.noinc": "an arrival once this thread's copies are there: one that the init counted",
    "mbarrier.arrive": "the same, and the pending count goes up by one first: the init does not count it",
    "other threads' copies": "after they waited and a barrier; on an mbarrier whoever waits sees them",
    "proxy": "cp.async writes as ordinary stores do: before wgmma or TMA reads, fence.proxy.async",
}


class CpAsyncProbe(Probe):
    maps = False
    findings = ("arrivals", "source alignment")

    size = option(16, choices=(4, 8, 16), help="bytes of one copy")
    cache = option("", choices=("ca", "cg"), help="left out: cg of 16 bytes, ca of others")
    src_size = option("", metavar="EXPR", help="bytes that a lane reads: 'lane % 17'; left out: all")
    ignore = option("", metavar="EXPR", help="which lanes ignore their source: 'lane % 2'")
    groups = option("1,1,1,1", metavar="N,N", help="copies in each group; 0 is an empty one")
    loose = option(0, metavar="N", help="copies after the last group")
    wait = option("group", choices=isa.WAITS, help="what is waited for")
    pending = option(0, metavar="N", help="groups that wait_group N leaves")
    arrivals = option(
        RIGHT, metavar="N", help="that the mbarrier is initialised for; left out: the right number"
    )
    source_offset = option(0, metavar="BYTES", help="of the source from an aligned address")
    target_offset = option(0, metavar="BYTES", help="of shared memory from an aligned address")

    def complete(self, params: dict[str, Value]) -> None:
        """Write every point in one way, whichever way it was typed, so that it finds its recording."""
        params["cache"] = params["cache"] or ("cg" if params["size"] == 16 else "ca")
        params["groups"] = ",".join(map(str, counts(str(params["groups"]))))
        if params["arrivals"] == isa.right_arrivals(str(params["wait"]), LANES):
            params["arrivals"] = RIGHT

    def check(self, case: Case) -> None:
        isa.check_arch(case.arch)
        isa.check_form(form_of(case))
        if case.src_size and case.ignore:
            raise UsageError("--src-size and --ignore; legal: one of them")
        if not 1 <= copies(case) <= MOST_COPIES or case.loose < 0:
            raise UsageError(f"{copies(case)} copies of a lane; legal: 1 to {MOST_COPIES}")
        if case.pending < 0:
            raise UsageError(f"wait_group {case.pending}; legal: 0 and more")
        if case.pending and case.wait != "group":
            raise UsageError(f"--pending {case.pending} with --wait {case.wait}; legal: with --wait group")
        if case.arrivals != RIGHT and not (case.wait.startswith("mbarrier") and 1 <= case.arrivals < 1 << 20):
            raise UsageError(
                "--arrivals is the count of --wait mbarrier or mbarrier-inc; legal: 1 to 1048575"
            )
        for offset in (case.source_offset, case.target_offset):
            if not 0 <= offset < 16:
                raise UsageError(f"an offset of {offset} bytes; legal: 0 to 15")
        for present in settings(case)[0].tolist() if case.src_size else ():
            isa.check_present(form_of(case), present)

    def variants(self, arch: str) -> Iterator[Case]:
        if int(arch.strip("sm_af")) < 80:
            return
        for cache, sizes in isa.SIZES.items():
            for size in sizes:
                yield self.case(arch, size=size, cache=cache)
                yield self.case(arch, size=size, cache=cache, src_size=f"lane % {size + 1}")
                yield self.case(arch, size=size, cache=cache, ignore="lane % 3 == 1")
        yield from (self.case(arch, pending=pending) for pending in (1, 2, 3, 4, 100))
        yield self.case(arch, groups="3,0,2,0,0", pending=2)
        yield self.case(arch, groups="1,0,1", loose=2, pending=1)
        yield self.case(arch, groups="2,2", loose=3, wait="all")
        for wait in ("mbarrier", "mbarrier-inc"):
            yield self.case(arch, groups="2,1", loose=1, wait=wait)
            yield self.case(arch, wait=wait, arrivals=isa.right_arrivals(wait, LANES) + 1)
        yield self.case(arch, wait="mbarrier", arrivals=LANES - 1)
        yield self.case(arch, source_offset=4)
        yield self.case(arch, source_offset=4, src_size="lane % 17")
        yield self.case(arch, target_offset=8)

    def macros(self, case: Case) -> Macros:
        return {
            "SIZE": case.size, "CACHE": case.cache,
            "FORM": ("whole", "src-size", "ignore-src").index(form_of(case).source),
            "WAIT": isa.WAITS.index(case.wait), "PENDING": case.pending,
        }  # fmt: skip

    def claims(self, case: Case) -> dict[str, int]:
        places, wait = 2, case.wait  # one start in a group, one behind them
        found = {"LDGSTS": places, form_of(case).sass: places}
        commits = 2 + int(wait == "all")  # the group's, and those of wait_all
        return found | {
            isa.COMMIT_SASS: commits,
            isa.WAIT_SASS: 1 + int(wait in ("group", "all")),
            "ARRIVES": int(wait.startswith("mbarrier")),
        }

    def inputs(self, case: Case) -> Arrays:
        return {
            "memory": memory(case),
            "settings": settings(case),
            "groups": np.array(counts(case.groups), dtype=np.uint32),
        }

    def outputs(self, case: Case) -> dict[str, Output]:
        shape, axes = (copies(case), LANES, case.size), ("copy", "lane", "byte")
        return {
            "arrived": Output(shape, np.uint8, axes),
            "settled": Output(shape, np.uint8, axes),
            "ended": Output((1,), np.uint32, ("wait",)),
        }

    def geometry(self, case: Case) -> Geometry:
        groups = len(counts(case.groups))
        numbers = (
            groups, copies(case), sure(case), case.source_offset, case.target_offset, arrivals(case),
        )  # fmt: skip
        names = ("memory", "settings", "groups", "arrived", "settled", "ended")
        return Geometry(
            arguments=(*names, *(np.uint32(each) for each in numbers)),
            shared_bytes=copies(case) * LANES * case.size + 16,
        )

    def fault(self, case: Case) -> Fault | None:
        if case.target_offset % case.size:
            return Fault("target alignment", misaligned(case, "target"))
        if case.source_offset % case.size and not case.src_size and present(case).any():
            return Fault("source alignment", misaligned(case, "source"))
        if case.wait.startswith("mbarrier") and arrivals(case) < isa.right_arrivals(case.wait, LANES):
            return Fault(
                "arrivals",
                f"the barrier counts {arrivals(case)} arrivals and {isa.right_arrivals(case.wait, LANES)} "
                "come at once: a count out of range stops the kernel",
            )
        return None

    def expected(self, case: Case) -> Arrays:
        written = isa.copied(memory(case), addresses(case), case.size, present(case))
        arrived = np.full(written.shape, 0xFF, dtype=np.uint8)  # not written out
        arrived[: sure(case)] = written[: sure(case)]
        ended = np.array([ends(case)], dtype=np.uint32)
        if not ends(case):
            arrived[:] = 0xFF
        return {"arrived": arrived, "settled": written, "ended": ended}

    def examine(self, case: Case, outputs: Arrays, record: Record) -> None:
        if case.source_offset % case.size and not self.fault(case):
            record.check("source alignment", ok=False, detail=misaligned(case, "source"))
        if case.wait.startswith("mbarrier") and not self.fault(case):
            right, ended = isa.right_arrivals(case.wait, LANES), bool(outputs["ended"][0])
            told = f"the barrier counts {arrivals(case)} arrivals, and {right} come"
            missing = f": the phase never ends; initialise it for {right}"
            record.check("arrivals", ok=ended, detail=told + ("" if ended else missing))

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        del measured
        form = form_of(case)
        return {
            "ptx": form.ptx,
            "wait": [waited(case)],
            "groups": grouped(case),
            "pictures": [picture(case, outputs["settled"][0])],
            "rules": [{"instruction": name, "rule": rule} for name, rule in RULES.items()],
        }

    def conclude(self, case: Case, record: Record) -> str:
        failed = [each["detail"] for each in record.checks if not each["ok"]]
        if failed:
            return f"{failed[0][0].upper()}{failed[0][1:]}."
        if case.src_size:
            return (
                "The first src-size bytes of each copy arrive and the rest is zeros; in SASS the number is "
                f"in the low bits of the address: source + (-src-size % {case.size})."
            )
        if case.ignore:
            return "Lanes that ignore their source get zeros; SASS has the predicate as an operand of LDGSTS."
        if case.wait != "group":
            return f"After this wait all {copies(case)} copies of a lane are there, in a group or not."
        return (
            f"After wait_group {case.pending} the first {sure(case)} of a lane's {copies(case)} copies are "
            "surely there; of the others nothing is known until a later wait."
        )


def counts(text: str) -> tuple[int, ...]:
    """Return the numbers of "1,0,2"."""
    fields = text.split(",")
    if not all(field.strip().isdecimal() and len(field.strip()) < 9 for field in fields):
        raise UsageError(f"groups '{text}'; legal: copies in each group, such as 1,1,0,2")
    return tuple(int(field) for field in fields)


def form_of(case: Case) -> isa.CpAsyncForm:
    """Return the form of the instruction."""
    source = "src-size" if case.src_size else "ignore-src" if case.ignore else "whole"
    return isa.CpAsyncForm(case.size, case.cache, source)


def copies(case: Case) -> int:
    """Return how many copies a lane starts."""
    return sum(counts(case.groups)) + int(case.loose)


def sure(case: Case) -> int:
    """Return how many of them have surely arrived after the wait, if it ends."""
    return isa.arrived(counts(case.groups), case.loose, case.wait, case.pending)


def arrivals(case: Case) -> int:
    """Return the arrivals that the barrier is initialised for."""
    right = isa.right_arrivals(case.wait, LANES)
    return right if case.arrivals == RIGHT else int(case.arrivals)


def ends(case: Case) -> bool:
    """Say whether the wait ends."""
    return not case.wait.startswith("mbarrier") or arrivals(case) <= isa.right_arrivals(case.wait, LANES)


def settings(case: Case) -> NDArray[np.uint32]:
    """Return what each lane's copies are told: present bytes, or whether the source is ignored."""
    text = case.src_size or case.ignore or "0"
    values = [evaluate(text, {"lane": lane, "warp": 0}) for lane in range(LANES)]
    if min(values) < 0:
        raise UsageError(f"'{text}' is {min(values)} for a lane; legal: 0 and more")
    return np.tile(np.minimum(values, 1 << 30).astype(np.uint32), (copies(case), 1))


def present(case: Case) -> NDArray[np.uint32]:
    """Return how many bytes each copy reads."""
    if case.src_size:
        return settings(case)
    return np.where(settings(case) > 0, np.uint32(0), np.uint32(case.size)).astype(np.uint32)


def source(case: Case) -> NDArray[np.uint8]:
    """Return bytes that carry copy, lane and place; none is 0 or poison."""
    copy, lane, byte = np.indices((copies(case), LANES, case.size), dtype=np.uint32)
    named = np.choose(byte % 4, (0x40 | copy, 0x60 | lane, 0x80 | byte // 4, np.full_like(byte, 0xC3)))
    found: NDArray[np.uint8] = named.astype(np.uint8)
    return found


def memory(case: Case) -> NDArray[np.uint8]:
    """Return global memory: the source, and poison before it."""
    return np.concatenate([np.full(case.source_offset, POISON, dtype=np.uint8), source(case).ravel()])


def addresses(case: Case) -> NDArray[np.int64]:
    """Return where the source of each copy lies."""
    copy, lane = np.indices((copies(case), LANES), dtype=np.int64)
    found: NDArray[np.int64] = case.source_offset + (copy * LANES + lane) * case.size
    return found


def misaligned(case: Case, side: str) -> str:
    """Return what is wrong with the address of one side."""
    beyond = case.params[f"{side}_offset"] % case.size
    other = "; with a src-size there is no fault, and other bytes arrive" if side == "source" else ""
    return (
        f"the {side} lies {beyond} bytes beyond a multiple of {case.size}, and a copy of {case.size} bytes "
        f"needs one{other}"
    )


def waited(case: Case) -> dict[str, Any]:
    """Return what was waited for, in PTX and in SASS."""
    name = {
        "group": f"cp.async.wait_group {case.pending}",
        "all": "cp.async.wait_all",
        "mbarrier": "cp.async.mbarrier.arrive.noinc, mbarrier.test_wait",
        "mbarrier-inc": "cp.async.mbarrier.arrive, mbarrier.test_wait",
    }[case.wait]
    sass = {
        "group": f"{isa.WAIT_SASS} SB0, {min(case.pending, isa.COUNTED):#x}",
        "all": f"{isa.COMMIT_SASS}; {isa.WAIT_SASS} SB0, 0x0",
    }.get(case.wait, "ARRIVES.LDGSTSBAR.64, SYNCS.PHASECHK")
    known = {"arrivals counted": arrivals(case)} if case.wait.startswith("mbarrier") else {}
    there = sure(case) if ends(case) else 0
    return {"PTX": name, "SASS": sass, "ends": ends(case), "copies that are there": there, **known}


def grouped(case: Case) -> list[dict[str, Any]]:
    """Return one row a group: its copies, and whether they are there after the wait."""
    rows, first = [], 0
    parts = [*counts(case.groups), case.loose] if case.loose else counts(case.groups)
    for number, size in enumerate(parts):
        there = "there" if first + size <= sure(case) and ends(case) else "not known"
        name = str(number) if number < len(counts(case.groups)) else "in no group"
        held = ", ".join(map(str, range(first, first + size)))
        rows.append({"group": name, "copies": held, "after the wait": there if size else "empty"})
        first += size
    return rows


def picture(case: Case, chunk: NDArray[np.uint8]) -> dict[str, Any]:
    """Draw how many bytes of each lane's first copy came from the source, before the zeros."""
    came = (chunk != 0).sum(axis=1).tolist()  # no byte of the source is 0
    rows = range(0, LANES, 8)
    return {
        "title": f"bytes of {case.size} that arrive, by lane; the others are zeros",
        "cells": [[str(n) for n in came[first : first + 8]] for first in rows],
        "colours": [came[first : first + 8] for first in rows],
        "row_names": [f"{first}-{first + 7}" for first in rows],
        "column_names": [f"+{n}" for n in range(8)],
    }
