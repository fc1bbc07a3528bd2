"""``ptxlab banks``: the counts of one warp instruction, its picture and its sentence."""

from __future__ import annotations

import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments.banks import banks_record


@pytest.mark.parametrize(
    ("width", "op", "expression", "counts"),
    [("128", "ld", "lane*16", (4, 4, 0, False)), ("128", "ld", "lane*128", (32, 4, 28, False)),
     ("128", "st", "lane*16", (4, 4, 0, False)), ("128", "ld", "lane//2*16", (2, 4, 0, True)),
     ("128", "st", "lane//2*16", (4, 4, 0, False)), ("64", "", "lane*8", (2, 2, 0, False)),
     ("64", "", "0", (1, 2, 0, True)), ("32", "", "lane*132", (1, 1, 0, False)),
     ("ldmatrix.x4.trans", "", "lane%8*128", (32, 4, 28, False)), ("wgmma", "", "lane*16", (1, 1, 0, False)),
     ("cp.async.4", "", "lane*4", (1, 1, 0, False))],
)  # fmt: skip
def test_counts(width: str, op: str, expression: str, counts: tuple[int, int, int, bool]) -> None:
    """Wavefronts, ideal, conflicts, and whether phases were served together."""
    found = banks_record(width, op, expression).result
    assert (found["wavefronts"], found["ideal"], found["conflicts"], found["merged"]) == counts
    assert sum(phase["wavefronts"] for phase in found["phases"]) == counts[0]


def test_the_picture_has_a_row_a_wavefront_and_a_column_a_bank() -> None:
    """Every lane stands in its bank; + means that others share the word."""
    found = banks_record("32", "ld", "lane // 16 * 128 + lane % 16 // 2 * 4").result
    (picture,) = found["pictures"]
    assert picture["cells"][0][:9] == ["0+", "2+", "4+", "6+", "8+", "10+", "12+", "14+", ""]
    assert picture["cells"][1][:2] == ["16+", "18+"]
    assert (len(picture["cells"]), len(picture["cells"][0])) == (found["wavefronts"], 32)


def test_the_sentence_names_lanes_and_bank() -> None:
    """Who meets whom where, or why several wavefronts are no conflict."""
    assert (
        "lanes 0-7 want 8 different words of bank 0"
        in banks_record("128", "", "lane*128").result["conclusion"]
    )
    assert (
        "16 bytes a lane take that many, which is no conflict"
        in (banks_record("128", "", "lane*16").result["conclusion"])
    )
    assert "A model: no counter" in banks_record("wgmma", "", "lane*128").result["conclusion"]


def test_lanes_that_are_off() -> None:
    """They cost nothing: half of the phases are left."""
    found = banks_record("128", "ld", "lane*16", "0-7, 16").result
    assert [phase["wavefronts"] for phase in found["phases"]] == [1, 0, 1, 0]
    assert banks_record("32", "ld", "lane*128", "3").result["wavefronts"] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("128", "ld", "lane*8"), "gives lane 1 the address 8, which is not a multiple of 16"),
     (("32", "ld", "lane * foo"), "column 8: 'foo' is not in the language"),
     (("32", "ld", "lane*4", "0-3,40"), "mask '0-3,40', column 5: '40' is no lane"),
     (("ldmatrix.x4", "", "lane*16", "0-3"), "LDSM needs the whole warp"),
     (("ldmatrix.x4", "st", "lane*16"), "loads from shared memory; legal: --op ld"),
     (("48", "ld", "lane*4"), "unknown access '48'; legal: 32, 64, 128"),
     (("32", "up", "lane*4"), "unknown value for --op 'up'; legal: ld, st")],
)  # fmt: skip
def test_bad_questions_name_the_place(arguments: tuple[str, ...], words: str) -> None:
    """One line each."""
    with pytest.raises(UsageError, match=words):
        banks_record(*arguments)  # type: ignore[arg-type]
