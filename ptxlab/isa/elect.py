"""elect.sync: of the lanes in a mask one is the leader.

PTX says that the same mask elects the same lane every time, and not which. Hopper elects the lowest: proven
by the recordings of the elect probe. Source: PTX ISA, "Parallel synchronization and communication
instructions: elect.sync".
"""

from __future__ import annotations

from ptxlab.errors import UsageError

PTX = "elect.sync"
SASS = "ELECT"
"""The opcode that ptxas 13 makes of it (seen in the disassembly of the elect probe)."""

FULL = 0xFFFFFFFF
"""Every lane of a warp."""


def check_arch(arch: str) -> None:
    """Raise UsageError if an architecture has no elect.sync. Source: PTX ISA, its target notes."""
    if int(arch.strip("sm_af")) < 90:
        raise UsageError(f"{PTX} does not exist on {arch}; legal: sm_90 and later", "--arch sm_90a")


def check_mask(mask: int) -> None:
    """Raise UsageError if this is no mask of lanes, at least one of them."""
    if not 0 < mask <= FULL:
        raise UsageError(f"mask {mask:#x}; legal: 0x1 to {FULL:#x}, a bit for each lane that takes part")


def members(mask: int) -> list[int]:
    """Return the lanes of a mask."""
    return [lane for lane in range(32) if mask >> lane & 1]


def leader(mask: int) -> int:
    """Return the lane that is elected."""
    return (mask & -mask).bit_length() - 1
