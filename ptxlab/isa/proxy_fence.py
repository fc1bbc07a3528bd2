"""fence.proxy.async: what ordinary writes need before asynchronous copies and wgmma read them.

These look at memory through a proxy of their own. Each thread that wrote fences after its last write; then
a barrier hands the data to the thread that issues the copy. Without it an H200 copied the right words in each
of a few runs (2026-11-30), which is why no run is a proof.

Source: PTX ISA, "Memory consistency model: proxies" and "Parallel synchronization and communication
instructions: fence.proxy.async".
"""

from __future__ import annotations

from ptxlab.errors import UsageError

PTX = "fence.proxy.async.shared::cta"
SASS = "FENCE.VIEW.ASYNC.S"
GLOBAL_SASS = "FENCE.VIEW.ASYNC.G"
"""What ptxas 13 makes of the form for global memory, which does nothing for shared memory."""

PLACES = {
    "each": "in each thread, between its last write and the barrier",
    "loop": "in each thread, but in a loop that may be left out",
    "issuer": "behind the barrier, in the thread that issues the copy",
    "none": "nowhere",
}
"""Where a fence may stand."""


def check_arch(arch: str) -> None:
    """Raise UsageError if an architecture has no asynchronous proxy. Source: PTX ISA, its target notes."""
    if int(arch.strip("sm_af")) < 90:
        raise UsageError(f"{PTX} does not exist on {arch}; legal: sm_90 and later", "--arch sm_90a")


def is_ordered(place: str, steps: int) -> bool:
    """Say whether the writes of a run are ordered before the read; the loop runs ``steps`` times."""
    return place == "each" or (place == "loop" and steps > 0)


def has_bare_path(place: str) -> bool:
    """Say whether some path through the code leads from a write to the read without a fence in its place."""
    return place != "each"
