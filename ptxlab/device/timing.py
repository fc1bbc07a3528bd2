"""Times calls on the device. Loaded by the worker alone.

Rules that make the numbers mean something:

* All sides are warmed up, and their samples are interleaved, in an order that turns round each
  time, so that a drift of the clock meets all of them.
* A sample is one replay of a CUDA graph that lasts at least TARGET_MS, so that the resolution
  of the events (about 0.5 us) and the start of a replay (about 3 us) do not count.
* In front of the first event a replay of the same graph is queued, so that the device passes from it to the
  timed one without waiting for the host.
* The warm-up replays the very graphs that are timed: single launches would leave the device idle in between,
  and its clock higher than the work holds it.
* Cold inputs are as many copies as fill the L2 twice, taken in turn by the calls of a graph.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from cuda.core import Device, EventOptions, Stream
from cuda.core.graph import Graph, GraphBuilder

from ptxlab.device.clocks import Clocks, Reading
from ptxlab.device.job import Samples, Timing

TARGET_MS = 4.0
"""A replay lasts at least this long, as far as MAX_CALLS allow: 3.3 us, which is what the start of a
replay took (H200, driver 580, 2026-11-29), are then less than bench.stats.RESOLUTION of it."""

MAX_CALLS = 5000
"""Calls in a graph at most. An empty kernel takes 0.75 us in a graph (same device and date)."""

LEAD_MS = 20.0
"""A replay that lasts longer needs none in front of it: the host's microseconds vanish in it."""

Enqueue = Callable[[Stream | GraphBuilder, int], None]
"""Takes where to put a call, and the how-manieth it is: that says which copies of the buffers it works on."""


@dataclass(frozen=True)
class Call:
    """The calls of a side: how to put one on a stream or into a graph, and which library's it is."""

    enqueue: Enqueue
    baseline: str = ""


@dataclass
class _Side:
    """What is repeated for one side, what goes before it, and what was measured."""

    calls: int
    lead: Callable[[], None]
    body: Callable[[], None]
    baseline: str
    milliseconds: list[float] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)

    def samples(self) -> Samples:
        return Samples(
            self.milliseconds,
            [reading.clock_mhz for reading in self.readings],
            [reading.power_w for reading in self.readings],
            [reading.throttle for reading in self.readings],
            self.calls,
            self.baseline,
        )


class Timer:
    """Measures on one stream of one device; ``clocks`` is None where NVML does not tell."""

    def __init__(self, device: Device, stream: Stream, clocks: Clocks | None) -> None:
        self._stream = stream
        self._clocks = clocks
        options = EventOptions(timing_enabled=True)
        self._start, self._end = device.create_event(options), device.create_event(options)

    def measure(self, timing: Timing, calls: Mapping[str, Call]) -> dict[str, Samples]:
        """Return the samples of each side."""
        if not calls:
            return {}
        for call in calls.values():  # this also loads its code, which no graph does
            call.enqueue(self._stream, 0)
        self._stream.sync()
        sides = {name: self._side(call, timing.copies) for name, call in calls.items()}
        self._warm_up(sides.values(), timing.warmup_ms)
        for index in range(timing.samples):
            for side in list(sides.values())[:: 1 if index % 2 == 0 else -1]:
                side.lead()
                milliseconds = self._elapsed(side.body, side.readings)
                side.milliseconds.append(milliseconds / side.calls)
        return {name: side.samples() for name, side in sides.items()}

    def _warm_up(self, sides: Iterable[_Side], milliseconds: float) -> None:
        """Replay all sides in turn for so long, one replay ahead of the device, so that it never idles."""
        end = time.perf_counter() + milliseconds / 1000
        while time.perf_counter() < end:
            for side in sides:
                side.body()
                self._end.sync()  # the one before
                self._stream.record(self._end)
        self._stream.sync()

    def _side(self, call: Call, copies: int) -> _Side:
        """Capture as many calls as it takes to reach TARGET_MS and to work on every copy."""
        calls = min(copies, MAX_CALLS)
        while True:
            graph = self._capture(call, calls)
            replay = partial(graph.launch, self._stream)
            replay()  # the first one also brings the graph to the device
            milliseconds = self._elapsed(replay)
            if milliseconds >= TARGET_MS or calls == MAX_CALLS:
                lead = replay if milliseconds < LEAD_MS else _nothing
                return _Side(calls, lead, replay, call.baseline)
            wanted = math.ceil(1.5 * calls * TARGET_MS / milliseconds / copies) * copies
            calls = min(MAX_CALLS, max(calls + copies, wanted))

    def _capture(self, call: Call, calls: int) -> Graph:
        builder = self._stream.create_graph_builder().begin_building()
        for turn in range(calls):
            call.enqueue(builder, turn)
        return builder.end_building().complete()

    def _elapsed(self, body: Callable[[], None], readings: list[Reading] | None = None) -> float:
        """Return the milliseconds that the body takes; meanwhile, the clocks are read if wanted."""
        self._stream.record(self._start)
        body()
        self._stream.record(self._end)
        if readings is not None and self._clocks:
            readings.append(self._clocks.read())
        self._end.sync()
        return float(self._end - self._start)


def _nothing() -> None:
    """Lead into a replay that is long enough by itself."""
