"""The device memory of one job: filled or poisoned, and guarded. Loaded by the worker alone."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

import numpy as np
from cuda.bindings import driver
from cuda.core import Stream
from numpy.typing import NDArray

from ptxlab.device import canary
from ptxlab.device.driver import checked, faults
from ptxlab.device.job import POISON, Array, Buffer
from ptxlab.errors import UsageError, unknown_name

ALIGNMENT = 1024
"""Bytes. The strictest user is a tile with a 128-byte swizzle (PTX ISA, "Swizzling Modes")."""


class Memory:
    """The buffers of one job, freed when the context ends.

    Raises:
        UsageError: a buffer's data has another size than the buffer.
        DeviceError: the device has not enough memory.

    """

    def __init__(self, buffers: Iterable[Buffer], stream: Stream) -> None:
        self._stream = stream
        self._buffers = {buffer.name: buffer for buffer in buffers}
        self._addresses: dict[str, int] = {}
        self._allocations: list[int] = []

    def __enter__(self) -> Self:
        try:
            for buffer in self._buffers.values():
                self._addresses[buffer.name] = self._allocate(buffer)
                self._fill(buffer)
        except BaseException:
            self._free()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._free()

    def address(self, name: str, copy: int = 0) -> int:
        """Return the device address of a buffer, or of one of its copies (of the only one there is).

        Raises:
            UsageError: there is no such buffer.

        """
        if name not in self._addresses:
            raise unknown_name("buffer", name, self._addresses)
        buffer = self._buffers[name]
        return self._addresses[name] + copy % buffer.copies * _stride(buffer)

    def copies(self, name: str) -> int:
        """Return how many there are of a buffer.

        Raises:
            UsageError: there is no such buffer.

        """
        if name not in self._buffers:
            raise unknown_name("buffer", name, self._buffers)
        return self._buffers[name].copies

    def replicate(self) -> None:
        """Give every copy of a buffer what the first one holds."""
        for name, buffer in self._buffers.items():
            for copy in range(1, buffer.copies):
                target, source = self.address(name, copy), self._addresses[name]
                checked(driver.cuMemcpyDtoDAsync(target, source, buffer.nbytes, self._stream.handle))
        self._stream.sync()

    def download(self) -> dict[str, NDArray[np.uint8]]:
        """Return the bytes of every buffer that is to be brought back."""
        with faults("downloading the outputs"):
            return {
                name: self._read(self._addresses[name], buffer.nbytes)
                for name, buffer in self._buffers.items()
                if buffer.download
            }

    def damaged(self) -> list[str]:
        """Return one sentence for each buffer beside which something was written."""
        found = []
        for name, buffer in self._buffers.items():
            if buffer.canary:
                start = self._addresses[name]
                with faults(f"reading the canaries of {name}"):
                    before = self._read(start - canary.ZONE, canary.ZONE)
                    after = self._read(start + buffer.nbytes, canary.ZONE)
                found.append(canary.damage(name, before, after))
        return [sentence for sentence in found if sentence]

    def _allocate(self, buffer: Buffer) -> int:
        """Return the aligned address inside a new allocation that has room for the zones and the copies."""
        zone = canary.ZONE if buffer.canary else 0
        total = buffer.nbytes + 2 * zone + ALIGNMENT + (buffer.copies - 1) * _stride(buffer)
        with faults(f"allocating {total} bytes for {buffer.name}"):
            allocation = int(checked(driver.cuMemAlloc(total)))
        self._allocations.append(allocation)
        return -(-(allocation + zone) // ALIGNMENT) * ALIGNMENT

    def _fill(self, buffer: Buffer) -> None:
        start = self._addresses[buffer.name]
        with faults(f"filling {buffer.name}"):
            if buffer.data is not None:
                if buffer.data.nbytes != buffer.nbytes:
                    raise UsageError(
                        f"buffer {buffer.name} has {buffer.nbytes} bytes, and its data {buffer.data.nbytes}"
                    )
                self._write(start, buffer.data)
            elif buffer.nbytes:
                stream = self._stream.handle
                checked(driver.cuMemsetD8Async(start, POISON, buffer.nbytes, stream))
            if buffer.canary:
                self._write(start - canary.ZONE, canary.pattern())
                self._write(start + buffer.nbytes, canary.pattern())
            self._stream.sync()

    def _write(self, address: int, data: Array) -> None:
        source = np.ascontiguousarray(data)
        stream = self._stream.handle
        if source.nbytes:
            checked(driver.cuMemcpyHtoDAsync(address, source.ctypes.data, source.nbytes, stream))
        self._stream.sync()  # the source may go away now

    def _read(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        target = np.empty(nbytes, np.uint8)
        stream = self._stream.handle
        if nbytes:
            checked(driver.cuMemcpyDtoHAsync(target.ctypes.data, address, nbytes, stream))
        self._stream.sync()
        return target

    def _free(self) -> None:
        """Free everything. After a fault this fails too, and the fault is what is to be told."""
        for allocation in self._allocations:
            driver.cuMemFree(allocation)
        self._allocations.clear()


def _stride(buffer: Buffer) -> int:
    """Return how many bytes lie between two copies; they begin behind the zone after the first."""
    guarded = buffer.nbytes + (canary.ZONE if buffer.canary else 0)
    return -(-guarded // ALIGNMENT) * ALIGNMENT
