"""Who holds what: the map from (lane, register, slot) to an element of a matrix, and back.

``register`` is the index of the PTX operand, ``slot`` counts elements inside it from the low bits up,
``lane`` is 0..31.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.isa.shown import Shown

Ints = NDArray[np.int64]
Where = Mapping[str, Ints]
"""Column name -> one number per element: matrix, row, col, and whatever else an instruction needs."""


@dataclass(frozen=True)
class RegisterMap(Shown):
    """The elements that one warp instruction leaves in registers, one entry each.

    Attributes:
        lane: 0..31.
        register: index of the PTX operand.
        slot: index of the element inside the register, from the low bits up.
        place: the element's place: "row" and "col", and "matrix" where there are several.
        bits: the width of a slot.

    """

    lane: Ints
    register: Ints
    slot: Ints
    place: Where
    bits: int

    @classmethod
    def of(
        cls, registers: int, slots: int, bits: int, element: Callable[[Ints, Ints, Ints], Where]
    ) -> RegisterMap:
        """Return the map of 32 lanes that ``element(lane, register, slot)`` describes, in that order."""
        lane, register, slot = (axis.ravel() for axis in np.indices((32, registers, slots), dtype=np.int64))
        return cls(lane, register, slot, dict(element(lane, register, slot)), bits)

    def entries(self, values: NDArray[Any] | None = None) -> list[dict[str, int]]:
        """Return the flat list that JSON documents hold.

        ``values`` is what the registers held, shape [32, registers]: each entry then has its slot's bits
        as "value".
        """
        columns: dict[str, NDArray[Any]] = {
            "lane": self.lane,
            "register": self.register,
            "slot": self.slot,
            **self.place,
        }
        if values is not None:
            columns["value"] = self.slots_of(values)
        names = list(columns)
        return [
            dict(zip(names, row, strict=True))
            for row in zip(*(column.tolist() for column in columns.values()), strict=True)
        ]

    @property
    def word(self) -> type[np.unsignedinteger[Any]]:
        """The numpy type of a register: 64 bits for the .f64 operands, 32 otherwise."""
        return np.uint64 if self.bits == 64 else np.uint32

    def slots_of(self, values: NDArray[Any]) -> NDArray[np.uint64]:
        """Return the bits of each entry's slot, out of registers of shape [32, registers]."""
        words = values[self.lane, self.register].astype(np.uint64)
        shifted = words >> (self.slot * self.bits).astype(np.uint64)
        return np.asarray(shifted & np.uint64((1 << self.bits) - 1))

    def pack(self, elements: NDArray[np.uint64] | Ints, registers: int) -> NDArray[Any]:
        """Return registers, shape [32, registers], whose slots hold ``elements`` (one for each entry)."""
        packed = np.zeros((32, registers), dtype=np.uint64)
        shifted = elements.astype(np.uint64) << (self.slot * self.bits).astype(np.uint64)
        np.bitwise_or.at(packed, (self.lane, self.register), shifted)
        return packed.astype(self.word)
