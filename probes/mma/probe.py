"""Which lane holds what of A, B, C and D in mma.sync, and of the metadata in mma.sp?

Method: each experiment is one mma on one warp. Elements of A carry their own index while B has a single one
in each column, so that a column of D shows a column of A; B and C are shown likewise, and exact products of
random integers hold all three together. Types too narrow for an index show a few of its bits at a time. For
mma.sp the metadata of one lane, then of one slot, is changed at a time, and D shows which rows and chunks
followed. A planted fault (registers in a wrong order) stands where its operand is shown: an operand that
selects is given as it should be, for with both at fault nobody could tell them apart.
Counting: one warp instruction; its FLOP are 2 * m * n * k, the zeros of a sparse A included.
Source: PTX ISA, "Matrix multiply-accumulate operation using mma instruction" and "... using mma.sp
instruction with sparse matrix A".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, option
from ptxlab.experiments.probe import Arrays, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import mma as isa
from ptxlab.isa.mma_formulas import formulas
from ptxlab.isa.mma_loads import loads, obstacle
from ptxlab.isa.mma_lowering import emulation, tensor_operations
from ptxlab.isa.mma_sparse import SparseForm, sparse_forms
from ptxlab.isa.numbers import is_integer
from ptxlab.isa.registers import RegisterMap
from ptxlab.layout import operands
from ptxlab.layout.operands import Form
from ptxlab.layout.tile import spans

NATURAL = {"f16": "f32", "bf16": "f32", "tf32": "f32", "e4m3": "f32", "e5m2": "f32", "f64": "f64"}
REGISTER = {"f32": "float", "f64": "double", "f16": "unsigned", "s32": "unsigned"}  # of C and D, in C++
FORMS: tuple[Form, ...] = (*isa.dense_forms(), *sparse_forms())
SHAPES = tuple(dict.fromkeys(form.shape for form in FORMS))
TYPES = tuple(dict.fromkeys(form.a for form in isa.dense_forms()))
LAYOUTS = ("row.col", "row.row", "col.col", "col.row")


class MmaProbe(Probe):
    findings = ("element places",)

    shape = option("", choices=SHAPES, help="shape; left out: m16n8k16, or the largest that the type has")
    dtype = option("f16", choices=TYPES, help="type of A's elements, and of B's")
    dtype_b = option("", choices=TYPES, help="type of B's elements where it is another one")
    acc = option("", choices=tuple(REGISTER), help="type of C and D; left out: f32, s32 or f64")
    op = option("", choices=("and", "xor"), help="of b1: what the ones are counted of; left out: and")
    layout = option("row.col", choices=LAYOUTS, help="of A and B; all but row.col for m8n8k4 of f16 alone")
    sparse = option(default=False, help="mma.sp: half of A's elements are zero and not stored")
    selector = option(0, metavar="N", help="of mma.sp: which lanes of each four supply metadata")
    perm_a = option(
        "", metavar="R,R,..", help="give register i of A what belongs in the i-th of these", maps=False
    )
    perm_b = option("", metavar="R,R,..", help="the same for B", maps=False)
    fill = option("coordinates", choices=("coordinates", "ones"), help="what the elements hold", maps=False)

    def complete(self, params: dict[str, Value]) -> None:
        dtype = str(params["dtype"])
        params["shape"] = params["shape"] or usual_shape(dtype, sparse=bool(params["sparse"]))
        params["dtype_b"] = params["dtype_b"] or dtype
        params["acc"] = params["acc"] or NATURAL.get(dtype, "s32")
        params["op"] = params["op"] or ("and" if dtype == "b1" else "")

    def check(self, case: Case) -> None:
        form = form_of(case)
        for name in ("A", "B"):
            order_of(case, form, name)

    def identity(self, case: Case) -> Hashable:
        form = form_of(case)
        return form, order_of(case, form, "A"), order_of(case, form, "B"), case.fill

    def variants(self, arch: str) -> Iterator[Case]:
        for form in FORMS:
            if form.runs_on(arch):
                yield self.case(arch, **options_of(form))
        if isa.generation(arch) >= 80:
            yield self.case(arch, perm_a="0,2,1,3")
            yield self.case(arch, fill="ones")
            yield self.case(arch, fill="ones", perm_a="0,2,1,3")

    def macros(self, case: Case) -> Macros:
        form = form_of(case)
        a, b, c = register_counts(form)
        return {
            "PTX": f'"{form.ptx}"', "SELECTOR": f'"{case.selector}"', "SPARSE": int(case.sparse),
            "D_REGISTERS": c, "A_REGISTERS": a, "B_REGISTERS": b,
            "ACC": REGISTER[form.acc], "WORD": "double" if form.a == "f64" else "unsigned",
        }  # fmt: skip

    def claims(self, case: Case) -> dict[str, int]:
        made = tensor_operations(form_of(case), case.arch)
        if not made:
            return {"HMMA": 0} | ({"FFMA": 32} if case.acc == "f32" else {})
        return {opcode.partition(".")[0]: count for opcode, count in made.items()} | made

    def inputs(self, case: Case) -> Arrays:
        form, lab = form_of(case), bench_of(case)
        maps = form.maps
        a, b, c = (
            isa.to_registers(maps[name], numbers, dtype)
            for name, numbers, dtype in (("A", lab.a, form.a), ("B", lab.b, form.b), ("C", lab.c, form.acc))
        )
        return {"a": a, "b": b, "c": c, "e": lab.e}

    def outputs(self, case: Case) -> dict[str, Output]:
        where = form_of(case).c_map
        shape = (len(bench_of(case).e), 32, register_counts(form_of(case))[2])
        return {"d": Output(shape, where.word, ("experiment", "lane", "register"))}

    def geometry(self, case: Case) -> Geometry:
        return Geometry(arguments=("a", "b", "c", "e", "d"), grid=(len(bench_of(case).e), 1, 1))

    def expected(self, case: Case) -> Arrays:
        form, lab = form_of(case), bench_of(case)
        d = operands.multiply(form, lab.a, lab.b, lab.c, lab.e)
        return {"d": isa.to_registers(form.maps["D"], d, form.acc)}

    def examine(self, case: Case, outputs: Arrays, record: Record) -> None:
        form, lab = form_of(case), bench_of(case)
        if case.fill == "ones":
            record.skip("element places", BLIND)
            return
        seen = {name: operands.places_seen(form, lab, outputs["d"], name) for name in "ABC"}
        wrong = [told for name, act in seen.items() if (told := misplaced(form, name, act))]
        total = sum(map(len, seen.values()))
        fine = f"each of the {total} elements of A, B and C acts where the model has it"
        record.check("element places", ok=not wrong, detail="; ".join(wrong) or fine)
        if isinstance(form, SparseForm):
            ok, detail = metadata_check(form, *operands.metadata_seen(form, lab, outputs["d"]))
            record.check("metadata lanes", ok=ok, detail=detail)

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        form = form_of(case)
        operations = sum(tensor_operations(form, case.arch).values())
        result: dict[str, Any] = {
            "ptx": form.ptx,
            **{name: where.entries() for name, where in form.maps.items()},
            "shapes": {name: {"rows": r, "cols": c} for name, (r, c) in form.extents.items()},
            "formulas": formulas(form),
            "flop": form.flop,
            "tensor_ops": operations,
            "flop_per_tensor_op": form.flop // operations if operations else None,
            "emulated": emulation(form, case.arch),
            "ldmatrix": list(loading(form)),
            "titles": {"ldmatrix": LOADING},
            "notes": [*not_loaded(form)],
        }
        if isinstance(form, SparseForm):
            add_logical_columns(form, result["A"])
            result["metadata"] = {str(lane): f"0x{word:08x}" for lane, word in metadata_words(form).items()}
            result["notes"] += metadata_notes(form)
        if measured and case.fill != "ones":
            add_values(form, bench_of(case), outputs["d"], result)
        return result

    def conclude(self, case: Case, record: Record) -> str:
        form, result = form_of(case), record.result
        if case.fill == "ones":
            return f"Nothing is shown: {BLIND}"
        failed = [c["detail"] for c in record.checks if not c["ok"] and c["name"] == "element places"]
        if failed:
            return f"Mistaken register order: {failed[0]}."
        a, b, c = register_counts(form)
        holds = f"{a} of A, {b} of B, {c} of C and D"
        made = tensor_operations(form, case.arch)
        sass = ", ".join(f"{count} {opcode}" for opcode, count in made.items()) or "no tensor operation"
        sparse = f" {supplying(form)}" if isinstance(form, SparseForm) else ""
        work = "operations" if is_integer(form.a) else "FLOP"
        emulated = f" {result['emulated']}" if result["emulated"] else ""
        return (
            f"Registers of each lane: {holds}.{sparse} One instruction is {form.flop} {work} and becomes "
            f"{sass}.{emulated}"
        )

    def remark(self, case: Case, operand: str, entry: Mapping[str, int]) -> str:
        form = form_of(case)
        if operand != "A" or not isinstance(form, SparseForm):
            return ""
        row, col = entry["row"], entry["col"]
        chunk = 2 * col // form.chunk
        lane, first, index = form.index_bits(row, col)
        bits = f"bits {first}-{first + 3}" if form.chunk == 2 else f"index bits {index}-{index + 1}"
        columns = f"{chunk * form.chunk}-{(chunk + 1) * form.chunk - 1}"
        return (
            f"It stands for logical col {columns} of the full A: which one, say {bits} of the metadata of "
            f"lane {lane} (E[{row}, {chunk}] is its bits {first}-{first + 3})."
        )


BLIND = (
    "every element is 1, so any permutation of registers gives the same D and this fill cannot tell them "
    "apart; use --fill coordinates"
)


def bench_of(case: Case) -> operands.Bench:
    """Return the operands of every experiment of a case."""
    form = form_of(case)
    orders = order_of(case, form, "A"), order_of(case, form, "B")
    return operands.bench(form, ones=case.fill == "ones", orders=orders)


def options_of(form: Form) -> dict[str, Value]:
    """Return the options that name a form."""
    named: dict[str, Value] = {
        "shape": form.shape, "dtype": form.a, "dtype_b": form.b, "acc": form.acc, "op": form.op,
        "layout": form.layout,
    }  # fmt: skip
    return named | ({"sparse": True, "selector": form.selector} if isinstance(form, SparseForm) else {})


def form_of(case: Case) -> Form:
    """Return the instruction's form.

    Raises:
        UsageError: there is none, or the architecture does not have it.

    """
    names = (case.arch, case.shape, case.dtype, case.dtype_b, case.acc, case.op, case.layout)
    return _form(*names, case.selector, sparse=case.sparse)


@cache
def _form(
    arch: str, shape: str, a: str, b: str, acc: str, op: str, layout: str, selector: int, *, sparse: bool
) -> Form:
    forms: list[Form] = [*isa.dense_forms()]
    if sparse:
        forms = [form for form in sparse_forms() if form.selector == 0]
    found: Form = isa.find_form(forms, arch, shape=shape, a=a, b=b, acc=acc, op=op, layout=layout)
    if not isinstance(found, SparseForm):
        if selector:
            raise UsageError("a dense mma has no selector", "--sparse makes it mma.sp")
        return found
    if selector not in found.selectors:
        raise UsageError(
            f"mma.sp {shape} of {a} has no selector {selector}; legal: {spans(found.selectors)}, for "
            f"{found.contributors} of each 4 lanes supply metadata"
        )
    return SparseForm(found.m, found.n, found.k, a, b, acc, selector)


@cache
def register_counts(form: Form) -> tuple[int, int, int]:
    """Return how many registers of each lane A, B, and C or D take."""
    return (
        isa.register_count(form.a_map),
        isa.register_count(form.b_map),
        isa.register_count(form.c_map),
    )


def order_of(case: Case, form: Form, operand: str) -> tuple[int, ...]:
    """Return which of an operand's registers is given as its first, its second and so on; () as usual.

    Raises:
        UsageError: --perm-a or --perm-b is no permutation of the operand's registers.

    """
    text = case.perm_a if operand == "A" else case.perm_b
    usual = range(register_counts(form)[operand == "B"])
    fields = [field.strip() for field in text.split(",")] if text else []
    if text and sorted(fields) != sorted(map(str, usual)):
        raise UsageError(
            f"--perm-{operand.lower()} '{text}' does not name each register of {operand} once; legal: "
            f"{','.join(map(str, usual))} in any order"
        )
    order = tuple(int(field) for field in fields)
    return () if order == tuple(usual) else order


def misplaced(form: Form, operand: str, act: NDArray[np.int64]) -> str:
    """Return a sentence on which registers of an operand are in each other's place; "" if none is."""
    own = operands.own_places(form, operand)
    if np.array_equal(act, own):
        return ""
    where = form.maps[operand]
    register_at = dict(zip(own.tolist(), where.register.tolist(), strict=True))
    given: dict[int, set[int]] = {}
    for place, register in zip(act.tolist(), where.register.tolist(), strict=True):
        given.setdefault(register_at.get(place, -1), set()).add(register)
    if -1 in given or any(len(each) > 1 for each in given.values()):
        return f"{np.count_nonzero(act != own)} of {len(own)} elements of {operand} act elsewhere"
    order = {register: each.pop() for register, each in given.items()}
    told = []
    for register, got in sorted(order.items()):
        needs, has = (region(where, each) for each in (register, got))
        if order.get(got) == register and got > register:
            told.append(
                f"registers {register} and {got} of {operand} are exchanged: register {register} holds {has} "
                f"where {needs} belong, and register {got} the reverse"
            )
        elif got != register and order.get(got) != register:
            told.append(f"register {register} of {operand} holds {has} where {needs} belong")
    return "; ".join(told) or f"lanes or slots of {operand} are mixed up"


def region(where: RegisterMap, register: int) -> str:
    """Return the rows and columns that one register holds over all lanes."""
    own = where.register == register
    return (
        f"rows {spans(where.place['row'][own].tolist())}, columns {spans(where.place['col'][own].tolist())}"
    )


def metadata_check(form: SparseForm, lanes: NDArray[np.bool_], slots: NDArray[np.bool_]) -> tuple[bool, str]:
    """Say whether exactly the lanes and slots of the model govern each row and chunk."""
    where = form.e_map
    place = where.place["row"], where.place["col"]
    by_lane, by_slot = np.zeros_like(lanes), np.zeros_like(slots)
    by_lane[(where.lane, *place)] = True
    by_slot[(where.slot, *place)] = True
    for kind, seen, predicted in (("lane", lanes, by_lane), ("slot", slots, by_slot)):
        wrong = np.flatnonzero((seen != predicted).any(axis=(1, 2))).tolist()
        if wrong:
            first = wrong[0]
            return False, (
                f"metadata of {kind}s {spans(wrong)} governs other rows and chunks than predicted: that of "
                f"{kind} {first} {governed(seen[first])}, predicted {governed(predicted[first])}"
            )
    return True, supplying(form)


def governed(of_one: NDArray[np.bool_]) -> str:
    """Return which rows and chunks one lane or slot governs."""
    rows, chunks = np.nonzero(of_one)
    return f"rows {spans(rows.tolist())}, chunks {spans(chunks.tolist())}" if len(rows) else "none"


def supplying(form: SparseForm) -> str:
    """Return the sentence on which lanes supply metadata."""
    used = np.unique(form.e_map.lane % 4)
    if len(used) == 4:
        return "Every lane supplies metadata."
    lanes = spans(used.tolist())
    return f"Lanes with lane % 4 in {lanes} supply metadata (selector {form.selector}); the others none."


def metadata_words(form: SparseForm) -> dict[int, int]:
    """Return the metadata of these experiments, by lane."""
    words = form.metadata(operands.usual_nibbles(form))
    return {lane: int(words[lane]) for lane in np.unique(form.e_map.lane).tolist()}


def metadata_notes(form: SparseForm) -> Iterator[str]:
    """Yield how metadata reads: what four bits mean, which are legal, and a word of it."""
    legal = ", ".join(f"0b{nibble:04b}" for nibble in form.nibbles)
    if form.chunk == 2:
        yield (
            "tf32 is 1:2: of each 2 columns of A one is stored, and E has 4 bits for it: 0b0100 for the "
            "first, 0b1110 for the second; PTX defines no others."
        )
    else:
        what = "2 are stored" if form.chunk == 4 else "4 are stored, 2 pairs of neighbours"
        yield (
            f"Of each {form.chunk} columns of A {what}, and E has 4 bits for them: two indices of 2 bits, "
            f"the first (bits 0-1) below the second (bits 2-3). Legal: {legal}."
        )
    if form.selectors != range(1):
        yield f"The selector, {spans(form.selectors)}, names the lanes of each four that supply E."
    yield example(form)


def example(form: SparseForm) -> str:
    """Return one word of metadata, and its lowest four bits explained."""
    lane, word = list(metadata_words(form).items())[1]
    where, nibble, kept = form.e_map, word & 15, form.chunk // 2
    first = np.flatnonzero(where.lane == lane)[0]
    row, chunk = int(where.place["row"][first]), int(where.place["col"][first])
    columns = form.logical_columns(np.full(form.extents["E"], nibble))[row, chunk * kept : (chunk + 1) * kept]
    return (
        f"Example: here lane {lane} holds 0x{word:08x}. Bits 0-3 are 0b{nibble:04b}, of row {row}, columns "
        f"{chunk * form.chunk}-{(chunk + 1) * form.chunk - 1} of A: stored are {spans(columns.tolist())}."
    )


LOADING = "by ldmatrix, from a matrix that lies in memory with the last side contiguous"


def loading(form: Form) -> Iterator[dict[str, str]]:
    """Yield the rows of a table: which ldmatrix loads A and B, by how they lie in memory."""
    for load in loads(form):
        yield {
            "operand": load.operand,
            "memory": load.memory,
            "ldmatrix": f"x{load.form.num}{'.trans' if load.form.trans else ''}",
            "a lane points at": load.address,
            "fills": load.fills,
        }


def not_loaded(form: Form) -> Iterator[str]:
    """Yield what no ldmatrix loads, and why."""
    reasons: dict[str, list[str]] = {}
    for operand, side in (("A", "m"), ("B", "n")):
        for memory, k_last in ((f"{side} x k", True), (f"k x {side}", False)):
            if reason := obstacle(form, operand, k_last=k_last):
                reasons.setdefault(reason, []).append(f"{operand} as {memory}")
    yield from (f"No ldmatrix for {', '.join(which)}: {reason}." for reason, which in reasons.items())


def usual_shape(dtype: str, *, sparse: bool) -> str:
    """Return the shape that is meant where none is named."""
    forms = [form for form in FORMS if form.a == dtype and isinstance(form, SparseForm) == sparse]
    shapes = [form.shape for form in sorted(forms, key=lambda form: (form.m, form.k))]
    return "m16n8k16" if not shapes or "m16n8k16" in shapes else shapes[-1]


def add_logical_columns(form: SparseForm, entries: list[dict[str, int]]) -> None:
    """Add to each entry of A the column of the full A that it stands for in these experiments."""
    columns = form.logical_columns(operands.usual_nibbles(form))
    for entry in entries:
        entry["logical_col"] = int(columns[entry["row"], entry["col"]])


def add_values(form: Form, lab: operands.Bench, d: NDArray[Any], result: dict[str, Any]) -> None:
    """Add to each entry where silicon has it act: matrix << 16 | row << 8 | column, or -1."""
    held: dict[int, int] = {}
    for name in "ABC":
        rows, cols = form.extents[name]
        cols = form.k if name == "A" else cols
        acting = zip(result[name], operands.places_seen(form, lab, d, name).tolist(), strict=True)
        for entry, place in acting:
            matrix, rest = divmod(place, rows * cols)
            entry["value"] = -1 if place < 0 else matrix << 16 | rest // cols << 8 | rest % cols
            if name == "C":  # an element of D shows the element of C that came out there
                held[entry["value"]] = coordinate(entry)
    for entry in result["D"]:
        entry["value"] = held.get(coordinate(entry), -1)
    if isinstance(form, SparseForm):
        lanes, slots = operands.metadata_seen(form, lab, d)
        for entry in result["E"]:
            both = np.argwhere(lanes[entry["lane"]] & slots[entry["slot"]])
            entry["value"] = int(both[0][0] << 8 | both[0][1]) if len(both) == 1 else -1


def coordinate(entry: dict[str, int]) -> int:
    """Return the place of an entry as one number."""
    return entry.get("matrix", 0) << 16 | entry["row"] << 8 | entry["col"]
