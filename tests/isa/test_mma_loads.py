"""ldmatrix for mma: every load that is printed leaves exactly the fragment."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.isa.ldmatrix import check_form, ldmatrix
from ptxlab.isa.mma import MmaForm, dense_forms
from ptxlab.isa.mma_loads import Load, loads, obstacle
from ptxlab.isa.mma_sparse import SparseForm, sparse_forms
from ptxlab.isa.types import BITS

FORMS = [*dense_forms(), *sparse_forms()]
LOADS = [(form, load) for form in FORMS for load in loads(form)]


def packed(matrix: np.ndarray, bits: int) -> np.ndarray:
    """Rows of elements as bytes."""
    digits = (matrix[..., None] >> np.arange(bits)) & 1
    return np.packbits(digits.reshape(len(matrix), -1).astype(np.uint8), axis=1, bitorder="little")


@pytest.mark.parametrize(
    ("form", "load"), LOADS, ids=[f"{form.ptx} {load.memory} x{load.form.num}" for form, load in LOADS]
)
def test_a_load_leaves_the_fragment(form: MmaForm | SparseForm, load: Load) -> None:
    """Random bits in memory, through ldmatrix, are in the registers where mma wants them."""
    check_form(load.form, "sm_80")
    where, bits = (form.a_map, BITS[form.a]) if load.operand == "A" else (form.b_map, BITS[form.b])
    rows, cols = form.extents[load.operand]
    draw = np.random.default_rng(3)
    matrix = draw.integers(0, 1 << bits, (rows, cols * load.tiles), dtype=np.int64)
    lies_as_named = load.memory in ("m x k", "k x n")
    memory = packed(matrix if lies_as_named else matrix.T, bits)
    lane = np.arange(32)
    row, col = (np.broadcast_to(eval(text, {}, {"lane": lane}), 32) for text in (load.row, load.col))  # noqa: S307
    found = ldmatrix(memory.ravel(), row * memory.shape[1] + col * bits // 8, load.form)
    own = load.form.num // load.tiles
    for tile in range(load.tiles):
        elements = matrix[where.place["row"], where.place["col"] + 8 * tile]
        np.testing.assert_array_equal(found[:, own * tile : own * (tile + 1)], where.pack(elements, own))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.ptx)
def test_every_operand_is_loaded_or_it_is_said_why_not(form: MmaForm | SparseForm) -> None:
    """Both orders in memory."""
    for operand, sides in (("A", ("m x k", "k x m")), ("B", ("n x k", "k x n"))):
        for memory in sides:
            found = [load for load in loads(form) if (load.operand, load.memory) == (operand, memory)]
            assert bool(found) != bool(obstacle(form, operand, k_last=memory.endswith("k")))


def test_the_usual_ones_by_hand() -> None:
    """m16n8k16 of f16: what everybody writes."""
    form = MmaForm(16, 8, 16, "f16", "f16", "f32")
    told = {(load.operand, load.memory, load.tiles): load for load in loads(form)}
    a, b, transposed = told["A", "m x k", 1], told["B", "n x k", 1], told["B", "k x n", 2]
    assert (a.form.ptx, a.row, a.col) == (
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16", "lane % 16", "8 * (lane // 16)",
    )  # fmt: skip
    assert (b.form.num, b.form.trans, b.row, b.col) == (2, False, "lane % 8", "8 * (lane // 8 % 2)")
    assert (transposed.form.ptx, transposed.row, transposed.col) == (
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "lane % 16", "8 * (lane // 16)",
    )  # fmt: skip
    assert (a.fills, transposed.fills) == ("r0-r3", "r0-r1, r2-r3 of n+8")
