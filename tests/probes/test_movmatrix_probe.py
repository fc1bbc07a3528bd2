"""The movmatrix probe: what it shows, and that one register and no shared memory suffice."""

from __future__ import annotations

from typing import Any

import pytest

from ptxlab.experiments import registry, runner

PROBE = registry.find_probe("movmatrix")


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a", "sm_120a"])
def test_one_movm_and_no_shared_memory(arch: str) -> None:
    """MOVM.16.MT88 from sm_75 on; nothing goes through shared memory."""
    record = runner.run_probe(
        PROBE, PROBE.case(arch), runner.Lab(arch, None, None, "the model was asked for")
    )[0]
    assert record.exit_code == 0
    assert record.result["sass"]["counts"]["MOVM.16.MT88"] == 1
    assert not {"LDS", "STS", "LDSM", "SHFL"} & set(record.result["sass"]["families"])


@pytest.mark.parametrize("times", [1, 2])
def test_what_lanes_hold(times: int) -> None:
    """Lane 13 starts with row 3, columns 2 and 3; moved once it has column 3, rows 2 and 3."""
    case = PROBE.case("sm_90a", times=times)
    result = PROBE.report(case, PROBE.expected(case), measured=True)
    held = [(e["tile_row"], e["tile_col"]) for e in result["holds"] if e["lane"] == 13]
    assert held == ([(2, 3), (3, 3)] if times == 1 else [(3, 2), (3, 3)])
    assert all(e["value"] == e["row"] << 8 | e["col"] for e in result["registers"])


def test_what_goes_in_and_what_comes_out_stand_side_by_side(run_here: Any) -> None:
    """Two pictures of one matrix, no memory, and the registers of every lane before and after."""
    done = run_here("probe", "movmatrix", "--backend", "model", "--lane", "13")
    assert done.returncode == 0, done.stderr
    assert "in memory" not in done.stdout
    assert "before: r0 of lane" in done.stdout
    assert "after: r0 of lane" in done.stdout
    assert done.stdout.index("source r0") < done.stdout.index("result r0")
    assert ["13", "3,2", "3,3", "2,3", "3,3"] in [line.split() for line in done.stdout.splitlines()]
