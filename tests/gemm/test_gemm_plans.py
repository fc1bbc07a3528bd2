"""Plans of cut-up problems, without a GPU: the file of those that were timed, and what is told of each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gemm_jobs import copied_kernels

from ptxlab import assets
from ptxlab.assets import kernels_folder
from ptxlab.errors import UsageError
from ptxlab.experiments import runner
from ptxlab.experiments.gemm.explain import explain
from ptxlab.experiments.gemm.machine import MACHINES
from ptxlab.experiments.registry import find_stage

SMALL = ("gemm", "--stage", "hopper", "--explain", "-m", "128", "-n", "128", "-k", "128", "--json")
PLAN = "128x128 ping-pong 1x1 1 memory"


@pytest.fixture
def plans_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The plans of a copy of the stage that has them, beside wmma-naive; a test may damage it."""
    stage = kernels_folder() / "gemm" / "hopper"
    folder = copied_kernels(tmp_path)
    shutil.copytree(stage, folder / "gemm" / "hopper")
    monkeypatch.setattr(assets, "kernels_folder", lambda: folder)
    monkeypatch.setattr(runner, "has_driver", lambda: False)
    return folder / "gemm" / "hopper" / "plans.json"


DAMAGES = {
    "nothing": "",
    "cut off": '{"plans": {',
    "a list": "[]",
    "no plans": "{}",
    "a role that is none": json.dumps({"plans": {"128x128x128": PLAN.replace("ping-pong", "foo")}}),
    "a block that is none": json.dumps({"plans": {"9x9x9": PLAN.replace("128x128", "12x12")}}),
    "parts that are none": json.dumps({"plans": {"9x9x9": PLAN.replace(" 1 ", " 100 ")}}),
    "what is left open": json.dumps({"plans": {"9x9x9": PLAN.replace("ping-pong", "auto")}}),
    "a plan that lacks something": json.dumps({"plans": {"9x9x9": PLAN.replace(" memory", "")}}),
    "a plan that is no text": json.dumps({"plans": {"9x9x9": 1}}),
}


@pytest.mark.parametrize("text", DAMAGES.values(), ids=DAMAGES)
def test_damaged_plans_are_named(plans_file: Path, run_here: Callable[..., Any], text: str) -> None:
    """Exit 4 with the file and what is wrong with it; the list of stages needs none."""
    plans_file.write_text(text, encoding="utf-8")
    done = run_here(*SMALL)
    assert done.returncode == 4
    assert json.loads(done.stdout)["error"]["message"].startswith(f"{plans_file} is damaged: ")
    assert run_here("gemm", "--list").returncode == 0


def test_without_timed_plans_the_model_decides(plans_file: Path) -> None:
    """The file may be absent."""
    plans_file.unlink()
    hopper = find_stage("hopper")
    case = hopper.case("sm_90a")
    assert hopper.planned
    assert case.params.items() >= next(iter(hopper.plans(case))).items()


def test_a_timed_plan_that_the_stage_does_not_take_is_left_out(plans_file: Path) -> None:
    """Two steps along k are no 24 parts: a run that asked for no plan gets another one."""
    plan = PLAN.replace(" 1 ", " 24 ")
    plans_file.write_text(json.dumps({"plans": {"128x128x128": plan}}), encoding="utf-8")
    assert find_stage("hopper").case("sm_90a", m=128, n=128, k=128).splits <= 2


def explained(registers: int = 168, **options: Any) -> dict[str, Any]:
    """Return the explanation of a plan."""
    stage = find_stage("hopper")
    return explain(stage, stage.case("sm_90a", **options), MACHINES[90], {"registers": registers})


@pytest.mark.parametrize(
    ("block", "what", "legal"),
    [("16x192", "192 columns", "single, alone"), ("64x256", "64 rows", "ping-pong, alone")],
)
def test_consumers_share_what_128_divides(block: str, what: str, legal: str) -> None:
    """Of C transposed the columns; the message names the roles by which they do not share."""
    with pytest.raises(UsageError, match=f"its {what} are no multiple of 128, .* legal: --set roles={legal}"):
        find_stage("hopper").case("sm_90a", block=block, roles="cooperative")


def test_even_shares_fill_the_last_wave() -> None:
    """4 of 136 tiles are left, a share of them for each block: none waits for others."""
    plan = {"block": "128x64", "roles": "cooperative", "cluster_shape": "1x1", "adding": "stream-k"}
    said = explained(m=512, n=34 * 64, k=7168, **plan)
    assert said["tiles"]["tiles"] == 136
    assert said["waves"]["waves"] == pytest.approx(136 / 132)
    assert (said["waves"]["even"], said["waves"]["last_blocks"]) == (True, 4)
    assert said["waves"]["percent"] == pytest.approx(100)
    assert "waves" not in said["limiter"]["reason"]


def test_fewer_tiles_than_blocks_are_all_shared() -> None:
    """136 tiles for 264 blocks, of which each gets half a tile."""
    plan = {"block": "64x128", "roles": "single", "cluster_shape": "1x1", "adding": "stream-k"}
    said = explained(registers=128, m=512, n=17 * 128, k=7168, **plan)
    assert said["tiles"]["blocks"] == 264
    assert (said["waves"]["waves"], said["waves"]["percent"]) == (pytest.approx(136 / 264), 100)


def test_blocks_of_a_cluster_exchange_their_sums() -> None:
    """They meet when all sums lie there, read them, arrive, and write C: none ends while others read."""
    plan = {"block": "128x64", "roles": "cooperative", "cluster_shape": "1x1", "splits": 4}
    line = explained(m=128, n=2112, k=7168, adding="cluster", **plan)["pipeline"]
    producer, consumer, _ = line["roles"]
    assert producer["end"] == [f"{act} {at}[t]" for at in ("laid", "added") for act in ("arrive", "wait")]
    assert consumer["end"][2:] == [
        *("arrive read[t]", "wait read[t]", "sums into the stages", "arrive laid[t]", "wait laid[t]"),
        *("sums by ld.shared::cluster from 4 blocks", "arrive added[t]", "C by st.global", "wait added[t]"),
    ]
    barriers = {each["barrier"]: (each["arrivals"], each["blocks"]) for each in line["barriers"]}
    assert barriers["laid"] == barriers["added"] == (4 * 384, 4)
    assert barriers["read"] == (256, 1)


def test_an_image_of_the_sums_is_read_by_its_own_block() -> None:
    """Where rows are few, C comes transposed: consumers alone meet."""
    line = explained(m=16, n=24576, k=1536, block="16x192", roles="single", splits=1)["pipeline"]
    producer, consumer = line["roles"]
    assert producer["end"] == []
    assert consumer["end"][-1] == "C by ld.shared, st.global"
    assert {each["barrier"]: each["arrivals"] for each in line["barriers"]}["laid"] == 128
