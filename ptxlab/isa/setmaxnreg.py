"""setmaxnreg: a warpgroup gives registers to the others of its block, which take them.

A block has a pool: what all its threads have at launch. `.dec` puts registers into it, `.inc` waits until
there are enough. ptxas keeps the instruction only where it knows the registers at launch, which takes a bound
on the threads and on the blocks. Source: PTX ISA, "Miscellaneous instructions: setmaxnreg"; what ptxas keeps
is seen in the disassembly of the setmaxnreg probe.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.errors import UsageError

LEGAL = range(24, 257, 8)
"""The numbers of registers that it takes."""

BOUNDS = {
    "min-blocks": "__launch_bounds__(threads, 1)",
    "max-threads": "__launch_bounds__(threads)",
    "none": "",
}
"""What a kernel can say about its launch; only the first lets ptxas keep the instruction."""

ADVISORY = "C7508"
"""What ptxas says when it ignores the instruction for want of a bound."""

SASS = {"dec": "USETMAXREG.DEALLOC.CTAPOOL", "inc": "USETMAXREG.TRY_ALLOC.CTAPOOL"}
"""The opcodes that ptxas 13 makes of it; an inc stands in a loop until it succeeds."""

REGISTER_FILE = 65536
"""32-bit registers of a multiprocessor. Source: CUDA programming guide, compute capability 9.0."""

_UNIT = 8  # a thread's registers are handed out in such pieces
_MOST = 255


def check_arch(arch: str) -> None:
    """Raise UsageError if an architecture has no setmaxnreg. Source: PTX ISA, its target notes."""
    if int(arch.strip("sm_af")) < 90 or not arch.endswith(("a", "f")):
        raise UsageError(
            f"setmaxnreg does not exist on {arch}; legal: sm_90a, and from sm_100 on the names with a or f",
            "--arch sm_90a",
        )


def check_count(registers: int) -> None:
    """Raise UsageError if setmaxnreg does not take this number."""
    if registers not in LEGAL:
        near = min(LEGAL, key=lambda each: (abs(each - registers), -each))
        raise UsageError(
            f"setmaxnreg to {registers} registers; legal: multiples of 8 from {LEGAL[0]} to {LEGAL[-1]}",
            f"the nearest is {near}",
        )


def at_launch(threads: int) -> int:
    """Return the registers of a thread at launch where one block of so many threads has all of them."""
    return min(REGISTER_FILE // threads // _UNIT * _UNIT, _MOST)


@dataclass(frozen=True)
class Budget:
    """The registers of a block in which one warpgroup gives and the others take.

    Attributes:
        takers: warpgroups that take.
        dec: registers of a thread of the first warpgroup afterwards.
        inc: those of a thread of the others.

    """

    takers: int
    dec: int
    inc: int

    @property
    def launch(self) -> int:
        """Registers of every thread at the start."""
        return at_launch(128 * (1 + self.takers))

    @property
    def pool(self) -> int:
        """What the block has, counted in registers of a thread of each warpgroup."""
        return (1 + self.takers) * self.launch

    @property
    def wanted(self) -> int:
        """What all want in the end, counted alike."""
        return self.dec + self.takers * self.inc

    @property
    def served(self) -> int:
        """How many of the takers get what they want, one after the other; the rest wait for ever."""
        more = self.inc - self.launch
        return self.takers if not more else min(self.takers, (self.launch - self.dec) // more)

    @property
    def most(self) -> int:
        """The largest inc that the pool can serve."""
        return min((self.pool - self.dec) // self.takers // _UNIT * _UNIT, LEGAL[-1])

    def check(self) -> None:
        """Raise UsageError if a number is none that setmaxnreg takes, or goes the wrong way."""
        for registers in (self.dec, self.inc):
            check_count(registers)
        if not self.dec <= self.launch <= self.inc:
            raise UsageError(
                f"dec to {self.dec} and inc to {self.inc} from {self.launch} at launch; legal: dec to at "
                f"most {self.launch}, inc to at least that (anything else is undefined)"
            )
