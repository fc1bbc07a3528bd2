"""Loops in SASS: natural loops of the control-flow graph. Every count is static."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ptxlab.sass.instructions import Function, Instruction, opcode_counts

_INDIRECT = frozenset(("BRX", "BRXU", "JMX", "JMXU"))
"""Branches to an address in a register: a switch. nvdisasm's JSON does not say where they go."""

_ENDS = _INDIRECT | {"EXIT", "RET", "KILL"}
"""What the next instruction never follows, unless there is a predicate."""


@dataclass
class Block:
    """Lines that run one after the other, and the blocks before and after by their index."""

    lines: Sequence[Instruction]
    successors: list[int] = field(default_factory=list)
    predecessors: list[int] = field(default_factory=list)


def find_loops(function: Function, jumps: Mapping[int, Sequence[int]]) -> list[dict[str, Any]]:
    """Return the loops of a function in the order of their first address.

    A loop is made by a branch back to a block that all ways to the branch lead through. A jump back out
    of code that ptxas moved out of line makes none.

    Args:
        function: the function.
        jumps: address of an indirect branch (a switch) -> where it may go.

    Returns:
        ``{"start", "end", "depth", "instructions", "tensor_ops", "counts"}`` each: the address of the
        first instruction, that of the last branch back, 1 for an outermost loop, and the static counts
        of the body, inner loops included.

    """
    blocks = basic_blocks(function, jumps)
    bodies = _natural_loops(blocks)
    loops = []
    for header, body in sorted(bodies.items()):
        lines = [each for index in sorted(body) for each in blocks[index].lines]
        code = [each for each in lines if each.opcode != "NOP"]
        back = [blocks[index].lines[-1].address for index in blocks[header].predecessors if index in body]
        loops.append(
            {
                "start": blocks[header].lines[0].address,
                "end": max(back),
                "depth": sum(header in other for other in bodies.values()),
                "instructions": len(code),
                "tensor_ops": sum(each.is_tensor_operation for each in code),
                "counts": opcode_counts(code),
            }
        )
    return loops


def has_switch(function: Function) -> bool:
    """Whether there is an indirect branch, so that its targets must be known to find the loops."""
    return any(each.family in _INDIRECT for each in function.code)


def basic_blocks(function: Function, jumps: Mapping[int, Sequence[int]]) -> list[Block]:
    """Cut a function where branches go and behind what leaves it, and connect the pieces."""
    # NOPs stay in: on Blackwell they stand between instructions, and branches lead to them.
    end = function.code[-1].address if function.code else -1
    lines = [each for each in function.lines if each.address <= end]
    at = {each.address: index for index, each in enumerate(lines)}
    leaders = {0}
    for index, each in enumerate(lines):
        targets = _targets(each, jumps)
        leaders.update(at[target] for target in targets if target in at)
        if targets or each.family in _ENDS:
            leaders.add(index + 1)
    borders = [*sorted(leaders - {len(lines)}), len(lines)]
    blocks = [Block(lines[start:end]) for start, end in pairwise(borders)]
    starting = {block.lines[0].address: index for index, block in enumerate(blocks)}
    for index, block in enumerate(blocks):
        last = block.lines[-1]
        goes_to = [starting[target] for target in _targets(last, jumps) if target in starting]
        if _falls_through(last) and index + 1 < len(blocks):
            goes_to.append(index + 1)
        for successor in dict.fromkeys(goes_to):
            block.successors.append(successor)
            blocks[successor].predecessors.append(index)
    return blocks


def _targets(instruction: Instruction, jumps: Mapping[int, Sequence[int]]) -> Sequence[int]:
    if instruction.target is not None:
        return (instruction.target,)
    return jumps.get(instruction.address, ())


def _falls_through(instruction: Instruction) -> bool:
    """Whether the next instruction may follow: the branch is conditional, or it is none."""
    if instruction.predicate and instruction.predicate != "@PT":
        return True
    if instruction.target is not None:
        return "," in instruction.operands  # BRA UP0, 0x… and BRA.DIV UR4, 0x… have a condition
    return instruction.family not in _ENDS


def _natural_loops(blocks: Sequence[Block]) -> dict[int, set[int]]:
    """Return header -> body. Branches back to the same header make one loop."""
    dominators = _dominators(blocks)
    bodies: dict[int, set[int]] = {}
    for tail, block in enumerate(blocks):
        for header in block.successors:
            if dominators[tail] >> header & 1:
                body = bodies.setdefault(header, {header})
                waiting = [tail]
                while waiting:
                    index = waiting.pop()
                    if index not in body:
                        body.add(index)
                        waiting += blocks[index].predecessors
    return bodies


def _dominators(blocks: Sequence[Block]) -> list[int]:
    """Return for each block the set of those that every way to it leads through, as a bit mask.

    Ways start at the first block and at the first block of each piece that no branch leads to, which
    is an internal function.
    """
    order, roots = _reverse_postorder(blocks)
    everything = (1 << len(blocks)) - 1
    masks = [everything] * len(blocks)
    changed = True
    while changed:
        changed = False
        for index in order:
            mask = 0 if index in roots else everything
            for predecessor in blocks[index].predecessors:
                mask &= masks[predecessor]
            mask |= 1 << index
            changed |= mask != masks[index]
            masks[index] = mask
    return masks


def _reverse_postorder(blocks: Sequence[Block]) -> tuple[list[int], set[int]]:
    seen: set[int] = set()
    roots: set[int] = set()
    order: list[int] = []
    for root in range(len(blocks)):
        if root in seen:
            continue
        roots.add(root)
        seen.add(root)
        stack = [(root, iter(blocks[root].successors))]
        while stack:
            fresh = next((each for each in stack[-1][1] if each not in seen), None)
            if fresh is None:
                order.append(stack.pop()[0])
            else:
                seen.add(fresh)
                stack.append((fresh, iter(blocks[fresh].successors)))
    return order[::-1], roots
