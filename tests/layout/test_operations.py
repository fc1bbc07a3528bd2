"""Operations by name: their steps lead to the result, their proofs can fail, their refusals are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptxlab.errors import UsageError
from ptxlab.layout import operations
from ptxlab.layout.algebra import Layout
from ptxlab.layout.operations import OPERATIONS, explain

EXAMPLES = {
    "coalesce": "coalesce (2,(1,6)):(1,(6,2))",
    "composition": "composition (6,2):(8,2) (4,3):(3,1)",
    "complement": "complement (2,2):(1,6) 24",
    "logical_divide": "logical_divide (4,2,3):(2,1,8) 4:2",
    "zipped_divide": "zipped_divide (9,(4,8)):(59,(13,1)) <3:3, (2,4):(1,8)>",
    "tiled_divide": "tiled_divide (9,(4,8)):(59,(13,1)) <3:3, (2,4):(1,8)>",
    "flat_divide": "flat_divide (9,(4,8)):(59,(13,1)) <3:3>",
    "logical_product": "logical_product (2,2):(4,1) 6:1",
    "zipped_product": "zipped_product (2,2):(1,1) <2:1, 3:1>",
    "tiled_product": "tiled_product (2,5):(5,1) (3,4):(1,3)",
    "blocked_product": "blocked_product (2,5):(5,1) (3,4):(1,3)",
    "raked_product": "raked_product (2,5):(5,1) (3,4):(1,3)",
    "right_inverse": "right_inverse (4,8):(8,1)",
    "left_inverse": "left_inverse (4,2):(2,16)",
    "upcast": "upcast (32,(32,4)):(32,(1,1024)) 16",
    "downcast": "downcast (4,8):(8,1) 4",
    "recast": "recast (64,16):(16,1) 16 32",
}


def test_every_operation_has_an_example() -> None:
    """So that the next tests forget none."""
    assert set(EXAMPLES) == set(OPERATIONS)


@pytest.mark.parametrize("source", EXAMPLES.values())
def test_an_operation_is_done_by_hand_and_proven(source: str) -> None:
    """Its last step is its result, and every claim was tried on some value and holds."""
    done = explain(source)
    assert done.reason == ""
    assert len(done.steps) >= 2
    assert done.steps[-1] == ("result", str(done.result))
    assert done.claims
    assert all(claim.holds and claim.tried for claim in done.claims)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_wrong_result_does_not_pass_the_proof(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operation is made to return another layout of the same size."""
    right = OPERATIONS[name]

    def wrong(*operands: object) -> Layout:
        found = right.run(*operands)
        return Layout(found.size, 7)

    monkeypatch.setitem(operations.OPERATIONS, name, replace(right, run=wrong))
    assert not all(claim.holds for claim in explain(EXAMPLES[name]).claims)


def test_the_steps_of_the_documentation_s_composition() -> None:
    """(6,2):(8,2) o 4:3 is every third value, (2,2):(24,2), and o 3:1 the first three, 3:8."""
    assert [step.value for step in explain(EXAMPLES["composition"]).steps] == [
        "(6,2):(8,2)",
        "2:24",
        "2:2",
        "3:8",
        "((2,2),3):((24,2),8)",
    ]


@pytest.mark.parametrize(
    ("source", "why", "steps"),
    [
        ("composition (4,6):(1,8) 4:3", "a step of 3 and a mode of 4: neither divides the other", 1),
        ("logical_divide (10,2):(1,16) 4", "a step of 4 and a mode of 10: neither divides the other", 4),
        ("complement (4,8):(1,5) 100", "a stride of 5 does not lie beyond a block of 4", 2),
        ("composition (4,2):(1,10) (3,2):(1,2)", "together reach 4 in a mode of 4", 3),
        ("left_inverse 4:0", "a stride of 0", 0),
    ],
)
def test_what_cannot_be_computed_is_explained_up_to_there(source: str, why: str, steps: int) -> None:
    """The steps that could be done, and the condition that fails."""
    done = explain(source)
    assert done.result is None
    assert why in done.reason
    assert len(done.steps) == steps
    assert done.claims == ()


def test_a_swizzle_in_front_stays_in_front() -> None:
    """The layout behind it is composed; what the swizzle moves is what comes out there."""
    done = explain("composition Sw<2,0,3> o 16 o (8,8):(8,1) (8,4):(1,8)")
    assert str(done.result) == "Sw<2,0,3> o 16 o (8,4):(8,1)"
    assert done.result is not None
    assert done.result(3, 2) == (16 + 3 * 8 + 2) ^ (((16 + 3 * 8 + 2) >> 3) & 3)


def test_a_layout_alone_is_evaluated() -> None:
    """Its last coordinate, step by step: 63*16 + 15 = 1023, whose bit 6 flips bit 3."""
    done = explain("Sw<1,4,3> o smem_ptr[16b] o (64,16):(16,1)")
    values = [step.value for step in done.steps]
    assert values == ["(63,15)", "1023", "Sw<1,3,3>", "1111111111", "1", "1111110111", "1015"]
    assert all(claim.holds for claim in done.claims)


def test_a_cotarget_may_be_left_out() -> None:
    """Then it is the layout's cosize."""
    assert str(explain("complement 4:2").result) == "2:1"


def test_what_is_too_large_to_try_is_not_tried() -> None:
    """The result stands, and no claim is made."""
    done = explain("coalesce (2097152,4):(1,2097152)")
    assert str(done.result) == "8388608:1"
    assert done.claims == ()


@pytest.mark.parametrize(
    ("source", "column"),
    [
        ("compositoin 4 4", 1),
        ("complement 4:2 x", 16),
        ("complement 4:2 0", 16),
        ("composition 4:1", 16),
        ("composition 4:1 2:1 2:1", 21),
        ("logical_divide 8 <2,2>", 18),
        ("logical_divide 8 <2", 20),
        ("logical_product Sw<2,0,3> o 8 4", 17),
        ("coalesce (4,8:(1,4)", 14),
        ("", 1),
    ],
)
def test_malformed_text_is_told_with_its_column(source: str, column: int) -> None:
    """Counted from 1, in the whole text."""
    with pytest.raises(UsageError, match=rf"column {column}:"):
        explain(source)
