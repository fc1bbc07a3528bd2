"""tcgen05.mma: one thread has A[m, k] multiplied by B[k, n] into tensor memory; its forms, and where D lies.

D[row m, column n] lies in these lanes and columns of a block of the pair (0 where there is one), counted from
D's address:

    layout  where                        block      lane                      column
    A       m = 256, two blocks          m // 128   m % 128                   n
    B       m = 128, two blocks          m // 64    m % 64 + 64 (n // N/2)    n % N/2
    D       m = 128, one block           0          m                         n
    E       m = 64, .ws                  0          m + 64 (n // N/2)         n % N/2
    F       m = 64, one block            0          32 (m // 16) + m % 16     n
    G       m = 32, .ws                  0          m + 32 (n // N/4)         n % N/4

F can begin at lane 16. A 16-bit element of D is the low half of its cell. Two blocks each hold half of A's
rows and half of B's columns in their own shared memory, block 0 the first half.

Modelled from the documentation and compiled; not run on a chip that has it. Sources: PTX ISA 9.0, "TensorCore
5th generation family instructions": "Matrix shape", "Data path layout organization", "Packing formats",
"Block scaling", "tcgen05.mma"; CUTLASS, include/cute/atom/mma_traits_sm100.hpp (tmem_frg), which has the same
layouts. Sparse A (layout C) and K = 96 are not modelled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError, unknown_name
from ptxlab.isa.registers import Ints
from ptxlab.isa.tcgen05 import LANES, QUARTER, check_arch
from ptxlab.isa.types import BITS

_FLOATS = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")


@dataclass(frozen=True)
class Kind:
    """One .kind of tcgen05.mma.

    Attributes:
        types: what A and B can be.
        mixed: whether A and B may differ.
        accumulators: what D can be, the usual one first.
        k: columns of A.
        family: of the SASS.
        scales: of a block-scaled kind: elements to a scale -> the types that scales can have.
        packed: whether 4-bit elements lie two to a byte; elsewhere 16 of them, or of 6 bits, fill 16 bytes.

    """

    types: tuple[str, ...]
    mixed: bool
    accumulators: tuple[str, ...]
    k: int
    family: str
    scales: Mapping[int, tuple[str, ...]]
    packed: bool = False


KINDS = {
    "f16": Kind(("f16", "bf16"), mixed=False, accumulators=("f32", "f16"), k=16, family="UTCHMMA", scales={}),
    "tf32": Kind(("tf32",), mixed=False, accumulators=("f32",), k=8, family="UTCHMMA", scales={}),
    "f8f6f4": Kind(_FLOATS, mixed=True, accumulators=("f32", "f16"), k=32, family="UTCQMMA", scales={}),
    "i8": Kind(("s8", "u8"), mixed=True, accumulators=("s32",), k=32, family="UTCIMMA", scales={}),
    "mxf8f6f4": Kind(
        _FLOATS, mixed=True, accumulators=("f32",), k=32, family="UTCQMMA", scales={32: ("ue8m0",)}
    ),
    "mxf4": Kind(
        ("e2m1",), mixed=False, accumulators=("f32",), k=64, family="UTCOMMA", scales={32: ("ue8m0",)},
        packed=True,
    ),
    "mxf4nvf4": Kind(
        ("e2m1",), mixed=False, accumulators=("f32",), k=64, family="UTCOMMA",
        scales={16: ("ue4m3", "ue8m0"), 32: ("ue8m0",)}, packed=True,
    ),
}  # fmt: skip
"""Source: PTX ISA, "Matrix shape" and "Block scaling"; K of dense A, the one that all architectures have."""

SCALE_ONE = {"ue8m0": 127, "ue4m3": 0x38}
"""The bits of a scale of 1."""

_I8_ARCHS = ("sm_100a", "sm_110a")  # PTX ISA, tcgen05.mma, target notes
_BLOCK16_ARCHS = ("sm_103", "sm_107")  # whose SASS says BLOCK16 where others say 4X
_WITHOUT_SCALES = tuple(name for name, kind in KINDS.items() if not kind.scales)


@dataclass(frozen=True)
class MmaForm:
    """One form: D[m, n] = A[m, k] x B[k, n], and what D held before.

    Attributes:
        kind: a name of KINDS.
        m, n: rows and columns of D, in both blocks of a pair together.
        a, b, acc: types of A, B and D.
        cta_group: 1, or 2 blocks that work together.
        weights_stationary: the .ws variant.
        a_in_tmem: whether A lies in tensor memory.
        a_major, b_major: "K" or "MN": along which axis elements are contiguous in shared memory.
        block: elements to a scale, 0 without scales.
        scale: type of the scales, "" without.

    """

    kind: str
    m: int
    n: int
    a: str
    b: str
    acc: str
    cta_group: int = 1
    weights_stationary: bool = False
    a_in_tmem: bool = False
    a_major: str = "K"
    b_major: str = "K"
    block: int = 0
    scale: str = ""

    @property
    def k(self) -> int:
        """Columns of A."""
        return KINDS[self.kind].k

    @property
    def layout(self) -> str:
        """The letter of D's layout."""
        if self.cta_group == 2:
            return "A" if self.m == 256 else "B"
        if self.m == 128:
            return "D"
        if self.m == 32:
            return "G"
        return "E" if self.weights_stationary else "F"

    @property
    def folds(self) -> int:
        """Pieces of D's columns that lie below one another."""
        return {"B": 2, "E": 2, "G": 4}.get(self.layout, 1)

    @property
    def d_columns(self) -> int:
        """Columns of tensor memory that D takes in each block."""
        return self.n // self.folds

    @property
    def ptx(self) -> str:
        """The instruction's text up to its operands."""
        stationary = ".ws" if self.weights_stationary else ""
        scales = f".block_scale.block{self.block}" if self.block else ""
        return f"tcgen05.mma{stationary}.cta_group::{self.cta_group}.kind::{self.kind}{scales}"

    def sass(self, arch: str) -> str:
        """Return the opcode that ptxas 13 makes of it (seen in the disassembly of the tcgen05 probe)."""
        pair = ".2CTA" if self.cta_group == 2 else ""
        stationary = ".WS" if self.weights_stationary else ""
        fine = (".BLOCK16" if arch.startswith(_BLOCK16_ARCHS) else ".4X") if self.block == 16 else ""
        return f"{KINDS[self.kind].family}{pair}{stationary}{fine}"

    def slot_bits(self, dtype: str) -> int:
        """Return how many bits of shared memory an element takes up on average, padding included."""
        return BITS[dtype] if KINDS[self.kind].packed else max(BITS[dtype], 8)

    def d_places(self, lane: int = 0) -> tuple[Ints, Ints, Ints]:
        """Return block, lane and column of each element of D, each of shape [m, n].

        Args:
            lane: where layout F begins: 0 or 16.

        """
        m, n = np.indices((self.m, self.n), dtype=np.int64)
        rows = self.m // self.cta_group
        block, row = m // rows, m % rows
        if self.layout == "F":
            return block, QUARTER * (row // 16) + row % 16 + lane, n
        return block, row + rows * (n // self.d_columns), n % self.d_columns

    def a_lanes(self, lane: int = 0) -> Ints:
        """Return the lanes that hold each row of a block's A in tensor memory, shape [rows, copies].

        Of layout B both halves hold all 64 rows. Source: CUTLASS, mma_traits_sm100.hpp, TmemAllocMode.
        """
        row = np.arange(self.m // self.cta_group)
        if self.layout == "F":
            return np.asarray(QUARTER * (row // 16) + row % 16 + lane)[:, None]
        copies = (0, 64) if self.layout == "B" else (0,)
        return np.asarray(row[:, None] + np.array(copies))

    @property
    def a_columns(self) -> int:
        """Columns of tensor memory that A takes there."""
        return self.k * self.slot_bits(self.a) // 32


def legal_m(form: MmaForm) -> tuple[int, ...]:
    """Return the rows that D can have. Source: PTX ISA, "Matrix shape"."""
    if form.cta_group == 2:
        return (128, 256)
    if form.weights_stationary:
        return (32, 64, 128)
    return (128,) if KINDS[form.kind].scales else (64, 128)


def legal_n(form: MmaForm) -> tuple[int, ...]:
    """Return the columns that D can have.

    PTX lists steps of 8 for one block; CUTLASS takes steps of 16 where m is 128. Source: PTX ISA, "Matrix
    shape" and "Transpose and negate operations" (B of 8 bits, N-major).
    """
    if form.weights_stationary:
        return (64, 128, 256)
    narrow = form.b_major == "MN" and BITS[form.b] == 8
    if form.cta_group == 2:
        step = 32 if narrow or form.kind == "i8" else 16
        return tuple(range(step, 257, step))
    if narrow:
        return tuple(range(16, 257, 16))
    return (8, 16, 24, *range(32, 257, 16)) if form.kind == "i8" else tuple(range(8, 257, 8))


def parse_shape(shape: str, form: MmaForm) -> MmaForm:
    """Return the form with the m and n of a shape such as m128n64k16.

    Raises:
        UsageError: the shape is none of this form's.

    """
    numbers = re.fullmatch(r"m([0-9]{1,4})n([0-9]{1,4})k([0-9]{1,4})", shape)
    m, n, k = map(int, numbers.groups()) if numbers else (0, 0, 0)
    rows, columns = legal_m(form), legal_n(form)
    if m not in rows or n not in columns or k != form.k:
        raise UsageError(
            f"{form.ptx} has no shape {shape}; legal: mMnNk{form.k} with M of {' or '.join(map(str, rows))}, "
            f"N of {_steps(columns)}",
            "take the next larger N and leave its last columns unused" if m in rows and k == form.k else "",
        )
    return replace(form, m=m, n=n)


def _steps(numbers: tuple[int, ...]) -> str:
    """Return numbers as a person says them: "8 to 256 in steps of 8"."""
    step = numbers[1] - numbers[0]
    if numbers == tuple(range(numbers[0], numbers[-1] + 1, step)):
        return f"{numbers[0]} to {numbers[-1]} in steps of {step}"
    return ", ".join(map(str, numbers)) if len(numbers) < 4 else "8, 16, 24 and 32 to 256 in steps of 16"


def check_form(form: MmaForm, arch: str, swizzle: str) -> None:
    """Say why a form is illegal on an architecture, if it is; its m and n are parse_shape's.

    Raises:
        UsageError: with the reason and the legal set.

    """
    check_arch(arch)
    if form.kind not in KINDS:
        raise unknown_name("kind of tcgen05.mma", form.kind, KINDS)
    kind = KINDS[form.kind]
    if form.kind == "i8" and arch not in _I8_ARCHS:
        raise UsageError(
            f"kind::i8 does not exist on {arch}; legal: {', '.join(_I8_ARCHS)}", "--arch sm_100a"
        )
    _check_types(form, kind)
    _check_variant(form, kind)
    for name, dtype, major in (("A", form.a, form.a_major), ("B", form.b, form.b_major)):
        if name == "B" or not form.a_in_tmem:
            _check_layout(name, dtype, major, swizzle)


def _check_types(form: MmaForm, kind: Kind) -> None:
    for dtype in (form.a, form.b):
        if dtype not in kind.types:
            raise UsageError(f"kind::{form.kind} has no type {dtype}; legal: {', '.join(kind.types)}")
    if form.a != form.b and not kind.mixed:
        raise UsageError(f"kind::{form.kind} does not multiply {form.a} by {form.b}; legal: {form.a} twice")
    narrow = form.acc == "f16" and form.a == "bf16"
    if form.acc not in kind.accumulators or narrow:
        legal = kind.accumulators[:1] if narrow else kind.accumulators
        raise UsageError(
            f"kind::{form.kind} of {form.a} does not accumulate in {form.acc}; legal: {' or '.join(legal)}"
        )
    if form.block not in (kind.scales or {0: ()}):
        legal_blocks = " or ".join(map(str, kind.scales)) or "none"
        raise UsageError(f"kind::{form.kind} has no scale for {form.block} elements; legal: {legal_blocks}")
    if form.scale not in kind.scales.get(form.block, ("",)):
        types = " or ".join(kind.scales.get(form.block, ())) or "none"
        raise UsageError(
            f"kind::{form.kind} has no {form.scale} scale for {form.block} elements; legal: {types}"
        )


def _check_variant(form: MmaForm, kind: Kind) -> None:
    if form.weights_stationary and (form.cta_group == 2 or kind.scales):
        raise UsageError(
            f"tcgen05.mma.ws of kind::{form.kind} with {form.cta_group} blocks; legal: one block, and the "
            f"kinds {', '.join(_WITHOUT_SCALES)}"
        )
    if not form.a_in_tmem:
        return
    if form.weights_stationary:
        raise UsageError("A of .ws in tensor memory is not modelled; legal: --a smem")
    if form.a_major != "K":
        raise UsageError("A in tensor memory has no major; legal: --major K", "--major-b MN is B's")
    if BITS[form.a] < 8 and not kind.packed:
        raise UsageError(
            f"A of {form.a} in tensor memory is not modelled for kind::{form.kind}: the place of its bits in "
            "a byte is documented as a figure alone; legal: --a smem"
        )


def _check_layout(name: str, dtype: str, major: str, swizzle: str) -> None:
    """Raise UsageError for what the table of type sizes, majors and swizzles does not have.

    Source: PTX ISA, tcgen05, "Valid combinations of type-size, major-ness and swizzling".
    """
    wide = swizzle == "128B_base32B"
    if major == "MN" and BITS[dtype] < 8:
        raise UsageError(
            f"{name} of {dtype} cannot be MN-major: only types of 8, 16 and 32 bits can; legal: K",
            "keep it K-contiguous (K-major) in shared memory",
        )
    if major == "MN" and BITS[dtype] == 32 and not wide:
        raise UsageError(
            f"{name} of {dtype} is MN-major with swizzle {swizzle}; legal: 128B_base32B alone",
            "--swizzle 128B_base32B",
        )
    if wide and (major == "K" or BITS[dtype] != 32):
        raise UsageError(
            f"{name} of {dtype}, {major}-major, with swizzle 128B_base32B; legal: types of 32 bits, MN-major",
            "--swizzle 128B",
        )


def scale_words(form: MmaForm, scales: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return the cells that hold scales, shape [lanes, columns], with scale id 0.

    Row r of the scales (a row of A or a column of B) is in lane r % 32 of every quarter, column r // 32, its
    first scale in the lowest byte. Source: PTX ISA, "Block scaling" and its layouts of the scale factor
    matrices; CUTLASS copies them to all quarters (SM100_UTCCP_4x32dp128bit).

    Args:
        form: the form.
        scales: their bits, shape [rows, scales of a row].

    """
    words = np.zeros((QUARTER, -(-len(scales) // QUARTER)), dtype=np.uint32)
    row = np.arange(len(scales))
    for byte in range(form.k // form.block):
        words[row % QUARTER, row // QUARTER] |= scales[:, byte].astype(np.uint32) << np.uint32(8 * byte)
    return np.tile(words, (LANES // QUARTER, 1))
