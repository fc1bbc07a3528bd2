"""How many bits does the tensor core keep?

Method: sums whose exact result is known, eight a tile, on the diagonal, and each once more with every sign
turned. Two large terms cancel and leave what the tensor core kept of a third that grows smaller and smaller;
that, for products and for C, tells how many bits are kept, below which exponent, and how the others are lost.
Which third terms survive beside which large ones tells the products that are summed at once. Then random
numbers, normal and of very different size, against the model. Properties are worked out from outputs alone.
Counting: fraction bits below the largest exponent of all that is summed at once, in one instruction.
Source: PTX ISA, "Matrix multiply-accumulate operation using mma instruction", leaves all this unspecified.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, option
from ptxlab.experiments.probe import Arrays, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import accumulate as isa
from ptxlab.isa.accumulate import DOWNWARD, FRACTION_BITS, LEAST_EXPONENT, NEAREST, TOWARD_ZERO, Reals
from ptxlab.isa.mma import MmaForm, dense_forms
from ptxlab.isa.numbers import decode, encode
from ptxlab.isa.types import BITS
from ptxlab.layout.tile import spans

TYPES = ("f16", "bf16", "tf32", "e4m3", "e5m2")
TOP = {"f16": 15, "bf16": 126, "tf32": 126, "e4m3": 8, "e5m2": 15}  # exponent of a large power of two
LARGE = 10  # exponent of the terms that cancel; every type makes products from 2**10 to 2**-17
SWEEP = range(7, 28)  # how far below them the third term lies
GROUPED = 14  # exponent of the terms that cancel when the steps are told apart ...
SMALL = -16  # ... and of the least of four terms that only another step keeps
NOT_FINITE = {"f16": (0x7C00, 0x7E00), "bf16": (0x7F80, 0x7FC0), "f32": (0x7F800000, 0x7FC00000),
              "e4m3": (0x7F, 0x7F), "e5m2": (0x7C, 0x7E)}  # fmt: skip
Pair = tuple[float, float]
Rows = list[tuple["Trial", float, float]]
Steps = list[list[int]]

KEPT = "fraction bits kept of a product beside larger products"
KEPT_C = "fraction bits kept of C beside larger products"
KEPT_BESIDE_C = "fraction bits kept of a product beside a larger C and a larger product"
KEPT_BELOW_C = "fraction bits kept of a product beside a C larger than every product"
KEPT_CARRY = "fraction bits kept beside products whose significand reaches 2"
KEPT_ZERO = "fraction bits kept beside zero times a large number"
KEPT_SUBNORMAL = "fraction bits kept beside subnormal times a large number"
RESULT = "fraction bits of the result"
LOST = "bits that a term loses are rounded"
SUM = "a sum of products is rounded"
WITH_C = "a sum with C is rounded"
SWEPT = (KEPT_C, KEPT_BESIDE_C, KEPT_BELOW_C, KEPT_CARRY, KEPT_ZERO, KEPT_SUBNORMAL)
STEPS = "products summed at once"
TF32 = "1 + 8191/8388608 as a factor counts as"


class MmaArithmeticProbe(Probe):
    maps = False

    shape = option(
        "",
        choices=("m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32", "m64n8k8", "m64n8k16", "m64n8k32"),
        help="m16: mma.sync; m64: wgmma; left out: mma.sync with the most products",
    )
    dtype = option("f16", choices=TYPES, help="type of the elements of A and B")
    acc = option("f32", choices=("f32", "f16"), help="type of C and D")

    def complete(self, params: dict[str, Value]) -> None:
        if not params["shape"]:
            own = [form for form in all_forms() if form.mma.a == params["dtype"] and not form.wgmma]
            params["shape"] = max(own, key=lambda form: form.mma.k).shape

    def check(self, case: Case) -> None:
        asked = f"{case.shape} of {case.dtype} into {case.acc}"
        known = [form for form in all_forms() if form.title == _title(case)]
        legal = [form.title for form in all_forms() if form.runs_on(case.arch)]
        if not known:
            raise UsageError(f"{asked} does not exist; legal on {case.arch}: {'; '.join(legal)}")
        if not known[0].runs_on(case.arch):
            need = "sm_90a alone" if known[0].wgmma else f"sm_{known[0].mma.minimum} or later"
            raise UsageError(
                f"{asked} needs {need}, not {case.arch}; legal: {'; '.join(legal)}",
                f"--arch {'sm_90a' if known[0].wgmma else f'sm_{known[0].mma.minimum}'} shows it",
            )

    def variants(self, arch: str) -> Iterator[Case]:
        for form in all_forms():
            if form.runs_on(arch):
                yield self.case(arch, shape=form.shape, dtype=form.mma.a, acc=form.mma.acc)

    def macros(self, case: Case) -> Macros:
        form = form_of(case)
        return {
            "PTX": f'"{form.ptx}"', "WGMMA": int(form.wgmma),
            "RA": form.registers("A"), "RB": form.registers("B"), "RC": form.registers("C"),
            "TAIL": f'"{form.tail}"',
        }  # fmt: skip

    def claims(self, case: Case) -> dict[str, int]:
        form = form_of(case)
        if rule_of(case).operand:
            return {"HMMA": 2}
        return {("Q" if BITS[form.mma.a] == 8 else "H") + ("GMMA" if form.wgmma else "MMA"): 1}

    def inputs(self, case: Case) -> Arrays:
        form, data = form_of(case), data_of(case)
        a, b, c = (bits_of(m, t) for m, t in zip(data, form.stored, strict=True))
        return {
            "a": packed(form.mma.a_map, a, form.registers("A")),
            "b": in_memory(b, form) if form.wgmma else packed(form.mma.b_map, b, form.registers("B")),
            "c": packed(form.mma.c_map, c, form.registers("C")),
        }

    def outputs(self, case: Case) -> dict[str, Output]:
        shape = (len(data_of(case)[0]), 32, form_of(case).registers("C"))
        return {"d": Output(shape, np.uint32, ("tile", "lane", "register"))}

    def geometry(self, case: Case) -> Geometry:
        threads = 128 if form_of(case).wgmma else 32
        return Geometry(("a", "b", "c", "d"), (len(data_of(case)[0]), 1, 1), (threads, 1, 1))

    def expected(self, case: Case) -> Arrays:
        form = form_of(case)
        (words,) = computed(case, [rule_of(case)])
        return {"d": packed(form.mma.c_map, words, form.registers("C"))}

    def examine(self, case: Case, outputs: Arrays, record: Record) -> None:
        found, rule = properties(case, outputs), stated(case)
        wrong = [
            f"{what}: {found[what]}, not {value}" for what, value in rule.items() if found[what] != value
        ]
        detail = "; ".join(wrong) or "the numbers worked out from the results are those of the rule"
        (misses,) = missed(case, outputs, [rule_of(case)])
        if misses:
            record.result["candidates"] = path = fitted(case, outputs)
            detail += f"; {misses} results differ; {path[-1]['misses']} do with {path[-1]['rule']}"
        record.check("arithmetic", ok=not wrong and not misses, detail=detail)

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        model = properties(case, self.expected(case))
        rows = [{"what": what, "predicted": value} for what, value in model.items()]
        if measured:
            found = properties(case, outputs)
            rows = [row | {"measured": found[row["what"]]} for row in rows]
        return {
            "ptx": form_of(case).ptx,
            "pictures": [picture(form_of(case).mma.k, steps_of(case, outputs))],
            "properties": rows,
            "notes": notes(rows),
        }

    def conclude(self, case: Case, record: Record) -> str:
        rows = record.result["properties"]
        found = {row["what"]: row.get("measured", row["predicted"]) for row in rows}
        claim = f" (claimed for {case.arch}, not measured)" if record.result.get("unproven") else ""
        return (
            f"{case.dtype} into {case.acc}{claim}: a term keeps {found[KEPT]} fraction bits below the "
            f"largest exponent and loses the rest {found[LOST]}; products summed at once: {found[STEPS]}; "
            f"their sum is rounded {found[SUM]} to {found[RESULT]} fraction bits, a sum with C "
            f"{found[WITH_C]}.{emulation(case)}"
        )


def emulation(case: Case) -> str:
    """Say that these are the numbers of an emulation, and what has those of the type's own tensor core."""
    rule = rule_of(case)
    if not rule.operand:
        return ""
    own = f" The fp8 tensor core: --shape m64n8k{256 // BITS[case.dtype]}." if case.arch == "sm_90a" else ""
    return f" Emulated on {case.arch}: the numbers are those of {rule.operand} products.{own}"


def picture(k: int, steps: Steps) -> dict[str, Any]:
    """Return a grid of the products, each with the step in which it is added."""
    of = {product: number for number, step in enumerate(steps) for product in step}
    return {
        "title": "products along k: the step in which each is added",
        "cells": [[str(of.get(product, "?")) for product in range(k)]],
        "colours": [[of.get(product) for product in range(k)]],
        "row_names": ["step"],
        "column_names": [str(product) for product in range(k)],
    }


def notes(rows: list[dict[str, str]]) -> list[str]:
    """Return what the words of the table mean."""
    open_ended = [text for row in rows for text in row.values() if text.endswith("or more")]
    if not open_ended:
        return []
    return [f"{open_ended[0]}: the smallest term that is tried reaches so far down, and is kept whole."]


@dataclass(frozen=True)
class Form:
    """One instruction: of wgmma, ``mma`` describes the 16 rows that one warp holds."""

    mma: MmaForm
    wgmma: bool

    @property
    def shape(self) -> str:
        """As PTX names it."""
        return f"m64n8k{self.mma.k}" if self.wgmma else self.mma.shape

    @property
    def title(self) -> str:
        """As an error message lists it."""
        return f"{self.shape} {self.mma.a} {self.mma.acc}"

    @property
    def ptx(self) -> str:
        """The instruction's text up to its operands."""
        types = f"{self.mma.acc}.{self.mma.a}.{self.mma.b}"
        return f"wgmma.mma_async.sync.aligned.{self.shape}.{types}" if self.wgmma else self.mma.ptx

    @property
    def tail(self) -> str:
        """What follows the operands of wgmma: the factors' signs, and that 16-bit B is K-major."""
        return "1, 1, 0" if BITS[self.mma.a] == 16 else "1, 1"

    @property
    def stored(self) -> tuple[str, str, str]:
        """The types as which A, B and C are stored: a tf32 factor is an f32 whose low bits do not count."""
        factor = "f32" if self.mma.a == "tf32" else self.mma.a
        return factor, factor, self.mma.acc

    def registers(self, operand: str) -> int:
        """Return the 32-bit registers in each lane."""
        where = {"A": self.mma.a_map, "B": self.mma.b_map, "C": self.mma.c_map}[operand]
        return int(where.register.max()) + 1

    def runs_on(self, arch: str) -> bool:
        """Say whether an architecture has it."""
        return arch == "sm_90a" if self.wgmma else _number(arch) >= self.mma.minimum


def all_forms() -> Iterator[Form]:
    """Yield every form with two factors of one type."""
    for form in dense_forms():
        if form.a in TYPES and form.a == form.b and not form.volta:
            yield Form(form, wgmma=False)
    for dtype in TYPES:
        for acc in ("f32", "f16") if dtype in ("f16", "e4m3", "e5m2") else ("f32",):
            yield Form(MmaForm(16, 8, 32 * 8 // BITS[dtype], dtype, dtype, acc), wgmma=True)


def form_of(case: Case) -> Form:
    """Return the form of a legal case."""
    return next(form for form in all_forms() if form.title == _title(case))


def rule_of(case: Case) -> isa.Arithmetic:
    """Return how the instruction sums, as the model has it."""
    form = form_of(case)
    mma = form.mma
    if form.wgmma:
        return isa.wgmma_arithmetic(mma.a, mma.acc, mma.k)
    return isa.mma_arithmetic(mma.a, mma.acc, mma.k, _number(case.arch))


def _title(case: Case) -> str:
    return f"{case.shape} {case.dtype} {case.acc}"


def _number(arch: str) -> int:
    return int(arch.strip("sm_af"))


@dataclass(frozen=True)
class Trial:
    """One sum.

    Attributes:
        what: the property that it helps to measure.
        products: factors by their place along K; the others are 0.
        c: C.

    """

    what: str
    products: dict[int, Pair]
    c: float = 0.0

    @property
    def exact(self) -> float:
        """The sum without any rounding (of the trials that are looked at, float64 holds it)."""
        return self.c + sum(a * b for a, b in self.products.values())


def factors(exponent: int, times: float = 1.0) -> Pair:
    """Return two factors whose product is times * 2**exponent."""
    half = exponent // 2
    return times * 2.0 ** (exponent - half), 2.0**half


def minus(pair: Pair) -> Pair:
    """Return factors of the negative product."""
    return -pair[0], pair[1]


def trials(case: Case) -> list[Trial]:
    """Return every sum of known result, in the order in which the tiles hold them."""
    form = form_of(case)
    at_once = rule_of(case).steps(form.mma.k)[0][:4].tolist()
    return [
        *sweeps(at_once), *sweeps_of_exponents(case, at_once), *roundings(case, at_once),
        *groups(form.mma.k), *specials(form),
    ]  # fmt: skip


def sweeps(places: list[int]) -> Iterator[Trial]:
    """Yield, for each way of making them, large terms that cancel beside one of 1.5 * 2**(LARGE - j).

    Args:
        places: of four products that, if the model is right, are summed at once.

    """
    first, second, third, fourth = places
    large, half, c = factors(LARGE), factors(LARGE - 1), 2.0**LARGE
    carry = (1.5 * 2.0 ** (LARGE // 2), 1.5 * 2.0 ** (LARGE - LARGE // 2))
    for j in SWEEP:
        small = factors(LARGE - j, 1.5)
        yield Trial(KEPT, {first: large, second: minus(large), third: small})
        yield Trial(KEPT_C, {first: large, second: minus(large)}, 1.5 * 2.0 ** (LARGE - j))
        yield Trial(KEPT_BESIDE_C, {first: large, second: small}, -c)
        yield Trial(KEPT_BELOW_C, {first: minus(half), second: minus(half), third: small}, c)
        yield Trial(KEPT_CARRY, {first: carry, second: minus(carry), third: small})
        yield Trial(RESULT, {first: large, second: large, third: large, fourth: small}, c)


def sweeps_of_exponents(case: Case, places: list[int]) -> Iterator[Trial]:
    """Yield the sweep beside zero and beside subnormals that a large factor lifts, where it can be seen."""
    rule, dtype = rule_of(case), case.dtype
    subnormal = LEAST_EXPONENT[dtype] - FRACTION_BITS[dtype]
    top = LEAST_EXPONENT[rule.operand or dtype] + TOP[dtype]  # if 0 has the exponent of the least normal
    smallest = 2 * subnormal + 1
    if case.acc == "f16":
        smallest = max(smallest, LEAST_EXPONENT["f16"] - FRACTION_BITS["f16"] + 1)
    if top - rule.fraction_bits - 1 < smallest:
        return
    first, second, third, _ = places
    lifted = (2.0**subnormal, 2.0 ** TOP[dtype])
    for j in SWEEP:
        if top - j >= smallest:
            small = factors(top - j, 1.5)
            yield Trial(KEPT_ZERO, {first: (0.0, lifted[1]), second: small})
            yield Trial(KEPT_SUBNORMAL, {first: lifted, second: minus(lifted), third: small})


def roundings(case: Case, places: list[int]) -> Iterator[Trial]:
    """Yield sums of 2**(LARGE + 1) and 0 to 15 quarters of the result's last bit."""
    first, second, third, fourth = places
    large, last = factors(LARGE), LARGE + 1 - rule_of(case).result_bits
    for quarters in range(16):
        more = {third: factors(last, quarters // 4), fourth: factors(last - 2, quarters % 4)}
        yield Trial(SUM, {first: large, second: large, **more})
        yield Trial(WITH_C, {first: large, **more}, 2.0**LARGE)
    if case.dtype == "tf32":
        yield Trial(TF32, {first: (1 + 8191 / 2**23, 1.0)})


def groups(k: int) -> Iterator[Trial]:
    """Yield, for neighbours that cancel and each four others, a sum that shows which of the four it spared.

    A term is spared if it is added in a later step than both neighbours.
    """
    large = factors(GROUPED)
    for pair in range(0, k, 2):
        for first in range(0, k, 4):
            others = {i: factors(SMALL + i % 4) for i in range(first, first + 4)}
            yield Trial(STEPS, others | {pair: large, pair + 1: minus(large)})


def specials(form: Form) -> Iterator[Trial]:
    """Yield sums with signed zeros, infinities and NaN, and sums too large or too small for the result."""
    mma, k = form.mma, form.mma.k
    infinity, nan = (np.inf, 1.0), (np.nan, 1.0)
    yield Trial("-0 x K, C = -0", dict.fromkeys(range(k), (-0.0, 1.0)), -0.0)
    yield Trial("+0 x K, C = -0", dict.fromkeys(range(k), (0.0, 1.0)), -0.0)
    yield Trial("1 - 1", {0: (1.0, 1.0), 1: (-1.0, 1.0)})
    yield Trial("C = inf", {}, np.inf)
    yield Trial("C = NaN", {}, np.nan)
    yield Trial("NaN x 1", {0: nan})
    if mma.a != "e4m3":
        yield Trial("inf x 1", {0: infinity})
        yield Trial("inf x 0", {0: (np.inf, 0.0)})
        yield Trial("inf - inf", {0: infinity, 1: minus(infinity)})
        yield Trial("inf, C = -inf", {0: infinity}, -np.inf)
    if mma.acc == "f16":
        yield Trial("C = 65504, + 8", {0: factors(3)}, 65504.0)
        yield Trial("C = 65504, + 16", {0: factors(4)}, 65504.0)
        if mma.a != "e4m3":
            yield Trial("1.5 x 2^-25", {0: factors(-25, 1.5)})
            yield Trial("2^-25", {0: factors(-25)})
    else:
        yield Trial("C = 2^-149", {}, 2.0**-149)
    if TOP[mma.a] > 100:
        largest = float(np.finfo(np.float32).max)
        yield Trial("largest C + its last bit", {0: factors(104)}, largest)
        yield Trial("largest C + half its last bit", {0: factors(103)}, largest)
        yield Trial("2^200", {0: factors(200)})
        yield Trial("2^200 - 2^200 + 1", {0: factors(200), 1: minus(factors(200)), 2: (1.0, 1.0)})
        yield Trial("2^128 - 2^127", {0: factors(128), 1: minus(factors(127))})
        yield Trial("C = 1.5 x 2^-126, 2^-126 less", {0: minus(factors(-126))}, 1.5 * 2.0**-126)
        yield Trial("1.5 x 2^-149", {0: factors(-149, 1.5)})
        yield Trial("2^-150", {0: factors(-150)})


def data_of(case: Case) -> tuple[Reals, Reals, Reals]:
    """Return A, B and C of every tile: the trials, then random numbers.

    Trial i of a tile lies on the diagonal: row i of A, column i of B. Row i + 8 of A holds the negatives.
    """
    form, sums = form_of(case), trials(case)
    tiles, k = -(-len(sums) // 8), form.mma.k
    a, b, c = np.zeros((tiles, 16, k)), np.zeros((tiles, k, 8)), np.zeros((tiles, 16, 8))
    for index, trial in enumerate(sums):
        tile, i = divmod(index, 8)
        for place, (left, right) in trial.products.items():
            a[tile, [i, i + 8], place], b[tile, place, i] = (left, -left), right
        c[tile, [i, i + 8], i] = trial.c, 0.0 - trial.c
    drawn = random_tiles(form)
    a, b, c = (np.concatenate(pair) for pair in zip((a, b, c), drawn, strict=True))
    return a, b, c


def random_tiles(form: Form) -> list[Reals]:
    """Return A, B and C of four tiles: two of normal numbers, two of numbers of very different size."""
    draw, k = np.random.default_rng(20), form.mma.k
    spread = 4 if form.mma.acc == "f16" else 6 if form.mma.a == "e4m3" else 10
    found = []
    for (rows, cols), dtype in zip(((16, k), (k, 8), (16, 8)), form.stored, strict=True):
        normal = draw.normal(size=(2, rows, cols))
        wide = draw.normal(size=(2, rows, cols)) * np.exp2(draw.uniform(-spread, spread, (2, rows, cols)))
        found.append(nearest(np.concatenate([normal, wide]), dtype))
    return found


def nearest(values: Reals, dtype: str) -> Reals:
    """Return the numbers of a type nearest to ``values``, which are well inside its range."""
    exponents = np.maximum(np.frexp(values)[1] - 1, LEAST_EXPONENT[dtype])
    last = FRACTION_BITS[dtype] - exponents
    return np.asarray(np.ldexp(np.rint(np.ldexp(values, last)), -last))


def bits_of(values: Reals, dtype: str) -> NDArray[np.uint64]:
    """Return the bits of numbers of a type, of -0, infinities and NaN too."""
    infinity, nan = NOT_FINITE[dtype]
    words = encode(np.abs(np.where(np.isfinite(values), values, 0.0)), dtype)
    words = np.select([np.isnan(values), np.isinf(values)], [np.uint64(nan), np.uint64(infinity)], words)
    return words | np.signbit(values).astype(np.uint64) << np.uint64(BITS[dtype] - 1)


def computed(case: Case, rules: Iterable[isa.Arithmetic]) -> Iterator[NDArray[np.uint64]]:
    """Yield the bits of D of every tile, under each of the rules."""
    form = form_of(case)
    a, b, c = data_of(case)
    a, b = (isa.operands(bits_of(m, form.stored[0]), form.mma.a) for m in (a, b))
    for rule in rules:
        yield isa.multiply_add(a, b, c, form.mma.a, form.mma.acc, rule)


def packed(where: Any, words: NDArray[np.uint64], registers: int) -> NDArray[np.uint32]:
    """Return the registers that hold each tile's elements."""
    tiles = (where.pack(tile[where.place["row"], where.place["col"]], registers) for tile in words)
    return np.stack(list(tiles)).astype(np.uint32)


def in_memory(words: NDArray[np.uint64], form: Form) -> NDArray[np.uint32]:
    """Return B of each tile as shared memory holds it for wgmma: two core matrices, 8 columns x 16 bytes."""
    unsigned = {8: np.uint8, 16: np.uint16, 32: np.uint32}[BITS[form.mma.b]]
    columns = np.swapaxes(words, 1, 2).astype(unsigned).reshape(len(words), 8, 2, -1)
    return np.ascontiguousarray(np.swapaxes(columns, 1, 2)).reshape(len(words), -1).view(np.uint32)


def words_of(case: Case, outputs: Arrays) -> NDArray[np.uint64]:
    """Return the bits of D, shape [tiles, 16, 8]."""
    where = form_of(case).mma.c_map
    words = np.zeros((len(outputs["d"]), 16, 8), dtype=np.uint64)
    for tile, registers in zip(words, outputs["d"], strict=True):
        tile[where.place["row"], where.place["col"]] = where.slots_of(registers)
    return words


def results(case: Case, outputs: Arrays) -> dict[str, Rows]:
    """Return, by property, each trial with its result and that of its negative."""
    with np.errstate(invalid="ignore"):  # a signalling NaN, which only broken silicon or memory answers
        values = decode(words_of(case, outputs), case.acc).tolist()
    found: dict[str, Rows] = {}
    for index, trial in enumerate(trials(case)):
        tile, i = divmod(index, 8)
        found.setdefault(trial.what, []).append((trial, values[tile][i][i], values[tile][i + 8][i]))
    return found


def properties(case: Case, outputs: Arrays) -> dict[str, str]:
    """Return what the outputs say of each property."""
    found = results(case, outputs)
    beside = found.pop(KEPT)
    rows = {KEPT: bits_kept(beside), LOST: direction(beside)}
    rows |= {what: bits_kept(found.pop(what)) for what in SWEPT if what in found}
    rows |= {RESULT: bits_kept(found.pop(RESULT), above=2)}
    rows |= {what: direction(found.pop(what)) for what in (SUM, WITH_C)}
    rows |= {STEPS: in_words(in_steps(found.pop(STEPS), form_of(case).mma.k))}
    return rows | {what: f"{row[0][1]:.9g}, negated {row[0][2]:.9g}" for what, row in found.items()}


def bits_kept(rows: Rows, above: int = 0) -> str:
    """Return the fraction bits below 2**(exponent of the large terms + above) of the last exact result.

    The third term of the sweep, 1.5 * 2**-j relative to the large ones, ends j + 1 bits below them.
    """
    inexact = [index for index, (trial, result, _) in enumerate(rows) if result != trial.exact]
    bits = SWEEP.start + (inexact[0] if inexact else len(rows)) + above
    return str(bits) if inexact else f"{bits} or more"


def direction(rows: Rows) -> str:
    """Return how the results that are not exact were rounded; each comes with that of the negated sum."""
    errors = [(result - trial.exact, -negated - trial.exact) for trial, result, negated in rows]
    errors = [pair for pair in errors if any(pair)]
    if not errors:
        return "not at all"
    if all(error < 0 and negated < 0 for error, negated in errors):
        return TOWARD_ZERO
    if all(error <= 0 <= negated for error, negated in errors):
        return DOWNWARD
    both_ways = min(errors)[0] < 0 < max(errors)[0]
    return NEAREST if both_ways and all(a == b for a, b in errors) else "in some other way"


def steps_of(case: Case, outputs: Arrays) -> Steps:
    """Return which products are summed at once, in the order of the steps; [] where they are in no order."""
    return in_steps(results(case, outputs)[STEPS], form_of(case).mma.k)


def in_steps(rows: Rows, k: int) -> Steps:
    """Return the steps that these results of ``groups`` show."""
    earlier = [0] * k  # of each product: the pairs of neighbours that were added in earlier steps
    for index, (_, result, _) in enumerate(rows):
        spared = result * 2.0**-SMALL
        if spared not in range(16):
            return []
        for i in range(4):
            earlier[index % (k // 4) * 4 + i] += int(spared) >> i & 1
    return [[i for i in range(k) if earlier[i] == count] for count in sorted(set(earlier))]


def in_words(steps: Steps) -> str:
    """Return "0-7, then 8-15", or of steps that take two of each four products just those of the first."""
    if not steps:
        return "in no order of steps: other terms are left than any order leaves"
    firsts = [[i for i in step if i < 4] for step in steps]
    if (
        len(steps) == 2
        and all(firsts)
        and all({i % 4 for i in s} == set(f) for s, f in zip(steps, firsts, strict=True))
    ):
        return " of each four, then ".join(spans(step) for step in firsts)
    return ", then ".join(spans(step) for step in steps)


def stated(case: Case) -> dict[str, str]:
    """Return the properties that the model's rule names outright."""
    rule = rule_of(case)
    return {
        KEPT: str(rule.fraction_bits),
        LOST: rule.alignment,
        RESULT: str(rule.result_bits),
        SUM: rule.rounding,
        WITH_C: NEAREST if rule.adds_c_last else rule.rounding,
        STEPS: in_words([step.tolist() for step in rule.steps(form_of(case).mma.k)]),
    }


def missed(case: Case, outputs: Arrays, rules: Iterable[isa.Arithmetic]) -> list[int]:
    """Return how many results each of the rules does not explain."""
    found = words_of(case, outputs)
    return [int((found != words).sum()) for words in computed(case, rules)]


def fitted(case: Case, outputs: Arrays) -> list[dict[str, Any]]:
    """Return the way from the model's rule to the one that explains most results, a change at a time."""
    k, rule = form_of(case).mma.k, rule_of(case)
    (misses,) = missed(case, outputs, [rule])
    path: list[dict[str, Any]] = [{"misses": misses, "rule": str(rule)}]
    while misses:
        rules = list(isa.neighbours(rule, case.acc, k))
        tried = missed(case, outputs, rules)
        if min(tried) >= misses:
            break
        misses, rule = min(tried), rules[tried.index(min(tried))]
        path.append({"misses": misses, "rule": str(rule)})
    return path
