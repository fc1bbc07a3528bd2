"""What ``ptxlab gemm --explain`` shows of a block's warps: who does what, who waits for whom, and when."""

from __future__ import annotations

from typing import Any

from ptxlab.render.blocks import Block, Cell, Table, Text, drawn
from ptxlab.render.views.profile import bar

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""By which pictures name stages."""

LEGEND = (
    "{stages}: the stage that a role fills or multiplies, or that the tensor cores read; {marks}: it waits "
    "for {names}; w: it writes C. Of a stage: > on its way, = landed, * being multiplied."
)

WHEN = {"first": "at first", "begin": "for a tile", "step": "in each step", "end": "at its end"}
"""When a role does what: keys of its description."""


def pipeline_blocks(line: dict[str, Any]) -> list[Block]:
    """Return the roles, their barriers and registers, and the pictures."""
    blocks: list[Block] = [_roles(line), *_barriers(line), *_registers(line)]
    if "pictures" in line:
        blocks += [*map(drawn, line["pictures"]), Text(_legend(line), "faint"), Text(_scale(line), "faint")]
        blocks += [Text(f"{found}.", "bad") for found in line["findings"]]
    return blocks


def _roles(line: dict[str, Any]) -> Table:
    """Return what each role does: s is the stage of the step, t the tile."""
    same: dict[tuple[tuple[str, ...], ...], list[dict[str, Any]]] = {}
    for role in line["roles"]:
        same.setdefault(tuple(tuple(role[part]) for part in WHEN), []).append(role)
    rows: list[tuple[Cell, ...]] = [
        (_names(roles), name, ", ".join(_in_brief(acts)))
        for parts, roles in same.items()
        for name, acts in zip(WHEN.values(), parts, strict=True)
        if acts
    ]
    return Table("who does what: s is the stage of a step, t a tile", ("role", "when", "what"), rows)


def _names(roles: list[dict[str, Any]]) -> str:
    return ", ".join(role["role"] for role in roles)


def _in_brief(acts: tuple[str, ...]) -> tuple[str, ...]:
    """Return acts that do the same to several stages as one."""
    alike = len(acts) > 1 and len({act.rpartition(" ")[0] for act in acts}) == 1
    return (f"{acts[0]} to {acts[-1].rpartition(' ')[2]}",) if alike else acts


def _barriers(line: dict[str, Any]) -> list[Block]:
    columns = ("barrier", "number", "arrivals", "arrive there", "wait for it", "a phase ends when")
    rows: list[tuple[Cell, ...]] = [
        (
            *(each["barrier"], each["number"], each["arrivals"]),
            ", ".join(each["arrived_at_by"]) + (f" of {each['blocks']} blocks" if each["blocks"] > 1 else ""),
            ", ".join(each["waited_for_by"]),
            each["means"],
        )
        for each in line["barriers"]
    ]
    return [Table("who waits for whom", columns, rows)]


def _registers(line: dict[str, Any]) -> list[Block]:
    """Return how the registers of an SM are spent; each row as a share of all."""
    whole, blocks = line["registers_of_an_sm"], line.get("blocks", 1)
    if not line["registers_at_launch"]:
        return []
    rows: list[tuple[Cell, ...]] = []
    if any(role["changed"] for role in line["roles"]):
        rows.append(_spent("at launch", line["registers_at_launch"], whole))
    spent = 0
    for role in line["roles"]:
        name = f"{role['role']}: {role['threads']} x {role['registers']}"
        rows.append(_spent(name, role["registers_in_all"], whole))
        spent += role["registers_in_all"]
    if blocks > 1:
        rows.append(_spent(f"{blocks} such blocks", blocks * spent, whole))
    rows.append(_spent("left", whole - blocks * spent, whole))
    return [Table("registers of an SM: threads x registers", ("role", "registers", "%", ""), rows)]


def _spent(name: str, count: int, whole: int) -> tuple[Cell, ...]:
    percent = 100 * count / whole
    return name, count, f"{percent:.1f}", bar(percent)


def _legend(line: dict[str, Any]) -> str:
    names = [each["barrier"] for each in line["barriers"]]
    marks = ", ".join(name[0] for name in names)
    stages = f"0 to {DIGITS[line['stages'] - 1]}" if line["stages"] > 1 else "0"
    return LEGEND.format(stages=stages, marks=marks, names=", ".join(names))


def _scale(line: dict[str, Any]) -> str:
    """Return what a column is, and what is taken for granted."""
    shared = f", which {line['blocks']} blocks of an SM share," if line["blocks"] > 1 else ""
    drawn_steps = line["drawn_steps"]
    fewer = f", not {line['steps']}" if drawn_steps < line["steps"] else ""
    written = f"C is written in {line['writing_cycles']:.0f} (fitted to timings)"
    landing = f"tiles land {line['landing_cycles']:.0f} cycles after they are asked for (a guess)"
    return (
        f"A column is {line['column_cycles']:.0f} cycles: what the tensor cores{shared} take for one role's "
        f"products of a step. Drawn by running the ring, its counts and parities: tiles of {drawn_steps} "
        f"steps{fewer}. Taken for granted: operands reach the tensor cores in time (the limits say what may "
        f"keep them waiting), {landing}, {written}{_sending(line)}."
    )


def _sending(line: dict[str, Any]) -> str:
    """Return how long a block sends to others what it copied for a step."""
    cycles = line["sending_cycles"]
    return f", a block sends for {cycles:.0f} in each step (as fast as was seen)" if cycles else ""
