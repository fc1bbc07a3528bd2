"""GEMM stages: what a stage is, how its result is checked, what limits it, and how it is measured."""

from ptxlab.experiments.gemm.problem import TYPES, Problem
from ptxlab.experiments.gemm.stage import GemmStage

__all__ = ["TYPES", "GemmStage", "Problem"]
