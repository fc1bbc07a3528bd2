"""Turns a compiler's log into one line that points at the user's own file, and a hint.

NVRTC's front end names the line of the .cu. ptxas names a line of the PTX; that line is shown, and the
line of the .cu that it came from is found through the PTX' own .loc directives.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ptxlab.errors import MissingError, ToolError
from ptxlab.files import is_folder
from ptxlab.toolchain.arch import ARCHS, base_number
from ptxlab.toolchain.tools import header_places, locate

_FRONT_END = re.compile(
    r"^(?P<file>.+)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<text>.*)$"
)
_PTXAS_LINE = re.compile(r"^ptxas (?P<file>.+), line (?P<line>\d+); (?:error|fatal)\s*: (?P<text>.*)$")
_PTXAS = re.compile(r"^ptxas (?:error|fatal)\s*: (?P<text>.*)$")
_SUMMARY = "Ptx assembly aborted due to errors"
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+))?")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"')
_ADVISORY = re.compile(r"^.*?(\(C7\d{3}\).*)$", re.MULTILINE)

_NEEDS = re.compile(r"requires \.target (sm_\w+)( or higher)?")
_FOREIGN = re.compile(r"PTX with \.target '(\w+)' cannot be compiled for architecture")
_REFUSED = re.compile(r"'(\w+)[^']*' (?:not supported on|cannot be compiled for)")
_ELSEWHERE = {
    "wgmma": "wgmma exists on sm_90a alone; use mma.sync here, or tcgen05 on sm_100a",
    "tcgen05": "tcgen05 exists from sm_100a on; use wgmma on sm_90a, mma.sync elsewhere",
}
_STANDARD_HEADERS = re.compile(
    r"cannot open source file \"(c?(?:stdint|stddef|limits|float)(?:\.h)?|type_traits|limits|utility|tuple|"
    r"array|cmath|algorithm|atomic|concepts|bit)\""
)
_HOST_HEADERS = re.compile(
    r"cannot open source file \"(?:c?(?:std\w+|assert|math|string|time)(?:\.h)?|"
    r"iostream|vector|string|random|chrono|memory|thread|map|fstream)\""
)
_HOST_CODE = re.compile(r"host functions? (?:are|is) not allowed|identifier \"cuda[A-Z]\w*\" is undefined")


class CompileError(ToolError):
    """A source that the compiler refuses.

    Attributes:
        log: everything that the compiler said.

    """

    code = "compile-error"

    def __init__(self, message: str, hint: str, log: str) -> None:
        super().__init__(message, hint)
        self.log = log


@dataclass(frozen=True)
class _Complaint:
    where: str  # "file:line", or "" if the compiler names none
    text: str
    shown: str  # the line of the source that it is about, or ""


def compile_error(log: str, ptx: str, *, name: str, arch: str) -> CompileError:
    """Return the error for a compile that failed.

    Args:
        log: what the compiler said.
        ptx: the PTX that ptxas read, or "" if it did not come to that.
        name: the user's file.
        arch: the architecture.

    """
    complaints = _complaints(log, ptx, name)
    first = complaints[0]
    message = f"{first.where or name}: error: {first.text}"
    if first.shown:
        message += f": {first.shown}"
    if len(complaints) > 1:
        message += f" (and {len(complaints) - 1} more)"
    return CompileError(f"{message} [{arch}]", _hint(log, arch, name), log)


def advisories(log: str, ptx: str) -> list[str]:
    """Return the advisories (C75xx) of a log: what ptxas ignored, injected or serialised.

    ptxas counts the lines of the PTX; where the PTX tells, the line of the source is added in brackets.
    """
    lines = ptx.splitlines()
    found = []
    for text in (match[1] for match in _ADVISORY.finditer(log)):
        number = re.search(r"\bline (\d+)", text)
        where = _source_of(lines, int(number[1])) if number else ""
        found.append(f"{text} [{where}]" if where else text)
    return found


def _complaints(log: str, ptx: str, name: str) -> list[_Complaint]:
    lines, ptx_lines = log.splitlines(), ptx.splitlines()
    found = []
    for index, line in enumerate(lines):
        if match := _FRONT_END.match(line):
            shown = lines[index + 1].strip() if index + 1 < len(lines) else ""
            found.append(_Complaint(f"{match['file']}:{match['line']}", match["text"], shown))
        elif match := _PTXAS_LINE.match(line):
            found.append(_about_ptx(match, ptx_lines, name))
        elif (match := _PTXAS.match(line)) and match["text"] != _SUMMARY:
            found.append(_Complaint("", match["text"], ""))
    if not found:
        loud = [line for line in lines if "error" in line.lower()] or lines or ["the compiler said nothing"]
        found = [_Complaint("", loud[0].strip(), "")]
    return found


def _about_ptx(match: re.Match[str], ptx: Sequence[str], name: str) -> _Complaint:
    """Return the complaint with its PTX line, and with the line of the .cu that this came from."""
    number = int(match["line"])
    shown = ptx[number - 1].strip() if 0 < number <= len(ptx) else ""
    text = match["text"]
    if name.endswith(".ptx"):
        return _Complaint(f"{name}:{number}", text, shown)
    return _Complaint(_source_of(ptx, number), f"{text} in PTX line {number}", shown)


def _source_of(ptx: Sequence[str], number: int) -> str:
    """Return "file:line" of the source that a PTX line came from, or "" if the PTX does not tell.

    What was inlined comes from two places; the line that called it is named too.
    """
    location = next((match for match in map(_LOC.match, reversed(ptx[:number])) if match), None)
    if not location:
        return ""
    files = {match[1]: match[2] for match in map(_FILE.match, ptx) if match}
    file, line, caller, caller_line = location.groups()
    if file not in files:
        return ""
    inlined = f" (inlined at {files[caller]}:{caller_line})" if caller in files else ""
    return f"{files[file]}:{line}{inlined}"


def _hint(log: str, arch: str, name: str) -> str:
    return (
        _hint_about_arch(log, arch)
        or _hint_about_version(log)
        or _hint_about_host_code(log, arch, name)
        or _hint_about_headers(log)
    )


def _hint_about_arch(log: str, arch: str) -> str:
    """Return what to do when an instruction, or the whole PTX, is not for this architecture."""
    if match := _FOREIGN.search(log):
        return f"use --arch {match[1]}: such PTX is for that architecture alone"
    if match := _NEEDS.search(log):
        return f"use --arch {match[1]}{' or a newer one' if match[2] else ''}"
    if not (match := _REFUSED.search(log)):
        return ""
    number, fuller = base_number(arch), f"sm_{base_number(arch)}a"
    if match[1] in _ELSEWHERE and (number != 90 if match[1] == "wgmma" else number < 100):
        return _ELSEWHERE[match[1]]
    if fuller in ARCHS and fuller != arch:
        return f"use {fuller} (and drop compute_{number} where a list has it)"
    return ""


def _hint_about_version(log: str) -> str:
    if "Unsupported .version" in log:
        return "ptxas is older than the PTX: pip install --upgrade 'nvidia-cuda-nvcc>=13'"
    return ""


def _hint_about_host_code(log: str, arch: str, name: str) -> str:
    """Return the command that makes a cubin of a file with host code, with the nvcc that is here."""
    if _STANDARD_HEADERS.search(log) or not (_HOST_HEADERS.search(log) or _HOST_CODE.search(log)):
        return ""
    try:
        nvcc, lacking = str(locate("nvcc")[0]), ""
    except MissingError as error:
        nvcc, lacking = "nvcc", f" ({error.hint})"
    cubin = f"{Path(name).stem}.cubin"
    compiling = shlex.join([nvcc, f"-arch={arch}", "-lineinfo", "-cubin", name, "-o", cubin])
    return (
        "NVRTC compiles device code alone, and this file has host code: "
        f"{compiling} && {shlex.join(['ptxlab', 'sass', cubin])}{lacking}"
    )


def _hint_about_headers(log: str) -> str:
    """Return what to do about a header that was not found."""
    if match := _STANDARD_HEADERS.search(log):
        name = re.sub(r"^(\w+)\.h$", r"c\1", match[1])
        return f"NVRTC has no C++ standard library: #include <cuda/std/{name}> is there for device code"
    missing = re.search(r'cannot open source file "([^"]+)"', log)
    if not missing:
        return ""
    if re.match(r"cuda|cooperative_groups|mma\.h|nv/|cub/|thrust/|crt/", missing[1]):
        places = ", ".join(str(place) for place in header_places() if is_folder(place))
        packages = "nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl"
        return (
            f"CUDA's headers were looked for in: {places or 'no folder that exists'}; pip install {packages}"
        )
    return f"give the folder of {Path(missing[1]).name} with -I"
