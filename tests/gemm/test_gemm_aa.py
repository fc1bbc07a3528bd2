"""A study on recorded samples: how often the verdict tells apart what is the same, and sees what differs.

RESOLUTION comes from every other run, and the verdict is judged on the runs between them, which had no part
in it. All are of one card and one day, and each side had sides with the same kernel as its neighbours. So the
study cannot show what other neighbours do: beside slow kernels, which draw less power, the clock rises
(kernels/gemm/hopper/FINDINGS.md). That is why each side follows each other one equally often.
"""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from ptxlab.bench.stats import CONFIDENCE, RESOLUTION, compare

FILES = sorted((Path(__file__).parent / "data").glob("aa-*.json"))
HOW = "no A/A samples were recorded: python tests/gemm/record_aa.py tests/gemm/data/aa-CARD.json on a GPU"

PLANTED = 0.97
"""Of the time: a gain of 3 %, which is what a rung of the ladder may bring."""


def pairs(first: int) -> list[tuple[list[float], list[float]]]:
    """Return every pair of sides that ran the same kernel in one run, of every other run from the first."""
    documents: list[dict[str, Any]] = [json.loads(file.read_text(encoding="utf-8")) for file in FILES]
    runs = [run["milliseconds"] for document in documents for run in document["runs"]]
    return [pair for sides in runs[first::2] for pair in combinations(sides, 2)]


CHOSEN_FROM, JUDGED_ON = 0, 1


@pytest.mark.skipif(not FILES, reason=HOW)
def test_the_resolution_is_what_one_half_of_the_runs_asks_for() -> None:
    """No pair of theirs differs by more, and some by more than half of it."""
    worst = max(abs(compare(*pair).ratio - 1) for pair in pairs(CHOSEN_FROM))
    assert RESOLUTION / 2 < worst < RESOLUTION


@pytest.mark.skipif(not FILES, reason=HOW)
def test_the_same_kernel_is_seldom_told_apart_from_itself() -> None:
    """In fewer than 5 % of the pairs of the other half, each measured on silicon."""
    verdicts = [compare(*pair).verdict for pair in pairs(JUDGED_ON)]
    assert len(verdicts) >= 100
    wrong = sum(verdict != "indistinguishable" for verdict in verdicts)
    assert wrong / len(verdicts) < 1 - CONFIDENCE


@pytest.mark.skipif(not FILES, reason=HOW)
def test_a_gain_of_three_percent_is_mostly_seen() -> None:
    """The same samples, one side made 3 % faster: the verdict is not silence."""
    verdicts = [compare([PLANTED * ms for ms in own], other).verdict for own, other in pairs(JUDGED_ON)]
    assert "slower" not in verdicts
    assert verdicts.count("faster") / len(verdicts) >= 0.9
