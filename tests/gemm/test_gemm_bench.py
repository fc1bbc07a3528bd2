"""The bench: sweeps, cold and hot, the history and its comparison, pictures, the shape of what is wrong."""

from __future__ import annotations

import errno
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gemm_jobs import problem
from gemm_stand_in import H200, request

from ptxlab.device.job import LT, TORCH, CublasGemm, Launch, Timing
from ptxlab.errors import ExitCode, MissingError, ToolError, UsageError
from ptxlab.experiments import runner
from ptxlab.experiments.gemm import GemmStage, run
from ptxlab.experiments.gemm.check import Check
from ptxlab.experiments.gemm.measure import MOST_COPIES, Method
from ptxlab.experiments.gemm.reference import Comparison, Element
from ptxlab.experiments.gemm.repeat import order_note, repeated
from ptxlab.experiments.gemm.sweep import grouped, points
from ptxlab.experiments.gemm.versus import compare_record
from ptxlab.experiments.gemm.wrong import shape_of_wrong
from ptxlab.experiments.record import Record
from ptxlab.experiments.registry import ceiling_entries, find_stage
from ptxlab.experiments.values import value_of, values_of_sweep
from ptxlab.render.plot import (
    apart,
    clocks,
    drawn,
    limits,
    marks_of,
    numbers,
    remarks,
    save_plot,
    series,
    style_of,
    unrecorded,
    unverified,
    varied,
)
from ptxlab.render.show import blocks
from ptxlab.render.terminal import to_terminal

Run = Callable[..., Any]


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


def test_every_run_is_kept(gemm: Any, history: Path) -> None:
    """One JSON line a row: card, driver, time, and what was measured; a check alone leaves none."""
    gemm(request(16, 16, 16, sweeps=("k=16,32",)))
    gemm(request(16, 16, 16, method={"samples": 0}))
    lines = [json.loads(line) for line in history.read_text(encoding="utf-8").splitlines()]
    assert [line["k"] for line in lines] == [16, 32]
    assert all((line["device"], line["driver"]) == ("NVIDIA H200", "580.159") for line in lines)
    assert all(line["milliseconds"]["median"] > 0 and line["time"][:2] == "20" for line in lines)


def test_a_history_that_cannot_be_kept_is_a_note(
    gemm: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The result stands all the same."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("PTXLAB_HISTORY", str(tmp_path / "file" / "history"))
    record, _ = gemm(request(16, 16, 16))
    assert any("the history was not kept" in note for note in record.result["notes"])
    assert record.exit_code == ExitCode.OK


def line(median: float, **more: Any) -> dict[str, Any]:
    """Return a line of a history, its interval half a percent to each side."""
    times = {"median": median, "low": median * 0.995, "high": median * 1.005}
    point = {"stage": "s", "m": 64, "n": 64, "k": 64, "dtype": "f16", "acc": "f32", "out": "f16"}
    rest = {"layout": "tn", "init": "normal", "l2": "cold", "tflops": 1 / median, "clock_mhz": 1700}
    card = {"time": "2026-11-29T10:00:00", "device": "NVIDIA H200", "driver": "580", "cuda": "13.0"}
    return point | rest | card | {"milliseconds": times, "noise_floor_percent": 0.5} | more


def write(file: Path, *lines: dict[str, Any]) -> None:
    """Write a history."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")


@pytest.mark.parametrize(
    ("times", "verdict"),
    [(0.9, "faster"), (1.1, "slower"), (1.012, "indistinguishable"), (1.0, "indistinguishable")],
)
def test_two_days_side_by_side(history: Path, times: float, verdict: str) -> None:
    """By date; a difference counts when the intervals are further apart than the noise."""
    write(history, line(1.0), line(times, time="2026-11-30T10:00:00"))
    record = compare_record("2026-11-29", "2026-11-30")
    (row,) = record.result["compared"]
    assert (row["verdict"], row["ratio"]) == (verdict, pytest.approx(times))
    record.command = ["gemm", "compare", "2026-11-29", "2026-11-30"]
    assert verdict in to_terminal(blocks(record.document()))


@pytest.mark.parametrize("sides", [(True, False), (False, True)])
def test_a_side_that_is_not_verified_is_not_compared(history: Path, sides: tuple[bool, bool]) -> None:
    """No verdict, however fast it is; the table and the conclusion say so."""
    first, second = sides
    write(history, line(1.0, verified=first), line(0.5, driver="590", verified=second))
    record = compare_record("580", "590")
    (row,) = record.result["compared"]
    assert row["verdict"] is row["ratio"] is None
    assert "B is faster in 0" in record.result["conclusion"]
    assert "1 are not compared: a side is not verified." in record.result["conclusion"]
    record.command = ["gemm", "compare", "580", "590"]
    shown = to_terminal(blocks(record.document()))
    assert "B verified" in shown
    assert "NO" in shown


def test_drivers_cards_and_files_are_sides_too(history: Path, tmp_path: Path) -> None:
    """The newest row of a point counts; only points that both sides have are compared."""
    write(history, line(2.0), line(1.0), line(1.2, driver="590"), line(3.0, driver="590", m=128))
    (row,) = compare_record("580", "590").result["compared"]
    assert (row["a"]["milliseconds"]["median"], row["b"]["milliseconds"]["median"]) == (1.0, 1.2)
    document = {"result": {"stages": [line(0.5)]}, "environment": {"device": {"name": "other"}}}
    (tmp_path / "b.json").write_text(json.dumps(document), encoding="utf-8")
    (row,) = compare_record("580", str(tmp_path / "b.json")).result["compared"]
    assert row["verdict"] == "faster"
    assert compare_record(str(history), str(history)).result["compared"]


def test_a_recording_is_a_side(history: Path, tmp_path: Path) -> None:
    """As ptxlab keeps it beside a stage."""
    kept = {"date": "2026-11-30", "device": "NVIDIA H200", "environment": {"driver": "580"}}
    file = tmp_path / "nvidia-h200.json"
    file.write_text(json.dumps(kept | {"variants": {"v": {"result": line(1.0)}}}), encoding="utf-8")
    write(history, line(1.0))
    assert compare_record("2026-11-29", str(file)).result["compared"][0]["verdict"] == "indistinguishable"


def test_what_cannot_be_compared_is_told(history: Path, tmp_path: Path) -> None:
    """No such side is wrong usage, nothing in common is exit 3."""
    with pytest.raises(UsageError, match="'yesterday' is no file, and no day, driver or device"):
        compare_record("yesterday", "today")
    write(history, line(1.0), line(1.0, driver="590", k=128))
    with pytest.raises(MissingError, match="nothing to compare: no stage ran the same problem") as caught:
        compare_record("580", "590")
    assert not caught.value.hint
    (tmp_path / "x").write_text("[1]", encoding="utf-8")
    with pytest.raises(ToolError, match="holds no results of gemm"):
        compare_record(str(tmp_path / "x"), "580")
    unmeasured = {"result": {"stages": []}, "environment": {"device": None}}
    (tmp_path / "x").write_text(json.dumps(unmeasured), encoding="utf-8")
    with pytest.raises(MissingError, match=r"nothing to compare: .*x holds no measurement"):
        compare_record(str(tmp_path / "x"), "580")


@pytest.mark.parametrize(
    "text",
    [
        '{"result": null}',
        '{"variants": {}}',
        '{"variants": [], "environment": {}}',
        '{"result": {"stages": []}}',
        '{"result": {"stages": 3}, "environment": {}}',
        '{"stage": "x", "milliseconds": 3}',
        json.dumps(line(1.0, stage=None)),
        json.dumps(line(1.0, m=[64])),
        json.dumps(line(1.0, options=[])),
        json.dumps(line(1.0, options={"stages": {}})),
        json.dumps(line(1.0, clock_mhz="fast")),
        json.dumps(line(1.0, power_w=10**400)),
        json.dumps(line(1.0, tflops=None)),
        json.dumps(line(1.0, tflops=-1)),
        json.dumps(line(1.0, tflops=float("inf"))),
        json.dumps(line(1.0, verified="no")),
        json.dumps({"result": {"stages": [line(1.0, tflops=None)]}, "environment": {"device": None}}),
        json.dumps(line(1.0, milliseconds={"low": 0, "median": 0, "high": 0})),
        json.dumps(line(float("nan"))),
        json.dumps(line(1.0, milliseconds={"low": 3.0, "median": 2.0, "high": 1.0})),
        "[" * 200_000,
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    """Whatever is in it: a file that somebody wrote is no fault of ptxlab's."""
    (tmp_path / "x").write_text(text, encoding="utf-8")
    with pytest.raises(ToolError, match=r"x(:1)? is damaged: "):
        compare_record(str(tmp_path / "x"), str(tmp_path / "x"))


def test_a_history_without_a_sound_line_is_damaged(history: Path) -> None:
    """It is what is no text, or holds something else: the first line is named."""
    write(history, line(1.0, milliseconds=3))
    with pytest.raises(ToolError, match=f"{history}:1 is damaged: it has no milliseconds such"):
        compare_record("580", "580")
    history.write_bytes(b"\xff\xfe{}")
    with pytest.raises(ToolError, match="is damaged: 'utf-8'"):
        compare_record("580", "580")


def test_damaged_lines_are_left_out(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One warning names them, however often the history is asked; all others count."""
    write(history, line(1.0), line(1.2, driver="590"))
    sound = history.read_bytes()
    first, second = sound.splitlines()
    half = first[:40]
    history.write_bytes(b"\n".join([first, half + second, b"\xff", b"3", b'{"stage": "s"}', second, half]))
    (row,) = compare_record("580", "590").result["compared"]
    assert row["ratio"] == pytest.approx(1.2)
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(f"ptxlab: warning: damaged lines of {history} are left out: 2, 3, 4, 5, 7 (2: ")
    history.write_bytes(b"{\n" * 100 + sound)
    compare_record("580", "590")
    assert " are left out: 1, 2, 3, 4, 5, 6, 7, 8 and 92 more (1: " in capsys.readouterr().err


def test_a_half_written_line_does_not_take_the_next_one_with_it(gemm: Any, history: Path) -> None:
    """A full disk leaves one: what is added stands on a line of its own."""
    gemm(request(16, 16, 16))
    whole = history.read_bytes()
    history.write_bytes(whole[:-20])
    gemm(request(16, 16, 32))
    half, added = history.read_bytes().splitlines()
    assert half == whole[:-20]
    assert json.loads(added)["k"] == 32


def test_the_history_is_read_once(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For both sides: it may be long."""
    write(history, line(1.0), line(1.2, driver="590"))
    read = Path.read_bytes
    asked: list[Path] = []
    monkeypatch.setattr(Path, "read_bytes", lambda file: asked.append(file) or read(file))
    assert compare_record("580", "590").result["compared"]
    assert asked == [history]


def test_a_folder_in_the_place_of_the_history_cannot_be_read(history: Path) -> None:
    """Exit 3, as of each file that cannot be read; where there is nothing no day is known."""
    history.mkdir(parents=True)
    with pytest.raises(MissingError, match=f"{history} cannot be read: Is a directory"):
        compare_record("580", "580")
    history.rmdir()
    with pytest.raises(UsageError, match="no day, driver or device"):
        compare_record("580", "580")


def test_a_history_that_may_not_be_read_is_missing(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever has no permission: exit 3."""
    write(history, line(1.0))

    def refuse(*_: object, **__: object) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(MissingError, match="cannot be read: Permission denied"):
        compare_record("580", "580")


def test_what_can_be_compared_is_said(history: Path) -> None:
    """Files, where the history does not know a name; and not one rung with another."""
    write(history, line(1.0))
    with pytest.raises(UsageError) as caught:
        compare_record("yesterday", "580")
    known, _, path = caught.value.hint.partition("; files work, too: of gemm --json, or recordings such as ")
    assert known == "it knows 2026-11-29, 580, NVIDIA H200"
    assert compare_record(path, path).result["compared"]
    write(history, line(1.0), line(1.0, driver="590", stage="t"))
    with pytest.raises(MissingError, match=r"580 has 1 rows of s and 590 has 1 rows of t") as apart:
        compare_record("580", "590")
    assert "the same stage" in apart.value.hint


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compare", "a"), "compare takes two sides, and got 1"),
        (("compar", "a", "b"), "unknown gemm command 'compar'; legal: compare"),
        (("compare", "a", "b", "-m", "3"), "-m: compare runs no stage"),
        (("--stage", "wmma-naive", "-k", "16,x"), "'x' is no value for -k; legal: a whole number"),
        (("--stage", "wmma-naive", "--set", "tile=3"), "unknown option of wmma-naive 'tile'"),
        (("--stage", "wmma-warptile", "--set", "tile_k=7"), "unknown value for --set tile_k '7'; legal: 16"),
        (("--stage", "wmma-warptile", "--dtype", "f8"), "unknown value for --dtype 'f8'; legal: f16, bf16"),
        (("--stage", "wmma-naive", "--check", "--record"), "--check measures nothing"),
        (("--stage", "wmma-naive", "--explain", "--plot", "x.png"), "--explain measures nothing"),
        (("--stage", "wmma-naive", "--beta", "inf"), "--beta inf is no factor"),
        (("--stage", "wmma-naive", "--dtype", "bf16", "--acc", "f16"), "--acc f16 is not for --dtype bf16"),
    ],
)
def test_wrong_usage(run_here: Run, words: tuple[str, ...], message: str) -> None:
    """One line, exit 2."""
    done = run_here("gemm", *words)
    assert done.returncode == 2
    assert message in done.stderr


def test_lines_of_a_plot(gemm: Any) -> None:
    """Each stage by size, and what ran beside them: the libraries, and the ceiling."""
    record, _ = gemm(request(16, 16, 16, "ints", sweeps=("size=16,32",)))
    rows = record.result["stages"]
    assert varied(rows) == "m = n = k"
    lines = series(rows, lambda row: float(row["m"]))
    assert set(lines) == {"wmma-naive"}
    assert [x for x, _ in lines["wmma-naive"]] == [16, 32]
    beside = limits(rows, lambda row: float(row["m"]))
    assert set(beside) == {"cuBLAS 13.1", "torch 2.11", "ceiling of mma-sync"}
    assert beside["cuBLAS 13.1"][0][1] == pytest.approx(4 * lines["wmma-naive"][0][1], rel=1e-3)
    other = [row | {"dtype": "bf16"} for row in rows]
    assert set(series(rows + other, lambda row: float(row["m"]))) == {"wmma-naive f16", "wmma-naive bf16"}
    assert varied(rows[:1]) == ""


def test_options_tell_points_of_one_problem_apart(gemm: Any) -> None:
    """Only those that differ there: a plan that changes with the size is one line."""
    record, _ = gemm(request(16, 16, 16, "ints", sweeps=("size=16,32",)))
    small, large = record.result["stages"]
    plans = [small | {"options": {"block": 1, "group": 8}}, large | {"options": {"block": 2, "group": 8}}]
    assert set(series(plans, lambda row: float(row["m"]))) == {"wmma-naive"}
    both = [*plans, large | {"options": {"block": 3, "group": 8}}]
    names = [f"wmma-naive block={block}" for block in (1, 2, 3)]
    assert list(series(both, lambda row: float(row["m"]))) == names


def test_lines_beside_the_stages_say_their_types(gemm: Any) -> None:
    """Where several are shown: one of another type is no measure. A ceiling has the inputs' type alone."""
    record, _ = gemm(request(16, 16, 16, "ints"))
    (row,) = record.result["stages"]
    other = row | {"dtype": "e4m3", "out": "bf16", "peak": row["peak"] | {"dtype": "e4m3", "tflops": 9.0}}
    beside = limits([row, other], lambda _: 0.0)
    assert beside["ceiling of mma-sync e4m3"] == [(0.0, 9.0)]
    assert beside["ceiling of mma-sync f16"] == [(0.0, row["peak"]["tflops"])]
    assert {"cuBLAS 13.1 f16 f16", "cuBLAS 13.1 e4m3 bf16"} <= set(beside)


def test_a_ladder_is_drawn_in_one_type(gemm: Any) -> None:
    """That of most rungs, and what is left out is said; not where a type or one stage was asked for."""
    record, _ = gemm(request(16, 16, 16, "ints", sweeps=("size=16,32",)))
    document = record.document()
    small, large = document["result"]["stages"]
    other = small | {"stage": "hopper-fp8", "dtype": "e4m3"}
    document["result"]["stages"].insert(0, other)
    ladder = document | {"params": document["params"] | {"stage": None, "sweep": ["size=16,32"]}}
    assert drawn(ladder) == [small, large]
    assert remarks(ladder) == ["without hopper-fp8 e4m3: the others are f16"]
    by_type = document | {"params": ladder["params"] | {"sweep": ["dtype=f16,e4m3"]}}
    for several in (document, by_type):
        assert drawn(several) == [other, small, large]
        assert remarks(several) == []


def test_what_is_not_recorded_is_said(gemm: Any) -> None:
    """By what tells a point from the others; a problem of which nothing is recorded is told as one."""
    record, _ = gemm(request(16, 16, 16, "ints"))
    document = record.document()
    (row,) = document["result"]["stages"]
    (asked,) = document["result"]["explanations"]
    points = [asked | {"options": {"l2": l2, "group": 8}} for l2 in ("normal", "keep-a")]
    recorded = row | {"options": points[0]["options"], "date": "2026-11-30", "stale": False}
    document["result"] |= {"stages": [], "recorded": [recorded], "explanations": points}
    assert unrecorded(document) == ["wmma-naive l2=keep-a"]
    assert remarks(document) == ["without wmma-naive l2=keep-a: not recorded"]
    assert list(series(drawn(document), lambda _: 0.0, points)) == ["wmma-naive l2=normal"]
    larger = [each | {"problem": "32x32x32 f16 tn, f32 accumulate"} for each in points]
    document["result"]["explanations"] = [*points, *larger]
    assert unrecorded(document) == ["wmma-naive l2=keep-a at 16x16x16 f16", "all of 32x32x32 f16"]
    many = [asked | {"options": {"group": group}} for group in range(9)]
    first = recorded | {"options": many[0]["options"]}
    document["result"] |= {"recorded": [first], "explanations": many}
    (told,) = remarks(document)
    assert told.endswith("wmma-naive group=6, 2 more: not recorded")


def test_a_ceiling_at_several_clocks_is_no_line(gemm: Any, tmp_path: Path) -> None:
    """Its points are marks, and the caption says at which clocks they were reached."""
    record, _ = gemm(request(16, 16, 16, "ints", sweeps=("size=16,32",)))
    small, large = record.result["stages"]
    for mhz, found in ((1740.0, {}), (1360.0, {"ceiling of mma-sync": (1360.0, 1700.0)})):
        small["peak"] |= {"sm_mhz": 1700.0}
        large["peak"] |= {"sm_mhz": mhz}
        assert clocks([small, large]) == found
    large["throttle"] = ["sw_power_cap"]
    marked = picture(record, tmp_path)
    large["peak"]["sm_mhz"] = 1700.0
    joined = picture(record, tmp_path)
    told = (
        "crosses: ceiling of mma-sync at the power limit, each at the clock of its own run (1360 to 1700 MHz)"
    )
    assert (told in marked, "clock of its own run" in joined) == (True, False)
    assert joined.count("stroke-dasharray") == marked.count("stroke-dasharray") + 1


def picture(record: Record, folder: Path) -> str:
    """Return the picture of a run as an SVG."""
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip('matplotlib is not here: pip install "ptxlab[plot]"')
    save_plot(record.document(), folder / "x.svg")
    return (folder / "x.svg").read_text(encoding="utf-8")


def test_a_line_looks_the_same_in_every_picture() -> None:
    """By the name of the library or ceiling, whatever its version and types; no two look the same."""
    names = ["cuBLAS 13.1.0.3 (torch 2.11)", "cuBLASLt 13.1.0 (nvmath-python 1.0.0)"]
    names += [f"ceiling of {entry.name}" for entry in ceiling_entries()]
    styles = [style_of(name)["linestyle"] for name in names]
    assert len(set(styles)) == len(names) > 2
    assert [style_of(f"{name} e4m3 bf16")["linestyle"] for name in names] == styles
    assert style_of("cuBLAS (torch 3.0)") == style_of(names[0])
    marks = [marks_of(name)["marker"] for name in names[2:]]
    assert len(set(marks)) == len(marks)


def test_one_bar_is_as_wide_as_others(gemm: Any, tmp_path: Path) -> None:
    """A picture of one point is lower than that of nine."""
    record, _ = gemm(request(16, 16, 16, "ints"))
    heights = [height(picture(record, tmp_path))]
    (row,) = record.result["stages"]
    record.result["stages"] = [row | {"stage": f"s{rank}"} for rank in range(9)]
    heights.append(height(picture(record, tmp_path)))
    assert 72 < heights[0] < heights[1] / 1.5


def height(svg: str) -> float:
    """Return the height of an SVG in points."""
    return float(svg.partition('height="')[2].partition("pt")[0])


def test_without_a_gpu_recordings_are_drawn(gemm: Any) -> None:
    """Those of just what was asked for, by the kernel of today: problem, options, data, and state of L2."""
    record, _ = gemm(request(16, 16, 16, "ints"))
    document = record.document()
    (row,) = drawn(document)
    recorded = row | {"date": "2026-11-30", "device": "NVIDIA H200", "stale": False}
    others: list[dict[str, Any]] = [
        {"stale": True},
        {"l2": "hot"},
        {"init": "normal"},
        {"problem": "other"},
        {"options": {"x": 1}},
    ]
    document["result"] |= {"stages": [], "recorded": [recorded, *(recorded | other for other in others)]}
    assert drawn(document) == [recorded]


def test_what_is_not_verified_is_not_drawn(gemm: Any, tmp_path: Path) -> None:
    """Neither a stage nor a library, timed or recorded: how long a wrong result took says nothing."""
    record, _ = gemm(request(16, 16, 16, "ints", sweeps=("size=16,32",)))
    document = record.document()
    small, large = document["result"]["stages"]
    small["verified"] = False
    assert drawn(document) == [large]
    assert unverified(document) == ["wmma-naive 16x16x16"]
    large["libraries"][0]["verified"] = False
    beside = limits([large], lambda row: float(row["m"]))
    assert large["libraries"][0]["name"].partition(", ")[0] not in beside
    large["verified"] = False
    with pytest.raises(MissingError, match="no result is verified"):
        save_plot(document, tmp_path / "x.svg")
    recorded = small | {"date": "2026-11-30", "device": "NVIDIA H200", "stale": False}
    document["result"] |= {"stages": [], "recorded": [recorded]}
    assert drawn(document) == []


@pytest.mark.parametrize(
    ("size", "note"),
    [("4096", "x.svg shows recordings: nothing ran here"), ("16", "x.svg is not drawn: nothing was timed")],
)
def test_a_run_without_a_gpu_says_what_its_picture_shows(
    run_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str, note: str
) -> None:
    """It still ends with 3: nothing was measured."""
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip('matplotlib is not here: pip install "ptxlab[plot]"')
    monkeypatch.setattr(runner, "has_driver", lambda: False)
    monkeypatch.chdir(tmp_path)
    done = run_here("gemm", "--stage", "wmma-naive", "-m", size, "--plot", "x.svg")
    assert (done.returncode, Path("x.svg").is_file()) == (3, size == "4096")
    assert note in " ".join(done.stdout.split())


def test_without_matplotlib_the_answer_is_there(
    run_here: Run, gemm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without --plot, as tables and as a document; then the picture that is missing, and exit 3."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    measured, _ = gemm(request(16, 16, 16, "ints"))
    monkeypatch.setattr(run, "run_gemm", lambda *_: measured)
    command = ("gemm", "--stage", "wmma-naive", "-m", "16")
    plain, drawn = run_here(*command), run_here(*command, "--plot", "x.svg")
    assert (plain.returncode, drawn.returncode) == (0, 3)
    assert drawn.stdout == plain.stdout
    assert drawn.stderr == 'ptxlab: matplotlib is not here\nhint: pip install "ptxlab[plot]"\n'
    document = json.loads(run_here(*command, "--plot", "x.svg", "--json").stdout)
    assert document["error"]["message"] == "matplotlib is not here"
    assert document["result"] == json.loads(json.dumps(measured.result))


def test_without_matplotlib_and_gpu_both_are_said(run_here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside what was recorded: the run's own failure comes first, and its code stays."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(runner, "has_driver", lambda: False)
    done = run_here("gemm", "--stage", "wmma-naive", "--plot", "x.svg", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["error"]["code"]) == (3, "no-device")
    assert document["result"]["recorded"]
    why = "x.svg is not drawn: matplotlib is not here"
    assert why in document["result"]["notes"]
    assert why in document["error"]["message"]
    assert "not run: " in done.stderr
    assert 'pip install "ptxlab[plot]"' in done.stderr


@pytest.mark.parametrize(
    ("heights", "moved"),
    [
        ([0, 5, 9], [0, 5, 9]),
        ([0, 9, 9], [0, 8, 10]),
        ([4, 4, 4, 20], [2, 4, 6, 20]),
        ([0, 3, 3, 3], [-0.75, 1.25, 3.25, 5.25]),
        ([], []),
    ],
)
def test_names_of_lines_stand_apart(heights: list[float], moved: list[float]) -> None:
    """At least a gap of 2, around the ends of lines that are closer, in the same order."""
    assert apart(heights, 2) == pytest.approx(moved)


def test_the_numbers_of_a_plot_are_text(gemm: Any) -> None:
    """A line for each line of the picture, with sizes where it goes along them."""
    record, _ = gemm(request(16, 16, 16, "ints", sweeps=("size=16,32",)))
    rows = record.result["stages"]
    for row, tflops in zip(rows, (1.23, 4.56), strict=True):
        row["tflops"], row["libraries"] = tflops, [row["libraries"][0] | {"tflops": 2.0, "name": "library"}]
        row["peak"] = None
    assert numbers(rows) == "wmma-naive: 1.2 at 16, 4.6 at 32\nlibrary: 2.0 at 16, 2.0 at 32"
    assert numbers(rows[:1]) == "wmma-naive: 1.2\nlibrary: 2.0"


@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_a_plot_is_a_picture(gemm: Any, tmp_path: Path, form: str) -> None:
    """By size, and of one problem; the same rows give the same file."""
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip('matplotlib is not here: pip install "ptxlab[plot]"')
    from ptxlab.render.plot import check_plot

    for sweeps in ((), ("size=16,32",)):
        record, _ = gemm(request(16, 16, 16, "ints", sweeps=sweeps))
        file = tmp_path / f"plot.{form}"
        check_plot(file)
        save_plot(record.document(), file)
        first = file.read_bytes()
        assert first.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[form])
        save_plot(record.document(), file)
        assert file.read_bytes() == first


def test_a_plot_of_another_format_is_refused() -> None:
    """Before anything is measured."""
    from ptxlab.render.plot import check_plot

    with pytest.raises(UsageError, match="unknown format of a plot 'gif'; legal: png, svg, pdf"):
        check_plot(Path("x.gif"))


def test_a_plot_that_cannot_be_written_is_told_first(run_here: Run, tmp_path: Path) -> None:
    """Before anything is compiled or measured for it."""
    file = tmp_path / "no" / "x.png"
    done = run_here("gemm", "--stage", "wmma-naive", "--plot", str(file))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"ptxlab: cannot write {file}: {file.parent} is no folder that you can")


def test_a_plot_is_replaced_whole(gemm: Any, tmp_path: Path) -> None:
    """Who has the old picture open keeps it as it was."""
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip('matplotlib is not here: pip install "ptxlab[plot]"')
    file, old = tmp_path / "plot.svg", tmp_path / "old.svg"
    file.write_text("old")
    old.hardlink_to(file)
    record, _ = gemm(request(16, 16, 16, "ints"))
    save_plot(record.document(), file)
    assert (old.read_text(), file.read_text()[:5]) == ("old", "<?xml")
    assert set(tmp_path.glob("*.svg*")) == {file, old}


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
