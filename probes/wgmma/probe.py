"""Which warp, lane and register holds what after wgmma, and where in shared memory does it read A and B?

Method: the host lays A and B out in shared memory as a descriptor says, and poisons all other bytes; one
kernel multiplies them and writes its accumulators. In most experiments one operand holds its own rows or
columns as numbers and the other selects: D then shows which element was read from each place. In the last one
all elements are small integers, whose sum is exact. The accumulators hold NaN before.
Counting: one warpgroup (four warps), or two of them; offsets in shared memory are bytes.
Source: PTX ISA, "Asynchronous warpgroup-level matrix instructions".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, option
from ptxlab.experiments.probe import Arrays, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import wgmma as isa
from ptxlab.isa import wgmma_descriptor as memory
from ptxlab.isa.numbers import Words, decode
from ptxlab.isa.registers import Ints
from ptxlab.isa.types import BITS
from ptxlab.isa.wgmma import M, WgmmaForm
from ptxlab.isa.wgmma_descriptor import UNIT, Descriptor, SharedOperand
from ptxlab.layout.selection import Products, products

POISON = 0xFF  # NaN in every floating-point type
ALIGNMENT = 1024  # where the swizzle pattern begins anew
MOST_STEPS = 8  # of 8-bit types: 256 columns of A, which a coordinate still names
LEAST_SHARED = 1 << 15  # so that with strides unlike the model's, bytes of the block are read and none beyond
LEFT_OUT = -1

RULES = {
    "wgmma.fence": "before the first wgmma, and after other instructions touched registers of the next one",
    "wgmma.commit_group": "makes a group of the wgmma issued so far; there is nothing to wait for before",
    "wgmma.wait_group N": "until at most N groups are unfinished: before registers of D or A are touched",
    "fence.proxy.async": "after ordinary stores to shared memory, then a barrier: else wgmma may miss them",
    "release of shared memory": "is not checked by anything: to overwrite A or B before the wait is silent",
    "advisories": "ptxas adds a missing fence or wait, some silently: no C7519 is no proof of a fence",
}


class WgmmaProbe(Probe):
    findings = ("descriptor",)

    shape = option("", metavar="mMnNkK", help="m64n8k16 to m64n256k16; left out: N is 64")
    dtype = option("f16", choices=tuple(isa.ACCUMULATORS), help="type of A")
    dtype_b = option("", choices=tuple(isa.ACCUMULATORS), help="type of B; left out: A's")
    acc = option("", choices=("f32", "f16", "s32"), help="type of D; left out: f32, or s32 of integers")
    a = option("smem", choices=("smem", "reg"), help="where A comes from")
    major = option("K", choices=("K", "MN"), help="along what A is contiguous in shared memory")
    major_b = option("", choices=("K", "MN"), help="and B; left out: as A in shared memory")
    swizzle = option("128B", choices=tuple(memory.SPANS), help="swizzle of both operands")
    k_step = option(1, metavar="N", help="instructions along K, the descriptors advancing")
    warpgroups = option(1, choices=(1, 2), help="each multiplies 64 rows of its own by the same B")
    lbo = option(LEFT_OUT, metavar="BYTES", help="LBO of the descriptors; left out: as the data lies")
    sbo = option(LEFT_OUT, metavar="BYTES", help="SBO of the descriptors; left out: as the data lies")
    layout = option("", metavar="ATOM", help="take shape and types from a CUTLASS name: SM90_64x64x16_…_SS")
    desc = option(default=False, help="show the fields of the descriptors")
    k_advance = option(default=False, help="show how far descriptors advance along K")
    decode_desc = option("", metavar="0x…", help="decode 64 bits and judge them as a descriptor of A")

    def complete(self, params: dict[str, Value]) -> None:
        """Write every point in one way, whichever way it was typed, so that it finds its recording."""
        if params["layout"]:
            params |= of_atom(str(params["layout"]), params["shape"])
        dtype = str(params["dtype"])
        params["shape"] = params["shape"] or f"m64n64k{256 // BITS[dtype]}"
        for name, usual in (("dtype_b", dtype), ("acc", isa.ACCUMULATORS[dtype][0])):
            params[name] = "" if params[name] == usual else params[name]
        if params["k_advance"] and params["k_step"] == 1:
            params["k_step"] = 8

    def check(self, case: Case) -> None:
        isa.check_form(form_of(case), case.arch)
        if not 1 <= case.k_step <= MOST_STEPS:
            raise UsageError(f"{case.k_step} steps along K; legal: 1 to {MOST_STEPS}")
        if case.decode_desc:
            word_of(case)
        for of_step in descriptors(case):
            _ = [each.word for pair in of_step for each in pair]  # refuses what no field holds
        for name, addresses in reads(case).items():
            if addresses.max() >= image_bytes(case):
                raise UsageError(
                    f"the descriptors of {name} (LBO {case.lbo}, SBO {case.sbo}) read up to byte "
                    f"{addresses.max()}; legal: within the {image_bytes(case)} bytes that hold A and B",
                    "--desc without --lbo and --sbo shows the strides of this layout",
                )

    def variants(self, arch: str) -> Iterator[Case]:
        if arch == "sm_90a":
            for params in (*every_n(), *every_type(), *every_layout(), *every_step()):
                yield self.case(arch, **params)

    def macros(self, case: Case) -> Macros:
        form = form_of(case)
        return {
            "N": form.n, "A_TYPE": form.a, "B_TYPE": form.b, "ACC": form.acc, "REGISTERS": form.registers,
            "A_REG": int(form.a_in_registers), "A_MN": int(form.a_major == "MN"),
            "B_MN": int(form.b_major == "MN"),
        }  # fmt: skip

    def claims(self, case: Case) -> dict[str, int]:
        sass = form_of(case).sass
        return {sass.partition(".")[0]: 1, sass: 1, "WARPGROUP.ARRIVE": 1, "WARPGROUP.DEPBAR.LE": 1}

    def inputs(self, case: Case) -> Arrays:
        pairs = [[[d.word for d in pair] for pair in of_step] for of_step in descriptors(case)]
        found: Arrays = {"memory": images(case), "descriptors": np.array(pairs, dtype=np.uint64)}
        return {**found, "fragments": fragments(case)} if case.a == "reg" else found

    def outputs(self, case: Case) -> dict[str, Output]:
        shape = (len(trials(case).trials), case.warpgroups, isa.WARPS, 32, form_of(case).registers)
        axes = ("trial", "warpgroup", "warp", "lane", "register")
        return {"accumulators": Output(shape, np.uint32, axes)}

    def geometry(self, case: Case) -> Geometry:
        nbytes = image_bytes(case)
        a = "fragments" if case.a == "reg" else "memory"  # not looked at where A lies in shared memory
        chunks, steps = np.uint32(nbytes // UNIT), np.uint32(case.k_step)
        return Geometry(
            arguments=("memory", "descriptors", a, "accumulators", chunks, steps),
            grid=(len(trials(case).trials), 1, 1),
            block=(128 * case.warpgroups, 1, 1),
            shared_bytes=max(nbytes + ALIGNMENT, LEAST_SHARED),
        )

    def expected(self, case: Case) -> Arrays:
        form = form_of(case)
        a, b = decode(read(case, "A"), form.a), decode(read(case, "B"), form.b)
        d = isa.accumulator_bits(a.astype(np.float64) @ b.astype(np.float64).swapaxes(1, 2), form.acc)
        return {"accumulators": form.d_map.pack(d.reshape(len(d), case.warpgroups, M, form.n))}

    def examine(self, case: Case, outputs: Arrays, record: Record) -> None:
        d = results(case, outputs)
        for name in ("A", "B"):
            ok, detail = held(trials(case).shown(name, d))
            record.check(f"elements of {name}", ok=ok, detail=detail)
        if case.decode_desc:
            problems = lint(case)
            record.check(
                "descriptor", ok=not problems, detail="; ".join(problems) or "nothing is wrong with it"
            )

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        form, d = form_of(case), results(case, outputs)
        rows, k = M * case.warpgroups, form.k * case.k_step
        result: dict[str, Any] = {"ptx": form.ptx}
        if form.a_in_registers:
            result["A"] = entries(case, form.a_map, trials(case).shown("A", d) if measured else None)
        result |= {
            "D": entries(case, form.d_map, trials(case).placed(d) if measured else None),
            "formulas": isa.formulas(form),
            "shapes": {
                "A": {"rows": rows, "cols": k},
                "B": {"rows": k, "cols": form.n},
                "D": {"rows": rows, "cols": form.n},
            },
            "rules": [{"instruction": name, "rule": rule} for name, rule in RULES.items()],
        }
        if case.desc:
            result["descriptors"] = described(case)
        if case.k_advance:
            result["k_advance"] = advances(case)
        if case.decode_desc:
            result["decoded"] = memory.fields(word_of(case))
            result["problems"] = [{"problem": each} for each in lint(case)]
        return result

    def conclude(self, case: Case, record: Record) -> str:
        if case.decode_desc:
            return "; ".join(lint(case)) or f"{case.decode_desc} is a sound {case.major}-major descriptor."
        wrong = [each for each in record.checks if each["name"].startswith("elements") and not each["ok"]]
        if wrong:
            return f"Other {wrong[0]['name']} are read than were meant: {wrong[0]['detail']}."
        half = form_of(case).acc == "f16"
        index, columns = ("2j + h", "columns 8j + 2t and 8j + 2t + 1") if half else (
            "4j + 2h + e", "column 8j + 2t + e"
        )  # fmt: skip
        groups = "; the second warpgroup's warps are 4 to 7" if case.warpgroups > 1 else ""
        b = operands(case)["B"]
        ignored = b.major == "K" and b.swizzle != "none"
        strides = f"SBO {descriptor(case, 'B', 0).sbo}, LBO {'ignored' if ignored else b.lbo}"
        return (
            f"Warp w holds rows 16w to 16w + 15 of D{groups}: register {index} of lane 4g + t is row "
            f"16w + 8h + g, {columns}. B lies {b.major}-major in shared memory ({strides})."
        )


def every_n() -> Iterator[dict[str, Value]]:
    """Yield every N of f16, and some of the other types."""
    yield from (_form(n, "f16") for n in isa.legal_n("f16"))
    yield from (_form(n, "f16", acc="f16") for n in (8, 32, 64, 256))
    yield from (_form(n, dtype) for dtype in ("bf16", "tf32", "e4m3") for n in (8, 24, 256))
    yield from (_form(n, "s8") for n in (8, 24, 48, 256))


def every_type() -> Iterator[dict[str, Value]]:
    """Yield every combination of types, A in shared memory and in registers."""
    for dtype, accumulators in isa.ACCUMULATORS.items():
        for dtype_b in next(f for f in (("e4m3", "e5m2"), ("s8", "u8"), (dtype,)) if dtype in f):
            for acc in accumulators:
                if (dtype, acc) not in (("f16", "f32"), ("f16", "f16")):  # among every_n() already
                    yield _form(32, dtype, dtype_b=dtype_b, acc=acc)
                yield _form(32, dtype, dtype_b=dtype_b, acc=acc, a="reg")
    yield from (_form(n, "f16", a="reg") for n in (8, 256))


def every_layout() -> Iterator[dict[str, Value]]:
    """Yield the majors and swizzles that a type has, and other LBOs where LBO is not looked at."""
    swizzles = tuple(memory.SPANS)
    for dtype, legal in (("f16", swizzles), ("bf16", ("128B",))):
        for swizzle in legal:
            majors = ((a, b) for a in ("K", "MN") for b in ("K", "MN"))
            yield from (_form(72, dtype, major=a, major_b=b, swizzle=swizzle) for a, b in majors)
    for dtype in ("tf32", "e4m3", "u8"):
        yield from (_form(32, dtype, swizzle=swizzle) for swizzle in ("none", "32B", "64B"))
    yield from (_form(72, "f16", a="reg", major_b="MN", swizzle=swizzle) for swizzle in swizzles)
    for swizzle in swizzles[1:]:
        yield from (_form(32, "f16", swizzle=swizzle, lbo=field * UNIT) for field in (0, 16))


def every_step() -> Iterator[dict[str, Value]]:
    """Yield several instructions along K, and two warpgroups."""
    yield from (_form(32, dtype, k_step=6) for dtype in ("e4m3", "tf32", "s8"))
    yield from (_form(32, "f16", k_step=5, swizzle=swizzle) for swizzle in memory.SPANS)
    yield from (_form(72, "f16", k_step=3, major="MN", swizzle=each) for each in memory.SPANS)
    yield _form(32, "bf16", k_step=5, a="reg")
    yield _form(256, "f16", k_step=8)
    yield from (_form(64, dtype, warpgroups=2) for dtype in ("f16", "e4m3"))
    yield _form(64, "bf16", warpgroups=2, a="reg")
    yield from (_form(64, "f16", warpgroups=2, major="MN", swizzle=each) for each in memory.SPANS)
    yield _form(64, "f16", warpgroups=2, k_step=5)


def _form(n: int, dtype: str, **more: Value) -> dict[str, Value]:
    return {"shape": f"m64n{n}k{256 // BITS[dtype]}", "dtype": dtype, **more}


def of_atom(name: str, shape: Value) -> dict[str, Value]:
    """Return the options that the name of an atom stands for."""
    found, form = isa.parse_atom(name)
    if shape not in ("", found):
        raise UsageError(f"{name} has shape {found}, --shape says {shape}", "leave --shape out")
    where = "reg" if form.a_in_registers else "smem"
    return {"shape": found, "dtype": form.a, "dtype_b": form.b, "acc": form.acc, "a": where}


@lru_cache(maxsize=256)
def form_of(case: Case) -> WgmmaForm:
    """Return the instruction's form."""
    acc = case.acc or isa.ACCUMULATORS[case.dtype][0]
    in_registers = case.a == "reg"
    major_b = case.major_b or ("K" if in_registers else case.major)
    form = WgmmaForm(M, case.dtype, case.dtype_b or case.dtype, acc, in_registers, case.major, major_b)
    return isa.parse_form(case.shape, form)


def word_of(case: Case) -> int:
    """Return the 64 bits to decode."""
    try:
        word = int(case.decode_desc, 0)
    except ValueError:
        word = -1
    if not 0 <= word < 1 << 64:
        raise UsageError(f"'{case.decode_desc}' is no descriptor; legal: 64 bits, such as 0x4000004000010040")
    return word


def lint(case: Case) -> list[str]:
    """Return what is wrong with the descriptor to decode, taken as one of A."""
    form = form_of(case)
    return memory.lint(word_of(case), rows=M, k=form.k, bits=BITS[form.a], major=form.a_major)


@lru_cache(maxsize=2)
def trials(case: Case) -> Products:
    """Return the products of a case: coordinates of A, of B, then small integers."""
    form = form_of(case)
    return products(M * case.warpgroups, form.n, form.k * case.k_step, (form.a, form.b, form.acc))


def results(case: Case, outputs: Arrays) -> Words:
    """Return the bits of D of each trial, [trial, m, n], out of the registers of all warpgroups."""
    form = form_of(case)
    return form.d_map.unpack(outputs["accumulators"]).reshape(-1, M * case.warpgroups, form.n)


def operands(case: Case) -> dict[str, SharedOperand]:
    """Return how A and B lie in shared memory: A first, if it is there."""
    form = form_of(case)
    k, found = form.k * case.k_step, {}
    start = 0
    if not form.a_in_registers:
        rows = M * case.warpgroups
        found["A"] = SharedOperand(0, rows, k, BITS[form.a], form.a_major, case.swizzle)
        start = -(-found["A"].nbytes // ALIGNMENT) * ALIGNMENT
    found["B"] = SharedOperand(start, form.n, k, BITS[form.b], form.b_major, case.swizzle)
    return found


def image_bytes(case: Case) -> int:
    """Return the bytes of shared memory that hold A and B."""
    last = operands(case)["B"]
    return last.start + last.nbytes


def descriptor(case: Case, name: str, step: int, row: int = 0) -> Descriptor:
    """Return the descriptor of an operand; the user's strides replace those of the layout."""
    own = operands(case)[name].descriptor(row, step * form_of(case).k)
    lbo = own.lbo if case.lbo == LEFT_OUT else case.lbo
    sbo = own.sbo if case.sbo == LEFT_OUT else case.sbo
    return Descriptor(own.start, lbo, sbo, own.swizzle)


def descriptors(case: Case) -> list[list[tuple[Descriptor, Descriptor]]]:
    """Return the pairs for A and B by step and warpgroup (B's twice where A comes in registers)."""
    found = []
    for step in range(case.k_step):
        b = descriptor(case, "B", step)
        rows = range(0, M * case.warpgroups, M)
        found.append([(descriptor(case, "A", step, row) if case.a == "smem" else b, b) for row in rows])
    return found


@lru_cache(maxsize=4)
def reads(case: Case, *, as_laid: bool = False) -> dict[str, Ints]:
    """Return the address of each element in shared memory, of A by [m, k], of B by [n, k].

    They are those that the descriptors read; or, ``as_laid``, where the host put the elements.
    """
    form, found = form_of(case), {}
    for name, operand in operands(case).items():
        rows = M if name == "A" else form.n
        tiles = [
            [
                operand.descriptor(first, step * form.k) if as_laid else descriptor(case, name, step, first)
                for step in range(case.k_step)
            ]
            for first in range(0, operand.rows, rows)
        ]
        found[name] = np.block([
            [each.addresses(rows, form.k, operand.bits, operand.major) for each in line] for line in tiles
        ])  # fmt: skip
    return found


@lru_cache(maxsize=2)
def images(case: Case) -> NDArray[np.uint8]:
    """Return shared memory of each trial: the elements where they lie, poison everywhere else."""
    own = trials(case)
    found = np.full((len(own.trials), image_bytes(case)), POISON, dtype=np.uint8)
    for name, addresses in reads(case, as_laid=True).items():
        words = own.a if name == "A" else own.b.swapaxes(1, 2)
        for byte in range(operands(case)[name].bits // 8):
            found[:, addresses + byte] = (words >> np.uint64(8 * byte)).astype(np.uint8)
    return found


def read(case: Case, name: str) -> Words:
    """Return the bits of A [trial, m, k] or B [trial, n, k] as the instruction receives them."""
    if name == "A" and case.a == "reg":
        return trials(case).a
    addresses = reads(case)[name]
    found = images(case)[:, addresses].astype(np.uint64)
    for byte in range(1, operands(case)[name].bits // 8):
        found |= images(case)[:, addresses + byte].astype(np.uint64) << np.uint64(8 * byte)
    return found


def fragments(case: Case) -> NDArray[np.uint32]:
    """Return A in registers: [trial, step, warpgroup, warp, lane, register]."""
    form, a = form_of(case), trials(case).a
    tiles = a.reshape(len(a), case.warpgroups, M, case.k_step, form.k).transpose(0, 3, 1, 2, 4)
    return form.a_map.pack(tiles)


def held(codes: Ints) -> tuple[bool, str]:
    """Say whether each element of an operand was read from where the model has it."""
    row, col = np.indices(codes.shape)
    wrong = np.argwhere(codes != (row << 8 | col)).tolist()
    if not wrong:
        return True, f"all {codes.size} were read from their places"
    first = "; ".join(f"[{r},{c}] shows [{codes[r, c] >> 8},{codes[r, c] & 255}]" for r, c in wrong[:8])
    return False, f"{len(wrong)} of {codes.size} differ: {first}"


def entries(case: Case, where: isa.WarpgroupMap, values: Ints | None) -> list[dict[str, int]]:
    """Return a map's entries for each warpgroup."""
    return [entry for group in range(case.warpgroups) for entry in where.entries(values, group)]


def described(case: Case) -> list[dict[str, int | str]]:
    """Return the fields of the first descriptors; start addresses count from A's first byte."""
    rows: list[dict[str, int | str]] = []
    for name, operand in operands(case).items():
        word = descriptor(case, name, 0).word
        ignored = operand.major == "K" and operand.swizzle != "none"
        for each in memory.fields(word):
            note = "ignored" if ignored and each["field"] == "LBO" else each["is"]
            rows.append({"operand": name, "descriptor": f"0x{word:016x}", **each, "is": note})
    return rows


def advances(case: Case) -> list[dict[str, int]]:
    """Return how far the start address of each step lies from the first, in the field's units of 16 bytes."""
    names = operands(case)
    k = form_of(case).k
    return [
        {"step": step, "k": step * k}
        | {n: (descriptor(case, n, step).start - descriptor(case, n, 0).start) // UNIT for n in names}
        for step in range(case.k_step)
    ]
