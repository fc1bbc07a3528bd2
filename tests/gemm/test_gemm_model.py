"""How hopper cuts a problem up, without a GPU: what the model thinks of plans, and which of them is taken."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Value
from ptxlab.experiments.gemm.explain import explain
from ptxlab.experiments.gemm.machine import MACHINES, at_once
from ptxlab.experiments.gemm.plan import COOPERATIVE, PING_PONG, SINGLE, Plan, plans
from ptxlab.experiments.registry import find_stage, stage_entries
from ptxlab.experiments.unit import build_unit
from ptxlab.sass.claims import check_claims
from ptxlab.sass.report import kernels

FOUND = {entry.name: find_stage(entry.name) for entry in stage_entries()}

SCALED: dict[str, Value] = {"alpha": 0.5, "beta": 2.0}
EVEN: dict[str, Value] = {"adding": "stream-k"}
FUSED: dict[str, Value] = {"bias": "yes", "activation": "gelu"}


def test_hopper_takes_the_plan_that_the_model_thinks_fastest() -> None:
    """Unless it is told another one; what it took is among the options of the point."""
    hopper = FOUND["hopper"]
    few_rows = hopper.case("sm_90a", m=12, n=4000, k=1000)
    assert str(few_rows.block).startswith("16x")
    deep = hopper.case("sm_90a", m=64, n=4000, k=7000)
    assert int(deep.splits) > 1
    large = hopper.case("sm_90a", m=10000, n=10000, k=10000)
    assert (large.roles, large.splits) == ("ping-pong", 1)
    for options in ({"block": "256x192"}, {"roles": "ping-pong"}, {"cluster_shape": "1x2"}, {"splits": 2}):
        told = hopper.case("sm_90a", **options)
        assert all(getattr(told, name) == value for name, value in options.items())


def test_a_plan_takes_longer_with_emptier_waves_and_with_more_to_add() -> None:
    """133 tiles take two waves; parts of a tile must be added up."""
    plan = Plan(rows=128, cols=256, role=COOPERATIVE, down=1, across=1, splits=1)
    one, two = (plan.cycles((128 * tiles, 256, 4096), 132) for tiles in (132, 133))
    assert two > 1.9 * one
    halves = dataclasses.replace(plan, splits=2)
    assert halves.cycles((128 * 132, 256, 4096), 132) > one
    assert halves.cycles((128 * 66, 256, 4096), 132) < plan.cycles((128 * 66, 256, 4096), 132)


def test_plans_split_no_further_than_there_are_blocks() -> None:
    """And each part has two steps at least."""
    tiles = [(128, 256, COOPERATIVE)]
    assert {plan.splits for plan in plans(tiles, (4096, 4096, 4096), 132)} == {1}
    assert {plan.splits for plan in plans(tiles, (128, 256, 512), 132)} == {1, 2, 3, 4}


def test_a_timed_plan_goes_before_the_model() -> None:
    """Where it agrees with what was asked for; every plan that was timed is legal."""
    hopper = FOUND["hopper"]
    timed = json.loads((hopper.folder / "plans.json").read_text())["plans"]
    for shape, plan in timed.items():
        m, n, k = map(int, shape.split("x"))
        case = hopper.case("sm_90a", m=m, n=n, k=k)
        assert f"{case.block} {case.roles} {case.cluster_shape} {case.splits} {case.adding}" == plan, shape
    other = hopper.case("sm_90a", m=4096, n=4096, k=4096, block="256x192")
    assert (other.block, other.roles) == ("256x192", "cooperative")


def test_four_blocks_that_share_get_a_plan_of_their_own() -> None:
    """What is left open is the model's, also where it would take no such cluster: legal, and for the size."""
    hopper = FOUND["hopper"]
    shared: dict[str, Value] = {"dtype": "bf16", "out": "bf16", "cluster_shape": "2x2"}
    for block in ("64x64", "64x128", "128x128", "128x256"):
        case = hopper.case("sm_90a", m=1024, n=1024, k=1024, block=block, **shared)
        assert (case.block, case.cluster_shape) == (block, "2x2")
    assert int(hopper.case("sm_90a", m=64, n=4096, k=7168, **shared).block.partition("x")[0]) <= 64


def test_no_more_clusters_stay_than_run_at_once() -> None:
    """30 of four found room on 132 SMs of an H200; three more would begin when all the rest has ended."""
    assert [at_once(132, size) for size in range(1, 9)] == [132, 132, 117, 120, 110, 102, 105, 120]
    assert [at_once(multiprocessors, 4) for multiprocessors in (3, 64, 119)] == [0, 64, 116]
    assert [at_once(132, size, of_sm=2) for size in (1, 2, 4)] == [264, 264, 248]
    for name, options in (("cluster", {}), ("hopper", {"block": "128x128", "roles": "ping-pong"})):
        found = {
            shape: FOUND[name].case("sm_90a", m=4096, n=4096, k=4096, cluster_shape=shape, **options)
            for shape in ("2x1", "2x2")
        }
        assert {shape: FOUND[name].grid(case)[0] for shape, case in found.items()} == {"2x1": 132, "2x2": 120}
        assert FOUND[name].remarks(found["2x1"]) == []
        assert FOUND[name].remarks(found["2x2"]) == ["of 33 clusters of 4 an H200 runs 30 at once"]
    small = FOUND["cluster"].case("sm_90a", m=16, n=64, k=64, cluster_shape="2x2")
    assert FOUND["cluster"].remarks(small) == []  # one cluster is all


def test_parts_in_clusters_that_do_not_run_at_once_are_a_second_wave() -> None:
    """33 clusters of four parts: the last three begin when others have ended."""
    hopper = FOUND["hopper"]
    parts: dict[str, Value] = {"block": "128x64", "roles": "cooperative", "cluster_shape": "1x1"}
    case = hopper.case("sm_90a", m=128, n=2112, k=7168, adding="cluster", splits=4, **parts)
    (kernel,) = kernels(build_unit(hopper, [case], "sm_90a"))
    said = explain(hopper, case, MACHINES[90], kernel)
    assert hopper.remarks(case) == ["of 33 clusters of 4 an H200 runs 30 at once"]
    assert (said["waves"]["slots"], said["waves"]["last_blocks"]) == (120, 12)
    assert said["waves"]["waves"] == pytest.approx(1.1)


@pytest.mark.parametrize("size", [(256, 2048, 128, 121), (64, 48, 192, 2)])
def test_the_model_chooses_what_is_legal(size: tuple[int, int, int, int]) -> None:
    """Of even shares only those in which each cluster has a step."""
    m, n, k, blocks = size
    case = FOUND["hopper"].case("sm_90a", m=m, n=n, k=k, blocks=blocks, adding="stream-k")
    assert case.adding == "stream-k"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"m": 2112, "n": 128, "k": 112, "splits": 24, "roles": "ping-pong"}, "legal: at most 2"),
        ({"k": 64, "splits": 16}, "-k 64: each of the splits takes a step of k; legal: at most 1"),
        ({"m": 100, "n": 64, "k": 2048, "splits": 6, "adding": "stream-k"}, "legal: --set splits=1"),
    ],
)
def test_where_no_plan_is_legal_what_was_given_is_blamed(options: dict[str, Value], said: str) -> None:
    """Not a block that nobody asked for."""
    with pytest.raises(UsageError, match=said):
        FOUND["hopper"].case("sm_90a", **options)


def test_the_model_knows_what_blocks_that_share_take() -> None:
    """Thousands of cycles at 4096^3 on an H200, 2026-11-30, bf16; within a tenth, and the first one first."""
    timed = {
        ("128x128", PING_PONG, 2, 1): 270,
        ("64x256", PING_PONG, 2, 1): 273,
        ("128x160", PING_PONG, 2, 1): 300,
        ("64x128", SINGLE, 2, 1): 345,
        ("64x128", PING_PONG, 2, 1): 347,
        ("128x160", PING_PONG, 2, 2): 295,
        ("128x128", PING_PONG, 2, 2): 303,
        ("64x256", PING_PONG, 2, 2): 305,
        ("64x128", PING_PONG, 2, 2): 322,
        ("128x256", COOPERATIVE, 2, 2): 348,
        ("64x128", SINGLE, 2, 2): 367,
        ("64x64", SINGLE, 2, 2): 452,
    }
    found = {}
    for block, role, down, across in timed:
        rows, cols = map(int, block.split("x"))
        plan = Plan(rows, cols, role, down=down, across=across, splits=1)
        found[block, role, down, across] = plan.cycles((4096, 4096, 4096), 132) / 1000
    assert all(abs(found[way] / timed[way] - 1) < 0.1 for way in timed), found
    for shape in ("2x1", "2x2"):
        case = FOUND["hopper"].case("sm_90a", m=4096, n=4096, k=4096, cluster_shape=shape)
        assert (case.roles, case.splits) == (PING_PONG, 1)
        assert math.prod(FOUND["hopper"].tile(case)[:2]) >= 128 * 128


@pytest.mark.parametrize(
    "given",
    [{"block": "128x320", "splits": 2}, {"block": "64x32", "adding": "cluster"}, {"blocks": 8, "splits": 24}],
)
def test_what_is_given_goes_before_what_makes_sense(given: dict[str, Value]) -> None:
    """The model has no such plan; there is a legal one all the same."""
    case = FOUND["hopper"].case("sm_90a", **given)
    assert given.items() <= case.params.items()


def test_a_timed_plan_is_of_as_many_blocks() -> None:
    """For others the model chooses."""
    hopper = FOUND["hopper"]
    few = hopper.case("sm_90a", dtype="bf16", out="bf16", blocks=8)
    assert hopper.plan_source(few) == "the model"
    assert hopper.plan_source(hopper.case("sm_90a", dtype="bf16", out="bf16")).startswith("plans.json")


def test_a_timed_plan_stays_where_a_bias_and_gelu_follow() -> None:
    """With C of 16 bits, as it was timed; every plan that the model takes instead is legal."""
    hopper = FOUND["hopper"]
    for shape, plan in json.loads((hopper.folder / "plans.json").read_text())["plans"].items():
        m, n, k = map(int, shape.split("x"))
        for dtype in ("f16", "bf16"):
            case = hopper.case("sm_90a", m=m, n=n, k=k, dtype=dtype, out=dtype, **FUSED)
            assert f"{case.block} {case.roles} {case.cluster_shape} {case.splits} {case.adding}" == plan
        for dtype, out in (("f16", "f32"), ("s8", "bf16")):
            hopper.case("sm_90a", m=m, n=n, k=k, dtype=dtype, out=out, **FUSED, **SCALED)


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "s8", "out": "f32", "splits": 2},
        {"dtype": "s8", "out": "f32", "roles": "alone", "splits": 2, **FUSED, **SCALED},
        {"roles": "ping-pong", "splits": 3, **FUSED},
        {"roles": "single", "splits": 3},
        {"n": 2112, **EVEN, **FUSED},
    ],
)
def test_what_is_left_open_becomes_a_plan_that_is_legal(options: dict[str, Value]) -> None:
    """Also where the model has none for what was asked for: here tiles would not be split."""
    case = FOUND["hopper"].case("sm_90a", m=4096, **({"n": 4096, "k": 4096} | options))
    assert all(getattr(case, name) == value for name, value in options.items())


@pytest.mark.parametrize(
    "options",
    [
        {"block": "128x256", "roles": "cooperative", **SCALED},
        {"block": "128x320", "cluster_shape": "2x1", "out": "f32", **SCALED},
        {"block": "128x192", "roles": "cooperative", "splits": 2, **SCALED},
        {"block": "256x192", "cluster_shape": "1x2", "splits": 4},
        {"block": "128x192", "roles": "ping-pong", "splits": 3, "out": "f32"},
        {"block": "64x128", "roles": "single", "splits": 8, **SCALED},
        {"block": "128x192", "roles": "cooperative", "splits": 3, "cluster_shape": "1x2", "out": "f32"},
        {"block": "128x256", "roles": "cooperative", "splits": 4, "cluster_shape": "1x2", "out": "f32"},
        {"block": "128x192", "roles": "cooperative", "splits": 3, "group": 1, "out": "f32"},
        {"block": "64x128", "roles": "ping-pong", "splits": 3, "group": 1, "out": "f32"},
        {"block": "64x128", "roles": "single", "splits": 3, "group": 1, "out": "f32"},
        {"block": "128x192", "roles": "ping-pong", "adding": "stream-k", "n": 2112, "out": "f32"},
        {"block": "128x256", "roles": "cooperative", "adding": "stream-k", "n": 2112},
        {"block": "256x128", "roles": "cooperative", "adding": "cluster", "splits": 2, **SCALED},
        {"block": "128x224", "roles": "cooperative", "out": "f32", **SCALED},
        {"block": "176x128", "roles": "cooperative", "cluster_shape": "1x2", **SCALED},
        {"block": "32x256", "roles": "single", "adding": "cluster", "splits": 8, "out": "f32", **SCALED},
        {"block": "128x256", "roles": "cooperative", "splits": 2, "cluster_shape": "1x2", **FUSED},
        {"block": "128x128", "roles": "ping-pong", "splits": 2, "out": "f32", **FUSED},
        {"block": "128x192", "roles": "ping-pong", "n": 2112, **EVEN, **FUSED},
        {"block": "128x224", "roles": "cooperative", "n": 2112, "out": "f32", **EVEN, **FUSED},
        {"block": "128x128", "roles": "alone", "splits": 3, "out": "f32", **SCALED, **FUSED},
    ],
)
def test_the_fullest_kernels_do_not_spill(options: dict[str, Value]) -> None:
    """Most registers are sums; C to be read, and parts to be added, must fit beside them."""
    hopper = FOUND["hopper"]
    case = hopper.case("sm_90a", **options)
    (kernel,) = kernels(build_unit(hopper, [case], "sm_90a"))
    failed = [detail for _, ok, detail in check_claims(kernel, hopper.claims(case)) if not ok]
    assert not failed
