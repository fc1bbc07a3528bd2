"""The names of kernels as people write them."""

from __future__ import annotations

import re

_START = re.compile(r"_Z(N?)L?")
_LENGTH = re.compile(r"L?([1-9]\d*)")
_UNNAMED = "_GLOBAL__N_"
"""What the name of an unnamed namespace begins with."""


def readable_name(symbol: str) -> str:
    """Return a kernel's name with its namespaces: "ns::tmpl" of "_ZN2ns4tmplILi3EEEvPf".

    Types, template arguments and unnamed namespaces are left out, so that several kernels may share one. A
    symbol that is not mangled, or not in the way of a kernel, is its own name. Source: Itanium C++ ABI 5.1.
    """
    start = _START.match(symbol)
    if not start:
        return symbol
    names, place = [], start.end()
    while length := _LENGTH.match(symbol, place):
        place = length.end() + int(length[1])
        names.append(symbol[length.end() : place])
        if not start[1]:  # not nested: one name
            break
    shown = [name for name in names if not name.startswith(_UNNAMED)]
    return "::".join(shown) if shown and place <= len(symbol) else symbol


def is_called(symbol: str, wanted: str) -> bool:
    """Whether a kernel is meant by a name: its symbol, or its readable name, with or without namespaces."""
    return symbol == wanted or f"::{readable_name(symbol)}".endswith(f"::{wanted}")
