"""Samples and what may be said of them: medians, intervals, verdicts, limits."""
