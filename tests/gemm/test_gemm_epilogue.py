"""Bias and activation on the way out of a GEMM: what is right, what is found wrong, what a kernel spends."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from gemm_cases import compile_all
from gemm_jobs import problem, rounded, stage_job, taken
from gemm_stand_in import request
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ptxlab.device.client import Worker
from ptxlab.device.job import CublasGemm, Job, Launch, Timing
from ptxlab.errors import ExitCode, UsageError
from ptxlab.experiments.base import Case
from ptxlab.experiments.gemm import GemmStage, Problem
from ptxlab.experiments.gemm.activation import ACTIVATIONS, activated, image
from ptxlab.experiments.gemm.bound import HARDWARE_TANH, Bound
from ptxlab.experiments.gemm.check import Check
from ptxlab.experiments.gemm.fused import FusedStage
from ptxlab.experiments.gemm.reference import Comparison, Sums, compare, fill, sums
from ptxlab.experiments.gemm.stage import MODULE
from ptxlab.experiments.registry import find_stage, stage_entries
from ptxlab.experiments.unit import build_unit
from ptxlab.sass.claims import check_claims
from ptxlab.sass.report import kernels

FUSED = [entry.name for entry in stage_entries() if isinstance(find_stage(entry.name), FusedStage)]
FINITE = st.floats(-20, 20)

Array = NDArray[np.float64]


def gelu_by_tanh(x: Array) -> Array:
    """Return the approximation as its paper writes it."""
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def test_gelu_is_the_one_with_tanh() -> None:
    """As its paper writes it, and so near to the Gaussian one that a wrong constant would show."""
    x = np.linspace(-6, 6, 1001)
    assert np.abs(activated("gelu", x) - gelu_by_tanh(x)).max() <= 1e-15
    gaussian = np.array([each / 2 * math.erfc(-each / math.sqrt(2)) for each in x])
    assert 4e-4 < np.abs(activated("gelu", x) - gaussian).max() < 5e-4


def test_relu_keeps_what_is_not_negative() -> None:
    """NaN is no negative number."""
    given = np.array([-np.inf, -1.0, 0.0, 2.0, np.inf, np.nan])
    assert np.array_equal(activated("relu", given), [0, 0, 0, 2, np.inf, np.nan], equal_nan=True)


@pytest.mark.parametrize("name", ACTIVATIONS)
@given(low=FINITE, width=st.floats(0, 5), part=st.floats(0, 1))
@settings(max_examples=200, deadline=None)
def test_an_image_holds_what_lies_inside(name: str, low: float, width: float, part: float) -> None:
    """The activation of any place in an interval, also where gelu has its minimum in it."""
    least, greatest = image(name, np.array(low), np.array(low + width))
    inside = activated(name, np.array(low + part * width))
    assert least <= inside + 1e-15
    assert inside <= greatest + 1e-15


def epilogue(p: Problem, total: Sums, init: str) -> Array:
    """Return the argument of the activation, exactly but for float64."""
    before, bias = (fill(p, init, 1, which) for which in ("c", "bias"))
    return p.alpha * rounded(total.reference, p.acc) + p.beta * before + p.bias * bias


def checked(
    p: Problem, init: str, change: Any = lambda c: c, c: Any = None, limit: Bound | None = None
) -> Comparison:
    """Return the check of the right result, or of ``c``; ``change`` has changed it."""
    total = sums(fill(p, init, 1, "a"), fill(p, init, 1, "b"))
    if c is None:
        c = activated(p.activation, rounded(epilogue(p, total, init), "f32"))
    before, bias = (fill(p, init, 1, which) for which in ("c", "bias"))
    limit = limit or Check(p, init, 1).bound
    return compare(p, total, change(rounded(rounded(c, "f32"), p.out)), limit, before, bias)


def fused(out: str, activation: str, *, bias: bool = True, **more: Any) -> Problem:
    """Return a small problem with an epilogue."""
    return dataclasses.replace(problem(24, 40, 48, out=out), bias=bias, activation=activation, **more)


@pytest.mark.parametrize("init", ["normal", "ints", "seq", "zeros"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("out", ["f16", "bf16", "f32"])
def test_the_right_result_is_right(out: str, activation: str, init: str) -> None:
    """Every element is verified."""
    for more in ({}, {"alpha": 0.5, "beta": -2.0}, {"bias": False}):
        p = fused(out, activation, **more)
        found = checked(p, init)
        assert (found.verified, found.wrong) == (p.m * p.n, 0), more


@pytest.mark.parametrize("activation", ["none", "relu"])
@pytest.mark.parametrize("out", ["f16", "bf16", "f32"])
def test_integers_stay_exact(out: str, activation: str) -> None:
    """One element that is one step of the output type off is wrong, in either direction."""
    p = fused(out, activation)
    for sign in (1, -1):

        def change(c: Array, sign: int = sign) -> Array:
            c[np.unravel_index(np.argmax(c), c.shape)] += sign * float(np.spacing(np.float32(c.max())))
            return rounded(c + 0, "f32")

        assert checked(p, "ints", change).wrong == 1


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_nan_never_passes(activation: str) -> None:
    """Also where the right result is zero: who makes zero of NaN hides sums that were never made."""

    def change(c: Array) -> Array:
        c[np.unravel_index(np.argmin(np.abs(c)), c.shape)] = np.nan
        return c

    assert checked(fused("f16", activation), "normal", change).wrong == 1


def test_other_epilogues_are_wrong() -> None:
    """No bias, one for each row, the activation before the bias, the Gaussian gelu, relu for gelu."""
    p = fused("f32", "gelu")
    total = sums(fill(p, "normal", 1, "a"), fill(p, "normal", 1, "b"))
    x, bias = epilogue(p, total, "normal"), fill(p, "normal", 1, "bias")
    of_rows = fill(dataclasses.replace(p, n=p.m), "normal", 1, "bias").T
    gaussian = np.vectorize(lambda each: each / 2 * math.erfc(-each / math.sqrt(2)))
    for c in (
        activated("gelu", x - bias),
        activated("gelu", x - bias + of_rows),
        activated("gelu", x - bias) + bias,
        gaussian(x),
        activated("relu", x),
    ):
        assert checked(p, "normal", c=c).wrong > 0


@pytest.mark.parametrize("out", ["f16", "bf16", "f32"])
def test_gelu_may_lose_what_its_instructions_lose(out: str) -> None:
    """The exponential and the reciprocal as wrong as they can be; a library may take the hardware's tanh."""
    p = fused(out, "gelu")
    total = sums(fill(p, "normal", 1, "a"), fill(p, "normal", 1, "b"))
    x = rounded(epilogue(p, total, "normal"), "f32")
    strict = Check(p, "normal", 1).bound
    lenient = dataclasses.replace(strict, activation_unit=strict.activation_unit + HARDWARE_TANH)
    for sign in (-1, 1):
        exponent = rounded(x * rounded(-0.10294324 * x * x - 2.3022082, "f32"), "f32")
        power = rounded(np.exp2(np.minimum(exponent, 127)) * (1 + sign * 2.0**-22), "f32")
        part = rounded((1 / rounded(1 + power, "f32")) * (1 - sign * 2.0**-23), "f32")
        assert checked(p, "normal", c=x * part).wrong == 0
        tanh = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)) * (1 + sign * 2.0**-11)
        assert checked(p, "normal", c=x / 2 * (1 + tanh)).wrong > 0
        assert checked(p, "normal", c=x / 2 * (1 + tanh), limit=lenient).wrong == 0


def test_float32_beyond_its_range_is_no_pass() -> None:
    """Of minus infinity gelu is NaN: where the sum may be that large, nothing is verified."""
    p = dataclasses.replace(problem(1, 1, 1, dtype="bf16", out="f32"), activation="gelu")
    total = sums(np.full((1, 1), -3e38), np.full((1, 1), 3e38))
    for c in (0.0, np.nan, -np.inf):
        found = compare(p, total, np.full((1, 1), c), Check(p, "normal", 0).bound)
        assert (found.verified, found.wrong, found.overflow) == (0, 0, 1)


def test_an_infinite_argument_is_not_compared() -> None:
    """Although relu would make a number of it."""
    p = dataclasses.replace(problem(2, 1, 1), activation="relu")
    total = sums(np.array([[-np.inf], [np.nan]]), np.ones((1, 1)))
    found = compare(p, total, np.zeros((2, 1)), Check(p, "normal", 0).bound)
    assert (found.verified, found.infinite, found.nan) == (0, 1, 1)


def test_a_problem_tells_of_its_epilogue_where_it_has_one() -> None:
    """In words, in JSON, and in the bytes that must move."""
    plain = problem(64, 32, 16)
    p = dataclasses.replace(plain, bias=True, activation="gelu")
    assert str(p) == f"{plain}, bias, gelu"
    assert p.nbytes == plain.nbytes + 2 * 32
    assert p.flop == plain.flop
    assert {"bias", "activation"} & plain.told().keys() == set()
    assert p.told() == plain.told() | {"bias": True, "activation": "gelu"}


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_whole_run_with_an_epilogue(gemm: Any, activation: str) -> None:
    """The row names it, the element check knows it, and the library is asked for the same."""
    told = ("bias=yes", f"activation={activation}")
    record, stand_in = gemm(request(64, 48, 64, stage="hopper", settings=told))
    assert record.exit_code == ExitCode.OK
    (row,) = json.loads(json.dumps(record.document(), default=str))["result"]["stages"]
    assert (row["bias"], row["activation"], row["verified"]) == (True, activation, True)
    (job,) = stand_in.jobs
    (timing,) = (step for step in job.steps if isinstance(step, Timing))
    asked = [call for _, call in timing.sides if isinstance(call, CublasGemm)]
    assert {(call.bias, call.activation) for call in asked} == {("bias", activation)}
    assert "bias" in {buffer.name for buffer in job.buffers}


def test_a_wrong_bias_fails_the_run(gemm: Any) -> None:
    """One element that lacks it is exit 1."""
    told = request(64, 48, 64, init="ints", stage="hopper", settings=("bias=yes",))
    record, _ = gemm(told, change=(5, 7, 1.0))
    assert record.exit_code == ExitCode.CHECK_FAILED


@pytest.mark.parametrize("out", ["f16", "f32"])
@pytest.mark.parametrize("name", FUSED)
def test_an_epilogue_spends_only_what_it_is_asked_for(name: str, out: str) -> None:
    """Two special functions for each sum by gelu, some loads for a bias, nothing for relu; no spills."""
    stage = find_stage(name)
    found = {}
    for bias, activation in (("no", "none"), ("yes", "none"), ("no", "relu"), ("yes", "gelu")):
        case = stage.case("sm_90a", out=out, bias=bias, activation=activation)
        (kernel,) = kernels(build_unit(stage, [case], case.arch))
        assert not [detail for _, ok, detail in check_claims(kernel, stage.claims(case)) if not ok]
        counts = kernel["counts"]
        found[bias, activation] = [
            sum(n for opcode, n in counts.items() if opcode.startswith(kind))
            for kind in ("LDG", "MUFU.EX2", "MUFU.RCP")
        ]
    rows, cols, _ = stage.tile(case)
    sums_of_a_thread = rows * cols // stage.math_warps(case) // 32
    plain = found["no", "none"]
    assert found["no", "relu"] == plain
    assert found["yes", "none"][0] > plain[0]
    assert [a - b for a, b in zip(found["yes", "gelu"][1:], plain[1:], strict=True)] == [sums_of_a_thread] * 2


@pytest.mark.parametrize("block", ["128x128", "128x256"])
@pytest.mark.parametrize("name", FUSED)
def test_gelu_of_scaled_sums_stays_out_of_the_products(name: str, block: str) -> None:
    """Both together read sums in many places: products must not wait for each other because of it (C7514)."""
    stage = find_stage(name)
    case = stage.case("sm_90a", block=block, beta=1.0, activation="gelu", out="bf16")
    (kernel,) = kernels(build_unit(stage, [case], case.arch))
    assert not [detail for _, ok, detail in check_claims(kernel, stage.claims(case)) if not ok]


COMBINED: tuple[dict[str, Any], ...] = (
    {"bias": "yes", "activation": "relu", "alpha": -2.0, "beta": 0.25},
    {"bias": "yes", "activation": "gelu", "alpha": 0.5, "beta": 2.0, "block": "128x128"},
    {"bias": "yes", "activation": "relu", "splits": 4},
    {"bias": "yes", "activation": "gelu", "splits": 4, "block": "128x128"},
)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """Yield a worker for the tests of this file."""
    with Worker(timeout=60) as each:
        yield each


def combined(stage: GemmStage, arch: str, out: str) -> Iterator[Case]:
    """Yield epilogues with factors, and such that follow parts of k, over tails."""
    for options, shape in product(COMBINED, [(33, 48, 80), (257, 144, 1040)]):
        m, n, k = taken(stage, shape)
        with contextlib.suppress(UsageError):  # such as splits that a stage has not
            yield stage.case(arch, m=m, n=n, k=k, out=out, **options)


@pytest.mark.gpu
@pytest.mark.parametrize("out", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("name", FUSED)
def test_epilogues_are_right_over_tails(worker: Worker, name: str, out: str) -> None:
    """Every element is verified, and the canaries live."""
    stage = find_stage(name)
    cases = list(combined(stage, worker.info().arch, out))
    compile_all(stage, cases)
    assert len(cases) >= 4
    for init, case in product(("ints", "normal"), cases):
        result = worker.run(stage_job(stage, case, init))
        found = Check(Problem.of(case), init, 0).read(result.arrays, "c")
        assert (found.verified, found.wrong) == (case.m * case.n, 0), f"{init}: {case.key}"
        assert result.damaged_canaries == []


@pytest.mark.gpu
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_nan_stays_nan_on_the_device(worker: Worker, activation: str) -> None:
    """In the row whose sums are, and nowhere else."""
    stage = find_stage("hopper")
    case = stage.case(worker.info().arch, m=64, n=64, k=64, activation=activation)
    job = stage_job(stage, case)
    a = np.ones((64, 64), np.float16)
    a[3, 5] = np.nan
    given = {"a": a, "b": -np.ones((64, 64), np.float16)}
    buffers = [dataclasses.replace(each, data=given.get(each.name, each.data)) for each in job.buffers]
    launch = [step for step in job.steps if isinstance(step, Launch) and step.module == MODULE]
    c = worker.run(Job(job.modules, tuple(buffers), tuple(launch))).arrays["c"].view(np.float16)
    assert np.isnan(c.reshape(64, 64)).all(axis=1).nonzero()[0].tolist() == [3]
    assert np.isnan(c).sum() == 64
