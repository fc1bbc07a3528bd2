"""Which lane holds what after ldmatrix?

Method: every element of a tile in shared memory carries its own coordinates; each lane supplies one address
and writes the registers it received. The same launch repeats that with one lane's address moved to a row of
poison, for each of the 32 lanes, which shows what every single lane contributes.
Counting: one warp instruction. Wavefronts are those of one ldmatrix at the shared-memory port.
Source: PTX ISA, "Warp-level matrix load instruction: ldmatrix".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, option, sizes
from ptxlab.experiments.probe import Arrays, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import ldmatrix as isa
from ptxlab.isa.types import BITS
from ptxlab.layout import banks
from ptxlab.layout.address import lane_addresses
from ptxlab.layout.coordinates import Coordinates
from ptxlab.layout.swizzle import parse_swizzle
from ptxlab.layout.tile import CHUNK_BYTES, Chunk, Selection, Tile, selection, spans

POISON = 0xFF  # every byte of padding and of the poison row: no coordinate has all bits set
LARGEST_TILE = 1 << 17  # bytes; so that a bit plane of it fits into shared memory
PTX_TYPES = ("b16", "b8", "b6x16_p32", "b4x16_p64")
ELEMENT_TYPES = tuple(name for name, bits in BITS.items() if bits in (4, 6, 8, 16, 32))


class LdMatrixProbe(Probe):
    findings = ("address map",)

    num = option(
        "",
        choices=("x1", "x2", "x4"),
        help="matrices that one instruction loads; left out: the most",
    )
    trans = option(default=False, help="transpose each matrix on its way into registers")
    shape = option("m8n8", choices=("m8n8", "m16n16", "m8n16"), help="shape of one matrix")
    dtype = option("b16", choices=(*PTX_TYPES, *ELEMENT_TYPES), help="PTX type, or the type of the elements")
    tile = option("", metavar="ROWSxCOLS", help="tile in shared memory; left out: just the matrices")
    pitch = option(0, metavar="BYTES", help="from one row of the tile to the next; 0: rows touch")
    swizzle = option("none", metavar="MODE|B,M,S", help="none, 32B, 64B, 128B, or B,M,S in elements")
    addr = option(
        "",
        metavar="EXPR",
        help="byte address of each lane, after the swizzle: 'lane % 16 * 32 + lane // 16 * 16'",
    )
    poison_unused_lanes = option(
        default=True,
        help="lanes that supply no row point at poison; otherwise at the rows of lower lanes",
    )

    def complete(self, params: dict[str, Value]) -> None:
        if not params["num"]:
            params["num"] = "x2" if params["shape"] == "m16n16" else "x4"

    def check(self, case: Case) -> None:
        isa.check_form(form_of(case), case.arch)
        tile = tile_of(case)
        read = [tile.chunk_at(offset) for offset in base_addresses(case)]
        if not any(chunk is not None for chunk in read):
            raise UsageError(f"address expression '{case.addr}' reads no row of the tile")

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
        return {"tile": memory_planes(case), "addresses": address_maps(case).astype(np.uint32)}

    def outputs(self, case: Case) -> dict[str, Output]:
        planes, maps = len(memory_planes(case)), len(address_maps(case))
        shape = (planes, maps, 32, form_of(case).registers)
        return {"registers": Output(shape, np.uint32, ("plane", "map", "lane", "register"))}

    def geometry(self, case: Case) -> Geometry:
        tile = memory_planes(case)
        chunks = np.uint32(tile.shape[1] // CHUNK_BYTES)
        return Geometry(
            arguments=("tile", "addresses", "registers", chunks),
            grid=(len(address_maps(case)), len(tile), 1),
            shared_bytes=tile.shape[1],
        )

    def expected(self, case: Case) -> Arrays:
        form, maps = form_of(case), address_maps(case)
        found = [[isa.ldmatrix(memory, m, form) for m in maps] for memory in memory_planes(case)]
        return {"registers": np.array(found, dtype=np.uint32)}

    def examine(self, case: Case, outputs: Arrays, record: Record) -> None:
        ok, detail = contributions(case, coordinates(case, outputs["registers"]))
        record.check("lane addresses", ok=ok, detail=detail)
        chosen = selected(case)
        if forgets_swizzle(case):
            record.check("address map", ok=False, detail="the addresses are those of a tile without swizzle")
        elif chosen.mistaken:
            record.check("address map", ok=False, detail=mistake(case, chosen))

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        form, tile, code = form_of(case), tile_of(case), coordinates_of(case)
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
            "addresses": base_addresses(case)[: form.addresses],
            "tile": {
                "rows": tile.rows, "cols": code.cols, "bits": code.width, "pitch": tile.pitch,
                "swizzle_bytes": list(tile.swizzle.parameters),
            },
        }  # fmt: skip
        result["banks"] = bank_report(case) if form.shape == "m8n8" else None
        return result

    def conclude(self, case: Case, record: Record) -> str:
        form, chosen = form_of(case), selected(case)
        cost = record.result["banks"]
        price = f"Wavefronts of {form.shape} are not modelled."
        if cost:
            price = f"Wavefronts: {cost['wavefronts']}, ideal {cost['ideal']}."
        if forgets_swizzle(case):
            return f"The map is that of a tile without swizzle: XOR every address with it. {price}"
        if chosen.mistaken:
            return f"{mistake(case, chosen)} {price}"
        if chosen.moved:
            return f"{reordered(case, chosen)} {price}"
        per, line = 32 // form.slot_bits, "column" if form.trans else "row"
        which = f"elements {per}*j to {per}*j+{per - 1}" if per > 1 else "element j"
        line += "s i and i+8" if form.shape == "m16n16" else " i"
        return (
            f"Lanes 0-{form.addresses - 1} each supply one 16-byte row; lane 4*i+j receives "
            f"{which} of {line} of every matrix. {price}"
        )


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
    return isa.LdMatrixForm(case.shape, num, case.trans, "b16", bits)


def tile_of(case: Case) -> Tile:
    """Return the tile as it lies in shared memory; a tile that was not given holds just the matrices."""
    form = form_of(case)
    high = 1 if form.num == 1 else 2
    rows, cols = high * form.rows, form.num // high * form.cols
    if case.tile:
        rows, cols = sizes(case.tile, parts=2, what="tile")
    if rows % form.rows or cols % form.cols or (rows // form.rows) * (cols // form.cols) < form.num:
        raise UsageError(
            f"tile {rows}x{cols} does not hold {form.num} whole matrices of {form.rows}x{form.cols}; "
            f"legal: multiples of {form.rows} rows and {form.cols} columns, {form.num} matrices or more"
        )
    row_bytes = cols // form.cols * CHUNK_BYTES
    pitch = case.pitch or row_bytes
    if rows * pitch > LARGEST_TILE:
        raise UsageError(
            f"tile {rows}x{cols} at a pitch of {pitch} bytes takes {rows * pitch}; "
            f"legal: up to {LARGEST_TILE} bytes"
        )
    return Tile(rows, row_bytes, pitch, parse_swizzle(case.swizzle, form.stored_bits))


def meant_chunks(case: Case) -> list[Chunk]:
    """Return the row of the tile that each address is meant to select, as the A operand of mma has it.

    The matrices tile the fragment down the rows first, then along them.
    """
    form, tile = form_of(case), tile_of(case)
    down = tile.rows // form.rows
    return [
        (lane % form.rows + form.rows * (lane // form.rows % down), lane // form.rows // down)
        for lane in range(form.addresses)
    ]


def base_addresses(case: Case) -> list[int]:
    """Return the byte offset that each of the 32 lanes supplies."""
    form, tile = form_of(case), tile_of(case)
    if case.addr:
        used = lane_addresses(case.addr, alignment=CHUNK_BYTES)[: form.addresses]
        for lane, address in enumerate(used):
            if address + CHUNK_BYTES > tile.nbytes:
                raise UsageError(
                    f"address expression '{case.addr}' gives lane {lane} the address {address}; "
                    f"legal: up to {tile.nbytes - CHUNK_BYTES}, the last row of the tile"
                )
    else:
        used = [tile.offset(*chunk) for chunk in meant_chunks(case)]
    poison = tile.nbytes
    rest = range(form.addresses, 32)
    return used + [poison if case.poison_unused_lanes else used[lane % form.addresses] for lane in rest]


def address_maps(case: Case) -> NDArray[np.int64]:
    """Return 33 lane-to-address maps: the case's own, then for each lane the one with it moved to poison."""
    base = np.array(base_addresses(case), dtype=np.int64)
    moved = np.where(np.eye(32, dtype=bool), tile_of(case).nbytes, base)
    return np.concatenate([base[None], moved])


def coordinates_of(case: Case) -> Coordinates:
    """Return what the elements of the tile say of themselves."""
    form, tile = form_of(case), tile_of(case)
    return Coordinates(tile.rows, tile.chunks * form.cols, form.stored_bits)


def memory_planes(case: Case) -> NDArray[np.uint8]:
    """Return shared memory, shape [planes, bytes]: the tile, then a 16-byte row of poison."""
    form, tile, code = form_of(case), tile_of(case), coordinates_of(case)
    poison = np.full(CHUNK_BYTES, POISON, dtype=np.uint8)
    images = (tile.image(code.packed(plane, form.cols), POISON) for plane in range(code.planes))
    return np.stack([np.concatenate([image, poison]) for image in images])


def coordinates(case: Case, registers: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the coordinate that each slot holds, for each map: shape [maps, entries]."""
    where = isa.register_map(form_of(case))
    planes = [np.stack([where.slots_of(of_map) for of_map in of_plane]) for of_plane in registers]
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


def selected(case: Case) -> Selection:
    """Return how the rows that the lanes select differ from those of the fragment."""
    tile, form = tile_of(case), form_of(case)
    read = [tile.chunk_at(address) for address in base_addresses(case)[: form.addresses]]
    return selection(meant_chunks(case), read)


def forgets_swizzle(case: Case) -> bool:
    """Say whether the user's map fits the same tile without its swizzle, and not this one."""
    tile, meant = tile_of(case), meant_chunks(case)
    plain = [row * tile.pitch + chunk * CHUNK_BYTES for row, chunk in meant]
    used = base_addresses(case)[: len(meant)]
    return bool(case.addr) and used == plain != [tile.offset(*chunk) for chunk in meant]


def mistake(case: Case, chosen: Selection) -> str:
    """Return which rows are missing and which come twice, register by register."""
    parts = []
    if chosen.missing:
        parts.append(f"rows {_rows(case, chosen.missing)} missing")
    if chosen.duplicated:
        parts.append(f"{'' if parts else 'rows '}{_rows(case, chosen.duplicated)} duplicated")
    if chosen.padding:
        parts.append(f"lanes {spans(chosen.padding)} read padding")
    form = form_of(case)
    lanes = [lane for lane, _, _ in chosen.moved]
    matrices = spans(lane // form.rows for lane in lanes + chosen.padding)
    return f"Mistaken lane-to-address map: {', '.join(parts)} (seen in matrix {matrices})."


def reordered(case: Case, chosen: Selection) -> str:
    """Return which rows each matrix holds where the map is a permutation of the fragment's."""
    form, tile = form_of(case), tile_of(case)
    parts = []
    for matrix in sorted({lane // form.rows for lane, _, _ in chosen.moved}):
        lanes = range(matrix * form.rows, (matrix + 1) * form.rows)
        read = [tile.chunk_at(base_addresses(case)[lane]) for lane in lanes]
        parts.append(f"matrix {matrix} holds rows {_rows(case, [c for c in read if c])}")
    return f"Every row is loaded once, in another order than the A operand of mma has: {'; '.join(parts)}."


def _rows(case: Case, chunks: list[Chunk]) -> str:
    """Return "8-15" or, in a tile of several chunks a row, "8-15 of columns 0-7"."""
    form, tile = form_of(case), tile_of(case)
    groups = {
        chunk: [row for row, each in chunks if each == chunk] for chunk in sorted({c for _, c in chunks})
    }
    if tile.chunks == 1:
        return spans(row for row, _ in chunks)
    return " and ".join(
        f"{spans(rows)} of columns {chunk * form.cols}-{(chunk + 1) * form.cols - 1}"
        for chunk, rows in groups.items()
    )


def bank_report(case: Case) -> dict[str, int]:
    """Return the wavefronts of the one instruction."""
    cost = banks.wavefronts(banks.access(f"ldmatrix.{case.num}"), base_addresses(case))
    return {"wavefronts": cost.wavefronts, "ideal": cost.ideal, "conflicts": cost.conflicts}
