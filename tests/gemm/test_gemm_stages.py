"""Every stage, without a GPU: it compiles in all variants, its SASS is as claimed, its numbers add up."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from ptxlab.errors import MissingError, UsageError
from ptxlab.experiments.base import Case
from ptxlab.experiments.gemm import GemmStage, Problem
from ptxlab.experiments.gemm.catalogue import recorded
from ptxlab.experiments.gemm.conclude import conclude
from ptxlab.experiments.gemm.explain import explain, mma_by_sass
from ptxlab.experiments.gemm.machine import LIMITS, MACHINES, RESOURCES, machine, occupancy
from ptxlab.experiments.gemm.stage import LARGEST_SIZE
from ptxlab.experiments.gemm.wgmma import ClusterStage
from ptxlab.experiments.registry import find_stage, stage_entries
from ptxlab.experiments.unit import build_unit, kernel_name
from ptxlab.sass.claims import check_claims
from ptxlab.sass.report import kernels

STAGES = [entry.name for entry in stage_entries()]
ARCHS = {name: find_stage(name).only or "sm_90a" for name in STAGES}
OLD = [name for name in STAGES if find_stage(name).oldest <= 80]
COMPILED = [*ARCHS.items(), *((name, "sm_80") for name in OLD)]


@pytest.mark.parametrize(("name", "arch"), COMPILED)
def test_all_variants_compile_to_what_is_claimed(name: str, arch: str) -> None:
    """Tensor instructions as many as claimed, no spill, no advisory, in every type and layout."""
    stage = find_stage(name)
    cases = list(stage.variants(arch))
    assert len({case.key for case in cases}) == len(cases)
    found = {each["name"]: each for each in kernels(build_unit(stage, cases, arch))}
    for case in cases:
        kernel = found[kernel_name(stage, stage.macros(case))]
        claims = stage.claims(case)
        assert claims, "a stage without a claim proves nothing"
        failed = [detail for _, ok, detail in check_claims(kernel, claims) if not ok]
        assert not failed, case.key
        assert not kernel["unfenced"], case.key
        assert mma_by_sass(stage, case, kernel)[0] == stage.mma_count(case), case.key
        assert kernel["shared_bytes"] == _static_shared(stage, case), case.key


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_compiles_while_one_waits(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In two seconds of a processor, three from Hopper on; the best of three, as others may use it too."""
    stage = find_stage(name)
    case = stage.case(ARCHS[name])
    took = []
    for attempt in range(3):
        monkeypatch.setenv("PTXLAB_CACHE", str(tmp_path / str(attempt)))
        begin = sum(os.times()[:4])
        build_unit(stage, [case], case.arch)
        took.append(sum(os.times()[:4]) - begin)
        if took[-1] < (3 if stage.only else 2):
            return
    pytest.fail(f"{name} took {min(took):.1f} s")


def _static_shared(stage: GemmStage, case: Case) -> int:
    return sum(stage.shared(case).values()) - stage.dynamic_shared_bytes(case)


@pytest.mark.parametrize("name", STAGES)
def test_the_mma_count_is_mnk_over_2048(name: str) -> None:
    """4096^3 takes 33,554,432 HMMA.16816 (one is 16 x 8 x 16 = 2048 multiply-adds)."""
    stage, arch = find_stage(name), ARCHS[name]
    assert stage.mma_count(stage.case(arch)) == 33_554_432
    assert stage.mma_count(stage.case(arch, m=512, n=256, k=128)) == 512 * 256 * 128 // 2048


def test_tails_are_multiplied_whole() -> None:
    """17 x 33 x 5 takes 2 x 3 tiles of one step, two instructions each."""
    stage = find_stage("wmma-naive")
    case = stage.case("sm_90a", m=17, n=33, k=5)
    assert (stage.tiles(case), stage.steps(case), stage.mma_count(case)) == (6, 1, 12)


@pytest.mark.parametrize("name", STAGES)
def test_the_last_tiles_of_the_largest_c_end_within_32_bits(name: str) -> None:
    """Kernels count rows and columns in int, also those outside of C that fill up tiles and clusters."""
    stage = find_stage(name)
    largest = LARGEST_SIZE // stage.granule * stage.granule
    for variant in stage.variants(ARCHS[name]):
        rows, cols, _ = stage.tile(variant)
        down, across = stage.cluster_tiles(variant) if isinstance(stage, ClusterStage) else (1, 1)
        for unit in (rows * down, cols * across):
            assert -(-largest // unit) * unit < 2**31, variant.key


def test_tiles_that_make_up_clusters_are_multiplied_too() -> None:
    """Three rows of tiles in clusters of two are four; the fourth lies outside of C: its sums are dropped."""
    stage = find_stage("cluster")
    case = stage.case("sm_90a", m=384, n=256, k=64, cluster_shape="2x1")
    assert (stage.tiles(case), stage.mma_count(case)) == (3, 4 * 128 * 256 * 64 // 2048)
    assert explain(stage, case, MACHINES[90], None)["work"]["useful_percent"] == 75
    assert stage.loaded_bytes(case) == 4 * (128 + 256 // 2) * 64 * 2


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("size", ["m", "n", "k"])
def test_sizes_must_be_in_range(name: str, size: str) -> None:
    """Zero, negative, and too large for 32 bits; every stage takes what fills 16 bytes."""
    stage = find_stage(name)
    for value in (0, -4, 2**31 - 1):
        with pytest.raises(UsageError, match=f"-{size} {value} is no size; legal: 1 to"):
            stage.case(ARCHS[name], **{size: value})
    stage.case(ARCHS[name], **{size: 16})


def test_a_grid_has_less_than_two_to_the_31_blocks() -> None:
    """2^20 x 2^20 would be 2^32 tiles of 16 x 16."""
    with pytest.raises(UsageError, match="4294967296 tiles are more blocks than a grid has"):
        find_stage("wmma-naive").case("sm_90a", m=2**20, n=2**20)


@pytest.mark.parametrize("name", STAGES)
def test_wrong_values_name_the_legal_ones(name: str) -> None:
    """Types and layouts."""
    stage = find_stage(name)
    for option, value in (("layout", "kn"), ("out", "f64"), ("acc", "f8"), ("dtype", "u8")):
        with pytest.raises(UsageError, match="legal: "):
            stage.case(ARCHS[name], **{option: value})


@pytest.mark.parametrize("name", STAGES)
def test_an_old_chip_is_not_for_it(name: str) -> None:
    """Exit 3: a stage not for this chip."""
    with pytest.raises(MissingError, match="is not for sm_75; it is for sm_"):
        find_stage(name).case("sm_75")


def test_layout_letters_are_those_of_blas() -> None:
    """Tn has both operands k-contiguous; strides are (row, column) in elements."""
    strides = {
        "tn": ((7, 1), (1, 7)),
        "nn": ((1, 3), (1, 7)),
        "nt": ((1, 3), (5, 1)),
        "tt": ((7, 1), (5, 1)),
    }
    for layout, (a, b) in strides.items():
        p = Problem(3, 5, 7, "f16", "f32", "f16", layout)
        assert (p.a.strides, p.b.strides, p.c.strides) == (a, b, (5, 1))


def test_bytes_and_operations_of_a_problem() -> None:
    """Each matrix once: 2 bytes for f16, 4 for f32."""
    p = Problem(10, 20, 30, "f16", "f32", "f32", "tn")
    assert p.flop == 2 * 10 * 20 * 30
    assert p.nbytes == 10 * 30 * 2 + 30 * 20 * 2 + 10 * 20 * 4


def test_occupancy_of_one_warp_blocks_is_limited_by_blocks() -> None:
    """50 registers: 1792 a warp, 9 warps in each quarter of an SM, 36; an SM holds 32 blocks."""
    held = occupancy(LIMITS[90], threads=32, registers=50, shared_bytes=2048)
    assert held.by == {"registers": 36, "shared memory": 76, "warps": 64, "blocks": 32}
    assert (held.blocks, held.warps, held.limiter, held.percent) == (32, 32, "blocks", 50.0)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks", "limiter"),
    [
        (256, 32, 0, 8, "registers and warps"),  # 8 warps of 1024 registers: exactly 64 warps
        (256, 64, 0, 4, "registers"),
        (256, 255, 0, 1, "registers"),
        (128, 32, 100 * 1024, 2, "shared memory"),
        (1024, 32, 0, 2, "registers and warps"),
    ],
)
def test_occupancy(threads: int, registers: int, shared: int, blocks: int, limiter: str) -> None:
    """Figures of CUDA's own occupancy rules, worked out by hand."""
    held = occupancy(LIMITS[90], threads=threads, registers=registers, shared_bytes=shared)
    assert (held.blocks, held.limiter) == (blocks, limiter)


def test_an_unknown_chip_has_no_figures() -> None:
    """And a device that is not the known one has its own SMs, and no rates that are not its own."""
    assert machine("sm_90a") is MACHINES[90]
    assert machine("sm_75") is None
    other = machine("sm_90a", "NVIDIA H20", 78)
    assert other is not None
    assert (other.name, other.multiprocessors, other.rates) == ("NVIDIA H20", 78, {})


PEAK = "ptxlab.experiments.gemm.limits.recorded_peak"
RECORDED_ROW = "ptxlab.experiments.gemm.explain.recorded_row"


def test_a_recorded_ceiling_takes_the_place_of_the_data_sheet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the stage's instruction was measured on this GPU: in float32, as the ceiling sums.

    What it did per cycle counts: its TFLOP/s are of other launches than its clock.
    """
    stage, asked = find_stage("wmma-naive"), []
    measured = {"tflops": 640.0, "flop_per_clock_and_sm": 2700.0, "sm_mhz": 1755.4}
    measured |= {"device": "NVIDIA H200", "date": "2026-12-01"}
    monkeypatch.setattr(PEAK, lambda *of: asked.append(of) or measured)
    for acc, tflops in (("f32", 2700 * 132 * 1755e-6), ("f16", 989.0)):
        case = stage.case("sm_90a", acc=acc, m=4224)  # of which nothing is recorded
        bounds = explain(stage, case, MACHINES[90], None)["bounds"]
        (row,) = (each for each in bounds if each["key"].startswith("tensor"))
        assert row["tflops"] == pytest.approx(tflops)
        told = "2700 FLOP a cycle and SM, measured on an NVIDIA H200, 2026-12-01"
        assert (told in row["source"]) == (acc == "f32")
    assert set(asked) == {("mma-sync", "f16", "NVIDIA H200")}


def test_explanation_of_the_naive_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worked out by hand for 4096^3 on an H200 with 50 registers, and the data sheet's rates."""
    monkeypatch.setattr(PEAK, lambda *_: None)
    monkeypatch.setattr(RECORDED_ROW, lambda *_, **__: None)
    stage = find_stage("wmma-naive")
    case = stage.case("sm_90a")
    said = explain(stage, case, MACHINES[90], {"registers": 50})
    blocks = 256 * 256
    assert said["tiles"] == {
        "tile": [16, 16, 16],
        "threads": 32,
        "tiles": blocks,
        "work": blocks,
        "blocks": blocks,
        "steps": 256,
    }
    assert said["shared"]["bytes"] == 512 + 512 + 1024
    assert said["work"]["flop"] == 2 * 4096**3
    assert said["work"]["bytes"] == 3 * 2 * 4096**2
    assert said["work"]["flop_per_byte"] == pytest.approx(4096 / 3)
    assert said["work"]["useful_percent"] == 100
    assert said["waves"]["slots"] == 132 * 32
    assert said["waves"]["waves"] == pytest.approx(65536 / 4224)
    assert said["waves"]["percent"] == pytest.approx(100 * 65536 / 4224 / 16)
    by_key = {row["key"]: row for row in said["bounds"]}
    wavefronts = 256 * 256 * 256 * 64  # 8 loads of 8 wavefronts in each step of each tile
    assert by_key["l1 wavefronts"]["amount"] == wavefronts
    assert by_key["l1 wavefronts"]["milliseconds"] == pytest.approx(wavefronts / (132 * 1.83e9) * 1e3)
    assert by_key["tensor f32"]["tflops"] == pytest.approx(989)
    assert said["limiter"]["resource"] == "L1 data banks"
    assert said["limiter"]["tflops"] == pytest.approx(8192 / 64 * 132 * 1.83e9 / 1e12)


def test_a_small_grid_is_said_to_leave_places_empty() -> None:
    """One tile: one of 4224 places."""
    stage = find_stage("wmma-naive")
    said = explain(stage, stage.case("sm_90a", m=3, n=2, k=1), MACHINES[90], {"registers": 50})
    assert said["waves"]["busy_multiprocessors"] == 1
    assert "the waves of blocks are 0 % full" in said["limiter"]["reason"]
    assert said["work"]["useful_percent"] == pytest.approx(100 * 6 / 4096)


@pytest.mark.parametrize(
    ("name", "sizes", "blocks", "work", "waves", "percent"),
    [
        ("hopper", {"m": 512, "n": 4096, "k": 16384}, 128, 128, 128 / 132, 97),  # two parts of 64 tiles
        ("persistent", {}, 132, 512, 512 / 132, 97),
        ("cluster", {}, 132, 512, 512 / 132, 97),
        ("persistent", {"blocks": 100}, 100, 512, 5.12, 65),  # six waves; 32 SMs have nothing
        ("warp-specialized", {}, 512, 512, 512 / 132, 97),
        ("mma-raster", {"order": "split", "n": 4352, "group": 16}, 1024, 544, 544 / 132, 82),
    ],
)
def test_waves_are_of_the_work_that_blocks_do(
    name: str, sizes: dict[str, Any], blocks: int, work: int, waves: float, percent: int
) -> None:
    """Blocks that stay take several tiles, parts of a tile are pieces of their own; an SM holds one."""
    stage = find_stage(name)
    case = stage.case("sm_90a", **sizes)
    said = explain(stage, case, MACHINES[90], {"registers": 168})
    assert (said["tiles"]["blocks"], said["tiles"]["work"]) == (blocks, work)
    assert blocks == math.prod(stage.launch(case).grid)
    assert said["waves"]["waves"] == pytest.approx(waves)
    assert round(said["waves"]["percent"]) == percent


@pytest.mark.parametrize(
    ("name", "options", "nbytes"),
    [
        ("persistent", {}, 512 * 64 * (128 + 256) * 128),
        ("cluster", {"cluster_shape": "1x1"}, 512 * 64 * (128 + 256) * 128),
        ("cluster", {"cluster_shape": "2x1"}, 512 * 64 * (128 + 256 // 2) * 128),
        ("cluster", {"cluster_shape": "1x2"}, 512 * 64 * (128 // 2 + 256) * 128),
        ("ampere", {}, 512 * 64 * (128 + 256) * 128),
    ],
)
def test_bytes_that_blocks_load(name: str, options: dict[str, Any], nbytes: int) -> None:
    """A cluster loads once what its blocks share."""
    stage = find_stage(name)
    work = explain(stage, stage.case("sm_90a", **options), MACHINES[90], None)["work"]
    assert work["loaded_bytes"] == nbytes
    assert work["flop_per_loaded_byte"] == pytest.approx(2 * 4096**3 / nbytes)


def test_what_was_recorded_stands_beside_the_limit() -> None:
    """At this very point alone; the limit is that of the clock which the SMs counted then, and says so."""
    stage = find_stage("mma-swizzle")
    case = stage.case("sm_90a")
    said = explain(stage, case, MACHINES[90], {"registers": 168})
    (row,) = (row for row in recorded(stage) if (row["m"], row["dtype"]) == (4096, "f16"))
    limit = said["limiter"]
    assert said["recorded"]["tflops"] == row["tflops"]
    assert limit["at_mhz"] == said["recorded"]["mhz"] == round(row["clock_mhz"])
    assert said["recorded"]["percent"] == pytest.approx(100 * row["tflops"] / limit["tflops"])
    sentence = conclude({"stages": [], "sweep": None, "explanations": [said]})
    assert f"at most {limit['tflops']:.1f} TFLOP/s at {limit['at_mhz']} MHz" in sentence
    assert f"recorded: {row['tflops']:.1f} TFLOP/s" in sentence
    assert "see kernel.cu and stage.py for what takes the rest" in sentence, "it is far from the limit"
    other = explain(stage, stage.case("sm_90a", m=4224), MACHINES[90], {"registers": 168})
    assert other["recorded"] is None
    assert "nothing is recorded of this kernel for this problem" in conclude(
        {"stages": [], "sweep": None, "explanations": [other]}
    )


def test_products_are_called_by_the_instruction_that_computes_them() -> None:
    """A warp's part of one 64x256x16 is 32 of m16n8k16."""
    for name, opcode, each in (("wmma-naive", "HMMA.16816.F32", 1), ("cluster", "HGMMA.64x256x16.F32", 32)):
        stage = find_stage(name)
        work = explain(stage, stage.case("sm_90a"), MACHINES[90], None)["work"]
        assert (work["mma"], work["opcode"]) == (33_554_432, opcode)
        assert work["instructions"] == 33_554_432 // each


@pytest.mark.parametrize(
    ("leading", "turns"), [(64, 8), (4096, 8), (32, 4), (2896, 2), (2904, 1), (4104, 1), (8, 1), (16, 2)]
)
def test_pieces_at_the_same_place_of_a_line_take_turns(leading: int, turns: int) -> None:
    """Eight rows of the matrix, and where in a 128-byte line each one's piece lies, worked out by hand."""
    stage = find_stage("wmma-naive")
    case = stage.case("sm_90a", m=16, n=16, k=leading, layout="tn")
    per_tile = stage.demands(case)["l1 wavefronts"] / stage.steps(case) / 2
    assert per_tile == 4 * turns


def test_an_odd_leading_dimension_is_remarked() -> None:
    """Lines that do not start on 16 bytes take the slow way, and the explanation says so."""
    stage = find_stage("wmma-naive")
    for layout, names in (("tn", ("A", "B")), ("nn", ("B",)), ("nt", ()), ("tt", ("A",))):
        case = stage.case("sm_90a", m=64, n=72, k=33, layout=layout)
        remarks = stage.remarks(case)
        assert [each[0] for each in remarks] == list(names)
        assert all("leading dimension 33" in each for each in remarks)
        reason = explain(stage, case, MACHINES[90], None)["limiter"]["reason"]
        assert all(each in reason for each in remarks)


@pytest.mark.parametrize("name", [name for name, arch in ARCHS.items() if arch == "sm_90a"])
def test_recordings_are_of_this_kernel(name: str) -> None:
    """A kernel that is new or has changed must be recorded; what is recorded is right and adds up."""
    rows = recorded(find_stage(name))
    assert rows, "record it on a GPU: --record"
    for row in rows:
        assert row["device"] == "NVIDIA H200"
        assert not row["stale"], "record it again on a GPU: --record"
        assert row["verified"] is True
        flop = 2 * row["m"] * row["n"] * row["k"]
        assert row["tflops"] == pytest.approx(flop / row["milliseconds"]["median"] / 1e9)


def test_no_limiter_is_claimed_while_a_rate_is_unknown() -> None:
    """Nobody knows the L1 of an A100: its demand is shown, and tensor cores are but a bound."""
    stage = find_stage("wmma-naive")
    said = explain(stage, stage.case("sm_80"), MACHINES[80], {"registers": 50})
    assert [row["key"] for row in said["bounds"]] == ["tensor f32", "memory", "l1 wavefronts"]
    unknown = said["bounds"][-1]
    assert (unknown["resource"], unknown["amount"], unknown["unit"]) == (
        "L1 data banks",
        2.0**30,
        "wavefront",
    )
    told = ("per_second", "milliseconds", "tflops", "at_mhz", "source")
    assert {unknown[name] for name in told} == {None}
    assert said["limiter"] is None
    sentence = conclude({"stages": [], "sweep": None, "explanations": [said]})
    assert "L1 data banks" in sentence
    assert "unknown on this GPU and may be what limits it" in sentence
    assert "the rates that are known permit at most 312.0 TFLOP/s (tensor cores)" in sentence


def test_every_rate_is_of_a_resource() -> None:
    """Whatever is known of a GPU can be named, in its unit."""
    for known in MACHINES.values():
        assert set(known.rates) <= set(RESOURCES)


def test_without_figures_the_explanation_still_has_the_work() -> None:
    """No machine, no kernel: geometry, bytes and operations remain."""
    stage = find_stage("wmma-naive")
    said = explain(stage, stage.case("sm_90a"), None, None)
    assert said["limiter"] is said["occupancy"] is said["waves"] is None
    assert said["bounds"] == []
    assert said["work"]["mma"] == 33_554_432
