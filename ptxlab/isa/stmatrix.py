"""stmatrix: one warp stores 8x8 or 16x8 matrices from registers into shared memory.

m8n8 is the inverse of ldmatrix: the same lanes hold the same elements. m16n8 takes the accumulator of a 16x8
mma, narrowed to 8 bits, and leaves its columns in memory as rows of 16 bytes.
Source: PTX ISA, "Warp-level matrix store instruction: stmatrix"; the m8n8 forms are proven on silicon by the
recordings of the stmatrix probe, m16n8 is not run here yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.isa import ldmatrix
from ptxlab.isa.ldmatrix import BLACKWELL, ROW_BYTES, LdMatrixForm
from ptxlab.isa.registers import Ints, RegisterMap, Where

TOO_OLD = ("sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89")
"""The targets that have no stmatrix. Source: PTX ISA, stmatrix, "Target ISA Notes"."""

_LEGAL = """\
m8n8 x1|x2|x4 [trans] b16 (sm_90 and later); \
m16n8 x1|x2|x4 trans b8 (sm_100a, sm_103a, sm_110a, sm_120a, sm_121a and their f targets)"""


@dataclass(frozen=True)
class StMatrixForm:
    """One form of the instruction.

    Attributes:
        shape: m8n8 or m16n8.
        num: 1, 2 or 4 matrices, one register of each lane for each.
        trans: whether each matrix is transposed on its way.
        dtype: the PTX type: b16 or b8.

    """

    shape: str = "m8n8"
    num: int = 4
    trans: bool = False
    dtype: str = "b16"

    @property
    def rows(self) -> int:
        """Rows of one matrix as it lies in memory; each has an address of its own."""
        return 8

    @property
    def cols(self) -> int:
        """Elements in a row of 16 bytes."""
        return 8 * ROW_BYTES // self.stored_bits

    @property
    def stored_bits(self) -> int:
        """Bits of an element, in a register and in memory."""
        return 16 if self.dtype == "b16" else 8

    @property
    def addresses(self) -> int:
        """How many lanes supply an address: lanes 0 to this number less one. Those above are ignored."""
        return self.num * self.rows

    @property
    def ptx(self) -> str:
        """The instruction's text up to its operands."""
        trans = ".trans" if self.trans else ""
        return f"stmatrix.sync.aligned.{self.shape}.x{self.num}{trans}.shared.{self.dtype}"

    @property
    def sass(self) -> str:
        """The opcode that ptxas 13 makes of it (seen in the disassembly of the stmatrix probe)."""
        which = "8.MT168" if self.shape == "m16n8" else "16.MT88" if self.trans else "16.M88"
        return f"STSM.{which}{'' if self.num == 1 else f'.{self.num}'}"


def check_form(form: StMatrixForm, arch: str) -> None:
    """Say why a form is illegal on an architecture, if it is.

    Raises:
        UsageError: with the reason and the legal forms.

    """
    reason, hint = _objection(form, arch)
    if reason:
        raise UsageError(f"{form.ptx} is illegal: {reason}; legal: {_LEGAL}", hint)


def _objection(form: StMatrixForm, arch: str) -> tuple[str, str]:
    """Return (reason, hint), both empty for a legal form."""
    if arch in TOO_OLD:
        return (
            f"{arch} has no stmatrix (though it has ldmatrix), the minimum is sm_90",
            "compile for sm_90 or later, or store each register with st.shared: lane l has row l // 4",
        )
    if form.shape == "m8n8":
        narrow = "store 8-bit elements in pairs, as b16, or use --shape m16n8 --trans where it exists"
        return ("", "") if form.dtype == "b16" else (f"m8n8 takes b16 and not {form.dtype}", narrow)
    if arch not in BLACKWELL:
        return f"m16n8 does not exist on {arch}, it needs sm_100a or later", "use --shape m8n8 --dtype b16"
    if form.dtype != "b8":
        return f"m16n8 takes b8 and not {form.dtype}", "add --dtype b8"
    return ("", "") if form.trans else ("m16n8 has no form without .trans", "add --trans")


def legal_forms(arch: str) -> Iterator[StMatrixForm]:
    """Yield every form that the architecture has."""
    for shape, dtype in (("m8n8", "b16"), ("m16n8", "b8")):
        for num in (1, 2, 4):
            for trans in (False, True):
                form = StMatrixForm(shape, num, trans, dtype)
                if not _objection(form, arch)[0]:
                    yield form


def register_map(form: StMatrixForm) -> RegisterMap:
    """Return which element each slot of a register holds: place has "matrix", "row" and "col".

    Row and column are those of a matrix as it will lie in memory.
    """
    if form.shape == "m8n8":
        return ldmatrix.register_map(_loading(form))

    def element(lane: Ints, register: Ints, slot: Ints) -> Where:
        return {"matrix": register, "row": 2 * (lane % 4) + slot % 2, "col": lane // 4 + 8 * (slot // 2)}

    return RegisterMap.of(form.num, 4, 8, element)


def formulas(form: StMatrixForm) -> dict[str, str]:
    """Return the map in closed form, both directions, as expressions that a test evaluates.

    Names: lane, register, slot on one side; matrix, row, col on the other; // is floor division.
    """
    if form.shape == "m8n8":
        return ldmatrix.formulas(_loading(form))
    return {
        "matrix": "register", "row": "2 * (lane % 4) + slot % 2", "col": "lane // 4 + 8 * (slot // 2)",
        "lane": "4 * (col % 8) + row // 2", "register": "matrix", "slot": "2 * (col // 8) + row % 2",
    }  # fmt: skip


def _loading(form: StMatrixForm) -> LdMatrixForm:
    """Return the form of ldmatrix that brings back what this one stores."""
    return LdMatrixForm("m8n8", form.num, form.trans)


def rows_to_store(registers: NDArray[np.uint32], form: StMatrixForm) -> NDArray[np.uint8]:
    """Return the 16 bytes that go to each address, shape [form.addresses, 16]."""
    where = register_map(form)
    rows = np.zeros((form.addresses, form.cols), dtype=np.uint16 if form.dtype == "b16" else np.uint8)
    line = where.place["matrix"] * form.rows + where.place["row"]
    rows[line, where.place["col"]] = where.slots_of(registers)
    return rows.view(np.uint8)


def stmatrix(
    memory: NDArray[np.uint8], addresses: Ints, registers: NDArray[np.uint32], form: StMatrixForm
) -> NDArray[np.uint8]:
    """Return shared memory after the instruction.

    Args:
        memory: the bytes of shared memory before it.
        addresses: byte offset into ``memory`` of each lane, shape [32]; lane ``8 * j + r`` supplies row r of
            matrix j, and lanes from ``form.addresses`` up are ignored.
        registers: of every lane, shape [32, form.num].
        form: the form of the instruction.

    Raises:
        UsageError: an address that is used is not a multiple of 16 or reaches past the end of memory.

    Where two lanes supply one address the higher lane wins here, which is a guess: PTX says nothing.

    """
    used = ldmatrix.used_addresses(memory, addresses, form.addresses)
    after = memory.copy()
    for address, row in zip(used.tolist(), rows_to_store(registers, form), strict=True):
        after[address : address + ROW_BYTES] = row
    return after
