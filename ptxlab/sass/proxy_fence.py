"""Ordinary writes to shared memory that reach an asynchronous reader of it without a proxy fence.

TMA, bulk copies and wgmma look at memory through a proxy of their own. Each thread that wrote there by other
means must fence after its last write and before the barrier that hands the data over. A barrier alone is not
enough, and a fence behind it orders the writes of just the threads that run it.

This follows one thread through the machine code, along every path, and knows no addresses: it sees no write
of another warp that never comes to the reader itself, and takes every write for one of what is read. So what
it finds wants a look, and where it finds nothing, nothing is proven.

Source: PTX ISA, "Memory consistency model: proxies" and "fence.proxy.async"; CUDA programming guide,
"Asynchronous data copies using the tensor memory accelerator".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any

from ptxlab.sass.instructions import Function, Instruction, has_prefix
from ptxlab.sass.loops import Block, basic_blocks

WRITES = frozenset(("STS", "STSM", "ATOMS", "LDGSTS", "ST"))
"""What writes to shared memory, or may (ST has a generic address). cp.async (LDGSTS) is no other proxy."""

READS = ("UTMASTG", "UTMAREDG", "UBLKCP.G.S", "UBLKCP.S.S", "UBLKRED")
"""Opcodes by which TMA and bulk copies read shared memory."""

FENCES = ("FENCE.VIEW.ASYNC", "FENCE.VIEW.ASYNC.S")
"""What fence.proxy.async becomes, by the version of ptxas; with .G it is for global memory alone."""

_FIRST_FEW = 4  # that are spelled out
_FILLS = ("UTMALDG", "UBLKCP.S.G")
_MULTIPLIES = frozenset(("HGMMA", "IGMMA", "QGMMA", "BGMMA", "UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCOMMA"))
_BARRIERS = ("BAR", "SYNCS.ARRIVE", "UCGABAR_ARV")


class _State(Enum):
    """What has happened to a write on the way to here."""

    OPEN = "there is no fence between them"
    HANDED_OVER = "there is a barrier and no fence between them"
    LATE = "the fence between them stands behind the barrier: it belongs between the write and the barrier"


_AFTER_FENCE = {_State.OPEN: None, _State.HANDED_OVER: _State.LATE, _State.LATE: _State.LATE}
_AFTER_BARRIER = {_State.OPEN: _State.HANDED_OVER, _State.HANDED_OVER: _State.HANDED_OVER, _State.LATE: None}
_Writes = frozenset[tuple[Instruction, _State]]


@dataclass(frozen=True)
class Unfenced:
    """A write that a reader may miss."""

    reader: Instruction
    write: Instruction
    state: _State

    @property
    def told(self) -> str:
        """What is wrong, in words."""
        generic = (
            "; the write has a generic address, which may lie elsewhere" if self.write.family == "ST" else ""
        )
        return f"{self.state.value}{generic}"

    def row(self, lines: Mapping[int, tuple[str, int]]) -> dict[str, Any]:
        """Return it as JSON; ``lines`` says which line of which source an address came from."""
        found: dict[str, Any] = {}
        for name, each in (("reader", self.reader), ("write", self.write)):
            file, line = lines.get(each.address, ("", 0))
            found |= {name: each.opcode, f"{name}_at": each.address}
            found |= {f"{name}_file": file, f"{name}_line": line}
        return found | {"problem": self.told}


def unfenced(function: Function, jumps: Mapping[int, Sequence[int]]) -> list[Unfenced]:
    """Return the writes that come to a reader without a fence on some path, in the order of the code.

    Args:
        function: the function.
        jumps: address of an indirect branch (a switch) -> where it may go.

    """
    readers = frozenset(readers_of(function))
    blocks = basic_blocks(function, jumps) if readers else []
    found: dict[tuple[int, int], Unfenced] = {}
    for block, before in zip(blocks, _at_the_start(blocks), strict=True):
        writes = before
        for each in block.lines:
            if each in readers:
                for write, state in writes:
                    found[each.address, write.address] = Unfenced(each, write, state)
            writes = _after(each, writes)
    return [found[key] for key in sorted(found)]


def readers_of(function: Function) -> list[Instruction]:
    """Return what reads shared memory through the asynchronous proxy.

    wgmma and tcgen05.mma are left out where TMA or bulk copies can have filled their operands.
    """
    filled = any(has_prefix(each.opcode, fill) for each in function.code for fill in _FILLS)
    return [each for each in function.code if not each.never_runs and _reads(each, filled=filled)]


def _reads(each: Instruction, *, filled: bool) -> bool:
    if each.family in _MULTIPLIES:
        return not filled and "gdesc" in each.operands and not each.is_dummy
    return any(has_prefix(each.opcode, opcode) for opcode in READS)


def _at_the_start(blocks: Sequence[Block]) -> list[_Writes]:
    """Return the writes that are under way where each block begins, along whatever path."""
    before: list[_Writes] = [frozenset()] * len(blocks)
    waiting = list(range(len(blocks)))
    while waiting:
        index = waiting.pop(0)
        writes = before[index]
        for each in blocks[index].lines:
            writes = _after(each, writes)
        for successor in blocks[index].successors:
            if not writes <= before[successor]:
                before[successor] |= writes
                waiting.append(successor)
    return before


def _after(each: Instruction, writes: _Writes) -> _Writes:
    """Return the writes under way behind an instruction. What has a predicate may be left out."""
    if each.never_runs:
        return writes
    if each.family in WRITES:
        others = frozenset(pair for pair in writes if pair[0] != each)
        return others | {(each, _State.OPEN)}
    if each.opcode in FENCES:
        return _moved(writes, _AFTER_FENCE, each.predicate)
    if any(has_prefix(each.opcode, barrier) for barrier in _BARRIERS):
        return _moved(writes, _AFTER_BARRIER, each.predicate)
    return writes


def _moved(
    writes: Iterable[tuple[Instruction, _State]], to: Mapping[_State, _State | None], predicate: str
) -> _Writes:
    """Return the writes in their next states; those under another predicate keep the old ones as well."""
    found = set()
    for write, state in writes:
        if predicate not in ("", "@PT", "@UPT", write.predicate):
            found.add((write, state))
        following = to[state]
        if following is not None:
            found.add((write, following))
    return frozenset(found)


def judged(kernel: Mapping[str, Any]) -> tuple[bool, str]:
    """Say whether nothing was found in a kernel (one of ``result.kernels[]`` of ``sass``), and what was."""
    found = kernel["unfenced"]
    if found:
        told = [_told(row) for row in found[:_FIRST_FEW]]
        more = f"; and {len(found) - _FIRST_FEW} more" if len(found) > _FIRST_FEW else ""
        return False, f"{'; '.join(told)}{more}. A run that goes well proves nothing"
    readers = kernel["async_readers"]
    if not readers:
        return True, "nothing reads shared memory asynchronously"
    return (
        True,
        f"no path leads from an ordinary write to any of {readers} asynchronous reads without a fence",
    )


def _told(row: Mapping[str, Any]) -> str:
    return f"{_placed(row, 'reader')} reads what {_placed(row, 'write')} wrote: {row['problem']}"


def _placed(row: Mapping[str, Any], name: str) -> str:
    """Return an instruction with its address, and the line that it came from."""
    line = f", {PurePath(row[f'{name}_file']).name}:{row[f'{name}_line']}" if row[f"{name}_line"] else ""
    return f"{row[name]} at {row[f'{name}_at']:#06x}{line}"
