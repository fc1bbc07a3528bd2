"""The bench: sweeps, cold and hot, repeats, and the shape of what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from gemm_jobs import problem
from gemm_stand_in import H200, request

from ptxlab.device.job import LT, TORCH, CublasGemm, Launch, Timing
from ptxlab.errors import ExitCode, UsageError
from ptxlab.experiments.gemm import GemmStage
from ptxlab.experiments.gemm.check import Check
from ptxlab.experiments.gemm.measure import MOST_COPIES, Method
from ptxlab.experiments.gemm.reference import Comparison, Element
from ptxlab.experiments.gemm.repeat import order_note, repeated
from ptxlab.experiments.gemm.sweep import grouped, points
from ptxlab.experiments.gemm.wrong import shape_of_wrong
from ptxlab.experiments.record import Record
from ptxlab.experiments.registry import find_stage
from ptxlab.experiments.values import value_of, values_of_sweep
from ptxlab.render.show import blocks
from ptxlab.render.terminal import to_terminal


def swept(stage: GemmStage, *texts: str, settings: tuple[str, ...] = ()) -> list[Any]:
    """Return the points of a sweep at 64 x 64 x 64."""
    return points(stage, "sm_90a", Record(), {"m": 64, "n": 64, "k": 64}, settings, texts)


def test_values_have_the_type_of_their_option() -> None:
    """Whole numbers, numbers and text; each error names what is legal."""
    stage = find_stage("wmma-naive")
    assert value_of(stage, "m=128", "--set") == ("m", 128)
    assert value_of(stage, "beta=0.5", "--set") == ("beta", 0.5)
    assert value_of(stage, "layout=nt", "--set") == ("layout", "nt")
    assert values_of_sweep(stage, "k=16,32,16", "--sweep") == ("k", [16, 32])
    for text, message in (
        ("m=4k", "--set m=4k: '4k' is no value of m; legal: a whole number"),
        ("m=64_0", "'64_0' is no value of m; legal: a whole number"),
        ("m=\u0663", "is no value of m; legal: a whole number"),
        ("alpha=x", "'x' is no value of alpha; legal: a number"),
        ("alpha=1_0", "'1_0' is no value of alpha; legal: a number"),
        ("m", "--set m has no value; legal: m=VALUE"),
        ("tile=3", "unknown option of wmma-naive 'tile'; legal: m, n, k"),
    ):
        with pytest.raises(UsageError, match=message):
            value_of(stage, text, "--set")
    with pytest.raises(UsageError, match="has no values; legal: k=VALUE,VALUE"):
        values_of_sweep(stage, "k=", "--sweep")


def test_text_for_a_number_is_told_the_legal_ones() -> None:
    """Where there are only some, those: not that any whole number would do."""
    stage = find_stage("wmma-warptile")
    legal = ", ".join(map(str, stage.options()["tile_k"].choices))
    with pytest.raises(UsageError, match=f"'x' is no value of tile_k; legal: {legal}$"):
        value_of(stage, "tile_k=x", "--set")


def test_a_sweep_is_every_combination() -> None:
    """In the order typed, the last varies fastest; size stands for m, n and k."""
    stage = find_stage("wmma-naive")
    found = swept(stage, "layout=tn,nn", "dtype=f16,bf16")
    assert [(case.layout, case.dtype) for case in found] == [
        *(("tn", "f16"), ("tn", "bf16"), ("nn", "f16"), ("nn", "bf16"))
    ]
    assert [(case.m, case.n, case.k) for case in swept(stage, "size=16,32")] == [(16, 16, 16), (32, 32, 32)]
    with pytest.raises(UsageError, match="the sweep has 8000 points; legal: at most 1000"):
        swept(stage, *(f"{name}={','.join(map(str, range(1, 21)))}" for name in "mnk"))


def test_illegal_points_of_a_sweep_are_skipped_with_the_reason() -> None:
    """Bf16 has no f16 sums; where no point is legal that is an error."""
    stage, record = find_stage("wmma-naive"), Record()
    found = points(stage, "sm_90a", record, {"dtype": "bf16"}, (), ("acc=f32,f16",))
    assert [case.acc for case in found] == ["f32"]
    (skipped,) = record.skipped
    assert skipped["case"] == "wmma-naive acc=f16"
    assert "--acc f16 is not for --dtype bf16; legal: f32" in skipped["reason"]
    with pytest.raises(UsageError, match="legal: f32"):
        points(stage, "sm_90a", Record(), {"dtype": "bf16"}, (), ("acc=f16",))


def test_points_that_are_the_same_once_completed_are_one() -> None:
    """What is left open, 0 of splits, stands for another value: one kernel is not timed against itself."""
    stage, record = find_stage("hopper"), Record()
    chosen = stage.case("sm_90a").splits
    other = next(each for each in (1, 2) if each != chosen)
    found = points(stage, "sm_90a", record, {}, (), (f"splits=0,{other},{chosen}",))
    assert [case.splits for case in found] == [chosen, other]
    (skipped,) = record.skipped
    told = (f"hopper splits={chosen}", "it is the same as splits=0")
    assert (skipped["case"], skipped["reason"]) == told


def test_errors_of_a_sweep_name_what_was_typed() -> None:
    """Size stands for m, n and k, and nobody typed these; nor --set."""
    stage = find_stage("hopper")
    for text, message in (
        ("size=", "--sweep size= has no values; legal: size=VALUE,VALUE"),
        ("size=x", "--sweep size=x: 'x' is no value of size; legal: a whole number"),
        ("splits=-1", "unknown value for --sweep splits '-1'; legal: 0, 1, 2"),
    ):
        with pytest.raises(UsageError, match=message):
            swept(stage, text)


def test_points_of_one_problem_are_one_run() -> None:
    """Of another problem they are another: only times of one problem can be compared."""
    stage = find_stage("wmma-naive")
    found = [(stage, case) for case in swept(stage, "layout=tn,nn", "m=16,32")]
    assert [len(group) for group in grouped(found)] == [1, 1, 1, 1]
    same = [(stage, case) for case in swept(stage) * 3]
    assert [len(group) for group in grouped(same)] == [3]


def test_a_stages_own_options_are_timed_in_turn(gemm: Any) -> None:
    """Tried one by one, then one job holds all points; each is held against the fastest, and is checked."""
    name, option, values = _with_own_option()
    sweep = f"{option}={','.join(map(str, values))}"
    record, stand_in = gemm(request(64, 64, 64, "ints", stage=name, sweeps=(sweep,)))
    *tried, job = stand_in.jobs
    assert len(tried) == len(values)
    (timing,) = (step for step in job.steps if isinstance(step, Timing))
    own = [f"stage {i}" for i in range(len(values))]
    assert [side for side, _ in timing.sides][: len(own) + 2] == [*own, "cublas", "torch"]
    written = [call.arguments[2] for side, call in timing.sides if isinstance(call, Launch) and side in own]
    assert written == ["c", *(f"c.{i}" for i in range(1, len(values)))]
    table = record.result["sweep"]
    assert table["options"] == [option]
    assert [point["values"][option] for point in table["points"]] == list(values)
    verdicts = [point["verdict"] for point in table["points"]]
    assert verdicts == [*["slower"] * (len(values) - 1), "fastest"]  # the stand-in's last is the fastest
    assert [row["options"][option] for row in record.result["stages"]] == list(values)
    assert record.exit_code == ExitCode.OK
    record.command = ["gemm"]
    text = to_terminal(blocks(record.document()))
    assert "each point against the fastest" in text
    assert record.result["conclusion"].startswith(f"Fastest: {name} {option}={values[-1]}.")


def _with_own_option() -> tuple[str, str, tuple[Any, ...]]:
    """Return a stage with an option of its own that takes several values, all legal by themselves."""
    from ptxlab.experiments.registry import stage_entries

    for entry in stage_entries():
        stage = find_stage(entry.name)
        for name, each in stage.options().items():
            if name in GemmStage.options() or len(each.choices) < 2:
                continue
            legal = [case.params[name] for case in swept(stage, f"{name}={','.join(map(str, each.choices))}")]
            if len(legal) >= 2:
                return entry.name, name, tuple(legal[:3])
    return pytest.skip("no stage has an option of its own")


def test_sizes_may_be_lists(gemm: Any) -> None:
    """Each size is a run; points of different problems are not compared."""
    record, stand_in = gemm(request(16, 16, 16, sweeps=("k=16,32,64",), method={"samples": 0}))
    assert [row["k"] for row in record.result["stages"]] == [16, 32, 64]
    assert len(stand_in.jobs) == 3
    assert {point["verdict"] for point in record.result["sweep"]["points"]} == {None}


def test_a_check_times_nothing(gemm: Any) -> None:
    """Each side is called once, and every element is checked."""
    record, stand_in = gemm(request(48, 40, 64, method={"samples": 0}))
    (job,) = stand_in.jobs
    assert not any(isinstance(step, Timing) for step in job.steps)
    assert [step.library for step in job.steps if isinstance(step, CublasGemm)] == [LT, TORCH]
    (row,) = record.result["stages"]
    assert (row["verified"], row["milliseconds"], row["tflops"]) == (True, None, None)
    assert "not timed" in record.result["conclusion"]
    record.command = ["gemm"]
    assert "1920 of 1920" in to_terminal(blocks(record.document()))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (2.0, 1.0), (-0.5, 0.25)])
def test_factors_and_types_reach_the_device(gemm: Any, dtype: str, alpha: float, beta: float) -> None:
    """Where C is added to, it is filled, the stage called once more, and the check reads what was there."""
    options = {"dtype": dtype, "out": dtype, "alpha": alpha, "beta": beta}
    record, stand_in = gemm(request(33, 17, 40, "ints", options=options))
    (row,) = record.result["stages"]
    assert (row["verified"], row["alpha"], row["beta"]) == (True, alpha, beta)
    launches = [step for step in stand_in.jobs[0].steps if isinstance(step, Launch)]
    fills = [each.arguments[0] for each in launches if each.kernel == "fill"]
    assert fills == (["a", "b", "c.before", "c", "c.cublas", "c.torch"] if beta else ["a", "b"])
    stages = [each for each in launches if each.module.startswith("stage wmma-naive ")]
    assert len(stages) == bool(beta)
    (timing,) = (step for step in stand_in.jobs[0].steps if isinstance(step, Timing))
    library = dict(timing.sides)["cublas"]
    assert isinstance(library, CublasGemm)
    assert (library.alpha, library.beta) == (alpha, beta)


def test_cold_is_the_default_and_fills_the_l2_twice(gemm: Any) -> None:
    """Copies of A, B and C, of all sides; a hot run has one of each, and both are labelled."""
    for cold in (True, False):
        record, stand_in = gemm(request(256, 256, 256, "ints", method={"cold": cold}))
        (job,) = stand_in.jobs
        (row,) = record.result["stages"]
        assert row["l2"] == ("cold" if cold else "hot")
        copies = {buffer.name: buffer.copies for buffer in job.buffers if buffer.copies > 1}
        assert copies == (
            dict.fromkeys(("a", "b", "c", "c.cublas", "c.torch"), row["copies"]) if cold else {}
        )
        p = problem(256, 256, 256)
        assert (row["copies"] * p.nbytes >= 2 * H200.l2_bytes) == cold


def test_copies_are_as_many_as_it_takes() -> None:
    """One where the matrices alone fill the L2 twice, and no more than a graph can take in turn."""
    cold = Method()
    assert cold.copies(2 * H200.l2_bytes, H200.l2_bytes) == 1
    assert cold.copies(H200.l2_bytes, H200.l2_bytes) == 2
    assert cold.copies(H200.l2_bytes + 1, H200.l2_bytes) == 2
    assert cold.copies(64, H200.l2_bytes) == MOST_COPIES
    assert Method(cold=False).copies(64, H200.l2_bytes) == 1


def test_a_hot_run_faster_than_memory_is_flagged(gemm: Any) -> None:
    """Its bytes over its time are more than device memory delivers: the L2 answered."""
    from ptxlab.experiments.gemm.conclude import hot_note

    row = {"stage": "s", "problem": "p", "l2": "hot", "bytes_per_second": 5e12}
    assert "5.00 TB/s are more than device memory delivers (4.80 TB/s)" in hot_note(row, 4.8e12)
    assert hot_note(row | {"l2": "cold"}, 4.8e12) == hot_note(row, None) == ""
    assert hot_note(row | {"bytes_per_second": 4.7e12}, 4.8e12) == ""
    record, _ = gemm(request(16, 16, 16, method={"cold": False}))
    assert record.result["notes"] == []


def test_against_itself_nothing_differs(gemm: Any) -> None:
    """An A/A run: its verdict is noise, and no percentage of cuBLAS is told."""
    record, stand_in = gemm(request(16, 16, 16, "ints", method={"versus": "self"}))
    (row,) = record.result["stages"]
    assert (row["verdict"], row["percent_of_cublas"], row["cublas"]) == ("indistinguishable", None, None)
    assert row["percent_of_itself"] == pytest.approx(100)
    assert row["noise_floor_percent"] >= 0.1
    (timing,) = (step for step in stand_in.jobs[0].steps if isinstance(step, Timing))
    assert [side for side, _ in timing.sides] == ["stage 0", "self", "ceiling mma-sync", "ceiling wgmma"]


class Tiled(GemmStage):
    """A stage with tiles of 64x64 by warps of 32x32."""

    name = "tiled"

    def tile(self, case: Any) -> tuple[int, int, int]:
        """Return the tile."""
        del case
        return 64, 64, 16

    def warp_tile(self, case: Any) -> tuple[int, int]:
        """Return that of a warp."""
        del case
        return 32, 32

    def shared(self, case: Any) -> dict[str, int]:
        """Return none."""
        del case
        return {}


def shape(wrong: list[tuple[int, int]]) -> dict[str, Any]:
    """Return what the wrong elements of a 128 x 128 result have in common."""
    stage = Tiled()
    case = stage.case("sm_90a", m=128, n=128, k=16)
    found = Comparison(0, len(wrong), 0, 0, 0, None, [Element(row, col, 1, 0, 0, 0) for row, col in wrong])
    told = shape_of_wrong(stage, case, found)
    assert told is not None
    return told


def test_wrong_elements_show_their_shape() -> None:
    """One warp, one row of each fragment, one column; scattered ones have nothing in common."""
    one_warp = [(row, col) for row in range(96, 112) for col in range(32, 64)]
    assert shape(one_warp)["common"] == (
        "all wrong elements are in tile (1, 0) (of 4), warp of its tile (1, 1) (of 4)"
    )
    row_8 = [(row, col) for row in range(8, 128, 16) for col in range(128)]
    assert shape(row_8)["common"] == "all wrong elements are in row of its fragment 8 (of 16)"
    columns = [(row, col) for row in range(128) for col in range(128) if col % 8 in (2, 3)]
    assert shape(columns)["common"] == "all wrong elements are in column of its fragment 2 and 3 (of 8)"
    assert shape([(row, col) for row in range(128) for col in range(128)])["common"] == ""


def test_a_right_result_has_no_shape_of_wrong(gemm: Any) -> None:
    """And a wrong one tells it in the check's words."""
    record, _ = gemm(request(48, 40, 64))
    assert record.result["stages"][0]["wrong_shape"] is None
    record, _ = gemm(request(48, 40, 64), change=(31, 7, 1.0))
    assert record.result["stages"][0]["wrong_shape"]["listed"] == 1
    assert "all wrong elements are in tile (1, 0) (of 9)" in record.checks[-1]["detail"]


def test_shared_memory_that_does_not_fit_is_refused() -> None:
    """With the buffers, and what a block can have."""

    class Large(Tiled):
        def shared(self, case: Any) -> dict[str, int]:
            del case
            return {"A": 200_000, "B": 50_000}

    with pytest.raises(UsageError, match=r"250000 bytes of shared memory \(A 200000, B 50000\).*have 232448"):
        Large().case("sm_90a")


def test_the_check_of_a_scaled_result_is_exact_on_integers() -> None:
    """Alpha 2 and beta -1 lose nothing; a third of them is bounded, not exact."""
    exact = Check(problem(8, 8, 64, alpha=2.0, beta=-1.0), "ints", 0).bound  # type: ignore[arg-type]
    assert exact.scale_exact_limit == 2.0**24
    halves = Check(problem(8, 8, 64, alpha=0.5, beta=0.25), "ints", 0).bound  # type: ignore[arg-type]
    assert halves.scale_exact_limit == 2.0**22
    assert Check(problem(8, 8, 64), "ints", 0).bound.scale_unit == 0


def test_runs_may_be_repeated_in_both_orders(gemm: Any) -> None:
    """Three jobs, the second backwards; the spread and the effect of the order are told."""
    record, stand_in = gemm(request(16, 16, 16, repeat=3, order="reversed"))
    orders = []
    for job in stand_in.jobs:
        (timing,) = (step for step in job.steps if isinstance(step, Timing))
        orders.append([side for side, _ in timing.sides])
    forward = ["stage 0", "cublas", "torch", "ceiling mma-sync", "ceiling wgmma"]
    assert orders == [forward, forward[::-1], forward]
    told = record.result["stages"][0]["repeats"]
    assert [run["order"] for run in told["runs"]] == ["forward", "reversed", "forward"]
    assert (told["spread_percent"], told["order_effect_percent"]) == (0, 0)
    record.command = ["gemm"]
    assert "the opposite order makes +0.00 %" in to_terminal(blocks(record.document()))


@pytest.mark.parametrize(("slower", "flagged"), [(1.02, False), (1.04, True), (0.96, True)])
def test_an_order_that_matters_is_flagged(slower: float, flagged: bool) -> None:
    """From 3 % on; the spread is that of the slowest to the fastest."""
    row = dict.fromkeys(("tflops", "percent_of_cublas", "verdict", "clock_mhz", "power_w"))
    runs = [
        (order, row | {"milliseconds": {"median": median}, "verified": True})
        for order, median in (("forward", 1.0), ("reversed", slower), ("forward", 1.0))
    ]
    told = repeated(runs)
    assert told["order_effect_percent"] == pytest.approx(100 * (slower - 1))
    assert told["spread_percent"] == pytest.approx(100 * (max(1, slower) / min(1, slower) - 1))
    note = order_note({"stage": "s", "problem": "p", "repeats": told})
    assert bool(note) == flagged
    if flagged:
        assert ("more time" if slower > 1 else "less time") in note


def test_an_error_is_explained(gemm: Any) -> None:
    """Half an ulp of f16 is rounding of the output; a wrong result is not explained away."""
    record, _ = gemm(request(48, 40, 640, explain_error=True))
    (told,) = record.result["errors"]
    assert told["ulps"] <= 1
    assert told["of_output"] == told["ulp"] / 2
    assert told["sentence"].startswith("<= 1 ulp of f16 output; not a bug")
    record.command = ["gemm"]
    assert "the largest error" in to_terminal(blocks(record.document()))
    record, _ = gemm(request(48, 40, 64, explain_error=True), change=(0, 0, 9.0))
    assert "see the checks" in record.result["errors"][0]["sentence"]
    record, _ = gemm(request(48, 40, 64, "ints", explain_error=True))
    assert record.result["errors"][0]["sentence"] == "every element is the exact sum, rounded"
