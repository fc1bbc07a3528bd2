"""Which headers of the user's and of ptxlab's own a CUDA source includes, for the cache key."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from ptxlab.files import is_file

_INCLUDE = re.compile(
    r'(?:^[ \t]*#[ \t]*include|__has_include[ \t]*\()[ \t]*([<"])([^">\n]+)[">]', re.MULTILINE
)
_LINE = re.compile(r'^#line \d+ "[^"\n]*"$', re.MULTILINE)  # a file's name may hold the word
_WORD = re.compile(r"\binclude(_next)?\b|__has_include")


def header_digests(source: str, folder: Path, include_dirs: Sequence[Path]) -> dict[str, str] | None:
    """Return path -> SHA-256 of every header that the source may include, directly or not.

    Conditional compilation is not evaluated, so there may be headers that the compiler never opens.
    A header is looked up beside the including file, then in the folders in order. CUDA's own headers
    are not in those folders; they belong to the compiler.

    Args:
        source: the text of the source file.
        folder: where that file lies.
        include_dirs: the folders given by -I.

    Returns:
        The headers, or None if they cannot be told: the word "include" stands where it is not plainly a
        directive of its own line, or a header cannot be read. What cannot be told must not be cached.

    """
    found: dict[str, str] = {}
    waiting = [(source, folder)]
    while waiting:
        text, here = waiting.pop()
        text = text.replace("\\\n", "")
        if _WORD.search(_LINE.sub("", _INCLUDE.sub("", text))):
            return None  # by a macro, behind a comment, or mere prose: it might be one that is not seen here
        for quote, name in _INCLUDE.findall(text):
            dirs = [here, *include_dirs] if quote == '"' else include_dirs
            path = next((each / name for each in dirs if is_file(each / name)), None)
            if path is None or str(path) in found:
                continue
            try:
                data = path.read_bytes()
            except OSError:
                return None  # the compiler will say what is wrong with it
            found[str(path)] = hashlib.sha256(data).hexdigest()
            waiting.append((data.decode("utf-8", errors="replace"), path.parent))
    return found
