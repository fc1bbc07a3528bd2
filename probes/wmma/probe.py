"""Which lane holds what in the fragments of nvcuda::wmma?

Method: every element of A, B and C carries its own coordinates; load_matrix_sync fills the fragments and each
lane writes what it got. An accumulator that holds the index of lane and element is stored, which shows where
store_matrix_sync puts each. One more block multiplies whole numbers with mma_sync.
Counting: one warp; instructions are static counts of the whole kernel.
Source: CUDA C++ programming guide, "Warp matrix functions", which leaves the layout open; ptxlab.isa.wmma.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, option
from ptxlab.experiments.probe import Arrays, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import wmma as isa
from ptxlab.isa.numbers import encode
from ptxlab.isa.types import BITS
from ptxlab.layout.coordinates import Coordinates
from ptxlab.layout.tile import spans
from ptxlab.toolchain.arch import base_number

CHUNK_BYTES = 16
ALIGNED = 2  # chunks: wmma wants matrices to start at multiples of 32 bytes
CPP = {
    "f16": "half", "bf16": "__nv_bfloat16", "tf32": "wmma::precision::tf32",
    "f64": "double", "f32": "float", "s8": "signed char", "u8": "unsigned char", "s32": "int",
    **{name: f"wmma::experimental::precision::{name}" for name in isa.SUB_BYTE},
}  # fmt: skip
DTYPES = tuple(dict.fromkeys(form.dtype for form in isa.forms()))
SHAPES = tuple(dict.fromkeys(form.shape for form in isa.forms()))
WORDS: dict[int, type[np.unsignedinteger[Any]]] = {16: np.uint16, 32: np.uint32, 64: np.uint64}


class WmmaProbe(Probe):
    shape = option("", choices=SHAPES, help="shape; left out: the first of the type")
    dtype = option("f16", choices=DTYPES, help="type of the elements of A and B")
    acc = option("", choices=("f16", "f32", "f64", "s32"), help="type of C and D; left out: the usual one")
    layout = option("row.col", choices=("row.col", "row.row", "col.row", "col.col"), help="A and B in memory")
    acc_layout = option("row", choices=("row", "col"), help="C and D in memory")
    memory = option("shared", choices=("shared", "global"), help="where the matrices are loaded from")
    op = option("", choices=("xor", "and"), help="of b1: what meets; left out: and, on sm_75 xor")

    def complete(self, params: dict[str, Value]) -> None:
        dtype = str(params["dtype"])
        params["shape"] = params["shape"] or isa.shapes(dtype)[0]
        params["acc"] = params["acc"] or isa.accumulators(dtype)[0]

    def identity(self, case: Case) -> Hashable:
        return form_of(case), case.acc_layout, case.memory

    def check(self, case: Case) -> None:
        reason, legal = objection(case)
        if reason:
            raise UsageError(f"wmma {reason}; legal: {legal}")

    def variants(self, arch: str) -> Iterator[Case]:
        number = base_number(arch)
        for form in isa.forms():
            if form.minimum <= number and form.layout in ("row.col", "col.row"):
                yield self.case(
                    arch, shape=form.shape, dtype=form.dtype, acc=form.acc, layout=form.layout, op=form.op,
                    acc_layout=form.layout[:3],
                )  # fmt: skip
        yield self.case(arch, layout="row.row")
        yield self.case(arch, layout="col.col", acc="f16")
        for dtype in ("f16", "s8", "s4", *(("bf16", "tf32", "f64") if number >= 80 else ())):
            yield self.case(arch, dtype=dtype, memory="global")

    def macros(self, case: Case) -> Macros:
        form, (a_layout, b_layout) = form_of(case), case.layout.split(".")
        return {
            "M": form.m, "N": form.n, "K": form.k, "TYPE": CPP[form.dtype], "ACC": CPP[form.acc],
            "A_LAYOUT": f"{a_layout}_major", "B_LAYOUT": f"{b_layout}_major",
            "C_LAYOUT": f"mem_{case.acc_layout}_major", "SHARED": int(case.memory == "shared"),
            "BIT_OP": ("", "xor", "and").index(form.op),
        }  # fmt: skip

    def claims(self, case: Case) -> dict[str, int]:
        return dict([multiplications(form_of(case), base_number(case.arch))])

    def inputs(self, case: Case) -> Arrays:
        planes = [
            np.concatenate([image(case, operand, words) for operand, words in plane.items()])
            for plane in contents(form_of(case))
        ]
        return {"matrices": np.stack(planes)}

    def outputs(self, case: Case) -> dict[str, Output]:
        form, planes = form_of(case), len(contents(form_of(case)))
        found = {}
        for operand in isa.OPERANDS:
            word = isa.register_map(form, operand).word
            shape = (planes, 32, form.registers(operand))
            found[operand] = Output(shape, word, ("plane", "lane", "register"))
        found["D"] = Output((32, form.registers("D")), found["C"].dtype, ("lane", "register"))
        found["stored"] = Output((form.m * form.n,), WORDS[BITS[form.acc]], ("element",))
        return found

    def geometry(self, case: Case) -> Geometry:
        form, planes = form_of(case), contents(form_of(case))
        chunks = [len(image(case, operand, words)) // CHUNK_BYTES for operand, words in planes[0].items()]
        pitches = [pitch_bytes(case, operand) * 8 // BITS[form.dtype_of(operand)] for operand in isa.OPERANDS]
        scalars = (sum(chunks), chunks[0], chunks[0] + chunks[1], *pitches)
        return Geometry(
            arguments=("matrices", "A", "B", "C", "D", "stored", *(np.uint32(each) for each in scalars)),
            grid=(len(planes), 1, 1),
            shared_bytes=sum(chunks) * CHUNK_BYTES if case.memory == "shared" else 0,
        )

    def expected(self, case: Case) -> Arrays:
        form, planes = form_of(case), contents(form_of(case))
        found: dict[str, NDArray[Any]] = {
            operand: np.stack([held(form, operand, plane[operand]) for plane in planes])
            for operand in isa.OPERANDS
        }
        product = form.product(*(whole_numbers(form, operand) for operand in isa.OPERANDS))
        return found | {"D": held(form, "D", encode(product, form.acc)), "stored": stored(case)}

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        form = form_of(case)
        result: dict[str, Any] = {
            "ptx": form.ptx,
            "shapes": {
                operand: dict(zip(("rows", "cols"), form.extent(operand), strict=True))
                for operand in (*isa.OPERANDS, "D")
            },
            "formulas": {operand: isa.formulas(form, operand) for operand in (*isa.OPERANDS, "D")},
        }
        for operand in isa.OPERANDS:
            entries = isa.register_map(form, operand).entries()
            codes = coordinates(form, operand, outputs[operand]).tolist()
            result[operand] = (
                [e | {"value": v} for e, v in zip(entries, codes, strict=True)] if measured else entries
            )
        where = isa.register_map(form, "D")
        result["D"] = where.entries(outputs["D"]) if measured else where.entries()
        result["fragments"] = [fragment(form, operand) for operand in (*isa.OPERANDS, "D")]
        result["mma"] = [part_of(operand, part) for operand in "ABC" for part in isa.parts(form, operand)]
        result["titles"] = {"fragments": "what a lane holds", "mma": "the operands of mma.sync in it"}
        if astray := [
            each for operand in isa.OPERANDS for each in elsewhere(form, operand, outputs[operand])
        ]:
            result["elsewhere"] = astray
        return result

    def conclude(self, case: Case, record: Record) -> str:
        form = form_of(case)
        if record.result.get("elsewhere"):
            return f"{len(record.result['elsewhere'])} elements lie elsewhere than the model has them."
        twice = [f"each of {op} stands in {form.copies(op)} places" for op in "AB" if form.copies(op) > 1]
        count = {op: form.registers(op) * form.width(op) for op in isa.OPERANDS}
        side = "m32n8k16 transposed" if form.exchanged else "operands of mma.sync side by side"
        return (
            f"A lane holds {count['A']} elements of A, {count['B']} of B and {count['C']} of C, as "
            f"{side}{'; ' if twice else ''}{' and '.join(twice)}. CUDA promises none of this: code that "
            "indexes x[] is right for the architectures on which it was checked."
        )


def form_of(case: Case) -> isa.WmmaForm:
    """Return the form that a case names."""
    m, n, k = (int(number) for number in case.shape[1:].replace("n", "k").split("k"))
    turing = base_number(case.arch) == 75
    usual_op = ("xor" if turing else "and") if case.dtype == "b1" else ""
    return isa.WmmaForm(m, n, k, case.dtype, case.acc, case.layout, case.op or usual_op, turing)


def objection(case: Case) -> tuple[str, str]:
    """Return why a case is illegal and what is legal instead; both empty for a legal one."""
    form = form_of(case)
    if case.shape not in isa.shapes(case.dtype):
        return f"has no {case.dtype} in {case.shape}", ", ".join(isa.shapes(case.dtype))
    if case.acc not in isa.accumulators(case.dtype):
        return f"has no {case.acc} accumulator of {case.dtype}", ", ".join(isa.accumulators(case.dtype))
    if case.layout not in isa.layouts(case.dtype):
        return f"loads {case.dtype} in no layout {case.layout}", ", ".join(isa.layouts(case.dtype))
    if case.op and case.dtype != "b1":
        return f"has no {case.op} of {case.dtype}", "--op with --dtype b1 alone"
    if form.minimum > base_number(case.arch):
        what = f"--op {case.op}" if case.op == "and" else case.dtype
        return f"has no {what} on {case.arch}", f"sm_{form.minimum} and later"
    return "", ""


def multiplications(form: isa.WmmaForm, number: int) -> tuple[str, int]:
    """Return the tensor-core instructions that ptxas makes of one mma_sync: family and count."""
    if form.dtype == "b1":
        return ("IMMA", 4) if number >= 100 else ("BMMA", 2 if number >= 90 and form.op == "xor" else 1)
    if form.dtype in ("s4", "u4"):
        return "IMMA", 2 if number >= 90 else 1
    if form.dtype == "f64":
        return "DMMA", 1
    count = 4 if number < 80 or form.dtype == "tf32" else 2
    return "IMMA" if form.acc == "s32" else "HMMA", count


def contents(form: isa.WmmaForm) -> list[dict[str, NDArray[np.uint64]]]:
    """Return the bits of every element of A, B and C: planes of coordinates, at last whole numbers."""
    count = max(named(form, operand).planes for operand in isa.OPERANDS)
    planes = [{op: coordinate_bits(form, op, plane) for op in isa.OPERANDS} for plane in range(count)]
    return [*planes, {op: encode(whole_numbers(form, op), form.dtype_of(op)) for op in isa.OPERANDS}]


def named(form: isa.WmmaForm, operand: str) -> Coordinates:
    """Return the names that a matrix's elements carry."""
    return Coordinates(*form.extent(operand), BITS[form.dtype_of(operand)])


def coordinate_bits(form: isa.WmmaForm, operand: str, plane: int) -> NDArray[np.uint64]:
    """Return as many bits of each coordinate as an element holds; a matrix of fewer planes starts again."""
    code = named(form, operand)
    row, col = np.indices(form.extent(operand), dtype=np.uint64)
    names = row << np.uint64(code.column_bits) | col
    shown = names >> np.uint64(code.width * (plane % code.planes))
    return np.asarray(shown & np.uint64((1 << code.width) - 1))


def whole_numbers(form: isa.WmmaForm, operand: str) -> NDArray[np.int64]:
    """Return numbers that the type holds, and so small that every sum of products is exact."""
    row, col = np.indices(form.extent(operand), dtype=np.int64)
    if operand == "C":
        return 3 * (row * form.n + col)
    span, low = {"b1": (2, 0), "u4": (4, 0), "u8": (4, 0)}.get(form.dtype, (7, -3))
    return np.asarray((11 * row + 5 * col + row * col) // 2 % span + low)


def by_rows(case: Case, operand: str) -> bool:
    """Say whether rows of the matrix are contiguous in memory."""
    layouts = dict(zip(isa.OPERANDS, (*case.layout.split("."), case.acc_layout), strict=True))
    return bool(layouts[operand] == "row")


def pitch_bytes(case: Case, operand: str) -> int:
    """Return the bytes from one line in memory to the next: whole chunks, as wmma wants it."""
    form = form_of(case)
    bits = BITS[form.dtype_of(operand)] * form.extent(operand)[by_rows(case, operand)]
    return -(-bits // (8 * CHUNK_BYTES)) * CHUNK_BYTES


def image(case: Case, operand: str, words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Return a matrix as it lies in memory, with ones in the gaps between and after its lines."""
    lines = words if by_rows(case, operand) else words.T
    width = BITS[form_of(case).dtype_of(operand)]
    bits = (lines[..., None] >> np.arange(width, dtype=np.uint64)) & np.uint64(1)
    padded = np.ones((len(lines), 8 * pitch_bytes(case, operand)), dtype=np.uint8)
    padded[:, : lines.shape[1] * width] = bits.reshape(len(lines), -1)
    memory = np.packbits(padded, axis=1, bitorder="little").ravel()
    gap = -len(memory) % (ALIGNED * CHUNK_BYTES)
    return np.pad(memory, (0, gap), constant_values=0xFF)


def held(form: isa.WmmaForm, operand: str, words: NDArray[np.uint64]) -> NDArray[Any]:
    """Return the registers of every lane, shape [32, registers], of a matrix of these bits."""
    where = isa.register_map(form, operand)
    return where.pack(words[where.place["row"], where.place["col"]], form.registers(operand))


def stored(case: Case) -> NDArray[Any]:
    """Return what store_matrix_sync makes of an accumulator that holds lane * elements + element."""
    form = form_of(case)
    where = isa.register_map(form, "C")
    matrix = np.empty(form.extent("C"), dtype=WORDS[BITS[form.acc]])
    matrix[where.place["row"], where.place["col"]] = np.arange(matrix.size)
    return np.ascontiguousarray(matrix if by_rows(case, "C") else matrix.T).ravel()


def coordinates(form: isa.WmmaForm, operand: str, registers: NDArray[Any]) -> NDArray[np.int64]:
    """Return the coordinate that each slot holds, in the order of the map."""
    where, code = isa.register_map(form, operand), named(form, operand)
    return code.joined([where.slots_of(plane).astype(np.int64) for plane in registers[: code.planes]])


def fragment(form: isa.WmmaForm, operand: str) -> dict[str, str | int]:
    """Return the row of a table: what a lane holds of an operand."""
    width = form.width(operand)
    return {
        "operand": operand, "type": form.dtype_of(operand), "elements": form.registers(operand) * width,
        "registers": form.registers(operand), "copies": form.copies(operand),
        "x[i]": f"register i // {width}, slot i % {width}" if width > 1 else "register i",
    }  # fmt: skip


def part_of(operand: str, part: isa.Part) -> dict[str, str]:
    """Return the row of a table: an operand of mma.sync that is part of a fragment."""
    return {
        "operand": operand, "registers": ", ".join(f"r{register}" for register in part.registers),
        "rows": spans(part.rows), "columns": spans(part.cols), "is": part.name,
    }  # fmt: skip


def elsewhere(form: isa.WmmaForm, operand: str, registers: NDArray[Any]) -> Iterator[dict[str, str | int]]:
    """Yield the slots that hold another element than the model says."""
    code = named(form, operand)
    entries = isa.register_map(form, operand).entries()
    for entry, value in zip(entries, coordinates(form, operand, registers).tolist(), strict=True):
        row, col = code.place(value)
        if (row, col) != (entry["row"], entry["col"]):
            yield {"operand": operand, **entry, "found_row": row, "found_col": col}
