"""Shell completion: what TAB offers, as shells ask for it through the environment.

Typer knows what to offer and how each shell reads it. What is left for here is where the answer goes, and
words with a = or : in them, which bash takes apart.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Callable
from typing import Any

import typer.completion

from ptxlab.cli.common import write
from ptxlab.errors import ExitCode, MissingError, UsageError, unknown_name

VARIABLE = "_PTXLAB_COMPLETE"
SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
_OFFER = {"complete_zsh": r'^(_arguments [^"]*)?"', "complete_fish": r"^(?=.)"}
"""What stands before each thing that is offered."""


def complete(root: Any, instruction: str) -> int:
    """Print what a shell asks for, and return the exit code that it expects.

    Raises:
        UsageError: no shell asks like this.

    """
    legal = [f"{what}_{shell}" for what in ("complete", "source") for shell in SHELLS]
    if instruction not in legal:
        raise unknown_name(VARIABLE, instruction, legal)
    kept = _join_words_of_bash() if instruction == "complete_bash" else ""
    answer, code = _ask(root, instruction)
    answer = re.sub(f"^{re.escape(kept)}", "", answer, flags=re.MULTILINE)
    if instruction in _OFFER:
        before = _option_before_value()
        answer = re.sub(_OFFER[instruction], lambda found: found[0] + before, answer, flags=re.MULTILINE)
    write(answer)
    return code


def _ask(root: Any, instruction: str) -> tuple[str, int]:
    """Return typer's answer and the exit code that goes with it.

    Where finding something to offer fails, nothing is offered and nothing said: the shell would show it in
    the middle of the user's line.
    """
    said = io.StringIO()
    code: Any = ExitCode.TOOL_FAILED
    with (
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.suppress(Exception),
    ):
        try:
            code = typer.completion.shell_complete(root, {}, "ptxlab", VARIABLE, instruction)
        except SystemExit as ending:  # fish wants to know whether there is anything, and no more
            code = ending.code
    return said.getvalue(), int(code)


def install_with_care(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Return typer's callback of --install-completion or --show-completion, its endings made ptxlab's.

    Raises:
        MissingError: the shell is unknown, or its start-up file cannot be written.

    """

    def run(ctx: Any, param: Any, asked: Any) -> Any:
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                return callback(ctx, param, asked)
        except SystemExit:  # it is done
            write(said.getvalue())
            raise
        except typer.Exit:
            raise MissingError(
                "cannot tell which shell runs here", f"run it inside one of {', '.join(SHELLS)}"
            ) from None
        except OSError as error:
            raise MissingError(f"cannot install completion: {error}") from error

    return run


def _join_words_of_bash() -> str:
    """Put together in the environment what bash took apart, and return what it keeps of the last word.

    bash makes three words of "--num=x" and of "probe:mm"; what TAB offers replaces the last of them.

    Raises:
        UsageError: the shell's own variables are missing.

    """
    import shlex

    try:
        text, current = os.environ["COMP_WORDS"], int(os.environ["COMP_CWORD"])
    except (KeyError, ValueError):
        raise UsageError(f"{VARIABLE} is for shells, which set COMP_WORDS and COMP_CWORD too") from None
    typed = [*_split(text), ""][: current + 1]
    words: list[str] = []
    for number, word in enumerate(typed):
        if number > 1 and word and (_is_break(word) or _is_break(typed[number - 1])):
            words[-1] += word
        else:
            words.append(word)
    os.environ["COMP_WORDS"] = "\n".join(map(shlex.quote, words))
    os.environ["COMP_CWORD"] = str(len(words) - 1)
    return words[-1] if _is_break(typed[-1]) else words[-1].removesuffix(typed[-1])


def _option_before_value() -> str:
    """Return "--num=" where the last word is "--num=x", all of which zsh and fish replace."""
    last = re.search(r"(?:^|\s)(--[\w-]+=)\S*$", os.environ.get("_TYPER_COMPLETE_ARGS", ""))
    return last[1] if last else ""


def _split(text: str) -> list[str]:
    """Return the words of a line; of one whose last quote is still open, as they are."""
    import shlex

    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _is_break(word: str) -> bool:
    """Whether it is a word that bash made of characters at which it takes words apart."""
    return bool(word) and set(word) <= {"=", ":"}
