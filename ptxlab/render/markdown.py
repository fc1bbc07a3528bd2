"""Blocks as Markdown: pipe tables that forges and editors show as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ptxlab.render.blocks import Block, Table, Text
from ptxlab.render.text import cell_text, grid_names, is_numeric


def to_markdown(blocks: Iterable[Block]) -> str:
    """Return Markdown with an empty line between the blocks."""
    return "\n\n".join(_one(block) for block in blocks) + "\n"


def _one(block: Block) -> str:
    if isinstance(block, Text):
        return _paragraph(block)
    if isinstance(block, Table):
        right = [is_numeric(block, column) for column in range(len(block.columns))]
        rows = [[cell_text(cell) for cell in row] for row in block.rows]
        return _pipes(block.title, block.columns, rows, right)
    row_names, column_names = grid_names(block)
    rows = [[name, *cells] for name, cells in zip(row_names, block.cells, strict=True)]
    return _pipes(block.title, ["", *column_names], rows, [False] * (1 + len(column_names)))


def _paragraph(block: Text) -> str:
    text = _escaped(block.text)
    if block.style == "heading":
        return f"## {text}"
    return f"**{text}**" if block.style in ("conclusion", "bad") else text


def _pipes(title: str, columns: Sequence[str], rows: list[list[str]], right: Sequence[bool]) -> str:
    lines = [f"**{_escaped(title)}**", ""] if title else []
    lines.append(_line(columns))
    lines.append(_line(["---:" if each else "---" for each in right]))
    return "\n".join([*lines, *(_line([_escaped(cell) for cell in row]) for row in rows)])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    """Return the text such that Markdown shows it as it is."""
    for mark in "\\`*_|<>[]":
        text = text.replace(mark, "\\" + mark)
    return text.replace("\n", " ")
