"""ptxas: PTX to cubin.

It compiles whole programs, as NVRTC does, so both give the same SASS. nvJitLink would not: it compiles
relocatable code, which drops setmaxnreg.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ptxlab.toolchain.nvrtc import Compiled
from ptxlab.toolchain.tools import COMPILE_SECONDS, Tool, run_tool, scratch_folder


def assemble(tool: Tool, ptx: str, arch: str, *, name: str, options: Sequence[str] = ()) -> Compiled:
    """Assemble PTX for an architecture.

    Args:
        tool: ptxas.
        ptx: the text.
        arch: such as "sm_90a".
        name: the file that the log shall show.
        options: more of ptxas' own options.

    Raises:
        ToolError: ptxas took too long, or a signal ended it.
        MissingError: no temporary file can be written.

    """
    # Without a newline at its end, ptxas (13.0 and 13.5) with -lineinfo overruns a buffer and aborts.
    text = ptx if ptx.endswith("\n") else ptx + "\n"
    with scratch_folder() as scratch:
        source, cubin = scratch / "kernel.ptx", scratch / "kernel.cubin"
        source.write_text(text, encoding="utf-8", newline="\n")
        line: list[str | Path] = ["-arch", arch, "-lineinfo", "-v", *options, source, "-o", cubin]
        done = run_tool(tool, line, timeout=COMPILE_SECONDS, check=False, about=name)
        ok = done.returncode == 0 and cubin.is_file()
        log = (done.stderr + done.stdout).replace(str(source), name)
        return Compiled(ok, log, text, cubin.read_bytes() if ok else b"", f"ptxas {tool.version_text}")
