"""ptxlab: what tensor-core instructions do, predicted by a model and proven on silicon."""

__version__ = "0.1.0"


def picture(thing: object) -> str | None:
    """Return an object of isa/ or layout/ as an SVG; None where there is nothing to draw."""
    from ptxlab.render.notebook import drawn

    return drawn(thing)
