"""Tensor maps out of what other programs leave behind: 128 raw bytes, or the text of a failed encoding.

The text is what CUTLASS prints when the driver refuses a map (copy_traits_sm90_tma.hpp): a line for each
argument of cuTensorMapEncodeTiled, numbers for its enumerations, five of each list, innermost first, and a
stride in front for the innermost dimension.
"""

from __future__ import annotations

import re

from ptxlab.errors import UsageError
from ptxlab.isa.tensor_map import (
    FILLS,
    INTERLEAVES,
    MOST_RANK,
    NBYTES,
    PROMOTIONS,
    SWIZZLES,
    TYPES,
    TensorMap,
)

_BEGINNING = r"^(?:[^\n]*[\]:|>])?[ \t]*"  # who prints may be named first: "[rank0] "
_NUMBER = re.compile(
    _BEGINNING + r"(format|dim|gmem_address|interleave|swizzle|l2Promotion|oobFill)"
    r"[ \t]+(0x[0-9a-fA-F]+|[0-9]+|\(nil\))[ \t]*$",
    re.MULTILINE,
)
_LIST = re.compile(
    _BEGINNING + r"(globalDim|globalStrides|boxDim|elementStrides)"
    r"[ \t]+\([ \t]*([0-9]+(?:,[ \t]*[0-9]+){4})[ \t]*\)[ \t]*$",
    re.MULTILINE,
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
    fields = _fields(data.decode("utf-8", errors="replace").replace("\r\n", "\n"))
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
            numbers = value.replace("(nil)", "0x0").split(",")
            found.setdefault(key, []).append([int(each, 16 if "x" in each else 10) for each in numbers])
    return found


def _map(fields: dict[str, list[int]]) -> TensorMap:
    rank = fields["dim"][0]
    if not 1 <= rank <= MOST_RANK:
        raise UsageError(f"tensorRank={rank}; legal: 1 to {MOST_RANK}")

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
