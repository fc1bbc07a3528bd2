"""Where in tensor memory does tcgen05 put what, and who reaches it?

Method: columns of tensor memory are filled with cells that carry their lane and column (or poison), one
instruction is carried out, and what it loaded, or the same columns, are written out. In products one operand
names its elements and the other selects them; a last one adds small integers, with scales that differ.
Modelled and compiled: no chip that has tcgen05 has confirmed it yet.
Counting: one instruction of each of the four warps (ld, st), or of one thread; opcodes are static counts.
Source: PTX ISA 9.0, "TensorCore 5th generation family instructions"; CUTLASS, include/cute, its sm100 files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, bits_of, flag, option
from ptxlab.experiments.probe import Arrays, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import tcgen05 as isa
from ptxlab.isa import tcgen05_descriptor as descriptors
from ptxlab.isa import tcgen05_mma as products
from ptxlab.isa.registers import Ints
from ptxlab.isa.tcgen05_descriptor import TensorDescriptor
from ptxlab.isa.tcgen05_mma import KINDS, MmaForm
from ptxlab.isa.types import BITS
from ptxlab.isa.wgmma_descriptor import ATOMS, SharedOperand, fields
from ptxlab.layout.tensor_operands import ALIGNMENT, POISON, TensorOperands

LEFT_OUT = -1
EMPTY = 0xFFFFFFFF  # a cell that nothing was written to
DRAWN = 16  # columns of a picture
PIECE = 16  # lanes of tensor memory that hold rows of D one after the other, whatever its layout
MARK = 0xBEEF0000  # upper half of a cell whose lower half names it
OPS = {"ld": 0, "st": 1, "cp": 2, "shift": 3, "mma": 4, "alloc": 5}
USUAL_SHAPE = {"ld": "32x32b", "st": "32x32b", "cp": "128x256b"}

OPTIONS = {
    "ld": ("shape", "num", "pack", "split", "tmem_lane"),
    "st": ("shape", "num", "pack", "split", "tmem_lane"),
    "cp": ("shape", "cta_group", "swizzle", "decode_desc"), "shift": ("cta_group",),
    "alloc": ("columns", "cta_group"),
    "mma": ("shape", "kind", "dtype", "dtype_b", "acc", "cta_group", "ws", "a", "major", "major_b", "swizzle",
            "scale_block", "scale_type", "tmem_lane", "desc", "decode_desc", "decode_idesc"),
}  # fmt: skip
"""What each operation looks at."""


class Tcgen05Probe(Probe):
    findings = ("descriptor", "instruction descriptor")

    op = option("ld", choices=tuple(OPS), help="tcgen05.ld, .st, .cp, .shift, .mma or .alloc")
    shape = option("", metavar="SHAPE", help="32x32b, … (ld, st), 128x256b, … (cp), mMnNkK (mma)")
    num = option("x4", choices=tuple(f"x{n}" for n in isa.NUMS), help="repetitions of ld and st")
    pack = option(default=False, help="ld .pack::16b, st .unpack::16b: two columns in a register")
    split = option(
        LEFT_OUT, metavar="N", help="columns between the halves of 16x32bx2; left out: side by side"
    )
    tmem_lane = option(0, choices=(0, 16), help="where 16-lane shapes, and D with m = 64, begin in a quarter")
    kind = option("f16", choices=tuple(KINDS), help="kind of mma")
    dtype = option("", choices=tuple(BITS), help="type of A; left out: the kind's first")
    dtype_b = option("", choices=tuple(BITS), help="type of B; left out: A's")
    acc = option("", choices=("f32", "f16", "s32"), help="type of D; left out: the kind's first")
    cta_group = option(1, choices=(1, 2), help="blocks that work together")
    ws = option(default=False, help="the weight-stationary mma")
    a = option("smem", choices=("smem", "tmem"), help="where A comes from")
    major = option("K", choices=("K", "MN"), help="along what A is contiguous in shared memory")
    major_b = option("", choices=("K", "MN"), help="and B; left out: as A in shared memory")
    swizzle = option("128B", choices=tuple(ATOMS), help="swizzle of what lies in shared memory")
    scale_block = option(0, choices=(16, 32), help="elements to a scale; left out: the kind's first")
    scale_type = option(
        "", choices=tuple(products.SCALE_ONE), help="type of scales; left out: the kind's first"
    )
    columns = option(32, metavar="N", help="columns to allocate: 32, 64, 128, 256 or 512")
    desc = option(default=False, help="show the descriptors of A and B")
    decode_desc = option(
        "", metavar="0x…", help="decode 64 bits and judge them as a descriptor of A (or of cp)"
    )
    decode_idesc = option("", metavar="0x…", help="decode 32 bits and judge them as this mma's descriptor")

    def complete(self, params: dict[str, Value]) -> None:
        """Write every point in one way, and refuse options that the operation does not look at."""
        op = str(params["op"])
        usual = {name: each.default for name, each in self.options().items()}
        for name, value in params.items():
            if name != "op" and name not in OPTIONS[op] and value != usual[name]:
                legal = ", ".join(f"--{flag(each)}" for each in OPTIONS[op])
                raise UsageError(f"--{flag(name)} is not looked at by --op {op}; legal: {legal}")
        if op in USUAL_SHAPE:
            params["shape"] = params["shape"] or USUAL_SHAPE[op]
        if op in ("ld", "st") and params["split"] == LEFT_OUT:
            wide = int(str(params["num"])[1:]) * (2 if params["pack"] else 1)
            params["split"] = wide if params["shape"] == "16x32bx2" else 0
        if op == "mma":
            complete_mma(params)

    def check(self, case: Case) -> None:
        isa.check_arch(case.arch, case.op)
        operation(case).check(case.arch)
        for name, width in (("decode_desc", 64), ("decode_idesc", 32)):
            if case.params[name]:
                word_of(case, name, width)

    def variants(self, arch: str) -> Iterator[Case]:
        if arch not in ("sm_100a", "sm_103a"):
            return
        for params in (*every_move(), *every_copy(), *every_mma(arch)):
            yield self.case(arch, **params)

    def macros(self, case: Case) -> Macros:
        return {"OP": OPS[case.op], "CTA_GROUP": case.cta_group, **operation(case).macros()}

    def claims(self, case: Case) -> dict[str, int]:
        pair = ".2CTA" if case.cta_group > 1 else ""
        held = Counter({f"UTCATOMSWS{pair}.FIND_AND_SET.ALIGN": 2, "UTCATOMSWS.AND": 1, "STTM.x8": 1})
        if case.op != "ld":
            held["LDTM.x8"] += 1  # reading back
        if case.op in ("cp", "shift", "mma"):
            held["UTCBAR"] += 1
        held.update(operation(case).sass(case.arch))
        return {name: sum(n for op, n in held.items() if f"{op}.".startswith(f"{name}.")) for name in held}

    def inputs(self, case: Case) -> Arrays:
        return operation(case).inputs()

    def outputs(self, case: Case) -> dict[str, Output]:
        return {"after": Output(operation(case).shape, np.uint32, operation(case).axes)}

    def geometry(self, case: Case) -> Geometry:
        own = operation(case)
        given = own.inputs()
        names = [name if name in given else "tensor" for name in ("tensor", "given", "memory", "descriptors")]
        nbytes = given["memory"].shape[-1] if "memory" in given else 0
        return Geometry(
            arguments=(*names, "after", np.uint32(nbytes // 16), np.uint32(own.instruction)),
            grid=(len(given["tensor"]) * case.cta_group, 1, 1),
            block=(128, 1, 1),
            shared_bytes=nbytes + ALIGNMENT,
            cluster=(case.cta_group, 1, 1) if case.cta_group > 1 else None,
        )

    def expected(self, case: Case) -> Arrays:
        return {"after": operation(case).after()}

    def examine(self, case: Case, outputs: Arrays, record: Record) -> None:
        del outputs
        for name, problems in judged(case).items():
            record.check(name, ok=not problems, detail="; ".join(problems) or "nothing is wrong with it")

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        del outputs, measured
        result = operation(case).report()
        if case.decode_desc:
            result["decoded"] = fields(word_of(case, "decode_desc", 64), TensorDescriptor)
        if case.decode_idesc:
            word = word_of(case, "decode_idesc", 32)
            result["decoded instruction"] = descriptors.instruction_fields(word, case.kind)
        problems = [{"of": name, "problem": each} for name, found in judged(case).items() for each in found]
        return result | ({"problems": problems} if problems else {})

    def conclude(self, case: Case, record: Record) -> str:
        del record
        found = judged(case)
        if found:
            wrong = "; ".join(each for problems in found.values() for each in problems)
            return (wrong or f"Nothing is wrong with the {' and the '.join(found)}") + "."
        return operation(case).sentence


class Operation:
    """What one point does: everything that depends on --op."""

    axes: tuple[str, ...] = ("trial", "block", "lane", "column")

    def __init__(self, case: Case) -> None:
        self.cta_group: int = case.cta_group

    def check(self, arch: str) -> None:
        """Raise UsageError if the form is illegal."""

    def macros(self) -> Macros:
        """Return the macros of the kernel."""
        raise NotImplementedError

    def sass(self, arch: str) -> dict[str, int]:
        """Return the opcodes of the instruction in question."""
        raise NotImplementedError

    def inputs(self) -> dict[str, NDArray[Any]]:
        """Return what the kernel reads: always "tensor", [trials, blocks, lanes, columns]."""
        raise NotImplementedError

    def after(self) -> NDArray[np.uint32]:
        """Return what the kernel writes."""
        raise NotImplementedError

    def report(self) -> dict[str, Any]:
        """Return what is shown."""
        raise NotImplementedError

    @property
    def instruction(self) -> int:
        """The descriptor of the instruction, where it has one."""
        return 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what the kernel writes."""
        return self.inputs()["tensor"].shape

    @property
    def sentence(self) -> str:
        """What a person learns."""
        raise NotImplementedError


class Move(Operation):
    """A load or a store."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        num = int(case.num[1:])
        self.form = isa.MoveForm(case.op, case.shape, num, case.pack, case.split)
        self.lane = case.tmem_lane
        self.loads = case.op == "ld"
        if self.loads:
            self.axes = ("warp", "lane", "register")

    def check(self, arch: str) -> None:
        del arch
        isa.check_move(self.form, self.lane)

    @property
    def width(self) -> int:
        """Columns that are filled."""
        return -(-self.form.columns // 8) * 8

    def macros(self) -> Macros:
        halves = 0 if self.loads or not self.form.pack else self.width
        return {
            **room(self.width, halves), "SHAPE": f"s{self.form.shape}", "NUM": self.form.num,
            "REGISTERS": self.form.registers, "PACK": int(self.form.pack), "SPLIT": self.form.split,
            "LANE": self.lane,
        }  # fmt: skip

    def sass(self, arch: str) -> dict[str, int]:
        del arch
        return self.form.sass

    @property
    def shape(self) -> tuple[int, ...]:
        return (isa.WARPS, 32, self.form.registers) if self.loads else (1, 1, isa.LANES, self.width)

    def inputs(self) -> dict[str, NDArray[Any]]:
        if self.loads:
            return {"tensor": named_cells(self.width)[None, None]}
        return {"tensor": empty_cells(1, 1, self.width), "given": self.registers}

    @property
    def registers(self) -> NDArray[np.uint32]:
        """What is stored, [warp, lane, register]: halves that name thread, register and half, or words."""
        thread, register = np.indices((isa.LANES, self.form.registers), dtype=np.uint32)
        low = thread << np.uint32(8) | register << np.uint32(1)
        words = low | (low | np.uint32(1)) << np.uint32(16) if self.form.pack else low | np.uint32(MARK)
        return words.reshape(isa.WARPS, 32, -1)

    def after(self) -> NDArray[np.uint32]:
        before = self.inputs()["tensor"][0, 0]
        if self.loads:
            return isa.loaded(before, self.form, self.lane)
        after = isa.stored(before, self.form, self.registers, self.lane)
        return (after & np.uint32(0xFFFF) if self.form.pack else after)[None, None]

    def report(self) -> dict[str, Any]:
        where, rows = self.form.map, []
        for warp in range(isa.WARPS):
            for each in where.entries():
                lane = each["row"] + warp * isa.QUARTER + self.lane
                rows.append({"warp": warp, **each, "row": lane})
        reach = [
            {"warp": warp, "lanes of tensor memory": span(warp * isa.QUARTER + self.lane, self.form.lanes)}
            for warp in range(isa.WARPS)
        ]
        closed = self.formulas()
        return {
            "ptx": self.form.ptx,
            "tmem": rows,
            "formulas": {"tmem": closed},
            "shapes": {"tmem": {"rows": isa.LANES, "cols": self.form.columns}},
            "pictures": [self.picture()],
            "reach": reach,
            "in closed form": [{"": name, "is": text} for name, text in closed.items()],
        }

    def formulas(self) -> dict[str, str]:
        """Return the map of all four warps in closed form: row is a lane of tensor memory, col its column."""
        own = isa.formulas(self.form)
        inside = f"row % {isa.QUARTER}" + (f" - {self.lane}" if self.lane else "")
        first = f"{isa.QUARTER} * warp + {self.lane} + " if self.lane else f"{isa.QUARTER} * warp + "
        back = {name: re.sub(r"\brow\b", f"({inside})", own[name]) for name in ("lane", "register", "slot")}
        return {"row": first + own["row"], "col": own["col"], "warp": f"row // {isa.QUARTER}", **back}

    def picture(self) -> dict[str, Any]:
        """Draw a warp's quarter: which lane and register each cell goes to."""
        where = self.form.map
        columns = sorted(set(where.place["col"].tolist()))[:DRAWN]
        cells = [[""] * len(columns) for _ in range(self.form.lanes)]
        colours: list[list[int | None]] = [[None] * len(columns) for _ in range(self.form.lanes)]
        places = (where.lane, where.register, where.slot, where.place["row"], where.place["col"])
        for lane, register, slot, row, col in zip(*(each.tolist() for each in places), strict=True):
            if col in columns:
                half = "ab"[slot] if self.form.pack else ""
                cells[row][columns.index(col)] = f"{lane} r{register}{half}"
                colours[row][columns.index(col)] = lane
        cut = f", {len(columns)} of {self.form.columns} columns" if len(columns) < self.form.columns else ""
        return {
            "title": f"a warp's quarter of tensor memory: lane and register of each cell{cut}",
            "cells": cells,
            "colours": colours,
            "row_names": [f"lane {self.lane + row}" for row in range(self.form.lanes)],
            "column_names": [f"col {col}" for col in columns],
        }

    @property
    def sentence(self) -> str:
        verb = "loads" if self.loads else "stores"
        packed = ", two columns' low halves in each" if self.form.pack else ""
        return (
            f"Each warp {verb} {self.form.registers} registers of each lane{packed}: {self.form.lanes} of "
            f"the 32 lanes of tensor memory that it reaches, {self.form.columns - self.form.split} columns."
        )


class SharedCopy(Operation):
    """A copy from shared memory."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.name, self.swizzle = str(case.shape), str(case.swizzle)

    def check(self, arch: str) -> None:
        del arch
        if self.name not in isa.COPIES:
            raise UsageError(f"tcgen05.cp has no shape {self.name}; legal: {', '.join(isa.COPIES)}")
        if self.swizzle == "128B_base32B":
            raise UsageError("the source of tcgen05.cp is K-major; legal: --swizzle none, 32B, 64B or 128B")

    @property
    def form(self) -> isa.Copy:
        """The copy."""
        return isa.COPIES[self.name]

    @property
    def operand(self) -> SharedOperand:
        """How the source lies in shared memory: rows of bytes, at least one core matrix of them."""
        return SharedOperand(0, max(8, self.form.rows), self.form.nbytes, 8, "K", self.swizzle)

    @property
    def descriptor(self) -> TensorDescriptor:
        """The source's descriptor, from its first byte."""
        own = self.operand.descriptor(0, 0)
        return TensorDescriptor(own.start, own.lbo, own.sbo, own.swizzle)

    @property
    def rows(self) -> NDArray[np.uint8]:
        """The source, [rows, bytes]; each word names its row and place."""
        row, word = np.indices((self.form.rows, self.form.columns), dtype=np.uint32)
        return (np.uint32(MARK) | row << np.uint32(8) | word).view(np.uint8)

    def macros(self) -> Macros:
        shape = self.name.replace(".warpx2::", "_").replace(".warpx4", "")
        return {**room(8), "SHAPE": f"s{shape}"}

    def sass(self, arch: str) -> dict[str, int]:
        del arch
        return {isa.copy_sass(self.name, self.cta_group): 1}

    def inputs(self) -> dict[str, NDArray[Any]]:
        image = np.full(self.operand.nbytes, POISON, dtype=np.uint8)
        places = self.descriptor.addresses(self.form.rows, self.form.nbytes, 8, "K")
        image[places] = self.rows
        return {
            "tensor": empty_cells(1, self.cta_group, 8),
            "memory": np.tile(image, (1, self.cta_group, 1)),
            "descriptors": np.array([self.descriptor.word, 0], dtype=np.uint64),
        }

    def after(self) -> NDArray[np.uint32]:
        one = isa.copied(empty_cells(1, 1, 8)[0, 0], self.name, self.rows)
        return np.tile(one, (1, self.cta_group, 1, 1))

    def report(self) -> dict[str, Any]:
        source = np.full(isa.LANES, LEFT_OUT)
        for row, lanes in enumerate(self.form.lanes.tolist()):
            source[lanes] = row
        return {
            "ptx": f"tcgen05.cp.cta_group::{self.cta_group}.{self.name}",
            "pictures": [lane_picture("row of the source in each lane of tensor memory", source)],
            "descriptor": [{"descriptor": f"0x{self.descriptor.word:016x}", **each} for each in
                           fields(self.descriptor.word, TensorDescriptor)],
        }  # fmt: skip

    @property
    def sentence(self) -> str:
        form, copies = self.form, len(self.form.copies)
        times = f", {copies} times over" if copies > 1 else ""
        pair = " of both blocks" if self.cta_group > 1 else ""
        return (
            f"{form.rows} rows of {form.nbytes} bytes go to {form.lanes.size} lanes{pair}{times}, "
            f"{form.columns} columns each."
        )


class Shift(Operation):
    """A shift by one lane."""

    def macros(self) -> Macros:
        return room(16)

    def sass(self, arch: str) -> dict[str, int]:
        del arch
        return {f"UTCSHIFT{'.2CTA' if self.cta_group > 1 else ''}.DOWN": 1}

    def inputs(self) -> dict[str, NDArray[Any]]:
        return {"tensor": np.tile(named_cells(16), (1, self.cta_group, 1, 1))}

    def after(self) -> NDArray[np.uint32]:
        return np.tile(isa.shifted(named_cells(16)), (1, self.cta_group, 1, 1))

    def report(self) -> dict[str, Any]:
        source = (self.after()[0, 0, :, 0] >> np.uint32(9) & np.uint32(127)).astype(np.int64)
        title = f"lane that each lane's first {isa.SHIFTED_COLUMNS} columns come from"
        ptx = f"tcgen05.shift.cta_group::{self.cta_group}.down"
        return {"ptx": ptx, "pictures": [lane_picture(title, source)]}

    @property
    def sentence(self) -> str:
        return (
            f"{isa.SHIFTED_COLUMNS} columns of lanes 1 to 31 move to lanes 0 to 30, and lane 31 stays. That "
            "is a guess: the documentation has all rows but the last go down by one, and shows no figure."
        )


class Multiply(Operation):
    """A matrix product."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.form = form_of(case)
        self.lane, self.desc, self.swizzle = case.tmem_lane, case.desc, case.swizzle
        self.operands = TensorOperands(self.form, case.swizzle, case.tmem_lane)

    def check(self, arch: str) -> None:
        products.check_form(self.form, arch, self.swizzle)
        if self.lane and self.form.layout != "F":
            raise UsageError(
                f"D of layout {self.form.layout} at lane {self.lane}; legal: 0, but 0 or 16 of layout F"
            )
        if self.form.block and self.form.cta_group > 1 and self.form.m == isa.LANES:
            raise UsageError("scales of m = 128 in two blocks are not modelled; legal: m256")

    @property
    def instruction(self) -> int:
        return descriptors.instruction_word(self.form)

    def macros(self) -> Macros:
        own, form = self.operands, self.form
        kind = f"{form.kind}_block{form.block}" if form.kind == "mxf4nvf4" else form.kind
        return {
            **room(own.width, own.halves), "KIND": kind, "WS": int(form.weights_stationary),
            "A_TMEM": int(form.a_in_tmem), "SCALED": int(bool(form.block)), "LANE": self.lane,
            "A_COLUMN": own.a_column, "SCALE_A": own.scale_columns[0], "SCALE_B": own.scale_columns[1],
        }  # fmt: skip

    def sass(self, arch: str) -> dict[str, int]:
        return {self.form.sass(arch): 1}

    @property
    def shape(self) -> tuple[int, ...]:
        own = self.operands
        return (len(own.trials.trials), self.form.cta_group, isa.LANES, own.width)

    def inputs(self) -> dict[str, NDArray[Any]]:
        shared = self.operands.shared
        words = [self.operands.descriptor(name).word if name in shared else 0 for name in "AB"]
        return {
            "tensor": self.operands.tensor,
            "memory": self.operands.images,
            "descriptors": np.array(words, dtype=np.uint64),
        }

    def after(self) -> NDArray[np.uint32]:
        return self.operands.after

    def report(self) -> dict[str, Any]:
        form = self.form
        result: dict[str, Any] = {
            "ptx": form.ptx,
            "tmem": self.entries(),
            "shapes": {
                "A": {"rows": form.m, "cols": form.k},
                "B": {"rows": form.k, "cols": form.n},
                "tmem": {"rows": form.m, "cols": form.n},
            },
            "aliases": {"D": "tmem"},
            "D in tensor memory": self.pieces(),
            "pictures": [self.picture(block) for block in range(self.cta_group)],
            "instruction descriptor": [
                {"descriptor": f"0x{self.instruction:08x}", **each}
                for each in descriptors.instruction_fields(self.instruction, form.kind)
            ],
        }
        if self.desc:
            result["descriptors"] = [
                {"operand": name, "descriptor": f"0x{self.operands.descriptor(name).word:016x}", **each}
                for name in self.operands.shared
                for each in fields(self.operands.descriptor(name).word, TensorDescriptor)
            ]
        return result

    def entries(self) -> list[dict[str, int]]:
        """Return who holds D when each warp loads its quarter with 32x32b: register is the column."""
        block, lane, column = (each.ravel().tolist() for each in self.form.d_places(self.lane))
        row, col = (each.ravel().tolist() for each in np.indices((self.form.m, self.form.n)))
        return [
            {"block": b, "warp": at // 32, "lane": at % 32, "register": c, "slot": 0, "row": m, "col": n}
            for b, at, c, m, n in zip(block, lane, column, row, col, strict=True)
        ]

    def picture(self, block: int) -> dict[str, Any]:
        """Draw D in a block's tensor memory piece by piece; a colour stands for rows of D."""
        blocks, lane, column = self.form.d_places(self.lane)
        step = -(-self.form.d_columns // (DRAWN // 2))
        starts = range(0, self.form.d_columns, step)
        cells = [[""] * len(starts) for _ in range(isa.LANES // PIECE)]
        colours: list[list[int | None]] = [[None] * len(starts) for _ in cells]
        corners = (blocks == block) & (lane % PIECE == 0) & (column % step == 0)
        for m, n in np.argwhere(corners).tolist():
            row, first = int(lane[m, n]) // PIECE, int(column[m, n])
            wide = min(step, self.form.d_columns - first)
            cells[row][first // step] = f"{span(m, PIECE)}, {span(n, wide)}"
            colours[row][first // step] = m // PIECE
        of = f" of block {block}" if self.cta_group > 1 else ""
        return {
            "title": f"tensor memory{of}, columns from D's first: the rows, columns of D in each piece",
            "cells": cells,
            "colours": colours,
            "row_names": [f"lanes {span(row * PIECE, PIECE)}" for row in range(len(cells))],
            "column_names": [f"+{start}" for start in starts],
        }

    def pieces(self) -> list[dict[str, int | str]]:
        """Return what of D each warp reaches."""
        block, lane, column = self.form.d_places(self.lane)
        grid = np.indices(block.shape)
        found: list[dict[str, int | str]] = []
        for b, warp in product(range(self.cta_group), range(isa.WARPS)):
            own = (block == b) & (lane // isa.QUARTER == warp)
            found.append(
                {
                    "block": b,
                    "warp": warp,
                    "lanes of tensor memory": extent(lane[own]),
                    "columns of it": extent(column[own]),
                    "rows of D": extent(grid[0][own]),
                    "columns of D": extent(grid[1][own]),
                }
            )
        return found

    @property
    def sentence(self) -> str:
        form = self.form
        where = {
            "A": "128 rows in each block, one a lane",
            "B": "64 rows in each block, the right half of the columns in the upper 64 lanes",
            "D": "one row a lane",
            "E": "the right half of the columns in the upper 64 lanes",
            "F": f"16 rows in each quarter, from its lane {self.lane} on; the other lanes stay free",
            "G": "a quarter of the columns in each quarter of the lanes",
        }[form.layout]
        note = ""
        if form.m == isa.LANES and form.cta_group == 1 and form.n % 16:
            note = " CUTLASS takes N in steps of 16 with m = 128, the PTX document in steps of 8."
        scales = f", with a {form.scale} scale for each {form.block} elements" if form.block else ""
        return (
            f"D has layout {form.layout}: {where}; {form.d_columns} columns{scales}. The instruction "
            f"descriptor is 0x{self.instruction:08x}.{note}"
        )


class Allocation(Operation):
    """The allocation of columns, all of whose cells keep what is written to them."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.columns: int = case.columns

    def check(self, arch: str) -> None:
        del arch
        isa.check_columns(self.columns)

    def macros(self) -> Macros:
        return room(self.columns)

    def sass(self, arch: str) -> dict[str, int]:
        del arch
        return {}

    def inputs(self) -> dict[str, NDArray[Any]]:
        return {"tensor": np.tile(named_cells(self.columns), (1, self.cta_group, 1, 1))}

    def after(self) -> NDArray[np.uint32]:
        return self.inputs()["tensor"]

    def report(self) -> dict[str, Any]:
        row = {
            "columns": self.columns, "lanes": isa.LANES, "bytes": 4 * self.columns * isa.LANES,
            "address bits 31-16": "lane", "address bits 15-0": "column", "of a block's": isa.COLUMNS,
        }  # fmt: skip
        reach = [{"warp": w, "lanes": span(w * isa.QUARTER, isa.QUARTER)} for w in range(isa.WARPS)]
        ptx = f"tcgen05.alloc.cta_group::{self.cta_group}.sync.aligned.shared::cta.b32"
        return {"ptx": ptx, "allocation": [row], "reach": reach, "pictures": [self.picture()]}

    def picture(self) -> dict[str, Any]:
        """Draw how much of tensor memory is allocated, and who reaches it."""
        starts, warps = range(0, isa.COLUMNS, 32), range(isa.WARPS)
        own = [start < self.columns for start in starts]
        return {
            "title": "a block's tensor memory, columns from the address that alloc returns: who reaches what "
            "is allocated",
            "cells": [[f"warp {warp}" if ours else "" for ours in own] for warp in warps],
            "colours": [[8 * warp if ours else None for ours in own] for warp in warps],
            "row_names": [f"lanes {span(warp * isa.QUARTER, isa.QUARTER)}" for warp in warps],
            "column_names": [f"+{start}" for start in starts],
        }

    @property
    def sentence(self) -> str:
        return (
            f"{self.columns} columns of all {isa.LANES} lanes, {4 * self.columns * isa.LANES} bytes of the "
            f"{4 * isa.COLUMNS * isa.LANES} that a block has; the kernel gives them back before it ends."
        )


OPERATIONS: dict[str, type[Operation]] = {
    "ld": Move, "st": Move, "cp": SharedCopy, "shift": Shift, "mma": Multiply, "alloc": Allocation,
}  # fmt: skip


@lru_cache(maxsize=4)
def operation(case: Case) -> Operation:
    """Return what a point does."""
    return OPERATIONS[case.op](case)


def complete_mma(params: dict[str, Value]) -> None:
    """Fill in what was left out of a product, and leave out what is as it would be anyway."""
    kind = KINDS[str(params["kind"])]
    params["dtype"] = params["dtype"] or kind.types[0]
    params["acc"] = params["acc"] or kind.accumulators[0]
    if params["dtype_b"] == params["dtype"]:
        params["dtype_b"] = ""
    if kind.scales:
        params["scale_block"] = params["scale_block"] or next(iter(kind.scales))
        types = kind.scales.get(int(str(params["scale_block"])), ("",))
        params["scale_type"] = params["scale_type"] or types[0]
    rows = 256 if params["cta_group"] == 2 else 128
    params["shape"] = params["shape"] or f"m{rows}n64k{kind.k}"


@lru_cache(maxsize=64)
def form_of(case: Case) -> MmaForm:
    """Return the form of a product."""
    in_tmem = case.a == "tmem"
    major_b = case.major_b or ("K" if in_tmem else case.major)
    form = MmaForm(
        case.kind, 0, 0, case.dtype, case.dtype_b or case.dtype, case.acc, case.cta_group, case.ws, in_tmem,
        case.major, major_b, case.scale_block, case.scale_type,
    )  # fmt: skip
    products.check_form(form, case.arch, case.swizzle)
    return products.parse_shape(case.shape, form)


def judged(case: Case) -> dict[str, list[str]]:
    """Return what is wrong with the descriptors that were to be decoded, by finding."""
    found = {}
    if case.decode_desc:
        word = word_of(case, "decode_desc", 64)
        if case.op == "cp":
            own = isa.COPIES[case.shape]
            found["descriptor"] = descriptors.lint(word, rows=own.rows, k=own.nbytes, bits=8, major="K")
        else:
            form = form_of(case)
            bits, rows = form.slot_bits(form.a), form.m // form.cta_group
            found["descriptor"] = descriptors.lint(word, rows=rows, k=form.k, bits=bits, major=form.a_major)
    if case.decode_idesc:
        word = word_of(case, "decode_idesc", 32)
        found["instruction descriptor"] = descriptors.lint_instruction(word, form_of(case))
    return found


def word_of(case: Case, name: str, width: int) -> int:
    """Return the bits to decode."""
    found = bits_of(str(case.params[name]))
    if not 0 <= found < 1 << width:
        raise UsageError(
            f"'{case.params[name]}' is no descriptor; legal: {width} bits, such as 0x{1 << (width - 2):x}"
        )
    return found


def room(width: int, halves: int = 0) -> Macros:
    """Return the macros about the columns that are filled."""
    return {"ALLOC": isa.allocation(width), "WIDTH": width, "HALVES": halves}


def named_cells(width: int) -> NDArray[np.uint32]:
    """Return tensor memory whose cells name their lane and column in the lower half."""
    lane, column = np.indices((isa.LANES, width), dtype=np.uint32)
    return np.asarray(np.uint32(MARK) | lane << np.uint32(9) | column, dtype=np.uint32)


def empty_cells(trials: int, blocks: int, width: int) -> NDArray[np.uint32]:
    """Return tensor memory that holds nothing."""
    return np.full((trials, blocks, isa.LANES, width), EMPTY, dtype=np.uint32)


def span(first: int, count: int) -> str:
    """Return numbers in a row as a person writes them."""
    return f"{first}-{first + count - 1}"


def extent(numbers: Ints) -> str:
    """Return the runs of the numbers that occur."""
    each = np.unique(numbers)
    first = [n for n in each.tolist() if n - 1 not in each]
    last = [n for n in each.tolist() if n + 1 not in each]
    return ", ".join(f"{low}-{high}" for low, high in zip(first, last, strict=True))


def lane_picture(title: str, source: Ints) -> dict[str, Any]:
    """Draw the lanes of tensor memory, sixteen a line, with a number in each; -1 is nothing."""
    lines = source.reshape(-1, 16).tolist()
    return {
        "title": title,
        "cells": [["" if n == LEFT_OUT else str(n) for n in line] for line in lines],
        "colours": [[None if n == LEFT_OUT else n % 32 for n in line] for line in lines],
        "row_names": [f"lanes {span(16 * i, 16)}" for i in range(len(lines))],
        "column_names": [f"+{i}" for i in range(16)],
    }


def every_move() -> Iterator[Mapping[str, Value]]:
    """Yield loads and stores of every shape, packed too, and the largest."""
    for op in ("ld", "st"):
        for shape in isa.PER_NUM:
            yield {"op": op, "shape": shape, "num": "x2"}
            yield {"op": op, "shape": shape, "num": "x2", "pack": True}
    for shape, num in (("32x32b", "x1"), ("32x32b", "x4"), ("32x32b", "x128"), ("16x64b", "x128"),
                       ("16x128b", "x64"), ("16x256b", "x32"), ("16x256b", "x1")):  # fmt: skip
        yield {"op": "ld", "shape": shape, "num": num}
    yield {"op": "ld", "shape": "16x256b", "num": "x1", "tmem_lane": 16}
    yield {"op": "st", "shape": "16x64b", "num": "x4", "tmem_lane": 16}
    yield {"op": "ld", "shape": "16x32bx2", "num": "x2", "split": 16}


def every_copy() -> Iterator[Mapping[str, Value]]:
    """Yield copies of every shape and swizzle, shifts and allocations."""
    yield from ({"op": "cp", "shape": shape} for shape in isa.COPIES)
    yield from ({"op": "cp", "shape": "128x256b", "swizzle": each} for each in ("none", "32B", "64B"))
    yield {"op": "cp", "shape": "32x128b.warpx4", "swizzle": "none", "cta_group": 2}
    yield from ({"op": "shift", "cta_group": group} for group in (1, 2))
    yield from ({"op": "alloc", "columns": columns} for columns in (32, 512))
    yield {"op": "alloc", "columns": 64, "cta_group": 2}


def every_mma(arch: str) -> Iterator[Mapping[str, Value]]:
    """Yield products of every kind, layout of D, place and major of the operands, and scale."""
    yield from (_mma(kind=kind) for kind in KINDS if kind != "i8" or arch == "sm_100a")
    yield _mma(dtype="bf16", shape="m64n8k16")
    yield _mma(shape="m64n24k16", tmem_lane=16)
    yield _mma(acc="f16", shape="m128n256k16")
    yield _mma(kind="f8f6f4", acc="f16", dtype="e5m2", dtype_b="e3m2", shape="m64n32k32")
    yield from (_mma(kind="f8f6f4", dtype=each, dtype_b="e4m3") for each in ("e2m1", "e2m3"))
    yield from (_mma(shape=f"m{m}n64k16", ws=True) for m in (32, 64, 128))
    yield from (_mma(shape=f"m{m}n64k16", cta_group=2) for m in (128, 256))
    yield from (_mma(major="MN", swizzle=each) for each in ("none", "32B", "64B", "128B"))
    yield from (_mma(swizzle=each) for each in ("none", "32B", "64B"))
    yield _mma(kind="tf32", major="MN", swizzle="128B_base32B")
    yield _mma(kind="f8f6f4", dtype="e4m3", major="MN")
    yield from (_mma(a="tmem", kind=kind) for kind in ("f16", "tf32", "f8f6f4", "mxf4"))
    yield from (_mma(a="tmem", shape=f"m{m}n32k16", cta_group=2) for m in (128, 256))
    yield _mma(a="tmem", shape="m64n32k16", tmem_lane=16)
    yield _mma(kind="mxf4nvf4", scale_type="ue8m0")
    yield _mma(kind="mxf4nvf4", scale_block=32)
    yield _mma(kind="mxf8f6f4", dtype="e5m2", dtype_b="e2m1", shape="m256n128k32", cta_group=2)


def _mma(**more: Value) -> dict[str, Value]:
    return {"op": "mma", **more}
