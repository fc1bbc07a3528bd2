"""``ptxlab gemm --tune``: times the plans of a stage for a problem, and keeps the fastest for this card.

Plans are tried in heats, those that the model thinks fastest first; the fastest of all heats meet in a final,
in which they take turns. Where a plan makes the device fault, those timed with it are tried one by one. The
winner lies in the compile cache, by card, kernel, problem and whether the L2 was cold or hot, and is taken
from then on wherever no plan is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from ptxlab.device.client import Worker
from ptxlab.device.job import DeviceInfo
from ptxlab.errors import DeviceError, PtxlabError, ToolError, UsageError
from ptxlab.experiments import ahead
from ptxlab.experiments.base import Case, Value
from ptxlab.experiments.gemm.check import Check
from ptxlab.experiments.gemm.live import Show, reporting
from ptxlab.experiments.gemm.measure import Entrant, Method, Trial, measure, rows
from ptxlab.experiments.gemm.problem import Problem
from ptxlab.experiments.gemm.stage import GemmStage
from ptxlab.experiments.unit import digest, kernel_name, submitted
from ptxlab.sass.resources import resources
from ptxlab.toolchain import cache
from ptxlab.toolchain.build import Build

MOST_PLANS, OF_A_HEAT, FINALISTS = 48, 6, 4
MOST_SECONDS = 60.0
"""After which no further heat begins."""

HEAT = Method(versus="none", warmup_ms=100.0, samples=5)
FINAL = Method(versus="none", warmup_ms=500.0, samples=15)
MEMO = "plan"


@dataclass
class Search:
    """A search under way: the problem, where it is timed, and what each plan took so far."""

    check: Check
    cold: bool
    worker: Worker
    device: DeviceInfo
    show: Show
    timed: list[tuple[Entrant, dict[str, Any]]] = field(default_factory=list)
    failed: list[PtxlabError] = field(default_factory=list)

    def heat(self, entrants: Sequence[Entrant], method: Method, done: float, share: float) -> None:
        """Time some plans in turn, and keep what came out of it; where that fails, try them one by one."""
        trial = Trial(tuple(entrants), self.check, replace(method, cold=self.cold))
        try:
            result = measure(trial, self.worker, self.device, reporting(trial, self.show, done, share))
        except PtxlabError as error:  # after a fault the next job gets a fresh worker
            self.failed.append(error)
            for entrant in entrants if len(entrants) > 1 else ():
                self.heat([entrant], method, done, share)
        else:
            self.timed += zip(entrants, rows(trial, result, self.device), strict=True)

    def fastest(self, count: int) -> list[tuple[Entrant, dict[str, Any]]]:
        """Return the fastest of those whose result is right.

        Raises:
            PtxlabError: there is none: what failed first, or a DeviceError where nothing failed.

        """
        right = [each for each in self.timed if each[1]["verified"]]
        if not right:
            raise (self.failed or [DeviceError(f"no plan gives the right result of {self.check.problem}")])[0]
        return sorted(right, key=lambda each: float(each[1]["milliseconds"]["median"]))[:count]


def preferred(
    stage: GemmStage, case: Case, device: DeviceInfo, named: Collection[str], *, cold: bool
) -> Case:
    """Return the point with the plan that was the fastest on this card, unless a plan was asked for."""
    if not stage.planned or set(named) & set(stage.planned):
        return case
    entry = cache.load(_key(stage, case, device, cold=cold))
    plan = cache.load_memo(entry.folder, MEMO) if entry else None
    try:
        return stage.case(case.arch, **(case.params | plan)) if plan else case
    except UsageError:  # the stage does not take it any more
        return case


def tuned(
    stage: GemmStage, case: Case, named: Collection[str], search: Search
) -> tuple[Case, dict[str, Any]]:
    """Return the point with the fastest plan, and what is to be told of the search.

    Raises:
        DeviceError: no plan survives, or none gives a right result.

    """
    begin = time.monotonic()
    plans = list(islice(_plans(stage, case, named), MOST_PLANS))
    _heats(stage, plans, search, begin + MOST_SECONDS)
    finalists = search.fastest(FINALISTS)
    final = replace(search, timed=[], failed=[])
    final.heat([entrant for entrant, _ in finalists], FINAL, 0.9, 0.1)
    winner, row = final.fastest(1)[0]
    chosen = {name: winner.case.params[name] for name in stage.planned}
    key = _key(stage, case, search.device, cold=search.cold)
    kept = None if set(named) & set(stage.planned) else _keep(key, chosen)
    return winner.case, {
        "stage": stage.name,
        "problem": str(search.check.problem),
        "device": search.device.name,
        "plans": [_told(stage, *each) for each in (*final.timed, *search.timed)],
        "finalists": len(final.timed),
        "of": len(plans),
        "failed": [error.message for error in (*search.failed, *final.failed)],
        "seconds": time.monotonic() - begin,
        "chosen": chosen,
        "milliseconds": row["milliseconds"],
        "kept": str(kept) if kept else None,
    }


def _keep(key: str, chosen: dict[str, Value]) -> Path | None:
    """Keep a plan in the place of an earlier one, and return where; None if the cache cannot be written."""
    folder = cache.store(key, {}, {"kind": "plan"})
    return folder if folder and cache.store_memo(folder, MEMO, chosen) else None


def _heats(stage: GemmStage, plans: list[Case], search: Search, until: float) -> None:
    """Time plans heat by heat, those of later heats being compiled meanwhile, until the time is over."""
    heats = [plans[first : first + OF_A_HEAT] for first in range(0, len(plans), OF_A_HEAT)]
    with ahead.pool() as pool:
        builds = [submitted(pool, stage, cases) for cases in heats]
        for index, (cases, build) in enumerate(zip(heats, builds, strict=True)):
            if index and time.monotonic() > until:
                break
            try:
                entrants = _entrants(stage, cases, build.result(), search)
            except PtxlabError as error:
                search.failed.append(error)
                continue
            if entrants:
                search.heat(entrants, HEAT, 0.9 * index / len(heats), 0.9 / len(heats))


def _entrants(stage: GemmStage, cases: list[Case], build: Build, search: Search) -> list[Entrant]:
    """Return the plans whose kernels may be timed: those that the compiler found registers enough for."""
    used = resources(build)
    found = []
    for case in cases:
        if spilled := used[kernel_name(stage, stage.macros(case))].spill_bytes:
            search.failed.append(ToolError(f"{case.key} spills {spilled} bytes of registers"))
        else:
            found.append(Entrant(stage, case, build.cubin))
    return found


def _plans(stage: GemmStage, case: Case, named: Collection[str]) -> Iterator[Case]:
    """Yield the point with each plan that agrees with what was asked for, the one it has first."""
    given = {name: case.params[name] for name in stage.planned if name in named}
    found = {case.key: case}
    yield case
    for plan in stage.plans(case):
        if given.items() <= plan.items():
            each = stage.case(case.arch, **(case.params | plan))
            if each.key not in found:
                found[each.key] = each
                yield each


def _told(stage: GemmStage, entrant: Entrant, row: dict[str, Any]) -> dict[str, Any]:
    plan: dict[str, Value] = {name: entrant.case.params[name] for name in stage.planned}
    return {"plan": plan} | {name: row[name] for name in ("milliseconds", "tflops", "verified")}


def _key(stage: GemmStage, case: Case, device: DeviceInfo, *, cold: bool) -> str:
    """Return what a plan is kept by; the kernel's digest knows types, layout and options."""
    return cache.key_of(
        plan_of=stage.name,
        device=device.name,
        kernel=digest(stage, case),
        problem=str(Problem.of(case)),
        l2="cold" if cold else "hot",
    )
