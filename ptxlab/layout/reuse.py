"""The result of one product as an operand of the next, as it lies in the registers.

Results lie side by side along the k of the operand, which may be counted in another order there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from ptxlab.isa.registers import RegisterMap

Place = tuple[int, int]
"""(row, col)."""


@dataclass(frozen=True)
class Part:
    """One slot of an operand's register, in every lane, and what it is made of.

    Attributes:
        tile: which operand along k.
        register, slot: where it belongs in the operand.
        from_tile: which result along k.
        from_register, from_slot: where it is in the result.

    """

    tile: int
    register: int
    slot: int
    from_tile: int
    from_register: int
    from_slot: int


def k_order(result: RegisterMap, operand: RegisterMap, k: str) -> list[int] | None:
    """Return for each k of the operands the line of the results that can stand there as lanes hold it.

    Args:
        result: the map of C.
        operand: the map of A or B.
        k: which side of the operand is summed over, "row" or "col".

    Returns:
        The lines in ascending order where they are as they should be; None where no order does it.

    """
    held, wanted = defaultdict[object, list[int]](list), defaultdict[object, list[int]](list)
    sizes = _extent(result, k), _extent(operand, k)
    length = math.lcm(*sizes)
    for found, where, size in ((held, result, sizes[0]), (wanted, operand, sizes[1])):
        lines = _lines(where, k)
        for line in range(length):
            found[lines[line % size]].append(line)
    order = [0] * length
    for who, positions in wanted.items():
        if len(held[who]) != len(positions):
            return None
        for position, line in zip(positions, held[who], strict=True):
            order[position] = line
    return order


def recipe(result: RegisterMap, operand: RegisterMap, k: str, order: list[int]) -> list[Part]:
    """Return what each slot of the operands is made of, with k in this order; it is the same in every lane.

    [] where it is not: where lanes would have to take different registers.
    """
    holder = {
        (row, col): (lane, register, slot)
        for lane, register, slot, row, col in zip(*_columns(result), strict=True)
    }
    parts: dict[tuple[int, int, int], set[Part]] = defaultdict(set)
    results, operands = _extent(result, k), _extent(operand, k)
    for tile in range(len(order) // operands):
        for lane, register, slot, row, col in zip(*_columns(operand), strict=True):
            own, other = (col, row) if k == "col" else (row, col)
            from_tile, line = divmod(order[tile * operands + own], results)
            from_lane, *source = holder[(other, line) if k == "col" else (line, other)]
            if from_lane != lane:
                return []
            parts[tile, register, slot].add(Part(tile, register, slot, from_tile, *source))
    if any(len(each) > 1 for each in parts.values()):
        return []
    return [part for _, each in sorted(parts.items()) for part in each]


def _columns(where: RegisterMap) -> tuple[list[int], ...]:
    axes = (where.lane, where.register, where.slot, where.place["row"], where.place["col"])
    return tuple(axis.tolist() for axis in axes)


def _extent(where: RegisterMap, side: str) -> int:
    return 1 + int(where.place[side].max())


def _lines(where: RegisterMap, k: str) -> dict[int, frozenset[tuple[int, int]]]:
    """Return for each line along k which lane holds what of it."""
    found: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for lane, _, _, row, col in zip(*_columns(where), strict=True):
        line, other = (col, row) if k == "col" else (row, col)
        found[line].add((other, lane))
    return {line: frozenset(each) for line, each in found.items()}
