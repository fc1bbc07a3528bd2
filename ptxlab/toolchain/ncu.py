"""Nsight Compute: runs ncu on a program, says why when it brings nothing, and reads its reports.

Values come from the report file alone, through NVIDIA's own reader: what ncu prints differs between
versions and mixes with the program's output. Its log is read for one purpose, to say why no kernel
was profiled; the wording of the log is that of ncu 2025.3.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ptxlab.errors import MissingError, PtxlabError, ToolError, UsageError
from ptxlab.files import is_file
from ptxlab.toolchain import child
from ptxlab.toolchain.tools import Tool, find_tool, run_tool

MINIMUM_VERSION = (2022, 4)
"""The ncu of CUDA 12.0, the first toolkit that compiles for sm_90a."""

SUFFIX = ".ncu-rep"
SUFFIXES = (SUFFIX, ".ncu-repz")
"""How the names of reports end: ncu writes the first when it is told to; 2026.3 packs others by itself."""

READ_SECONDS = 600.0
"""How long reading a report may take."""

_STDERR = 2
_ERROR = "==ERROR=="
_NOTHING = "nothing-profiled"
_PROGRAM_FAILED = re.compile(r"The application returned an error code \((\d+)\)")
_REFUSED_METRIC = re.compile(r"Failed to find metric (?:regex:\^)?([\w:.]*\w)")


@dataclass(frozen=True)
class Request:
    """What to profile, and what to measure.

    Attributes:
        command: the program and its arguments.
        metrics: ncu's metric names; those that this chip does not have are left out.
        required: metric names too, but one that does not exist is an error.
        kernel: only kernels of this name, or of a pattern ("regex:..."); "" takes every kernel.
        skip: launches to pass over first, counted among those that match.
        count: launches to profile; None profiles all.
        section_set: a set of ncu's own ("full", "detailed"), or "".
        device: only launches on this device; None takes every device.
        quiet: keep what the program prints for an error's message, instead of passing it on to
            stderr.
        timeout: seconds for everything.

    """

    command: tuple[str, ...]
    metrics: tuple[str, ...]
    required: tuple[str, ...] = ()
    kernel: str = ""
    skip: int = 0
    count: int | None = None
    section_set: str = ""
    device: int | None = None
    quiet: bool = False
    timeout: float = 120.0

    @property
    def program(self) -> str:
        """What messages call the program: a quiet one is ptxlab's own worker."""
        return "ptxlab's worker" if self.quiet else self.command[0]


@dataclass(frozen=True)
class Outcome:
    """What a run of ncu brought.

    Attributes:
        launches: one dict per profiled launch, as read_report returns them.
        unknown: metrics that this chip or this ncu does not have.
        failure: what went wrong although something may have been profiled, or None.

    """

    launches: list[dict[str, Any]]
    unknown: tuple[str, ...]
    failure: PtxlabError | None


def find_ncu() -> Tool:
    """Return ncu.

    Raises:
        MissingError: there is none, or it is older than MINIMUM_VERSION.

    """
    tool = find_tool("ncu")
    if tool.version and tool.version < MINIMUM_VERSION:
        needed = ".".join(map(str, MINIMUM_VERSION))
        raise MissingError(
            f"{tool.path} is ncu {tool.version_text}; needed: {needed} or newer",
            "install the Nsight Compute of a newer CUDA toolkit, or put a newer ncu first on PATH",
            code="ncu-too-old",
        )
    return tool


def command_line(tool: Tool, request: Request, report: Path, log: Path) -> list[str]:
    """Return ncu's command line for a request. The user's configuration has no part in it."""
    line = [str(tool.path), "--config-file", "off", "-f", "-o", str(report), "--log-file", str(log)]
    line += ["--target-processes", "all", "--clock-control", "none"]
    line += ["--metrics", ",".join((*request.metrics, *request.required))]
    if request.section_set:
        line += ["--set", request.section_set]
    if request.kernel:
        line += ["-k", request.kernel]
    if request.skip:
        line += ["-s", str(request.skip)]
    if request.count is not None:
        line += ["-c", str(request.count)]
    if request.device is not None:
        line += ["--devices", str(request.device)]
    return [*line, "--", *request.command]


def collect(tool: Tool, request: Request, report: Path, *, instances: Collection[str] = ()) -> Outcome:
    """Run a program under ncu and read the report that it leaves in the file ``report``.

    ncu 2025.3 passes over metrics that the chip does not have without a word; a version that
    refuses to run is run again without them.

    Args:
        tool: find_ncu().
        request: what to run and to measure.
        report: the file to write; its name ends in SUFFIX, or ncu would choose another one.
        instances: metrics whose values per instruction or per opcode are wanted.

    Raises:
        ToolError: the time limit passed, or ncu left a damaged report.

    """
    accepted = request
    while True:
        report.unlink(missing_ok=True)
        run = _run(tool, accepted, report)
        launches = _read(report, instances) if report.is_file() else []
        refused = {name for name in _REFUSED_METRIC.findall(run.log) if name in accepted.metrics}
        if launches or not refused:
            break
        kept = tuple(name for name in accepted.metrics if name not in refused)
        accepted = replace(accepted, metrics=kept)
    failure = diagnose(run, len(launches), request)
    if report.is_file() and _says_nothing(failure, run.log):
        raise _damaged(report)
    named = _absent(request.required, launches)
    return Outcome(launches, _absent(request.metrics, launches), failure or _no_metric(named))


def _says_nothing(failure: PtxlabError | None, log: str) -> bool:
    """Whether no launch is known of although ncu does not say itself that it profiled none."""
    return failure is not None and failure.code == _NOTHING and "No kernels were profiled" not in log


def _absent(names: tuple[str, ...], launches: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the metrics that no launch has; names of groups of metrics (with a colon) cannot be told."""
    if not launches:
        return ()
    found = {name for launch in launches for name in launch["metrics"]}
    return tuple(name for name in names if name not in found and ":" not in name)


def _no_metric(names: tuple[str, ...]) -> UsageError | None:
    if not names:
        return None
    return UsageError(
        f"ncu knows no metric '{names[0]}' for this GPU", "ncu --query-metrics lists them; mind the suffix"
    )


def section_sets(tool: Tool) -> list[str]:
    """Return the names that ``--set`` takes. ncu itself passes over any other name without a word."""
    listed = run_tool(tool, ["--list-sets"]).stdout
    return [name for name in re.findall(r"^(\w+) +\w", listed, re.MULTILINE) if name != "Identifier"]


@dataclass(frozen=True)
class Run:
    """How a run of ncu ended: its exit code, its log, what the program printed if that was kept."""

    code: int
    log: str
    output: str = ""


def _run(tool: Tool, request: Request, report: Path) -> Run:
    """Run ncu once. Whatever ends this, no process of the run is left behind."""
    with tempfile.TemporaryDirectory(prefix="ptxlab-ncu-") as folder:
        log, output = Path(folder) / "ncu.log", Path(folder) / "output"
        with output.open("wb") as kept:
            process = subprocess.Popen(
                command_line(tool, request, report, log),
                stdout=kept if request.quiet else _STDERR,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            code = process.wait(request.timeout)
        except subprocess.TimeoutExpired:
            raise ToolError(
                f"ncu did not finish within {request.timeout:g} s",
                "give it more with --timeout, or less to do: --kernel, --launch-count, --metrics",
                code="tool-timeout",
            ) from None
        finally:
            _end(process)
        return Run(code, _text(log), _text(output))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all that it started: they share a session, which is their group too."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # all of them have ended
    process.wait()


def diagnose(run: Run, launches: int, request: Request) -> PtxlabError | None:
    """Return what a run of ncu that profiled this many launches failed at, or None."""
    if launches == 0:
        refused = _refusal(run.log)
        if refused:
            return refused
    errors = _errors(run.log)
    program = _PROGRAM_FAILED.search(run.log)
    if program and not errors:
        said = f": {run.output.splitlines()[-1]}" if run.output.strip() else ""
        return ToolError(
            f"{request.program} ended with exit code {program[1]} under ncu{said}",
            "run it without the profiler first",
            code="program-failed",
        )
    if run.code != 0 or (errors and launches == 0):
        what = "; ".join(errors) or "it printed no reason"
        return ToolError(f"ncu ended with exit code {run.code}: {what}", code="profiler-failed")
    return None if launches else _nothing(run.log, request)


def _refusal(log: str) -> PtxlabError | None:
    """Return the error for a log in which ncu says that it may not, or cannot, read counters."""
    unknown = _REFUSED_METRIC.search(log)
    if unknown:
        return _no_metric((unknown[1],))
    for each in _REFUSALS:
        if each.mark in log:
            return MissingError(each.message, each.hint, code=each.code)
    return None


@dataclass(frozen=True)
class _Refusal:
    """Words in ncu's log, and the error that they mean."""

    mark: str
    code: str
    message: str
    hint: str


_REFUSALS = (
    _Refusal(
        "ERR_NVGPUCTRPERM",
        "no-permission",
        "ncu may not read the GPU's performance counters here (ERR_NVGPUCTRPERM)",
        "run as root, or start the container with --cap-add=SYS_ADMIN, or have the host's"
        " administrator load the nvidia module with NVreg_RestrictProfilingToAdminUsers=0",
    ),
    _Refusal(
        "LibraryNotLoaded",
        "no-counters",
        "ncu cannot load its profiler here (LibraryNotLoaded), as in a sandbox such as gVisor",
        "run on a machine, virtual machine or container whose kernel is not sandboxed",
    ),
    _Refusal(
        "driver resource was unavailable",
        "counters-taken",
        "another program holds the GPU's performance counters (DCGM, or a second profiler)",
        "end the other profiler; for DCGM: dcgmi profile --pause",
    ),
    _Refusal(
        "driver is not compatible",
        "driver-too-old",
        "this ncu does not work with the installed NVIDIA driver",
        "use the ncu of the CUDA version that nvidia-smi names",
    ),
)


def _nothing(log: str, request: Request) -> MissingError:
    """Return the error for a program that ran well and left no launch to profile: the reason."""
    message, hint = _why_nothing(_available_kernels(log), request, used_cuda="Connected to process" in log)
    return MissingError(message, hint, code=_NOTHING)


def _why_nothing(others: list[str], request: Request, *, used_cuda: bool) -> tuple[str, str]:
    """Return why nothing was profiled, and what to do.

    ``others`` are the kernels that did not match the filter: ncu lists them, and only them.
    """
    program = request.program
    if request.skip:
        which = f"launch of '{request.kernel}'" if request.kernel else "launch"
        return f"{program} made no {which} after the first {request.skip}", "a smaller --launch-skip"
    if others:
        near = difflib.get_close_matches(request.kernel, others, n=1)
        how_many = f"0 of the {len(others)} kernels that {program} launched"
        return (
            f"the filter '{request.kernel}' matched {how_many}: {', '.join(others)}",
            f"--kernel {near[0] if near else others[0]}, or --kernel regex:PATTERN",
        )
    if used_cuda:
        where = "" if request.device is None else f" on device {request.device}"
        return f"{program} used CUDA but launched no kernel{where}", "run it so that it needs the GPU"
    return (
        f"neither {program} nor a process that it started used CUDA",
        "child processes are followed, but not those of a server, ssh or docker: profile these instead",
    )


def _available_kernels(log: str) -> list[str]:
    """Return the kernels that ncu lists under "Available Kernels", one a line with a number."""
    listed = log.partition("Available Kernels")[2]
    return list(dict.fromkeys(re.findall(r"^\s*\d+\.\s+(.+?)\s*$", listed, re.MULTILINE)))


def _errors(log: str) -> list[str]:
    """Return what ncu's error lines say, but not that the program failed: ncu itself may have ended it."""
    lines = [line.removeprefix(_ERROR).strip() for line in log.splitlines() if line.startswith(_ERROR)]
    return [line for line in lines if not _PROGRAM_FAILED.search(line)]


def read_report(path: Path, *, instances: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return one dict per launch in a report.

    Each has ``launch_id`` (counted from 0 in the order of the report), ``name`` (the kernel's
    function name), ``demangled``, ``metrics`` (name -> value, None where ncu has none), and for the
    metrics that are asked for in ``instances`` their values one by one: ``instances`` (name -> list
    of (key, value), where the key is an opcode or a program counter) and ``sass`` (program counter
    -> instruction text).

    Raises:
        UsageError: there is no such file.
        ToolError: the file is damaged or no report, or it takes too long to read.
        MissingError: the package that reads reports is not installed.

    """
    if not is_file(path):
        raise UsageError(f"{path} does not exist")
    launches = _read(path, instances)
    if not launches:
        raise _damaged(path)
    return launches


def _damaged(path: Path) -> ToolError:
    return ToolError(
        f"{path} is damaged, or no report of Nsight Compute", "profile again", code="damaged-report"
    )


def _read(path: Path, instances: Collection[str]) -> list[dict[str, Any]]:
    """Return the launches of a report.

    NVIDIA's reader answers a damaged file with fewer launches, with launches that lack everything, with
    exceptions of any kind, or with a crash.
    """
    try:
        launches: list[dict[str, Any]] = child.ask(
            _launches, str(path), tuple(instances), title="ncu-report", about=str(path), timeout=READ_SECONDS
        )
    except ToolError as error:
        raise (error if error.code == "tool-timeout" else _damaged(path)) from error
    if not all(launch["name"] and launch["metrics"] for launch in launches):
        raise _damaged(path)
    return launches


def _launches(path: str, instances: Collection[str]) -> list[dict[str, Any]]:
    """Return what the reader finds in a file; this runs in a child."""
    reader = _reader()
    context = reader.load_report(path)
    ranges = [context.range_by_idx(i) for i in range(context.num_ranges())]
    actions = [each.action_by_idx(i) for each in ranges for i in range(each.num_actions())]
    return [
        {
            "launch_id": index,
            "name": action.name(),
            "demangled": action.name(reader.IAction.NameBase_DEMANGLED),
            "metrics": {name: _value(action.metric_by_name(name)) for name in action.metric_names()},
            **_instances(action, instances),
        }
        for index, action in enumerate(actions)
    ]


def _reader() -> Any:
    """Return the module ncu_report."""
    try:
        with warnings.catch_warnings():
            # Its generated types lack __module__, which Python 3.12 and newer warn about.
            warnings.simplefilter("ignore", DeprecationWarning)
            import ncu_report
    except ImportError as error:
        raise MissingError(
            f"the Python package ncu-report cannot be imported: {error}", "pip install ncu-report"
        ) from error
    return ncu_report


def _value(metric: Any) -> str | int | float | None:
    """Return a metric's value; None where it has none or is not a finite number."""
    value: str | int | float | None = metric.value()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _instances(action: Any, names: Collection[str]) -> dict[str, Any]:
    values: dict[str, list[tuple[str | int, float]]] = {}
    sass: dict[int, str] = {}
    for name in names:
        metric = action.metric_by_name(name)
        if metric is None or not metric.has_correlation_ids():
            continue
        keys = metric.correlation_ids()
        values[name] = [(keys.value(i), metric.value(i)) for i in range(metric.num_instances())]
        for key, _ in values[name]:
            if isinstance(key, int) and key not in sass:
                sass[key] = action.sass_by_pc(key)
    return {"instances": values, "sass": sass}
