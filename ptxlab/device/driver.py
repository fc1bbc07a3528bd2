"""The driver's answers as errors. Loaded by the worker alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from cuda.bindings import driver
from cuda.core._utils.cuda_utils import (
    CUDAError,
)  # cuda.core raises it and has no public name for it

from ptxlab.device.presence import require_driver
from ptxlab.errors import DeviceError, MissingError

__all__ = ["CUDAError", "checked", "device_count", "faults"]


def checked(result: tuple[Any, ...]) -> Any:
    """Return what a driver call returned beside its status: nothing, a value, or a tuple of them.

    Raises:
        CUDAError: the status is an error; the text is its name and the driver's explanation.

    """
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        name, text = (call(status)[1].decode() for call in (driver.cuGetErrorName, driver.cuGetErrorString))
        raise CUDAError(f"{name}: {text}")
    return values[0] if len(values) == 1 else tuple(values) or None


@contextlib.contextmanager
def faults(doing: str) -> Iterator[None]:
    """Turn the errors of the driver and of cuda.core into a DeviceError that says what was done."""
    try:
        yield
    except CUDAError as error:
        text = " ".join(str(error).split())
        raise DeviceError(f"{text} ({doing})", code="device-fault") from error


def device_count() -> int:
    """Return how many devices there are.

    Raises:
        MissingError: there is no driver, it does not start, or it sees no device.

    """
    require_driver()
    try:
        checked(driver.cuInit(0))
        return int(checked(driver.cuDeviceGetCount()))
    except CUDAError as error:
        raise MissingError(f"no usable NVIDIA device: {error}", "nvidia-smi", code="no-device") from error
