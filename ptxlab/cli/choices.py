"""The names that may stand for a value: TAB offers them, and a message about a wrong value holds them.

Nothing is imported before it is asked.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptxlab.experiments.base import Option

Names = Callable[[], list[str]]


def _held_by(module: str, name: str) -> Names:
    """Return what lists the names that a module holds."""

    def names() -> list[str]:
        return list(getattr(importlib.import_module(module), name))

    return names


archs = _held_by("ptxlab.toolchain.arch", "ARCHS")
cpp_standards = _held_by("ptxlab.toolchain.options", "STANDARDS")
optimisation_levels = _held_by("ptxlab.toolchain.options", "LEVELS")
swizzles = _held_by("ptxlab.layout.swizzle", "MODES")
tile_types = _held_by("ptxlab.experiments.swizzle", "TYPES")
tile_accesses = _held_by("ptxlab.experiments.accesses", "ACCESS_NAMES")
widths = _held_by("ptxlab.layout.banks", "WIDTHS")
traced_types = _held_by("ptxlab.experiments.trace", "TYPES")
traced_operands = _held_by("ptxlab.experiments.trace", "OPERANDS")
majors = _held_by("ptxlab.experiments.trace", "MAJORS")
copies = _held_by("ptxlab.experiments.trace", "COPIES")
tile_orders = _held_by("ptxlab.experiments.swizzle", "ORDERS")


def emitted() -> list[str]:
    """Return the languages in which an answer can be printed."""
    return ["cuda"]


def directions() -> list[str]:
    """Return the directions of an access, as seen from shared memory."""
    return ["ld", "st"]


def metrics() -> list[str]:
    """Return the groups of counters."""
    from ptxlab.experiments.counters import GROUPS
    from ptxlab.experiments.profile import ALL_GROUPS

    return [ALL_GROUPS, *GROUPS]


def explained() -> list[str]:
    """Return the groups of counters that can be explained."""
    from ptxlab.experiments.profile import EXPLAINED

    return list(EXPLAINED)


def instructions() -> list[str]:
    """Return the instructions that architectures have or lack."""
    from ptxlab.isa.forms import every_form

    return list(dict.fromkeys(form.instruction for form in every_form()))


def probes() -> list[str]:
    """Return the probes that there are."""
    from ptxlab.experiments.registry import probe_entries

    return [entry.name for entry in probe_entries() if not entry.closed]


def stages() -> list[str]:
    """Return the stages of the GEMM ladder."""
    from ptxlab.experiments.registry import stage_entries

    return [entry.name for entry in stage_entries()]


def targets() -> list[str]:
    """Return every probe and stage as ``sass`` and ``profile`` call them."""
    return [*(f"probe:{name}" for name in probes()), *(f"gemm:{name}" for name in stages())]


def of_stages(option: str) -> Callable[[Any], list[str]]:
    """Return what lists the values that an option may have: of the stage on the line, or of any."""

    def names(ctx: Any) -> list[str]:
        return list(dict.fromkeys(str(value) for each in _options(ctx) for value in each[option].choices))

    return names


def of_target(ctx: Any) -> list[str]:
    """Return the options of the experiment that stands on the line, each as NAME=VALUE."""
    target = ctx.params.get("target") or "".join(ctx.args[:1])  # typer sorts only whole lines out
    if not target:
        return []
    from ptxlab.experiments.workload import find_experiment

    options = find_experiment(target).options()
    return [f"{name}={value}" for name, each in options.items() for value in each.choices or ("",)]


def of_stage(ctx: Any) -> list[str]:
    """Return the options of the stage on the line, or of every stage, each as NAME=VALUE."""
    texts = [
        f"{name}={value}"
        for each in _options(ctx)
        for name, o in each.items()
        for value in o.choices or ("",)
    ]
    return list(dict.fromkeys(texts))


def _options(ctx: Any) -> list[dict[str, Option]]:
    """Return the options of the stage on the line, or those of every stage."""
    from ptxlab.experiments.registry import find_stage

    named = ctx.params.get("stage")
    return [find_stage(name).options() for name in ([named] if named else stages())]


def operands(ctx: Any) -> list[str]:
    """Return the operands of the probe on the line; a command for elements takes those in memory, too."""
    from ptxlab.experiments.layout import ask
    from ptxlab.experiments.registry import find_probe

    probe = find_probe(ctx.info_name)
    own = {name: ctx.params[name] for name in probe.options()}
    elements = "row" in ctx.params
    asked = ask(probe, own, ctx.params["arch"], in_memory=elements)
    return [*asked.maps, *(asked.in_memory if elements else ())]
