"""What a recording keeps of the rows of a run, beside the kernels: no more than is shown again."""

from __future__ import annotations

from typing import Any

from ptxlab.device.job import DeviceInfo
from ptxlab.experiments import recording
from ptxlab.experiments.gemm import ceiling
from ptxlab.experiments.gemm.catalogue import damage_of, without_stale
from ptxlab.experiments.gemm.measure import Trial
from ptxlab.experiments.gemm.stage import GemmStage
from ptxlab.experiments.gemm.verdict import judged
from ptxlab.experiments.registry import find_ceiling

OF_LIBRARY = (
    *("name", "side", "milliseconds", "tflops", "clock_mhz", "power_w", "throttled_samples", "samples"),
    *("verified", "max_error"),
)
"""What is kept of a library."""

NOT_KEPT = ("cublas", "max_error_at", "first_wrong", "wrong_shape", "damage")
"""Of a row: the first of its libraries once more, and how errors came about: what is kept is right."""


def make_room(stage: GemmStage, device: DeviceInfo) -> None:
    """Put aside what is damaged of the recordings that a run is to write: it reads them before."""
    recording.put_aside(stage, device.name, damage_of)
    if stage.ceiling:
        recording.put_aside(find_ceiling(stage.ceiling), device.name, ceiling.damage_of)


def keep(
    trial: Trial, measured: list[dict[str, Any]], peaks: list[dict[str, Any]], device: DeviceInfo
) -> list[str]:
    """Write the rows that are right, and the ceilings, and return the files of the rows.

    What ran with a hot L2 stands beside what ran with a cold one: neither replaces the other.
    """
    pairs = zip(trial.entrants, measured, strict=True)
    right = [(entrant, row) for entrant, row in pairs if row["verified"] and row["milliseconds"]]
    files = []
    for entrant, row in right:
        kept = recording.start(entrant.stage, device.name, recording.silicon(device))
        without_stale(entrant.stage, kept)
        kept.add(entrant.stage, entrant.case, {}, _kept(row), condition="hot" if row["l2"] == "hot" else "")
        files.append(str(recording.save(entrant.stage, kept)))
    for loop, peak in zip(trial.loops, peaks, strict=True) if right else ():
        ceiling.keep(loop, peak, recording.silicon(device))
    return list(dict.fromkeys(files))


def _kept(row: dict[str, Any]) -> dict[str, Any]:
    """Return what a recording keeps of a row."""
    libraries = [{name: each[name] for name in OF_LIBRARY} for each in row["libraries"]]
    kept = {name: value for name, value in row.items() if name not in NOT_KEPT} | {"libraries": libraries}
    return judged({name: _rounded(value) for name, value in kept.items()})


def _rounded(value: Any) -> Any:
    """Return numbers with the digits that times have, which events give as float32."""
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.8g}") if isinstance(value, float) else value
