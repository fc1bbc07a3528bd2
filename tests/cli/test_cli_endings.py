"""Every way in which a command can end: what stands on stdout and stderr, and the exit code."""

import json
import sys
from collections.abc import Callable
from importlib import resources
from types import ModuleType
from typing import Annotated, Any

import jsonschema
import pytest
import typer

from ptxlab.cli import main
from ptxlab.cli.common import Format, FormatOption, JsonFlag, emit
from ptxlab.cli.parsing import App
from ptxlab.errors import (
    DeviceError,
    ExitCode,
    MissingError,
    PtxlabError,
    ToolError,
    UsageError,
    unknown_name,
)
from ptxlab.experiments.record import Record
from ptxlab.render.blocks import Block, Text

SCHEMA = json.loads(resources.files("ptxlab").joinpath("record.schema.json").read_text())


def reached() -> Record:
    """Return what a command got done before it failed."""
    return Record(params={"tile": "16x64"}, result={"sentence": "half of the answer"})


def judged(*, ok: bool) -> Record:
    """Return a record with two checks, of which the second held or not."""
    record = reached()
    record.check("first", ok=True, detail="1 is 1")
    record.check("second", ok=ok, detail="lane 3: 0x3c00 is not 0x4000")
    return record


def fail(error: BaseException) -> Callable[[], Record]:
    """Return what raises the error."""

    def act() -> Record:
        raise error

    return act


DEEDS: dict[str, Callable[[], Record]] = {
    "succeed": lambda: judged(ok=True),
    "disagree": lambda: judged(ok=False),
    "usage": fail(UsageError("tile '3x' is not of the form RxC", "try 16x64", code="tile")),
    "missing": fail(MissingError("no device here", record=reached())),
    "early": fail(MissingError("no device here", record=Record())),
    "tool": fail(ToolError("ptxas failed:\n  line 3: bad\n  line 4: worse", "look at line 3")),
    "device": fail(DeviceError("the device timed out after 20 s")),
    "fault": fail(KeyError("lane")),
    "interrupt": fail(KeyboardInterrupt()),
    "other-pipe": fail(BrokenPipeError(32, "Broken pipe")),
    "long": fail(UsageError(f"unknown name '{'x' * 900}'", "y" * 900)),
    "control": fail(ToolError("k\x1b[2J.cu\tis\r\nbad\u202e\x07", "\x9b1m")),
}


def example(
    deed: Annotated[str, typer.Argument(help="What to do.")],
    *,
    tile: Annotated[str, typer.Option(help="Shape.", metavar="RxC")] = "16x64",
    part: Annotated[float, typer.Option(help="How much of it.", min=0.5, max=1)] = 1.0,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Do what the name says."""
    del tile, part
    emit(DEEDS[deed](), json=json, format=format)


@pytest.fixture(autouse=True)
def _example(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the commands ``example`` and ``group inner`` with a view."""
    command, group, view = (
        ModuleType(f"ptxlab.{name}") for name in ("cli.example", "cli.group", "render.views.example")
    )

    def register_group(app: typer.Typer) -> None:
        inner = App()
        inner.command("inner")(example)
        inner.command("outer")(example)
        app.add_typer(inner, name="group", help="Several commands.")

    def show(document: dict[str, Any]) -> list[Block]:
        return [Text(document["result"]["sentence"])]

    command.register = lambda app: app.command("example")(example)  # type: ignore[attr-defined]
    group.register = register_group  # type: ignore[attr-defined]
    view.view = show  # type: ignore[attr-defined]
    for module in (command, group, view):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(main, "COMMANDS", ("example", "group"))


def document(text: str) -> dict[str, Any]:
    """Return the one valid document that the text holds."""
    parsed = json.loads(text, parse_constant=pytest.fail)
    jsonschema.validate(parsed, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert isinstance(parsed, dict)
    return parsed


ENDINGS = [
    ("usage", ExitCode.USAGE, "tile", "ptxlab: tile '3x' is not of the form RxC\nhint: try 16x64\n"),
    ("missing", ExitCode.MISSING, "missing", "ptxlab: no device here\n"),
    (
        "tool",
        ExitCode.TOOL_FAILED,
        "tool-failed",
        "ptxlab: ptxas failed:; line 3: bad; line 4: worse\nhint: look at line 3\n",
    ),
    (
        "device",
        ExitCode.DEVICE_FAILED,
        "device-failed",
        "ptxlab: the device timed out after 20 s\n",
    ),
]


@pytest.mark.parametrize(("deed", "code", "name", "stderr"), ENDINGS)
def test_a_failure_is_one_line_and_a_hint(
    run_here: Any, deed: str, code: ExitCode, name: str, stderr: str
) -> None:
    """No traceback, the right exit code, and the same in the document of --json."""
    done = run_here("example", deed)
    assert (done.returncode, done.stderr) == (code, stderr)
    with_json = run_here("example", deed, "--json")
    assert (with_json.returncode, with_json.stderr) == (code, stderr)
    error = document(with_json.stdout)["error"]
    assert (error["code"], error["exit"]) == (name, code)
    assert set(error) == {"code", "exit", "message", "hint"}


def test_what_was_reached_is_shown_before_the_failure(run_here: Any) -> None:
    """The view comes first, in the form that was asked for; the document holds both."""
    assert run_here("example", "missing").stdout == "half of the answer\n"
    assert run_here("example", "missing", "--format=csv").stdout == "# half of the answer\n"
    reached_too = document(run_here("example", "missing", "--json").stdout)
    assert reached_too["result"] == {"sentence": "half of the answer"}
    assert reached_too["error"]["message"] == "no device here"
    assert reached_too["command"] == ["example", "missing", "--json"]


def test_a_view_that_fails_hides_no_failure(run_here: Any) -> None:
    """What was reached may be too little for the view: both failures are told, no traceback."""
    done = run_here("example", "early")
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (ExitCode.TOOL_FAILED, "")
    assert lines[0] == "ptxlab: no device here"
    assert lines[1].startswith("ptxlab: KeyError: 'sentence' (this is a fault of ptxlab)")


def test_a_failure_is_bounded_on_stderr_and_whole_in_the_document(run_here: Any) -> None:
    """A terminal is not flooded; whoever wants all of it asks for --json."""
    done = run_here("example", "long", "--json")
    first, second = done.stderr.splitlines()
    assert first.startswith("ptxlab: unknown name 'xxx")
    assert first.endswith("x… (--json has it whole)")
    assert len(first) < 540
    assert len(second) < 540
    assert document(done.stdout)["error"]["message"] == f"unknown name '{'x' * 900}'"


def test_control_characters_in_a_failure_are_shown_and_not_obeyed(run_here: Any) -> None:
    """A file may have any name, and a tool may say anything."""
    done = run_here("example", "control", "--json")
    assert done.stderr == "ptxlab: k\\x1b[2J.cu is; bad\\u202e\\x07\nhint: \\x9b1m\n"
    error = document(done.stdout)["error"]
    assert error["message"] == "k\\x1b[2J.cu is; bad\\u202e\\x07"
    assert error["hint"] == "\\x9b1m"


def test_a_name_is_shortened_so_that_the_legal_ones_are_seen() -> None:
    """The set that is legal stands after it."""
    told = unknown_name("stage", "x" * 10_000_000, ["one", "two"]).message
    assert told == f"unknown stage '{'x' * 79}…'; legal: one, two"


def test_success_ends_with_0(run_here: Any) -> None:
    """The answer is on stdout and nothing is on stderr."""
    done = run_here("example", "succeed")
    assert (done.returncode, done.stdout, done.stderr) == (0, "half of the answer\n", "")
    good = document(run_here("example", "succeed", "--json").stdout)
    assert good["command"] == ["example", "succeed", "--json"]
    assert [check["ok"] for check in good["checks"]] == [True, True]


def test_a_failed_check_ends_with_1_and_is_named(run_here: Any) -> None:
    """The answer is shown all the same; stderr says which check failed and why."""
    line = "ptxlab: 1 of 2 checks failed, the first: second: lane 3: 0x3c00 is not 0x4000\n"
    done = run_here("example", "disagree")
    assert (done.returncode, done.stdout, done.stderr) == (1, "half of the answer\n", line)
    with_json = run_here("example", "disagree", "--json")
    assert (with_json.returncode, with_json.stderr) == (1, line)
    assert "error" not in document(with_json.stdout)


def test_a_fault_of_ptxlab_says_so(run_here: Any) -> None:
    """An exception that nobody foresaw is one line too, and --debug shows where it is from."""
    done = run_here("example", "fault", "--json")
    assert done.returncode == ExitCode.TOOL_FAILED
    assert document(done.stdout)["error"]["code"] == "internal"
    assert done.stderr.startswith("ptxlab: KeyError: 'lane' (this is a fault of ptxlab)\nhint: ")
    assert "Traceback" not in done.stderr


def test_a_pipe_of_another_program_is_no_closed_stdout(run_here: Any) -> None:
    """Only our own reader's going away is a quiet end."""
    done = run_here("example", "other-pipe")
    assert done.returncode == ExitCode.TOOL_FAILED
    assert "BrokenPipeError" in done.stderr


@pytest.mark.parametrize(
    "argv",
    [
        ("example", "device", "--debug"),
        ("--debug", "example", "device"),
        ("group", "inner", "device", "--debug"),
        ("group", "--debug"),
        ("example", "--no-such", "--debug"),
    ],
)
def test_debug_shows_the_traceback_of_every_command(run_here: Any, argv: tuple[str, ...]) -> None:
    """Wherever it stands on the line, and also when the line itself is wrong."""
    assert run_here(*argv).stderr.startswith("Traceback (most recent call last):")


def test_debug_is_in_the_help_of_every_command(run_here: Any) -> None:
    """Though no command declares it."""
    assert "--debug" in run_here("example", "--help").stdout
    assert "--debug" in run_here("group", "inner", "--help").stdout


def test_an_interrupt_ends_with_130(run_here: Any) -> None:
    """And says nothing, as the user knows what happened."""
    done = run_here("example", "interrupt")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


USAGE = [
    (("exampel",), "unknown ptxlab command 'exampel'; legal: example, group", "did you mean example?"),
    (("group", "iner"), "unknown ptxlab group command 'iner'; legal: inner, outer", "mean inner?"),
    (("group",), "ptxlab group needs a command: inner, outer", "ptxlab group --help"),
    (("example", "succeed", "--tiel", "3"), "unknown ptxlab example option '--tiel'", "mean --tile?"),
    (("example", "succeed", "--format", "cvs"), "'cvs'; legal: table, csv, md", "did you mean csv?"),
    (("example", "succeed", "--format", "xml"), "'xml'; legal: table, csv, md", "ptxlab example --help"),
    (("example", "succeed", "--format", "foo"), "--format 'foo'; legal: table", "ptxlab example --help"),
    (("example", "succeed", "--tile"), "--tile needs a value; legal: RxC", "ptxlab example --help"),
    (("example", "succeed", "--tile="), "--tile needs a value; legal: RxC", "ptxlab example --help"),
    (("example", "succeed", "--tile", "--part"), "--tile needs a value; legal: RxC", "ptxlab example"),
    (("example", ""), "deed needs a value; What to do.", "ptxlab example --help"),
    (("example",), "ptxlab example needs deed; What to do.", "ptxlab example --help"),
    (("example", "succeed", "--debug=1"), "does not take a value", "ptxlab example --help"),
    (("example", "succeed", "--part", "2"), "'2' is no value for --part; legal: 0.5 to 1", "ptxlab example"),
    (("example", "succeed", "--part", "nan"), "'nan' is no value for --part; legal: 0.5 to 1", "example"),
    (("example", "succeed", "--part", "half"), "'half' is no value for --part; legal: 0.5", "ptxlab example"),
    (("example", "succeed", "more"), "more", "ptxlab example --help"),
    (("--jsn",), "unknown ptxlab option '--jsn'", ""),
]


@pytest.mark.parametrize(("argv", "message", "hint"), USAGE)
def test_wrong_usage_names_what_is_right(
    run_here: Any, argv: tuple[str, ...], message: str, hint: str
) -> None:
    """Exit 2, one line, and the nearest name or the page that lists them; a document with --json."""
    done = run_here(*argv)
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert message in lines[0]
    assert hint in "".join(lines[1:])
    assert len(lines) <= 2
    error = document(run_here(*argv[:2], "--json", *argv[2:]).stdout)["error"]
    assert (error["exit"], error["code"]) == (ExitCode.USAGE, "usage")


def test_json_after_a_double_dash_is_not_ours(run_here: Any) -> None:
    """What follows -- belongs to another program."""
    assert run_here("example", "--", "succeed", "--json").stdout == ""


def test_the_schema_refuses_what_is_no_document() -> None:
    """A schema that takes anything would make every test above pass."""
    good = Record(command=["x"]).document()
    validator = jsonschema.Draft202012Validator(SCHEMA)
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert validator.is_valid(good)
    error = {"code": "c", "exit": 3, "message": "m", "hint": ""}
    assert validator.is_valid({"schema": good["schema"], "command": [], "error": error})
    assert validator.is_valid(good | {"error": error})
    for bad in (
        good | {"schema": "ptxlab.record/2"},
        good | {"more": 1},
        good | {"checks": [{"name": "n", "ok": "yes", "detail": ""}]},
        good | {"skipped": [{"case": "c", "reason": ""}]},
        good | {"error": error | {"exit": 1}},
        {key: value for key, value in good.items() if key != "result"},
        {"schema": good["schema"], "command": []},
    ):
        assert not validator.is_valid(bad), bad


def test_every_failure_has_an_exit_code_of_the_table() -> None:
    """A new kind of error must choose one of 2 to 5."""
    kinds = PtxlabError.__subclasses__()
    assert {kind.exit_code for kind in kinds} == {2, 3, 4, 5}
