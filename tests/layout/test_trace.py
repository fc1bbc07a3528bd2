"""The way of one element, held against the models of TMA, ldmatrix, mma, wgmma and stmatrix in turn.

Each element carries its own number through the models. The formulas of the trace are evaluated for all
elements of a tile at once, and must name the places where the models put the number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ptxlab.errors import UsageError
from ptxlab.isa import stmatrix, tma
from ptxlab.isa.ldmatrix import ldmatrix
from ptxlab.isa.mma import MmaForm, dense_forms
from ptxlab.isa.stmatrix import StMatrixForm
from ptxlab.isa.wgmma import WgmmaForm
from ptxlab.isa.wgmma_descriptor import SharedOperand
from ptxlab.layout.address import evaluate
from ptxlab.layout.trace import Setup, contributions, trace

Ints = NDArray[np.int64]
WORDS: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def mma(shape: str, dtype: str, acc: str = "f32") -> MmaForm:
    """Return a dense form."""
    return next(f for f in dense_forms() if (f.shape, f.a, f.b, f.acc) == (shape, dtype, dtype, acc))


HALF = mma("m16n8k16", "f16")
MMA = [
    Setup((64, 256), (32, 64), "f16", "128B", HALF),
    Setup((64, 256), (32, 128), "f16", "128B", HALF),
    Setup((64, 128), (32, 32), "f16", "64B", HALF, "B"),
    Setup((64, 64), (32, 16), "bf16", "32B", mma("m16n8k16", "bf16"), stages=3),
    Setup((64, 64), (32, 32), "f16", "none", HALF, stages=2),
    Setup((128, 64), (32, 32), "f16", "64B", HALF, major="MN"),
    Setup((128, 128), (32, 64), "f16", "128B", HALF, "B", major="MN"),
    Setup((128, 128), (32, 64), "f16", "128B", mma("m16n8k8", "f16"), "B", major="MN", copy="cp.async"),
    Setup((64, 128), (32, 32), "tf32", "128B", mma("m16n8k8", "tf32")),
    Setup((64, 128), (32, 32), "tf32", "none", mma("m16n8k4", "tf32"), "B"),
    Setup((64, 256), (32, 128), "s8", "128B", mma("m16n8k32", "s8", "s32")),
    Setup((64, 128), (32, 64), "e4m3", "64B", mma("m16n8k16", "e4m3"), "B"),
    Setup((64, 256), (16, 128), "u8", "128B", mma("m8n8k16", "u8", "s32")),
]
WGMMA = [
    Setup((128, 256), (64, 64), "f16", "128B", WgmmaForm(64, "f16", "f16", "f32")),
    Setup((256, 256), (128, 128), "f16", "128B", WgmmaForm(64, "f16", "f16", "f32"), stages=2),
    Setup((128, 128), (64, 32), "bf16", "64B", WgmmaForm(32, "bf16", "bf16", "f32")),
    Setup((128, 128), (64, 32), "f16", "none", WgmmaForm(24, "f16", "f16", "f32")),
    Setup((128, 128), (64, 16), "f16", "32B", WgmmaForm(32, "f16", "f16", "f32"), "B"),
    Setup((128, 256), (32, 128), "f16", "128B", WgmmaForm(64, "f16", "f16", "f32"), major="MN"),
    Setup((128, 128), (32, 64), "f16", "64B", WgmmaForm(64, "f16", "f16", "f32"), "B", major="MN"),
    Setup((128, 128), (64, 32), "tf32", "128B", WgmmaForm(32, "tf32", "tf32", "f32"), "B"),
    Setup((128, 256), (64, 128), "e4m3", "128B", WgmmaForm(64, "e4m3", "e4m3", "f32")),
    Setup((128, 256), (64, 64), "s8", "none", WgmmaForm(64, "s8", "s8", "s32"), "B"),
]
BOTH = pytest.mark.parametrize(
    "setup", [*MMA, *WGMMA], ids=lambda s: f"{s.name}-{s.dtype}-{s.swizzle}-{s.operand}-{s.major}-{s.tile}"
)


def rows_and_columns(setup: Setup) -> tuple[Ints, Ints]:
    """Return all rows and columns of the second tile each way."""
    row, col = np.indices(setup.tile, dtype=np.int64)
    return row + setup.tile[0], col + setup.tile[1]


def named(setup: Setup) -> dict[str, Ints]:
    """Return every name of the trace for all elements of a tile, by its formulas."""
    row, col = rows_and_columns(setup)
    names: dict[str, Any] = {}
    for step in trace(setup, int(row[0, 0]), int(col[0, 0])):
        given = {"row": row, "col": col}.get(step.name, step.value)
        names[step.name] = eval(step.formula, {}, names) if step.formula else given  # noqa: S307 - our own text
    return {name: np.broadcast_to(value, setup.tile) for name, value in names.items()}


def numbers(setup: Setup) -> Ints:
    """Return a number for each element of the matrix: its own, or what of it fits."""
    rows, cols = setup.matrix
    return np.arange(rows * cols, dtype=np.int64).reshape(rows, cols) * 7919 % (1 << (8 * setup.size))


def loaded(setup: Setup) -> NDArray[np.uint8]:
    """Return shared memory after TMA has loaded the second tile each way, box by box."""
    memory = numbers(setup).astype(WORDS[setup.size]).view(np.uint8).ravel()
    image = np.zeros(setup.stages * setup.stage_bytes, dtype=np.uint8)
    rows, cols = setup.tile
    stage = 1 % setup.stages
    high, wide = setup.box
    for number, left in enumerate(range(0, cols, wide)):
        address = stage * setup.stage_bytes + number * high * max(wide * setup.size, setup.span)
        m = setup.tensor_map
        if setup.dtype == "tf32":  # rounding would change the numbers
            m = type(m)(**{**vars(m), "dtype": "u32"})
        image = tma.load(m, memory, (cols + left, rows), image, address)
    return image


def words_at(image: NDArray[np.uint8], places: Ints, size: int) -> Ints:
    """Return the numbers of so many bytes that begin at these places."""
    found = image[places[..., None] + np.arange(size)]
    return np.asarray(np.ascontiguousarray(found).view(WORDS[size])[..., 0], dtype=np.int64)


@BOTH
def test_the_copy_puts_it_where_the_trace_says(setup: Setup) -> None:
    """The byte in shared memory is TMA's; bank and part are of that byte; coordinates are the box's."""
    at = named(setup)
    own = numbers(setup)[rows_and_columns(setup)]
    assert (words_at(loaded(setup), at["shared"], setup.size) == own).all()
    assert (at["bank"] == at["shared"] % 128 // 4).all()
    assert (at["byte"] == (at["row"] * setup.matrix[1] + at["col"]) * setup.size).all()
    assert (at["stage"] == 1 % setup.stages).all()
    if setup.copy == "tma":
        high, wide = setup.box
        assert ((at["x"] <= at["col"]) & (at["col"] < at["x"] + wide) & (at["x"] % wide == 0)).all()
        assert ((at["y"] <= at["row"]) & (at["row"] < at["y"] + high)).all()
    else:
        thread_chunks = at["round"] * 128 + at["thread"]
        assert np.unique(thread_chunks).size == setup.tile[0] * setup.tile[1] * setup.size // 16
        assert (thread_chunks == (at["r"] * setup.tile[1] + at["c"]) * setup.size // 16).all()
    start = setup.places + setup.stage_bytes * (1 % setup.stages)
    assert (start[at["r"], at["c"] * setup.size // 16] == at["shared"] // 16 * 16).all()


def pieces(setup: Setup) -> tuple[int, int]:
    """Return rows and columns of the tile that one instruction reads."""
    across, k = setup.form_sides[setup.side], setup.form.k
    return (across, k) if setup.k_axis else (k, across)


@pytest.mark.parametrize("setup", MMA, ids=str)
def test_ldmatrix_and_mma_find_it_where_the_trace_says(setup: Setup) -> None:
    """Of every instruction that reads the tile: what is in that register is the element, and is A or B."""
    assert isinstance(setup.form, MmaForm)
    at, image, own = named(setup), loaded(setup), numbers(setup)[rows_and_columns(setup)]
    form, (high, wide) = setup.load.form, pieces(setup)
    where = setup.form.maps[setup.operand]
    for top in range(0, setup.tile[0], high):
        for left in range(0, setup.tile[1], wide):
            first = [evaluate(setup.load.row, {"lane": lane}) for lane in range(32)]
            along = [evaluate(setup.load.col, {"lane": lane}) for lane in range(32)]
            addresses = at["shared"][np.array(first) + top, np.array(along) + left]
            registers = ldmatrix(image, addresses, form)
            here = (slice(top, top + high), slice(left, left + wide))
            lane, register, slot = (at[name][here] for name in ("lane", "register", "slot"))
            held = registers[lane, register] >> (slot * 8 * setup.size) & ((1 << 8 * setup.size) - 1)
            assert (held == own[here]).all()
            assert (addresses[at["pointer"][here]] == at["address"][here]).all()
            matrix = np.zeros(setup.form.extents[setup.operand], dtype=np.int64)
            matrix[where.place["row"], where.place["col"]] = where.slots_of(registers)
            m_or_k, k_or_n = ("m", "k") if setup.operand == "A" else ("k", "n")
            assert (matrix[at[m_or_k][here], at[k_or_n][here]] == own[here]).all()
    for name in ("lane", "register", "slot"):
        assert (at[name] == at[f"{setup.operand}_{name}"]).all()


@pytest.mark.parametrize("setup", WGMMA, ids=str)
def test_the_descriptor_reads_it_where_the_trace_says(setup: Setup) -> None:
    """Of every instruction that reads the tile: the model of the descriptor gives the element's byte."""
    at, (high, wide) = named(setup), pieces(setup)
    across, k = setup.tile if setup.k_axis else setup.tile[::-1]
    operand = SharedOperand(
        setup.stage_bytes * (1 % setup.stages), across, k, 8 * setup.size, setup.major, setup.swizzle
    )
    for top in range(0, setup.tile[0], high):
        for left in range(0, setup.tile[1], wide):
            found = operand.descriptor(*((top, left) if setup.k_axis else (left, top)))
            side = setup.form_sides[setup.side]
            read = found.addresses(side, setup.form.k, 8 * setup.size, setup.major)
            here = (slice(top, top + high), slice(left, left + wide))
            assert (at["read"][here] == read[at[setup.side][here], at["k"][here]]).all()
            assert (at["start"][here] == found.start).all()
            assert (at["LBO"][here] == found.lbo).all()
            assert (at["SBO"][here] == found.sbo).all()
    assert (at["read"] == at["shared"]).all()


@BOTH
def test_the_accumulator_is_the_instruction_s(setup: Setup) -> None:
    """The map of D names that lane and register, and an accumulator of D to which the element is added."""
    at = named(setup)
    form = setup.form
    entries = form.c_map.entries() if isinstance(form, MmaForm) else form.d_map.entries()
    held = {
        (each["row"], each["col"]): (each.get("warp", 0), each["lane"], each["register"]) for each in entries
    }
    warp = at.get("D_warp", np.zeros(setup.tile, dtype=np.int64))
    for place in list(np.ndindex(setup.tile))[::37]:
        own = {name: int(values[place]) for name, values in at.items()}
        told = (int(warp[place]), own["D_lane"], own["D_register"])
        assert held[own["d_m"], own["d_n"]] == told
        side = 0 if setup.operand == "A" else 1
        line = own["m"] if setup.operand == "A" else own["n"]
        added = {to for element, to in held.items() if element[side] == line}
        assert set(contributions(setup, own)) == added
        if (own["d_m"], own["d_n"])[side] == line:
            assert told in added


@BOTH
def test_it_is_stored_where_the_trace_says(setup: Setup) -> None:
    """The product by the identity, from accumulators to shared memory and by TMA to global memory.

    Each instruction's D goes through stmatrix, or is stored in pairs, in its own place of C's tile.
    """
    at = named(setup)
    c = numbers(setup) if setup.is_c_order else numbers(setup).T
    rows, cols = setup.c_tile
    size = setup.c_size
    m = setup.c_tensor_map
    m = type(m)(**{**vars(m), "dtype": {2: "u16", 4: "u32"}[size]})
    memory = np.zeros(c.size * size, dtype=np.uint8)
    for top, left in {
        (int(y), int(x))
        for y, x in zip((at["c_row"] - at["c_r"]).flat, (at["c_col"] - at["c_c"]).flat, strict=True)
    }:
        tile = np.zeros((rows, cols), dtype=np.int64)
        inside = c[top : top + rows, left : left + cols]
        tile[: inside.shape[0], : inside.shape[1]] = inside
        image = stored(setup, tile)
        here = (at["c_row"] - at["c_r"] == top) & (at["c_col"] - at["c_c"] == left)
        own = numbers(setup)[rows_and_columns(setup)][here]
        assert (words_at(image, at["c_shared"][here], size) == own).all()
        wide = m.box[1]
        for number, along in enumerate(range(0, cols, wide)):
            address = number * rows * tma.row_bytes(m)
            memory = tma.store(m, memory, (left + along, top), image, address)
    assert (words_at(memory, at["c_byte"], size) == numbers(setup)[rows_and_columns(setup)]).all()
    if setup.is_c_order and setup.size == size:
        assert (at["c_byte"] == at["byte"]).all()


def stored(setup: Setup, tile: Ints) -> NDArray[np.uint8]:
    """Return shared memory after all accumulators of C's tile were stored, by what TMA says of places."""
    rows, cols = setup.c_tile
    size, m = setup.c_size, setup.c_tensor_map
    boxes = [
        tma.places(m, number * rows * tma.row_bytes(m))[..., 0] for number in range(-(-cols // m.box[1]))
    ]
    places = np.concatenate(boxes, axis=1)[:, :cols]
    image = np.zeros(int(places.max()) + 16, dtype=np.uint8)
    if size == 4:
        image[places[..., None] + np.arange(4)] = tile.astype(np.uint32)[..., None].view(np.uint8)
        return image
    step = 16 if cols % 16 == 0 and (isinstance(setup.form, MmaForm) or setup.form.n % 16 == 0) else 8
    form = StMatrixForm(num=step // 4)
    for top in range(0, rows, 16):
        for left in range(0, cols, step):
            addresses = np.array(
                [places[top + lane % 16, left + 8 * (lane // 16 % (step // 8))] for lane in range(32)]
            )
            image = stmatrix.stmatrix(
                image, addresses, narrowed(tile[top : top + 16, left : left + step]), form
            )
    return image


def narrowed(block: Ints) -> NDArray[np.uint32]:
    """Return the registers for stmatrix: accumulators 2i and 2i + 1 of each mma in register i."""
    found = np.zeros((32, block.shape[1] // 4), dtype=np.uint32)
    for entry in HALF.c_map.entries():
        for tile in range(block.shape[1] // 8):
            value = int(block[entry["row"], entry["col"] + 8 * tile])
            found[entry["lane"], 2 * tile + entry["register"] // 2] |= value << 16 * (entry["register"] % 2)
    return found


@BOTH
def test_stmatrix_takes_the_accumulator_from_where_it_is(setup: Setup) -> None:
    """The formulas of stmatrix and of D name the same lane, and its address is of the element's chunk."""
    at = named(setup)
    if setup.c_size == 4:
        assert "s_matrix" not in at
        return
    where = stmatrix.register_map(StMatrixForm())
    lane = np.full((8, 8), -1)
    own = where.place["matrix"] == 0
    lane[where.place["row"][own], where.place["col"][own]] = where.lane[own]
    assert (lane[at["d_m"] % 8, at["c_c"] % 8] == at["D_lane"]).all()
    assert (at["s_pointer"] // 8 == at["s_matrix"]).all()
    assert (at["s_matrix"] % 2 == at["D_register"] // 2 % 2).all()
    assert (setup.c_places[at["c_r"], at["c_c"] // 8] == at["c_shared"] // 16 * 16).all()
    assert (at["c_bank"] == at["c_shared"] % 128 // 4).all()


@BOTH
def test_each_step_is_the_value_of_its_formula(setup: Setup) -> None:
    """For single elements: a formula uses only earlier names, and all names are different."""
    for row, col in ((0, 0), (setup.matrix[0] - 1, setup.matrix[1] - 1), (17, 29)):
        names: dict[str, int] = {}
        for step in trace(setup, row, col):
            assert step.name not in names
            if step.formula:
                assert evaluate(step.formula, names) == step.value
            names[step.name] = step.value


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tile": (24, 64)}, "24 rows; legal: multiples of 16"),
        ({"tile": (32, 24)}, "24 columns; legal: multiples of 16"),
        ({"tile": (32, 96)}, "a row of the tile has 192 bytes; legal with swizzle 128B: up to 128"),
        ({"stages": 0}, "0 stages of 4096 bytes; legal: 1 to 56"),
        ({"stages": 57}, "legal: 1 to 56"),
        ({"tile": (1024, 64)}, "boxDim[1]=1024; legal: 1 to 256"),
        ({"tile": (4096, 64)}, "a tile of 524288 bytes; legal: up to 232448"),
        ({"matrix": (64, 100)}, "a row of the matrix has 200 bytes; legal: multiples of 16"),
        ({"form": mma("m16n8k32", "s8", "s32"), "dtype": "s8", "major": "MN"}, ".trans moves 16 bits"),
        (
            {"form": WgmmaForm(32, "f16", "f16", "f32"), "tile": (64, 64), "major": "MN", "swizzle": "none"},
            "without swizzle is not traced",
        ),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], said: str) -> None:
    """One line, with what would be legal."""
    usual = {
        "matrix": (64, 256),
        "tile": (32, 64),
        "dtype": "f16",
        "swizzle": "128B",
        "form": HALF,
        "stages": 1,
    }
    with pytest.raises(UsageError) as error:
        Setup(**{**usual, **change})
    assert said in error.value.message


def test_an_element_outside_the_matrix_is_refused() -> None:
    """With the rows that there are."""
    with pytest.raises(UsageError, match=r"row 64 is outside the matrix of 64x256; legal: 0 to 63"):
        trace(MMA[0], 64, 0)
