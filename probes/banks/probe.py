"""How many wavefronts does a warp's access to shared memory take?

Method: one warp repeats the access, and a hardware counter of its class of instructions is read through ncu.
Of three patterns in a launch the first runs once, the second 256 and the third 65536 times, so that the bytes
of the counter are the wavefronts of each. Memory holds the number of every word: a sum over the lanes shows
that they reached what they should. Without ncu there are just cycles, counted in the kernel.
Counting: wavefronts of one warp instruction, at the shared-memory port of one SM.
Source: NVIDIA Nsight Compute, "Kernel Profiling Guide", metrics of the L1 data stage.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.experiments import banks as asked
from ptxlab.experiments.base import Case, Macros, option
from ptxlab.experiments.counters import SHARED_CLASSES
from ptxlab.experiments.probe import Arrays, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import ldmatrix as isa
from ptxlab.layout import banks
from ptxlab.layout.banks import OFF, WIDTHS, Access
from ptxlab.layout.patterns import patterns
from ptxlab.toolchain.arch import base_number

LANES, SLOTS = 32, 3
REPEATS = (1, 256, 256**2)
"""Of the three patterns of a launch: the bytes of a counter are the wavefronts of each."""

ALONE = 1
"""The slot of a pattern that is alone in its launch: often enough to be timed."""

RANDOM = 240
LARGEST = 227 * 1024 - 16
KINDS = ("LDS", "STS", "LDSM", "STSM", "LDGSTS")
SINCE = {"LDS": 75, "STS": 75, "LDSM": 75, "STSM": 90, "LDGSTS": 80}
"""The first architecture that has the instruction. Source: PTX ISA, "Target ISA Notes" of each."""

MATRICES = tuple(
    f"{op}.x{n}{trans}" for op in ("ldmatrix", "stmatrix") for n in (1, 2, 4) for trans in ("", ".trans")
)


class BanksProbe(Probe):
    maps = False

    width = option(
        "32",
        choices=(
            *(each for each in WIDTHS if banks.access(each).counted and each[-2:] != "ca"),
            *MATRICES[1::2],
        ),
        help="bits a lane moves, or the instruction",
    )
    op = option("", choices=("", "ld", "st"), help="as seen from shared memory; left out: as --width says")
    addr = option("lane * 4", metavar="EXPR", help="byte address of each lane")
    mask = option("", metavar="LANES", help="lanes that take part, such as 0-15,20; left out: all")
    cache = option("", choices=("", "ca", "cg"), help="of cp.async; left out: cg for 16 bytes, else ca")
    random = option(0, metavar="N", help="measure so many patterns in place of --addr")

    def check(self, case: Case) -> None:
        kind = kind_of(case)
        if base_number(case.arch) < SINCE[kind.opcode]:
            raise UsageError(f"{case.arch} has no {case.width}; legal: sm_{SINCE[kind.opcode]} and later")
        if case.cache and kind.opcode != "LDGSTS":
            raise UsageError(f"--cache {case.cache} belongs to cp.async")
        if cache_of(case) == "cg" and kind.bytes_per_lane != 16:
            raise UsageError(f"cp.async.cg copies 16 bytes, not {kind.bytes_per_lane}; legal: --cache ca")
        if case.random not in range(1000):
            raise UsageError(f"--random {case.random}; legal: 1 to 999 patterns, 0 for --addr")
        found = table(case)
        if found.max() > LARGEST:
            raise UsageError(f"address {found.max()} lies beyond shared memory; legal: up to {LARGEST}")

    def identity(self, case: Case) -> Hashable:
        return (kind_of(case).name, case.width.endswith(".trans"), cache_of(case), table(case).tobytes())

    def variants(self, arch: str) -> Iterator[Case]:
        for params in every_class():
            if base_number(arch) >= SINCE[banks.access(params["width"], params.get("op", "")).opcode]:
                yield self.case(arch, random=RANDOM, **params)
        for addr in ("lane * 16", "lane * 128", "lane // 2 * 16"):
            yield self.case(arch, width="128", addr=addr)
        for addr in ("lane * 4", "lane * 128", "lane * 132", "0"):
            yield self.case(arch, addr=addr)

    def macros(self, case: Case) -> Macros:
        kind = kind_of(case)
        matrix = kind.opcode in ("LDSM", "STSM")
        found: Macros = {"KIND": KINDS.index(kind.opcode), "LANES": kind.lanes}
        if matrix:
            return found | {"NUM": kind.lanes // 8, "TRANS": int(case.width.endswith(".trans"))}
        found["BYTES"] = kind.bytes_per_lane
        return found | ({"CACHE": cache_of(case)} if kind.opcode == "LDGSTS" else {})

    def claims(self, case: Case) -> dict[str, int]:
        kind = kind_of(case)
        if kind.opcode not in ("LDS", "STS") or kind.bytes_per_lane == 4:
            return {kind.opcode: 1}
        turing = ".U" if case.arch == "sm_75" and kind.opcode == "LDS" else ""
        return {f"{kind.opcode}{turing}.{8 * kind.bytes_per_lane}": 1}

    def inputs(self, case: Case) -> Arrays:
        return {
            "addresses": table(case).astype(np.uint32),
            "times": times(case),
            "memory": np.arange(words(case), dtype=np.uint32),
        }

    def outputs(self, case: Case) -> dict[str, Output]:
        launches = len(table(case))
        return {
            "sums": Output((launches, SLOTS), np.uint32, ("launch", "pattern")),
            "wavefronts": Output((launches,), np.uint64, ("launch",)),
        }

    def readings(self, case: Case) -> dict[str, Output]:
        return {"cycles": Output((len(table(case)), SLOTS), np.uint32, ("launch", "pattern"))}

    def counters(self, case: Case) -> dict[str, str]:
        name = next(name for name, opcode in SHARED_CLASSES.items() if opcode == kind_of(case).opcode)
        return {"wavefronts": f"smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{name}.sum"}

    def geometry(self, case: Case) -> tuple[Geometry, ...]:
        names = ("addresses", "times", "memory", "sums", "cycles")
        size = np.uint32(words(case))
        return tuple(
            Geometry((*names, size, np.uint32(launch), np.uint32(0)), shared_bytes=4 * words(case))
            for launch in range(len(table(case)))
        )

    def expected(self, case: Case) -> Arrays:
        counts = banks.count(kind_of(case), table(case)).astype(np.uint64)
        return {"sums": sums(case), "wavefronts": (counts * times(case)).sum(axis=1, dtype=np.uint64)}

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        kind = kind_of(case)
        known = banks.count(kind, table(case))[times(case) > 0]
        found = digits(case, outputs["wavefronts"]) if measured and "wavefronts" in outputs else None
        cycles = (outputs["cycles"] / np.maximum(times(case), 1))[times(case) > 0] if measured else None
        if case.random:
            return {
                "patterns": summary(known, found),
                "titles": {"patterns": "random patterns by wavefronts"},
            }
        used = asked.addresses_of(kind, case.addr, case.mask)
        cost = banks.wavefronts(kind, used)
        row = {"wavefronts": cost.wavefronts, "ideal": cost.ideal, "conflicts": cost.conflicts}
        rows: list[dict[str, Any]] = [{"": "predicted", **row, "cycles": None}]
        if measured:
            number = None if found is None else int(found[0])
            over = None if number is None else max(0, number - cost.least)
            taken = None if cycles is None else round(float(cycles[0]), 1)
            rows.append(
                {
                    "": "measured",
                    "wavefronts": number,
                    "ideal": cost.ideal,
                    "conflicts": over,
                    "cycles": taken,
                }
            )
        return {
            **asked.costs(cost),
            "instruction": rows,
            "pictures": [asked.picture(kind, used, cost)],
            "titles": {
                "instruction": "one warp instruction; cycles of a repetition, issue and latency included"
            },
        }

    def conclude(self, case: Case, record: Record) -> str:
        del record
        kind = kind_of(case)
        if case.random:
            return f"{case.random} patterns of {kind.opcode} ({kind.name}), each with its wavefronts."
        used = asked.addresses_of(kind, case.addr, case.mask)
        return asked.sentence(kind, used, banks.wavefronts(kind, used))


def every_class() -> list[dict[str, Any]]:
    """Return the options of every class that is verified."""
    plain = [{"width": bits, "op": op} for op in ("ld", "st") for bits in ("32", "64", "128")]
    matrices = [{"width": name} for name in MATRICES if name.endswith("x4.trans") or ".trans" not in name]
    copies = [{"width": f"cp.async.{size}"} for size in (4, 8, 16)]
    return [*plain, *matrices, *copies, {"width": "cp.async.16", "cache": "ca"}]


def kind_of(case: Case) -> Access:
    """Return the class of the instruction."""
    through_l1 = ".ca" if (case.width, case.cache) == ("cp.async.16", "ca") else ""
    return asked.access_of(case.width + through_l1, case.op)


def cache_of(case: Case) -> str:
    """Return through which caches cp.async goes, "" for others."""
    kind = kind_of(case)
    if kind.opcode != "LDGSTS":
        return ""
    return str(case.cache or ("cg" if kind.bytes_per_lane == 16 else "ca"))


def table(case: Case) -> NDArray[np.int64]:
    """Return the address of every lane, [launch, pattern, lane]; OFF in a pattern that is none."""
    kind = kind_of(case)
    if case.random:
        found = patterns(asked.access_of(case.width, case.op), case.random)
        missing = -len(found) % SLOTS
        return np.concatenate([found, np.full((missing, LANES), OFF)]).reshape(-1, SLOTS, LANES)
    used = asked.addresses_of(kind, case.addr, case.mask)
    alone = np.full((1, SLOTS, LANES), OFF, dtype=np.int64)
    alone[0, ALONE] = kind.bytes_per_lane * np.arange(LANES) if not kind.has_mask else OFF
    alone[0, ALONE, : len(used)] = [OFF if each is None else each for each in used]
    return alone


def times(case: Case) -> NDArray[np.uint32]:
    """Return how often each pattern runs, [launch, pattern]."""
    return np.where((table(case) != OFF).any(axis=2), np.array(REPEATS), 0).astype(np.uint32)


def words(case: Case) -> int:
    """Return the words of memory that the patterns reach."""
    return int(table(case).max(initial=0)) // 1024 * 256 + 512


def sums(case: Case) -> NDArray[np.uint32]:
    """Return the weighed sum of what each lane saw, [launch, pattern]."""
    where, kind = table(case), kind_of(case)
    seen = np.where(where == OFF, 0xFFFFFFFF, where // 4)
    if kind.opcode == "LDSM":
        form = isa.LdMatrixForm(num=kind.lanes // 8, trans=case.width.endswith(".trans"))
        memory = np.arange(words(case), dtype=np.uint32).view(np.uint8)
        for index in np.argwhere(times(case)):
            seen[tuple(index)] = isa.ldmatrix(memory, where[tuple(index)], form)[:, 0]
    elif kind.opcode == "STSM":
        seen[..., kind.lanes :] = 0xFFFFFFFF
    weights = 2 * np.arange(LANES) + 1
    return np.asarray(((seen * weights).sum(axis=2) & 0xFFFFFFFF).astype(np.uint32))


def digits(case: Case, counters: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the wavefronts of each pattern out of the bytes of the launches' counters."""
    apart = counters[:, None] // np.array(REPEATS, dtype=np.uint64) % np.uint64(256)
    apart[:, -1] = counters // np.uint64(REPEATS[-1])
    return np.asarray(apart[times(case) > 0].astype(np.int64))


def summary(known: NDArray[np.int64], found: NDArray[np.int64] | None) -> list[dict[str, Any]]:
    """Return one row for each number of wavefronts that is predicted."""
    rows = []
    for number in np.unique(known).tolist():
        row: dict[str, Any] = {"predicted": number, "patterns": int((known == number).sum())}
        if found is not None:
            row["measured"] = ", ".join(map(str, np.unique(found[known == number]).tolist()))
        rows.append(row)
    return rows
