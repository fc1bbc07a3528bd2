"""Jobs that run while others are awaited: each answer is its job's own, a failure included."""

from __future__ import annotations

from threading import Barrier

import pytest

from ptxlab.errors import MissingError
from ptxlab.experiments import ahead


def test_answers_come_in_the_order_of_their_jobs() -> None:
    """However many threads work on them."""
    answers = ahead.start([lambda number=number: number**2 for number in range(20)])
    assert [answer.result(timeout=10) for answer in answers] == [number**2 for number in range(20)]


def test_two_jobs_are_at_work_at_once() -> None:
    """Each waits for the other."""
    both = Barrier(2)
    answers = ahead.start([lambda: both.wait(timeout=10) for _ in range(2)])
    assert {answer.result(timeout=10) for answer in answers} == {0, 1}


def test_a_failure_is_met_by_whoever_asks_for_the_answer() -> None:
    """It keeps no other job from its answer."""

    def missing() -> str:
        raise MissingError("no compiler")

    first, second = ahead.start([missing, lambda: "built"], threads=1)
    with pytest.raises(MissingError, match="no compiler"):
        first.result(timeout=10)
    assert second.result(timeout=10) == "built"


def test_there_may_be_nothing_to_do() -> None:
    """No job, no answer."""
    assert ahead.start([]) == []
