"""The bank model of shared memory: how many wavefronts one warp instruction takes.

32 banks of 4 bytes serve one word each per wavefront. A warp's access is served in phases: the lanes that
take part in one phase together move at most 128 bytes. Lanes of a phase that touch the same word share it.
A phase takes as many wavefronts as the busiest bank has different words.

Phases: 32-bit accesses one of 32 lanes; 64-bit two of 16; 128-bit four of 8; ldmatrix and stmatrix one for
each 8x8 matrix, of 8 rows of 16 bytes. Loads of 64 and 128 bits can take fewer wavefronts than phases:
``_joinable`` says where. cp.async.ca has the phases of a store of its size, but its lanes do not share
words; cp.async.cg knows no phases at all: ``_by_line`` says what it does.
Source: wavefront counters of an H200, which the recordings of the probe ``banks`` hold class by class; what
they do not hold is not proven.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError, unknown_name

BANKS = 32
WORD_BYTES = 4
OFF = -1
"""The address of a lane that is predicated off."""

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Access:
    """A class of warp instructions.

    Attributes:
        name: as options name it.
        op: "ld" or "st": which way it moves data, as seen from shared memory.
        bytes_per_lane: what each participating lane moves in one piece.
        lanes: how many lanes supply an address.
        lanes_per_phase: how many of those are served together.
        opcode: what it is in SASS.
        joins: whether phases are joined where neighbouring lanes read the same.
        shares: whether lanes of a phase that touch the same word share it.
        by_line: whether it is served line by line of its source in global memory, not in phases of lanes.
        counted: whether a counter of the device can tell its wavefronts.

    """

    name: str
    op: str
    bytes_per_lane: int
    lanes: int
    lanes_per_phase: int
    opcode: str
    joins: bool = False
    shares: bool = True
    by_line: bool = False
    counted: bool = True

    @property
    def ideal(self) -> int:
        """The wavefronts that the access takes when nothing conflicts: its number of phases."""
        return self.lanes // self.lanes_per_phase

    @property
    def has_mask(self) -> bool:
        """Whether single lanes can be predicated off; ldmatrix and stmatrix need the whole warp."""
        return self.opcode not in ("LDSM", "STSM", "HGMMA")


def _plain(bits: int) -> tuple[Access, Access]:
    size, lanes = bits // 8, 1024 // bits
    return (
        Access(str(bits), "ld", size, 32, lanes, "LDS", joins=bits > 32),
        Access(f"st.{bits}", "st", size, 32, lanes, "STS"),
    )


ACCESSES: dict[str, Access] = {
    access.name: access
    for access in (
        *(each for bits in (32, 64, 128) for each in _plain(bits)),
        *(Access(f"ldmatrix.x{n}", "ld", 16, 8 * n, 8, "LDSM") for n in (1, 2, 4)),
        *(Access(f"stmatrix.x{n}", "st", 16, 8 * n, 8, "STSM") for n in (1, 2, 4)),
        Access("cp.async.4", "st", 4, 32, 32, "LDGSTS", shares=False),
        Access("cp.async.8", "st", 8, 32, 16, "LDGSTS", shares=False),
        Access("cp.async.16", "st", 16, 32, 8, "LDGSTS", by_line=True),
        Access("cp.async.16.ca", "st", 16, 32, 8, "LDGSTS", shares=False),
        Access("wgmma", "ld", 16, 8, 8, "HGMMA", counted=False),
    )
}
"""By name: 32, 64 and 128 are bits a lane moves with ld.shared, st.32 and so on with st.shared; wgmma is the
read of one core matrix of an operand, 8 rows of 16 bytes, as a model that no counter checks. cp.async.16 is
.cg, past the L1, as everyone uses it; copies of 4 and 8 bytes are always .ca."""

WIDTHS = tuple(name for name in ACCESSES if not name.startswith("st."))
"""How options name the classes: --op says whether 32, 64 and 128 are loads or stores."""


def access(name: str, op: str = "") -> Access:
    """Return the access class of that name.

    Args:
        name: its name; .trans behind that of ldmatrix or stmatrix changes registers and no address.
        op: "ld" or "st" as options say it; "" takes what the name says.

    Raises:
        UsageError: there is none, or it is of the other direction; the message holds the names.

    """
    plain = name.removesuffix(".trans") if "matrix" in name else name
    if op == "st" and plain in ("32", "64", "128"):
        plain = f"st.{plain}"
    if plain not in ACCESSES:
        raise unknown_name("access", name, WIDTHS)
    found = ACCESSES[plain]
    if op and op != found.op:
        way = "loads from" if found.op == "ld" else "stores to"
        raise UsageError(f"{name} {way} shared memory; legal: --op {found.op}, or leave --op out")
    return found


@dataclass(frozen=True)
class Wavefronts:
    """What one warp instruction costs at the shared-memory port.

    Attributes:
        wavefronts: in all.
        ideal: of full warps without conflicts (1, 2, 4, or N for .xN).
        phases: wavefronts of each phase.
        groups: the lanes of each phase; of a copy that is served by line, those of each wavefront.
        merged: whether phases were served together, so that fewer wavefronts than the ideal may do.

    """

    wavefronts: int
    ideal: int
    phases: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...] = ()
    merged: bool = False

    @property
    def conflicts(self) -> int:
        """Wavefronts above one for each phase that has lanes; of a copy that has none, above the ideal."""
        return self.wavefronts - self.least

    @property
    def least(self) -> int:
        """The wavefronts that would do if nothing conflicted."""
        served = sum(1 for phase in self.phases if phase)
        return min(served, self.ideal)


def wavefronts(kind: Access, addresses: Sequence[int | None]) -> Wavefronts:
    """Return the cost of one warp instruction.

    Args:
        kind: the class of the instruction.
        addresses: byte address of each lane, aligned to what it moves; None for a lane that is
            predicated off. Lanes from ``kind.lanes`` up are ignored.

    """
    used = np.array([OFF if each is None else each for each in addresses[: kind.lanes]], dtype=np.int64)
    if kind.by_line:
        served = _line_by_line(used)
        return Wavefronts(len(served), kind.ideal, (1,) * len(served), served)
    costs, joined = _costs(kind, used[None])
    groups: list[tuple[int, ...]] = []
    for first in range(0, kind.lanes, kind.lanes_per_phase):
        lanes = tuple(range(first, first + kind.lanes_per_phase))
        phase = first // kind.lanes_per_phase
        if phase % 2 and joined[0, phase // 2]:
            groups[-1] += lanes
        else:
            groups.append(lanes)
    phases = tuple(int(costs[0, group[0] // kind.lanes_per_phase]) for group in groups)
    return Wavefronts(sum(phases), kind.ideal, phases, tuple(groups), merged=bool(joined.any()))


def count(kind: Access, addresses: Ints, sources: Ints | None = None) -> Ints:
    """Return the wavefronts of many warp instructions at once.

    Args:
        kind: their class.
        addresses: byte addresses, [..., lane]; OFF for a lane that is predicated off.
        sources: where in global memory a class that is served by line copies from, of the same shape; left
            out: every chunk lies in its line there as it lies in its line of shared memory.

    """
    used = addresses.reshape(-1, addresses.shape[-1])[:, : kind.lanes]
    if kind.by_line:
        source = used if sources is None else sources.reshape(used.shape)
        return _by_line(used, source).reshape(addresses.shape[:-1])
    costs, _ = _costs(kind, used)
    return np.asarray(costs.sum(axis=1).reshape(addresses.shape[:-1]))


def conflicts(kind: Access, addresses: Ints) -> Ints:
    """Return the wavefronts above one a phase, of many warp instructions that are served in phases."""
    costs, _ = _costs(kind, addresses.reshape(-1, addresses.shape[-1])[:, : kind.lanes])
    return np.asarray((costs - 1).clip(0).sum(axis=1).reshape(addresses.shape[:-1]))


def phases(kind: Access, addresses: Ints) -> Ints:
    """Return how many phases of warp instructions have a lane that is on: their ideal wavefronts."""
    used = addresses.reshape(-1, addresses.shape[-1])[:, : kind.lanes]
    on = (used != OFF).reshape(len(used), kind.ideal, kind.lanes_per_phase).any(axis=2)
    return np.asarray(on.sum(axis=1).reshape(addresses.shape[:-1]))


def words_of(kind: Access, addresses: Ints) -> Ints:
    """Return the words that each lane touches, [..., lane, word]; OFF for those of a lane that is off."""
    pieces = np.arange(0, max(kind.bytes_per_lane, WORD_BYTES), WORD_BYTES)
    words = (addresses[..., None] + pieces) // WORD_BYTES
    return np.where(addresses[..., None] == OFF, OFF, words)


def _costs(kind: Access, used: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the wavefronts of each phase, and which pairs of phases are joined: the first has the cost."""
    costs = _busiest(kind, used, kind.lanes_per_phase)
    if not kind.joins:
        return costs, np.zeros((len(used), kind.ideal), dtype=bool)
    joined = _joinable(kind, used) & (costs[:, ::2] > 0) & (costs[:, 1::2] > 0)
    some = joined.any(axis=1)
    together = _busiest(kind, used[some], 2 * kind.lanes_per_phase)
    joined[some] &= together == 1
    costs[:, 1::2][joined] = 0
    return costs, joined


def _busiest(kind: Access, used: Ints, lanes: int) -> Ints:
    """Return how many words the busiest bank serves, one by one, for each ``lanes`` lanes in a row."""
    if not len(used):
        return np.zeros((0, kind.lanes // lanes), dtype=np.int64)
    words = words_of(kind, used).reshape(-1, lanes * max(1, kind.bytes_per_lane // WORD_BYTES))
    words = np.sort(words, axis=1)
    first = words != OFF
    if kind.shares:
        first[:, 1:] &= words[:, 1:] != words[:, :-1]
    row, place = np.nonzero(first)
    banks = row * BANKS + words[row, place] % BANKS
    per_bank = np.bincount(banks, minlength=len(words) * BANKS).reshape(-1, BANKS)
    return np.asarray(per_bank.max(axis=1).reshape(len(used), -1).astype(np.int64))


def _joinable(kind: Access, used: Ints) -> NDArray[np.bool_]:
    """Say for each pair of phases, [instruction, pair], whether two lanes each can share what they read.

    Every lane i shares with lane i ^ 1, or every one with i ^ 2, or with the one in its place in the other
    phase: both want the same address, or one is off. If then a single wavefront has all that both phases
    want, the device joins them. That was measured, and so was an exception: while lane 31 is on, the first
    two phases of a 128-bit load are not joined if one of their lanes is off (5 of 5 such patterns; NVIDIA
    H200, 2026-11-30).
    """
    pairs = used.reshape(len(used), kind.ideal // 2, 2 * kind.lanes_per_phase)
    lanes = np.arange(pairs.shape[-1])

    def alike(step: int) -> NDArray[np.bool_]:
        other = pairs[..., lanes ^ step]
        return np.asarray(((pairs == other) | (pairs == OFF) | (other == OFF)).all(axis=-1))

    found = alike(1) | alike(2) | alike(kind.lanes_per_phase)
    if kind.ideal > 2:
        found[:, 0] &= (used[:, -1] == OFF) | (pairs[:, 0] != OFF).all(axis=-1)
    return np.asarray(found)


LINE_BYTES = 128
_SECTOR = 32
_CHUNK = 16


def _by_line(targets: Ints, sources: Ints) -> Ints:
    """Return the wavefronts of copies past the L1, which come line by line of the source, [instruction].

    One wavefront brings data of one line (128 bytes) of global memory into one line of shared memory. In it
    all 32-byte sectors bring the same: both halves, or just the first, or just the second; and all of them
    exchange their halves on the way, or none does. A sector goes to one place in a wavefront.
    That was measured (NVIDIA H200, 2026-11-30): where sources lie as targets do, 265 of 265 patterns, beside
    those that are recorded; rows of tiles, 64 bytes and more, swizzled or padded on the way, all of 40. Where
    both are scattered on their own it counts one to three too few of about 30 in 33 of 140 patterns.
    """
    instruction, lane = np.nonzero(targets != OFF)
    target, source = targets[instruction, lane], sources[instruction, lane]
    turned = (target ^ source) // _CHUNK & 1
    moves, which = _distinct(np.stack([instruction, source // _SECTOR, target // _SECTOR, turned]))
    halves = np.zeros(moves.shape[1], dtype=np.int64)
    np.bitwise_or.at(halves, which, 1 << (source // _CHUNK & 1))
    per_line = LINE_BYTES // _SECTOR
    groups, group = _distinct(
        np.stack([moves[0], moves[1] // per_line, moves[2] // per_line, moves[3], halves])
    )
    places, place = _distinct(np.stack([group, moves[1]]))
    costs = np.zeros(groups.shape[1], dtype=np.int64)
    np.maximum.at(costs, places[0], np.bincount(place))
    return np.bincount(groups[0], costs, minlength=len(targets)).astype(np.int64)


def _distinct(columns: Ints) -> tuple[Ints, Ints]:
    """Return the distinct columns, and for each column which of them it is: np.unique, five times as fast."""
    order = np.lexsort(columns[::-1])
    ordered = columns[:, order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    which = np.empty(len(order), dtype=np.int64)
    which[order] = np.cumsum(first) - 1
    return ordered[:, first], which


def _line_by_line(targets: Ints) -> tuple[tuple[int, ...], ...]:
    """Return the lanes of each wavefront, of one instruction whose sources lie as its targets do."""
    halves: dict[int, int] = {}
    on = [(lane, address) for lane, address in enumerate(targets.tolist()) if address != OFF]
    for _, address in on:
        halves[address // _SECTOR] = halves.get(address // _SECTOR, 0) | 1 << (address // _CHUNK & 1)
    found: dict[tuple[int, int], list[int]] = {}
    for lane, address in on:
        found.setdefault((address // LINE_BYTES, halves[address // _SECTOR]), []).append(lane)
    return tuple(map(tuple, found.values()))
