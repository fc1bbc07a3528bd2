"""The text of layouts: ``(4,(2,2)):(1,(4,8))``, ``Sw<3,4,3> o (64,16):(16,1)``, with errors at their column.

A swizzle in front moves the offsets that the layout yields. With ``smem_ptr[16b](unset) o`` between the two,
as CuTe prints layouts of shared memory, the offsets count elements of so many bits and the swizzle moves
bits of byte addresses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError, unknown_name
from ptxlab.isa.shown import Shown
from ptxlab.layout.algebra import LARGEST, Coordinate, IntTuple, Layout, packed
from ptxlab.layout.swizzle import Swizzle

_TOKEN = re.compile(r"\s*(-?[0-9]+|[A-Za-z_]+|\S)")
_NUMBER = re.compile(r"-?[0-9]+")
_NAME = re.compile(r"[A-Za-z_]+")
Built = TypeVar("Built")
IDENTITY = Swizzle(0, 4, 3)
ELEMENT_BITS = (1, 2, 4, 8, 16, 32, 64, 128)
_LONGEST = 2000  # characters
_DIGITS = 13  # of a number: more than any size or stride has
_DEEPEST = 30  # nested tuples


@dataclass(frozen=True)
class Composed(Shown):
    """A layout whose offsets a swizzle moves: ``swizzle(offset + layout(c))``.

    Attributes:
        layout: yields offsets.
        swizzle: moves them; IDENTITY moves nothing.
        offset: added before the swizzle.
        element_bits: None: the swizzle moves the offsets as they are. A number: the offsets count elements
            of so many bits, and the swizzle moves byte addresses.

    Raises:
        UsageError: the swizzle would split an element.

    """

    layout: Layout
    swizzle: Swizzle = IDENTITY
    offset: int = 0
    element_bits: int | None = None

    def __post_init__(self) -> None:
        if abs(self.offset) > LARGEST:
            raise UsageError(f"an offset of {self.offset} is too large; legal: up to 2^40")
        _ = self.moved

    def __repr__(self) -> str:
        return f"parse_layout('{self}')"

    def __str__(self) -> str:
        parts = [str(self.layout)]
        if self.offset:
            parts.insert(0, str(self.offset))
        if self.element_bits:
            parts.insert(0, f"smem_ptr[{self.element_bits}b](unset)")
        if self.swizzle.bits:
            parts.insert(0, f"Sw{self.swizzle}")
        return " o ".join(parts)

    @property
    def moved(self) -> Swizzle:
        """The swizzle as it moves the offsets themselves."""
        if not self.element_bits or not self.swizzle.bits:
            return self.swizzle
        return self.swizzle.rescaled(8, self.element_bits)

    def __call__(self, *coordinate: Coordinate) -> int:
        """Return where a coordinate of the layout lies.

        Raises:
            UsageError: it lies outside of the shape, or nests otherwise.

        """
        return self.moved(self.layout(*coordinate) + self.offset)

    def offsets(self) -> NDArray[np.int64]:
        """Return where each number from 0 to size - 1 lies, [size]."""
        return self.moved(self.layout.offsets() + self.offset)

    @property
    def plain(self) -> bool:
        """Whether the offsets are those of the layout."""
        return self == Composed(self.layout)

    def of_elements(self, bits: int) -> Composed:
        """Return it with offsets that count elements of so many bits, and a swizzle of byte addresses.

        Raises:
            UsageError: they count elements of another width, or the width is none of ELEMENT_BITS.

        """
        if bits not in ELEMENT_BITS:
            legal = ", ".join(map(str, ELEMENT_BITS))
            raise UsageError(f"elements of {bits} bits have no address each; legal: {legal} bits")
        if self.element_bits not in (None, bits):
            raise UsageError(f"{self} has elements of {self.element_bits} bits, and {bits} are asked for")
        return replace(self, element_bits=bits)


def parse_layout(source: str) -> Composed:
    """Return the layout that a text writes; a shape alone is the packed layout of that shape.

    Raises:
        UsageError: the text is malformed; the message names the column, counted from 1.

    """
    return _Parser(source).whole()


Operand = Composed | Layout | tuple[Layout, ...] | int


class Written(NamedTuple):
    """An operation as it is written: its name, its operands, and the columns at which those begin."""

    name: str
    operands: list[Operand]
    columns: list[int]


def parse_operation(source: str, legal: Mapping[str, Sequence[str]]) -> Written:
    """Return what a text such as ``complement 4:2 24`` writes.

    Args:
        source: the text; without a name in front it is a layout, and the name is "".
        legal: name -> the kinds of its operands: "any" (a layout with or without a swizzle), "layout",
            "tiler" (a layout, or ``<layout, ...>`` with one for each mode), "number". A kind with "?"
            behind it may be left out.

    Raises:
        UsageError: the text is malformed; the message names the column, counted from 1.

    """
    return _Parser(source).operation(legal)


class _Parser:
    """Reads one text from left to right."""

    def __init__(self, source: str) -> None:
        if len(source) > _LONGEST:
            raise UsageError(f"a layout of {len(source)} characters; legal: at most {_LONGEST}")
        self._source = source
        self._at = 0

    def whole(self) -> Composed:
        layout = self._composed()
        self._end()
        return layout

    def operation(self, legal: Mapping[str, Sequence[str]]) -> Written:
        name = self._peek()
        if name in ("Sw", "smem_ptr") or not _NAME.fullmatch(name):
            return Written("", [self.whole()], [1])
        if name not in legal:
            unknown = unknown_name("operation", name, legal)
            raise UsageError(f"'{self._source}', column {self._column()}: {unknown.message}", unknown.hint)
        self._advance()
        columns, operands = [], []
        for kind in legal[name]:
            if kind.endswith("?") and not self._peek():
                break
            columns.append(self._column())
            operands.append(self._operand(kind.removesuffix("?")))
        self._end()
        return Written(name, operands, columns)

    def _operand(self, kind: str) -> Operand:
        if kind == "number":
            start = self._at
            number = self._number()
            if number < 1:
                raise self._refuse("a number of at least 1", start)
            return number
        if kind == "tiler" and self._take("<"):
            parts = [self._layout()]
            while self._take(","):
                parts.append(self._layout())
            self._need(">")
            return tuple(parts)
        return self._composed() if kind == "any" else self._layout()

    def _end(self) -> None:
        if self._peek():
            raise self._refuse("nothing more")

    def _composed(self) -> Composed:
        start = self._at
        swizzle, bits, offset = IDENTITY, None, 0
        if self._take("Sw"):
            swizzle = self._swizzle()
            self._need("o")
        if self._take("smem_ptr"):
            bits = self._pointer()
            self._need("o")
        if self._peek(1) == "o":
            offset = self._number()
            self._need("o")
        layout = self._layout()
        return self._built(start, lambda: Composed(layout, swizzle, offset, bits))

    def _swizzle(self) -> Swizzle:
        start = self._at
        self._need("<")
        bits, base, shift = self._number(), self._more(), self._more()
        self._need(">")
        return self._built(start, lambda: Swizzle(bits, base, shift))

    def _more(self) -> int:
        self._need(",")
        return self._number()

    def _pointer(self) -> int:
        """Read ``[16b](unset)`` and return the number of bits."""
        self._need("[")
        start = self._at
        bits = self._number()
        if bits not in ELEMENT_BITS:
            raise self._refuse(f"a width of {', '.join(map(str, ELEMENT_BITS))} bits", start)
        for word in ("b", "]"):
            self._need(word)
        if self._take("("):
            self._need("unset")
            self._need(")")
        return bits

    def _layout(self) -> Layout:
        start = self._at
        shape = self._tuple(0)
        if not self._take(":"):
            return self._built(start, lambda: packed(shape))
        stride = self._tuple(0)
        return self._built(start, lambda: Layout(shape, stride))

    def _tuple(self, depth: int) -> IntTuple:
        if depth > _DEEPEST:
            raise self._refuse(f"at most {_DEEPEST} nested tuples")
        if not self._take("("):
            return self._number()
        parts = [self._tuple(depth + 1)]
        while self._take(","):
            parts.append(self._tuple(depth + 1))
        self._need(")")
        return tuple(parts)

    def _number(self) -> int:
        word = self._peek()
        if not _NUMBER.fullmatch(word):
            raise self._refuse("a number or '('")
        if len(word) > _DIGITS:
            raise self._refuse(f"a number of at most {_DIGITS} digits")
        self._advance()
        return int(word)

    def _take(self, word: str) -> bool:
        """Go past the next word if it is this one."""
        if self._peek() != word:
            return False
        self._advance()
        return True

    def _need(self, word: str) -> None:
        if not self._take(word):
            raise self._refuse(f"'{word}'")

    def _peek(self, ahead: int = 0) -> str:
        """Return the next word, or the one so many behind it; "" at the end."""
        at = self._at
        for _ in range(ahead):
            skipped = _TOKEN.match(self._source, at)
            at = skipped.end() if skipped else len(self._source)
        found = _TOKEN.match(self._source, at)
        return found.group(1) if found else ""

    def _advance(self) -> None:
        found = _TOKEN.match(self._source, self._at)
        self._at = found.end() if found else len(self._source)

    def _built(self, start: int, build: Callable[[], Built]) -> Built:
        """Return what the text from ``start`` on stands for, its refusal told with the place."""
        try:
            return build()
        except UsageError as error:
            raise UsageError(
                f"layout '{self._source}', column {self._column(start)}: {error.message}"
            ) from error

    def _refuse(self, wanted: str, start: int | None = None) -> UsageError:
        column = self._column(start)
        found = _TOKEN.match(self._source, column - 1)
        given = f"'{found.group(1)}'" if found else "the end"
        return UsageError(f"layout '{self._source}', column {column}: {wanted} is expected, not {given}")

    def _column(self, start: int | None = None) -> int:
        """Return the column, counted from 1, of the next word from ``start`` on, or from here."""
        at = self._at if start is None else start
        return 1 + at + len(self._source[at:]) - len(self._source[at:].lstrip())
