"""Every number that a kernel's header calls measured comes from its recording."""

from __future__ import annotations

from pathlib import Path

import headers
import pytest

SOURCES = headers.measured()


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.parent.name)
def test_a_header_says_what_was_recorded(source: Path) -> None:
    """Run tests/gemm/headers.py after a recording."""
    text = source.read_text(encoding="utf-8")
    assert text.count(headers.BEGIN) == 1
    assert headers.written(text, SOURCES[source]) == text


def test_a_gain_that_is_noise_is_called_so() -> None:
    """All sizes of a row, in lines that are no longer than those of the source."""
    gain = {"over": "below", "percent": 5.04, "real": True}
    row = {
        "device": "NVIDIA GPU",
        "date": "2026-12-01",
        "dtype": "bf16",
        "problem": "bf16",
        "percent_of_cublas": 51.6,
        "gain": gain,
    }
    row |= {"peak": {"ceiling": "wgmma"}, "percent_of_measured_peak": 40.2}
    rows = [
        row | {"m": 4096, "tflops": 100.4},
        row | {"m": 8192, "tflops": 99.5, "gain": gain | {"real": False}},
    ]
    lines = headers.paragraph(rows).splitlines()
    assert all(line.startswith("// ") and len(line) <= headers.WIDTH for line in lines)
    text = " ".join(line.removeprefix("// ") for line in lines)
    assert text.startswith(
        "Measured (GPU, 2026-12-01; bf16 tn, normal values, cold, all rungs in turn in one run): "
    )
    assert "at 4096^3 and 8192^3 100 and 100 TFLOP/s; 52 and 52 % of the faster library; " in text
    assert text.endswith("40 and 40 % of the ceiling of wgmma; over below +5.0 and +5.0 (noise) %.")


def test_another_type_has_a_sentence_of_its_own() -> None:
    """And gains of its own: at the sizes at which it was timed with the other rungs."""
    gain = {"over": "below", "percent": 5.0, "real": True}
    row = {"device": "GPU", "date": "2026-12-01", "dtype": "bf16", "problem": "bf16", "m": 64, "tflops": 1.0}
    row |= {"percent_of_cublas": None, "peak": None, "gain": None}
    other = row | {"dtype": "f16", "problem": "f16", "tflops": 2.0}
    text = headers.paragraph([row, other | {"m": 32, "tflops": 3.0}, other | {"gain": gain}])
    assert text.endswith("at 64^3 1 TFLOP/s.\n// With f16 at 64^3 2 TFLOP/s; over below +5.0 %.")


def test_only_the_paragraph_is_written_anew() -> None:
    """What stands before and behind it stays."""
    row = {"device": "GPU", "date": "2026-12-01", "dtype": "f16", "problem": "f16", "m": 64}
    row["tflops"] = 1.0
    row |= dict.fromkeys(("percent_of_cublas", "peak", "gain"))
    text = "// kernel: one\n//\n// Measured (then) 5,\n// or 6.\n//\n// Macros: M.\n\nint x;\n"
    found = headers.written(text, [row])
    assert found.startswith("// kernel: one\n//\n// Measured (GPU, 2026-12-01; f16")
    assert found.endswith("at 64^3 1 TFLOP/s.\n//\n// Macros: M.\n\nint x;\n")
    assert "then" not in found
