"""Pictures and pages in a real browser: what is drawn is there, fits where it stands, and can be read."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ptxlab.render.palette import contrast

RunCli = Callable[..., subprocess.CompletedProcess[str]]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
SCHEMES = {"light": "1", "dark": "0"}
COMMANDS = {
    "trace": "layout trace",
    "trace of wgmma": "layout trace --instr wgmma.m64n256k16 --operand B",
    "table of mma": "layout table mma --shape m16n8k32 --dtype s8",
    "table of wgmma": "layout table wgmma",
    "where": "layout where wgmma A 33 2",
    "what": "layout what ldmatrix --trans registers 5 0",
    "eval": "layout eval 'Sw<3,4,3> o (16,64):(64,1)' --dtype f16",
    "explain": "layout explain 'logical_divide (8,16):(16,1) <4:1,8:1>'",
    "banks": "banks --width 128 --addr lane*128",
    "swizzle": "swizzle solve --tile 16x64 --also cp.async.16",
    "padding": "swizzle pad --tile 16x32 --read column",
    "probe": "probe ldmatrix --swizzle 128B --pitch 128 --backend model",
}
READABLE = 4.5
"""Least contrast of text: WCAG 2, level AA."""

pytestmark = pytest.mark.skipif(not BROWSER, reason="needs Chromium: no chromium on PATH")

MEASURE = """
const problems = [], contrasts = [];
function backdrop(node) {
  for (; node && node.nodeType === 1; node = node.parentNode) {
    const paper = getComputedStyle(node).backgroundColor;
    if (!/rgba\\(0, 0, 0, 0\\)|transparent/.test(paper)) return paper;
  }
  return PAGE;
}
const page = document.querySelector("rect.page");
const PAGE = page ? getComputedStyle(page).fill : "rgb(255, 255, 255)";
const texts = [...document.querySelectorAll("svg text")].filter(each => each.textContent.trim());
for (const text of texts) {
  const box = text.getBoundingClientRect(), cell = text.parentNode.querySelector(":scope > rect");
  const svg = text.ownerSVGElement.getBoundingClientRect();
  const inCell = cell && !cell.classList.contains("page") && text.parentNode.querySelector(":scope > title")
    && text.parentNode.tagName === "g";
  const room = inCell ? cell.getBoundingClientRect() : svg;
  if (box.left < room.left - .5 || box.right > room.right + .5 || box.top < room.top - 1
      || box.bottom > room.bottom + 1)
    problems.push(text.textContent);
  const style = getComputedStyle(text);
  contrasts.push([style.fill, style.fillOpacity,
    inCell ? getComputedStyle(cell).fill : backdrop(text.ownerSVGElement), text.textContent]);
}
for (const node of document.querySelectorAll("h1, h2, p, th, td, caption"))
  contrasts.push([getComputedStyle(node).color, "1", backdrop(node), node.textContent]);
for (const node of document.querySelectorAll("td, th, p, h1, h2"))
  if (node.scrollWidth > node.clientWidth + 1) problems.push(node.textContent);
if (document.documentElement.scrollWidth > innerWidth) problems.push("the page is wider than the window");
const lit = document.querySelector("[data-key]");
let picked = null;
if (lit && typeof pick === "function") {
  lit.querySelector("*").dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
  const own = [...document.querySelectorAll("[data-key]")];
  picked = own.every(each => each.classList.contains("lit") === (each.dataset.key === lit.dataset.key));
}
const out = document.createElement("pre");
out.id = "measured";
out.textContent = JSON.stringify({problems, contrasts, picked, all: texts.length});
document.body.append(out);
"""


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory, run_cli: RunCli) -> dict[str, Path]:
    """Return a folder for each command with what it drew: picture.svg and page.html."""
    found = {}
    for name, words in COMMANDS.items():
        folder = tmp_path_factory.mktemp("drawn")
        done = run_cli(
            *shlex.split(words), "--svg", str(folder / "picture.svg"), "--html", str(folder / "page.html")
        )
        assert done.returncode == 0, done.stderr
        found[name] = folder
    return found


def browse(*options: str, scheme: str, page: Path) -> subprocess.CompletedProcess[str]:
    """Return what the browser says of a page."""
    return subprocess.run(
        [
            BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--window-size=1300,700", f"--user-data-dir={page.parent / 'profile'}",
            f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", *options, page.as_uri(),
        ],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@cache
def measured(file: Path, scheme: str) -> dict[str, Any]:
    """Return what the browser measures of a page, or of a picture that stands in one."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".svg":
        text = f"<!DOCTYPE html><html><body style='margin:0'>{text}</body></html>"
    probe = file.with_name(f"measure-{file.stem}.html")
    probe.write_text(text.replace("</body>", f"<script>{MEASURE}</script></body>"), encoding="utf-8")
    done = browse("--dump-dom", scheme=scheme, page=probe)
    found = re.search(r'<pre id="measured">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr
    result: dict[str, Any] = json.loads(html.unescape(found[1]))
    return result


def mixed(ink: str, opacity: float, paper: str) -> str:
    """Return "#rrggbb" of an ink that lets the paper through."""
    front, back = (list(map(float, re.findall(r"[\d.]+", each)[:3])) for each in (ink, paper))
    parts = (opacity * a + (1 - opacity) * b for a, b in zip(front, back, strict=True))
    return "#" + "".join(f"{round(part):02x}" for part in parts)


def pixels(png: bytes) -> NDArray[np.uint8]:
    """Return the pixels of a PNG file of 8 bits a channel, shape [rows, columns, channels]."""
    at, data, head = 8, b"", (0, 0, 0, 0)
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            head = struct.unpack(">IIBB", body[:10])
        data += body if kind == b"IDAT" else b""
        at += length + 12
    wide, high, _, colour = head
    channels = {2: 3, 6: 4}[colour]
    lines = np.frombuffer(zlib.decompress(data), dtype=np.uint8).reshape(high, 1 + wide * channels)
    found = np.zeros((high + 1, wide + 1, channels), dtype=np.int64)
    for row, line in enumerate(lines, start=1):
        kind, values = int(line[0]), line[1:].reshape(wide, channels).astype(np.int64)
        if kind in (0, 2):
            found[row, 1:] = values + (found[row - 1, 1:] if kind == 2 else 0)
        elif kind == 1:
            found[row, 1:] = np.cumsum(values, axis=0)
        else:
            for col in range(1, wide + 1):
                a, b, c = found[row, col - 1], found[row - 1, col], found[row - 1, col - 1]
                guess = (a + b) // 2 if kind == 3 else paeth(a, b, c)
                found[row, col] = (values[col - 1] + guess) & 255
        found[row] &= 255
    return found[1:, 1:].astype(np.uint8)


def paeth(a: NDArray[np.int64], b: NDArray[np.int64], c: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the predictor of the PNG filter 4."""
    p = a + b - c
    da, db, dc = abs(p - a), abs(p - b), abs(p - c)
    return np.where((da <= db) & (da <= dc), a, np.where(db <= dc, b, c))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("file", ["picture.svg", "page.html"])
def test_text_fits_and_can_be_read(drawn: dict[str, Path], name: str, file: str, scheme: str) -> None:
    """No text leaves its cell or the page, and all has the contrast that WCAG asks for, in light and dark."""
    found = measured(drawn[name] / file, scheme)
    assert found["all"] > 16
    assert found["problems"] == []
    weak = [
        (text, ink, paper)
        for ink, opacity, paper, text in found["contrasts"]
        if text.strip() and contrast(mixed(ink, float(opacity), paper), mixed(paper, 1, paper)) < READABLE
    ]
    assert weak == []


@pytest.mark.parametrize("name", COMMANDS)
def test_hovering_lights_all_that_belongs_to_the_lane(drawn: dict[str, Path], name: str) -> None:
    """A real event in a real page."""
    assert measured(drawn[name] / "page.html", "light")["picked"] is True


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["trace", "table of mma"])
@pytest.mark.parametrize("file", ["picture.svg", "page.html"])
def test_the_picture_is_not_blank(drawn: dict[str, Path], name: str, file: str, scheme: str) -> None:
    """The pixels: a page that is light or dark, and many colours on it."""
    shot = drawn[name] / f"{file}-{scheme}.png"
    browse(f"--screenshot={shot}", scheme=scheme, page=drawn[name] / file)
    seen = pixels(shot.read_bytes())[..., :3]
    colours, counts = np.unique(seen.reshape(-1, 3), axis=0, return_counts=True)
    assert (counts > 150).sum() >= 8
    page = seen[2, 2].astype(int)
    assert (page.min() > 240) if scheme == "light" else (page.max() < 60)
    assert len(colours) > 100
