"""Runs a probe: predict, run, compare. The model always answers; silicon answers where there is some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ptxlab.device.client import Worker
from ptxlab.device.job import Buffer, DeviceInfo, Job, Launch
from ptxlab.device.presence import has_driver
from ptxlab.errors import DeviceError, MissingError, ToolError, UsageError
from ptxlab.experiments import recording as recordings_of
from ptxlab.experiments.answers import check_launch, check_said, claims_of, report_of
from ptxlab.experiments.base import Case, fault
from ptxlab.experiments.probe import Arrays, Geometry, Output, Probe
from ptxlab.experiments.record import Record, environment
from ptxlab.experiments.unit import build_unit, kernel_name
from ptxlab.toolchain.arch import DEFAULT_ARCH
from ptxlab.toolchain.build import Build

COUNTERS = "counters"
"""What is skipped where nothing counts for a probe that asks for counters."""

_FIRST_FEW = 5  # differences that are spelled out
NOT_RUN = "not run on this chip"
"""Why nothing of silicon stands behind an answer, and what is said then."""


@dataclass(frozen=True)
class Lab:
    """Where a probe runs: the architecture, and the device if there is one to run on.

    Attributes:
        arch: what kernels are compiled for.
        worker: the worker process, or None when the model alone answers.
        device: the worker's device, or None.
        why_no_device: the reason when ``worker`` is None.
        index: of the device.

    """

    arch: str
    worker: Worker | None
    device: DeviceInfo | None
    why_no_device: str
    index: int = 0

    @property
    def backend(self) -> str:
        """The name of what answers."""
        return "device" if self.worker else "model"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.worker:
            self.worker.close()


def open_lab(backend: str, arch: str | None, device: int, timeout: float) -> Lab:
    """Return where to run.

    Args:
        backend: "auto" takes the device where there is one that runs ``arch``.
        arch: None means the device's own, and sm_90a where no device runs.
        device: index of the device.
        timeout: seconds that one job may take.

    Raises:
        MissingError: "device" was asked for and there is none that can run ``arch``.

    """
    if backend == "model":
        return Lab(arch or DEFAULT_ARCH, None, None, "the model was asked for")
    reason = "no NVIDIA driver here (libcuda.so.1 does not load)"
    if has_driver():
        try:
            worker = Worker(device=device, timeout=timeout)
            info = worker.info()
        except MissingError as error:
            if device != 0:
                raise  # a device that the user named must exist
            reason = error.message
        else:
            if arch is None or runs_on(arch, info.arch):
                return Lab(arch or info.arch, worker, info, "", device)
            worker.close()
            reason = f"not run on this chip: {arch} code does not run on {info.name} ({info.arch})"
    if backend == "device":
        raise MissingError(reason, "ptxlab doctor shows what is missing; --backend model needs no GPU")
    return Lab(arch or DEFAULT_ARCH, None, None, reason)


def runs_on(code: str, chip: str) -> bool:
    """Say whether a cubin for ``code`` runs on ``chip`` (both like sm_90a; a chip has its suffix).

    Plain code runs on its own generation from its number up; "a" code on its own chip alone; "f" code
    within its family. Source: CUDA programming guide, "Binary compatibility".
    """
    number, chip_number = (int(name.strip("sm_af")) for name in (code, chip))
    if code.endswith("a"):
        return number == chip_number
    return number // 10 == chip_number // 10 and number <= chip_number


def run_probe(
    probe: Probe, case: Case, lab: Lab, build: Build | None = None, counts: Counts | None = None
) -> tuple[Record, Arrays]:
    """Run one point and return its record and the outputs it stands on (the device's, or the model's).

    Args:
        probe: the probe.
        case: the point.
        lab: where to run.
        build: what holds the point's kernel; compiled here when None.
        counts: the counters of its launches; read here when None.

    """
    if not probe.has_kernel(case):
        record = Record(backend="model", arch=case.arch, params=dict(probe.in_force(case)))
        record.result |= {"recordings": [], "unproven": ""}
        _ask(probe, case, {}, record, measured=False)
        return record, {}
    if left_out := probe.not_launched(case):
        lab = replace(lab, worker=None, device=None, why_no_device=left_out)
    record = Record(backend=lab.backend, arch=case.arch, params=dict(probe.in_force(case)))
    record.environment = environment(device=vars(lab.device) if lab.device else None)
    predicted = probe.expected(case)
    _check_shapes(probe, case, predicted)
    build = _compile(probe, case, lab, record, build)
    outputs, measured = predicted, False
    if lab.worker and build:
        counts = counts if counts is not None else counts_of(probe, [case], build, lab)[0]
        outputs, measured = _run_on_device(probe, case, lab.worker, build, (predicted, counts), record)
    else:
        record.skip("device", lab.why_no_device)
    _compare_recordings(probe, case, predicted, record)
    if planted := probe.fault(case):
        record.check(planted.name, ok=False, detail=planted.reason)
    _ask(probe, case, outputs, record, measured=measured)
    return record, outputs


def _ask(probe: Probe, case: Case, outputs: Arrays, record: Record, *, measured: bool) -> None:
    """Let the probe examine, report and conclude on a copy of the record, and take over what it adds.

    Raises:
        ToolError: what it says cannot be shown.

    """
    said = replace(
        record, result=dict(record.result), checks=list(record.checks), skipped=list(record.skipped)
    )
    probe.examine(case, outputs, said)
    said.result |= report_of(probe, case, outputs, measured=measured)
    conclusion: Any = probe.conclude(case, said)
    if not isinstance(conclusion, str) or not conclusion:
        raise fault(probe, f"conclude() returns {conclusion!r}; legal: a sentence")
    check_said(probe, said, record)
    record.checks, record.skipped = said.checks, said.skipped
    record.result = said.result | record.result | {"conclusion": conclusion}


def _check_shapes(probe: Probe, case: Case, predicted: Arrays) -> None:
    """Hold what a probe predicts against what it says its kernel writes.

    Raises:
        ToolError: a name, a shape or a type differs.

    """
    outputs = probe.outputs(case)
    if predicted.keys() != outputs.keys():
        raise fault(probe, f"expected() has {sorted(predicted)}, outputs() has {sorted(outputs)}")
    for name, output in outputs.items():
        found = (predicted[name].shape, predicted[name].dtype)
        said = (output.shape, np.dtype(output.dtype))
        if found != said:
            raise fault(
                probe,
                f"expected()['{name}'] is {found[1]}{list(found[0])}, "
                f"outputs() says {said[1]}{list(said[0])}",
            )


def _compile(probe: Probe, case: Case, lab: Lab, record: Record, build: Build | None) -> Build | None:
    """Compile, and hold the SASS against the claim; without a compiler the model still answers."""
    alone = build is None
    try:
        build = build or build_unit(probe, unit_of(probe, case), case.arch)
        kernel = kernel_report(build, kernel_name(probe, probe.macros(case)))
        others = _beside(probe, case) if alone else {}
    except MissingError as error:
        if lab.worker:
            raise
        record.skip("sass", error.message)
        return None
    claims = claims_of(probe, case)
    check_sass(kernel, claims, record)
    record.result |= {"sass": kernel, "claims": claims} | ({"beside": others} if others else {})
    return build


def _beside(probe: Probe, case: Case) -> dict[str, dict[str, Any]]:
    """Return what the SASS of the kernels holds that a probe shows beside this point's."""
    others = probe.beside(case)
    build = build_unit(probe, others.values(), case.arch) if others else None
    names = {title: kernel_name(probe, probe.macros(other)) for title, other in others.items()}
    return {title: kernel_report(build, name) for title, name in names.items()} if build else {}


def unit_of(probe: Probe, case: Case) -> list[Case]:
    """Return the points compiled together: the variants, and the case if its kernel is not among them."""
    cases = list(probe.variants(case.arch))
    kernels = [probe.macros(each) for each in cases]
    return cases if probe.macros(case) in kernels else [case]


def kernel_report(build: Build, name: str) -> dict[str, Any]:
    """Return what the SASS of one kernel of a build holds (the shape of ``sass`` documents)."""
    from ptxlab.sass.report import kernels

    found = [kernel for kernel in kernels(build) if kernel["name"] == name]
    if not found:
        raise ToolError(
            f"kernel.cu defines no kernel {name}",
            'it must be: extern "C" __global__ void KERNEL(...), where KERNEL is the macro',
        )
    return found[0]


def check_sass(kernel: dict[str, Any], claims: dict[str, int], record: Record) -> None:
    """Add a check for each claim about a kernel's SASS."""
    from ptxlab.sass.claims import check_claims

    for name, ok, detail in check_claims(kernel, claims):
        record.check(name, ok, detail)


def probe_job(probe: Probe, case: Case, build: Build) -> Job:
    """Return the job that launches the kernel of a case once and brings its outputs back."""
    inputs, outputs, launches = probe.inputs(case), _written(probe, case), _launches(probe, case)
    for each in launches:
        check_launch(probe, inputs, outputs, each)
    buffers = [Buffer(name, data.nbytes, data=data) for name, data in inputs.items()]
    for name, output in outputs.items():
        nbytes = int(np.prod(output.shape)) * np.dtype(output.dtype).itemsize
        buffers.append(Buffer(name, nbytes, download=True, canary=True))
    kernel = kernel_name(probe, probe.macros(case))
    steps = tuple(Launch(module="unit", kernel=kernel, **vars(each)) for each in launches)
    return Job({"unit": build.cubin}, tuple(buffers), steps)


def _written(probe: Probe, case: Case) -> dict[str, Output]:
    """Return what the kernel writes: outputs and readings, but no counters."""
    counters = probe.counters(case)
    own = {name: output for name, output in probe.outputs(case).items() if name not in counters}
    return own | dict(probe.readings(case))


Counts = Mapping[str, NDArray[Any]] | MissingError
"""The counters of a point's launches, or why there are none."""


def counts_of(probe: Probe, cases: Sequence[Case], build: Build, lab: Lab) -> list[Counts]:
    """Return the counters of these points, all read in one run under ncu."""
    wanted = [probe.counters(case) for case in cases]
    if not lab.worker or not any(wanted):
        return [{} for _ in cases]
    from ptxlab.experiments.counted import counted

    lab.worker.close()  # the run under ncu has a worker of its own; the next job starts this one afresh
    try:
        return list(counted([probe_job(probe, case, build) for case in cases], wanted, lab.index))
    except MissingError as error:
        return [error for _ in cases]


def _launches(probe: Probe, case: Case) -> tuple[Geometry, ...]:
    geometry = probe.geometry(case)
    return geometry if isinstance(geometry, tuple) else (geometry,)


def _run_on_device(
    probe: Probe,
    case: Case,
    worker: Worker,
    build: Build,
    known: tuple[Arrays, Counts],
    record: Record,
) -> tuple[Arrays, bool]:
    """Run, compare, and return the outputs and whether they are the device's.

    Args:
        probe: the probe.
        case: the point.
        worker: where it runs.
        build: what holds its kernel.
        known: the prediction, and the counters of the launches.
        record: gets what is found.

    Raises:
        DeviceError: the device faulted or hung, and the probe did not say that it would.

    """
    planted, (predicted, counts) = probe.fault(case), known
    try:
        outputs = _measure(probe, case, worker, build, record)
    except DeviceError as error:
        if planted is None:
            raise
        record.check("prediction", ok=True, detail=f"the device ended as it must: {error.message}")
        record.result["device_fault"] = error.message
        return predicted, False
    if isinstance(counts, MissingError):
        record.skip(COUNTERS, counts.message)
    else:
        outputs |= {name: array.astype(predicted[name].dtype) for name, array in counts.items()}
    if planted and planted.certain:
        record.check(
            "prediction", ok=False, detail=f"the device ran to its end in spite of: {planted.reason}"
        )
    elif planted:
        record.check("prediction", ok=True, detail="the device ran to its end, this time")
    else:
        compare(probe, case, predicted, outputs, record, name="prediction", other="the device")
    return outputs, True


def _measure(
    probe: Probe, case: Case, worker: Worker, build: Build, record: Record
) -> dict[str, NDArray[Any]]:
    job = probe_job(probe, case, build)
    try:
        result = worker.run(job)
    except UsageError as error:  # the probe's launch is wrong, and not what the user typed
        raise fault(probe, error.message) from error
    if result.clusters:
        limits = result.clusters[kernel_name(probe, probe.macros(case))]
        record.result["clusters"] = vars(limits)
    if result.damaged_canaries:
        names = ", ".join(result.damaged_canaries)
        raise fault(probe, f"the kernel wrote outside its outputs ({names})")
    return {
        name: result.arrays[name].view(output.dtype).reshape(output.shape)
        for name, output in _written(probe, case).items()
    }


def compare(
    probe: Probe,
    case: Case,
    predicted: Arrays,
    found: Arrays,
    record: Record,
    *,
    name: str,
    other: str,
) -> None:
    """Add the check that every output is the predicted one, bit for bit."""
    outputs = {key: output for key, output in probe.outputs(case).items() if key in found}
    differences = [
        line
        for key, output in outputs.items()
        for line in differing(predicted[key], found[key], key, output.axes)
    ]
    total = sum(predicted[key].size for key in outputs)
    if differences:
        shown = "; ".join(differences[:_FIRST_FEW])
        more = f"; and {len(differences) - _FIRST_FEW} more" if len(differences) > _FIRST_FEW else ""
        record.check(
            name,
            ok=False,
            detail=f"{other} differs in {len(differences)} of {total}: {shown}{more}",
        )
    else:
        record.check(name, ok=True, detail=f"{total} values equal {other}'s, bit for bit")


def differing(
    predicted: NDArray[Any], found: NDArray[Any], name: str, axes: tuple[str, ...]
) -> Iterator[str]:
    """Yield a line for each element whose bits differ: where it is, both in hex."""
    width = predicted.dtype.itemsize
    bits = np.dtype(f"u{width}")
    left, right = np.ascontiguousarray(predicted).view(bits), np.ascontiguousarray(found).view(bits)
    for index in np.argwhere(left != right):
        where = " ".join(f"{axis} {i}" for axis, i in zip(axes, index, strict=True))
        a, b = left[tuple(index)], right[tuple(index)]
        yield f"{name} {where}: predicted 0x{a:0{2 * width}x}, found 0x{b:0{2 * width}x}"


def _compare_recordings(probe: Probe, case: Case, predicted: Arrays, record: Record) -> None:
    """Hold the prediction against every recording of real silicon that has this very point."""
    agreed: list[dict[str, str]] = []
    for recording in recordings_of.recordings(probe):
        variant = recording.find(probe, case)
        if variant is None:
            continue
        if recordings_of.is_stale(probe, case, variant):
            record.skip(f"recording of {recording.device}", "older than the kernel: record it again")
            continue
        title = f"{recording.device}, recorded {recording.date}"
        if planted := probe.fault(case):
            said = variant["result"].get("device_fault", "")
            ok = bool(said) or not planted.certain
            record.check("recording", ok=ok, detail=f"{title}: {said or 'it ran to its end'}")
            agreed += [{"device": recording.device, "date": recording.date}] if ok else []
            continue
        found = _answers(variant, predicted)
        if _shapes(found) != _shapes(predicted):
            raise recordings_of.damaged(recording.file, f"it does not fit {case.key}")
        compare(probe, case, predicted, found, record, name="recording", other=title)
        if record.checks[-1]["ok"]:
            agreed.append({"device": recording.device, "date": recording.date})
    compared = {check["name"] for check in record.checks} & {"prediction", "recording"}
    unproven = "" if compared or recordings_of.has_run(probe, case) else _unproven(probe, case, predicted)
    if "recording" not in compared:
        absent = "no recording of these options on this architecture"
        record.skip("recording", NOT_RUN if NOT_RUN in unproven else absent)
    record.result |= {"recordings": agreed, "unproven": unproven}


def _unproven(probe: Probe, case: Case, predicted: Arrays) -> str:
    """Return the sentence on an answer that no silicon of this architecture stands behind."""
    told = f"Not proven on silicon ({NOT_RUN}): what is shown for {case.arch} is derived."
    for recording in recordings_of.recordings(probe):
        arch = str(recording.environment.get("arch", ""))
        if arch == case.arch:
            ran = f"{recording.device} ran {len(recording.variants)} other variants of this probe"
            return f"Not proven on silicon with these options, which no recording has; {ran}."
        variant = recording.find(probe, Case(arch, case.params, case.params))
        if variant and _are_equal(_answers(variant, predicted), predicted):
            return f"{told} {recording.device} ({arch}) answered just this."
    return told


def _answers(variant: Mapping[str, Any], predicted: Arrays) -> Arrays:
    """Return what was recorded of what is predicted; readings are recorded too."""
    return {name: array for name, array in recordings_of.arrays_of(variant).items() if name in predicted}


def _are_equal(left: Arrays, right: Arrays) -> bool:
    return _shapes(left) == _shapes(right) and all(
        left[name].tobytes() == right[name].tobytes() for name in left
    )


def _shapes(arrays: Arrays) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    return {name: (array.shape, array.dtype) for name, array in arrays.items()}
