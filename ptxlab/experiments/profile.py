"""Profiles an experiment or a user's own program with Nsight Compute, or reads a report of it."""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ptxlab.device.client import wrapped_command
from ptxlab.errors import MissingError, PtxlabError, UsageError, unknown_name
from ptxlab.experiments import counters
from ptxlab.experiments.base import blamed
from ptxlab.experiments.record import Record, environment
from ptxlab.experiments.runner import open_lab
from ptxlab.experiments.workload import Workload, find_experiment, values_of, workload_of
from ptxlab.files import check_writable
from ptxlab.toolchain import ncu
from ptxlab.toolchain.tools import Tool

ALL_GROUPS = "default"
"""The name that stands for all groups of counters.GROUPS."""

CAVEATS = (
    "ncu runs a launch several times, alone and with cold caches: its duration is no benchmark.",
    "Conflicts are wavefronts above the ideal, attributed to instructions.",
    "The raw L1 counter also counts waits for other traffic, such as data that cp.async brings.",
)

EXPLAINED = ("shared",)
"""Groups of counters whose numbers are explained in sentences."""

_START_SECONDS = 20.0  # for a worker to say which device there is


@dataclass(frozen=True)
class Settings:
    """How to profile.

    Attributes:
        metrics: names joined by commas: groups of counters.GROUPS, ALL_GROUPS, and metrics of ncu.
        section_set: a set of ncu's own to collect as well ("full"), or "".
        kernel: only kernels of this name or pattern ("regex:..."); "" is every kernel.
        launch_skip: launches to pass over.
        launch_count: launches to profile; None is all of them.
        report: where the report is kept, or None.
        device: index of the device; None is the first, or for a user's program all of them.
        timeout: seconds for one run under ncu.
        explain: what to explain in sentences: one of EXPLAINED, or "".

    """

    metrics: str = ALL_GROUPS
    section_set: str = ""
    kernel: str = ""
    launch_skip: int = 0
    launch_count: int | None = None
    report: Path | None = None
    device: int | None = None
    timeout: float = 120.0
    explain: str = ""

    def params(self) -> dict[str, Any]:
        """Return the values as a record holds them."""
        return {k: str(v) if isinstance(v, Path) else v for k, v in vars(self).items()}


def profile_target(
    target: str,
    arch: str | None,
    options: Sequence[str],
    sizes: Mapping[str, int],
    settings: Settings,
) -> Record:
    """Profile a probe or a GEMM stage, or read a report, and return the record.

    Args:
        target: "probe:NAME" or "NAME", "gemm:STAGE", or the name of a report.
        arch: what to compile for; None means the device's own.
        options: options of the experiment, each "name=value".
        sizes: m, n and k of a GEMM, those that were given.
        settings: how to profile.

    Raises:
        UsageError: there is no such target, or an option is wrong.
        MissingError: there is no device or no ncu, ncu may not read counters, or nothing was
            profiled. What can be told without them comes with the error.
        ToolError: ncu or the worker failed, or the report is damaged.

    """
    if target.endswith(ncu.SUFFIXES):
        return profile_report(Path(target), settings)
    experiment = find_experiment(target)
    values = values_of(experiment, options, sizes)
    lab = open_lab("auto", arch, settings.device or 0, _START_SECONDS)
    if lab.worker:
        lab.worker.close()  # it has said which device there is; the run under ncu has its own
    with blamed(experiment.file):
        case = experiment.case(lab.arch, **values)
        workload = workload_of(experiment, case)
    record = Record(arch=case.arch, params=settings.params() | {"target": target} | case.params)
    record.result = {"kernels": [], "static": workload.static, "modelled": workload.modelled}
    record.environment = environment(device=vars(lab.device) if lab.device else None)
    if settings.explain and "banks" in workload.modelled:
        one = workload.modelled["banks"] | {"instructions": 1}
        record.result["explanation"] = [counters.explain_class("modelled", one)]
    if lab.device is None:
        hint = "profile on a machine with an NVIDIA GPU"
        raise MissingError(lab.why_no_device, hint, code="no-device", record=record)
    return _profile_job(workload, settings, record)


def _profile_job(workload: Workload, settings: Settings, record: Record) -> Record:
    """Run the job in a worker under ncu, which profiles the kernel that the job is about."""
    with tempfile.TemporaryDirectory(prefix="ptxlab-profile-") as folder:
        jobs, results = Path(folder) / "jobs", Path(folder) / "results"
        jobs.write_bytes(pickle.dumps([workload.job]))
        command = wrapped_command(jobs, results, settings.device or 0)
        request = ncu.Request(
            command=tuple(command),
            metrics=(),
            kernel=settings.kernel or f"regex:^{workload.kernel}$",
            quiet=True,
        )
        _run(request, settings, record)
    _compare(workload, record)
    return record


def _compare(workload: Workload, record: Record) -> None:
    """Hold the counts that the model predicts against those that were measured."""
    launches = [row for row in record.result["kernels"] if row["name"] == workload.kernel]
    for name, predicted in workload.modelled.get("counts", {}).items():
        for row in launches:
            found = row["counts"][name]
            detail = f"{found} executed, {predicted} predicted"
            record.check(f"executed {name.upper()}", ok=found == predicted, detail=detail)


def profile_command(command: Sequence[str], settings: Settings) -> Record:
    """Profile a user's own program and return the record.

    Raises:
        UsageError: the program does not exist, or an option is wrong.
        MissingError: there is no ncu, it may not read counters, or nothing was profiled.
        ToolError: the program or ncu failed.

    """
    if shutil.which(command[0]) is None:
        raise UsageError(f"'{command[0]}' is no program that can be run")
    params = settings.params() | {"program": list(command)}
    record = Record(params=params, result={"kernels": []}, environment=environment())
    request = ncu.Request(tuple(command), (), kernel=settings.kernel, device=settings.device)
    return _run(request, settings, record)


def profile_report(path: Path, settings: Settings) -> Record:
    """Return the record of a report that ncu wrote before, here or elsewhere.

    Raises:
        UsageError: there is no such file, or an option asks for another run.
        ToolError: it is damaged.

    """
    _, named = parse_metrics(settings.metrics)
    if replace(settings, metrics=ALL_GROUPS, explain="") != Settings():
        raise UsageError(
            f"{path} is read as it is; of the options of a run only --metrics and --explain have a meaning"
        )
    launches = ncu.read_report(path, instances=counters.INSTANCES)
    record = Record(params={"target": str(path)}, result={"kernels": []}, environment=environment())
    _fill(record, launches, named, settings.explain)
    return record


def _run(request: ncu.Request, settings: Settings, record: Record) -> Record:
    """Run ncu and fill the record; a failure carries the record with it."""
    groups, named = parse_metrics(settings.metrics)
    _check_report(settings.report)
    request = replace(
        request,
        metrics=counters.metrics_of(groups),
        required=named,
        skip=settings.launch_skip,
        count=settings.launch_count,
        section_set=settings.section_set,
        timeout=settings.timeout,
    )
    try:
        tool = ncu.find_ncu()
        _check_set(tool, settings.section_set)
        record.environment["ncu"] = tool.version_text
        outcome = _collect(tool, request, settings.report)
        for name in outcome.unknown:
            record.skip(name, "this GPU, or this version of ncu, has no such metric")
        _fill(record, outcome.launches, named, settings.explain)
        if outcome.failure:
            raise outcome.failure
    except PtxlabError as error:
        error.record = record
        raise
    return record


def _fill(record: Record, launches: list[dict[str, Any]], named: Sequence[str], explain: str) -> None:
    """Put what was profiled into the record; ``named`` are metrics that are shown as they are."""
    for launch in launches:
        row = counters.kernel_row(launch)
        row["metrics"] = {name: launch["metrics"].get(name) for name in named}
        row["explanation"] = counters.explain_shared(row["shared"], row["shared_raw"]) if explain else []
        record.result["kernels"].append(row)
    if launches:
        record.backend = "device"
        record.result["caveats"] = list(CAVEATS)
        record.environment.setdefault("device", _device(launches[0]["metrics"]))
        record.arch = record.arch or _arch(launches[0]["metrics"])


def _device(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a report says of its device."""
    return {"name": metrics.get("device__attribute_display_name")}


def _arch(metrics: Mapping[str, Any]) -> str:
    """Return the architecture of a report's device. What its kernels were compiled for is not told."""
    numbers = [metrics.get(f"device__attribute_compute_capability_{part}") for part in ("major", "minor")]
    return "" if None in numbers else "sm_{}{}".format(*numbers)


def check_explained(name: str) -> None:
    """Refuse what cannot be explained; "" is nothing.

    Raises:
        UsageError: there is no explanation of that name.

    """
    if name and name not in EXPLAINED:
        raise unknown_name("value for --explain", name, EXPLAINED)


def parse_metrics(text: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the groups, and the metrics of ncu's own, that ``--metrics`` names.

    Raises:
        UsageError: a name is neither a group nor of the form of ncu's names.

    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    groups: list[str] = []
    named: list[str] = []
    for name in names:
        if name == ALL_GROUPS:
            groups += counters.GROUPS
        elif name in counters.GROUPS:
            groups.append(name)
        elif "__" in name or ":" in name:  # unit__counter.sum; group:..., breakdown:..., regex:...
            named.append(name)
        else:
            raise unknown_name("group of metrics", name, [ALL_GROUPS, *counters.GROUPS])
    return groups, tuple(named)


def _check_set(tool: Tool, name: str) -> None:
    """Refuse a set that ncu does not have: it would pass over it without a word."""
    if name and name not in (sets := ncu.section_sets(tool)):
        raise unknown_name("set of ncu", name, sets)


def _check_report(report: Path | None) -> None:
    """Refuse a report that could not be written, before the time of profiling is spent."""
    if report is None:
        return
    if report.suffix != ncu.SUFFIX:
        raise UsageError(f"--report {report}: the name must end in {ncu.SUFFIX}")
    check_writable(report)


def _collect(tool: Tool, request: ncu.Request, report: Path | None) -> ncu.Outcome:
    """Collect into a file of our own; the user's report is replaced only by a whole one."""
    with tempfile.TemporaryDirectory(prefix="ptxlab-report-") as folder:
        file = Path(folder) / f"report{ncu.SUFFIX}"
        outcome = ncu.collect(tool, request, file, instances=counters.INSTANCES)
        if report is not None and outcome.launches:
            shutil.move(file, report)
    return outcome
