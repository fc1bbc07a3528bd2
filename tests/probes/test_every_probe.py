"""What every probe owes: a docstring, legal variants, a claim that holds, recordings that still fit."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import recording, registry, runner, verify
from ptxlab.experiments.answers import check_result, report_of
from ptxlab.experiments.base import Case
from ptxlab.experiments.probe import Probe
from ptxlab.experiments.record import Record
from ptxlab.experiments.unit import build_unit, kernel_name
from ptxlab.render.show import blocks
from ptxlab.render.svg import draw
from ptxlab.toolchain.arch import ARCHS as EVERY_ARCH

PROBES = [probe for probe in registry.usable_probes() if isinstance(probe, Probe)]
RECORDED_ON, RECORDED_ARCH = "NVIDIA H200", "sm_90a"
ARCHS = ("sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a")


def recorded() -> Iterator[tuple[Probe, recording.Recording, str]]:
    """Every variant of every recording of every probe."""
    for probe in PROBES:
        for kept in recording.recordings(probe):
            for name in kept.variants:
                yield probe, kept, name


def case_of(probe: Probe, kept: recording.Recording, name: str) -> Case:
    """The point that a recorded variant stands for."""
    return probe.case(name.split(" ", 1)[0], **kept.variants[name]["params"])


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_docstring_says_what_it_asks_and_how(probe: Probe) -> None:
    """Question, method, counting convention and source."""
    text = sys.modules[type(probe).__module__].__doc__ or ""
    assert text.split("\n")[0].endswith("?")
    for word in ("Method:", "Counting:", "Source:"):
        assert word in text


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_claims_hold_on_every_architecture(probe: Probe, arch: str) -> None:
    """Every variant compiles, and its SASS holds what the probe claims."""
    cases = list(probe.variants(arch))
    if not cases:
        pytest.skip(f"{probe.name} has no variant on {arch}")
    build = build_unit(probe, cases, arch)
    for case in cases:
        record = Record()
        kernel = runner.kernel_report(build, kernel_name(probe, probe.macros(case)))
        runner.check_sass(kernel, probe.claims(case), record)
        assert [check for check in record.checks if not check["ok"]] == [], case.key
        assert kernel["spill_bytes"] == 0


def one_of_each_operation(probe: Probe, arch: str) -> Iterator[Case]:
    """The point that is taken when nothing is typed, and each --op that is legal beside its other options."""
    yield probe.case(arch)
    for op in probe.options()["op"].choices if "op" in probe.options() else ():
        with contextlib.suppress(UsageError):
            yield probe.case(arch, op=op)


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_there_is_a_picture(probe: Probe) -> None:
    """What --svg draws, of each operation."""
    arch = next(arch for arch in ("sm_90a", "sm_100a") if list(probe.variants(arch)))
    lab = runner.Lab(arch, None, None, "the model was asked for")
    for case in one_of_each_operation(probe, arch):
        record, _ = runner.run_probe(probe, case, lab)
        record.command = ["probe", probe.name]
        assert "<rect" in draw(blocks(record.document(), "picture")), case.key


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_every_variant_of_every_architecture_can_be_shown(probe: Probe) -> None:
    """What it reports of a point keeps the rules of what is shown, each point on the first that has it."""
    points = {}
    for arch in EVERY_ARCH:
        for case in probe.variants(arch):
            points.setdefault(tuple(case.params.items()), case)
    assert points
    for case in points.values():
        predicted = probe.expected(case)
        check_result(probe, report_of(probe, case, predicted, measured=False))


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_expected_has_the_shape_of_the_outputs(probe: Probe) -> None:
    """What is predicted is what the kernel writes: names, shapes and types."""
    for case in probe.variants("sm_90a"):
        predicted = probe.expected(case)
        outputs = probe.outputs(case)
        assert predicted.keys() == outputs.keys()
        for name, output in outputs.items():
            assert predicted[name].shape == output.shape
            assert predicted[name].dtype == np.dtype(output.dtype)
            assert len(output.axes) == len(output.shape)


@pytest.mark.parametrize(
    ("probe", "kept", "name"),
    list(recorded()),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_silicon_agrees(probe: Probe, kept: recording.Recording, name: str) -> None:
    """The model equals what real silicon answered, bit for bit, and the kernel is still the one that ran.

    When this fails because the kernel changed: run `ptxlab probe verify --record` on a GPU.
    """
    case = case_of(probe, kept, name)
    variant = kept.find(probe, case)
    assert variant is not None
    assert not recording.is_stale(probe, case, variant), "the kernel changed: record again on a GPU"
    fault = probe.fault(case)
    if fault:
        assert variant["result"].get("device_fault") or not fault.certain
        return
    record = Record()
    found = {key: recording.unpack(array) for key, array in variant["arrays"].items()}
    runner.compare(probe, case, probe.expected(case), found, record, name="recording", other=kept.device)
    assert record.checks[0]["ok"], record.checks[0]["detail"]


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_every_variant_has_been_recorded(probe: Probe) -> None:
    """An H200 has answered at each point, with the kernel as it is now: nothing rests on the model alone.

    When this fails: run `ptxlab probe verify --record` on one.
    """
    cases = list(probe.variants(RECORDED_ARCH))
    if not cases:
        pytest.skip(f"{probe.name} has no variant on {RECORDED_ARCH}")
    (kept,) = [each for each in recording.recordings(probe) if each.device == RECORDED_ON]
    missing = []
    for case in cases:
        variant = kept.find(probe, case)
        if variant is None:
            missing.append(case)
        else:
            assert not recording.is_stale(probe, case, variant), case.key
    assert not missing, [case.key for case in missing]


@pytest.mark.gpu
def test_the_device_agrees() -> None:
    """Every variant of every probe on the GPU of this machine."""
    with runner.open_lab("device", None, 0, 20.0) as lab:
        record = verify.verify(PROBES, lab, lambda *_: None, keep=False)
    assert record.result["disagree"] == 0, record.checks
    assert record.result["agree"] == record.result["variants"] - record.result["skipped"] > 0
    assert all("not run on this chip" in skip["reason"] for skip in record.skipped)
