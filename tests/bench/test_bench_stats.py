"""Medians, intervals and verdicts: their properties, and how often they are wrong."""

from __future__ import annotations

import math
import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxlab.bench.stats import (
    CONFIDENCE,
    MINIMUM_SAMPLES,
    RESOLUTION,
    compare,
    median,
    median_interval,
)

times = st.floats(1e-3, 1e3)
samples = st.lists(times, min_size=1, max_size=60)
enough = st.lists(times, min_size=2 * MINIMUM_SAMPLES, max_size=60)
pairs = st.integers(2, 40).flatmap(
    lambda n: st.tuples(*[st.lists(times, min_size=n, max_size=n) for _ in range(2)])
)


def timings(seed: int, mean: float, spread: float, count: int = 20) -> list[float]:
    """Samples as a GPU gives them: a floor and a tail to the slow side."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    return [mean * (1 + spread * rng.expovariate(1.0)) for _ in range(count)]


@given(samples)
def test_median_is_the_middle(values: list[float]) -> None:
    """As the standard library has it."""
    assert median(values) == pytest.approx(statistics.median(values), rel=1e-12)


@given(samples)
def test_the_interval_is_made_of_samples_around_the_median(values: list[float]) -> None:
    """Order statistics, not an estimate."""
    interval = median_interval(values)
    assert interval.low in values
    assert interval.high in values
    assert interval.low <= median(values) <= interval.high


@given(samples, st.randoms(use_true_random=False))
def test_the_order_of_samples_does_not_matter(values: list[float], rng: random.Random) -> None:
    """And nothing is random."""
    shuffled = list(values)
    rng.shuffle(shuffled)
    assert median_interval(shuffled) == median_interval(values)


@given(st.integers(1, 60))
def test_the_coverage_is_binomial_and_the_interval_the_narrowest(count: int) -> None:
    """One rank further in would cover less than 95 %."""
    interval = median_interval([float(i) for i in range(1, count + 1)])
    rank = int(interval.low)  # of the sample at the low end, counted from 1
    assert int(interval.high) == count + 1 - rank

    def covered(k: int) -> float:
        return float(1 - 2 * sum(math.comb(count, i) for i in range(k)) / 2**count)

    assert interval.coverage == pytest.approx(max(0.0, covered(rank)), abs=1e-12)
    assert (interval.coverage >= CONFIDENCE) == (count >= MINIMUM_SAMPLES)
    assert covered(rank + 1) < CONFIDENCE


def test_known_ranks_of_twenty_samples() -> None:
    """The table of the sign test: n = 20 gives the 6th and the 15th value, with 95.86 %."""
    interval = median_interval([float(i) for i in range(1, 21)])
    assert (interval.low, interval.high) == (6, 15)
    assert interval.coverage == pytest.approx(0.9586, abs=1e-4)


@pytest.mark.parametrize("count", [6, 11, 20, 50])
def test_the_interval_covers_the_true_median_as_often_as_it_says(count: int) -> None:
    """Of a skewed distribution whose median is known."""
    rng = random.Random(count)  # noqa: S311 - no secret
    true = math.log(2)  # of the exponential distribution
    trials = 2000
    hits = 0
    for _ in range(trials):
        interval = median_interval([rng.expovariate(1.0) + 1e-9 for _ in range(count)])
        hits += interval.low <= true <= interval.high
    # four standard deviations of the binomial count below the stated coverage
    assert hits / trials >= interval.coverage - 4 * math.sqrt(0.05 * 0.95 / trials)


@pytest.mark.parametrize("count", [6, 11, 20, 50])
def test_the_interval_is_no_narrower_than_that_of_a_bootstrap(count: int) -> None:
    """Whose percentiles lie within it, and for the 20 samples of a run just one sample further in at most."""
    values = sorted(timings(count, 1.0, 0.02, count))
    drawn = np.random.default_rng(count).choice(values, (20_000, count))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    interval = median_interval(values)
    assert interval.low <= low + 1e-9
    assert interval.high >= high - 1e-9
    inside = [value for value in values if interval.low < value < low or high < value < interval.high]
    assert len(inside) <= 2


@given(pairs)
def test_a_comparison_turned_round_says_the_opposite(sides: tuple[list[float], list[float]]) -> None:
    """Exactly: no side is favoured."""
    there, back = compare(*sides), compare(*reversed(sides))
    opposite = {"faster": "slower", "slower": "faster", "indistinguishable": "indistinguishable"}
    assert back.verdict == opposite[there.verdict]
    assert back.noise_floor == pytest.approx(there.noise_floor, rel=1e-9)
    assert back.interval.low == pytest.approx(1 / there.interval.high, rel=1e-12)


@given(enough)
def test_a_side_is_indistinguishable_from_itself(values: list[float]) -> None:
    """Whatever its samples are."""
    assert compare(values, values).verdict == "indistinguishable"


@given(enough, st.floats(0.1, 10))
def test_units_do_not_matter(values: list[float], unit: float) -> None:
    """The floor is a ratio."""
    other = values[::-1]
    scaled = [value * unit for value in values], [value * unit for value in other]
    assert compare(*scaled).noise_floor == pytest.approx(compare(values, other).noise_floor, rel=1e-9)


@given(st.lists(times, min_size=2, max_size=2 * MINIMUM_SAMPLES - 1))
def test_too_few_samples_tell_nothing_apart(values: list[float]) -> None:
    """Not even a factor of 100."""
    assert compare(values, [value * 100 for value in values]).verdict == "indistinguishable"


@given(enough)
def test_the_floor_is_never_below_the_resolution(values: list[float]) -> None:
    """However steady the samples are."""
    assert compare(values, values[::-1]).noise_floor >= RESOLUTION


def test_steady_samples_are_told_apart_just_beyond_the_resolution() -> None:
    """And not below it."""
    slow = [1.0] * 20
    assert compare([1 - 2 * RESOLUTION] * 20, slow).verdict == "faster"
    assert compare([1 + 2 * RESOLUTION] * 20, slow).verdict == "slower"
    assert compare([1 - RESOLUTION / 2] * 20, slow).verdict == "indistinguishable"


def test_equal_sides_are_seldom_told_apart_and_different_ones_mostly() -> None:
    """At most 5 % false verdicts; 6 % of difference is seen under 1 % of noise."""
    trials = 400
    equal = [compare(timings(2 * i, 1, 0.01), timings(2 * i + 1, 1, 0.01)) for i in range(trials)]
    false = sum(each.verdict != "indistinguishable" for each in equal)
    assert false / trials <= 1 - CONFIDENCE
    apart = [compare(timings(2 * i, 0.94, 0.01), timings(2 * i + 1, 1, 0.01)) for i in range(trials)]
    assert sum(each.verdict == "faster" for each in apart) / trials >= 0.95


def test_a_drift_of_the_clock_meets_both_sides_and_changes_nothing() -> None:
    """Since ratios are taken sample by sample."""
    drift = [1 + 0.002 * i for i in range(40)]
    own = [d * t for d, t in zip(drift, timings(1, 0.9, 0.002, 40), strict=True)]
    other = [d * t for d, t in zip(drift, timings(2, 1.0, 0.002, 40), strict=True)]
    comparison = compare(own, other)
    assert comparison.verdict == "faster"
    assert comparison.ratio == pytest.approx(0.9, rel=0.005)


def test_an_outlier_changes_no_verdict() -> None:
    """One sample that took fifty times as long."""
    own, other = timings(3, 0.95, 0.001), timings(4, 1.0, 0.001)
    own[7] *= 50
    assert compare(own, other).verdict == "faster"


@pytest.mark.parametrize("bad", [[], [1.0, math.nan], [1.0, math.inf], [0.0], [-1.0, 2.0]])
def test_what_is_no_timing_is_refused(bad: list[float]) -> None:
    """NaN, infinity, zero, less, and nothing at all."""
    for function in (median, median_interval, lambda values: compare(values, values)):
        with pytest.raises(ValueError, match="finite and positive"):
            function(bad)


def test_sides_of_different_lengths_are_refused() -> None:
    """They were not measured in turn."""
    with pytest.raises(ValueError, match="zip"):
        compare([1.0] * 12, [1.0] * 13)
