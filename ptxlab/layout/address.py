"""Address expressions: ``lane % 8 * 64 + lane // 8 * 16`` as a byte address for each lane.

The text is parsed into a small whitelisted tree with Python's own precedence and floor division, and that
tree is walked; nothing is ever evaluated as Python.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from ptxlab.errors import UsageError

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Callable[[int], int]] = {
    ast.UAdd: operator.pos, ast.USub: operator.neg, ast.Invert: operator.invert,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_ALIASES = {"l": "lane", "w": "warp"}
_LEGAL = "integers, lane, warp, + - * // % << >> & | ^ ~, comparisons and parentheses"
_LONGEST = 500  # characters; also bounds the depth of the tree
_LARGEST = 1 << 48  # no address is larger, and no shift or product can grow without end


def evaluate(text: str, names: Mapping[str, int]) -> int:
    """Return the value of an expression over these names.

    Raises:
        UsageError: something in it is not in the language, is divided by zero, or grows past 2**48.

    """
    return _Walk(text, names).value(_parsed(text))


def coordinates(text: str, names: Mapping[str, int]) -> tuple[int, int]:
    """Return the row and the column that ``(row, column)`` gives, each an expression over these names.

    Raises:
        UsageError: as ``evaluate`` does, or it is no pair.

    """
    walk = _Walk(text, names)
    match _parsed(text):
        case ast.Tuple(elts=[row, col]):
            return walk.value(row), walk.value(col)
        case other:
            raise walk.refuse("a pair (row, column) is expected", other)


def _parsed(text: str) -> ast.expr:
    """Return the tree of an expression."""
    if len(text) > _LONGEST:
        raise UsageError(f"an address expression has {len(text)} characters; legal: at most {_LONGEST}")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise _refused(text, (error.offset or 1) + _leading(text), error.msg) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise _refused(text, 1, str(error)) from error


def _refused(text: str, column: int, reason: str) -> UsageError:
    return UsageError(f"address expression '{text}', column {column}: {reason}; legal: {_LEGAL}")


def _leading(text: str) -> int:
    """Return how many blanks stand before an expression."""
    return len(text) - len(text.lstrip())


class _Walk:
    """Walks one parsed expression."""

    def __init__(self, text: str, names: Mapping[str, int]) -> None:
        self.text = text
        self.names = dict(names) | {short: names[name] for short, name in _ALIASES.items() if name in names}

    def value(self, node: ast.expr) -> int:
        result = self._value(node)
        if abs(result) > _LARGEST:
            raise self.refuse("a value grows past 2**48", node)
        return result

    def _value(self, node: ast.expr) -> int:
        match node:
            case ast.Constant(value=bool()):
                raise self._unknown(node)
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return self._binary(node, type(op), self.value(left), self.value(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                return _UNARY[type(op)](self.value(operand))
            case ast.Compare():
                return self._compare(node)
        raise self._unknown(node)

    def _binary(self, node: ast.expr, op: type[ast.operator], left: int, right: int) -> int:
        if op in (ast.FloorDiv, ast.Mod) and right == 0:
            raise self.refuse("division by zero", node)
        if op in (ast.LShift, ast.RShift) and not 0 <= right <= 64:
            raise self.refuse(f"a shift by {right}; legal: 0 to 64", node)
        return _BINARY[op](left, right)

    def _compare(self, node: ast.Compare) -> int:
        values = [self.value(each) for each in (node.left, *node.comparators)]
        if not all(type(op) in _COMPARE for op in node.ops):
            raise self._unknown(node)
        pairs = zip(node.ops, values, values[1:], strict=False)
        return int(all(_COMPARE[type(op)](left, right) for op, left, right in pairs))

    def _unknown(self, node: ast.expr) -> UsageError:
        return self.refuse(f"'{ast.unparse(node)}' is not in the language", node)

    def refuse(self, reason: str, node: ast.expr) -> UsageError:
        column = 1 + node.col_offset + _leading(self.text)
        return _refused(self.text, column, reason)


def lane_addresses(text: str, *, alignment: int, warp: int = 0) -> list[int]:
    """Return the byte address that an expression gives for each of the 32 lanes.

    Raises:
        UsageError: the expression is illegal, or an address is negative or misaligned (the lane is named).

    """
    found = [evaluate(text, {"lane": lane, "warp": warp}) for lane in range(32)]
    for lane, address in enumerate(found):
        if address < 0 or address % alignment:
            fault = "negative" if address < 0 else f"not a multiple of {alignment}"
            raise UsageError(
                f"address expression '{text}' gives lane {lane} the address {address}, which is {fault}; "
                f"legal: multiples of {alignment} from 0 up"
            )
    return found
