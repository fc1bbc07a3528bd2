"""Which warp, lane and register holds what after wgmma, and where in shared memory does it read A and B?

Method: the host lays A and B out in shared memory as a descriptor says, and poisons all other bytes; one
kernel multiplies them and writes its accumulators. In most experiments one operand holds its own rows or
columns as numbers and the other selects: D then shows which element was read from each place. In the last one
all elements are small integers, whose sum is exact. The accumulators hold NaN before.
Counting: one warpgroup (four warps), or two of them; offsets in shared memory are bytes.
Source: PTX ISA, "Asynchronous warpgroup-level matrix instructions".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, bits_of, option
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
from ptxlab.layout.tile import spans

POISON = 0xFF  # NaN in every floating-point type
ALIGNMENT = 1024  # where the swizzle pattern begins anew
MOST_STEPS = 8  # of 8-bit types: 256 columns of A, which a coordinate still names
LEAST_SHARED = 1 << 15  # so that with strides unlike the model's, bytes of the block are read and none beyond
LEFT_OUT = -1
NOT_MODELLED = ("b1",)
USUAL_SWIZZLE = "128B"

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
    hints = dict.fromkeys(
        "AB", "it is in shared memory: layout where tells its bytes; --a reg is for A alone"
    )

    shape = option("", metavar="mMnNkK", help="m64n8k16 to m64n256k16; left out: N is 64")
    dtype = option("f16", choices=(*isa.ACCUMULATORS, *NOT_MODELLED), help="type of A; b1 is not modelled")
    dtype_b = option("", choices=tuple(isa.ACCUMULATORS), help="type of B; left out: A's")
    acc = option("", choices=("f32", "f16", "s32"), help="type of D; left out: f32, or s32 of integers")
    a = option("smem", choices=("smem", "reg"), help="where A comes from")
    major = option("K", choices=("K", "MN"), help="along what A is contiguous in shared memory")
    major_b = option("", choices=("K", "MN"), help="and B; left out: as A in shared memory")
    trans_a = option(default=False, help="what PTX calls it: --major MN, and B K-major")
    trans_b = option(default=False, help="what PTX calls it: --major-b MN")
    swizzle = option(USUAL_SWIZZLE, choices=tuple(memory.SPANS), help="swizzle of both operands")
    k_step = option(1, metavar="N", help="instructions along K, the descriptors advancing")
    warpgroups = option(1, choices=(1, 2), help="each multiplies 64 rows of its own by the same B")
    lbo = option(
        LEFT_OUT, metavar="BYTES", help="LBO of the descriptors; left out: as the data lies", maps=False
    )
    sbo = option(
        LEFT_OUT, metavar="BYTES", help="SBO of the descriptors; left out: as the data lies", maps=False
    )
    layout = option(
        "",
        metavar="ATOM",
        help="take shape and types from a CUTLASS name: SM90_64x64x16_F32F16F16_SS",
        alias="--atom",
    )
    desc = option(default=False, help="show the descriptors of every step, and no more", maps=False)
    k_advance = option(
        default=False,
        help=f"show how far descriptors advance along K ({MOST_STEPS} steps, or --k-step), and no more",
        maps=False,
    )
    throughput = option(
        default=False,
        help="show how many cycles one takes where many run, and no more",
        maps=False,
        leads_to="wgmma-throughput",
    )
    decode_desc = option("", metavar="0x…", help="decode 64 bits and judge them as a descriptor", maps=False)
    decode_as = option(
        "A", choices=("A", "B"), help="of which operand --decode-desc is judged as one", maps=False
    )

    def complete(self, params: dict[str, Value]) -> None:
        """Write every point in one way, whichever way it was typed, so that it finds its recording."""
        if params["dtype"] in NOT_MODELLED:
            raise UsageError(
                f"wgmma of {params['dtype']} exists (m64nNk256, and.popc) and is not modelled here; "
                f"modelled: {', '.join(isa.ACCUMULATORS)}",
                "ptxlab layout support --only wgmma shows what it becomes",
            )
        transposes(params)
        if params["layout"]:
            params |= of_atom(str(params["layout"]), params["shape"])
        dtype = str(params["dtype"])
        params["shape"] = params["shape"] or f"m64n64k{256 // BITS[dtype]}"
        for name, usual in (("dtype_b", dtype), ("acc", isa.ACCUMULATORS[dtype][0])):
            params[name] = "" if params[name] == usual else params[name]

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
                    f"{laid(case, name)} and read up to byte {addresses.max()}; legal: within the "
                    f"{image_bytes(case)} bytes that hold A and B",
                    "--desc without --lbo and --sbo shows the strides of this layout",
                )

    def identity(self, case: Case) -> Hashable:
        words = tuple(d.word for of_step in descriptors(case) for pair in of_step for d in pair)
        return form_of(case), case.k_step, case.warpgroups, case.swizzle, words

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
        form, d = form_of(case), product(case)
        return {"accumulators": form.d_map.pack(d.reshape(len(d), case.warpgroups, M, form.n))}

    def examine(self, case: Case, outputs: Arrays, record: Record) -> None:
        told = strayed(case, outputs) if goes_astray(case) else {}
        d = results(case, outputs)
        for name in ("A", "B"):
            ok, detail = told[name] if told else held(trials(case).shown(name, d))
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
            "formulas": formulas(case),
            "shapes": {
                "A": {"rows": rows, "cols": k},
                "B": {"rows": k, "cols": form.n},
                "D": {"rows": rows, "cols": form.n},
            },
            "shared": placed(case),
            "pictures": atoms(case),
            "flop": 2 * M * form.n * form.k,
            "rules": [{"instruction": name, "rule": rule} for name, rule in RULES.items()],
            "notes": [] if form.a_in_registers else ["--a reg shows A in registers."],
        }
        return result | asked_for(case)

    def conclude(self, case: Case, record: Record) -> str:
        if case.decode_desc:
            return verdict(case)
        wrong = [each for each in record.checks if each["name"].startswith("elements") and not each["ok"]]
        if wrong:
            first, *rest = wrong
            more = "".join(f"; {each['name']}: {each['detail']}" for each in rest)
            return f"Other {first['name']} are read than were meant: {first['detail']}{more}."
        half = form_of(case).acc == "f16"
        index, columns = ("2j + h", "columns 8j + 2t and 8j + 2t + 1") if half else (
            "4j + 2h + e", "column 8j + 2t + e"
        )  # fmt: skip
        strides = " and ".join(laid(case, name) for name in operands(case))
        if "shown" in record.result:
            return f"In shared memory {strides}.{advance(case) if case.k_advance else ''}"
        groups = f"; the second warpgroup's are {M} rows further down" if case.warpgroups > 1 else ""
        atom_name = f"{isa.explain_atom(case.layout)} " if case.layout else ""
        return (
            f"{atom_name}Warp w holds rows 16w to 16w + 15 of D{groups}: register {index} of lane 4g + t is "
            f"row 16w + 8h + g, {columns}. In shared memory {strides}."
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


def transposes(params: dict[str, Value]) -> None:
    """Put in the majors that --trans-a and --trans-b stand for; a contradiction is refused.

    Raises:
        UsageError: --major-b K beside --trans-b.

    """
    if params["trans_b"] and params["major_b"] == "K":
        raise UsageError("--trans-b is --major-b MN, and --major-b says K", "leave one of them out")
    if params["trans_a"] and params["major"] != "MN":
        params |= {"major": "MN", "major_b": params["major_b"] or "K"}
    if params["trans_b"]:
        params["major_b"] = "MN"


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
    found = bits_of(case.decode_desc)
    if not 0 <= found < 1 << 64:
        raise UsageError(f"'{case.decode_desc}' is no descriptor; legal: 64 bits, such as 0x4000004000010040")
    return found


def lint(case: Case) -> list[str]:
    """Return what is wrong with the descriptor to decode, taken as one of A or B."""
    form, word = form_of(case), word_of(case)
    rows, dtype, major = (
        (M, form.a, form.a_major) if case.decode_as == "A" else (form.n, form.b, form.b_major)
    )
    swizzle = Descriptor.of(word).swizzle
    asked = case.swizzle not in (USUAL_SWIZZLE, swizzle)  # the usual one may just have been left out
    problems = [f"its swizzle is {swizzle}, expected {case.swizzle}"] if asked else []
    return problems + memory.lint(word, rows=rows, k=form.k, bits=BITS[dtype], major=major)


def verdict(case: Case) -> str:
    """Return the sentence on the descriptor to decode."""
    form, swizzle = form_of(case), Descriptor.of(word_of(case)).swizzle
    major = form.a_major if case.decode_as == "A" else form.b_major
    sound = f"{case.decode_desc} is a sound {major}-major descriptor of {case.decode_as}, swizzle {swizzle}."
    return "; ".join(lint(case)) or sound


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


def product(case: Case) -> Words:
    """Return the bits of D of each trial, [trial, m, n], out of what the descriptors read."""
    form = form_of(case)
    a, b = decode(read(case, "A"), form.a), decode(read(case, "B"), form.b)
    return isa.accumulator_bits(a.astype(np.float64) @ b.astype(np.float64).swapaxes(1, 2), form.acc)


def held(codes: Ints) -> tuple[bool, str]:
    """Say whether each element of an operand was read from where the model has it."""
    row, col = np.indices(codes.shape)
    wrong = np.argwhere(codes != (row << 8 | col)).tolist()
    if not wrong:
        return True, f"all {codes.size} were read from their places"
    first = "; ".join(f"[{r},{c}] shows [{codes[r, c] >> 8},{codes[r, c] & 255}]" for r, c in wrong[:8])
    return False, f"{len(wrong)} of {codes.size} differ: {first}"


def goes_astray(case: Case) -> bool:
    """Say whether strides of the user's make the descriptors read elsewhere than the elements lie."""
    meant = reads(case, as_laid=True)
    return any((addresses != meant[name]).any() for name, addresses in reads(case).items())


def strayed(case: Case, outputs: Arrays) -> dict[str, tuple[bool, str]]:
    """Say of each operand which elements are read from elsewhere, and which strides were to be expected.

    D shows elements of one operand as the other selects them, and wrong strides damage both at once. So D is
    not decoded here: it must be, bit for bit, the product of what the addresses of the descriptors hold.
    """
    if not np.array_equal(results(case, outputs), product(case)):
        lost = (
            False,
            "D is not the product of what these descriptors read, so nothing tells where it was read",
        )
        return {"A": lost, "B": lost}
    return {name: astray(case, name) for name in ("A", "B")}


def astray(case: Case, name: str) -> tuple[bool, str]:
    """Say whether the descriptors of an operand read all of its elements where they lie."""
    if name not in operands(case):
        return True, "none is read from shared memory"
    read, lies = reads(case)[name], reads(case, as_laid=True)
    wrong = np.argwhere(read != lies[name])
    if not len(wrong):
        return True, f"all {read.size} were read from their places"
    places = wrong if name == "A" else wrong[:, ::-1]  # rows of B are k
    row, col = places[0].tolist()
    where = f"rows {spans(places[:, 0].tolist())}, columns {spans(places[:, 1].tolist())}"
    source = resident(case, int(read[tuple(wrong[0])]))
    return False, (
        f"{len(wrong)} of {read.size} are read from elsewhere ({where}); "
        f"{', '.join(expected_strides(case, name))}; [{row},{col}] is read from {source}"
    )


def resident(case: Case, address: int) -> str:
    """Return what begins at an address of shared memory."""
    for name, lies in reads(case, as_laid=True).items():
        found = np.argwhere(lies == address).tolist()
        if found:
            outer, k = found[0]
            return f"the place of {name}[{outer},{k}]" if name == "A" else f"the place of {name}[{k},{outer}]"
    return "between the elements"


def expected_strides(case: Case, name: str) -> list[str]:
    """Return which of the strides that matter are not those of the layout."""
    given, own = descriptor(case, name, 0), operands(case)[name]
    strides = [("SBO", given.sbo, own.sbo)]
    strides += [("LBO", given.lbo, own.lbo)] if own.uses_lbo else []
    return [
        f"{which} is {value}, expected {which} {meant}" for which, value, meant in strides if value != meant
    ]


def entries(case: Case, where: isa.WarpgroupMap, values: Ints | None) -> list[dict[str, int]]:
    """Return a map's entries for each warpgroup."""
    groups = range(case.warpgroups) if case.warpgroups > 1 else (None,)
    return [entry for group in groups for entry in where.entries(values, group)]


def formulas(case: Case) -> dict[str, dict[str, str]]:
    """Return the closed forms: of registers, and of bytes in shared memory."""
    found = isa.formulas(form_of(case))
    if case.warpgroups > 1:
        for each in found.values():
            each |= {"row": f"{M} * warpgroup + {each['row']}", "warpgroup": f"row // {M}"}
            each["warp"] += f" % {isa.WARPS}"
    return found | in_memory(case)


def in_memory(case: Case) -> dict[str, dict[str, str]]:
    """Return the byte of each element of A and B in closed form; there is none with strides of the user's."""
    if (case.lbo, case.sbo) != (LEFT_OUT, LEFT_OUT):
        return {}
    names = {"A": ("row", "col"), "B": ("col", "row")}
    return {name: {"byte": operand.formula(*names[name])} for name, operand in operands(case).items()}


def placed(case: Case) -> dict[str, dict[str, Any]]:
    """Return the byte from which each element of A [m, k] and B [k, n] is read, and where they count from."""
    found = {}
    for name, operand in operands(case).items():
        offsets = reads(case)[name] - operand.start
        lies = f"{operand.major}-major, swizzle {operand.swizzle}, at a multiple of {alignment(operand)}"
        found[name] = {
            "bytes": (offsets if name == "A" else offsets.T).tolist(),
            "where": f"counted from the first of {name}, {lies}",
        }
    return found


def laid(case: Case, name: str) -> str:
    """Return how an operand lies, and which strides say so."""
    operand, own = operands(case)[name], descriptor(case, name, 0)
    lbo = own.lbo if operand.uses_lbo else "ignored"
    return f"{name} is {operand.major}-major (SBO {own.sbo}, LBO {lbo})"


def advance(case: Case) -> str:
    """Return what a step along K adds, and the first step that leaves the atom."""
    first, *rest = advances(case)[1:]
    told = []
    for name in operands(case):
        jump = next((row for row in rest if row[f"{name}_is"] != first[f"{name}_is"]), None)
        told.append(
            f"{name} + {first[name]} a step of {first['k']}"
            + (f", at step {jump['step']} {jump[name]} from the first" if jump else "")
        )
    return f" In units of 16 bytes: {'; '.join(told)}."


def alignment(operand: SharedOperand) -> int:
    """Return what the address of an operand must be a multiple of, so that its base offset is 0."""
    return UNIT if operand.swizzle == "none" else 8 * memory.SPANS[operand.swizzle]


def atoms(case: Case) -> list[dict[str, Any]]:
    """Return pictures of an atom of each operand, of both in one where they are the same."""
    found = [atom(operand) for operand in operands(case).values()]
    names = list(operands(case))
    if len(found) == 2 and found[0] == found[1]:
        found, names = found[:1], ["A and B"]
    return [
        {**each, "title": f"{name} in shared memory: {each['title']}"}
        for name, each in zip(names, found, strict=True)
    ]


def atom(operand: SharedOperand) -> dict[str, Any]:
    """Return the picture of eight lines in which the swizzle repeats: which 16 bytes of each lie where."""
    span, per_unit = memory.SPANS[operand.swizzle], 8 * UNIT // operand.bits
    address = UNIT * np.arange(8 * span // UNIT, dtype=np.int64)
    units = (memory.swizzled(address, operand.swizzle) % span // UNIT).reshape(8, -1).tolist()
    across, along = ("row", "k") if operand.major == "K" else ("k", "row")
    what = "core matrix" if operand.swizzle == "none" else f"{operand.swizzle} atom"
    return {
        "title": f"{what}, 8 lines of {span} bytes; a cell names the {along} in its 16 bytes",
        "cells": [[f"{unit * per_unit}-{(unit + 1) * per_unit - 1}" for unit in line] for line in units],
        "colours": [[4 * unit for unit in line] for line in units],
        "row_names": [f"{across} {line}, +{span * line}" for line in range(8)],
        "column_names": [f"+{UNIT * unit}" for unit in range(span // UNIT)],
    }


def asked_for(case: Case) -> dict[str, Any]:
    """Return what --desc, --k-advance and --decode-desc ask for; nothing else is shown then."""
    tables: dict[str, tuple[str, list[dict[str, Any]]]] = {}
    if case.desc:
        tables["descriptors"] = ("descriptors of the first instruction, field by field", described(case))
        tables["descriptor_words"] = (
            "the descriptors of every instruction: just the start changes",
            words(case),
        )
    if case.k_advance:
        title = "what to add to the start in the descriptor along K: the field counts 16 bytes"
        tables["k_advance"] = (title, advances(case))
    if case.decode_desc:
        title = f"{case.decode_desc} as a descriptor of {case.decode_as}"
        tables["decoded"] = (title, memory.fields(word_of(case)))
        tables["problems"] = ("what is wrong with it", [{"problem": each} for each in lint(case)])
    if not tables:
        return {}
    multiples = " or ".join(str(each) for each in sorted({alignment(o) for o in operands(case).values()}))
    rule = "the swizzle XORs absolute addresses, and the base offset is 0 there alone"
    return {name: rows for name, (_, rows) in tables.items()} | {
        "titles": {name: title for name, (title, _) in tables.items()},
        "shown": list(tables),
        "notes": [f"Operands begin at multiples of {multiples} bytes: {rule}."],
    }


def described(case: Case) -> list[dict[str, int | str]]:
    """Return the fields of the first descriptors; start addresses count from A's first byte."""
    rows: list[dict[str, int | str]] = []
    for name, operand in operands(case).items():
        word = descriptor(case, name, 0).word
        for each in memory.fields(word):
            note = "ignored" if each["field"] == "LBO" and not operand.uses_lbo else each["is"]
            rows.append({"operand": name, "descriptor": f"0x{word:016x}", **each, "is": note})
    return rows


def words(case: Case) -> list[dict[str, int | str]]:
    """Return the descriptors of each step and warpgroup, and where they start."""
    rows: list[dict[str, int | str]] = []
    for step, of_step in enumerate(descriptors(case)):
        for group, pair in enumerate(of_step):
            row: dict[str, int | str] = {"step": step, "warpgroup": group}
            for name, each in zip("AB", pair, strict=True):
                if name in operands(case):
                    row |= {name: f"0x{each.word:016x}", f"start of {name}": each.start}
            rows.append(row)
    return rows


def advances(asked: Case) -> list[dict[str, int | str]]:
    """Return how far the start address of each step lies from the first, in the field's units of 16 bytes.

    Where just one instruction runs, this is what as many as there may be would add.
    """
    steps = asked.k_step if asked.k_step > 1 else MOST_STEPS
    case = Case(asked.arch, asked.params | {"k_step": steps}, {})
    k, rows = form_of(case).k, list[dict[str, int | str]]()
    for step in range(case.k_step):
        row: dict[str, int | str] = {"step": step, "k": step * k}
        for name, operand in operands(case).items():
            start = descriptor(case, name, step).start - descriptor(case, name, 0).start
            row |= {name: start // UNIT, f"{name}_bytes": start, f"{name}_is": reached(operand, step * k)}
        rows.append(row)
    return rows


def reached(operand: SharedOperand, k: int) -> str:
    """Say where in the swizzle pattern a step along K begins."""
    along = k * operand.bits // 8
    if operand.major == "MN" or operand.swizzle == "none":
        return "the next core matrices" if k else "the start"
    span = memory.SPANS[operand.swizzle]
    if along % span:
        return "inside the atom"
    return f"atom {along // span}" if k else "the start"
