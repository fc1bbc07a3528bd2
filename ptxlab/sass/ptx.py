"""What of a kernel's PTX can be held against its SASS: its tensor operations, and what it asks for."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_HEADER = re.compile(
    r"^[ \t]*(?:\.(?:visible|weak|extern)\s+)*\.(entry|func)\b(?:\s*\([^)]*\))?\s*([\w$%]+)[^;{]*([{;])",
    re.MULTILINE,
)
_BRACE = re.compile("[{}]")
_CALL = re.compile(r"(?<![\w.])call(?:\.uni)?\s+(?:\([^)]*\)\s*,\s*)?([\w$%]+)")
_OPERATION = re.compile(r"(?<![\w.])(?:mma|wmma\.mma|wgmma\.mma_async|tcgen05\.mma)\.[\w.:]+")


@dataclass(frozen=True)
class Operation:
    """A tensor operation in PTX.

    Attributes:
        text: the opcode with its modifiers: "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32".
        first: the line that it begins in, counted from 1.
        last: the line that its semicolon stands in.

    """

    text: str
    first: int
    last: int


@dataclass(frozen=True)
class _Body:
    kind: str  # "entry" or "func"
    text: str
    first: int  # the line that the text begins in

    @cached_property
    def _breaks(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self.text)]

    def line_at(self, position: int) -> int:
        return self.first + bisect_left(self._breaks, position)


@dataclass(frozen=True)
class PtxKernel:
    """A kernel in PTX, with the functions that it calls.

    Attributes:
        functions: their names, the kernel's own first.
        bodies: their texts.

    """

    functions: tuple[str, ...] = ()
    bodies: tuple[_Body, ...] = ()

    @cached_property
    def operations(self) -> list[Operation]:
        """The tensor operations, in the order of their lines."""
        found = []
        for body in self.bodies:
            for match in _OPERATION.finditer(body.text):
                end = max(match.start(), body.text.find(";", match.end()))
                found.append(Operation(match[0], body.line_at(match.start()), body.line_at(end)))
        return sorted(found, key=lambda operation: operation.first)

    def count(self, instruction: str) -> int:
        """Return how often an instruction stands in it, whatever its modifiers are."""
        pattern = re.compile(rf"(?<![\w.]){re.escape(instruction)}\b")
        return sum(len(pattern.findall(body.text)) for body in self.bodies)

    def holds_line(self, number: int) -> bool:
        """Whether this line of the PTX belongs to it."""
        return any(body.first <= number <= body.line_at(len(body.text)) for body in self.bodies)


def ptx_kernels(ptx: str) -> dict[str, PtxKernel]:
    """Return the kernels of a PTX module by name, in the order of the text."""
    bodies = _bodies(ptx)
    calls = {name: set(_CALL.findall(body.text)) & set(bodies) for name, body in bodies.items()}
    kernels = {}
    for name in (name for name, body in bodies.items() if body.kind == "entry"):
        reached, waiting = [name], list(calls[name])
        while waiting:
            callee = waiting.pop()
            if callee not in reached:
                reached.append(callee)
                waiting += calls[callee]
        kernels[name] = PtxKernel(tuple(reached), tuple(bodies[each] for each in reached))
    return kernels


def _bodies(ptx: str) -> dict[str, _Body]:
    """Return the functions that have a body. Comments go, and every line keeps its number."""
    text = _COMMENT.sub(lambda match: "\n" * match[0].count("\n"), ptx)
    found = {}
    for match in _HEADER.finditer(text):
        if match[3] == "{":
            body = text[match.end() : _closing_brace(text, match.end())]
            found[match[2]] = _Body(match[1], body, 1 + text.count("\n", 0, match.end()))
    return found


def _closing_brace(text: str, start: int) -> int:
    """Return where the brace closes that opened just before ``start``."""
    depth = 1
    for match in _BRACE.finditer(text, start):
        depth += 1 if match[0] == "{" else -1
        if not depth:
            return match.start()
    return len(text)
