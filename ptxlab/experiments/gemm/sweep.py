"""Sweeps: the points of a stage that run, and which differences between them are real."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from ptxlab.bench import stats
from ptxlab.device.job import JobResult
from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Value
from ptxlab.experiments.gemm.measure import TIMING, Trial, side
from ptxlab.experiments.gemm.problem import TYPES, Problem
from ptxlab.experiments.gemm.stage import GemmStage
from ptxlab.experiments.record import Record
from ptxlab.experiments.values import value_of, values_of_sweep

SIZE = "size"
SIZES = ("m", "n", "k")

MOST_POINTS = 1000


def points(
    stage: GemmStage,
    arch: str,
    record: Record,
    options: Mapping[str, Value],
    settings: Sequence[str],
    sweeps: Sequence[str],
) -> list[Case]:
    """Return every point that was asked for and that the stage takes, once; the others are skipped.

    Raises:
        UsageError: the stage takes none, or a setting is none of its options.

    """
    fixed = dict(options) | dict(value_of(stage, text, "--set") for text in settings)
    axes = [_axis(stage, text) for text in sweeps]
    found: dict[Hashable, tuple[Case, str]] = {}
    refused: list[UsageError] = []
    for parts in _combinations(axes):
        values = fixed | {name: value for part in parts for name, value in part.items()}
        values.setdefault("out", _out(stage, values))
        try:
            _check_choices(stage, parts)
            case = _case(stage, arch, values)
        except UsageError as error:
            if axes:
                record.skip(f"{stage.name} {_named(parts)}", error.message)
            refused.append(error)
            continue
        named = _named(parts)
        first = found.setdefault(tuple(case.params.items()), (case, named))[1]
        if first != named:  # a value such as 0 or auto stands for another one
            record.skip(f"{stage.name} {named}", f"it is the same as {first}")
    if not found:
        raise refused[0]
    return [case for case, _ in found.values()]


def _check_choices(stage: GemmStage, parts: Iterable[Mapping[str, Value]]) -> None:
    """Refuse a value that an option cannot have here, where it is known that --sweep gave it."""
    options = stage.options()
    for part in parts:
        for name, value in part.items():
            options[name].checked(f"--sweep {name}", value)


def _case(stage: GemmStage, arch: str, values: Mapping[str, Value]) -> Case:
    """Return the point; integers are summed in s32 where no other type was asked for."""
    case = stage.case(arch, **values)
    if values.get("acc", case.acc) != case.acc:
        raise UsageError(f"--acc {values['acc']} is not for --dtype {case.dtype}; legal: {case.acc}")
    return case


def _out(stage: GemmStage, values: Mapping[str, Value]) -> Value:
    """Return the type of C where none was asked for: that of A and B, or the usual one beside it."""
    options = stage.options()
    kind = TYPES.get(str(values.get("dtype", options["dtype"].default)))
    return kind.out if kind else options["out"].default


def grouped(found: Iterable[tuple[GemmStage, Case]]) -> list[list[tuple[GemmStage, Case]]]:
    """Return the points by the problem that they solve: those of one can be timed against each other."""
    groups: dict[Problem, list[tuple[GemmStage, Case]]] = {}
    for stage, case in found:
        groups.setdefault(Problem.of(case), []).append((stage, case))
    return list(groups.values())


def _axis(stage: GemmStage, text: str) -> list[dict[str, Value]]:
    """Return the values that one sweep gives to options, point by point."""
    if text.partition("=")[0] == SIZE:
        _, sizes = values_of_sweep(stage, text, "--sweep", like="m")
        return [dict.fromkeys(SIZES, size) for size in sizes]
    name, swept = values_of_sweep(stage, text, "--sweep")
    return [{name: value} for value in swept]


def _combinations(axes: list[list[dict[str, Value]]]) -> Iterable[tuple[dict[str, Value], ...]]:
    count = 1
    for axis in axes:
        count *= len(axis)
    if count > MOST_POINTS:
        raise UsageError(f"the sweep has {count} points; legal: at most {MOST_POINTS}")
    return product(*axes)


def _named(parts: Iterable[Mapping[str, Value]]) -> str:
    return " ".join(f"{name}={value}" for part in parts for name, value in part.items())


def extended(
    known: dict[str, Any] | None,
    sweeps: Sequence[str],
    trial: Trial,
    rows: list[dict[str, Any]],
    result: JobResult,
) -> dict[str, Any]:
    """Return the table of a sweep with the points of one more run.

    Each point is held against the fastest of its run, whose samples were taken in turn with its own:
    ``verdict`` is "fastest", "slower" or "indistinguishable", ``difference_percent`` how much more time it
    takes. Points of different problems are not compared, nor is what is not verified.
    """
    table = known or {"options": _swept(sweeps), "points": []}
    compared = _against_the_fastest(rows, result)
    for entrant, row, verdict in zip(trial.entrants, rows, compared, strict=True):
        values = {name: entrant.case.params[name] for name in table["options"]}
        said = ("stage", "milliseconds", "tflops", "percent_of_cublas", "verified")
        table["points"].append({"values": values} | {name: row[name] for name in said} | verdict)
    return table


def _swept(sweeps: Sequence[str]) -> list[str]:
    names = [text.partition("=")[0].replace("-", "_") for text in sweeps]
    return [each for name in names for each in (SIZES if name == SIZE else (name,))]


def _against_the_fastest(rows: list[dict[str, Any]], result: JobResult) -> list[dict[str, Any]]:
    """Return the verdict on each point of a run: none on one that is wrong, or alone."""
    timings = result.timings.get(TIMING)
    told: list[dict[str, Any]] = [{"verdict": None, "difference_percent": None} for _ in rows]
    right = [i for i, row in enumerate(rows) if row["verified"]]
    if timings is None or len(right) < 2:
        return told
    samples = {i: timings[side(i)].milliseconds for i in right}
    best = min(right, key=lambda i: stats.median(samples[i]))
    for i in right:
        compared = stats.compare(samples[i], samples[best])
        verdict = "fastest" if i == best else compared.verdict
        told[i] = {"verdict": verdict, "difference_percent": 100 * (compared.ratio - 1)}
    return told
