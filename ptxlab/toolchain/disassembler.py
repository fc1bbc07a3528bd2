"""nvdisasm and cuobjdump: machine code as JSON, its PTX lines, its resources.

One run of nvdisasm takes about a third of a second whatever its input is, so it runs once per cubin and
the caller keeps the answer with Build.memo.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass, field
from typing import Any

from ptxlab.errors import ToolError
from ptxlab.toolchain.tools import Tool, find_tool, run_tool, scratch_folder


@dataclass(frozen=True)
class Listing:
    """What nvdisasm's text tells of a section, and its JSON does not.

    Attributes:
        ptx_lines: address -> the PTX line that the instruction came from. Code that ptxas put in by
            itself, such as a routine that emulates an operation, has none.
        labels: name -> address: the kernel, the internal functions behind it, branch targets.
        jumps: address of an indirect branch -> the addresses that it may go to.
        source_lines: address -> file and line that the instruction came from; of inlined functions where
            they are called in the outermost one.

    """

    ptx_lines: dict[int, int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    jumps: dict[int, list[int]] = field(default_factory=dict)
    source_lines: dict[int, tuple[str, int]] = field(default_factory=dict)

    @property
    def functions(self) -> dict[str, int]:
        """Name -> first address of the kernel and of the internal functions."""
        return {name: at for name, at in self.labels.items() if not name.startswith(".")}


_LABEL = re.compile(r"^(\S.*):$")
_SECTION = re.compile(r"^//-+ \.text\.(\S+) .*$", re.MULTILINE)
_SWITCH = re.compile(r'"BRANCH_TARGETS ([^"]*)"')
_PTX_LINE = re.compile(r'^\s*//## File "\.nv_debug_ptx_txt", line (\d+)')
_SOURCE_LINE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)$')
_ADDRESS = re.compile(r"^\s*/\*([0-9a-f]+)\*/")


def disassemble(cubin: bytes, *, name: str) -> list[Any]:
    """Return nvdisasm's JSON: what it says about the file, then the functions.

    Args:
        cubin: the machine code.
        name: the file that messages shall show.

    Raises:
        MissingError: there is no nvdisasm here.
        ToolError: the cubin is damaged, or nvdisasm failed otherwise; the message is its own.

    """
    text = _run(find_tool("nvdisasm"), ["-json"], cubin, name)
    try:
        document: list[Any] = json.loads(text)
    except ValueError as error:
        raise ToolError(f"nvdisasm's output for {name} is not JSON: {error}") from error
    return document


def arch_of(document: list[Any]) -> str:
    """Return the architecture of disassembled code.

    The ELF flags do not tell sm_90 from sm_90a; the options that ptxas left in a note do.
    """
    meta = document[0]
    options = meta.get(".note.nv.tkinfo", {}).get("tki_toolOptions", "")
    named = re.search(r"-arch[= ]+(sm_\w+)", options)
    version = meta["SM"]["version"]
    return named[1] if named else f"sm_{version['major']}{version['minor']}"


def listings(cubin: bytes, *, name: str) -> dict[str, Listing]:
    """Return what nvdisasm's text tells of each section.

    Raises:
        MissingError: there is no nvdisasm here.
        ToolError: nvdisasm failed; the message is its own.

    """
    text = _run(find_tool("nvdisasm"), ["-c", "-gi", "-gp"], cubin, name)
    sections = _SECTION.split(text)[1:]
    return {title: _listing(body) for title, body in zip(sections[::2], sections[1::2], strict=True)}


def _listing(text: str) -> Listing:
    found = Listing()
    ptx_line: int | None = None
    source_line: tuple[str, int] | None = None
    waiting: list[str] = []  # labels whose address comes with the next instruction
    switches: dict[int, list[str]] = {}
    for line in text.splitlines():
        if match := _LABEL.match(line):
            waiting.append(match[1])
            if not match[1].startswith("."):
                ptx_line = source_line = None  # printed only where they change, and not at a function's start
        elif match := _PTX_LINE.match(line):
            ptx_line = int(match[1])
        elif match := _SOURCE_LINE.match(line):
            source_line = match[1], int(match[2])
        elif match := _ADDRESS.match(line):
            address = int(match[1], 16)
            found.labels.update(dict.fromkeys(waiting, address))
            waiting.clear()
            if ptx_line is not None:
                found.ptx_lines[address] = ptx_line
            if source_line is not None:
                found.source_lines[address] = source_line
            if match := _SWITCH.search(line):
                switches[address] = match[1].split(",")
    found.jumps.update(_resolved(switches, found.labels))
    return found


def _resolved(switches: dict[int, list[str]], labels: dict[str, int]) -> dict[int, list[int]]:
    return {at: [labels[name] for name in names if name in labels] for at, names in switches.items()}


def resource_usage(cubin: bytes, *, name: str) -> str:
    """Return what cuobjdump says about each function's registers, stack and shared memory.

    Raises:
        MissingError: there is no cuobjdump here.
        ToolError: cuobjdump failed; the message is its own.

    """
    return _run(find_tool("cuobjdump"), ["-res-usage"], cubin, name)


def embedded_ptx(cubin: bytes) -> str:
    """Return the PTX that code compiled with -lineinfo carries, or ""."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        section = ELFFile(io.BytesIO(cubin)).get_section_by_name(".nv_debug_ptx_txt")
        data: bytes = section.data() if section else b""
    except ELFError as error:
        raise ToolError(f"the cubin's sections cannot be read: {error}") from error
    return data.rstrip(b"\0").replace(b"\0", b"\n").decode("utf-8", errors="replace")


def _run(tool: Tool, options: list[str], cubin: bytes, name: str) -> str:
    with scratch_folder() as scratch:
        file = scratch / "kernel.cubin"
        file.write_bytes(cubin)
        try:
            return run_tool(tool, [*options, file], about=name).stdout
        except ToolError as error:
            raise ToolError(error.message.replace(str(file), name), error.hint, code=error.code) from error
