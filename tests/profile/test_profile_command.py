"""``ptxlab profile``: every way in which it can end, without a GPU and with a stand-in for ncu."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from ptxlab.device.job import DeviceInfo
from ptxlab.experiments import profile, registry, runner
from ptxlab.experiments.gemm.machine import RESOURCES
from ptxlab.experiments.registry import find_stage

CONNECTED = "==PROF== Connected to process 4242 (/home/user/app)\\n"
NOTHING = f"{CONNECTED}==WARNING== No kernels were profiled.\\n"
PERMISSION = f"{CONNECTED}==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\\n"
COPY = "log.write_text('')\nshutil.copy(data / 'banks.ncu-rep', report)"
H200 = DeviceInfo("NVIDIA H200", "sm_90a", 132, 60 << 20, 227 << 10, 140 << 30, "580.1", "13.0")
A_PROBE = "ldmatrix"
A_STAGE = "wmma-naive"


def said(done: Any) -> dict[str, Any]:
    """Return the one document on stdout."""
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.fixture
def app(tmp_path: Path) -> str:
    """Return a program of a user, which prints something."""
    path = tmp_path / "app"
    path.write_text(f"#!{sys.executable}\nprint('the answer is 42')\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this a machine without a driver."""
    monkeypatch.setattr(runner, "has_driver", lambda: False)


@pytest.fixture
def on_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this a machine with a device, as far as can be told before ncu runs."""
    lab = runner.Lab("sm_90a", None, H200, "")
    monkeypatch.setattr(profile, "open_lab", lambda *_: lab)


def test_no_permission_is_exit_3_with_advice_while_the_program_ran_normally(
    stub_ncu: Any, run_here: Any, app: str
) -> None:
    """Case: a container on a rented GPU; the program's own output is as ever."""
    stub_ncu(f"subprocess.run(program)\nlog.write_text('{PERMISSION}')\nsys.exit(1)")
    done = run_here("profile", "--json", "--", app)
    assert done.returncode == 3
    assert said(done)["error"]["code"] == "no-permission"
    assert "ERR_NVGPUCTRPERM" in said(done)["error"]["message"]
    assert "SYS_ADMIN" in said(done)["error"]["hint"]
    assert "the answer is 42" in done.stderr


@pytest.mark.usefixtures("on_h200")
def test_no_permission_leaves_what_needs_no_profiler_and_says_what_it_is(
    stub_ncu: Any, run_here: Any
) -> None:
    """Static counts and the model, each called what it is."""
    stub_ncu(f"log.write_text('{PERMISSION}')\nsys.exit(1)")
    document = said(run_here("profile", f"gemm:{A_STAGE}", "-m", "64", "-n", "64", "-k", "32", "--json"))
    assert document["error"]["code"] == "no-permission"
    assert document["result"]["kernels"] == []
    assert document["result"]["static"]["families"]["HMMA"] == 2
    assert document["result"]["modelled"]["counts"]["hmma"] == 64 * 64 * 32 // 2048
    table = run_here("profile", f"gemm:{A_STAGE}").stdout
    assert "Static counts: instructions in the SASS, whether or not they run." in table
    assert "Modelled, not measured." in table


@pytest.mark.parametrize(
    ("options", "log", "message"),
    [
        (["--kernel", "nosuch"], NOTHING + "Available Kernels:\\n1. gemm\\n2. fill\\n", "matched 0 of the 2"),
        ([], NOTHING, "used CUDA but launched no kernel"),
        ([], "==WARNING== No kernels were profiled.\\n", "nor a process that it started used CUDA"),
        (["--launch-skip", "9"], NOTHING, "made no launch after the first 9"),
    ],
)
def test_nothing_profiled_is_exit_3_and_says_which_of_the_reasons(
    stub_ncu: Any, run_here: Any, app: str, options: list[str], log: str, message: str
) -> None:
    """Filter, no launch, no CUDA, and skipped are four different answers."""
    stub_ncu(f"log.write_text('{log}')")
    done = run_here("profile", *options, "--json", "--", app)
    assert done.returncode == 3
    assert said(done)["error"]["code"] == "nothing-profiled"
    assert message in said(done)["error"]["message"]


def test_a_program_that_fails_is_exit_4_and_keeps_what_was_profiled(
    stub_ncu: Any, run_here: Any, app: str
) -> None:
    """Its exit code is shown; so are the launches before."""
    error = "==ERROR== The application returned an error code (17).\\n"
    stub_ncu(f"{COPY}\nlog.write_text('{error}')\nsys.exit(17)")
    done = run_here("profile", "--json", "--", app)
    assert done.returncode == 4
    assert "exit code 17" in said(done)["error"]["message"]
    assert said(done)["result"]["kernels"][0]["counts"]["ldsm"] == 32


@pytest.mark.usefixtures("on_h200")
def test_the_workers_own_words_are_shown_when_it_fails(stub_ncu: Any, run_here: Any) -> None:
    """They are not on the screen otherwise."""
    error = "==ERROR== The application returned an error code (3).\\n"
    stub_ncu(f"print('ptxlab worker: out of memory')\nlog.write_text('{error}')\nsys.exit(3)")
    done = run_here("profile", A_PROBE, "--json")
    assert done.returncode == 4
    assert said(done)["error"]["message"].endswith("exit code 3 under ncu: ptxlab worker: out of memory")


def test_a_hang_is_exit_4_after_the_time_limit(stub_ncu: Any, run_here: Any, app: str) -> None:
    """It is ncu that does not return, whatever the reason."""
    stub_ncu("time.sleep(60)")
    done = run_here("profile", "--timeout", "0.5", "--json", "--", app)
    assert done.returncode == 4
    assert said(done)["error"]["code"] == "tool-timeout"


def test_a_whole_run_prints_the_kernels_and_keeps_the_report(
    stub_ncu: Any, run_here: Any, app: str, tmp_path: Path
) -> None:
    """And the program keeps the options that are its own."""
    stub_ncu(COPY)
    kept = tmp_path / "kept.ncu-rep"
    done = run_here("profile", "--report", str(kept), "--json", "--", app, "--json")
    assert done.returncode == 0
    document = said(done)
    assert document["params"]["program"] == [app, "--json"]
    assert document["environment"]["ncu"] == "2025.3.1.0"
    assert document["environment"]["device"] == {"name": "NVIDIA H200"}
    assert [row["name"] for row in document["result"]["kernels"]] == ["banks"]
    again = run_here("profile", str(kept), "--json")
    assert said(again)["result"]["kernels"] == document["result"]["kernels"]


def test_metrics_are_groups_or_ncus_own_and_others_are_refused(
    stub_ncu: Any, run_here: Any, app: str
) -> None:
    """A wrong name of a metric or a set is one that ncu itself passes over."""
    stub_ncu(COPY)
    own = run_here("profile", "--metrics", "counts,launch__registers_per_thread", "--json", "--", app)
    assert said(own)["result"]["kernels"][0]["metrics"] == {"launch__registers_per_thread": 32}
    group = run_here("profile", "--metrics", "shard", "--json", "--", app)
    assert (group.returncode, said(group)["error"]["hint"]) == (2, "did you mean shared?")
    metric = run_here("profile", "--metrics", "sm__nosuch.sum", "--json", "--", app)
    assert metric.returncode == 2
    assert "sm__nosuch.sum" in said(metric)["error"]["message"]
    section_set = run_here("profile", "--set", "ful", "--json", "--", app)
    assert (section_set.returncode, said(section_set)["error"]["hint"]) == (2, "did you mean full?")


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(
    stub_ncu: Any, run_here: Any, app: str, tmp_path: Path
) -> None:
    """Profiling takes long."""
    stub_ncu(COPY)
    nowhere = run_here("profile", "--report", str(tmp_path / "no" / "x.ncu-rep"), "--json", "--", app)
    assert nowhere.returncode == 3
    wrong = run_here("profile", "--report", str(tmp_path / "x.txt"), "--json", "--", app)
    assert wrong.returncode == 2
    assert not (tmp_path / "ncu-here" / "ncu.ran").exists()


def test_a_failed_run_leaves_an_old_report_as_it_was(
    stub_ncu: Any, run_here: Any, app: str, tmp_path: Path
) -> None:
    """Nothing is left half-written."""
    stub_ncu("report.write_bytes(b'half')\nsys.exit(1)")
    kept = tmp_path / "kept.ncu-rep"
    kept.write_text("old")
    done = run_here("profile", "--report", str(kept), "--", app)
    assert done.returncode == 4
    assert kept.read_text() == "old"


def test_no_ncu_is_exit_3_with_the_command_that_brings_it(
    run_here: Any, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commonest case of all."""
    from ptxlab.toolchain import tools

    monkeypatch.setattr(tools, "_places", lambda _: iter(()))
    done = run_here("profile", "--json", "--", app)
    assert done.returncode == 3
    assert "nsight-compute" in said(done)["error"]["hint"]


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_a_probe_shows_its_static_counts_and_its_model(run_here: Any) -> None:
    """They come with the error."""
    done = run_here("profile", A_PROBE, "--json")
    document = said(done)
    assert done.returncode == document["error"]["exit"] == 3
    assert document["error"]["code"] == "no-device"
    assert document["backend"] == ""
    probe = registry.find_probe(A_PROBE)
    claims = probe.claims(probe.case("sm_90a"))
    counted = document["result"]["static"]["families"] | document["result"]["static"]["counts"]
    for opcode, count in claims.items():
        assert counted[opcode] == count
    assert document["result"]["kernels"] == []


@pytest.mark.usefixtures("no_gpu")
def test_options_of_the_experiment_reach_it(run_here: Any) -> None:
    """Sizes by their short options, the others by name."""
    document = said(run_here("profile", f"gemm:{A_STAGE}", "-m", "48", "--option", "acc=f16", "--json"))
    assert document["params"]["acc"] == "f16"
    assert (document["params"]["m"], document["params"]["n"]) == (48, 1024)


@pytest.mark.usefixtures("no_gpu")
def test_the_view_names_the_problem_and_the_units(run_here: Any) -> None:
    """Sizes and types, and what each number counts."""
    shown = run_here("profile", f"gemm:{A_STAGE}", "-m", "48", "-k", "64").stdout
    assert f"gemm:{A_STAGE}: m 48, n 1024, k 64, dtype f16" in shown
    demands = set(find_stage(A_STAGE).demands(find_stage(A_STAGE).case("sm_90a")))
    rows = [re.split(r"  +", line.strip()) for line in shown.splitlines() if line.startswith(" demands: ")]
    assert {row[0].removeprefix("demands: ") for row in rows} == demands
    assert {row[2].rstrip("s").lower() for row in rows} == {RESOURCES[key].unit.lower() for key in demands}
    assert re.search(r"counts: hmma +\d+ +warp instructions", shown)
    probe = run_here("profile", A_PROBE).stdout
    assert re.search(r"banks: wavefronts +\d+ +wavefronts", probe)
    assert "instructions in the SASS" in probe


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "a TARGET or, after --, a program"),
        ([A_PROBE, "--", "true"], "a TARGET or, after --, a program"),
        (["nosuch"], "unknown probe 'nosuch'"),
        (["gem:x"], "unknown kind of target 'gem'"),
        (["kernel.cu"], "nothing about how its kernels are launched"),
        (["none.ncu-rep"], "does not exist"),
        ([A_PROBE, "-m", "64"], "belong to gemm:STAGE"),
        ([A_PROBE, "--option", "nosuch=1"], "unknown option"),
        ([f"gemm:{A_STAGE}", "--option", "m=many"], "legal: a whole number"),
        (["--", "./no-such-program"], "no program that can be run"),
    ],
)
@pytest.mark.usefixtures("no_gpu")
def test_wrong_usage_is_exit_2_with_one_clear_line(run_here: Any, arguments: list[str], message: str) -> None:
    """The line names what is wrong."""
    done = run_here("profile", *arguments)
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[0]


@pytest.mark.parametrize("keep", [0, 100, 0.5, 0.95])
def test_a_damaged_report_is_exit_4_and_one_line(
    run_here: Any, banks_report: Path, tmp_path: Path, keep: float
) -> None:
    """Cut off anywhere; NVIDIA's reader takes some of these for reports with an empty launch."""
    content = banks_report.read_bytes()
    path = tmp_path / "cut.ncu-rep"
    path.write_bytes(content[: int(keep if keep > 1 else keep * len(content))])
    done = run_here("profile", str(path))
    assert done.returncode == 4
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["ptxlab:", "hint:"]


def test_of_a_report_named_metrics_are_shown_and_options_of_a_run_are_refused(
    run_here: Any, banks_report: Path
) -> None:
    """A report is not run again."""
    named = said(run_here("profile", str(banks_report), "--metrics", "launch__sm_count", "--json"))
    assert named["result"]["kernels"][0]["metrics"] == {"launch__sm_count": 132}
    refused = run_here("profile", str(banks_report), "--kernel", "banks")
    assert (refused.returncode, "read as it is" in refused.stderr) == (2, True)


def test_the_table_shows_every_class_and_the_conclusion(run_here: Any, banks_report: Path) -> None:
    """What a person sees."""
    table = run_here("profile", str(banks_report)).stdout
    for words in ("LDSM", "long_scoreboard", "raw L1 counter", "ld lost 992 wavefronts to bank conflicts"):
        assert words in table


def test_a_report_is_explained_when_that_is_asked_for(run_here: Any, banks_report: Path) -> None:
    """In sentences, below the numbers of shared memory; without the option there are none."""
    told = "LDS: 32 warp instructions took 1024 wavefronts, 32 for each."
    assert told in run_here("profile", str(banks_report), "--explain", "shared").stdout
    assert told not in run_here("profile", str(banks_report)).stdout
    wrong = run_here("profile", str(banks_report), "--explain", "stalls")
    assert wrong.returncode == 2
    assert "unknown value for --explain 'stalls'; legal: shared" in wrong.stderr


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_the_model_is_explained(run_here: Any) -> None:
    """One instruction, and that it is the model's."""
    done = run_here("profile", A_PROBE, "--explain", "shared")
    assert done.returncode == 3
    assert "modelled: 1 warp instruction took 8 wavefronts, 8 for each. The least is 4" in done.stdout
