"""The stages on wgmma, without a GPU: what TMA writes is what wgmma reads, and what goes together."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from ptxlab.device.job import MapArgument
from ptxlab.errors import MissingError, UsageError
from ptxlab.experiments.base import Case, Value
from ptxlab.experiments.gemm import TYPES, GemmStage
from ptxlab.experiments.gemm.wgmma import LINE, ClusterStage, WgmmaStage
from ptxlab.experiments.registry import find_stage, stage_entries
from ptxlab.isa import tma
from ptxlab.isa.tensor_map import TensorMap
from ptxlab.isa.wgmma_descriptor import Descriptor
from ptxlab.layout.banks import access, conflicts

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


EVEN: dict[str, Value] = {"adding": "stream-k"}


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
