"""Behaviours of the parts of ptxlab.sass that need no tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxlab.sass.advisories import warnings
from ptxlab.sass.claims import check_claims
from ptxlab.sass.emulation import is_native
from ptxlab.sass.flops import flop_of, flops
from ptxlab.sass.instructions import Function, Instruction, functions, has_prefix
from ptxlab.sass.loops import find_loops
from ptxlab.sass.names import is_called, readable_name
from ptxlab.sass.ptx import PtxKernel, ptx_kernels
from ptxlab.sass.resources import Resources, from_log, from_usage
from ptxlab.toolchain.build import Build

KERNEL = {
    "name": "k",
    "counts": {"LDSM.16.M88.4": 2, "LDSM.16.MT88.4": 1, "LDSMX": 7},
    "spill_bytes": 0,
    "advisories": [],
}

Tree = list[Any]
"""A program: each element is a number of plain instructions or a loop, which is a program."""


def programs(depth: int) -> st.SearchStrategy[Tree]:
    """Return programs of plain instructions and loops, nested at most this deep."""
    plain = st.integers(1, 3)
    return st.lists(plain if depth == 0 else plain | programs(depth - 1), min_size=1, max_size=4)


def flatten(program: Tree, depth: int, lines: list[str], loops: list[tuple[int, int, int]]) -> None:
    """Append the program's instructions; note start, end and depth of each of its loops."""
    for part in program:
        if isinstance(part, int):
            lines += ["FADD R0,R0,R1"] * part
        else:
            start = len(lines)
            slot = len(loops)
            loops.append((0, 0, 0))
            flatten(part, depth + 1, lines, loops)
            loops[slot] = (16 * start, 16 * len(lines), depth + 1)
            lines.append(f"@P0 BRA {16 * start:#x}")


def function(lines: list[str]) -> Function:
    """Return the function with these lines, one every 16 bytes."""
    code = []
    for index, line in enumerate(lines):
        predicate, rest = line.split(" ", 1) if line.startswith("@") else ("", line)
        opcode, _, operands = rest.partition(" ")
        code.append(Instruction(16 * index, predicate, opcode, operands))
    return Function("k", tuple(code), tuple(code), ())


@given(programs(depth=3))
def test_every_loop_of_a_structured_program_is_found(program: Tree) -> None:
    """Start, end and size of each loop; loops that start at one instruction are one loop."""
    lines: list[str] = []
    expected: list[tuple[int, int, int]] = []
    flatten(program, 0, lines, expected)
    found = find_loops(function([*lines, "EXIT"]), {})
    # Loops that begin with the same instruction branch back to one block: they are one loop.
    outermost = {start: (start, end, depth) for start, end, depth in sorted(expected, key=lambda e: -e[2])}
    ends = {start: max(end for s, end, _ in expected if s == start) for start in outermost}
    assert [(each["start"], each["end"]) for each in found] == sorted(ends.items())
    for each in found:
        assert each["instructions"] == (each["end"] - each["start"]) // 16 + 1


def test_code_moved_out_of_line_makes_no_loop() -> None:
    """A jump back out of a cold block is a jump back, and no loop."""
    lines = ["@P0 BRA 0x40", "FADD R0,R0,R1", "STG R0", "EXIT", "FMUL R0,R0,R0", "BRA 0x10"]
    assert find_loops(function(lines), {}) == []


def test_an_indirect_branch_leads_where_the_listing_says() -> None:
    """A loop around a switch holds all its cases."""
    lines = ["MOV R1", "BRX R2,-0x20", "FADD R0", "BRA 0x50", "FMUL R0", "@P0 BRA 0x0", "EXIT"]
    (loop,) = find_loops(function(lines), {0x10: [0x20, 0x40]})
    assert (loop["start"], loop["end"], loop["instructions"]) == (0, 0x50, 6)


def test_a_conditional_branch_may_fall_through() -> None:
    """BRA with a uniform predicate leaves the loop; without any it never does."""
    lines = ["FADD R0", "BRA UP0,0x0", "FADD R1", "BRA 0x20", "EXIT"]
    found = find_loops(function(lines), {})
    assert [(each["start"], each["end"]) for each in found] == [(0, 0x10), (0x20, 0x30)]


def test_nothing_in_a_function_without_code() -> None:
    """An empty section has no loops."""
    assert find_loops(Function("k", (), (), ()), {}) == []


@given(st.lists(st.sampled_from(["LDSM", "16", "M88", "4", "TRANS"]), min_size=1, max_size=5), st.data())
def test_a_prefix_is_made_of_whole_parts(parts: list[str], data: st.DataObject) -> None:
    """LDSM.16 begins LDSM.16.M88 and does not begin LDSM.162."""
    opcode = ".".join(parts)
    length = data.draw(st.integers(1, len(parts)))
    assert has_prefix(opcode, ".".join(parts[:length]))
    assert not has_prefix(opcode + "X", opcode)
    assert not has_prefix(opcode, opcode + ".X")


def test_claims_count_opcodes_by_whole_parts() -> None:
    """A claim sums the opcodes that it is a prefix of; LDSMX is none of LDSM."""
    results = check_claims(KERNEL, {"LDSM": 3, "LDSM.16.M88": 2, "STSM": 0, "LDSM.16.MT88.4": 2})
    assert [ok for _, ok, _ in results] == [True, True, True, False, True, True]
    assert "1 in the SASS of k" in results[3][2]
    assert "2 claimed" in results[3][2]


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        ({"spill_bytes": 8}, ["no spills"]),
        ({"advisories": ["(C7508) ignored"]}, ["no advisories"]),
        ({"spill_bytes": None}, []),
    ],
)
def test_spills_and_advisories_fail_a_kernel(change: dict[str, Any], failing: list[str]) -> None:
    """Both make a timing worthless; unknown spills are no failure."""
    results = check_claims(KERNEL | change, {})
    assert [name for name, ok, _ in results if not ok] == failing


@pytest.mark.parametrize(("claimed", "failing"), [(1, []), (0, ["ptxas gives 0 C7508"])])
def test_an_advisory_can_be_claimed(claimed: int, failing: list[str]) -> None:
    """Where it is what an experiment shows; others still fail the kernel."""
    kernel = KERNEL | {"advisories": ["(C7508) ignored"]}
    results = check_claims(kernel, {"C7508": claimed})
    assert [name for name, ok, _ in results if not ok] == failing
    others = check_claims(kernel | {"advisories": ["(C7508) ignored", "(C7510) serialised"]}, {"C7508": 1})
    assert [name for name, ok, _ in others if not ok] == ["no other advisories"]


@pytest.mark.parametrize(
    ("operation", "opcode", "native"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "HMMA.16816.F32", True),
        ("mma.sync.aligned.m16n8k16.row.col.f16.e4m3.e4m3.f16", "HMMA.16816.F16", False),
        ("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64", "DMMA.8x8x4", False),
        ("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64", "DMMA.16x8x16", True),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "DMMA.884", True),
        ("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32", "IMMA.16816.S8.S8", True),
        ("mma.sync.aligned.m16n8k32.row.col.s32.s4.s4.s32", "IMMA.16832.S8.S8", False),
        ("mma.sync.aligned.m16n8k32.row.col.s32.u4.s4.s32", "IMMA.16832.U4.S4", True),
        ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc", "BMMA.168256.AND.POPC", False),
        ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "HMMA.SP.16832.F32", True),
        ("mma.sync.aligned.kind::mxf8f6f4.block_scale.m16n8k32.row.col.f32.e4m3.e2m1.f32.ue8m0",
         "QMMA.SF.16832.F32.E4M3.E2M1.E8", True),
        ("mma.sync.aligned.kind::mxf4nvf4.block_scale.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3",
         "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X", True),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", "HMMA.16816.F32", True),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32", "IMMA.16816.S8.S8", True),
        ("wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64", "HMMA.16816.F32", False),
    ],
)  # fmt: skip
def test_an_opcode_is_native_by_family_shape_and_types(operation: str, opcode: str, native: bool) -> None:
    """Family, shape, 4-bit types and the logic of b1 must all agree."""
    assert is_native(operation, ["FFMA", opcode]) == native


def test_pieces_of_a_section_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older nvdisasm cut a kernel's section where an internal function starts."""
    pieces = [
        {"function-name": "k", "start": 0, "sass-instructions": [{"opcode": "CALL", "operands": "$f"}]},
        {
            "function-name": "$f",
            "start": 16,
            "sass-instructions": [{"opcode": "RET"}, {"opcode": "BRA", "operands": "0x20"}],
        },
        {"function-name": "other", "start": 0, "sass-instructions": [{"opcode": "EXIT"}]},
    ]
    monkeypatch.setattr("ptxlab.sass.instructions.disassemble", lambda *_, **__: [{}, pieces])
    monkeypatch.setattr("ptxlab.sass.instructions.locate", lambda name: (tmp_path, "pip"))
    build = Build("sm_90a", "", b"", "", None, cached=False)
    found = {each.name: [line.opcode for line in each.code] for each in functions(build)}
    assert found == {"k": ["CALL", "RET"], "other": ["EXIT"]}


PTX = """.version 9.0
.target sm_90a
.func (.param .b32 r) helper (.param .b32 x)
{ // mma.sync.aligned.in.a.comment
  wgmma.fence.sync.aligned;
  mma.sync.aligned.m16n8k8.x
     {a}, {b},
     {c}, {d};
}
.visible .entry first(
  .param .u64 p
)
.maxntid 128, 1, 1
{
  /* two
     lines */ @p wgmma.mma_async.sync.aligned.y {a}, b, c;
  {
    wmma.mma.sync.aligned.z {a}, {b};
  }
  call.uni (r), helper, (x);
  wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {a}, [b];
}
.visible .entry second() { setmaxnreg.inc.sync.aligned.u32 240; setmaxnreg.dec.sync.aligned.u32 24; }
.extern .func absent;
"""


def test_ptx_is_read_with_its_line_numbers() -> None:
    """Comments, scopes, directives and called functions do not shift or hide an operation."""
    kernels = ptx_kernels(PTX)
    assert list(kernels) == ["first", "second"]
    found = [(each.text, each.first, each.last) for each in kernels["first"].operations]
    assert found == [
        ("mma.sync.aligned.m16n8k8.x", 6, 8),  # in the function that it calls
        ("wgmma.mma_async.sync.aligned.y", 16, 16),
        ("wmma.mma.sync.aligned.z", 18, 18),
    ]
    assert kernels["second"].operations == []
    assert (kernels["first"].count("setmaxnreg"), kernels["second"].count("setmaxnreg")) == (0, 2)
    assert kernels["first"].holds_line(7)
    assert not kernels["second"].holds_line(7)


LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'a' for 'sm_90a'
ptxas info    : Function properties for a
ptxas         .     816 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 816 bytes cumulative stack size, 4096 bytes smem
ptxas info    : Compiling entry function 'b' for 'sm_80'
ptxas info    : Function properties for b
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers, 380 bytes cmem[0]
ptxas info    : Function properties for _Z1ff
    0 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
"""


def test_the_log_of_ptxas_is_read_in_both_layouts() -> None:
    """An internal function's spills count for the kernel that it stands behind."""
    assert from_log(LOG) == {"a": Resources(32, 20, 4096), "b": Resources(10, 8, 0)}


def test_the_reserved_shared_memory_is_left_out() -> None:
    """Of what cuobjdump counts, 1024 bytes are not the kernel's."""
    text = " Function k:\n  REG:19 STACK:0 SHARED:5120 LOCAL:0 CONSTANT[0]:540 TEXTURE:0\n"
    assert from_usage(text, 1024) == {"k": Resources(19, None, 4096)}


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z5spillPf", "spill"),
        ("_ZL5spillPf", "spill"),
        ("_Z3topIfEvPT_", "top"),
        ("_Z5takes1SPi", "takes"),
        ("_ZN2ns2in4deepEPf", "ns::in::deep"),
        ("_ZN2ns4tmplILi3EEEvPf", "ns::tmpl"),
        ("_ZN37_GLOBAL__N__00000000_5_nm_cu_0ea588284anonEPf", "anon"),
        ("wg", "wg"),
        ("_Z", "_Z"),
        ("_Z99short", "_Z99short"),
        ("_Zebra", "_Zebra"),
    ],
)
def test_a_symbol_has_a_name_that_can_be_read(symbol: str, name: str) -> None:
    """Symbols of NVRTC 13.5 and nvcc 13.5, and what is none of C++."""
    assert readable_name(symbol) == name


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        *(("_ZN2ns4tmplILi3EEEvPf", True), ("ns::tmpl", True), ("tmpl", True)),
        *(("mpl", False), ("ns", False), ("s::tmpl", False), ("", False)),
    ],
)
def test_a_kernel_is_called_by_its_symbol_or_its_name(wanted: str, *, meant: bool) -> None:
    """With or without namespaces, and by no part of a name."""
    assert is_called("_ZN2ns4tmplILi3EEEvPf", wanted) == meant


def test_a_dummy_stands_for_no_wgmma_of_the_ptx() -> None:
    """One wgmma of two is gone; the dummy that ptxas injected does not make up for it."""
    ptx = ptx_kernels(
        ".visible .entry k()\n{\nwgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {a}, b, c;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {a}, b, c;\n}\n"
    )["k"]
    real = "HGMMA.64x8x16.F32 R24,gdesc[UR4],RZ,!UPT,gsb0"
    dummy = "HGMMA.64x8x16.F16 RZ,gdesc[URZ],RZ,!UPT,gsb0"
    (said,) = warnings("", ptx, function([real, dummy, "EXIT"]))
    assert said.startswith("2 wgmma.mma_async in PTX, 1 in SASS")
    assert [line.is_dummy for line in function([real, dummy]).code] == [False, True]
    assert [line.is_tensor_operation for line in function([real, dummy]).code] == [True, False]


@pytest.mark.parametrize(
    ("opcode", "flop"),
    [("HMMA.16816.F32", 4096), ("HMMA.1688.F32.BF16", 2048), ("HMMA.1684.F32.TF32", 1024),
     ("HMMA.884.F32.F32.STEP0", 512), ("HMMA.884.F16.F16.STEP1", 1024), ("HMMA.SP.16832.F32", 8192),
     ("IMMA.8816.S8.S8", 2048), ("IMMA.16864.S4.S4", 16384), ("BMMA.88128.AND.POPC", 16384),
     ("BMMA.168256.XOR.POPC", 65536), ("DMMA.884", 512), ("DMMA.8x8x4", 512), ("DMMA.16x8x16", 4096),
     ("QMMA.SP.16864.F16.E4M3.E4M3", 16384), ("HGMMA.64x256x16.F32.BF16", 524288),
     ("QGMMA.64x8x32.F32.E4M3.E4M3", 32768), ("UTCHMMA", None)],
)  # fmt: skip
def test_the_shape_in_an_opcode_is_its_work(opcode: str, flop: int | None) -> None:
    """Two operations for each m, n and k: 4096 of HMMA.16816, which multiplies 16 x 8 x 16 times."""
    assert flop_of(opcode) == flop


def test_work_is_counted_by_who_does_it() -> None:
    """A warp or a warpgroup; a dummy computes nothing, and what is no tensor instruction is left out."""
    counts = {"HMMA.16816.F32": 3, "HGMMA.64x8x16.F16": 3, "UTCHMMA": 1, "FFMA": 9}
    rows = {each["opcode"]: each for each in flops({"counts": counts, "tensor_dummies": 2})}
    assert rows.keys() == {"HMMA.16816.F32", "HGMMA.64x8x16.F16", "UTCHMMA"}
    assert (rows["HMMA.16816.F32"]["total"], rows["HMMA.16816.F32"]["by"]) == (3 * 4096, "warp")
    wide = rows["HGMMA.64x8x16.F16"]
    assert (wide["count"], wide["total"], wide["by"]) == (1, 2 * 64 * 8 * 16, "warpgroup of 4 warps")
    assert rows["UTCHMMA"]["total"] is None
    assert flops({"counts": {"HGMMA.64x8x16.F16": 2}, "tensor_dummies": 2}) == []


def wgmma_ptx(*steps: str) -> PtxKernel:
    """PTX of these steps: "fence" and "mma"."""
    lines = {
        "fence": "wgmma.fence.sync.aligned;",
        "mma": "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {a};",
    }
    return ptx_kernels(".visible .entry k()\n{\n" + "\n".join(lines[step] for step in steps) + "\n}\n")["k"]


@pytest.mark.parametrize(
    ("steps", "sass", "injected"),
    [("mma", "arrive mma", 1), ("mma", "arrive mma arrive mma", 2), ("fence mma", "arrive mma", 0),
     ("fence mma mma", "arrive mma arrive mma", 0), ("fence", "arrive", 0)],
)  # fmt: skip
def test_fences_that_ptxas_injects_are_told(steps: str, sass: str, injected: int) -> None:
    """Where PTX has none, because a newer ptxas says nothing of it; else counts tell nothing."""
    lines = {"arrive": "WARPGROUP.ARRIVE", "mma": "HGMMA.64x8x16.F32 R24,gdesc[UR4],R24,gsb0"}
    found = warnings(
        "", wgmma_ptx(*steps.split()), function([*(lines[each] for each in sass.split()), "EXIT"])
    )
    told = [each for each in found if "WARPGROUP.ARRIVE" in each]
    assert len(told) == bool(injected)
    assert all(f"in PTX: none, WARPGROUP.ARRIVE in SASS: {injected}, injected" in each for each in told)
