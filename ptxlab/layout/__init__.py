"""Where things lie: layouts and their algebra, address expressions, swizzles, the bank model, the solver.

In Python and in notebooks, which show a layout or a swizzle as a picture:

>>> from ptxlab import layout
>>> rows = layout.Layout((4, 8), (8, 1))
>>> rows(2, 3), rows(14), rows.size, rows.cosize
(19, 19, 32, 32)
>>> str(layout.logical_divide(rows, (layout.Layout(2, 1), layout.Layout(4, 1))))
'((2,2),(4,2)):((8,16),(1,4))'
>>> str(layout.composition(layout.Layout((6, 2), (8, 2)), layout.Layout((4, 3), (3, 1))))
'((2,2),3):((24,2),8)'

As text, with the swizzle of TMA's 128-byte mode in front: the third 16-byte chunk of row 5 is its eighth.

>>> tile = layout.parse_layout("Sw<3,4,3> o smem_ptr[16b] o (64,64):(64,1)")
>>> tile(5, 16) % 64 // 8
7
>>> tile.swizzle
Swizzle(bits=3, base=4, shift=3)
>>> tile._repr_html_()[:4], tile._repr_svg_()[:4]
('<div', '<svg')

And an operation by hand:

>>> for step in layout.explain("complement 4:2 24").steps:
...     print(step.what, "->", step.value)
modes by stride -> 4:2
blocks of 1 lie 2 apart: 2 of them fill the gap -> 2:1
blocks of 8 up to 24: 3 of them -> 3:8
result -> (2,3):(1,8)
"""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING

_NAMES = {
    "algebra": (
        "Layout",
        "NoSuchLayoutError",
        "coalesce",
        "compatible",
        "complement",
        "joined",
        "left_inverse",
        "packed",
        "right_inverse",
    ),
    "notation": ("Composed", "parse_layout"),
    "operations": ("explain",),
    "swizzle": ("MODES", "Swizzle", "parse_swizzle"),
    "tiling": (
        "blocked_product",
        "composition",
        "downcast",
        "flat_divide",
        "logical_divide",
        "logical_product",
        "raked_product",
        "recast",
        "tiled_divide",
        "tiled_product",
        "upcast",
        "zipped_divide",
        "zipped_product",
    ),
}
EXPORTS = {name: module for module, names in _NAMES.items() for name in names}
"""What the package offers by itself: name -> module. A command that needs one module loads no other."""

if not TYPE_CHECKING:  # a type checker shall go on to find misspelt names

    def __getattr__(name: str) -> object:
        """Return what EXPORTS names, or a module of the package, imported when it is first asked for."""
        if name in EXPORTS:
            return getattr(import_module(f"{__name__}.{EXPORTS[name]}"), name)
        if name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    own = (name for name in globals() if name.startswith("__"))
    return sorted({*own, *EXPORTS, *(module.name for module in iter_modules(__path__))})
