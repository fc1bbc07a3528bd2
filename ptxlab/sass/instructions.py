"""SASS as data: the functions of a build, and which of their lines are code and which are padding."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ptxlab.toolchain.build import Build
from ptxlab.toolchain.disassembler import disassemble
from ptxlab.toolchain.tools import file_identity, locate

INSTRUCTION_BYTES = 16
"""The size of an instruction since Volta (sm_70)."""

WGMMA = frozenset(("HGMMA", "IGMMA", "QGMMA", "BGMMA"))
"""What becomes of wgmma."""

TENSOR_FAMILIES = WGMMA.union(
    (
        *("HMMA", "IMMA", "BMMA", "DMMA", "QMMA", "OMMA"),  # mma.sync, wmma
        *("UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCOMMA"),  # tcgen05.mma
    )
)
"""What computes on the tensor cores. HFMA2.MMA does not: its name says how it is issued, no more."""

DUMMY = "HGMMA.64x8x16.F16"
"""The opcode of the wgmma that ptxas injects and that compute nothing: see Instruction.is_dummy."""


@dataclass(frozen=True)
class Instruction:
    """One line of SASS.

    Attributes:
        address: bytes from the start of the function's section.
        predicate: "@P0", "@!UPT", or "".
        opcode: with all its modifiers: "LDSM.16.M88.4".
        operands: as nvdisasm writes them; a branch target is a number, a call target a name.

    """

    address: int
    predicate: str
    opcode: str
    operands: str

    @property
    def family(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def target(self) -> int | None:
        """The address that a branch goes to, or None if this is no branch to a fixed address."""
        last = self.operands.rpartition(",")[2].strip()
        if self.family not in ("BRA", "JMP") or not last.startswith("0x"):
            return None
        return int(last, 16)

    @property
    def callee(self) -> str:
        """The name of the internal function that a call goes to, or ""."""
        return self.operands.rpartition(",")[2].strip() if self.family == "CALL" else ""

    @property
    def calls_mma(self) -> bool:
        """Whether this calls a routine by which ptxas emulates a tensor operation."""
        return "__cuda_sm" in self.callee and "mma" in self.callee

    @property
    def is_dummy(self) -> bool:
        """Whether this wgmma is one that ptxas injected: it computes nothing, and only ends a group.

        The last wgmma of a group carries the commit (gsb0). Where none stands right before the
        commit_group (the group is empty, a branch or the end of a loop lies between, or ptxas had to wait
        earlier), ptxas puts a smallest one without operands there. Seen in ptxas 13.5 for sm_90a.
        """
        return self.family == "HGMMA" and self.operands.replace(" ", "").startswith("RZ,gdesc[URZ],RZ,!UPT")

    @property
    def is_tensor_operation(self) -> bool:
        """Whether this computes on the tensor cores."""
        return self.family in TENSOR_FAMILIES and not self.is_dummy

    @property
    def never_runs(self) -> bool:
        """Whether this only keeps a distance between others: its predicate is always false."""
        return self.predicate in ("@!PT", "@!UPT")


@dataclass(frozen=True)
class Function:
    """A kernel as it lies in memory, with the internal functions that it calls.

    Attributes:
        name: the name of its section: a kernel's name, mangled if it is C++.
        lines: all of it.
        code: the instructions, without padding.
        padding: the NOPs, wherever they stand, and the branch to itself behind the last instruction.

    """

    name: str
    lines: tuple[Instruction, ...]
    code: tuple[Instruction, ...]
    padding: tuple[Instruction, ...]


def functions(build: Build) -> list[Function]:
    """Return the functions of a build in the order in which they lie in the cubin.

    Raises:
        MissingError: there is no nvdisasm here.
        ToolError: nvdisasm failed; the message is its own.

    """
    path, _ = locate("nvdisasm")
    identity = hashlib.sha256(file_identity(path).encode()).hexdigest()[:8]
    document = build.memo(
        f"disassembly-{identity}", lambda: disassemble(build.cubin, name=build.name or "kernel.cubin")
    )
    return [_function(name, lines) for name, lines in _sections(document[1])]


def opcode_counts(code: Iterable[Instruction]) -> dict[str, int]:
    """Return how often each full opcode stands in the code, by name."""
    return dict(sorted(Counter(each.opcode for each in code).items()))


def has_prefix(opcode: str, prefix: str) -> bool:
    """Whether the prefix is made of the opcode's first dot-separated parts: LDSM.16 of LDSM.16.M88."""
    return f"{opcode}.".startswith(f"{prefix}.")


def _sections(pieces: list[dict[str, Any]]) -> list[tuple[str, list[Instruction]]]:
    """Return the name and the lines of each section.

    Up to 13.2, nvdisasm gives the internal functions behind a kernel as pieces of their own; later ones
    give the section as a whole.
    """
    sections: list[tuple[str, list[Instruction]]] = []
    for piece in pieces:
        lines = [
            Instruction(
                piece["start"] + INSTRUCTION_BYTES * index,
                each.get("predicate", ""),
                each["opcode"],
                each.get("operands", ""),
            )
            for index, each in enumerate(piece["sass-instructions"])
        ]
        before = sections[-1][1] if sections else []
        if before and piece["start"] == before[-1].address + INSTRUCTION_BYTES:
            before += lines
        else:
            sections.append((piece["function-name"], lines))
    return sections


def _function(name: str, lines: list[Instruction]) -> Function:
    padding = [each for each in lines if each.opcode == "NOP"]
    busy = [each for each in lines if each.opcode != "NOP"]
    if busy and not busy[-1].predicate and busy[-1].target == busy[-1].address:
        padding.append(busy.pop())
    return Function(name, tuple(lines), tuple(busy), tuple(padding))
