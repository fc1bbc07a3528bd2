"""Sums of 8-bit floats as wgmma makes them, bit for bit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxlab.experiments.gemm.problem import PROMOTED, Problem
from ptxlab.isa.accumulate import multiply_add, wgmma_arithmetic
from ptxlab.isa.numbers import decode

AT_ONCE = 32
"""Values of k of an instruction."""


def summed(p: Problem, a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums, float32 as float64, with k in ascending order, promoted if the problem says so."""
    rule = wgmma_arithmetic(p.dtype, p.acc, AT_ONCE)
    depth = -(-p.k // PROMOTED) * PROMOTED
    a, b = np.pad(a, ((0, 0), (0, depth - p.k))), np.pad(b, ((0, depth - p.k), (0, 0)))
    total, part = np.zeros((p.m, p.n)), np.zeros((p.m, p.n))
    for first in range(0, depth, AT_ONCE):
        left, right = a[:, first : first + AT_ONCE], b[first : first + AT_ONCE]
        part = decode(multiply_add(left, right, part, p.dtype, p.acc, rule), p.acc).astype(np.float64)
        if p.promoted and (first + AT_ONCE) % PROMOTED == 0:
            total, part = (total + part).astype(np.float32).astype(np.float64), np.zeros_like(part)
    return total if p.promoted else part
