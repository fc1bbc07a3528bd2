"""``ptxlab gemm --tune``: plans are timed, the fastest is kept for the card and taken from then on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gemm_stand_in import H200, StandIn, request

from ptxlab.device.job import DeviceInfo, Timing
from ptxlab.errors import DeviceError, ExitCode, ToolError, UsageError
from ptxlab.experiments import runner, unit
from ptxlab.experiments.base import Case, Value
from ptxlab.experiments.gemm import tune
from ptxlab.experiments.gemm.origin import KEPT, TUNED
from ptxlab.experiments.gemm.run import Request
from ptxlab.experiments.gemm.stage import GemmStage
from ptxlab.experiments.registry import find_stage
from ptxlab.render.blocks import Text
from ptxlab.render.show import blocks
from ptxlab.render.terminal import to_terminal
from ptxlab.sass.resources import Resources, resources
from ptxlab.toolchain import cache
from ptxlab.toolchain.build import Build

PLAN = ("block", "roles", "cluster_shape", "splits", "adding")
PLAN_TEXTS = ("block=64x64", "roles=single", "cluster_shape=1x1", "splits=1", "adding=memory")


@pytest.fixture(autouse=True)
def few_plans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Search four plans in heats of two, with a cache of its own."""
    monkeypatch.setattr(tune, "MOST_PLANS", 4)
    monkeypatch.setattr(tune, "OF_A_HEAT", 2)
    monkeypatch.setattr(tune, "FINALISTS", 2)
    monkeypatch.setenv("PTXLAB_CACHE", str(tmp_path / "cache"))


def hopper(*, settings: tuple[str, ...] = (), tuned: bool = True, cold: bool = True) -> Request:
    """Return a request for hopper at a small problem."""
    asked = request(64, 128, 256, method={"cold": cold})
    return dataclasses.replace(asked, stage="hopper", settings=settings, tune=tuned)


def timed_at_once(stand_in: StandIn) -> list[int]:
    """Return how many plans each job of a search timed, in turn."""
    return [len(step.sides) for job in stand_in.jobs for step in job.steps if isinstance(step, Timing)]


def plan_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return the plan of a row."""
    return {name: row["options"][name] for name in PLAN}


def test_the_fastest_plan_runs_and_all_are_told(gemm: Any) -> None:
    """Two heats of two, a final of the two that won, then the run itself; every plan with its time."""
    record, stand_in = gemm(hopper())
    (search,) = record.result["tuned"]
    assert timed_at_once(stand_in)[:3] == [2, 2, 2]
    assert (search["of"], search["finalists"], len(search["plans"])) == (4, 2, 6)
    assert all(each["verified"] and each["milliseconds"]["median"] > 0 for each in search["plans"])
    final = search["plans"][:2]
    fastest = min(final, key=lambda each: each["milliseconds"]["median"])
    assert search["chosen"] == fastest["plan"] == plan_of(record.result["stages"][0])
    record.command = ["gemm"]
    assert "finalists first" in to_terminal(blocks(record.document()))


def test_what_was_found_is_taken_from_then_on(gemm: Any) -> None:
    """By the same card, at the same problem, with the same L2, where no part of a plan is asked for."""
    (before,) = gemm(hopper(tuned=False))[0].result["stages"]
    (search,) = gemm(hopper())[0].result["tuned"]
    (after,) = gemm(hopper(tuned=False))[0].result["stages"]
    assert plan_of(before) != plan_of(after) == search["chosen"]
    (hot,) = gemm(hopper(tuned=False, cold=False))[0].result["stages"]
    assert plan_of(hot) == plan_of(before)
    (told,) = gemm(hopper(settings=("roles=ping-pong",), tuned=False))[0].result["stages"]
    assert told["options"]["roles"] == "ping-pong"


def test_who_found_a_plan_is_told(gemm: Any) -> None:
    """The model before a search, the search in its own run, and what it kept in later ones."""
    runs = [gemm(hopper(tuned=tuned))[0].result for tuned in (False, True, False)]
    plans = [result["plans"][0] for result in runs]
    assert [plan["source"] for plan in plans] == ["the model", TUNED, KEPT]
    assert [plan["plan"] for plan in plans] == [plan_of(result["stages"][0]) for result in runs]


def test_a_later_search_replaces_what_was_kept() -> None:
    """The newest finding is the one that is taken."""
    stage = find_stage("hopper")
    case = stage.case("sm_90a", m=64, n=128, k=256)
    for block in ("64x64", "64x128"):
        plan: dict[str, Value] = dict(zip(PLAN, (block, "single", "1x1", 1, "memory"), strict=True))
        tune._keep(tune._key(stage, case, H200, cold=True), plan)
        assert tune.preferred(stage, case, H200, (), cold=True).block == block


def test_a_kept_plan_that_is_not_legal_any_more_is_not_taken() -> None:
    """A stage may refuse what an earlier version of it took."""
    stage = find_stage("hopper")
    case = stage.case("sm_90a", m=64, n=128, k=256)
    tune._keep(tune._key(stage, case, H200, cold=True), {"block": "128x256", "roles": "alone"})
    assert tune.preferred(stage, case, H200, (), cold=True) == case


def test_a_plan_is_of_one_card_one_problem_and_one_condition() -> None:
    """Another card, size or factor has its own, and so has a run with what it reads in the L2."""
    stage = find_stage("hopper")
    case = stage.case("sm_90a", m=64, n=128, k=256)
    other_card: DeviceInfo = dataclasses.replace(H200, name="NVIDIA H100")
    keys = {
        tune._key(stage, case, H200, cold=True),
        tune._key(stage, case, H200, cold=False),
        tune._key(stage, case, other_card, cold=True),
        tune._key(stage, stage.case("sm_90a", m=128, n=128, k=256), H200, cold=True),
        tune._key(stage, stage.case("sm_90a", m=64, n=128, k=256, alpha=0.5), H200, cold=True),
    }
    assert len(keys) == 5


def test_what_is_asked_for_stays(gemm: Any) -> None:
    """A part of a plan that is set is the same in all that are tried, and nothing is kept for other runs."""
    (search,) = gemm(hopper(settings=("splits=2",)))[0].result["tuned"]
    assert {each["plan"]["splits"] for each in search["plans"]} == {2}
    assert search["kept"] is None


def test_a_plan_that_faults_takes_no_other_along(gemm: Any) -> None:
    """The plans of its heat are tried one by one: here the second faults when it is alone, too."""
    record, stand_in = gemm(hopper(), fault=DeviceError("hung"), faulty_runs=(0, 2))
    (search,) = record.result["tuned"]
    assert timed_at_once(stand_in)[:5] == [2, 1, 1, 2, 2]
    assert search["failed"] == ["hung", "hung"]
    assert len(search["plans"]) == 3 + search["finalists"]


def test_where_all_plans_fault_that_is_told(gemm: Any) -> None:
    """There is nothing else to tell."""
    with pytest.raises(DeviceError, match="hung"):
        gemm(hopper(), fault=DeviceError("hung"))


def test_a_final_that_faults_is_held_one_by_one(gemm: Any) -> None:
    """What the heats found is not lost, and the fault is told."""
    record, stand_in = gemm(hopper(), fault=DeviceError("hung"), faulty_runs=(2,))
    (search,) = record.result["tuned"]
    assert timed_at_once(stand_in)[:5] == [2, 2, 2, 1, 1]
    assert (search["finalists"], search["failed"]) == (2, ["hung"])
    assert search["chosen"] == plan_of(record.result["stages"][0])
    told = [
        block.text for block in blocks(record.document() | {"command": ["gemm"]}) if isinstance(block, Text)
    ]
    assert any(text.endswith("; 1 failed, such as: hung") for text in told)


def test_a_plan_that_is_wrong_in_the_final_is_out(gemm: Any) -> None:
    """Though it is the faster one there, and was right in its heat."""
    (search,) = gemm(hopper(), change=(0, 0, 9.0), changed="c.1", changed_runs=(2,))[0].result["tuned"]
    right, wrong = search["plans"][:2]
    assert (right["verified"], wrong["verified"]) == (True, False)
    assert wrong["milliseconds"]["median"] < right["milliseconds"]["median"]
    assert search["chosen"] == right["plan"]


@pytest.mark.parametrize("run", [2, None], ids=["in the final", "ever"])
def test_where_no_plan_is_right_there_is_no_winner(
    monkeypatch: pytest.MonkeyPatch, gemm: Any, run: int | None
) -> None:
    """In the final that counts which the heats had found right; nothing is kept."""
    monkeypatch.setattr(tune, "OF_A_HEAT", 1)
    monkeypatch.setattr(tune, "MOST_PLANS", 2)
    monkeypatch.setattr(tune, "FINALISTS", 1)
    (before,) = gemm(hopper(tuned=False))[0].result["stages"]
    with pytest.raises(DeviceError, match="no plan gives the right result of 64x128x256"):
        gemm(hopper(), change=(0, 0, 9.0), changed_runs=() if run is None else (run,))
    (after,) = gemm(hopper(tuned=False))[0].result["stages"]
    assert plan_of(after) == plan_of(before)


def test_plans_that_cannot_be_compiled_are_left_out(monkeypatch: pytest.MonkeyPatch, gemm: Any) -> None:
    """The other heats go on."""
    stage = find_stage("hopper")
    third = list(tune._plans(stage, stage.case("sm_90a", m=64, n=128, k=256), ()))[2]
    builder = unit.unit_builder

    def but_one(stage: GemmStage, cases: list[Case], arch: str) -> Callable[[], Build]:
        if third.key in [case.key for case in cases]:
            raise ToolError("a macro is none")
        return builder(stage, cases, arch)

    monkeypatch.setattr(unit, "unit_builder", but_one)
    (search,) = gemm(hopper())[0].result["tuned"]
    assert len(search["plans"]) == 2 + search["finalists"]
    assert search["failed"] == ["a macro is none"]


def test_plans_whose_kernels_spill_are_not_timed(monkeypatch: pytest.MonkeyPatch, gemm: Any) -> None:
    """A run would refuse what the search had kept."""
    stage = find_stage("hopper")
    first = stage.case("sm_90a", m=64, n=128, k=256)

    def with_spills(build: Build) -> dict[str, Resources]:
        found = resources(build)
        name = unit.kernel_name(stage, stage.macros(first))
        return found | ({name: dataclasses.replace(found[name], spill_bytes=8)} if name in found else {})

    monkeypatch.setattr(tune, "resources", with_spills)
    (search,) = gemm(hopper())[0].result["tuned"]
    assert len(search["plans"]) == 3 + search["finalists"]
    assert [text.endswith(" spills 8 bytes of registers") for text in search["failed"]] == [True]
    assert {name: first.params[name] for name in PLAN} not in [each["plan"] for each in search["plans"]]


def test_a_plan_that_cannot_be_kept_is_not_told_as_kept(monkeypatch: pytest.MonkeyPatch, gemm: Any) -> None:
    """Such as on a full disk; it is used for this run."""
    monkeypatch.setattr(cache, "store_memo", lambda *_: False)
    record, _ = gemm(hopper())
    (search,) = record.result["tuned"]
    assert search["kept"] is None
    assert search["chosen"] == plan_of(record.result["stages"][0])


def test_a_stage_without_plans_is_refused(gemm: Any) -> None:
    """There is nothing to tune."""
    with pytest.raises(UsageError, match="wmma-naive has one way"):
        gemm(dataclasses.replace(request(48, 40, 64), tune=True))


def test_without_a_gpu_nothing_is_tuned(
    monkeypatch: pytest.MonkeyPatch, run_here: Callable[..., Any]
) -> None:
    """Exit 3, the document holds no search, and a line says so, and which plan is in force."""
    monkeypatch.setattr(runner, "has_driver", lambda: False)
    sizes = ("-m", "64", "-n", "4096", "-k", "7168")
    done = run_here("gemm", "--stage", "hopper", *sizes, "--tune", "--json")
    assert done.returncode == ExitCode.MISSING
    result = json.loads(done.stdout)["result"]
    assert result["tuned"] == []
    (plan,) = result["plans"]
    assert plan["plan"].items() <= result["explanations"][0]["options"].items()
    values = " ".join(map(str, plan["plan"].values()))
    told = f"not tuned: no GPU runs it here; the plan in force, {values}, is from {plan['source']}"
    assert told in result["notes"]


@pytest.mark.parametrize(
    ("shape", "settings", "source"),
    [
        (("64", "4096", "7168"), ("dtype=bf16",), "plans.json, where an NVIDIA H200 timed it"),
        (
            ("64", "4096", "7168"),
            ("dtype=s8",),
            "plans.json, where an NVIDIA H200 timed it with bf16 tn, f32 accumulate, bf16 out",
        ),
        (("65", "1000", "512"), (), "the model"),
        (("65", "1000", "512"), ("roles=single",), "what was asked for, the rest from the model"),
        (("64", "128", "256"), PLAN_TEXTS, "what was asked for"),
    ],
)
def test_a_plan_says_where_it_comes_from(
    run_here: Callable[..., Any], shape: tuple[str, ...], settings: tuple[str, ...], source: str
) -> None:
    """From the file that comes with the stage, from the model, or from the line."""
    sizes = [word for pair in zip(("-m", "-n", "-k"), shape, strict=True) for word in pair]
    sets = [word for text in settings for word in ("--set", text)]
    shown = run_here("gemm", "--stage", "hopper", *sizes, *sets, "--explain").stdout
    assert f"Plan of hopper for {'x'.join(shape)}: " in shown
    assert f", from {source}.\n" in shown


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--check",), ["no element of C is checked: no GPU runs it here"]),
        (
            ("--record", "--explain-error"),
            ["there is no error to explain: no GPU runs it here", "nothing is recorded: no GPU runs it here"],
        ),
        ((), []),
    ],
)
def test_without_a_gpu_what_comes_of_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch, run_here: Callable[..., Any], options: tuple[str, ...], told: list[str]
) -> None:
    """The answer is that of a run without the option: a line says that nothing came of it."""
    monkeypatch.setattr(runner, "has_driver", lambda: False)
    done = run_here("gemm", "--stage", "wmma-naive", "-m", "64", *options, "--json")
    assert done.returncode == ExitCode.MISSING
    assert json.loads(done.stdout)["result"]["notes"] == told


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
