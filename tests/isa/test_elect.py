"""Who is elected."""

from __future__ import annotations

import pytest

from ptxlab.errors import UsageError
from ptxlab.isa import elect


@pytest.mark.parametrize("mask", [1, 0x80000000, 0xFFFFFFFF, 0xFF00, 0x12345678])
def test_the_lowest_member_leads(mask: int) -> None:
    """Whatever else is in the mask."""
    assert elect.leader(mask) == elect.members(mask)[0]


@pytest.mark.parametrize("mask", [0, -1, 1 << 32])
def test_what_is_no_mask_is_refused(mask: int) -> None:
    """Nobody, and more lanes than there are."""
    with pytest.raises(UsageError, match="legal: 0x1 to 0xffffffff"):
        elect.check_mask(mask)
