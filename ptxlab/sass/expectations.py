"""What a user expects a kernel's SASS to hold, and why it does not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptxlab.errors import UsageError
from ptxlab.sass.advisories import remedy
from ptxlab.sass.instructions import has_prefix
from ptxlab.sass.ptx import PtxKernel

_FORM = re.compile(r"([A-Z][A-Z0-9]*(?:\.[A-Za-z0-9_]+)*)(?:=(\d{1,9}))?")

_PTX = {
    "ELECT": "elect.sync",
    "LDSM": "ldmatrix",
    "LDTM": "tcgen05.ld",
    "MOVM": "movmatrix",
    "STSM": "stmatrix",
    "STTM": "tcgen05.st",
    "USETMAXREG": "setmaxnreg",
}
"""Families that stand for one PTX instruction: how often PTX has it is told, and what ptxas said of it."""


@dataclass(frozen=True)
class Expectation:
    """An opcode that a kernel must hold.

    Attributes:
        text: as it was typed.
        opcode: a prefix of whole dot-separated parts.
        count: how often exactly, or None for at least once.

    """

    text: str
    opcode: str
    count: int | None

    def check(self, kernel: Mapping[str, Any], ptx: PtxKernel | None) -> tuple[bool, str]:
        """Return whether a kernel (one of ``result.kernels[]``) is as expected, and the values that show it.

        Args:
            kernel: what its SASS holds.
            ptx: its PTX, where there is any.

        """
        found = sum(n for opcode, n in kernel["counts"].items() if has_prefix(opcode, self.opcode))
        ok = found > 0 if self.count is None else found == self.count
        wanted = "at least 1" if self.count is None else str(self.count)
        name = _PTX.get(self.opcode.partition(".")[0])
        sites = f"PTX sites {ptx.count(name)}, " if ptx and name else ""
        said = [_explained(line) for line in kernel["advisories"] if name and name in line and not ok]
        return ok, "; ".join([f"{sites}SASS {found}, expected {wanted}", *said])


def _explained(advisory: str) -> str:
    """Return an advisory with what would help."""
    help_ = remedy(advisory)
    return f"{advisory} What helps: {help_}" if help_ else advisory


def parse_expectation(text: str) -> Expectation:
    """Return the expectation that "LDSM", "HMMA.16816.F32" or "HGMMA=4" stands for.

    Raises:
        UsageError: it is none.

    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"'{text}' is no expectation; legal: OPCODE or OPCODE=N, such as USETMAXREG, HMMA.16816.F32=64"
        )
    return Expectation(text, match[1], int(match[2]) if match[2] else None)
