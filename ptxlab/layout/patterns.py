"""Random lane-to-address patterns of an access, of many kinds: what a bank model must tell apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxlab.layout.banks import OFF, Access

LANES = 32
REACH = 4096
"""Bytes of shared memory that the patterns use."""

Ints = NDArray[np.int64]


def patterns(kind: Access, number: int, seed: int = 0) -> Ints:
    """Return the byte address of each lane, [pattern, lane]; OFF for a lane that is predicated off.

    Kinds take turns: anywhere, a few rows, a stride, a permutation, lanes that share an address with those
    whose number differs in given bits, all of them or in one half of the warp alone. Every other round some
    lanes are off, where the class of the access allows that.
    """
    rng = np.random.default_rng([seed, *kind.name.encode()])
    slots = REACH // kind.bytes_per_lane
    found = [_slots(rng, turn, slots) * kind.bytes_per_lane for turn in range(number)]
    addresses = np.array(found, dtype=np.int64).reshape(number, LANES)
    if kind.has_mask:
        odd = (np.arange(number) // _KINDS % 2 == 1)[:, None]
        addresses[odd & _off(rng, number)] = OFF
    return addresses


_SHARED = (1, 2, 4, 8, 16, 3, 6, 17, 30)
"""Bits in which the numbers of lanes that share an address differ."""

_KINDS = 5 + 2 * len(_SHARED)


def _slots(rng: np.random.Generator, turn: int, slots: int) -> Ints:
    """Return which slot of memory each lane takes, for one turn."""
    lanes = np.arange(LANES)
    anywhere = rng.integers(0, slots, LANES)
    match turn % _KINDS:
        case 0:
            return anywhere
        case 1:
            return rng.integers(0, slots // 16, LANES)
        case 2:
            return np.asarray(lanes * rng.integers(0, slots) % slots)
        case 3:
            return np.asarray(rng.permutation(LANES) + rng.integers(0, slots - LANES))
        case 4:
            return np.asarray((lanes ^ rng.integers(0, LANES)) * rng.integers(1, slots // LANES + 1) % slots)
        case other:
            bits = _SHARED[(other - 5) // 2]
            spread = rng.permutation(LANES) + rng.integers(0, slots - LANES) if other % 4 < 2 else anywhere
            shared = spread[lanes & ~bits]
            half = LANES // 2 * rng.integers(0, 2)
            apart = (lanes >= half) & (lanes < half + LANES // 2) & (other % 2 == 0)
            return np.asarray(np.where(apart, anywhere, shared))


def _off(rng: np.random.Generator, number: int) -> NDArray[np.bool_]:
    """Return lanes to switch off: a few, most, or a run of them; never all."""
    lanes = np.arange(LANES)
    share = rng.choice((0.1, 0.5, 0.9), (number, 1))
    some = rng.random((number, LANES)) < share
    first, length = rng.integers(0, LANES, (number, 1)), rng.integers(1, LANES, (number, 1))
    run = (lanes - first) % LANES < length
    off = np.where(rng.integers(0, 2, (number, 1)) == 1, some, run)
    off[np.arange(number), rng.integers(0, LANES, number)] = False
    return np.asarray(off)
