"""Registers, spills and shared memory of each kernel, from ptxas -v or, for a bare cubin, from cuobjdump."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ptxlab.toolchain.arch import base_number
from ptxlab.toolchain.build import Build
from ptxlab.toolchain.disassembler import resource_usage

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")
_USAGE = re.compile(r"Function (\S+):\s+REG:(\d+)\s+STACK:\d+\s+SHARED:(\d+)")

RESERVED_SHARED_BYTES = 1024
"""What the system keeps of each block's shared memory from sm_90 on. ptxas -v never counts it. cuobjdump
counts it unless the code is relocatable (-rdc), or the kernel has no section for shared memory: 0 then.
"""

_ELF_EXECUTABLE = 2  # e_type of a cubin that is linked whole; relocatable code has 1


@dataclass(frozen=True)
class Resources:
    """What a kernel uses.

    Attributes:
        registers: per thread.
        spill_bytes: bytes of spill stores and spill loads together, per thread; None if nobody tells.
        shared_bytes: static shared memory per block.

    """

    registers: int
    spill_bytes: int | None
    shared_bytes: int


def resources(build: Build) -> dict[str, Resources]:
    """Return kernel -> what it uses.

    Raises:
        MissingError: the build is a bare cubin and there is no cuobjdump here.
        ToolError: cuobjdump failed; the message is its own.

    """
    if told := from_log(build.log):
        return told
    usage = resource_usage(build.cubin, name=build.name or "kernel.cubin")
    linked = int.from_bytes(build.cubin[16:18], "little") == _ELF_EXECUTABLE
    return from_usage(usage, RESERVED_SHARED_BYTES if linked and base_number(build.arch) >= 90 else 0)


def from_log(log: str) -> dict[str, Resources]:
    """Return kernel -> what it uses, from the lines of ptxas -v.

    The internal functions that ptxas lists behind a kernel count into its spills.
    """
    found: dict[str, Resources] = {}
    kernel = ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            kernel = match[1]
            found[kernel] = Resources(0, 0, 0)
        elif kernel and (match := _SPILLS.search(line)):
            now = found[kernel]
            spilled = (now.spill_bytes or 0) + int(match[1]) + int(match[2])
            found[kernel] = Resources(now.registers, spilled, now.shared_bytes)
        elif kernel and (match := _USED.search(line)):
            shared = _SHARED.search(line)
            found[kernel] = Resources(
                int(match[1]), found[kernel].spill_bytes, int(shared[1]) if shared else 0
            )
    return found


def from_usage(text: str, reserved: int) -> dict[str, Resources]:
    """Return kernel -> what it uses, from what cuobjdump -res-usage prints.

    Args:
        text: its output.
        reserved: how many bytes of the shared memory are not the kernel's own, where any is counted at all.

    """
    return {
        name: Resources(int(registers), None, max(0, int(shared) - reserved))
        for name, registers, shared in _USAGE.findall(text)
    }
