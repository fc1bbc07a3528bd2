"""Bulk copies: runs of bytes between global and shared memory, and combined with what lies there.

Sizes and addresses are multiples of 16. What is written to shared memory counts its bytes at an mbarrier, in
the same block's memory; what is written to global memory is waited for in groups: with .read until the shared
memory has been read and may be used again, without until the data is there for the thread that waits.

The bytes of one copy land in pieces. A barrier that is armed with fewer sees its phase end early if what has
landed by then is just that many: on an H200 it was so now and then with 64, 128 or 512 of 1024 bytes
(2026-11-30).

Source: PTX ISA, "Data movement and conversion instructions: cp.async.bulk", "cp.reduce.async.bulk",
"cp.async.bulk.prefetch"; which reductions exist: what ptxas 13.5 assembles (it refuses the others).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError, unknown_name
from ptxlab.isa import tma_reduce

UNIT = 16
MOST = (1 << 20) - UNIT
"""The most bytes of one copy (ptxas refuses a larger constant)."""

SIZES = {"b32": 4, "u32": 4, "s32": 4, "b64": 8, "u64": 8, "s64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}

IN_SHARED = {
    "add": ("u32", "s32", "u64"), "min": ("u32", "s32"), "max": ("u32", "s32"),
    "inc": ("u32",), "dec": ("u32",), "and": ("b32",), "or": ("b32",), "xor": ("b32",),
}  # fmt: skip
"""Reduction in shared memory -> the types that have it."""

IN_GLOBAL = {
    "add": ("u32", "s32", "u64", "f16", "bf16", "f32", "f64"),
    "min": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "max": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "inc": ("u32",), "dec": ("u32",), "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"),
}  # fmt: skip
"""Reduction in global memory -> the types that have it; additions of f16 and bf16 are written .noftz."""

_SAME = {"b32": "u32", "b64": "u64"}
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class BulkForm:
    """What is done.

    Attributes:
        op: load, prefetch, store, reduce, send or send-reduce.
        reduction: a key of IN_GLOBAL, or "".
        dtype: the type of a reduction, or "".

    """

    op: str
    reduction: str = ""
    dtype: str = ""

    @property
    def ptx(self) -> str:
        """The instruction as it is written."""
        noftz = ".noftz" if self.reduction == "add" and self.dtype in ("f16", "bf16") else ""
        end = f".{self.reduction}{noftz}.{self.dtype}"
        send = "bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
        return {
            "load": "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes",
            "prefetch": "cp.async.bulk.prefetch.L2.global",
            "store": "cp.async.bulk.global.shared::cta.bulk_group",
            "reduce": f"cp.reduce.async.bulk.global.shared::cta.bulk_group{end}",
            "send": f"cp.async.{send}",
            "send-reduce": f"cp.reduce.async.{send}{end}",
        }[self.op]

    @property
    def sass(self) -> str:
        """The opcode that ptxas makes of it."""
        dtype = _SAME.get(self.dtype, self.dtype)
        width = "" if dtype in ("", "u32") else f".{dtype.upper()}"
        end = f".{self.reduction.upper()}{width}{'.RN' if dtype.endswith(('f16', 'f32', 'f64')) else ''}"
        return {
            "load": "UBLKCP.S.G", "prefetch": "UBLKPF.L2", "store": "UBLKCP.G.S", "send": "UBLKCP.S.S",
            "reduce": f"UBLKRED.G.S{end}", "send-reduce": f"UBLKRED.S.S{end}",
        }[self.op]  # fmt: skip


def check_arch(arch: str) -> None:
    """Raise UsageError if an architecture has no bulk copies. Source: PTX ISA, its target notes."""
    if int(arch.strip("sm_af")) < 90:
        raise UsageError(f"cp.async.bulk does not exist on {arch}; legal: sm_90 and later", "--arch sm_90a")


def check_reduction(form: BulkForm) -> None:
    """Raise UsageError if a reduction does not exist; the message names the types that have it."""
    table = IN_SHARED if form.op == "send-reduce" else IN_GLOBAL
    if form.reduction not in table:
        raise unknown_name("reduction", form.reduction, table)
    if form.dtype not in table[form.reduction]:
        having = [name for name, types in table.items() if form.dtype in types]
        place = "shared" if table is IN_SHARED else "global"
        raise UsageError(
            f"no reduction .{form.reduction} of {form.dtype} in {place} memory; legal types: "
            f"{', '.join(table[form.reduction])}",
            f"{form.dtype} has {', '.join(having)}" if having else "",
        )


def check_bytes(what: str, value: int, most: int, least: int = 0) -> None:
    """Raise UsageError if a size or an offset is not one of bulk copies."""
    if value % UNIT or not least <= value <= most:
        raise UsageError(
            f"{what} of {value} bytes; legal: multiples of {UNIT} from {least} to {most}",
            f"of other sizes an H200 leaves out what is beyond a multiple of {UNIT}, and the barrier waits "
            "for it; other addresses are a fault",
        )


def combined(reduction: str, dtype: str, old: Bytes, new: Bytes) -> Bytes:
    """Return what a reduction leaves of two runs of bytes of the same length."""
    if dtype == "f64":
        return _sum_f64(old.view(np.float64), new.view(np.float64))
    size = SIZES[dtype]
    pair = (each.reshape(-1, size) for each in (old, new))
    return tma_reduce.combined(reduction, _SAME.get(dtype, dtype), *pair).reshape(-1)


def _sum_f64(old: NDArray[np.float64], new: NDArray[np.float64]) -> Bytes:
    """Return the bytes of sums: a NaN stays, of two the new one, and infinities of both signs make fff8...

    So it was on an H200, 2026-11-30; signalling ones stay as they are.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        made = old + new
    words, old_nan, new_nan = made.view(np.uint64), np.isnan(old), np.isnan(new)
    words = np.where(np.isnan(made), np.uint64(0xFFF8 << 48), words)
    words = np.where(old_nan, old.view(np.uint64), words)
    return np.where(new_nan, new.view(np.uint64), words).astype(np.uint64).view(np.uint8)


def operands(dtype: str, nbytes: int, series: int) -> Bytes:
    """Return elements to combine, as different as the type allows; each side takes a series of its own.

    Those of floats begin with numbers that are special: subnormal, infinite, none.
    """
    count = nbytes // SIZES[dtype]
    index = np.arange(count, dtype=np.int64)
    if not dtype.endswith(("f16", "f32", "f64")):
        values = index * (3 + 2 * series) - 40 * series
        return values.astype(np.dtype(f"i{SIZES[dtype]}")).view(np.uint8)
    numbers = (index * 7 + 13 * series) % 251 - 125 + (index % (8 * series)) / 64
    least: dict[str, Any] = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149, "f64": 2.0**-1074}
    special = (
        (least[dtype], least[dtype], np.inf, np.nan, 0.0, -0.0, 1.0, -1.0),
        (least[dtype], 3 * least[dtype], -np.inf, 2.0, -0.0, -0.0, least[dtype], 1.0),
    )[series - 1]
    numbers[: len(special)] = special[:count]
    return _narrowed(dtype, numbers)


def _narrowed(dtype: str, numbers: NDArray[np.float64]) -> Bytes:
    if dtype == "bf16":
        bits = numbers.astype(np.float32).view(np.uint32) >> 16
        return bits.astype(np.uint16).view(np.uint8)
    kind: Any = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[dtype]
    return np.ascontiguousarray(numbers.astype(kind)).view(np.uint8)
