"""The history of runs, and ``ptxlab gemm compare``: what was measured then and now, side by side."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gemm_stand_in import request

from ptxlab.errors import ExitCode, MissingError, ToolError, UsageError
from ptxlab.experiments.gemm.versus import compare_record
from ptxlab.render.show import blocks
from ptxlab.render.terminal import to_terminal

Run = Callable[..., Any]


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
