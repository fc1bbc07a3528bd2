"""The mbarrier probe: the answers to the questions that people ask about mbarriers."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.record import Record

PROBE = registry.find_probe("mbarrier")


def run(arch: str = "sm_90a", **params: Any) -> Record:
    """Run one point on the model."""
    lab = runner.Lab(arch, None, None, "the model was asked for")
    return runner.run_probe(PROBE, PROBE.case(arch, **params), lab)[0]


def failed(record: Record) -> dict[str, str]:
    """Return the checks that failed, with their details."""
    return {check["name"]: check["detail"] for check in record.checks if not check["ok"]}


def waits(record: Record) -> list[str]:
    """Return how each wait of a trace ended."""
    return [row["wait"] for row in record.result["steps"] if row["wait"]]


def test_which_parity_first(run_cli: Any) -> None:
    """On a fresh barrier 1 passes and 0 blocks; after one phase it is the other way round."""
    trace = "init 1; wait 1; wait 0; arrive; wait 0; wait 1"
    done = run_cli("probe", "mbarrier", "--trace", trace, "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    results = [row["wait"] for row in document["result"]["steps"]]
    assert results == [None, "pass", "block", None, "pass", "block"]
    assert "producers start with 1 and consumers with 0" in document["result"]["conclusion"]


def test_32_arrivals_at_a_count_of_1_alias(run_cli: Any) -> None:
    """32 phases complete and the parity is where it began: whoever waits for phase 0 hangs."""
    done = run_cli("probe", "mbarrier", "--count", "1", "--arrivals", "32", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 1
    details = {check["name"]: check["detail"] for check in document["checks"] if not check["ok"]}
    assert details["aliasing"] == "32 phases completed, parity unchanged (aliasing)"
    assert "deadlock" in details


def test_lanes_that_arrive_together_beyond_the_count_stop_the_kernel() -> None:
    """Silicon does not split the arrivals of a warp between phases: a launch failure on an H200."""
    case = PROBE.case("sm_90a", trace="init 1; arrive by 32")
    fault = PROBE.fault(case)
    assert fault is not None
    assert fault.certain
    assert failed(run(trace="init 1; arrive by 32")) == {
        "pending count out of range": "32 arrivals at once, 1 pending"
    }


def test_too_few_arrivals_hang() -> None:
    """One of 32 came: pending 31."""
    record = run(count=32, arrivals=1)
    assert failed(record)["too few arrivals"].startswith("pending 31")
    assert record.exit_code == 1


@pytest.mark.parametrize("count", [1, 3, 32, 256])
def test_as_many_arrivals_as_counted_are_sound(count: int) -> None:
    """Every wait before the last arrival blocks, the one after it passes."""
    record = run(count=count)
    assert record.exit_code == 0
    assert waits(record) == ["block", "pass"]


def test_an_odd_number_of_phases_lets_the_waiter_pass_and_still_aliases() -> None:
    """31 arrivals at a count of 3: ten phases, one arrival over."""
    assert failed(run(count=3, arrivals=31))["aliasing"] == "10 phases completed, parity unchanged (aliasing)"
    assert failed(run(count=1, arrivals=3))["aliasing"] == "3 phases completed, parity flipped (aliasing)"


@pytest.mark.parametrize(
    ("options", "words"),
    [(("--expect", "1048576"), "--expect 1048576 is out of range; legal: 0 to 1048575"),
     (("--count", "1048576"), "--count 1048576 is out of range; legal: 1 to 1048575"),
     (("--count", "0"), "--count 0 is out of range"),
     (("--trace", "init 1; expect_tx 1048576"), "legal: expect_tx 0 to 1048575")],
)  # fmt: skip
def test_counts_that_no_barrier_holds_are_refused(run_cli: Any, options: tuple[str, ...], words: str) -> None:
    """The assembler accepts these immediates without a word; the object has 20 bits for them."""
    done = run_cli("probe", "mbarrier", *options)
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.parametrize("count", [1, 8])
def test_late_order_is_safe_while_the_own_arrival_is_pending(count: int) -> None:
    """Bytes that land first make the tx-count negative; the phase waits for the thread that expects them."""
    record = run(order="late", count=count)
    assert record.exit_code == 0
    assert -4096 in [row["tx"] for row in record.result["steps"]]
    assert waits(record) == ["block", "block", "pass"]


def test_late_order_is_unsafe_when_another_arrival_ends_the_phase() -> None:
    """The waiter returns before any byte has landed."""
    record = run(order="late", arrival="other")
    assert set(failed(record)) == {"early return"}
    assert run(order="early", arrival="other").exit_code == 0


def test_too_few_bytes_hang() -> None:
    """128 expected, 100 landed: 28 are missing."""
    record = run(expect=128, land=100)
    assert failed(record)["transaction count"] == "tx-count 28: 28 bytes are missing"
    assert "deadlock" in failed(record)


def test_too_many_bytes_hang_as_well() -> None:
    """The tx-count ends below 0, which is not 0."""
    record = run(expect=100, land=128)
    told = "tx-count -28: 28 bytes more than expected came"
    assert failed(record)["transaction count"] == told
    assert record.result["conclusion"] == f"T{told[1:]}; the last wait never passes."


def test_a_trace_names_the_wait_at_which_a_program_would_stay() -> None:
    """First of all. Those that a later step lets pass are none; a trace may hold a wait that blocks."""
    record = run(trace="init 1; arrive.expect_tx 1024; wait 0")
    assert record.result["conclusion"].startswith("Step 3 never passes: phase 0 waits for 1024 bytes. ")
    assert record.exit_code == 0
    record = run(trace="init 2; arrive; wait 0; arrive; wait 1; wait 1")
    assert record.result["conclusion"].startswith(
        "Step 5 never passes: phase 1 waits for 2 arrivals. Nor does step 6. Waits: "
    )
    assert "never" not in run(trace="init 1; test_wait 0; wait 0; arrive").result["conclusion"]
    assert "never" in run(trace="init 1; wait 0; inval; init 1; arrive").result["conclusion"]


def test_a_stale_state_is_aliasing() -> None:
    """PTX has a wait know the current phase and the one before: of older ones the answer means nothing."""
    record = run(trace="init 1; arrive; arrive; arrive; arrive; wait @2; wait @5")
    told = (
        "The answer of step 6 is not defined: the state is of phase 0, and a wait knows just phases 3 and 4"
    )
    assert failed(record) == {"aliasing": told}
    assert record.exit_code == 1
    assert record.result["conclusion"].startswith(f"{told}. Waits: ")
    notes = [row["note"] for row in record.result["steps"]]
    assert notes[5:] == [f"not defined: {told.partition(': ')[2]}", "phase 3 is complete"]
    assert not failed(run(trace="init 1; arrive; wait @2"))


def test_a_barrier_that_expects_nobody_is_not_defined() -> None:
    """The count of arrivals is 1 or more: arrive_drop may not take the last one away."""
    record = run(trace="init 2; arrive_drop 2; test_wait 0; test_wait 1")
    told = "phase 1 expects no arrivals, the count must be 1 to 1048575"
    assert failed(record) == {"expected count": f"From step 2 on this is not defined: {told}"}
    notes = [row["note"] for row in record.result["steps"]]
    assert notes[1] == f"phase 0 complete; not defined: {told}"
    assert notes[2:] == [f"not defined: {told}"] * 2
    assert not failed(run(trace="init 2; arrive_drop; arrive; wait 0"))


def test_the_record_says_which_values_are_in_force() -> None:
    """Those that were left out included; those of another program have none."""
    params = run(sim=True).params
    assert (params["stages"], params["consumers"], params["empty_count"], params["parity"]) == (
        4,
        2,
        2,
        "flip",
    )
    assert params["count"] is None
    params = run(expect=128).params
    assert (params["count"], params["land"], params["order"], params["stages"]) == (1, 128, "early", None)
    assert run().params["trace"] == "init 1; wait 1; wait 0; arrive; wait 0; wait 1"


def test_checks_that_held_say_what_there_was_none_of(run_here: Any) -> None:
    """A deadlock does not hold; and where it depends on who is slow, it was just not seen in this run."""
    assert (
        "no deadlock, no overrun, no early read, empty count" in run_here("probe", "mbarrier", "--sim").stdout
    )
    done = run_here("probe", "mbarrier", "--parity", "stuck")
    assert "no deadlock in this run, no overrun in this run" in done.stdout
    assert done.stdout.count("stage 0 held iteration 0 (and 7 more)") == 1


def test_reads_of_another_iteration_are_marked(run_here: Any) -> None:
    """And the mark is explained."""
    done = run_here("probe", "mbarrier", "--parity", "stuck")
    assert "! read of another one" in done.stdout
    assert re.search(r"^ stage 0 .*r0 .*r4! ", done.stdout, re.MULTILINE)
    assert "r4! " not in run_here("probe", "mbarrier", "--sim").stdout


def test_a_blocked_wait_has_a_colour_of_its_own() -> None:
    """No phase is drawn in it, nor in that of a wait that passes."""
    trace = "; ".join(["init 1", "wait 1", "wait 0", *["arrive"] * 20])
    *phases, waits = run(trace=trace).result["pictures"][0]["colours"]
    drawn = {colour for row in phases for colour in row}
    assert len(drawn) > 2
    assert not drawn & {colour for colour in waits if colour is not None}


def test_help_tells_the_three_programs_and_the_words_of_a_trace(run_here: Any) -> None:
    """Which option chooses which, and no default that nobody can type."""
    told = " ".join(run_here("probe", "mbarrier", "--help").stdout.split())
    assert "It runs one of three programs. A trace (--trace, or nothing)" in told
    for word in ("arrive_drop [N]", "complete_tx BYTES", "test_wait P", "inval"):
        assert word in told
    assert "[default: -1]" not in told
    assert "--lane" not in told


def test_a_trace_fits_a_narrow_terminal(run_here: Any) -> None:
    """The table has the sentences, the picture the counts; --full prints the object, too."""
    short = run_here("probe", "mbarrier").stdout
    assert re.search(r"^ step +op +wait +note$", short, re.MULTILINE)
    assert "0x7ffff800001ffffe" not in short
    assert "Left out here: --full" in short
    assert "0x7ffff800001ffffe" in run_here("probe", "mbarrier", "--full").stdout
    assert "0x7ffff800001ffffe" in run_here("probe", "mbarrier", "--format", "csv").stdout


def test_the_wrong_parity_returns_early_and_hangs_later() -> None:
    """Waiting for parity 1 passes before the first arrival, and blocks after it."""
    assert set(failed(run(parity="1"))) == {"early return", "deadlock"}


@pytest.mark.parametrize(("count", "code"), [(8, 1), (16, 0)])
def test_multicast_doubles_the_empty_count(run_cli: Any, count: int, code: int) -> None:
    """Two blocks of 8 consumers, each arriving at both: 16; with 8 the producers deadlock or reuse early."""
    options = ("--cluster", "2", "--consumers", "8", "--empty-count", str(count))
    done = run_cli("probe", "mbarrier", *options, "--json")
    document = json.loads(done.stdout)
    assert done.returncode == code, done.stderr
    names = {check["name"] for check in document["checks"] if not check["ok"]}
    assert names == (set() if code == 0 else {"deadlock", "empty count"})
    if code:
        assert "early reuse" in document["result"]["conclusion"]
        assert "Depending on who is slow: deadlock, overrun" in document["result"]["conclusion"]


def test_a_slow_consumer_shows_the_early_reuse() -> None:
    """The stages of the slow one are written again while it still has to read them."""
    record = run(cluster=2, consumers=8, empty_count=8, slow="one", slowness=16)
    assert {"overrun", "deadlock", "empty count"} == set(failed(record))
    assert "consumer 7 of block 1 in iteration 0: stage 0 was written again (iteration 4)" in str(
        failed(record)
    )


@pytest.mark.parametrize(
    ("params", "names"),
    [({}, set()), ({"stages": 1}, set()), ({"parity": "flip"}, set()),
     ({"parity": "stuck"}, {"early read"}), ({"parity": "producer-0"}, {"deadlock"}),
     ({"parity": "consumer-1"}, {"early read"}), ({"quit_after": 4}, {"deadlock", "early exit"}),
     ({"quit_after": 4, "drop": True}, set()), ({"consumers": 4, "empty_count": 3}, {"empty count"}),
     ({"consumers": 4, "empty_count": 3, "slow": "one"}, {"overrun", "deadlock", "empty count"}),
     ({"free": True}, set()), ({"free": True, "cluster": 2, "empty_count": 5}, {"deadlock", "empty count"})],
    ids=str,
)  # fmt: skip
def test_what_is_wrong_with_a_ring_is_named(params: dict[str, Any], names: set[str]) -> None:
    """Each planted fault by its name, exit 1; a sound ring is sound."""
    record = run(sim=True, **params)
    assert set(failed(record)) == names
    assert record.exit_code == (1 if names else 0)


def test_a_ring_is_drawn(run_here: Any) -> None:
    """One picture a block: stages against ticks."""
    done = run_here("probe", "mbarrier", "--sim", "--stages", "4", "--iters", "10")
    assert done.returncode == 0
    assert re.search(r"^ stage 3 {14}w3  r3 {10}w7  r7$", done.stdout, re.MULTILINE)


def test_agents_that_wait_say_for_what() -> None:
    """Producers hang at empty, consumers at full, with the parity."""
    rows = run(cluster=2, consumers=8, empty_count=17).result["agents"]
    assert rows[0] == {
        "agents": "producer of block 0", "iterations": 4, "of": 10, "waits_for": "parity 0 of empty 0"
    }  # fmt: skip
    assert rows[1]["agents"] == "consumers 0-7 of block 0"


def test_what_the_device_answered_is_what_is_judged() -> None:
    """A consumer that reads another number than its iteration, or a wait that passes early, fails a check."""
    case = PROBE.case("sm_90a", sim=True)
    outputs = {name: array.copy() for name, array in PROBE.expected(case).items()}
    outputs["reads"][0, 1, 5, 0] = 9
    record = Record()
    PROBE.examine(case, outputs, record)
    assert set(failed(record)) == {"overrun"}
    case = PROBE.case("sm_90a", count=2)
    outputs = {name: array.copy() for name, array in PROBE.expected(case).items()}
    outputs["passed"][1] = 1
    record = Record()
    PROBE.examine(case, outputs, record)
    assert set(failed(record)) == {"early return"}


def test_one_point_has_one_name() -> None:
    """However it is typed, a point finds its recording."""
    for typed in ({"sim": True}, {"stages": 4}, {"consumers": 2, "empty_count": 2}, {"parity": "flip"}):
        assert PROBE.case("sm_90a", **typed).key == "sim"
    assert PROBE.case("sm_90a", trace="init 1; wait 1; wait 0; arrive; wait 0; wait 1").key == "default"


def test_every_instruction_is_one_of_sass() -> None:
    """Six kinds of arrival, told apart by their suffixes, on every architecture that has them."""
    for arch in ("sm_90", "sm_90a", "sm_100a", "sm_120a"):
        counts = run(arch).result["sass"]["counts"]
        for suffix in ("", ".A1T0", ".ART0", ".OPTOUT.ART0", ".RED.A0TR", ".RED.A0TX"):
            assert counts[f"SYNCS.ARRIVE.TRANS64{suffix}"] == 1, (arch, suffix)


def test_variants_exercise_every_op_and_every_option() -> None:
    """What is verified on silicon leaves no instruction and no way of failing out."""
    cases = list(PROBE.variants("sm_90a"))
    assert len(cases) >= 60
    ops = {op for case in cases if not case.sim for op in PROBE.inputs(case)["steps"][:, 0].tolist()}
    assert ops == set(range(14))
    findings = {name for case in cases for name in failed(run(**case.params))}
    assert set(PROBE.findings) <= findings
    assert list(PROBE.variants("sm_80")) == []


def test_the_launch_is_what_the_kernel_takes() -> None:
    """A block for each step of a trace; in a ring a warp for each agent, and a cluster of its blocks."""
    trace = PROBE.geometry(PROBE.case("sm_90a", trace="init 1; arrive; wait 0"))
    assert (trace.grid, trace.block, len(trace.arguments)) == ((3, 1, 1), (32, 1, 1), 4)
    ring = PROBE.geometry(PROBE.case("sm_90a", cluster=2, consumers=8))
    assert (ring.grid, ring.block, ring.cluster) == ((2, 1, 1), (288, 1, 1), (2, 1, 1))
    assert PROBE.geometry(PROBE.case("sm_90a", sim=True)).cluster is None


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"trace": "init 1; wait 1", "count": 2}, "a trace and a round at once; legal: one of"),
        ({"count": 2, "stages": 2}, "a round and a ring at once"),
        ({"expect": 8, "arrivals": 0}, "legal: 1 or more"),
        (
            {"count": 1, "arrivals": 300},
            "300 arrivals at a count of 1 take 303 steps; this probe takes up to 256",
        ),
        ({"count": 9000}, "--count 9000 and as many arrivals; this probe takes up to 1024"),
        ({"stages": 9}, "--stages 9 is out of range; this probe takes 1 to 8"),
        ({"empty_count": 0}, "--empty-count 0 is out of range"),
        ({"sim": True, "slowness": 8}, "--slowness without --slow"),
        ({"quit_after": 2}, r"--quit-after 2; legal: 4 \(stages\) to 9"),
        ({"sim": True, "drop": True}, "--drop; legal: with --quit-after"),
        ({"free": True, "slow": "one"}, "--slow with --free; legal: in lockstep"),
        ({"free": True, "parity": "stuck"}, "legal: rings without a race"),
        ({"parity": "2"}, "legal: 0, 1, flip, stuck"),
    ],
)
def test_bad_options_name_the_legal_ones(params: dict[str, Any], words: str) -> None:
    """One line, with the value and what would be legal."""
    with pytest.raises(UsageError, match=words):
        PROBE.case("sm_90a", **params)


def test_an_older_architecture_is_refused(run_cli: Any) -> None:
    """No compiler is asked."""
    done = run_cli("probe", "mbarrier", "--arch", "sm_80")
    assert done.returncode == 2
    assert "the minimum is sm_90" in done.stderr


def test_a_free_ring_has_no_ticks() -> None:
    """Where nobody counts ticks the outputs say just that an agent acted."""
    case = PROBE.case("sm_90a", free=True)
    assert np.all(PROBE.expected(case)["acted"] == 0)
    assert "ticks" not in PROBE.report(case, PROBE.expected(case), measured=False)
