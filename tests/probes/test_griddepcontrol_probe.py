"""The griddepcontrol probe: when the second kernel starts, and what it sees."""

from __future__ import annotations

from typing import Any

import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.record import Record

PROBE = registry.find_probe("griddepcontrol")


def run(**params: Any) -> Record:
    """Run one point on the model."""
    lab = runner.Lab("sm_90a", None, None, "the model was asked for")
    return runner.run_probe(PROBE, PROBE.case("sm_90a", **params), lab)[0]


def test_the_wait_waits_for_the_end_and_not_for_launch_dependents() -> None:
    """They overlap, and what is written after the permission is seen all the same."""
    record = run()
    assert record.exit_code == 0
    (row,) = record.result["run"]
    assert (row["blocks that saw the dependent run"], row["right words that it read"]) == (1, 32)
    assert {"ACQBULK", "PREEXIT"} <= set(record.result["sass"]["families"])


@pytest.mark.parametrize(
    "params",
    [{"launch": "late"}, {"launch": "never"}, {"attribute": "no"}, {"blocks": 4, "callers": 3}],
)
def test_otherwise_they_do_not_overlap(params: dict[str, Any]) -> None:
    """Too late a call, none, no attribute, or one block that does not call."""
    record = run(**params)
    assert record.exit_code == 0
    assert record.result["run"][0]["blocks that saw the dependent run"] == 0


def test_without_the_wait_it_is_a_race() -> None:
    """A finding whatever the device does; without the attribute it is none."""
    record = run(wait="no")
    assert record.exit_code == 1
    assert record.result["run"][0]["right words that it read"] == "not known"
    fault = PROBE.fault(PROBE.case("sm_90a", wait="no"))
    assert fault is not None
    assert (fault.name, fault.certain) == ("grid dependency", False)
    assert run(wait="no", attribute="no").exit_code == 0


def test_the_second_launch_alone_is_a_dependent() -> None:
    """The same kernel twice."""
    first, second = PROBE.geometry(PROBE.case("sm_90a"))
    assert (first.programmatic, second.programmatic) == (False, True)


@pytest.mark.parametrize(
    ("params", "words"),
    [({"blocks": 65}, "this probe takes 1 to 64"),
     ({"launch": "never", "callers": 1}, "with --launch never"),
     ({"blocks": 2, "callers": 3}, "legal: 0 to 2"),
     ({"launch": "soon"}, "legal: never, early, late")],
)  # fmt: skip
def test_other_points_are_refused(params: dict[str, Any], words: str) -> None:
    """One line, with the value and the legal set."""
    with pytest.raises(UsageError, match=words):
        PROBE.case("sm_90a", **params)


def test_older_chips_have_none() -> None:
    """They came with sm_90."""
    with pytest.raises(UsageError, match="legal: sm_90 and later"):
        PROBE.case("sm_80")
