"""Address expressions: ``lane % 8 * 64 + lane // 8 * 16`` as a byte address for each lane.

The text is parsed into a small whitelisted tree with Python's own precedence and floor division, and that
tree is walked once for all lanes, on arrays; nothing is ever evaluated as Python.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ptxlab.errors import UsageError

Ints = NDArray[np.int64]

_BINARY: dict[type[ast.operator], Callable[[Ints, Ints], Ints]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
_GROWING: dict[type[ast.operator], Callable[..., NDArray[np.float64]]] = {
    ast.Mult: operator.mul, ast.LShift: np.ldexp,
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Callable[[Ints], Ints]] = {
    ast.UAdd: operator.pos, ast.USub: operator.neg, ast.Invert: operator.invert,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Ints, Ints], NDArray[np.bool_]]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_ALIASES = {"l": "lane", "w": "warp"}
_LEGAL = "integers, lane, warp, + - * // % << >> & | ^ ~, comparisons and parentheses"
_LONGEST = 500  # characters; also bounds the depth of the tree
_LARGEST = 1 << 48  # no address is larger, and no shift or product can grow without end
_MOST_SHIFT = 64


def evaluate(text: str, names: Mapping[str, int]) -> int:
    """Return the value of an expression over these names.

    Raises:
        UsageError: something in it is not in the language, is divided by zero, or grows past 2**48.

    """
    return int(_Walk(text, names).value(_parsed(text)))


def coordinates(text: str, names: Mapping[str, Ints]) -> tuple[Ints, Ints]:
    """Return the rows and the columns that ``(row, column)`` gives, each an expression over these names.

    Args:
        text: the expressions.
        names: what each stands for, arrays that go together.

    Raises:
        UsageError: as ``evaluate`` does, or it is no pair.

    """
    walk = _Walk(text, names)
    match _parsed(text):
        case ast.Tuple(elts=[row, col]):
            found = np.broadcast_arrays(walk.value(row), walk.value(col), *names.values())
            return found[0], found[1]
        case other:
            raise walk.refuse("a pair (row, column) is expected", other)


def _parsed(text: str) -> ast.expr:
    """Return the tree of an expression."""
    if len(text) > _LONGEST:
        raise UsageError(f"an address expression has {len(text)} characters; legal: at most {_LONGEST}")
    try:
        return ast.parse(re.sub(r"\s", " ", text).strip(), mode="eval").body
    except SyntaxError as error:  # without an offset where the text ends too early
        column = _leading(text) + error.offset if error.offset else len(text.rstrip()) + 1
        raise _refused(text, column, error.msg) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise _refused(text, 1, str(error)) from error


def _refused(text: str, column: int, reason: str) -> UsageError:
    return UsageError(f"address expression '{text}', column {column}: {reason}; legal: {_LEGAL}")


def _leading(text: str) -> int:
    """Return how many blanks stand before an expression."""
    return len(text) - len(text.lstrip())


class _Walk:
    """Walks one parsed expression, for all values of its names at once."""

    def __init__(self, text: str, names: Mapping[str, int | Ints]) -> None:
        self.text = text
        self.names = {name: np.asarray(value, dtype=np.int64) for name, value in names.items()}
        self.names |= {short: self.names[name] for short, name in _ALIASES.items() if name in names}

    def value(self, node: ast.expr) -> Ints:
        result = np.asarray(self._value(node))
        if (abs(result) > _LARGEST).any():
            raise self._grows(node)
        return result

    def _value(self, node: ast.expr) -> Ints:
        match node:
            case ast.Constant(value=bool()):
                raise self._unknown(node)
            case ast.Constant(value=int(number)):
                if number > _LARGEST:
                    raise self._grows(node)
                return np.asarray(number, dtype=np.int64)
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return self._binary(node, type(op), self.value(left), self.value(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                return _UNARY[type(op)](self.value(operand))
            case ast.Compare():
                return self._compare(node)
        raise self._unknown(node)

    def _binary(self, node: ast.expr, op: type[ast.operator], left: Ints, right: Ints) -> Ints:
        if op in (ast.FloorDiv, ast.Mod) and (right == 0).any():
            raise self.refuse("division by zero", node)
        far = (right < 0) | (right > _MOST_SHIFT)
        if op in (ast.LShift, ast.RShift) and far.any():
            wrong = right[far].flat[0]
            raise self.refuse(f"a shift by {wrong}; legal: 0 to {_MOST_SHIFT}", node)
        if op in _GROWING and (abs(_GROWING[op](left.astype(float), right)) > _LARGEST).any():
            raise self._grows(node)  # 64 bits might not hold it
        return _BINARY[op](left, right)

    def _compare(self, node: ast.Compare) -> Ints:
        values = [self.value(each) for each in (node.left, *node.comparators)]
        if not all(type(op) in _COMPARE for op in node.ops):
            raise self._unknown(node)
        pairs = zip(node.ops, values, values[1:], strict=False)
        found = [_COMPARE[type(op)](left, right) for op, left, right in pairs]
        return np.asarray(np.logical_and.reduce(np.broadcast_arrays(*found)).astype(np.int64))

    def _grows(self, node: ast.expr) -> UsageError:
        return self.refuse("a value grows past 2**48", node)

    def _unknown(self, node: ast.expr) -> UsageError:
        return self.refuse(f"'{ast.unparse(node)}' is not in the language", node)

    def refuse(self, reason: str, node: ast.expr) -> UsageError:
        column = 1 + node.col_offset + _leading(self.text)
        return _refused(self.text, column, reason)


def lane_addresses(
    text: str, *, alignment: int, warp: int = 0, lanes: Sequence[int] = range(32)
) -> list[int]:
    """Return the byte address that an expression gives for each of these lanes.

    Raises:
        UsageError: the expression is illegal, or an address is negative or misaligned (the lane is named).

    """
    found = np.broadcast_to(
        _Walk(text, {"lane": np.array(lanes), "warp": warp}).value(_parsed(text)), len(lanes)
    )
    for lane, address in zip(lanes, found.tolist(), strict=True):
        if address < 0 or address % alignment:
            fault = "negative" if address < 0 else f"not a multiple of {alignment}"
            raise UsageError(
                f"address expression '{text}' gives lane {lane} the address {address}, which is {fault}; "
                f"legal: multiples of {alignment} from 0 up"
            )
    return [int(address) for address in found]
