"""Tensor maps out of what other programs leave behind: 128 raw bytes, or the text of a failed encoding.

The text is what CUTLASS prints when the driver refuses a map (copy_traits_sm90_tma.hpp): a line for each
argument of cuTensorMapEncodeTiled, numbers for its enumerations, five of each list, innermost first, and a
stride in front for the innermost dimension.
"""

from __future__ import annotations

import re

from ptxlab.errors import UsageError
from ptxlab.isa.tensor_map import FILLS, INTERLEAVES, NBYTES, PROMOTIONS, SWIZZLES, TYPES, TensorMap

_NUMBER = re.compile(
    r"^(format|dim|gmem_address|interleave|swizzle|l2Promotion|oobFill)[ \t]+(0x[0-9a-fA-F]+|\d+)[ \t]*$",
    re.MULTILINE,
)
_LIST = re.compile(
    r"^(globalDim|globalStrides|boxDim|elementStrides)[ \t]+\((\d+(?:,\d+){4})\)[ \t]*$", re.MULTILINE
)
_KEYS = (
    "format", "dim", "gmem_address", "globalDim", "globalStrides", "boxDim", "elementStrides", "interleave",
    "swizzle", "l2Promotion", "oobFill",
)  # fmt: skip


def maps_of(data: bytes) -> list[TensorMap]:
    """Return the maps that a file holds, each once.

    Raises:
        UsageError: it holds none, or pieces of several that cannot be told apart.

    """
    if len(data) == NBYTES:
        return [TensorMap.decode(data)]
    fields = _fields(data.decode("utf-8", errors="replace"))
    missing = [key for key in _KEYS if not fields.get(key)]
    if missing:
        raise UsageError(
            f"neither {NBYTES} bytes nor a dump of a tensor map: no line {', '.join(missing)}",
            "legal: the bytes of a CUtensorMap, or the lines from 'format' to 'oobFill' that CUTLASS prints",
        )
    if len({len(values) for values in fields.values()}) > 1:
        null = fields["gmem_address"].count([0])
        told = f"; {null} of the legible addresses are null" if null else ""
        raise UsageError(
            f"the lines of several dumps are mixed{told}",
            "let one thread print, or keep the lines of one dump",
        )
    found = [_map({key: fields[key][i] for key in _KEYS}) for i in range(len(fields["format"]))]
    return list(dict.fromkeys(found))


def _fields(text: str) -> dict[str, list[list[int]]]:
    found: dict[str, list[list[int]]] = {}
    for pattern in (_NUMBER, _LIST):
        for key, value in pattern.findall(text):
            found.setdefault(key, []).append([int(each, 0) for each in value.split(",")])
    return found


def _map(fields: dict[str, list[int]]) -> TensorMap:
    rank = fields["dim"][0]

    def outermost_first(key: str, first: int, count: int) -> tuple[int, ...]:
        return tuple(reversed(fields[key][first : first + count]))

    def name(key: str, names: tuple[str, ...]) -> str:
        number = fields[key][0]
        return names[number] if number < len(names) else str(number)

    return TensorMap(
        dtype=name("format", TYPES),
        shape=outermost_first("globalDim", 0, rank),
        strides=outermost_first("globalStrides", 1, rank - 1),
        box=outermost_first("boxDim", 0, rank),
        element_strides=outermost_first("elementStrides", 0, rank),
        interleave=name("interleave", INTERLEAVES),
        swizzle=name("swizzle", SWIZZLES),
        l2=name("l2Promotion", PROMOTIONS),
        oob=name("oobFill", FILLS),
        address=fields["gmem_address"][0],
    )
