"""The compile cache: folders named by the hash of everything that went into them.

An entry is written into a folder of its own and renamed into place, so that it is there whole or not at
all, however many processes work at once. Its manifest holds the SHA-256 of every file: an entry that was
truncated or damaged is thrown away and built again. The least recently used entries go when the cache
grows over its limit. A cache that cannot be written costs time and a warning, never an answer.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxlab.errors import MissingError, UsageError

DEFAULT_LIMIT_MB = 512
_MANIFEST = "manifest.json"
_ENTRY = re.compile(r"[0-9a-f]{40}")
_SCRATCH_LIFETIME_S = 3600.0
_warned = False


@dataclass(frozen=True)
class Entry:
    """An entry that was read whole.

    Attributes:
        folder: where it lies.
        files: what it holds, by file name.
        facts: what its maker noted, such as the compiler's version.

    """

    folder: Path
    files: dict[str, bytes]
    facts: dict[str, Any]


def cache_folder() -> Path:
    """Return the folder of the cache: $PTXLAB_CACHE, or where this system keeps a program's cache."""
    own = os.environ.get("PTXLAB_CACHE")
    if own:
        with contextlib.suppress(FileNotFoundError):  # the current folder may have been removed
            return Path(own).absolute()
        return Path(own)
    import platformdirs

    return Path(platformdirs.user_cache_dir("ptxlab", appauthor=False))


def limit_bytes() -> int:
    """Return how large the cache may grow: $PTXLAB_CACHE_LIMIT_MB megabytes; 512 if it is not set or empty.

    Raises:
        UsageError: the variable holds something else than a whole number.

    """
    text = os.environ.get("PTXLAB_CACHE_LIMIT_MB") or str(DEFAULT_LIMIT_MB)
    if not re.fullmatch("[0-9]{1,12}", text):
        raise UsageError(f"PTXLAB_CACHE_LIMIT_MB is '{text}'; legal: a whole number of megabytes")
    return int(text) * 1_000_000


def key_of(**parts: Any) -> str:
    """Return the key of an entry: the hash of all that its contents depend on."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def load(key: str) -> Entry | None:
    """Return the entry, or None if there is none. A damaged one is removed.

    Raises:
        UsageError: the limit is no number, which is told before anything is built in vain.

    """
    limit_bytes()
    folder = _entry_folder(key)
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        files = {name: (folder / name).read_bytes() for name in manifest["files"]}
        whole = all(_digest(files[name]) == digest for name, digest in manifest["files"].items())
        facts = manifest["facts"]
        whole = whole and manifest["digest"] == key_of(files=manifest["files"], facts=facts)
    except FileNotFoundError:
        if folder.is_dir():
            _remove(folder)
        return None
    except NotADirectoryError:  # something else stands where the cache should be
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        _remove(folder)
        return None
    if not whole:
        _remove(folder)
        return None
    with contextlib.suppress(OSError):  # a cache that is only readable still serves
        os.utime(folder / _MANIFEST)  # when it was last used
    return Entry(folder, files, facts)


def store(key: str, files: Mapping[str, bytes], facts: Mapping[str, Any]) -> Path | None:
    """Write an entry and return its folder, or None (and a warning) if the cache cannot be written."""
    folder = _entry_folder(key)
    parts = {"files": {name: _digest(data) for name, data in files.items()}, "facts": dict(facts)}
    manifest = {**parts, "digest": key_of(**parts)}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _scratch_folder() as scratch:
            for name, data in files.items():
                (scratch / name).write_bytes(data)
            (scratch / _MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
            _move_into_place(scratch, folder)
        _evict(keep=folder)
    except OSError as error:
        _warn(error)
        return None
    return folder


def load_memo(folder: Path, name: str) -> Any:
    """Return a value that belongs to an entry, or None if it was not kept or is damaged."""
    try:
        digest, _, text = (folder / f"{name}.memo").read_text(encoding="utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return json.loads(text) if digest == _digest(text.encode()) else None


def store_memo(folder: Path, name: str, value: Any) -> bool:
    """Keep a JSON value beside an entry, and return whether it is kept.

    An entry that was evicted meanwhile is left alone.
    """
    text = json.dumps(value, separators=(",", ":"))
    try:
        with _scratch_folder() as scratch:
            file = scratch / name
            file.write_text(f"{_digest(text.encode())}\n{text}", encoding="utf-8")
            file.replace(folder / f"{name}.memo")
    except FileNotFoundError:
        return False
    except OSError as error:
        _warn(error)
        return False
    return True


def info() -> dict[str, Any]:
    """Return where the cache is, how many entries and bytes it holds, and how many it may.

    Raises:
        MissingError: the folder cannot be read.
        UsageError: the limit is no number.

    """
    try:
        entries = _entries()
    except OSError as error:
        raise _unusable(error) from error
    return {
        "folder": str(cache_folder()),
        "entries": len(entries),
        "bytes": sum(size for _, size, _ in entries),
        "limit_bytes": limit_bytes(),
    }


def clear() -> dict[str, int]:
    """Remove every entry, and nothing that the cache did not write; return how many entries and bytes.

    Raises:
        MissingError: the folder cannot be read or changed.

    """
    try:
        entries = _entries()
        _take_away(_entry_folders())
        _sweep()
    except OSError as error:
        raise _unusable(error) from error
    return {"entries": len(entries), "bytes": sum(size for _, size, _ in entries)}


def _root() -> Path:
    return cache_folder() / "builds"


def _entry_folder(key: str) -> Path:
    return _root() / key[:40]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def _scratch_folder() -> Iterator[Path]:
    """Make a folder on the cache's file system; what is left of it at the end is removed."""
    scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=_root()))
    try:
        yield scratch
    finally:
        _delete(scratch)


def _delete(folder: Path) -> None:
    """Remove a folder; again if another process put a memo into it meanwhile.

    What is left after that goes with a later eviction.
    """
    for _ in range(5):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


def _move_into_place(scratch: Path, folder: Path) -> None:
    """Rename; where another process was first, its entry is as good: the same key, the same contents.

    That entry may be evicted in the same moment, so it is tried again; after that the entry is given up.
    """
    for _ in range(3):
        try:
            scratch.rename(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if (folder / _MANIFEST).is_file():
                return
        else:
            return


def _remove(folder: Path) -> None:
    """Remove an entry, or warn that it cannot be removed."""
    try:
        _take_away([folder])
    except FileNotFoundError:
        return  # the whole cache was removed meanwhile
    except OSError as error:
        _warn(error)


def _take_away(folders: Sequence[Path]) -> None:
    """Remove entries: each disappears at once, and its files after that.

    The folder that holds them stays: other processes may be writing into it.
    """
    if folders:
        with _scratch_folder() as scratch:
            for folder in folders:
                with contextlib.suppress(FileNotFoundError):  # another process was first
                    folder.rename(scratch / folder.name)


def _entry_folders() -> list[Path]:
    try:
        return [path for path in _root().iterdir() if _ENTRY.fullmatch(path.name)]
    except FileNotFoundError:
        return []


def _entries() -> list[tuple[Path, int, float]]:
    """Return each entry's folder, its size in bytes and when it was last used.

    Raises:
        OSError: the cache cannot be read.

    """
    found = []
    for folder in _entry_folders():
        try:
            stats = [file.stat() for file in folder.iterdir()]
            used = (folder / _MANIFEST).stat().st_mtime
        except OSError:
            continue  # another process removed it
        found.append((folder, sum(stat.st_size for stat in stats), used))
    return found


def _evict(keep: Path) -> None:
    """Remove the least recently used entries until the cache fits its limit again."""
    _sweep()
    entries = sorted(_entries(), key=lambda entry: entry[2])
    excess = sum(size for _, size, _ in entries) - limit_bytes()
    for folder, size, _ in entries:
        if excess <= 0:
            return
        if folder != keep:
            _remove(folder)
            excess -= size


def _sweep() -> None:
    """Remove what killed processes left behind, once it is too old to be in the making."""
    for scratch in _leftovers():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - scratch.stat().st_mtime > _SCRATCH_LIFETIME_S:
                _delete(scratch)


def _leftovers() -> Iterator[Path]:
    """Yield the scratch folders, and those that an earlier ptxlab moved the whole cache into."""
    yield from _root().glob(".new-*")
    for folder in cache_folder().glob(".old-*"):
        if [each.name for each in folder.glob("*")] == [_root().name]:  # else it is not the cache's
            yield folder


def _unusable(error: OSError) -> MissingError:
    """Return the error for a cache that cannot be looked into or emptied."""
    return MissingError(
        f"the cache in {cache_folder()} cannot be used: {error.strerror or error}",
        "set PTXLAB_CACHE to a folder that can",
    )


def _warn(error: OSError) -> None:
    """Say once in a process that the cache does not work."""
    global _warned  # noqa: PLW0603 - once a process is what it is about
    if not _warned:
        _warned = True
        sys.stderr.write(
            f"ptxlab: warning: the cache in {cache_folder()} cannot be written "
            f"({error.strerror or error}); set PTXLAB_CACHE to a folder that can\n"
        )
