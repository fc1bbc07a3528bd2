"""What ptxas said about a kernel, what it means, and what it did without saying so."""

from __future__ import annotations

import re

from ptxlab.sass.instructions import WGMMA, Function
from ptxlab.sass.ptx import PtxKernel

_CODE = re.compile(r"C7\d{3}")
_FUNCTION = re.compile(r"function '([^']+)'")
_REMARK = re.compile(r"^ptxas .*, line (\d+); info\s*: (Advisory: .*)$", re.MULTILINE)

_SERIALISED = (
    "the wgmma run one after another: leave the accumulators alone between fence and wait, and use fewer "
    "registers"
)
_REMEDIES = {
    "C7504": "compile the kernel as a whole program: without -rdc and not through nvJitLink",
    "C7508": "__launch_bounds__(threads, 1): without a minimum of blocks ptxas does not know the registers",
    **dict.fromkeys(("C7510", "C7511", "C7512", "C7514", "C7515"), _SERIALISED),
    "C7517": "wgmma.wait_group before the accumulators are read or written",
    "C7519": "wgmma.fence before the first wgmma, and after registers of it were written",
}


def remedy(advisory: str) -> str:
    """Return what would make the advisory go away, or "" where that is not known."""
    code = _CODE.search(advisory)
    return _REMEDIES.get(code[0], "") if code else ""


def advisories_of(lines: list[str], ptx: PtxKernel, function: Function, known: set[str]) -> list[str]:
    """Return the advisories that are about this kernel.

    Most name the kernel or a function that it calls; one with a name that nobody knows goes to all. That
    setmaxnreg was ignored comes without a name, once for each of the kernels that have it in PTX and not in
    SASS, and is said once of each.

    Args:
        lines: the advisories of the whole build.
        ptx: the kernel's PTX.
        function: the kernel's SASS.
        known: the functions of all kernels of the build.

    """
    found = []
    for line in lines:
        named = _FUNCTION.search(line)
        if named:
            about = named[1] in ptx.functions or named[1] not in known
        else:
            about = "setmaxnreg" not in line or _setmaxnreg_missing(ptx, function)
        if about:
            found.append(line)
    return list(dict.fromkeys(found))


def warnings(log: str, ptx: PtxKernel, function: Function) -> list[str]:
    """Return what else is worth a look: ptxas' uncoded advice, and what it merged, dropped or ignored.

    The counts are static: an unrolled loop has more in SASS than in PTX, and nothing is said then.
    """
    said = [text for line, text in _REMARK.findall(log) if ptx.holds_line(int(line))]
    operations = ptx.operations
    wgmma = sum(each.text.startswith("wgmma") for each in operations)
    gmma = sum(each.family in WGMMA and not each.is_dummy for each in function.code)
    if gmma < wgmma:
        said.append(
            f"{wgmma} wgmma.mma_async in PTX, {gmma} in SASS: ptxas merged identical ones or dropped "
            "what has no effect"
        )
    said += _injected_fences(ptx, function)
    left = any(each.is_tensor_operation or each.calls_mma for each in function.code)
    if operations and not wgmma and not left:
        said.append(f"tensor operations in PTX: {len(operations)}, in SASS: none; ptxas dropped them")
    if _setmaxnreg_missing(ptx, function):
        asked, kept = ptx.count("setmaxnreg"), _setmaxnreg_kept(function)
        said.append(f"setmaxnreg in PTX: {asked}, USETMAXREG in SASS: {kept}; ptxas ignored the others")
    return list(dict.fromkeys(said))


def _injected_fences(ptx: PtxKernel, function: Function) -> list[str]:
    """Say that ptxas put fences in front of wgmma where PTX has none; some do so without a word.

    Where PTX has some, counts tell nothing: loops are unrolled, and branches bring further ones.
    """
    found = sum(each.opcode == "WARPGROUP.ARRIVE" for each in function.code)
    if ptx.count("wgmma.fence") or not ptx.count("wgmma.mma_async") or not found:
        return []
    told = (
        f"wgmma.fence in PTX: none, WARPGROUP.ARRIVE in SASS: {found}, injected by ptxas; write wgmma.fence "
        "before the first wgmma, and after registers of the next one were touched"
    )
    return [told]


def _setmaxnreg_missing(ptx: PtxKernel, function: Function) -> bool:
    return _setmaxnreg_kept(function) < ptx.count("setmaxnreg")


def _setmaxnreg_kept(function: Function) -> int:
    return sum(each.family == "USETMAXREG" for each in function.code)
