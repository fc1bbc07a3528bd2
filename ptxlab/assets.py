"""Finds kernels/ and probes/: in a wheel, in an editable install, in a checkout, and a user's own."""

from __future__ import annotations

import os
from pathlib import Path

from ptxlab.errors import ToolError


def asset_root() -> Path:
    """Return the folder that holds kernels/ and probes/.

    A wheel carries both inside the package; a checkout and an editable install have them beside it.

    Raises:
        ToolError: neither place has them, so the installation is damaged.

    """
    package = Path(__file__).resolve().parent
    for root in (package / "_assets", package.parent):
        if (root / "kernels").is_dir() and (root / "probes").is_dir():
            return root
    raise ToolError(
        f"kernels/ and probes/ are neither in {package / '_assets'} nor in {package.parent}",
        "pip install --force-reinstall ptxlab",
    )


def kernels_folder() -> Path:
    """Return kernels/, which holds include/, gemm/<stage>/ and the kernels that check a GEMM."""
    return asset_root() / "kernels"


def include_folder() -> Path:
    """Return the folder that goes on the compiler's include path (headers are <ptxlab/....cuh>)."""
    return kernels_folder() / "include"


def host_headers_folder() -> Path:
    """Return the folder of what stands for the headers of the driver, which NVRTC refuses."""
    return include_folder() / "nvrtc"


def probe_folders() -> list[Path]:
    """Return the folders to look for probes in; of two probes with one name the first found is used.

    A user's own come before the built-in ones, so that a probe that is being edited is the one that runs:
    ./probes, then the folders of $PTXLAB_PROBES (joined like $PATH). One that cannot be looked into is
    among them, so that whoever lists its probes can say why.
    """
    own = [Path(part) for part in os.environ.get("PTXLAB_PROBES", "").split(os.pathsep) if part]
    found: list[Path] = []
    for folder in (Path("probes"), *own, asset_root() / "probes"):
        try:
            resolved = folder.resolve()
            there = resolved.is_dir()
        except FileNotFoundError:  # the current directory was deleted: nothing can be in it
            continue
        except (OSError, RuntimeError):  # no permission; a link that leads to itself
            resolved, there = folder, True
        if there and resolved not in found:
            found.append(resolved)
    return found
