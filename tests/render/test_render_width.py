"""What a terminal of any width shows: whole cells and whole names, in lines that fit."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from ptxlab.experiments import registry
from ptxlab.experiments.compare import compare_record
from ptxlab.experiments.record import Record
from ptxlab.render.blocks import Block, Grid, Table, meant_for
from ptxlab.render.html import page
from ptxlab.render.show import blocks
from ptxlab.render.svg import draw
from ptxlab.render.terminal import to_terminal

ANSI = re.compile(r"\x1b\[[0-9;]*m")
WIDTHS = (80, 100, 130)
POINTS: list[tuple[str, dict[str, Any]]] = [
    ("ldmatrix", {}),
    ("stmatrix", {}),
    ("movmatrix", {}),
    ("mma", {}),
    ("mma", {"sparse": True, "shape": "m16n8k32"}),
    ("mma", {"shape": "m8n8k4"}),
    ("mma", {"dtype": "b1"}),
    ("wmma", {}),
    ("wgmma", {"shape": "m64n256k16"}),
    ("wgmma", {"a": "reg", "desc": True, "k_step": 4}),
    ("mma-arithmetic", {}),
]


class Screen(io.StringIO):
    """A stdout that says it is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


@pytest.fixture
def on_screen(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Block], int], str]:
    """Return a function that renders for a terminal of a width, without its colours."""

    def render(view: list[Block], width: int) -> str:
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr(sys, "stdout", Screen())
        return ANSI.sub("", to_terminal(view))

    return render


@cache
def document(name: str, given: tuple[tuple[str, Any], ...], *, full: bool = False) -> dict[str, Any]:
    """The document of a probe's point: the model's, and nothing is compiled."""
    probe = registry.find_probe(name)
    case = probe.case("sm_90a", **dict(given))
    record = Record(
        command=["probe", name], backend="model", arch=case.arch, params=case.params | {"full": full}
    )
    outputs = probe.expected(case)
    probe.examine(case, outputs, record)
    record.result |= probe.report(case, outputs, measured=False)
    record.result["conclusion"] = probe.conclude(case, record)
    return record.document()


def cells_of(view: list[Block]) -> list[str]:
    """Every cell of every matrix and the names of its rows and columns."""
    grids = [block for block in view if isinstance(block, Grid)]
    return [
        text
        for grid in grids
        for texts in (*grid.cells, grid.row_names, grid.column_names)
        for text in texts
        if text
    ]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("name", "params"), POINTS, ids=str)
def test_nothing_is_cut(on_screen: Callable[..., str], name: str, params: dict[str, Any], width: int) -> None:
    """No ellipsis, no line that is too long, and every cell as often as it is there."""
    view = blocks(document(name, tuple(params.items())))
    text = on_screen(view, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    words = re.findall(r"\S+", text)
    for cell in set(cells_of(view)):
        assert all(part in words for part in cell.split()), cell


@pytest.mark.parametrize("width", WIDTHS)
def test_everything_can_be_asked_for(on_screen: Callable[..., str], width: int) -> None:
    """64 rows of 64 columns, in as many blocks as it takes."""
    view = blocks(document("wgmma", (), full=True))
    text = on_screen(view, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert len(re.findall(r"\b31 r31\b", text)) == 4  # one of each warp


def test_a_screen_is_enough_for_the_answer(on_screen: Callable[..., str]) -> None:
    """Of wgmma: title, conclusion and closed forms come first, and all of it is a few screens."""
    lines = on_screen(blocks(document("wgmma", ())), 100).splitlines()
    assert lines[1].startswith("Warp w holds rows 16w to 16w + 15 of D")
    assert any("128 * row + 16 * (col // 8 ^ row % 8) + 2 * (col % 8)" in line for line in lines[:30])
    assert len(lines) < 90


def test_a_pipe_gets_whole_matrices_in_lines_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row of A is one line."""
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    text = to_terminal(blocks(document("mma", ())))
    assert re.search(r"^ +1 +4 r0a +4 r0b .*7 r2a +7 r2b$", text, re.MULTILINE)
    assert "continued" not in text


def test_what_is_left_out_is_named(on_screen: Callable[..., str]) -> None:
    """And how to see it; with --full there is no such sentence."""
    assert "--full prints the registers of every lane" in on_screen(blocks(document("mma", ())), 100)
    assert "--full" not in on_screen(blocks(document("mma", (), full=True)), 100)


def test_blocks_of_columns_are_powers_of_two() -> None:
    """As those of matrices are; each has the names of its rows."""
    grid = Grid("g", [[str(c) for c in range(12)]] * 2, [[None] * 12] * 2)
    pieces = grid.cut(7)
    assert [piece.title for piece in pieces] == ["g", "g, continued", "g, continued"]
    assert [piece.column_names for piece in pieces] == [[str(c) for c in range(i, i + 4)] for i in (0, 4, 8)]
    assert grid.cut(12) == [grid]
    assert len(grid.cut(0)) == 12


def test_a_table_that_no_folding_makes_fit_is_listed(on_screen: Callable[..., str]) -> None:
    """A long name stays in one piece; what belongs to it follows."""
    name = "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"
    archs = tuple(f"sm_{number}" for number in (75, 80, 86, 89, 90, 100, 103, 120))
    table = Table("mma", ("PTX", *archs, "SASS"), [(name, None, *["emulated"] * 7, "2 IMMA.16832.S8.S8")])
    lines = on_screen([table], 80).splitlines()
    assert f" {name}" in lines
    assert any(line.strip().startswith("sm_75 -   sm_80 emulated") for line in lines)
    assert max(map(len, lines)) <= 80
    assert "│" not in "".join(on_screen([table], 200))
    assert len(on_screen([table], 200).splitlines()) == 4


def test_a_picture_is_no_wider_than_a_page() -> None:
    """The accumulators of wgmma stand in blocks below each other, with the legend."""
    picture = draw(meant_for(blocks(document("wgmma", ()), "picture"), "picture"))
    width = float(re.search(r'width="(\d+)"', picture)[1])  # type: ignore[index]
    assert width <= 1180
    assert "A cell names the lane that holds the element" in picture
    assert picture.count(">31 r31<") == 4


@pytest.mark.parametrize("name", ["mma", "wmma", "wgmma"])
def test_pictures_have_a_legend(name: str) -> None:
    """Who opens the file alone knows what a cell is."""
    assert "A cell names the lane that holds the element" in draw(blocks(document(name, ()), "picture"))


def test_the_verdict_of_a_comparison_comes_first(on_screen: Callable[..., str]) -> None:
    """Then what is made of what; lanes that do the same are one line."""
    record: Record = compare_record("m16n8k32:s32", "A", "m16n8k32:s8")
    record.command = ["layout", "compare"]
    lines = on_screen(blocks(record.document()), 100).splitlines()
    assert lines[0].startswith("not register-local, needs shuffle: 384 of 512 elements")
    assert any("A0 r0" in line and "pack(C0 r0, C0 r1, C1 r0, C1 r1)" in line for line in lines)
    assert any("0 1 8 9 2 3 10 11" in line for line in lines)
    assert len([line for line in lines if "lane % 4 = " in line]) == 4


def test_a_page_says_that_cells_can_be_hovered() -> None:
    """Where there are matrices; a page of tables does not speak of cells."""
    assert "Hover over a cell" in page(blocks(document("mma", ()), "picture"))
    assert "Hover over a cell" not in page([Table("t", ("a",), [(1,)])])


def test_conflicts_are_told_without_colours(on_screen: Callable[..., str]) -> None:
    """A pipe has none: the sentence goes by lanes."""
    text = " ".join(on_screen(blocks(document("ldmatrix", ())), 100).split())
    assert "lanes 0-7 are matrix 0, the next 8 matrix 1, and so on: two of one matrix in one column" in text
    assert "colour" not in text
