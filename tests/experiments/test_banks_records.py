"""``ptxlab banks``: the counts of one warp instruction, its picture and its sentence."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments.banks import banks_record
from ptxlab.render.show import text_of


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


def test_the_sums_of_many_are_those_that_counters_show() -> None:
    """8844480 loads of 16 bytes a lane, 128 bytes apart: 32 wavefronts each, of which 28 are conflicts."""
    assert banks_record("128", "ld", "lane*128", times=8_844_480).result["total"] == {
        "instructions": 8_844_480,
        "wavefronts": 283_023_360,
        "ideal": 35_377_920,
        "conflicts": 247_645_440,
    }


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


def test_the_sentence_follows_the_phases() -> None:
    """One phase may conflict while others are off, or are joined."""
    for width, expression, mask, words in (
        ("128", "lane*64", "0-7", "4 wavefronts, 1 would do: 3 more, for lanes 0, 2, 4, 6 want 4 different"),
        ("64", "lane*128", "0,1", "2 wavefronts, 1 would do: 1 more, for lanes 0-1 want 2 different words"),
        ("128", "(lane>=16)*(lane%8)*(16+16*(lane<24))", "", "4 wavefronts, 3 would do: 1 more, for lanes"),
        ("128", "lane*16", "0-7", "1 wavefront, no conflicts."),
        ("128", "lane*16", "0-7,16", "2 wavefronts in 2 phases, no conflicts: 16 bytes a lane take"),
    ):
        assert banks_record(width, "", expression, mask).result["conclusion"].startswith(words)


@pytest.mark.parametrize(
    ("expression", "words"),
    [("lane//2*4", "lanes 0-1 want the same word of bank 0 in one phase, and lanes of cp.async.4 do not"),
     ("lane//16%2*128 + lane%2*128", "lanes 0-31 want 3 words of bank 0 in one phase, and lanes"),
     ("lane*128", "lanes 0-31 want 32 different words of bank 0 in one phase.")],
)  # fmt: skip
def test_lanes_of_a_copy_do_not_share_words(expression: str, words: str) -> None:
    """The sentence says so, and the picture has a lane in every wavefront."""
    found = banks_record("cp.async.4", "", expression).result
    assert words in found["conclusion"]
    assert all(any(row) for row in found["pictures"][0]["cells"])
    assert sum(bool(cell) for row in found["pictures"][0]["cells"] for cell in row) == 32


@pytest.mark.parametrize(
    ("width", "expression", "mask", "first"),
    [("128", "lane*16-64", "4-31", [None, None, None, None, 0, 16]),
     ("ldmatrix.x1", "(7-lane)*16", "", [112, 96, 80, 64, 48, 32, 16, 0]),
     ("32", "4 // (lane - 1)", "2", [None, None, 4, None])],
)  # fmt: skip
def test_addresses_of_lanes_that_take_no_part_do_not_matter(
    width: str, expression: str, mask: str, first: list[int | None]
) -> None:
    """Those that are off, and those beyond what the instruction reads."""
    assert banks_record(width, "", expression, mask).result["addresses"][: len(first)] == first


def test_lanes_that_are_off() -> None:
    """They cost nothing: half of the phases are left."""
    found = banks_record("128", "ld", "lane*16", "0-7, 16").result
    assert [phase["wavefronts"] for phase in found["phases"]] == [1, 0, 1, 0]
    assert banks_record("32", "ld", "lane*128", "3").result["wavefronts"] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("128", "ld", "lane*8"), "gives lane 1 the address 8, which is not a multiple of 16"),
     (("32", "ld", "lane * foo"), "column 8: 'foo' is not in the language"),
     (("32", "ld", "lane*"), "'lane[*]', column 6: invalid syntax"),
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


def test_the_address_may_stand_alone(run_here: Any) -> None:
    """With or without --addr, but once; --access is --width."""
    short = run_here("banks", "lane * 8", "--access", "64", "--json")
    long = run_here("banks", "--addr", "lane * 8", "--width", "64", "--json")
    assert json.loads(short.stdout)["result"] == json.loads(long.stdout)["result"]
    for words in ([], ["lane * 4", "--addr", "lane * 4"]):
        refused = run_here("banks", *words)
        assert refused.returncode == 2
        assert "banks needs the address of each lane, once; legal: --addr EXPR" in refused.stderr


def test_all_banks_stand_side_by_side(run_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In 100 columns, of several phases too."""
    document = json.loads(run_here("banks", "lane*128", "--width", "128", "--json").stdout)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text_of(document, "table")).splitlines()
    assert [line.split() for line in lines if line.split()[:2] == ["0", "1"]] == [[str(n) for n in range(32)]]
    assert max(map(len, lines)) <= 100


def test_banks_are_drawn(run_here: Any, tmp_path: Path) -> None:
    """Every wavefront in the picture, and in the page."""
    picture, page = tmp_path / "banks.svg", tmp_path / "banks.html"
    run_here("banks", "lane*128", "--width", "128", "--svg", str(picture), "--html", str(page))
    for text in (picture.read_text(encoding="utf-8"), page.read_text(encoding="utf-8")):
        assert "row 0:7, column" in text
        assert "lanes 0-7 want 8 different words of bank 0" in text
