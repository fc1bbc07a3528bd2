"""Jobs that run while others are awaited: each answer is its job's own, a failure included."""

from __future__ import annotations

import time
from concurrent.futures import Future
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


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit, MissingError("no compiler"), None])
def test_what_waits_for_a_thread_at_the_end_is_not_begun(ending: BaseException | None) -> None:
    """Nobody who presses Ctrl-C waits for it; the job that runs comes to its end."""
    waiting: list[Future[bool]] = []

    def ends_when_the_others_are_given_up() -> bool:
        limit = time.monotonic() + 10
        while not (waiting and waiting[-1].cancelled()) and time.monotonic() < limit:
            time.sleep(0.001)
        return True

    def use() -> Future[bool]:
        with ahead.pool(1) as pool:
            running = pool.submit(ends_when_the_others_are_given_up)
            waiting.extend(pool.submit(bool) for _ in range(5))
            if ending:
                raise ending
        return running

    if ending:
        with pytest.raises(type(ending) if isinstance(ending, Exception) else ending):
            use()
    else:
        assert use().result(timeout=0)
    assert all(each.cancelled() for each in waiting)


def test_a_pool_has_a_thread_for_each_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless another number is asked for: all of them wait for each other."""
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    for threads, count in ((None, 3), (2, 2)):
        all_of_them = Barrier(count)
        with ahead.pool(threads) as pool:
            places = [pool.submit(all_of_them.wait, timeout=10) for _ in range(count)]
            assert {place.result() for place in places} == set(range(count))


def test_there_may_be_nothing_to_do() -> None:
    """No job, no answer."""
    assert ahead.start([]) == []
