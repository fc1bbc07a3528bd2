"""What a build's machine code holds, kernel by kernel: the answer of ``ptxlab sass``."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

from ptxlab.sass.emulation import emulated, entry_names, operations, suspicious, warnings
from ptxlab.sass.instructions import TENSOR_FAMILIES, Function, functions, opcode_counts
from ptxlab.sass.loops import find_loops, has_switch
from ptxlab.sass.resources import Resources, resources
from ptxlab.toolchain.build import Build
from ptxlab.toolchain.disassembler import Listing, listings


def kernels(build: Build) -> list[dict[str, Any]]:
    """Return what each kernel holds, in the order of the source. All counts are static.

    The answer is kept in the build's cache entry; callers must not change it.

    Returns:
        For each kernel ``name``, ``arch``, ``instructions`` (without padding), ``padding`` (NOPs and
        the trailing branch to itself), ``registers``, ``spill_bytes`` (stores and loads; None for a bare
        cubin), ``shared_bytes`` (static), ``counts`` (opcode with all modifiers -> how many),
        ``families`` (opcode without modifiers -> how many), ``tensor_ops`` (in called internal functions
        too), ``loops``, ``advisories`` (C75xx), ``emulated``, and ``warnings``.

    Raises:
        MissingError: there is no nvdisasm here.
        ToolError: the machine code is damaged; the message is the tool's own.

    """
    found: list[dict[str, Any]] = build.memo(f"kernels-{_code_identity()}", lambda: _kernels(build))
    return found


def _kernels(build: Build) -> list[dict[str, Any]]:
    entries = entry_names(build.ptx)
    known = [each for each in functions(build) if _is_kernel(each.name, entries, build.cubin)]
    if entries:
        known.sort(key=lambda function: entries.index(function.name))
    using = resources(build)
    looked_at = {each.name: operations(build.ptx, each.name) for each in known}
    unclear = any(suspicious(looked_at[each.name], each) or has_switch(each) for each in known)
    texts = listings(build.cubin, name=build.name or "kernel.cubin") if unclear else {}
    reports = []
    for function in known:
        listing = texts.get(function.name, Listing())
        found = looked_at[function.name]
        report = _kernel(build, function, using[function.name])
        report["loops"] = find_loops(function, listing.jumps)
        report["advisories"] = [a for a in build.advisories if _is_about(a, function.name)]
        report["emulated"] = emulated(found, function, listing)
        report["warnings"] = warnings(build.ptx, function.name, found, function)
        reports.append(report)
    return reports


def _kernel(build: Build, function: Function, using: Resources) -> dict[str, Any]:
    families = Counter(each.family for each in function.code)
    return {
        "name": function.name,
        "arch": build.arch,
        "instructions": len(function.code),
        "padding": len(function.padding),
        "registers": using.registers,
        "spill_bytes": using.spill_bytes,
        "shared_bytes": using.shared_bytes,
        "counts": opcode_counts(function.code),
        "families": dict(sorted(families.items())),
        "tensor_ops": sum(families[family] for family in TENSOR_FAMILIES),
    }


def _is_kernel(name: str, entries: list[str], cubin: bytes) -> bool:
    """Whether a section is a kernel's: relocatable code has sections of device functions as well.

    Without PTX that names the kernels, it is the parameters in constant bank 0 that tell.
    """
    return name in entries if entries else f"\0.nv.constant0.{name}\0".encode() in cubin


def _is_about(advisory: str, kernel: str) -> bool:
    """Whether an advisory names this kernel, or names none."""
    return f"'{kernel}'" in advisory or "function '" not in advisory


def _code_identity() -> str:
    """Return the hash of the code that makes these reports, so that an old report never outlives it."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:8]
