"""The way of one element: global memory, shared memory, registers, a product, and back to global memory.

A matrix lies in global memory by rows. A tile of it is copied into one stage of a ring in shared memory,
read by ldmatrix or through a wgmma descriptor, and multiplied. To follow the element through the product,
the other operand is thought of as the identity matrix: the product then is the element's own matrix, and the
accumulator that holds the element is followed on, through shared memory, to global memory.

Every step is a formula of names that earlier steps gave. Those of the instructions are what ptxlab.isa
prints; the tests hold each value against its models, composed without this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ptxlab.errors import UsageError
from ptxlab.isa import ldmatrix, mma_formulas, wgmma
from ptxlab.isa.expressions import over, total
from ptxlab.isa.mma import MmaForm
from ptxlab.isa.mma_loads import Load, loads, obstacle
from ptxlab.isa.registers import Ints
from ptxlab.isa.tensor_map import TensorMap
from ptxlab.isa.types import BITS
from ptxlab.isa.wgmma import WgmmaForm
from ptxlab.isa.wgmma_descriptor import ATOMS, SHARED_BYTES, UNIT, SharedOperand, swizzled
from ptxlab.layout.address import evaluate
from ptxlab.layout.banks import BANKS, WORD_BYTES

THREADS = 128
"""Of the block that copies with cp.async, 16 bytes each at a time."""

STAGE_ALIGNMENT = 1024
"""Bytes: the longest period of a swizzle."""

_OTHER_SIDE = 64  # rows or columns of C's tile along which only mma is free to choose
_MOST_STAGES = 64


class MisfitError(UsageError):
    """A number does not fit the others.

    Attributes:
        text: what it was given as: "matrix", "tile" or "element".
        part: 0 for its rows or row, 1 for its columns or column.

    """

    def __init__(self, message: str, text: str, part: int) -> None:
        super().__init__(message)
        self.text, self.part = text, part


@dataclass(frozen=True)
class Step:
    """One number on the way.

    Attributes:
        stage: where the element is.
        name: what the number is called in later formulas.
        value: the number.
        formula: of earlier names, or "" where it was given.
        meaning: what it is.

    """

    stage: str
    name: str
    value: int
    formula: str
    meaning: str


@dataclass(frozen=True)
class Setup:
    """A matrix, the tile of it in shared memory, and the instruction that multiplies it.

    Attributes:
        matrix: rows and columns in global memory, where columns are contiguous.
        tile: rows and columns of the tile.
        dtype: of the elements.
        swizzle: of shared memory: none, 32B, 64B or 128B.
        form: the instruction.
        operand: "A" or "B".
        major: "K": columns are k; "MN": rows are.
        stages: of the ring in shared memory.
        copy: "tma" or "cp.async".

    Raises:
        UsageError: one of them does not fit the others.

    """

    matrix: tuple[int, int]
    tile: tuple[int, int]
    dtype: str
    swizzle: str
    form: MmaForm | WgmmaForm
    operand: str = "A"
    major: str = "K"
    stages: int = 4
    copy: str = "tma"

    def __post_init__(self) -> None:
        self._check_tile()
        self._check_rows()
        if not 1 <= self.stages <= _MOST_STAGES or self.stages * self.stage_bytes > SHARED_BYTES:
            most = min(_MOST_STAGES, SHARED_BYTES // self.stage_bytes)
            raise UsageError(
                f"{self.stages} stages of {self.stage_bytes} bytes; legal: 1 to {most}"
                if most
                else f"a tile of {self.stage_bytes} bytes; legal: up to {SHARED_BYTES}"
            )
        if isinstance(self.form, MmaForm):
            reason = obstacle(self.form, self.operand, k_last=self.major == "K")
            if reason:
                raise UsageError(f"{self.form.ptx}, {self.operand} {self.major}-major: {reason}")
        if self.copy == "tma":
            for each in (self.tensor_map, self.c_tensor_map):
                each.check()

    def _check_tile(self) -> None:
        """Refuse tiles that are not whole operands."""
        across = self.form_sides[self.side]
        needed = (across, self.form.k) if self.k_axis else (self.form.k, across)
        for part, (extent, unit) in enumerate(zip(self.tile, needed, strict=True)):
            if extent % unit:
                raise MisfitError(
                    f"a tile of {self.tile[0]}x{self.tile[1]} is not whole operands {self.operand} of "
                    f"{self.name}: {extent} {('rows', 'columns')[part]}; legal: multiples of {unit}",
                    "tile",
                    part,
                )

    def _check_rows(self) -> None:
        """Refuse rows that are not whole chunks, or that the swizzle does not divide."""
        for what, cols in (("matrix", self.matrix[1]), ("tile", self.tile[1])):
            if cols * self.size % UNIT:
                raise MisfitError(
                    f"a row of the {what} has {cols * self.size} bytes; legal: multiples of {UNIT}, "
                    f"so of {UNIT // self.size} {self.dtype} elements",
                    what,
                    1,
                )
        for what, inner in (("tile", self.tile[1] * self.size), ("tile of C", self.c_tile[1] * self.c_size)):
            if self.swizzle != "none" and inner > self.span and inner % self.span:
                raise MisfitError(
                    f"a row of the {what} has {inner} bytes; legal with swizzle {self.swizzle}: up to "
                    f"{self.span}, or multiples of it",
                    what,
                    1,
                )
        if isinstance(self.form, WgmmaForm) and (self.major, self.swizzle) == ("MN", "none"):
            raise UsageError("wgmma of MN-major tiles without swizzle is not traced; legal: 32B, 64B, 128B")

    @property
    def name(self) -> str:
        """The instruction's family and shape."""
        family = "mma" if isinstance(self.form, MmaForm) else "wgmma"
        m, n, k = (self.form_sides[side] for side in "mnk")
        return f"{family}.m{m}n{n}k{k}"

    @property
    def form_sides(self) -> dict[str, int]:
        """m, n and k of one instruction."""
        m = self.form.m if isinstance(self.form, MmaForm) else wgmma.M
        return {"m": m, "n": self.form.n, "k": self.form.k}

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return BITS[self.dtype] // 8

    @property
    def side(self) -> str:
        """The side of the operand that is not k."""
        return "m" if self.operand == "A" else "n"

    @property
    def k_axis(self) -> int:
        """1 where columns are k, 0 where rows are."""
        return int(self.major == "K")

    @property
    def span(self) -> int:
        """Bytes of a row of the tile that lie together in shared memory."""
        plain = isinstance(self.form, MmaForm) and self.swizzle == "none"
        return self.tile[1] * self.size if plain else ATOMS[self.swizzle].span

    @property
    def box(self) -> tuple[int, int]:
        """Rows and columns of one TMA box."""
        return self.tile[0], min(self.tile[1], self.span // self.size)

    @property
    def stage_bytes(self) -> int:
        """From one stage to the next."""
        used = self.tile[0] * -(-self.tile[1] * self.size // self.span) * self.span
        return -(-used // STAGE_ALIGNMENT) * STAGE_ALIGNMENT

    @property
    def c_size(self) -> int:
        """Bytes of an element of C: 16-bit inputs are stored as such, others as they were accumulated."""
        return 2 if self.size == 2 else 4

    @property
    def c_tile(self) -> tuple[int, int]:
        """Rows and columns of C's tile."""
        own = self.tile[1 - self.k_axis]
        if isinstance(self.form, WgmmaForm):
            return (own, self.form.n) if self.operand == "A" else (wgmma.M, own)
        return (own, _OTHER_SIDE) if self.operand == "A" else (_OTHER_SIDE, own)

    @property
    def c_matrix(self) -> tuple[int, int]:
        """Rows and columns of C, which is the matrix itself, or its transpose."""
        return self.matrix if self.is_c_order else (self.matrix[1], self.matrix[0])

    @property
    def is_c_order(self) -> bool:
        """Whether rows of the matrix are rows of C: m of A, k of B."""
        return (self.operand == "A") == (self.major == "K")

    @property
    def tensor_map(self) -> TensorMap:
        """The map of the matrix."""
        dtype = {"e4m3": "u8", "e5m2": "u8", "s8": "u8"}.get(self.dtype, self.dtype)
        return _map(dtype, self.matrix, self.box, self.size, self.swizzle)

    @property
    def c_tensor_map(self) -> TensorMap:
        """The map of C."""
        rows, cols = self.c_tile
        span = ATOMS[self.swizzle].span // self.c_size if self.swizzle != "none" else cols
        dtype = self.dtype if self.c_size == 2 else "f32"
        return _map(dtype, self.c_matrix, (rows, min(cols, span)), self.c_size, self.swizzle)

    @cached_property
    def places(self) -> Ints:
        """Where in a stage each chunk of 16 bytes lies: shape [rows, chunks of a row]."""
        return _chunk_places(self.tile, self.size, self.span, self.swizzle)

    @cached_property
    def c_places(self) -> Ints:
        """Where in C's tile each chunk of 16 bytes lies."""
        span = self.c_tile[1] * self.c_size if self.swizzle == "none" else self.span
        return _chunk_places(self.c_tile, self.c_size, span, self.swizzle)

    @cached_property
    def load(self) -> Load:
        """The ldmatrix that fills the operand of mma."""
        known = loads(self.form) if isinstance(self.form, MmaForm) else ()
        found = (each for each in known if (each.operand, each.tiles) == (self.operand, 1))
        return next(each for each in found if each.form.trans == (self.major == "MN"))

    def start(self, across: str, k: str) -> str:
        """Return the formula of where in a stage an operand begins, of its first row or column and k."""
        row, col = (across, k) if self.k_axis else (k, across)
        per_span = self.span // self.size
        boxes = -(-self.tile[1] // per_span)
        return total(
            (self.tile[0] * self.span, over(col, per_span), boxes),
            (self.span, row, self.tile[0]),
            (self.size, f"{col} % {per_span}" if boxes > 1 else col, min(per_span, self.tile[1])),
        )


def _map(dtype: str, shape: tuple[int, int], box: tuple[int, int], size: int, swizzle: str) -> TensorMap:
    return TensorMap(dtype, shape, (shape[1] * size,), box, (1, 1), swizzle=swizzle, address=STAGE_ALIGNMENT)


def _chunk_places(tile: tuple[int, int], size: int, span: int, swizzle: str) -> Ints:
    row, chunk = np.indices((tile[0], tile[1] * size // UNIT), dtype=np.int64)
    inside = chunk * UNIT
    return swizzled(inside // span * tile[0] * span + row * span + inside % span, swizzle)


def shared_formula(
    tile: tuple[int, int], size: int, swizzle: str, names: tuple[str, str], *, plain: bool
) -> str:
    """Return the byte of an element of a tile; ``plain`` are rows one after the other without swizzle."""
    row, col = names
    if plain:
        return total((tile[1] * size, row, tile[0]), (size, col, tile[1]))
    return SharedOperand(0, tile[0], tile[1], 8 * size, "K", swizzle).formula(row, col)


@dataclass
class _Trail:
    """The steps so far; each may use the names of those before it."""

    steps: list[Step] = field(default_factory=list)
    stage: str = ""

    @property
    def values(self) -> dict[str, int]:
        return {step.name: step.value for step in self.steps}

    def given(self, name: str, value: int, meaning: str) -> None:
        self.steps.append(Step(self.stage, name, value, "", meaning))

    def add(self, name: str, formula: str, meaning: str) -> None:
        value = evaluate(formula, self.values)
        self.steps.append(Step(self.stage, name, value, formula, meaning))


def trace(setup: Setup, row: int, col: int) -> list[Step]:
    """Return the steps of the element at this row and column of the matrix.

    Raises:
        UsageError: the matrix has no such element.

    """
    for part, (at, extent) in enumerate(zip((row, col), setup.matrix, strict=True)):
        if not 0 <= at < extent:
            what, (rows, cols) = ("row", "column")[part], setup.matrix
            told = f"{what} {at} is outside the matrix of {rows}x{cols}; legal: 0 to {extent - 1}"
            raise MisfitError(told, "element", part)
    trail = _Trail()
    _global(trail, setup, row, col)
    _copy(trail, setup)
    _shared(trail, setup)
    if isinstance(setup.form, MmaForm):
        _ldmatrix(trail, setup, setup.form)
    else:
        _descriptor(trail, setup)
    _accumulator(trail, setup)
    _store(trail, setup)
    _back(trail, setup)
    return trail.steps


def _global(trail: _Trail, setup: Setup, row: int, col: int) -> None:
    trail.stage = "global memory"
    axes = (setup.side, "k") if setup.k_axis else ("k", setup.side)
    trail.given("row", row, f"row of the matrix: {axes[0]} of {setup.operand}")
    trail.given("col", col, f"column of the matrix: {axes[1]} of {setup.operand}")
    trail.add("byte", f"row * {setup.matrix[1] * setup.size} + col * {setup.size}", "from the first element")


def _copy(trail: _Trail, setup: Setup) -> None:
    """Add the box, or the chunk and thread, that brings the element into shared memory."""
    rows, cols = setup.tile
    trail.stage = "TMA" if setup.copy == "tma" else "cp.async"
    if setup.copy == "tma":
        width = setup.box[1]
        trail.add("x", f"col // {width} * {width}", "coordinate of dimension 0 that the instruction gets")
        trail.add("y", f"row // {rows} * {rows}", "coordinate of dimension 1")
    along, extent = ("col", cols) if setup.k_axis else ("row", rows)
    trail.add("stage", f"{along} // {extent} % {setup.stages}", "of the ring: tiles along k take turns")
    trail.add("r", f"row % {rows}", "row of the tile")
    trail.add("c", f"col % {cols}", "column of the tile")
    if setup.copy == "cp.async":
        per_chunk = UNIT // setup.size
        trail.add("chunk", f"r * {cols // per_chunk} + c // {per_chunk}", "of 16 bytes, counted by rows")
        trail.add("thread", f"chunk % {THREADS}", f"of {THREADS} that copies it")
        trail.add("round", f"chunk // {THREADS}", "in which it does")


def _shared(trail: _Trail, setup: Setup) -> None:
    trail.stage = "shared memory"
    linear = setup.start(*(("r", "c") if setup.k_axis else ("c", "r")))
    trail.add("plain", f"stage * {setup.stage_bytes} + {linear}", "byte before the swizzle")
    plain = setup.swizzle == "none" and isinstance(setup.form, MmaForm)
    formula = shared_formula(setup.tile, setup.size, setup.swizzle, ("r", "c"), plain=plain)
    trail.add("shared", f"stage * {setup.stage_bytes} + {formula}", f"byte with swizzle {setup.swizzle}")
    trail.add("bank", f"shared // {WORD_BYTES} % {BANKS}", "of its word")
    if setup.size < WORD_BYTES:
        trail.add(
            "part", f"shared % {WORD_BYTES} // {setup.size}", f"which {8 * setup.size} bits of the word"
        )


def _ldmatrix(trail: _Trail, setup: Setup, form: MmaForm) -> None:
    """Add where ldmatrix finds the element, and where it leaves it: as the operand of mma."""
    load, side = setup.load.form, setup.side
    trail.stage = f"ldmatrix .x{load.num}{'.trans' if load.trans else ''}"
    across, along = ("r", "c") if setup.k_axis else ("c", "r")
    trail.add(side, f"{across} % {setup.form_sides[side]}", f"{side} within the instruction")
    trail.add("k", f"{along} % {form.k}", "k within the instruction")
    own = _renamed(mma_formulas.formulas(form)[setup.operand], *((side, "k") if side == "m" else ("k", side)))
    trail.add("matrix", own["register"], "which of the matrices: the register of the operand")
    line, unit = (side, "k") if setup.k_axis else ("k", side)
    trail.add("line", f"{line} % {load.rows}", "row of that matrix")
    trail.add("place", f"{unit} % {load.cols}", "element of its 16 bytes")
    trail.add("pointer", f"{load.rows} * matrix + line", "lane whose address the 16 bytes are at")
    trail.add("address", f"shared // {UNIT} * {UNIT}", "which that lane supplies")
    left = _renamed(ldmatrix.formulas(load), "line", "place")
    trail.add("lane", left["lane"], "that gets the element")
    trail.add("register", left["register"], "of that lane")
    trail.add("slot", left["slot"], "in the register, from the low bits up")
    trail.stage = f"{setup.name}, {setup.operand}"
    for name in ("lane", "register", "slot"):
        trail.add(f"{setup.operand}_{name}", own[name], f"the {name} in which {setup.operand} is expected")


def _descriptor(trail: _Trail, setup: Setup) -> None:
    """Add the descriptor of the wgmma that reads the element, and the byte at which it does."""
    trail.stage = "wgmma descriptor"
    side, across, along = setup.side, *(("r", "c") if setup.k_axis else ("c", "r"))
    high, k = setup.form_sides[side], setup.form.k
    trail.add(f"{side}0", f"{across} // {high} * {high}", f"first {side} of the instruction, in the tile")
    trail.add("k0", f"{along} // {k} * {k}", "first k of the instruction, in the tile")
    trail.add(side, f"{across} % {high}", f"{side} within the instruction")
    trail.add("k", f"{along} % {k}", "k within the instruction")
    start = setup.start(f"{side}0", "k0")
    trail.add("start", f"stage * {setup.stage_bytes} + {start}", "start address; stored divided by 16")
    whole = _operand(setup)
    trail.given(
        "LBO", whole.lbo, "leading byte offset" if whole.uses_lbo else "leading byte offset, not read"
    )
    trail.given("SBO", whole.sbo, "stride byte offset")
    trail.add(
        "linear", f"start + {_linear(setup)}", "byte that the descriptor stands for, before the swizzle"
    )
    mask = setup.span - UNIT
    swizzle = f"linear ^ linear // 8 & {mask}" if setup.swizzle != "none" else "linear"
    trail.add("read", swizzle, "byte that is read")


def _operand(setup: Setup) -> SharedOperand:
    """Return the tile as wgmma reads it."""
    across, k = setup.tile if setup.k_axis else (setup.tile[1], setup.tile[0])
    return SharedOperand(0, across, k, 8 * setup.size, setup.major, setup.swizzle)


def _linear(setup: Setup) -> str:
    """Return the formula of an element's byte from the start of an instruction's operand."""
    size, span, lines = setup.size, setup.span, ATOMS[setup.swizzle].lines
    high, k = setup.form_sides[setup.side], setup.form.k
    if setup.k_axis:
        rows = (span, f"{setup.side} % {lines}", lines), (1, f"{setup.side} // {lines} * SBO", high // lines)
        if setup.swizzle == "none":
            per_unit = UNIT // size
            return total(
                *rows, (1, f"k // {per_unit} * LBO", k // per_unit), (size, f"k % {per_unit}", per_unit)
            )
        return total(*rows, (size, "k", k))
    per_span = span // size
    return total(
        (span, f"k % {lines}", lines),
        (1, f"k // {lines} * SBO", k // lines),
        (1, f"{setup.side} // {per_span} * LBO", -(-high // per_span)),
        (size, f"{setup.side} % {per_span}", per_span),
    )


def _accumulator(trail: _Trail, setup: Setup) -> None:
    """Add which accumulator holds the element where the other operand is the identity."""
    trail.stage = f"{setup.name}, D"
    high, wide = setup.c_tile
    row, col = ("row", "col") if setup.is_c_order else ("col", "row")
    product = "A times I" if setup.operand == "A" else "I times B"
    trail.add("c_row", row, f"row of C = {product}, I the identity")
    trail.add("c_col", col, "column of C")
    trail.add("c_r", f"c_row % {high}", f"row of C's tile, {high}x{wide}")
    trail.add("c_c", f"c_col % {wide}", "column of C's tile")
    trail.add("d_m", f"c_r % {setup.form_sides['m']}", "row of the instruction's D")
    trail.add("d_n", f"c_c % {setup.form_sides['n']}", "column of the instruction's D")
    if isinstance(setup.form, MmaForm):
        own = _renamed(mma_formulas.formulas(setup.form)["D"], "d_m", "d_n")
    else:
        own = _renamed(wgmma.formulas(setup.form)["D"], "d_m", "d_n")
        trail.add("D_warp", own["warp"], "of the warpgroup that holds it")
    trail.add("D_lane", own["lane"], "that holds it")
    trail.add("D_register", own["register"], "accumulator that holds it")


def _store(trail: _Trail, setup: Setup) -> None:
    """Add where the accumulator is written to shared memory."""
    plain = setup.swizzle == "none"
    formula = shared_formula(setup.c_tile, setup.c_size, setup.swizzle, ("c_r", "c_c"), plain=plain)
    if setup.c_size == 2:
        wide = "d_n" if isinstance(setup.form, WgmmaForm) else "c_c"
        extent = setup.form.n if isinstance(setup.form, WgmmaForm) else setup.c_tile[1]
        pairs = 2 if extent % 16 == 0 else 1
        trail.stage = f"stmatrix .x{2 * pairs}"
        matrix = total((1, "d_m % 16 // 8", 2), (2, f"{wide} // 8 % 2", pairs))
        trail.add("s_matrix", matrix, "which of the matrices: pairs of accumulators narrowed to 16 bits")
        trail.add("s_pointer", "8 * s_matrix + d_m % 8", "lane that supplies the address of its 16 bytes")
    else:
        trail.stage = "st.shared.v2"
    trail.add("c_shared", formula, f"byte of C's tile, swizzle {setup.swizzle}")
    trail.add("c_bank", f"c_shared // {WORD_BYTES} % {BANKS}", "of its word")


def _back(trail: _Trail, setup: Setup) -> None:
    trail.stage = "global memory, C"
    pitch = setup.c_matrix[1] * setup.c_size
    trail.add("c_byte", f"c_row * {pitch} + c_col * {setup.c_size}", "from the first element of C")


def _renamed(formulas: dict[str, str], row: str, col: str) -> dict[str, str]:
    """Return formulas with other names for row and column."""
    names = {"row": row, "col": col}
    return {
        key: re.sub(r"\b(row|col)\b", lambda found: names[found[1]], formula)
        for key, formula in formulas.items()
    }


def contributions(setup: Setup, at: dict[str, int]) -> Iterator[tuple[int, int, int]]:
    """Yield (warp, lane, register) of every accumulator of one instruction that the element is added to."""
    side, place = ("row", at["m"]) if setup.operand == "A" else ("col", at["n"])
    form = setup.form
    entries = form.c_map.entries() if isinstance(form, MmaForm) else form.d_map.entries()
    found = {
        (entry.get("warp", 0), entry["lane"], entry["register"]) for entry in entries if entry[side] == place
    }
    yield from sorted(found)
