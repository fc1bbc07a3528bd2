"""The throughput of wgmma: a loop that no compiler makes shorter, and the rates that it stands for."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.assets import include_folder
from ptxlab.errors import ToolError, UsageError
from ptxlab.experiments import recording, registry, runner, verify
from ptxlab.experiments.base import Case
from ptxlab.experiments.record import Record
from ptxlab.isa.numbers import decode
from ptxlab.isa.types import BITS
from ptxlab.isa.wgmma import M
from ptxlab.isa.wgmma_descriptor import Descriptor
from ptxlab.sass.report import kernels
from ptxlab.toolchain.build import build_cuda
from ptxlab.toolchain.nvrtc import nvrtc_version

MODEL = runner.Lab("sm_90a", None, None, "the model was asked for")
PROBE: Any = registry.find_probe("wgmma-throughput")
MODULE = sys.modules[type(PROBE).__module__]
OF_LAYOUT = registry.find_probe("wgmma")
WGMMA = 512 * 4  # that a warpgroup executes


def run(**params: Any) -> Record:
    """Run one point on the model."""
    return runner.run_probe(PROBE, PROBE.case("sm_90a", **params), MODEL)[0]


def run_model(case: Case) -> dict[str, Any]:
    """What the model and the recordings say of the throughput at a point; nothing is compiled."""
    report: dict[str, Any] = PROBE.report(case, PROBE.expected(case), measured=False)
    return dict(report["throughput"])


def clocks(*moments: tuple[int, int]) -> dict[str, Any]:
    """What a device reads at the start and at the end of each warpgroup."""
    return {"clocks": np.array(moments, dtype=np.int64)}


@pytest.fixture
def copy(tmp_path: Path) -> Any:
    """The probe without recordings, in a folder of its own."""
    probe = registry.find_probe(PROBE.name)
    shutil.copytree(probe.folder, tmp_path / probe.name, ignore=shutil.ignore_patterns("recordings"))
    probe.folder = tmp_path / probe.name
    return probe


def test_the_compiler_leaves_every_wgmma_of_the_loop_that_is_timed() -> None:
    """Four are written and four are there; of a loop that overwrites D fewer are, and it is shown beside."""
    record = run(shape="m64n8k16")
    assert record.exit_code == 0
    left = {row["loop"]: row["wgmma_in_sass"] for row in record.result["loops"]}
    assert left.keys() == {"varying", "identical", "overwriting"}
    assert left["varying"] == 4
    assert left["overwriting"] < 4


def test_a_loop_that_the_compiler_made_shorter_is_no_benchmark() -> None:
    """It fails, and the conclusion says why its cycles mean nothing."""
    record = run(shape="m64n8k16", loop="overwriting")
    assert record.exit_code == 1
    assert "of the 4 wgmma in the loop: what runs is not what was written" in record.result["conclusion"]


def test_identical_wgmma_without_a_branch_are_merged() -> None:
    """What the note says of two versions of ptxas: of four, two are left, and ``sass`` warns."""
    if nvrtc_version()[:2] not in ((13, 0), (13, 5)):
        pytest.skip("the note is about other versions")
    source = """
        #include <ptxlab/wgmma.cuh>
        extern "C" __global__ void straight(const unsigned long long *pair, unsigned *sums) {
            unsigned d[32] = {}, sum = 0;
            const unsigned long long a = pair[0], b = pair[1];
            ptxlab::wgmma_fence();
            using ptxlab::Wgmma;
            for (int i = 0; i < 4; ++i)
                ptxlab::wgmma<64, Wgmma::f16, Wgmma::f16, Wgmma::f32, 0, 0>(d, a, b, 1);
            ptxlab::wgmma_commit();
            ptxlab::wgmma_wait<0>();
            for (unsigned each : d) sum += each;
            sums[threadIdx.x] = sum; }"""
    built = build_cuda(source, name="/sources/straight.cu", arch="sm_90a", include_dirs=(include_folder(),))
    (report,) = kernels(built)
    assert report["tensor_ops"] == 2
    assert any("4 wgmma.mma_async in PTX, 2 in SASS" in each for each in report["warnings"])


def test_wgmma_is_asked_for_its_throughput(run_here: Any) -> None:
    """``probe wgmma --throughput`` answers with its own form, and takes what says which form that is."""
    form = ("--shape", "m64n32k32", "--dtype", "e4m3", "--warpgroups", "2")
    done = run_here("probe", "wgmma", "--throughput", *form, "--backend", "model", "--json")
    document = json.loads(done.stdout)
    found = document["result"]["throughput"]
    assert (done.returncode, document["params"]["shape"], found["warpgroups"]) == (0, "m64n32k32", 2)
    assert (found["wgmma"], found["peak_flop_per_clock_and_sm"]) == (2 * WGMMA, 8192)
    assert found["model"]["cycles_per_wgmma"] == 24
    assert found["measured"] is None


def test_what_does_not_go_with_throughput_is_refused(run_here: Any) -> None:
    """An option that changes no rate is not silently dropped."""
    done = run_here("probe", "wgmma", "--throughput", "--k-step", "2")
    assert done.returncode == 2
    assert "--k-step does not go with --throughput; legal: --shape, --dtype, " in done.stderr
    done = run_here("probe", "wgmma", "--throughput", "--lane", "3")
    assert done.returncode == 2
    assert "--lane shows the registers of a lane: probe wgmma-throughput shows none" in done.stderr


def test_only_the_probe_command_follows_to_another_probe() -> None:
    """A point of the other probe is none of this one's."""
    with pytest.raises(UsageError, match="--throughput is answered by another probe: wgmma-throughput"):
        OF_LAYOUT.case("sm_90a", throughput=True)


def test_the_operands_lie_as_the_layout_probe_has_them() -> None:
    """On every variant: the same descriptors as four steps of the wgmma probe."""
    for case in PROBE.variants("sm_90a"):
        shared = {name: case.params[name] for name in case.params if name in OF_LAYOUT.options()}
        other = OF_LAYOUT.case("sm_90a", **shared, k_step=4)
        expected = OF_LAYOUT.inputs(other)["descriptors"]
        np.testing.assert_array_equal(PROBE.inputs(case)["descriptors"], expected, err_msg=case.key)


def read(case: Case, operand: int, dtype: str, rows: int, major: str) -> Any:
    """The values [step, row, k] that the descriptors of an operand read out of shared memory."""
    inputs, size = PROBE.inputs(case), BITS[dtype] // 8
    found = []
    for step in inputs["descriptors"]:
        groups = step[:1] if operand else step  # B is the same of every warpgroup
        words = [Descriptor.of(int(group[operand])) for group in groups]
        places = np.concatenate([word.addresses(rows, 32 // size, 8 * size, major) for word in words])
        parts = inputs["memory"][places[..., None] + np.arange(size)].astype(np.uint64)
        found.append(decode((parts << (8 * np.arange(size, dtype=np.uint64))).sum(axis=-1), dtype))
    return np.array(found)


def test_d_is_the_sum_of_what_the_descriptors_read() -> None:
    """On every variant; and no sum is larger than f16 and the sums of 8-bit types hold exactly."""
    for case in PROBE.variants("sm_90a"):
        total = MODULE.total(case)
        assert 0 < np.abs(total).max() <= 2048
        if case.a == "reg":
            continue
        a = read(case, 0, case.dtype, M, case.major)
        b = read(case, 1, case.dtype_b or case.dtype, MODULE.form_of(case).n, case.major_b or case.major)
        np.testing.assert_array_equal(total, 512 * (a @ b.swapaxes(1, 2)).sum(axis=0), err_msg=case.key)


def test_a_thread_sums_its_registers_by_weight() -> None:
    """The bits of register i count 2i + 1 times, so that exchanged registers are another sum."""
    case = PROBE.case("sm_90a", shape="m64n8k16")
    total, sums = MODULE.total(case).astype(np.float32), PROBE.expected(case)["sums"]
    warp, lane = 2, 13
    own = [total[16 * warp + lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2] for i in range(4)]
    bits = np.array(own, dtype=np.float32).view(np.uint32).tolist()
    assert sums[0, warp, lane] == sum((2 * i + 1) * word for i, word in enumerate(bits)) % 2**32


def test_loops_that_are_shown_beside_have_their_own_answer() -> None:
    """What PTX says of them: identical ones add the first product up, overwriting ones leave the last."""
    cases = {loop: PROBE.case("sm_90a", loop=loop) for loop in ("varying", "identical", "overwriting")}
    a, b = MODULE.factors(cases["varying"])
    np.testing.assert_array_equal(MODULE.total(cases["identical"]), WGMMA * (a[0] @ b[0].T))
    np.testing.assert_array_equal(MODULE.total(cases["overwriting"]), a[-1] @ b[-1].T)
    assert len({PROBE.expected(case)["sums"].tobytes() for case in cases.values()}) == 3


def measured(**params: Any) -> Record:
    """The record of clocks that a device might have read: 256 cycles of each wgmma, or what is said."""
    cycles = params.pop("cycles")
    case = PROBE.case("sm_90a", shape="m64n256k16", **params)
    record = Record()
    outputs = {
        **PROBE.expected(case),
        **clocks(*((100 + i, 100 + i + cycles) for i in range(case.warpgroups))),
    }
    PROBE.examine(case, outputs, record)
    record.result |= PROBE.report(case, outputs, measured=True)
    return record


def test_a_rate_counts_the_wgmma_of_all_warpgroups() -> None:
    """From the first start to the last end; two warpgroups share the tensor cores."""
    record = measured(warpgroups=2, cycles=2 * WGMMA * 128 - 1)
    found = record.result["throughput"]["measured"]
    assert found["cycles"] == 2 * WGMMA * 128
    assert (found["cycles_per_wgmma"], found["flop_per_clock_and_sm"]) == (128, 4096)
    assert found["percent_of_peak"] == found["percent_of_model"] == 100
    assert record.exit_code == 0


@pytest.mark.parametrize("per_wgmma", [64, 300])
def test_a_rate_that_the_model_does_not_explain_fails(per_wgmma: int) -> None:
    """Twice as fast as the tensor cores: half of it did not run. Or much slower than they are."""
    record = measured(cycles=WGMMA * per_wgmma)
    (check,) = [each for each in record.checks if each["name"] == "rate"]
    assert not check["ok"]
    assert f"{per_wgmma}.00 cycles a wgmma" in check["detail"]


def test_a_recording_keeps_the_clocks_and_shows_the_rate(copy: Any) -> None:
    """Without a GPU the rate of the card that was recorded is shown, with its name, and judged."""
    case = copy.case("sm_90a", shape="m64n256k16")
    outputs = {**copy.expected(case), **clocks((0, WGMMA * 130))}
    kept = recording.start(copy, "Test Card 1", {"arch": "sm_90a"})
    kept.add(copy, case, *verify.kept_of(copy, case, outputs, Record()))
    recording.save(copy, kept)
    record = runner.run_probe(copy, case, MODEL)[0]
    found = record.result["throughput"]["recorded"]
    assert (found["cycles_per_wgmma"], found["device"]) == (130, "Test Card 1")
    assert {"recording", "recorded rate"} <= {check["name"] for check in record.checks if check["ok"]}
    assert record.exit_code == 0
    assert "takes 130.0 cycles of an SM (recorded)" in record.result["conclusion"]
    assert record.result["pictures"][0]["cells"][-1] == ["128", "80", "0", "130.0"]


def test_a_type_of_which_every_n_was_recorded_is_named() -> None:
    """Where the column of what was recorded has gaps."""
    (told,) = PROBE.elsewhere(PROBE.case("sm_90a", dtype="f16"))
    assert told.endswith("recorded with --dtype bf16.")
    assert PROBE.elsewhere(PROBE.case("sm_90a", dtype="bf16")) == []


@pytest.mark.parametrize(
    "damage",
    [{}, clocks((5, 5)), clocks((9, 5)), {"clocks": np.array([[0.0, np.nan]])}, clocks((0, 9), (0, 9))],
)
def test_a_recording_without_a_time_is_damaged(copy: Any, damage: dict[str, Any]) -> None:
    """It is the file that is named, not the probe that reads it."""
    case = copy.case("sm_90a", shape="m64n256k16")
    kept = recording.start(copy, "Test Card 1", {"arch": "sm_90a"})
    kept.add(copy, case, {**copy.expected(case), **damage})
    recording.save(copy, kept)
    with pytest.raises(ToolError, match=r"test-card-1\.json is damaged: it has no clocks of shape=m64n256"):
        MODULE.recorded(copy, case)


def test_an_h200_proves_the_model() -> None:
    """Every rate that was recorded is the model's within two hundredths, where each of the three decides."""
    (kept,) = recording.recordings(PROBE)
    assert kept.device == "NVIDIA H200"
    decided = set()
    for case in PROBE.variants("sm_90a"):
        found = run_model(case)
        assert 98 <= found["recorded"]["percent_of_model"] <= 100, case.key
        decided.add(found["bound"])
    assert decided == {"tensor cores", "reads of shared memory", "A from registers"}


@pytest.mark.gpu
def test_the_tensor_cores_are_kept_busy() -> None:
    """On the device: m64n256k16 from one warpgroup comes to the peak, within a hundredth."""
    with runner.open_lab("device", "sm_90a", 0, 20.0) as lab:
        record = runner.run_probe(PROBE, PROBE.case("sm_90a", shape="m64n256k16", dtype="bf16"), lab)[0]
    assert record.exit_code == 0, record.checks
    assert 99 <= record.result["throughput"]["measured"]["percent_of_peak"] <= 100.1
