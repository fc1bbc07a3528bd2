"""The records of ``ptxlab swizzle``: the smallest clean swizzle of a tile, and the cost of a given one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxlab.errors import UsageError, unknown_name
from ptxlab.experiments.accesses import ACCESS_NAMES, Area, pass_of, plain_name
from ptxlab.experiments.banks import meeting, picture
from ptxlab.experiments.base import sizes
from ptxlab.experiments.record import Record
from ptxlab.isa.types import BITS
from ptxlab.layout import solver
from ptxlab.layout.banks import BANKS, OFF, WORD_BYTES, wavefronts
from ptxlab.layout.solver import VECTOR_BYTES, Pass, Place, Traffic
from ptxlab.layout.swizzle import MODES, Swizzle, parse_swizzle

ORDERS = ("row", "column")
_MAJOR = {"k-major": "row", "row-major": "row", "m-major": "column", "n-major": "column",
          "mn-major": "column", "column-major": "column"}  # fmt: skip
_BITS = BITS | {"b8": 8, "b16": 16, "b32": 32, "b64": 64}  # what is moved may be known by its width alone
TYPES = tuple(_BITS)
UNITS = {"bits": 1, "bytes": 8}
"""What offsets may count besides elements of a type."""
LARGEST_TILE = 227 * 1024
"""Bytes of shared memory that a block may have on sm_90. Source: CUDA programming guide."""
SHARED_OF_SM, RESERVED, MOST_BLOCKS = 228 * 1024, 1024, 32
"""Shared memory of an SM of sm_90, what each block takes beyond its own, and the most blocks of an SM.
Source: CUDA programming guide, "Compute Capabilities"."""

_CHUNKS = 32  # rows and columns that are drawn of a swizzle
_DRAWN = 16  # rows, and pieces of a row, that are drawn of a tile

Picture = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """A tile and how it is used.

    Attributes:
        area: the tile.
        accesses: names or expressions, the first the one that is asked about.
        text: the tile as it was typed.

    """

    area: Area
    accesses: tuple[str, ...]
    text: str

    @property
    def traffic(self) -> Traffic:
        """All that reads and writes the tile.

        Raises:
            UsageError: an access cannot move such elements, or the tile is not whole instructions.

        """
        passes = tuple(map(self._pass, self.accesses))
        return Traffic(self.area.lines, self.area.row_bytes, passes)

    def _pass(self, name: str) -> Pass:
        try:
            return pass_of(self.area, name)
        except UsageError as error:
            if name.startswith("("):  # the place is in the expression, which the message quotes
                raise
            raise UsageError(f"tile '{self.text}': {error.message}", error.hint) from error


def question(tile: str, dtype: str, accesses: Sequence[str], order: str) -> Question:
    """Return the question that these options ask.

    Args:
        tile: "16x64", or "128x8:m-major", which stands for an order too.
        dtype: of the elements.
        accesses: as options name them.
        order: "row": rows of the matrix are contiguous (K-major); "column": columns are.

    Raises:
        UsageError: an option is illegal.

    """
    extent, colon, major = tile.partition(":")
    if colon and major not in _MAJOR:
        unknown = unknown_name("order", major, _MAJOR)
        raise UsageError(f"tile '{tile}', column {len(extent) + 2}: {unknown.message}", unknown.hint)
    order = _MAJOR[major] if colon else order
    rows, cols = sizes(extent, parts=2, what="tile")
    for kind, name, legal in (("type", dtype, TYPES), ("order", order, ORDERS)):
        if name not in legal:
            raise unknown_name(kind, name, legal)
    names = tuple(plain_name(name) for name in accesses)
    for name in names:
        if name not in ACCESS_NAMES and not name.startswith("("):
            raise unknown_name("access", name, ACCESS_NAMES)
    area = Area(rows, cols, dtype, _BITS[dtype], order)
    if rows * cols * area.bits > 8 * LARGEST_TILE:
        raise UsageError(
            f"a tile of {rows}x{cols} {dtype} does not fit a block's shared memory; "
            f"legal: up to {LARGEST_TILE} bytes"
        )
    if area.along * area.bits % 8:
        raise UsageError(f"a row of {area.along} {dtype} is not whole bytes; legal: multiples of 8 bits")
    return Question(area, names, tile)


def solve_record(tile: str, dtype: str, accesses: Sequence[str], order: str, emit: str = "") -> Record:
    """Return the smallest swizzle with which no access conflicts, else the least padding.

    Args:
        tile: as question() takes it, like the next three.
        dtype: of the elements.
        accesses: the first the one that is asked about.
        order: of the matrix in memory.
        emit: "cuda" adds the device function of the answer.

    Raises:
        UsageError: an option is illegal.

    """
    if emit not in ("", "cuda"):
        raise unknown_name("language", emit, ("cuda",))
    asked = question(tile, dtype, accesses, order)
    traffic = asked.traffic
    found = solver.solve(traffic)
    record = _record(asked, traffic)
    record.result |= _padded(asked, traffic) if found is None else _swizzled(asked, traffic, found)
    no_solution = record.result["swizzle"] is None and record.result["padding"] is None
    if no_solution:
        record.check("solution", ok=False, detail=record.result["conclusion"])
    elif emit:
        record.result["cuda"] = cuda(asked.area, found, record.result.get("padding") or 0)
    return record


def _swizzled(asked: Question, traffic: Traffic, found: Swizzle) -> dict[str, Any]:
    own, mode = of_elements(found, asked.area), solver.fitting_mode(found, traffic.row_bytes)
    equal = f", the TMA mode {mode}" if mode else ", none of TMA's modes"
    told = (
        f"Swizzle{own} of {asked.area.dtype} elements ({found} of bytes{equal}) has no bank conflicts; "
        f"its base must be a multiple of {found.period} bytes."
        if found.bits
        else "The tile has no bank conflicts as it is."
    )
    return _forms(asked, found) | {"tma_mode": mode, "conclusion": told} | _costs(traffic, found)


def _padded(asked: Question, traffic: Traffic) -> dict[str, Any]:
    """Return the least padding that keeps accesses aligned, or that it does not help either, and why."""
    unit = solver.alignment(traffic.passes)
    padding, why = _least_padding(traffic, unit)
    finer = None if _needs_vectors(traffic) else solver.solve(traffic, unit)
    told = "No swizzle of whole 16-byte vectors is without bank conflicts here"
    told = "No swizzle that TMA or wgmma knows is without bank conflicts here" if traffic.modes else told
    if padding is None:
        told += f", and no padding is: {why}."
    else:
        told += f"; padding of {_many(padding, 'byte')} after each row is ({_price(traffic, padding)})."
    if finer:
        own, single = of_elements(finer, asked.area), asked.area.dtype
        piece = f"single {single}" if unit * 8 == asked.area.bits else f"{unit} bytes of {single}"
        too = "" if padding is None else ", too"
        told += f" Swizzle{own} of {piece} is{too}, but tears 16-byte vectors: {_TORN}."
    mode = solver.panel_mode(traffic) if traffic.modes else None
    panels = _panels(asked.area, traffic, mode) if mode else None
    if panels:
        told += (
            f" But as {panels['number']} panels of {panels['tile']} side by side, "
            f"in boxes of the mode {mode}, it has no bank conflicts."
        )
    return {
        "swizzle": None,
        "swizzle_bytes": None,
        "swizzle_bits": None,
        "padding": padding,
        "padding_bytes": None if padding is None else padding * traffic.rows,
        "finer": list(of_elements(finer, asked.area).parameters) if finer else None,
        "panels": panels,
        "conclusion": told,
    } | _costs(traffic, traffic.padded(padding or 0))


_TORN = "no 16-byte cp.async, no TMA and no ldmatrix"


def _needs_vectors(traffic: Traffic) -> bool:
    """Say whether an access moves 16 bytes in one piece, or TMA or wgmma takes part."""
    return traffic.modes or solver.alignment(traffic.passes) == VECTOR_BYTES


def _least_padding(traffic: Traffic, unit: int) -> tuple[int | None, str]:
    """Return the least padding that fits shared memory; or None, and why there is none."""
    if traffic.modes:
        return None, "rows that TMA writes and wgmma reads cannot be padded"
    found = solver.least_padding(traffic, unit)
    if found is None:
        return None, _no_padding(traffic, unit)
    nbytes = traffic.nbytes + found * traffic.rows
    if nbytes > LARGEST_TILE:
        return None, (
            f"with {_many(found, 'byte')} after each row, the least that would do, the tile has {nbytes} "
            f"bytes, and a block may have {LARGEST_TILE}"
        )
    return found, ""


def _no_padding(traffic: Traffic, unit: int) -> str:
    for each in traffic.passes:
        if solver.least_padding(replace(traffic, passes=(each,)), unit) is None:
            return _still_meeting(traffic, each, unit)
    return "what spreads the lanes of one access over the banks brings lanes of another together"


def _still_meeting(traffic: Traffic, one: Pass, unit: int) -> str:
    """Return who meets in a pass that no padding cleans, with the one that does its beginning most good."""
    tries = range(unit, solver.MOST_PADDING + 1, unit)
    padding = min(tries, key=lambda each: one.first_conflicts(traffic.padded(each)))
    place = traffic.padded(padding)
    number = int(one.conflicts(place).argmax())
    on = one.offsets[number][one.offsets[number] != OFF]
    wraps = one.name == "column" and len(np.unique(on % traffic.row_bytes)) > 1
    addresses = _addresses(one, number, place)
    who = meeting(one.access, addresses, wavefronts(one.access, addresses))
    told = f"up to {solver.MOST_PADDING} bytes, lanes meet; with {_many(padding, 'byte')}, for one, {who}"
    return f"{told} of a warp that goes on in the next column" if wraps else told


def _panels(area: Area, traffic: Traffic, mode: str) -> dict[str, Any] | None:
    """Return the panels that a tile is cut into, with rows of the mode's span; None where they do not fit."""
    span = solver.SPANS[mode]
    along, number = span * 8 // area.bits, area.row_bytes // span
    tile = f"{area.rows}x{along}" if area.order == "row" else f"{along}x{area.cols}"
    fits = number * traffic.panel_bytes(mode) <= LARGEST_TILE
    return {"number": number, "tile": tile, "mode": mode} if fits else None


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _price(traffic: Traffic, padding: int) -> str:
    """Return what padding costs in bytes and in blocks of an SM."""
    more = padding * traffic.rows
    before, after = (_blocks(size) for size in (traffic.nbytes, traffic.nbytes + more))
    return f"{more} bytes in all; an SM of sm_90 holds {after} blocks of one such tile, {before} without it"


def _blocks(nbytes: int) -> int:
    """Return how many blocks with so much shared memory an SM holds, if nothing else limits them."""
    return min(MOST_BLOCKS, SHARED_OF_SM // (nbytes + RESERVED))


def _forms(asked: Question, given: Swizzle) -> dict[str, Any]:
    """Return B, M, S in elements, in bytes and in bits."""
    return {
        "swizzle": list(of_elements(given, asked.area).parameters),
        "swizzle_bytes": list(given.parameters),
        "swizzle_bits": list(given.rescaled(8, 1).parameters if given.bits else given.parameters),
    }


def of_elements(given: Swizzle, area: Area) -> Swizzle:
    """Return a swizzle of bytes as one of the tile's elements."""
    return given.rescaled(8, area.bits) if given.bits else given


def check_record(swizzle: str, tile: str, dtype: str, accesses: Sequence[str], order: str) -> Record:
    """Return what using the tile costs with a given swizzle; conflicts fail the check.

    Raises:
        UsageError: an option is illegal, or the swizzle does not fit the tile or an access.

    """
    asked = question(tile, dtype, accesses, order)
    given = parse_swizzle(swizzle, asked.area.bits)
    try:
        _refuse_small(swizzle, given, asked)
        traffic = asked.traffic
        _refuse_misfit(swizzle, given, asked, traffic)
    except UsageError as error:
        raise UsageError(error.message, error.hint or _other_reading(swizzle, asked.area.dtype)) from error
    given = given if given.bits else Swizzle(0, 0, 0)
    record = _record(asked, traffic)
    record.params["swizzle"] = swizzle
    costs = _costs(traffic, given)
    number = record.result["instructions"]
    name = swizzle if swizzle in MODES else f"Swizzle{of_elements(given, asked.area)} of {dtype} elements"
    told = (
        f"{name} takes {_many(costs['wavefronts'], 'wavefront')}, ideal: {traffic.ideal}; "
        f"{costs['wavefronts'] / max(1, number):g} for each of {_many(number, 'instruction')}."
    )
    if given.period > traffic.nbytes:
        told += f" The tile of {traffic.nbytes} bytes is only part of a period, which is {given.period}."
    if costs["conflicts"]:
        told += (
            _other_reading(swizzle, dtype, before=" ")
            + _why(traffic, given)
            + " `ptxlab swizzle solve` finds the smallest that is clean."
        )
    record.result |= costs | _forms(asked, given) | {"conclusion": told}
    record.check("conflict-free", ok=costs["conflicts"] == 0, detail=told)
    return record


def _other_reading(text: str, unit: str, before: str = "") -> str:
    """Return that B,M,S would be a mode if they counted something else than they do, or "" if not."""
    if text in MODES or _mode(text, unit):
        return ""
    found = ((other, _mode(text, other)) for other in ("bytes", "bits", "f16"))
    for other, mode in found:
        if mode:
            own = Swizzle(*MODES[mode]).rescaled(8, _width(unit))
            told = f"B,M,S count {unit}; of {other} they would be the mode {mode}"
            return f"{before}{told}, which is {own} of {unit}."
    return ""


def _mode(text: str, unit: str) -> str | None:
    """Return which mode B,M,S are where they count such units."""
    with suppress(UsageError):  # units so small that the swizzle would split a byte
        read = parse_swizzle(text, _width(unit)).parameters
        return next((name for name, p in MODES.items() if p == read and p[0]), None)
    return None


def _why(traffic: Traffic, given: Swizzle) -> str:
    if given.bits and given.base >= VECTOR_BYTES.bit_length() - 1 and not _needs_vectors(traffic):
        return f" It moves {1 << given.base} bytes in one piece, and these lanes want less of each."
    return ""


def _refuse_small(name: str, given: Swizzle, asked: Question) -> None:
    """Refuse a swizzle of a tile so much smaller than its period that nothing in it would move."""
    nbytes = asked.area.lines * asked.area.row_bytes
    if given.bits and given.base + given.shift >= solver.reach(nbytes):
        raise UsageError(
            f"tile '{asked.text}' of {nbytes} bytes is smaller than one period of swizzle {name}, which is "
            f"{given.period} bytes, and nothing in it would move; legal: a tile of more than "
            f"{1 << (given.base + given.shift)} bytes"
        )


def _refuse_misfit(name: str, given: Swizzle, asked: Question, traffic: Traffic) -> None:
    """Refuse a swizzle that such accesses, or such a tile, cannot have."""
    widest = max(traffic.passes, key=lambda each: each.access.bytes_per_lane)
    whole = widest.access.bytes_per_lane
    if given.bits and 1 << given.base < whole:
        raise UsageError(
            f"swizzle {name} tears the {whole} bytes that {widest.name} moves in one piece; "
            f"legal: M of at least {(whole * 8 // asked.area.bits).bit_length() - 1} "
            f"in {asked.area.dtype} elements"
        )
    if traffic.modes and given.bits and solver.fitting_mode(given, traffic.row_bytes) is None:
        raise UsageError(
            f"swizzle {name} is none that TMA and wgmma have for rows of {traffic.row_bytes} bytes without "
            "gaps; legal: none, or 32B, 64B, 128B, each for rows of just so many bytes (wider ones take "
            "several boxes, narrower ones lie as far apart)"
        )
    if not solver.stays_inside(given, traffic.nbytes, whole):
        raise UsageError(
            f"swizzle {name} moves elements outside the tile of {traffic.nbytes} bytes; "
            f"its period is {given.period} bytes"
        )


def pad_record(tile: str, dtype: str, read: str, write: str, order: str) -> Record:
    """Return the least padding after each row with which neither reading nor writing conflicts.

    Raises:
        UsageError: an option is illegal.

    """
    asked = question(tile, dtype, [read, *([write] if write else [])], order)
    traffic = asked.traffic
    if traffic.modes:
        raise UsageError("rows that TMA writes and wgmma reads cannot be padded", "ptxlab swizzle solve")
    unit = solver.alignment(traffic.passes)
    padding, why = _least_padding(traffic, unit)
    record = _record(asked, traffic)
    record.params |= {"read": read, "write": write}
    tried = [_tried(asked, traffic, p) for p in range(0, max(padding or 0, 3 * unit) + 1, unit)]
    if padding is None:
        told = f"No padding fixes {'both' if write else 'this'}: {why}."
        record.check("solution", ok=False, detail=told)
    else:
        elements = padding * 8 // asked.area.bits
        by = f"{_many(elements, 'element')}, {_many(padding, 'byte')}"
        told = f"Pad each row by {by} ({_price(traffic, padding)})."
        told = told if padding else "No padding is needed."
    record.result |= {
        "padding": padding,
        "padding_elements": None if padding is None else padding * 8 // asked.area.bits,
        "tried": tried,
        "conclusion": told,
    } | _costs(traffic, traffic.padded(padding or 0))
    return record


def _tried(asked: Question, traffic: Traffic, padding: int) -> dict[str, int]:
    """Return what one padding makes of each access: wavefronts of its busiest instruction."""
    place = traffic.padded(padding)
    return {
        "padding": padding * 8 // asked.area.bits,
        "bytes": padding,
        **{each.name: each.worst(place) for each in traffic.passes},
    }


def convert_record(swizzle: str, dtypes: str, given_in: str) -> Record:
    """Return a swizzle in offsets of other units.

    Args:
        swizzle: a mode, or B,M,S.
        dtypes: types, bytes or bits, joined by commas.
        given_in: what B,M,S count; "" is bytes for a mode and the first of ``dtypes`` otherwise.

    Raises:
        UsageError: a name is unknown, or the swizzle splits an element.

    """
    names = [name.strip() for name in dtypes.split(",")]
    origin = given_in or names[0]
    for name in (origin, *names):
        if name not in UNITS and name not in TYPES:
            raise unknown_name("type", name, (*UNITS, *TYPES))
    in_bytes = parse_swizzle(swizzle, _width(origin))
    rows = []
    for name in dict.fromkeys((*names, *UNITS)):
        if in_bytes.bits and _width(name) > 8 << in_bytes.base:
            given = swizzle if swizzle in MODES else f"{swizzle} of {origin}"
            raise UsageError(
                f"swizzle {given} moves {_many(1 << in_bytes.base, 'byte')} in one piece, which splits a "
                f"{_width(name)}-bit element, {name}; legal: types of at most {8 << in_bytes.base} bits"
            )
        own = in_bytes.rescaled(8, _width(name)) if in_bytes.bits else in_bytes
        rows.append({"offsets of": name, "bits": _width(name), "B": own.bits, "M": own.base, "S": own.shift})
    mode = next((name for name, p in MODES.items() if p == in_bytes.parameters), None)
    record = Record(backend="model", params={"swizzle": swizzle, "dtype": dtypes, "from": origin})
    name = swizzle if swizzle in MODES else f"Swizzle{in_bytes.rescaled(8, _width(origin))} of {origin}"
    told = f"{name} keeps {1 << in_bytes.base} bytes together and repeats every {in_bytes.period}"
    equal = f"; it is the mode {mode} of TMA and wgmma" if mode else "; TMA and wgmma have no such mode"
    other = _other_reading(swizzle, origin, before=" ")
    told = f"{told}{equal}. Its base must be a multiple of {in_bytes.period} bytes.{other}"
    told = told if in_bytes.bits else f"{name} moves nothing."
    record.result |= {
        "pictures": [chunks_picture(in_bytes)] if in_bytes.bits else [],
        "converted": rows,
        "tma_mode": mode,
        "swizzle_bytes": list(in_bytes.parameters),
        "period_bytes": in_bytes.period,
        "conclusion": told,
    }
    return record


def chunks_picture(swizzle: Swizzle) -> Picture:
    """Draw where chunks go: a row for each value of the bits that are read, a column for each chunk in it."""
    rows, columns = (min(_CHUNKS, 1 << number) for number in (swizzle.bits, swizzle.shift))
    size, row_size = 1 << swizzle.base, 1 << (swizzle.base + swizzle.shift)
    chunks = [
        [swizzle(row * row_size + column * size) % row_size // size for column in range(columns)]
        for row in range(rows)
    ]
    return {
        "title": f"rows of {row_size} offsets, chunks of {size}: which chunk of its row each becomes",
        "cells": [[str(chunk) for chunk in row] for row in chunks],
        "colours": [[4 * chunk for chunk in row] for row in chunks],
    }


def _width(name: str) -> int:
    return UNITS.get(name) or _BITS[name]


def cuda(area: Area, found: Swizzle | None, padding: int) -> str:
    """Return a device function that says where a byte of the tile lies, and one for elements."""
    what = f"{area.rows}x{area.cols} {area.dtype}, {area.along} elements in a row of {area.row_bytes} bytes"
    if found is None:
        how, expression = f"{padding} bytes of padding after each row", _padding(area, padding)
    else:
        how = f"Swizzle{found} of byte offsets; the tile's base is a multiple of {found.period} bytes"
        expression = found.expression
    return f"""\
// Where a byte of a tile in shared memory lies: {what}.
// {how[0].upper()}{how[1:]}.
{function(expression)}

// The same for the element at a row and a place in it, as they lie in memory.
__device__ __forceinline__ unsigned tile_offset(unsigned row, unsigned element)
{{
    return placed(row * {area.row_bytes}u + element * {area.bits}u / 8u);
}}
"""


def function(expression: str) -> str:
    """Return the device function that maps an offset in the plain tile to where it lies, on one line."""
    return f"__device__ __forceinline__ unsigned placed(unsigned offset) {{ return {expression}; }}"


def _padding(area: Area, padding: int) -> str:
    return f"offset + offset / {area.row_bytes}u * {padding}u"


def _record(asked: Question, traffic: Traffic) -> Record:
    area = asked.area
    params = {"rows": area.rows, "cols": area.cols, "dtype": area.dtype, "order": area.order}
    params |= {"access": asked.accesses[0], "also": list(asked.accesses[1:])}
    record = Record(backend="model", params=params)
    passes = traffic.passes
    record.result |= {
        "instructions": sum(len(each.offsets) for each in passes),
        "whole_tile": all(each.uses_once(traffic.nbytes) for each in passes if len(each.offsets)),
        "access_class": passes[0].access.name,
        "modelled": [each.name for each in passes if not each.access.counted],
    }
    return record


def _costs(traffic: Traffic, place: Place) -> dict[str, Any]:
    """Return the wavefronts before and after, over using the whole tile once, and those of each access."""
    naive, now = traffic.cost(solver.plain), traffic.cost(place)
    return {
        "naive": {"wavefronts": naive, "ideal": traffic.ideal, "conflicts": traffic.conflicts(solver.plain)},
        "wavefronts": now,
        "ideal": traffic.ideal,
        "conflicts": traffic.conflicts(place),
        "accesses": [
            {
                "access": each.name,
                "instructions": len(each.offsets),
                "naive": each.cost(solver.plain),
                "wavefronts": each.cost(place),
                "ideal": each.ideal,
            }
            for each in traffic.passes
        ],
        "pictures": _pictures(traffic, place),
    }


def _pictures(traffic: Traffic, place: Place) -> list[Picture]:
    """Draw the tile by bank, and who meets whom in the busiest instruction: as it is, and as it shall be."""
    offsets = np.arange(traffic.nbytes, dtype=np.int64)
    told = f"Swizzle{place} of bytes" if isinstance(place, Swizzle) else "padded"
    layouts = [("as it is", solver.plain), (told, place)]
    layouts = layouts[:1] if np.array_equal(place(offsets), offsets) else layouts
    found = [_tile_picture(traffic, how, told) for told, how in layouts]
    for each in traffic.passes:
        if len(each.offsets) and each.sources is None:  # what comes by line of its source meets no banks
            number = int(each.counts(solver.plain).argmax())
            found += [_bank_picture(each, number, how, told) for told, how in layouts]
    return found


def _tile_picture(traffic: Traffic, place: Place, told: str) -> Picture:
    """Draw the first rows of the tile as they lie in memory: a cell is 16 bytes, or a word."""
    size = VECTOR_BYTES if traffic.row_bytes % VECTOR_BYTES == 0 else WORD_BYTES
    row, piece = np.indices((min(_DRAWN, traffic.rows), min(_DRAWN, -(-traffic.row_bytes // size))))
    first = place(row * traffic.row_bytes + piece * size) // WORD_BYTES % BANKS
    return {
        "title": f"first bank of each {size} bytes, {told}",
        "cells": [[str(bank) for bank in line] for line in first.tolist()],
        "colours": first.tolist(),
        "row_names": [str(number) for number in range(len(first))],
        "column_names": [str(number * size) for number in range(first.shape[1])],
    }


def _bank_picture(one: Pass, number: int, place: Place, told: str) -> Picture:
    """Draw the banks that one instruction meets."""
    addresses = _addresses(one, number, place)
    drawn = picture(one.access, addresses, wavefronts(one.access, addresses))
    return drawn | {"title": f"{one.name}, {told}: {drawn['title']}"}


def _addresses(one: Pass, number: int, place: Place) -> list[int | None]:
    return [None if at == OFF else int(place(at)) for at in one.offsets[number]]
