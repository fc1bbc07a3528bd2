"""Finds experiments by looking into folders: probes/<name>/probe.py, kernels/gemm/<name>/stage.py and so on.

Nothing in ptxlab names a probe or a stage. What lists them reads their files and runs nothing of them; one
is loaded when it is asked for by name, or when all of them are to run. One that is broken never takes the
others with it.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from ptxlab import assets
from ptxlab.errors import PtxlabError, ToolError, unknown_name
from ptxlab.experiments.base import Case, Experiment, Option, blamed, fault, in_words
from ptxlab.files import is_file

if TYPE_CHECKING:  # both import numpy, which lists and help need not wait for
    from ptxlab.experiments.gemm import GemmStage
    from ptxlab.experiments.gemm.ceiling import Ceiling
    from ptxlab.experiments.probe import Probe

AnyExperiment = TypeVar("AnyExperiment", bound=Experiment)


@dataclass(frozen=True)
class Reading:
    """What a file says without being run.

    Attributes:
        summary: the first line of its docstring.
        options: the names of the options that its classes declare.
        maps: False if one of them says ``maps = False``: that it reports no register maps.
        in_memory: True if one says ``in_memory = True``: that it reports operands in shared memory instead.
        problem: why it cannot be used, as far as reading tells, or "".

    """

    summary: str = ""
    options: tuple[str, ...] = ()
    maps: bool = True
    in_memory: bool = False
    problem: str = ""


@dataclass(frozen=True)
class Entry:
    """A file that defines an experiment. Nothing of it has run.

    Attributes:
        name: how the experiment is called: its folder's name.
        file: the file.
        closed: why its folder cannot be looked into, or its name not be asked for, or "".

    """

    name: str
    file: Path
    closed: str = ""

    @cached_property
    def said(self) -> Reading:
        """What the file says."""
        return Reading(problem=self.closed) if self.closed else _read(self.file)


def probe_entries() -> list[Entry]:
    """Return every probe, a user's own first; of two with one name the first is used."""
    return _entries(assets.probe_folders(), "probe.py")


def stage_entries() -> list[Entry]:
    """Return every GEMM stage."""
    return _entries([assets.kernels_folder() / "gemm"], "stage.py")


def ceiling_entries() -> list[Entry]:
    """Return every kernel that shows what an instruction can reach."""
    return _entries([assets.kernels_folder() / "ceiling"], "ceiling.py")


def find_probe(name: str) -> Probe:
    """Return the probe of that name.

    Raises:
        UsageError: there is none; the message holds the names that exist.
        ToolError: its file cannot be loaded; the message says which line.

    """
    return load_probe(_find("probe", name, probe_entries()))


def find_stage(name: str) -> GemmStage:
    """Return the GEMM stage of that name; raises as find_probe does."""
    from ptxlab.experiments.gemm import GemmStage

    return _load(_find("stage", name, stage_entries()), GemmStage)


def find_ceiling(name: str) -> Ceiling:
    """Return the ceiling of that name; raises as find_probe does."""
    from ptxlab.experiments.gemm.ceiling import Ceiling

    return _load(_find("ceiling", name, ceiling_entries()), Ceiling)


def load_probe(entry: Entry) -> Probe:
    """Run the file of a probe and return the probe; raises ToolError as find_probe does."""
    from ptxlab.experiments.probe import Probe

    return _load(entry, Probe)


def usable_probes() -> Iterator[Probe | PtxlabError]:
    """Yield every probe, or in place of a broken one what is wrong with it."""
    for entry in probe_entries():
        try:
            yield load_probe(entry)
        except PtxlabError as error:
            yield error


def _entries(folders: list[Path], file: str) -> list[Entry]:
    found: dict[str, Entry] = {}
    for root in folders:
        for entry in _in_folder(root, file):
            found.setdefault(entry.name, entry)
    return list(found.values())


def _in_folder(root: Path, file: str) -> Iterator[Entry]:
    """Yield the experiments in a folder, and what of it cannot be looked into."""
    try:
        folders = sorted(root.iterdir())
    except OSError as error:
        yield Entry(str(root), root / file, f"{root} cannot be read: {error.strerror}")
        return
    for folder in folders:
        name = folder.name
        try:
            if (folder / file).is_file():
                typed = name.isprintable() and not name.startswith("-")
                yield Entry(name, folder / file, "" if typed else f"{folder} has a name that cannot be typed")
        except OSError as error:
            yield Entry(name, folder / file, f"{folder} cannot be read: {error.strerror}")


def _read(file: Path) -> Reading:
    """Return what a file says: quickly, and without running it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they come when it is run
            tree = ast.parse(file.read_bytes(), str(file))
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        summary = (ast.get_docstring(tree) or "").partition("\n")[0]
        assigned = [pair for each in classes for pair in _assigned(each)]
        options = tuple(name for name, value in assigned if _is_option(value))
        maps = not any(name == "maps" and ast.unparse(value) == "False" for name, value in assigned)
        in_memory = any(name == "in_memory" and ast.unparse(value) == "True" for name, value in assigned)
        problem = _problem(file, tree, classes)
        return Reading(summary, options, maps=maps, in_memory=in_memory, problem=problem)
    except SyntaxError as error:
        return Reading(problem=f"{file}:{error.lineno}: {error.msg}")
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return Reading(problem=f"{file}: {in_words(error)}")


def _assigned(of: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names to which the body of a class assigns, and what."""
    for line in of.body:
        if isinstance(line, ast.Assign):
            yield from ((target.id, line.value) for target in line.targets if isinstance(target, ast.Name))


def _is_option(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "option"


def _problem(file: Path, tree: ast.Module, classes: list[ast.ClassDef]) -> str:
    """Return why an experiment cannot be used whatever its file does when it is run, or ""."""
    raises = [node.lineno for node in tree.body if isinstance(node, ast.Raise)]
    if raises:
        return f"{file}:{raises[0]}: raises an exception whenever it is loaded"
    if not classes:
        return f"{file} defines no class"
    kernel = file.with_name("kernel.cu")
    return "" if is_file(kernel) else f"{kernel} does not exist"


def _find(kind: str, name: str, entries: list[Entry]) -> Entry:
    for entry in entries:
        if entry.name == name:
            return entry
    raise unknown_name(kind, name, [entry.name for entry in entries if not entry.closed])


def _load(entry: Entry, base: type[AnyExperiment]) -> AnyExperiment:
    """Run the file of an entry and return an instance of the experiment that it defines.

    Raises:
        ToolError: the file fails, does not define exactly one subclass of ``base``, or gives an option a
            name that is taken.

    """
    with blamed(entry.file):
        module = _module(f"ptxlab_{base.__name__.lower()}_{entry.name}", entry.file)
        classes = {each for each in vars(module).values() if isinstance(each, type)}
        own = [each for each in classes if issubclass(each, base) and each.__module__ == module.__name__]
        if len(own) != 1:
            names = ", ".join(sorted(each.__name__ for each in own)) or "none"
            raise ToolError(f"{entry.file} must define exactly one {base.__name__}; it defines {names}")
        experiment = own[0]()
        experiment.name, experiment.folder, experiment.file = entry.name, entry.file.parent, entry.file
        _check_names(experiment, base)
        return experiment


def _module(name: str, file: Path) -> ModuleType:
    """Run a file as a module of that name and return it."""
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ToolError(f"{file} is not a Python file that can be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _check_names(experiment: Experiment, base: type[Experiment]) -> None:
    """Refuse an option, which is an attribute of the experiment and of its cases, that hides one of theirs.

    Raises:
        ToolError: with the option's name.

    """
    taken = {*dir(base), *Experiment.__annotations__, *dir(Case("", {}, {}))}
    for name in experiment.options():
        if name in taken and not isinstance(getattr(base, name, None), Option):
            raise fault(experiment, f"no option can be called {name}: every {base.__name__} has that already")
