"""The instruction forms whose support is asked for, each as a small kernel in PTX that holds just it.

The operands of a form are written as a template of words: a letter for the kind of register, and a number
for a vector of so many ("o4, i4, i2, i4" is an mma). Inputs are loaded and outputs stored, so that nothing is
folded away. Source of the forms: PTX ISA 9.0, the chapters of the instructions named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ptxlab.isa import ldmatrix, mma, mma_sparse, stmatrix, wmma
from ptxlab.isa.registers import RegisterMap

PTX_VERSION = "9.0"
"""What the oldest compiler of the 13 series assembles."""

_WORD = re.compile(r"\b([ioruIOpq])(\d*)\b")
_TYPES = {"i": "b32", "o": "b32", "r": "b32", "I": "b64", "O": "b64", "p": "pred", "q": "pred"}
_INPUTS, _OUTPUTS = "irIp", "orOq"


@dataclass(frozen=True)
class Form:
    """One form of an instruction.

    Attributes:
        instruction: the name it is listed under: "mma", "ldmatrix", ...
        ptx: its text up to the operands.
        operands: words of "i" (32-bit input), "o" (output), "r" (both), "I", "O" (64 bits), "p" (input
            predicate), "q" (output predicate), a number after one makes a vector; all else is PTX.
        families: the SASS families that are the instruction itself; () for those of the tensor cores.
        before: PTX that must run before it.
        after: PTX that must run after it.
        note: what tells it from another form with the same text.

    """

    instruction: str
    ptx: str
    operands: str
    families: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    note: str = ""

    @property
    def label(self) -> str:
        """How the form is called in a list: no two forms are called alike."""
        return f"{self.ptx} ({self.note})" if self.note else self.ptx

    def kernel(self, name: str) -> tuple[list[str], int]:
        """Return the lines of a kernel that runs the form once, and the index of its line among them."""
        used: list[tuple[str, str]] = []  # register, kind

        def registers(match: re.Match[str]) -> str:
            kind, number = match.groups()
            first = sum(1 for _, each in used if each == kind)
            names = [f"%{kind}{first + each}" for each in range(int(number or 1))]
            used.extend((each, kind) for each in names)
            return "{" + ", ".join(names) + "}" if number else names[0]

        operands = _WORD.sub(registers, self.operands)
        head = [f".visible .entry {name}(.param .u64 data) {{", ".reg .b32 %t;", ".reg .b64 %at;"]
        head += [
            f".reg .{kind} %{letter}<{len(used) + 1}>;"
            for letter, kind in _TYPES.items()
            if any(each == letter for _, each in used)
        ]
        head += ["ld.param.u64 %at, [data];", "cvta.to.global.u64 %at, %at;"]
        inputs = [(place, *each) for place, each in enumerate(used) if each[1] in _INPUTS]
        outputs = [(place, *each) for place, each in enumerate(used) if each[1] in _OUTPUTS]
        head += [line for each in inputs for line in _load(*each)]
        head += [self.before] if self.before else []
        tail = [self.after] if self.after else []
        tail += [line for each in outputs for line in _store(*each)]
        return [*head, f"{self.ptx} {operands}".rstrip() + ";", *tail, "ret;", "}"], len(head)


def _load(place: int, register: str, kind: str) -> list[str]:
    if kind == "p":
        return [f"ld.global.b32 %t, [%at+{8 * place}];", f"setp.ne.b32 {register}, %t, 0;"]
    return [f"ld.global.{_TYPES[kind]} {register}, [%at+{8 * place}];"]


def _store(place: int, register: str, kind: str) -> list[str]:
    if kind == "q":
        return [f"selp.b32 %t, 1, 0, {register};", f"st.global.b32 [%at+{8 * place}], %t;"]
    return [f"st.global.{_TYPES[kind]} [%at+{8 * place}], {register};"]


def every_form() -> list[Form]:
    """Return every form, instruction by instruction."""
    return [
        *_mma(), *_mma_sparse(), *_mma_scaled(), *_wmma(), *_wgmma(), *_tcgen05(), *_matrix_moves(),
        *_async_copies(), *_tensor_copies(), *_mbarriers(),
    ]  # fmt: skip


def _mma() -> Iterator[Form]:
    for form in mma.dense_forms():
        c = _vector(form.c_map, form.acc)
        d = c.replace("i", "o").replace("I", "O")
        operands = (d, _vector(form.a_map, form.a), _vector(form.b_map, form.b), c)
        yield Form("mma", form.ptx, ", ".join(operands))


def _vector(where: RegisterMap, dtype: str) -> str:
    return f"{'I' if dtype == 'f64' else 'i'}{int(where.register.max()) + 1}"


_FP8 = ("e4m3", "e5m2")
_NARROW = (*_FP8, "e3m2", "e2m3", "e2m1")
_PAIRS = [*((each, each) for each in _NARROW), *(("e4m3", each) for each in _NARROW[1:])]
"""Of the forms that take any two of these types: each with itself, and one with all others."""


def _mma_sparse() -> Iterator[Form]:
    """Yield each form as it was first, with metadata in any order, and with ordered metadata."""
    for form in (each for each in mma_sparse.sparse_forms() if each.selector == 0):
        c = _vector(form.c_map, form.acc)
        held = (_vector(form.a_map, form.a), _vector(form.b_map, form.b))
        operands = ", ".join((c.replace("i", "o"), *held, c, "i", "0"))
        if form.first != "sm_120a":  # f16 accumulators of 8-bit floats came with the ordered forms
            yield Form("mma.sp", form.ptx.replace("::ordered_metadata", ""), operands)
        yield Form("mma.sp", form.ptx, operands)


def _mma_scaled() -> Iterator[Form]:
    """Yield the forms with narrow floating-point types and with scales."""
    head, scales = "mma.sync.aligned", "i, {0, 0}, i, {0, 0}"
    for a, b in _PAIRS:
        for acc, c in (("f16", 2), ("f32", 4)):
            ptx = f"{head}.m16n8k32.row.col.kind::f8f6f4.{acc}.{a}.{b}.{acc}"
            yield Form("mma.kind", ptx, f"o{c}, i4, i2, i{c}")
    for a, b in _PAIRS:
        kind = "kind::mxf8f6f4.block_scale.scale_vec::1X"
        ptx = f"{head}.m16n8k32.row.col.{kind}.f32.{a}.{b}.f32.ue8m0"
        yield Form("mma.kind", ptx, f"o4, i4, i2, i4, {scales}")
    for kind, vector, scale in (
        ("mxf4", "2X", "ue8m0"),
        ("mxf4nvf4", "2X", "ue8m0"),
        ("mxf4nvf4", "4X", "ue4m3"),
    ):
        middle = f"row.col.kind::{kind}.block_scale.scale_vec::{vector}.f32.e2m1.e2m1.f32.{scale}"
        yield Form("mma.kind", f"{head}.m16n8k64.{middle}", f"o4, i4, i2, i4, {scales}")
        sparse = f"mma.sp::ordered_metadata.sync.aligned.m16n8k128.{middle}"
        yield Form("mma.kind", sparse, f"o4, i4, i4, i4, i, 0, {scales}")


def _wmma() -> Iterator[Form]:
    for form in wmma.forms():
        if form.layout == "row.col":
            wide = form.dtype == "f64"
            d, a, b, c = (
                f"{('O' if wide else 'o') if name == 'D' else 'I' if wide else 'i'}{form.registers(name)}"
                for name in "DABC"
            )
            yield Form("wmma", form.ptx, f"{d}, {a}, {b}, {c}")


_WGMMA = (
    *((16, acc, "f16", "f16", ", 1, 1, 0, 0") for acc in ("f16", "f32")),
    (16, "f32", "bf16", "bf16", ", 1, 1, 0, 0"), (8, "f32", "tf32", "tf32", ", 1, 1"),
    *((32, acc, a, b, ", 1, 1") for a, b in product(_FP8, repeat=2) for acc in ("f16", "f32")),
    *((32, "s32", a, b, "") for a, b in product(("s8", "u8"), repeat=2)),
)  # fmt: skip
"""Of wgmma: k, the types of D, A and B, and the operands behind scale-d; one N stands for all."""


_FENCE = "wgmma.fence.sync.aligned;"
_COMMIT = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"


def _wgmma() -> Iterator[Form]:
    for k, acc, a, b, rest in _WGMMA:
        d = "r16" if acc == "f16" else "r32"
        end = f"m64n64k{k}.{acc}.{a}.{b}"
        yield Form(
            "wgmma",
            f"wgmma.mma_async.sync.aligned.{end}",
            f"{d}, I, I, p{rest}",
            before=_FENCE,
            after=_COMMIT,
        )
    bits = "wgmma.mma_async.sync.aligned.m64n64k256.s32.b1.b1.and.popc"
    yield Form("wgmma", bits, "r32, I, I, p", before=_FENCE, after=_COMMIT)
    for k, acc, a, b, rest in _WGMMA:
        d = "r16" if acc == "f16" else "r32"
        end = f"m64n64k{2 * k}.{acc}.{a}.{b}"
        yield Form(
            "wgmma.sp",
            f"wgmma.mma_async.sp.sync.aligned.{end}",
            f"{d}, I, I, i, 0, p{rest}",
            before=_FENCE,
            after=_COMMIT,
        )


_TCGEN05_KINDS = (
    *((f"kind::{kind}", "") for kind in ("f16", "tf32", "f8f6f4", "i8")),
    *((f"kind::{kind}.block_scale", "[i], [i], ") for kind in ("mxf8f6f4", "mxf4")),
    ("kind::mxf4nvf4.block_scale.scale_vec::4X", "[i], [i], "),
)


def _tcgen05() -> Iterator[Form]:
    for kind, scales in _TCGEN05_KINDS:
        for group in (1, 2):
            ptx = f"tcgen05.mma.cta_group::{group}.{kind}"
            yield Form("tcgen05.mma", ptx, f"[i], I, I, i, {scales}p")
        sparse = f"tcgen05.mma.sp.cta_group::1.{kind}"
        yield Form("tcgen05.mma", sparse, f"[i], I, I, [i], i, {scales}p")
        if not scales:
            yield Form("tcgen05.mma", f"tcgen05.mma.ws.cta_group::1.{kind}", "[i], I, I, i, p")
    wait = "tcgen05.wait::{}.sync.aligned;"
    for shape, number in (("32x32b.x8", 8), ("16x64b.x8", 8), ("16x128b.x4", 8), ("16x256b.x2", 8)):
        ptx = f"tcgen05.ld.sync.aligned.{shape}.b32"
        yield Form("tcgen05", ptx, f"o{number}, [i]", ("LDTM",), after=wait.format("ld"))
        ptx = f"tcgen05.st.sync.aligned.{shape}.b32"
        yield Form("tcgen05", ptx, f"[i], i{number}", ("STTM",), after=wait.format("st"))
    for shape in ("128x256b", "4x256b", "128x128b"):
        yield Form("tcgen05", f"tcgen05.cp.cta_group::1.{shape}", "[i], I", ("UTCCP",))
    yield Form("tcgen05", "tcgen05.shift.cta_group::1.down", "[i]", ("UTCSHIFT",))
    arrive = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64"
    yield Form("tcgen05", arrive, "[i]", ("UTCBAR",))
    alloc = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32"
    yield Form("tcgen05", alloc, "[i], 32", ("UTCATOMSWS",))


def _matrix_moves() -> Iterator[Form]:
    for load in ldmatrix.legal_forms("sm_100a"):  # which has all forms of both
        yield Form("ldmatrix", load.ptx, f"o{load.registers}, [i]", ("LDSM",))
    for store in stmatrix.legal_forms("sm_100a"):
        yield Form("stmatrix", store.ptx, f"[i], i{store.num}", ("STSM",))
    yield Form("movmatrix", "movmatrix.sync.aligned.m8n8.trans.b16", "o, i", ("MOVM",))


def _async_copies() -> Iterator[Form]:
    name, families = "cp.async", ("LDGSTS",)
    for size in (4, 8, 16):
        yield Form(name, "cp.async.ca.shared.global", f"[i], [I], {size}", families, note=f"{size} bytes")
    yield Form(name, "cp.async.cg.shared.global", "[i], [I], 16", families, note="16 bytes")
    yield Form(name, "cp.async.commit_group", "", ("LDGDEPBAR",))
    arrive = "cp.async.mbarrier.arrive.noinc.shared.b64"
    yield Form(name, arrive, "[i]", ("ARRIVES",))
    name, tail = "cp.async.bulk", "mbarrier::complete_tx::bytes"
    for space in ("shared::cta", "shared::cluster"):
        yield Form(name, f"cp.async.bulk.{space}.global.{tail}", "[i], [I], i, [i]", ("UBLKCP",))
    yield Form(name, "cp.async.bulk.global.shared::cta.bulk_group", "[I], [i], i", ("UBLKCP",))
    yield Form(name, f"cp.async.bulk.shared::cluster.shared::cta.{tail}", "[i], [i], i, [i]", ("UBLKCP",))
    reduce = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16"
    yield Form(name, reduce, "[I], [i], i", ("UBLKRED",))
    yield Form(name, "cp.async.bulk.prefetch.L2.global", "[I], i", ("UBLKPF",))


def _tensor_copies() -> Iterator[Form]:
    name, tail = "cp.async.bulk.tensor", "mbarrier::complete_tx::bytes"
    for space, n in (("shared::cta", 2), *(("shared::cluster", each) for each in range(1, 6))):
        ptx = f"cp.async.bulk.tensor.{n}d.{space}.global.tile.{tail}"
        yield Form(name, ptx, f"[i], [I, i{n}], [i]", ("UTMALDG",))
    cast = f"cp.async.bulk.tensor.2d.shared::cluster.global.tile.{tail}.multicast::cluster"
    yield Form(name, cast, "[i], [I, i2], [i], 3", ("UTMALDG",))
    gather = f"cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.{tail}"
    yield Form(name, gather, "[i], [I, i5], [i]", ("UTMALDG",))
    im2col = f"cp.async.bulk.tensor.4d.shared::cluster.global.im2col.{tail}"
    yield Form(name, im2col, "[i], [I, i4], [i], {1, 1}", ("UTMALDG",))
    store = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
    yield Form(name, store, "[I, i2], [i]", ("UTMASTG",))
    reduce = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"
    yield Form(name, reduce, "[I, i2], [i]", ("UTMAREDG",))
    yield Form(name, "cp.async.bulk.prefetch.tensor.2d.L2.global.tile", "[I, i2]", ("UTMAPF",))


def _mbarriers() -> Iterator[Form]:
    name, families = "mbarrier", ("SYNCS", "ATOMS")
    yield Form(name, "mbarrier.init.shared::cta.b64", "[i], 1", families)
    yield Form(name, "mbarrier.inval.shared::cta.b64", "[i]", families)
    yield Form(name, "mbarrier.arrive.shared::cta.b64", "O, [i]", families)
    yield Form(name, "mbarrier.arrive_drop.shared::cta.b64", "O, [i]", families)
    yield Form(name, "mbarrier.arrive.expect_tx.shared::cta.b64", "O, [i], i", families)
    yield Form(name, "mbarrier.expect_tx.relaxed.cta.shared::cta.b64", "[i], i", families)
    yield Form(name, "mbarrier.complete_tx.relaxed.cta.shared::cta.b64", "[i], i", families)
    for wait in ("test_wait", "try_wait"):
        yield Form(name, f"mbarrier.{wait}.parity.shared::cta.b64", "q, [i], i", families)
