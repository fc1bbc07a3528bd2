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


def banks_record(
    width: str, op: str, expression: str, mask: str = "", warp: int = 0, times: int = 1
) -> Record:
    """Return the wavefronts of one warp instruction, and the lanes in each bank.

    Args:
        width: the class, as options name it.
        op: "ld" or "st", or "" for what the class says.
        expression: the byte address of each lane.
        mask: lanes that take part, such as "0-15,20"; "" is all.
        warp: what the name ``warp`` stands for.
        times: how often the instruction runs.

    Raises:
        UsageError: an option is illegal.

    """
    kind = access_of(width, op)
    used = addresses_of(kind, expression, mask, warp)
    cost = banks.wavefronts(kind, used)
    params = {"width": width, "op": kind.op, "addr": expression, "mask": mask, "warp": warp, "times": times}
    record = Record(backend="model", params=params)
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
        "total": {"instructions": times} | {name: times * value for name, value in _counted(cost).items()},
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
    lanes = sorted(lane for lane in lanes_of(mask) if lane < kind.lanes)
    found = lane_addresses(expression, alignment=kind.bytes_per_lane, warp=warp, lanes=lanes)
    by_lane = dict(zip(lanes, found, strict=True))
    return [by_lane.get(lane) for lane in range(kind.lanes)]


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
    return _counted(cost) | {"merged": cost.merged}


def _counted(cost: Wavefronts) -> dict[str, int]:
    return {"wavefronts": cost.wavefronts, "ideal": cost.ideal, "conflicts": cost.conflicts}


def sentence(kind: Access, addresses: list[int | None], cost: Wavefronts) -> str:
    """Return what this means, for a person."""
    if not cost.wavefronts:
        return "No lane takes part, and nothing is moved."
    if kind.by_line:
        return _by_line_sentence(kind, addresses, cost)
    model = "" if kind.counted else " A model: no counter tells the reads of one instruction."
    if cost.merged and not cost.conflicts:
        return (
            f"{_times(cost.wavefronts)} where {cost.ideal} are the floor for full warps: neighbouring lanes "
            f"read the same, and phases are served together.{model}"
        )
    if not cost.conflicts:
        phases = f" in {cost.least} phases" if cost.least > 1 else ""
        only = f": {kind.bytes_per_lane} bytes a lane take that many, which is no conflict" if phases else ""
        return f"{_times(cost.wavefronts)}{phases}, no conflicts{only}.{model}"
    return (
        f"{_times(cost.wavefronts)}, {cost.least} would do: {cost.conflicts} more, for "
        f"{meeting(kind, addresses, cost)}.{model}"
    )


def _by_line_sentence(kind: Access, addresses: list[int | None], cost: Wavefronts) -> str:
    used = [address for address in addresses[: kind.lanes] if address is not None]
    lines = len({address // banks.LINE_BYTES for address in used})
    many = f"{lines} line{'' if lines == 1 else 's'} of {banks.LINE_BYTES} bytes"
    told = f"{_times(cost.wavefronts)} for {many}, if chunks lie in lines of global memory as they do here"
    if cost.wavefronts == lines:
        return f"{told}: .cg copies line by line, whatever the banks."
    return f"{told}: a line with whole 32-byte sectors and first or second halves takes one for each kind."


def _times(number: int) -> str:
    return f"{number} wavefront{'' if number == 1 else 's'}"


def meeting(kind: Access, addresses: list[int | None], cost: Wavefronts) -> str:
    """Say who meets in the busiest bank of the busiest phase."""
    busiest = max(range(len(cost.phases)), key=lambda phase: cost.phases[phase])
    found = _served(kind, addresses, cost.groups[busiest])
    bank = max(found, key=lambda each: len(found[each]))
    words = {word for word, _ in found[bank]}
    told = f"lanes {spans(lane for _, lanes in found[bank] for lane in lanes)} want "
    if len(words) == len(found[bank]):
        return f"{told}{len(words)} different words of bank {bank} in one phase"
    many = "the same word" if len(words) == 1 else f"{len(words)} words"
    return f"{told}{many} of bank {bank} in one phase, and lanes of {kind.name} do not share a word"


def _served(
    kind: Access, addresses: list[int | None], group: tuple[int, ...]
) -> dict[int, list[tuple[int, list[int]]]]:
    """Return what each bank does for a phase, one after the other: the word, and the lanes that get it."""
    used = np.array([OFF if each is None else each for each in addresses], dtype=np.int64)
    found: dict[int, list[tuple[int, list[int]]]] = {}
    for lane in group:
        for word in banks.words_of(kind, used[[lane]])[0].tolist() if used[lane] != OFF else ():
            served = found.setdefault(word % BANKS, [])
            same = [lanes for other, lanes in served if other == word and kind.shares]
            if same:
                same[0].append(lane)
            else:
                served.append((word, [lane]))
    return found


def _at(served: list[tuple[int, list[int]]], wavefront: int) -> list[int]:
    """Return the lanes that a bank serves in one wavefront."""
    return served[wavefront][1] if wavefront < len(served) else []


def picture(kind: Access, addresses: list[int | None], cost: Wavefronts) -> dict[str, Any]:
    """Draw the banks, a row for each wavefront: a cell is the lane served, + stands for more of them."""
    cells, colours, names = [], [], []
    for phase, (group, number) in enumerate(zip(cost.groups, cost.phases, strict=True)):
        served = _served(kind, addresses, group)
        for wavefront in range(number):
            lanes = [_at(served.get(bank, []), wavefront) for bank in range(BANKS)]
            cells.append([f"{each[0]}{'+' * (len(set(each)) > 1)}" if each else "" for each in lanes])
            colours.append([each[0] if each else None for each in lanes])
            names.append(f"{phase}:{wavefront}" if len(cost.groups) > 1 else str(wavefront))
    by = "phase:wavefront" if len(cost.groups) > 1 else "wavefront by wavefront"
    return {
        "title": f"lane in each bank, {by} (+: more lanes share the word)",
        "cells": cells or [[""] * BANKS],
        "colours": colours or [[None] * BANKS],
        "row_names": names or ["nothing"],
        "column_names": [str(bank) for bank in range(BANKS)],
    }
