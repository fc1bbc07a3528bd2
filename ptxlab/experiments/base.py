"""What probes and GEMM stages have in common: options, cases, a kernel and a claim about its SASS."""

from __future__ import annotations

import contextlib
import re
import sys
import traceback
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxlab.assets import asset_root
from ptxlab.errors import PtxlabError, ToolError, UsageError, malformed, unknown_name

Value = str | int | float | bool | None
Macros = dict[str, str | int]

RECORDINGS = "recordings"
"""The folder beside an experiment's file with recordings of real silicon, one file a card."""


@dataclass(frozen=True)
class Option:
    """One option of an experiment: an attribute of its class, a flag of its command.

    Attributes:
        default: its value when the user does not give one; its type is the option's type.
        choices: the legal values, or () for any.
        help: one line for --help.
        metavar: what --help shows as the value (BYTES, EXPR, ROWSxCOLS).
        alias: another flag for it ("--atom"), or "".
        maps: whether it can change who holds what; if not, ``layout`` does not take it.
        leads_to: the probe that answers in this one's place where the option is given, or "".

    """

    default: Value
    choices: tuple[Value, ...]
    help: str
    metavar: str
    alias: str = ""
    maps: bool = True
    leads_to: str = ""

    def __post_init__(self) -> None:
        """Refuse what is no option right here, so that the line that declares it is told."""
        default: Any = self.default
        choices: Any = self.choices
        texts: tuple[Any, ...] = (self.help, self.metavar, self.alias)
        if not isinstance(default, str | int | float):
            raise TypeError(f"the default of an option is {default!r}; legal: a text, number or flag")
        if not isinstance(choices, tuple) or {type(each) for each in choices} - {type(default)}:
            raise TypeError(f"choices are {choices!r}; legal: a tuple of values like the default {default!r}")
        if not all(isinstance(each, str) for each in texts) or not self.help:
            raise TypeError(f"help, metavar and alias are {texts}; legal: text, and help not empty")

    def checked(self, typed: str, value: Value) -> Value:
        """Return the value if it is legal; ``typed`` is how the option is typed, such as "--dtype".

        Raises:
            UsageError: it is none of the choices; the message holds the legal set.

        """
        if self.choices and value not in (*self.choices, self.default):
            raise unknown_name(f"value for {typed}", str(value), map(str, self.choices))
        return value


def option(
    default: Value,
    *,
    help: str,
    choices: tuple[Value, ...] = (),
    metavar: str = "",
    alias: str = "",
    maps: bool = True,
    leads_to: str = "",
) -> Any:
    """Declare an option in the body of an experiment's class."""
    return Option(default, choices, help, metavar, alias, maps, leads_to)


def flag(name: str) -> str:
    """Return the option's name as it is typed: ``poison_unused_lanes`` is ``--poison-unused-lanes``."""
    return name.replace("_", "-")


class Case:
    """One point of an experiment: an architecture and a value for every option.

    The values are attributes: ``case.num``, ``case.trans``.
    """

    def __init__(self, arch: str, params: Mapping[str, Value], defaults: Mapping[str, Value]) -> None:
        self.arch = arch
        self.params = dict(params)
        self._defaults = dict(defaults)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["params"][name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def key(self) -> str:
        """A name for this point, made of what differs from the defaults: "num=x2 trans", or "default"."""
        parts = [
            name if value is True else f"{name}={value}"
            for name, value in self.params.items()
            if value != self._defaults[name]
        ]
        return " ".join(parts) or "default"


class Experiment:
    """A folder with a kernel, a prediction and a claim.

    Subclasses declare options with ``option(...)``; what stands here first is set when it is found.

    Attributes:
        name: how it is called: the folder's name.
        folder: where it is.
        file: the Python file that defines it.

    """

    name: str
    folder: Path
    file: Path

    @classmethod
    def options(cls) -> dict[str, Option]:
        """Return the options in the order in which they are declared, base classes first."""
        found: dict[str, Option] = {}
        for klass in reversed(cls.__mro__):
            found.update({k: v for k, v in vars(klass).items() if isinstance(v, Option)})
        return found

    def case(self, arch: str, **given: Value) -> Case:
        """Return the point with these values, and defaults for the rest.

        Raises:
            UsageError: an option does not exist, a value is none of its choices, or the form is illegal; or
                an option was given that another probe answers.

        """
        case = self.point(arch, **given)
        for name, each in self.options().items():
            if each.leads_to and case.params[name] != each.default:
                raise UsageError(f"{self.typed(name)} is answered by another probe: {each.leads_to}")
        self.check(case)
        return case

    def point(self, arch: str, **given: Value) -> Case:
        """Return the point with these values, legal or not; raises as ``case`` does but for the form."""
        options = self.options()
        for name in given:
            if name not in options:
                raise unknown_name(f"option of {self.name}", name, options)
        defaults = {name: each.default for name, each in options.items()}
        params = {
            name: options[name].checked(self.typed(name), value) for name, value in (defaults | given).items()
        }
        self.complete(params)
        sound = all(isinstance(value, str | int | float | None) for value in params.values())
        if params.keys() != options.keys() or not sound:
            raise fault(self, f"complete() leaves {params}; legal: a text, number or flag for each option")
        return Case(arch, params, defaults)

    def typed(self, name: str) -> str:
        """Return how an option is typed."""
        return f"--{flag(name)}"

    def complete(self, params: dict[str, Value]) -> None:
        """Fill in, in place, what an option that was left out means beside the others."""

    def check(self, case: Case) -> None:
        """Raise UsageError, naming the legal set, if this point is illegal. Any point is legal by default."""

    def identity(self, case: Case) -> Hashable:
        """Return what determines the kernel of a point and its data.

        Points of equal identity share recordings. It is each option's value, unless a probe knows better: one
        value may be typed in several ways, and some options just choose what is shown.
        """
        return tuple(case.params.items())

    def variants(self, arch: str) -> Iterator[Case]:
        """Yield every point that is recorded and verified; illegal ones are left out."""
        yield self.case(arch)

    def macros(self, case: Case) -> Macros:
        """Return the -D macros that make the kernel of this point. The kernel's name is macro KERNEL."""
        del case
        return {}

    def claims(self, case: Case) -> dict[str, int]:
        """Return what the SASS of this point's kernel must hold: opcode prefix -> static count."""
        del case
        return {}

    @property
    def source(self) -> Path:
        """The kernel's source file."""
        return self.folder / "kernel.cu"

    @property
    def recordings(self) -> Path:
        """The folder of its recordings."""
        return self.folder / RECORDINGS

    @property
    def summary(self) -> str:
        """The first line of the docstring of the experiment's module."""
        doc = sys.modules[type(self).__module__].__doc__
        return str(doc or "").strip().partition("\n")[0]


def fault(experiment: Experiment, what: str) -> ToolError:
    """Return the error for something that an experiment says and that cannot be."""
    return ToolError(f"{experiment.file}: {what}")


@contextlib.contextmanager
def blamed(file: Path) -> Iterator[None]:
    """Tell of an exception that comes out of an experiment's file as that file's fault.

    What the file prints goes to stderr: stdout belongs to the answer.

    Raises:
        ToolError: with the file, the line and the exception.

    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except PtxlabError:
        raise
    except BaseException as error:  # whatever a user's own file raises is that file's problem
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if file.parent in Path(frame.filename).parents]
        if isinstance(error, KeyboardInterrupt) and not _is_raised(own, frames):
            raise  # it comes from the keyboard
        if isinstance(error, SyntaxError) and error.filename == str(file):
            where = f"{file}:{error.lineno}"
        elif own:
            where = f"{own[-1].filename}:{own[-1].lineno}"
        elif asset_root() in file.parents:
            raise  # the package's own experiment: its fault is ptxlab's
        else:
            where = f"{file} (what it returns)"
        raise ToolError(f"{where}: {in_words(error)}") from error


def _is_raised(own: list[traceback.FrameSummary], frames: list[traceback.FrameSummary]) -> bool:
    """Say whether a line of the file itself raised the exception."""
    return bool(own) and own[-1] is frames[-1] and str(own[-1].line).startswith("raise")


def in_words(error: BaseException) -> str:
    """Return the exception and its words, which its class may have made impossible to get."""
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - it is the file's own code
        words = ""
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


_SIZE = "[1-9][0-9]{0,8}"
_WORD = "0[xX][0-9a-fA-F]{1,80}|0[bB][01]{1,80}|[0-9]{1,80}"


def bits_of(text: str) -> int:
    """Return the bits that "0x1f", "0b11111" or "31" stands for; -1 where it is no such number."""
    if not re.fullmatch(_WORD, text):
        return -1
    return int(text, 10 if text.isdecimal() else 0)


def sizes(text: str, *, parts: int, what: str) -> tuple[int, ...]:
    """Return the numbers of "16x64", of which there must be ``parts``, each at least 1.

    Raises:
        UsageError: the text is something else.

    """
    fields = text.lower().split("x")
    if len(fields) != parts or not all(re.fullmatch(_SIZE, field) for field in fields):
        sound = f"(?i:(?:{_SIZE}x){{0,{parts - 1}}}(?:{_SIZE})?)"
        form, example = "x".join("RCD"[:parts]), "x".join(["16"] * parts)
        raise malformed(what, text, sound, f"not of the form {form}, such as {example}")
    return tuple(int(f) for f in fields)
