"""The command line of ``ptxlab gemm``: exit codes, one JSON document, every human form."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gemm_jobs import copied_kernels

from ptxlab import assets
from ptxlab.experiments import runner
from ptxlab.experiments.registry import find_stage, stage_entries

STAGE = ("gemm", "--stage", "wmma-naive")
Run = Callable[..., Any]
Damage = Callable[[dict[str, Any]], None]


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch, run_here: Run) -> Run:
    """Return a function that runs the command as on a machine without a driver."""
    monkeypatch.setattr(runner, "has_driver", lambda: False)
    return run_here


def test_without_a_gpu_it_says_what_it_can(without_gpu: Run) -> None:
    """Exit 3 with the explanation, the SASS and the checks in the document; not run, never 0."""
    done = without_gpu(*STAGE, "-m", "64", "-n", "48", "-k", "80", "--json")
    assert done.returncode == 3
    document = json.loads(done.stdout)
    assert document["error"]["exit"] == 3
    assert document["error"]["code"] == "no-device"
    assert "not run" in document["error"]["message"]
    assert document["backend"] == "model"
    assert document["params"]["m"] == 64
    assert document["result"]["stages"] == []
    (said,) = document["result"]["explanations"]
    assert said["sass"]["families"]["HMMA"] == 2
    assert said["work"]["flop"] == 2 * 64 * 48 * 80
    assert all(check["ok"] for check in document["checks"])
    assert len(document["checks"]) >= 3
    assert done.stderr.startswith("ptxlab: not run")


def test_the_same_for_people(without_gpu: Run) -> None:
    """The tables come before the message."""
    done = without_gpu(*STAGE)
    assert done.returncode == 3
    for part in ("occupancy and waves", "shared memory of a block", "33554432", "L1 data banks"):
        assert part in done.stdout
    assert "not run" in done.stderr


@pytest.mark.parametrize("form", ["table", "csv", "md"])
def test_explain_needs_no_gpu(without_gpu: Run, form: str) -> None:
    """It answers all that was asked: exit 0."""
    done = without_gpu(*STAGE, "--explain", "--format", form)
    assert (done.returncode, done.stderr) == (0, "")
    assert "wmma-naive" in done.stdout
    assert "989" in done.stdout


def test_explain_says_what_else_a_stage_can_do(without_gpu: Run) -> None:
    """Each option of its own, and its legal values."""
    asked = ("--stage", "wmma-warptile", "--explain", "--format", "csv")
    table = list(csv.reader(without_gpu("gemm", *asked).stdout.splitlines()))
    (told,) = (row for row in table if row[:1] == ["tile_k"])
    option = find_stage("wmma-warptile").options()["tile_k"]
    assert told == ["tile_k", option.help, ", ".join(map(str, option.choices))]


def test_explain_shows_how_the_blocks_of_a_plan_work(without_gpu: Run) -> None:
    """Options, clusters, blocks that stay, the instruction that multiplies, and clocks beside the limits."""
    done = without_gpu(
        *("gemm", "--stage", "hopper", "--explain", "--format", "csv"),
        *("--set", "cluster_shape=2x1", "--set", "splits=3"),
        *("--set", "roles=cooperative", "--set", "adding=memory"),
    )
    table = list(csv.reader(done.stdout.splitlines()))
    shown = {row[0]: row[1] for row in table if len(row) == 2}
    assert "cluster_shape=2x1" in shown["options"]
    assert shown["blocks of a cluster"] == "2"
    assert shown["starts while the kernel ahead still runs"] == "yes"
    assert shown["blocks"] == "132"
    assert "waves of pieces of work: the blocks stay" in shown
    assert any(name.startswith("warp instructions HGMMA.") for name in shown)
    assert not any("HMMA" in name for name in shown)
    assert "1830 MHz" in shown["place under the roofline"]
    (limits,) = (row for row in table if row[:1] == ["resource"])
    assert "at MHz" in limits


def test_what_never_ran_says_so(without_gpu: Run) -> None:
    """Where nothing was recorded of a stage, for whichever problem."""
    told = "is compiled and modelled, not run on any GPU yet"
    new = without_gpu("gemm", "--stage", "blackwell", "--explain", "--arch", "sm_100a")
    assert f"Note: blackwell {told}." in new.stdout
    assert told not in without_gpu(*STAGE, "--explain").stdout


def test_explain_follows_the_architecture(without_gpu: Run) -> None:
    """sm_80 speaks of an A100; an architecture without figures says so and still ends well."""
    done = without_gpu(*STAGE, "--explain", "--arch", "sm_80", "--json")
    assert json.loads(done.stdout)["result"]["explanations"][0]["machine"] == "NVIDIA A100-SXM4-80GB"
    shown = without_gpu(*STAGE, "--explain", "--arch", "sm_80").stdout
    assert "rate unknown on this GPU" in shown
    assert "expected to be limited" not in shown
    assert "expected to be limited by L1 data banks" in without_gpu(*STAGE, "--explain").stdout
    done = without_gpu(*STAGE, "--explain", "--arch", "sm_120")
    assert done.returncode == 0
    assert "no rates are known" in done.stdout


def test_list_shows_every_stage(run_here: Run) -> None:
    """Exit 0 without a GPU; stage, what it does, legal types; from the lowest rung up."""
    done = run_here("gemm", "--list", "--json")
    assert done.returncode == 0
    rows = json.loads(done.stdout)["result"]["available"]
    assert sorted(row["stage"] for row in rows) == sorted(entry.name for entry in stage_entries())
    assert [row["below"] for row in rows][:2] == ["", rows[0]["stage"]]
    for row in rows:
        assert row["summary"]
        assert not row["problem"]
        assert set(row["types"]) == {"dtype", "acc", "out", "layout"}
    assert rows[0]["stage"] in run_here("gemm", "--list").stdout


def test_the_ladder_explains_every_stage(without_gpu: Run) -> None:
    """One explanation a stage, from the lowest rung up; those of another chip are skipped."""
    done = without_gpu("gemm", "--ladder", "--explain", "--json")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    said = [each["stage"] for each in document["result"]["explanations"]]
    skipped = {each["case"]: each["reason"] for each in document["skipped"]}
    assert sorted([*said, *skipped]) == sorted(entry.name for entry in stage_entries())
    for name, reason in skipped.items():
        assert f"it is for {find_stage(name).only}" in reason
    places = {name: place for place, name in enumerate(said)}
    rungs = [find_stage(name) for name in said]
    assert all(places[rung.below] < places[rung.name] for rung in rungs if rung.below)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "one of --stage NAME, --ladder and --list"),
        (("--stage", "wmma-naive", "--list"), "one of --stage NAME, --ladder and --list"),
        (("--stage", "wmma-naive", "--explain", "--record"), "--explain measures nothing"),
        (("--stage", "wmma-nave"), "unknown stage 'wmma-nave'; legal: "),
        (("--stage", "wmma-naive", "-m", "0"), "-m 0 is no size; legal: 1 to"),
        (("--stage", "wmma-naive", "-k", "-3"), "-k -3 is no size; legal: 1 to"),
        (("--stage", "wmma-naive", "-n", "4k"), "-n"),
        (("--stage", "wmma-naive", "--layout", "row"), "legal: nn, nt, tn, tt"),
        (("--stage", "wmma-naive", "--out", "f64"), "legal: f16, bf16, f32"),
        (("--ladder", "--out", "f64"), "legal: f16, bf16, f32"),
        (("--stage", "hopper", "--dtype", "s8", "--acc", "f32"), "f32 is not for --dtype s8; legal: s32"),
        (("compare", "", ""), "[compare A B] has an empty word; Set two sides"),
        (("--stage", "wmma-naive", "--init", "random"), "random"),
        (("--stage", "wmma-naive", "--arch", "sm_91"), "unknown architecture 'sm_91'"),
        (("--stage", "wmma-naive", "--seed", "-1"), "--seed"),
        (("--stage", "wmma-naive", "-m", "--64"), "'--64' is no value for -m; legal: a whole number, 1 to"),
        (("--stage", "wmma-naive", "-m", "9" * 5000), "is no value for -m; legal: a whole number, 1 to"),
        (("--stage", "wmma-naive", "-m", "\u0663"), "is no value for -m; legal: a whole number, 1 to"),
        (("--stage", "wmma-naive", "-m", "64_0"), "'64_0' is no value for -m; legal: a whole number, 1 to"),
        (
            ("--stage", "hopper", "--sweep", "splits=-1"),
            "unknown value for --sweep splits '-1'; legal: 0, 1,",
        ),
        (("--stage", "wmma-naive", "--warmup", "inf"), "--warmup; legal: 0 to 86400"),
        (("--stage", "wmma-naive", "--warmup", "nan"), "--warmup; legal: 0 to 86400"),
        (("--stage", "wmma-naive", "--warmup", "99999999999"), "--warmup; legal: 0 to 86400"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    without_gpu: Run, arguments: tuple[str, ...], message: str
) -> None:
    """The message names the value and what would be legal."""
    done = without_gpu("gemm", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("ptxlab: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--sweep stages=4 --set stages=9", "--set stages and --sweep stages both give stages"),
        ("--sweep cluster-shape=2x1 --set cluster_shape=1x1", "both give cluster_shape"),
        ("--set l2=normal --set l2=normal", "--set l2 is given twice"),
        ("--sweep size=64 -m 32", "-m and --sweep size both give m"),
        ("--sweep size=64 --sweep k=32", "--sweep size and --sweep k both give k"),
        ("--set out=f32 --out f16", "--out and --set out both give out"),
        ("-k 64,128 --sweep k=16,32", "-k and --sweep k both give k"),
        ("--cold --warm", "--cold and --warm are opposites"),
        ("--explain --check", "--explain runs nothing, and --check runs the stage"),
        ("--check --vs self --repeat 5", "--repeat, --vs: --check measures nothing"),
        ("--explain --explain-error --warmup 1", "--warmup, --explain-error: --explain measures nothing"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    without_gpu: Run, arguments: str, message: str
) -> None:
    """None of them silently wins."""
    done = without_gpu("gemm", "--stage", "hopper", *arguments.split())
    assert done.returncode == 2
    assert message in done.stderr


def test_what_set_and_sweep_give_has_no_other_value_in_the_parameters(without_gpu: Run) -> None:
    """Not the default of the option that the command line has for it."""
    done = without_gpu(*STAGE, "--explain", "--json", "--sweep", "size=64", "--set", "dtype=bf16")
    params = json.loads(done.stdout)["params"]
    assert (params["sweep"], params["set"], params["layout"]) == (["size=64"], ["dtype=bf16"], "tn")
    assert not params.keys() & {"m", "n", "k", "dtype"}


def test_an_unknown_stage_is_answered_with_the_nearest(without_gpu: Run) -> None:
    """And the document holds the error."""
    done = without_gpu("gemm", "--stage", "wmma-nave", "--json")
    error = json.loads(done.stdout)["error"]
    assert (error["exit"], error["hint"]) == (2, "did you mean wmma-naive?")


def test_a_chip_that_is_too_old_is_exit_3(without_gpu: Run) -> None:
    """A stage not for this chip."""
    done = without_gpu(*STAGE, "--arch", "sm_75")
    assert done.returncode == 3
    assert "is not for sm_75" in done.stderr


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the kernels that a test may damage."""
    folder = copied_kernels(tmp_path)
    monkeypatch.setattr(assets, "kernels_folder", lambda: folder)
    return folder


def lose(name: str) -> Damage:
    """Return what takes a field from the first row."""

    def damage(variants: dict[str, Any]) -> None:
        row = next(iter(variants.values()))["result"]
        del (row if name in row else row["milliseconds"])[name]

    return damage


def give(part: str, **fields: Any) -> Damage:
    """Return what puts other values into a part of the first row."""
    return lambda variants: next(iter(variants.values()))[part].update(fields)


def rename(variants: dict[str, Any]) -> None:
    """Call the first row after an architecture that does not exist."""
    variants["sm_1 default"] = variants.pop(next(iter(variants)))


DAMAGES = {
    "no tflops": lose("tflops"),
    "no stage": lose("stage"),
    "no percent": lose("percent_of_cublas"),
    "no milliseconds": lose("milliseconds"),
    "no median": lose("median"),
    "text for a number": give("result", tflops="fast"),
    "a number for text": give("result", layout=5),
    "an architecture that is none": rename,
    "a row that is none": lambda variants: variants.update({"sm_90a default": None}),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_recording_is_named(without_gpu: Run, kernels: Path, damage: Damage) -> None:
    """Exit 4 with the file, what is wrong with it and the cure; the list goes on and says it in the row."""
    file = kernels / "gemm" / "wmma-naive" / "recordings" / "nvidia-h200.json"
    text = json.loads(file.read_text(encoding="utf-8"))
    damage(text["variants"])
    file.write_text(json.dumps(text), encoding="utf-8")
    _check_damage_is_told(without_gpu, file)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\0", '{"schema": "ptxlab.recording/1"}'])
def test_a_recording_that_is_none_is_named(without_gpu: Run, kernels: Path, text: str) -> None:
    """No JSON, or not of that kind."""
    file = kernels / "gemm" / "wmma-naive" / "recordings" / "nvidia-h200.json"
    file.write_text(text, encoding="utf-8")
    _check_damage_is_told(without_gpu, file)


def _check_damage_is_told(run: Run, file: Path) -> None:
    done = run(*STAGE, "-m", "64", "-n", "64", "-k", "64")
    assert done.returncode == 4
    first, hint = done.stderr.splitlines()
    assert first.startswith(f"ptxlab: {file} is damaged: ")
    assert hint.startswith("hint: record it again")
    listed = run("gemm", "--list", "--json")
    assert listed.returncode == 0
    (row,) = json.loads(listed.stdout)["result"]["available"]
    assert row["problem"].startswith(f"{file} is damaged: ")
    assert row["types"]


def test_a_fault_of_a_stage_is_told_with_its_line(without_gpu: Run, kernels: Path) -> None:
    """In the words that a user's probe gets; the other stages are explained."""
    other = kernels / "gemm" / "other"
    shutil.copytree(kernels / "gemm" / "wmma-naive", other)
    file = other / "stage.py"
    text = file.read_text(encoding="utf-8")
    assert text.count("return 32\n") == 1
    file.write_text(text.replace("return 32\n", "return 1 // 0\n"), encoding="utf-8")
    done = without_gpu("gemm", "--ladder", "--explain", "-m", "64", "-n", "64", "-k", "64", "--json")
    assert done.returncode == 4
    document = json.loads(done.stdout)
    assert document["error"]["message"].startswith(f"{file}:")
    assert "ZeroDivisionError" in document["error"]["message"]
    assert [each["stage"] for each in document["result"]["explanations"]] == ["wmma-naive"]


def test_it_runs_in_a_process_of_its_own(run_cli: Run) -> None:
    """The same list from the command line."""
    done = run_cli("gemm", "--list", "--format", "csv")
    assert done.returncode == 0
    assert "wmma-naive" in done.stdout
