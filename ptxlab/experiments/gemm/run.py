"""``ptxlab gemm``: explain a stage, run it where there is a device, and say what came out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ptxlab.device.client import Worker
from ptxlab.device.job import DeviceInfo
from ptxlab.errors import MissingError, PtxlabError
from ptxlab.experiments import recording
from ptxlab.experiments.base import Case, Value, blamed
from ptxlab.experiments.gemm.catalogue import recorded
from ptxlab.experiments.gemm.check import Check
from ptxlab.experiments.gemm.conclude import conclude, notes, verification
from ptxlab.experiments.gemm.explain import explain, mma_by_sass
from ptxlab.experiments.gemm.machine import Machine, machine
from ptxlab.experiments.gemm.measure import Trial, measure, row
from ptxlab.experiments.gemm.problem import Problem
from ptxlab.experiments.gemm.stage import MMA_MACS, GemmStage
from ptxlab.experiments.record import Record, environment
from ptxlab.experiments.registry import find_stage, stage_entries
from ptxlab.experiments.runner import Lab, check_sass, kernel_report, open_lab, silicon
from ptxlab.experiments.unit import build_unit, kernel_name
from ptxlab.toolchain.arch import parse_arch
from ptxlab.toolchain.build import Build

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Request:
    """What the user asked for.

    Attributes:
        stage: the name of one, or None for every stage there is.
        options: values for the options of the stages: sizes, types, layout.
        init: what A and B are filled with.
        seed: of the random fills.
        versus: "cublas", or "none".
        explain_only: say what can be said without running.
        keep: write the result beside the stage as a recording.
        arch: what to compile for; None is the device's own, sm_90a where there is none.
        device: CUDA's index of the device.
        timeout: seconds for the job beyond what its size needs.

    """

    stage: str | None = None
    options: dict[str, Value] = field(default_factory=dict)
    init: str = "normal"
    seed: int = 0
    versus: str = "cublas"
    explain_only: bool = False
    keep: bool = False
    arch: str | None = None
    device: int = 0
    timeout: float = 20.0


@dataclass(frozen=True)
class Compiled:
    """A stage that is ready to run: its point, its code, and whether the SASS is what is claimed."""

    stage: GemmStage
    case: Case
    build: Build
    claims_hold: bool


def run_gemm(request: Request, progress: Progress) -> Record:
    """Explain the stages and, where there is a device, run, check and time them.

    On the ladder a stage that fails does not keep the others from running; the first failure is
    raised at the end. One that cannot take the problem, or is not for this chip, is skipped.

    Raises:
        UsageError: an unknown stage, or a problem that no stage takes.
        MissingError: there is no device, or no compiler; what was reached is in its record.
        ToolError: a stage does not load or does not compile; likewise.
        DeviceError: the device timed out or faulted; likewise.

    """
    names = [request.stage] if request.stage else [entry.name for entry in stage_entries()]
    if request.stage:
        find_stage(request.stage)  # a wrong name is told before a device is started
    arch = parse_arch(request.arch) if request.arch else None
    backend = "model" if request.explain_only else "auto"
    with open_lab(backend, arch, request.device, request.timeout) as lab:
        record = _started(request, lab)
        problems = _run_stages(names, request, lab, record, progress)
    record.result["conclusion"] = conclude(record.result)
    if not lab.worker and not request.explain_only:
        why = f"not run: {lab.why_no_device}"
        hint = "run it on a machine with an NVIDIA GPU; --explain asks for the explanation alone"
        problems.append(MissingError(why, hint, code="no-device"))
    if problems:
        problems[0].record = record if record.result["explanations"] else None
        raise problems[0]
    return record


def _run_stages(
    names: list[str], request: Request, lab: Lab, record: Record, progress: Progress
) -> list[PtxlabError]:
    """Do each stage, and return what is to be raised."""
    refused: list[PtxlabError] = []
    failed: list[PtxlabError] = []
    for index, name in enumerate(names):
        progress(name, index, len(names))
        problems = refused
        try:
            stage = find_stage(name)
            with blamed(stage.file):
                case = stage.case(lab.arch, **request.options)
                problems = failed
                _run_stage(stage, case, request, lab, record)
        except PtxlabError as error:  # after a fault the next stage gets a fresh worker
            record.skip(name, error.message)
            problems.append(error)
    return failed or (refused if len(refused) == len(names) else [])


def _started(request: Request, lab: Lab) -> Record:
    params = {"stage": request.stage, **request.options, "init": request.init, "seed": request.seed}
    record = Record(backend=lab.backend, arch=lab.arch, params={**params, "vs": request.versus})
    record.environment = environment(device=vars(lab.device) if lab.device else None)
    record.result |= {"stages": [], "explanations": [], "recorded": [], "notes": []}
    record.result["notes"] = notes(request.init)
    return record


def _run_stage(stage: GemmStage, case: Case, request: Request, lab: Lab, record: Record) -> None:
    """Explain a stage; run it where there is a device, else show what was recorded."""
    if not lab.worker and not request.explain_only:
        record.result["recorded"] += recorded(stage)
    compiled = _explain(stage, case, lab, record)
    if lab.worker and lab.device:
        _measure(compiled, request, lab.worker, lab.device, record)


def _explain(stage: GemmStage, case: Case, lab: Lab, record: Record) -> Compiled:
    """Compile, hold the SASS against the claims, and add the explanation.

    Raises:
        MissingError: there is no compiler; the explanation is there, without the occupancy.

    """
    gpu = _machine(lab)
    try:
        build = build_unit(stage, [case], case.arch)
        kernel = kernel_report(build, kernel_name(stage, stage.macros(case)))
    except MissingError:
        record.result["explanations"].append(explain(stage, case, gpu, None))
        raise
    before = len(record.checks)
    check_sass(kernel, stage.claims(case), record)
    counted, how = mma_by_sass(stage, case, kernel)
    whole = Problem.of(case).macs / MMA_MACS
    detail = f"{how} HMMA.16816, counted per warp; mnk / 2048 = {whole:.10g}"
    record.check("HMMA count", ok=counted == stage.mma_count(case), detail=detail)
    record.result["explanations"].append(explain(stage, case, gpu, kernel) | {"sass": kernel})
    holds = all(check["ok"] for check in record.checks[before:])
    return Compiled(stage, case, build, holds)


def _machine(lab: Lab) -> Machine | None:
    if lab.device is None:
        return machine(lab.arch)
    return machine(lab.device.arch, lab.device.name, lab.device.multiprocessors)


def _measure(
    compiled: Compiled, request: Request, worker: Worker, device: DeviceInfo, record: Record
) -> None:
    """Run the stage and add its row and its checks. A stage whose claims fail is not timed."""
    if not compiled.claims_hold:
        record.skip(compiled.stage.name, "not run: its SASS is not what it claims to be")
        return
    check = Check(Problem.of(compiled.case), request.init, request.seed)
    trial = Trial(compiled.stage, compiled.case, check, request.versus)
    measured = row(trial, measure(trial, compiled.build, worker, device))
    record.result["stages"].append(measured)
    _check(measured, record)
    if request.keep and measured["verified"]:
        kept = recording.start(compiled.stage, device.name, silicon(device))
        kept.add(compiled.stage, compiled.case, {}, measured)
        record.result["recording"] = str(recording.save(compiled.stage, kept))


def _check(measured: dict[str, Any], record: Record) -> None:
    """Add the check of a stage's result; say it when the library's own result is not proven."""
    name = f"{measured['stage']}: every element verified"
    record.check(name, ok=measured["verified"], detail=verification(measured))
    library = measured["cublas"]
    if library and library["wrong"]:
        record.result["notes"].append(
            f"{library['name']} is outside the bound in {library['wrong']} elements: it may "
            "accumulate in another order or type"
        )
