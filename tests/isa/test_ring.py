"""The ring: a sound one works at every speed, and each fault shows as what it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ptxlab.isa import ring as rings
from ptxlab.isa.mbarrier import fields
from ptxlab.isa.ring import EMPTY, NEVER, SLOW, Ring

SOUND = Ring(stages=4, iters=10, consumers=2, blocks=1, empty_count=2)
MULTICAST = Ring(stages=4, iters=10, consumers=8, blocks=2, empty_count=16)


def found(ring: Ring) -> Counter[str]:
    """Count what goes wrong in a ring, by name."""
    return Counter(each.name for each in rings.findings(ring, rings.run(ring)))


@pytest.mark.parametrize("ring", [SOUND, MULTICAST, replace(SOUND, stages=1), replace(SOUND, stages=8)])
@pytest.mark.parametrize("slow", SLOW)
def test_a_sound_ring_works_at_every_speed(ring: Ring, slow: str) -> None:
    """Every consumer reads the iterations of every producer in order, whoever is slow."""
    outcome = rings.run(replace(ring, slow=slow, slowness=16))
    assert not found(replace(ring, slow=slow, slowness=16))
    assert (outcome.reads == np.arange(ring.iters)[:, None]).all()
    assert ring.sound
    assert not rings.depends_on_speed(rings.at_every_speed(ring))


def test_stages_are_what_lets_a_producer_run_ahead() -> None:
    """With one stage, writing and reading take turns; with two they overlap: about half the ticks."""
    ticks = [rings.run(replace(SOUND, stages=stages, iters=32)).ticks for stages in (1, 2, 4)]
    assert ticks == [64, 33, 33]


def test_barriers_end_where_the_laps_do() -> None:
    """10 iterations over 4 stages: stages 0 and 1 saw three phases, 2 and 3 two; nothing is pending."""
    for word, laps in zip(rings.run(SOUND).objects[0, 1].tolist(), (3, 3, 2, 2), strict=True):
        assert fields(word) == {"parity": laps % 2, "pending": 2, "tx": 0, "expected": 2}


def test_a_parity_that_is_stuck_reads_early() -> None:
    """In the second lap a consumer's wait passes at once, and the stage still holds the first lap."""
    ring = replace(SOUND, parity="stuck")
    assert set(found(ring)) == {"early read"}
    assert rings.run(ring).reads[0, 0, 4, 0] == 0
    assert rings.depends_on_speed(rings.at_every_speed(ring))


def test_a_producer_that_starts_with_0_never_starts() -> None:
    """It waits for a phase of empty that only consumers can end, and they wait for it."""
    ring = replace(SOUND, parity="producer-0")
    assert found(ring) == {"deadlock": 3}
    assert (rings.run(ring).acted == NEVER).all()


def test_a_consumer_that_starts_with_1_reads_nothing() -> None:
    """Its first wait passes before anything was written."""
    ring = replace(SOUND, parity="consumer-1")
    assert rings.run(ring).reads[0, 0, 0, 0] == EMPTY
    assert "early read" in found(ring)


def test_half_the_count_under_multicast_deadlocks() -> None:
    """16 arrivals at a count of 8 are two phases: the parity is as before, and the producer waits forever."""
    ring = replace(MULTICAST, empty_count=8)
    assert found(ring) == {"deadlock": 18}
    assert [fields(word)["parity"] for word in rings.run(ring).objects[0, 1].tolist()] == [0] * 4


def test_half_the_count_under_multicast_reuses_early() -> None:
    """One consumer that is far behind: 8 of the others suffice, and its stages are written again."""
    ring = replace(MULTICAST, empty_count=8, slow="one", slowness=16)
    assert found(ring)["overrun"] == 4
    events = [each for each in rings.findings(ring, rings.run(ring)) if each.name == "overrun"]
    assert {(each.agent.block, each.agent.name) for each in events} == {(1, "consumer 7")}


def test_a_count_too_high_deadlocks_in_the_second_lap() -> None:
    """No phase of empty ever completes."""
    assert found(replace(MULTICAST, empty_count=17)) == {"deadlock": 18}
    assert "second lap" in rings.why(replace(MULTICAST, empty_count=17))


def test_who_leaves_must_drop() -> None:
    """A consumer that leaves is missed two laps later, unless it took itself out of the counts."""
    ring = replace(SOUND, quits_after=4)
    assert found(ring) == {"deadlock": 2}
    assert not ring.sound
    for slow in SLOW:
        assert not found(replace(ring, drops=True, slow=slow, slowness=16))
    assert replace(ring, drops=True).sound
    outcome = rings.run(replace(ring, drops=True))
    assert [fields(word)["expected"] for word in outcome.objects[0, 1].tolist()] == [1] * 4


def test_a_timeline_shows_writing_and_reading() -> None:
    """Stage 0 is written in tick 0, read in tick 1, empty, and written again in tick 4."""
    texts, colours = rings.timeline(SOUND, rings.run(SOUND), 0)
    assert texts[0][:6] == ["w0", "r0", "", "", "w4", "r4"]
    assert colours[0][:6] == [0, 0, None, None, 4, 4]


def test_a_timeline_shows_what_waits_to_be_read() -> None:
    """With slow consumers a stage stays full."""
    ring = replace(SOUND, slow="consumers")
    assert rings.timeline(ring, rings.run(ring), 0)[0][1][:5] == ["", "w1", "1", "1", "1"]


def test_settings_are_what_the_kernel_reads() -> None:
    """Fifteen words, in the order of the kernel's struct."""
    ring = replace(SOUND, parity="stuck", slow="one", slowness=5, quits_after=6, drops=True)
    assert rings.settings(ring, 77).tolist() == [4, 10, 2, 1, 2, 1, 0, 0, 0, 0, 1, 5, 6, 1, 77]
