"""``ptxlab sass --check proxy-fence``: ordinary writes that an asynchronous read may miss."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from ptxlab.sass.instructions import Function, Instruction
from ptxlab.sass.proxy_fence import readers_of, unfenced

RunCli = Callable[..., CompletedProcess[str]]
STORE = "UBLKCP.G.S [UR6],[UR4],UR5"
FENCE = "FENCE.VIEW.ASYNC.S"
BARRIER = "BAR.SYNC.DEFER_BLOCKING 0x0"
WGMMA = "HGMMA.64x64x16.F32 R24,gdesc[UR4],R24"


def function(*lines: str) -> Function:
    """Return the function with these lines, one every 16 bytes."""
    code = []
    for index, line in enumerate([*lines, "EXIT"]):
        predicate, rest = line.split(" ", 1) if line.startswith("@") else ("", line)
        opcode, _, operands = rest.partition(" ")
        code.append(Instruction(16 * index, predicate, opcode, operands))
    return Function("k", tuple(code), tuple(code), ())


def found(*lines: str) -> list[tuple[int, int]]:
    """Return which line reads what which line wrote, counted from 0."""
    return [(each.reader.address // 16, each.write.address // 16) for each in unfenced(function(*lines), {})]


@pytest.mark.parametrize("write", ["STS.128 [R0],R4", "STSM.16.M88.4 [R0],R4", "LDGSTS.E.128 [R0],[R2]"])
@pytest.mark.parametrize(
    "read", [STORE, "UTMASTG.2D [UR4],[UR6]", "UTMAREDG.2D.ADD [UR4]", "UBLKRED.G.S.ADD"]
)
def test_a_barrier_is_no_fence(write: str, read: str) -> None:
    """Whatever writes, and whatever reads; with the fence before the barrier nothing is found."""
    assert found(write, BARRIER, read) == [(2, 0)]
    assert found(write, FENCE, BARRIER, read) == []
    assert found(write, "FENCE.VIEW.ASYNC", BARRIER, read) == []


def test_the_fence_of_global_memory_is_another_one() -> None:
    """FENCE.VIEW.ASYNC.G says nothing of shared memory."""
    assert found("STS [R0],R1", "FENCE.VIEW.ASYNC.G", BARRIER, STORE) == [(3, 0)]


def test_a_write_after_the_fence_is_found() -> None:
    """The last write is what counts."""
    assert found("STS [R0],R1", FENCE, "STS [R2],R3", BARRIER, STORE) == [(4, 2)]


def test_a_path_around_the_fence_is_found() -> None:
    """A loop that held the fence and is left out."""
    lines = ["STS [R0],R1", "@!P0 BRA 0x40", "STS [R0],R2", FENCE, BARRIER, STORE]
    assert found(*lines) == [(5, 0)]
    assert found(*lines[:4], "NOP", FENCE, BARRIER, STORE) == []


def test_a_fence_behind_the_barrier_is_found() -> None:
    """It orders the writes of the thread that runs it, and not those of the others."""
    (each,) = unfenced(function("STS [R0],R1", BARRIER, FENCE, STORE), {})
    assert "behind the barrier" in each.told


def test_a_second_barrier_hands_over_what_was_fenced_after_the_first() -> None:
    """All threads have come by the fence then."""
    assert found("STS [R0],R1", BARRIER, "LDS R1,[R0]", "STS [R2],R3", FENCE, BARRIER, STORE) == []


def test_a_predicated_fence_covers_the_writes_under_its_predicate() -> None:
    """The others may go by it."""
    assert found("@P0 STS [R0],R1", "@P0 " + FENCE, BARRIER, STORE) == []
    assert found("STS [R0],R1", "@P0 " + FENCE, BARRIER, STORE) == [(3, 0)]


def test_a_write_of_the_iteration_before_is_found() -> None:
    """A path may lead back."""
    lines = [FENCE, BARRIER, STORE, "STS [R0],R1", "@P0 BRA 0x10", "EXIT"]
    assert found(*lines) == [(2, 3)]
    assert found(*lines[:4], "@P0 BRA 0x0", "EXIT") == []


def test_what_never_runs_writes_nothing() -> None:
    """Such instructions only keep a distance between others."""
    assert found("@!PT STS [RZ],RZ", BARRIER, STORE) == []


def test_a_generic_store_may_lie_elsewhere() -> None:
    """It is found, and the doubt is told."""
    (each,) = unfenced(function("ST.E [R2.64],R1", BARRIER, STORE), {})
    assert "may lie elsewhere" in each.told


def test_wgmma_reads_what_ordinary_writes_left() -> None:
    """Where TMA fills its operands, other writes are not for it."""
    assert found("STS [R0],R1", BARRIER, WGMMA) == [(2, 0)]
    assert found("UTMALDG.2D [UR4]", "STS [R0],R1", BARRIER, WGMMA) == []
    assert found("STS [R0],R1", BARRIER, "HGMMA.64x8x16.F16 RZ,gdesc[URZ],RZ,!UPT") == []


def test_readers_are_counted() -> None:
    """Loads by TMA are none: they write."""
    code = function(STORE, "UTMALDG.2D [UR4]", "UBLKCP.S.G [UR4]", "UBLKCP.S.S [UR4]")
    assert [each.opcode for each in readers_of(code)] == ["UBLKCP.G.S", "UBLKCP.S.S"]


SOURCE = """#include <ptxlab/bulk_copy.cuh>
extern "C" __global__ void k(unsigned *out, const unsigned *in, int n)
{
    __shared__ __align__(128) unsigned s[256];
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(s));
    s[threadIdx.x] = in[threadIdx.x];
    for (int i = 0; i < n; ++i) {
        s[threadIdx.x] += in[i];
        ptxlab::fence_proxy_async_shared();
    }
    FENCE;
    __syncthreads();
    if (threadIdx.x == 0) {
        ptxlab::bulk_store(out, at, 1024);
        ptxlab::tma_commit();
        ptxlab::tma_wait<0, true>();
    }
}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A kernel whose fence may be left out with the loop that holds it."""
    file = tmp_path / "k.cu"
    file.write_text(SOURCE)
    return file


def document(done: CompletedProcess[str]) -> dict[str, Any]:
    """Return the JSON document on stdout."""
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def test_the_command_names_both_lines(run_here: RunCli, source: Path) -> None:
    """Exit 1, with the instructions, their addresses, and the lines of the source that they came from."""
    done = run_here("sass", str(source), "--check", "proxy-fence", "-D", "FENCE=", "--json")
    assert done.returncode == 1
    (check,) = document(done)["checks"]
    assert not check["ok"]
    (row,) = document(done)["result"]["kernels"][0]["unfenced"]
    assert (row["reader"], row["reader_line"]) == ("UBLKCP.G.S", 14)
    assert (row["write"], row["write_line"]) == ("STS", 6)
    for place in (f"{row['reader_at']:#06x}, k.cu:14", f"{row['write_at']:#06x}, k.cu:6"):
        assert place in check["detail"]
    assert "proves nothing" in check["detail"]


def test_with_the_fence_on_every_path_the_command_is_content(run_here: RunCli, source: Path) -> None:
    """Exit 0, and the check says what was looked at."""
    fence = "FENCE=ptxlab::fence_proxy_async_shared()"
    done = run_here("sass", str(source), "--check", "proxy-fence", "-D", fence, "--json")
    assert done.returncode == 0
    assert "any of 1 asynchronous reads" in document(done)["checks"][0]["detail"]


def test_a_check_that_held_is_named(run_here: RunCli, source: Path) -> None:
    """A number of claims alone tells nobody what was looked for."""
    fence = "FENCE=ptxlab::fence_proxy_async_shared()"
    shown = run_here("sass", str(source), "--check", "proxy-fence", "-D", fence).stdout
    assert "proxy fence: no path leads from an ordinary write to any of 1 asynchronous reads" in shown
    assert "1 of 1 claims hold." in shown


def test_of_ptx_the_lines_are_its_own(run_here: RunCli, tmp_path: Path) -> None:
    """A .ptx file without line information names no other source."""
    file = tmp_path / "k.ptx"
    file.write_text(
        ".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n"
        ".reg .b64 %rd1; .reg .b32 %r1; .reg .b32 %r2;\n.shared .align 128 .b8 s[1024];\n"
        "ld.param.u64 %rd1, [a]; mov.u32 %r1, s; mov.u32 %r2, %tid.x;\n"
        "st.shared.u32 [%r1], %r2;\nbar.sync 0;\n"
        "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 64;\nret;\n}\n"
    )
    done = run_here("sass", str(file), "--check", "proxy-fence", "--json")
    assert done.returncode == 1
    (row,) = document(done)["result"]["kernels"][0]["unfenced"]
    assert (row["reader_line"], row["write_line"]) == (11, 9)


def test_other_checks_are_refused(run_here: RunCli, source: Path) -> None:
    """With the names of those that there are."""
    done = run_here("sass", str(source), "--check", "fences")
    assert done.returncode == 2
    assert "legal: proxy-fence" in done.stderr
