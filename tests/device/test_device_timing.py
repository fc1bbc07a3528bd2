"""The timer on a stand-in for the stream: what it queues, in which order, and which way it takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from ptxlab.device.clocks import Reading
from ptxlab.device.job import Progress, Timing

timing = pytest.importorskip("ptxlab.device.timing", reason="cuda-python is not here", exc_type=ImportError)


@dataclass
class Event:
    """A moment on the stream."""

    stream: Stream
    at: float = 0.0

    def sync(self) -> None:
        """Wait for it."""
        self.stream.log.append("sync")

    def __sub__(self, other: Event) -> float:
        return self.at - other.at


@dataclass
class Stream:
    """Takes graphs, each as long as its calls together."""

    now: float = 0.0
    log: list[str] = field(default_factory=list)

    def create_event(self, _: Any) -> Event:
        """Return an event (a stream is its own device)."""
        return Event(self)

    def record(self, event: Event) -> None:
        """Mark the moment."""
        event.at = self.now
        self.log.append("mark")

    def sync(self) -> None:
        """Wait for all."""

    def create_graph_builder(self) -> Stream:
        """Return a builder, which is this stream."""
        self.captured: list[tuple[str, float]] = []
        return self

    def begin_building(self) -> Stream:
        """Begin."""
        return self

    def end_building(self) -> Stream:
        """End."""
        return self

    def complete(self) -> Graph:
        """Return the graph."""
        return Graph(list(self.captured))


@dataclass
class Graph:
    """Calls, each with its name and its milliseconds."""

    calls: list[tuple[str, float]]

    def launch(self, stream: Stream) -> None:
        """Replay it."""
        stream.now += sum(length for _, length in self.calls)
        stream.log.append(self.calls[0][0])


class Nvml:
    """Reads the same clock each time."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def read(self) -> Reading:
        """Return it, and note that it was asked for."""
        self.stream.log.append("read")
        return Reading(1700, 600.0, "sw_power_cap")


class SmClock:
    """Notes each reading; the clock of each sample is 1500 MHz and one more for each before it."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def start(self, samples: int) -> None:
        """Begin with so many samples."""
        self.samples = samples

    def read(self) -> None:
        """Note it."""
        self.stream.log.append("clock")

    def mhz(self) -> list[float]:
        """Return the clocks."""
        return [1500.0 + i for i in range(self.samples)]


def call(stream: Stream, name: str, length: float, copies: int = 1) -> Any:
    """Return a call that takes so many milliseconds."""

    def enqueue(_: Any, turn: int) -> None:
        if hasattr(stream, "captured"):
            stream.captured.append((f"{name}{turn % copies}", length))

    return timing.Call(enqueue, name, copies)


def measured(samples: int, **sides: float) -> tuple[Stream, Any, list[Progress]]:
    """Time sides of these lengths without a warm-up."""
    stream, told = Stream(), []
    timer = timing.Timer(stream, stream, Nvml(stream))
    asked = Timing("t", (), samples=samples, warmup_ms=0)
    found = timer.measure(asked, {name: call(stream, name, ms) for name, ms in sides.items()}, told.append)
    return stream, found, told


def test_samples_are_the_time_of_one_call() -> None:
    """With clock, power and what held the clock down beside each."""
    _, found, _ = measured(3, a=0.5, b=8.0)
    assert found["a"].milliseconds == pytest.approx([0.5] * 3)
    assert found["b"].milliseconds == pytest.approx([8.0] * 3)
    assert found["a"].calls_per_sample >= timing.TARGET_MS / 0.5
    assert found["b"].calls_per_sample == 1
    assert (found["a"].clock_mhz, found["a"].throttle) == ([1700] * 3, ["sw_power_cap"] * 3)


def test_sides_take_turns_and_the_device_never_waits_for_the_host() -> None:
    """There and back; before the host reads or waits, what leads into the next sample is queued."""
    stream, _, _ = measured(2, a=5.0, b=5.0)
    turns = "".join(each.removesuffix("0") for each in stream.log if each != "sync")
    assert turns.endswith("amarkamarkbreadmarkbmarkbreadmarkbmarkareadmarkamarkread")


def test_the_clock_of_the_sms_is_read_around_each_sample() -> None:
    """Outside of its two events; each side gets those of its own turns."""
    stream = Stream()
    timer = timing.Timer(stream, stream, None, SmClock(stream))
    asked = Timing("t", (), samples=2, warmup_ms=0)
    found = timer.measure(asked, {name: call(stream, name, 5.0) for name in "ab"}, lambda _: None)
    turns = " ".join(each for each in stream.log if each != "sync")
    assert turns.endswith("clock mark b0 mark clock b0 clock mark b0 mark clock a0 clock mark a0 mark clock")
    assert found["a"].sm_mhz == [1500.0, 1503.0]
    assert found["b"].sm_mhz == [1501.0, 1502.0]


def test_progress_tells_the_medians_so_far() -> None:
    """After each round of samples."""
    _, _, told = measured(2, a=5.0, b=8.0)
    assert [(each.doing, each.done, each.total) for each in told] == [
        *(("capturing", 0, 2), ("warming up", 0, 2)),
        *(("sampling", 1, 2), ("sampling", 2, 2)),
    ]
    assert told[-1].milliseconds == pytest.approx({"a": 5.0, "b": 8.0})


def test_a_graph_takes_every_copy_as_often() -> None:
    """So many calls that the copies come round, whatever one takes."""
    stream = Stream()
    timer = timing.Timer(stream, stream, None)
    asked = Timing("t", (), samples=1, warmup_ms=0, copies=7)
    found = timer.measure(asked, {"a": call(stream, "a", 1.0, copies=7)}, lambda _: None)
    assert found["a"].calls_per_sample % 7 == 0
    assert found["a"].clock_mhz == []


def test_the_fastest_of_several_ways_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """And says which of how many it is; one alone is not timed before."""
    monkeypatch.setattr(timing, "CHOICE_WARMUP_MS", 0)
    stream = Stream()
    timer = timing.Timer(stream, stream, None)
    ways = [call(stream, "library", length) for length in (6.0, 4.5, 5.0)]
    best = timer.fastest(ways)
    assert best.enqueue is ways[1].enqueue
    assert best.baseline == "library, 2 of 3 algorithms"
    stream.log.clear()
    assert timer.fastest(ways[:1]) is ways[0]
    assert stream.log == []
