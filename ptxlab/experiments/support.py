"""Which architecture has which instruction form, and as what: read from code that ptxas really made.

One PTX module an architecture holds a kernel for each form. ptxas names the line of everything that it
refuses; those kernels are dropped and the rest is assembled. The line information of the machine code tells
what each PTX line became. The answer for an architecture is kept in the compile cache.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ptxlab import sass
from ptxlab.errors import unknown_name
from ptxlab.experiments import ahead
from ptxlab.experiments.record import Record, environment
from ptxlab.isa.forms import PTX_VERSION, Form, every_form
from ptxlab.sass.emulation import emulated
from ptxlab.sass.instructions import TENSOR_FAMILIES, Instruction, functions
from ptxlab.sass.ptx import ptx_kernels
from ptxlab.toolchain import cache
from ptxlab.toolchain.arch import parse_arch
from ptxlab.toolchain.build import Build
from ptxlab.toolchain.disassembler import listings
from ptxlab.toolchain.messages import compile_error
from ptxlab.toolchain.ptxas import assemble
from ptxlab.toolchain.tools import file_identity, find_tool, locate

ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_103a", "sm_120a")
"""The columns when the user names none: every generation, and each with all its instructions."""

_TOLD = {"native": "native", "emulated": "emulated", "rejected": "refused"}
"""Each status of a cell, and how a sentence calls it."""

Progress = Callable[[str, int, int], None]
Cell = dict[str, str]
_Place = tuple[int, bool]  # of a line of the module: the form's number (-1: none), whether it is the form
_NAME = "support.ptx"
_ERROR = re.compile(r"line (\d+); (?:error|fatal)\s*:\s*(.*)")


def support_record(archs: Sequence[str], only: str, progress: Progress) -> Record:
    """Return the matrix of forms and architectures.

    Args:
        archs: the columns; none for ARCHS.
        only: what the PTX text or the instruction's name must begin with; where none does, what the text
            must hold ("s4").
        progress: told of every column.

    Raises:
        UsageError: an architecture does not exist, or there is no such form.
        MissingError: ptxas or nvdisasm is not here.
        ToolError: one of them failed.

    """
    wanted = [parse_arch(arch) for arch in archs] or list(ARCHS)
    every = every_form()
    forms = [form for form in every if form.label.startswith(only) or form.instruction.startswith(only)]
    forms = forms or [form for form in every if only in form.label]
    if not forms:
        raise unknown_name("instruction", only, dict.fromkeys(form.instruction for form in every))
    columns = _columns(every, wanted, progress)
    record = Record(params={"arch": wanted, "only": only})
    record.arch = wanted[0] if len(wanted) == 1 else ""
    record.environment = environment(compiler=f"ptxas {find_tool('ptxas').version_text}")
    record.result["archs"] = wanted
    record.result["forms"] = [
        {
            "ptx": form.label,
            "instruction": form.instruction,
            "support": {arch: columns[arch][form.label] for arch in wanted},
        }
        for form in forms
    ]
    record.result["conclusion"] = _conclusion([columns[arch] for arch in wanted], wanted, forms)
    return record


def _conclusion(columns: list[dict[str, Cell]], archs: list[str], forms: list[Form]) -> str:
    """Return which architectures have how many of the forms, those that are alike together."""
    alike: dict[str, list[str]] = {}
    for arch, cells in zip(archs, columns, strict=True):
        counted = Counter(cells[form.label]["status"] for form in forms)
        told = " and ".join(f"{counted[each]} {name}" for each, name in _TOLD.items() if counted[each])
        alike.setdefault(told, []).append(arch)
    parts = [f"{', '.join(names)}: {told}" for told, names in alike.items()]
    return f"Of {len(forms)} {'form' if len(forms) == 1 else 'forms'}, {'; '.join(parts)}."


def _columns(forms: list[Form], archs: list[str], progress: Progress) -> dict[str, dict[str, Cell]]:
    """Return every column: those that are not in the cache two at a time, as the tools are processes."""
    with ahead.pool(2) as pool:
        waiting = {arch: pool.submit(column, forms, arch) for arch in archs}
        found = {}
        for index, (arch, future) in enumerate(waiting.items()):
            progress(f"assembling for {arch}", index, len(archs))
            found[arch] = future.result()
    return found


def column(forms: list[Form], arch: str) -> dict[str, Cell]:
    """Return what an architecture makes of each form, by the form's label, from the cache if it is there."""
    text, _ = _module(dict(enumerate(forms)), arch)
    tools = [file_identity(locate(name)[0]) for name in ("ptxas", "nvdisasm")]
    key = cache.key_of(support=text, arch=arch, tools=tools, code=_code_identity())
    entry = cache.load(key)
    if entry:
        kept: dict[str, Cell] = json.loads(entry.files["support.json"])
        return kept
    found = _compiled(forms, arch)
    cache.store(key, {"support.json": json.dumps(found).encode()}, {"arch": arch})
    return found


def _code_identity() -> str:
    """Return the hash of the code that reads the answer out, so that an old answer never outlives it."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for file in sorted(Path(sass.__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _compiled(forms: list[Form], arch: str) -> dict[str, Cell]:
    """Assemble all that the architecture takes, and read what it became."""
    ptxas = find_tool("ptxas")
    left, refused = dict(enumerate(forms)), dict[int, str]()
    while True:
        text, places = _module(left, arch)
        done = assemble(ptxas, text, arch, name=_NAME)
        if done.ok:
            break
        errors = _errors(done.log, places)
        if not errors:  # it complains of no single form
            raise compile_error(done.log, text, name=_NAME, arch=arch)
        refused |= errors
        left = {number: form for number, form in left.items() if number not in errors}
    build = Build(arch, text, done.cubin, done.log, folder=None, cached=False, name=_NAME)
    cells = {number: _cell("rejected", reason=reason) for number, reason in refused.items()}
    cells |= _read(build, left, places) if left else {}
    return {form.label: cells[number] for number, form in enumerate(forms)}


def _module(forms: Mapping[int, Form], arch: str) -> tuple[str, list[_Place]]:
    """Return the PTX of a module with these forms, and what stands in each of its lines."""
    text = [f".version {PTX_VERSION}", f".target {arch}", ".address_size 64"]
    places: list[_Place] = [(-1, False)] * len(text)
    for number, form in forms.items():
        lines, own = form.kernel(f"form{number}")
        text += lines
        places += [(number, index == own) for index in range(len(lines))]
    return "\n".join(text) + "\n", places


def _errors(log: str, places: list[_Place]) -> dict[int, str]:
    """Return the forms that ptxas refuses, each with the first reason that it gives."""
    found: dict[int, str] = {}
    for match in _ERROR.finditer(log):
        number, _ = places[int(match[1]) - 1]
        if number >= 0:
            found.setdefault(number, match[2].strip())
    return found


def _read(build: Build, forms: Mapping[int, Form], places: list[_Place]) -> dict[int, Cell]:
    """Return what each form became."""
    with ahead.pool(1) as pool:  # nvdisasm runs twice: side by side
        texts = pool.submit(listings, build.cubin, name=build.name)
        code = {each.name: each for each in functions(build)}
        listed = texts.result()
    sources = ptx_kernels(build.ptx)
    lines = {number: line for line, (number, own) in enumerate(places, 1) if own}
    cells = {}
    for number, form in forms.items():
        name = f"form{number}"
        replaced = emulated(sources[name], code[name], listed[name])
        held = [each for each in code[name].code if each.family in (form.families or TENSOR_FAMILIES)]
        if replaced:
            cells[number] = _cell("emulated", sass=replaced[0]["sass"])
        elif held:
            cells[number] = _cell("native", sass=_counted(held))
        else:
            lines_of = listed[name].ptx_lines
            own = [each for each in code[name].code if lines_of.get(each.address) == lines[number]]
            cells[number] = _cell("emulated", sass=_counted(own) or "no instruction")
    return cells


def _cell(status: str, *, sass: str = "", reason: str = "") -> Cell:
    return {"status": status, "sass": sass, "reason": reason}


def _counted(code: list[Instruction]) -> str:
    """Return "HMMA.16816.F32", or "2 HMMA.16816.F32 + 1 FADD" of several."""
    counts = Counter(each.opcode for each in code if not each.never_runs)
    if sum(counts.values()) == 1:
        return next(iter(counts))
    return " + ".join(f"{count} {opcode}" for opcode, count in counts.items())
