"""What each instruction does, as functions on numpy arrays. The single source of every map and table.

In Python and in notebooks, which show a map as a picture:

>>> from ptxlab import isa
>>> a = isa.mma.a_map(16, 16, 16)  # A of m16n8k16 with 16-bit elements
>>> a.entries()[9]
{'lane': 1, 'register': 0, 'slot': 1, 'row': 0, 'col': 3}
>>> a._repr_svg_()[:4]
'<svg'
"""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if not TYPE_CHECKING:  # a type checker shall go on to find misspelt names

    def __getattr__(name: str) -> object:
        """Return a module of the package, imported when it is first asked for."""
        if name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    own = (name for name in globals() if name.startswith("__"))
    return sorted({*own, *(module.name for module in iter_modules(__path__))})
