"""Every number of the ladder in README.md comes from a recording."""

from __future__ import annotations

from typing import Any

import pytest
import readme_ladder
from readme_ladder import README, written


def test_the_table_is_that_of_the_recordings() -> None:
    """Run tests/gemm/readme_ladder.py after a recording."""
    text = README.read_text(encoding="utf-8")
    assert written(text) == text


def test_the_table_has_a_line_for_each_rung(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a column for each size at which all were recorded with the kernels of today."""
    row: dict[str, Any] = {"layout": "tn", "init": "normal", "dtype": "bf16", "out": "bf16", "stale": False}
    row |= {"device": "GPU", "date": "2026-12-01", "tflops": 100.4, "percent_of_cublas": 51.6}
    row |= {"percent_of_measured_peak": None, "throttle": ["sw_power_cap"], "samples": 20}
    row |= {"throttled_samples": 7, "libraries": [{"name": "cuBLASLt 13 (nvmath)", "tflops": 200.2}]}
    row |= {"peak": {"ceiling": "wgmma", "dtype": "bf16", "tflops": 300.3}}
    rows = [row | dict.fromkeys("mnk", size) for size in (4096, 8192)]
    monkeypatch.setattr(readme_ladder, "recorded", lambda _: [*rows, rows[0] | {"m": 64}])
    table = readme_ladder.table().splitlines()
    assert "| stage | 4096³ | 8192³ |" in table
    lines = [line for line in table if line.endswith("| 100 (52, -) | 100 (52, -) |")]
    rungs = len(readme_ladder.rungs())
    assert len(lines) == rungs
    assert table[-2:] == ["| cuBLASLt 13 | 200 | 200 |", "| ceiling wgmma, bf16 | 300 | 300 |"]
    assert f"The clock was held down in {14 * rungs} of {40 * rungs} samples: sw_power_cap." in table
    monkeypatch.setattr(readme_ladder, "recorded", lambda _: [each | {"stale": True} for each in rows])
    assert readme_ladder.table() == readme_ladder.NONE
