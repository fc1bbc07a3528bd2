"""The descriptors of tcgen05: 64 bits for an operand in shared memory, 32 for the instruction itself.

The first stands for memory as wgmma's does, and has other bits: 46-48 hold 1, bit 52 says that LBO is an
address, bits 61-63 hold the swizzle: 0 none, 1 128B with units of 32 bytes, 2 128B, 4 64B, 6 32B. The second
has types, majors, M and N; its bits differ between the kinds. Sources: PTX ISA 9.0, "TensorCore 5th
generation family instructions": "Shared memory descriptor" and "Instruction descriptor"; CUTLASS,
include/cute/arch/mma_sm100_desc.hpp. Not run on a chip that has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ptxlab.isa.numbers import Words
from ptxlab.isa.registers import Ints
from ptxlab.isa.tcgen05_mma import KINDS, MmaForm
from ptxlab.isa.wgmma_descriptor import UNIT, Descriptor, Format, mistakes, reserved_bits

BLACKWELL = Format(
    {
        "start": (0, 14), "LBO": (16, 14), "SBO": (32, 14), "version": (46, 3), "base offset": (49, 3),
        "LBO is an address": (52, 1), "swizzle": (61, 3),
    },
    {"none": 0, "128B_base32B": 1, "128B": 2, "64B": 4, "32B": 6},
    {"version": 1},
)  # fmt: skip


class TensorDescriptor(Descriptor):
    """The descriptor of an operand of tcgen05.mma, or of the source of tcgen05.cp."""

    FORMAT: ClassVar[Format] = BLACKWELL


def lint(word: int, *, rows: int, k: int, bits: int, major: str) -> list[str]:
    """Return what is wrong with a descriptor for an operand of this shape, or [].

    Args:
        word: its 64 bits.
        rows: m of A, or n of B, in one block.
        k: of one instruction.
        bits: that an element takes up.
        major: "K" or "MN".

    """
    stored = BLACKWELL.stored(word)
    problems = reserved_bits(word, BLACKWELL)
    if stored["version"] != 1:
        hint = "; is this one of wgmma's descriptors?" if not stored["version"] else ""
        problems.append(f"bits 46-48 hold {stored['version']}, expected 1{hint}")
    if stored["LBO is an address"]:
        problems.append("bit 52: LBO is an address, which only rows of 48 bytes (sm_103a, K = 96) need")
    if not BLACKWELL.swizzle(word):
        legal = ", ".join(f"{mode} {name}" for name, mode in BLACKWELL.modes.items())
        return [*problems, f"swizzle mode {stored['swizzle']} stands for nothing; legal: {legal}"]
    found = TensorDescriptor.of(word)
    wide = found.swizzle == "128B_base32B"
    if wide != (major == "MN" and bits == 32):
        problems.append(
            f"swizzle {found.swizzle} of a {major}-major operand of {bits}-bit elements; 128B_base32B is for "
            "MN-major ones of 32 bits, and they take no other"
        )
        if wide:
            return problems
    return problems + mistakes(found, rows=rows, k=k, bits=bits, major=major)


def bit_places(operand: Descriptor, rows: int, k: int, bits: int, slot_bits: int, major: str) -> Ints:
    """Return the bit of shared memory at which each element begins, shape [rows, k].

    Elements fill units of 16 bytes from the lowest bit on; units of padded types end with unused bits.

    Args:
        operand: where the operand lies.
        rows: m of A, or n of B, in one block.
        k: of one instruction.
        bits: of an element.
        slot_bits: that an element takes up, padding included.
        major: "K" or "MN": along which axis a unit goes.

    """
    row, col = np.indices((rows, k), dtype=np.int64)
    per = 8 * UNIT // slot_bits
    if major == "K":
        units = operand.addresses(rows, -(-k // per) * UNIT, 8, "K")[:, ::UNIT]
        return np.asarray(8 * units[row, col // per] + col % per * bits)
    units = operand.addresses(-(-rows // per) * UNIT, k, 8, "MN")[::UNIT]
    return np.asarray(8 * units[row // per, col] + row % per * bits)


def written(image: NDArray[np.uint8], places: Ints, words: Words, bits: int) -> NDArray[np.uint8]:
    """Return images [..., bytes] of shared memory with elements [..., rows, k] written at these places."""
    each = np.unpackbits(image, axis=-1, bitorder="little")
    for bit in range(bits):
        each[..., places + bit] = (words >> np.uint64(bit)).astype(np.uint8) & 1
    return np.packbits(each, axis=-1, bitorder="little")


_Places = Mapping[str, tuple[int, int]]
_COMMON = {
    "negate A": (13, 1), "negate B": (14, 1), "transpose A": (15, 1), "transpose B": (16, 1),
    "N / 8": (17, 6),
}  # fmt: skip
_PLAIN: _Places = {
    "sparsity selector": (0, 2), "sparse": (2, 1), "saturate": (3, 1), "type of D": (4, 2),
    "type of A": (7, 3), "type of B": (10, 3), **_COMMON, "M / 16": (24, 5), "max shift": (30, 2),
}  # fmt: skip
_SCALED: _Places = {
    "sparse": (2, 1), "scale id of B": (4, 2), "type of A": (7, 3), "type of B": (10, 3), **_COMMON,
    "type of scales": (23, 1), "M / 128": (27, 2), "scale id of A": (29, 2),
}  # fmt: skip
_SCALED_FP4: _Places = {**_SCALED, "type of B": (10, 2), "K = 96": (31, 1)}
_PLACES = {"mxf8f6f4": _SCALED, "mxf4": _SCALED_FP4, "mxf4nvf4": _SCALED_FP4}

_NARROW = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
_TYPES: dict[str, dict[str, int]] = {
    "f16": {"f16": 0, "bf16": 1}, "tf32": {"tf32": 2}, "f8f6f4": _NARROW, "i8": {"u8": 0, "s8": 1},
    "mxf8f6f4": _NARROW, "mxf4": {"e2m1": 1}, "mxf4nvf4": {"e2m1": 1},
}  # fmt: skip
_ACCUMULATORS = {"f16": 0, "f32": 1, "s32": 2}
_SCALES = {"ue4m3": 0, "ue8m0": 1}


def _places(kind: str) -> _Places:
    return _PLACES.get(kind, _PLAIN)


def instruction_word(form: MmaForm) -> int:
    """Return the 32-bit instruction descriptor of a form; nothing is negated, scale ids are 0."""
    types = _TYPES[form.kind]
    held = {
        "type of A": types[form.a],
        "type of B": types[form.b],
        "transpose A": int(form.a_major == "MN"),
        "transpose B": int(form.b_major == "MN"),
        "N / 8": form.n // 8,
    }
    if form.scale:
        held |= {"type of scales": _SCALES[form.scale], "M / 128": form.m // 128}
    else:
        held |= {"type of D": _ACCUMULATORS[form.acc], "M / 16": form.m // 16}
    return sum(value << _places(form.kind)[name][0] for name, value in held.items())


def instruction_fields(word: int, kind: str) -> list[dict[str, int | str]]:
    """Return the fields of an instruction descriptor: where each lies, what is stored, what it means."""
    found: list[dict[str, int | str]] = []
    for name, (low, width) in _places(kind).items():
        stored = word >> low & (1 << width) - 1
        bits = f"{low}-{low + width - 1}" if width > 1 else str(low)
        found.append({"field": name, "bits": bits, "stored": stored, "is": _meaning(name, stored, kind)})
    return found


def _meaning(name: str, stored: int, kind: str) -> str | int:
    """Return what a field says: a type, rows or columns, a major, or nothing more than its bits."""
    if name in ("type of A", "type of B"):
        return _named(_TYPES[kind], stored)
    if name == "type of D":
        return _named(_ACCUMULATORS, stored)
    if name == "type of scales":
        return _named(_SCALES, stored)
    if name.startswith("transpose"):
        return "MN-major" if stored else "K-major"
    letter, _, unit = name.partition(" / ")
    return f"{letter} = {stored * int(unit)}" if unit else ""


def _named(codes: Mapping[str, int], stored: int) -> str:
    return next((name for name, code in codes.items() if code == stored), "no type of this kind")


def lint_instruction(word: int, form: MmaForm) -> list[str]:
    """Return what is wrong with an instruction descriptor, or [].

    Args:
        word: its 32 bits.
        form: what it is meant for.

    """
    kind = KINDS[form.kind]
    places = _places(form.kind)
    stored = {name: word >> low & (1 << width) - 1 for name, (low, width) in places.items()}
    taken = sum(((1 << width) - 1) << low for low, width in places.values())
    extra = [str(bit) for bit in range(32) if (word & ~taken) >> bit & 1]
    problems = [f"reserved bits are set: {', '.join(extra)}"] if extra else []
    meant = {each["field"]: each["is"] for each in instruction_fields(instruction_word(form), form.kind)}
    for each in instruction_fields(word, form.kind):
        name, says = str(each["field"]), each["is"]
        if says != meant[name]:
            problems.append(f"{name} says {says}, {form.ptx} is meant with {meant[name]}")
    if not kind.types[0].startswith(("s", "u")) and stored.get("saturate"):
        problems.append("saturate is set, which is for integers")
    negated = stored["negate A"] or stored["negate B"]
    if negated and form.kind == "i8":
        problems.append("negate is set, which integers do not have")
    if stored["sparse"]:
        problems.append("sparse is set: that is tcgen05.mma.sp, whose A has metadata")
    if stored.get("sparsity selector") and not stored["sparse"]:
        problems.append("a sparsity selector without sparse A")
    if stored.get("max shift") and not form.weights_stationary:
        problems.append("a maximum shift, which is for .ws")
    if stored.get("K = 96"):
        problems.append(f"the bit for K = 96 is set, {form.ptx} is meant with K = {form.k}")
    return problems + _scale_ids(stored, form)


def _scale_ids(stored: Mapping[str, int], form: MmaForm) -> list[str]:
    """Say which scale ids a form does not have. Source: PTX ISA, "Scale factor A ID" and the same of B."""
    if not form.block:
        return []
    count = form.k // form.block
    legal = range(0, 4, count)
    return [
        f"{name} is {stored[name]}; legal with {count} scales a row: {', '.join(map(str, legal))}"
        for name in ("scale id of A", "scale id of B")
        if stored[name] not in legal
    ]
