"""ptxlab: what tensor-core instructions do, predicted by a model and proven on silicon."""

__version__ = "0.1.0"
