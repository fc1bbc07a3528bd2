"""One compilation unit per experiment and architecture: every variant of a kernel, compiled at once.

The generated unit includes the real kernel.cu once per variant, each in a namespace of its own and with
the variant's macros, so that compiler errors point at the line of the real file. Its #include lines are
lifted to the top, because a header must not land in a namespace.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from ptxlab.assets import include_folder
from ptxlab.errors import ToolError, UsageError
from ptxlab.experiments.base import Case, Experiment, Macros
from ptxlab.toolchain.build import Build, build_cuda

_NO_NAME = re.compile(r"[^0-9A-Za-z_]+")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^">]+)[">].*$', re.MULTILINE)


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
    if not experiment.source.is_file():
        raise UsageError(
            f"{experiment.source} does not exist", "ptxlab probe new NAME makes a folder that has one"
        )
    variants = {kernel_name(experiment, m): m for m in map(experiment.macros, cases)}
    return build_cuda(
        unit_source(experiment.source, variants),
        name=str(experiment.folder / "unit.cu"),
        arch=arch,
        include_dirs=(include_folder(), experiment.folder),
    )


def unit_source(kernel: Path, variants: dict[str, Macros]) -> str:
    """Return the text of the unit: ``variants`` maps each kernel's name to its macros."""
    text = _text_of(kernel)
    lines = [match.group(0).strip() for match in _INCLUDE.finditer(text)]
    for name, macros in variants.items():
        defined = {"KERNEL": name, **macros}
        lines += [f"#define {key} {value}" for key, value in defined.items()]
        lines += [f"namespace {name}_ {{", f'#include "{kernel.name}"', "}"]
        lines += [f"#undef {key}" for key in defined]
    return "\n".join(lines) + "\n"


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"{file} cannot be read as UTF-8 text: {error}") from error


def digest(experiment: Experiment, case: Case) -> str:
    """Return what identifies the kernel of a point: its source, ptxlab's own headers, macros and arch.

    CUDA's headers, paths and compiler versions are left out: they differ between machines, and a recording
    must not grow stale by being carried to another one.
    """
    parts = [case.arch, repr(sorted(experiment.macros(case).items()))]
    parts += [_text_of(file) for file in own_sources(experiment.source)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def own_sources(source: Path) -> list[Path]:
    """Return the file and every ptxlab header that it includes, directly or not, each once, in order."""
    found: list[Path] = []
    waiting = [source]
    while waiting:
        file = waiting.pop(0)
        if file in found:
            continue
        found.append(file)
        for name in _INCLUDE.findall(_text_of(file)):
            candidates = (file.parent / name, include_folder() / name)
            waiting += [path for path in candidates if path.is_file()][:1]
    return found
