"""Examines an installation: what is there, what is missing, whether a kernel really gets through.

Nothing is trusted for being installed: a kernel of a few lines is compiled (past the cache),
disassembled, and launched where there is a GPU, and its result is checked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from ptxlab.device.client import Worker
from ptxlab.device.job import Buffer, DeviceInfo, Job, Launch
from ptxlab.errors import MissingError, PtxlabError, ToolError
from ptxlab.experiments.record import Record, environment
from ptxlab.toolchain import cache, ncu, nvrtc, tools
from ptxlab.toolchain.arch import DEFAULT_ARCH, parse_arch
from ptxlab.toolchain.build import Build

KERNEL = "ptxlab_doctor"
SOURCE = f"""extern "C" __global__ void {KERNEL}(unsigned *out)
{{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = 3 * i + 1;
}}
"""
CLAIMS = {"STG": 1}
"""What its SASS must hold: its one store."""

BLOCKS, THREADS = 4, 128

OK, MISSING, ABSENT, WARNING, BROKEN = "ok", "missing", "absent", "warning", "broken"
"""Status of a part: MISSING is needed even without a GPU, ABSENT only adds to what can be done, WARNING
works less well than it could, BROKEN is there and fails."""

NEEDED_TOOLS = ("ptxas", "nvdisasm", "cuobjdump")

# Distribution, whether commands that need no GPU need it, and the command that brings it.
PACKAGES = (
    ("cuda-bindings", True, "pip install cuda-python"),
    ("cuda-core", False, "pip install cuda-python"),
    ("pyelftools", True, "pip install pyelftools"),
    ("ncu-report", False, "pip install ncu-report"),
    ("nvidia-ml-py", False, "pip install nvidia-ml-py"),
)
CUBLAS_PACKAGES = ("nvmath-python", "torch")
"""Either brings cuBLAS, the baseline of every GEMM."""


@dataclass(frozen=True)
class Variable:
    """An environment variable that changes what ptxlab does."""

    name: str
    type: str
    meaning: str


VARIABLES = (
    Variable("PTXLAB_CACHE", "folder", "where compiled kernels are kept"),
    Variable("PTXLAB_CACHE_LIMIT_MB", "number", "how large that may grow, in megabytes"),
    Variable("PTXLAB_PROBES", "folders", "where your own probes are, besides ./probes"),
    Variable("CUDA_HOME", "folder", "a CUDA toolkit, used where pip's packages lack something"),
    Variable("CUDA_PATH", "folder", "the same, looked at after CUDA_HOME"),
    Variable("PATH", "folders", "where tools are looked for after that"),
    Variable("LD_LIBRARY_PATH", "folders", "where NVRTC is looked for after that"),
    Variable("CUDA_VISIBLE_DEVICES", "list", "which GPUs the driver shows, and in which order"),
    Variable("NO_COLOR", "flag", "no colours if set to anything"),
    Variable("COLUMNS", "number", "width of the terminal"),
)


def doctor(arch: str | None, device: int, timeout: float) -> Record:
    """Examine this installation and return the record.

    Raises:
        UsageError: the architecture does not exist.
        MissingError: a part is missing that commands without a GPU need; the record comes with it.

    """
    if arch is not None:
        parse_arch(arch)
    with Worker(device=device, timeout=timeout) as worker:
        info, device_row = _device(worker, named=device != 0)
        record = Record(backend="device" if info else "model", arch=arch or _arch_of(info))
        record.environment = environment(device=vars(info) if info else None)
        rows = [*_parts(), device_row]
        record.result = {
            "tools": rows,
            "device": vars(info) if info else None,
            "environment_variables": [
                {**vars(each), "value": os.environ.get(each.name)} for each in VARIABLES
            ],
        }
        for row in rows:
            if row["status"] == BROKEN:
                record.check(row["name"], ok=False, detail=row["hint"])
        _examine(record, worker if info else None, device_row["hint"])
    missing = [row for row in rows if row["status"] == MISSING]
    if missing:
        names = ", ".join(row["name"] for row in missing)
        raise MissingError(f"missing: {names}", missing[0]["hint"], record=record)
    return record


def _arch_of(info: DeviceInfo | None) -> str:
    return info.arch if info else DEFAULT_ARCH


def _parts() -> list[dict[str, Any]]:
    """Return a row for each tool, package and folder."""
    rows = [_tool("nvrtc", nvrtc.nvrtc_tool, needed=True)]
    for name in tools.TOOLS:
        find = ncu.find_ncu if name == "ncu" else _finder(name)
        rows.append(_tool(name, find, needed=name in NEEDED_TOOLS))
    _mark_mismatch(rows)
    rows.append(_headers())
    rows += [_package(name, install, needed=needed) for name, needed, install in PACKAGES]
    return [*rows, _cublas(), _cache()]


def _row(name: str, status: str, hint: str = "", **found: Any) -> dict[str, Any]:
    nothing = {"path": None, "version": None, "found_via": None}
    return {"name": name, **nothing, **found, "status": status, "hint": hint}


def _finder(name: str) -> Callable[[], tools.Tool]:
    return lambda: tools.find_tool(name)


def _tool(name: str, find: Callable[[], tools.Tool], *, needed: bool) -> dict[str, Any]:
    try:
        tool = find()
    except MissingError as error:
        return _row(name, MISSING if needed else ABSENT, error.hint or error.message)
    except PtxlabError as error:  # it is there, and does not even tell its version
        return _row(name, BROKEN, error.message)
    return _row(name, OK, path=str(tool.path), version=tool.version_text, found_via=tool.found_via)


def _mark_mismatch(rows: list[dict[str, Any]]) -> None:
    """Turn ptxas into a warning where it is older than NVRTC and cannot read its PTX."""
    if all(row["status"] == OK for row in rows if row["name"] in ("nvrtc", "ptxas")):
        mismatch = tools.version_mismatch()
        ptxas = next(row for row in rows if row["name"] == "ptxas")
        ptxas |= {"status": WARNING, "hint": mismatch} if mismatch else {}


def _headers() -> dict[str, Any]:
    """Return where CUDA's own headers are (cuda_fp16.h, mma.h), which most kernels include."""
    folders = tools.cuda_include_folders()
    if not folders:
        return _row("CUDA headers", MISSING, "pip install 'nvidia-cuda-nvcc>=13' 'nvidia-cuda-cccl>=13'")
    return _row("CUDA headers", OK, path=str(folders[0]))


def _package(name: str, install: str, *, needed: bool) -> dict[str, Any]:
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return _row(name, MISSING if needed else ABSENT, install)
    return _row(name, OK, path=str(found.locate_file("")), version=found.version, found_via="python")


def _cublas() -> dict[str, Any]:
    for name in CUBLAS_PACKAGES:
        row = _package(name, "", needed=False)
        if row["status"] == OK:
            return row | {"name": f"cuBLAS ({name})"}
    return _row("cuBLAS", ABSENT, "pip install 'ptxlab[cublas]'")


def _cache() -> dict[str, Any]:
    """Return the cache's folder; one that cannot be written costs time and nothing else."""
    folder = cache.cache_folder()
    try:
        cache.info()
    except PtxlabError as error:
        hint = error.message + (f"; {error.hint}" if error.hint else "")
        return _row("cache", WARNING, hint, path=str(folder))
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if os.access(existing, os.W_OK):
        return _row("cache", OK, path=str(folder))
    return _row("cache", WARNING, f"{existing} cannot be written; set PTXLAB_CACHE", path=str(folder))


def _device(worker: Worker, *, named: bool) -> tuple[DeviceInfo | None, dict[str, Any]]:
    """Return the device, and its row: the driver's version and the device's name.

    A device that the user named must be there.
    """
    try:
        info = worker.info()
    except MissingError as error:
        return None, _row("device", MISSING if named else ABSENT, error.message)
    except PtxlabError as error:
        return None, _row("device", BROKEN, error.message)
    return info, _row("device", OK, version=info.driver, found_via=info.name)


def _examine(record: Record, worker: Worker | None, why_no_device: str) -> None:
    """Compile, disassemble and launch, each only if the step before it worked."""
    build: Build | None = None
    with _step(record, "compile"):
        build = _compile(record.arch)
        size = len(build.cubin)
        record.check("compile", ok=True, detail=f"{size} bytes of machine code for {build.arch}")
    if build is None:
        return
    with _step(record, "disassemble"):
        _disassemble(build, record)
    if worker is None:
        record.skip("launch", why_no_device)
        return
    with _step(record, "launch"):
        _launch(build, worker, record)


@contextmanager
def _step(record: Record, name: str) -> Iterator[None]:
    """Turn what goes wrong into a failed check, or into a skipped one where something is missing."""
    try:
        yield
    except MissingError as error:
        record.skip(name, error.message)
    except PtxlabError as error:
        record.check(name, ok=False, detail=error.message)


def _compile(arch: str) -> Build:
    """Compile the kernel anew: what the cache holds would prove nothing."""
    name = str(Path(__file__).with_name("ptxlab-doctor.cu"))  # there may be no current directory
    flags = [f"-arch={arch}", "-std=c++20", "--ptxas-options=-v"]
    compiled = nvrtc.compile_cuda(SOURCE, name, flags)
    if not compiled.ok:
        raise ToolError(f"NVRTC refused a correct kernel: {compiled.log.strip()}")
    return Build(arch, compiled.ptx, compiled.cubin, compiled.log, folder=None, cached=False)


def _disassemble(build: Build, record: Record) -> None:
    from ptxlab.sass.claims import check_claims
    from ptxlab.sass.report import kernels

    kernel = next(each for each in kernels(build) if each["name"] == KERNEL)
    for name, ok, detail in check_claims(kernel, CLAIMS):
        record.check(f"disassemble: {name}", ok, detail)


def _launch(build: Build, worker: Worker, record: Record) -> None:
    count = BLOCKS * THREADS
    launch = Launch("doctor", KERNEL, (BLOCKS, 1, 1), (THREADS, 1, 1), ("out",))
    out = Buffer("out", 4 * count, download=True, canary=True)
    result = worker.run(Job({"doctor": build.cubin}, (out,), (launch,)))
    found = result.arrays["out"].view(np.uint32)
    wrong = int(np.count_nonzero(found != 3 * np.arange(count, dtype=np.uint32) + 1))
    ok = wrong == 0 and not result.damaged_canaries
    damaged = len(result.damaged_canaries)
    record.check("launch", ok, f"{count - wrong} of {count} results right, {damaged} canaries damaged")
