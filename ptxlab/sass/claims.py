"""What an experiment claims about its SASS, held against the SASS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ptxlab.sass.instructions import has_prefix


def check_claims(kernel: Mapping[str, Any], claims: Mapping[str, int]) -> list[tuple[str, bool, str]]:
    """Hold claims against a kernel, and that it neither spills nor carries an advisory.

    Args:
        kernel: one of ``result.kernels[]`` of ``sass``.
        claims: opcode prefix of whole dot-separated parts ("LDSM.16.M88.4", or "LDSM") -> the static
            count that it must have.

    Returns:
        (name, whether it holds, the values that show it) for each claim, then for the spills (where
        they are known) and for the advisories.

    """
    results = []
    for prefix, expected in claims.items():
        matching = {op: n for op, n in kernel["counts"].items() if has_prefix(op, prefix)}
        found = sum(matching.values())
        shown = ", ".join(f"{count} {opcode}" for opcode, count in matching.items()) or "none"
        detail = f"{found} in the SASS of {kernel['name']} ({shown}), {expected} claimed"
        results.append((f"SASS holds {expected} {prefix}", found == expected, detail))
    if kernel["spill_bytes"] is not None:
        spilled = kernel["spill_bytes"]
        results.append(("no spills", spilled == 0, f"{spilled} bytes of spill stores and loads"))
    advisories = kernel["advisories"]
    results.append(("no advisories", not advisories, "; ".join(advisories) or "ptxas gave none"))
    return results
