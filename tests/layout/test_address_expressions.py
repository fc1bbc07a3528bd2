"""Address expressions: Python's precedence, a closed language, and refusals that name the fault."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxlab.errors import UsageError
from ptxlab.layout.address import coordinates, evaluate, lane_addresses

OPERATORS = ("+", "-", "*", "//", "%", "&", "|", "^")


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """Expressions of the language, without parentheses so that precedence decides."""
    atoms = st.sampled_from(("lane", "warp", "3", "16", "~lane", "-2", "(lane < 4)"))
    text = draw(atoms)
    for operator in draw(st.lists(st.sampled_from(OPERATORS), max_size=5)):
        text += f" {operator} {draw(atoms)}"
    return text


@given(expressions(), st.integers(0, 31), st.integers(0, 3))
def test_means_what_python_means(text: str, lane: int, warp: int) -> None:
    """The value is Python's own, for every legal expression."""
    try:
        meant = eval(text, {}, {"lane": lane, "warp": warp})  # noqa: S307 - generated above
    except ZeroDivisionError:
        with pytest.raises(UsageError, match="division by zero"):
            evaluate(text, {"lane": lane, "warp": warp})
    else:
        assert evaluate(text, {"lane": lane, "warp": warp}) == meant


@pytest.mark.parametrize(
    "text",
    ["lane / 2", "__import__('os')", "lane.real", "lane[0]", "lambda: 1", "1 if lane else 2", "True", "2.5",
     "other", "", "lane +", "2 ** 9", "lane and 1", "[lane]", "f'{lane}'", "lane in (1, 2)", "x := 3", "'a'"],
)  # fmt: skip
def test_everything_else_is_refused(text: str) -> None:
    """The refusal holds the text and the language."""
    with pytest.raises(UsageError) as caught:
        evaluate(text, {"lane": 1, "warp": 0})
    assert "legal: integers, lane, warp" in caught.value.message


@given(expressions(), expressions())
def test_all_lanes_at_once_are_the_same_as_one_by_one(row: str, column: str) -> None:
    """Arrays of lanes and warps give what each lane gives on its own."""
    warp, lane = np.divmod(np.arange(64), 32)
    apart = [{"lane": int(at), "warp": int(of)} for of, at in zip(warp, lane, strict=True)]
    try:
        meant = [(evaluate(row, names), evaluate(column, names)) for names in apart]
    except UsageError:
        with pytest.raises(UsageError):
            coordinates(f"({row}, {column})", {"lane": lane, "warp": warp})
    else:
        found = coordinates(f"({row}, {column})", {"lane": lane, "warp": warp})
        assert list(zip(*(each.tolist() for each in found), strict=True)) == meant


@pytest.mark.parametrize("value", [0, 1, -1, 5, -(1 << 20), 1 << 48])
@pytest.mark.parametrize("by", [0, 1, 28, 48, 63, 64])
def test_shifts_are_pythons(value: int, by: int) -> None:
    """Far ones too, as long as the value stays below 2**48."""
    assert evaluate("lane >> warp", {"lane": value, "warp": by}) == value >> by
    if abs(value << by) > 1 << 48:
        with pytest.raises(UsageError, match="grows past"):
            evaluate("lane << warp", {"lane": value, "warp": by})
    else:
        assert evaluate("lane << warp", {"lane": value, "warp": by}) == value << by


@pytest.mark.parametrize(
    ("text", "column"),
    [("lane*", 6), ("lane * ", 7), ("  lane*", 8), ("", 1), ("(lane", 1), ("lane 4", 6), ("lane$4", 5),
     ("lane*\nfoo", 7), ("(lane +\n foo)", 10), ("lane + 4 / 2", 8)],
)  # fmt: skip
def test_the_column_is_where_it_goes_wrong(text: str, column: int) -> None:
    """Behind the last character where something is missing, and counted through line breaks."""
    with pytest.raises(UsageError, match=f"column {column}: "):
        evaluate(text, {"lane": 1, "warp": 0})


@pytest.mark.parametrize(
    "text",
    [
        "1 << 60",
        "9 << 999999999",
        "lane * 99999999999999999999",
        "(lane << 40) * (lane << 40)",
        "(lane << 47) * (lane << 17)",
        "3 << lane + 63",
        "(" * 400 + "1" + ")" * 400,
    ],
)
def test_nothing_grows_without_end(text: str) -> None:
    """Values, shifts and nesting are bounded, so that no expression takes time or memory."""
    with pytest.raises(UsageError):
        evaluate(text, {"lane": 1, "warp": 0})


def test_lanes_are_named() -> None:
    """A negative or misaligned address names its lane."""
    assert lane_addresses("lane * 16", alignment=16) == list(range(0, 512, 16))
    with pytest.raises(UsageError, match="gives lane 1 the address 8, which is not a multiple of 16"):
        lane_addresses("lane * 8", alignment=16)
    with pytest.raises(UsageError, match="gives lane 0 the address -16, which is negative"):
        lane_addresses("lane * 16 - 16", alignment=16)
    with pytest.raises(UsageError, match="gives lane 7 the address -96, which is negative"):
        lane_addresses("(lane == 7) * -96", alignment=16, lanes=[3, 7])


def test_other_lanes_are_not_asked() -> None:
    """Their address may be negative, misaligned, or divided by zero."""
    assert lane_addresses("64 // (lane - 3) * 16 - 16", alignment=16, lanes=[5, 4]) == [496, 1008]
