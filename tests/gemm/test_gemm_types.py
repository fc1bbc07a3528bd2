"""Types of 8 bits and tf32, without a GPU: how they are rounded, summed and checked, and what takes them."""

from __future__ import annotations

import numpy as np
import pytest
from gemm_jobs import problem, rounded
from numpy.typing import NDArray

from ptxlab.device.job import MapArgument
from ptxlab.errors import UsageError
from ptxlab.experiments.base import Value
from ptxlab.experiments.gemm import TYPES
from ptxlab.experiments.gemm.bound import bound
from ptxlab.experiments.gemm.ceiling import Loop
from ptxlab.experiments.gemm.problem import FLOAT8
from ptxlab.experiments.gemm.reference import INTEGER_INITS, chained, compare, fill, sums
from ptxlab.experiments.registry import find_ceiling, find_stage
from ptxlab.experiments.unit import build_unit
from ptxlab.isa.numbers import decode
from ptxlab.sass.claims import check_claims
from ptxlab.sass.report import kernels

INSTRUCTIONS = {
    "f16": "HGMMA.64x128x16.F32",
    "bf16": "HGMMA.64x128x16.F32.BF16",
    "tf32": "HGMMA.64x128x8.F32.TF32",
    "s8": "IGMMA.64x128x32.S8.S8",
    "e4m3": "QGMMA.64x128x32.F32.E4M3.E4M3",
    "e5m2": "QGMMA.64x128x32.F32.E5M2.E5M2",
}
FUSED: dict[str, Value] = {"bias": "yes", "activation": "gelu"}
SCALED: dict[str, Value] = {"alpha": 0.5, "beta": 2.0}
S8: dict[str, Value] = {"dtype": "s8", "out": "f32", **FUSED}
PARTS: dict[str, Value] = {**S8, "splits": 2}
EVEN: dict[str, Value] = {**S8, "adding": "stream-k", "n": 2112}
K_MAJOR = ("tf32", "s8", "e4m3", "e5m2")

Array = NDArray[np.float64]


def numbers(dtype: str) -> Array:
    """Return every finite number of an 8-bit float that is not negative, in ascending order."""
    found = decode(np.arange(128, dtype=np.uint64), dtype)
    return found[np.isfinite(found)].astype(np.float64)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_8_bit_floats_round_to_the_nearest_and_saturate(dtype: str) -> None:
    """Each number itself, the middle between two to the even one, and what is too large to the largest."""
    known = numbers(dtype)
    assert np.array_equal(rounded(known, dtype), known)
    middles = (known[:-1] + known[1:]) / 2
    even = np.where(np.arange(len(middles)) % 2, known[1:], known[:-1])
    assert np.array_equal(rounded(-middles, dtype), -even)
    assert np.array_equal(rounded(middles * (1 + 2.0**-40), dtype), known[1:])
    assert rounded(np.array([1e9, -np.inf]), dtype).tolist() == [known[-1], -known[-1]]


def test_tf32_keeps_ten_bits_of_a_fraction() -> None:
    """Ties to even, and no second rounding on the way through float32."""
    ulp = 2.0**-10
    values = np.array([1 + ulp, 1 + ulp / 2, 1 + 3 * ulp / 2, 1 + ulp / 2 + 2.0**-40])
    assert rounded(values, "tf32").tolist() == [1 + ulp, 1, 1 + 2 * ulp, 1 + ulp]


def test_integers_round_to_whole_numbers_and_saturate() -> None:
    """Symmetrically: -128 is never made."""
    values = np.array([0.5, 1.5, -2.4, 300.0, -300.0])
    assert rounded(values, "s8").tolist() == [0, 2, -2, 127, -127]
    assert rounded(np.array([2.0**30 + 1]), "s32").tolist() == [2.0**30 + 1]


def test_normal_integers_are_spread_over_their_range() -> None:
    """A standard deviation of a quarter of it: 0 and 1 alone would draw little power, and hide errors."""
    values = fill(problem(200, 1, 200, dtype="s8"), "normal", 2, "a")
    assert values.std() == pytest.approx(32, rel=0.02)
    assert len(np.unique(values)) > 200


@pytest.mark.parametrize("dtype", INSTRUCTIONS)
def test_hopper_multiplies_each_type_by_its_instruction(dtype: str) -> None:
    """128 bytes of k in each step, whatever they hold; as many multiply-adds in all."""
    stage = find_stage("hopper")
    case = stage.case(
        "sm_90a", m=512, n=512, k=512, dtype=dtype, out="f32", block="128x128", roles="ping-pong"
    )
    assert INSTRUCTIONS[dtype] in stage.claims(case)
    assert stage.tile(case)[2] == 128 // TYPES[dtype].nbytes
    assert stage.mma_count(case) == 512**3 // 2048
    per_step = stage.claims(case)[INSTRUCTIONS[dtype]] * stage.mma_of(case, INSTRUCTIONS[dtype])
    assert per_step * 4 == 128 * 128 * stage.tile(case)[2] // 2048
    maps = [each.map for each in stage.arguments(case) if isinstance(each, MapArgument)]
    assert [m.box[1] for m in maps[:2]] == [128 // TYPES[dtype].nbytes] * 2


@pytest.mark.parametrize(
    ("name", "options", "legal"),
    [
        *(("hopper", {"dtype": dtype, "layout": "nn"}, "contiguous in k; legal: tn") for dtype in K_MAJOR),
        ("hopper", {"dtype": "e4m3", "acc": "s32"}, "--acc s32 is not for --dtype e4m3; legal: f32"),
        (
            "hopper",
            {"dtype": "bf16", "out": "s32"},
            "--out s32 is not for --dtype bf16; legal: f16, bf16, f32",
        ),
        ("hopper", {"dtype": "s8", "out": "s32", "beta": 1.0}, "no factors, bias or activation; legal"),
        ("hopper", {"dtype": "s8", "out": "s32", "bias": "yes"}, "no factors, bias or activation; legal"),
        ("hopper", {"dtype": "s8", "out": "f32", "k": 131_088}, "legal: 1 to 131071"),
        ("hopper", {"dtype": "s8", "out": "f32", "k": 72}, "those of A have 72 s8; legal: multiples of 16"),
        ("hopper-fp8", {"dtype": "f16"}, "legal: e4m3, e5m2"),
        ("hopper-fp8", {"layout": "nt"}, "legal: tn"),
        ("hopper-fp8", {"accumulate": "promoted", "roles": "ping-pong"}, "legal: --set roles=cooperative"),
        ("hopper-fp8", {"block": "128x256", "roles": "ping-pong"}, "256 sums a thread .* at most 192"),
        ("hopper-fp8", {"block": "128x192", "roles": "ping-pong", "beta": 1.0}, "legal: at most 160"),
        ("hopper-fp8", {"block": "128x192", "roles": "single", "bias": "yes"}, "legal: at most 160"),
        ("hopper", {"block": "128x128", "roles": "ping-pong", **PARTS}, "legal: at most 96"),
        ("hopper", {"block": "128x192", "roles": "cooperative", **EVEN}, "legal: at most 88"),
        (
            "hopper",
            {"block": "128x64", "roles": "single", **PARTS, **SCALED, "adding": "memory"},
            "legal: at most 32",
        ),
        ("cluster", {"dtype": "tf32"}, "legal: f16, bf16"),
    ],
)
def test_what_does_not_go_together_is_refused(
    name: str, options: dict[str, str | int | float], legal: str
) -> None:
    """With the legal set."""
    with pytest.raises(UsageError, match=legal):
        find_stage(name).case("sm_90a", **options)


@pytest.mark.parametrize(
    ("accumulate", "size", "way"),
    [
        ("fast", 4096, ("128x128", "ping-pong", "2x1")),
        ("fast", 8192, ("128x192", "ping-pong", "2x1")),
        ("promoted", 4096, ("128x128", "single", "1x1")),
        ("promoted", 8192, ("128x192", "cooperative", "2x1")),
    ],
)
def test_hopper_fp8_takes_the_way_that_was_the_fastest(
    accumulate: str, size: int, way: tuple[str, str, str]
) -> None:
    """On an H200, 2026-11-30; what is asked for goes before it."""
    stage = find_stage("hopper-fp8")
    case = stage.case("sm_90a", m=size, n=size, k=size, accumulate=accumulate)
    assert (case.block, case.roles, case.cluster_shape) == way
    asked = stage.case("sm_90a", accumulate=accumulate, block="128x256", cluster_shape="1x2")
    assert (asked.block, asked.roles, asked.cluster_shape) == ("128x256", "cooperative", "1x2")


def test_integers_are_summed_as_integers() -> None:
    """Without being asked for: f32 is what stands for 32 bits everywhere else."""
    assert find_stage("hopper").case("sm_90a", dtype="s8", out="s32").acc == "s32"


@pytest.mark.parametrize("out", ["s32", "f32", "f16"])
@pytest.mark.parametrize("init", ["normal", "ints", "naturals"])
def test_sums_of_integers_must_be_exact(init: str, out: str) -> None:
    """Whatever they are; the next number of C's type is wrong."""
    p = problem(9, 7, 300, dtype="s8", acc="s32", out=out)
    total = sums(fill(p, init, 1, "a"), fill(p, init, 1, "b"))
    limit = bound(p.k, p.acc, integers=init in INTEGER_INITS, dtype=p.dtype)
    right = rounded(rounded(total.reference, "s32" if out == "s32" else "f32"), out)
    assert compare(p, total, right, limit).verified == 63
    right[4, 4] += TYPES[out].spacing(right[4, 4])
    assert compare(p, total, right, limit).wrong == 1


@pytest.mark.parametrize("promoted", [False, True])
@pytest.mark.parametrize("init", ["normal", "ints", "naturals", "seq"])
@pytest.mark.parametrize("dtype", FLOAT8)
def test_sums_of_8_bit_floats_are_within_the_bound(dtype: str, init: str, promoted: bool) -> None:
    """Those that wgmma makes; so are those of a library, whose order may be another one."""
    p = problem(12, 16, 1040, dtype=dtype, out="f32", promoted=promoted)
    a, b = (fill(p, init, 4, which) for which in "ab")
    total, limit = (
        sums(a, b),
        bound(p.k, p.acc, integers=init in INTEGER_INITS, dtype=dtype, promoted=promoted),
    )
    found = compare(p, total, chained(p, a, b), limit)
    assert (found.verified, found.wrong) == (12 * 16, 0)
    assert found.max_error is not None
    assert (found.max_error > 0) == (init in ("normal", "seq") or (init == "naturals" and not promoted))


def test_promotion_makes_sums_more_exact() -> None:
    """The more, the longer k is: tenfold here."""
    errors = []
    for promoted in (False, True):
        p = problem(16, 16, 4096, dtype="e4m3", out="f32", promoted=promoted)
        a, b = (fill(p, "normal", 0, which) for which in "ab")
        errors.append(np.abs(chained(p, a, b) - a @ b).mean())
    assert errors[0] > 5 * errors[1]


@pytest.mark.parametrize("out", ["f32", "bf16"])
def test_sums_that_are_known_must_be_these(out: str) -> None:
    """What the bound would permit is wrong where each bit of a sum is known: the exact one, too."""
    p = problem(16, 16, 1024, dtype="e4m3", out=out)
    a, b = (fill(p, "normal", 0, which) for which in "ab")
    total, known = sums(a, b), chained(p, a, b)
    limit = bound(p.k, p.acc, integers=False, dtype=p.dtype)
    assert compare(p, total, rounded(known, out), limit, known=known).verified == 256
    exact = rounded(rounded(total.reference, "f32"), out)
    assert compare(p, total, exact, limit).wrong == 0
    assert compare(p, total, exact, limit, known=known).wrong == (exact != rounded(known, out)).sum() > 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("hopper-fp8", {"block": "128x192", "roles": "ping-pong", **FUSED}),
        ("hopper-fp8", {"accumulate": "promoted", "block": "128x256", **SCALED, **FUSED}),
        ("hopper-fp8", {"accumulate": "promoted", "roles": "single", "out": "f32", **SCALED, **FUSED}),
        ("hopper", {"dtype": "s8", "out": "f32", "block": "128x192", "roles": "ping-pong", **FUSED}),
        ("hopper-fp8", {"block": "128x192", "roles": "single", "activation": "gelu"}),
        ("hopper", {"block": "128x192", "roles": "cooperative", **PARTS}),
        ("hopper", {"block": "128x176", "roles": "cooperative", **EVEN}),
        ("hopper", {"block": "128x128", "roles": "alone", **PARTS}),
        ("hopper", {"block": "64x64", "roles": "single", **PARTS, **SCALED}),
        ("hopper", {"dtype": "s8", "out": "s32", "m": 16, "n": 576, "k": 7168}),
        ("hopper", {"dtype": "tf32", "out": "f32", "block": "128x192", "roles": "cooperative", "splits": 2}),
    ],
)
def test_the_fullest_kernels_do_not_spill(name: str, options: dict[str, Value]) -> None:
    """Sums, parts of sums, and what becomes of them fit into registers; the claims hold."""
    stage = find_stage(name)
    case = stage.case("sm_90a", **options)
    (kernel,) = kernels(build_unit(stage, [case], "sm_90a"))
    failed = [detail for _, ok, detail in check_claims(kernel, stage.claims(case)) if not ok]
    assert not failed


@pytest.mark.parametrize("dtype", INSTRUCTIONS)
def test_ceilings_multiply_normal_values_of_each_type(dtype: str) -> None:
    """As many as fill the tiles."""
    ceiling = find_ceiling("wgmma")
    data = Loop(ceiling, ceiling.case("sm_90a", dtype=dtype), device=None, cubin=b"").data  # type: ignore[arg-type]
    assert data.nbytes == ceiling.nbytes
    values = decode(data.astype(np.uint64), dtype).astype(np.float64)
    assert values.std() == pytest.approx(TYPES[dtype].spread, rel=0.02)
    assert abs(values.mean()) < 0.05 * TYPES[dtype].spread
