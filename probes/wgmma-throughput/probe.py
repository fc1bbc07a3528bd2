"""How many cycles of an SM does a wgmma take where many of them run?

Method: one block, alone on its SM, issues four wgmma a round and waits for a round only when the next one is
on its way. The four advance along K, so their descriptors differ: of identical ones, and of those whose D
nobody reads, a compiler may leave fewer, and a benchmark then measures what it did not write. So the SASS
must hold as many as the PTX. A has one 1 in each row of a step, and B holds -1, 0 and 1: every type adds
that up exactly, and a sum over the registers of D shows that each wgmma took place. The clock is read before
the first of them and after the last.
Counting: cycles of the SM's clock for one wgmma of one warpgroup; two warpgroups take turns on the SM.
Source: PTX ISA, "Asynchronous warpgroup-level matrix instructions"; the rates' sources stand in the model.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, option
from ptxlab.experiments.probe import Arrays, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.experiments.recording import arrays_of, damaged, is_stale, recordings
from ptxlab.isa import wgmma as isa
from ptxlab.isa import wgmma_rate as rate
from ptxlab.isa.numbers import encode
from ptxlab.isa.registers import Ints
from ptxlab.isa.types import BITS
from ptxlab.isa.wgmma import M, WgmmaForm
from ptxlab.isa.wgmma_descriptor import SPANS, UNIT, SharedOperand

STEPS = 4  # wgmma in a round
ROUNDS = 512  # so that four a round make at most 2048, which f16 and the fewest bits of 8-bit sums hold
ALIGNMENT = 1024  # where the swizzle pattern begins anew
SEED = 1
LOOPS = {
    "varying": "each takes other descriptors and adds to D",
    "identical": "each takes the same descriptors and adds to D",
    "overwriting": "each takes other descriptors and overwrites D",
}
TITLES = {
    "rates": "one wgmma among others, and what an SM does with them",
    "source": "",
    "cycles_per_wgmma": "cycles",
    "flop_per_clock_and_sm": "FLOP a cycle and SM",
    "percent_of_peak": "% of the peak",
    "percent_of_model": "% of the model",
    "loops": f"what the compiler leaves of a loop over {STEPS} wgmma",
    "repeats": "",
    "wgmma_in_ptx": "wgmma in PTX",
    "wgmma_in_sass": "in SASS",
}
NOTES = [
    "Who times the overwriting loop of m64n256k16 believes in 397 % of the peak (NVIDIA H200, 2026-11-30).",
    "Of four identical ones in a kernel without a loop or branch, ptxas 13.0.88 and 13.5.37 leave two.",
]
DRAWN = (8, 16, 32, 64, 96, 128, 192, 256)
SLOWEST, FASTEST = 95, 101  # percent of the model's rate that it explains; above, something was left out


class WgmmaThroughputProbe(Probe):
    maps = False

    shape = option("", metavar="mMnNkK", help="m64n8k16 to m64n256k16; left out: N is 64")
    dtype = option("f16", choices=tuple(isa.ACCUMULATORS), help="type of A")
    dtype_b = option("", choices=tuple(isa.ACCUMULATORS), help="type of B; left out: A's")
    acc = option("", choices=("f32", "f16", "s32"), help="type of D; left out: f32, or s32 of integers")
    a = option("smem", choices=("smem", "reg"), help="where A comes from")
    major = option("K", choices=("K", "MN"), help="along what A is contiguous in shared memory")
    major_b = option("", choices=("K", "MN"), help="and B; left out: as A in shared memory")
    swizzle = option("128B", choices=tuple(SPANS), help="swizzle of both operands")
    warpgroups = option(1, choices=(1, 2), help="each multiplies 64 rows of its own by the same B")
    loop = option(
        "varying",
        choices=tuple(LOOPS),
        help="which wgmma are repeated; of the other two a compiler may leave fewer than were written",
    )

    def complete(self, params: dict[str, Value]) -> None:
        """Write every point in one way, whichever way it was typed, so that it finds its recording."""
        dtype = str(params["dtype"])
        params["shape"] = params["shape"] or f"m64n64k{256 // BITS[dtype]}"
        for name, usual in (("dtype_b", dtype), ("acc", isa.ACCUMULATORS[dtype][0])):
            params[name] = "" if params[name] == usual else params[name]

    def check(self, case: Case) -> None:
        isa.check_form(form_of(case), case.arch)

    def identity(self, case: Case) -> Hashable:
        return form_of(case), case.swizzle, case.warpgroups, case.loop

    def variants(self, arch: str) -> Iterator[Case]:
        if arch == "sm_90a":
            for params in (*every_n(), *every_type(), *every_layout()):
                yield self.case(arch, **params)

    def macros(self, case: Case) -> Macros:
        form = form_of(case)
        return {
            "N": form.n, "A_TYPE": form.a, "B_TYPE": form.b, "ACC": form.acc, "REGISTERS": form.registers,
            "A_REG": int(form.a_in_registers), "A_MN": int(form.a_major == "MN"),
            "B_MN": int(form.b_major == "MN"), "STEPS": STEPS, "VARY": int(case.loop != "identical"),
            "ADD": int(case.loop != "overwriting"),
        }  # fmt: skip

    def claims(self, case: Case) -> dict[str, int]:
        sass = form_of(case).sass
        return {sass.partition(".")[0]: STEPS, sass: STEPS, "WARPGROUP.ARRIVE": 1, "WARPGROUP.DEPBAR.LE": 2}

    def beside(self, case: Case) -> Mapping[str, Case]:
        return {
            loop: self.case(case.arch, **{**case.params, "loop": loop}) for loop in LOOPS if loop != case.loop
        }

    def inputs(self, case: Case) -> Arrays:
        found: Arrays = {"memory": image(case), "descriptors": descriptors(case)}
        return {**found, "fragments": fragments(case)} if case.a == "reg" else found

    def outputs(self, case: Case) -> dict[str, Output]:
        return {
            "sums": Output((case.warpgroups, isa.WARPS, 32), np.uint32, ("warpgroup", "warp", "lane")),
        }

    def readings(self, case: Case) -> dict[str, Output]:
        return {"clocks": Output((case.warpgroups, 2), np.int64, ("warpgroup", "moment"))}

    def geometry(self, case: Case) -> Geometry:
        nbytes = len(image(case))
        a = "fragments" if case.a == "reg" else "memory"  # not looked at where A lies in shared memory
        return Geometry(
            ("memory", "descriptors", a, "sums", "clocks", np.uint32(nbytes // UNIT), np.uint32(ROUNDS)),
            block=(128 * case.warpgroups, 1, 1),
            shared_bytes=nbytes + ALIGNMENT,
        )

    def expected(self, case: Case) -> Arrays:
        form = form_of(case)
        bits = isa.accumulator_bits(total(case).astype(np.float64), form.acc)
        registers = form.d_map.pack(bits.reshape(case.warpgroups, M, form.n)).astype(np.uint64)
        weighed = registers * (2 * np.arange(form.registers, dtype=np.uint64) + 1)
        return {"sums": weighed.sum(axis=-1, dtype=np.uint64).astype(np.uint32)}

    def examine(self, case: Case, outputs: Arrays, record: Record) -> None:
        if "clocks" in outputs:
            record.check("rate", *judged(of_clocks(case, outputs["clocks"])))
        for kept in recorded(self, case)[:1]:
            record.check("recorded rate", *judged(kept))
        if "sass" in record.result:
            record.result["loops"] = left(case, record)

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        form, kept = form_of(case), recorded(self, case)
        throughput = {
            "warpgroups": case.warpgroups,
            "wgmma": count(case),
            "peak_flop_per_clock_and_sm": rate.peak(form),
            "bound": rate.bound(form),
            "model": figures(form, rate.cycles(form)),
            "measured": of_clocks(case, outputs["clocks"]) if measured and "clocks" in outputs else None,
            "recorded": kept[0] if kept else None,
        }
        return {
            "ptx": form.ptx,
            "throughput": throughput,
            "rates": rates(throughput),
            "pictures": [self.by_n(case)],
            "titles": TITLES,
            "notes": [*NOTES, *self.elsewhere(case)],
        }

    def by_n(self, case: Case) -> dict[str, Any]:
        """Return the picture of the model for every n, and of what was recorded there."""
        points = list(self.drawn(case, case.dtype))
        forms = [form_of(each) for each in points]
        kept = [
            next((f"{found['cycles_per_wgmma']:.1f}" for found in recorded(self, each)), "")
            for each in points
        ]
        return {
            "title": "cycles of one wgmma by N: what takes longest is coloured, and decides",
            "cells": [
                [*(f"{cycles:g}" for cycles in rate.costs(form).values()), found]
                for form, found in zip(forms, kept, strict=True)
            ],
            "colours": [
                [9 if part == rate.bound(form) else None for part in (*rate.costs(form), "recorded")]
                for form in forms
            ],
            "row_names": [f"N {n}" for n in DRAWN],
            "column_names": [*rate.costs(forms[0]), "recorded"],
        }

    def drawn(self, case: Case, dtype: str) -> Iterator[Case]:
        """Yield the point with every N that is drawn, and A of a type."""
        for n in DRAWN:
            shape = f"m{M}n{n}k{256 // BITS[dtype]}"
            yield self.case(case.arch, **{**case.params, "shape": shape, "dtype": dtype})

    def elsewhere(self, case: Case) -> list[str]:
        """Return, where some N were not recorded, the types of which all were."""
        if self.has_every_n(case, case.dtype):
            return []
        types = [dtype for dtype in isa.ACCUMULATORS if self.has_every_n(case, dtype)]
        return [f"Every N of the picture was recorded with --dtype {', '.join(types)}."] if types else []

    def has_every_n(self, case: Case, dtype: str) -> bool:
        """Say whether every N that is drawn was recorded with a type, all else being equal."""
        try:
            return all(recorded(self, point) for point in self.drawn(case, dtype))
        except UsageError:  # the type does not go with the rest
            return False

    def conclude(self, case: Case, record: Record) -> str:
        kernel, found = record.result.get("sass"), record.result["throughput"]
        if kernel and kernel["tensor_ops"] != STEPS:
            return (
                f"The compiler made {kernel['tensor_ops']} of the {STEPS} wgmma in the loop: what runs is "
                "not what was written, and its cycles mean nothing."
            )
        best = found["measured"] or found["recorded"] or found["model"]
        who = "measured" if found["measured"] else "recorded" if found["recorded"] else "predicted"
        model = "" if who == "predicted" else f"The model says {found['model']['cycles_per_wgmma']:g}. "
        return (
            f"{case.shape} of {case.dtype} takes {best['cycles_per_wgmma']:.1f} cycles of an SM ({who}): "
            f"{best['flop_per_clock_and_sm']:.0f} FLOP a cycle, {best['percent_of_peak']:.1f} % of the peak. "
            f"{model}What decides: {found['bound']}."
        )


def every_n() -> Iterator[dict[str, Value]]:
    """Yield several N, A from both places; and two warpgroups."""
    for a, n in product(("smem", "reg"), DRAWN):
        for warpgroups in (1, 2) if n in (8, 64, 256) else (1,):
            yield {"shape": f"m64n{n}k16", "dtype": "bf16", "a": a, "warpgroups": warpgroups}


def every_type() -> Iterator[dict[str, Value]]:
    """Yield a type of each kind, with the types that D can have, and A from registers."""
    yield {}
    for dtype in ("f16", "tf32", "e4m3", "s8"):
        form: dict[str, Value] = {"shape": f"m64n256k{256 // BITS[dtype]}", "dtype": dtype}
        yield from ({**form, "acc": acc} for acc in isa.ACCUMULATORS[dtype])
        if dtype != "f16":
            yield {**form, "a": "reg"}


def every_layout() -> Iterator[dict[str, Value]]:
    """Yield the majors and the swizzles, where the tensor cores decide and where shared memory does."""
    for n in (32, 256):
        form: dict[str, Value] = {"shape": f"m64n{n}k16", "dtype": "bf16"}
        yield from ({**form, "swizzle": swizzle} for swizzle in ("none", "32B", "64B"))
        yield from ({**form, "major": "MN", "swizzle": swizzle} for swizzle in SPANS)
        yield {**form, "a": "reg", "major_b": "MN"}


@lru_cache(maxsize=256)
def form_of(case: Case) -> WgmmaForm:
    """Return the instruction's form."""
    acc = case.acc or isa.ACCUMULATORS[case.dtype][0]
    in_registers = case.a == "reg"
    major_b = case.major_b or ("K" if in_registers else case.major)
    form = WgmmaForm(M, case.dtype, case.dtype_b or case.dtype, acc, in_registers, case.major, major_b)
    return isa.parse_form(case.shape, form)


def count(case: Case) -> int:
    """Return how many wgmma all warpgroups execute, as they were written."""
    return ROUNDS * STEPS * int(case.warpgroups)


def operands(case: Case) -> dict[str, SharedOperand]:
    """Return how A and B of all steps lie in shared memory: A first, if it is there."""
    form, found = form_of(case), dict[str, SharedOperand]()
    start = 0
    if not form.a_in_registers:
        rows = M * case.warpgroups
        found["A"] = SharedOperand(0, rows, STEPS * form.k, BITS[form.a], form.a_major, case.swizzle)
        start = -(-found["A"].nbytes // ALIGNMENT) * ALIGNMENT
    found["B"] = SharedOperand(start, form.n, STEPS * form.k, BITS[form.b], form.b_major, case.swizzle)
    return found


def descriptors(case: Case) -> NDArray[np.uint64]:
    """Return the descriptors of A and B, [step, warpgroup, operand]; B's twice where A is in registers."""
    form, (*_, b) = form_of(case), operands(case).values()
    a = operands(case).get("A", b)
    words = [
        [
            (
                a.descriptor(0 if a is b else M * group, step * form.k).word,
                b.descriptor(0, step * form.k).word,
            )
            for group in range(case.warpgroups)
        ]
        for step in range(STEPS)
    ]
    return np.array(words, dtype=np.uint64)


@lru_cache(maxsize=2)
def factors(case: Case) -> tuple[Ints, Ints]:
    """Return A[step, m, k] with one 1 in each row, and B[step, n, k] of -1, 0 and 1 (0 and 1 of u8)."""
    form, rng = form_of(case), np.random.default_rng(SEED)
    where = rng.integers(form.k, size=(STEPS, M * case.warpgroups, 1))
    a = (np.arange(form.k) == where).astype(np.int64)
    return a, rng.integers(0 if form.b == "u8" else -1, 2, size=(STEPS, form.n, form.k))


def total(case: Case) -> Ints:
    """Return what D[m, n] holds in the end."""
    a, b = factors(case)
    products: Ints = a @ b.swapaxes(1, 2)
    if case.loop == "overwriting":
        return np.asarray(products[-1])
    round_ = STEPS * products[0] if case.loop == "identical" else products.sum(axis=0)
    return np.asarray(ROUNDS * round_)


@lru_cache(maxsize=2)
def image(case: Case) -> NDArray[np.uint8]:
    """Return shared memory with the elements where the descriptors read them."""
    form, own = form_of(case), operands(case)
    last = own["B"]
    found = np.zeros(last.start + last.nbytes, dtype=np.uint8)
    for name, values in zip("AB", factors(case), strict=True):
        if name not in own:
            continue
        words = encode(values, form.a if name == "A" else form.b)
        per = M if name == "A" else form.n
        for step, row in np.ndindex(STEPS, own[name].rows // per):
            where = own[name].descriptor(row * per, step * form.k)
            addresses = where.addresses(per, form.k, own[name].bits, own[name].major)
            for byte in range(own[name].bits // 8):
                part = words[step, row * per : (row + 1) * per] >> np.uint64(8 * byte)
                found[addresses + byte] = part.astype(np.uint8)
    return found


def fragments(case: Case) -> NDArray[np.uint32]:
    """Return A in registers: [step, warpgroup, warp, lane, register]."""
    form, (a, _) = form_of(case), factors(case)
    return form.a_map.pack(encode(a, form.a).reshape(STEPS, case.warpgroups, M, form.k))


def figures(form: WgmmaForm, cycles: float) -> dict[str, Any]:
    """Return what it means that a wgmma takes so many cycles."""
    flop = rate.flop(form) / cycles
    return {
        "cycles_per_wgmma": cycles,
        "flop_per_clock_and_sm": flop,
        "percent_of_peak": 100 * flop / rate.peak(form),
        "percent_of_model": 100 * rate.cycles(form) / cycles,
    }


def of_clocks(case: Case, clocks: NDArray[np.int64]) -> dict[str, Any]:
    """Return the rate, from the first warpgroup's start to the last one's end."""
    cycles = int(clocks[:, 1].max() - clocks[:, 0].min())
    return {"cycles": cycles, **figures(form_of(case), cycles / count(case))}


def recorded(probe: Probe, case: Case) -> list[dict[str, Any]]:
    """Return the rates that cards reached at this point with this kernel, the newest first."""
    found = []
    for kept in recordings(probe):
        variant = kept.find(probe, case)
        if variant and not is_stale(probe, case, variant):
            clocks = arrays_of(variant).get("clocks", np.empty(0))
            if not is_time(clocks, probe.readings(case)["clocks"]):
                raise damaged(kept.file, f"it has no clocks of {case.key}")
            found.append({**of_clocks(case, clocks), "device": kept.device, "date": kept.date})
    return found


def is_time(clocks: NDArray[Any], read: Output) -> bool:
    """Say whether that is what a card reads: a start and a later end for each warpgroup."""
    fits = clocks.shape == read.shape and clocks.dtype == np.dtype(read.dtype)
    return fits and bool((clocks[:, 1] > clocks[:, 0]).all())


def judged(found: Mapping[str, Any]) -> tuple[bool, str]:
    """Say whether the model explains a rate: one above it tells that something was left out."""
    percent, cycles = found["percent_of_model"], found["cycles_per_wgmma"]
    return SLOWEST <= percent <= FASTEST, (
        f"{cycles:.2f} cycles a wgmma, {percent:.1f} % of the model's rate; sound: {SLOWEST} to {FASTEST} %"
    )


def rates(throughput: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rates as a table: predicted, measured, recorded."""
    digits = {"cycles_per_wgmma": 2, "flop_per_clock_and_sm": 0, "percent_of_peak": 1, "percent_of_model": 1}
    rows = []
    for source in ("model", "measured", "recorded"):
        if found := throughput[source]:
            title = f"{found['device']}, {source} {found['date']}" if "device" in found else source
            rows.append({"source": title} | {name: round(found[name], n) for name, n in digits.items()})
    return rows


def left(case: Case, record: Record) -> list[dict[str, Any]]:
    """Return how many wgmma the compiler left in this loop, and in those that are compiled beside it."""
    kernels = {case.loop: record.result["sass"], **record.result.get("beside", {})}
    return [
        {
            "loop": loop,
            "repeats": LOOPS[loop],
            "wgmma_in_ptx": STEPS,
            "wgmma_in_sass": kernel["tensor_ops"],
        }
        for loop, kernel in kernels.items()
    ]
