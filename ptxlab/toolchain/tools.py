"""Finds and runs the external tools: in pip's NVIDIA packages, in $CUDA_HOME, on PATH, in /usr/local/cuda*.

Nothing of ``cuda.*`` is imported and nothing is remembered between calls: an environment that changes
under a long session is seen as it is.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptxlab.errors import MissingError, ToolError, unknown_name
from ptxlab.files import is_file, is_folder

if TYPE_CHECKING:
    import subprocess  # not needed where everything comes from the cache

_APT = "from NVIDIA's apt repository, developer.download.nvidia.com/compute/cuda/repos"
_REMEDIES = {
    "ptxas": "pip install 'nvidia-cuda-nvcc>=13'",
    "nvcc": "pip install 'nvidia-cuda-nvcc>=13'",
    "nvdisasm": "pip install 'nvidia-cuda-nvdisasm>=13'",
    "cuobjdump": "pip install 'nvidia-cuda-cuobjdump>=13'",
    "ncu": f"install NVIDIA Nsight Compute: apt-get install cuda-nsight-compute-13-0 ({_APT})",
    "compute-sanitizer": f"apt-get install cuda-sanitizer-13-0 ({_APT})",
}
TOOLS: tuple[str, ...] = tuple(_REMEDIES)

_NVRTC_REMEDY = "pip install 'nvidia-cuda-nvrtc>=13' cuda-python"
COMPILE_SECONDS = 600.0
"""How long one compile may take."""

_RELEASE = re.compile(r"\bV(\d+(?:\.\d+)+)|\b[Vv]ersion:?\s+(\d+(?:\.\d+)+)")


@dataclass(frozen=True)
class Tool:
    """An external tool.

    Attributes:
        name: "ptxas", "nvdisasm", …, or "nvrtc", which is a library.
        path: the file.
        version: such as (13, 5, 37); () when the tool does not tell.
        found_via: which kind of place it was found in: "pip", "CUDA_HOME", "PATH", "system", …

    """

    name: str
    path: Path
    version: tuple[int, ...]
    found_via: str

    @property
    def version_text(self) -> str:
        """The version as it is written: "13.5.37", or "unknown"."""
        return ".".join(map(str, self.version)) or "unknown"


def find_tool(name: str) -> Tool:
    """Return the tool, looked up in pip's packages first, then in a system toolkit.

    Raises:
        UsageError: ptxlab uses no such tool.
        MissingError: it is not on this machine; the hint is the command that brings it.

    """
    path, found_via = locate(name)
    return Tool(name, path, _version_of(path), found_via)


def locate(name: str) -> tuple[Path, str]:
    """Return a tool's path and how it was found, without running it to ask for its version."""
    if name not in TOOLS:
        raise unknown_name("tool", name, TOOLS)
    places = list(_places("bin"))
    for folder, found_via in places:
        path = folder / name
        if is_file(path) and os.access(path, os.X_OK):
            return path, found_via
    raise _missing(name, places, _REMEDIES[name])


def locate_nvrtc() -> tuple[Path, str]:
    """Return the path of the NVRTC library and how it was found.

    Raises:
        MissingError: it is not on this machine (there is none for macOS, and ptxlab looks for none on
            native Windows).

    """
    places = list(_places("lib"))
    for folder, found_via in places:
        if not is_folder(folder):
            continue
        # The shortest name is the soname (libnvrtc.so.13); longer ones are what it links to.
        names = sorted(folder.glob("libnvrtc.so.1[3-9]*"), key=lambda path: (len(path.name), path.name))
        if names:
            return names[0], found_via
    raise _missing("libnvrtc.so", places, _NVRTC_REMEDY)


def cuda_include_folders() -> list[Path]:
    """Return CUDA's own header folders, the runtime's and CCCL's, or [] where there are none.

    A folder that has mma.h and what it includes is preferred: some pip packages bring the runtime alone.
    """
    found = [folder for folder, _ in _places("include") if is_file(folder / "cuda_fp16.h")]
    found.sort(key=lambda folder: not is_file(folder / "crt" / "mma.h"))
    return [path for root in found[:1] for path in (root, root / "cccl") if is_folder(path)]


def header_places() -> list[Path]:
    """Return every folder that cuda_include_folders() looks at, for a message."""
    return [folder for folder, _ in _places("include")]


def file_identity(path: Path) -> str:
    """Return what tells one version of an installed file from another: its place, size and time.

    This stands for a compiler's version in cache keys, because asking the compiler would mean loading it.
    """
    stat = path.stat()
    return f"{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}"


def run_tool(
    tool: Tool | Path,
    args: Sequence[str | Path],
    *,
    timeout: float = 300.0,
    check: bool = True,
    about: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end and return what it printed, as text.

    Args:
        tool: what to run.
        args: its arguments.
        timeout: seconds.
        check: raise when the exit code is not 0.
        about: the file that it works on, for messages.

    Raises:
        ToolError: it took too long, a signal ended it, or it failed (with the tool's own words).
        MissingError: it cannot be started.

    """
    done = run_program(tool, args, timeout=timeout, check=check, about=about)
    done.stdout = _decoded(done.stdout)
    done.stderr = _decoded(done.stderr)
    return done


def run_program(
    tool: Tool | Path,
    args: Sequence[str | Path],
    *,
    stdin: bytes = b"",
    timeout: float,
    check: bool = True,
    about: str = "",
) -> subprocess.CompletedProcess[Any]:
    """Run a tool as run_tool does, with bytes for its stdin, and return the bytes that it printed.

    One that runs too long, or while Ctrl-C is pressed, is killed together with all that it started.
    """
    import subprocess

    path = tool.path if isinstance(tool, Tool) else tool
    command = [str(path), *map(str, args)]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise MissingError(f"{path} does not start: {error.strerror}") from error
    title = f"{about}: {tool.name}" if about else tool.name
    with process:
        try:
            out, err = process.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired:
            _kill_group(process)
            raise ToolError(f"{title} did not finish within {timeout:g} s", code="tool-timeout") from None
        except BaseException:
            _kill_group(process)
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if done.returncode < 0 or (check and done.returncode):
        raise ToolError(f"{title} {_ending(done.returncode)}: {_own_words(done)}")
    return done


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder for the files that a tool reads and writes, and remove it at the end.

    Raises:
        MissingError: a file in it cannot be written.

    """
    try:
        with tempfile.TemporaryDirectory(prefix="ptxlab-") as folder:
            yield Path(folder)
    except OSError as error:
        raise MissingError(
            f"temporary files cannot be written: {error.strerror or error}",
            "set TMPDIR to a folder that can",
        ) from error


def version_mismatch() -> str | None:
    """Return a warning if ptxas is older than NVRTC, so that it may not read NVRTC's PTX; None if not.

    Raises:
        MissingError: one of the two is not here.

    """
    from ptxlab.toolchain.nvrtc import nvrtc_version

    ptxas, nvrtc = find_tool("ptxas"), nvrtc_version()
    if ptxas.version[:2] >= nvrtc[:2]:
        return None
    return (
        f"ptxas {ptxas.version_text} ({ptxas.path}) is older than NVRTC {'.'.join(map(str, nvrtc))}: "
        f"it does not assemble the PTX that NVRTC writes; {_REMEDIES['ptxas']}"
    )


def _places(kind: str) -> Iterator[tuple[Path, str]]:
    """Yield the folders that may hold binaries ("bin"), libraries ("lib") or headers ("include")."""
    for entry in dict.fromkeys(sys.path):
        yield from ((root / kind, "pip") for root in _newest(Path(entry or "."), "nvidia/cu[0-9]*"))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield from _with_lib64(Path(os.environ[name]), kind, name)
    variable = {"bin": "PATH", "lib": "LD_LIBRARY_PATH"}.get(kind, "")
    for entry in os.environ.get(variable, "").split(os.pathsep):
        if entry:
            yield Path(entry), variable
    yield from _with_lib64(Path(sys.prefix), kind, "prefix")
    for root in _newest(Path("/usr/local"), "cuda*"):
        yield from _with_lib64(root, kind, "system")
    yield from _system_extras(kind)


def _with_lib64(root: Path, kind: str, found_via: str) -> Iterator[tuple[Path, str]]:
    for name in ("lib64", "lib") if kind == "lib" else (kind,):
        yield root / name, found_via


def _system_extras(kind: str) -> Iterator[tuple[Path, str]]:
    """Yield where Linux distributions and the Nsight Compute installer put things."""
    if kind == "bin":
        yield from ((root, "system") for root in _newest(Path("/opt/nvidia/nsight-compute"), "[0-9]*"))
    if kind == "lib":
        yield from ((root, "system") for root in sorted(Path("/usr/lib").glob("*-linux-gnu")))
    if kind == "include":
        yield Path("/usr/include"), "system"


def _newest(folder: Path, pattern: str) -> list[Path]:
    """Return the matching folders, the highest version first."""
    found: Iterable[Path] = folder.glob(pattern) if is_folder(folder) else ()
    return sorted(found, key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)], reverse=True)


def _missing(name: str, places: Iterable[tuple[Path, str]], remedy: str) -> MissingError:
    if not sys.platform.startswith("linux"):
        remedy = "NVIDIA's compilers are packaged for Linux; on Windows use WSL2"
    looked = ", ".join(dict.fromkeys(["pip", *(found_via for _, found_via in places)]))
    return MissingError(f"{name} is not on this machine (looked in: {looked})", remedy, code="no-tool")


def _version_of(path: Path) -> tuple[int, ...]:
    done = run_tool(path, ["--version"], timeout=30.0, check=False)
    match = _RELEASE.search(done.stdout + done.stderr)
    return tuple(int(n) for n in (match[1] or match[2]).split(".")) if match else ()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended by itself in between
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _ending(code: int) -> str:
    if code >= 0:
        return f"failed with exit code {code}"
    named = {each.value: each.name for each in signal.Signals}
    return f"was ended by signal {named.get(-code, -code)}"


def _own_words(done: subprocess.CompletedProcess[bytes]) -> str:
    said = _decoded(done.stderr + b"\n" + done.stdout)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    loud = [line for line in lines if re.search(r"error|fatal", line, re.IGNORECASE)]
    return " | ".join((loud or lines)[:3]) or "it said nothing"


def _decoded(output: bytes) -> str:
    """Return a tool's output as text; compilers quote whatever bytes a source has."""
    return output.decode("utf-8", errors="replace").replace("\r\n", "\n")
