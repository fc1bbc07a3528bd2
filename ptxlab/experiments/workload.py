"""Makes an experiment ready for a profiler: one job for the worker, and what is known without running it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxlab.device.job import Buffer, Job
from ptxlab.errors import UsageError, unknown_name
from ptxlab.experiments.answers import check_result, report_of
from ptxlab.experiments.base import Case, Experiment, Value
from ptxlab.experiments.counters import TENSOR_FAMILIES
from ptxlab.experiments.gemm import GemmStage, Problem
from ptxlab.experiments.gemm.check import Check
from ptxlab.experiments.gemm.stage import MODULE
from ptxlab.experiments.probe import Probe
from ptxlab.experiments.registry import find_probe, find_stage
from ptxlab.experiments.runner import kernel_report, probe_job, unit_of
from ptxlab.experiments.unit import build_unit, kernel_name
from ptxlab.experiments.values import value_of

KINDS = ("probe", "gemm")

PROFILED_SIZES: dict[str, Value] = {"m": 1024, "n": 1024, "k": 1024}
"""Sizes of a GEMM unless others are given: blocks for every multiprocessor, and quick to replay."""


@dataclass(frozen=True)
class Workload:
    """An experiment made ready.

    Attributes:
        job: what the worker does.
        kernel: the kernel that the job is about; its other launches prepare data.
        static: what the SASS of that kernel holds (an entry of the kernels of a sass document).
        modelled: what the model says: ``counts`` of executed instructions, ``banks`` (the
            wavefronts of the probe's one instruction), ``demands`` (what a GEMM takes of each
            resource), where it knows them.

    """

    job: Job
    kernel: str
    static: dict[str, Any]
    modelled: dict[str, Any]


def find_experiment(target: str) -> Experiment:
    """Return the experiment that "probe:NAME", "NAME" or "gemm:STAGE" names.

    Raises:
        UsageError: there is none; the message holds the legal names.

    """
    kind, _, name = target.rpartition(":")
    if kind not in ("", *KINDS):
        raise unknown_name("kind of target", kind, KINDS)
    if not kind and Path(name).suffix in (".cu", ".ptx", ".cubin"):
        raise UsageError(
            f"{target} says nothing about how its kernels are launched",
            "profile the program that launches them: ptxlab profile -- CMD",
        )
    return find_stage(name) if kind == "gemm" else find_probe(name)


def values_of(experiment: Experiment, texts: Sequence[str], sizes: Mapping[str, int]) -> dict[str, Value]:
    """Return the values of an experiment's options.

    Args:
        experiment: whose options.
        texts: each "name=value" (or "name" alone to switch one on).
        sizes: m, n and k of a GEMM, those that were given.

    Raises:
        UsageError: there is no such option, or its value is of another type.

    """
    if isinstance(experiment, GemmStage):
        return PROFILED_SIZES | dict(value_of(experiment, text, "--option") for text in texts) | dict(sizes)
    if sizes:
        raise UsageError("-m, -n and -k belong to gemm:STAGE", "ptxlab profile gemm:STAGE -m 512")
    return dict(value_of(experiment, text, "--option") for text in texts)


def workload_of(experiment: Experiment, case: Case) -> Workload:
    """Compile the experiment's kernel and return the job that launches it once.

    Raises:
        MissingError: there is no compiler here.
        ToolError: the kernel does not compile.

    """
    if isinstance(experiment, Probe):
        return _probe(experiment, case)
    if isinstance(experiment, GemmStage):
        return _stage(experiment, case)
    raise TypeError(type(experiment))


def _probe(probe: Probe, case: Case) -> Workload:
    """Return a probe made ready. Of its prediction the wavefronts of one instruction are kept."""
    build = build_unit(probe, unit_of(probe, case), case.arch)
    kernel = kernel_name(probe, probe.macros(case))
    told = report_of(probe, case, probe.expected(case), measured=False)
    check_result(probe, told)
    modelled = {name: told[name] for name in ("banks",) if name in told}
    return Workload(probe_job(probe, case, build), kernel, kernel_report(build, kernel), modelled)


def _stage(stage: GemmStage, case: Case) -> Workload:
    """Return a GEMM stage made ready: A and B are filled with normal values, then comes one launch."""
    build = build_unit(stage, [case], case.arch)
    kernel = kernel_name(stage, stage.macros(case))
    problem = Problem.of(case)
    check = Check(problem, "normal", seed=0)
    job = Job(
        modules=check.modules(case.arch) | {MODULE: build.cubin},
        buffers=(*check.inputs(), Buffer("c", problem.c.nbytes), *stage.scratch(case)),
        steps=(*check.fills(), *check.refills("c"), stage.launch(case)),
    )
    static = kernel_report(build, kernel)
    modelled: dict[str, Any] = {"demands": stage.demands(case)}
    tensor = [op for op in static["counts"] if op.partition(".")[0].lower() in TENSOR_FAMILIES]
    if all(op.startswith("HMMA.16816") for op in tensor):
        modelled["counts"] = {"hmma": stage.mma_count(case)}
    return Workload(job, kernel, static, modelled)
