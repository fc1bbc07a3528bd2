"""Which plan of a stage is in force, and where it comes from; and what is left undone without a GPU."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ptxlab.experiments.base import Case, Value
from ptxlab.experiments.gemm.problem import Problem
from ptxlab.experiments.gemm.stage import GemmStage

KEPT = "an earlier --tune on this card"
TUNED = "--tune, in this run"


def in_force(stage: GemmStage, case: Case, named: Collection[str], source: str) -> dict[str, Any]:
    """Return the plan of a point and where it comes from, as a JSON value.

    Args:
        stage: one that has plans.
        case: the point.
        named: the options that were asked for.
        source: where the plan comes from; "" where the stage chose it.

    """
    plan: dict[str, Value] = {name: case.params[name] for name in stage.planned}
    asked = [name for name in plan if name in named]
    source = source or stage.plan_source(case)
    if asked:
        source = "what was asked for" + ("" if len(asked) == len(plan) else f", the rest from {source}")
    return {"stage": stage.name, "problem": str(Problem.of(case)), "plan": plan, "source": source}


def undone(wanted: Mapping[str, bool], plans: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each option that was given and that nothing came of, as no GPU runs it here.

    Args:
        wanted: which of "tune", "check", "explain_error" and "record" were given.
        plans: those in force.

    """
    without = "no GPU runs it here"
    if wanted["tune"]:
        yield f"not tuned: {without}{_instead(plans)}"
    if wanted["check"]:
        yield f"no element of C is checked: {without}"
    if wanted["explain_error"]:
        yield f"there is no error to explain: {without}"
    if wanted["record"]:
        yield f"nothing is recorded: {without}"


def _instead(plans: Sequence[Mapping[str, Any]]) -> str:
    """Return which plan is in force; of several problems --json lists them."""
    if len(plans) != 1:
        return "; result.plans of --json has the plans in force" if plans else ""
    values = " ".join(map(str, plans[0]["plan"].values()))
    return f"; the plan in force, {values}, is from {plans[0]['source']}"
