"""``ptxlab profile``: executed counts, stalls, shared-memory wavefronts, through Nsight Compute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ptxlab.cli import choices
from ptxlab.cli.common import ArchOption, Format, FormatOption, JsonFlag, command_line, emit, seconds
from ptxlab.cli.parsing import Command, typed_options
from ptxlab.errors import UsageError

_PROGRAM = "ptxlab.profile.program"
_OF_AN_EXPERIMENT = ("option", "m", "n", "k", "arch")


class _TakesProgram(Command):
    """A command whose line may end in ``-- CMD ...``, which the parser would mix with TARGET."""

    # Typer keeps the type of a context to itself.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep what stands after the first ``--`` apart and parse the rest."""
        if "--" in args:
            split = args.index("--")
            ctx.meta[_PROGRAM] = args[split + 1 :]
            args = args[:split]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the usage line's parts, the program among them."""
        del ctx
        return ["[OPTIONS]", "TARGET | -- CMD ..."]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(cls=_TakesProgram)(profile)


TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="probe:NAME or NAME, gemm:STAGE, or a report (.ncu-rep); or: -- CMD ...",
        autocompletion=choices.targets,
    ),
]
KernelOption = Annotated[
    str, typer.Option(metavar="NAME", help="Only kernels of this name, or regex:PATTERN.")
]
SkipOption = Annotated[int, typer.Option(metavar="N", min=0, help="Pass over the first N matching launches.")]
CountOption = Annotated[int | None, typer.Option(metavar="N", min=1, help="Profile at most N launches.")]
MetricsOption = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        help="Joined by commas: counts, stalls, shared, tensor, tma, memory, limits, default"
        " (all of these), and metric names of ncu's own.",
        autocompletion=choices.metrics,
    ),
]
SetOption = Annotated[
    str, typer.Option("--set", metavar="NAME", help="Collect a set of ncu's own too (full, ...).")
]
ReportOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Keep the report (.ncu-rep).")]
ExplainOption = Annotated[
    str,
    typer.Option(
        metavar="GROUP",
        help="Say in sentences what the numbers mean: shared, which wavefronts are conflicts and which not.",
        autocompletion=choices.explained,
    ),
]
OptionOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="An option of the probe, such as num=x2; repeatable.",
        autocompletion=choices.of_target,
    ),
]
SizeM = Annotated[int | None, typer.Option("-m", min=1, help="Rows of C (gemm:STAGE).")]
SizeN = Annotated[int | None, typer.Option("-n", min=1, help="Columns of C (gemm:STAGE).")]
SizeK = Annotated[int | None, typer.Option("-k", min=1, help="Length of the dot products.")]
DeviceOption = Annotated[int | None, typer.Option(metavar="N", min=0, help="Which GPU, counted from 0.")]


def profile(
    ctx: typer.Context,
    target: TargetArgument = "",
    kernel: KernelOption = "",
    launch_skip: SkipOption = 0,
    launch_count: CountOption = None,
    metrics: MetricsOption = "default",
    explain: ExplainOption = "",
    section_set: SetOption = "",
    report: ReportOption = None,
    option: OptionOption = None,
    m: SizeM = None,
    n: SizeN = None,
    k: SizeK = None,
    arch: ArchOption = None,
    device: DeviceOption = None,
    timeout: Annotated[float, seconds("the run under ncu")] = 120.0,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Count what a kernel executes, waits for, and loses to bank conflicts (runs ncu)."""
    program = _program(ctx)
    from ptxlab.experiments import profile as experiment

    experiment.check_explained(explain)
    settings = experiment.Settings(
        metrics, section_set, kernel, launch_skip, launch_count, report, device, timeout, explain
    )
    if program:
        record = experiment.profile_command(program, settings)
    else:
        sizes = {name: size for name, size in (("m", m), ("n", n), ("k", k)) if size is not None}
        record = experiment.profile_target(target, arch, option or [], sizes, settings)
    record.command = command_line()
    emit(record, json=json, format=format)


def _program(ctx: typer.Context) -> list[str]:
    """Return the program after ``--``, or nothing where there is a TARGET.

    Raises:
        UsageError: there are both or neither, or options of a probe or stage where there is none.

    """
    program: list[str] = ctx.meta.get(_PROGRAM, [])
    target: str = ctx.params["target"]
    if bool(program) == bool(target):
        raise UsageError(
            "profile needs a TARGET or, after --, a program, and not both",
            "ptxlab profile PROBE, or: ptxlab profile -- ./app ARGUMENTS",
        )
    from ptxlab.toolchain.ncu import SUFFIXES

    typed = typed_options(ctx)
    asked = [typed[name] for name in _OF_AN_EXPERIMENT if name in typed]
    if asked and (program or target.endswith(SUFFIXES)):
        raise UsageError(f"{', '.join(asked)}: for a probe or a stage, not for a program or a report")
    return program
