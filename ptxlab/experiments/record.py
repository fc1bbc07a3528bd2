"""The JSON document: what every command produces, and all that is ever rendered."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass, field
from typing import Any

from ptxlab import __version__
from ptxlab.errors import ExitCode, PtxlabError, one_line

SCHEMA = "ptxlab.record/1"


@dataclass
class Record:
    """One run of one command.

    Attributes:
        command: the command line, without the program's name.
        backend: what answered: "device", "model" or "" where neither was asked.
        arch: the architecture in question, or "".
        params: every option with the value that was in force.
        result: the answer; its shape belongs to the command.
        checks: ``{"name", "ok", "detail"}`` each.
        skipped: ``{"case", "reason"}`` each.
        environment: versions, the device, the platform.

    """

    command: list[str] = field(default_factory=list)
    backend: str = ""
    arch: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)
    checks: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)

    def check(self, name: str, ok: bool, detail: str) -> None:  # noqa: FBT001 - the field's own order
        """Add a check: its name, whether it held, and the values that show it."""
        self.checks.append({"name": name, "ok": bool(ok), "detail": detail})

    def skip(self, case: str, reason: str) -> None:
        """Say what was not run, and why."""
        self.skipped.append({"case": case, "reason": reason})

    @property
    def exit_code(self) -> ExitCode:
        """OK, or CHECK_FAILED when any check failed."""
        return ExitCode.OK if all(c["ok"] for c in self.checks) else ExitCode.CHECK_FAILED

    def document(self) -> dict[str, Any]:
        """Return the JSON document of a command that ran."""
        return {
            "schema": SCHEMA,
            "command": self.command,
            "backend": self.backend,
            "arch": self.arch,
            "params": self.params,
            "result": self.result,
            "checks": self.checks,
            "skipped": self.skipped,
            "environment": self.environment or environment(),
        }


def error_document(command: list[str], error: PtxlabError) -> dict[str, Any]:
    """Return the JSON document of a command that ended with exit 2 to 5, and what it reached until then."""
    reached = error.record.document() if isinstance(error.record, Record) else {}
    return reached | {
        "schema": SCHEMA,
        "command": command,
        "error": {
            "code": error.code,
            "exit": int(error.exit_code),
            "message": one_line(error.message),
            "hint": one_line(error.hint),
        },
    }


def environment(**more: Any) -> dict[str, Any]:
    """Return what every record says about where it was made, and ``more``."""
    return {
        "ptxlab": __version__,
        "python": platform.python_version(),
        "platform": f"{sys.platform} {platform.machine()}",
        **more,
    }
