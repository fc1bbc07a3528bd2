"""Which target has which form, held against the assembler itself."""

from __future__ import annotations

import contextlib

import pytest

from ptxlab.errors import ToolError
from ptxlab.isa.ldmatrix import BLACKWELL
from ptxlab.toolchain.arch import ARCHS
from ptxlab.toolchain.build import build_ptx

TEMPLATE = """.version {version}
.target {arch}
.address_size 64
.visible .entry k() {{
    .reg .b32 r<3>;
    mov.u32 r2, 0;
    ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {{r0, r1}}, [r2];
    st.shared.b32 [r2], r0;
    ret;
}}
"""


@pytest.mark.parametrize("arch", ARCHS)
def test_who_has_the_16x16_shape(arch: str) -> None:
    """The assembler takes m16n16 for the listed targets and for no other."""
    version = "9.4" if arch.startswith("sm_107") else "9.0"
    refusal = contextlib.nullcontext() if arch in BLACKWELL else pytest.raises(ToolError)
    with refusal:
        build_ptx(TEMPLATE.format(version=version, arch=arch), name="form.ptx", arch=arch)
