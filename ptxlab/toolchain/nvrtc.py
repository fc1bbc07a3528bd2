"""NVRTC: CUDA C++ to PTX, cubin and log in one compile, with no driver and no GPU.

A source can make this library crash, or run for hours. So each call works in an interpreter of its own,
where alone ``cuda.bindings`` is imported: that is the second half of this file.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxlab.errors import MissingError, ToolError
from ptxlab.toolchain import child
from ptxlab.toolchain.tools import COMPILE_SECONDS, Tool, locate_nvrtc


@dataclass(frozen=True)
class Compiled:
    """What one compile gave.

    Attributes:
        ok: whether it succeeded.
        log: what the compiler, and ptxas after it, said.
        ptx: the PTX; it is there too when only the ptxas stage failed. "" if there is none.
        cubin: the machine code; b"" if there is none.
        compiler: which compiler it was: "NVRTC 13.5", "ptxas 13.5.37".

    """

    ok: bool
    log: str
    ptx: str
    cubin: bytes
    compiler: str


def nvrtc_version() -> tuple[int, int]:
    """Return NVRTC's version, such as (13, 5).

    Raises:
        MissingError: NVRTC or cuda-python is not here.
        ToolError: the library is damaged.

    """
    library, _ = locate_nvrtc()
    version: tuple[int, int] = child.ask(_version_of, library, title="NVRTC", about="", timeout=60.0)
    return version


def nvrtc_tool() -> Tool:
    """Return NVRTC as doctor shows it: where it lies, its version, how it was found.

    Raises:
        MissingError: NVRTC or cuda-python is not here.
        ToolError: the library is damaged.

    """
    path, found_via = locate_nvrtc()
    return Tool("nvrtc", path, nvrtc_version(), found_via)


def compile_cuda(source: str, name: str, options: Sequence[str]) -> Compiled:
    """Compile CUDA C++ for the architecture that the options name.

    Args:
        source: the text.
        name: the path that messages and line information show.
        options: NVRTC's own, among them -arch=sm_XX.

    Raises:
        MissingError: NVRTC or cuda-python is not here.
        ToolError: NVRTC itself failed, other than by refusing the source: it crashed, or took too long.

    """
    library, _ = locate_nvrtc()
    compiled: Compiled = child.ask(
        _compile, library, source, name, options, title="NVRTC", about=name, timeout=COMPILE_SECONDS
    )
    return compiled


def _version_of(library: Path) -> tuple[int, int]:
    return _version(_nvrtc(library))


def _version(nvrtc: Any) -> tuple[int, int]:
    major, minor = _checked(nvrtc.nvrtcVersion())
    return major, minor


def _compile(library: Path, source: str, name: str, options: Sequence[str]) -> Compiled:
    os.environ |= {"CUDA_CACHE_DISABLE": "1"}  # see _with_ptxas_log in build.py; this is a process of its own
    nvrtc = _nvrtc(library)
    (program,) = _checked(nvrtc.nvrtcCreateProgram(source.encode(), os.fsencode(name), 0, [], []))
    encoded = [os.fsencode(option) for option in options]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
    log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
    refused = nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION, nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION
    if status not in (nvrtc.nvrtcResult.NVRTC_SUCCESS, *refused):
        raise ToolError(f"{name}: NVRTC failed: {status.name}")
    ptx = _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
    cubin = _bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    title = "NVRTC {}.{}".format(*_version(nvrtc))
    return Compiled(status == nvrtc.nvrtcResult.NVRTC_SUCCESS, log, ptx, cubin, title)


def _nvrtc(library: Path) -> Any:
    """Load the very library that locate_nvrtc() found, since the cache key is made of it."""
    try:
        _load(library)
        from cuda.bindings import nvrtc

        major, minor = _version(nvrtc)
        builtins = library.resolve().with_name(f"libnvrtc-builtins.so.{major}.{minor}")
        if builtins.is_file():  # NVRTC 13.0 does not look for it beside itself
            _load(builtins)
    except (ImportError, OSError) as error:
        raise MissingError(
            f"NVRTC at {library} cannot be used: {error}", "pip install --upgrade cuda-python", code="no-tool"
        ) from error
    return nvrtc


def _load(library: Path) -> None:
    ctypes.CDLL(str(library), mode=os.RTLD_NOW | os.RTLD_GLOBAL)


def _checked(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what a call gave behind its status."""
    status, *values = result
    if int(status):
        raise ToolError(f"NVRTC failed: {status.name}")
    return tuple(values)


def _bytes(size: Callable[..., Any], read: Callable[..., Any], program: Any) -> bytes:
    """Return what the program holds, or b"" if the compile did not get that far."""
    status, count = size(program)
    if int(status):
        return b""
    # NVRTC writes into the object in place. CPython shares bytes of length 0 and 1 among the whole process,
    # so the buffer must be longer, or an empty log would change what b" " is.
    buffer = bytes(count + 1)
    _checked(read(program, buffer))
    return buffer[:count]


def _text(size: Callable[..., Any], read: Callable[..., Any], program: Any) -> str:
    return _bytes(size, read, program).rstrip(b"\0").decode("utf-8", errors="replace")
