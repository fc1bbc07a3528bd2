"""What a notebook shows of an object: a picture, drawn when it is asked for."""

from __future__ import annotations

import ptxlab


class Shown:
    """An object with a picture.

    What draws stands above what is drawn, so that the object asks the package as a whole, which knows both.
    An object too large to be drawn has no picture, and a notebook prints it as text.
    """

    def _repr_svg_(self) -> str | None:
        return ptxlab.picture(self)

    def _repr_html_(self) -> str | None:
        drawn = ptxlab.picture(self)
        return drawn and f'<div style="overflow-x: auto">{drawn}</div>'
