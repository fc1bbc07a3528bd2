"""What probes and GEMM stages have in common: options, cases, a kernel and a claim about its SASS."""

from __future__ import annotations

import contextlib
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxlab.assets import asset_root
from ptxlab.errors import PtxlabError, ToolError, UsageError, unknown_name

Value = str | int | float | bool | None
Macros = dict[str, str | int]


@dataclass(frozen=True)
class Option:
    """One option of an experiment: an attribute of its class, a flag of its command.

    Attributes:
        default: its value when the user does not give one; its type is the option's type.
        choices: the legal values, or () for any.
        help: one line for --help.
        metavar: what --help shows as the value (BYTES, EXPR, ROWSxCOLS).

    """

    default: Value
    choices: tuple[Value, ...]
    help: str
    metavar: str

    def checked(self, name: str, value: Value) -> Value:
        """Return the value if it is legal.

        Raises:
            UsageError: it is none of the choices; the message holds the legal set.

        """
        if self.choices and value not in (*self.choices, self.default):
            raise unknown_name(f"value for --{flag(name)}", str(value), map(str, self.choices))
        return value


def option(
    default: Value,
    *,
    help: str,
    choices: tuple[Value, ...] = (),
    metavar: str = "",
) -> Any:
    """Declare an option in the body of an experiment's class."""
    return Option(default, choices, help, metavar)


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

    Subclasses declare options with ``option(...)``; the folder and the name are set when it is found.
    """

    folder: Path
    name: str

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
            UsageError: an option does not exist, a value is none of its choices, or the form is illegal.

        """
        options = self.options()
        for name in given:
            if name not in options:
                raise unknown_name(f"option of {self.name}", name, options)
        defaults = {name: each.default for name, each in options.items()}
        params = {name: options[name].checked(name, value) for name, value in (defaults | given).items()}
        self.complete(params)
        case = Case(arch, params, defaults)
        self.check(case)
        return case

    def complete(self, params: dict[str, Value]) -> None:
        """Fill in, in place, what an option that was left out means beside the others."""

    def check(self, case: Case) -> None:
        """Raise UsageError, naming the legal set, if this point is illegal. Any point is legal by default."""

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
        """The folder of recordings of real silicon, one file a card."""
        return self.folder / "recordings"

    @property
    def summary(self) -> str:
        """The first line of the docstring of the experiment's module or class."""
        import sys

        doc = type(self).__doc__ or sys.modules[type(self).__module__].__doc__ or ""
        return doc.strip().partition("\n")[0]


@contextlib.contextmanager
def blamed(experiment: Experiment) -> Iterator[None]:
    """Tell of an exception that comes out of an experiment's own file as that file's fault.

    What the file prints goes to stderr: stdout belongs to the answer.

    Raises:
        ToolError: with the file, the line and the exception.

    """
    files = {str(path) for path in experiment.folder.glob("*.py")}
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (PtxlabError, KeyboardInterrupt):
        raise
    except BaseException as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
        if not frames and asset_root() in experiment.folder.parents:
            raise  # the package's own experiment: its fault is ptxlab's
        where = (
            f"{frames[-1].filename}:{frames[-1].lineno}"
            if frames
            else f"{experiment.folder} (what it returned)"
        )
        raise ToolError(f"{where}: {type(error).__name__}: {error}") from error


def sizes(text: str, *, parts: int, what: str) -> tuple[int, ...]:
    """Return the numbers of "16x64", of which there must be ``parts``, each at least 1.

    Raises:
        UsageError: the text is something else.

    """
    fields = text.lower().split("x")
    if len(fields) != parts or not all(re.fullmatch(r"[1-9][0-9]{0,8}", f) for f in fields):
        form = "x".join("RCD"[:parts])
        raise UsageError(f"{what} '{text}' is not of the form {form}, such as {'x'.join(['16'] * parts)}")
    return tuple(int(f) for f in fields)
