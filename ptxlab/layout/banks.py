"""The bank model of shared memory: how many wavefronts one warp instruction takes.

32 banks of 4 bytes serve one word each per wavefront. A warp's access is served in phases: the lanes that
take part in one phase together move at most 128 bytes. Lanes of a phase that touch the same word share it.
A phase takes as many wavefronts as the busiest bank has different words.

Phases: 32-bit accesses one of 32 lanes; 64-bit two of 16; 128-bit four of 8; ldmatrix and stmatrix one for
each 8x8 matrix, of 8 rows of 16 bytes. Source: the wavefront counters of Nsight Compute on sm_90, which the
recordings of the ldmatrix probe hold for LDSM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptxlab.errors import unknown_name

BANKS = 32
WORD_BYTES = 4


@dataclass(frozen=True)
class Access:
    """A class of warp instructions.

    Attributes:
        name: as options name it.
        bytes_per_lane: what each participating lane moves in one piece.
        lanes: how many lanes supply an address.
        lanes_per_phase: how many of those are served together.

    """

    name: str
    bytes_per_lane: int
    lanes: int
    lanes_per_phase: int

    @property
    def ideal(self) -> int:
        """The wavefronts that the access takes when nothing conflicts: its number of phases."""
        return self.lanes // self.lanes_per_phase


ACCESSES: dict[str, Access] = {
    access.name: access
    for access in (
        Access("32", 4, 32, 32),
        Access("64", 8, 32, 16),
        Access("128", 16, 32, 8),
        *(Access(f"{op}.x{n}", 16, 8 * n, 8) for op in ("ldmatrix", "stmatrix") for n in (1, 2, 4)),
    )
}
"""By name: 32, 64 and 128 are bits a lane moves with ld.shared or st.shared."""


def access(name: str) -> Access:
    """Return the access class of that name.

    Raises:
        UsageError: there is none; the message holds the names.

    """
    if name not in ACCESSES:
        raise unknown_name("access", name, ACCESSES)
    return ACCESSES[name]


@dataclass(frozen=True)
class Wavefronts:
    """What one warp instruction costs at the shared-memory port.

    Attributes:
        wavefronts: in all.
        ideal: without conflicts (1, 2, 4, or N for .xN).
        phases: wavefronts of each phase.

    """

    wavefronts: int
    ideal: int
    phases: tuple[int, ...]

    @property
    def conflicts(self) -> int:
        """Wavefronts above the ideal."""
        return max(0, self.wavefronts - self.ideal)


def wavefronts(kind: Access, addresses: Sequence[int | None]) -> Wavefronts:
    """Return the cost of one warp instruction.

    Args:
        kind: the class of the instruction.
        addresses: byte address of each lane, aligned to what it moves; None for a lane that is
            predicated off. Lanes from ``kind.lanes`` up are ignored.

    """
    size = kind.lanes_per_phase
    used = addresses[: kind.lanes]
    phases = tuple(_phase(kind, used[start : start + size]) for start in range(0, len(used), size))
    return Wavefronts(sum(phases), kind.ideal, phases)


def _phase(kind: Access, addresses: Sequence[int | None]) -> int:
    """Return the number of different words in the busiest bank; a phase without lanes costs nothing."""
    words = {
        (address + offset) // WORD_BYTES
        for address in addresses
        if address is not None
        for offset in range(0, kind.bytes_per_lane, WORD_BYTES)
    }
    per_bank = [0] * BANKS
    for word in words:
        per_bank[word % BANKS] += 1
    return max(per_bank)
