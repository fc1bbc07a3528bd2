"""The architectures that code can be generated for, by the names that NVRTC and ptxas use."""

from __future__ import annotations

import re

from ptxlab.errors import unknown_name

DEFAULT_ARCH = "sm_90a"
"""The architecture when neither the user nor a device names one: Hopper with all its instructions."""

ARCHS: tuple[str, ...] = (
    *("sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a"),
    *("sm_100", "sm_100f", "sm_100a", "sm_103", "sm_103f", "sm_103a"),
    *("sm_107", "sm_107f", "sm_107a", "sm_110", "sm_110f", "sm_110a"),
    *("sm_120", "sm_120f", "sm_120a", "sm_121", "sm_121f", "sm_121a"),
)
"""Every name that CUDA 13 compiles for (``ptxas --help`` of 13.5). An older compiler of the 13 series
knows fewer and says so itself.
"""


def parse_arch(text: str) -> str:
    """Return the architecture if its name is legal.

    Raises:
        UsageError: it is not; the message holds the legal names and the nearest one.

    """
    if text not in ARCHS:
        raise unknown_name("architecture", text, ARCHS)
    return text


def base_number(arch: str) -> int:
    """Return the number in the name: 90 for sm_90 and sm_90a, 100 for sm_100f."""
    return int(arch.removeprefix("sm_").rstrip("af"))


def arch_of_ptx(ptx: str) -> str:
    """Return what to assemble PTX for when the user does not say.

    That is DEFAULT_ARCH, unless the PTX' own .target rules it out: one with a suffix assembles for
    itself alone, and a newer one not for an older chip.
    """
    match = re.search(r"^\s*\.target\s+(sm_\w+)", ptx, re.MULTILINE)
    target = match[1] if match else ""
    bound = target in ARCHS and (target[-1] in "af" or base_number(target) > base_number(DEFAULT_ARCH))
    return target if bound else DEFAULT_ARCH
