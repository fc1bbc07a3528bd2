"""Address expressions: Python's precedence, a closed language, and refusals that name the fault."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxlab.errors import UsageError
from ptxlab.layout.address import evaluate, lane_addresses

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


@pytest.mark.parametrize(
    "text",
    ["1 << 60", "9 << 999999999", "lane * 99999999999999999999", "(" * 400 + "1" + ")" * 400],
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
