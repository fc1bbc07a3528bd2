"""What modules and launches must fulfil, checked before the driver sees them.

The driver's own answer names no cause, and a cubin that ends too early makes it crash.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np

from ptxlab.device.job import Argument, Dim3, Launch, MapArgument, Scalar
from ptxlab.errors import ToolError, UsageError
from ptxlab.isa import tensor_map

POINTER_BYTES = 8

ELF_CUDA = (190).to_bytes(2, "little")
"""e_machine of a cubin (EM_CUDA)."""

NO_BITS = 8
"""sh_type of a section that takes no room in the file (the ELF specification)."""


def check_cubin(name: str, cubin: bytes) -> None:
    """Check that bytes are an ELF file for CUDA that is all there.

    Raises:
        ToolError: they are something else, or the end is missing.

    """
    if cubin[:4] != b"\x7fELF" or cubin[18:20] != ELF_CUDA:
        raise ToolError(f"the cubin '{name}' is no cubin: no ELF file for CUDA", code="bad-cubin")
    try:
        whole = len(cubin) >= _elf_size(cubin)
    except struct.error:  # even the tables of its parts are not all there
        whole = False
    if not whole:
        raise ToolError(
            f"the cubin '{name}' is damaged: after {len(cubin)} bytes the rest of it is missing",
            "build it again; ptxlab cache clear removes what was built before",
            code="bad-cubin",
        )


def _elf_size(elf: bytes) -> int:
    """Return where the last section or table of a 64-bit ELF file ends (the ELF specification)."""
    segments, sections = struct.unpack_from("<QQ", elf, 32)
    segment_size, segment_count, section_size, section_count = struct.unpack_from("<4H", elf, 54)
    ends: list[int] = [segments + segment_size * segment_count, sections + section_size * section_count]
    for index in range(section_count):
        kind, start, length = struct.unpack_from("<4xI16xQQ", elf, sections + index * section_size)
        ends.append(start if kind == NO_BITS else start + length)
    return max(ends)


def check_arguments(launch: Launch, sizes: Sequence[int]) -> None:
    """Compare the arguments of a launch with the kernel's own parameters.

    The driver reads as many bytes as the kernel declares: a scalar that is too narrow brings
    garbage along, one that is too wide is cut off, and neither is an error to it.

    Args:
        launch: the launch.
        sizes: the size of each parameter in bytes, as the cubin has it.

    Raises:
        UsageError: the number of arguments, or the size of one, is not the kernel's.

    """
    if len(launch.arguments) != len(sizes):
        raise UsageError(f"kernel {launch.kernel} has {len(sizes)} parameters; {len(launch.arguments)} given")
    for index, (argument, expected) in enumerate(zip(launch.arguments, sizes, strict=True)):
        given = _size(launch.kernel, index, argument)
        if given != expected:
            raise UsageError(
                f"kernel {launch.kernel}, argument {index}: the parameter has {expected} bytes, "
                f"{_what(argument)} has {given}"
            )


def _what(argument: Argument) -> str:
    if isinstance(argument, np.generic):
        return str(argument.dtype.name)
    return "a buffer's pointer" if isinstance(argument, str) else "a tensor map"


def _size(kernel: str, index: int, argument: Argument) -> int:
    if isinstance(argument, str):
        return POINTER_BYTES
    if isinstance(argument, MapArgument):
        return tensor_map.NBYTES
    if isinstance(argument, np.generic):
        return argument.nbytes
    raise UsageError(
        f"kernel {kernel}, argument {index}: {argument!r} is a {type(argument).__name__}; "
        "legal: a buffer's name, or a numpy scalar (np.int32(3)), whose width is known, or a MapArgument"
    )


def same_bits(value: Scalar) -> Scalar:
    """Return the unsigned integer with the bits of a scalar, which are all that the kernel gets.

    Raises:
        UsageError: it has another size than 1, 2, 4 or 8 bytes.

    """
    if value.nbytes not in (1, 2, 4, 8):
        raise UsageError(
            f"a scalar of {value.nbytes} bytes ({value.dtype.name}) cannot be passed by value; "
            "legal: 1, 2, 4, 8"
        )
    bits: Scalar = np.frombuffer(value.tobytes(), f"u{value.nbytes}")[0]
    return bits


def grid_in_clusters(launch: Launch) -> Dim3:
    """Return the grid counted in clusters.

    Raises:
        UsageError: the launch has no whole number of clusters.

    """
    cluster = launch.cluster or (1, 1, 1)
    if any(blocks % size for blocks, size in zip(launch.grid, cluster, strict=True)):
        raise UsageError(
            f"kernel {launch.kernel}: the grid {_times(launch.grid)} (in blocks) "
            f"is no multiple of the cluster {_times(cluster)}"
        )
    x, y, z = (blocks // size for blocks, size in zip(launch.grid, cluster, strict=True))
    return x, y, z


def check_shape(launch: Launch, *, threads: int, shared_bytes: int) -> None:
    """Check the sizes of a launch against what a block of this kernel can have on this device.

    Args:
        launch: the launch.
        threads: the most threads that a block of this kernel can have.
        shared_bytes: the most dynamic shared memory that it can have.

    Raises:
        UsageError: a size is below 1, the block has too many threads, or wants too much memory.

    """
    for name, shape in (
        ("grid", launch.grid),
        ("block", launch.block),
        ("cluster", launch.cluster),
    ):
        if shape is not None and min(shape) < 1:
            raise UsageError(f"kernel {launch.kernel}: the {name} is {_times(shape)}; each is at least 1")
    if math.prod(launch.block) > threads:
        raise UsageError(
            f"kernel {launch.kernel}: a block has at most {threads} threads; "
            f"{_times(launch.block)} are {math.prod(launch.block)}"
        )
    if launch.shared_bytes > shared_bytes:
        raise UsageError(
            f"kernel {launch.kernel}: a block has at most {shared_bytes} bytes of dynamic shared "
            f"memory on this device; {launch.shared_bytes} asked for"
        )


def _times(shape: Dim3) -> str:
    return "x".join(map(str, shape))
