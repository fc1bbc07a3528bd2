"""Floating-point (or integer) operations of the tensor instructions in SASS, read from the shapes they name.

A multiplication and an addition for each m, n and k, the zeros of a sparse A counted as the shape has them.
Counting: HMMA, IMMA, BMMA, DMMA, QMMA and OMMA are executed by one warp, the GMMA of wgmma by the four warps
of a warpgroup together. The shape of a tcgen05.mma stands in its instruction descriptor, not in SASS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ptxlab.sass.instructions import DUMMY, TENSOR_FAMILIES, WGMMA

WARP, WARPGROUP = "warp", "warpgroup of 4 warps"
_SHAPE = re.compile(r"\.(?:(\d+)x(\d+)x(\d+)|(16|8)8(\d+))(?:\.|$)")
_VOLTA = 2048  # of m8n8k4 with f16: four products of a warp ...
_STEPS = {"F32": 4, "F16": 2}  # ... in so many HMMA.884, by the type of C


def flop_of(opcode: str) -> int | None:
    """Return the operations of one tensor instruction; None where its text does not tell the shape."""
    family, *parts = opcode.split(".")
    shape = _SHAPE.search(opcode)
    if shape is None:
        return None
    if family == "HMMA" and parts[0] == "884":
        return _VOLTA // _STEPS[parts[1]]
    m, n, k = (shape[1], shape[2], shape[3]) if shape[1] else (shape[4], 8, shape[5])
    return 2 * int(m) * int(n) * int(k)


def flops(kernel: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what the tensor instructions of a kernel (one of ``result.kernels[]``) compute.

    Returns:
        ``{"opcode", "count", "flop", "by", "total"}`` each: how often it stands in the code, the operations
        of one, who executes it, and the product. None where the shape is not in the opcode.

    """
    rows = []
    for opcode, found in kernel["counts"].items():
        family = opcode.partition(".")[0]
        count = found - (kernel["tensor_dummies"] if opcode == DUMMY else 0)
        if family not in TENSOR_FAMILIES or not count:
            continue
        flop = flop_of(opcode)
        by = WARPGROUP if family in WGMMA else WARP
        rows.append(
            {
                "opcode": opcode,
                "count": count,
                "flop": flop,
                "by": by if flop else "",
                "total": flop * count if flop else None,
            }
        )
    return rows
