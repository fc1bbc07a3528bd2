"""A GEMM stage whose kernel goes on with the sums before it writes them: a bias, and an activation."""

from __future__ import annotations

from ptxlab.device.job import Argument
from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, option
from ptxlab.experiments.gemm.activation import ACTIVATIONS
from ptxlab.experiments.gemm.check import BIAS
from ptxlab.experiments.gemm.problem import Problem
from ptxlab.experiments.gemm.stage import GemmStage


class FusedStage(GemmStage):
    """Base of such a stage: C = activation(alpha A x B + beta C + bias), all of it in float32.

    It goes before the other base of a stage. Its kernel takes ``const OUT* bias`` behind beta, an element for
    each column of C, and the macros BIAS (1: there is one) and ACTIVATION.
    """

    bias = option("no", choices=("no", "yes"), help="adds a vector to each row of C, of the type of C")
    activation = option("none", choices=ACTIVATIONS, help="follows the sums; gelu is the one with tanh")

    def check(self, case: Case) -> None:
        """Refuse, beside what no stage takes, what follows sums that stay integers.

        Raises:
            UsageError: C is one of s32, and something follows.

        """
        super().check(case)
        problem = Problem.of(case)
        if problem.out == "s32" and (problem.bias or problem.activation != "none"):
            raise UsageError("bias and activation follow in float32; legal: --out f32, f16 or bf16")

    def macros(self, case: Case) -> Macros:
        """Return which parts there are."""
        problem = Problem.of(case)
        return {**super().macros(case), "BIAS": int(problem.bias), "ACTIVATION": problem.activation}

    def arguments(self, case: Case) -> tuple[Argument, ...]:
        """Return the bias too; where there is none, anything."""
        return (*super().arguments(case), BIAS if Problem.of(case).bias else "c")
