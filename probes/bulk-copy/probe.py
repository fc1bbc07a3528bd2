"""Which bytes does a bulk copy move, and when may its source and its destination be touched?

Method: every word of the source carries its own number; the destination is poison before, and all of it is
written out after. Right after the wait for stores the thread that issued them overwrites what must have been
read, or reads back what must have been written. Waits on a barrier are bounded: a wrong byte count is
reported with what the barrier still expects, and nothing hangs.
Counting: bytes as the barrier counts them; a chunk is 16 bytes; groups of one thread.
Source: PTX ISA, "Data movement and conversion instructions: cp.async.bulk", "cp.reduce.async.bulk".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, option
from ptxlab.experiments.probe import Arrays, Fault, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import bulk_copy as isa
from ptxlab.isa import mbarrier
from ptxlab.isa.bulk_copy import UNIT

OPS = ("load", "prefetch", "send", "send-reduce", "store", "reduce")
WAITS = ("none", "read", "written")
POISON = 0xA5
UNWRITTEN = 0xFF
LINE = 128
MOST_BYTES = 114_688 - LINE  # two such areas in shared memory, with room for offsets
USUAL_CLUSTER, MOST_CLUSTER = 2, 8
SHOWN_LINES = 16
SHOWN_ELEMENTS = 8
LEFT_OUT = -1
KEYWORDS = {"and": "and_", "or": "or_", "xor": "xor_"}  # as ptxlab::Reduce has them
LIMITS = {
    "size": f"a multiple of {UNIT}, up to {isa.MOST}",
    "address in global memory": f"a multiple of {UNIT}",
    "address in shared memory": f"a multiple of {UNIT} (a box of a tensor map: 128)",
    "into shared memory": "an mbarrier in the same block's memory counts every byte: arm it with all of them",
    "wait_group.read N": "all but the latest N groups have read their source: it may be overwritten",
    "wait_group N": "all but the latest N groups have written: this thread sees it",
    "ordinary writes before": "fence.proxy.async in each thread that wrote, then a barrier",
}


class BulkCopyProbe(Probe):
    maps = False
    findings = ("bytes expected",)

    op = option("load", choices=OPS, help="load, store, send to the next block of the cluster, …")
    bytes = option(1024, metavar="N", help="of one copy")
    src_offset = option(0, metavar="BYTES", help="of the source from an aligned address")
    dst_offset = option(0, metavar="BYTES", help="of the destination from an aligned address")
    redop = option("add", choices=tuple(isa.IN_GLOBAL), help="operation of a reduction")
    dtype = option("", choices=tuple(isa.SIZES), help="of a reduction; left out: u32, b32 of and, or, xor")
    expect = option(LEFT_OUT, metavar="BYTES", help="that the barrier is armed with; left out: all")
    groups = option(1, metavar="N", help="stores, each a group")
    wait = option("written", choices=WAITS, help="what is waited for after stores")
    pending = option(0, metavar="N", help="groups that the wait leaves")
    cluster = option(USUAL_CLUSTER, metavar="N", help="blocks of the cluster that send")

    def complete(self, params: dict[str, Value]) -> None:
        """Write every point in one way, whichever way it was typed, so that it finds its recording."""
        reduces = "reduce" in str(params["op"])
        usual = "b32" if params["redop"] in KEYWORDS else "u32"
        params["dtype"] = params["dtype"] or (usual if reduces else "")
        if params["expect"] == params["bytes"]:
            params["expect"] = LEFT_OUT

    def check(self, case: Case) -> None:
        isa.check_arch(case.arch)
        if "reduce" in case.op:
            isa.check_reduction(form_of(case))
        elif case.redop != "add" or case.dtype:
            raise UsageError(f"--redop and --dtype with --op {case.op}; legal: with reduce and send-reduce")
        check_sizes(case)
        if stores(case):
            check_groups(case)
        elif case.groups != 1 or case.pending or case.wait != "written":
            raise UsageError(
                f"--groups, --wait and --pending with --op {case.op}; legal: with store and reduce"
            )
        if case.expect != LEFT_OUT and (stores(case) or not 0 <= case.expect < 1 << 20):
            raise UsageError(
                f"--expect {case.expect} with --op {case.op}; legal: 0 to {(1 << 20) - 1} with what has a "
                "barrier: load, prefetch, send, send-reduce"
            )

    def variants(self, arch: str) -> Iterator[Case]:
        if int(arch.strip("sm_af")) >= 90:
            for params in (*copies(), *waits(), *reductions()):
                yield self.case(arch, **params)

    def macros(self, case: Case) -> Macros:
        reduces = "reduce" in case.op
        return {
            "OP": OPS.index(case.op), "REDUCE": KEYWORDS.get(case.redop, case.redop) if reduces else "add",
            "TYPE": case.dtype or "u32", "WAIT": WAITS.index(case.wait), "PENDING": case.pending,
        }  # fmt: skip

    def claims(self, case: Case) -> dict[str, int]:
        found = {form_of(case).sass: 1}
        if case.op == "prefetch":
            found |= {isa.BulkForm("load").sass: 1}
        if stores(case):
            waited = 0 if case.wait == "none" else 2
            found |= {"UTMACMDFLUSH": 1, "DEPBAR.LE": waited, "FENCE.VIEW.ASYNC": 1}
        return found

    def inputs(self, case: Case) -> Arrays:
        return {"source": source(case), "before": before(case)}

    def outputs(self, case: Case) -> dict[str, Output]:
        found = {"after": Output(source(case).shape, np.uint8, ("block", "byte"))}
        if stores(case):
            return found | {"readback": Output((area(case),), np.uint8, ("byte",))}
        return found | {"phases": Output((blocks(case), 2), np.int32, ("block", "fact"))}

    def geometry(self, case: Case) -> Geometry:
        numbers = (
            area(case) // UNIT, case.groups, sure(case), case.bytes, case.src_offset, case.dst_offset,
            expected(case),
        )  # fmt: skip
        more = ("readback", "source") if stores(case) else ("source", "phases")
        return Geometry(
            arguments=("source", "before", "after", *more, *(np.uint32(each) for each in numbers)),
            grid=(blocks(case), 1, 1),
            block=(128, 1, 1),
            shared_bytes=2 * area(case),
            cluster=(blocks(case), 1, 1) if "send" in case.op else None,
        )

    def fault(self, case: Case) -> Fault | None:
        if stores(case) and case.wait == "none":
            return Fault(
                "source released",
                "the block ends while its shared memory may still be read: wait_group.read comes before that",
                certain=False,
            )
        if not stores(case) and 0 < expected(case) < case.bytes and expected(case) % UNIT == 0:
            reason = f"{armed(case)}; the phase ends {mbarrier.MAY_END}"
            return Fault("bytes expected", reason, certain=False)
        return None

    def expected(self, case: Case) -> Arrays:
        after = moved(case)
        if not stores(case):
            return {"after": after, "phases": np.array([phase(case)] * blocks(case), dtype=np.int32)}
        readback = np.full(area(case), UNWRITTEN, dtype=np.uint8)
        if case.wait == "written":
            seen = slice(case.dst_offset, case.dst_offset + sure(case) * case.bytes)
            readback[seen] = after[0, seen]
        return {"after": after, "readback": readback}

    def examine(self, case: Case, outputs: Arrays, record: Record) -> None:
        if stores(case) or self.fault(case):
            return
        done, left = outputs["phases"][0].tolist()
        how = "never ends" if not done else "ended too early" if left else "ended"
        record.check("bytes expected", ok=bool(done) and left == 0, detail=f"{armed(case)}; the phase {how}")

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        result: dict[str, Any] = {"ptx": form_of(case).ptx}
        if stores(case):
            result["groups"] = grouped(case)
        else:
            unsure = self.fault(case) is not None and not measured
            result["barriers"] = [
                {
                    "block": i,
                    "armed with": expected(case),
                    "phase ended": mbarrier.MAY_END if unsure else mbarrier.ended(done=bool(done), left=left),
                    "bytes": mbarrier.account(left),
                }
                for i, (done, left) in enumerate(outputs["phases"].tolist())
            ]
        if "reduce" in case.op:
            result["elements"] = elements(case, outputs)
        result["pictures"] = [picture(case, outputs)]
        return result | {"limits": [{"of": name, "is": text} for name, text in LIMITS.items()]}

    def conclude(self, case: Case, record: Record) -> str:
        failed = [each["detail"] for each in record.checks if not each["ok"]]
        if failed:
            return f"{failed[0][0].upper()}{failed[0][1:]}."
        if case.wait == "read":
            return (
                f"After wait_group.read {case.pending} the source of {sure(case)} of {case.groups} groups "
                "was overwritten, and what arrived is what it held before."
            )
        if stores(case):
            return (
                f"After wait_group {case.pending} the thread that waited reads what {sure(case)} of "
                f"{case.groups} groups wrote."
            )
        if "send" in case.op:
            return (
                f"Each of {case.cluster} blocks gets the bytes of the one before it, and its own barrier "
                f"counts the {case.bytes}."
            )
        return f"The barrier counts {case.bytes} bytes; none beside them changes."


def _of(**params: Value) -> dict[str, Value]:
    return params


def copies() -> Iterator[dict[str, Value]]:
    """Yield sizes, offsets and byte counts of copies into shared memory."""
    yield from (_of(bytes=nbytes) for nbytes in (16, 48, 1024, 16384, MOST_BYTES))
    yield _of(src_offset=16, dst_offset=48, bytes=208)
    yield _of(op="prefetch")
    yield from (_of(op="send", cluster=cluster) for cluster in (1, 2, 4, 8))
    yield _of(op="send", bytes=208, src_offset=32, dst_offset=16)
    yield from (_of(expect=expect) for expect in (1032, 2048, 0, 1000))
    yield _of(op="send", expect=1040)


def waits() -> Iterator[dict[str, Value]]:
    """Yield stores in groups, and what is waited for."""
    yield _of(op="store", src_offset=16, dst_offset=48, bytes=208)
    yield from (_of(op="store", bytes=16384, wait=wait) for wait in ("read", "written"))
    for wait in ("read", "written"):
        yield from (_of(op="store", groups=4, pending=pending, wait=wait) for pending in (0, 1, 3))


def reductions() -> Iterator[dict[str, Value]]:
    """Yield every reduction."""
    for op, table in (("reduce", isa.IN_GLOBAL), ("send-reduce", isa.IN_SHARED)):
        for name, types in table.items():
            yield from (_of(op=op, redop=name, dtype=dtype, bytes=256) for dtype in types)


def check_sizes(case: Case) -> None:
    """Raise UsageError if a size or an offset is none of bulk copies, or more than this probe takes."""
    for what, value, least, most in (
        ("a copy", case.bytes, UNIT, MOST_BYTES),
        ("src offset", case.src_offset, 0, LINE - UNIT),
        ("dst offset", case.dst_offset, 0, LINE - UNIT),
    ):
        isa.check_bytes(what, value, isa.MOST)
        if not least <= value <= most:
            raise UsageError(f"{what} of {value} bytes; this probe takes {least} to {most}")
    if "send" not in case.op and case.cluster != USUAL_CLUSTER:
        raise UsageError(f"--cluster {case.cluster} with --op {case.op}; legal: with send and send-reduce")
    if not 1 <= case.cluster <= MOST_CLUSTER:
        raise UsageError(f"a cluster of {case.cluster} blocks; this probe takes 1 to {MOST_CLUSTER}")


def check_groups(case: Case) -> None:
    """Raise UsageError if the groups of stores are too many, or waited for in a way that cannot be."""
    most = MOST_BYTES // case.bytes
    if not 1 <= case.groups <= most:
        raise UsageError(f"{case.groups} groups of {case.bytes} bytes; this probe takes 1 to {most}")
    if not 0 <= case.pending <= case.groups:
        raise UsageError(f"--pending {case.pending}; legal: 0 to {case.groups}, the number of groups")


def form_of(case: Case) -> isa.BulkForm:
    """Return what is done."""
    return isa.BulkForm(case.op, case.redop if "reduce" in case.op else "", case.dtype)


def stores(case: Case) -> bool:
    """Say whether the destination is global memory, so that groups are waited for."""
    return case.op in ("store", "reduce")


def blocks(case: Case) -> int:
    """Return how many blocks there are."""
    return int(case.cluster) if "send" in case.op else 1


def area(case: Case) -> int:
    """Return the bytes of the source and of the destination, with what lies around them."""
    lines = -(-case.bytes * case.groups // LINE)
    return int(lines + 1) * LINE


def sure(case: Case) -> int:
    """Return how many groups the wait has surely seen to."""
    return 0 if case.wait == "none" else max(case.groups - case.pending, 0)


def expected(case: Case) -> int:
    """Return the bytes that a barrier is armed with."""
    return int(case.bytes if case.expect == LEFT_OUT else case.expect)


def armed(case: Case) -> str:
    """Return what the barrier is told and what it counts."""
    told = f"armed with {expected(case)} B, and {case.bytes} B are counted"
    left = expected(case) - case.bytes
    return f"{told}: {mbarrier.account(left)}" if left else told


def phase(case: Case) -> tuple[int, int]:
    """Return whether the phase ends, and how many bytes are expected still (below 0: too many came)."""
    left = expected(case) - case.bytes
    return int(left == 0 or expected(case) == 0), left


@lru_cache(maxsize=4)
def source(case: Case) -> NDArray[np.uint8]:
    """Return the source of each block: numbered 32-bit words, or operands of a reduction."""
    if "reduce" in case.op:
        rows = [np.roll(isa.operands(case.dtype, area(case), 2), 16 * i) for i in range(blocks(case))]
        return np.stack(rows)
    words = np.arange(1, blocks(case) * area(case) // 4 + 1, dtype=np.uint32)
    return words.view(np.uint8).reshape(blocks(case), area(case))


def before(case: Case) -> NDArray[np.uint8]:
    """Return the destination of each block before."""
    if "reduce" in case.op:
        return np.tile(isa.operands(case.dtype, area(case), 1), (blocks(case), 1))
    return np.full((blocks(case), area(case)), POISON, dtype=np.uint8)


def moved(case: Case) -> NDArray[np.uint8]:
    """Return the destination of each block after; a block gets what the one before it sends."""
    found = before(case)
    size = case.bytes * case.groups
    taken = source(case)[:, case.src_offset : case.src_offset + size]
    place = slice(case.dst_offset, case.dst_offset + size)
    for i in range(blocks(case)):
        new = taken[i - 1]
        found[i, place] = (
            isa.combined(case.redop, case.dtype, found[i, place], new) if "reduce" in case.op else new
        )
    return found


def grouped(case: Case) -> list[dict[str, Any]]:
    """Return one row a group: what holds after the wait."""
    done = {"none": "not known", "read": "its source may be overwritten", "written": "its data is there"}
    return [
        {
            "group": i, "bytes": f"{i * case.bytes}-{(i + 1) * case.bytes - 1}",
            "after the wait": done[case.wait if i < sure(case) else "none"],
        }
        for i in range(min(case.groups, SHOWN_LINES))
    ]  # fmt: skip


def elements(case: Case, outputs: Arrays) -> list[dict[str, str]]:
    """Return the first elements of block 0 in hex: before, the operand, after."""
    size = isa.SIZES[case.dtype]
    start = {"before": case.dst_offset, "operand": case.src_offset, "after": case.dst_offset}
    data = {"before": before(case)[0], "operand": source(case)[-1], "after": outputs["after"][0]}
    words = {
        name: np.ascontiguousarray(each[start[name] : start[name] + SHOWN_ELEMENTS * size]).view(f"u{size}")
        for name, each in data.items()
    }
    return [
        {"element": str(i), **{name: f"0x{each[i]:0{2 * size}x}" for name, each in words.items()}}
        for i in range(min(SHOWN_ELEMENTS, case.bytes // size))
    ]


def copied_chunks(case: Case, image: NDArray[np.uint8]) -> list[int | None]:
    """Return which chunk of the source lies in each of these, told by its bytes."""
    known = {chunk.tobytes(): i for i, chunk in enumerate(source(case)[-1].reshape(-1, UNIT))}
    return [known.get(chunk.tobytes()) for chunk in image]


def combined_chunks(case: Case, image: NDArray[np.uint8]) -> list[int | None]:
    """Return which chunk of the source was combined with each of these, where that left what it must."""
    right = (image == moved(case)[0].reshape(-1, UNIT)[: len(image)]).all(axis=1)
    first, count = case.dst_offset // UNIT, case.bytes * case.groups // UNIT
    shift = case.src_offset // UNIT - first
    return [i + shift if fine and first <= i < first + count else None for i, fine in enumerate(right)]


def picture(case: Case, outputs: Arrays) -> dict[str, Any]:
    """Draw the destination of block 0: the number of the source's chunk in each 16 bytes."""
    pieces = LINE // UNIT
    image = outputs["after"][0].reshape(-1, UNIT)[: SHOWN_LINES * pieces]
    reduces = "reduce" in case.op
    held = combined_chunks(case, image) if reduces else copied_chunks(case, image)
    lines = range(0, len(held), pieces)
    return {
        "title": "destination of block 0: which chunk of the source is "
        f"{'combined with what was ' * reduces}in each 16 bytes",
        "cells": [["" if n is None else str(n) for n in held[at : at + pieces]] for at in lines],
        "colours": [[None if n is None else n // pieces for n in held[at : at + pieces]] for at in lines],
        "row_names": [f"+{at * UNIT}" for at in lines],
        "column_names": [f"+{UNIT * piece}" for piece in range(pieces)],
    }
