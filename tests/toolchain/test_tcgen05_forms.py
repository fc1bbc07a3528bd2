"""The forms of tcgen05, held against the assembler: who has them, and what they become."""

from __future__ import annotations

import pytest

from ptxlab.errors import ToolError, UsageError
from ptxlab.isa import tcgen05
from ptxlab.isa.tcgen05 import MoveForm, move_forms
from ptxlab.isa.tcgen05_mma import KINDS, MmaForm, check_form
from ptxlab.sass.report import kernels
from ptxlab.toolchain.arch import ARCHS
from ptxlab.toolchain.build import build_ptx

HEAD = ".version {version}\n.target {arch}\n.address_size 64\n"


def head(arch: str) -> str:
    """The first lines of a module for an architecture."""
    return HEAD.format(version="9.4" if arch.startswith("sm_107") else "9.0", arch=arch)


def move_kernel(number: int, form: MoveForm) -> str:
    """A kernel that is one load or store, with what keeps it from being dropped."""
    names = "{" + ", ".join(f"r{i}" for i in range(form.registers)) + "}"
    split = f", {form.split}" if form.shape == "16x32bx2" else ""
    lines = [f".visible .entry k{number}(.param .u64 p) {{", ".reg .b32 r<130>; .reg .b64 a;"]
    lines += ["ld.param.u64 a, [p];", "ld.global.b32 r129, [a];"]
    if form.op == "ld":
        lines += [f"{form.ptx} {names}, [r129]{split};", "tcgen05.wait::ld.sync.aligned;"]
        lines += [f"st.global.b32 [a+{4 * i}], r{i};" for i in range(form.registers)]
    else:
        lines += [f"ld.global.b32 r{i}, [a+{4 * i}];" for i in range(form.registers)]
        lines += [f"{form.ptx} [r129]{split}, {names};", "tcgen05.wait::st.sync.aligned;"]
    return "\n".join([*lines, "ret; }"])


def test_every_load_and_store_becomes_what_the_model_says() -> None:
    """All 148 forms, in one module."""
    forms = list(move_forms())
    source = head("sm_100a") + "\n".join(move_kernel(i, form) for i, form in enumerate(forms))
    found = {
        each["name"]: each["counts"] for each in kernels(build_ptx(source, name="f.ptx", arch="sm_100a"))
    }
    for number, form in enumerate(forms):
        held = {op: n for op, n in found[f"k{number}"].items() if op.startswith(("LDTM", "STTM"))}
        assert held == form.sass, form.ptx


def mma_form(kind: str) -> MmaForm:
    """The first form of a kind."""
    own = KINDS[kind]
    block = next(iter(own.scales), 0)
    scale = own.scales[block][0] if block else ""
    a = own.types[0]
    return MmaForm(kind, 128, 64, a, a, own.accumulators[0], block=block, scale=scale)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("kind", KINDS)
def test_who_has_which_kind(kind: str, arch: str) -> None:
    """The model and the assembler refuse the same targets, and agree about the opcode."""
    form = mma_form(kind)
    scales = "[r0], [r1], " if form.block else ""
    body = f"{form.ptx} [r0], d0, d1, r1, {scales}p;"
    source = head(arch) + (
        ".visible .entry k() { .reg .b32 r<2>; .reg .b64 d<2>; .reg .pred p; mov.b32 r0, 0; mov.b32 r1, 1; "
        f"mov.b64 d0, 0; mov.b64 d1, 1; setp.ne.b32 p, r1, 0; {body} ret; }}"
    )
    try:
        check_form(form, arch, "128B")
    except UsageError as error:
        assert "legal: sm_100a" in error.message  # noqa: PT017 - the other way is tried as well
        with pytest.raises(ToolError):
            build_ptx(source, name="form.ptx", arch=arch)
    else:
        (kernel,) = kernels(build_ptx(source, name="form.ptx", arch=arch))
        assert kernel["counts"][form.sass(arch)] == 1


def test_the_list_of_architectures() -> None:
    """Each is one that code can be generated for."""
    assert set(tcgen05.ARCHS) <= set(ARCHS)
