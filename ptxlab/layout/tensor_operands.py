"""The operands of a tcgen05.mma: where they lie in shared and tensor memory, and what D is afterwards.

In most trials one operand names its elements and the other selects them (ptxlab.layout.selection), with all
scales 1. In the last one both hold small integers, and scales differ from row to row and from block to block.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ptxlab.isa.numbers import Numbers, Words, decode
from ptxlab.isa.tcgen05 import LANES
from ptxlab.isa.tcgen05_descriptor import TensorDescriptor, bit_places, written
from ptxlab.isa.tcgen05_mma import SCALE_ONE, MmaForm, scale_words
from ptxlab.isa.types import BITS
from ptxlab.isa.wgmma import accumulator_bits
from ptxlab.isa.wgmma_descriptor import SharedOperand
from ptxlab.layout.selection import Products, products

POISON = 0xFF
"""Every byte that no operand holds: NaN in every floating-point type that has one."""

ALIGNMENT = 1024  # where every swizzle pattern begins anew
_POWERS = (-1, 0, 1, 2)  # of two: scales of the last trial


@dataclass(frozen=True)
class TensorOperands:
    """Everything that a form reads and writes.

    Attributes:
        form: the form.
        swizzle: of the operands in shared memory.
        lane: where D (and A, if it is there) begins in tensor memory: 0, or 16 with layout F.

    """

    form: MmaForm
    swizzle: str
    lane: int = 0

    @cached_property
    def trials(self) -> Products:
        """The products."""
        form = self.form
        return products(form.m, form.n, form.k, (form.a, form.b, form.acc))

    @property
    def a_column(self) -> int:
        """Where A begins in tensor memory, right of D."""
        return self.form.d_columns

    @property
    def scale_columns(self) -> tuple[int, int]:
        """Where the scales of A and of B begin."""
        first = self.a_column + (self.form.a_columns if self.form.a_in_tmem else 0)
        return first, first + 4

    @property
    def width(self) -> int:
        """Columns of tensor memory that are filled, a multiple of 8."""
        first, second = self.scale_columns
        used = second + -(-self.form.n // 32) if self.form.block else first
        return -(-used // 8) * 8

    @cached_property
    def shared(self) -> dict[str, SharedOperand]:
        """How A (if it is there) and B of one block lie in shared memory."""
        form, found, start = self.form, {}, 0
        if not form.a_in_tmem:
            rows, bits = form.m // form.cta_group, form.slot_bits(form.a)
            found["A"] = SharedOperand(0, rows, form.k, bits, form.a_major, self.swizzle)
            start = -(-found["A"].nbytes // ALIGNMENT) * ALIGNMENT
        rows, bits = form.n // form.cta_group, form.slot_bits(form.b)
        found["B"] = SharedOperand(start, rows, form.k, bits, form.b_major, self.swizzle)
        return found

    def descriptor(self, name: str) -> TensorDescriptor:
        """Return the descriptor of A or B; addresses count from A's first byte."""
        own = self.shared[name].descriptor(0, 0)
        return TensorDescriptor(own.start, own.lbo, own.sbo, own.swizzle)

    @property
    def nbytes(self) -> int:
        """Bytes of shared memory that hold A and B of one block."""
        last = self.shared["B"]
        return last.start + last.nbytes

    @cached_property
    def images(self) -> NDArray[np.uint8]:
        """Shared memory, shape [trials, blocks, bytes]: elements where they lie, poison everywhere else."""
        form, blocks = self.form, []
        for block in range(form.cta_group):
            image = np.full((len(self.trials.trials), self.nbytes), POISON, dtype=np.uint8)
            for name, operand in self.shared.items():
                words = self._rows_of(name, block)
                dtype = form.a if name == "A" else form.b
                places = bit_places(
                    self.descriptor(name), operand.rows, form.k, BITS[dtype], operand.bits, operand.major
                )
                image = written(image, places, words, BITS[dtype])
            blocks.append(image)
        return np.stack(blocks, axis=1)

    def _rows_of(self, name: str, block: int) -> Words:
        """Return a block's share of an operand, [trial, m or n, k]."""
        words = self.trials.a if name == "A" else self.trials.b.swapaxes(1, 2)
        share = words.shape[1] // self.form.cta_group
        return words[:, block * share : (block + 1) * share]

    @cached_property
    def scales(self) -> dict[str, NDArray[np.int64]]:
        """The scales of A [trial, m, blocks of k] and of B [trial, n, blocks of k] as powers of two."""
        form, found = self.form, {}
        for name, rows in (("A", form.m), ("B", form.n)):
            row, block = np.indices((rows, form.k // form.block if form.block else 0))
            last = np.array(_POWERS)[(row + row // 32 + 2 * block + (name == "B")) % len(_POWERS)]
            powers = np.zeros((len(self.trials.trials), *row.shape), dtype=np.int64)
            powers[-1] = last
            found[name] = powers
        return found

    def _scale_bits(self, powers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return scales in their type: of ue8m0 the exponent counts, of ue4m3 it stands above 3 bits."""
        step = 1 if self.form.scale == "ue8m0" else 8
        return (SCALE_ONE[self.form.scale] + step * powers).astype(np.uint8)

    @cached_property
    def tensor(self) -> NDArray[np.uint32]:
        """Tensor memory before, shape [trials, blocks, lanes, columns]: A and the scales, the rest poison."""
        form, count = self.form, len(self.trials.trials)
        cells = np.full((count, form.cta_group, LANES, self.width), 0xFFFFFFFF, dtype=np.uint32)
        for block in range(form.cta_group):
            if form.a_in_tmem:
                columns = slice(self.a_column, self.a_column + form.a_columns)
                packed = _packed(self._rows_of("A", block), BITS[form.a])
                cells[:, block, form.a_lanes(self.lane), columns] = packed[:, :, None]
            for trial in range(count if form.block else 0):
                self._put_scales(cells[trial, block], trial, block)
        return cells

    def _put_scales(self, cells: NDArray[np.uint32], trial: int, block: int) -> None:
        """Write the scales that a block holds: those of its own rows of A, and of all columns of B."""
        share = self.form.m // self.form.cta_group
        own = {"A": slice(block * share, (block + 1) * share), "B": slice(None)}
        for name, column in zip("AB", self.scale_columns, strict=True):
            words = scale_words(self.form, self._scale_bits(self.scales[name][trial, own[name]]))
            cells[:, column : column + words.shape[1]] = words

    @cached_property
    def d(self) -> Words:
        """The bits of D, shape [trial, m, n]."""
        form = self.form
        a, b = (self._scaled(name) for name in "AB")
        return accumulator_bits(a @ b.swapaxes(1, 2), form.acc)

    def _scaled(self, name: str) -> Numbers:
        """Return the numbers of an operand with their scales, [trial, m or n, k]."""
        form = self.form
        words = self.trials.a if name == "A" else self.trials.b.swapaxes(1, 2)
        numbers = decode(words, form.a if name == "A" else form.b).astype(np.float64)
        if form.block:
            numbers *= np.repeat(np.exp2(self.scales[name]), form.block, axis=2)
        return numbers

    @cached_property
    def after(self) -> NDArray[np.uint32]:
        """Tensor memory afterwards, as ``tensor``; of a 16-bit D the low halves of its columns."""
        cells, (block, lane, column) = self.tensor.copy(), self.form.d_places(self.lane)
        cells[:, block, lane, column] = self.d.astype(np.uint32)
        cells[..., : self.halves] &= np.uint32(0xFFFF)
        return cells

    @property
    def halves(self) -> int:
        """Columns of which only the low half counts."""
        return self.form.d_columns if BITS[self.form.acc] == 16 else 0


def _packed(words: Words, bits: int) -> NDArray[np.uint32]:
    """Return elements [..., k] packed into 32-bit cells, the first in the lowest bits."""
    each = words.reshape(*words.shape[:-1], -1, 32 // bits)
    shifted = each << (np.arange(32 // bits, dtype=np.uint64) * np.uint64(bits))
    return np.asarray(np.bitwise_or.reduce(shifted, axis=-1).astype(np.uint32))
