"""The GEMM bench on a GPU: fills, the check, and the stages, held against numpy."""

from __future__ import annotations

import json
import pickle
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gemm_cases import (
    alternating_cases,
    compile_all,
    edge_cases,
    large_cases,
    normal_cases,
    sanitized_cases,
    scaled_cases,
    variants,
)
from gemm_jobs import (
    INITS,
    LAYOUTS,
    TAILS,
    apart,
    by_numpy,
    check_job,
    loaded,
    problem,
    repeated_job,
    resized,
    rounded,
    stage_job,
    stored,
    together,
)
from numpy.typing import NDArray

from ptxlab.device.client import Worker, wrapped_command
from ptxlab.device.job import Job, Timing
from ptxlab.errors import MissingError
from ptxlab.experiments.gemm import TYPES, GemmStage, Problem
from ptxlab.experiments.gemm.bound import bound
from ptxlab.experiments.gemm.ceiling import loops
from ptxlab.experiments.gemm.check import Check
from ptxlab.experiments.gemm.machine import machine
from ptxlab.experiments.gemm.reference import (
    INTEGER_INITS,
    Sums,
    compare,
    fill,
    sums,
)
from ptxlab.experiments.registry import find_stage, stage_entries
from ptxlab.toolchain.tools import find_tool

pytestmark = pytest.mark.gpu

STAGES = [entry.name for entry in stage_entries()]
RUNS = 1000
"""Of the same launch, whose results must not differ in a bit."""
FEW_RUNS = 10


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """Yield a worker for the tests of this file."""
    with Worker(timeout=60) as each:
        yield each


@pytest.fixture(scope="module")
def arch(worker: Worker) -> str:
    """Return the device's architecture."""
    return worker.info().arch


@pytest.fixture(scope="module", params=STAGES)
def stage(request: pytest.FixtureRequest, arch: str) -> GemmStage:
    """Return stage after stage of those that are for this chip."""
    found = find_stage(request.param)
    try:
        found.case(arch)
    except MissingError as error:
        pytest.skip(error.message)
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("init", INITS)
def test_fills_are_those_of_numpy(worker: Worker, arch: str, init: str, layout: str) -> None:
    """Bit for bit; normal values may round the other way where float64 itself differs in its last bits."""
    p = problem(65, 130, 33, layout=layout)
    result = worker.run(check_job(Check(p, init, 7), arch, np.zeros(p.m * p.n, np.float16)))
    for name, matrix in (("a", p.a), ("b", p.b)):
        logical = fill(p, init, 7, name)
        expected = stored(logical, by_columns=matrix.by_columns, dtype="f16")
        found, wanted = result.arrays[name].view(np.uint16), expected.view(np.uint16)
        apart = np.abs(found.astype(int) - wanted.astype(int))
        if init == "normal":
            assert apart.max() <= 1
            assert (apart != 0).mean() <= 1e-3
        else:
            assert apart.max() == 0


def test_normal_values_are_normal(worker: Worker, arch: str) -> None:
    """Mean, deviation and the share beyond two deviations, each within six standard errors."""
    p = problem(64, 64, 4096)
    a = worker.run(check_job(Check(p, "normal", 1), arch, np.zeros(64 * 64, np.float16))).arrays["a"]
    values = a.view(np.float16).astype(np.float64)
    count = values.size
    assert abs(values.mean()) <= 6 / count**0.5
    assert abs(values.std() - 1) <= 6 / (2 * count) ** 0.5
    share = 0.0455002638964
    assert abs((np.abs(values) > 2).mean() - share) <= 6 * (share / count) ** 0.5


@pytest.mark.parametrize("acc", ["f32", "f16"])
@pytest.mark.parametrize("out", ["f16", "f32"])
@pytest.mark.parametrize("init", ["normal", "ints", "seq"])
@pytest.mark.parametrize("shape", [(85, 85, 85), (64, 128, 16), (70, 131, 257)])
def test_the_check_is_that_of_numpy(
    worker: Worker, arch: str, shape: tuple[int, int, int], init: str, out: str, acc: str
) -> None:
    """Every class, the largest error and each wrong element, over a result with known faults."""
    p = problem(*shape, acc=acc, out=out, layout="nt")
    check, limit = Check(p, init, 3), bound(p.k, acc, integers=init in INTEGER_INITS)
    clean = worker.run(
        check_job(check, arch, np.zeros(p.m * p.n, np.float32 if out == "f32" else np.float16))
    )
    total = _sums(check, clean.arrays)
    c = rounded(rounded(total.reference, acc), out)
    c[3, 5], c[7, 70], c[63, 63], c[41, 2] = np.nan, np.inf, 0.75, -c[41, 2]
    c[60] = c[61]
    expected = compare(p, total, c, limit)
    result = worker.run(check_job(check, arch, stored(c, by_columns=False, dtype=out)))
    found = check.read(result.arrays, "c")
    for name in ("verified", "wrong", "overflow", "infinite", "nan", "max_error"):
        assert getattr(found, name) == getattr(expected, name), name
    assert found.elements == p.m * p.n
    assert [repr(each) for each in found.first_wrong] == [repr(each) for each in expected.first_wrong]
    assert found.wrong_blocks == expected.wrong_blocks


def _sums(check: Check, arrays: dict[str, NDArray[np.uint8]]) -> Sums:
    p = check.problem
    a = loaded(arrays["a"], p.m, p.k, by_columns=p.a.by_columns, dtype=p.dtype)
    b = loaded(arrays["b"], p.k, p.n, by_columns=p.b.by_columns, dtype=p.dtype)
    return sums(a, b)


@pytest.mark.parametrize("k", [256, 2048, 16384])
def test_one_element_four_ulp_off_is_found(worker: Worker, arch: str, k: int) -> None:
    """In the largest element, with f16 output: the bound is not so wide that it hides one."""
    p = problem(40, 72, k)
    check = Check(p, "normal", 5)
    arrays = worker.run(check_job(check, arch, np.zeros(p.m * p.n, np.float16))).arrays
    c = rounded(_sums(check, arrays).reference, "f16").astype(np.float16)
    row, col = np.unravel_index(np.argmax(np.abs(c)), c.shape)
    clean = check.read(worker.run(check_job(check, arch, c)).arrays, "c")
    assert (clean.verified, clean.wrong) == (p.m * p.n, 0)
    c[row, col] -= 4 * np.spacing(np.abs(c[row, col])) * np.sign(c[row, col])
    found = check.read(worker.run(check_job(check, arch, c)).arrays, "c")
    assert (found.verified, found.wrong) == (p.m * p.n - 1, 1)
    assert (found.first_wrong[0].row, found.first_wrong[0].col) == (row, col)


@pytest.mark.parametrize("shape", TAILS)
def test_a_stage_is_exact_on_integers(
    worker: Worker, arch: str, stage: GemmStage, shape: tuple[int, int, int]
) -> None:
    """Every variant over tails: the check says so, numpy says so, and the canaries live."""
    cases = [case for variant in variants(stage, arch) for case in resized(stage, variant, shape)]
    assert cases
    compile_all(stage, cases)
    for case in cases:
        result = worker.run(stage_job(stage, case, "ints"))
        p = Problem.of(case)
        found = Check(p, "ints", 0).read(result.arrays, "c")
        assert (found.verified, found.wrong) == (p.m * p.n, 0), case.key
        assert result.damaged_canaries == [], case.key
        if p.activation == "gelu":
            continue  # no kernel computes it exactly
        expected = rounded(by_numpy(p, "ints"), p.out)
        assert np.array_equal(result.arrays["c"], stored(expected, by_columns=False, dtype=p.out)), case.key


def test_a_stage_is_exact_at_the_edges_of_its_tiles(worker: Worker, arch: str, stage: GemmStage) -> None:
    """Less than a tile, odd tiles in a cluster, blocks without work, many tiles for a block, deep sums."""
    cases = edge_cases(stage, arch)
    assert cases
    compile_all(stage, cases, "naturals")
    for case in cases:
        result = worker.run(stage_job(stage, case, "naturals"))
        found = Check(Problem.of(case), "naturals", 0).read(result.arrays, "c")
        assert (found.verified, found.wrong) == (case.m * case.n, 0), case.key
        assert result.damaged_canaries == []


def test_a_stage_scales_and_adds(worker: Worker, arch: str, stage: GemmStage) -> None:
    """Exact on integers whose scaled sums are; C is read where beta is not zero, and only there."""
    cases = scaled_cases(stage, arch)
    compile_all(stage, cases)
    for case in cases:
        result = worker.run(stage_job(stage, case, "ints"))
        p = Problem.of(case)
        found = Check(p, "ints", 0).read(result.arrays, "c")
        assert (found.verified, found.wrong) == (p.m * p.n, 0), case.key
        expected = rounded(by_numpy(p, "ints"), p.out)
        assert np.array_equal(result.arrays["c"], stored(expected, by_columns=False, dtype=p.out)), case.key


def test_a_stage_is_within_the_bound_and_always_the_same(worker: Worker, arch: str, stage: GemmStage) -> None:
    """Random normal inputs: within the bound, and the same bits on a thousand runs."""
    cases = normal_cases(stage, arch)
    compile_all(stage, cases, "normal")
    for case in cases:
        result = worker.run(repeated_job(stage, case, "normal", RUNS))
        found = Check(Problem.of(case), "normal", 0).read(result.arrays, "c")
        assert (found.verified, found.wrong) == (case.m * case.n, 0), case.key
        assert found.max_error is not None
        assert found.max_error > 0 or case.acc == "s32"
        differ = [run for run in range(1, RUNS) if (result.arrays[f"c.{run}"] != result.arrays["c"]).any()]
        assert not differ, f"{case.key}: other bits in {len(differ)} runs, such as {differ[:8]}"


def test_a_stage_is_exact_while_all_sms_are_busy(worker: Worker, arch: str, stage: GemmStage) -> None:
    """Of several launches in a row, each into its own C."""
    cases = large_cases(stage, arch)
    compile_all(stage, cases, "naturals")
    for case in cases:
        result = worker.run(repeated_job(stage, case, "naturals", FEW_RUNS))
        found = Check(Problem.of(case), "naturals", 0).read(result.arrays, "c")
        assert (found.verified, found.wrong) == (case.m * case.n, 0), case.key
        again = [result.arrays[f"c.{run}"] for run in range(1, FEW_RUNS)]
        assert all(np.array_equal(each, result.arrays["c"]) for each in again), case.key


def test_sizes_and_pointers_may_alternate(worker: Worker, arch: str, stage: GemmStage) -> None:
    """Launches one after the other, each on matrices of its own: nothing is left over from those before."""
    cases = alternating_cases(stage, arch)
    compile_all(stage, cases)
    jobs = [stage_job(stage, case, "ints", seed) for seed, case in enumerate(cases)]
    results = apart(worker.run(together(jobs)), len(jobs))
    for seed, (case, result) in enumerate(zip(cases, results, strict=True)):
        found = Check(Problem.of(case), "ints", seed).read(result.arrays, "c")
        assert (found.verified, found.wrong) == (case.m * case.n, 0), f"{seed}: {case.key}"
        assert result.damaged_canaries == []


@pytest.mark.parametrize(("n", "overflow"), [(84, 0), (85, 248)])
def test_seq_overflows_f16_from_85_on(worker: Worker, arch: str, n: int, overflow: int) -> None:
    """Elements that overflow are counted, and are not verified."""
    stage = find_stage("wmma-naive")
    result = worker.run(stage_job(stage, stage.case(arch, m=n, n=n, k=n), "seq"))
    found = Check(problem(n, n, n), "seq", 0).read(result.arrays, "c")
    assert (found.overflow, found.wrong, found.verified) == (overflow, 0, n * n - overflow)


def test_seq_has_infinite_inputs_from_2896_on(worker: Worker, arch: str) -> None:
    """B[i] = (i + 1.25) / 128 rounds to infinity from 65520 on: 257 elements, each spoils a column."""
    stage, n = find_stage("wmma-naive"), 2896
    check = Check(problem(n, n, n), "seq", 0)
    result = worker.run(stage_job(stage, stage.case(arch, m=n, n=n, k=n), "seq"))
    found = check.read(result.arrays, "c")
    assert check.infinite_inputs(result) == 257
    assert (found.infinite, found.nan, found.wrong) == (257 * n, 0, 0)


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
def test_compute_sanitizer_is_silent(arch: str, tool: str, name: str, tmp_path: Path) -> None:
    """Over tails and whole tiles, of a stage and of the check's kernels."""
    stage = find_stage(name)
    try:
        sanitizer = find_tool("compute-sanitizer")
        cases = sanitized_cases(stage, arch)
    except MissingError as error:
        pytest.skip(error.message)
    compile_all(stage, cases)
    files = tmp_path / "jobs", tmp_path / "results"
    files[0].write_bytes(pickle.dumps([together([stage_job(stage, case) for case in cases])]))
    command = [str(sanitizer.path), "--tool", tool, "--error-exitcode", "77"]
    if tool == "memcheck":  # cuda.core asks for parameter after parameter until the driver says no
        command += ["--report-api-errors", "no"]
    done = subprocess.run(
        [*command, *wrapped_command(*files, 0)],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[:2000] + done.stderr[-500:]
    (merged,) = pickle.loads(files[1].read_bytes())  # noqa: S301 - ours
    for case, result in zip(cases, apart(merged, len(cases)), strict=True):
        found = Check(Problem.of(case), "ints", 0).read(result.arrays, "c")
        assert found.verified == case.m * case.n, case.key


def test_the_ladder_measures_every_stage(run_cli: Callable[..., Any]) -> None:
    """In one run: rows have what scripts rely on, and their numbers agree with each other."""
    sizes = ("-m", "512", "-n", "384", "-k", "256", "--warmup", "0.2")
    done = run_cli("gemm", "--ladder", *sizes, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["backend"] == "device"
    rows = document["result"]["stages"]
    here = [name for name in STAGES if find_stage(name).only in ("", document["arch"])]
    assert sorted(row["stage"] for row in rows) == here
    peaks = {(row["problem"], row["ceiling"]): row for row in document["result"]["ceilings"]}
    for row in rows:
        assert (row["m"], row["n"], row["k"], row["verified"]) == (512, 384, 256, True)
        assert row["verified_elements"] == 512 * 384
        times = row["milliseconds"]
        assert 0 < times["low"] <= times["median"] <= times["high"]
        assert row["tflops"] == pytest.approx(2 * 512 * 384 * 256 / times["median"] / 1e9)
        peak = peaks[row["problem"], find_stage(row["stage"]).ceiling]
        assert row["percent_of_measured_peak"] == pytest.approx(100 * row["tflops"] / peak["tflops"])
        beside = {other["stage"] for other in rows if other["problem"] == row["problem"]}
        assert (row["gain"] is None) == (find_stage(row["stage"]).below not in beside)
        assert (row["baseline"] is None) == (row["percent_of_cublas"] is None) == (not row["libraries"])
        assert row["baseline"] or row["baseline_note"]
        assert all(library["wrong"] == 0 for library in row["libraries"])


@pytest.mark.parametrize("dtype", ["f16", "bf16", "tf32", "s8", "e4m3", "e5m2"])
def test_a_ceiling_is_what_the_silicon_can_do(worker: Worker, dtype: str) -> None:
    """It multiplies: at least half of the FLOP per clock of the data sheet, and not more than all of it."""
    device = worker.info()
    ready, _ = loops(dtype, device)
    gpu = machine(device.arch, device.name, device.multiprocessors)
    key = problem(1, 1, 1, dtype=dtype, acc=TYPES[dtype].sums).tensor
    if gpu is None or key not in gpu.rates:
        pytest.skip(f"the rates of {device.name} are not known")
    sheet = gpu.rates[key]
    most = sheet.per_second / (sheet.at_mhz or 1) / 1e6 / gpu.multiprocessors
    for loop in ready:
        step = Timing("t", ((loop.side, loop.launch()),), samples=6, warmup_ms=100)
        result = worker.run(Job({loop.side: loop.cubin}, loop.buffers(), (step,)))
        samples = result.timings["t"][loop.side]
        row = loop.read(result, samples)
        assert most / 2 < row["flop_per_clock_and_sm"] <= 1.01 * most, row
        by_clock = row["flop_per_clock_and_sm"] * row["sm_mhz"] * gpu.multiprocessors / 1e6
        assert row["tflops"] == pytest.approx(by_clock, rel=0.05)
        assert samples.sm_mhz[-1] == pytest.approx(row["sm_mhz"], rel=0.03)  # both are of the last launches
