"""Swizzles: an XOR that moves 16-byte chunks of a row so that a column of them falls into all banks.

Swizzle<B, M, S> keeps the lowest M bits of an offset and XORs the B bits from bit M up with the B bits from
bit M + S up. Offsets count elements here, so M depends on the type: the same swizzle of bytes has
M + log2(bytes). Source: the public definition of cute::Swizzle, and the TMA modes of the CUDA driver API
(CUtensorMapSwizzle), which are <1,4,3>, <2,4,3> and <3,4,3> of bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError, malformed
from ptxlab.isa.shown import Shown

IntOrArray = TypeVar("IntOrArray", int, NDArray[np.int64])

MODES = {"none": (0, 4, 3), "32B": (1, 4, 3), "64B": (2, 4, 3), "128B": (3, 4, 3)}
"""The swizzles that TMA and wgmma know, by name: B, M, S of byte addresses."""
LARGEST = 40
"""Of B + M and of M + S: an offset of so many bits is beyond any memory."""


@dataclass(frozen=True)
class Swizzle(Shown):
    """Swizzle<bits, base, shift>: bits = 0 moves nothing. Call it with an offset or an array of them."""

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        if self.bits < 0 or self.base < 0 or self.shift < self.bits:
            raise UsageError(
                f"swizzle {self} is illegal; legal: B >= 0, M >= 0, S >= B "
                "(otherwise the XOR reads the bits that it changes)"
            )
        if self.base + max(self.bits, self.shift) > LARGEST:
            raise UsageError(
                f"swizzle {self} moves bits that no offset has; legal: B + M and M + S up to {LARGEST}"
            )

    def __call__(self, offset: IntOrArray) -> IntOrArray:
        """Return where the element at ``offset`` lies."""
        mask = ((1 << self.bits) - 1) << self.base
        return offset ^ ((offset >> self.shift) & mask)

    def __str__(self) -> str:
        return f"<{self.bits},{self.base},{self.shift}>"

    @property
    def parameters(self) -> tuple[int, int, int]:
        """B, M, S."""
        return self.bits, self.base, self.shift

    @property
    def period(self) -> int:
        """The number of consecutive offsets after which the pattern repeats."""
        return 1 << (self.base + self.shift + self.bits) if self.bits else 1

    @property
    def expression(self) -> str:
        """The movement in C, of an unsigned ``offset``."""
        mask = ((1 << self.bits) - 1) << self.base
        return f"offset ^ ((offset >> {self.shift}) & {mask:#x}u)" if self.bits else "offset"

    def rescaled(self, from_bits: int, to_bits: int) -> Swizzle:
        """Return the same movement for elements of another size.

        Raises:
            UsageError: the swizzle would split an element of the new size.

        """
        base = self.base + (from_bits.bit_length() - to_bits.bit_length())
        if base < 0:
            article = "an" if to_bits == 8 else "a"
            raise UsageError(
                f"swizzle {self} of {from_bits}-bit elements splits {article} {to_bits}-bit element"
            )
        return Swizzle(self.bits, base, self.shift)


def parse_swizzle(text: str, element_bits: int) -> Swizzle:
    """Return the swizzle of byte offsets that an option names: a mode, or B,M,S of elements, also in <>.

    Raises:
        UsageError: the text is neither; the message holds the modes.

    """
    if text in MODES:
        return Swizzle(*MODES[text])
    numbers = re.fullmatch(r"(?:Sw|Swizzle)?<([^<>]*)>|([^<>]*)", text)
    fields = (numbers[1] or numbers[2] or "").split(",") if numbers else []
    if len(fields) != 3 or not all(re.fullmatch(r"[0-9]{1,3}", field.strip()) for field in fields):
        raise malformed(
            "swizzle",
            text,
            r"((Sw|Swizzle)?<)?(?:\s*[0-9]{1,3}\s*,){0,2}(?:\s*[0-9]{1,3})?",
            f"neither a mode nor B,M,S; legal: {', '.join(MODES)}, or three numbers in elements, as 3,3,3",
        )
    return Swizzle(*(int(field) for field in fields)).rescaled(element_bits, 8)
