"""Canaries: pattern bytes on both sides of a buffer, which show that something wrote there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ZONE = 64 * 1024
"""Bytes on each side: a tile that is stored one row too far still lands here."""


def pattern() -> NDArray[np.uint8]:
    """Return the bytes of one zone. Neighbours differ, so that no constant fill passes for it."""
    return (np.arange(ZONE, dtype=np.uint32) * 167 + 13).astype(np.uint8)


def damage(name: str, before: NDArray[np.uint8], after: NDArray[np.uint8]) -> str | None:
    """Return what was written beside the buffer ``name``, or None.

    Args:
        name: the buffer's name.
        before: the zone that ends where the buffer starts, as it is now.
        after: the zone that starts where the buffer ends, as it is now.

    """
    low, high = (np.flatnonzero(zone != pattern()) for zone in (before, after))
    parts = []
    if low.size:
        parts.append(f"{low.size} bytes before its start from -{ZONE - low[0]}")
    if high.size:
        parts.append(f"{high.size} bytes past its end from +{high[0]}")
    return f"{name}: {' and '.join(parts)}" if parts else None
