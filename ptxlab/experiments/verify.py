"""Runs every variant of probes and counts those that agree; keeps what a device answered as recordings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ptxlab.device.job import DeviceInfo
from ptxlab.errors import DeviceError, MissingError, PtxlabError, ToolError, UsageError
from ptxlab.experiments import recording
from ptxlab.experiments.base import Case, blamed
from ptxlab.experiments.probe import Arrays, Probe
from ptxlab.experiments.record import Record, environment
from ptxlab.experiments.runner import COUNTERS, NOT_RUN, Lab, counts_of, run_probe
from ptxlab.experiments.unit import unit_builder
from ptxlab.toolchain.arch import CHIPS
from ptxlab.toolchain.build import Build

if TYPE_CHECKING:
    from concurrent.futures import Future

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many are done, and how many there are."""


def verify(
    probes: list[Probe], lab: Lab, progress: Progress, *, keep: bool, problems: Sequence[PtxlabError] = ()
) -> Record:
    """Run every variant of these probes; with ``keep`` write what the device answered as recordings.

    The result counts variants that agree and disagree, and what is skipped with the reason: variants that
    could not be compared, and forms that only other chips have. A probe that fails by itself does not stop
    the others.

    Raises:
        PtxlabError: the first of ``problems`` (probes that could not be loaded) and of the probes' own
            failures, with the record of all that ran.
        MissingError: nothing was compared; with the record.

    """
    if keep and not lab.worker:
        raise MissingError(f"nothing to record: {lab.why_no_device}", "--record needs a GPU")
    record = Record(backend=lab.backend, arch=lab.arch)
    record.environment = environment(device=vars(lab.device) if lab.device else None)
    errors, rows = list(problems), []
    prepared = _prepared(probes, lab.arch, errors)
    for probe, cases, build in prepared:
        try:
            with blamed(probe.file):
                rows.append(_verify_probe(probe, cases, build, lab, record, progress, keep=keep))
        except (ToolError, UsageError, DeviceError) as error:  # after a fault comes a fresh worker
            errors.append(error)
    totals = {key: sum(row[key] for row in rows) for key in ("variants", "agree", "disagree", "skipped")}
    record.result |= {**totals, "probes": rows}
    for each in errors:
        record.check("probe runs", ok=False, detail=each.message)
    if errors:
        errors[0].record = record
        raise errors[0]
    if not totals["agree"] and not totals["disagree"]:
        why = f"{lab.why_no_device}; no recording on {lab.arch}"
        if not any(cases for _, cases, _ in prepared):
            why = f"{lab.arch} has no {', '.join(row['probe'] for row in rows) or 'probe'}"
        raise MissingError(
            f"nothing to compare: {why}",
            "run it on a machine with that GPU, or with the --arch of a recording",
            record=record,
        )
    return record


def _prepared(
    probes: list[Probe], arch: str, errors: list[PtxlabError]
) -> list[tuple[Probe, list[Case], Future[Build | None]]]:
    """Return the variants of each probe, all being compiled from now on; a probe's own failures as errors."""
    from ptxlab.experiments import ahead  # a single run needs no threads

    found = []
    for probe in probes:
        try:
            with blamed(probe.file):
                cases = list(probe.variants(arch))
                found.append((probe, cases, _builder(probe, cases, arch)))
        except (ToolError, UsageError) as error:
            errors.append(error)
    builds = ahead.start([builder for _, _, builder in found])
    return [(probe, cases, build) for (probe, cases, _), build in zip(found, builds, strict=True)]


def _verify_probe(
    probe: Probe,
    cases: list[Case],
    compiling: Future[Build | None],
    lab: Lab,
    total: Record,
    progress: Progress,
    *,
    keep: bool,
) -> dict[str, Any]:
    """Run the variants of one probe and return its row of the table."""
    row: dict[str, Any] = {
        "probe": probe.name,
        "variants": len(cases),
        "agree": 0,
        "disagree": 0,
        "skipped": 0,
    }
    device, kept = lab.device, None
    if keep and device:
        recording.put_aside(probe, device.name)
        kept = recording.Recording(device.name, "")
    build = _built(compiling, lab)
    progress(probe.name, 0, len(cases))
    counts = counts_of(probe, cases, build, lab) if build else [None] * len(cases)
    for index, case in enumerate(cases):
        progress(f"{probe.name} {case.key}", index, len(cases))
        record, outputs = run_probe(probe, case, lab, build, counts[index])
        failed = [c for c in record.checks if not c["ok"] and c["name"] not in _findings(probe, case)]
        proven = any(check["name"] in ("prediction", "recording") for check in record.checks)
        row["disagree" if failed else "agree" if proven else "skipped"] += 1
        for check in failed:
            total.check(f"{probe.name} {case.key}: {check['name']}", ok=False, detail=check["detail"])
        if not failed and not proven:
            reasons = "; ".join(skip["reason"] for skip in record.skipped)
            total.skip(f"{probe.name} {case.key}", reasons)
        launched = record.backend == "device"
        if kept is not None and launched and not failed and not _lacks_counters(record):
            kept.add(probe, case, *kept_of(probe, case, outputs, record))
    for arch, case in _of_other_chips(probe, lab.arch, cases):
        row["variants"] += 1
        row["skipped"] += 1
        total.skip(f"{probe.name} {case.key}", f"{NOT_RUN}: {arch} has it, {lab.arch} has not")
    if kept is not None and device is not None and cases:
        row["recording"] = str(keep_recording(probe, kept, device))
    progress(probe.name, len(cases), len(cases))
    return row


def _findings(probe: Probe, case: Case) -> tuple[str, ...]:
    """Return the checks that judge what the user chose, not whether the model is right."""
    planted = probe.fault(case)
    return (*probe.findings, planted.name) if planted else probe.findings


def kept_of(probe: Probe, case: Case, outputs: Arrays, record: Record) -> tuple[Arrays, dict[str, Any]]:
    """Return what a recording keeps: the arrays, or how the device ended where that is the answer."""
    if probe.fault(case) is None:
        missing = [name for name in probe.outputs(case) if name not in outputs]
        if missing:
            raise MissingError(f"nothing to record: {missing[0]} was not counted", "--record needs ncu here")
        return {name: outputs[name] for name in (*probe.outputs(case), *probe.readings(case))}, {}
    return {}, {key: record.result[key] for key in ("device_fault",) if key in record.result}


def _lacks_counters(record: Record) -> bool:
    return any(skip["case"] == COUNTERS for skip in record.skipped)


def _of_other_chips(probe: Probe, arch: str, cases: list[Case]) -> Iterator[tuple[str, Case]]:
    """Yield the points whose kernels this architecture does not have, each with a chip that has it."""
    known = [probe.macros(case) for case in cases]
    for chip in CHIPS:
        for case in probe.variants(chip) if chip != arch else ():
            if probe.macros(case) not in known:
                known.append(probe.macros(case))
                yield chip, case


def _builder(probe: Probe, cases: list[Case], arch: str) -> Callable[[], Build | None]:
    """Return what compiles all variants at once and reads their SASS; of no variants there is nothing."""
    compiling = unit_builder(probe, cases, arch) if cases else None

    def build() -> Build | None:
        from ptxlab.sass.report import kernels

        made = compiling() if compiling else None
        if made:
            kernels(made)  # which the build keeps
        return made

    return build


def _built(compiling: Future[Build | None], lab: Lab) -> Build | None:
    """Return what was compiled; None without a compiler, where the model answers alone."""
    try:
        return compiling.result()
    except MissingError:
        if lab.worker:
            raise
        return None


def keep_recording(probe: Probe, kept: recording.Recording, device: DeviceInfo) -> str:
    """Write what was recorded in this run into the card's file and return its name."""
    if not kept.variants:
        raise UsageError(f"nothing of {probe.name} agreed, so nothing is recorded")
    fresh = recording.start(probe, device.name, recording.silicon(device))
    fresh.merge(probe, kept)
    return str(recording.save(probe, fresh))
