"""The stages on wgmma, without a GPU: what TMA writes is what wgmma reads, and what goes together."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from ptxlab.device.job import MapArgument
from ptxlab.errors import MissingError, UsageError
from ptxlab.experiments.base import Case, Value
from ptxlab.experiments.gemm import TYPES, GemmStage
from ptxlab.experiments.gemm.machine import at_once
from ptxlab.experiments.gemm.plan import COOPERATIVE, PING_PONG, SINGLE, Plan, plans
from ptxlab.experiments.gemm.wgmma import LINE, ClusterStage, WgmmaStage
from ptxlab.experiments.registry import find_stage, stage_entries
from ptxlab.experiments.unit import build_unit
from ptxlab.isa import tma
from ptxlab.isa.tensor_map import TensorMap
from ptxlab.isa.wgmma_descriptor import Descriptor
from ptxlab.layout.banks import access, conflicts
from ptxlab.sass.claims import check_claims
from ptxlab.sass.report import kernels

FOUND = {entry.name: find_stage(entry.name) for entry in stage_entries()}
WGMMA = {name: stage for name, stage in FOUND.items() if isinstance(stage, WgmmaStage)}
CLUSTERS = {name: stage for name, stage in WGMMA.items() if isinstance(stage, ClusterStage)}

Words = NDArray[np.unsignedinteger]


def maps(stage: GemmStage, case: Case) -> dict[str, TensorMap]:
    """Return the tensor maps of a launch, by the buffer that each is of."""
    return {each.buffer: each.map for each in stage.arguments(case) if isinstance(each, MapArgument)}


def tile_in_shared_memory(
    m: TensorMap, matrix: Words, row: int, k: int, rows: int, *, along_k: bool
) -> NDArray[np.uint8]:
    """Return shared memory after the copies of a tile, as OperandTile::load() makes them."""
    memory, image = matrix.view(np.uint8).ravel(), np.zeros(rows * LINE, np.uint8)
    if along_k:
        return tma.load(m, memory, (k, row), image, 0)
    for panel in range(rows // 64):
        image = tma.load(m, memory, (row + 64 * panel, k), image, panel * 64 * LINE)
    return image


def read_by_wgmma(image: Words, rows: int, part: int, *, along_k: bool) -> Words:
    """Return the tile, row by row, as descriptors of parts of rows find it: see operand_descriptor()."""
    first = 1 << 62 | (1024 // 16) << 32 | (8192 // 16) << 16
    step = (32 if along_k else 16 * LINE) // 16
    size = image.itemsize
    depth, at_once = LINE // size, 32 // size
    found = np.zeros((rows, depth), image.dtype)
    for row in range(0, rows, part):
        for i in range(depth // at_once):
            descriptor = Descriptor.of(first + row * LINE // 16 + i * step)
            places = descriptor.addresses(part, at_once, 8 * size, "K" if along_k else "MN")
            found[row : row + part, at_once * i : at_once * (i + 1)] = image[places // size]
    return found


def types_and_layouts(name: str) -> Iterator[tuple[str, str, str]]:
    """Yield what a stage reads; of its types those that differ in size."""
    options = WGMMA[name].options()
    sizes = {TYPES[str(dtype)].nbytes: str(dtype) for dtype in options["dtype"].choices}
    for size, dtype in sizes.items():
        for layout in options["layout"].choices:
            if size == 2 or layout == "tn":
                yield name, dtype, str(layout)


@pytest.mark.parametrize(
    ("name", "dtype", "layout"), [each for name in WGMMA for each in types_and_layouts(name)]
)
def test_wgmma_reads_what_tma_writes(name: str, dtype: str, layout: str) -> None:
    """Every element where it belongs, zeros beyond the end of the matrix, for both operands."""
    stage, size = WGMMA[name], TYPES[dtype].nbytes
    depth, k = LINE // size, 208 // size
    alone = {"cluster_shape": "1x1"} if name in CLUSTERS else {}
    case = stage.case("sm_90a", m=336, n=336, k=k, dtype=dtype, out="f32", layout=layout, **alone)
    rows_a, rows_b, _ = stage.tile(case)
    for buffer, rows, along_k in (("a", rows_a, layout[0] == "t"), ("b", rows_b, layout[1] == "n")):
        logical = numbered(336, k, size)
        stored = np.ascontiguousarray(logical if along_k else logical.T)
        image = tile_in_shared_memory(maps(stage, case)[buffer], stored, 128, depth, rows, along_k=along_k)
        expected = np.zeros((rows, depth), logical.dtype)
        inside = logical[128 : 128 + rows, depth:]
        expected[: inside.shape[0], : inside.shape[1]] = inside
        for part in {math.gcd(64, rows), rows}:
            found = read_by_wgmma(image.view(logical.dtype), rows, part, along_k=along_k)
            np.testing.assert_array_equal(found, expected)


def numbered(rows: int, cols: int, size: int) -> Words:
    """Return elements of so many bytes that differ from those around them; of 32 bits what tf32 keeps."""
    index = np.arange(rows * cols, dtype=np.uint32).reshape(rows, cols)
    bits: Words = {1: index % 251 + 1, 2: index + 1, 4: index + 1 << 13}[size]
    return bits.astype(f"u{size}")


@pytest.mark.parametrize("cols", [128, 160, 144])
@pytest.mark.parametrize("out", ["f16", "bf16", "f32"])
def test_panels_of_c_leave_unswizzled_and_clipped(out: str, cols: int) -> None:
    """What the lanes lay into a panel, TMA writes row by row, and nothing beyond the end of C."""
    stage = FOUND["hopper"]
    size = 4 if out == "f32" else 2
    line = math.gcd(128, cols * size)
    plan: dict[str, Value] = {
        "block": f"128x{cols}",
        "roles": "cooperative",
        "cluster_shape": "1x1",
        "splits": 1,
    }
    case = stage.case("sm_90a", m=24, n=line // size + 8, k=8, out=out, **plan)
    assert stage.macros(case)["PANEL_LINE"] == line
    c = maps(stage, case)["c"]
    logical = np.arange(16 * line, dtype=np.uint16).astype(np.uint8).reshape(16, line)  # row by row
    panel = np.zeros(16 * line, np.uint8)
    for row in range(16):
        for chunk in range(line // 16):
            at = row * line + (chunk ^ row // (128 // line) % (line // 16)) * 16
            panel[at : at + 16] = logical[row, 16 * chunk : 16 * chunk + 16]
    before = np.full(24 * c.shape[1] * size, 0xAB, np.uint8)
    written = tma.store(c, before, (line // size, 16), panel, 0).reshape(24, -1)
    expected = before.reshape(24, -1).copy()
    expected[16:, line:] = logical[:8, : 8 * size]
    np.testing.assert_array_equal(written, expected)


@pytest.mark.parametrize("name", WGMMA)
def test_lines_that_tma_cannot_step_over_are_refused(name: str) -> None:
    """The operand, its line and the legal ones are named; k counts where lines are along k."""
    stage = WGMMA[name]
    options = stage.options()
    dtype = str(options["dtype"].default)
    legal = f"36 {dtype}; legal: multiples of {16 // TYPES[dtype].nbytes}"
    with pytest.raises(UsageError, match=f"those of A have {legal}"):
        stage.case("sm_90a", k=36)
    if "tt" in options["layout"].choices:
        with pytest.raises(UsageError, match=f"those of B have {legal}"):
            stage.case("sm_90a", n=36, layout="tt")
    stage.case("sm_90a", m=36, n=40, k=64)


@pytest.mark.parametrize("name", WGMMA)
def test_wgmma_is_of_one_chip(name: str) -> None:
    """Neither older nor newer ones have it."""
    for arch in ("sm_80", "sm_90", "sm_100a"):
        with pytest.raises(MissingError, match=f"not for {arch}"):
            WGMMA[name].case(arch)


def test_c_that_tma_cannot_write_is_refused() -> None:
    """16 bytes are 8 elements of 16 bits, or 4 of 32; the rungs below hopper write any C."""
    for out, n in (("f16", 12), ("f32", 10)):
        with pytest.raises(UsageError, match=f"-n is {n}; legal for {out}: multiples of"):
            FOUND["hopper"].case("sm_90a", n=n, out=out)
        FOUND["warp-specialized"].case("sm_90a", n=n, out=out)
    FOUND["hopper"].case("sm_90a", n=12, out="f32")


@pytest.mark.parametrize("name", CLUSTERS)
def test_grids_are_whole_clusters(name: str) -> None:
    """As many as there is work for, at most as many as stay; a tile outside of C makes up the number."""
    stage = CLUSTERS[name]
    for (m, n), shape, grid in (
        ((1, 8), "2x1", 2),
        ((128, 512), "1x2", 2),
        ((300, 520), "2x1", 12),
        ((4096, 4096), "2x1", 132),
    ):
        block = {"block": "128x256"} | ({"roles": "cooperative"} if "roles" in stage.options() else {})
        case = stage.case("sm_90a", m=m, n=n, k=64, cluster_shape=shape, **block)
        assert stage.launch(case).grid == (grid, 1, 1), shape
    with pytest.raises(UsageError, match="legal: 2 and more"):
        stage.case("sm_90a", blocks=1, cluster_shape="2x1")


def test_every_stage_that_fits_is_used() -> None:
    """227 KB less what C passes through: four stages of 48 KB beside 32 KB."""
    hopper = FOUND["hopper"]
    case = hopper.case("sm_90a", block="128x256", roles="cooperative")
    buffers = hopper.shared(case)
    assert (buffers["4 tiles of A"], buffers["4 tiles of B"]) == (4 * 16 * 1024, 4 * 32 * 1024)
    assert buffers["panels of C"] == 8 * 2 * 16 * 128
    assert sum(buffers.values()) <= 232_448 < sum(buffers.values()) + 48 * 1024


SCALED: dict[str, Value] = {"alpha": 0.5, "beta": 2.0}
EVEN: dict[str, Value] = {"adding": "stream-k"}
FUSED: dict[str, Value] = {"bias": "yes", "activation": "gelu"}


def test_hopper_says_what_does_not_go_together() -> None:
    """A box of too many lines, half a panel, a block that two consumers cannot share, too many sums."""
    for options, legal in (
        ({"block": "128x320", "cluster_shape": "1x1"}, "legal: at most 256"),
        ({"block": "256x192", "cluster_shape": "2x1", "layout": "tt"}, "multiples of 64"),
        ({"splits": 4, "k": 128}, "-k 128: each of the splits takes a step of k; legal: at most 2"),
        ({"block": "64x256", "roles": "cooperative"}, "legal: --set roles=ping-pong"),
        ({"block": "128x256", "roles": "ping-pong"}, "256 sums a thread .* legal: at most 192"),
        ({"block": "256x192", "roles": "cooperative", "beta": 1.0}, "legal: at most 160"),
        ({"block": "128x128", "roles": "ping-pong", "splits": 2, "group": 1}, "legal: at most 96"),
        ({"block": "256x128", "roles": "cooperative", "splits": 24, "out": "f32"}, "legal: at most 96"),
        ({"block": "128x144", "roles": "ping-pong", "splits": 2, "bias": "yes"}, "legal: at most 128"),
        ({"block": "256x128", "roles": "cooperative", "n": 2112, **EVEN, "bias": "yes"}, "at most 112"),
        ({"block": "128x176", "roles": "ping-pong", "n": 2112, **EVEN, "bias": "yes"}, "at most 128"),
    ):
        with pytest.raises(UsageError, match=legal):
            FOUND["hopper"].case("sm_90a", **options)


@pytest.mark.parametrize("block", ["8x64", "16x128", "144x128"])
def test_lanes_that_lay_an_image_meet_in_no_bank(block: str) -> None:
    """Pairs of a row take 8 bytes a lane, sums of a transposed product 4: see SumsImage in gemm_image.cuh."""
    hopper = FOUND["hopper"]
    role = "single" if int(block.partition("x")[0]) < 128 else "cooperative"
    case = hopper.case("sm_90a", block=block, roles=role, cluster_shape="1x1", splits=1)
    rows, _, _ = hopper.tile(case)
    pitch = hopper.image_bytes(case) // rows  # type: ignore[attr-defined]
    lane = np.arange(32)
    row, col = (lane % 4 * 2, lane // 4) if rows % 64 else (lane // 4, lane % 4 * 2)
    stores = access("st.32" if rows % 64 else "st.64")
    assert conflicts(stores, (row * pitch + col * 4)[np.newaxis]) == 0


def test_few_rows_are_columns_of_the_product() -> None:
    """A block of 16 rows is one of 64 rows of B and 16 of A: maps, sizes and clusters change places."""
    hopper = FOUND["hopper"]
    plan: dict[str, Value] = {"block": "16x128", "roles": "single", "cluster_shape": "1x2", "splits": 1}
    case = hopper.case("sm_90a", m=40, n=584, k=512, layout="tt", **plan)
    macros = hopper.macros(case)
    assert (macros["SWAPPED"], macros["BM"], macros["BN"]) == (1, 128, 16)
    assert (macros["A_K"], macros["B_K"]) == (0, 1)
    assert (macros["CLUSTER_M"], macros["CLUSTER_N"]) == (2, 1)
    assert hopper.instruction(case) == (16, 2)  # type: ignore[attr-defined]
    assert hopper.launch(case).grid == (3 * 6, 1, 1)


def test_parts_in_a_cluster_are_its_blocks() -> None:
    """Nothing passes through memory; the sums of a tile take the place of the stages."""
    hopper = FOUND["hopper"]
    options: dict[str, Value] = {"block": "64x64", "roles": "single", "cluster_shape": "1x1", "splits": 6}
    options |= {"m": 64, "n": 576, "k": 7168, "adding": "cluster"}
    case = hopper.case("sm_90a", **options)
    assert (hopper.cluster(case), hopper.launch(case).grid) == ((6, 1, 1), (9 * 6, 1, 1))
    assert hopper.scratch(case) == ()
    assert sum(size for name, size in hopper.shared(case).items() if "tiles" in name) >= 64 * (64 + 8) * 4
    refused: tuple[tuple[dict[str, Value], str], ...] = (
        ({"splits": 8, "cluster_shape": "1x2"}, "16 blocks in a cluster; legal: at most 8"),
        ({"block": "16x64", "adding": "memory"}, "legal: --set adding=cluster"),
        ({"roles": "ping-pong"}, "a block has one tile"),
    )
    for more, legal in refused:
        with pytest.raises(UsageError, match=legal):
            hopper.case("sm_90a", **(options | more))


def test_stream_k_deals_out_what_is_left_beside_whole_waves() -> None:
    """352 tiles are two waves of 132 and 88 tiles, of which each block has two thirds of one."""
    hopper = FOUND["hopper"]
    options: dict[str, Value] = {"block": "128x192", "roles": "ping-pong", "cluster_shape": "1x1"}
    case = hopper.case("sm_90a", m=4096, n=2112, k=7168, adding="stream-k", **options)
    assert hopper.launch(case).grid == (132, 1, 1)
    partials, arrived = hopper.scratch(case)
    assert partials.nbytes == 88 * 3 * 128 * 192 * 4  # the ends of two shares, and a whole one
    assert arrived.nbytes == 88 * 4 * 4
    with pytest.raises(UsageError, match="no shares for 132 clusters"):
        hopper.case("sm_90a", m=128 * 132, n=192, k=512, adding="stream-k", **options)


def test_a_hilbert_curve_passes_every_tile_once() -> None:
    """Where the grid is a square of a power of two, from neighbour to neighbour."""
    stage = FOUND["persistent"]
    for m, n in ((8 * 128, 8 * 256), (3 * 128, 5 * 256), (1, 8)):
        case = stage.case("sm_90a", m=m, n=n, k=8, order="hilbert")
        (listed,) = (each.data for each in stage.scratch(case) if each.name == "hilbert")
        assert listed is not None
        assert len({tuple(each) for each in listed.tolist()}) == len(listed) == stage.tiles(case)
    case = stage.case("sm_90a", m=8 * 128, n=8 * 256, k=8, order="hilbert")
    listed = stage.scratch(case)[1].data
    assert listed is not None
    assert (np.abs(np.diff(listed.astype(int), axis=0)).sum(axis=1) == 1).all()


def test_hopper_takes_the_plan_that_the_model_thinks_fastest() -> None:
    """Unless it is told another one; what it took is among the options of the point."""
    hopper = FOUND["hopper"]
    few_rows = hopper.case("sm_90a", m=12, n=4000, k=1000)
    assert str(few_rows.block).startswith("16x")
    deep = hopper.case("sm_90a", m=64, n=4000, k=7000)
    assert int(deep.splits) > 1
    large = hopper.case("sm_90a", m=10000, n=10000, k=10000)
    assert (large.roles, large.splits) == ("ping-pong", 1)
    for options in ({"block": "256x192"}, {"roles": "ping-pong"}, {"cluster_shape": "1x2"}, {"splits": 2}):
        told = hopper.case("sm_90a", **options)
        assert all(getattr(told, name) == value for name, value in options.items())


def test_a_plan_takes_longer_with_emptier_waves_and_with_more_to_add() -> None:
    """133 tiles take two waves; parts of a tile must be added up."""
    plan = Plan(rows=128, cols=256, role=COOPERATIVE, down=1, across=1, splits=1)
    one, two = (plan.cycles((128 * tiles, 256, 4096), 132) for tiles in (132, 133))
    assert two > 1.9 * one
    halves = dataclasses.replace(plan, splits=2)
    assert halves.cycles((128 * 132, 256, 4096), 132) > one
    assert halves.cycles((128 * 66, 256, 4096), 132) < plan.cycles((128 * 66, 256, 4096), 132)


def test_plans_split_no_further_than_there_are_blocks() -> None:
    """And each part has two steps at least."""
    tiles = [(128, 256, COOPERATIVE)]
    assert {plan.splits for plan in plans(tiles, (4096, 4096, 4096), 132)} == {1}
    assert {plan.splits for plan in plans(tiles, (128, 256, 512), 132)} == {1, 2, 3, 4}


def test_a_timed_plan_goes_before_the_model() -> None:
    """Where it agrees with what was asked for; every plan that was timed is legal."""
    hopper = FOUND["hopper"]
    timed = json.loads((hopper.folder / "plans.json").read_text())["plans"]
    for shape, plan in timed.items():
        m, n, k = map(int, shape.split("x"))
        case = hopper.case("sm_90a", m=m, n=n, k=k)
        assert f"{case.block} {case.roles} {case.cluster_shape} {case.splits} {case.adding}" == plan, shape
    other = hopper.case("sm_90a", m=4096, n=4096, k=4096, block="256x192")
    assert (other.block, other.roles) == ("256x192", "cooperative")


def test_four_blocks_that_share_get_a_plan_of_their_own() -> None:
    """What is left open is the model's, also where it would take no such cluster: legal, and for the size."""
    hopper = FOUND["hopper"]
    shared: dict[str, Value] = {"dtype": "bf16", "out": "bf16", "cluster_shape": "2x2"}
    for block in ("64x64", "64x128", "128x128", "128x256"):
        case = hopper.case("sm_90a", m=1024, n=1024, k=1024, block=block, **shared)
        assert (case.block, case.cluster_shape) == (block, "2x2")
    assert int(hopper.case("sm_90a", m=64, n=4096, k=7168, **shared).block.partition("x")[0]) <= 64


def test_no_more_clusters_stay_than_run_at_once() -> None:
    """30 of four found room on 132 SMs of an H200; three more would begin when all the rest has ended."""
    assert [at_once(132, size) for size in (1, 2, 3, 4, 5, 8)] == [132, 132, 117, 120, 110, 120]
    assert [at_once(blocks, 4) for blocks in (3, 64, 119)] == [0, 64, 116]
    for name, options in (("cluster", {}), ("hopper", {"block": "128x128", "roles": "ping-pong"})):
        found = {
            shape: FOUND[name].case("sm_90a", m=4096, n=4096, k=4096, cluster_shape=shape, **options)
            for shape in ("2x1", "2x2")
        }
        assert {shape: FOUND[name].grid(case)[0] for shape, case in found.items()} == {"2x1": 132, "2x2": 120}
        assert FOUND[name].remarks(found["2x1"]) == []
        assert FOUND[name].remarks(found["2x2"]) == [
            "clusters of 4 find room for 120 of 132 blocks at once (seen on an H200)"
        ]


def test_the_model_knows_what_blocks_that_share_take() -> None:
    """Thousands of cycles at 4096^3 on an H200, 2026-11-30, bf16; within a tenth, and the first one first."""
    timed = {
        ("128x128", PING_PONG, 2, 1): 270,
        ("64x256", PING_PONG, 2, 1): 273,
        ("128x160", PING_PONG, 2, 1): 300,
        ("64x128", SINGLE, 2, 1): 345,
        ("64x128", PING_PONG, 2, 1): 347,
        ("128x160", PING_PONG, 2, 2): 295,
        ("128x128", PING_PONG, 2, 2): 303,
        ("64x256", PING_PONG, 2, 2): 305,
        ("64x128", PING_PONG, 2, 2): 322,
        ("128x256", COOPERATIVE, 2, 2): 348,
        ("64x128", SINGLE, 2, 2): 367,
        ("64x64", SINGLE, 2, 2): 452,
    }
    found = {}
    for block, role, down, across in timed:
        rows, cols = map(int, block.split("x"))
        plan = Plan(rows, cols, role, down=down, across=across, splits=1)
        found[block, role, down, across] = plan.cycles((4096, 4096, 4096), 132) / 1000
    assert all(abs(found[way] / timed[way] - 1) < 0.1 for way in timed), found
    for shape in ("2x1", "2x2"):
        case = FOUND["hopper"].case("sm_90a", m=4096, n=4096, k=4096, cluster_shape=shape)
        assert (case.roles, case.splits) == (PING_PONG, 1)
        assert math.prod(FOUND["hopper"].tile(case)[:2]) >= 128 * 128


@pytest.mark.parametrize(
    "given",
    [{"block": "128x320", "splits": 2}, {"block": "64x32", "adding": "cluster"}, {"blocks": 8, "splits": 24}],
)
def test_what_is_given_goes_before_what_makes_sense(given: dict[str, Value]) -> None:
    """The model has no such plan; there is a legal one all the same."""
    case = FOUND["hopper"].case("sm_90a", **given)
    assert given.items() <= case.params.items()


def test_a_timed_plan_is_of_as_many_blocks() -> None:
    """For others the model chooses."""
    hopper = FOUND["hopper"]
    few = hopper.case("sm_90a", dtype="bf16", out="bf16", blocks=8)
    assert hopper.plan_source(few) == "the model"
    assert hopper.plan_source(hopper.case("sm_90a", dtype="bf16", out="bf16")).startswith("plans.json")


def test_a_timed_plan_stays_where_a_bias_and_gelu_follow() -> None:
    """With C of 16 bits, as it was timed; every plan that the model takes instead is legal."""
    hopper = FOUND["hopper"]
    for shape, plan in json.loads((hopper.folder / "plans.json").read_text())["plans"].items():
        m, n, k = map(int, shape.split("x"))
        for dtype in ("f16", "bf16"):
            case = hopper.case("sm_90a", m=m, n=n, k=k, dtype=dtype, out=dtype, **FUSED)
            assert f"{case.block} {case.roles} {case.cluster_shape} {case.splits} {case.adding}" == plan
        for dtype, out in (("f16", "f32"), ("s8", "bf16")):
            hopper.case("sm_90a", m=m, n=n, k=k, dtype=dtype, out=out, **FUSED, **SCALED)


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "s8", "out": "f32", "splits": 2},
        {"dtype": "s8", "out": "f32", "roles": "alone", "splits": 2, **FUSED, **SCALED},
        {"roles": "ping-pong", "splits": 3, **FUSED},
        {"roles": "single", "splits": 3},
        {"n": 2112, **EVEN, **FUSED},
    ],
)
def test_what_is_left_open_becomes_a_plan_that_is_legal(options: dict[str, Value]) -> None:
    """Also where the model has none for what was asked for: here tiles would not be split."""
    case = FOUND["hopper"].case("sm_90a", m=4096, **({"n": 4096, "k": 4096} | options))
    assert all(getattr(case, name) == value for name, value in options.items())


@pytest.mark.parametrize(
    "options",
    [
        {"block": "128x256", "roles": "cooperative", **SCALED},
        {"block": "128x320", "cluster_shape": "2x1", "out": "f32", **SCALED},
        {"block": "128x192", "roles": "cooperative", "splits": 2, **SCALED},
        {"block": "256x192", "cluster_shape": "1x2", "splits": 4},
        {"block": "128x192", "roles": "ping-pong", "splits": 3, "out": "f32"},
        {"block": "64x128", "roles": "single", "splits": 8, **SCALED},
        {"block": "128x192", "roles": "cooperative", "splits": 3, "cluster_shape": "1x2", "out": "f32"},
        {"block": "128x256", "roles": "cooperative", "splits": 4, "cluster_shape": "1x2", "out": "f32"},
        {"block": "128x192", "roles": "cooperative", "splits": 3, "group": 1, "out": "f32"},
        {"block": "64x128", "roles": "ping-pong", "splits": 3, "group": 1, "out": "f32"},
        {"block": "64x128", "roles": "single", "splits": 3, "group": 1, "out": "f32"},
        {"block": "128x192", "roles": "ping-pong", "adding": "stream-k", "n": 2112, "out": "f32"},
        {"block": "128x256", "roles": "cooperative", "adding": "stream-k", "n": 2112},
        {"block": "256x128", "roles": "cooperative", "adding": "cluster", "splits": 2, **SCALED},
        {"block": "128x224", "roles": "cooperative", "out": "f32", **SCALED},
        {"block": "176x128", "roles": "cooperative", "cluster_shape": "1x2", **SCALED},
        {"block": "32x256", "roles": "single", "adding": "cluster", "splits": 8, "out": "f32", **SCALED},
        {"block": "128x256", "roles": "cooperative", "splits": 2, "cluster_shape": "1x2", **FUSED},
        {"block": "128x128", "roles": "ping-pong", "splits": 2, "out": "f32", **FUSED},
        {"block": "128x192", "roles": "ping-pong", "n": 2112, **EVEN, **FUSED},
        {"block": "128x224", "roles": "cooperative", "n": 2112, "out": "f32", **EVEN, **FUSED},
        {"block": "128x128", "roles": "alone", "splits": 3, "out": "f32", **SCALED, **FUSED},
    ],
)
def test_the_fullest_kernels_do_not_spill(options: dict[str, Value]) -> None:
    """Most registers are sums; C to be read, and parts to be added, must fit beside them."""
    hopper = FOUND["hopper"]
    case = hopper.case("sm_90a", **options)
    (kernel,) = kernels(build_unit(hopper, [case], "sm_90a"))
    failed = [detail for _, ok, detail in check_claims(kernel, hopper.claims(case)) if not ok]
    assert not failed
