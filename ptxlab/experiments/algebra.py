"""The records of ``ptxlab layout eval`` and ``layout explain``: what a layout does, how operations work."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.experiments.record import Record
from ptxlab.isa.types import bits as bits_of
from ptxlab.layout import algebra
from ptxlab.layout.algebra import Layout
from ptxlab.layout.banks import BANKS, WORD_BYTES
from ptxlab.layout.notation import Composed, parse_layout
from ptxlab.layout.operations import LARGEST_PROOF, Explanation, explain
from ptxlab.layout.swizzle import MODES, Swizzle

LARGEST = 1 << 20
"""Values of a layout that are gone through."""
LARGEST_TABLE = 1 << 16
LINES = 64
"""Rows and columns of the picture of one layout."""
LINES_EACH = 16
"""Rows and columns of the pictures of several."""
CHUNK_BYTES = 16
BYTE = 8
"""Bits of what the swizzle of a layout's text counts where its elements have a width."""
COMPARED = 8192
"""Byte offsets at which a swizzle is compared with those of TMA: several periods of the longest."""

Ints = NDArray[np.int64]


def eval_record(source: str, dtype: str | None, *, table: bool) -> Record:
    """Return what a layout does: size, image, picture, and with a type banks and 16-byte chunks.

    Raises:
        UsageError: the text is malformed (the message names the column), or the layout is too large.

    """
    layout = _typed(source, dtype)
    most = LARGEST_TABLE if table else LARGEST
    if layout.layout.size > most:
        what = "a table" if table else "an evaluation"
        raise UsageError(
            f"layout '{source}', column 1: {layout.layout.size} values; legal in {what}: {most}",
            "" if not table else "ptxlab layout eval without --table",
        )
    record = Record(backend="model", params={"expression": source, "dtype": dtype, "table": table})
    record.result |= described(layout)
    if table:
        record.result["table"] = _table(layout, layout.offsets())
    return record


def described(layout: Composed) -> dict[str, Any]:
    """Return the result of an evaluation, but for the table."""
    offsets = layout.offsets()
    result = _facts(layout, offsets) | _picture(layout, offsets, LINES)
    result |= {"chunks": chunk_map(layout, offsets), "tma_mode": tma_mode(layout)}
    return result | {"conclusion": _conclusion(layout, result)}


def _typed(source: str, dtype: str | None) -> Composed:
    layout = parse_layout(source)
    if dtype is None:
        return layout
    bits = bits_of(dtype)
    try:
        return layout.of_elements(bits)
    except UsageError as error:
        raise UsageError(f"layout '{source}', column 1: {error.message}") from error


def _facts(layout: Composed, offsets: Ints) -> dict[str, Any]:
    plain = layout.layout
    return {
        "layout": str(layout),
        "shape": algebra.text(plain.shape),
        "stride": algebra.text(plain.stride),
        "swizzle": list(layout.swizzle.parameters) if layout.swizzle.bits else None,
        "element_bits": layout.element_bits,
        "size": plain.size,
        "cosize": plain.cosize,
        "least": int(offsets.min()),
        "largest": int(offsets.max()),
        "distinct": len(np.unique(offsets)),
        "injective": len(np.unique(offsets)) == plain.size,
        "coalesced": str(algebra.coalesce(plain)),
    }


def _picture(layout: Composed, offsets: Ints, lines: int) -> dict[str, Any]:
    """Return the offsets, the first mode downwards and the others to the right; one mode alone is a row."""
    plain = layout.layout
    if plain.rank == 1:
        down, across = Layout(1, 0), plain
    else:
        down, across = plain.modes[0], algebra.joined(plain.modes[1:])
        across = across.modes[0] if across.rank == 1 else across
    grid = offsets.reshape(across.size, down.size).T[:lines, :lines]
    return {
        "grid": grid.tolist(),
        "banks": _banks(layout, grid).tolist() if layout.element_bits else None,
        "row_names": _names(down, grid.shape[0]),
        "column_names": _names(across, grid.shape[1]),
        "grid_shape": [down.size, across.size],
    }


def _names(mode: Layout, count: int) -> list[str]:
    return [algebra.text(algebra.coordinate_of(index, mode.shape)) for index in range(count)]


def _bytes(layout: Composed, offsets: Ints) -> Ints:
    return offsets * (layout.element_bits or 8) // 8


def _banks(layout: Composed, offsets: Ints) -> Ints:
    return _bytes(layout, offsets) // WORD_BYTES % BANKS


def _table(layout: Composed, offsets: Ints) -> list[dict[str, Any]]:
    """Return one entry a coordinate, in the order of their numbers."""
    columns: dict[str, list[Any]] = {
        "index": list(range(layout.layout.size)),
        "coordinate": _names(layout.layout, layout.layout.size),
        "offset": offsets.tolist(),
    }
    if layout.element_bits:
        columns |= {"byte": _bytes(layout, offsets).tolist(), "bank": _banks(layout, offsets).tolist()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def chunk_map(layout: Composed, offsets: Ints) -> list[list[int]] | None:
    """Return for each row how many chunks of 16 bytes behind the row's start its chunks lie.

    Rows are those of one period of the swizzle. None where the layout has no rows of whole chunks that stay
    whole: two modes, one of them contiguous, of elements whose width is known.
    """
    plain = layout.layout
    rows = _rows(plain)
    if layout.element_bits is None or rows is None or layout.offset:
        return None
    along, pitch = rows
    width, pitch_bytes = (each * layout.element_bits // 8 for each in (plain.modes[along].size, pitch))
    torn = layout.swizzle.bits and 1 << layout.swizzle.base < CHUNK_BYTES
    if torn or width % CHUNK_BYTES or pitch_bytes % CHUNK_BYTES:
        return None
    grid = offsets.reshape(plain.modes[1].size, plain.modes[0].size)
    grid = grid.T if along == 1 else grid
    shown = grid[
        : min(LINES, max(1, layout.swizzle.period // pitch_bytes)), :: CHUNK_BYTES * 8 // layout.element_bits
    ]
    starts = np.arange(len(shown))[:, None] * pitch_bytes
    chunks: list[list[int]] = ((_bytes(layout, shown) - starts) // CHUNK_BYTES).tolist()
    return chunks


def _rows(layout: Layout) -> tuple[int, int] | None:
    """Return which of two modes runs along the rows, and how far apart these lie."""
    if layout.rank != 2:
        return None
    for along, across in ((1, 0), (0, 1)):
        row, column = (algebra.coalesce(layout.modes[each]) for each in (along, across))
        if row.stride == 1 and isinstance(column.stride, int) and column.stride > 0:
            return along, column.stride
    return None


def tma_mode(layout: Composed) -> str | None:
    """Return the TMA mode whose swizzle moves every byte as this one does, found by trying them all."""
    if layout.element_bits is None:
        return None
    offsets = np.arange(COMPARED, dtype=np.int64)
    moved = layout.swizzle(offsets)
    same = (name for name, mode in MODES.items() if np.array_equal(moved, Swizzle(*mode)(offsets)))
    return next(same, None)


def _conclusion(layout: Composed, result: dict[str, Any]) -> str:
    size, distinct = result["size"], result["distinct"]
    reach = f"{size} coordinates, offsets {result['least']} to {result['largest']}"
    if result["injective"]:
        text = f"Injective: {reach}, no two alike."
    else:
        text = f"Not injective: {reach}, only {distinct} of them different."
    mode = result["tma_mode"]
    if layout.swizzle.bits and layout.element_bits:
        text += (
            f" The swizzle is TMA's {mode} mode, compared at byte offsets 0 to {COMPARED - 1}."
            if mode
            else " The swizzle is none of TMA's modes 32B, 64B and 128B."
        )
        text += _units(layout, layout.element_bits)
    elif layout.swizzle.bits:
        text += " The swizzle's numbers count offsets; with --dtype they count bytes, as in CuTe's smem_ptr."
    return text


def _units(layout: Composed, bits: int) -> str:
    """Say what the swizzle's numbers count, and if they would be a mode had they counted elements."""
    if bits == BYTE:
        return ""
    text = f" Its numbers count bytes; of elements it is Sw{layout.moved}."
    if bits < BYTE:
        return text
    other = layout.swizzle.rescaled(bits, BYTE)
    mode = next((name for name, p in MODES.items() if p == other.parameters), None)
    return f"{text} Sw{layout.swizzle} of elements would be {mode}: write Sw{other}." if mode else text


def explain_record(source: str) -> Record:
    """Return the steps of an operation on layouts, its result, and the proof by enumeration.

    Raises:
        UsageError: the text is malformed; the message names the column.

    """
    done = explain(source)
    record = Record(backend="model", params={"expression": source})
    record.result |= worked(done)
    if done.result is None:
        record.check("exists", ok=False, detail=done.reason)
    elif not done.claims:
        record.skip("proof", f"more than {LARGEST_PROOF} values to go through")
    for claim in done.claims:
        record.check(claim.what, ok=claim.holds, detail=f"{claim.tried} values tried")
    return record


def worked(done: Explanation) -> dict[str, Any]:
    """Return the result of an operation that was done by hand."""
    return {
        "operation": done.name or "eval",
        "arguments": list(done.operands),
        "definition": done.what,
        "steps": [{"step": number, **step._asdict()} for number, step in enumerate(done.steps, 1)],
        "layout": None if done.result is None else str(done.result),
        "reason": done.reason,
        "proof": [claim._asdict() for claim in done.claims],
        "pictures": [
            {"name": name, "layout": str(layout), **_picture(layout, layout.offsets(), LINES_EACH)}
            for name, layout in done.layouts
            if layout.layout.size <= LARGEST
        ],
        "conclusion": done.told,
    }
