"""What an experiment claims about its SASS, held against the SASS."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ptxlab.sass.instructions import has_prefix

_ADVISORY = re.compile(r"C7\d{3}")


def check_claims(kernel: Mapping[str, Any], claims: Mapping[str, int]) -> list[tuple[str, bool, str]]:
    """Hold claims against a kernel, and that it neither spills nor carries an advisory.

    Args:
        kernel: one of ``result.kernels[]`` of ``sass``.
        claims: opcode prefix of whole dot-separated parts ("LDSM.16.M88.4", or "LDSM") -> the static
            count that it must have; or the code of an advisory ("C7508") -> how often ptxas must give it.

    Returns:
        (name, whether it holds, the values that show it) for each claim, then for the spills (where
        they are known) and for the advisories that were not claimed.

    """
    results = []
    advised = {code: expected for code, expected in claims.items() if _ADVISORY.fullmatch(code)}
    for prefix, expected in claims.items():
        if prefix in advised:
            continue
        matching = {op: n for op, n in kernel["counts"].items() if has_prefix(op, prefix)}
        found = sum(matching.values())
        shown = ", ".join(f"{count} {opcode}" for opcode, count in matching.items()) or "none"
        of_kernel = "" if found == expected else f" of {kernel['name']}"  # a name may be lines long
        detail = f"{found} in the SASS{of_kernel} ({shown}), {expected} claimed"
        results.append((f"SASS holds {expected} {prefix}", found == expected, detail))
    for code, expected in advised.items():
        lines = [line for line in kernel["advisories"] if code in line]
        detail = f"{'; '.join(lines) or 'ptxas did not give it'}, {expected} claimed"
        results.append((f"ptxas gives {expected} {code}", len(lines) == expected, detail))
    if kernel["spill_bytes"] is not None:
        spilled = kernel["spill_bytes"]
        results.append(("no spills", spilled == 0, f"{spilled} bytes of spill stores and loads"))
    others = [line for line in kernel["advisories"] if not any(code in line for code in advised)]
    what = "no other advisories" if advised else "no advisories"
    results.append((what, not others, "; ".join(others) or "ptxas gave none"))
    return results
