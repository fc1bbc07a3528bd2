"""mbarrier: the bits that an H200 held after every step, what passes, what blocks, and what is refused."""

from __future__ import annotations

import pytest

from ptxlab.errors import UsageError
from ptxlab.isa import mbarrier
from ptxlab.isa.mbarrier import MOST, Trace, fields, parse_trace


def run(text: str) -> Trace:
    """Run a trace on the model."""
    return mbarrier.run(parse_trace(text))


def words(trace: Trace) -> list[int]:
    """Return the object after each step."""
    return [int(word) for word in trace.objects]


def waits(trace: Trace) -> list[str]:
    """Return how each wait ended, in order."""
    return [("block", "pass")[passed] for passed in trace.passed.tolist() if passed != mbarrier.NO_WAIT]


@pytest.mark.parametrize(
    ("text", "objects"),
    [
        ("init 1; wait 1; wait 0; arrive; wait 0; wait 1",
         [0x7FFFF800001FFFFE] * 3 + [0xFFFFF800001FFFFE] * 3),
        ("init 4; arrive 3; expect_tx 32; arrive; test_wait 0; complete_tx 32; test_wait 0; test_wait 1",
         [0x7FFFE000001FFFF8, 0x7FFFF800001FFFF8, 0x7FFFFBFFFC1FFFF8, 0x000003FFFC1FFFF8, 0x000003FFFC1FFFF8,
          0xFFFFE000001FFFF8, 0xFFFFE000001FFFF8, 0xFFFFE000001FFFF8]),
        (f"init 1; expect_tx {MOST}; complete_tx {MOST}; arrive; test_wait 0",
         [0x7FFFF800001FFFFE, 0x7FFFFA00003FFFFE, 0x7FFFF800001FFFFE, 0xFFFFF800001FFFFE,
          0xFFFFF800001FFFFE]),
        (f"init 2; complete_tx {MOST}", [0x7FFFF000001FFFFC, 0x7FFFF1FFFFFFFFFC]),
        ("init 33; arrive by 32", [0x7FFEF800001FFFBE, 0x7FFFF800001FFFBE]),
        ("init 32; expect_tx 4 by 32; complete_tx 4 by 16; arrive by 32",
         [0x7FFF0000001FFFC0, 0x7FFF03FFF01FFFC0, 0x7FFF03FFF81FFFC0, 0x000003FFF81FFFC0]),
        ("init 1; arrive_drop; test_wait 0; test_wait 1", [0x7FFFF800001FFFFE] + [0x8000000000000000] * 3),
    ],
)  # fmt: skip
def test_the_object_is_what_an_h200_held(text: str, objects: list[int]) -> None:
    """Words read back on an H200 (driver 580.159) after every step, inval having put them in memory."""
    assert words(run(text)) == objects


@pytest.mark.parametrize(
    ("text", "high"),
    [
        ("init 1048575; arrive", [0x00000800]),
        ("init 524288; arrive", [0x40000000]),
        ("init 2; arrive; arrive; arrive 2; arrive; arrive",
         [0x7FFFF000, 0x7FFFF800, 0xFFFFF000, 0x7FFFF000, 0x7FFFF800]),
        ("init 2; expect_tx 4096; arrive; complete_tx 4096; arrive", [0x7FFFF3FE, 0x7FFFF800]),
        ("init 3; arrive_drop; arrive; arrive; arrive; arrive",
         [0x7FFFE800, 0x7FFFF000, 0x7FFFF800, 0xFFFFF000, 0xFFFFF800]),
        ("init 32; arrive; arrive 31", [0x7FFF0000, 0x7FFF0800]),
    ],
)  # fmt: skip
def test_arrivals_return_the_state_from_before(text: str, high: list[int]) -> None:
    """The high word of what arrive returned on an H200: the object just before."""
    assert [int(state) >> 32 for state in run(text).states if state] == high


def test_a_word_is_taken_apart_again() -> None:
    """Fields read from the object are those that made it, a negative tx-count among them."""
    held = fields(words(run("init 7; arrive 3; complete_tx 100"))[-1])
    assert held == {"parity": 0, "pending": 4, "tx": -100, "expected": 7}


def test_a_fresh_barrier_lets_parity_1_pass() -> None:
    """The phase before the first counts as complete, so producers begin with 1 and consumers with 0."""
    assert waits(run("init 1; wait 1; wait 0; arrive; wait 0; wait 1")) == ["pass", "block", "pass", "block"]


@pytest.mark.parametrize("wait", ["test_wait", "try_wait", "wait"])
def test_a_state_stands_for_the_phase_of_its_arrival(wait: str) -> None:
    """A wait for the state of step 2 passes once the phase in which step 2 arrived is complete."""
    assert waits(run(f"init 2; arrive; {wait} @2; arrive; {wait} @2")) == ["block", "pass"]


def test_33_arrivals_at_count_1_are_33_phases() -> None:
    """Each completes one; an odd number leaves the other parity."""
    trace = run("; ".join(["init 1", *["arrive"] * 33]))
    assert trace.completed == list(range(34))
    assert [fields(word)["parity"] for word in words(trace)] == [0, *[1, 0] * 16, 1]


def test_bytes_keep_a_phase_open() -> None:
    """All have arrived; the phase ends with the last byte, and only then."""
    text = "init 1; arrive.expect_tx 100; complete_tx 60; test_wait 0; complete_tx 40; test_wait 0"
    assert waits(run(text)) == ["block", "pass"]


def test_bytes_may_land_before_they_are_expected() -> None:
    """The tx-count is below 0 for a while; whatever makes it 0 again ends the phase."""
    trace = run("init 1; complete_tx 16; arrive; test_wait 0; expect_tx 16; test_wait 0")
    assert fields(words(trace)[2]) == {"parity": 0, "pending": 0, "tx": -16, "expected": 1}
    assert waits(trace) == ["block", "pass"]


def test_a_drop_arrives_once_and_lowers_later_phases() -> None:
    """Of three, one leaves: this phase takes three arrivals, the next two."""
    trace = run("init 3; arrive_drop; arrive 2; wait 0; arrive; test_wait 1; arrive; test_wait 1")
    assert waits(trace) == ["pass", "block", "pass"]
    assert fields(words(trace)[-1])["expected"] == 2


@pytest.mark.parametrize("count", [1, 2, 32, 1000, MOST])
def test_every_count_up_to_the_largest(count: int) -> None:
    """One arrival short blocks, all pass, and the next phase waits for as many."""
    trace = run(f"init {count}; arrive {count}; test_wait 0")
    assert waits(trace) == ["pass"]
    assert fields(words(trace)[-1]) == {"parity": 1, "pending": count, "tx": 0, "expected": count}


@pytest.mark.parametrize(
    ("text", "name", "certain"),
    [
        ("init 2; arrive 3", "pending count out of range", True),
        ("init 1; arrive by 2", "pending count out of range", True),
        ("init 1; arrive_drop; arrive", "pending count out of range", True),
        ("init 1; arrive.expect_tx 8; arrive", "pending count out of range", True),
        (f"init 2; complete_tx {MOST}; complete_tx 1", "tx-count out of range", True),
        (f"init 2; expect_tx {MOST}; expect_tx 2", "tx-count out of range", True),
        (f"init 2; expect_tx {MOST}; expect_tx 1", "tx-count out of range", False),
    ],
)
def test_what_leaves_its_range(text: str, name: str, certain: bool) -> None:
    """An H200 stopped the kernel in each of these, but for a tx-count of 2^20, which fits into 21 bits."""
    broken = run(text).broken
    assert broken is not None
    assert (broken.name, broken.certain) == (name, certain)


def test_a_table_says_why_a_wait_blocks() -> None:
    """The note of each wait names what is missing, or the phase that is complete."""
    steps = parse_trace("init 2; wait 1; arrive.expect_tx 8; wait 0; arrive; complete_tx 8; wait 0")
    notes = {row["step"]: row["note"] for row in mbarrier.rows(steps, mbarrier.run(steps)) if row["wait"]}
    assert notes == {
        2: "as if a phase before 0 had completed",
        4: "phase 0 waits for 1 arrival, 8 bytes",
        7: "phase 0 is complete",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("arrive", "does not begin with init"),
        ("", "does not begin with init"),
        ("init", "lacks its operand; legal: init 1 to 1048575"),
        ("init 0", "0 is out of range; legal: init 1 to 1048575"),
        ("init 1048576", "1048576 is out of range"),
        ("init 1; expect_tx 1048576", "legal: expect_tx 0 to 1048575"),
        ("init 1; arrive 0", "legal: arrive 1 to 1048575"),
        ("init 1; wait 2", "legal: wait 0, 1"),
        ("init 1; wait @1", "@1 is no state; legal: a wait for the state of an arrival before it"),
        ("init 1; arrive; inval; init 1; wait @2", "@2 is no state; legal: a wait for the state of an"),
        ("init \u0661", "is no step of a trace; legal: init 1 to"),
        ("init 1_0", "is no step of a trace"),
        ("init 1; arrive; wait @3", "legal: a wait for the state of step 2"),
        ("init 1; arriv", "unknown step of a trace 'arriv'"),
        ("init 1; arrive by 33", "legal: by 1 to 32"),
        ("init 1; wait 0 by 2", "legal: by 1 to 32, of arrive"),
        ("init 1; arrive 1 2", "is no step of a trace"),
        ("init 1; init 1", "init of a barrier that exists"),
        ("init 1; inval; arrive", "arrive after inval; legal: init"),
        ("init 1; inval 1", "legal: inval without operand"),
        ("init 1" + "; arrive" * 256, "a trace of 257 steps"),
    ],
)
def test_a_bad_trace_names_the_legal_one(text: str, words: str) -> None:
    """Ranges are those of PTX: counts from 1, bytes from 0, both below 2^20."""
    with pytest.raises(UsageError, match=words):
        parse_trace(text)


def test_an_older_architecture_is_refused() -> None:
    """sm_80 has a smaller mbarrier, sm_75 none."""
    with pytest.raises(UsageError, match="the minimum is sm_90: sm_80 has one that knows no bytes"):
        mbarrier.check_arch("sm_80")
    with pytest.raises(UsageError, match=r"sm_75 has no such mbarrier, the minimum is sm_90$"):
        mbarrier.check_arch("sm_75")
    mbarrier.check_arch("sm_90")
