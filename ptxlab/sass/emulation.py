"""PTX tensor operations that the chip does not have as one native operation, and what stands for them.

Whether an operation is native is read from the SASS itself: its opcode names family, shape and types. What
replaced it is read through the line information, so it is exact, and takes in the routines that ptxas calls.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ptxlab.sass.instructions import TENSOR_FAMILIES, Function, Instruction
from ptxlab.sass.ptx import PtxKernel
from ptxlab.toolchain.disassembler import Listing

_SHAPE = re.compile(r"\.m(\d+)n(\d+)k(\d+)")
_FAMILIES = {
    **dict.fromkeys(("f16", "bf16", "tf32"), "HMMA"),
    **dict.fromkeys(("s8", "u8", "s4", "u4"), "IMMA"),
    **dict.fromkeys(("e4m3", "e5m2", "e3m2", "e2m3", "e2m1"), "QMMA"),
    "b1": "BMMA",
    "f64": "DMMA",
}


def may_be_emulated(ptx: PtxKernel, function: Function) -> bool:
    """Whether the line information is worth a look: an operation is missing, or a routine is called."""
    opcodes = {each.opcode for each in function.code}
    return any(not is_native(each.text, opcodes) for each in ptx.operations) or any(
        each.calls_mma for each in function.code
    )


def emulated(ptx: PtxKernel, function: Function, listing: Listing) -> list[dict[str, Any]]:
    """Return the operations that did not become one native operation.

    Operations that ptxas left out altogether are not among them.

    Returns:
        ``{"ptx", "sass", "sites", "counts"}`` each: the PTX opcode, what stands for one site of it as
        text ("2 HMMA.16816.F32 + 12 F2FP.F16.E4M3.UNPACK_B"), how many sites of it look like that, and
        the same as numbers.

    """
    by_line: dict[int, list[Instruction]] = defaultdict(list)
    for each in function.code:
        by_line[listing.ptx_lines.get(each.address, 0)].append(each)
    sites: Counter[tuple[str, str]] = Counter()
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for operation in ptx.operations:
        lines = range(operation.first, operation.last + 1)
        own = [each for line in lines for each in by_line[line]]
        called = list(_called(own, function, listing.functions, set()))
        if own and (called or not is_native(operation.text, {each.opcode for each in own})):
            code = own + called
            opcodes = _ordered(Counter(each.opcode for each in code if not each.never_runs))
            text = " + ".join(f"{count} {opcode}" for opcode, count in opcodes.items())
            sites[operation.text, text] += 1
            counts[operation.text, text] = opcodes
    return [
        {"ptx": name, "sass": text, "sites": number, "counts": counts[name, text]}
        for (name, text), number in sites.items()
    ]


def is_native(operation: str, opcodes: Iterable[str]) -> bool:
    """Whether one of the SASS opcodes is this PTX operation and no other.

    An architecture has wgmma and tcgen05 natively or not at all.
    """
    if operation.startswith(("wgmma", "tcgen05")):
        return True
    wanted = _native_parts(operation)
    return any(all(part.fullmatch(opcode) for part in wanted) for opcode in opcodes)


def _ordered(opcodes: Counter[str]) -> dict[str, int]:
    """Return the counts, those of tensor operations first, then the highest first."""
    tensor = {opcode: opcode.partition(".")[0] in TENSOR_FAMILIES for opcode in opcodes}
    return dict(sorted(opcodes.items(), key=lambda item: (not tensor[item[0]], -item[1], item[0])))


def _called(
    code: Iterable[Instruction], function: Function, starts: Mapping[str, int], seen: set[str]
) -> Iterator[Instruction]:
    """Yield the instructions of the internal functions that the code calls, each function once."""
    for name in (each.callee for each in code):
        if name in starts and name not in seen:
            seen.add(name)
            end = min((at for at in starts.values() if at > starts[name]), default=None)
            body = [
                each
                for each in function.code
                if starts[name] <= each.address and (end is None or each.address < end)
            ]
            yield from body
            yield from _called(body, function, starts, seen)


def _native_parts(operation: str) -> list[re.Pattern[str]]:
    """Return patterns that the opcode of the native operation matches, all of them."""
    types = [part for part in operation.split(".") if part in _FAMILIES]
    # An mma names D, A, B, C and so does a wmma, but for f16, where it names only D and C.
    element = types[1] if len(types) > 1 else "f16"
    family = "OMMA" if "mxf4" in operation and "f8f6f4" not in operation else _FAMILIES[element]
    patterns = [rf"{family}\..*"]
    if element in ("s4", "u4", "b1"):
        logic = [part.upper() for part in ("xor", "and") if f".{part}." in operation]
        patterns.append(rf".*\.({'|'.join(logic or ['S4', 'U4'])})(\..*|$)")
    if (shape := _SHAPE.search(operation)) and not operation.startswith("wmma"):
        m, n, k = shape.groups()
        # Blackwell does m8n8k16 of s8 with its operation for m16.
        patterns.append(rf".*\.({m}{n}{k}|{m}x{n}x{k}|16{n}{k})(\..*|$)")
    return [re.compile(pattern) for pattern in patterns]
