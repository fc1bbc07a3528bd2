"""What hopper tells the L2 of the lines that TMA brings and writes."""

from __future__ import annotations

import re

import pytest

from ptxlab.experiments.base import Case
from ptxlab.experiments.registry import find_stage
from ptxlab.experiments.unit import build_unit
from ptxlab.sass.claims import check_claims
from ptxlab.sass.report import kernels

HOPPER = find_stage("hopper")
WIDE = {"block": "128x128", "cluster_shape": "2x1"}
SPILLED_ONCE = {"block": "256x192", "cluster_shape": "1x2", "roles": "cooperative", "layout": "nn"}
"""Of whose producers a thread has 24 registers: a policy that is kept in two of them does not fit."""


def policies(case: Case) -> dict[str, list[str]]:
    """Return by "load" and "store" the policy of each such copy, "" where it carries none."""
    found: dict[str, list[str]] = {"load": [], "store": []}
    made = re.compile(r"createpolicy\.fractional\.L2::evict_(?P<policy>\w+)\.b64|cp\.async\.bulk\.tensor\S+")
    last = ""
    for match in made.finditer(build_unit(HOPPER, [case], case.arch).ptx):
        if match["policy"]:
            last = match["policy"]
            continue
        kind = "store" if ".bulk_group" in match[0] else "load"
        found[kind].append(last if match[0].endswith(".L2::cache_hint") else "")
    return found


@pytest.mark.parametrize(
    ("l2", "loads", "store"),
    [
        ("normal", ["", ""], ""),
        ("stream-c", ["", ""], "first"),
        ("keep-a", ["last", "first"], "first"),
        ("keep-b", ["first", "last"], "first"),
    ],
)
def test_each_copy_carries_its_policy(l2: str, loads: list[str], store: str) -> None:
    """Those of A, of B, and of each panel of C."""
    found = policies(HOPPER.case("sm_90a", l2=l2, **WIDE))
    assert found["load"] == loads
    assert set(found["store"]) == {store}


def test_a_transposed_product_keeps_the_same_matrix() -> None:
    """Where wgmma's first operand is B, its policy comes first."""
    case = HOPPER.case("sm_90a", m=16, block="16x128", l2="keep-a")
    assert HOPPER.macros(case)["SWAPPED"] == 1
    assert policies(case)["load"] == ["first", "last"]


@pytest.mark.parametrize("l2", ["stream-c", "keep-a", "keep-b"])
def test_policies_leave_the_kernel_as_it_is(l2: str) -> None:
    """The claims hold: the same copies, and nothing spilled."""
    case = HOPPER.case("sm_90a", l2=l2, **SPILLED_ONCE)
    (kernel,) = kernels(build_unit(HOPPER, [case], case.arch))
    assert not [detail for _, ok, detail in check_claims(kernel, HOPPER.claims(case)) if not ok]
