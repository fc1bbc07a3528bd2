"""Every number of README.md about GEMMs comes from a recording, and so does its picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import readme_hopper
import readme_ladder
import readme_rows
from readme_ladder import PICTURE, README, written

from ptxlab.render.plot import numbers

Row = dict[str, Any]
Record = Callable[..., None]

SAID = "NVIDIA GPU, driver 600.1, 2026-12-01, 1500 to 1700 MHz."


def row(m: int, n: int, k: int, *, dtype: str = "bf16", l2: str = "cold", **more: object) -> Row:
    """Return what a recording says of a problem, as far as README.md quotes it."""
    name = readme_rows.problem(m, n, k, dtype, "bf16" if dtype == "e4m3" else dtype)
    found: Row = {"m": m, "n": n, "k": k, "problem": name, "l2": l2, "init": "normal"}
    found |= {"device": "NVIDIA GPU", "driver": "600.1", "date": "2026-12-01", "clock_mhz": 1500.0}
    found |= {"tflops": 100.4, "percent_of_cublas": 51.64, "percent_of_measured_peak": None}
    found |= {"throttle": ["sw_power_cap"], "samples": 20, "throttled_samples": 7}
    found |= {"libraries": [{"name": "cuBLASLt 13 (nvmath)", "tflops": 200.2}]}
    found |= {"peak": {"ceiling": "wgmma", "dtype": "bf16", "tflops": 300.3}}
    return found | {"verified": True, "stale": False} | more


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Record:
    """Return a function that puts rows in the place of every stage's recordings."""
    return lambda *rows: monkeypatch.setattr(readme_rows, "recorded", lambda _: list(rows))


def test_what_it_says_is_what_was_recorded() -> None:
    """Run tests/gemm/readme_ladder.py after a recording."""
    text = README.read_text(encoding="utf-8")
    assert written(text) == text


def test_the_picture_shows_what_was_recorded() -> None:
    """It holds its numbers as text; the text of README.md links it where there are some."""
    rows = readme_ladder.document()["result"]["stages"]
    assert (PICTURE.name in README.read_text(encoding="utf-8")) == bool(rows)
    if rows:
        (told,) = ET.parse(PICTURE).iterfind(".//{http://purl.org/dc/elements/1.1/}description")  # noqa: S314
        assert told.text == numbers(rows)


def test_the_table_has_a_line_for_each_rung(record: Record) -> None:
    """And a column for each size at which all were recorded with the kernels of today, the L2 cold."""
    rows = [row(size, size, size, clock_mhz=clock) for size, clock in ((4096, 1500.0), (8192, 1700.0))]
    record(*rows, row(2048, 2048, 2048, l2="hot"), row(64, 4096, 4096))
    said = readme_ladder.ladder().splitlines()
    assert "| stage | 4096³ | 8192³ |" in said
    rungs = len(readme_ladder.rungs())
    assert sum(line.endswith("| 100 (52, -) | 100 (52, -) |") for line in said) == rungs
    assert said[-2:] == ["| cuBLASLt 13 | 200 | 200 |", "| ceiling wgmma, bf16 | 300 | 300 |"]
    assert SAID in said
    assert f"The clock was held down in {14 * rungs} of {40 * rungs} samples: sw_power_cap." in said


def test_rungs_of_different_runs_are_no_ladder(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them was recorded again beside other runs of the libraries: its percents are of those."""
    again = {"libraries": [{"name": "cuBLASLt 13 (nvmath)", "tflops": 180.0}]}
    sized = {size: row(size, size, size) for size in (2048, 4096)}
    rows = {"hopper": [sized[2048] | again, sized[4096]]}
    monkeypatch.setattr(readme_rows, "recorded", lambda stage: rows.get(stage.name, [*sized.values()]))
    assert {tuple(found) for found in readme_ladder.by_size("bf16").values()} == {(4096,)}


@pytest.mark.parametrize("change", [{"stale": True}, {"verified": False}, {"init": "ones"}])
def test_other_rows_are_not_quoted(record: Record, change: Row) -> None:
    """Those of an older kernel, wrong ones, and other data: then it says how to record."""
    record(row(4096, 4096, 4096) | change)
    assert readme_ladder.ladder() == readme_ladder.NONE
    assert readme_hopper.blocks() == [readme_hopper.NONE]


def test_cubes_are_shown_cold_and_hot(record: Record) -> None:
    """A line for each size, a column for each type and state of the L2 that were recorded."""
    record(
        row(4096, 4096, 4096),
        row(4096, 4096, 4096, l2="hot", tflops=110.0, percent_of_cublas=None, clock_mhz=1700.0),
        row(1024, 1024, 1024, l2="hot", clock_mhz=None),
    )
    said = readme_hopper.cubes().splitlines()
    assert SAID in said
    assert said[-4:] == [
        "| m = n = k | bf16, cold | bf16, hot |",
        "| --- | --- | --- |",
        "| 1024 | - | 100 (51.6) |",
        "| 4096 | 100 (51.6) 1500 | 110 (-) 1700 |",
    ]


def test_shapes_of_language_models_have_their_geometric_mean(record: Record) -> None:
    """Of each state of the L2, with the least and the most, and where; what was not recorded is a dash."""
    first, second, alone = (1, 4096, 7168), (4096, 32768, 512), (512, 4096, 16384)
    shares = {first: 50.0, second: 200.0, alone: 100.0}
    record(
        *(row(*shape, percent_of_cublas=share) for shape, share in shares.items()),
        row(*first, l2="hot", percent_of_cublas=80.0),
    )
    said = readme_hopper.shapes().splitlines()
    told = "geometric mean 100.0, least 50.0 at 1 x 4096 x 7168, most 200.0 at 4096 x 32768 x 512."
    assert f"Cold, 3 shapes: {told}" in said
    assert any(line.startswith("Hot, 1 shapes: geometric mean 80.0") for line in said)
    assert "512 x 4096 x 16384: 100.0 / -, 576 x 4096 x 7168: - / -." in said
    assert "| 1 | 50.0 / 80.0 | - / - | - / - | - / - | - / - | - / - |" in said
    assert said[-1] == "| 4096 | - / - | - / - | - / - | - / - | - / - | 200.0 / - |"


def test_eight_bit_floats_are_compared_in_the_same_accumulation(record: Record) -> None:
    """A line for each way to sum."""
    names = {
        each: readme_rows.problem(8192, 8192, 8192, "e4m3", "bf16", promoted=each) for each in (False, True)
    }
    record(
        row(8192, 8192, 8192, dtype="e4m3", problem=names[False], tflops=1300.0, percent_of_cublas=101.0),
        row(8192, 8192, 8192, dtype="e4m3", problem=names[True], tflops=1100.0, percent_of_cublas=99.0),
    )
    said = readme_hopper.float8().splitlines()
    assert said[-2:] == ["| fast | - | 1300 (101.0) 1500 |", "| promoted | - | 1100 (99.0) 1500 |"]


def test_of_several_ways_the_fastest_is_quoted(record: Record) -> None:
    """One problem has one number."""
    record(*(row(4096, 4096, 4096, tflops=each) for each in (700.0, 740.0, 720.0)))
    assert [each["tflops"] for each in readme_rows.quoted("hopper").values()] == [740.0]
