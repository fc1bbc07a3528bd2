"""From Python: the examples run, and notebooks get pictures."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from ptxlab import isa, layout

SVG = "{http://www.w3.org/2000/svg}"
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["ptxlab.isa", "ptxlab.layout"])
def test_the_examples_are_true(name: str) -> None:
    """Every line of the docstrings of the two packages that a notebook imports."""
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted >= 3
    assert found.failed == 0


def texts(drawn: str | None) -> list[str]:
    """Return the texts of a picture."""
    assert drawn is not None
    return [each.text or "" for each in ET.fromstring(drawn).iter(f"{SVG}text")]  # noqa: S314 - our own


def test_a_layout_is_drawn_with_its_offsets() -> None:
    """Its text is the title, and every offset is in a cell."""
    rows = layout.Layout((4, 8), (8, 1))
    shown = texts(rows._repr_svg_())
    assert shown[0] == str(rows)
    assert {str(offset) for offset in range(32)} <= set(shown)


def test_a_swizzle_is_drawn_as_where_its_chunks_go() -> None:
    """Row by row the XOR of row and column."""
    drawn = layout.Swizzle(3, 4, 3)._repr_svg_()
    assert drawn is not None
    cells = [
        group.findtext(f"{SVG}text") or ""
        for group in ET.fromstring(drawn).iter(f"{SVG}g")  # noqa: S314 - our own
        if group.get("data-n") is not None
    ]
    assert cells == [str(row ^ column) for row in range(8) for column in range(8)]


def test_a_register_map_is_drawn_with_its_lanes() -> None:
    """Lane, register and slot of every element."""
    shown = texts(isa.mma.a_map(16, 16, 16)._repr_svg_())
    assert "16 x 16 elements in the registers of 32 lanes" in shown
    assert "1 r0b" in shown


def test_html_is_the_picture_in_a_box_that_scrolls() -> None:
    """So that a wide one does not stretch the notebook."""
    tile = layout.parse_layout("Sw<3,4,3> o smem_ptr[16b] o (8,64):(64,1)")
    html, svg = tile._repr_html_(), tile._repr_svg_()
    assert html is not None
    assert svg is not None
    assert svg in html
    assert html.startswith('<div style="overflow-x: auto">')


def test_what_is_too_large_to_draw_is_text() -> None:
    """No picture, and a repr that makes the same layout."""
    large = layout.Layout((1 << 20, 2), (1, 1 << 20))
    assert large._repr_svg_() is None
    assert large._repr_html_() is None
    assert eval(repr(large), {"Layout": layout.Layout}) == large  # noqa: S307 - what repr promises


def test_every_exported_name_is_there() -> None:
    """So is every module; one that does not exist is told like any other missing name."""
    for name in layout.EXPORTS:
        assert getattr(layout, name) is not None
        assert name in dir(layout)
    assert layout.banks.BANKS == 32
    for package in (isa, layout):
        with pytest.raises(AttributeError, match="no attribute 'mna'"):
            _ = package.mna


def test_a_picture_loads_what_draws_when_it_is_asked_for() -> None:
    """Not before: models stay light."""
    code = (
        "import sys; from ptxlab import isa, layout; print('numpy' in sys.modules);"
        "tile = layout.Layout(4, 1); isa.mma; print('ptxlab.render.notebook' in sys.modules);"
        "tile._repr_svg_(); print('ptxlab.render.notebook' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8", check=True
    )
    assert done.stdout.split() == ["False", "False", "True"]


def test_completion_finds_the_modules() -> None:
    """What a person may type after the dot."""
    assert {"mma", "wgmma", "ldmatrix"} <= set(dir(isa))
    assert {"banks", "algebra", "Layout"} <= set(dir(layout))
    for package in (isa, layout):
        assert not {"find_spec", "import_module", "TYPE_CHECKING"} & set(dir(package))


def test_a_trace_of_a_barrier_is_told_and_drawn() -> None:
    """Step by step; where a count leaves its range it says so, and ends."""
    trace = isa.mbarrier.run(isa.mbarrier.parse_trace("init 2; arrive; wait 0; arrive; wait 0"))
    assert repr(trace).splitlines()[2:] == [
        "step 3: 0 phases complete, parity 0, 1 pending, tx 0, the wait blocks",
        "step 4: 1 phases complete, parity 1, 2 pending, tx 0",
        "step 5: 1 phases complete, parity 1, 2 pending, tx 0, the wait passes",
    ]
    assert {"arrivals pending", "blocks", "passes"} <= set(texts(trace._repr_svg_()))
    broken = isa.mbarrier.run(isa.mbarrier.parse_trace("init 1; arrive; arrive by 2"))
    assert repr(broken).splitlines()[-1] == f"then {broken.broken}"


def test_a_composed_layout_is_its_text() -> None:
    """And the text makes the same one."""
    tile = layout.parse_layout("Sw<3,4,3> o smem_ptr[16b] o (8,64):(64,1)")
    assert repr(tile) == "parse_layout('Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)')"
    assert eval(repr(tile), {"parse_layout": layout.parse_layout}) == tile  # noqa: S307 - what repr promises


def test_an_operation_by_hand_is_told_and_drawn() -> None:
    """Step by step as text; as a picture with its operands, its result and its steps."""
    done = layout.explain("complement 4:2 24")
    assert repr(done).splitlines()[0] == "complement 4:2 24"
    assert repr(done).splitlines()[-1] == "complement of 4:2 and 24 is (2,3):(1,8)."
    shown = texts(done._repr_svg_())
    assert {"A = 4:2, 1 x 4", "R = (2,3):(1,8), 2 x 3", "by hand"} <= set(shown)
