"""Times calls on the device. Loaded by the worker alone.

Rules that make the numbers mean something:

* All sides are warmed up, and their samples are interleaved, so that a drift of the clock meets all of them,
  in an order that changes each time, so that none has the same one before it always (turns.py).
* A sample is one replay of a CUDA graph that lasts at least TARGET_MS, so that the resolution
  of the events (about 0.5 us) and the start of a replay (about 3 us) do not count.
* In front of the first event a replay of the same graph is queued, so that the device passes from it to the
  timed one without waiting for the host; it is queued before the host reads the sample before, so that the
  device has work throughout and its clock stays where the work holds it.
* The warm-up replays the very graphs that are timed: single launches would leave the device idle in between,
  and its clock higher than the work holds it.
* In front of the first event and behind the second one a kernel of some microseconds reads the SMs' clock.
* Cold inputs are as many copies as fill the L2 twice, taken in turn by the calls of a graph.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest

import numpy as np
from cuda.core import Device, EventOptions, Stream
from cuda.core.graph import Graph, GraphBuilder

from ptxlab.device.clocks import Clocks, Reading
from ptxlab.device.job import Progress, Report, Samples, Timing
from ptxlab.device.sm_clock import SmClock
from ptxlab.device.turns import turns

TARGET_MS = 4.0
"""A replay lasts at least this long, as far as MAX_CALLS allow: 3.3 us, which is what the start of a
replay took (H200, driver 580, 2026-11-29), are then less than bench.stats.RESOLUTION of it."""

MAX_CALLS = 5000
"""Calls in a graph at most. An empty kernel takes 0.75 us in a graph (same device and date)."""

LEAD_MS = 20.0
"""A replay that lasts longer needs none in front of it: the host's microseconds vanish in it."""

CHOICE_WARMUP_MS, CHOICE_SAMPLES = 300.0, 5
"""Of the ways to do the same from which the fastest is taken: it is then timed with the other sides."""

Enqueue = Callable[[Stream | GraphBuilder, int], None]
"""Takes where to put a call, and the how-manieth it is: that says which copies of the buffers it works on."""


@dataclass(frozen=True)
class Call:
    """The calls of a side.

    Attributes:
        enqueue: puts one on a stream or into a graph.
        baseline: which library's it is, or "".
        copies: of the buffers that it works on, which it takes in turn.

    """

    enqueue: Enqueue
    baseline: str = ""
    copies: int = 1


@dataclass
class _Side:
    """What is repeated for one side, what goes before it, and what was measured."""

    calls: int
    lead: Callable[[], None]
    body: Callable[[], None]
    baseline: str
    milliseconds: list[float] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    sm_mhz: list[float] = field(default_factory=list)

    def samples(self) -> Samples:
        return Samples(
            self.milliseconds,
            [reading.clock_mhz for reading in self.readings],
            [reading.power_w for reading in self.readings],
            [reading.throttle for reading in self.readings],
            self.calls,
            self.baseline,
            sm_mhz=self.sm_mhz,
        )


class Timer:
    """Measures on one stream of one device.

    ``clocks`` is None where NVML does not tell, ``sm_clock`` where no kernel can read the SMs' own clock.
    """

    def __init__(
        self, device: Device, stream: Stream, clocks: Clocks | None, sm_clock: SmClock | None = None
    ) -> None:
        self._stream = stream
        self._clocks = clocks
        self._sm_clock = sm_clock
        options = EventOptions(timing_enabled=True)
        self._start, self._end = device.create_event(options), device.create_event(options)

    def measure(self, timing: Timing, calls: Mapping[str, Call], report: Report) -> dict[str, Samples]:
        """Return the samples of each side; how far it is, and the medians so far, are reported."""
        if not calls:
            return {}
        report(Progress("capturing", 0, timing.samples))
        sides = {name: self._side(call) for name, call in calls.items()}
        report(Progress("warming up", 0, timing.samples))
        self._warm_up(sides.values(), timing.warmup_ms)

        def tell(done: int) -> None:
            medians = {name: float(np.median(side.milliseconds)) for name, side in sides.items()}
            report(Progress("sampling", done, timing.samples, medians))

        self._sample(list(sides.values()), timing.samples, tell)
        return {name: side.samples() for name, side in sides.items()}

    def fastest(self, calls: Sequence[Call]) -> Call:
        """Return the fastest of several ways to do the same, timed in turn in the same kind of graphs."""
        if len(calls) == 1:
            return calls[0]
        sides = [self._side(call) for call in calls]
        self._warm_up(sides, CHOICE_WARMUP_MS)
        self._sample(sides, CHOICE_SAMPLES, lambda _: None)
        best = min(range(len(calls)), key=lambda i: float(np.median(sides[i].milliseconds)))
        return replace(calls[best], baseline=f"{calls[best].baseline}, {best + 1} of {len(calls)} algorithms")

    def _sample(self, sides: Sequence[_Side], rounds: int, tell: Callable[[int], None]) -> None:
        """Take samples of all sides in turn; what leads into the next one keeps the device busy meanwhile."""
        queue = [sides[number] for order in turns(len(sides), rounds) for number in order]
        if self._sm_clock:
            self._sm_clock.start(len(queue))
        queue[0].lead()
        for index, (side, following) in enumerate(zip_longest(queue, queue[1:]), 1):
            self._read_sm_clock()
            self._stream.record(self._start)
            side.body()
            self._stream.record(self._end)
            self._read_sm_clock()
            if following:
                following.lead()
            if self._clocks:
                side.readings.append(self._clocks.read())
            self._end.sync()
            side.milliseconds.append(float(self._end - self._start) / side.calls)
            if index % len(sides) == 0:
                tell(index // len(sides))
        if self._sm_clock:
            for side, mhz in zip(queue, self._sm_clock.mhz(), strict=True):
                side.sm_mhz.append(mhz)

    def _read_sm_clock(self) -> None:
        if self._sm_clock:
            self._sm_clock.read()

    def _warm_up(self, sides: Iterable[_Side], milliseconds: float) -> None:
        """Replay all sides in turn for so long, one replay ahead of the device, so that it never idles."""
        end = time.perf_counter() + milliseconds / 1000
        while time.perf_counter() < end:
            for side in sides:
                side.body()
                self._end.sync()  # the one before
                self._stream.record(self._end)
        self._stream.sync()

    def _side(self, call: Call) -> _Side:
        """Capture as many calls as it takes to reach TARGET_MS and to work on every copy."""
        call.enqueue(self._stream, 0)  # this also loads its code, which no graph does
        self._stream.sync()
        copies = call.copies
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

    def _elapsed(self, body: Callable[[], None]) -> float:
        """Return the milliseconds that the body takes."""
        self._stream.record(self._start)
        body()
        self._stream.record(self._end)
        self._end.sync()
        return float(self._end - self._start)


def _nothing() -> None:
    """Lead into a replay that is long enough by itself."""
