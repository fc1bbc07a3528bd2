"""``ptxlab gemm --tune``: plans are timed, the fastest is kept for the card and taken from then on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gemm_stand_in import H200, request

from ptxlab.device.job import DeviceInfo, Timing
from ptxlab.errors import DeviceError, ExitCode, UsageError
from ptxlab.experiments import runner
from ptxlab.experiments.base import Value
from ptxlab.experiments.gemm import tune
from ptxlab.experiments.gemm.run import Request
from ptxlab.experiments.registry import find_stage
from ptxlab.render.show import blocks
from ptxlab.render.terminal import to_terminal

PLAN = ("block", "roles", "cluster_shape", "splits", "adding")


@pytest.fixture(autouse=True)
def few_plans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Search four plans in heats of two, with a cache of its own."""
    monkeypatch.setattr(tune, "MOST_PLANS", 4)
    monkeypatch.setattr(tune, "OF_A_HEAT", 2)
    monkeypatch.setattr(tune, "FINALISTS", 2)
    monkeypatch.setenv("PTXLAB_CACHE", str(tmp_path / "cache"))


def hopper(*, settings: tuple[str, ...] = (), tuned: bool = True) -> Request:
    """Return a request for hopper at a small problem."""
    asked = request(64, 128, 256)
    return dataclasses.replace(asked, stage="hopper", settings=settings, tune=tuned)


def plan_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return the plan of a row."""
    return {name: row["options"][name] for name in PLAN}


def test_the_fastest_plan_runs_and_all_are_told(gemm: Any) -> None:
    """Two heats of two, a final of the two that won, then the run itself; every plan with its time."""
    record, stand_in = gemm(hopper())
    (search,) = record.result["tuned"]
    sides = [len(step.sides) for job in stand_in.jobs for step in job.steps if isinstance(step, Timing)]
    assert sides[:3] == [2, 2, 2]
    assert (search["of"], search["finalists"], len(search["plans"])) == (4, 2, 6)
    assert all(each["verified"] and each["milliseconds"]["median"] > 0 for each in search["plans"])
    final = search["plans"][:2]
    fastest = min(final, key=lambda each: each["milliseconds"]["median"])
    assert search["chosen"] == fastest["plan"] == plan_of(record.result["stages"][0])
    record.command = ["gemm"]
    assert "finalists first" in to_terminal(blocks(record.document()))


def test_what_was_found_is_taken_from_then_on(gemm: Any) -> None:
    """By the same card, at the same problem, where no part of a plan is asked for."""
    (before,) = gemm(hopper(tuned=False))[0].result["stages"]
    (search,) = gemm(hopper())[0].result["tuned"]
    (after,) = gemm(hopper(tuned=False))[0].result["stages"]
    assert plan_of(before) != plan_of(after) == search["chosen"]
    (told,) = gemm(hopper(settings=("roles=ping-pong",), tuned=False))[0].result["stages"]
    assert told["options"]["roles"] == "ping-pong"


def test_a_later_search_replaces_what_was_kept() -> None:
    """The newest finding is the one that is taken."""
    stage = find_stage("hopper")
    case = stage.case("sm_90a", m=64, n=128, k=256)
    for block in ("64x64", "64x128"):
        plan: dict[str, Value] = dict(zip(PLAN, (block, "single", "1x1", 1, "memory"), strict=True))
        tune._keep(tune._key(stage, case, H200), plan)
        assert tune.preferred(stage, case, H200, ()).block == block


def test_a_kept_plan_that_is_not_legal_any_more_is_not_taken() -> None:
    """A stage may refuse what an earlier version of it took."""
    stage = find_stage("hopper")
    case = stage.case("sm_90a", m=64, n=128, k=256)
    tune._keep(tune._key(stage, case, H200), {"block": "128x256", "roles": "alone"})
    assert tune.preferred(stage, case, H200, ()) == case


def test_a_plan_is_of_one_card_and_one_problem() -> None:
    """Another card, size or factor has its own."""
    stage = find_stage("hopper")
    case = stage.case("sm_90a", m=64, n=128, k=256)
    other_card: DeviceInfo = dataclasses.replace(H200, name="NVIDIA H100")
    keys = {
        tune._key(stage, case, H200),
        tune._key(stage, case, other_card),
        tune._key(stage, stage.case("sm_90a", m=128, n=128, k=256), H200),
        tune._key(stage, stage.case("sm_90a", m=64, n=128, k=256, alpha=0.5), H200),
    }
    assert len(keys) == 4


def test_what_is_asked_for_stays(gemm: Any) -> None:
    """A part of a plan that is set is the same in all that are tried, and nothing is kept for other runs."""
    (search,) = gemm(hopper(settings=("splits=2",)))[0].result["tuned"]
    assert {each["plan"]["splits"] for each in search["plans"]} == {2}
    assert search["kept"] is None


def test_plans_that_fault_are_left_out(gemm: Any) -> None:
    """And where all do, the fault is what is told."""
    with pytest.raises(DeviceError, match="hung"):
        gemm(hopper(), fault=DeviceError("hung"))


def test_a_stage_without_plans_is_refused(gemm: Any) -> None:
    """There is nothing to tune."""
    with pytest.raises(UsageError, match="wmma-naive has one way"):
        gemm(dataclasses.replace(request(48, 40, 64), tune=True))


def test_without_a_gpu_nothing_is_tuned(
    monkeypatch: pytest.MonkeyPatch, run_here: Callable[..., Any]
) -> None:
    """Exit 3, and the document holds no search."""
    monkeypatch.setattr(runner, "has_driver", lambda: False)
    sizes = ("-m", "64", "-n", "128", "-k", "256")
    done = run_here("gemm", "--stage", "hopper", *sizes, "--tune", "--json")
    assert done.returncode == ExitCode.MISSING
    assert json.loads(done.stdout)["result"]["tuned"] == []


@pytest.mark.parametrize(
    "other",
    [("--ladder",), ("--list",), ("--stage", "hopper", "--explain"), ("--stage", "hopper", "--check")],
)
def test_what_tune_does_not_go_with(run_here: Callable[..., Any], other: tuple[str, ...]) -> None:
    """It times the plans of one stage."""
    assert run_here("gemm", "--tune", *other).returncode == ExitCode.USAGE


@pytest.mark.gpu
def test_a_search_on_a_device_is_kept(run_here: Callable[..., Any], history: Path) -> None:
    """Every plan gives the right result, and the next run takes the one that was the fastest."""
    del history
    asked = ("gemm", "--stage", "hopper", "-m", "64", "-n", "576", "-k", "1024", "--vs", "none", "--json")
    done = run_here(*asked, "--warmup", "0.1", "--tune")
    assert done.returncode == ExitCode.OK
    (search,) = json.loads(done.stdout)["result"]["tuned"]
    assert (search["of"], search["failed"]) == (4, [])
    assert all(each["verified"] for each in search["plans"])
    (row,) = json.loads(run_here(*asked, "--warmup", "0.1").stdout)["result"]["stages"]
    assert plan_of(row) == search["chosen"]
