"""Which ldmatrix loads A or B of an mma, and what each of its lanes points at.

A register of A or B covers eight rows of A, or columns of B, by 16 bytes along k: one matrix of ldmatrix.
Where k is contiguous in memory a plain ldmatrix loads it, where m or n is, one with .trans (16-bit elements).
A test holds each of these loads against the models of ldmatrix and of the fragments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ptxlab.isa.expressions import total
from ptxlab.isa.ldmatrix import ROW_BYTES, LdMatrixForm
from ptxlab.isa.mma import MmaForm, register_count
from ptxlab.isa.mma_sparse import SparseForm
from ptxlab.isa.types import BITS

Form = MmaForm | SparseForm
_MOST = 4
"""Matrices that one ldmatrix loads."""


@dataclass(frozen=True)
class Load:
    """One way to load an operand.

    Attributes:
        operand: "A" or "B".
        memory: the sides of the matrix as it lies in memory, the contiguous one last: "m x k".
        tiles: operands side by side that one instruction fills.
        form: the instruction.
        row, col: the element of the matrix in memory at which a lane's 16 bytes begin, as expressions.

    """

    operand: str
    memory: str
    tiles: int
    form: LdMatrixForm
    row: str
    col: str

    @property
    def address(self) -> str:
        """What a lane points at: the element of the matrix in memory at which its 16 bytes begin."""
        return f"[{self.row}][{self.col}]"

    @property
    def fills(self) -> str:
        """Which registers of the operand the loaded ones are; those of the next eight n come last."""
        own = self.form.num // self.tiles
        first = _named(0, own)
        return first if self.tiles == 1 else f"{first}, {_named(own, own)} of n+8"


def loads(form: Form) -> Iterator[Load]:
    """Yield every way to load A and B with one ldmatrix, B also of two products side by side."""
    for operand, k_last in product("AB", (True, False)):
        if obstacle(form, operand, k_last=k_last):
            continue
        yield _load(form, operand, k_last=k_last, tiles=1)
        if operand == "B" and 2 * register_count(form.b_map) <= _MOST:
            yield _load(form, operand, k_last=k_last, tiles=2)


def obstacle(form: Form, operand: str, *, k_last: bool = True) -> str:
    """Return why no ldmatrix loads an operand that lies with k last (contiguous) or first; "" if one does."""
    bits = BITS[form.a if operand == "A" else form.b]
    if isinstance(form, MmaForm) and form.volta:
        return "the fragments of m8n8k4 are not what ldmatrix leaves"
    if bits > 32:
        return "ldmatrix gives a lane 32 bits of a row: read 64-bit elements with ld.shared"
    if bits == 16 or k_last:
        return ""
    if bits > 16:
        return ".trans would tear 32-bit elements apart: read them with ld.shared, or store k contiguous"
    return f".trans moves 16 bits, {16 // bits} elements, at once: store k contiguous"


def _load(form: Form, operand: str, *, k_last: bool, tiles: int) -> Load:
    """Return the load whose matrices are the registers in order, tile by tile."""
    bits = BITS[form.a if operand == "A" else form.b]
    own = register_count(form.a_map if operand == "A" else form.b_map)
    high = form.m // 8 if operand == "A" else 1
    # which block of eight across, and of 16 bytes along k, a matrix is: (of how many matrices, how many)
    across, along = ((1, high), (high, own // high)) if operand == "A" else ((own, tiles), (1, own))
    side = "m" if operand == "A" else "n"
    load = LdMatrixForm("m8n8", own * tiles, not k_last, element_bits=0 if bits == 16 else bits)
    if k_last:
        unit = 8 * ROW_BYTES // bits
        return Load(operand, f"{side} x k", tiles, load, _line(*across), total((unit, *_block(*along))))
    return Load(operand, f"k x {side}", tiles, load, _line(*along), total((8, *_block(*across))))


def _block(stride: int, count: int) -> tuple[str, int]:
    """Return the block that a lane's matrix belongs to, and how many there are.

    Lanes above those that are looked at begin again, so that every one has a valid address.
    """
    return f"lane // {8 * stride}{f' % {count}' if stride * count < _MOST else ''}", count


def _line(stride: int, count: int) -> str:
    """Return the line of memory that a lane points at: lane % 8 of its block."""
    if stride == 1 and count > 1:
        return "lane" if count == _MOST else f"lane % {8 * count}"
    return total((1, "lane % 8", 8), (8, *_block(stride, count)))


def _named(first: int, count: int) -> str:
    return f"r{first}" if count == 1 else f"r{first}-r{first + count - 1}"
