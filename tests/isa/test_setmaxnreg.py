"""The numbers of setmaxnreg: what it takes, and what a block has to give."""

from __future__ import annotations

import pytest

from ptxlab.errors import UsageError
from ptxlab.isa.setmaxnreg import Budget, at_launch, check_count


@pytest.mark.parametrize("registers", [16, 23, 42, 100, 257, 264])
def test_other_numbers_are_refused(registers: int) -> None:
    """Multiples of 8 from 24 to 256, and the nearest one."""
    with pytest.raises(UsageError, match="legal: multiples of 8 from 24 to 256") as caught:
        check_count(registers)
    assert "the nearest is" in caught.value.hint


def test_every_multiple_of_8_in_the_range_is_taken() -> None:
    """Thirty of them."""
    legal = [n for n in range(300) if n % 8 == 0 and 24 <= n <= 256]
    assert len(legal) == 30
    for registers in legal:
        check_count(registers)


@pytest.mark.parametrize(("threads", "registers"), [(256, 255), (384, 168), (512, 128), (1024, 64)])
def test_registers_at_launch(threads: int, registers: int) -> None:
    """All that a multiprocessor has, in pieces of 8, and no more than an instruction can name."""
    assert at_launch(threads) == registers


def test_the_usual_budgets_use_the_pool_up() -> None:
    """24 and twice 240, and 40 and twice 232, of three times 168."""
    for dec, inc in ((24, 240), (40, 232)):
        own = Budget(2, dec, inc)
        assert own.wanted == own.pool == 504
        assert own.most == inc


def test_the_wrong_way_is_refused() -> None:
    """A dec to more than there is, an inc to less."""
    for dec, inc in ((176, 240), (24, 160)):
        with pytest.raises(UsageError, match="legal: dec to at most 168"):
            Budget(2, dec, inc).check()
