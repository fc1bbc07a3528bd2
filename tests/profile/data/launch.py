"""Launches a kernel of this folder once in ptxlab's worker, which is a child of this process.

    python launch.py KERNEL BLOCKS WARPS ROUNDS

A program for tests to profile. It exits with 1 if a result is wrong.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from ptxlab.device.client import Worker
from ptxlab.device.job import Buffer, Job, Launch
from ptxlab.toolchain.build import build_file


def main() -> int:
    """Launch the kernel on zeros and check what each thread wrote."""
    kernel = sys.argv[1]
    blocks, warps, rounds = map(int, sys.argv[2:])
    threads = 32 * warps
    zeros = np.zeros(4 * blocks * threads * rounds, np.uint32)
    buffers = (
        Buffer("in", zeros.nbytes, data=zeros),
        Buffer("out", 4 * blocks * threads, download=True, canary=True),
    )
    build = build_file(Path(__file__).with_name(f"{kernel}.cu"), "sm_90a")
    launch = Launch(kernel, kernel, (blocks, 1, 1), (threads, 1, 1), ("in", "out", np.int32(rounds)))
    with Worker() as worker:
        result = worker.run(Job({kernel: build.cubin}, buffers, (launch,)))
    lane = np.arange(32 * warps * blocks) % 32
    summed = rounds * (rounds - 1) // 2 if kernel == "banks" else 0
    right = np.array_equal(result.arrays["out"].view(np.uint32), np.where(lane < 2, summed, 0))
    return 0 if right and not result.damaged_canaries else 1


if __name__ == "__main__":
    sys.exit(main())
