"""What limits a GEMM: all at one clock, what was recorded below it, and where hot inputs come from."""

from __future__ import annotations

from typing import Any

import pytest

from ptxlab.experiments import recording
from ptxlab.experiments.gemm import limits
from ptxlab.experiments.gemm.conclude import conclude
from ptxlab.experiments.gemm.explain import explain
from ptxlab.experiments.gemm.machine import MACHINES, Rate
from ptxlab.experiments.registry import find_stage, stage_entries

H200 = MACHINES[90]
HOPPER = find_stage("hopper")
RECORDED = [
    name for name in (each.name for each in stage_entries()) if recording.recordings(find_stage(name))
]
BF16 = {"dtype": "bf16", "out": "bf16"}
SMALL = BF16 | {"m": 1, "n": 576, "k": 7168}
LARGE = BF16 | {"m": 8192, "n": 8192, "k": 8192}


def hopper(*, hot: bool, **options: Any) -> dict[str, Any]:
    """Return what is explained of the stage hopper on an H200."""
    return explain(HOPPER, HOPPER.case("sm_90a", **options), H200, None, hot=hot)


def sentence(said: dict[str, Any]) -> str:
    """Return the conclusion of one explanation."""
    return conclude({"stages": [], "sweep": None, "explanations": [said]})


@pytest.mark.parametrize("name", RECORDED)
def test_nothing_recorded_exceeds_its_limit(name: str) -> None:
    """Cold and hot, whatever clock each ran at: each is found, and compared at the clock of its own run."""
    stage = find_stage(name)
    for kept in recording.recordings(stage):
        for point, variant in kept.variants.items():
            row = variant["result"]
            case = stage.case(point.partition(" ")[0], **variant["params"])
            said = explain(stage, case, H200, None, hot=row["l2"] == "hot")
            assert said["recorded"]["tflops"] == row["tflops"], point
            assert said["recorded"]["mhz"] == round(row["clock_mhz"]), point
            assert 0 < said["recorded"]["percent"] < 100, point
            assert {each["at_mhz"] for each in said["bounds"]} <= {None, round(row["clock_mhz"])}, point


def test_a_clock_that_was_not_counted_compares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML's lies above the one in a kernel; a limit by device memory holds at every clock."""
    row = {"tflops": 500.0, "mhz": None, "device": H200.name, "date": "2026-12-01"}
    monkeypatch.setattr("ptxlab.experiments.gemm.explain.recorded_row", lambda *_, **__: row)
    said = hopper(hot=False)
    assert said["limiter"]["at_mhz"]
    assert said["recorded"]["percent"] is None
    assert "recorded: 500.0 TFLOP/s, at a clock that was not counted (2026-12-01)" in sentence(said)
    slim = hopper(hot=False, **SMALL)
    assert slim["limiter"]["at_mhz"] is None
    assert slim["recorded"]["percent"] == pytest.approx(100 * 500 / slim["limiter"]["tflops"])


def test_the_clock_is_told_with_what_was_recorded() -> None:
    """The limit and the recorded row have the same."""
    said = hopper(hot=False, **LARGE)
    clock, row = said["limiter"]["at_mhz"], said["recorded"]
    assert f"TFLOP/s at {clock} MHz without any idle time; recorded: {row['tflops']:.1f}" in sentence(said)
    assert f"TFLOP/s at {clock} MHz, {row['percent']:.0f} % of that" in sentence(said)


def test_a_rate_at_another_clock() -> None:
    """It grows with that of the SMs if it has one; a figure for one clock says for which it was given."""
    assert Rate(2e12, "sheet", 1000).at(1500) == Rate(3e12, "sheet, for 1000 MHz", 1500)
    assert Rate(2e12, "4 a cycle", 1000, per_cycle=True).at(500).source == "4 a cycle"
    memory = Rate(4.8e12, "sheet")
    assert memory.at(1500) is memory


@pytest.mark.parametrize(
    ("sizes", "beyond"), [(SMALL, None), (LARGE, 3 * 2 * 8192**2 - 60 * 2**20)], ids=["fits", "does not"]
)
def test_hot_inputs_come_from_the_l2(sizes: dict[str, Any], beyond: int | None) -> None:
    """All bytes pass it, and device memory brings what does not fit; with a cold L2 it brings all."""
    hot, cold = ({row["key"]: row for row in hopper(hot=each, **sizes)["bounds"]} for each in (True, False))
    assert hot["l2"]["amount"] == cold["memory"]["amount"]
    assert (hot["memory"]["amount"] if "memory" in hot else None) == beyond
    assert "l2" not in cold


def test_what_limits_a_small_hot_problem_is_the_l2() -> None:
    """It says why device memory is none of the limits, and neither is that the roof."""
    said = hopper(hot=True, **SMALL)
    assert said["limiter"]["resource"] == "L2"
    assert said["roofline"]["roof"] == "L2"
    assert "what fits into it does not come from device memory" in sentence(said)
    assert said["limiter"]["tflops"] > hopper(hot=False, **SMALL)["limiter"]["tflops"]


def test_an_l2_whose_rate_is_not_known_may_be_the_limit() -> None:
    """Of an A100, as of every resource that is not known."""
    stage = find_stage("ampere")
    case = stage.case("sm_80", stages=3)
    said = explain(stage, case, MACHINES[80], None, hot=True)
    assert said["limiter"] is None
    assert said["roofline"] is None
    (row,) = (row for row in said["bounds"] if row["key"] == "l2")
    assert row["per_second"] is None
    assert limits.roofline(case, MACHINES[80]) is not None


def test_hot_and_cold_recordings_answer_for_themselves() -> None:
    """The same point was recorded twice; a condition that was never recorded finds nothing."""
    case = HOPPER.case("sm_90a", **LARGE)
    (kept,) = recording.recordings(HOPPER)
    found = {each: kept.find(HOPPER, case, condition=each) for each in ("", "hot", "frozen")}
    assert {each: row and row["result"]["l2"] for each, row in found.items()} == {
        "": "cold",
        "hot": "hot",
        "frozen": None,
    }
