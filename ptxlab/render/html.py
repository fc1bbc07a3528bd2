"""Blocks as one self-contained page: hovering a cell lights everything that belongs to it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from itertools import groupby

from ptxlab.render.blocks import Block, Cell, Grid, Table, Text
from ptxlab.render.palette import colour
from ptxlab.render.svg import DARK, draw_grid, pieces
from ptxlab.render.text import cell_text, is_numeric, lane_of, thread_of, titled

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --faint: #696969; --good: #1a7a3c; --bad: #b3261e;
  --warning: #8a5a00; }
@media (prefers-color-scheme: dark) { :root { --faint: #999; --good: #5fd38d; --bad: #ff8a80;
  --warning: #f0b429; } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.grids { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 2rem; margin: 1rem 0; }
svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; margin: 1rem 0; font: 13px/1.5 ui-monospace, monospace; }
caption { text-align: left; font: 600 15px system-ui, sans-serif; padding-bottom: .4rem; }
th, td { padding: .15rem .7rem; text-align: left; border-bottom: 1px solid var(--line); }
.wide { overflow-x: auto; } .right { text-align: right; }
.conclusion { font-weight: 600; } .good { color: var(--good); } .bad { color: var(--bad); }
.warning { color: var(--warning); } .faint { color: var(--faint); }
[data-key] { transition: opacity .1s; }
body.picking [data-key]:not(.lit) { opacity: .18; }
@media (prefers-color-scheme: dark) { body { background: #15181d; color: #e6e8eb; } DARK }
""".replace("DARK", DARK)

_SCRIPT = """
function pick(event) {
  const under = event.target.closest("[data-key]");
  document.body.classList.toggle("picking", under !== null);
  for (const each of document.querySelectorAll("[data-key]"))
    each.classList.toggle("lit", under !== null && each.dataset.key === under.dataset.key);
}
document.addEventListener("mouseover", pick);
"""


def page(blocks: Iterable[Block]) -> str:
    """Return the page, whose title is the first heading; it loads nothing from elsewhere."""
    title, rest = titled(blocks)
    if any(isinstance(block, Grid) for block in rest):
        rest.insert(0, Text("Hover over a cell: what belongs together stays lit.", "faint"))
    body = "\n".join(_group(kind, list(group)) for kind, group in groupby(rest, key=type))
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def _group(kind: type, blocks: list[Block]) -> str:
    """Return neighbouring blocks of one kind; matrices stand side by side."""
    inner = "\n".join(_one(block) for block in blocks)
    return f'<div class="grids">\n{inner}\n</div>' if kind is Grid else inner


def _one(block: Block) -> str:
    if isinstance(block, Text):
        tag = "h2" if block.style == "heading" else "p"
        return f'<{tag} class="{block.style}">{escape(block.text)}</{tag}>'
    if isinstance(block, Table):
        return _table(block)
    return "\n".join(_picture(piece) for piece in pieces(block))


def _picture(grid: Grid) -> str:
    drawing = draw_grid(grid)
    return (
        f'<svg width="{drawing.width:.0f}" height="{drawing.height:.0f}" '
        f'viewBox="0 0 {drawing.width:.0f} {drawing.height:.0f}" role="img" '
        f'aria-label="{escape(grid.title)}">\n{drawing.body}</svg>'
    )


def _table(table: Table) -> str:
    right = [' class="right"' if is_numeric(table, i) else "" for i in range(len(table.columns))]
    head = "".join(f"<th{r}>{escape(n)}</th>" for r, n in zip(right, table.columns, strict=True))
    rows = []
    for number, row in enumerate(table.rows):
        lane = lane_of(table, number)
        key = thread_of(table, number)
        data = "" if key is None else f' data-key="{key}"'
        cells = "".join(
            _field(cell, attributes, lane if name == "lane" else None)
            for name, cell, attributes in zip(table.columns, row, right, strict=True)
        )
        rows.append(f"<tr{data}>{cells}</tr>")
    body = "\n".join(rows)
    return (
        f'<div class="wide"><table>\n<caption>{escape(table.title)}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def _field(cell: Cell, attributes: str, lane: int | None) -> str:
    if lane is not None:
        tint = colour(lane)
        attributes += f' style="background:{tint.paper};color:{tint.ink}"'
    return f"<td{attributes}>{escape(cell_text(cell))}</td>"
