"""Reads a build's machine code kernel by kernel; ptxlab.sass.report keeps the answer."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

from ptxlab.errors import ToolError
from ptxlab.sass.advisories import advisories_of, warnings
from ptxlab.sass.emulation import emulated, may_be_emulated
from ptxlab.sass.instructions import Function, functions, opcode_counts
from ptxlab.sass.loops import find_loops, has_switch
from ptxlab.sass.names import readable_name
from ptxlab.sass.proxy_fence import readers_of, unfenced
from ptxlab.sass.ptx import PtxKernel, ptx_kernels
from ptxlab.sass.resources import Resources, resources
from ptxlab.toolchain.build import Build
from ptxlab.toolchain.disassembler import Listing, listings


def analyse(build: Build) -> list[dict[str, Any]]:
    """Return what ptxlab.sass.report.kernels() promises."""
    sources = ptx_kernels(build.ptx)
    known = [each for each in functions(build) if _is_kernel(each.name, build.cubin)]
    order = {name: place for place, name in enumerate(sources)}
    known.sort(key=lambda function: order.get(function.name, len(order)))
    of = {each.name: sources.get(each.name, PtxKernel()) for each in known}
    unclear = any(may_be_emulated(of[each.name], each) or has_switch(each) for each in known)

    @functools.cache
    def texts() -> dict[str, Listing]:
        return listings(build.cubin, name=build.name or "kernel.cubin")

    using, said = resources(build), build.advisories
    named = {name for ptx in of.values() for name in ptx.functions}
    reports = []
    for function in known:
        ptx = of[function.name]
        listing = texts().get(function.name, Listing()) if unclear else Listing()
        missed = unfenced(function, listing.jumps)
        lines = _source_lines(build, texts().get(function.name, Listing())) if missed else {}
        reports.append(
            _kernel(build, function, using.get(function.name))
            | {
                "loops": find_loops(function, listing.jumps),
                "advisories": advisories_of(said, ptx, function, named),
                "emulated": emulated(ptx, function, listing),
                "warnings": warnings(build.log, ptx, function),
                "async_readers": len(readers_of(function)),
                "unfenced": [each.row(lines) for each in missed],
            }
        )
    return reports


def _kernel(build: Build, function: Function, using: Resources | None) -> dict[str, Any]:
    if using is None:
        raise ToolError(f"{build.name}: nothing tells what {function.name} uses; is the cubin damaged?")
    families = Counter(each.family for each in function.code)
    return {
        "name": function.name,
        "readable_name": readable_name(function.name),
        "arch": build.arch,
        "instructions": len(function.code),
        "padding": len(function.padding),
        "registers": using.registers,
        "spill_bytes": using.spill_bytes,
        "shared_bytes": using.shared_bytes,
        "counts": opcode_counts(function.code),
        "families": dict(sorted(families.items())),
        "tensor_ops": sum(each.is_tensor_operation for each in function.code),
        "tensor_dummies": sum(each.is_dummy for each in function.code),
    }


def _source_lines(build: Build, listing: Listing) -> dict[int, tuple[str, int]]:
    """Return address -> file and line: of the source that the code names, else of its PTX."""
    return listing.source_lines or {at: (build.name, line) for at, line in listing.ptx_lines.items()}


def _is_kernel(name: str, cubin: bytes) -> bool:
    """Whether a section is a kernel's, which has its parameters in constant bank 0.

    Relocatable code has sections of device functions as well.
    """
    return f"\0.nv.constant0.{name}\0".encode() in cubin
