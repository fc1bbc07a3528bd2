"""``ptxlab gemm``: explain a stage, run it where there is a device, and say what came out."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from ptxlab.device.job import DeviceInfo, Report
from ptxlab.errors import DeviceError, MissingError, PtxlabError, UsageError
from ptxlab.experiments import ahead
from ptxlab.experiments.base import Case, Value, blamed
from ptxlab.experiments.gemm import ceiling, history
from ptxlab.experiments.gemm.catalogue import recorded
from ptxlab.experiments.gemm.ceiling import Loop
from ptxlab.experiments.gemm.check import Check
from ptxlab.experiments.gemm.conclude import conclude, error_explained, hot_note, notes, verification
from ptxlab.experiments.gemm.explain import explain, mma_by_sass
from ptxlab.experiments.gemm.keep import keep, make_room
from ptxlab.experiments.gemm.ladder import gains
from ptxlab.experiments.gemm.live import Show, reporting
from ptxlab.experiments.gemm.machine import Machine, machine
from ptxlab.experiments.gemm.measure import Entrant, Method, Trial, ceilings, measure, rows
from ptxlab.experiments.gemm.origin import KEPT, TUNED, in_force, undone
from ptxlab.experiments.gemm.problem import Problem
from ptxlab.experiments.gemm.repeat import FORWARD, REVERSED, order_note, order_of, repeated
from ptxlab.experiments.gemm.stage import MMA_MACS, GemmStage, climbed
from ptxlab.experiments.gemm.sweep import extended, grouped, points
from ptxlab.experiments.gemm.tune import Search, preferred, tuned
from ptxlab.experiments.record import Record, environment
from ptxlab.experiments.registry import find_stage, stage_entries
from ptxlab.experiments.runner import Lab, check_sass, kernel_report, open_lab
from ptxlab.experiments.unit import kernel_name, submitted
from ptxlab.toolchain.arch import parse_arch
from ptxlab.toolchain.build import Build

Point = tuple[GemmStage, Case]


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
        tune: time the plans of the stage first, and go on with the fastest.
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
    tune: bool = False
    repeat: int = 1
    order: str = FORWARD
    explain_error: bool = False
    explain_only: bool = False
    keep: bool = False
    arch: str | None = None
    device: int = 0
    timeout: float = 20.0


@dataclass
class Run:
    """A run under way: what was asked for, where it runs, what is shown meanwhile, and what came out."""

    request: Request
    lab: Lab
    show: Show
    record: Record
    stages: dict[str, GemmStage] = field(default_factory=dict)
    refused: list[PtxlabError] = field(default_factory=list)
    failed: list[PtxlabError] = field(default_factory=list)

    def skip(self, case: str, error: PtxlabError, problems: list[PtxlabError]) -> None:
        """Note that something was left out."""
        self.record.skip(case, error.message)
        problems.append(error)


def run_gemm(request: Request, show: Show) -> Record:
    """Explain the stages and, where there is a device, run, check and time them.

    All stages that solve one problem are timed in one run, so that their ratios are real. On the ladder a
    stage that fails does not keep the others from running; the first failure is raised at the end. One that
    cannot take the problem, or is not for this chip, is skipped.

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
        run = Run(request, lab, show, _started(request, lab))
        _run_stages(names, run)
    record = run.record
    record.result["conclusion"] = conclude(record.result)
    problems = run.failed or (run.refused if len(run.refused) == len(names) else [])
    if not lab.worker and not request.explain_only:
        record.result["notes"] += undone(_wanted(request), record.result["plans"])
        why = f"not run: {lab.why_no_device}"
        hint = "run it on a machine with an NVIDIA GPU; --explain asks for the explanation alone"
        problems.append(MissingError(why, hint, code="no-device"))
    if problems:
        problems[0].record = record if record.result["explanations"] else None
        raise problems[0]
    return record


def _wanted(request: Request) -> dict[str, bool]:
    """Return what was asked for beside the answer, and comes of a run alone."""
    return {
        "tune": request.tune,
        "check": not request.method.samples,
        "explain_error": request.explain_error,
        "record": request.keep,
    }


def _run_stages(names: list[str], run: Run) -> None:
    """Do each problem with all the stages that solve it."""
    groups = grouped(_planned(_points(names, run), run))
    for index, points_of_one in enumerate(groups):
        problem = Problem.of(points_of_one[0][1])
        entrants = _compiled(points_of_one, run)
        if not run.lab.worker or not run.lab.device or not entrants:
            continue
        try:
            _measure(problem, entrants, run, index / len(groups), 1 / len(groups))
        except PtxlabError as error:  # after a fault the next problem gets a fresh worker
            run.skip(", ".join(dict.fromkeys(each.stage.name for each in entrants)), error, run.failed)


def _planned(found: list[Point], run: Run) -> list[Point]:
    """Return the points with the plans that are the fastest on this device, as far as that is known."""
    request, device = run.request, run.lab.device
    for stage, _ in found:
        if request.tune and not stage.planned:
            what = f"stage {stage.name} has one way to cut up a problem: there is nothing to tune"
            raise UsageError(what, f"ptxlab gemm --stage {stage.name}")
    named = {text.partition("=")[0].replace("-", "_") for text in (*request.settings, *request.sweeps)}
    chosen, sources = found, [""] * len(found)
    if device and request.tune:
        chosen = list(_tuned(found, named, run))
        sources = [TUNED] * len(chosen)
    elif device:
        chosen = [
            (stage, preferred(stage, case, device, named, cold=request.method.cold)) for stage, case in found
        ]
        sources = ["" if case is own else KEPT for (_, case), (_, own) in zip(chosen, found, strict=True)]
    run.record.result["plans"] = [
        in_force(stage, case, named, source)
        for (stage, case), source in zip(chosen, sources, strict=True)
        if stage.planned
    ]
    return chosen


def _tuned(found: list[Point], named: set[str], run: Run) -> Iterator[Point]:
    """Yield the points with the fastest of all plans; those that none can be found for are left out."""
    request, worker, device = run.request, run.lab.worker, run.lab.device
    if worker is None or device is None:
        return
    for stage, case in found:
        check = Check(Problem.of(case), request.init, request.seed)
        search = Search(check, request.method.cold, worker, device, run.show)
        try:
            best, told = tuned(stage, case, named, search)
        except PtxlabError as error:
            run.skip(stage.name, error, run.failed)
            continue
        run.record.result["tuned"].append(told)
        yield stage, best


def _points(names: list[str], run: Run) -> list[Point]:
    """Return every point of every stage that was asked for, from the lowest rung up."""
    request, found = run.request, []
    for name in names:
        try:
            run.stages[name] = find_stage(name)
        except PtxlabError as error:
            run.skip(name, error, run.refused)
    for stage in climbed(list(run.stages.values())):
        problems = run.refused
        try:
            with blamed(stage.file):
                if request.keep and run.lab.device:
                    make_room(stage, run.lab.device)
                cases = points(
                    *(stage, run.lab.arch, run.record),
                    *(request.options, request.settings, request.sweeps),
                )
                found += [(stage, case) for case in cases]
                problems = run.failed
                if not run.lab.worker:
                    _recall(stage, run.record)
        except PtxlabError as error:
            run.skip(stage.name, error, problems)
    return found


def _recall(stage: GemmStage, record: Record) -> None:
    """Add what was recorded of a stage, or that nothing ever was."""
    rows = recorded(stage)
    record.result["recorded"] += rows
    if not rows:
        record.result["notes"].append(f"{stage.name} is compiled and modelled, not run on any GPU yet")


def _compiled(found: list[Point], run: Run) -> list[Entrant]:
    """Explain points that solve one problem, and return those whose SASS is what is claimed."""
    entrants: list[Entrant] = []
    stages = dict.fromkeys(stage for stage, _ in found)
    with ahead.pool() as pool:
        cases_of = {stage: [case for each, case in found if each is stage] for stage in stages}
        under_way = [(stage, cases, submitted(pool, stage, cases)) for stage, cases in cases_of.items()]
        for done, (stage, cases, build) in enumerate(under_way):
            run.show(f"compiling {stage.name}", done, len(stages))
            try:
                with blamed(stage.file):
                    entrants += _explain(stage, cases, build, run)
            except PtxlabError as error:
                run.skip(stage.name, error, run.failed)
    return entrants


def _started(request: Request, lab: Lab) -> Record:
    params = {"stage": request.stage, **request.options, "set": list(request.settings)}
    params |= {"sweep": list(request.sweeps), "init": request.init, "seed": request.seed}
    params |= {"vs": request.method.versus, "l2": "cold" if request.method.cold else "hot"}
    params |= {"explain": request.explain_only}
    record = Record(backend=lab.backend, arch=lab.arch, params=params)
    record.environment = environment(device=vars(lab.device) if lab.device else None)
    record.result |= {
        "stages": [],
        "ceilings": [],
        "explanations": [],
        "recorded": [],
        "recordings": [],
        "sweep": None,
        "tuned": [],
        "plans": [],
        "errors": [],
        "notes": [],
    }
    record.result["notes"] = notes(request.init)
    return record


def _explain(stage: GemmStage, cases: list[Case], build: Future[Build], run: Run) -> list[Entrant]:
    """Await the compiler, hold the SASS of each point against the claims, and add the explanations.

    Raises:
        MissingError: there is no compiler; the explanation is there, without the occupancy.

    """
    gpu = _machine(run.lab.device) if run.lab.device else machine(run.lab.arch)
    try:
        built = build.result()
    except MissingError:
        run.record.result["explanations"] += [
            explain(*(stage, case, gpu, None), draw=run.request.explain_only, hot=not run.request.method.cold)
            for case in cases
        ]
        raise
    sound = [case for case in cases if _explain_point(stage, case, gpu, built, run.record)]
    return [Entrant(stage, case, built.cubin) for case in sound]


def _explain_point(stage: GemmStage, case: Case, gpu: Machine | None, build: Build, record: Record) -> bool:
    """Add the explanation of a point and its checks, and return whether they hold."""
    kernel = kernel_report(build, kernel_name(stage, stage.macros(case)))
    before = len(record.checks)
    check_sass(kernel, stage.claims(case), record)
    if kernel["async_readers"]:
        from ptxlab.sass.proxy_fence import judged

        record.check("proxy fence", *judged(kernel))
    counted, how = mma_by_sass(stage, case, kernel)
    whole = Problem.of(case).macs / MMA_MACS
    detail = f"{how} m16n8k16, counted per warp; mnk / 2048, without the padding of tiles, = {whole:.10g}"
    record.check("m16n8k16 count", ok=counted == stage.mma_count(case), detail=detail)
    asked, hot = bool(record.params["explain"]), record.params["l2"] == "hot"
    said = explain(stage, case, gpu, kernel, draw=asked, hot=hot)
    record.result["explanations"].append(said | {"sass": kernel})
    holds = all(check["ok"] for check in record.checks[before:])
    if not holds:
        record.skip(stage.name, "not run: its SASS is not what it claims to be")
    return holds


def _machine(device: DeviceInfo) -> Machine | None:
    return machine(device.arch, device.name, device.multiprocessors)


def _measure(problem: Problem, entrants: list[Entrant], run: Run, start: float, share: float) -> None:
    """Run points that solve one problem, and add their rows and checks."""
    request, worker, device, record = run.request, run.lab.worker, run.lab.device, run.record
    if worker is None or device is None:
        return
    check = Check(problem, request.init, request.seed)
    trial = Trial(
        tuple(entrants), check, request.method, _loops(problem, run) if request.method.samples else ()
    )
    trial = _survivors(trial, run)
    report = reporting(trial, run.show, start, share)
    result = measure(trial, worker, device, report)
    measured = rows(trial, result, device)
    if request.repeat > 1 and request.method.samples:
        _repeat(trial, measured, run, report)
    for row, gain in zip(measured, gains(trial, measured, result, run.stages), strict=True):
        row["gain"] = gain
    record.result["stages"] += measured
    record.result["ceilings"] += [{"problem": str(problem), **row} for row in ceilings(trial, result)]
    lost = history.keep(measured, device)
    record.result["notes"] += [lost] if lost else []
    if request.sweeps:
        record.result["sweep"] = extended(record.result["sweep"], request.sweeps, trial, measured, result)
    _conclude_rows(measured, run)
    if request.keep:
        files = keep(trial, measured, ceilings(trial, result), device)
        kept = record.result["recordings"]
        kept += [each for each in files if each not in kept]


def _loops(problem: Problem, run: Run) -> tuple[Loop, ...]:
    """Return the ceilings that this device has for the problem's types; those that it has not are skipped."""
    if run.lab.device is None:
        return ()
    ready, missing = ceiling.loops(problem.dtype, run.lab.device)
    for case, reason in missing:
        if not any(each["case"] == case for each in run.record.skipped):
            run.record.skip(case, reason)
    return tuple(ready)


def _survivors(trial: Trial, run: Run) -> Trial:
    """Return the trial without points that the device does not survive; one alone is not tried before."""
    if run.lab.worker is None or len(trial.entrants) == 1:
        return trial
    alive: list[Entrant] = []
    for entrant in trial.entrants:
        run.show(f"trying {entrant.stage.name}", 0, 1)
        try:
            run.lab.worker.run(trial.rehearsal(entrant), timeout=run.lab.worker.timeout + trial.check.seconds)
            alive.append(entrant)
        except DeviceError as error:
            run.skip(entrant.stage.name, error, run.failed)
    if not alive:
        raise run.failed.pop()
    return replace(trial, entrants=tuple(alive))


def _conclude_rows(measured: list[dict[str, Any]], run: Run) -> None:
    """Add what is to be said of each row."""
    gpu = _machine(run.lab.device) if run.lab.device else None
    rates = gpu.rates if gpu else {}
    for row in measured:
        _check(row, run.record)
        note = hot_note(row, rates["memory"].per_second if "memory" in rates else None)
        run.record.result["notes"] += [each for each in (note, order_note(row)) if each]
        if run.request.explain_error and (told := error_explained(row)):
            run.record.result["errors"].append(told)
    for library in measured[0]["libraries"] if measured else ():
        if library["wrong"]:
            run.record.result["notes"].append(
                f"{library['name']} is outside the bound in {library['wrong']} elements: it may "
                "accumulate in another order or type"
            )


def _repeat(trial: Trial, measured: list[dict[str, Any]], run: Run, report: Report) -> None:
    """Measure again as often as asked for, and put what the runs say together into each row of the first.

    Where a run of a point is not verified, the row becomes that run's: it shows what went wrong.
    """
    request, worker, device = run.request, run.lab.worker, run.lab.device
    if worker is None or device is None:
        return
    runs = [[(FORWARD, row)] for row in measured]
    for index in range(1, request.repeat):
        order = order_of(index, request.order)
        again = replace(trial, method=replace(trial.method, backwards=order == REVERSED))
        for kept, row in zip(runs, rows(again, measure(again, worker, device, report), device), strict=True):
            kept.append((order, row))
    for row, kept in zip(measured, runs, strict=True):
        together = repeated(kept)
        row.update(next((each for _, each in kept if not each["verified"]), {}))
        row["repeats"] = together


def _check(measured: dict[str, Any], record: Record) -> None:
    """Add the check of a stage's result."""
    own = " ".join(f"{name}={value}" for name, value in measured["options"].items())
    name = " ".join(filter(None, (measured["stage"], own))) + ": every element verified"
    record.check(name, ok=measured["verified"], detail=verification(measured))
