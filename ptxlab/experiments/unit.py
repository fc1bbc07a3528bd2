"""One compilation unit per experiment and architecture: every variant of a kernel, compiled at once.

The generated unit holds the text of kernel.cu once per variant, each in a namespace of its own and with
the variant's macros. A header must not land in a namespace: plain #include lines are lifted to the top,
and around one that depends on a condition the namespace is left. #line directives make messages and line
information name the line of the real file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from functools import lru_cache, partial
from pathlib import Path

from ptxlab.assets import include_folder
from ptxlab.errors import PtxlabError, ToolError, UsageError
from ptxlab.experiments.base import Case, Experiment, Macros, blamed
from ptxlab.files import is_file
from ptxlab.toolchain.build import Build, build_cuda, source_text

_NO_NAME = re.compile(r"[^0-9A-Za-z_]+")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^">]+)[">].*$', re.MULTILINE)
_RAW_STRING = r'R"(?P<mark>[^()\\\s"]{0,16})\(.*?\)(?P=mark)"'
_TOKEN = re.compile(
    rf"""//(?:\\\n|[^\n])*|/\*.*?\*/|{_RAW_STRING}"""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\b\d[\w']*""",  # ' separates a number's digits
    re.DOTALL,
)
_DIRECTIVE = re.compile(
    rf"{_RAW_STRING}|^[ \t]*#[ \t]*(?P<word>\w+)(?:\\\n|[^\n])*", re.DOTALL | re.MULTILINE
)
_BRANCH_ENDS = ("elif", "elifdef", "elifndef", "else", "endif")


def kernel_name(experiment: Experiment, macros: Macros) -> str:
    """Return the extern "C" name of the variant with these macros: ``ldmatrix_NUM4_TRANS0``."""
    values = "_".join(f"{key}{value}" for key, value in macros.items())
    plain = _NO_NAME.sub("_", values)
    # values that differ in punctuation alone must not become one kernel
    tail = "" if plain == values else "_" + hashlib.sha256(values.encode()).hexdigest()[:6]
    name = _NO_NAME.sub("_", experiment.name)
    return "_".join(part for part in (f"k{name}" if name[0].isdigit() else name, plain) if part) + tail


def build_unit(experiment: Experiment, cases: Iterable[Case], arch: str) -> Build:
    """Compile the kernels of all these points for one architecture (from the cache where it can).

    Raises:
        UsageError: the folder has no kernel.cu.
        ToolError: it does not compile; the message names the line of the real file.
        MissingError: there is no compiler here.

    """
    return unit_builder(experiment, cases, arch)()


def unit_builder(experiment: Experiment, cases: Iterable[Case], arch: str) -> Callable[[], Build]:
    """Return what compiles the kernels of all these points; the experiment is asked for nothing any more.

    Raises:
        UsageError: the folder has no kernel.cu.
        ToolError: the kernel cannot be read, or a macro is none.

    """
    if not is_file(experiment.source):
        raise UsageError(
            f"{experiment.source} does not exist", "ptxlab probe new NAME makes a folder that has one"
        )
    variants = {kernel_name(experiment, m): m for m in map(experiment.macros, cases)}
    return partial(
        build_cuda,
        unit_source(experiment.source, variants),
        name=str(experiment.source),
        arch=arch,
        include_dirs=(include_folder(), experiment.folder),
    )


def submitted(pool: Executor, experiment: Experiment, cases: Sequence[Case]) -> Future[Build]:
    """Have a pool compile the kernels of all these points; what goes wrong shows in the future."""
    try:
        with blamed(experiment.file):
            return pool.submit(unit_builder(experiment, cases, cases[0].arch))
    except PtxlabError as error:
        failed: Future[Build] = Future()
        failed.set_exception(error)
        return failed


def unit_source(kernel: Path, variants: dict[str, Macros]) -> str:
    """Return the text of the unit: ``variants`` maps each kernel's name to its macros.

    Raises:
        ToolError: the file cannot be read, or a macro cannot be written as a #define.

    """
    lines, parts = _parts(kernel)
    for name, macros in variants.items():
        defined = {**macros, "KERNEL": name}
        opening = f"namespace {name}_ {{"
        lines += [_define(kernel, key, str(value)) for key, value in defined.items()]
        lines.append(opening)
        for text, outside in parts:
            lines += ["}", text, opening] if outside else [text]
        lines.append("}")
        lines += [f"#undef {key}" for key in defined]
    return "\n".join(lines) + "\n"


def _parts(kernel: Path) -> tuple[list[str], list[tuple[str, bool]]]:
    """Return the plain #include lines; and the whole text in parts, some to stand outside the namespace."""
    text = _without_comments(_text_of(kernel))
    plain: list[str] = []
    parts: list[tuple[str, bool]] = []
    start = depth = 0
    for match in _DIRECTIVE.finditer(text):
        word = match["word"] or ""
        depth += word.startswith("if") - (word == "endif")
        if word == "include" and depth == 0:
            plain.append(_located(kernel, text, *match.span()))
        elif word == "include":
            parts.append((_located(kernel, text, start, match.start()), False))
            parts.append((_located(kernel, text, *match.span()), True))
            start = match.end()
        elif word in _BRANCH_ENDS:  # where a branch is skipped, so are its #line directives
            parts.append((_located(kernel, text, start, match.end()), False))
            start = match.end()
    parts.append((_located(kernel, text, start, len(text)), False))
    return plain, parts


def _without_comments(text: str) -> str:
    """Return the text with blanks for comments, so that what stands in them is not taken for code."""

    def blank(match: re.Match[str]) -> str:
        token = match[0]
        return re.sub(r"[^\n]", " ", token) if token.startswith("/") else token

    return _TOKEN.sub(blank, text)


def _located(file: Path, text: str, start: int, end: int) -> str:
    """Return a part of the file's text behind the directive that says where it comes from."""
    name = os.fsencode(file.absolute()).decode("utf-8", errors="replace")
    line = text.count("\n", 0, start) + 1
    return f"#line {line} {json.dumps(name, ensure_ascii=False)}\n{text[start:end]}"


def _define(kernel: Path, name: str, value: str) -> str:
    if not name.isidentifier() or value.endswith("\\") or not value.isprintable():
        raise ToolError(f"{kernel.parent}: macros() has {name!r}: {value!r}, which is no macro of one line")
    return f"#define {name} {value}"


def _text_of(file: Path) -> str:
    try:
        text = source_text(file.read_bytes(), file).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"{file} cannot be read as UTF-8 text: {error}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def digest(experiment: Experiment, case: Case) -> str:
    """Return what identifies the kernel of a point: its source, ptxlab's own headers, macros and arch.

    CUDA's headers, paths and compiler versions are left out: they differ between machines, and a recording
    must not grow stale by being carried to another one. So are comments: what was measured is written there.
    """
    parts = [case.arch, repr(sorted(experiment.macros(case).items()))]
    parts += [_code_of(_text_of(file)) for file in own_sources(experiment.source)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@lru_cache(maxsize=256)  # each variant of a recording asks for the same files
def _code_of(text: str) -> str:
    """Return the lines of a file that are not blank, where a comment stands for a blank."""
    text = _TOKEN.sub(lambda match: " " if match[0].startswith("/") else match[0], text)
    return "\n".join(line.rstrip() for line in text.split("\n") if line.strip())


def own_sources(source: Path) -> list[Path]:
    """Return the file and every ptxlab header that it includes, directly or not, each once, in order."""
    found: list[Path] = []
    waiting, shared = [source], include_folder()
    while waiting:
        file = waiting.pop(0)
        if file in found:
            continue
        found.append(file)
        for name in _INCLUDE.findall(_text_of(file)):
            candidates = (file.parent / name, shared / name)
            waiting += [path for path in candidates if is_file(path)][:1]
    return found
