"""The records of ``ptxlab probe``: what probes there are, a new one, one run, and the proof of all."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from ptxlab.errors import MissingError, PtxlabError, UsageError
from ptxlab.experiments import recording
from ptxlab.experiments.base import RECORDINGS, Value, blamed
from ptxlab.experiments.probe import Probe, usual_arch
from ptxlab.experiments.record import Record
from ptxlab.experiments.registry import Entry, find_probe, probe_entries, usable_probes
from ptxlab.experiments.runner import Lab, run_probe
from ptxlab.experiments.verify import Progress, keep_recording, kept_of, verify

COMMANDS = ("list", "new", "verify")
"""What ``ptxlab probe`` does besides running a probe."""

TEMPLATE = Path(__file__).with_name("template")


def list_record() -> Record:
    """Return every probe that is found, with its question, its options and its recordings.

    All of it is read: no probe is run, so what is wrong with one is told as far as reading tells.
    """
    record = Record()
    record.result["probes"] = [_listed(each) for each in probe_entries()]
    return record


def _listed(entry: Entry) -> dict[str, Any]:
    problem = entry.said.problem or (_taken(entry.name) if entry.name in COMMANDS else "")
    devices: list[str] = []
    try:
        devices = [each.device for each in recording.recordings_in(entry.file.parent / RECORDINGS)]
    except PtxlabError as error:
        problem = problem or error.message
    return {
        "name": entry.name,
        "question": entry.said.summary,
        "options": list(entry.said.options),
        "recordings": devices,
        "folder": str(entry.file.parent),
        "problem": problem,
    }


def _taken(name: str) -> str:
    return f"'{name}' is a command; a probe needs another name"


def new_record(name: str, into: Path) -> Record:
    """Copy the template into a new folder.

    Raises:
        UsageError: the name is no name for a folder, is taken, or the folder exists.
        MissingError: the folder cannot be written.

    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name):
        raise UsageError(f"'{name}' is no name for a probe; legal: letters, digits, - and _, a letter first")
    if name in COMMANDS:
        raise UsageError(_taken(name))
    if name in [entry.name for entry in probe_entries()]:
        raise UsageError(f"there is a probe '{name}' already", "ptxlab probe list shows them")
    folder = into / name
    try:
        shutil.copytree(TEMPLATE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    except FileExistsError:
        raise UsageError(
            f"{folder} exists already", "choose another name, or --into another folder"
        ) from None
    except OSError as error:
        raise MissingError(
            f"cannot write {folder}: {error.strerror or error}", "--into FOLDER chooses another place"
        ) from error
    record = Record()
    seen = folder.resolve() in [entry.file.parent.resolve() for entry in probe_entries()]
    elsewhere = [] if seen else [f"export PTXLAB_PROBES={into.resolve()} lets ptxlab find it"]
    record.result |= {
        "folder": str(folder),
        "files": sorted(file.name for file in folder.iterdir()),
        "next": [
            *elsewhere,
            f"ptxlab probe {name} shows what it predicts",
            f"ptxlab sass probe:{name} shows what it compiles to: change kernel.cu until the claim holds",
            f"ptxlab probe {name} --record keeps what a GPU answers",
        ],
    }
    return record


def probe_record(
    probe: Probe, params: dict[str, Value], lab: Lab, *, lane: int | None, keep: bool, named: bool = True
) -> Record:
    """Run one point of a probe.

    Args:
        probe: the probe.
        params: a value for each of its options.
        lab: where to run.
        lane: keep only this lane's entries in register maps.
        keep: write what the device answered as a recording.
        named: the lab's architecture was asked for; if not, and no device runs, the probe chooses one.

    Raises:
        MissingError: ``keep`` without a device.
        UsageError: the point is illegal, or an option does not go with the probe that answers.

    """
    if keep and not lab.device:
        raise MissingError(f"nothing to record: {lab.why_no_device}", "--record needs a GPU")
    probe, params = _answering(probe, params)
    if lane is not None and not probe.maps:
        raise UsageError(f"--lane shows the registers of a lane: probe {probe.name} shows none")
    with blamed(probe.file):
        if not named and not lab.worker:
            lab = replace(lab, arch=usual_arch(probe))
        case = probe.case(lab.arch, **params)
        why = probe.not_launched(case) if probe.has_kernel(case) else "there is no kernel at this point"
        if keep and why:
            raise UsageError(f"nothing to record: {why}")
        if keep and lab.device:
            recording.put_aside(probe, lab.device.name)
        record, outputs = run_probe(probe, case, lab)
    record.params["lane"] = lane
    if lane is not None:
        record.result = {key: _of_lane(value, lane) for key, value in record.result.items()}
    if keep and lab.device:
        kept = recording.Recording(lab.device.name, "")
        kept.add(probe, case, *kept_of(probe, case, outputs, record))
        record.result["recording"] = keep_recording(probe, kept, lab.device)
    return record


def _answering(probe: Probe, params: dict[str, Value]) -> tuple[Probe, dict[str, Value]]:
    """Return the probe that answers and the values of its options: another one where an option leads there.

    Raises:
        UsageError: an option was given that the other probe does not have.

    """
    options = probe.options()
    leading = [name for name, each in options.items() if each.leads_to and params[name] != each.default]
    if not leading:
        return probe, params
    other = find_probe(options[leading[0]].leads_to)
    shared = [name for name in options if name in other.options()]
    for name, value in params.items():
        if name not in (*shared, *leading) and value != options[name].default:
            legal = ", ".join(map(other.typed, shared))
            raise UsageError(
                f"{probe.typed(name)} does not go with {probe.typed(leading[0])}; legal: {legal}",
                f"ptxlab probe {other.name} --help shows all that goes with it",
            )
    return other, {name: params[name] for name in shared}


def _of_lane(value: Any, lane: int) -> Any:
    """Return a register map with the entries of one lane; anything else as it is."""
    if isinstance(value, list) and value and isinstance(value[0], dict) and "lane" in value[0]:
        return [entry for entry in value if entry["lane"] == lane]
    return value


def verify_record(only: list[str], lab: Lab, progress: Progress, *, keep: bool) -> Record:
    """Run every variant of every probe, or of those named; raises as ``verify`` does."""
    if only:
        return verify([find_probe(name) for name in only], lab, progress, keep=keep)
    found = list(usable_probes())
    problems = [each for each in found if isinstance(each, PtxlabError)]
    probes = [each for each in found if isinstance(each, Probe)]
    return verify(probes, lab, progress, keep=keep, problems=problems)
