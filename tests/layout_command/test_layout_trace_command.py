"""``ptxlab layout trace`` as a user types it: defaults, options, forms, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

RunCli = Callable[..., CompletedProcess[str]]


def values(done: CompletedProcess[str]) -> dict[str, int]:
    """Return every name of the trace with its number; all checks held."""
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["checks"]
    assert all(check["ok"] for check in document["checks"])
    return {step["name"]: step["value"] for step in document["result"]["trace"]}


def test_without_options_it_shows_something_instructive(run_here: RunCli) -> None:
    """No number that matters is 0: the swizzle moves the element, into another matrix, lane and slot."""
    at = values(run_here("layout", "trace", "--json"))
    telling = (
        "stage",
        "bank",
        "part",
        "matrix",
        "line",
        "lane",
        "register",
        "slot",
        "D_register",
        "s_matrix",
    )
    assert all(at[name] for name in telling)
    assert at["plain"] != at["shared"]
    assert at["c_byte"] == at["byte"]


def test_by_hand(run_here: RunCli) -> None:
    """A[37, 21] of a 128x64 tile of halves: row 37 holds chunk 2 at place 2 ^ 5 = 7; lane 22 gets it."""
    at = values(run_here("layout", "trace", "--at", "37,21", "--tile", "128x64", "--json"))
    assert at["shared"] == 37 * 128 + 7 * 16 + 5 * 2
    assert (at["bank"], at["part"]) == (30, 1)
    assert (at["lane"], at["register"], at["slot"]) == (22, 0, 1)
    assert (at["D_lane"], at["D_register"]) == (22, 1)


def test_wgmma_reads_through_its_descriptor(run_here: RunCli) -> None:
    """B of the largest shape: its tile has as many rows as the instruction has columns."""
    at = values(run_here("layout", "trace", "--instr", "wgmma.m64n256k16", "--operand", "B", "--json"))
    assert at["read"] == at["shared"]
    assert at["SBO"] == 1024


@pytest.mark.parametrize("dtype", ["f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"])
@pytest.mark.parametrize("operand", ["A", "B"])
@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
def test_every_type_has_defaults(run_here: RunCli, dtype: str, operand: str, swizzle: str) -> None:
    """The tile and the instruction follow the type."""
    values(
        run_here("layout", "trace", "--dtype", dtype, "--operand", operand, "--swizzle", swizzle, "--json")
    )


def test_each_form_has_every_step(run_here: RunCli, tmp_path: Path) -> None:
    """Names and formulas stand in each; the picture frames the element once a matrix."""
    picture, page = tmp_path / "way.svg", tmp_path / "way.html"
    for form in ("table", "csv", "md"):
        done = run_here("layout", "trace", "--format", form, "--svg", str(picture), "--html", str(page))
        plain = done.stdout.replace("\\", "")  # Markdown escapes what it would obey
        assert "16 * (c // 8 ^ r % 8)" in plain
        assert "c_byte" in plain
    assert picture.read_text(encoding="utf-8").count('class="frame"') == 5
    assert "16 * (c // 8 ^ r % 8)" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--at 37;21", "element '37;21', column 3: not of the form ROW,COL; legal: such as 37,21"),
        ("--at 37,", "column 4"),
        ("--at x", "column 1"),
        (
            "--at 512,0",
            "element '512,0', column 1: row 512 is outside the matrix of 512x256; legal: 0 to 511",
        ),
        ("--at 0,256", "element '0,256', column 3: column 256 is outside the matrix"),
        ("--tile 128", "tile '128', column 4: not of the form RxC"),
        ("--tile 128xx64", "tile '128xx64', column 5: not of the form RxC"),
        ("--tile 100x64", "tile '100x64', column 1: a tile of 100x64 is not whole operands"),
        ("--tile 128x96", "tile '128x96', column 5: a row of the tile has 192 bytes"),
        ("--matrix 512x100", "matrix '512x100', column 5: a row of the matrix has 200 bytes"),
        ("--dtype f64", "unknown type 'f64'"),
        ("--swizzle 3,3,3", "unknown swizzle '3,3,3'; legal: none, 32B, 64B, 128B"),
        ("--operand C", "unknown operand 'C'"),
        ("--major N", "unknown major 'N'"),
        ("--copy ld", "unknown copy 'ld'"),
        ("--instr mma16816", "instruction 'mma16816', column 4: neither mma.mMnNkK nor wgmma.m64nNkK"),
        ("--instr mma.m16n8k17", "instruction 'mma.m16n8k17', column 5: mma of f16 has no shape m16n8k17"),
        ("--instr wgmma.m64n12k16", "column 7: wgmma of f16 has no shape m64n12k16"),
        ("--dtype s8 --major MN", ".trans moves 16 bits"),
        ("--stages 15", "15 stages of 16384 bytes; legal: 1 to 14"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(run_here: RunCli, words: str, said: str) -> None:
    """With the value and what would be legal."""
    done = run_here("layout", "trace", *words.split())
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[0]


@pytest.mark.parametrize(("instr", "thread"), [("mma.m16n8k16", "lane"), ("wgmma.m64n64k16", "warp 2 lane")])
def test_hovering_lights_what_belongs_to_one_thread(
    run_here: RunCli, tmp_path: Path, instr: str, thread: str
) -> None:
    """Not the stage, the row or the lane of another warp that happens to have the same colour."""
    page = tmp_path / "page.html"
    found = run_here("layout", "trace", "--instr", instr, "--html", str(page), "--json")
    pictures = json.loads(found.stdout)["result"]["pictures"]
    keys = {
        each["title"][0]: {key for row in each.get("keys", []) for key in row} - {None} for each in pictures
    }
    assert keys["4"] == {f"{thread} {lane}" for lane in range(32)}
    assert keys["5"] <= keys["4"]
    assert keys["1"] == set()
    if instr.startswith("wgmma"):
        assert not keys["2"] & keys["4"]
    else:
        assert keys["2"] <= keys["4"] == keys["3"]
    shown = re.findall(r'data-key="([^"]*)"', page.read_text(encoding="utf-8"))
    assert {key for key in shown if not key.startswith(thread)} == (
        {f"{pictures[0]['title']} {4 * stage}" for stage in range(4)} | (keys["2"] - keys["4"])
    )
