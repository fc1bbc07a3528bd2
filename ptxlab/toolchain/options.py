"""What a user may say about a compile: -I, -D, --std, -O, --maxrregcount."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ptxlab.errors import UsageError, unknown_name
from ptxlab.files import is_folder

LEVELS = ("0", "1", "2", "3")
STANDARDS = ("c++03", "c++11", "c++14", "c++17", "c++20", "c++23")
_APPLIES = {
    ".cu": ("-I", "-D", "--std", "-O", "--maxrregcount"),
    ".ptx": ("-O", "--maxrregcount"),
}


@dataclass(frozen=True)
class Options:
    """A user's options for the compiler. The defaults leave everything to it.

    Attributes:
        include_dirs: -I.
        defines: -D, each "NAME" or "NAME=VALUE".
        std: the C++ standard.
        level: -O, the optimisation level of ptxas.
        maxrregcount: the most registers that a thread may have.

    """

    include_dirs: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    std: str | None = None
    level: str | None = None
    maxrregcount: int | None = None

    def check(self, kind: str) -> None:
        """Raise UsageError, naming the legal set, if a value is illegal or does not apply.

        Args:
            kind: a file's suffix, or what else the target is ("a probe").

        """
        legal = _APPLIES.get(kind, ())
        for option in self._given():
            if option not in legal:
                takes = ", ".join(legal) or "none of the compiler's options"
                raise UsageError(f"{option} does not apply to {kind}, which takes {takes}")
        if self.level is not None and self.level not in LEVELS:
            raise unknown_name("optimisation level -O", self.level, LEVELS)
        if self.std is not None and self.std not in STANDARDS:
            raise unknown_name("C++ standard --std", self.std, STANDARDS)
        for define in self.defines:  # NVRTC would take what follows a blank one for the macro
            if not re.fullmatch(r"[A-Za-z_]\w*([(=].*)?", define, re.DOTALL):
                raise UsageError(f"-D '{define}' defines no macro; legal: NAME, NAME=VALUE")
        for folder in self.include_dirs:
            if not is_folder(folder):
                raise UsageError(f"-I {folder} is no folder")

    def nvrtc(self) -> list[str]:
        """Return these options as NVRTC takes them, without the folders."""
        options = [f"-D{define}" for define in self.defines]
        options += [f"-std={self.std}"] if self.std is not None else []
        options += [f"--ptxas-options=-O{self.level}"] if self.level is not None else []
        return options + self._registers()

    def ptxas(self) -> list[str]:
        """Return these options as ptxas takes them."""
        return ([f"-O{self.level}"] if self.level is not None else []) + self._registers()

    def _registers(self) -> list[str]:
        return [] if self.maxrregcount is None else [f"--maxrregcount={self.maxrregcount}"]

    def _given(self) -> list[str]:
        values = (self.include_dirs, self.defines, self.std, self.level, self.maxrregcount)
        return [name for name, value in zip(_APPLIES[".cu"], values, strict=True) if value not in (None, ())]
