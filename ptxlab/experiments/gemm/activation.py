"""Activations that follow a GEMM, as functions on numpy arrays, and what they do to an interval.

relu(x) is x, and 0 for negative x. gelu(x) is its approximation by tanh (Hendrycks and Gimpel, "Gaussian
Error Linear Units"), x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), written here as x / (1 + e^-2u), in
which nothing cancels. NaN stays NaN.

gelu falls to its one minimum and rises from there on. So over an interval it is greatest at an end, and least
at an end or at the place that is nearest to the minimum. Of minus infinity it is NaN, as its formula says.
"""

from __future__ import annotations

import math

import numpy as np

from ptxlab.experiments.gemm.problem import Logical

ACTIVATIONS = ("none", "relu", "gelu")

LEAST_AT = -0.7524614220710163
"""Where gelu is least; the others only rise, and may be least anywhere."""


def activated(name: str, values: Logical) -> Logical:
    """Return the activation of each value."""
    if name == "relu":
        return np.maximum(values, 0.0)
    if name == "gelu":
        with np.errstate(over="ignore", invalid="ignore"):
            exponent = -2 * math.sqrt(2 / math.pi) * (values + 0.044715 * values**3)
            return np.asarray(values / (1 + np.exp(exponent)))
    return values


def image(name: str, low: Logical, high: Logical) -> tuple[Logical, Logical]:
    """Return the least and the greatest that the activation makes of what lies between the two."""
    ends = activated(name, low), activated(name, high)
    bottom = activated(name, np.clip(LEAST_AT, low, high))
    return np.minimum(np.minimum(*ends), bottom), np.maximum(*ends)
