"""The operations on layouts by name: what each takes, its steps as one does them by hand, and its proof.

A proof compares the result with the operation's definition, coordinate by coordinate. Definitions: the
CUTLASS documentation, "CuTe Layout Algebra".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ptxlab.errors import UsageError
from ptxlab.isa.shown import Shown
from ptxlab.layout import algebra, tiling
from ptxlab.layout.algebra import Layout, coalesce, joined
from ptxlab.layout.notation import Composed, Operand, parse_operation
from ptxlab.layout.tiling import Tiler

LARGEST_PROOF = 1 << 20
"""Values that a proof goes through."""


class Step(NamedTuple):
    """One line of the work: what is done, and what comes out."""

    what: str
    value: str


class Claim(NamedTuple):
    """One line of a proof: what must hold, whether it does, and over how many values that was tried."""

    what: str
    holds: bool
    tried: int


Steps = Iterator[Step]
Claims = Iterator[Claim]


@dataclass(frozen=True)
class Operation:
    """An operation on layouts.

    Attributes:
        takes: the kinds of its operands, as parse_operation names them.
        run: the operation.
        steps: yields its steps, and raises where ``run`` does.
        proof: yields what must hold of a result, given it and the operands.
        what: the definition in one line.

    """

    takes: tuple[str, ...]
    run: Callable[..., Layout]
    steps: Callable[..., Steps]
    proof: Callable[..., Claims]
    what: str


@dataclass(frozen=True)
class Explanation(Shown):
    """An operation done by hand.

    Attributes:
        name: of the operation; "" where a layout was only evaluated.
        operands: as they are written.
        what: the definition in one line.
        steps: those that could be done.
        result: None where there is none.
        reason: why there is none, or "".
        claims: the proof; empty where there is no result, or one too large to go through.
        layouts: the operands that are layouts, called A and B as in the definition, and the result, R.

    """

    name: str
    operands: tuple[str, ...]
    what: str
    steps: tuple[Step, ...]
    result: Composed | None
    reason: str
    claims: tuple[Claim, ...]
    layouts: tuple[tuple[str, Composed], ...]

    def __repr__(self) -> str:
        done = " ".join([self.name, *self.operands]).strip()
        return "\n".join([done, *(f"  {step.what} -> {step.value}" for step in self.steps), self.told])

    @property
    def told(self) -> str:
        """The result in one sentence."""
        if self.result is None:
            return f"There is no such layout: {self.reason}."
        if not self.name:
            what, value = self.steps[-1]
            return f"{what[0].upper()}{what[1:]} is {value}."
        return f"{self.name} of {' and '.join(self.operands)} is {self.result}."


def explain(source: str) -> Explanation:
    """Return the operation that a text writes, step by step: ``complement 4:2 24``.

    Raises:
        UsageError: the text is malformed; the message names the column.

    """
    name, operands, columns = parse_operation(source, {key: each.takes for key, each in OPERATIONS.items()})
    if not name:
        return _evaluated(operands[0])
    operation = OPERATIONS[name]
    outer = operands[0]
    front = outer if isinstance(outer, Composed) else None
    plain = [front.layout if front else outer, *operands[1:]]
    steps: list[Step] = []
    if front and not front.plain:
        steps.append(Step("what stands in front stays there, whatever its layout becomes", str(front.layout)))
    result, reason, claims = None, "", []
    try:
        steps.extend(operation.steps(*plain))  # keeps those that come before a refusal
        found = operation.run(*plain)
        result = replace(front, layout=found) if front else Composed(found)
        steps.append(Step("result", str(result)))
        claims = _proven(operation, found, plain)
    except algebra.NoSuchLayoutError as error:
        reason = error.message
    except UsageError as error:
        raise UsageError(f"'{source}', column {columns[-1]}: {error.message}") from error
    layouts = [*_named_layouts(operands), *([("R", result)] if result else [])]
    return Explanation(
        *(name, tuple(map(_written, operands)), operation.what, tuple(steps)),
        *(result, reason, tuple(claims), tuple(layouts)),
    )


def _named_layouts(operands: Sequence[Operand]) -> Iterator[tuple[str, Composed]]:
    for name, operand in zip("AB", operands, strict=False):
        if isinstance(operand, Composed):
            yield name, operand
        elif isinstance(operand, Layout):
            yield name, Composed(operand)
        elif isinstance(operand, tuple):
            yield from ((f"{name}, mode {number}", Composed(mode)) for number, mode in enumerate(operand))


def _proven(operation: Operation, found: Layout, operands: Sequence[Any]) -> list[Claim]:
    layouts = [found, *(each for each in operands if isinstance(each, Layout))]
    if max(each.size for each in layouts) > LARGEST_PROOF:
        return []
    return list(operation.proof(found, *operands))


def _written(operand: Operand) -> str:
    return f"<{', '.join(map(str, operand))}>" if isinstance(operand, tuple) else str(operand)


def _evaluated(source: Operand) -> Explanation:
    """Return how a layout takes its last coordinate to an offset, and where a swizzle moves it."""
    if not isinstance(source, Composed):
        raise UsageError(f"{_written(source)} is no layout")
    layout = source.layout
    last = layout.size - 1
    digits = algebra.coordinate_of(last, layout.shape)
    pairs = list(zip(algebra.flatten(digits), algebra.flatten(layout.stride), strict=True))
    steps = [
        Step(f"{last}, taken apart with the first mode fastest", algebra.text(digits)),
        Step(" + ".join(f"{digit}*{step}" for digit, step in pairs), str(layout(last))),
    ]
    if source.offset:
        steps.append(Step(f"{source.offset} is added", str(source.offset + layout(last))))
    steps += _swizzled(source, source.offset + layout(last))
    steps.append(Step(f"the layout at {last}", str(source(last))))
    claims = [] if layout.size > LARGEST_PROOF else list(_unmixed(source))
    return Explanation(
        *("", (str(source),), "a function of coordinates", tuple(steps)),
        *(source, "", tuple(claims), (("R", source),)),
    )


def _unmixed(source: Composed) -> Claims:
    before, after = (len(np.unique(each.offsets())) for each in (source.layout, source))
    yield Claim("offsets that differ in the layout differ in the end", before == after, source.layout.size)


def _swizzled(source: Composed, offset: int) -> Steps:
    if not source.swizzle.bits:
        return
    moved = source.moved
    if source.element_bits:
        yield Step(f"Sw{source.swizzle} of bytes is, of {source.element_bits}-bit elements", f"Sw{moved}")
    low, high = moved.base, moved.base + moved.shift
    mask = (1 << moved.bits) - 1
    yield Step(f"{offset} in binary", f"{offset:b}")
    yield Step(
        f"its bits {high} to {high + moved.bits - 1}, for an XOR into bits {low} to {low + moved.bits - 1}",
        f"{offset >> high & mask:0{moved.bits}b}",
    )
    yield Step("after the XOR, in binary", f"{moved(offset):b}")


def _compose_steps(outer: Layout, inner: Tiler) -> Steps:
    if not isinstance(inner, Layout):
        yield from _mode_steps(_compose_steps, outer, inner)
        return
    simple = coalesce(outer)
    yield Step(f"coalesce {outer}", str(simple))
    modes = simple.flat_modes()
    for size, step in inner.flat_modes():
        yield from _walk_steps(outer, modes, size, step)
    algebra.composition(outer, inner)  # what its modes do together is refused here


def _walk_steps(outer: Layout, modes: list[tuple[int, int]], size: int, step: int) -> Steps:
    """Yield what one mode of the inner layout takes of each mode of the outer."""
    walk = f"{size}:{step}"
    taken = algebra.taken_by(outer, size, step)
    if size == 1 or step == 0:
        yield Step(f"{walk} stays at 0", f"{size}:0")
    for mode, count, apart in taken:
        length, stride = modes[mode]
        if step == 0:
            continue
        if count == 1:
            yield Step(f"{walk}: a step of {apart} goes past {length}:{stride}", f"{apart // length} left")
        else:
            what = f"{walk} walks through {length}:{stride} in steps of {apart}, {count} values"
            yield Step(what, f"{count}:{apart * stride}")


def _complement_steps(layout: Layout, cotarget: int | None = None) -> Steps:
    target = layout.cosize if cotarget is None else cotarget
    yield Step("modes by stride", ", ".join(f"{size}:{step}" for step, size in _by_stride(layout)) or "none")
    filled = 1
    for step, size in _by_stride(layout):
        gap = algebra.gap(layout, step, filled)
        yield Step(f"blocks of {filled} lie {step} apart: {gap} of them fill the gap", f"{gap}:{filled}")
        filled = step * size
    count = -(-target // filled)
    yield Step(f"blocks of {filled} up to {target}: {count} of them", f"{count}:{filled}")


def _by_stride(layout: Layout) -> list[tuple[int, int]]:
    return sorted((step, size) for size, step in layout.flat_modes() if size > 1)


def _divide_steps(layout: Layout, tiler: Tiler) -> Steps:
    if not isinstance(tiler, Layout):
        yield from _mode_steps(_divide_steps, layout, tiler)
        return
    rest = algebra.complement(tiler, layout.size)
    yield Step(f"which tile: the complement of {tiler} in {layout.size}", str(rest))
    both = joined([tiler, rest])
    yield Step("the tiler and its complement", str(both))
    longer = algebra.tiled(layout, tiler)
    if longer.size > layout.size:
        what = f"{layout} ends at {layout.size - 1}, and whole tiles at {both.cosize - 1}: it goes on"
        yield Step(what, str(longer))
    yield from _compose_steps(longer, both)


def _product_steps(block: Layout, tiler: Tiler) -> Steps:
    if not isinstance(tiler, Layout):
        yield from _mode_steps(_product_steps, block, tiler)
        return
    room = block.size * tiler.cosize
    rest = algebra.complement(block, room)
    yield Step(f"where copies may begin: the complement of {block} in {block.size}*{tiler.cosize}", str(rest))
    yield from _compose_steps(rest, tiler)
    yield Step("where they begin", str(algebra.composition(rest, tiler)))


def _ranked_product_steps(block: Layout, tiler: Layout) -> Steps:
    yield from _product_steps(block, tiler)
    yield Step("the logical product", str(algebra.logical_product(block, tiler)))


def _mode_steps(steps: Callable[[Layout, Tiler], Steps], layout: Layout, tiler: tuple[Layout, ...]) -> Steps:
    for number, (mode, of) in enumerate(tiling.by_mode(layout, tiler)):
        yield Step(f"mode {number}", str(mode) if of is None else f"{mode} and {of}")
        if of is not None:
            yield from steps(mode, of)


def _zipped(steps: Callable[..., Steps], run: Callable[[Layout, Tiler], Layout]) -> Callable[..., Steps]:
    """Return the steps and one more: the result whose modes are then put into another order."""

    def more(layout: Layout, tiler: Tiler) -> Steps:
        yield from steps(layout, tiler)
        yield Step("mode by mode", str(run(layout, tiler)))

    return more


def _coalesce_steps(layout: Layout) -> Steps:
    done: list[tuple[int, int]] = []
    for size, step in layout.flat_modes():
        if size == 1:
            yield Step(f"{size}:{step} has one value: left out", _modes(done))
        elif done and done[-1][0] * done[-1][1] == step:
            last, first = done[-1]
            done[-1] = (last * size, first)
            yield Step(
                f"{size}:{step} goes on where {last}:{first} ends: {last}*{first} = {step}", _modes(done)
            )
        else:
            done.append((size, step))
            yield Step(f"{size}:{step} begins a mode", _modes(done))


def _modes(modes: list[tuple[int, int]]) -> str:
    return ", ".join(f"{size}:{step}" for size, step in modes) or "nothing"


def _right_inverse_steps(layout: Layout) -> Steps:
    simple = coalesce(layout)
    yield Step(f"coalesce {layout}", str(simple))
    reached = 1
    for step, size, start in algebra.by_stride(simple):
        if size > 1 and step == reached:
            yield Step(
                f"{reached} is the stride of {size}:{step}, which begins at {start}", f"{size}:{start}"
            )
            reached *= size
    yield Step("no mode goes on from here", str(reached))


def _left_inverse_steps(layout: Layout) -> Steps:
    rest = algebra.complement(layout, layout.cosize)
    yield Step(f"the complement of {layout} in {layout.cosize}", str(rest))
    yield from _right_inverse_steps(joined([layout, rest]))


def _recast_steps(change: Callable[..., Layout]) -> Callable[..., Steps]:
    """Return the steps of an operation that changes each innermost mode by itself."""

    def steps(layout: Layout, *numbers: int) -> Steps:
        changed = change(layout, *numbers)
        for before, after in zip(layout.flat_modes(), changed.flat_modes(), strict=True):
            yield Step("{}:{} becomes".format(*before), "{}:{}".format(*after))

    return steps


def _same_function(result: Layout, layout: Layout) -> Claims:
    same = np.array_equal(result.offsets(), layout.offsets())
    yield Claim("R(i) = A(i) for every i", same, layout.size)


def _composed(result: Layout, outer: Layout, inner: Tiler) -> Claims:
    wanted = _at(outer, inner)
    yield Claim("R(c) = A(B(c)) for every c", np.array_equal(result.offsets(), wanted), result.size)


def _at(layout: Layout, tiler: Tiler) -> Any:
    """Return the offsets of a layout at the coordinates that a tiler yields."""
    if isinstance(tiler, Layout):
        return layout.offsets()[tiler.offsets()]
    found = np.zeros(1, dtype=np.int64)
    for mode, of in tiling.by_mode(layout, tiler):
        offsets = mode.offsets() if of is None else mode.offsets()[of.offsets()]
        found = np.add.outer(offsets, found).reshape(-1)
    return found


def _complements(result: Layout, layout: Layout, cotarget: int | None = None) -> Claims:
    target = layout.cosize if cotarget is None else cotarget
    both = joined([layout, result])
    offsets = result.offsets()
    yield Claim("R is ordered", bool(np.all(np.diff(offsets) > 0)), result.size)
    if both.size <= LARGEST_PROOF:
        yield Claim("no offset of (A, R) occurs twice", both.injective, both.size)
    yield Claim(f"(A, R) reaches {target}", both.cosize >= target, 1)


def _divided(result: Layout, layout: Layout, tiler: Tiler) -> Claims:
    longer = _lengthened(layout, tiler)
    same = np.array_equal(np.sort(result.offsets()), np.sort(longer.offsets()))
    beyond = "" if longer.size == layout.size else f", and {longer.size - layout.size} past A's end"
    yield Claim(f"the tiles together have A's offsets, each as often{beyond}", same, longer.size)
    tile = tiling.zipped_divide(layout, tiler).modes[0]
    within = np.array_equal(tile.offsets(), _at(_tiled_part(layout, tiler), tiler))
    yield Claim("the first tile is A(B(c)) for every c", within, tile.size)


def _lengthened(layout: Layout, tiler: Tiler) -> Layout:
    """Return the layout, or each mode of it, as far as whole tiles reach."""
    if isinstance(tiler, Layout):
        return algebra.tiled(layout, tiler)
    return joined(
        [mode if of is None else algebra.tiled(mode, of) for mode, of in tiling.by_mode(layout, tiler)]
    )


def _tiled_part(layout: Layout, tiler: Tiler) -> Layout:
    """Return the modes that have a tiler."""
    return layout if isinstance(tiler, Layout) else joined(layout.modes[: len(tiler)])


def _multiplied(result: Layout, block: Layout, tiler: Tiler) -> Claims:
    zipped = tiling.zipped_product(block, tiler)
    first = zipped.modes[0]
    yield Claim("the first block is A", _is_part(first, block, tiler), first.size)
    if isinstance(tiler, Layout):
        yield _apart("no two blocks that begin apart overlap", block, tiler)
    else:
        for number, (mode, of) in enumerate(tiling.by_mode(block, tiler)):
            if of is not None:
                yield _apart(f"in mode {number} no two blocks that begin apart overlap", mode, of)
    same = np.array_equal(np.sort(result.offsets()), np.sort(zipped.offsets()))
    yield Claim("R has the offsets of (A, A* o B)", same, result.size)


def _apart(what: str, block: Layout, tiler: Layout) -> Claim:
    both = algebra.logical_product(block, tiler)
    within, starts, all_of_them = (len(np.unique(each.offsets())) for each in (*both.modes, both))
    return Claim(what, all_of_them == within * starts, both.size)


def _is_part(tile: Layout, block: Layout, tiler: Tiler) -> bool:
    return np.array_equal(tile.offsets(), _tiled_part(block, tiler).offsets())


def _inverse_on_the_right(result: Layout, layout: Layout) -> Claims:
    yield Claim("A(R(i)) = i for every i", _undoes(layout, result), result.size)


def _inverse_on_the_left(result: Layout, layout: Layout) -> Claims:
    yield Claim("R(A(i)) = i for every i", _undoes(result, layout), layout.size)


def _undoes(outer: Layout, inner: Layout) -> bool:
    """Whether outer(inner(i)) = i for every i; not so where the inner layout leads out of the outer."""
    if inner.cosize > outer.size:
        return False
    return np.array_equal(outer.offsets()[inner.offsets()], np.arange(inner.size))


def _same_memory(result: Layout, layout: Layout, from_bits: int, to_bits: int) -> Claims:
    """Compare which elements of the wider width are touched."""
    wide = max(from_bits, to_bits)
    ours, theirs = (
        np.unique(each.offsets() // (wide // bits)) for each, bits in ((result, to_bits), (layout, from_bits))
    )
    what = f"R and A lie in the same elements of {wide} bits"
    yield Claim(what, np.array_equal(ours, theirs), max(result.size, layout.size))


def _complement(layout: Layout, cotarget: int | None = None) -> Layout:
    return algebra.complement(layout, layout.cosize if cotarget is None else cotarget)


_PAIR = ("layout", "tiler")
_COUNT = ("layout", "number")
_OF = ("any", "tiler")

OPERATIONS: dict[str, Operation] = {
    "coalesce": Operation(
        ("any",),
        coalesce,
        _coalesce_steps,
        _same_function,
        "R is the same function of a number, with the fewest modes",
    ),
    "composition": Operation(_OF, tiling.composition, _compose_steps, _composed, "R(c) = A(B(c))"),
    "complement": Operation(
        ("layout", "number?"),
        _complement,
        _complement_steps,
        _complements,
        "R fills the gaps of A: ordered, and disjoint from it",
    ),
    "logical_divide": Operation(
        _OF, tiling.logical_divide, _divide_steps, _divided, "R = A o (B, complement of B)"
    ),
    "logical_product": Operation(
        _PAIR, tiling.logical_product, _product_steps, _multiplied, "R = (A, complement of A o B)"
    ),
    "right_inverse": Operation(
        ("layout",), algebra.right_inverse, _right_inverse_steps, _inverse_on_the_right, "A(R(i)) = i"
    ),
    "left_inverse": Operation(
        ("layout",), algebra.left_inverse, _left_inverse_steps, _inverse_on_the_left, "R(A(i)) = i"
    ),
    "upcast": Operation(
        _COUNT,
        tiling.upcast,
        _recast_steps(tiling.upcast),
        lambda result, layout, count: _same_memory(result, layout, 1, count),
        "R's elements are so many of A's",
    ),
    "downcast": Operation(
        _COUNT,
        tiling.downcast,
        _recast_steps(tiling.downcast),
        lambda result, layout, count: _same_memory(result, layout, count, 1),
        "so many of R's elements are one of A's",
    ),
    "recast": Operation(
        ("layout", "number", "number"),
        tiling.recast,
        _recast_steps(tiling.recast),
        _same_memory,
        "the same memory in elements of another width",
    ),
}
_REGROUPED_DIVIDES: dict[str, Callable[[Layout, Tiler], Layout]] = {
    "zipped_divide": tiling.zipped_divide,
    "tiled_divide": tiling.tiled_divide,
    "flat_divide": tiling.flat_divide,
}
_REGROUPED_PRODUCTS: dict[str, Callable[[Layout, Tiler], Layout]] = {
    "zipped_product": tiling.zipped_product,
    "tiled_product": tiling.tiled_product,
}
_RANKED_PRODUCTS: dict[str, Callable[[Layout, Layout], Layout]] = {
    "blocked_product": tiling.blocked_product,
    "raked_product": tiling.raked_product,
}
for _name, _divide in _REGROUPED_DIVIDES.items():
    OPERATIONS[_name] = Operation(
        _OF, _divide, _zipped(_divide_steps, tiling.logical_divide), _divided, "the logical divide, regrouped"
    )
for _name, _product in _REGROUPED_PRODUCTS.items():
    OPERATIONS[_name] = Operation(
        _PAIR,
        _product,
        _zipped(_product_steps, tiling.logical_product),
        _multiplied,
        "the logical product, regrouped",
    )
for _name, _ranked in _RANKED_PRODUCTS.items():
    OPERATIONS[_name] = Operation(
        ("layout", "layout"),
        _ranked,
        _ranked_product_steps,
        _multiplied,
        "the logical product, its modes paired",
    )
