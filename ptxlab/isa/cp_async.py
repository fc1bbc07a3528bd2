"""cp.async: a thread starts copies from global to shared memory, and waits for them group by group.

A copy moves 4, 8 or 16 bytes. With a src-size it reads just that many, and writes zeros for the rest; with an
ignore-src predicate it reads nothing and writes zeros alone.

commit_group makes a group, which may be empty, of what the thread started since the last one. wait_group N
waits for all groups but the latest N, and not for copies that are in no group; wait_all waits for everything.
mbarrier.arrive lets a barrier count an arrival once all copies that the thread started before are there.

Source: PTX ISA, "Data Movement and Conversion Instructions: cp.async" and its group, wait and mbarrier
instructions; SASS as ptxas 13 writes it, seen in the disassembly of the cp-async probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError

SIZES = {"ca": (4, 8, 16), "cg": (16,)}
"""Bytes of one copy, by where it is cached: at all levels, or in L2 alone."""

WAITS = ("group", "all", "mbarrier", "mbarrier-inc")
"""wait_group N, wait_all, mbarrier.arrive.noinc and mbarrier.arrive, each on all threads' copies."""

COUNTED = 63
"""The most groups that SASS waits to have left (DEPBAR.LE SB0, 0x3f): for a larger N ptxas puts this one."""

COMMIT_SASS = "LDGDEPBAR"
WAIT_SASS = "DEPBAR.LE"
Bytes = NDArray[np.uint8]
Ints = NDArray[Any]


@dataclass(frozen=True)
class CpAsyncForm:
    """A form of the instruction.

    Attributes:
        size: bytes of one copy.
        cache: "ca" or "cg".
        source: "whole", "src-size" or "ignore-src".

    """

    size: int
    cache: str
    source: str = "whole"

    @property
    def ptx(self) -> str:
        """The instruction as it is written."""
        more = "" if self.source == "whole" else f", {self.source}"
        return f"cp.async.{self.cache}.shared.global [dst], [src], {self.size}{more}"

    @property
    def sass(self) -> str:
        """The opcode; ignore-src is an operand of it, and src-size goes into the address."""
        bypass = ".BYPASS" if self.cache == "cg" else ""
        width = {4: "", 8: ".64", 16: ".128"}[self.size]
        return f"LDGSTS.E{bypass}{width}{'.ZFILL' if self.source == 'src-size' else ''}"


def check_arch(arch: str) -> None:
    """Raise UsageError if an architecture has no cp.async. Source: PTX ISA, its target notes."""
    if int(arch.strip("sm_af")) < 80:
        raise UsageError(f"cp.async does not exist on {arch}; legal: sm_80 and later", "--arch sm_80")


def check_form(form: CpAsyncForm) -> None:
    """Raise UsageError if the form does not exist; the message names those that do."""
    if form.cache not in SIZES or form.size not in SIZES[form.cache]:
        legal = "; ".join(f".{cache}: {', '.join(map(str, sizes))}" for cache, sizes in SIZES.items())
        raise UsageError(f"cp.async.{form.cache} of {form.size} bytes; legal bytes: {legal}")


def check_present(form: CpAsyncForm, present: int) -> None:
    """Raise UsageError if a src-size is not one of this form."""
    if not 0 <= present <= form.size:
        raise UsageError(
            f"a src-size of {present} bytes; legal: 0 to {form.size}, which one copy has",
            f"only its low bits reach the chip, which would read {present % form.size or form.size}",
        )


def copied(memory: Bytes, addresses: Ints, size: int, present: Ints) -> Bytes:
    """Return what copies write, [..., size]: the first bytes of each source, then zeros.

    An instruction with a src-size has the number in the low bits of its address, which ptxas makes by adding
    (-src-size) % size; the chip reads from the multiple of the size below, and so many bytes fewer as lie
    between. So a source that is not aligned is no fault: other bytes are read, and another number of them.
    (Seen in ptxas 13's SASS, and on an H200 with sources 1 to 12 bytes off, 2026-11-30.)

    Args:
        memory: global memory.
        addresses: where each copy's source begins, [...].
        size: bytes of one copy.
        present: how many bytes each is told to read, [...]; 0 where it is ignored.

    """
    put = addresses + -present.astype(np.int64) % size
    index = np.arange(size)
    padded = np.append(memory, np.zeros(2 * size, dtype=np.uint8))
    read = padded[(put // size * size)[..., None] + index]
    kept = (index < (size - put % size)[..., None]) & (present > 0)[..., None]
    return np.where(kept, read, 0).astype(np.uint8)


def arrived(groups: Sequence[int], loose: int, wait: str, pending: int) -> int:
    """Return how many of a thread's copies, from the first, have surely arrived after a wait.

    Args:
        groups: how many copies each group has.
        loose: copies that were started after the last group.
        wait: one of WAITS.
        pending: the N of wait_group.

    """
    if wait != "group":
        return sum(groups) + loose
    return sum(groups[: max(len(groups) - pending, 0)])


def right_arrivals(wait: str, threads: int) -> int:
    """Return the arrivals that a barrier must be initialised for, so that its phase ends with the copies.

    Each thread's noinc takes one of them; without noinc it brings its own along, and another one must come.
    """
    return threads if wait == "mbarrier" else 1
