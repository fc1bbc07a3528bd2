"""The record of ``ptxlab banks``: wavefronts of one warp instruction, and who meets whom in which bank."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ptxlab.errors import UsageError, unknown_name
from ptxlab.experiments.record import Record
from ptxlab.layout import banks
from ptxlab.layout.address import lane_addresses
from ptxlab.layout.banks import BANKS, OFF, Access, Wavefronts
from ptxlab.layout.tile import spans

LANES = 32
OPS = ("ld", "st")


def banks_record(width: str, op: str, expression: str, mask: str = "", warp: int = 0) -> Record:
    """Return the wavefronts of one warp instruction, and the lanes in each bank.

    Args:
        width: the class, as options name it.
        op: "ld" or "st", or "" for what the class says.
        expression: the byte address of each lane.
        mask: lanes that take part, such as "0-15,20"; "" is all.
        warp: what the name ``warp`` stands for.

    Raises:
        UsageError: an option is illegal.

    """
    kind = access_of(width, op)
    used = addresses_of(kind, expression, mask, warp)
    cost = banks.wavefronts(kind, used)
    record = Record(backend="model", params={"width": width, "op": kind.op, "addr": expression, "mask": mask})
    record.result |= costs(cost) | {
        "access": kind.name,
        "opcode": kind.opcode,
        "phases": [
            {"lanes": spans(group), "wavefronts": phase}
            for group, phase in zip(cost.groups, cost.phases, strict=True)
        ],
        "addresses": used[: kind.lanes],
        "modelled": not kind.counted,
        "pictures": [picture(kind, used, cost)],
        "conclusion": sentence(kind, used, cost),
    }
    return record


def access_of(width: str, op: str) -> Access:
    """Return the class that --width and --op name.

    Raises:
        UsageError: there is none.

    """
    if op and op not in OPS:
        raise unknown_name("value for --op", op, OPS)
    return banks.access(width, op)


def addresses_of(kind: Access, expression: str, mask: str = "", warp: int = 0) -> list[int | None]:
    """Return the address of each lane that supplies one; None for one that takes no part.

    Raises:
        UsageError: the expression or the mask is illegal, or the class knows no mask.

    """
    if mask and not kind.has_mask:
        raise UsageError(
            f"--mask '{mask}': {kind.opcode} needs the whole warp; legal: leave it out",
            "point lanes that shall not matter at rows of others",
        )
    lanes = lanes_of(mask)
    found = lane_addresses(expression, alignment=kind.bytes_per_lane, warp=warp)[: kind.lanes]
    return [address if lane in lanes else None for lane, address in enumerate(found)]


def lanes_of(text: str) -> set[int]:
    """Return the lanes of "0-15,20"; all of an empty text.

    Raises:
        UsageError: it is no list of lanes; the message names the column.

    """
    if not text:
        return set(range(LANES))
    lanes: set[int] = set()
    column = 1
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,2})(?:\s*-\s*(\d{1,2}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < LANES:
            raise UsageError(
                f"mask '{text}', column {column}: '{part}' is no lane and no range of them; "
                "legal: 0 to 31, such as 0-15,20"
            )
        lanes |= set(range(first, last + 1))
        column += len(part) + 1
    return lanes


def costs(cost: Wavefronts) -> dict[str, Any]:
    """Return the counts as documents have them."""
    return {
        "wavefronts": cost.wavefronts,
        "ideal": cost.ideal,
        "conflicts": cost.conflicts,
        "merged": cost.merged,
    }


def sentence(kind: Access, addresses: list[int | None], cost: Wavefronts) -> str:
    """Return what this means, for a person."""
    if not cost.wavefronts:
        return "No lane takes part, and nothing is moved."
    model = "" if kind.counted else " A model: no counter tells the reads of one instruction."
    if cost.merged:
        return (
            f"{_times(cost.wavefronts)} where {cost.ideal} are the floor for full warps: neighbouring lanes "
            f"read the same, and phases are served together.{model}"
        )
    if not cost.conflicts:
        phases = f" in {len(cost.phases)} phases" if len(cost.phases) > 1 else ""
        only = f": {kind.bytes_per_lane} bytes a lane take that many, which is no conflict" if phases else ""
        return f"{_times(cost.wavefronts)}{phases}, no conflicts{only}.{model}"
    lanes, bank, words = _worst(kind, addresses, cost)
    return (
        f"{_times(cost.wavefronts)}, {cost.ideal} would do: {cost.conflicts} more, for lanes {spans(lanes)} "
        f"want {words} different words of bank {bank} in one phase.{model}"
    )


def _times(number: int) -> str:
    return f"{number} wavefront{'' if number == 1 else 's'}"


def _worst(kind: Access, addresses: list[int | None], cost: Wavefronts) -> tuple[list[int], int, int]:
    """Return the lanes that meet in the busiest bank of the busiest phase, the bank, and its words."""
    busiest = max(range(len(cost.phases)), key=lambda phase: cost.phases[phase])
    found = _served(kind, addresses, cost.groups[busiest])
    bank = max(found, key=lambda each: len(found[each]))
    return [lane for lanes in found[bank].values() for lane in lanes], bank, len(found[bank])


def _served(
    kind: Access, addresses: list[int | None], group: tuple[int, ...]
) -> dict[int, dict[int, list[int]]]:
    """Return for each bank the words that a phase wants of it, and for each word the lanes."""
    used = np.array([OFF if each is None else each for each in addresses], dtype=np.int64)
    found: dict[int, dict[int, list[int]]] = {}
    for lane in group:
        for word in banks.words_of(kind, used[[lane]])[0].tolist():
            if word != OFF:
                found.setdefault(word % BANKS, {}).setdefault(word, []).append(lane)
    return found


def picture(kind: Access, addresses: list[int | None], cost: Wavefronts) -> dict[str, Any]:
    """Draw the banks, a row for each wavefront: a cell is the lane served, + stands for more of them."""
    cells, colours, names = [], [], []
    for phase, (group, number) in enumerate(zip(cost.groups, cost.phases, strict=True)):
        served = _served(kind, addresses, group)
        for wavefront in range(number):
            lanes = [list(served.get(bank, {}).values())[wavefront : wavefront + 1] for bank in range(BANKS)]
            cells.append([f"{each[0][0]}{'+' * (len(set(each[0])) > 1)}" if each else "" for each in lanes])
            colours.append([each[0][0] if each else None for each in lanes])
            names.append(
                f"phase {phase}, wavefront {wavefront}" if len(cost.groups) > 1 else f"wavefront {wavefront}"
            )
    return {
        "title": "lane in each bank, wavefront by wavefront (+: more lanes share the word)",
        "cells": cells or [[""] * BANKS],
        "colours": colours or [[None] * BANKS],
        "row_names": names or ["nothing"],
        "column_names": [str(bank) for bank in range(BANKS)],
    }
