"""The program as a process: pipes that close, disks that are full, Ctrl-C while it starts."""

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

import ptxlab
from ptxlab.errors import MissingError
from ptxlab.files import check_writable, write_whole

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is a device of Linux")


def ptxlab_to(stdout: int, *args: str, unbuffered: str) -> subprocess.CompletedProcess[str]:
    """Run the program with its stdout at this file descriptor."""
    return subprocess.run(
        [sys.executable, "-m", "ptxlab", *args],
        stdout=stdout,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_a_closed_pipe_is_a_quiet_end(argument: str, unbuffered: str) -> None:
    """As in ``ptxlab ... | head -0``."""
    reader, writer = os.pipe()
    os.close(reader)
    done = ptxlab_to(writer, argument, unbuffered=unbuffered)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@LINUX
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", ["--version", "--help", "probe --help", "gemm -h", "probe list"])
def test_a_full_disk_is_told(arguments: str, unbuffered: str) -> None:
    """Output that cannot be written is exit 3, not silence and not a traceback."""
    with Path("/dev/full").open("w") as full:
        done = ptxlab_to(full.fileno(), *arguments.split(), unbuffered=unbuffered)
    assert done.returncode == 3
    assert done.stderr == "ptxlab: cannot write to stdout: No space left on device\n"


IMPORTS_ARE_SLOW = """
import sys, time
sys.stdout.write("importing\\n")
sys.stdout.flush()
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is no signal to one process there")
@pytest.mark.parametrize(
    "start", [("-m", "ptxlab"), ("-c", "from ptxlab.__main__ import main; main()")], ids=["module", "script"]
)
def test_an_interrupt_while_it_starts_is_a_quiet_end(tmp_path: Path, start: tuple[str, str]) -> None:
    """Imports take most of the time of a short command, and that is when an impatient user types Ctrl-C."""
    (tmp_path / "typer.py").write_text(IMPORTS_ARE_SLOW)
    root = Path(ptxlab.__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, *start, "--help"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
    assert (process.returncode, stderr) == (130, "")


COMMANDS_THAT_GET_A_SIGNAL = {
    "in a callback": """
class Fragile:
    def __del__(self):
        signal.raise_signal(NUMBER)  # Python would print what it raises, and go on

def run(argv):
    Fragile()
    return 0
""",
    "in code that catches all": """
def run(argv):
    with contextlib.suppress(BaseException):
        signal.raise_signal(NUMBER)
    return 0
""",
    "in exec": """
def run(argv):
    exec("signal.raise_signal(NUMBER)")  # as dataclasses do it; Python would kill itself with SIGINT
    return 0
""",
}
EXIT_CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}


def as_the_command(run: str, shell: str = "") -> subprocess.CompletedProcess[str]:
    """Run the program with another ``run`` in place of the command line; ``shell`` goes before it."""
    code = f"""
import contextlib, signal, sys, types
sys.modules["ptxlab.cli.main"] = fake = types.ModuleType("ptxlab.cli.main")
fake.__dict__.update(contextlib=contextlib, signal=signal)
exec({run!r}, fake.__dict__)
from ptxlab.__main__ import main
main()
"""
    root = Path(ptxlab.__file__).parents[1]
    command = ["sh", "-c", f'{shell} exec "$0" "$@"', sys.executable, "-c", code]
    return subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8", check=False)


@pytest.mark.skipif(sys.platform == "win32", reason="it has other signals, and no such shell")
@pytest.mark.parametrize("name", EXIT_CODES)
@pytest.mark.parametrize("command", COMMANDS_THAT_GET_A_SIGNAL)
def test_no_signal_is_lost(command: str, name: str) -> None:
    """Whatever the command does at that moment, the exit code is the signal's, and nothing is printed."""
    done = as_the_command(COMMANDS_THAT_GET_A_SIGNAL[command].replace("NUMBER", f"signal.{name}"))
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_CODES[name], "", "")


@pytest.mark.skipif(sys.platform == "win32", reason="it has other signals, and no such shell")
@pytest.mark.parametrize("name", EXIT_CODES)
def test_a_signal_that_is_ignored_stays_so(name: str) -> None:
    """As by nohup: the command goes on when the terminal closes."""
    ignores = f"trap '' {name.removeprefix('SIG')};"
    done = as_the_command(f"run = lambda _: signal.raise_signal(signal.{name}) or 7", ignores)
    assert (done.returncode, done.stderr) == (7, "")


def test_the_installed_script_starts_where_the_module_does(root: Path) -> None:
    """Else only one of the two would be quiet."""
    scripts = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts == {"ptxlab": "ptxlab.__main__:main"}


def test_version(run_cli: Any) -> None:
    """The same number as the package's."""
    done = run_cli("--version")
    assert (done.returncode, done.stdout) == (0, f"ptxlab {ptxlab.__version__}\n")


def test_no_arguments_are_a_request_for_help(run_cli: Any) -> None:
    """Both print the help on stdout and end with 0."""
    bare, asked = run_cli(), run_cli("--help")
    assert bare.returncode == asked.returncode == 0
    assert bare.stdout == asked.stdout
    assert "Usage: ptxlab" in bare.stdout


def test_the_help_fits_80_columns_and_has_no_colour_in_a_pipe(run_cli: Any) -> None:
    """It is read in pagers and logs."""
    lines = run_cli("--help").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("\x1b" in line for line in lines)


@pytest.mark.parametrize("seed", ["0", "1", "2", "3"])
def test_the_same_mistake_has_the_same_answer(run_cli: Any, seed: str) -> None:
    """Whatever the hashes of this process: click keeps the flags of --help in a set."""
    done = run_cli("cache", "info", "--nothing", env={"PYTHONHASHSEED": seed})
    assert "--debug, --help, -h" in done.stderr


def test_text_that_the_encoding_lacks_is_escaped(run_cli: Any) -> None:
    """A name with any bytes in it, on a terminal that knows ASCII alone, is no traceback."""
    done = run_cli("prob\u00e9\udcff", env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert r"\udcff" in done.stderr


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """An old file stays as it was when the new one cannot be written."""
    target = tmp_path / "picture.svg"
    write_whole(target, "first")
    write_whole(target, "second")
    assert target.read_text() == "second"
    with pytest.raises(UnicodeEncodeError):
        write_whole(target, "\udcff")
    assert target.read_text() == "second"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_that_cannot_be_written_is_exit_3(tmp_path: Path) -> None:
    """The message holds the path and the reason."""
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "no" / "folder.svg", tmp_path / "file" / "x.svg", tmp_path):
        for refuse in (check_writable, lambda path: write_whole(path, "text")):
            with pytest.raises(MissingError, match="cannot write") as caught:
                refuse(target)
            assert caught.value.exit_code == 3
            assert str(target) in caught.value.message
    sound = (tmp_path / "file", tmp_path / "new.svg", Path(os.devnull))
    for target in sound:
        check_writable(target)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_device_is_written_to_and_not_replaced() -> None:
    """``--svg /dev/null`` must not turn /dev/null into a file."""
    write_whole(Path(os.devnull), "text")
    assert not Path(os.devnull).is_file()


WAITS_FOR_A_TOOL = """
import sys
from pathlib import Path
import ptxlab.cli.main
from ptxlab.toolchain.tools import run_tool
ptxlab.cli.main.run = lambda _: run_tool(Path("/bin/sh"), ["-c", "echo $$ >pid; exec sleep 60"], timeout=99)
from ptxlab.__main__ import main
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal to one process there")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_command_that_is_ended_leaves_no_tool_behind(tmp_path: Path, name: str) -> None:
    """As ``timeout`` and a closing terminal do it; a profiler that goes on would lock the counters."""
    number = getattr(signal, name)
    environment = {**os.environ, "PYTHONPATH": str(Path(ptxlab.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", WAITS_FOR_A_TOOL], env=environment, cwd=tmp_path, stderr=subprocess.PIPE
    ) as process:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        _, told = process.communicate(timeout=20)
    assert (process.returncode, told) == (128 + number, b"")
    with pytest.raises(ProcessLookupError):
        os.killpg(int((tmp_path / "pid").read_text()), 0)
