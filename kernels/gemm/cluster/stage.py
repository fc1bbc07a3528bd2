"""persistent blocks in clusters that share what they copy: TMA writes a tile into both.

kernel.cu says the idea, what limits it, what was measured, and what the next rung changes.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, option
from ptxlab.experiments.gemm.machine import SENT_A_CYCLE
from ptxlab.experiments.gemm.pipeline import EMPTY, FULL, STEP, Act, Barrier, Pipeline, Role
from ptxlab.experiments.gemm.wgmma import LINE, ClusterStage

REGISTERS = (40, 232)
"""Of a producer's thread and of a consumer's; all 384 start with 168, which is what they share."""

SHARES = ("multicast", "dsmem")


class Cluster(ClusterStage):
    """persistent blocks in clusters that share what they copy: TMA writes a tile into both."""

    below = "persistent"
    ceiling = "wgmma"
    stages = option(4, choices=(2, 3, 4), help="tiles that are on their way or being multiplied")
    share = option("multicast", choices=SHARES, help="how a block gets what its neighbours copied")

    def ring(self, case: Case) -> int:
        """Return what was chosen."""
        return int(case.stages)

    def barriers(self, case: Case) -> int:
        """Return, beside full and empty ones, those that say when there is something to send on."""
        return super().barriers(case) + (self.ring(case) if case.share == "dsmem" else 0)

    def pipeline(self, case: Case) -> Pipeline:
        """Return, where there is something to send on, who does that."""
        line = super().pipeline(case)
        if case.share != "dsmem":
            return line
        producer, *consumers = line.roles
        landed = Barrier("landed", line.stages, 1, 0, STEP, "what this block copied has landed")
        brings = replace(
            producer, threads=producer.threads - 32, step=(Act("wait", EMPTY), Act("copy", "landed"))
        )
        by, nbytes = "DSMEM to the neighbours,", self._sent_in_a_step(case)
        to_neighbours = Act("copy", FULL, by=by, nbytes=nbytes)
        sends = Role("sender", 32, producer.registers, step=(Act("wait", "landed"), to_neighbours))
        roles, barriers = (brings, sends, *consumers), (landed, *line.barriers)
        return replace(line, copying="TMA", roles=roles, barriers=barriers)

    def sent_bytes(self, case: Case) -> int:
        """Return what each block sends in each step, to all blocks with which it shares."""
        return math.prod(self.padded_tiles(case)) * self.steps(case) * self._sent_in_a_step(case)

    def _sent_in_a_step(self, case: Case) -> int:
        if case.share != "dsmem":
            return 0
        (down, across), (lines_a, lines_b) = self.cluster_tiles(case), self.box_lines(case)
        return LINE * ((across - 1) * lines_a + (down - 1) * lines_b)

    def remarks(self, case: Case) -> list[str]:
        """Return, beside the rest, what a block sends on while it multiplies: that takes long, too."""
        remarks, sent = super().remarks(case), self._sent_in_a_step(case)
        if sent:
            seen = f"{SENT_A_CYCLE} a cycle were seen on an H200"
            remarks.append(f"each block sends {sent} bytes on in each step, and {seen}")
        return remarks

    def check(self, case: Case) -> None:
        """Refuse, beside what no such stage takes, to send where no one is.

        Raises:
            UsageError: a cluster is one block.

        """
        super().check(case)
        if case.share == "dsmem" and self.cluster(case) is None:
            legal = "a cluster of several blocks, such as --set cluster_shape=2x1"
            raise UsageError(f"--set share=dsmem in clusters of {case.cluster_shape}; legal: {legal}")

    def macros(self, case: Case) -> Macros:
        """Return the stages, how blocks share, and who has how many registers."""
        producer, consumer = REGISTERS
        return {
            **super().macros(case),
            "STAGES": self.ring(case),
            "SHARE": SHARES.index(case.share),
            "PRODUCER_REGISTERS": producer,
            "CONSUMER_REGISTERS": consumer,
        }

    def claims(self, case: Case) -> dict[str, int]:
        """Return what a block sends itself where it does not have TMA do it."""
        claims = super().claims(case)
        if case.share == "dsmem":
            down, across = self.cluster_tiles(case)
            del claims["UTMALDG.2D.MULTICAST"]
            claims["UBLKCP"] = down + across - 2
        return claims
