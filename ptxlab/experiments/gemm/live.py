"""What a run shows while it goes on: how far it is, and what each side has reached so far."""

from __future__ import annotations

from typing import Protocol

from ptxlab.device.job import Progress, Report
from ptxlab.experiments.gemm.measure import LIBRARIES, Trial, side


class Show(Protocol):
    """Takes what is being done, how much of it is done, and rates to draw as bars: name and TFLOP/s."""

    def __call__(
        self, what: str, done: float, total: float, rates: dict[str, float] | None = None, /
    ) -> None:
        """Show it."""
        ...


def reporting(trial: Trial, show: Show, start: float, share: float) -> Report:
    """Return what takes the worker's progress; the trial begins at ``start`` and takes that share of 1."""
    names = _names(trial)

    def report(progress: Progress) -> None:
        flop = trial.check.problem.flop
        rates = {names[key]: flop / ms / 1e9 for key, ms in progress.milliseconds.items() if key in names}
        count = f" {progress.done} of {progress.total}" if progress.milliseconds else ""
        what = f"{trial.check.problem.shape}: {progress.doing}{count}"
        show(what, start + share * progress.done / progress.total, 1.0, rates)

    return report


def _names(trial: Trial) -> dict[str, str]:
    """Return what a person calls the sides that multiply the matrices."""
    stages = {}
    for index, entrant in enumerate(trial.entrants):
        own = entrant.stage.own_options(entrant.case).items() if len(trial.entrants) > 1 else ()
        values = " ".join(f"{name}={value}" for name, value in own)
        stages[side(index)] = f"{entrant.stage.name} {values}".strip()
    return stages | LIBRARIES
