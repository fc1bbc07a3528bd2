"""Which blocks of a cluster get what from a multicast, and how many bytes must each barrier expect?

Method: the source's words carry their numbers, and shared memory of all blocks is poisoned before and written
out after. Every block arms its own barrier before any byte is sent. One block issues all bytes, or each a
slice of them. Waits are bounded: a block that expects too much, or nothing, is reported with its rank.
Counting: bytes as each block's barrier counts them; a mask has rank 0 in its lowest bit.
Source: PTX ISA, "cp.async.bulk", "cp.async.bulk.tensor", .multicast::cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.device.job import MapArgument
from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, bits_of, option
from ptxlab.experiments.probe import Arrays, Fault, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import cluster, mbarrier
from ptxlab.isa import multicast as isa
from ptxlab.isa.tensor_map import TensorMap, packed

LEFT_OUT = -1
EVERY = -1
POISON = 0xA5A5A5A5
SETTLE = 2_000_000  # cycles, about a millisecond
MOST_BYTES = 65_536
MOST_WARPS = 32
EXPECT = ("full", "twice", "none", "share")
SHOWN_PIECES = 16


class MulticastProbe(Probe):
    maps = False
    findings = ("bytes expected",)

    size = option(2, metavar="N", help="blocks of the cluster")
    mask = option("", metavar="0b…", help="blocks that receive, rank 0 in the lowest bit; left out: all")
    bytes = option(2048, metavar="N", help="that land in each of them")
    issuer = option(0, metavar="RANK", help="block that issues; -1: each issues a slice")
    form = option("bulk", choices=isa.FORMS, help="bulk copy, or box of a tensor map")
    expect = option("full", choices=EXPECT, help="that barriers are armed with; share: bytes / blocks")
    expect_rank = option(EVERY, metavar="RANK", help="whose barrier --expect means; -1: every destination's")
    consumers = option(
        8, metavar="WARPS", help="of a block, that read a stage: for the count of empty barriers"
    )

    def complete(self, params: dict[str, Value]) -> None:
        """Write every point in one way, so that it finds its recording."""
        mask, size = number(str(params["mask"])), int(str(params["size"]))
        everybody = mask.bit_length() == mask.bit_count() == size
        params["mask"] = "" if everybody else str(params["mask"]) and bin(mask)

    def check(self, case: Case) -> None:
        isa.check_arch(case.arch)
        if not 1 <= case.size <= cluster.PORTABLE:
            raise UsageError(f"a cluster of {case.size} blocks; this probe takes 1 to {cluster.PORTABLE}")
        isa.check_mask(mask_of(case), case.size)
        if not EVERY <= case.issuer < case.size:
            raise UsageError(f"--issuer {case.issuer}; legal: 0 to {case.size - 1}, or -1 for all")
        step = isa.ROW * case.size
        if not step <= case.bytes <= MOST_BYTES or case.bytes % step:
            raise UsageError(
                f"--bytes {case.bytes}; this probe takes multiples of {step} ({isa.ROW} for each block), up "
                f"to {MOST_BYTES}"
            )
        if case.expect_rank != EVERY and case.expect == "full":
            raise UsageError(
                f"--expect-rank {case.expect_rank} without --expect; legal: with twice, none, share"
            )
        if case.expect_rank != EVERY and case.expect_rank not in isa.members(mask_of(case)):
            members = ", ".join(map(str, isa.members(mask_of(case))))
            raise UsageError(f"--expect-rank {case.expect_rank}; legal: {members}, or -1 for all")
        if not 1 <= case.consumers <= MOST_WARPS:
            raise UsageError(f"--consumers {case.consumers}; legal: 1 to {MOST_WARPS}, the warps of a block")

    def variants(self, arch: str) -> Iterator[Case]:
        if isa.exists(arch):
            yield from (self.case(arch, **params) for params in points())

    def macros(self, case: Case) -> Macros:
        return {"TENSOR": isa.FORMS.index(case.form)}

    def claims(self, case: Case) -> dict[str, int]:
        return {isa.SASS[case.form]: 1, cluster.ARRIVE_SASS: 2, cluster.WAIT_SASS: 2}

    def inputs(self, case: Case) -> Arrays:
        return {"source": source(case), "expected": np.array(expected(case), dtype=np.uint32)}

    def outputs(self, case: Case) -> dict[str, Output]:
        return {
            "windows": Output((case.size, case.bytes // 4), np.uint32, ("block", "word")),
            "ended": Output((case.size, 2), np.int32, ("block", "when")),
        }

    def geometry(self, case: Case) -> Geometry:
        wrong = expected(case) != landing(case)
        numbers = (case.bytes, slice_of(case), issuers(case), mask_of(case), SETTLE if wrong else 0)
        return Geometry(
            arguments=(
                MapArgument(map_of(case), "source"), "source", "expected", "windows", "ended",
                *(np.uint32(each) for each in numbers),
            ),
            grid=(case.size, 1, 1),
            block=(32, 1, 1),
            shared_bytes=case.bytes,
            cluster=(case.size, 1, 1),
        )  # fmt: skip

    def fault(self, case: Case) -> Fault | None:
        for rank, (armed, lands) in enumerate(zip(expected(case), landing(case), strict=True)):
            if isa.ends_halfway(armed, lands):
                return Fault(
                    "bytes expected",
                    f"block {rank} expects {armed} of the {lands} B that land in it: "
                    f"{mbarrier.account(armed - lands)}, and its phase ends {mbarrier.MAY_END}; every "
                    "destination arms its barrier with all of them",
                    certain=False,
                )
        return None

    def expected(self, case: Case) -> Arrays:
        phases = [isa.phase(*each) for each in zip(expected(case), landing(case), strict=True)]
        return {
            "windows": isa.windows(case.size, mask_of(case), source(case), POISON),
            "ended": np.array(phases, dtype=np.int32),
        }

    def examine(self, case: Case, outputs: Arrays, record: Record) -> None:
        if self.fault(case):
            return
        wrong = [row for row in rows(case, outputs, measured=True) if row["verdict"] != "good"]
        told = "; ".join(
            f"block {row['block']} expects {row['expects']} B, {row['verdict']}" for row in wrong
        )
        mend = f"every destination arms its own barrier with {case.bytes} B"
        record.check("bytes expected", ok=not wrong, detail=f"{told}: {mend}" if told else mend)

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        mask = mask_of(case)
        return {
            "ptx": isa.PTX[case.form],
            "mask": bin(mask),
            "blocks": rows(case, outputs, measured=measured),
            "titles": {"empty_barrier": "the empty barrier of a stage"},
            "empty_barrier": [
                {
                    "destinations": len(isa.members(mask)),
                    "consumer warps of a block": case.consumers,
                    "count of an issuer's empty barrier": isa.empty_count(mask, case.consumers),
                }
            ],
            "pictures": [picture(case, outputs["windows"])],
        }

    def conclude(self, case: Case, record: Record) -> str:
        failed = [each["detail"] for each in record.checks if not each["ok"]]
        if failed:
            return f"{failed[0][0].upper()}{failed[0][1:]}."
        ranks = ", ".join(map(str, isa.members(mask_of(case))))
        return (
            f"All {case.bytes} bytes land in block {ranks} at the issuer's offset, and the barrier at the "
            "same offset in each counts all of them, whoever issued. A stage is free when all consumers of "
            f"all destinations have arrived: {isa.empty_count(mask_of(case), case.consumers)} warps."
        )


def _of(**params: Value) -> dict[str, Value]:
    return params


def points() -> Iterator[dict[str, Value]]:
    """Yield masks, issuers, slices, both forms, and wrong accounts."""
    for form in isa.FORMS:
        yield from (_of(form=form, mask=mask) for mask in ("0b01", "0b10", "0b11"))
        yield _of(form=form, mask="0b10", issuer=1)
        yield from (_of(form=form, size=4, mask=mask) for mask in ("0b0101", "0b1010", "0b1110", ""))
        yield _of(form=form, size=4, mask="0b0110", issuer=3)
        yield from (_of(form=form, size=size, issuer=EVERY) for size in (2, 4, 8))
        yield _of(form=form, size=3, bytes=7680, issuer=EVERY, mask="0b101")
        yield _of(form=form, size=8, mask="0b10011001", issuer=2, bytes=16_384)
        yield _of(form=form, expect="twice", expect_rank=1)
        yield _of(form=form, expect="none", expect_rank=1)
        yield _of(form=form, expect="share", issuer=EVERY)
    yield _of(size=4, expect="twice")
    yield _of(size=4, expect="none", issuer=EVERY)


def number(text: str) -> int:
    """Return the mask that was typed; 0 for none."""
    mask = bits_of(text or "0")
    if mask < 0:
        raise UsageError(f"'{text}' is no mask; legal: such as 0b0101, rank 0 in the lowest bit")
    return mask


def mask_of(case: Case) -> int:
    """Return the mask of destinations."""
    return number(case.mask) if case.mask else (1 << int(case.size)) - 1


def issuers(case: Case) -> int:
    """Return the mask of the blocks that issue."""
    return (1 << int(case.size)) - 1 if case.issuer == EVERY else 1 << int(case.issuer)


def slice_of(case: Case) -> int:
    """Return the bytes that one block issues."""
    return int(case.bytes) // issuers(case).bit_count()


def landing(case: Case) -> list[int]:
    """Return the bytes that each block's barrier counts."""
    return isa.account(case.size, mask_of(case), case.bytes)


def expected(case: Case) -> list[int]:
    """Return the bytes that each block's barrier is armed with."""
    said: dict[str, int] = {
        "full": case.bytes,
        "twice": 2 * case.bytes,
        "none": 0,
        "share": case.bytes // case.size,
    }
    chosen = isa.members(mask_of(case)) if case.expect_rank == EVERY else [case.expect_rank]
    return [said[case.expect] if rank in chosen else right for rank, right in enumerate(landing(case))]


def source(case: Case) -> NDArray[np.uint32]:
    """Return the source: numbered words."""
    return np.arange(1, case.bytes // 4 + 1, dtype=np.uint32)


def map_of(case: Case) -> TensorMap:
    """Return the source as rows, with a slice as its box."""
    columns = isa.ROW // 4
    shape = (case.bytes // isa.ROW, columns)
    return TensorMap("u32", shape, packed(shape, 4), (slice_of(case) // isa.ROW, columns), (1, 1))


def rows(case: Case, outputs: Arrays, *, measured: bool) -> list[dict[str, Any]]:
    """Return what each block expects, gets and reports."""
    found = []
    for rank, (armed, lands) in enumerate(zip(expected(case), landing(case), strict=True)):
        early, done = (bool(each) for each in outputs["ended"][rank])
        ended = "before" if early else "yes" if done else "never"
        verdict = "good"
        if isa.ends_halfway(armed, lands) and not measured:
            ended, verdict = mbarrier.MAY_END, mbarrier.account(armed - lands)
        elif not done:
            verdict = f"its wait never ends: {mbarrier.account(armed - lands)}"
        elif early and lands:
            verdict = "its wait returns before anything was sent"
        found.append(
            {
                "block": rank,
                "issues": slice_of(case) if issuers(case) >> rank & 1 else 0,
                "receives": bool(mask_of(case) >> rank & 1),
                "bytes that land": int((outputs["windows"][rank] != POISON).sum()) * 4,
                "expects": armed,
                "phase ended": ended,
                "verdict": verdict,
            }
        )
    return found


def picture(case: Case, windows: NDArray[np.uint32]) -> dict[str, Any]:
    """Draw shared memory of each block in pieces: the source's bytes that lie there, coloured by issuer."""
    piece = case.bytes // SHOWN_PIECES
    first = windows[:, :: piece // 4]
    held = [[None if word == POISON else (int(word) - 1) * 4 for word in row] for row in first]
    who = isa.members(issuers(case))
    return {
        "title": f"which bytes of the source lie in each {piece} B of shared memory, coloured by the issuer",
        "cells": [["" if at is None else f"{at}" for at in row] for row in held],
        "colours": [
            [None if at is None else who[at // slice_of(case) % len(who)] for at in row] for row in held
        ],
        "row_names": [f"block {rank}" for rank in range(case.size)],
        "column_names": [f"+{i * piece}" for i in range(len(held[0]))],
    }
