"""When a dependent kernel runs, and what it sees."""

from __future__ import annotations

import pytest

from ptxlab.isa.griddepcontrol import LAUNCHES, is_ordered, overlaps


def test_it_runs_early_when_all_blocks_allow_it() -> None:
    """Before they wait for it; one block that does not call is enough to hold it back."""
    assert overlaps("early", 4, 4, programmatic=True)
    assert not overlaps("early", 4, 3, programmatic=True)


@pytest.mark.parametrize("launch", LAUNCHES)
def test_without_the_attribute_of_the_launch_it_never_does(launch: str) -> None:
    """The instructions alone do nothing."""
    assert not overlaps(launch, 1, 1, programmatic=False)


@pytest.mark.parametrize("launch", ["late", "never"])
def test_a_call_after_the_wait_comes_too_late(launch: str) -> None:
    """The kernel ahead waits in vain."""
    assert not overlaps(launch, 1, 1, programmatic=True)


@pytest.mark.parametrize(
    ("wait", "programmatic", "ordered"),
    [(True, True, True), (False, True, False), (False, False, True), (True, False, True)],
)
def test_only_the_wait_orders_memory(*, wait: bool, programmatic: bool, ordered: bool) -> None:
    """Unless the second was launched in the ordinary way, after the end of the first."""
    assert is_ordered(wait=wait, programmatic=programmatic) == ordered
