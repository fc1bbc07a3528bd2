"""Which byte of shared memory receives what from stmatrix?

Method: every element of every register carries its number in the order of lane, register and slot; each lane
supplies one address, and shared memory is written out after the store. The same launch repeats that with one
lane's address moved to a spare row, for each of the 32 lanes, which shows what every single lane contributes.
Counting: one warp instruction. Wavefronts are those of one stmatrix at the shared-memory port.
Source: PTX ISA, "Warp-level matrix store instruction: stmatrix".
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
from ptxlab.isa import stmatrix as isa
from ptxlab.layout.fragments import STORES, Placement
from ptxlab.layout.tile import CHUNK_BYTES, spans

BLANK = 0xFF  # what every byte of shared memory holds before the store
NAME_BITS = 16  # of what an element carries: of 8-bit ones two planes show it


class StMatrixProbe(Probe):
    findings = ("address map",)

    num = option("x4", choices=("x1", "x2", "x4"), help="matrices that one instruction stores")
    trans = option(default=False, help="transpose each matrix on its way into memory")
    shape = option("m8n8", choices=("m8n8", "m16n8"), help="shape of one matrix")
    dtype = option("b16", choices=("b16", "b8"), help="PTX type of the elements")
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
        help="byte address of each lane, such as 'lane % 8 * 32 + lane // 8 * 16'",
        maps=False,
    )
    poison_unused_lanes = option(
        default=True,
        help="lanes that supply no row point at the spare row; otherwise at the rows of lower lanes",
        maps=False,
    )

    def check(self, case: Case) -> None:
        isa.check_form(form_of(case), case.arch)
        if not placement(case).hits:
            raise UsageError(f"address expression '{case.addr}' writes no row of the tile")

    def identity(self, case: Case) -> Hashable:
        placed = placement(case)
        return form_of(case), placed.tile, placed.offsets

    def variants(self, arch: str) -> Iterator[Case]:
        for form in isa.legal_forms(arch):
            given: dict[str, Value] = {"num": f"x{form.num}", "trans": form.trans}
            given |= {"shape": form.shape, "dtype": form.dtype}
            yield self.case(arch, **given)
            yield self.case(arch, **given, poison_unused_lanes=False)
        if arch in isa.TOO_OLD:
            return
        for trans in (False, True):
            for tile, swizzle in (("16x16", "32B"), ("16x32", "64B"), ("16x64", "128B"), ("16x64", "3,3,3")):
                yield self.case(arch, tile=tile, swizzle=swizzle, trans=trans)
            for pitch in (48, 80, 144, 272):
                yield self.case(arch, pitch=pitch, trans=trans)
        yield self.case(arch, num="x2", addr="lane % 16 // 8 * 16 + lane % 8 * 32", tile="8x16")
        yield self.case(arch, addr="lane % 8 * 32 + lane // 16 * 256 + lane // 8 % 2 * 16")

    def macros(self, case: Case) -> Macros:
        form = form_of(case)
        return {"SHAPE": form.shape, "NUM": form.num, "TRANS": int(form.trans)}

    def claims(self, case: Case) -> dict[str, int]:
        return {"STSM": 1, form_of(case).sass: 1}

    def inputs(self, case: Case) -> Arrays:
        return {"registers": registers_of(case), "addresses": placement(case).maps().astype(np.uint32)}

    def outputs(self, case: Case) -> dict[str, Output]:
        placed = placement(case)
        shape = (len(registers_of(case)), len(placed.maps()), placed.nbytes)
        return {"image": Output(shape, np.uint8, ("plane", "map", "byte"))}

    def geometry(self, case: Case) -> Geometry:
        placed = placement(case)
        return Geometry(
            arguments=("registers", "addresses", "image", np.uint32(placed.nbytes // CHUNK_BYTES)),
            grid=(len(placed.maps()), len(registers_of(case)), 1),
            shared_bytes=placed.nbytes,
        )

    def expected(self, case: Case) -> Arrays:
        form, maps = form_of(case), placement(case).maps()
        blank = np.full(placement(case).nbytes, BLANK, dtype=np.uint8)
        found = [[isa.stmatrix(blank, each, held, form) for each in maps] for held in registers_of(case)]
        return {"image": np.array(found)}

    def examine(self, case: Case, outputs: Arrays, record: Record) -> None:
        ok, detail = contributions(case, outputs["image"])
        record.check("lane addresses", ok=ok, detail=detail)
        if placement(case).mistaken:
            record.check("address map", ok=False, detail=placement(case).explanation(STORES))

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        form, placed = form_of(case), placement(case)
        entries = isa.register_map(form).entries()
        landed = places(case, outputs["image"])
        if measured:
            read = read_back(case, outputs["image"])
            registers = [{**entry, "value": value} for entry, value in zip(entries, read, strict=True)]
        result: dict[str, Any] = {
            "ptx": form.ptx,
            "registers": registers if measured else entries,
            "holds": [
                {"lane": entry["lane"], "register": entry["register"], "slot": entry["slot"], **place}
                for entry, place in zip(entries, landed, strict=True)
            ],
            "formulas": isa.formulas(form),
            "matrix": {"rows": form.rows, "cols": form.cols},
            "addresses": placed.used,
            "tile": {
                "rows": placed.tile.rows, "cols": placed.tile.chunks * form.cols, "bits": form.stored_bits,
                "pitch": placed.tile.pitch, "swizzle_bytes": list(placed.tile.swizzle.parameters),
            },
        }  # fmt: skip
        result["banks"] = placed.banks(f"stmatrix.{case.num}") if form.shape == "m8n8" else None
        result["notes"] = [PACKED[form.shape]]
        return result

    def conclude(self, case: Case, record: Record) -> str:
        form, cost = form_of(case), record.result["banks"]
        price = f"Wavefronts of {form.shape} are not modelled."
        if cost:
            price = f"Wavefronts: {cost['wavefronts']}, ideal {cost['ideal']}.{remedy(case)}"
        if unusual := placement(case).explanation(STORES):
            return f"{unusual} {price}"
        if form.shape == "m16n8":
            what = "elements i and i+8 of rows 2*j and 2*j+1 (columns of the accumulator)"
        else:
            what = f"elements 2*j and 2*j+1 of {'column' if form.trans else 'row'} i"
        return (
            f"Lanes 0-{form.addresses - 1} each supply the place of one 16-byte row; lane 4*i+j stores "
            f"{what} of every matrix. {price}"
        )


PACKED = {
    "m8n8": "It stores 16-bit elements: two f32 accumulators go into one register first, cvt.rn.f16x2.f32.",
    "m16n8": "It stores 8-bit elements: four accumulators go into one register first, by cvt to 8 bits.",
}


def remedy(case: Case) -> str:
    """Return which options would spare the conflicts that there are, or ""."""
    found = placement(case).remedies(f"stmatrix.{case.num}")
    return f" Without conflicts: {' or '.join(found)}." if found else ""


def form_of(case: Case) -> isa.StMatrixForm:
    """Return the instruction's form."""
    return isa.StMatrixForm(case.shape, int(case.num[1:]), case.trans, case.dtype)


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


def registers_of(case: Case) -> NDArray[np.uint32]:
    """Return the registers of every lane, shape [planes, 32, registers]: elements carry their numbers."""
    form, where = form_of(case), isa.register_map(form_of(case))
    names = np.arange(len(where.lane))
    planes = range(0, NAME_BITS, form.stored_bits)
    mask = (1 << form.stored_bits) - 1
    return np.stack([where.pack(names >> shift & mask, form.num) for shift in planes])


def names_in(case: Case, image: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the name that each element of shared memory holds after the case's own addresses."""
    width = form_of(case).stored_bits
    planes = image[:, 0].view(np.uint16 if width == 16 else np.uint8).astype(np.int64)
    return np.asarray(sum(plane << (width * index) for index, plane in enumerate(planes)))


def read_back(case: Case, image: NDArray[np.uint8]) -> list[int]:
    """Return what memory holds where each element belongs: its own name, if all is well."""
    form, where = form_of(case), isa.register_map(form_of(case))
    lines = where.place["matrix"] * form.rows + where.place["row"]
    first = np.array(placement(case).offsets)[lines] * 8 // form.stored_bits
    found: list[int] = names_in(case, image)[first + where.place["col"]].tolist()
    return found


def places(case: Case, image: NDArray[np.uint8]) -> list[dict[str, int | None]]:
    """Return where each element landed, in the order of the map: byte, and row and column of the tile.

    An element that another overwrote, or that went into padding, has none.
    """
    form, tile = form_of(case), placement(case).tile
    size = form.stored_bits // 8
    found: list[dict[str, int | None]] = []
    at = {name: size * index for index, name in enumerate(names_in(case, image).tolist())}
    for name in range(len(isa.register_map(form).lane)):
        byte = at.get(name, tile.nbytes)
        chunk = tile.chunk_at(byte - byte % CHUNK_BYTES)
        if chunk is None:
            found.append({"byte": at.get(name), "tile_row": None, "tile_col": None})
        else:
            col = chunk[1] * form.cols + byte % CHUNK_BYTES // size
            found.append({"byte": byte, "tile_row": chunk[0], "tile_col": col})
    return found


def contributions(case: Case, image: NDArray[np.uint8]) -> tuple[bool, str]:
    """Say whether each lane that should supplies the place of one row, and no other lane any."""
    form = form_of(case)
    rows = np.stack([isa.rows_to_store(held, form) for held in registers_of(case)])
    spare = image[:, :, -CHUNK_BYTES:]
    used = range(form.addresses)
    wrong = [lane for lane in used if not np.array_equal(spare[:, 1 + lane], rows[:, lane])]
    wrong += [lane for lane in range(form.addresses, 32) if (image[:, 1 + lane] != image[:, 0]).any()]
    if wrong or (spare[:, 0] != BLANK).any():
        return False, f"moving the address of lanes {spans(wrong)} did not move just their own rows"
    above = f"; lanes {spans(range(form.addresses, 32))} supply none" if form.addresses < 32 else ""
    return True, f"each of lanes 0-{form.addresses - 1} supplies the place of exactly one row{above}"
