"""What may be said of timings: medians, intervals, and verdicts that know their own noise.

No normal distribution is assumed: timings have a floor and a long tail. Every interval is made of
order statistics, so that the same samples always give the same interval. It is what a bootstrap of the
median would give, without its drawing of lots, and never narrower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

CONFIDENCE = 0.95

MINIMUM_SAMPLES = 6
"""Fewer give no interval with CONFIDENCE: n samples all lie on one side of the median with
probability 2 / 2^n."""

RESOLUTION = 0.003
"""Relative differences below this are never told apart: one kernel timed as eight sides of a run differs from
itself by up to 0.26 % (140 pairs; NVIDIA H200, driver 580, 2026-11-30, tests/gemm/data). The 112 pairs of the
runs between, from which it was not chosen, judge it in tests/gemm/test_gemm_aa.py; that says what they cannot
show."""

Verdict = Literal["faster", "slower", "indistinguishable"]


@dataclass(frozen=True)
class Interval:
    """Two of the samples, between which the median lies with probability ``coverage``."""

    low: float
    high: float
    coverage: float


@dataclass(frozen=True)
class Comparison:
    """How one side's time relates to another's, measured interleaved.

    Attributes:
        ratio: median of the sample-by-sample ratios, own time over the other's: below 1 is faster.
        interval: of that median.
        noise_floor: the relative difference that this run could not have told from nothing: half of the
            interval's width, and at least RESOLUTION.
        verdict: "faster" or "slower" when the whole interval lies beyond RESOLUTION.

    """

    ratio: float
    interval: Interval
    noise_floor: float
    verdict: Verdict


def median(samples: Sequence[float]) -> float:
    """Return the middle sample, or the mean of the middle two.

    Raises:
        ValueError: there is no sample, or one is not a finite positive number.

    """
    _check(samples)
    ordered = sorted(samples)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def median_interval(samples: Sequence[float]) -> Interval:
    """Return the narrowest interval of order statistics that covers the median with CONFIDENCE.

    The number of samples below the true median is binomial with p = 1/2, whatever the distribution;
    so the k-th smallest and the k-th largest of n samples enclose it with a probability of
    1 - 2 * P(Binomial(n, 1/2) < k). Fewer samples than MINIMUM_SAMPLES do not reach CONFIDENCE:
    then it is their whole range, with the coverage that it has.

    Raises:
        ValueError: there is no sample, or one is not a finite positive number.

    """
    _check(samples)
    ordered = sorted(samples)
    count = len(ordered)
    rank, tail = 1, 1  # tail: how many of the 2^n outcomes have fewer than `rank` samples below
    while 2 * (tail + math.comb(count, rank)) <= (1 - CONFIDENCE) * 2**count:
        tail += math.comb(count, rank)
        rank += 1
    return Interval(ordered[rank - 1], ordered[-rank], max(0.0, 1 - 2 * tail / 2**count))


def compare(own: Sequence[float], other: Sequence[float]) -> Comparison:
    """Compare two sides whose samples were taken in turn, the i-th beside the i-th.

    What both sides share, such as a clock that falls while they run, is in no ratio. With fewer than
    2 * MINIMUM_SAMPLES samples a side nothing is told apart.

    Raises:
        ValueError: the sides have different numbers of samples, or fewer than two, or one sample is
            not a finite positive number.

    """
    ratios = _ratios(own, other)
    interval = median_interval(ratios)
    enough = len(ratios) >= 2 * MINIMUM_SAMPLES
    verdict = judge(interval.low, interval.high) if enough else "indistinguishable"
    return Comparison(median(ratios), interval, noise_floor(interval.low, interval.high), verdict)


def judge(low: float, high: float) -> Verdict:
    """Return what an interval of ratios, own time over the other's, says."""
    if high < 1 / (1 + RESOLUTION):
        return "faster"
    return "slower" if low > 1 + RESOLUTION else "indistinguishable"


def noise_floor(low: float, high: float) -> float:
    """Return the relative difference that a run with such an interval could not have told from nothing."""
    return max(RESOLUTION, math.sqrt(high / low) - 1)


def _ratios(own: Sequence[float], other: Sequence[float]) -> list[float]:
    _check(own)
    _check(other)
    return [mine / theirs for mine, theirs in zip(own, other, strict=True)]


def _check(samples: Sequence[float]) -> None:
    if not samples or not all(math.isfinite(sample) and sample > 0 for sample in samples):
        raise ValueError(f"samples must be finite and positive, and at least one: {list(samples)}")
