"""Closed forms as text, without what never changes."""

from __future__ import annotations


def total(*terms: tuple[int, str, int]) -> str:
    """Return the sum of (factor, what, how many values it takes), without those that take one alone."""
    parts = [_times(factor, what) for factor, what, count in terms if count > 1]
    return " + ".join(parts) or "0"


def over(what: str, divisor: int) -> str:
    """Return the quotient, rounded down."""
    return f"{what} // {divisor}" if divisor > 1 else what


def _times(factor: int, what: str) -> str:
    if factor == 1:
        return what
    return f"{factor} * {what}" if what.isidentifier() else f"{factor} * ({what})"
