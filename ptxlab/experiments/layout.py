"""The records of ``ptxlab layout``: who holds what, asked of any probe that reports register maps.

The maps are the model's: what the probe reports of its own prediction, so nothing here knows any instruction
but for ``compare``, which asks ptxlab.isa.mma.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptxlab.errors import MissingError, UsageError, unknown_name
from ptxlab.experiments.base import Case, Value
from ptxlab.experiments.probe import Probe
from ptxlab.experiments.record import Record
from ptxlab.isa.mma import MmaForm, dense_forms
from ptxlab.isa.registers import RegisterMap
from ptxlab.toolchain.arch import ARCHS, DEFAULT_ARCH

Entry = dict[str, int]
_PLACE = ("lane", "register", "slot", "row", "col")


@dataclass(frozen=True)
class Asked:
    """A point of a probe, and what it reports of it.

    Attributes:
        probe: the probe.
        case: the point.
        report: the model's report.
        maps: operand -> its register map, a flat list of entries.

    """

    probe: Probe
    case: Case
    report: dict[str, Any]
    maps: dict[str, list[Entry]]

    @property
    def title(self) -> str:
        """The instruction's text where the probe tells it, else the probe's name."""
        return str(self.report.get("ptx", self.probe.name))

    def entries(self, operand: str) -> list[Entry]:
        """Return the map of an operand.

        Raises:
            UsageError: there is no such operand; the message names those that there are.

        """
        if operand not in self.maps:
            raise unknown_name(f"operand of {self.title}", operand, self.maps)
        return self.maps[operand]

    def shape(self, operand: str) -> tuple[int, int]:
        """Return rows and columns of one matrix of an operand."""
        told = self.report.get("shapes", {}).get(operand)
        if told:
            return told["rows"], told["cols"]
        entries = self.maps[operand]
        return _extent(entries, "row"), _extent(entries, "col")

    def record(self, **params: Value) -> Record:
        """Return a record of this point with more parameters, its result begun."""
        record = Record(backend="model", arch=self.case.arch, params=self.case.params | params)
        record.result["ptx"] = self.title
        return record


def ask(probe: Probe, own: Mapping[str, Value], arch: str | None) -> Asked:
    """Return what the probe's model reports of one point.

    Raises:
        UsageError: the point is illegal, or the probe reports no register map.

    """
    case = probe.case(arch or DEFAULT_ARCH, **own)
    report = probe.report(case, probe.expected(case), measured=False)
    maps = {name: value for name, value in report.items() if _is_map(value)}
    if not maps:
        raise UsageError(
            f"{probe.name} reports no register map", f"ptxlab probe {probe.name} shows its report"
        )
    return Asked(probe, case, report, maps)


def _is_map(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and isinstance(value[0], dict)
        and set(_PLACE) <= set(value[0])
    )


def _extent(entries: list[Entry], name: str) -> int:
    return 1 + max(entry[name] for entry in entries)


def where_record(asked: Asked, operand: str, row: int, col: int) -> Record:
    """Return every place that holds an element.

    Raises:
        UsageError: there is no such operand, or it has no such row or column.

    """
    entries = asked.entries(operand)
    for name, value, count in zip(("row", "column"), (row, col), asked.shape(operand), strict=True):
        _check_range(f"{name} {value}", value, count, f"{operand} of {asked.title}")
    found = [entry for entry in entries if (entry["row"], entry["col"]) == (row, col)]
    record = asked.record(operand=operand, row=row, col=col)
    places = "; ".join(_place(entry) for entry in found) or "no register"
    record.result |= {
        "operand": operand,
        "places": found,
        "conclusion": f"{operand}[{row}, {col}] is in {places}.",
    }
    return record


def what_record(asked: Asked, operand: str, lane: int, register: int, slot: int | None) -> Record:
    """Return the elements that a register of a lane holds, or the one in a slot of it.

    Raises:
        UsageError: there is no such operand, lane, register or slot.

    """
    entries = asked.entries(operand)
    given = {"lane": lane, "register": register} | ({} if slot is None else {"slot": slot})
    for name, value in given.items():
        count = 32 if name == "lane" else _extent(entries, name)
        _check_range(f"{name} {value}", value, count, f"{operand} of {asked.title}")
    found = [entry for entry in entries if all(entry[name] == value for name, value in given.items())]
    record = asked.record(operand=operand, lane=lane, register=register, slot=slot)
    elements = "; ".join(_element(operand, entry, slot is None) for entry in found) or "no element"
    record.result |= {
        "operand": operand,
        "holds": found,
        "conclusion": f"Register {register} of lane {lane} holds {elements}.",
    }
    return record


def _check_range(what: str, value: int, count: int, whose: str) -> None:
    if not 0 <= value < count:
        raise UsageError(f"{what} is outside {whose}; legal: 0 to {count - 1}")


def _place(entry: Entry) -> str:
    slot = f"lane {entry['lane']}, register {entry['register']}, slot {entry['slot']}"
    return ", ".join([*_more(entry), slot])


def _element(operand: str, entry: Entry, name_slot: bool) -> str:  # noqa: FBT001 - read at its one call
    where = ", ".join([f"{operand}[{entry['row']}, {entry['col']}]", *_more(entry)])
    return f"{where} in slot {entry['slot']}" if name_slot else where


def _more(entry: Entry) -> list[str]:
    """Return what an entry tells beyond lane, register, slot, row and column: "matrix 1", "warp 2"."""
    return [f"{name.replace('_', ' ')} {value}" for name, value in entry.items() if name not in _PLACE]


def table_record(asked: Asked, operand: str | None) -> Record:
    """Return the flat lists of all operands, or of one."""
    record = asked.record(operand=operand)
    names = [operand] if operand else list(asked.maps)
    record.result |= {name: asked.entries(name) for name in names}
    shapes = {name: asked.shape(name) for name in names}
    record.result["shapes"] = {name: {"rows": rows, "cols": cols} for name, (rows, cols) in shapes.items()}
    return record


def detail_record(asked: Asked) -> Record:
    """Return registers, formulas, architectures, SASS and FLOP of one form."""
    record = asked.record()
    legal = [arch for arch in ARCHS if _is_legal(asked, arch)]
    record.result |= {
        "operands": [_operand(asked, name) for name in asked.maps],
        "formulas": _formulas(asked),
        "minimum": legal[0],
        "legal_on": legal,
        "later": legal == list(ARCHS[ARCHS.index(legal[0]) :]),
        "flop": _flop(asked),
    }
    _add_sass(asked, record)
    return record


def _is_legal(asked: Asked, arch: str) -> bool:
    try:
        asked.probe.case(arch, **asked.case.params)
    except UsageError:
        return False
    return True


def _operand(asked: Asked, name: str) -> dict[str, Any]:
    entries = asked.maps[name]
    rows, cols = asked.shape(name)
    return {
        "operand": name,
        "rows": rows,
        "cols": cols,
        "matrices": len({entry.get("matrix", 0) for entry in entries}),
        "warps": len({entry.get("warp", 0) for entry in entries}),
        "registers": _extent(entries, "register"),
        "elements_per_register": _extent(entries, "slot"),
    }


def _formulas(asked: Asked) -> dict[str, dict[str, str]]:
    """Return the closed formulas of each operand; a probe with one operand gives them without its name."""
    told = asked.report.get("formulas", {})
    nested = any(isinstance(each, dict) for each in told.values())
    if nested or not told:
        return dict(told)
    return dict.fromkeys(asked.maps, told)


def _flop(asked: Asked) -> int | None:
    """Return the operations of one instruction: a multiplication and an addition for each m, n and k.

    B's rows are k, which is also right for a sparse A. None where this is no multiplication.
    """
    shapes = asked.report.get("shapes", {})
    if not {"A", "B"} <= set(shapes):
        return None
    matrices = {entry.get("matrix", 0) for entries in asked.maps.values() for entry in entries}
    m, n, k = shapes["A"]["rows"], shapes["B"]["cols"], shapes["B"]["rows"]
    return int(2 * m * n * k * len(matrices))


def _add_sass(asked: Asked, record: Record) -> None:
    """Compile the point's kernel, and add what of it the probe claims; without a compiler, why not."""
    from ptxlab.experiments.runner import check_sass, kernel_report
    from ptxlab.experiments.unit import build_unit, kernel_name
    from ptxlab.sass.instructions import has_prefix

    probe, case = asked.probe, asked.case
    try:
        build = build_unit(probe, [case], case.arch)
        kernel = kernel_report(build, kernel_name(probe, probe.macros(case)))
    except MissingError as error:
        record.skip("sass", error.message)
        return
    claims = probe.claims(case)
    check_sass(kernel, claims, record)
    record.result["sass"] = {
        opcode: count
        for opcode, count in kernel["counts"].items()
        if any(has_prefix(opcode, claim) for claim in claims)
    }


def compare_record(c: str, operand: str, other: str) -> Record:
    """Say whether the result of one mma can be an operand of another as it lies in the registers.

    Args:
        c: SHAPE:TYPE of the result, "m16n8k32:s32".
        operand: "A" (the result's columns are its k) or "B" (the result's rows are its k).
        other: SHAPE:TYPE of the operand.

    Raises:
        UsageError: there is no such form.

    """
    source, target = _form(c, "C"), _form(other, operand)
    given = target.a_map if operand == "A" else target.b_map
    moves, permutable = lane_moves(source.c_map, given, k="col" if operand == "A" else "row")
    record = Record(backend="model", params={"c": c, operand.lower(): other})
    record.result |= {
        "operand": operand,
        "register_local": all(move["from_lane"] == move["to_lane"] for move in moves),
        "register_local_with_k_permuted": permutable,
        "moves": moves,
        "lanes": _exchange(moves),
    }
    record.result["conclusion"] = _compared(record.result, c, f"{operand} of {other}")
    return record


def _form(text: str, operand: str) -> MmaForm:
    """Return the first form with this shape whose operand is of this type."""
    shape, _, dtype = text.partition(":")
    types = {"C": "acc", "A": "a", "B": "b"}[operand]
    forms = list(dense_forms())
    of_shape = [form for form in forms if form.shape == shape]
    if not of_shape:
        raise unknown_name("shape", shape, dict.fromkeys(form.shape for form in forms))
    for form in of_shape:
        if getattr(form, types) == dtype:
            return form
    legal = dict.fromkeys(getattr(form, types) for form in of_shape)
    raise unknown_name(f"type of {operand} of {shape}", dtype, legal)


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
