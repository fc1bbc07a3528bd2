"""Clock, power and what holds the clock down, from NVML; a timing can do without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

THROTTLE_REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""The bits of NVML's clock event reasons (NVML API reference, "NvmlClocksEventReasons")."""


def throttle_text(reasons: int) -> str:
    """Return the names of the bits that are set, joined by "+"; "" for none."""
    bits = [1 << position for position in range(reasons.bit_length()) if reasons >> position & 1]
    return "+".join(THROTTLE_REASONS.get(bit, hex(bit)) for bit in bits)


@dataclass(frozen=True)
class Reading:
    """What NVML says at one moment: SM clock in MHz, board power in W, throttle reasons."""

    clock_mhz: int
    power_w: float
    throttle: str


class Clocks:
    """Reads one device through NVML.

    Raises:
        LookupError: NVML is not here, or does not tell for this device.

    """

    def __init__(self, pci_bus_id: str) -> None:
        self._nvml = _nvml()
        try:
            self._device = self._nvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
            self.read()
        except self._nvml.NVMLError as error:
            raise LookupError(f"NVML: {error}") from error

    def read(self) -> Reading:
        """Return what NVML says now: the clock of this moment, the power as NVML averages it."""
        nvml, device = self._nvml, self._device
        return Reading(
            nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM),
            nvml.nvmlDeviceGetPowerUsage(device) / 1000,
            throttle_text(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)),
        )


def driver_version() -> str:
    """Return the driver's version ("580.159.04"), or "" without NVML."""
    try:
        return str(_nvml().nvmlSystemGetDriverVersion())
    except LookupError:
        return ""


def _nvml() -> Any:
    try:
        import pynvml

        pynvml.nvmlInit()
    except ImportError as error:
        raise LookupError("nvidia-ml-py is not installed") from error
    except pynvml.NVMLError as error:
        raise LookupError(f"NVML: {error}") from error
    return pynvml
