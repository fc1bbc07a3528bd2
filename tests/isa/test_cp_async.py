"""What cp.async copies, and what is there after a wait."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.isa.cp_async import CpAsyncForm, arrived, check_arch, check_form, check_present, copied

MEMORY = np.arange(1, 65, dtype=np.uint8)


@pytest.mark.parametrize(("cache", "size"), [("cg", 4), ("cg", 8), ("ca", 12), ("ca", 32), ("cs", 16)])
def test_other_forms_are_refused_with_those_that_exist(cache: str, size: int) -> None:
    """The legal set stands in the message."""
    with pytest.raises(UsageError, match=r"legal bytes: \.ca: 4, 8, 16; \.cg: 16"):
        check_form(CpAsyncForm(size, cache))


def test_turing_has_none() -> None:
    """It came with sm_80."""
    check_arch("sm_80")
    with pytest.raises(UsageError, match="legal: sm_80 and later"):
        check_arch("sm_75")


@pytest.mark.parametrize("present", range(17))
def test_the_first_bytes_arrive_and_the_rest_is_zeros(present: int) -> None:
    """Any number from none to all, not just multiples of 4."""
    (written,) = copied(MEMORY, np.array([16]), 16, np.array([present]))
    assert written.tolist() == [*range(17, 17 + present), *[0] * (16 - present)]


def test_a_source_that_is_not_aligned_gives_other_bytes() -> None:
    """All 16 from byte 4 on: 12 come, from byte 0 on."""
    (written,) = copied(MEMORY, np.array([4]), 16, np.array([16]))
    assert written.tolist() == [*range(1, 13), 0, 0, 0, 0]


def test_more_than_a_copy_has_is_refused() -> None:
    """17 of 16 would read 1."""
    check_present(CpAsyncForm(16, "cg", "src-size"), 16)
    with pytest.raises(UsageError, match="legal: 0 to 16") as caught:
        check_present(CpAsyncForm(16, "cg", "src-size"), 17)
    assert "would read 1" in caught.value.hint


@pytest.mark.parametrize(
    ("groups", "loose", "wait", "pending", "sure"),
    [
        ((1, 1, 1, 1), 0, "group", 0, 4),
        ((1, 1, 1, 1), 0, "group", 1, 3),
        ((1, 1, 1, 1), 0, "group", 4, 0),
        ((1, 1, 1, 1), 0, "group", 9, 0),
        ((3, 0, 2, 0, 0), 0, "group", 2, 5),  # empty groups count
        ((3, 0, 2, 0, 0), 0, "group", 3, 3),
        ((2, 2), 3, "group", 0, 4),  # what is in no group is not waited for
        ((2, 2), 3, "all", 0, 7),
        ((2, 2), 3, "mbarrier", 0, 7),
        ((2, 2), 3, "mbarrier-inc", 0, 7),
    ],
)
def test_what_has_surely_arrived(
    groups: tuple[int, ...], loose: int, wait: str, pending: int, sure: int
) -> None:
    """How many copies from the first, whatever the timing is."""
    assert arrived(groups, loose, wait, pending) == sure
