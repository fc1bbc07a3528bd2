"""griddepcontrol: a kernel lets the next one of its stream start early; that one waits for it.

launch_dependents is a permission: once every block of a grid has given it or has ended, the next grid may
start, if it was launched as a programmatic dependent. It orders no memory. wait does: it returns once the
grid ahead has ended and its writes are seen. Without the launch attribute both do nothing. On an H200 a
dependent that did not wait read what was there before the writes (2026-11-30).

Source: PTX ISA, "Parallel synchronization and communication instructions: griddepcontrol"; CUDA programming
guide, "Programmatic dependent launch and synchronization".
"""

from __future__ import annotations

from ptxlab.errors import UsageError

SASS = {"wait": "ACQBULK", "launch_dependents": "PREEXIT"}
"""The opcodes that ptxas 13 makes (seen in the disassembly of the griddepcontrol probe)."""

LAUNCHES = {
    "never": "nowhere: the end of each block stands for it",
    "early": "at the start, before the data is written",
    "late": "after the last write",
}
"""Where a kernel may allow its dependents to start."""


def check_arch(arch: str) -> None:
    """Raise UsageError if an architecture has no griddepcontrol. Source: PTX ISA, its target notes."""
    if int(arch.strip("sm_af")) < 90:
        raise UsageError(f"griddepcontrol does not exist on {arch}; legal: sm_90 and later", "--arch sm_90a")


def overlaps(launch: str, blocks: int, callers: int, *, programmatic: bool) -> bool:
    """Say whether a dependent can run while all blocks of the primary wait for it.

    Args:
        launch: a key of LAUNCHES; only before the wait it can help.
        blocks: of the primary.
        callers: blocks that call launch_dependents.
        programmatic: whether the dependent was launched as one.

    """
    return programmatic and launch == "early" and callers >= blocks


def is_ordered(*, wait: bool, programmatic: bool) -> bool:
    """Say whether a dependent sees all that the primary wrote."""
    return wait or not programmatic
