"""Behaviours of ptxlab.toolchain.build: sources to cubins, with no driver and no GPU."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxlab.errors import MissingError, ToolError, UsageError
from ptxlab.sass.resources import from_log
from ptxlab.toolchain import tools
from ptxlab.toolchain.build import Build, build_cuda, build_file, build_ptx
from ptxlab.toolchain.messages import CompileError
from ptxlab.toolchain.nvrtc import compile_cuda, nvrtc_version
from ptxlab.toolchain.options import Options

SOURCE = 'extern "C" __global__ void k(float* p) { p[threadIdx.x] = 1; }\n'
ROOT = Path(__file__).resolve().parents[2]

Writer = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    """Return a function that writes a file into this test's folder."""

    def writer(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return writer


@pytest.fixture(scope="session")
def compiled() -> Build:
    """Compile the smallest kernel."""
    return build_cuda(SOURCE, name="/sources/one.cu", arch="sm_90a")


def failure(path: Path, arch: str | None = None, options: Options | None = None) -> CompileError:
    """Return the error of a build that must fail."""
    with pytest.raises(CompileError) as caught:
        build_file(path, arch, options)
    return caught.value


def test_one_compile_gives_ptx_cubin_and_log(compiled: Build) -> None:
    """All three from one call, and the compiler's version."""
    assert ".visible .entry k(" in compiled.ptx
    assert compiled.cubin.startswith(b"\x7fELF")
    assert "Used" in compiled.log
    assert compiled.compiler == "NVRTC {}.{}".format(*nvrtc_version())


def test_the_entry_keeps_source_ptx_and_cubin(compiled: Build) -> None:
    """They lie side by side in the cache entry."""
    assert compiled.folder is not None
    assert (compiled.folder / "kernel.cu").read_text() == SOURCE
    assert (compiled.folder / "kernel.ptx").read_text() == compiled.ptx
    assert (compiled.folder / "kernel.cubin").read_bytes() == compiled.cubin


def test_nvrtc_and_ptxas_give_the_same_code(compiled: Build) -> None:
    """Both compile whole programs: the same bytes."""
    from elftools.elf.elffile import ELFFile

    assembled = build_ptx(compiled.ptx, name="one.ptx", arch="sm_90a")
    sections = [
        ELFFile(io.BytesIO(build.cubin)).get_section_by_name(".text.k") for build in (compiled, assembled)
    ]
    first, second = [section.data() for section in sections if section]
    assert first == second


def test_a_second_build_loads_no_compiler(compiled: Build) -> None:
    """A warm command must be quick: nothing is imported that only a compile needs."""
    script = (
        "import sys\n"
        "from ptxlab.toolchain.build import build_cuda\n"
        f"build = build_cuda({SOURCE!r}, name='/sources/one.cu', arch='sm_90a')\n"
        "cold = ('cuda', 'numpy', 'elftools', 'subprocess', 'pickle', 'ctypes')\n"
        "loaded = [name for name in sys.modules if name.split('.')[0] in cold]\n"
        "print(build.cached, loaded)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert compiled.folder is not None
    assert done.stdout.split() == ["True", "[]"]


def test_the_key_holds_all_that_the_code_depends_on(write: Writer) -> None:
    """Headers of headers, architecture, options and macros; nothing else."""
    inner = write("include/inner.cuh", "#define VALUE 1\n")
    write("include/outer.cuh", '#include "inner.cuh"\n')
    unrelated = write("include/unrelated.cuh", "\n")
    path = write("k.cu", '#include <outer.cuh>\nextern "C" __global__ void k(int* p) { *p = VALUE; }\n')
    options = Options(include_dirs=(inner.parent,))
    first = build_file(path, "sm_90a", options)
    unrelated.write_text("#define OTHER\n")
    assert build_file(path, "sm_90a", options).cached
    assert not build_file(path, "sm_90", options).cached
    assert not build_file(path, "sm_90a", Options(options.include_dirs, maxrregcount=32)).cached
    assert not build_file(path, "sm_90a", Options(options.include_dirs, defines=("X=1",))).cached
    inner.write_text("#define VALUE 2\n")
    changed = build_file(path, "sm_90a", options)
    assert not changed.cached
    assert changed.cubin != first.cubin


def test_a_new_compiler_means_a_new_build(compiled: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler's file stands for its version."""
    monkeypatch.setattr("ptxlab.toolchain.build.file_identity", lambda path: f"newer {path}")
    again = build_cuda(SOURCE, name="/sources/one.cu", arch="sm_90a")
    assert not again.cached
    assert again.folder != compiled.folder


def test_a_header_that_appears_earlier_on_the_path_is_seen(write: Writer) -> None:
    """The key follows the search order of -I."""
    late = write("late/value.cuh", "#define VALUE 1\n").parent
    early = late.parent / "early"
    early.mkdir()
    path = write("k.cu", '#include <value.cuh>\nextern "C" __global__ void k(int* p) { *p = VALUE; }\n')
    options = Options(include_dirs=(early, late))
    first = build_file(path, None, options)
    write("early/value.cuh", "#define VALUE 2\n")
    assert build_file(path, None, options).cubin != first.cubin


def test_what_nobody_can_track_is_not_kept(write: Writer) -> None:
    """An #include of a macro may change what it names."""
    write("value.cuh", "#define VALUE 1\n")
    path = write("k.cu", '#define FILE "value.cuh"\n#include FILE\n' + SOURCE)
    for _ in range(2):
        build = build_file(path)
        assert not build.cached
        assert build.folder is None


def test_a_damaged_entry_is_built_again(compiled: Build) -> None:
    """Whichever file of it was cut short."""
    assert compiled.folder is not None
    files = [*sorted(compiled.folder.glob("kernel.*")), compiled.folder / "manifest.json"]
    assert len(files) == 4
    for file in files:
        file.write_bytes(file.read_bytes()[:-7])
        again = build_cuda(SOURCE, name="/sources/one.cu", arch="sm_90a")
        assert not again.cached, file
        assert again.cubin == compiled.cubin
        assert build_cuda(SOURCE, name="/sources/one.cu", arch="sm_90a").cached


def test_sixteen_processes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All get the same entry, nothing is left over, nobody warns."""
    monkeypatch.setenv("PTXLAB_CACHE", str(tmp_path / "cache"))
    script = (
        "import hashlib\n"
        "from ptxlab.toolchain.build import build_cuda\n"
        f"build = build_cuda({SOURCE!r}, name='/sources/many.cu', arch='sm_90a')\n"
        "print(hashlib.sha256(build.cubin).hexdigest(), build.folder)\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(16)
    ]
    outputs = [process.communicate(timeout=120) for process in running]
    assert [err for _, err in outputs] == [""] * 16
    alone = build_cuda(SOURCE, name="/sources/many.cu", arch="sm_90a")
    assert alone.cached
    assert {out for out, _ in outputs} == {f"{hashlib.sha256(alone.cubin).hexdigest()} {alone.folder}\n"}
    assert [path.name for path in (tmp_path / "cache" / "builds").iterdir()] == [Path(str(alone.folder)).name]


def test_a_memo_is_computed_once_and_again_when_damaged(compiled: Build) -> None:
    """It lies in the entry, with its own checksum."""

    def fresh() -> Build:
        return build_cuda(SOURCE, name="/sources/one.cu", arch="sm_90a")

    assert fresh().memo("square", lambda: {"of": [3, 9]}) == {"of": [3, 9]}
    assert fresh().memo("square", lambda: "never asked") == {"of": [3, 9]}
    assert compiled.folder is not None
    file = compiled.folder / "square.memo"
    file.write_text(file.read_text().replace("9", "8"))
    assert fresh().memo("square", lambda: "asked again") == "asked again"


def test_an_error_names_the_line_of_the_file_and_shows_it(write: Writer) -> None:
    """One line: file, line, message, source."""
    path = write("bad.cu", "// one\n// two\n__global__ void k() {\n  int x = missing;\n}\n")
    error = failure(path)
    expected = f'{path}:4: error: identifier "missing" is undefined: int x = missing; [sm_90a]'
    assert error.message == expected
    assert "1 error detected" in error.log


def test_more_errors_are_counted(write: Writer) -> None:
    """The first one is shown, the others are counted."""
    path = write("bad.cu", "__global__ void k() {\n  a = 1;\n  b = 1;\n  c = 1;\n}\n")
    assert "(and 2 more)" in failure(path).message


def test_an_error_of_ptxas_shows_the_ptx_line_and_the_line_it_came_from(write: Writer) -> None:
    """The asm statement in the header, and the line that called it."""
    write("wrapper.cuh", '__device__ void load() {\n  asm volatile("ldmatrix.wrong %r1;");\n}\n')
    path = write("bad.cu", '#include "wrapper.cuh"\n__global__ void k() {\n  load();\n}\n')
    error = failure(path)
    assert error.message.startswith(f"{path.parent}/wrapper.cuh:2 (inlined at {path}:3): error: ")
    assert "ldmatrix.wrong %r1;" in error.message
    assert " in PTX line " in error.message


def test_an_error_in_ptx_names_its_line(write: Writer) -> None:
    """For a .ptx the line is its own."""
    path = write("bad.ptx", ".version 9.0\n.target sm_90\n.address_size 64\n.entry k() {\n  wrong.u32;\n}\n")
    message = failure(path).message
    assert message.startswith(f"{path}:5: error: ")
    assert "wrong.u32;" in message


@pytest.mark.parametrize("length", range(40, 56))
def test_ptx_without_a_last_newline_assembles(length: int) -> None:
    """With -lineinfo ptxas overruns a buffer on some lengths of such files, and aborts."""
    text = f".version 9.0\n.target sm_90a\n.address_size 64\n.entry k() {{ ret; }} //{'x' * length}"
    assert build_ptx(text, name="short.ptx", arch="sm_90a").cubin.startswith(b"\x7fELF")


WGMMA = '__global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }\n'


@pytest.mark.parametrize(
    ("source", "arch", "hint"),
    [
        (WGMMA, "sm_90", "use sm_90a"),
        (WGMMA, "sm_100a", "wgmma exists on sm_90a alone"),
        (
            '__global__ void k() { asm volatile("setmaxnreg.inc.sync.aligned.u32 240;"); }',
            "sm_90",
            "use sm_90a",
        ),
        (
            '__global__ void k() { asm volatile("barrier.cluster.arrive.aligned;"); }',
            "sm_80",
            "use --arch sm_90 or a newer one",
        ),
        ("#include <cstdio>\n", "sm_90a", "NVRTC compiles device code alone"),
        ("int main() { return 0; }\n", "sm_90a", "NVRTC compiles device code alone"),
        ("#include <cstdint>\n", "sm_90a", "#include <cuda/std/cstdint>"),
        ("#include <stdint.h>\n", "sm_90a", "#include <cuda/std/cstdint>"),
        ('#include "mine.cuh"\n', "sm_90a", "give the folder of mine.cuh with -I"),
    ],
)
def test_hints(write: Writer, source: str, arch: str, hint: str) -> None:
    """What to do next."""
    assert hint in failure(write("k.cu", source), arch).hint


@pytest.mark.parametrize("header", ["cuda.h", "cudaTypedefs.h"])
def test_a_kernel_takes_a_tensor_map_of_the_driver(write: Writer, header: str) -> None:
    """The driver's header wants some of the host's, which NVRTC has not: device code does with stand-ins."""
    source = f"""#include <{header}>
        extern "C" __global__ void k(const __grid_constant__ CUtensorMap map, uint64_t *out) {{
            out[0] = reinterpret_cast<uint64_t>(&map) % alignof(CUtensorMap);
        }}"""
    assert build_file(write("k.cu", source), "sm_90a").cubin


def test_cuda_headers_that_are_not_here_are_said_to_be_looked_for(
    write: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint says where it looked, and what to install."""
    monkeypatch.setattr("ptxlab.toolchain.build.cuda_include_folders", list)
    error = failure(write("k.cu", "#include <cuda_fp16.h>\n"))
    assert "looked for in: " in error.hint
    assert "pip install nvidia-cuda-runtime" in error.hint


def test_the_usual_headers_are_found(write: Writer) -> None:
    """fp16, bf16 and mma.h compile from the installed packages."""
    text = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <mma.h>\n" + SOURCE
    assert build_file(write("k.cu", text)).cubin


def test_ptx_for_one_architecture_is_built_for_it(write: Writer) -> None:
    """Without --arch a .ptx goes to its own target."""
    text = ".version 9.0\n.target {}\n.address_size 64\n.visible .entry k() {{ ret; }}\n"
    built = {name: build_file(write(f"{name}.ptx", text.format(name))) for name in ("sm_80", "sm_100a")}
    assert {name: build.arch for name, build in built.items()} == {"sm_80": "sm_80", "sm_100a": "sm_100a"}
    error = failure(write("sm_90a.ptx", text.format("sm_90a")), "sm_90")
    assert "use --arch sm_90a" in error.hint


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("k.cu", Options(level="7"), "legal: 0, 1, 2, 3"),
        ("k.cu", Options(std="c++98"), "legal: c++03"),
        ("k.cu", Options(include_dirs=(Path("/no/such/folder"),)), "is no folder"),
        ("k.ptx", Options(defines=("X",)), "which takes -O, --maxrregcount"),
        ("k.cubin", Options(level="1"), "none of the compiler's options"),
        ("k.txt", Options(), "legal: .cu, .ptx, .cubin"),
    ],
)
def test_wrong_options_name_the_legal_ones(write: Writer, name: str, options: Options, message: str) -> None:
    """Exit code 2 with the legal set."""
    with pytest.raises(UsageError) as caught:
        build_file(write(name, ""), None, options)
    assert message in caught.value.message


def test_a_missing_file_is_wrong_usage(tmp_path: Path) -> None:
    """Exit code 2, whatever its kind."""
    for path in (tmp_path / "none.cu", tmp_path / "none.cubin"):
        with pytest.raises(UsageError, match="does not exist"):
            build_file(path)


@pytest.mark.parametrize("name", ["k.cu", "k.ptx"])
def test_a_source_with_a_nul_byte_is_refused(write: Writer, name: str) -> None:
    """A compiler would silently compile what stands before it."""
    path = write(name, "")
    path.write_bytes(SOURCE.encode() + b"\0" + SOURCE.encode())
    with pytest.raises(ToolError) as caught:
        build_file(path)
    assert f"{path} holds a NUL byte at offset {len(SOURCE)}" in caught.value.message


def test_a_header_with_an_impossible_name_is_one_that_is_not_there(write: Writer) -> None:
    """The compiler says so with the line."""
    path = write("k.cu", f'#include "{"a" * 5000}"\n')
    assert failure(path).message.startswith(f"{path}:1: error: cannot open source file")


def test_options_reach_the_compiler(write: Writer) -> None:
    """-D and --std show in the PTX, -O in the code."""
    path = write("k.cu", 'extern "C" __global__ void k(int* p) { *p = VALUE + __cplusplus; }\n')
    first = build_file(path, None, Options(defines=("VALUE=7",), std="c++17", level="0"))
    assert str(201703 + 7) in first.ptx
    assert len(first.cubin) != len(build_file(path, None, Options(defines=("VALUE=7",), std="c++17")).cubin)


@pytest.mark.parametrize("damage", [b"", b"junk\n", b"\x7fELF" + bytes(200), "half"])
def test_a_damaged_cubin_is_told_by_the_tool(compiled: Build, write: Writer, damage: bytes | str) -> None:
    """Exit code 4 with nvdisasm's own words and the user's file name."""
    path = write("k.cubin", "")
    path.write_bytes(compiled.cubin[:900] if isinstance(damage, str) else damage)
    with pytest.raises(ToolError, match="nvdisasm") as caught:
        build_file(path)
    assert str(path) in caught.value.message


def test_a_cubin_is_for_one_architecture(compiled: Build, write: Writer) -> None:
    """Machine code is not for another one."""
    path = write("k.cubin", "")
    path.write_bytes(compiled.cubin)
    assert build_file(path).arch == "sm_90a"
    assert ".visible .entry k(" in build_file(path).ptx  # from its line information
    with pytest.raises(UsageError, match="machine code for sm_90a, not for sm_80"):
        build_file(path, "sm_80")


def test_no_compiler_is_said_with_the_command_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 3 and pip's command; elsewhere than on Linux the reason."""
    monkeypatch.setattr(tools, "_places", lambda kind: [(tmp_path / kind, "pip")])
    for source, package in (("k.cu", "nvidia-cuda-nvrtc"), ("k.ptx", "nvidia-cuda-nvcc")):
        (tmp_path / source).write_text(SOURCE)
        with pytest.raises(MissingError) as caught:
            build_file(tmp_path / source)
        assert f"pip install '{package}>=13'" in caught.value.hint
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(MissingError) as caught:
        build_file(tmp_path / "k.cu")
    assert "packaged for Linux" in caught.value.hint


@pytest.mark.parametrize("options", [(), ("--maxrregcount=32",), ("--ptxas-options=-O0",)])
def test_what_nvrtc_does_not_tell_is_asked_of_ptxas(
    write: Writer, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """Registers, spills and advisories are never missing: NVRTC 13.0 was seen to leave them out."""
    path = write("k.cu", SOURCE)
    told = build_cuda(SOURCE, name=str(path), arch="sm_90a", options=options)
    compiled = compile_cuda(SOURCE, str(path), ["-arch=sm_90a", "-lineinfo", *options])
    silent = dataclasses.replace(compiled, log="")
    monkeypatch.setattr("ptxlab.toolchain.nvrtc.compile_cuda", lambda *_: silent)
    monkeypatch.setenv("PTXLAB_CACHE", str(path.parent / "another cache"))
    asked = build_cuda(SOURCE, name=str(path), arch="sm_90a", options=options)
    assert from_log(asked.log) == from_log(told.log) != {}
