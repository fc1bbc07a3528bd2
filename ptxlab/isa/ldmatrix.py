"""ldmatrix: one warp loads 8x8, 8x16 or 16x16 matrices from shared memory into registers.

Every row of a matrix is 16 bytes of shared memory at an address that one lane supplies; the elements land
in the registers of all 32 lanes. Source: PTX ISA, "Warp-level matrix load instruction: ldmatrix"; the m8n8
forms are proven on silicon by the recordings of the ldmatrix probe, the others are not run here yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.isa.registers import Ints, RegisterMap, Where

ROW_BYTES = 16
"""Bytes of shared memory that one lane's address stands for, in every form."""

BLACKWELL = ("sm_100a", "sm_100f", "sm_103a", "sm_103f", "sm_107a", "sm_107f", "sm_110a", "sm_110f",
             "sm_120a", "sm_120f", "sm_121a", "sm_121f")  # fmt: skip
"""Who has the m16n16 and m8n16 shapes. Source: PTX ISA, ldmatrix, "Target ISA Notes"; ptxas 13.5: sm_107."""

_ROWS = {"m8n8": 8, "m16n16": 16, "m8n16": 8}
_BITS = {"b16": 16, "b8": 8, "b6x16_p32": 6, "b4x16_p64": 4}
_PADDED = ("b6x16_p32", "b4x16_p64")
_LEGAL = """\
m8n8 x1|x2|x4 [trans] b16 (sm_75 and later); \
m16n16 x1|x2 trans b8|b6x16_p32|b4x16_p64 and m8n16 x1|x2|x4 b6x16_p32|b4x16_p64 \
(sm_100a, sm_103a, sm_107a, sm_110a, sm_120a, sm_121a and their f targets)"""


@dataclass(frozen=True)
class LdMatrixForm:
    """One form of the instruction.

    Attributes:
        shape: m8n8, m16n16 or m8n16.
        num: 1, 2 or 4 matrices.
        trans: whether each matrix is transposed on its way.
        dtype: the PTX type: b16, b8, b6x16_p32 or b4x16_p64.
        element_bits: bits of an element of the user's type, where m8n8.b16 moves something else than
            16-bit elements (two 8-bit ones in each unit, or half a 32-bit one); 0 means the PTX type's.

    """

    shape: str = "m8n8"
    num: int = 4
    trans: bool = False
    dtype: str = "b16"
    element_bits: int = 0

    @property
    def rows(self) -> int:
        """Rows of one matrix as it lies in memory; each has an address of its own."""
        return _ROWS[self.shape]

    @property
    def cols(self) -> int:
        """Elements in a row of 16 bytes (16 of the padded 4- and 6-bit types)."""
        return 16 if self.shape != "m8n8" else 8 * ROW_BYTES // self.stored_bits

    @property
    def stored_bits(self) -> int:
        """Bits of an element in shared memory."""
        return self.element_bits or _BITS[self.dtype]

    @property
    def slot_bits(self) -> int:
        """Bits of an element in a register: the padded 4- and 6-bit types take the low bits of a byte."""
        return 8 if self.shape != "m8n8" else self.stored_bits

    @property
    def registers(self) -> int:
        """32-bit registers in each lane: one for each 8x8 or 8x16 matrix, two for each 16x16."""
        return self.num * (2 if self.shape == "m16n16" else 1)

    @property
    def addresses(self) -> int:
        """How many lanes supply an address: lanes 0 to this number less one. Those above are ignored."""
        return self.num * self.rows

    @property
    def ptx(self) -> str:
        """The instruction's text up to its operands."""
        types = self.dtype if self.dtype in ("b16", "b8") else f"b8x16.{self.dtype}"
        trans = ".trans" if self.trans else ""
        return f"ldmatrix.sync.aligned.{self.shape}.x{self.num}{trans}.shared.{types}"

    @property
    def sass(self) -> str:
        """The opcode that ptxas 13 makes of it (seen in the disassembly of the ldmatrix probe)."""
        what = {"b16": "16", "b8": "8", "b6x16_p32": "U6x16P32TO8", "b4x16_p64": "U4x16P64TO8"}
        which = {"m8n8": "MT88" if self.trans else "M88", "m16n16": "MT1616", "m8n16": "M816"}
        count = "" if self.num == 1 else f".{self.num}"
        return f"LDSM.{what[self.dtype]}.{which[self.shape]}{count}"


def check_form(form: LdMatrixForm, arch: str) -> None:
    """Say why a form is illegal on an architecture, if it is.

    Raises:
        UsageError: with the reason and the legal forms.

    """
    reason, hint = _objection(form, arch)
    if reason:
        raise UsageError(f"{form.ptx} is illegal: {reason}; legal: {_LEGAL}", hint)


_K_MAJOR = (
    "keep 8-bit operands K-contiguous (K-major) in shared memory, which needs no transpose, "
    "or transpose them beforehand"
)
_UNPACK = (
    "--arch sm_100a has it; elsewhere load the packed 4- or 6-bit elements as m8n8 b16 and widen them in "
    "registers"
)
_WORDS = (
    "read elements of 32 bits with 32-bit ld.shared (LDS), or keep the tile K-major and load it "
    "without --trans"
)


def _objection(form: LdMatrixForm, arch: str) -> tuple[str, str]:
    """Return (reason, hint), both empty for a legal form."""
    if form.shape == "m8n8":
        return _objection_to_m8n8(form)
    if arch not in BLACKWELL:
        hint = _K_MAJOR if form.dtype == "b8" else _UNPACK
        return f"{form.shape} does not exist on {arch}, it needs one of {', '.join(BLACKWELL)}", hint
    if form.shape == "m16n16":
        return _objection_to_m16n16(form)
    if form.dtype not in _PADDED:
        return f"m8n16 takes {' or '.join(_PADDED)} and not {form.dtype}", "choose its --dtype"
    return ("m8n16 has no .trans", "leave --trans out") if form.trans else ("", "")


def _objection_to_m16n16(form: LdMatrixForm) -> tuple[str, str]:
    if form.dtype == "b16":
        return "m16n16 takes b8, b6x16_p32 or b4x16_p64 and not b16", "choose its --dtype"
    if not form.trans:
        return "m16n16 has no form without .trans", "add --trans"
    return ("m16n16 loads one or two matrices", "use --num x1 or x2") if form.num == 4 else ("", "")


def _objection_to_m8n8(form: LdMatrixForm) -> tuple[str, str]:
    bits = form.stored_bits
    if form.dtype != "b16":
        hint = _K_MAJOR if form.trans else "m8n8 moves 16-bit units: load 8-bit elements in pairs, as b16"
        return f"m8n8 takes b16 and not {form.dtype}", hint
    if form.trans and bits > 16:
        return f".trans moves 16-bit units and would tear elements of {bits} bits apart", _WORDS
    if form.trans and bits < 16:
        return (
            f".trans moves 16-bit units and keeps elements of {bits} bits together in pairs",
            _K_MAJOR,
        )
    return "", ""


def legal_forms(arch: str) -> Iterator[LdMatrixForm]:
    """Yield every form that the architecture has."""
    for shape in _ROWS:
        for dtype in _BITS:
            for num in (1, 2, 4):
                for trans in (False, True):
                    form = LdMatrixForm(shape, num, trans, dtype)
                    if not _objection(form, arch)[0]:
                        yield form


def register_map(form: LdMatrixForm) -> RegisterMap:
    """Return where each element lands; place has "matrix", "row" and "col" as they lie in memory.

    This is the one map that the tables, the pictures and the model below come from.
    """

    def element(lane: Ints, register: Ints, slot: Ints) -> Where:
        group, thread = lane // 4, lane % 4
        if form.shape == "m16n16":
            # the transposed matrix gives a lane 4 columns of rows group and group + 8
            matrix, half = register // 2, register % 2
            return {"matrix": matrix, "row": 4 * thread + slot, "col": group + 8 * half}
        per_register = 32 // form.slot_bits
        along, across = per_register * thread + slot, group
        row, col = (along, across) if form.trans else (across, along)
        return {"matrix": register, "row": row, "col": col}

    return RegisterMap.of(form.registers, 32 // form.slot_bits, form.slot_bits, element)


def formulas(form: LdMatrixForm) -> dict[str, str]:
    """Return the map in closed form, both directions, as expressions that a test evaluates.

    Names: lane, register, slot on one side; matrix, row, col on the other; // is floor division.
    """
    if form.shape == "m16n16":
        return {
            "matrix": "register // 2", "row": "4 * (lane % 4) + slot",
            "col": "lane // 4 + 8 * (register % 2)",
            "lane": "4 * (col % 8) + row // 4", "register": "2 * matrix + col // 8", "slot": "row % 4",
        }  # fmt: skip
    per = 32 // form.slot_bits
    if per == 1:
        return {
            "matrix": "register", "row": "lane // 4", "col": "lane % 4",
            "lane": "4 * row + col", "register": "matrix", "slot": "0",
        }  # fmt: skip
    along, across = ("row", "col") if form.trans else ("col", "row")
    return {
        "matrix": "register", across: "lane // 4", along: f"{per} * (lane % 4) + slot",
        "lane": f"4 * {across} + {along} // {per}", "register": "matrix", "slot": f"{along} % {per}",
    }  # fmt: skip


def used_addresses(memory: NDArray[np.uint8], addresses: Ints, count: int) -> Ints:
    """Return the addresses of the first ``count`` lanes, those that the instruction looks at.

    Raises:
        UsageError: one of them is not a multiple of 16 or reaches past the end of memory.

    """
    used = addresses[:count]
    for lane, address in enumerate(used.tolist()):
        if address % ROW_BYTES or not 0 <= address <= len(memory) - ROW_BYTES:
            raise UsageError(
                f"lane {lane} supplies address {address}; legal: multiples of {ROW_BYTES} "
                f"from 0 to {len(memory) - ROW_BYTES}"
            )
    return used


def rows_in_memory(memory: NDArray[np.uint8], addresses: Ints, form: LdMatrixForm) -> NDArray[np.int64]:
    """Return the elements of each matrix as the addresses select them, shape [num, rows, cols].

    Args:
        memory: the bytes of shared memory.
        addresses: byte offset into ``memory`` of each lane, shape [32]; lane ``rows * j + r`` supplies
            row r of matrix j, and lanes from ``form.addresses`` up are ignored.
        form: the form of the instruction.

    Raises:
        UsageError: an address that is used is not a multiple of 16 or reads past the end of memory.

    """
    used = used_addresses(memory, addresses, form.addresses)
    rows = memory[used[:, None] + np.arange(ROW_BYTES)]
    bits = np.unpackbits(rows, axis=1, bitorder="little")[:, : form.cols * form.stored_bits]
    weights = 1 << np.arange(form.stored_bits, dtype=np.int64)
    elements = bits.reshape(len(used), form.cols, form.stored_bits).astype(np.int64) @ weights
    return np.asarray(elements.reshape(form.num, form.rows, form.cols))


def ldmatrix(memory: NDArray[np.uint8], addresses: Ints, form: LdMatrixForm) -> NDArray[np.uint32]:
    """Return the registers of every lane, shape [32, form.registers]; arguments of rows_in_memory."""
    matrices = rows_in_memory(memory, addresses, form)
    where = register_map(form)
    elements = matrices[where.place["matrix"], where.place["row"], where.place["col"]]
    return where.pack(elements, form.registers)
