"""From a JSON document to text: the document itself, or a command's view of it."""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
from typing import Any

from ptxlab.errors import printable
from ptxlab.render.blocks import Block, Medium, meant_for


def text_of(document: dict[str, Any], form: str) -> str:
    """Return what goes to stdout for a document, in the form "json", "table", "csv" or "md".

    Tables follow the width and the colours of stdout; they are neither cut nor coloured in a pipe.
    """
    if form == "json":
        return as_json(document)
    if form == "csv":
        from ptxlab.render.csv import to_csv

        return to_csv(blocks(document, "csv"))
    if form == "md":
        from ptxlab.render.markdown import to_markdown

        return to_markdown(blocks(document, "md"))
    from ptxlab.render.terminal import to_terminal

    return to_terminal(blocks(document, "table"))


def blocks(document: dict[str, Any], medium: Medium = "table") -> list[Block]:
    """Return the blocks that show the document of a command that ran, there.

    Names of files and kernels, and what tools say, reach no terminal before they are printable.
    """
    name = next(word for word in document["command"] if not word.startswith("-"))
    module = importlib.import_module(f"ptxlab.render.views.{name}")
    return meant_for(module.view(_printable(document)), medium)


def _printable(value: Any) -> Any:
    """Return the value, every text in it printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    return value


def as_json(document: dict[str, Any]) -> str:
    """Return the document as JSON: indented for eyes on a terminal, one line for programs.

    JSON has no word for infinity and NaN: they become null.
    """
    indent = 2 if sys.stdout is not None and sys.stdout.isatty() else None
    return json.dumps(_plain(document), indent=indent, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """Return the value in JSON's own types; arrays become lists, paths text."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return os.fspath(value) if isinstance(value, os.PathLike) else value
