"""Behaviours of ptxlab.toolchain.tools, arch and options."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from pathlib import Path

import pytest

from ptxlab.errors import MissingError, ToolError, UsageError
from ptxlab.toolchain import tools
from ptxlab.toolchain.arch import ARCHS, DEFAULT_ARCH, arch_of_ptx, base_number, parse_arch
from ptxlab.toolchain.disassembler import disassemble, listings
from ptxlab.toolchain.nvrtc import nvrtc_tool, nvrtc_version
from ptxlab.toolchain.ptxas import assemble
from ptxlab.toolchain.tools import Tool, find_tool, locate, run_tool, version_mismatch


def program(folder: Path, name: str, text: str) -> Path:
    """Write an executable script."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize("name", ["ptxas", "nvdisasm", "cuobjdump"])
def test_the_tools_that_ptxlab_installs_are_found_with_their_versions(name: str) -> None:
    """They lie in pip's packages, not on PATH."""
    tool = find_tool(name)
    assert tool.path.name == name
    assert tool.version >= (13,)
    assert tool.version_text.startswith("13.")


def test_nvrtc_is_a_tool_too() -> None:
    """Doctor shows the library's path and version."""
    tool = nvrtc_tool()
    assert tool.path.name.startswith("libnvrtc.so")
    assert tool.version == nvrtc_version()


def test_pip_packages_come_before_cuda_home_before_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system toolkit must not hide what was installed."""
    home, folder, site = tmp_path / "home", tmp_path / "path", tmp_path / "site"
    places = {"PATH": folder, "CUDA_HOME": home / "bin", "pip": site / "nvidia" / "cu13" / "bin"}
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.setenv("CUDA_HOME", str(home))
    monkeypatch.setenv("PATH", str(folder))
    for found_via, place in places.items():
        path = program(place, "ptxas", "echo 'Cuda compilation tools, release 13.7, V13.7.1'")
        assert find_tool("ptxas") == Tool("ptxas", path, (13, 7, 1), found_via)


def test_a_file_that_cannot_be_run_is_no_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is missing, and the hint says how to get it."""
    monkeypatch.setattr(tools, "_places", lambda kind: [(tmp_path / kind, "PATH")])
    path = program(tmp_path / "bin", "ncu", "echo 'Version 2025.3.1.0 (build 36398880)'")
    assert find_tool("ncu").version == (2025, 3, 1, 0)
    path.chmod(0o644)
    with pytest.raises(MissingError) as caught:
        locate("ncu")
    assert "ncu" in caught.value.message
    assert "apt-get install cuda-nsight-compute" in caught.value.hint
    assert "NVIDIA's apt repository" in caught.value.hint


def test_an_unknown_tool_is_wrong_usage() -> None:
    """The message holds the tools that ptxlab uses."""
    with pytest.raises(UsageError, match="legal: ptxas"):
        find_tool("ptxs")


def test_headers_with_mma_h_are_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package such as PyTorch's brings the runtime's headers without those that mma.h includes."""
    partial, whole = tmp_path / "partial", tmp_path / "whole"
    for folder in (partial, whole):
        folder.mkdir()
        (folder / "cuda_fp16.h").touch()
    monkeypatch.setattr(tools, "_places", lambda _: [(partial, "pip"), (whole, "system")])
    assert tools.cuda_include_folders() == [partial]
    (whole / "crt").mkdir()
    (whole / "crt" / "mma.h").touch()
    (whole / "cccl").mkdir()
    assert tools.cuda_include_folders() == [whole, whole / "cccl"]


@pytest.mark.parametrize(("ptxas", "warned"), [((13, 0, 88), True), ((13, 5, 37), False), ((14, 1), False)])
def test_an_older_ptxas_than_nvrtc_is_reported(
    monkeypatch: pytest.MonkeyPatch, ptxas: tuple[int, ...], *, warned: bool
) -> None:
    """PTX of a newer NVRTC is refused with "Unsupported .version"."""
    tool = Tool("ptxas", Path("/usr/local/cuda/bin/ptxas"), ptxas, "system")
    monkeypatch.setattr(tools, "find_tool", lambda _: tool)
    monkeypatch.setattr("ptxlab.toolchain.nvrtc.nvrtc_version", lambda: (13, 5))
    text = version_mismatch()
    assert bool(text) == warned
    if text:
        assert "13.0.88" in text
        assert "NVRTC 13.5" in text
        assert "pip install" in text


def test_a_failing_tool_is_quoted(tmp_path: Path) -> None:
    """With the line that says why; unless the caller looks for itself."""
    path = program(tmp_path, "tool", "echo info; echo 'tool fatal : it broke' >&2; exit 3")
    with pytest.raises(ToolError, match="tool failed with exit code 3: tool fatal : it broke"):
        run_tool(path, [])
    assert run_tool(path, [], check=False).returncode == 3


def test_a_tool_that_is_killed_says_by_which_signal(tmp_path: Path) -> None:
    """A crash of a tool is told as one."""
    with pytest.raises(ToolError, match="signal SIGABRT"):
        run_tool(program(tmp_path, "tool", "kill -ABRT $$"), [], check=False)


def test_messages_name_the_file_that_a_tool_worked_on(tmp_path: Path) -> None:
    """However it ended; signals without a name have their number."""
    with pytest.raises(ToolError, match=r"^k\.ptx: tool was ended by signal 40: it said nothing$"):
        run_tool(program(tmp_path, "tool", "kill -40 $$"), [], about="k.ptx")
    with pytest.raises(ToolError, match=r"^k\.ptx: tool did not finish within 0\.1 s$"):
        run_tool(program(tmp_path, "tool", "sleep 9"), [], timeout=0.1, about="k.ptx")


def test_a_compile_that_ptxas_does_not_survive_names_the_file(tmp_path: Path) -> None:
    """A crash is no complaint about the source."""
    tool = Tool("ptxas", program(tmp_path, "ptxas", "kill -SEGV $$"), (13,), "test")
    with pytest.raises(ToolError, match=r"^k\.ptx: ptxas was ended by signal SIGSEGV"):
        assemble(tool, ".version 9.0", "sm_90a", name="k.ptx")


def test_a_full_disk_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As is a folder for temporary files that is not there."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(MissingError, match="temporary files cannot be written: No such file") as caught:
        disassemble(b"", name="k.cubin")
    assert "TMPDIR" in caught.value.hint


@pytest.mark.parametrize("variable", ["PATH", "CUDA_HOME", "LD_LIBRARY_PATH"])
def test_places_that_cannot_be_looked_into_are_passed_over(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """A name too long to be a folder here; another user's folder elsewhere."""
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setenv(variable, "/" + "x" * 300)
    for find in (lambda: locate("ptxas"), tools.locate_nvrtc, tools.cuda_include_folders):
        with contextlib.suppress(MissingError):
            find()


def test_output_that_is_no_text_does_no_harm(tmp_path: Path) -> None:
    """Compilers quote whatever bytes the source has."""
    done = run_tool(program(tmp_path, "tool", r"printf 'a\377b'"), [])
    assert done.stdout == "a\N{REPLACEMENT CHARACTER}b"


def test_a_tool_that_takes_too_long_ends_with_all_that_it_started(tmp_path: Path) -> None:
    """No child is left behind."""
    path = program(tmp_path, "tool", f"sleep 60 & echo $! > {tmp_path}/child; wait")
    with pytest.raises(ToolError, match=r"within 0\.5 s") as caught:
        run_tool(path, [], timeout=0.5)
    assert caught.value.code == "tool-timeout"
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 10
    while is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Whether the process is there and is no corpse that its new parent has not buried yet."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


def test_a_tool_that_does_not_start_is_missing(tmp_path: Path) -> None:
    """Exit code 3."""
    with pytest.raises(MissingError, match="does not start"):
        run_tool(tmp_path / "nothing", [])


def test_architectures_have_numbers() -> None:
    """With and without a suffix; every legal name is accepted."""
    assert {arch: base_number(arch) for arch in ("sm_75", "sm_90a", "sm_100f")} == {
        "sm_75": 75,
        "sm_90a": 90,
        "sm_100f": 100,
    }
    assert all(parse_arch(arch) == arch for arch in ARCHS)
    assert DEFAULT_ARCH in ARCHS


@pytest.mark.parametrize("text", ["sm_91", "90a", "compute_90a", "", "SM_90"])
def test_an_unknown_architecture_is_answered_with_the_list(text: str) -> None:
    """The whole legal set stands in the message."""
    with pytest.raises(UsageError, match=r"sm_75, .*sm_90a, .*sm_121a"):
        parse_arch(text)


@pytest.mark.parametrize(
    ("text", "guess"),
    [
        *(("sm_70", ""), ("sm_91", ""), ("", ""), ("hopper", ""), ("sm_9", "")),
        *(("90a", "sm_90a"), ("compute_90", "sm_90"), ("SM_90A", "sm_90a"), ("sm_100x", "sm_100")),
    ],
)
def test_only_an_architecture_of_the_same_number_is_suggested(text: str, guess: str) -> None:
    """sm_90 for sm_70 would be another chip."""
    with pytest.raises(UsageError) as caught:
        parse_arch(text)
    hint = caught.value.hint
    assert hint.startswith(f"did you mean {guess}") if guess else not hint


@pytest.mark.parametrize(
    ("target", "arch"),
    [
        ("sm_80", "sm_80"),
        ("sm_90", "sm_90"),
        ("sm_90a", "sm_90a"),
        ("sm_100", "sm_100"),
        ("sm_120a, debug", "sm_120a"),
        ("sm_52", "sm_90a"),
    ],
)
def test_ptx_is_assembled_for_its_own_target(target: str, arch: str) -> None:
    """With a suffix or without; what CUDA 13 no longer compiles for becomes the default."""
    assert arch_of_ptx(f"//\n.version 9.0\n.target {target}\n") == arch


LISTING = """
//--------------------- .nv.info                  --------------------------
//--------------------- .text.k                   --------------------------
\t.section\t.text.k,"ax",@progbits
.text.k:
        .type           k,@function
k:
\t//## File ".nv_debug_ptx_txt", line 21
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   BRX R12 -0x20          (*"BRANCH_TARGETS .L_x_1,.L_x_2"*);
.L_x_2:
\t//## File ".nv_debug_ptx_txt", line 24 inlined at somewhere
        /*0020*/              @!P0 EXIT ;
$__internal_0_$helper:
.L_x_1:
        /*0030*/                   RET.REL.NODEC R2 `(k) ;
//--------------------- .text.other               --------------------------
other:
        /*0000*/                   EXIT ;
"""


def test_a_listing_tells_lines_functions_and_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines carry on until they change, but not into an internal function."""
    monkeypatch.setattr("ptxlab.toolchain.disassembler._run", lambda *_: LISTING)
    found = listings(b"", name="k.cubin")
    assert list(found) == ["k", "other"]
    assert found["k"].ptx_lines == {0x00: 21, 0x10: 21, 0x20: 24}
    assert found["k"].functions == {"k": 0, "$__internal_0_$helper": 0x30}
    assert found["k"].jumps == {0x10: [0x30, 0x20]}
    assert found["other"].ptx_lines == {}
