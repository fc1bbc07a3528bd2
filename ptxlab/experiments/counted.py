"""Counters of launches: jobs run in a worker under ncu, one run for all that want the same counters."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.device.client import wrapped_command
from ptxlab.device.job import Job, Launch
from ptxlab.errors import MissingError, ToolError
from ptxlab.toolchain import ncu

Counters = Mapping[str, str]
"""Name of an output -> the metric of ncu that is its value, launch by launch."""

_SECONDS = 300.0  # for all launches: a thousand take half a minute


def counted(
    jobs: Sequence[Job], wanted: Sequence[Counters], device: int
) -> list[dict[str, NDArray[np.uint64]]]:
    """Return the counters of every job: for each output a value for each launch of the job.

    Args:
        jobs: what is launched.
        wanted: the counters of each job.
        device: index of the device.

    Raises:
        MissingError: there is no ncu, it may not read counters, or this chip has not one that is wanted.
        ToolError: ncu or the worker failed.

    """
    found: list[dict[str, NDArray[np.uint64]]] = [{} for _ in jobs]
    for metrics in sorted({_metrics(counters) for counters in wanted}):
        places = [i for i, counters in enumerate(wanted) if _metrics(counters) == metrics]
        read = _collected([jobs[i] for i in places], metrics, device)
        for i, values in zip(places, read, strict=True):
            found[i] = {name: values[metric] for name, metric in wanted[i].items()}
    return found


def _metrics(counters: Counters) -> tuple[str, ...]:
    return tuple(sorted(set(counters.values())))


def _collected(
    jobs: Sequence[Job], metrics: tuple[str, ...], device: int
) -> list[dict[str, NDArray[np.uint64]]]:
    """Return the values of each metric in the launches of each job.

    All jobs want all of these metrics: for each that it does not want, ncu would run a launch once more.
    """
    launches = [[step for step in job.steps if isinstance(step, Launch)] for job in jobs]
    kernels = sorted({step.kernel for steps in launches for step in steps})
    with tempfile.TemporaryDirectory(prefix="ptxlab-counted-") as folder:
        waiting, results = Path(folder) / "jobs", Path(folder) / "results"
        waiting.write_bytes(pickle.dumps(list(jobs)))
        request = ncu.Request(
            command=tuple(wrapped_command(waiting, results, device)),
            metrics=metrics,
            kernel=f"regex:^({'|'.join(kernels)})$",
            quiet=True,
            timeout=_SECONDS,
        )
        outcome = ncu.collect(ncu.find_ncu(), request, Path(folder) / f"report{ncu.SUFFIX}")
    if outcome.failure:
        raise outcome.failure
    if outcome.unknown:
        raise MissingError(f"this GPU, or this version of ncu, has no counter {outcome.unknown[0]}")
    total = sum(map(len, launches))
    if len(outcome.launches) != total:
        raise ToolError(f"ncu profiled {len(outcome.launches)} of {total} launches")
    rows = iter(outcome.launches)
    arrays = []
    for steps in launches:
        own = [next(rows)["metrics"] for _ in steps]
        arrays.append({metric: _values(metric, own) for metric in metrics})
    return arrays


def _values(metric: str, launches: Sequence[Mapping[str, Any]]) -> NDArray[np.uint64]:
    """Return a metric's value in each launch."""
    values = [each.get(metric) for each in launches]
    if None in values:
        raise MissingError(f"ncu could not read the counter {metric}")
    return np.array([int(value or 0) for value in values], dtype=np.uint64)
