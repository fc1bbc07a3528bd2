"""wgmma's descriptor: fields, the bytes it stands for, how an operand is cut into steps, and its mistakes."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.isa.wgmma_descriptor import SPANS, Descriptor, SharedOperand, fields, lint, swizzled

SWIZZLES = tuple(SPANS)


def operand(
    major: str = "K", swizzle: str = "128B", rows: int = 64, k: int = 64, bits: int = 16
) -> SharedOperand:
    """An operand at address 2048."""
    return SharedOperand(2048, rows, k, bits, major, swizzle)


@pytest.mark.parametrize(("swizzle", "sbo", "mode"), [("128B", 64, 1), ("64B", 32, 2), ("32B", 16, 3)])
def test_fields_of_k_major_operands(swizzle: str, sbo: int, mode: int) -> None:
    """SBO is eight rows of the span: stored as 64, 32 and 16."""
    stored = {
        each["field"]: each["stored"] for each in fields(operand(swizzle=swizzle).descriptor(0, 0).word)
    }
    assert stored == {"start": 128, "LBO": 1, "SBO": sbo, "base offset": 0, "swizzle": mode}


@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_decoding_is_the_inverse_of_encoding(swizzle: str) -> None:
    """Every field survives."""
    found = Descriptor(0x3FFF0, 16, 0x2000, swizzle, base_offset=5)
    assert Descriptor.of(found.word) == found
    assert found.word < 1 << 64


@pytest.mark.parametrize("values", [(8, 16, 16), (1 << 18, 16, 16), (0, -16, 16), (0, 16, 100)])
def test_bytes_that_no_field_holds(values: tuple[int, int, int]) -> None:
    """Multiples of 16 below 2 ** 18."""
    with pytest.raises(UsageError, match="legal: multiples of 16 from 0 to 262128"):
        _ = Descriptor(*values, "none").word


@pytest.mark.parametrize(("major", "bits"), [("K", 8), ("K", 16), ("K", 32), ("MN", 16)])
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_steps_cover_an_operand_once(major: str, swizzle: str, bits: int) -> None:
    """The descriptors of all steps and row blocks reach every element once, each in bytes of its own."""
    whole, k = operand(major, swizzle, rows=128, k=5 * 256 // bits, bits=bits), 256 // bits
    found = [
        whole.descriptor(row, step * k).addresses(64, k, bits, major) for row in (0, 64) for step in range(5)
    ]
    addresses = np.concatenate([each.ravel() for each in found])
    assert len(set(addresses.tolist())) == 128 * 5 * k
    assert (addresses % (bits // 8) == 0).all()
    assert addresses.min() >= 2048
    assert addresses.max() + bits // 8 <= 2048 + whole.nbytes


@pytest.mark.parametrize(("major", "bits"), [("K", 8), ("K", 16), ("K", 32), ("MN", 16)])
@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize(("rows", "steps"), [(64, 1), (128, 5), (72, 3), (8, 1)])
def test_printed_formulas_are_the_addresses(
    major: str, swizzle: str, bits: int, rows: int, steps: int
) -> None:
    """The byte of each element, evaluated, is what the descriptor of its step reads."""
    k = 256 // bits
    whole = operand(major, swizzle, rows, steps * k, bits)
    row, col = np.indices((rows, steps * k))
    found = eval(whole.formula("row", "col"), {}, {"row": row, "col": col})  # noqa: S307 - our own text
    for step in range(steps):
        read = whole.descriptor(0, step * k).addresses(rows, k, bits, major) - whole.start
        np.testing.assert_array_equal(found[:, step * k : (step + 1) * k], read)


def test_addresses_by_hand() -> None:
    """Places worked out by hand from the canonical layouts."""
    k_major = operand().descriptor(0, 0).addresses(64, 16, 16, "K") - 2048
    assert k_major[0, :9].tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 16]
    assert k_major[1, [0, 8]].tolist() == [128 + 16, 128]  # row 1: chunks 0 and 1 change places
    assert k_major[8, 0] == 1024
    plain = operand(swizzle="none").descriptor(0, 0).addresses(64, 16, 16, "K") - 2048
    assert plain[[1, 8], 0].tolist() == [16, 128]
    assert plain[0, 8] == 64 * 16  # LBO: the next 16 bytes along K come after all rows
    mn_major = operand("MN").descriptor(0, 0).addresses(64, 16, 16, "MN") - 2048
    assert mn_major[[0, 1, 8], 0].tolist() == [0, 2, 16]
    assert mn_major[0, [1, 8]].tolist() == [128 + 16, 1024]
    plain = operand("MN", "none").descriptor(0, 0).addresses(64, 16, 16, "MN") - 2048
    assert plain[[1, 8], 0].tolist() == [2, 128]
    assert plain[0, [1, 8]].tolist() == [16, 64 * 16]


@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_a_swizzle_moves_16_byte_chunks_within_its_atom(swizzle: str) -> None:
    """It is its own inverse, and what it moves stays within eight lines."""
    address = np.arange(0, 4096)
    moved = swizzled(address, swizzle)
    np.testing.assert_array_equal(swizzled(moved, swizzle), address)
    np.testing.assert_array_equal(moved // (8 * SPANS[swizzle]), address // (8 * SPANS[swizzle]))
    np.testing.assert_array_equal(moved % 16, address % 16)
    assert (moved != address).any() == (swizzle != "none")


@pytest.mark.parametrize("bits", [16, 8, 32], ids=["f16", "e4m3", "tf32"])
def test_steps_along_k(bits: int) -> None:
    """Two units of 16 bytes a step, four steps an atom, then 256 rows of 128 bytes on."""
    k = 256 // bits
    whole = SharedOperand(0, 256, 8 * k, bits, "K", "128B")
    units = [whole.descriptor(0, step * k).start // 16 for step in range(8)]
    assert units == [0, 2, 4, 6, 2048, 2050, 2052, 2054]


def test_a_sound_descriptor_has_no_problems() -> None:
    """None in any layout, at any step along K."""
    for major in ("K", "MN"):
        for swizzle in SWIZZLES:
            for step in range(4):
                word = operand(major, swizzle).descriptor(0, 16 * step).word
                assert lint(word, rows=64, k=16, bits=16, major=major) == [], (major, swizzle, step)


@pytest.mark.parametrize(("swizzle", "expected"), [("128B", 1024), ("64B", 512), ("32B", 256)])
def test_a_forgotten_shift_is_named(swizzle: str, expected: int) -> None:
    """The bytes of SBO stored as they are, 16 times too far."""
    word = Descriptor(2048, 16, 16 * expected, swizzle).word
    problem = f"SBO = {16 * expected} B, expected {expected}: forgot >>4?"
    assert problem in lint(word, rows=64, k=16, bits=16, major="K")


@pytest.mark.parametrize("major", ["K", "MN"])
def test_forgotten_shifts_without_a_swizzle_are_named(major: str) -> None:
    """Of core matrices that all lie far apart both strides are; one long stride may be meant."""
    word = Descriptor(1024, 16 * 1024, 16 * 128, "none").word
    assert [each for each in lint(word, rows=64, k=16, bits=16, major=major) if "forgot" in each] == [
        "LBO = 16384 B, expected 1024: forgot >>4?",
        "SBO = 2048 B, expected 128: forgot >>4?",
    ]
    for lbo, sbo in ((1024, 128), (128, 2048), (16384, 128), (144, 2304)):
        assert lint(Descriptor(1024, lbo, sbo, "none").word, rows=64, k=16, bits=16, major=major) == []


@pytest.mark.parametrize(("swizzle", "expected"), [("64B", 1024), ("32B", 512)])
def test_a_forgotten_shift_of_lbo_is_named(swizzle: str, expected: int) -> None:
    """MN-major operands step over their spans by LBO: 16 lines of k for each."""
    word = Descriptor(2048, 16 * expected, 8 * SPANS[swizzle], swizzle).word
    problem = f"LBO = {16 * expected} B, expected {expected}: forgot >>4?"
    assert problem in lint(word, rows=64, k=16, bits=16, major="MN")


@pytest.mark.parametrize(
    ("word", "major", "words"),
    [(Descriptor(0, 16, 512, "128B").word, "K", "SBO = 512 B, expected a multiple of 1024"),
     (Descriptor(0, 16, 0, "128B").word, "K", "SBO = 0 B"),
     (Descriptor(0, 16, 128, "none").word, "K", "LBO = 16 B, expected at least 128"),
     (Descriptor(128, 16, 1024, "128B").word, "K", "is row 1 of a swizzle atom; expected a multiple of 1024"),
     (Descriptor(128, 1024, 512, "64B").word, "MN", "is k 2 of a swizzle atom"),
     (Descriptor(0, 0x3FFF0, 1024, "32B").word, "MN", "it reaches byte"),
     (Descriptor(0, 16, 1024, "128B").word | 1 << 46, "K", "reserved bits are set: 46; tcgen05"),
     (Descriptor(0, 16, 1024, "128B").word | 1 << 14, "K", "reserved bits are set: 14")],
)  # fmt: skip
def test_other_mistakes(word: int, major: str, words: str) -> None:
    """Overlapping core matrices, a start among the lines of an atom, bits that belong to tcgen05."""
    assert any(words in each for each in lint(word, rows=64, k=16, bits=16, major=major))


@pytest.mark.parametrize("lbo", [0, 16, 256])
def test_lbo_is_not_looked_at_in_swizzled_k_major(lbo: int) -> None:
    """No address depends on it, and the lint is silent about it."""
    found = Descriptor(0, lbo, 1024, "128B")
    expected = Descriptor(0, 16, 1024, "128B").addresses(64, 16, 16, "K")
    np.testing.assert_array_equal(found.addresses(64, 16, 16, "K"), expected)
    assert lint(found.word, rows=64, k=16, bits=16, major="K") == []
