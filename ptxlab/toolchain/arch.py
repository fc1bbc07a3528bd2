"""The architectures that code can be generated for, by the names that NVRTC and ptxas use."""

from __future__ import annotations

import difflib
import re

from ptxlab.errors import UsageError

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

CHIPS = ("sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")
"""One architecture of every generation, with all its instructions."""


def parse_arch(text: str) -> str:
    """Return the architecture if its name is legal.

    Raises:
        UsageError: it is not; the message holds the legal names, the hint the nearest of the same number.

    """
    if text not in ARCHS:
        number = re.search(r"\d+", text)
        same = [arch for arch in ARCHS if number and base_number(arch) == int(number[0])]
        near = difflib.get_close_matches(text.lower(), same, n=1, cutoff=0)
        guess = f"did you mean {near[0]}?" if near else ""
        raise UsageError(f"unknown architecture '{text}'; legal: {', '.join(ARCHS)}", guess)
    return text


def base_number(arch: str) -> int:
    """Return the number in the name: 90 for sm_90 and sm_90a, 100 for sm_100f."""
    return int(arch.removeprefix("sm_").rstrip("af"))


def arch_of_ptx(ptx: str) -> str:
    """Return what to assemble PTX for when the user does not say.

    That is its own .target, or DEFAULT_ARCH where that is older than what is compiled for, or missing.
    """
    match = re.search(r"^\s*\.target\s+(sm_\w+)", ptx, re.MULTILINE)
    return match[1] if match and match[1] in ARCHS else DEFAULT_ARCH
