"""The fragments of mma.sync: which lane holds which element of A, B and C.

One closed form serves every dense shape but Volta's m8n8k4 of f16. With g = lane // 4, t = lane % 4 and w the
elements in a 32-bit register (one in the 64-bit register of f64), register r, slot e:

    A: row g + 8 * (r % R), column (r // R) * 4w + t * w + e, where R = M / 8
    B: row r * 4w + t * w + e, column g
    C: element i = register * (elements in a register) + slot: row g + 8 * (i // 2), column 2t + i % 2

Source: PTX ISA, "Matrix fragments for mma.m16n8k8" and its sisters. No probe has proven them yet.
"""

from __future__ import annotations

from ptxlab.errors import UsageError
from ptxlab.isa.registers import Ints, RegisterMap, Where


def a_map(m: int, k: int, bits: int) -> RegisterMap:
    """Return who holds which element of A (row = m, col = k); ``bits`` is the size of an element.

    Raises:
        UsageError: the shape is none that mma.sync has.

    """
    if m not in (8, 16) or k * bits not in (128, 256, 512) or (k * bits == 512 and bits < 64):
        raise UsageError(
            f"mma.sync has no A of {m}x{k} elements of {bits} bits; legal: 8 or 16 rows of 16 or 32 bytes"
        )
    blocks, width = m // 8, 1 if bits == 64 else 32 // bits

    def element(lane: Ints, register: Ints, slot: Ints) -> Where:
        row = lane // 4 + 8 * (register % blocks)
        col = register // blocks * 4 * width + lane % 4 * width + slot
        return {"row": row, "col": col}

    return RegisterMap.of(blocks * k // (4 * width), width, bits, element)


def b_map(k: int, bits: int) -> RegisterMap:
    """Return who holds which element of B, k x 8 (row = k, col = n); as a_map otherwise."""
    width = 1 if bits == 64 else 32 // bits

    def element(lane: Ints, register: Ints, slot: Ints) -> Where:
        return {"row": register * 4 * width + lane % 4 * width + slot, "col": lane // 4}

    return RegisterMap.of(k // (4 * width), width, bits, element)
