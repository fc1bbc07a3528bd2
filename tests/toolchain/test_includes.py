"""Headers in the key of the compile cache: what cannot be told must not be cached."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxlab.toolchain.includes import header_digests


@pytest.fixture
def header(tmp_path: Path) -> Path:
    """A header beside the source."""
    path = tmp_path / "x.h"
    path.write_text("int x;")
    return path


def test_a_plain_include_is_followed(header: Path) -> None:
    """Its content is part of the key."""
    before = header_digests('#include "x.h"\n', header.parent, [])
    header.write_text("int y;")
    after = header_digests('#include "x.h"\n', header.parent, [])
    assert before is not None
    assert after is not None
    assert before.keys() == after.keys() == {str(header)}
    assert before != after


@pytest.mark.parametrize(
    ("line", "followed"),
    [
        ('#line 3 "/home/me/include/k.cu"\n', True),
        ('/*\n#line 3 "k.cu" */ #include "x.h"\n', False),
    ],
)
def test_the_name_of_a_file_in_a_line_directive_includes_nothing(
    header: Path, line: str, *, followed: bool
) -> None:
    """Units that ptxlab generates have such lines."""
    assert (header_digests(line, header.parent, []) == {}) == followed


@pytest.mark.parametrize(
    "source",
    ['/* c */ #include "x.h"\n', '%:include "x.h"\n', '#/**/include "x.h"\n', "#include MACRO\n",
     "#inc\\\nlude MACRO\n", '#include /* c */ "x.h"\n', '#include_next "x.h"\n'],
)  # fmt: skip
def test_an_include_that_is_not_plain_is_not_cached(header: Path, source: str) -> None:
    """Better compiled again than served stale."""
    assert header_digests(source, header.parent, []) is None
