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


def check_writable(path: Path) -> None:
    """Look whether a file can be written, before time is spent on what will be in it.

    Raises:
        MissingError: its folder is not there or locked, or it is a folder itself.

    """
    folder = path.resolve().parent
    if is_folder(path):
        raise _unwritable(path, "it is a folder")
    replaced = is_file(path) or not os.path.lexists(path)  # a pipe is written to where it stands
    if replaced and not (is_folder(folder) and os.access(folder, os.W_OK)):
        raise _unwritable(path, f"{folder} is no folder that you can write to")


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, so that a reader sees the old one or the new one, never half of it.

    What is no regular file, such as a pipe or /dev/null, is written to and never replaced.

    Raises:
        MissingError: it cannot be written there.

    """
    raw = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(raw)
        else:
            _replace(path.resolve(), raw)
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from error


def _unwritable(path: Path, why: str) -> MissingError:
    return MissingError(f"cannot write {path}: {why}", "choose a file in a folder that you can write to")


def _replace(path: Path, raw: bytes) -> None:
    """Write beside the file, then rename."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(raw)
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)  # mkstemp makes it private; an output is not
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
