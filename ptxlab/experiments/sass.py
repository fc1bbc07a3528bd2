"""What the machine code of a file, a probe or a GEMM stage holds: the record of ``ptxlab sass``."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ptxlab.errors import PtxlabError, UsageError, unknown_name
from ptxlab.experiments.base import Case, Experiment, blamed
from ptxlab.experiments.record import Record, environment
from ptxlab.sass.advisories import remedy
from ptxlab.sass.claims import check_claims
from ptxlab.sass.expectations import Expectation, parse_expectation
from ptxlab.sass.flops import flops as flops_of
from ptxlab.sass.instructions import WGMMA
from ptxlab.sass.names import is_called
from ptxlab.sass.ptx import ptx_kernels
from ptxlab.sass.report import kernels
from ptxlab.toolchain.arch import DEFAULT_ARCH, parse_arch
from ptxlab.toolchain.build import SUFFIXES, Build, build_file
from ptxlab.toolchain.options import Options

CHECKS = ("proxy-fence",)
"""What can be held against every kernel, whatever it is."""

OF_A_UNIT = 6
"""Kernels of a stage that are compiled together: each takes a third of a second, and there may be 120."""

Report = Callable[[str, int, int], None]
"""Takes what is being done, how many parts of it are done, and how many there are."""


def sass_record(
    target: str,
    archs: Sequence[str],
    options: Options,
    kernel: str | None = None,
    expect: Sequence[str] = (),
    checks: Sequence[str] = (),
    *,
    flops: bool = False,
    report: Report = lambda *_: None,
) -> Record:
    """Build the target for each architecture and report its kernels.

    For a probe or a GEMM stage its claims about the SASS are checked as well.

    Args:
        target: a .cu, .ptx or .cubin file, "probe:NAME" or "gemm:STAGE".
        archs: the architectures; none for what a .ptx or .cubin itself is for, else sm_90a.
        options: the user's options for the compiler.
        kernel: report this kernel alone: its symbol, its name in C++ (of all its template instances), or of
            a stage its variant.
        expect: opcodes that every kernel reported must hold: "USETMAXREG", or with a count "LDSM.16.M88.4=8".
        checks: what else is held against every kernel reported: names of CHECKS.
        flops: add what the tensor instructions of each kernel compute.
        report: told how far it is.

    Raises:
        UsageError: the target, an architecture, an option or the kernel does not exist or does not fit.
        MissingError: a tool that it needs is not here.
        ToolError: it does not compile or is damaged; the error's record holds what was reached, and the
            compiler's whole log.

    """
    wanted: list[str | None] = [parse_arch(arch) for arch in archs] or [None]
    expected = [parse_expectation(text) for text in expect]
    _check_names(checks)
    kind, _, name = target.partition(":")
    experiment = _experiment(kind, name) if kind in ("probe", "gemm") and name else None
    if experiment:
        options.check(f"a {'GEMM stage' if kind == 'gemm' else 'probe'}")
    elif Path(target).suffix.lower() not in SUFFIXES:
        raise _no_target(target)
    record = Record(
        params=_params(target, archs, options, kernel) | {"expect": list(expect), "check": list(checks)}
    )
    record.result = {"target": target, "kernels": [], "builds": [], "remedies": {}}
    failed: PtxlabError | None = None
    builds: list[Build] = []
    for arch in wanted:
        try:
            builds += _report(record, target, experiment, arch, options, report)
        except PtxlabError as error:
            if arch and len(wanted) > 1:
                record.skip(arch, error.message)
            record.result.setdefault("log", getattr(error, "log", ""))
            failed = failed or error
    if failed:
        failed.record = record
        raise failed
    if not record.result["kernels"]:  # a probe that no architecture given here can run
        raise UsageError("; ".join(each["reason"] for each in record.skipped))
    if kernel is not None:
        _keep_only(record, kernel)
    _hold_against(record, builds, expected)
    _look_for_fences(record, checks)
    _add_more(record, flops=flops)
    return record


def _add_more(record: Record, *, flops: bool) -> None:
    """Add what the kernels compute, if it was asked for, and what of them nobody checks."""
    every = record.result["kernels"]
    if flops:
        record.params["flops"] = True
        record.result["kernels"] = [each | {"flops": flops_of(each)} for each in every]
    if any(WGMMA & each["families"].keys() for each in every):
        record.skip("release of shared memory", _UNCHECKED)


_UNCHECKED = (
    "not checked here, nor by ptxas: that no shared memory which a wgmma reads is overwritten before the "
    "wgmma.wait_group"
)


def _report(
    record: Record,
    target: str,
    experiment: Experiment | None,
    arch: str | None,
    options: Options,
    report: Report,
) -> list[Build]:
    """Add what the target holds on one architecture to the record, and return its builds."""
    result = record.result
    if experiment:
        with blamed(experiment.file):
            builds, found = _variants(record, experiment, arch or DEFAULT_ARCH, report)
        if not builds:
            return []
    else:
        report(f"compiling {target}", 0, 1)
        builds = [build_file(Path(target), arch, options)]
        found = kernels(builds[0])
    if not found:
        raise UsageError(f"{target} holds no kernel for {builds[0].arch}")
    result["kernels"] += found
    result["builds"] += [_built(build) for build in builds]
    said = [line for each in found for line in each["advisories"]]
    result["remedies"] |= {line: remedy(line) for line in said if remedy(line)}
    archs = {each["arch"] for each in result["builds"]}
    record.arch = archs.pop() if len(archs) == 1 else ""  # of several, each kernel names its own
    record.environment = environment(compiler=builds[0].compiler)
    return builds


def _built(build: Build) -> dict[str, Any]:
    return {
        "arch": build.arch,
        "compiler": build.compiler,
        "cubin_bytes": len(build.cubin),
        "cached": build.cached,
        "folder": str(build.folder) if build.folder else None,
    }


def _hold_against(record: Record, builds: Sequence[Build], expected: Sequence[Expectation]) -> None:
    """Add a check of every kernel reported for each opcode that the user expects."""
    if not expected:
        return
    bodies = {(each.arch, name): body for each in builds for name, body in ptx_kernels(each.ptx).items()}
    for kernel in record.result["kernels"]:
        for each in expected:
            ok, detail = each.check(kernel, bodies.get((kernel["arch"], kernel["name"])))
            record.check(f"{kernel['readable_name']} ({kernel['arch']}): expects {each.text}", ok, detail)


def _check_names(checks: Sequence[str]) -> None:
    for name in checks:
        if name not in CHECKS:
            raise unknown_name("check", name, CHECKS)


def _look_for_fences(record: Record, checks: Sequence[str]) -> None:
    """Add a check of every kernel reported: that its asynchronous reads of shared memory are fenced."""
    if "proxy-fence" not in checks:
        return
    from ptxlab.sass.proxy_fence import judged

    for each in record.result["kernels"]:
        record.check(f"{each['readable_name']} ({each['arch']}): proxy fence", *judged(each))


def _experiment(kind: str, name: str) -> Experiment:
    from ptxlab.experiments import registry

    return registry.find_probe(name) if kind == "probe" else registry.find_stage(name)


def _no_target(target: str) -> UsageError:
    from ptxlab.experiments import registry

    names = [f"probe:{each.name}" for each in registry.probe_entries()]
    names += [f"gemm:{each.name}" for each in registry.stage_entries()]
    near = difflib.get_close_matches(target, names, n=1, cutoff=0.5)
    return UsageError(
        f"'{target}' is no target; legal: a {', '.join(SUFFIXES)} file, {', '.join(names)}",
        f"did you mean {near[0]}?" if near else "",
    )


def _variants(
    record: Record, experiment: Experiment, arch: str, report: Report
) -> tuple[list[Build], list[dict[str, Any]]]:
    """Build every variant for one architecture, check its claims, and return the builds and their kernels.

    There are none if no variant is legal there.
    """
    from ptxlab.experiments.answers import claims_of
    from ptxlab.experiments.runner import kernel_report
    from ptxlab.experiments.unit import kernel_name

    cases: dict[str, Case] = {}
    for case in experiment.variants(arch):
        cases.setdefault(kernel_name(experiment, experiment.macros(case)), case)
    if not cases:
        record.skip(arch, f"{experiment.name} has no variant that is legal on {arch}")
    named = _told_apart(experiment, arch, cases)
    builds, found = list[Build](), list[dict[str, Any]]()
    for unit, build in _compiled(experiment, cases, arch, report):
        for name in unit:
            claims = claims_of(experiment, cases[name])
            for title, ok, detail in check_claims(kernel_report(build, name), claims):
                record.check(f"{name} ({arch}): {title}", ok, detail)
        builds.append(build)
        found += [each | named.get(each["name"], {}) for each in kernels(build)]
    return builds, found


def _compiled(
    experiment: Experiment, cases: dict[str, Case], arch: str, report: Report
) -> Iterator[tuple[list[str], Build]]:
    """Yield the kernels of each unit, and its build; units are compiled side by side.

    All kernels of a probe are one unit, as ``probe`` has it, too: they are small.
    """
    from ptxlab.experiments import ahead
    from ptxlab.experiments.gemm import GemmStage
    from ptxlab.experiments.unit import unit_builder

    names = list(cases)
    size = OF_A_UNIT if isinstance(experiment, GemmStage) else max(1, len(names))
    units = [names[first : first + size] for first in range(0, len(names), size)]
    with ahead.pool() as pool:
        points = [[cases[name] for name in unit] for unit in units]
        builds = [pool.submit(unit_builder(experiment, each, arch)) for each in points]
        for done, (unit, build) in enumerate(zip(units, builds, strict=True)):
            report(f"compiling {experiment.name} for {arch}", done, len(units))
            yield unit, build.result()


def _told_apart(experiment: Experiment, arch: str, cases: dict[str, Case]) -> dict[str, dict[str, str]]:
    """Return what is added to each kernel of a stage: by which options its variant is another than usual.

    Their names hold all macros, nearly all of them the same in all. A probe's are short.
    """
    from ptxlab.experiments.gemm import GemmStage

    if not isinstance(experiment, GemmStage) or not cases:
        return {}
    usual = experiment.point(arch).params
    return {name: {"variant": Case(arch, case.params, usual).key} for name, case in cases.items()}


def _params(target: str, archs: Sequence[str], options: Options, kernel: str | None) -> dict[str, Any]:
    given = asdict(options) | {"include_dirs": [str(folder) for folder in options.include_dirs]}
    return {"target": target, "arch": list(archs), "kernel": kernel, **given}


def _keep_only(record: Record, kernel: str) -> None:
    every = record.result["kernels"]
    exact = [each for each in every if kernel in (each["name"], each.get("variant"))]
    record.result["kernels"] = exact or [each for each in every if is_called(each["name"], kernel)]
    if not record.result["kernels"]:
        names = ", ".join(dict.fromkeys(each.get("variant", each["readable_name"]) for each in every))
        raise UsageError(f"there is no kernel '{kernel}'; there are: {names}")
