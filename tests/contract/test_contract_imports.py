"""Who may import whom: the order of the house, and what must never be loaded early."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "ptxlab"

ORDER = (
    "errors",
    "files",
    "assets",
    "isa",
    "layout",
    "emulator",
    "toolchain",
    "sass",
    "device",
    "bench",
    "experiments",
    "render",
    "cli",
)
"""Each imports from those before it and from itself."""

MODULES = sorted(PACKAGE.rglob("*.py"))
HEAVY = ("numpy", "rich", "cuda", "ncu_report", "elftools", "pynvml", "pydantic", "nvmath", "torch")


def imports(tree: ast.AST, *, top_level: bool = False) -> Iterator[tuple[str, int]]:
    """Yield every imported module and the line; only what importing the file runs if top_level."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute here"
            module = node.module or ""
            yield module, node.lineno
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)
        elif top_level and (isinstance(node, ast.FunctionDef) or _is_for_types_only(node)):
            continue
        else:
            yield from imports(node, top_level=top_level)


def _is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def place(module: Path) -> str:
    """Return which part of the house a file belongs to; "" for ptxlab/__init__.py and __main__.py."""
    first = module.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "" if first.startswith("__") else first


def test_every_part_of_the_house_is_in_the_order() -> None:
    """A new package must find its place in the list."""
    assert {place(module) for module in MODULES} - {""} <= set(ORDER)


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(PACKAGE)))
def test_imports_go_up_the_list_only(module: Path) -> None:
    """A part knows nothing of the parts that are built on it."""
    home = place(module)
    if not home:
        return
    allowed = ORDER[: ORDER.index(home) + 1]
    for name, line in imports(ast.parse(module.read_text(encoding="utf-8"))):
        parts = name.split(".")
        if parts[0] == "ptxlab" and len(parts) > 1 and parts[1] in ORDER:
            assert parts[1] in allowed, f"{module}:{line} imports {name}"


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(PACKAGE)))
def test_cuda_is_imported_in_two_places(module: Path) -> None:
    """The parent never loads CUDA: device/ runs in the worker, and NVRTC needs no driver."""
    where = module.relative_to(PACKAGE).as_posix()
    may = where.startswith("device/") or where == "toolchain/nvrtc.py"
    for name, line in imports(ast.parse(module.read_text(encoding="utf-8"))):
        assert may or name.split(".")[0] != "cuda", f"{module}:{line} imports {name}"


@pytest.mark.parametrize("part", ["isa", "layout"])
def test_models_are_made_of_numpy_and_nothing_else(part: str) -> None:
    """They run wherever numpy does."""
    for module in (PACKAGE / part).rglob("*.py"):
        for name, line in imports(ast.parse(module.read_text(encoding="utf-8"))):
            root = name.split(".")[0]
            ours = name.startswith(("ptxlab.errors", "ptxlab.isa", "ptxlab.layout"))
            fine = root == "numpy" or root in sys.stdlib_module_names or ours
            assert fine or name == "ptxlab", f"{module}:{line} imports {name}"


@pytest.mark.parametrize("module", sorted((PACKAGE / "cli").glob("*.py")), ids=lambda m: m.stem)
def test_commands_import_nothing_heavy_before_they_run(module: Path) -> None:
    """Every ``ptxlab --help`` pays for what the command modules import."""
    for name, line in imports(ast.parse(module.read_text(encoding="utf-8")), top_level=True):
        root = name.split(".")[0]
        light = root in (*sys.stdlib_module_names, "typer")
        ours = name in ("ptxlab", "ptxlab.__version__") or name.startswith(
            ("ptxlab.errors", "ptxlab.files", "ptxlab.cli")
        )
        assert light or ours, f"{module}:{line} imports {name}"


def loaded_by(code: str) -> set[str]:
    """Return the names of the modules that a fresh interpreter has loaded after this code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        cwd=PACKAGE.parent,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_importing_ptxlab_loads_nothing() -> None:
    """Not even numpy."""
    assert not {"numpy", "typer", "rich", "cuda"} & loaded_by("import ptxlab")


def test_help_loads_no_heavy_module() -> None:
    """What --help really loads, whatever the sources look like."""
    loaded = loaded_by("from ptxlab.cli.main import run; assert run(['--help']) == 0")
    assert "ptxlab.cli.probe" in loaded  # it did look at the commands
    assert not set(HEAVY) & {name.split(".")[0] for name in loaded}
