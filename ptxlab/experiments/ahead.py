"""Jobs that threads work off while others are awaited: compilers are processes of their own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

Answer = TypeVar("Answer")


@contextlib.contextmanager
def pool(threads: int | None = None) -> Iterator[ThreadPoolExecutor]:
    """Give a pool of threads, by default one for each processor.

    What no thread has begun at the end is not begun any more: nobody who presses Ctrl-C waits for it.
    """
    executor = ThreadPoolExecutor(threads or os.cpu_count())
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)


def start(jobs: Sequence[Callable[[], Answer]], threads: int = 2) -> list[Future[Answer]]:
    """Return what will be the answers of jobs, begun in this order.

    The threads end with the program, so that nobody who presses Ctrl-C waits for a compiler.
    """
    waiting = SimpleQueue[tuple[Callable[[], Answer], Future[Answer]]]()
    answers = [Future[Answer]() for _ in jobs]
    for each in zip(jobs, answers, strict=True):
        waiting.put(each)

    def work() -> None:
        while True:
            try:
                job, answer = waiting.get_nowait()
            except Empty:
                return
            try:
                answer.set_result(job())
            except BaseException as error:  # noqa: BLE001 - whoever asks for the answer gets it
                answer.set_exception(error)

    for _ in range(min(threads, len(jobs))):
        Thread(target=work, daemon=True).start()
    return answers
