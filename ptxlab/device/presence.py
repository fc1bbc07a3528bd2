"""Whether there is an NVIDIA driver, asked without loading anything of CUDA.

cuda.core answers this question badly: without a driver some of its calls raise a SystemError and
some never return. Everything that touches a device asks here first.
"""

from __future__ import annotations

import ctypes

DRIVER_LIBRARY = "libcuda.so.1"


def has_driver() -> bool:
    """Return whether the driver's library can be loaded; it says nothing about the devices."""
    try:
        ctypes.CDLL(DRIVER_LIBRARY)
    except OSError:
        return False
    return True
