"""How many sums a thread of the stage hopper can hold beside everything else, before the compiler spills.

Found by compiling plans with options at random for sm_90a, with NVRTC 13.0 and 13.5.
"""

from __future__ import annotations

from collections.abc import Mapping

from ptxlab.experiments.base import Value
from ptxlab.experiments.gemm.plan import COOPERATIVE, SINGLE, STREAM_K, Plan

UNSCALED = (1.0, 0.0)
"""alpha and beta of a C that is the product alone."""


def most_sums(plan: Plan, params: Mapping[str, Value]) -> int:
    """Return the registers for sums that leave a thread enough for everything else, as compiled.

    To read C takes some; where parts are added a bias takes more, and so does the conversion of integers.
    """
    scaled = (params["alpha"], params["beta"]) != UNSCALED
    if plan.consumers == 1:
        return _most_of_one(plan, params, scaled=scaled)
    if plan.passing > 1:
        return _most_beside_parts(plan, params, scaled=scaled)
    return 160 if scaled else 192


def _most_of_one(plan: Plan, params: Mapping[str, Value], *, scaled: bool) -> int:
    """Return the same for one consumer, which has half of the registers, or all of them.

    ptxas 13.0 spills 8 to 380 bytes of 64 sums beside two of these things where parts are added, and beside
    three where none are, unless they leave by an image; and of 128 integers whose parts are added, and that
    are converted, where they are scaled or in groups of one band. That of NVRTC 13.5 spills 8 or 16 bytes of
    128 whose parts are added: of float32 in such groups; and of any where the L2 has another policy, but for
    16 bits that are neither scaled nor biased.
    """
    most, parts = 64 if plan.role == SINGLE else 128, plan.passing > 1
    if plan.image or not (parts or scaled):
        return most
    converts = _converts(params)
    if plan.role == SINGLE:
        things = (scaled, converts, params["bias"] == "yes", plan.adding == STREAM_K)
        spills = sum(things) >= (2 if parts else 3)
    else:
        narrow, whole = params["group"] == 1, params["out"] == "f32"
        policy = params["l2"] != "normal" and (whole or scaled or params["bias"] == "yes")
        spills = parts and (policy or (narrow and (whole or converts)) or (converts and scaled))
    return most // 2 if spills else most


def _most_beside_parts(plan: Plan, params: Mapping[str, Value], *, scaled: bool) -> int:
    """Return the same for two consumers of tiles whose parts are added.

    Of more, ptxas 13.0 spills 8 to 392 bytes: of 96 or 128 sums that are integers and converted; of 128 that
    are scaled, in groups of one band, or of float32 in a tile that is shared, of parts that 3 divides; and of
    192 of float32 in even shares, with an activation.
    """
    even, shares_f32 = plan.adding == STREAM_K, plan.role == COOPERATIVE and params["out"] == "f32"
    if _converts(params):
        return 88 if even else 96
    if scaled or params["group"] == 1 or (shares_f32 and plan.splits % 3 == 0):
        return 96
    if params["bias"] == "yes":
        return _most_beside_bias(plan, params)
    return 160 if even and shares_f32 and params["activation"] != "none" else 192


def _most_beside_bias(plan: Plan, params: Mapping[str, Value]) -> int:
    """Return the same where a bias is added too: with other panels or policies it spills of 112 sums.

    In even shares it does of 128, but for 16 bits in tiles of their own: of these 144 to 176 spill, not 192.
    """
    if params["buffers"] not in (0, 2) or params["l2"] != "normal":
        return 96
    if plan.adding != STREAM_K:
        return 128
    if plan.role == COOPERATIVE or params["out"] == "f32":
        return 112
    return 192 if plan.sums == 192 else 128


def _converts(params: Mapping[str, Value]) -> bool:
    """Say whether sums are integers, and C is not."""
    return params["acc"] == "s32" and params["out"] != "s32"
