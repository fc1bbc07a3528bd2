"""What can go wrong, and the exit code that says so.

Every failure that a user can meet is a PtxlabError: one line that says what failed, with which value and
what would be legal, and one line (the hint) with the next command. Anything else that escapes is a fault
of ptxlab.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """What the exit code of a command means; scripts depend on it."""

    OK = 0  # done, every check held
    CHECK_FAILED = 1  # it ran, and a check failed
    USAGE = 2  # wrong usage, an illegal form, a missing input file
    MISSING = 3  # something needed is not here: device, compiler, profiler, permission
    TOOL_FAILED = 4  # a tool failed, or an input is damaged
    DEVICE_FAILED = 5  # the device timed out or faulted
    INTERRUPTED = 130  # Ctrl-C


class PtxlabError(Exception):
    """A failure that is told to the user in one line.

    Attributes:
        message: what failed, the value, and the legal set or the nearest name.
        hint: the next command to try, or "".
        code: a short name that scripts can test, such as "no-device".
        exit_code: the exit code of the command.
        record: whatever was reached before the failure (an experiments.record.Record), or None.

    """

    exit_code: ExitCode = ExitCode.TOOL_FAILED
    code: str = "failed"

    def __init__(self, message: str, hint: str = "", *, code: str = "", record: Any | None = None) -> None:
        super().__init__(message)
        self.message = str(message)  # a probe of a user's may have raised it with anything
        self.hint = str(hint)
        self.code = code or type(self).code
        self.record = record


class UsageError(PtxlabError):
    """A wrong option, an illegal instruction form, or an input file that does not exist."""

    exit_code = ExitCode.USAGE
    code = "usage"


class MissingError(PtxlabError):
    """Something that the command needs is not on this machine."""

    exit_code = ExitCode.MISSING
    code = "missing"


class ToolError(PtxlabError):
    """A compiler, disassembler or profiler failed, or its input is damaged."""

    exit_code = ExitCode.TOOL_FAILED
    code = "tool-failed"


class DeviceError(PtxlabError):
    """The device timed out, faulted or vanished."""

    exit_code = ExitCode.DEVICE_FAILED
    code = "device-failed"


_SPELLINGS = {
    **dict.fromkeys(("half", "fp16", "float16"), "f16"),
    **dict.fromkeys(("bfloat16", "bfloat", "__nv_bfloat16"), "bf16"),
    **dict.fromkeys(("float", "fp32", "float32", "single"), "f32"),
    **dict.fromkeys(("double", "fp64", "float64"), "f64"),
    **dict.fromkeys(("fp8", "e4m3fn", "float8_e4m3fn"), "e4m3"),
    **dict.fromkeys(("bf8", "float8_e5m2"), "e5m2"),
    **dict.fromkeys(("fp4", "float4_e2m1fn"), "e2m1"),
    **{f"{prefix}{bits}": f"s{bits}" for prefix in ("int", "i") for bits in (4, 8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (4, 8, 16, 32, 64)},
    **dict.fromkeys(("bool", "bit", "int1"), "b1"),
    "int": "s32",
}
"""What CUDA C++, torch and others call the types."""


def unknown_name(kind: str, name: str, legal: Iterable[str]) -> UsageError:
    """Return the error for a name that is none of the legal ones: the nearest name and the whole set."""
    names, shown = list(legal), shortened(name, 80)
    same = [each for each in names if each == _SPELLINGS.get(name.lower())]
    near = same or difflib.get_close_matches(shown, names, n=1)
    guess = f"did you mean {near[0]}?" if near else ""
    return UsageError(f"unknown {kind} '{shown}'; legal: {', '.join(names)}", guess)


def malformed(what: str, text: str, sound: str, wanted: str) -> UsageError:
    """Return the error for a text of another form, with the column from which it is wrong.

    Args:
        what: the text's part in the command.
        text: what was typed.
        sound: a regular expression that matches every beginning of a text of the right form.
        wanted: the form that is legal.

    """
    found = re.match(sound, text)
    column = 1 + (found.end() if found else 0)
    return UsageError(f"{what} '{shortened(text, 80)}', column {column}: {wanted}")


def is_plain_number(text: str) -> bool:
    """Whether a number is typed in ASCII and without "_": int() and float() take more than that."""
    return text.isascii() and "_" not in text


def printable(text: str) -> str:
    """Return the text with every character that is not seen, or would steer a terminal, as its escape.

    Names of files and kernels, and what tools say, may hold any of them. Line breaks and tabs stay.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode()
        for each in text.replace("\r\n", "\n")
    )


def one_line(text: str) -> str:
    """Return the text as one printable line; "; " stands for a line break (compilers write several)."""
    lines = (line.strip() for line in printable(text).replace("\t", " ").splitlines())
    return "; ".join(line for line in lines if line)


def shortened(text: str, most: int) -> str:
    """Return the text, or its beginning and an ellipsis, in no more than ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
