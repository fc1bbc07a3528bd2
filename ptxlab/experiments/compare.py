"""The record of ``ptxlab layout compare``: the result of one product as an operand of the next."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Any

from ptxlab.errors import UsageError, unknown_name
from ptxlab.experiments.record import Record
from ptxlab.isa.mma import dense_forms
from ptxlab.isa.registers import RegisterMap
from ptxlab.isa.types import BITS
from ptxlab.isa.wgmma import ACCUMULATORS, WgmmaForm, parse_form
from ptxlab.layout.reuse import k_order, recipe
from ptxlab.toolchain.arch import DEFAULT_ARCH

Entry = dict[str, int]


def compare_record(c: str, operand: str, other: str) -> Record:
    """Say whether the result of one product can be an operand of another as it lies in the registers.

    Args:
        c: SHAPE:TYPE of the result, "m16n8k32:s32"; m64nNk16 and the like are wgmma.
        operand: "A" (the result's columns are its k) or "B" (the result's rows are its k).
        other: SHAPE:TYPE of the operand.

    Raises:
        UsageError: there is no such form, or one of them alone makes several products.

    """
    result, given = _map(c, "C"), _map(other, operand)
    if ("matrix" in result.place) != ("matrix" in given.place):
        raise UsageError(
            f"{c} and {other} are not to be compared: m8n8k4 of f16 makes four products, one for each eight "
            "lanes, and all others make one; legal: both of m8n8k4 of f16, or neither"
        )
    k = "col" if operand == "A" else "row"
    moves, permutable = lane_moves(result, given, k=k)
    order = k_order(result, given, k) if permutable and _are_simple(result, given, k) else None
    record = Record(backend="model", arch=DEFAULT_ARCH, params={"c": c, operand.lower(): other})
    record.result |= {
        "operand": operand,
        "register_local": all(move["from_lane"] == move["to_lane"] for move in moves),
        "register_local_with_k_permuted": permutable,
        "k_order": order,
        "recipe": [vars(part) for part in recipe(result, given, k, order)] if order else [],
        "moves": moves,
        "lanes": _exchange(moves),
    }
    record.result["conclusion"] = _compared(record.result, c, f"{operand} of {other}")
    if operand == "B" and given.bits == 16 and not permutable:
        record.result["conclusion"] += f" {_TRANSPOSED}"
    return record


_TRANSPOSED = (
    "movmatrix turns it without shared memory: packed to 16 bits, low half first, registers 2i and 2i+1 of C "
    "(rows 8i to 8i+7) become register i of B by one movmatrix.trans."
)


def _map(text: str, operand: str) -> RegisterMap:
    """Return the map of an operand of the first form with this shape in which it is of this type.

    Raises:
        UsageError: there is none; the message names the shapes or types that there are.

    """
    shape, _, dtype = text.partition(":")
    if shape.startswith("m64"):
        return _map_of_wgmma(shape, dtype, operand)
    types = {"C": "acc", "A": "a", "B": "b"}[operand]
    forms = list(dense_forms())
    of_shape = [form for form in forms if form.shape == shape]
    if not of_shape:
        raise unknown_name("shape", shape, [*dict.fromkeys(form.shape for form in forms), "m64nNkK of wgmma"])
    for form in of_shape:
        if getattr(form, types) == dtype:
            return form.maps[operand]
    legal = dict.fromkeys(getattr(form, types) for form in of_shape)
    raise unknown_name(f"type of {operand} of {shape}", dtype, legal)


def _map_of_wgmma(shape: str, dtype: str, operand: str) -> RegisterMap:
    """Return what the first warp of a warpgroup holds of D, or of A in registers; raises as _map does."""
    if operand == "B":
        raise UsageError("B of wgmma is always in shared memory: stmatrix puts it there; legal: --a", "")
    k = shape.rpartition("k")[2]
    forms = [
        WgmmaForm(8, a, a, acc, a_in_registers=operand == "A")
        for a, accumulators in ACCUMULATORS.items()
        for acc in accumulators
        if k == str(256 // BITS[a])
    ]
    for form in forms:
        if (form.acc if operand == "C" else form.a) == dtype:
            found = parse_form(shape, form)
            return (found.d_map if operand == "C" else found.a_map).of_warp
    if not forms:
        raise unknown_name("shape", shape, ("m64nNk8", "m64nNk16", "m64nNk32"))
    legal = dict.fromkeys(form.acc if operand == "C" else form.a for form in forms)
    raise unknown_name(f"type of {'D' if operand == 'C' else 'A'} of {shape}", dtype, legal)


def _are_simple(result: RegisterMap, operand: RegisterMap, k: str) -> bool:
    """Say whether each is one matrix, and both are as long across k."""
    side = "row" if k == "col" else "col"
    lengths = {int(each.place[side].max()) for each in (result, operand)}
    return len(lengths) == 1 and not {"matrix"} & (result.place.keys() | operand.place.keys())


def lane_moves(result: RegisterMap, operand: RegisterMap, *, k: str) -> tuple[list[Entry], bool]:
    """Hold the map of a result against that of an operand which takes its elements.

    Matrices of both are laid side by side until they cover the same elements.

    Args:
        result: the map of C.
        operand: the map of A or B.
        k: which side of the operand is summed over, "row" or "col".

    Returns:
        One entry an element, ``{"row", "col", "from_lane", "to_lane"}``; and whether all of them would stay
        in their lane if k were counted in another order, in both operands alike.

    """
    sizes = [
        math.lcm(*(1 + int(each.place[side].max()) for each in (result, operand))) for side in ("row", "col")
    ]
    held, wanted = (_lanes(each, sizes) for each in (result, operand))
    moves = [
        {"row": place[-2], "col": place[-1], "from_lane": held[place], "to_lane": wanted[place]}
        for place in sorted(wanted)
    ]
    side = -1 if k == "col" else -2
    return moves, _by_line(held, side) == _by_line(wanted, side)


def _lanes(where: RegisterMap, sizes: list[int]) -> dict[tuple[int, ...], int]:
    """Return (matrix, row, col) -> lane, with the map repeated until it covers ``sizes``."""
    rows, cols = (1 + int(where.place[side].max()) for side in ("row", "col"))
    return {
        (entry.get("matrix", 0), entry["row"] + down, entry["col"] + along): entry["lane"]
        for entry in where.entries()
        for down in range(0, sizes[0], rows)
        for along in range(0, sizes[1], cols)
    }


def _by_line(lanes: dict[tuple[int, ...], int], side: int) -> Counter[frozenset[tuple[tuple[int, ...], int]]]:
    """Return how often each line along k occurs: what it holds and in which lanes, without its number."""
    lines = defaultdict(set)
    for place, lane in lanes.items():
        rest = tuple(value for index, value in enumerate(place, -len(place)) if index != side)
        lines[place[side]].add((rest, lane))
    return Counter(frozenset(line) for line in lines.values())


def _exchange(moves: list[Entry]) -> list[dict[str, Any]]:
    """Return for each lane how many elements it keeps, and from which others it takes some."""
    taken: dict[int, Counter[int]] = defaultdict(Counter)
    for move in moves:
        taken[move["to_lane"]][move["from_lane"]] += 1
    return [
        {
            "lane": lane,
            "keeps": sources[lane],
            "takes_from": sorted(source for source in sources if source != lane),
            "takes": sources.total() - sources[lane],
        }
        for lane, sources in sorted(taken.items())
    ]


def _compared(result: dict[str, Any], c: str, target: str) -> str:
    if result["register_local"]:
        return f"register-local: every element of {c} is in the lane that {target} needs it in."
    moving = sum(move["from_lane"] != move["to_lane"] for move in result["moves"])
    text = (
        f"not register-local, needs shuffle: {moving} of {len(result['moves'])} elements of {c} are in "
        f"another lane than {target} needs them in; {_groups(result['lanes'])}."
    )
    if result["register_local_with_k_permuted"]:
        text += " Without a shuffle: count k in the order in which the lanes hold it, in both operands alike."
    return text


def _groups(lanes: list[dict[str, Any]]) -> str:
    """Return which lanes exchange elements with each other: those joined by some move."""
    group = {each["lane"]: each["lane"] for each in lanes}
    for each in lanes:
        for other in each["takes_from"]:
            low, high = sorted((group[each["lane"]], group[other]))
            group = {lane: low if first == high else first for lane, first in group.items()}
    members = defaultdict(list)
    for lane, first in group.items():
        members[first].append(str(lane))
    joined = [each for each in members.values() if len(each) > 1]
    if len(joined) == 1:
        return (
            "all lanes exchange" if len(joined[0]) == len(group) else f"lanes {', '.join(joined[0])} exchange"
        )
    first, second = (", ".join(each) for each in joined[:2])
    return f"lanes {first} exchange among themselves, lanes {second}, and so on"
