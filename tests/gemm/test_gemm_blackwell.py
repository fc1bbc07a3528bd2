"""The stage on tcgen05, without a chip that has it: what TMA, descriptors and tensor memory make of C."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ptxlab.device.job import MapArgument
from ptxlab.errors import MissingError, UsageError
from ptxlab.experiments.base import Case
from ptxlab.experiments.gemm.wgmma import DEPTH
from ptxlab.experiments.registry import find_stage
from ptxlab.isa import tcgen05, tma
from ptxlab.isa.tcgen05_descriptor import TensorDescriptor, instruction_word, lint, lint_instruction
from ptxlab.isa.tensor_map import TensorMap

STAGE: Any = find_stage("blackwell")
ARCH = "sm_100a"
LAYOUTS = ("nn", "nt", "tn", "tt")

Floats = NDArray[np.float16]


def maps(case: Case) -> dict[str, TensorMap]:
    """Return the tensor maps of a launch, by the buffer that each is of."""
    return {each.buffer: each.map for each in STAGE.arguments(case) if isinstance(each, MapArgument)}


def told(case: Case) -> tuple[int, int, int]:
    """Return what the kernel is told last: the descriptors of A and B from 0 on, and that of the product."""
    *_, a, b, instruction = STAGE.arguments(case)
    return int(a), int(b), int(instruction)


def copied(m: TensorMap, matrix: Floats, first: int, k: int, lines: int, *, along_k: bool) -> Floats:
    """Return shared memory after the copies of a tile, as OperandTile::load() makes them."""
    memory, image = np.ascontiguousarray(matrix if along_k else matrix.T).view(np.uint8).ravel(), None
    image = np.zeros(lines * DEPTH * 2, np.uint8)
    if along_k:
        return tma.load(m, memory, (k, first), image, 0).view(np.float16)
    for panel in range(lines // 64):
        image = tma.load(m, memory, (first + 64 * panel, k), image, panel * 64 * DEPTH * 2)
    return image.view(np.float16)


def read(image: Floats, word: int, lines: int, *, along_k: bool) -> Iterator[Floats]:
    """Yield an operand, [lines, 16], as each of the products of a stage finds it: see multiply()."""
    step = (32 if along_k else 16 * 128) // 16
    for i in range(DEPTH // 16):
        descriptor = TensorDescriptor.of(word + i * step)
        yield image[descriptor.addresses(lines, 16, 16, "K" if along_k else "MN") // 2]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_descriptors_are_those_of_the_model(layout: str) -> None:
    """Nothing is wrong with them for operands of this shape; the kernel adds addresses, and nothing else."""
    case = STAGE.case(ARCH, layout=layout, block="128x128")
    form = STAGE.form(case)
    a, b, instruction = told(case)
    assert lint(a, rows=128, k=16, bits=16, major=form.a_major) == []
    assert lint(b, rows=128, k=16, bits=16, major=form.b_major) == []
    assert lint_instruction(instruction, form) == []
    assert instruction == instruction_word(form)
    assert (form.a_major, form.b_major) == tuple(
        "K" if each else "MN" for each in (layout[0] == "t", layout[1] == "n")
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("block", ["128x64", "128x256"])
def test_products_read_what_tma_writes(layout: str, block: str) -> None:
    """Every element where it belongs, zeros beyond the end of the matrix, for both operands."""
    case = STAGE.case(ARCH, m=328, n=328, k=104, layout=layout, block=block)
    for buffer, word, lines, along_k in (
        ("a", told(case)[0], STAGE.tile(case)[0], layout[0] == "t"),
        ("b", told(case)[1], STAGE.tile(case)[1], layout[1] == "n"),
    ):
        logical = np.arange(1, 328 * 104 + 1, dtype=np.uint16).reshape(328, 104).view(np.float16)
        image = copied(maps(case)[buffer], logical, 128, 64, lines, along_k=along_k)
        expected = np.zeros((lines, DEPTH), np.uint16)
        inside = logical[128 : 128 + lines, 64:128].view(np.uint16)
        expected[: inside.shape[0], : inside.shape[1]] = inside
        found = np.concatenate(list(read(image, word, lines, along_k=along_k)), axis=1)
        np.testing.assert_array_equal(found.view(np.uint16), expected)


def panel_of(registers: NDArray[np.uint32], out: np.dtype[Any]) -> NDArray[np.uint8]:
    """Return a warp's panel when each lane has laid its sums into its line: see lay()."""
    panel = np.zeros(32 * 128, np.uint8)
    for lane in range(32):
        line = registers[lane].view(np.float32).astype(out).view(np.uint8)
        for chunk in range(8):
            at = lane * 128 + (chunk ^ lane % 8) * 16
            panel[at : at + 16] = line[16 * chunk : 16 * chunk + 16]
    return panel


def stored(
    case: Case, memory: NDArray[np.uint32], c: NDArray[np.uint8], row: int, col: int
) -> NDArray[np.uint8]:
    """Return C after four warps took a tile out of tensor memory, 32 columns a load: see store()."""
    out = np.dtype("f2" if case.out == "f16" else "f4")
    wide = 128 // out.itemsize
    load = tcgen05.MoveForm("ld", "32x32b", 32)
    for first in range(0, STAGE.tile(case)[1], wide):
        parts = [tcgen05.loaded(np.roll(memory, -at, axis=1), load) for at in range(first, first + wide, 32)]
        for warp, registers in enumerate(np.concatenate(parts, axis=2)):
            corner = (col + first, row + 32 * warp)
            if corner[1] < case.m and corner[0] < case.n:
                c = tma.store(maps(case)["c"], c, corner, panel_of(registers, out), 0)
    return c


@pytest.mark.parametrize("out", ["f16", "f32"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tile_at_the_edge_becomes_its_part_of_c(layout: str, out: str) -> None:
    """From A and B in memory to C in memory, by the models of each step, and not beyond the end."""
    case = STAGE.case(ARCH, m=136, n=72, k=104, layout=layout, out=out, block="128x64")
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((136, 104), (72, 104)))
    row, col, (rows, cols, _) = 128, 64, STAGE.tile(case)
    sums = np.zeros((rows, cols), np.float32)
    for k in range(0, 104, DEPTH):
        operands = (("a", a, row, rows, layout[0] == "t"), ("b", b, col, cols, layout[1] == "n"))
        tiles = [
            read(
                copied(maps(case)[name], whole, first, k, lines, along_k=along_k),
                word,
                lines,
                along_k=along_k,
            )
            for (name, whole, first, lines, along_k), word in zip(operands, told(case), strict=False)
        ]
        for part_a, part_b in zip(*tiles, strict=True):
            sums += part_a.astype(np.float32) @ part_b.astype(np.float32).T
    memory = np.full((tcgen05.LANES, tcgen05.COLUMNS), 0xFFFFFFFF, np.uint32)
    _, lane, column = STAGE.form(case).d_places()
    memory[lane, column] = sums.view(np.uint32)
    size = 2 if out == "f16" else 4
    found = stored(case, memory, np.full(136 * 72 * size, 0xAB, np.uint8), row, col)
    expected = np.full((136, 72 * size), 0xAB, np.uint8)
    product = (a.astype(np.float32) @ b.astype(np.float32).T)[row:, col:]
    expected[row:, col * size :] = np.ascontiguousarray(product.astype(f"f{size}")).view(np.uint8)
    np.testing.assert_array_equal(found.reshape(136, -1), expected)


def test_two_tiles_of_sums_fill_tensor_memory() -> None:
    """What is allocated is a power of two, and no more than there is."""
    for block, columns in (("128x64", 128), ("128x128", 256), ("128x256", 512)):
        case = STAGE.case(ARCH, block=block)
        assert sum(STAGE.tensor_memory(case).values()) == columns
        tcgen05.check_columns(columns)


def test_it_is_of_one_chip() -> None:
    """Exit 3 elsewhere; the message names the chip, and the hint asks for it."""
    with pytest.raises(MissingError, match="not for sm_90a; it is for sm_100a, for whose tcgen05") as told_so:
        STAGE.case("sm_90a")
    assert told_so.value.hint == "--arch sm_100a"


def test_what_does_not_go_together_is_refused() -> None:
    """Too many stages for a block's shared memory, no blocks, lines of C that TMA cannot step over."""
    for options, legal in (
        ({"stages": 6}, "can have 232448"),
        ({"blocks": 0}, "legal: 1 and more"),
        ({"n": 12}, "-n is 12"),
    ):
        with pytest.raises(UsageError, match=legal):
            STAGE.case(ARCH, **options)
