"""Finds experiments by looking into folders: probes/<name>/probe.py and kernels/gemm/<name>/stage.py.

Nothing in ptxlab names a probe or a stage. A folder that cannot be loaded becomes an entry with the
reason, so that one broken experiment never takes the others with it.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ptxlab import assets
from ptxlab.errors import PtxlabError, ToolError, unknown_name
from ptxlab.experiments.base import Experiment
from ptxlab.experiments.gemm import GemmStage
from ptxlab.experiments.probe import Probe

AnyExperiment = TypeVar("AnyExperiment", bound=Experiment)


@dataclass(frozen=True)
class Entry:
    """A folder that holds an experiment.

    Attributes:
        name: the folder's name, which is how the experiment is called.
        folder: where it is.
        summary: the first line of its docstring, read without running the file.
        problem: why it cannot be used as far as reading tells, or "".

    """

    name: str
    folder: Path
    summary: str
    problem: str


def probe_entries() -> list[Entry]:
    """Return every probe folder, a user's own first; of two with one name the first is used."""
    return _entries(assets.probe_folders(), "probe.py")


def stage_entries() -> list[Entry]:
    """Return every GEMM stage folder."""
    return _entries([assets.kernels_folder() / "gemm"], "stage.py")


def find_probe(name: str) -> Probe:
    """Return the probe of that name.

    Raises:
        UsageError: there is none; the message holds the names that exist.
        ToolError: its probe.py cannot be loaded; the message says which line.

    """
    return _find("probe", name, probe_entries(), "probe.py", Probe)


def find_stage(name: str) -> GemmStage:
    """Return the GEMM stage of that name; raises as find_probe does."""
    return _find("stage", name, stage_entries(), "stage.py", GemmStage)


def usable_probes() -> Iterator[Probe | Entry]:
    """Yield every probe, or in place of a broken one its entry with the problem."""
    for entry in probe_entries():
        if entry.problem:
            yield entry
            continue
        try:
            yield load(entry, "probe.py", Probe)
        except PtxlabError as error:
            yield Entry(entry.name, entry.folder, entry.summary, error.message)


def _entries(folders: list[Path], file: str) -> list[Entry]:
    found: dict[str, Entry] = {}
    for root in folders:
        for folder in sorted(root.iterdir()) if root.is_dir() else []:
            if (folder / file).is_file():
                found.setdefault(folder.name, _read(folder, file))
    return list(found.values())


def _read(folder: Path, file: str) -> Entry:
    """Read the summary without importing the module: listing must be quick and must not run its code."""
    path = folder / file
    problem = "" if (folder / "kernel.cu").is_file() else f"{folder / 'kernel.cu'} does not exist"
    try:
        doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"), str(path))) or ""
    except SyntaxError as error:
        return Entry(folder.name, folder, "", f"{path}:{error.lineno}: {error.msg}")
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return Entry(folder.name, folder, "", f"{path}: {error}")
    return Entry(folder.name, folder, doc.partition("\n")[0], problem)


def _find(kind: str, name: str, entries: list[Entry], file: str, base: type[AnyExperiment]) -> AnyExperiment:
    for entry in entries:
        if entry.name == name:
            return load(entry, file, base)
    raise unknown_name(kind, name, [entry.name for entry in entries])


def load(entry: Entry, file: str, base: type[AnyExperiment]) -> AnyExperiment:
    """Import the file of an entry and return an instance of the experiment it defines.

    Raises:
        ToolError: the file fails, or does not define exactly one subclass of ``base``.

    """
    path = entry.folder / file
    module_name = f"ptxlab_{base.__name__.lower()}_{entry.name.replace('-', '_')}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ToolError(f"{path} is not a Python file that can be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout belongs to the answer
            spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a user's own file raises is that file's problem
        raise ToolError(f"{path}: {_where(error, path)}{type(error).__name__}: {error}") from error
    found = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, base) and each.__module__ == module_name
    ]
    if len(found) != 1:
        names = ", ".join(each.__name__ for each in found) or "none"
        raise ToolError(f"{path} must define exactly one {base.__name__}; it defines {names}")
    try:
        experiment = found[0]()
    except Exception as error:
        raise ToolError(f"{path}: {found[0].__name__}(): {type(error).__name__}: {error}") from error
    experiment.name, experiment.folder = entry.name, entry.folder
    return experiment


def _where(error: BaseException, path: Path) -> str:
    """Return "line N: " for the last line of the file that the error came through."""
    line = 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"line {line}: " if line else ""
