"""Writes a file whole or not at all; asks for one without a fault."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from ptxlab.errors import MissingError


def is_file(path: Path) -> bool:
    """Whether it is a file. One in a locked folder, or with a name that no file can have, is none."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises where it may not look


def is_folder(path: Path) -> bool:
    """Whether it is a folder. One in a locked folder, or with a name that no folder can have, is none."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises where it may not look


def write_whole(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old one or the new one, never half of it.

    What is no regular file, such as a pipe or /dev/null, is written to and never replaced.

    Raises:
        MissingError: it cannot be written there.

    """
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
        else:
            _replace(path.resolve(), text)
    except OSError as error:
        raise MissingError(
            f"cannot write {path}: {error.strerror or error}",
            "choose a file in a folder that you can write to",
        ) from error


def _replace(path: Path, text: str) -> None:
    """Write beside the file, then rename."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)  # mkstemp makes it private; an output is not
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
