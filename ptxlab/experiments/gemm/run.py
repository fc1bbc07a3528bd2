"""``ptxlab gemm``: explain a stage, run it where there is a device, and say what came out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ptxlab.device.client import Worker
from ptxlab.device.job import DeviceInfo
from ptxlab.errors import MissingError, PtxlabError
from ptxlab.experiments import recording
from ptxlab.experiments.base import Case, Value, blamed
from ptxlab.experiments.gemm import history
from ptxlab.experiments.gemm.catalogue import recorded
from ptxlab.experiments.gemm.check import Check
from ptxlab.experiments.gemm.conclude import conclude, error_explained, hot_note, notes, verification
from ptxlab.experiments.gemm.explain import explain, mma_by_sass
from ptxlab.experiments.gemm.machine import Machine, machine
from ptxlab.experiments.gemm.measure import Method, Trial, measure, rows
from ptxlab.experiments.gemm.problem import Problem
from ptxlab.experiments.gemm.repeat import FORWARD, REVERSED, order_note, order_of, repeated
from ptxlab.experiments.gemm.stage import MMA_MACS, GemmStage
from ptxlab.experiments.gemm.sweep import extended, grouped, points
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
        options: values for the options of the stages: sizes, types, layout, factors.
        settings: each "name=value", of an option that not every stage may have.
        sweeps: each "name=value,value" of any option; "size" is m, n and k at once. All combinations run.
        init: what A and B are filled with.
        seed: of the random fills.
        method: how it is timed.
        repeat: how often.
        order: "forward"; or "reversed": every other time with the sides in the opposite order.
        explain_error: say what the largest error is made of.
        explain_only: say what can be said without running.
        keep: write the result beside the stage as a recording.
        arch: what to compile for; None is the device's own, sm_90a where there is none.
        device: CUDA's index of the device.
        timeout: seconds for the job beyond what its size needs.

    """

    stage: str | None = None
    options: dict[str, Value] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    sweeps: tuple[str, ...] = ()
    init: str = "normal"
    seed: int = 0
    method: Method = field(default_factory=Method)
    repeat: int = 1
    order: str = FORWARD
    explain_error: bool = False
    explain_only: bool = False
    keep: bool = False
    arch: str | None = None
    device: int = 0
    timeout: float = 20.0


@dataclass(frozen=True)
class Compiled:
    """Points of a stage, all of one problem, that are ready to run: those whose SASS is what is claimed."""

    stage: GemmStage
    cases: tuple[Case, ...]
    build: Build


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
        problems = refused
        try:
            stage = find_stage(name)
            with blamed(stage.file):
                groups = grouped(
                    points(stage, lab.arch, record, request.options, request.settings, request.sweeps)
                )
                problems = failed
                if not lab.worker and not request.explain_only:
                    record.result["recorded"] += recorded(stage)
                for done, cases in enumerate(groups):
                    progress(
                        f"{name} {Problem.of(cases[0]).shape}",
                        index * len(groups) + done,
                        len(names) * len(groups),
                    )
                    _run_group(stage, cases, request, lab, record)
        except PtxlabError as error:  # after a fault the next stage gets a fresh worker
            record.skip(name, error.message)
            problems.append(error)
    return failed or (refused if len(refused) == len(names) else [])


def _started(request: Request, lab: Lab) -> Record:
    params = {"stage": request.stage, **request.options, "set": list(request.settings)}
    params |= {"sweep": list(request.sweeps), "init": request.init, "seed": request.seed}
    params |= {"vs": request.method.versus, "l2": "cold" if request.method.cold else "hot"}
    record = Record(backend=lab.backend, arch=lab.arch, params=params)
    record.environment = environment(device=vars(lab.device) if lab.device else None)
    record.result |= {
        "stages": [],
        "explanations": [],
        "recorded": [],
        "sweep": None,
        "errors": [],
        "notes": [],
    }
    record.result["notes"] = notes(request.init)
    return record


def _run_group(stage: GemmStage, cases: list[Case], request: Request, lab: Lab, record: Record) -> None:
    """Explain points of a stage that solve one problem; run them where there is a device."""
    compiled = _explain(stage, cases, lab, record)
    if lab.worker and lab.device and compiled.cases:
        _measure(compiled, request, lab.worker, lab.device, record)


def _explain(stage: GemmStage, cases: list[Case], lab: Lab, record: Record) -> Compiled:
    """Compile, hold the SASS of each point against the claims, and add the explanations.

    Raises:
        MissingError: there is no compiler; the explanation is there, without the occupancy.

    """
    gpu = _machine(lab.device) if lab.device else machine(lab.arch)
    try:
        build = build_unit(stage, cases, cases[0].arch)
    except MissingError:
        record.result["explanations"] += [explain(stage, case, gpu, None) for case in cases]
        raise
    sound = [case for case in cases if _explain_point(stage, case, gpu, build, record)]
    return Compiled(stage, tuple(sound), build)


def _explain_point(stage: GemmStage, case: Case, gpu: Machine | None, build: Build, record: Record) -> bool:
    """Add the explanation of a point and its checks, and return whether they hold."""
    kernel = kernel_report(build, kernel_name(stage, stage.macros(case)))
    before = len(record.checks)
    check_sass(kernel, stage.claims(case), record)
    counted, how = mma_by_sass(stage, case, kernel)
    whole = Problem.of(case).macs / MMA_MACS
    detail = f"{how} HMMA.16816, counted per warp; mnk / 2048 = {whole:.10g}"
    record.check("HMMA count", ok=counted == stage.mma_count(case), detail=detail)
    record.result["explanations"].append(explain(stage, case, gpu, kernel) | {"sass": kernel})
    holds = all(check["ok"] for check in record.checks[before:])
    if not holds:
        record.skip(stage.name, "not run: its SASS is not what it claims to be")
    return holds


def _machine(device: DeviceInfo) -> Machine | None:
    return machine(device.arch, device.name, device.multiprocessors)


def _measure(
    compiled: Compiled, request: Request, worker: Worker, device: DeviceInfo, record: Record
) -> None:
    """Run points of a stage, and add their rows and checks."""
    check = Check(Problem.of(compiled.cases[0]), request.init, request.seed)
    trial = Trial(compiled.stage, compiled.cases, check, request.method)
    result = measure(trial, compiled.build, worker, device)
    measured = rows(trial, result, device)
    if request.repeat > 1 and request.method.samples:
        _repeat(trial, compiled.build, measured, request, worker, device)
    record.result["stages"] += measured
    lost = history.keep(measured, device)
    record.result["notes"] += [lost] if lost else []
    if request.sweeps:
        record.result["sweep"] = extended(record.result["sweep"], request.sweeps, trial, measured, result)
    for case, row in zip(compiled.cases, measured, strict=True):
        _check(row, record)
        rates = gpu.rates if (gpu := _machine(device)) else {}
        note = hot_note(row, rates["memory"].per_second if "memory" in rates else None)
        record.result["notes"] += [each for each in (note, order_note(row)) if each]
        if request.explain_error and (told := error_explained(row)):
            record.result["errors"].append(told)
        if request.keep and row["verified"] and row["milliseconds"]:
            kept = recording.start(compiled.stage, device.name, silicon(device))
            kept.add(compiled.stage, case, {}, row)
            record.result["recording"] = str(recording.save(compiled.stage, kept))


def _repeat(
    trial: Trial,
    build: Build,
    measured: list[dict[str, Any]],
    request: Request,
    worker: Worker,
    device: DeviceInfo,
) -> None:
    """Measure again as often as asked for, and put what the runs say together into each row of the first."""
    runs = [[(FORWARD, row)] for row in measured]
    for index in range(1, request.repeat):
        order = order_of(index, request.order)
        again = replace(trial, method=replace(trial.method, backwards=order == REVERSED))
        for kept, row in zip(runs, rows(again, measure(again, build, worker, device), device), strict=True):
            kept.append((order, row))
    for row, kept in zip(measured, runs, strict=True):
        row["repeats"] = repeated(kept)
        row["verified"] = all(each["verified"] for _, each in kept)


def _check(measured: dict[str, Any], record: Record) -> None:
    """Add the check of a stage's result; say it when the library's own result is not proven."""
    own = " ".join(f"{name}={value}" for name, value in measured["options"].items())
    name = " ".join(filter(None, (measured["stage"], own))) + ": every element verified"
    record.check(name, ok=measured["verified"], detail=verification(measured))
    library = measured["cublas"]
    if library and library["wrong"]:
        record.result["notes"].append(
            f"{library['name']} is outside the bound in {library['wrong']} elements: it may "
            "accumulate in another order or type"
        )
