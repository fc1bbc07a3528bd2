"""Profiles on a real GPU: what ncu counts is what was launched."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from ptxlab.experiments import counters

pytestmark = pytest.mark.gpu

LAUNCH = str(Path(__file__).parent / "data" / "launch.py")


def profiled(run_cli: Any, *arguments: str) -> dict[str, Any]:
    """Return the document of a profile that must succeed."""
    done = run_cli("profile", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.parametrize(("blocks", "warps", "rounds"), [(1, 1, 1), (3, 2, 5)])
def test_a_users_program_and_its_child_are_followed(
    run_cli: Any, blocks: int, warps: int, rounds: int
) -> None:
    """The kernel is launched by a child of the program that is profiled."""
    sizes = [str(size) for size in (blocks, warps, rounds)]
    (row,) = profiled(run_cli, "--kernel", "banks", "--", sys.executable, LAUNCH, "banks", *sizes)["result"][
        "kernels"
    ]
    executed = blocks * warps * rounds
    assert (row["grid"], row["block"]) == ([blocks, 1, 1], [32 * warps, 1, 1])
    counted = row["counts"]
    assert counted["ldsm"] == counted["stsm"] == counted["ldgsts"] == executed
    assert counted["hmma"] == 2 * executed
    assert {name: each["conflicts"] for name, each in row["shared"].items()} == {
        "ld": 31 * executed,
        **dict.fromkeys(("st", "ldsm", "stsm", "ldgsts"), 0),
    }


def test_what_other_traffic_adds_to_the_raw_counter_is_not_called_bank_conflicts(run_cli: Any) -> None:
    """An H200 counted 14,974 for these clean accesses while cp.async data came in, and 0 without it."""
    sizes = ("264", "8", "16")
    (row,) = profiled(run_cli, "--", sys.executable, LAUNCH, "busy", *sizes)["result"]["kernels"]
    assert [each["conflicts"] for each in row["shared"].values()] == [0] * len(counters.SHARED_CLASSES)
    executed = [row["shared"][name]["instructions"] for name in ("ld", "st", "ldgsts")]
    assert executed == [264 * 8 * 16] * 3
    assert row["shared_raw"]["conflicts"] == row["shared_raw"]["not_bank_conflicts"] > 0


def test_a_probe_executes_its_instruction_once_in_each_warp(run_cli: Any) -> None:
    """Executed is static times warps, where nothing loops."""
    document = profiled(run_cli, "ldmatrix")
    (row,) = document["result"]["kernels"]
    warps = math.prod(row["grid"]) * math.ceil(math.prod(row["block"]) / 32)
    static = document["result"]["static"]["families"]
    assert row["counts"]["ldsm"] == static["LDSM"] * warps
    assert document["backend"] == "device"


def test_a_stage_executes_the_mmas_that_its_model_predicts(run_cli: Any) -> None:
    """Tails included."""
    stage = "wmma-naive"
    document = profiled(run_cli, f"gemm:{stage}", "-m", "80", "-n", "48", "-k", "72")
    (check,) = [each for each in document["checks"] if each["name"] == "executed HMMA"]
    assert check["ok"]
    assert document["result"]["kernels"][0]["counts"]["hmma"] > 0


def test_a_filter_that_matches_nothing_names_what_was_launched(run_cli: Any) -> None:
    """In the words of the real ncu."""
    done = run_cli(
        *("profile", "--kernel", "nosuch", "--json", "--", sys.executable, LAUNCH, "banks", "1", "1", "1"),
    )
    assert done.returncode == 3
    assert "matched 0 of the 1 kernels" in json.loads(done.stdout)["error"]["message"]


def test_a_program_without_cuda_is_told_from_one_that_launches_nothing(run_cli: Any) -> None:
    """In the words of the real ncu."""
    done = run_cli("profile", "--json", "--", "true")
    assert done.returncode == 3
    assert "nor a process that it started used CUDA" in json.loads(done.stdout)["error"]["message"]


def test_a_metric_that_the_chip_does_not_have_is_refused(run_cli: Any) -> None:
    """The real ncu says nothing about it."""
    done = run_cli(
        *(
            "profile",
            "--metrics",
            "sm__nosuch.sum",
            "--json",
            "--",
            sys.executable,
            LAUNCH,
            "banks",
            "1",
            "1",
            "1",
        ),
    )
    assert done.returncode == 2
    assert "sm__nosuch.sum" in json.loads(done.stdout)["error"]["message"]


def test_ncu_has_the_set_full(run_cli: Any) -> None:
    """Its own list of sets can be read."""
    done = run_cli("profile", "--set", "nosuch", "--json", "--", "true")
    assert done.returncode == 2
    assert "full" in json.loads(done.stdout)["error"]["message"]
