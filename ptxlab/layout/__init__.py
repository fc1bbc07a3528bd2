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

from ptxlab.layout.algebra import (
    Layout,
    NoSuchLayoutError,
    coalesce,
    compatible,
    complement,
    joined,
    left_inverse,
    packed,
    right_inverse,
)
from ptxlab.layout.notation import Composed, parse_layout
from ptxlab.layout.operations import explain
from ptxlab.layout.swizzle import MODES, Swizzle, parse_swizzle
from ptxlab.layout.tiling import (
    blocked_product,
    composition,
    downcast,
    flat_divide,
    logical_divide,
    logical_product,
    raked_product,
    recast,
    tiled_divide,
    tiled_product,
    upcast,
    zipped_divide,
    zipped_product,
)

__all__ = [
    "MODES",
    "Composed",
    "Layout",
    "NoSuchLayoutError",
    "Swizzle",
    "blocked_product",
    "coalesce",
    "compatible",
    "complement",
    "composition",
    "downcast",
    "explain",
    "flat_divide",
    "joined",
    "left_inverse",
    "logical_divide",
    "logical_product",
    "packed",
    "parse_layout",
    "parse_swizzle",
    "raked_product",
    "recast",
    "right_inverse",
    "tiled_divide",
    "tiled_product",
    "upcast",
    "zipped_divide",
    "zipped_product",
]
