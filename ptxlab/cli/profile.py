"""``ptxlab profile``: executed counts, stalls, shared-memory wavefronts, through Nsight Compute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ptxlab.cli.common import ArchOption, Format, FormatOption, JsonFlag, command_line, emit
from ptxlab.errors import UsageError

_PROGRAM = "ptxlab.profile.program"


class _TakesProgram(TyperCommand):
    """A command whose line may end in ``-- CMD ...``, which the parser would mix with TARGET."""

    # Typer keeps the type of a context to itself.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep what stands after the first ``--`` apart and parse the rest."""
        if "--" in args:
            split = args.index("--")
            ctx.meta[_PROGRAM] = args[split + 1 :]
            args = args[:split]
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the usage line's parts, the program among them."""
        del ctx
        return ["[OPTIONS]", "TARGET | -- CMD ..."]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(cls=_TakesProgram)(profile)


def profile(
    ctx: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="probe:NAME or NAME, gemm:STAGE, or a report (.ncu-rep); or: -- CMD ...",
        ),
    ] = "",
    kernel: Annotated[
        str, typer.Option(metavar="NAME", help="Only kernels of this name, or regex:PATTERN.")
    ] = "",
    launch_skip: Annotated[
        int, typer.Option(metavar="N", min=0, help="Pass over the first N matching launches.")
    ] = 0,
    launch_count: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Profile at most N launches.")
    ] = None,
    metrics: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Joined by commas: counts, stalls, shared, tensor, tma, memory, limits, default"
            " (all of these), and metric names of ncu's own.",
        ),
    ] = "default",
    section_set: Annotated[
        str,
        typer.Option("--set", metavar="NAME", help="Collect a set of ncu's own too (full, ...)."),
    ] = "",
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep the report (.ncu-rep).")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of the probe, such as num=x2; repeatable."),
    ] = None,
    m: Annotated[int | None, typer.Option("-m", min=1, help="Rows of C (gemm:STAGE).")] = None,
    n: Annotated[int | None, typer.Option("-n", min=1, help="Columns of C (gemm:STAGE).")] = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Length of the dot products.")] = None,
    arch: ArchOption = None,
    device: Annotated[int | None, typer.Option(metavar="N", min=0, help="Which GPU, counted from 0.")] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.001, help="Time limit of the run under ncu.")
    ] = 120.0,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Count what a kernel executes, waits for, and loses to bank conflicts (runs ncu)."""
    program = ctx.meta.get(_PROGRAM)
    if bool(program) == bool(target):
        raise UsageError(
            "profile needs a TARGET or, after --, a program, and not both",
            "ptxlab profile PROBE, or: ptxlab profile -- ./app ARGUMENTS",
        )
    from ptxlab.experiments import profile as experiment

    settings = experiment.Settings(
        metrics, section_set, kernel, launch_skip, launch_count, report, device, timeout
    )
    if program:
        record = experiment.profile_command(program, settings)
    else:
        sizes = {name: size for name, size in (("m", m), ("n", n), ("k", k)) if size is not None}
        record = experiment.profile_target(target, arch, option or [], sizes, settings)
    record.command = command_line()
    emit(record, json=json, format=format)
