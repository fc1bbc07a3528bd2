"""What holds for every command there is, and for every one that will come."""

import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer.main

from ptxlab.cli.main import COMMANDS, app
from ptxlab.cli.parsing import Group
from ptxlab.render.show import text_of

SCHEMA = json.loads(resources.files("ptxlab").joinpath("record.schema.json").read_text())
WORKING = {"probe", "layout", "swizzle", "banks", "sass", "gemm", "profile", "cache", "doctor"}

RUNS = [
    ("doctor",),
    ("probe", "list"),
    ("probe", "ldmatrix", "--backend", "model"),
    ("probe", "ldmatrix", "--backend", "model", "--num", "x2", "--trans", "--lane", "5"),
    ("probe", "verify", "--backend", "model"),
    ("layout", "where", "ldmatrix", "--trans", "registers", "3", "5"),
    ("layout", "what", "ldmatrix", "registers", "5", "0", "1"),
    ("layout", "table", "ldmatrix", "--num", "x1"),
    ("layout", "detail", "ldmatrix"),
    ("layout", "support", "--arch", "sm_75,sm_90a"),
    ("layout", "compare", "--c", "m16n8k32:s32", "--a", "m16n8k32:s8"),
    ("layout", "trace"),
    ("layout", "eval", "Sw<1,4,3> o (64,16):(16,1)", "--dtype", "f16"),
    ("layout", "print", "(4,(2,2)):(1,(4,8))", "--table"),
    ("layout", "explain", "composition (6,2):(8,2) (4,3):(3,1)"),
    ("layout", "explain", "coalesce (2097152,4):(1,2097152)"),
    ("swizzle", "solve", "--tile", "16x64", "--dtype", "f16", "--access", "ldmatrix.x4"),
    ("swizzle", "solve", "--tile", "64x64", "--also", "stmatrix", "--also", "tma", "--emit", "cuda"),
    ("swizzle", "check", "3,3,4", "--tile", "128x8:m-major", "--access", "ldmatrix.trans"),
    ("swizzle", "convert", "128B", "--dtype", "f16,f32,u8,b1"),
    ("swizzle", "pad", "--tile", "16x32", "--read", "(l%16, l//16)"),
    ("banks", "--width", "128", "--addr", "lane*128", "--mask", "0-15"),
    ("sass", "probe:ldmatrix"),
    ("sass", "gemm:wmma-naive"),
    ("gemm", "--list"),
    ("cache", "info"),
]
"""Commands that need no GPU and end with 0."""

FAILURES = [
    (("prob",), 2),
    (("probe", "ldmatrx"), 2),
    (("probe", "ldmatrix", "--num", "x3"), 2),
    (("probe", "ldmatrix", "--arch", "sm_91"), 2),
    (("probe", "ldmatrix", "--lane", "32"), 2),
    (("probe", "ldmatrix", "--shape", "m16n16", "--trans", "--dtype", "b8", "--arch", "sm_90a"), 2),
    (("layout", "where", "ldmatrix", "registers", "8", "0"), 2),
    (("layout", "where", "ldmatrx", "registers", "0", "0"), 2),
    (("layout", "what", "ldmatrix", "registers", "32", "0"), 2),
    (("layout", "table", "ldmatrix", "A"), 2),
    (("layout", "support", "--only", "nothing"), 2),
    (("layout", "support", "--arch", "sm_91"), 2),
    (("layout", "compare", "--c", "m16n8k32:s32"), 2),
    (("layout", "trace", "--at", "37;21"), 2),
    (("layout", "compare", "--c", "m16n8k33:s32", "--a", "m16n8k32:s8"), 2),
    (("layout", "eval", "(4,8:(1,4)"), 2),
    (("layout", "explain", "complement 4:2 x"), 2),
    (("sass", "no-such-file.cu"), 2),
    (("sass", "probe:ldmatrx"), 2),
    (("gemm", "--stage", "wmma-naif"), 2),
    (("swizzle", "solve", "--tile", "banana", "--dtype", "f16", "--access", "ldmatrix.x4"), 2),
    (("swizzle", "check", "3,7,3", "--tile", "8x128", "--dtype", "b1"), 2),
    (("banks", "--width", "128", "--addr", "lane * foo"), 2),
    (("banks", "--width", "256", "--addr", "lane"), 2),
]


def leaves(group: Any, context: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command under a group, with the words that call it."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = command.make_context(name, [], parent=context, resilient_parsing=True)
        if hasattr(inner.command, "list_commands"):
            yield from leaves(inner.command, inner, (*path, name))
        else:
            yield (*path, name), inner.command


def everything() -> list[tuple[tuple[str, ...], Any]]:
    """Return all commands."""
    root = typer.main.get_command(app)
    return list(leaves(root, typer.Context(root, info_name="ptxlab")))


def test_only_what_works_is_listed() -> None:
    """A command appears in --help when it comes, and not before."""
    assert set(COMMANDS) == WORKING


def test_every_command_prints_documents_and_forms() -> None:
    """--json and --format exist everywhere, and every command and option has a help text."""
    found = everything()
    assert {path[0] for path, _ in found} == set(COMMANDS)
    for path, command in found:
        flags = {flag for param in command.params for flag in param.opts}
        assert {"--json", "--format"} <= flags, path
        assert command.help, path
        silent = [param.name for param in command.params if not getattr(param, "help", "")]
        assert silent == [], path


def test_help_looks_alike_everywhere(run_here: Any) -> None:
    """Plain text in a pipe, at most 80 columns wide, nothing cut, --debug in all of it."""
    paths = [path for path, _ in everything()]
    for path in [(), *{path[:1] for path in paths}, *paths]:
        done = run_here(*path, "--help")
        assert done.returncode == 0, path
        assert done.stdout.startswith(f"Usage: {' '.join(('ptxlab', *path))} "), path
        assert "--debug" in done.stdout, path
        assert "..." not in done.stdout.partition("\nCommands:")[2], path
        assert max(map(len, done.stdout.splitlines())) <= 80, path


def test_every_group_answers_unknown_names() -> None:
    """By being made of Group: the nearest name and the list."""
    root = typer.main.get_command(app)
    context = typer.Context(root, info_name="ptxlab")
    assert isinstance(root, Group)
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        assert isinstance(command, Group) or not hasattr(command, "list_commands"), name


def document(text: str) -> dict[str, Any]:
    """Return the one valid document that the text holds."""
    parsed = json.loads(text, parse_constant=pytest.fail)
    jsonschema.validate(parsed, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert isinstance(parsed, dict)
    return parsed


@pytest.mark.parametrize("argv", RUNS, ids=" ".join)
def test_a_command_prints_one_valid_document(run_cli: Any, argv: tuple[str, ...]) -> None:
    """On stdout, alone, with the command line in it."""
    done = run_cli(*argv, "--json")
    found = document(done.stdout)
    assert done.returncode == 0, done.stderr
    assert found["command"] == [*argv, "--json"]
    assert "error" not in found
    assert all(check["ok"] for check in found["checks"])


@pytest.mark.parametrize("argv", RUNS, ids=" ".join)
def test_a_command_needs_no_current_directory(
    run_here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...]
) -> None:
    """Whoever deleted it, by switching to another branch perhaps, still has all that is not in it."""
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    done = run_here(*argv)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("form", ["table", "csv", "md"])
@pytest.mark.parametrize("argv", RUNS, ids=" ".join)
def test_a_command_prints_every_form(run_here: Any, argv: tuple[str, ...], form: str) -> None:
    """Something for people, without colour, as stdout is no terminal."""
    done = run_here(*argv, "--format", form)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("argv", RUNS, ids=" ".join)
def test_a_view_shows_failed_checks_and_what_was_skipped(run_here: Any, argv: tuple[str, ...]) -> None:
    """Where there are any: the table says why the exit code is 1, and what was not done."""
    found = document(run_here(*argv, "--json").stdout)
    if found["checks"]:
        found["checks"].append({"name": "made up", "ok": False, "detail": "lane 31 is wrong"})
        assert "lane 31 is wrong" in text_of(found, "table")
    if found["skipped"]:
        found["skipped"].append({"case": "made-up-case", "reason": "for no reason"})
        assert "for no reason" in text_of(found, "table")


@pytest.mark.parametrize(
    ("argv", "code"), FAILURES, ids=lambda v: " ".join(v) if isinstance(v, tuple) else ""
)
def test_bad_input_is_one_line_and_a_document(run_here: Any, argv: tuple[str, ...], code: int) -> None:
    """The right exit code, never a traceback, the same message in both."""
    done = run_here(*argv, "--json")
    error = document(done.stdout)["error"]
    assert (done.returncode, error["exit"]) == (code, code)
    assert error["message"].splitlines()[0] in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert "Traceback" not in done.stderr
