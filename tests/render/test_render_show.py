"""From the document to text: the view of the command, and JSON that any reader takes."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ptxlab.cli.common import save_pictures
from ptxlab.errors import UsageError
from ptxlab.experiments.record import Record
from ptxlab.render.blocks import Block, Table, Text
from ptxlab.render.progress import reporter
from ptxlab.render.show import as_json, blocks, text_of


def example_view(document: dict[str, Any]) -> list[Block]:
    """Return what a view returns: text and a table made from the document alone."""
    rows = [(each["lane"], each["value"]) for each in document["result"]["registers"]]
    return [Text("An example", "heading"), Table("Registers", ("lane", "value"), rows)]


@pytest.fixture
def document(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the document of a command ``example`` that has a view."""
    module = ModuleType("ptxlab.render.views.example")
    module.view = example_view  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    registers = [{"lane": lane, "value": 2.5 * lane} for lane in range(2)]
    return Record(command=["--debug", "example"], result={"registers": registers}).document()


def test_the_view_is_found_by_the_command(document: dict[str, Any]) -> None:
    """Options before the command's name do not hide it."""
    assert blocks(document)[0] == Text("An example", "heading")


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("csv", "# An example\n\n# Registers\nlane,value\n0,0.0\n1,2.5\n"),
        ("md", "| 1 | 2.5 |"),
        ("table", "   1     2.5"),
        ("json", '"registers": [{"lane": 0, "value": 0.0}'),
    ],
)
def test_each_form_shows_the_values(document: dict[str, Any], form: str, expected: str) -> None:
    """One record, four forms."""
    assert expected in text_of(document, form)


@pytest.mark.parametrize("form", ["csv", "md", "table"])
def test_control_characters_in_a_document_are_shown_and_not_obeyed(
    document: dict[str, Any], form: str
) -> None:
    """A kernel or a file may be called anything; a terminal that shows the name is not to be steered."""
    document["result"]["registers"][0]["value"] = "k\x1b[31m\u202e.cu\r"
    shown = text_of(document, form)
    assert "31m" in shown
    assert [each for each in shown if not each.isprintable() and each != "\n"] == []
    assert json.loads(text_of(document, "json"))["result"]["registers"][0]["value"] == "k\x1b[31m\u202e.cu\r"


def test_json_has_no_word_for_infinity() -> None:
    """Strict readers refuse NaN and Infinity, so they are null, also inside arrays."""
    text = as_json({"a": float("nan"), "b": [np.float32("inf"), 1.5], "c": np.array([1.0, np.nan])})
    assert json.loads(text, parse_constant=pytest.fail) == {
        "a": None,
        "b": [None, 1.5],
        "c": [1.0, None],
    }


def test_json_takes_numpy_and_paths() -> None:
    """Results are computed with numpy; the document holds JSON's own types."""
    text = as_json({"n": np.int64(3), "flag": np.True_, "path": Path("a/b"), "rows": ((1,),)})
    assert json.loads(text) == {"n": 3, "flag": True, "path": "a/b", "rows": [[1]]}


def test_json_refuses_what_it_would_have_to_invent() -> None:
    """An object that is no value is a fault, not its repr."""
    with pytest.raises(TypeError, match="not JSON serializable"):
        as_json({"bad": object()})


def test_progress_is_silent_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """A log must not fill with bars."""
    with reporter(quiet=False) as report:
        report("case", 1, 2)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("quiet", [True, False])
def test_progress_is_drawn_on_stderr_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, quiet: bool
) -> None:
    """Stdout belongs to the result; square brackets in a name are text, not markup."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with reporter(quiet=quiet) as report:
        report("case [x4]", 1, 2)
        report("case [x4]", 2, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("case [x4]" in err) is not quiet


def test_a_picture_that_cannot_be_drawn_does_not_keep_the_page_away(
    document: dict[str, Any], tmp_path: Path
) -> None:
    """--svg needs a matrix and --html does not: the page is written, and then the refusal is told."""
    record = Record(command=document["command"], result=document["result"])
    with pytest.raises(UsageError, match="no matrix to draw"):
        save_pictures(record, tmp_path / "picture.svg", tmp_path / "page.html", Path("probe.py"))
    assert "An example" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not (tmp_path / "picture.svg").exists()
