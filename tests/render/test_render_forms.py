"""Blocks in every form: what goes in comes out whole, and nothing breaks the form."""

import csv
import io
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from ptxlab.render import html, svg
from ptxlab.render.blocks import Block, Grid, Table, Text
from ptxlab.render.csv import to_csv
from ptxlab.render.markdown import to_markdown
from ptxlab.render.palette import colour
from ptxlab.render.terminal import to_terminal

pytestmark = pytest.mark.usefixtures("capsys")  # stdout is no terminal, even under pytest -s

ANSI = re.compile(r"\x1b\[[0-9;]*m")
SVG = "{http://www.w3.org/2000/svg}"
LONG = "x" * 400


def matrix(title: str = "matrix 0") -> Grid:
    """Return an 8x8 matrix in which each lane owns two neighbours."""
    lanes = [[4 * row + column // 2 for column in range(8)] for row in range(8)]
    return Grid(
        title,
        [[f"T{lane}" for lane in row] for row in lanes],
        [list(row) for row in lanes],
        keys=[[f"lane {lane}" for lane in row] for row in lanes],
    )


def sample() -> list[Block]:
    """Return every kind of block, with what each form must escape."""
    return [
        Text("A heading & <more>", "heading"),
        Text("plain"),
        matrix(),
        matrix("matrix 1"),
        Table("a | title", ("lane", "text", "number"), [(0, 'a|b,"c"<d>', 1.5), (7, LONG, None)]),
        Text("it agrees", "good"),
        Text("it does not", "bad"),
    ]


class Screen(io.StringIO):
    """A stdout that says it is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


@pytest.fixture
def on_screen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that renders for a terminal with these environment variables."""

    def render(blocks: list[Block], **environment: str) -> str:
        for name, value in {"TERM": "xterm-256color", "COLUMNS": "100", **environment}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "stdout", Screen())
        return to_terminal(blocks)

    return render


def test_a_pipe_gets_whole_lines_without_colour() -> None:
    """Nothing is wrapped, cut, coloured or padded at the end."""
    text = to_terminal(sample())
    assert "\x1b" not in text
    assert LONG in text
    assert "…" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_a_terminal_gets_its_width_and_the_colours(on_screen: Callable[..., str]) -> None:
    """A long cell is folded, never cut; a lane stands on its colour."""
    text = on_screen(sample(), COLORTERM="truecolor")
    assert max(len(ANSI.sub("", line)) for line in text.splitlines()) <= 100
    assert ANSI.sub("", text).count("x") >= len(LONG)
    red, green, blue = (int(colour(7).paper[i : i + 2], 16) for i in (1, 3, 5))
    assert f"48;2;{red};{green};{blue}m" in text


def test_matrices_stand_side_by_side_where_they_fit(on_screen: Callable[..., str]) -> None:
    """A wide terminal shows both titles on one line, a narrow one does not."""
    wide = ANSI.sub("", on_screen([matrix("left"), matrix("right")], COLUMNS="200"))
    narrow = ANSI.sub("", on_screen([matrix("left"), matrix("right")], COLUMNS="60"))
    assert re.search(r"left +right", wide)
    assert not re.search(r"left +right", narrow)


@pytest.mark.parametrize(
    "environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": "xterm", "COLORTERM": ""}]
)
def test_colours_are_left_out_where_they_are_unwanted_or_would_merge(
    on_screen: Callable[..., str], environment: dict[str, str]
) -> None:
    """NO_COLOR is obeyed; 16 colours cannot tell 32 lanes apart, so none are used."""
    text = on_screen([matrix()], **environment)
    assert "T31" in text
    assert not re.search(r"\x1b\[[0-9;]*[34]\d[;m]", text)


def test_csv_reads_back() -> None:
    """Split at the empty lines and without what begins with #, tables and matrices are there whole."""
    parts = [
        list(csv.reader(line for line in part.splitlines() if not line.startswith("#")))
        for part in to_csv(sample()).split("\n\n")
    ]
    first, second, table = (part for part in parts if part)
    assert first[0] == ["", *map(str, range(8))]
    assert second[8] == ["7", "T28", "T28", "T29", "T29", "T30", "T30", "T31", "T31"]
    assert table == [["lane", "text", "number"], ["0", 'a|b,"c"<d>', "1.5"], ["7", LONG, ""]]


def test_csv_names_each_table_and_keeps_the_sentences() -> None:
    """In lines that begin with #: a title before its table, the conclusion where it stands."""
    table = Table("costs", ("layout", "wavefronts"), [("as it is", 8)])
    blocks = [
        Text("A tile", "heading"),
        Text("two\nlines"),
        table,
        matrix(),
        Text("It conflicts.", "conclusion"),
    ]
    parts = to_csv(blocks).split("\n\n")
    assert parts[0] == "# A tile\n# two\n# lines"
    assert parts[1] == "# costs\nlayout,wavefronts\nas it is,8"
    assert parts[2].startswith("# matrix 0\n,0,1,2,")
    assert parts[3] == "# It conflicts.\n"


def test_csv_keeps_a_row_that_looks_like_a_comment() -> None:
    """Its first field is quoted; a line break in a cell does not break the table."""
    text = to_csv([Table("", ("name", "number"), [("# no comment", 1), ("two\n\nlines", 2)])])
    assert text == 'name,number\n"# no comment","1"\ntwo; lines,2\n'


def test_csv_keeps_every_digit() -> None:
    """A table for people rounds, a file for programs does not."""
    table = Table("", ("value", "flag"), [(1 / 3, True)])
    assert to_csv([table]) == f"value,flag\n{1 / 3!r},true\n"
    assert "0.333333 " in to_terminal([table])


def test_markdown_tables_keep_their_columns() -> None:
    """A bar or a star in a cell does not end the cell or start emphasis."""
    lines = to_markdown(sample()).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    unescaped = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert unescaped == {4, 10}  # three columns, and eight with the row's name
    assert r"| 0 | a\|b," in "\n".join(rows)
    assert "## A heading & \\<more\\>" in lines


def test_a_picture_is_whole_and_needs_nothing() -> None:
    """It parses, holds each cell in its lane's colour, and refers to no other file."""
    text = svg.draw(sample())
    assert svg.draw(sample()) == text
    assert not re.search(r"(href|src|url\()", text)
    tree = ET.fromstring(text)  # noqa: S314 - we wrote it
    cells = tree.findall(f".//{SVG}g[@data-n]")
    assert len(cells) == 2 * 64
    for cell in cells:
        rect = cell.find(f"{SVG}rect")
        assert rect is not None
        assert rect.get("fill") == colour(int(cell.get("data-n", ""))).paper
    shown = " ".join(tree.itertext())
    assert all(words in shown for words in ("A heading & <more>", "it agrees", "it does not", "T31"))


def test_a_picture_keeps_all_matrices_inside_its_frame() -> None:
    """Seven matrices flow into rows; none is drawn beyond the right or lower edge."""
    tree = ET.fromstring(svg.draw([matrix(f"matrix {i}") for i in range(7)]))  # noqa: S314
    width, height = float(tree.get("width", "")), float(tree.get("height", ""))
    drawing = svg.draw_grid(matrix())
    spots = [
        tuple(map(float, re.findall(r"[\d.]+", group.get("transform", ""))))
        for group in tree.findall(f"{SVG}g")
    ]
    assert len(set(spots)) == 7
    assert all(x + drawing.width <= width and y + drawing.height <= height for x, y in spots)


class Page(HTMLParser):
    """Counts what belongs to each lane, and refuses anything from elsewhere or left open."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str] = []
        self.open: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the lane."""
        named = dict(attrs)
        assert not {"src", "href"} & named.keys()
        self.keys += [named["data-key"] or ""] if "data-key" in named else []
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Pass over what is closed at once."""

    def handle_endtag(self, tag: str) -> None:
        """Close what was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collect the words."""
        self.words.append(data)


def test_a_page_knows_everything_of_a_lane() -> None:
    """Lane 7: two cells in each matrix and its row of the table."""
    reader = Page()
    reader.feed(html.page(sample()))
    assert reader.open == []
    assert reader.keys.count("lane 7") == 2 * 2 + 1
    assert "A heading & <more>" in reader.words


def keys_of(*blocks: Block) -> list[str]:
    """Return what a page says its cells and rows belong to."""
    reader = Page()
    reader.feed(html.page(blocks))
    return reader.keys


def test_a_colour_means_something_in_its_own_picture_alone() -> None:
    """Stage 0 of one matrix is not bank 0 of another: both are coloured 0, and neither lights the other."""
    first, second = (Grid(title, [["a", "b"]], [[0, 1]]) for title in ("stages", "banks"))
    found = keys_of(first, second)
    assert len(found) == len(set(found)) == 4


def test_lanes_of_several_warps_are_different_threads() -> None:
    """A row of a table belongs to the warp's own lane, counted through all warpgroups."""
    rows = [(0, 1, 4), (1, 1, 4), (1, 1, 5)]
    assert keys_of(Table("t", ("warpgroup", "warp", "lane"), rows)) == [
        *("warp 1 lane 4", "warp 5 lane 4", "warp 5 lane 5")
    ]


def test_a_matrix_cut_to_the_width_of_a_page_keeps_its_keys() -> None:
    """Its parts are one picture."""
    grid = Grid("wide", [[str(number) for number in range(64)]], [[number // 32 for number in range(64)]])
    assert len(set(keys_of(grid))) == 2


def test_a_matrix_may_name_rows_and_columns_and_leave_cells_bare() -> None:
    """Names replace the numbers, and None has no colour."""
    grid = Grid("g", [["a", "b"]], [[None, 3]], ["bank"], ["even", "odd"])
    assert to_terminal([grid]).split() == ["g", "even", "odd", "bank", "a", "b"]
    assert svg.draw([grid]).count("data-n") == 1
    assert to_csv([grid]) == "# g\n,even,odd\nbank,a,b\n"


def test_no_blocks_are_no_text() -> None:
    """A view may have nothing to say."""
    assert to_terminal([]) == ""
    assert to_csv([]) == ""
