"""Whether there is an NVIDIA driver, asked without loading anything of CUDA.

cuda.core answers this question badly: without a driver some of its calls raise a SystemError and
some never return. Everything that touches a device asks here first.
"""

from __future__ import annotations

import ctypes

from ptxlab.errors import MissingError

DRIVER_LIBRARY = "libcuda.so.1"


def has_driver() -> bool:
    """Return whether the driver's library can be loaded; it says nothing about the devices."""
    try:
        ctypes.CDLL(DRIVER_LIBRARY)
    except OSError:
        return False
    return True


def require_driver() -> None:
    """Raise MissingError where there is no driver."""
    if not has_driver():
        raise MissingError(
            f"no NVIDIA driver here ({DRIVER_LIBRARY} cannot be loaded)",
            "install NVIDIA's driver, or leave the device out: --backend model",
            code="no-device",
        )
