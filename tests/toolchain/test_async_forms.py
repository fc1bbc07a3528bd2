"""The models of asynchronous copies and the assembler agree on what exists, and on what it becomes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest

from ptxlab.errors import UsageError
from ptxlab.isa import bulk_copy, cp_async, griddepcontrol, proxy_fence
from ptxlab.isa.bulk_copy import BulkForm
from ptxlab.isa.cp_async import CpAsyncForm
from ptxlab.sass.report import kernels
from ptxlab.toolchain.build import build_ptx
from ptxlab.toolchain.messages import CompileError

HEADER = """.version 8.8
.target {arch}
.address_size 64
.visible .entry k(.param .u64 a)
{{
.reg .b64 %rd1; .reg .b32 %r1; .reg .b32 %r2; .reg .b32 %n; .reg .pred %p;
.shared .align 128 .b8 s[1024];
ld.param.u64 %rd1, [a]; mov.u32 %r1, s; add.u32 %r2, %r1, 512; mov.u32 %n, %tid.x; setp.ne.u32 %p, %n, 0;
"""
FIRST = HEADER.count("\n") + 1  # line of the first instruction


def source(arch: str, instructions: Sequence[str]) -> str:
    """Return a kernel with one instruction a line."""
    return HEADER.format(arch=arch) + "\n".join([*instructions, "ret;", "}"]) + "\n"


def refused(arch: str, instructions: Sequence[str]) -> set[str]:
    """Return the instructions that the assembler does not take."""
    try:
        build_ptx(source(arch, instructions), name="forms.ptx", arch=arch)
    except CompileError as error:
        lines = {int(n) for n in re.findall(r"line (\d+); error", error.log)}
        return {each for i, each in enumerate(instructions) if FIRST + i in lines}
    return set()


def exists(check: Callable[..., None], *arguments: Any) -> bool:
    """Say whether a model takes a form."""
    try:
        check(*arguments)
    except UsageError:
        return False
    return True


def cp_async_text(form: CpAsyncForm) -> str:
    """Return the instruction as PTX."""
    more = {"whole": "", "src-size": ", %n", "ignore-src": ", %p"}[form.source]
    return f"cp.async.{form.cache}.shared.global [%r1], [%rd1], {form.size}{more};"


def reduction_text(form: BulkForm) -> str:
    """Return the instruction as PTX."""
    places = "[%rd1], [%r1], 64" if form.op == "reduce" else "[%r1], [%r2], 64, [%r2]"
    return f"{form.ptx} {places};"


CP_ASYNC = [
    CpAsyncForm(size, cache, kind)
    for cache, size, kind in product(("ca", "cg"), (4, 8, 16), ("whole", "src-size", "ignore-src"))
]
REDUCTIONS = [
    BulkForm(op, reduction, dtype)
    for op, reduction, dtype in product(("reduce", "send-reduce"), bulk_copy.IN_GLOBAL, bulk_copy.SIZES)
]


def test_forms_of_cp_async() -> None:
    """4, 8 and 16 bytes at all levels, 16 past the L1; the model refuses just what ptxas does."""
    legal = [form for form in CP_ASYNC if exists(cp_async.check_form, form)]
    assert {(form.cache, form.size) for form in legal} == {("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)}
    illegal = [cp_async_text(form) for form in CP_ASYNC if form not in legal]
    assert refused("sm_90a", [cp_async_text(form) for form in CP_ASYNC]) == set(illegal)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120a"])
def test_sass_of_cp_async(arch: str) -> None:
    """Each legal form becomes the opcode that the model names."""
    legal = [form for form in CP_ASYNC if exists(cp_async.check_form, form)]
    build = build_ptx(source(arch, [cp_async_text(form) for form in legal]), name="forms.ptx", arch=arch)
    counts = kernels(build)[0]["counts"]
    opcodes = {form.sass for form in legal}
    assert {opcode for opcode in counts if opcode.startswith("LDGSTS")} == opcodes
    assert "LDGSTS.E.BYPASS.128.ZFILL" in opcodes


def test_reductions_of_bulk_copies() -> None:
    """Of 160 combinations the model has just those that ptxas assembles."""
    legal = {reduction_text(form) for form in REDUCTIONS if exists(bulk_copy.check_reduction, form)}
    assert len(legal) == 27 + 12
    every = [reduction_text(form) for form in REDUCTIONS]
    assert refused("sm_90a", every) == set(every) - legal


@pytest.mark.parametrize("size", [0, 16, 24, 1000, 1 << 20, (1 << 20) - 16])
def test_sizes_of_bulk_copies(size: int) -> None:
    """Multiples of 16 below 2**20; nothing at all is taken by ptxas, and is no copy."""
    text = f"cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], {size};"
    takes = exists(bulk_copy.check_bytes, "a copy", size, bulk_copy.MOST)
    assert refused("sm_90a", [text]) == (set() if takes else {text})


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_120a"])
def test_who_has_them(arch: str) -> None:
    """The models and the assembler refuse the same targets."""
    checks = {
        "cp.async.ca.shared.global [%r1], [%rd1], 4;": cp_async.check_arch,
        "cp.async.bulk.prefetch.L2.global [%rd1], %n;": bulk_copy.check_arch,
        f"{proxy_fence.PTX};": proxy_fence.check_arch,
        "griddepcontrol.wait;": griddepcontrol.check_arch,
    }
    missing = {text for text, check in checks.items() if not exists(check, arch)}
    assert refused(arch, list(checks)) == missing
