"""``ptxlab layout eval`` and ``layout explain`` as a user types them."""

from __future__ import annotations

import csv
import io
import json
import re
import resource
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest

from ptxlab.layout.notation import parse_layout

RunCli = Callable[..., CompletedProcess[str]]
ATOM = "(64,16):(16,1)"


def result(done: CompletedProcess[str]) -> dict[str, Any]:
    """Return the result of the JSON document on stdout."""
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["result"]
    return found


@pytest.mark.parametrize("command", ["eval", "print"])
def test_the_chunks_of_the_32_byte_mode(run_here: RunCli, command: str) -> None:
    """Rows of 32 bytes: the first four stay as they are, the next four swap their two chunks."""
    found = result(run_here("layout", command, f"Sw<1,4,3> o {ATOM}", "--dtype", "f16", "--json"))
    assert found["chunks"] == [[0, 1]] * 4 + [[1, 0]] * 4
    assert found["layout"] == f"Sw<1,4,3> o smem_ptr[16b](unset) o {ATOM}"
    assert found["tma_mode"] == "32B"


@pytest.mark.parametrize(
    ("swizzle", "mode", "bits"),
    [("Sw<1,4,3>", "32B", 0x10), ("Sw<2,4,3>", "64B", 0x30), ("Sw<3,4,3>", "128B", 0x70)],
)
def test_the_atoms_are_the_modes_of_tma(run_here: RunCli, swizzle: str, mode: str, bits: int) -> None:
    """At every byte offset from 0 to 8191 the formula of the mode: address bits 7 up onto bits 4 up."""
    found = result(run_here("layout", "eval", f"{swizzle} o 8192:1", "--dtype", "u8", "--json", "--table"))
    moved = [entry["offset"] for entry in found["table"]]
    assert moved == [byte ^ ((byte >> 3) & bits) for byte in range(8192)]
    assert found["tma_mode"] == mode
    assert f"TMA's {mode} mode" in found["conclusion"]


@pytest.mark.parametrize("swizzle", ["Sw<3,4,4>", "Sw<2,5,2>", "Sw<3,5,3>"])
def test_other_swizzles_are_no_mode_of_tma(run_here: RunCli, swizzle: str) -> None:
    """One that differs at a single offset is another."""
    found = result(run_here("layout", "eval", f"{swizzle} o {ATOM}", "--dtype", "f16", "--json"))
    assert found["tma_mode"] is None
    assert "none of TMA's modes" in found["conclusion"]


def test_without_a_type_the_swizzle_moves_offsets(run_here: RunCli) -> None:
    """And there is no bank, no chunk and no mode to speak of."""
    found = result(run_here("layout", "eval", f"Sw<1,4,3> o {ATOM}", "--json"))
    assert (found["banks"], found["chunks"], found["tma_mode"]) == (None, None, None)
    offsets = np.array(found["grid"])
    plain = np.arange(1024).reshape(64, 16)
    assert np.array_equal(offsets, plain ^ ((plain >> 3) & 0x10))


def test_the_table_is_the_function(run_here: RunCli) -> None:
    """Every coordinate with its offset, byte and bank; the picture holds the same offsets."""
    text = "Sw<2,4,3> o ((8,2),16):((16,128),1)"
    found = result(run_here("layout", "eval", text, "--dtype", "f16", "--table", "--json"))
    layout = parse_layout(text).of_elements(16)
    for entry in found["table"]:
        place = layout(entry["index"])
        assert entry["offset"] == place
        assert (entry["byte"], entry["bank"]) == (2 * place, 2 * place // 4 % 32)
        assert layout(eval(entry["coordinate"])) == place  # noqa: S307 - a tuple of numbers
        row, column = entry["index"] % 16, entry["index"] // 16
        assert (found["grid"][row][column], found["banks"][row][column]) == (place, entry["bank"])
    assert len(found["table"]) == found["size"] == 256
    assert found["row_names"][9] == "(1,1)"
    printed = run_here("layout", "eval", text, "--dtype", "f16", "--table", "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(printed[printed.index("index,coordinate") :])))
    assert [int(row["offset"]) for row in rows[:256]] == layout.offsets().tolist()


@pytest.mark.parametrize(
    ("text", "cosize", "injective", "distinct"),
    [
        ("(4,8):(1,4)", 32, True, 32),
        ("(4,2):(1,3)", 7, False, 7),
        ("(2,2):(0,5)", 6, False, 2),
        ("(4,(2,2)):(1,(4,8))", 16, True, 16),
        ("5 o 4:2", 7, True, 4),
    ],
)
def test_size_cosize_and_whether_offsets_are_shared(
    run_here: RunCli, text: str, cosize: int, injective: bool, distinct: int
) -> None:
    """Counted, and told in the sentence."""
    found = result(run_here("layout", "eval", text, "--json"))
    assert (found["cosize"], found["injective"], found["distinct"]) == (cosize, injective, distinct)
    assert found["conclusion"].startswith("Injective" if injective else "Not injective")


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("(16,8):(1,16)", [[0, 1]]),
        ("(8,64):(64,1)", [[0, 1, 2, 3, 4, 5, 6, 7]]),
        ("Sw<3,4,3> o (8,64):(64,1)", [[c ^ r for c in range(8)] for r in range(8)]),
        ("(8,4):(4,1)", None),
        ("(8,16):(1,16)", [[0]]),
        ("Sw<1,2,3> o (8,16):(16,1)", None),
        ("64:1", None),
    ],
)
def test_chunks_where_there_are_rows_of_them(
    run_here: RunCli, text: str, chunks: list[list[int]] | None
) -> None:
    """Rows or columns of whole 16-byte chunks that stay whole; anything else has no such map."""
    assert result(run_here("layout", "eval", text, "--dtype", "f16", "--json"))["chunks"] == chunks


def test_what_a_person_sees(run_here: RunCli) -> None:
    """The picture, the chunks, the sentence; of a large layout the corner."""
    text = run_here("layout", "eval", f"Sw<1,4,3> o {ATOM}", "--dtype", "f16").stdout
    assert "offsets, 64 x 16" in text
    assert "chunks of 16 bytes" in text
    assert text.splitlines()[1].startswith("Injective: 1024 coordinates")
    large = ("layout", "eval", "(256,256):(256,1)")
    assert "(the first 16 x 16 shown)" in run_here(*large).stdout
    assert "(the first 64 x 64 shown)" in run_here(*large, "--format", "csv").stdout


def test_an_operation_explained(run_here: RunCli) -> None:
    """Definition, steps, proof, result."""
    done = run_here("layout", "explain", "composition (4,8):(1,4) (2,2):(1,16)")
    assert done.returncode == 0
    for said in ("R(c) = A(B(c))", "by hand", "proof by enumeration", "is (2,2):(1,16)."):
        assert said in done.stdout
    document = json.loads(run_here("layout", "explain", "complement 4:2 24", "--json").stdout)
    assert document["result"]["layout"] == "(2,3):(1,8)"
    assert [check["ok"] for check in document["checks"]] == [True] * 3


def test_a_layout_that_does_not_exist_ends_with_1(run_here: RunCli) -> None:
    """The steps so far, the reason, and a failed check."""
    done = run_here("layout", "explain", "logical_divide (10,2):(1,16) 4", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert document["result"]["layout"] is None
    assert document["result"]["reason"] == "a step of 4 and a mode of 10: neither divides the other"
    assert len(document["result"]["steps"]) == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("eval", "(4,8:(1,4)"), "layout '(4,8:(1,4)', column 5: ')' is expected, not ':'"),
        (("eval", "(4,8):(1,4,2)"), "column 1: shape (4,8) and stride (1,4,2) do not nest alike"),
        (("eval", "4:1", "--dtype", "e2m3"), "column 1: elements of 6 bits have no address each"),
        (("eval", "4:1", "--dtype", "f17"), "unknown type 'f17'"),
        (
            ("eval", "smem_ptr[16b] o 4:1", "--dtype", "f32"),
            "column 1: smem_ptr[16b](unset) o 4:1 has elements",
        ),
        (("eval", "Sw<1,0,3> o 8:1", "--dtype", "f16"), "splits a 16-bit element"),
        (("eval", "(4096,4096):(1,4096)"), "16777216 values; legal in an evaluation: 1048576"),
        (("eval", "(512,512):(1,512)", "--table"), "262144 values; legal in a table: 65536"),
        (("explain", "compositoin 4 4"), "column 1: unknown operation 'compositoin'"),
        (("explain", "complement 4:2 x"), "column 16: a number"),
    ],
)
def test_bad_input_is_one_line_with_its_place(run_here: RunCli, words: tuple[str, ...], said: str) -> None:
    """Exit 2, no traceback."""
    done = run_here("layout", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_a_million_coordinates_are_evaluated_at_once(run_here: RunCli) -> None:
    """By numpy: in a small part of the time that a loop over them takes; others may use the cores, too."""
    started = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    result(run_here("layout", "eval", "(1024,1024):(1024,1)", "--dtype", "f16", "--json"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - started < 5


def test_the_answer_names_what_the_swizzle_counts(run_here: RunCli) -> None:
    """Bytes, where elements have a width; a swizzle of elements is told how to write itself."""
    found = result(run_here("layout", "eval", "Sw<3,3,3> o (64,64):(64,1)", "--dtype", "f16", "--json"))
    assert "Its numbers count bytes; of elements it is Sw<3,2,3>." in found["conclusion"]
    assert "Sw<3,3,3> of elements would be 128B: write Sw<3,4,3>." in found["conclusion"]


def test_an_operation_is_drawn_with_its_operands_and_its_steps(run_here: RunCli, tmp_path: Path) -> None:
    """A, B and the result as matrices; the steps with what they give."""
    picture, page = tmp_path / "steps.svg", tmp_path / "steps.html"
    operation = "logical_divide (8,16):(16,1) <4:1,8:1>"
    found = result(
        run_here("layout", "explain", operation, "--json", "--svg", str(picture), "--html", str(page))
    )
    names = [f"{each['name']} = {each['layout']}" for each in found["pictures"]]
    assert names[0] == "A = (8,16):(16,1)"
    assert names[1:3] == ["B, mode 0 = 4:1", "B, mode 1 = 8:1"]
    assert names[3] == "R = ((4,2),(8,2)):((16,64),(1,8))"
    for text in (picture.read_text(encoding="utf-8"), page.read_text(encoding="utf-8")):
        assert all(name in text for name in names)
        assert all(step["what"] in text and step["value"] in text for step in found["steps"])


def test_a_layout_is_drawn(run_here: RunCli, tmp_path: Path) -> None:
    """Every offset in its cell; without a type those of one offset have one colour."""
    picture = tmp_path / "layout.svg"
    found = result(run_here("layout", "eval", "(4,4):(1,2)", "--json", "--svg", str(picture)))
    cell = r'<g data-n="(\d+)" data-key="[^"]*"><title>[^<]*: (\d+)</title>'
    groups = re.findall(cell, picture.read_text(encoding="utf-8"))
    assert [int(number) for number, _ in groups] == [offset for row in found["grid"] for offset in row]
    assert all(number == text for number, text in groups)


def test_a_screen_is_enough_for_a_large_layout(run_here: RunCli) -> None:
    """The answer first, then a corner of it; a row of 64 is no corner."""
    lines = run_here("layout", "eval", "Sw<3,4,3> o (64,64):(64,1)", "--dtype", "f16").stdout.splitlines()
    assert lines[1].startswith("Injective: 4096 coordinates")
    assert len(lines) < 50
    assert "shown" not in run_here("layout", "eval", "64:1").stdout


def test_without_a_type_the_answer_says_what_the_swizzle_counts(run_here: RunCli) -> None:
    """Offsets, where nobody said how wide an element is."""
    told = result(run_here("layout", "eval", "Sw<3,3,3> o (8,64):(64,1)", "--json"))["conclusion"]
    assert "numbers count offsets" in told
    assert "count" not in result(run_here("layout", "eval", "(8,64):(64,1)", "--json"))["conclusion"]
