"""Behaviours of ptxlab.sass.report on kernels that are really compiled."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import sass_sources as sources

from ptxlab.sass.report import kernels
from ptxlab.toolchain.build import Build, build_cubin, build_cuda, build_ptx
from ptxlab.toolchain.tools import find_tool

Reports = dict[str, dict[str, Any]]


def reports(build: Build) -> Reports:
    """Return the reports by kernel."""
    return {each["name"]: each for each in kernels(build)}


@pytest.fixture(scope="session")
def loops_build() -> Build:
    """Compile the kernels with loops."""
    return build_cuda(sources.LOOPS, name="/sources/loops.cu", arch="sm_90")


@pytest.fixture(scope="session")
def resources_build() -> Build:
    """Compile the kernels that spill, share and call."""
    return build_cuda(sources.RESOURCES, name="/sources/resources.cu", arch="sm_90a")


@pytest.fixture(scope="session")
def wgmma() -> Reports:
    """Compile the kernels that ptxas has something to say about."""
    return reports(build_cuda(sources.WGMMA, name="/sources/wgmma.cu", arch="sm_90a"))


@pytest.fixture(scope="session")
def on_hopper() -> Reports:
    """Assemble one kernel for each kind of mma for Hopper."""
    every = (
        *(sources.F16, sources.VOLTA, sources.FP8, sources.FP8_SMALL, sources.S8, sources.S4),
        *(sources.B1_AND, sources.B1_XOR, sources.F64),
    )
    return reports(build_ptx(sources.module("sm_90", *every), name="every.ptx", arch="sm_90"))


@pytest.fixture(scope="session")
def on_blackwell() -> Reports:
    """Assemble some of them for Blackwell."""
    some = (sources.F16, sources.FP8, sources.S8, sources.S4, sources.B1_AND, sources.F64)
    return reports(build_ptx(sources.module("sm_90", *some), name="some.ptx", arch="sm_100a"))


def test_every_kernel_has_what_the_contract_promises(resources_build: Build) -> None:
    """All keys; counts, families and the total agree; padding is in none of them."""
    for report in kernels(resources_build):
        assert set(report) == {
            *("name", "readable_name", "arch", "instructions", "padding", "registers", "spill_bytes"),
            *("shared_bytes", "counts", "families", "tensor_ops", "tensor_dummies", "loops"),
            *("advisories", "emulated", "warnings", "async_readers", "unfenced"),
        }
        assert sum(report["counts"].values()) == sum(report["families"].values()) == report["instructions"]
        assert "NOP" not in report["families"]
        assert report["arch"] == "sm_90a"


def test_kernels_come_in_the_order_of_the_source(resources_build: Build) -> None:
    """The cubin has them the other way round."""
    names = [each["name"] for each in kernels(resources_build)]
    assert names == ["stores_one", "shares", "shares_dynamically", "spills", "calls"]


def test_instructions_and_padding_agree_with_the_text_of_nvdisasm(loops_build: Build, tmp_path: Path) -> None:
    """Counted a second time, from the text output: every line, its NOPs, its last branch to itself."""
    cubin = tmp_path / "loops.cubin"
    cubin.write_bytes(loops_build.cubin)
    nvdisasm = find_tool("nvdisasm").path
    text = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=True).stdout
    parts = re.split(r"^//-+ \.text\.(\w+) .*$", text, flags=re.MULTILINE)
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        lines = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", body)
        nops = lines.count("NOP")
        report = reports(loops_build)[name]
        assert (report["instructions"], report["padding"]) == (len(lines) - nops - 1, nops + 1)


def test_static_counts_follow_the_unrolling(loops_build: Build) -> None:
    """The same 16 executions stand in the code 1, 5 (4 and a remainder) or 16 times."""
    found = reports(loops_build)
    hmma = {name: found[name]["families"].get("HMMA") for name in ("not_unrolled", "by_four", "fully")}
    assert hmma == {"not_unrolled": 1, "by_four": 5, "fully": 16}
    assert [each["tensor_ops"] for each in found["not_unrolled"]["loops"]] == [1]
    assert sorted(each["tensor_ops"] for each in found["by_four"]["loops"]) == [1, 4]
    assert found["fully"]["loops"] == []


def test_nested_loops_have_a_depth_and_the_outer_holds_the_inner(loops_build: Build) -> None:
    """The body of a loop takes in the loops inside it."""
    outer, inner = reports(loops_build)["nested"]["loops"]
    assert (outer["depth"], inner["depth"]) == (1, 2)
    assert outer["start"] <= inner["start"] < inner["end"] <= outer["end"]
    assert inner["instructions"] < outer["instructions"]
    assert sum(inner["counts"].values()) == inner["instructions"]


def test_a_loop_of_the_user_without_end_is_no_padding(loops_build: Build) -> None:
    """Only the branch to itself behind all code is padding."""
    report = reports(loops_build)["forever"]
    assert [each["counts"] for each in report["loops"]] == [{"BRA": 1}]
    assert report["families"]["BRA"] == 1


def test_a_loop_around_a_switch_is_found(loops_build: Build) -> None:
    """The targets of indirect branches come from the listing."""
    report = reports(loops_build)["switches"]
    assert report["families"]["BRX"]
    (loop,) = report["loops"]
    assert loop["counts"]["BRX"] == report["counts"]["BRX"]


def test_a_constant_made_by_hfma2_is_no_tensor_operation(resources_build: Build) -> None:
    """HFMA2.MMA ends like a tensor operation and is none."""
    report = reports(resources_build)["stores_one"]
    assert report["counts"]["HFMA2.MMA"] == 1
    assert report["tensor_ops"] == 0


def test_tensor_operations_of_internal_functions_count(resources_build: Build) -> None:
    """A function that is not inlined lies behind its kernel and belongs to it."""
    report = reports(resources_build)["calls"]
    assert report["families"]["CALL"] == 2
    assert report["tensor_ops"] == report["counts"]["HMMA.16816.F32"] == 1
    assert report["emulated"] == []


def test_resources_are_those_of_ptxas(resources_build: Build) -> None:
    """Static shared memory alone; registers under a bound; spills in bytes."""
    found = reports(resources_build)
    assert found["shares"]["shared_bytes"] == 4096
    assert found["shares_dynamically"]["shared_bytes"] == 0
    assert found["spills"]["registers"] == 32
    local = sum(found["spills"]["families"].get(name, 0) for name in ("LDL", "STL"))
    assert found["spills"]["spill_bytes"] >= 4 * local > 0
    assert found["shares"]["spill_bytes"] == 0


def test_a_bare_cubin_tells_the_same_but_for_spills(resources_build: Build) -> None:
    """The architecture comes from a note, the resources from cuobjdump, the PTX from line information."""
    bare = build_cubin(resources_build.cubin, name="bare.cubin")
    assert (bare.arch, bare.log) == ("sm_90a", "")
    expected = [each | {"spill_bytes": None} for each in kernels(resources_build)]
    assert kernels(bare) == expected


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_a_bare_cubin_without_shared_memory_uses_none(arch: str) -> None:
    """Cuobjdump counts the reserved 1024 bytes of kernels that share, and 0 for the others beside them."""
    source = sources.RESOURCES.partition('extern "C" __global__ void shares_dynamically')[0]
    bare = build_cubin(build_cuda(source, name="/sources/two.cu", arch=arch).cubin, name="two.cubin")
    assert {each["name"]: each["shared_bytes"] for each in kernels(bare)} == {"stores_one": 0, "shares": 4096}


def test_the_report_is_made_once(resources_build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second build brings its report from the cache: no disassembler runs."""
    first = kernels(resources_build)
    again = build_cuda(sources.RESOURCES, name="/sources/resources.cu", arch="sm_90a")
    monkeypatch.setattr("ptxlab.sass.instructions.disassemble", None)
    monkeypatch.setattr("ptxlab.sass.analysis.listings", None)
    assert again.cached
    assert kernels(again) == first


def test_fp8_is_emulated_by_f16_on_hopper(on_hopper: Reports) -> None:
    """Twelve conversions and two of f16."""
    (entry,) = on_hopper["fp8"]["emulated"]
    assert entry["ptx"] == sources.FP8.opcode
    assert entry["sites"] == 1
    assert entry["counts"]["F2FP.F16.E4M3.UNPACK_B"] == 12
    assert entry["counts"]["HMMA.16816.F32"] == on_hopper["fp8"]["tensor_ops"] == 2
    assert entry["sass"].startswith("2 HMMA.16816.F32 + 12 F2FP.F16.E4M3.UNPACK_B")
    (small,) = on_hopper["fp8_small"]["emulated"]
    assert (small["counts"]["F2FP.F16.E4M3.UNPACK_B"], small["counts"]["HMMA.1688.F32"]) == (6, 2)


def test_volta_s_mma_is_emulated_without_tensor_cores(on_hopper: Reports) -> None:
    """No tensor operation is left, only what a routine computes."""
    report = on_hopper["volta"]
    assert report["tensor_ops"] == 0
    (entry,) = report["emulated"]
    assert entry["counts"]["CALL.REL.NOINC"] == 1
    assert entry["counts"]["HADD2.F32"]
    assert entry["counts"]["FFMA"]


def test_volta_s_mma_is_native_on_turing() -> None:
    """Its four steps are what that chip has."""
    build = build_ptx(sources.module("sm_75", sources.VOLTA), name="volta.ptx", arch="sm_75")
    (report,) = kernels(build)
    assert report["tensor_ops"] == 4
    assert report["emulated"] == []


@pytest.mark.parametrize(
    ("kernel", "native"),
    [("f16", 1), ("s8", 1), ("s4", 0), ("b1_and", 1), ("b1_xor", 0), ("f64", 1)],
)
def test_what_hopper_has_natively(on_hopper: Reports, kernel: str, native: int) -> None:
    """s4 became two IMMA of s8 there, xor two BMMA of and."""
    report = on_hopper[kernel]
    assert len(report["emulated"]) == 1 - native
    assert report["tensor_ops"] == (1 if native else 2)
    assert report["warnings"] == []


def test_what_blackwell_no_longer_has(on_blackwell: Reports) -> None:
    """fp8 by mma.sync, s4, b1 and the large f64 shapes are emulated."""
    natively = [name for name, report in on_blackwell.items() if not report["emulated"]]
    assert natively == ["f16", "s8"]
    (f64,) = on_blackwell["f64"]["emulated"]
    assert f64["counts"] == {"DMMA.8x8x4": 8}
    (b1,) = on_blackwell["b1_and"]["emulated"]
    assert b1["counts"]["IMMA.16832.U8.U8"] == 8


def test_advisories_go_to_the_kernel_they_are_about(wgmma: Reports) -> None:
    """A wait that was injected; setmaxnreg that was ignored for want of a bound."""
    assert wgmma["good"]["advisories"] == wgmma["bounded"]["advisories"] == []
    (ignored,) = wgmma["unbounded"]["advisories"]
    assert "C7508" in ignored
    (injected,) = wgmma["no_wait"]["advisories"]
    assert "C7517" in injected
    line = 1 + sources.WGMMA[: sources.WGMMA.index("KERNEL(no_wait)")].count("\n")
    assert injected.endswith(f"[/sources/wgmma.cu:{line}]")


def test_setmaxnreg_that_is_gone_is_noticed(wgmma: Reports) -> None:
    """PTX has it twice; without a bound on the blocks SASS has none, and that is said."""
    assert wgmma["bounded"]["families"]["USETMAXREG"] == 2
    assert wgmma["bounded"]["warnings"] == []
    assert "USETMAXREG" not in wgmma["unbounded"]["families"]
    assert any("setmaxnreg in PTX: 2" in each for each in wgmma["unbounded"]["warnings"])


def test_wgmma_that_were_merged_are_noticed(wgmma: Reports) -> None:
    """Some ptxas merge two identical wgmma, others do not; what counts is that it is said."""
    assert wgmma["good"]["tensor_ops"] == 2
    assert wgmma["good"]["warnings"] == []
    merged = wgmma["twice"]["tensor_ops"] == 1
    assert any("2 wgmma.mma_async in PTX, 1 in SASS" in each for each in wgmma["twice"]["warnings"]) == merged


@pytest.mark.parametrize(
    ("kernel", "real", "dummies"),
    [("good", 2, 0), ("branches", 1, 1), ("empty_groups", 1, 2), ("repeats", 1, 1), ("nothing", 0, 1)],
)
def test_wgmma_that_ptxas_injects_are_counted_apart(
    wgmma: Reports, kernel: str, real: int, dummies: int
) -> None:
    """One ends each group whose commit has no wgmma right before it; the counts hold the full truth."""
    report = wgmma[kernel]
    assert (report["tensor_ops"], report["tensor_dummies"]) == (real, dummies)
    assert report["families"]["HGMMA"] == real + dummies
    assert report["counts"].get("HGMMA.64x8x16.F16", 0) == dummies
    assert report["warnings"] == []


def test_a_loop_counts_no_dummy(wgmma: Reports) -> None:
    """The outer loop holds the dummy that ends its group, the inner one the operation."""
    outer, inner = wgmma["repeats"]["loops"]
    assert (outer["tensor_ops"], inner["tensor_ops"]) == (1, 1)
    assert outer["counts"]["HGMMA.64x8x16.F16"] == 1
    assert "HGMMA.64x8x16.F16" not in inner["counts"]


def test_the_names_of_compiled_kernels_can_be_read() -> None:
    """The instances of a template share one name."""
    found = kernels(build_cuda(sources.NAMES, name="/sources/names.cu", arch="sm_90a"))
    assert sorted(each["readable_name"] for each in found) == [
        *("hidden", "ns::inner::deep", "ns::sized", "ns::sized", "spill"),
    ]
