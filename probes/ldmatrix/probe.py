"""Which lane holds what after ldmatrix?

Method: every element of a tile in shared memory carries its own coordinates; each lane supplies one address
and writes the registers it received. The same launch repeats that with one lane's address moved to a row of
poison, for each of the 32 lanes, which shows what every single lane contributes.
Counting: one warp instruction. Wavefronts are those of one ldmatrix at the shared-memory port.
Source: PTX ISA, "Warp-level matrix load instruction: ldmatrix".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, option, sizes
from ptxlab.experiments.probe import Arrays, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import ldmatrix as isa
from ptxlab.isa.types import BITS
from ptxlab.layout.coordinates import Coordinates
from ptxlab.layout.fragments import LOADS, Placement
from ptxlab.layout.tile import CHUNK_BYTES, spans
from ptxlab.toolchain.arch import base_number

POISON = 0xFF  # every byte of padding and of the poison row: no coordinate has all bits set
PTX_TYPES = ("b16", "b8", "b6x16_p32", "b4x16_p64")
ELEMENT_TYPES = tuple(name for name, bits in BITS.items() if bits in (4, 6, 8, 16, 32))


class LdMatrixProbe(Probe):
    findings = ("address map",)
    hints = dict.fromkeys("AB", "ptxlab probe mma tells which ldmatrix loads its A and B, and from where")

    num = option(
        "",
        choices=("x1", "x2", "x4"),
        help="matrices that one instruction loads; left out: the most",
    )
    trans = option(default=False, help="transpose each matrix on its way into registers")
    shape = option("m8n8", choices=("m8n8", "m16n16", "m8n16"), help="shape of one matrix")
    dtype = option("b16", choices=(*PTX_TYPES, *ELEMENT_TYPES), help="PTX type, or the type of the elements")
    tile = option(
        "", metavar="ROWSxCOLS", help="tile in shared memory; left out: just the matrices", maps=False
    )
    pitch = option(0, metavar="BYTES", help="from one row of the tile to the next; 0: rows touch", maps=False)
    swizzle = option(
        "none", metavar="MODE|B,M,S", help="none, 32B, 64B, 128B, or B,M,S in elements", maps=False
    )
    addr = option(
        "",
        metavar="EXPR",
        help="byte address of each lane, after the swizzle: 'lane % 16 * 32 + lane // 16 * 16'",
        maps=False,
    )
    poison_unused_lanes = option(
        default=True,
        help="lanes that supply no row point at poison; otherwise at the rows of lower lanes",
        maps=False,
    )

    def complete(self, params: dict[str, Value]) -> None:
        if not params["num"]:
            params["num"] = "x2" if params["shape"] == "m16n16" else "x4"

    def check(self, case: Case) -> None:
        isa.check_form(form_of(case), case.arch)
        if not placement(case).hits:
            raise UsageError(f"address expression '{case.addr}' reads no row of the tile")

    def identity(self, case: Case) -> Hashable:
        placed = placement(case)
        return form_of(case), placed.tile, placed.offsets

    def variants(self, arch: str) -> Iterator[Case]:
        for form in isa.legal_forms(arch):
            yield self.case(arch, num=f"x{form.num}", trans=form.trans, shape=form.shape, dtype=form.dtype)
        for num in ("x1", "x2", "x4"):
            for trans in (False, True):
                yield self.case(arch, num=num, trans=trans, poison_unused_lanes=False)
        for tile, swizzle in (
            ("16x16", "32B"),
            ("16x32", "64B"),
            ("16x64", "128B"),
            ("16x64", "3,3,3"),
        ):
            yield self.case(arch, tile=tile, swizzle=swizzle)
            yield self.case(arch, tile=tile, swizzle=swizzle, trans=True)
        for pitch in (48, 80, 144, 272):
            yield self.case(arch, pitch=pitch)
        for dtype in ("tf32", "e4m3", "s4"):
            yield self.case(arch, dtype=dtype)
        yield self.case(arch, num="x2", addr="lane % 8 * 16")
        yield self.case(arch, addr="lane % 8 * 32 + lane // 16 * 256 + lane // 8 % 2 * 16")

    def macros(self, case: Case) -> Macros:
        form = form_of(case)
        return {
            "SHAPE": form.shape, "NUM": form.num, "REGISTERS": form.registers,
            "TRANS": int(form.trans), "TYPE": form.dtype,
        }  # fmt: skip

    def claims(self, case: Case) -> dict[str, int]:
        return {"LDSM": 1, form_of(case).sass: 1}

    def inputs(self, case: Case) -> Arrays:
        return {"tile": memory_planes(case), "addresses": placement(case).maps().astype(np.uint32)}

    def outputs(self, case: Case) -> dict[str, Output]:
        planes, maps = len(memory_planes(case)), len(placement(case).maps())
        shape = (planes, maps, 32, form_of(case).registers)
        return {"registers": Output(shape, np.uint32, ("plane", "map", "lane", "register"))}

    def geometry(self, case: Case) -> Geometry:
        tile = memory_planes(case)
        chunks = np.uint32(tile.shape[1] // CHUNK_BYTES)
        return Geometry(
            arguments=("tile", "addresses", "registers", chunks),
            grid=(len(placement(case).maps()), len(tile), 1),
            shared_bytes=tile.shape[1],
        )

    def expected(self, case: Case) -> Arrays:
        form, maps = form_of(case), placement(case).maps()
        found = [[isa.ldmatrix(memory, m, form) for m in maps] for memory in memory_planes(case)]
        return {"registers": np.array(found, dtype=np.uint32)}

    def examine(self, case: Case, outputs: Arrays, record: Record) -> None:
        ok, detail = contributions(case, coordinates(case, outputs["registers"]))
        record.check("lane addresses", ok=ok, detail=detail)
        if placement(case).mistaken:
            record.check("address map", ok=False, detail=placement(case).explanation(LOADS))

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        form, code, placed = form_of(case), coordinates_of(case), placement(case)
        entries = isa.register_map(form).entries()
        values = coordinates(case, outputs["registers"])[0].tolist()
        if measured:
            registers = [{**entry, "value": v} for entry, v in zip(entries, values, strict=True)]
        result: dict[str, Any] = {
            "ptx": form.ptx,
            "registers": registers if measured else entries,
            "holds": [
                {"lane": entry["lane"], "register": entry["register"], "slot": entry["slot"],
                 "tile_row": code.place(value)[0], "tile_col": code.place(value)[1]}
                for entry, value in zip(entries, values, strict=True)
            ],
            "formulas": isa.formulas(form),
            "matrix": {"rows": form.rows, "cols": form.cols},
            "addresses": placed.used,
            "tile": {
                "rows": code.rows, "cols": code.cols, "bits": code.width, "pitch": placed.tile.pitch,
                "swizzle_bytes": list(placed.tile.swizzle.parameters),
            },
        }  # fmt: skip
        result["banks"] = placed.banks(f"ldmatrix.{case.num}") if form.shape == "m8n8" else None
        return result

    def conclude(self, case: Case, record: Record) -> str:
        form, cost = form_of(case), record.result["banks"]
        price = f"Wavefronts of {form.shape} are not modelled."
        if cost:
            price = f"Wavefronts: {cost['wavefronts']}, ideal {cost['ideal']}.{remedy(case)}"
        price += every_lane(case)
        if unusual := placement(case).explanation(LOADS):
            return f"{unusual} {price}"
        per, line = 32 // form.slot_bits, "column" if form.trans else "row"
        which = f"elements {per}*j to {per}*j+{per - 1}" if per > 1 else "element j"
        line += "s i and i+8" if form.shape == "m16n16" else " i"
        return (
            f"Lanes 0-{form.addresses - 1} each supply one 16-byte row; lane 4*i+j receives "
            f"{which} of {line} of every matrix. {price}"
        )


def every_lane(case: Case) -> str:
    """Return what Turing asks of the lanes that supply no row. Source: PTX ISA, ldmatrix, on .num."""
    first = form_of(case).addresses
    if base_number(case.arch) > 75 or first == 32:
        return ""
    return f" On {case.arch} lanes {first}-31 must hold valid addresses too, such as those of lower lanes."


def form_of(case: Case) -> isa.LdMatrixForm:
    """Return the instruction's form: an element type is moved by the PTX type that carries it."""
    num, dtype = int(case.num[1:]), case.dtype
    if dtype in PTX_TYPES:
        return isa.LdMatrixForm(case.shape, num, case.trans, dtype)
    bits = BITS[dtype]
    if case.shape != "m8n8":
        carrier = {4: "b4x16_p64", 6: "b6x16_p32", 8: "b8"}.get(bits, "b16")
        return isa.LdMatrixForm(case.shape, num, case.trans, carrier)
    if bits == 6:
        raise UsageError(f"6-bit {dtype} elements do not fill 16-bit units; legal: --shape m8n16 or m16n16")
    return isa.LdMatrixForm(case.shape, num, case.trans, "b16", 0 if bits == 16 else bits)


def placement(case: Case) -> Placement:
    """Return the tile in shared memory and what each lane points at."""
    return Placement.of(
        form_of(case),
        extent=sizes(case.tile, parts=2, what="tile") if case.tile else None,
        pitch=case.pitch,
        swizzle=case.swizzle,
        expression=case.addr,
        spare=case.poison_unused_lanes,
    )


def remedy(case: Case) -> str:
    """Return which options would spare the conflicts that there are, or ""."""
    found = placement(case).remedies(f"ldmatrix.{case.num}")
    return f" Without conflicts: {' or '.join(found)}." if found else ""


def coordinates_of(case: Case) -> Coordinates:
    """Return what the elements of the tile say of themselves."""
    form, tile = form_of(case), placement(case).tile
    return Coordinates(tile.rows, tile.chunks * form.cols, form.stored_bits)


def memory_planes(case: Case) -> NDArray[np.uint8]:
    """Return shared memory, shape [planes, bytes]: the tile, then a 16-byte row of poison."""
    form, tile, code = form_of(case), placement(case).tile, coordinates_of(case)
    poison = np.full(CHUNK_BYTES, POISON, dtype=np.uint8)
    images = (tile.image(code.packed(plane, form.cols), POISON) for plane in range(code.planes))
    return np.stack([np.concatenate([image, poison]) for image in images])


def coordinates(case: Case, registers: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the coordinate that each slot holds, for each map: shape [maps, entries]."""
    where = isa.register_map(form_of(case))
    planes = [
        np.stack([where.slots_of(of_map) for of_map in of_plane]).astype(np.int64) for of_plane in registers
    ]
    return coordinates_of(case).joined(planes)


def contributions(case: Case, codes: NDArray[np.int64]) -> tuple[bool, str]:
    """Say whether each lane that should supplies exactly one row of one matrix, and no other lane any."""
    form = form_of(case)
    where = isa.register_map(form)
    owner = where.place["matrix"] * form.rows + where.place["row"]
    wrong = [lane for lane in range(32) if not np.array_equal(codes[1 + lane] != codes[0], owner == lane)]
    if wrong:
        return (
            False,
            f"moving the address of lanes {spans(wrong)} did not change just their own rows",
        )
    above = f"; lanes {spans(range(form.addresses, 32))} supply none" if form.addresses < 32 else ""
    return (
        True,
        f"each of lanes 0-{form.addresses - 1} supplies exactly one row of one matrix{above}",
    )
