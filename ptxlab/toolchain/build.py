"""One way from a source to a cubin: .cu through NVRTC, .ptx through ptxas, .cubin as it is; all cached."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptxlab.assets import host_headers_folder, include_folder
from ptxlab.errors import MissingError, ToolError, UsageError
from ptxlab.files import is_file
from ptxlab.toolchain import cache
from ptxlab.toolchain.arch import DEFAULT_ARCH, arch_of_ptx, parse_arch
from ptxlab.toolchain.includes import header_digests
from ptxlab.toolchain.options import Options
from ptxlab.toolchain.tools import cuda_include_folders, file_identity, locate, locate_nvrtc

if TYPE_CHECKING:
    from ptxlab.toolchain.nvrtc import Compiled  # not needed where everything comes from the cache

_FORMAT = 1  # of a cache entry: raise it when what an entry holds changes
_CUBIN, _PTX, _LOG = "kernel.cubin", "kernel.ptx", "log.txt"
_TOLD = "Compiling entry function"
"""What ptxas -v says of each kernel before all else."""
_FOR_PTXAS = "--ptxas-options="
_DRIVER_HEADER = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"](?:cuda|cudaTypedefs)\.h[>"]', re.MULTILINE)
SUFFIXES = (".cu", ".ptx", ".cubin")


@dataclass(frozen=True)
class Build:
    """What a source became.

    Attributes:
        arch: the architecture, such as "sm_90a".
        ptx: the PTX; "" for a bare cubin that does not carry it.
        cubin: the machine code, ready to load.
        log: what the compiler and ptxas -v said; "" for a bare cubin.
        folder: the cache entry that holds it all, or None if the cache cannot be written.
        cached: whether it came out of the cache.
        compiler: which compiler made it: "NVRTC 13.5", "ptxas 13.5.37", or "" for a bare cubin.
        name: the file that messages show.

    """

    arch: str
    ptx: str
    cubin: bytes
    log: str
    folder: Path | None
    cached: bool
    compiler: str = ""
    name: str = ""
    _memory: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def advisories(self) -> list[str]:
        """The advisories (C75xx): what ptxas ignored, injected or serialised."""
        from ptxlab.toolchain import messages

        return messages.advisories(self.log, self.ptx)

    def memo(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return a JSON value that depends on nothing but this build and the name, computed at most once.

        It is kept in the cache entry; lists and dicts must not be changed by the caller.
        """
        if name not in self._memory:
            value = cache.load_memo(self.folder, name) if self.folder else None
            if value is None:
                value = compute()
                if self.folder:
                    cache.store_memo(self.folder, name, value)
            self._memory[name] = value
        return self._memory[name]


def build_cuda(
    source: str,
    *,
    name: str,
    arch: str,
    options: Sequence[str] = (),
    include_dirs: Sequence[Path] = (),
) -> Build:
    """Compile CUDA C++ with NVRTC, or take it from the cache.

    Args:
        source: the text.
        name: the path of the file, which need not exist. Messages and line information show it.
        arch: such as "sm_90a".
        options: more of NVRTC's own options.
        include_dirs: folders of headers; ptxlab's own and CUDA's are there in any case.

    Raises:
        UsageError: the architecture does not exist.
        MissingError: there is no compiler here.
        ToolError: it does not compile; the message names the line of the real file.

    """
    library, _ = locate_nvrtc()
    path = Path(name).absolute()
    own_dirs = list(dict.fromkeys([*include_dirs, include_folder()]))
    cuda_dirs = cuda_include_folders()
    if _DRIVER_HEADER.search(source):  # a TMA kernel takes its CUtensorMap
        own_dirs.insert(0, host_headers_folder())
    flags = [f"-arch={parse_arch(arch)}", "-lineinfo", "--ptxas-options=-v"]
    flags += [] if any(option.startswith(("-std", "--std")) for option in options) else ["-std=c++20"]
    flags += [*options, *(f"-I{folder}" for folder in [*own_dirs, *cuda_dirs])]
    headers = header_digests(source, path.parent, own_dirs)
    key = cache.key_of(
        format=_FORMAT, source=source, name=str(path), flags=flags, headers=headers,
        compiler=[file_identity(file) for file in (library, *_landmarks(cuda_dirs))],
    )  # fmt: skip

    def compiler() -> Compiled:
        from ptxlab.toolchain.nvrtc import compile_cuda

        return _with_ptxas_log(compile_cuda(source, str(path), flags), flags, name=str(path))

    kept = {"kernel.cu": source.encode()}
    return _build(key if headers is not None else "", compiler, kept, name=str(path), arch=arch)


def build_ptx(ptx: str, *, name: str, arch: str, options: Sequence[str] = ()) -> Build:
    """Assemble PTX with ptxas, or take it from the cache.

    Args:
        ptx: the text.
        name: the path of the file, for messages.
        arch: such as "sm_90a".
        options: more of ptxas' own options.

    Raises:
        UsageError: the architecture does not exist.
        MissingError: there is no ptxas here.
        ToolError: it does not assemble; the message shows the PTX line.

    """
    ptxas, _ = locate("ptxas")
    flags = [parse_arch(arch), *options]
    key = cache.key_of(format=_FORMAT, source=ptx, name=name, flags=flags, compiler=[file_identity(ptxas)])

    def compiler() -> Compiled:
        from ptxlab.toolchain.ptxas import assemble
        from ptxlab.toolchain.tools import find_tool

        return assemble(find_tool("ptxas"), ptx, arch, name=name, options=options)

    return _build(key, compiler, {}, name=name, arch=arch)


def build_cubin(cubin: bytes, *, name: str) -> Build:
    """Return the build of a cubin that somebody else made. Its architecture is read from its own notes.

    Raises:
        MissingError: there is no nvdisasm here.
        ToolError: it is damaged; the message is nvdisasm's.

    """
    from ptxlab.toolchain.disassembler import arch_of, disassemble, embedded_ptx

    key = cache.key_of(format=_FORMAT, cubin=hashlib.sha256(cubin).hexdigest())
    entry = cache.load(key)
    if entry:
        return _from_files(entry.files, entry.facts, entry.folder, cached=True, name=name)
    arch = arch_of(disassemble(cubin, name=name))
    files = {_CUBIN: cubin, _PTX: embedded_ptx(cubin).encode(), _LOG: b""}
    facts = {"arch": arch, "compiler": ""}
    return _from_files(files, facts, cache.store(key, files, facts), cached=False, name=name)


def build_file(path: Path, arch: str | None = None, options: Options | None = None) -> Build:
    """Build a .cu, a .ptx or a .cubin.

    Args:
        path: the file.
        arch: the architecture; None for what a .ptx or .cubin itself is for, else sm_90a.
        options: the user's options for the compiler.

    Raises:
        UsageError: the file does not exist or is of another kind, or an option does not fit it.
        MissingError: the tool that it needs is not here.
        ToolError: it does not compile, it is no text, or it is damaged.

    """
    options = options or Options()
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(f"{path} is not of a kind that can be built; legal: {', '.join(SUFFIXES)}")
    try:
        found = path.is_file()
    except OSError as error:  # a name too long to be one
        raise UsageError(f"{str(path)[:80]}: {error.strerror}") from error
    if not found:
        raise UsageError(f"{path} is no file" if path.exists() else f"{path} does not exist")
    options.check(suffix)
    if suffix == ".cubin":
        return _of_arch(build_cubin(_read(path), name=str(path)), arch)
    text = source_text(_read(path), path).decode("utf-8", errors="replace")
    if suffix == ".ptx":
        target = arch or arch_of_ptx(text)
        return build_ptx(text, name=str(path), arch=target, options=options.ptxas())
    return build_cuda(
        text,
        name=str(path),
        arch=arch or DEFAULT_ARCH,
        options=options.nvrtc(),
        include_dirs=options.include_dirs,
    )


def source_text(data: bytes, path: Path) -> bytes:
    """Return the contents of a source file, which hold no NUL byte: compilers silently stop at one.

    Raises:
        ToolError: there is one; the message says where.

    """
    if b"\0" in data:
        raise ToolError(
            f"{path} holds a NUL byte at offset {data.index(0)}, where a compiler would stop reading",
            "a source is text in UTF-8",
        )
    return data


def _build(
    key: str, compiler: Callable[[], Compiled], kept: dict[str, bytes], *, name: str, arch: str
) -> Build:
    """Return the entry with this key, or what the compiler makes. Without a key nothing is kept."""
    entry = cache.load(key) if key else None
    if entry:
        return _from_files(entry.files, entry.facts, entry.folder, cached=True, name=name)
    compiled = compiler()
    if not compiled.ok:
        from ptxlab.toolchain import messages

        raise messages.compile_error(compiled.log, compiled.ptx, name=name, arch=arch)
    files = {_CUBIN: compiled.cubin, _PTX: compiled.ptx.encode(), _LOG: compiled.log.encode(), **kept}
    facts = {"arch": arch, "compiler": compiled.compiler}
    folder = cache.store(key, files, facts) if key else None
    return _from_files(files, facts, folder, cached=False, name=name)


def _with_ptxas_log(compiled: Compiled, flags: Sequence[str], *, name: str) -> Compiled:
    """Return what was compiled with what ptxas said of it, asking ptxas itself where NVRTC does not tell.

    NVRTC 13.0 left its part of the log out when it had compiled the same source on that machine shortly
    before (H200, driver 580, 2026-11-30; that it had kept the result is a guess). Registers, spills and
    advisories would be missing then, and nobody would notice that an advisory is.
    """
    if not compiled.ok or _TOLD in compiled.log or ".entry" not in compiled.ptx:
        return compiled
    from ptxlab.toolchain.ptxas import assemble
    from ptxlab.toolchain.tools import find_tool

    own = [flag.removeprefix(_FOR_PTXAS) for flag in flags if flag.startswith((_FOR_PTXAS, "--maxrregcount"))]
    try:
        again = assemble(find_tool("ptxas"), compiled.ptx, flags[0].partition("=")[2], name=name, options=own)
    except MissingError:
        return compiled
    return replace(compiled, log=compiled.log + again.log) if again.ok else compiled


def _from_files(
    files: dict[str, bytes], facts: dict[str, Any], folder: Path | None, *, cached: bool, name: str
) -> Build:
    return Build(
        arch=facts["arch"],
        ptx=files[_PTX].decode(),
        cubin=files[_CUBIN],
        log=files[_LOG].decode(),
        folder=folder,
        cached=cached,
        compiler=facts["compiler"],
        name=name,
    )


def _landmarks(cuda_dirs: Sequence[Path]) -> list[Path]:
    """Return one file of each of CUDA's header packages: they stand for the packages' versions."""
    candidates = [folder / name for folder in cuda_dirs for name in ("cuda_fp16.h", "nv/target")]
    return [path for path in candidates if is_file(path)]


def _of_arch(build: Build, arch: str | None) -> Build:
    """Return the build of a bare cubin if it is for the architecture that the user wants."""
    if arch not in (None, build.arch):
        raise UsageError(f"{build.name} is machine code for {build.arch}, not for {arch}")
    return build


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
