"""PTX tensor operations that the chip does not have as one native operation, and what stands for them.

Whether an operation is native is read from the SASS itself: its opcode names family, shape and types. What
replaced it is read through the line information, so it is exact, and includes the routines that ptxas calls.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ptxlab.sass.instructions import TENSOR_FAMILIES, Function, Instruction
from ptxlab.toolchain.disassembler import Listing

_OPERATION = re.compile(r"(?<![\w.])(mma|wmma\.mma|wgmma\.mma_async|tcgen05\.mma)(\.[\w.:]+)")
_SETMAXNREG = re.compile(r"(?<![\w.])setmaxnreg\.")
_SHAPE = re.compile(r"\.m(\d+)n(\d+)k(\d+)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_HEADER = re.compile(
    r"^[ \t]*(?:\.(?:visible|weak|extern)\s+)*\.(entry|func)\b(?:\s*\([^)]*\))?\s*([\w$%]+)[^;{]*([{;])",
    re.MULTILINE,
)
_CALLED = re.compile(r"(?<![\w.])call(?:\.uni)?\s+(?:\([^)]*\)\s*,\s*)?([\w$]+)")

_FAMILIES = {
    **dict.fromkeys(("f16", "bf16", "tf32"), "HMMA"),
    **dict.fromkeys(("s8", "u8", "s4", "u4"), "IMMA"),
    **dict.fromkeys(("e4m3", "e5m2", "e3m2", "e2m3", "e2m1"), "QMMA"),
    "b1": "BMMA",
    "f64": "DMMA",
}
_WGMMA = frozenset(("HGMMA", "IGMMA", "QGMMA", "BGMMA"))


@dataclass(frozen=True)
class Operation:
    """A tensor operation in PTX.

    Attributes:
        text: the opcode with its modifiers: "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32".
        first: the line it begins in, counted from 1.
        last: the line its semicolon stands in.

    """

    text: str
    first: int
    last: int


def operations(ptx: str, kernel: str) -> list[Operation]:
    """Return the tensor operations of a kernel's PTX and of the functions that it calls, in order."""
    found = []
    for body, line in _bodies(ptx, kernel):
        for match in _OPERATION.finditer(body):
            first = line + body.count("\n", 0, match.start())
            end = body.find(";", match.end())
            found.append(Operation(match[0], first, first + body.count("\n", match.start(), max(end, 0))))
    return sorted(found, key=lambda operation: operation.first)


def entry_names(ptx: str) -> list[str]:
    """Return the names of the kernels in PTX, in order."""
    return [name for name, (kind, _, _) in _functions(ptx).items() if kind == "entry"]


def is_native(operation: str, opcodes: Iterable[str]) -> bool:
    """Whether the SASS has an opcode that is this operation and no other.

    Args:
        operation: the PTX opcode.
        opcodes: those of the SASS that may be it.

    """
    if operation.startswith(("wgmma", "tcgen05")):
        return True  # an architecture has these natively or not at all
    wanted = _native_parts(operation)
    return any(all(part.fullmatch(opcode) for part in wanted) for opcode in opcodes)


def suspicious(found: Sequence[Operation], function: Function) -> bool:
    """Whether anything may be emulated, so that it is worth looking at the line information."""
    opcodes = {each.opcode for each in function.code}
    return any(not is_native(each.text, opcodes) for each in found) or any(
        _calls_mma(each) for each in function.code
    )


def emulated(found: Sequence[Operation], function: Function, listing: Listing) -> list[dict[str, Any]]:
    """Return the operations that did not become one native operation.

    Args:
        found: the tensor operations of the kernel's PTX.
        function: its SASS.
        listing: what nvdisasm's text tells of it.

    Returns:
        ``{"ptx", "sass", "sites", "counts"}`` each: the PTX opcode, what stands for one site of it as
        text ("12 F2FP.F16.E4M3.UNPACK_B + 2 HMMA.16816.F32"), how many sites of it look like that, and
        the same as numbers. Operations that ptxas left out altogether are not among them.

    """
    sites: Counter[tuple[str, str]] = Counter()
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for operation in found:
        own = [
            each
            for each in function.code
            if operation.first <= listing.ptx_lines.get(each.address, 0) <= operation.last
        ]
        called = any(_calls_mma(each) for each in own)
        if not own or (is_native(operation.text, {each.opcode for each in own}) and not called):
            continue
        whole = [*own, *_called(own, function, listing.borders, set())]
        opcodes = Counter(each.opcode for each in whole if not _is_filler(each))
        text = " + ".join(f"{count} {opcode}" for opcode, count in opcodes.most_common())
        sites[operation.text, text] += 1
        counts[operation.text, text] = dict(opcodes.most_common())
    return [
        {"ptx": ptx, "sass": sass, "sites": number, "counts": counts[ptx, sass]}
        for (ptx, sass), number in sites.items()
    ]


def warnings(ptx: str, kernel: str, found: Sequence[Operation], function: Function) -> list[str]:
    """Return what is in the PTX and not, or less often, in the SASS: merged, dropped or ignored.

    Static counts: an unrolled loop has more in SASS than in PTX, and nothing is said then.
    """
    said = []
    wgmma = sum(each.text.startswith("wgmma") for each in found)
    gmma = sum(each.family in _WGMMA for each in function.code)
    calls = sorted({_callee(each) for each in function.code if _calls_mma(each)})
    if calls and not ptx:
        said.append(f"an mma is emulated by {', '.join(calls)}; the cubin carries no PTX to name it")
    if gmma < wgmma:
        said.append(
            f"{wgmma} wgmma.mma_async in PTX, {gmma} in SASS: ptxas merged identical ones or dropped "
            "what has no effect"
        )
    if found and not calls and not any(each.family in TENSOR_FAMILIES for each in function.code):
        said.append(f"{len(found)} tensor operations in PTX, none in SASS: ptxas dropped them")
    asked = sum(len(_SETMAXNREG.findall(body)) for body, _ in _bodies(ptx, kernel))
    kept = sum(each.family == "USETMAXREG" for each in function.code)
    if asked and not kept:
        said.append(f"{asked} setmaxnreg in PTX, no USETMAXREG in SASS: ptxas ignored them")
    return said


def _native_parts(operation: str) -> list[re.Pattern[str]]:
    """Return patterns that the opcode of the native operation matches, all of them."""
    shape = _SHAPE.search(operation)
    types = [part for part in operation.split(".") if part in _FAMILIES]
    # An mma names D, A, B, C; a wmma with integers or f64 the same; with f16 only D and C.
    element = types[1] if len(types) > 1 else (types[0] if types else "f16")
    family = "OMMA" if "mxf4" in operation else _FAMILIES[element]
    patterns = [rf"{family}\..*"]
    if element in ("s4", "u4", "b1"):
        logic = [part.upper() for part in ("xor", "and") if f".{part}." in operation]
        patterns.append(rf".*\.({'|'.join(logic or ['S4', 'U4'])})(\..*|$)")
    if shape and not operation.startswith("wmma"):
        m, n, k = shape.groups()
        # s8 m8n8k16 is done by the m16 operation on chips that have no smaller one.
        patterns.append(rf".*\.({m}{n}{k}|{m}x{n}x{k}|16{n}{k})(\..*|$)")
    return [re.compile(pattern) for pattern in patterns]


def _functions(ptx: str) -> dict[str, tuple[str, str, int]]:
    """Return name -> (entry or func, body, the body's first line) for each function that has a body."""
    text = _COMMENT.sub(lambda match: "\n" * match[0].count("\n"), ptx)
    found = {}
    for match in _HEADER.finditer(text):
        if match[3] == "{":
            body = text[match.end() : _closing_brace(text, match.end())]
            found[match[2]] = (match[1], body, 1 + text.count("\n", 0, match.end()))
    return found


def _closing_brace(text: str, start: int) -> int:
    """Return where the brace closes that opened just before ``start``."""
    depth = 1
    for match in re.compile("[{}]").finditer(text, start):
        depth += 1 if match[0] == "{" else -1
        if not depth:
            return match.start()
    return len(text)


def _bodies(ptx: str, kernel: str) -> list[tuple[str, int]]:
    """Return the bodies, with their first lines, of a kernel and of all that it calls."""
    every = _functions(ptx)
    waiting, reached = [kernel], []
    while waiting:
        name = waiting.pop()
        if name in every and name not in reached:
            reached.append(name)
            waiting += _CALLED.findall(every[name][1])
    return [every[name][1:] for name in reached]


def _called(
    code: Iterable[Instruction], function: Function, labels: Mapping[str, int], seen: set[str]
) -> Iterator[Instruction]:
    """Yield the instructions of the internal functions that the code calls, each function once."""
    ends = sorted(labels.values())
    for name in map(_callee, code):
        if name not in labels or name in seen:
            continue
        seen.add(name)
        start = labels[name]
        end = next((each for each in ends if each > start), None)
        body = [e for e in function.code if start <= e.address and (end is None or e.address < end)]
        yield from body
        yield from _called(body, function, labels, seen)


def _callee(instruction: Instruction) -> str:
    """Return the name of the internal function that a CALL goes to, or ""."""
    return instruction.operands.rpartition(",")[2] if instruction.family == "CALL" else ""


def _calls_mma(instruction: Instruction) -> bool:
    callee = _callee(instruction)
    return "__cuda_sm" in callee and "mma" in callee


def _is_filler(instruction: Instruction) -> bool:
    """Whether this only keeps a distance: an operation that never runs."""
    return instruction.predicate in ("@!PT", "@!UPT")
