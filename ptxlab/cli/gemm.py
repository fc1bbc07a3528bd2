"""``ptxlab gemm``: runs the stages of the GEMM ladder, checks every element, compares with cuBLAS."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ptxlab.cli import choices
from ptxlab.cli.common import (
    ArchOption,
    DeviceOption,
    Format,
    FormatOption,
    JsonFlag,
    TimeoutOption,
    emit,
)
from ptxlab.cli.parsing import Command, typed_options
from ptxlab.errors import PtxlabError, UsageError, shortened, unknown_name

if TYPE_CHECKING:
    from ptxlab.experiments.base import Value
    from ptxlab.experiments.gemm.run import Request
    from ptxlab.experiments.record import Record


class Init(StrEnum):
    """What A and B are filled with."""

    NORMAL = "normal"
    INTS = "ints"
    NATURALS = "naturals"
    SEQ = "seq"
    ONES = "ones"
    ZEROS = "zeros"


class Order(StrEnum):
    """In which order the sides of repeated runs are taken."""

    FORWARD = "forward"
    REVERSED = "reversed"


class Versus(StrEnum):
    """What a stage is timed against."""

    CUBLAS = "cublas"
    SELF = "self"
    NONE = "none"


WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[compare A B]",
        help="Set two sides side by side: days, drivers, cards or recordings of the history, or files that "
        "--json wrote. Of the options it takes --json and --format.",
    ),
]
StageOption = Annotated[
    str | None,
    typer.Option("--stage", metavar="NAME", help="Run this stage.", autocompletion=choices.stages),
]
LadderFlag = Annotated[bool, typer.Option("--ladder", help="Run every stage that the device can.")]
ListFlag = Annotated[bool, typer.Option("--list", help="List the stages; needs no GPU.")]
ExplainFlag = Annotated[bool, typer.Option("--explain", help="Say what limits it, without running it.")]
RecordFlag = Annotated[bool, typer.Option("--record", help="Keep the result beside the stage.")]
PlotOption = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Draw TFLOP/s by size or stage (.png, .svg, .pdf)."),
]
SizeM = Annotated[str, typer.Option("-m", "--m", metavar="ROWS", help="Rows of A and C; 64,128 runs both.")]
SizeN = Annotated[str, typer.Option("-n", "--n", metavar="COLUMNS", help="Columns of B and C.")]
SizeK = Annotated[str, typer.Option("-k", "--k", metavar="DEPTH", help="Columns of A, rows of B.")]
AlphaOption = Annotated[float, typer.Option(metavar="FACTOR", help="Of A x B.")]
BetaOption = Annotated[float, typer.Option(metavar="FACTOR", help="Of what C holds before.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="An option of the stage's own, such as tile_k=32; repeatable.",
        autocompletion=choices.of_stage,
    ),
]
SweepOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        metavar="NAME=VALUE,VALUE",
        help="Run every value of an option (size is m, n and k); repeatable.",
        autocompletion=choices.of_stage,
    ),
]
ColdFlag = Annotated[
    bool,
    typer.Option("--cold/--hot", help="Take copies of the matrices in turn, or have them in the L2."),
]
WarmOption = Annotated[bool, typer.Option("--warm", help="The same as --hot.", hidden=True)]
WarmupOption = Annotated[
    float, typer.Option(metavar="SECONDS", min=0, max=86400, help="How long it runs before it is timed.")
]
TuneFlag = Annotated[
    bool,
    typer.Option("--tune", help="Time the plans of the stage, and keep the fastest for this card."),
]
RepeatOption = Annotated[int, typer.Option(metavar="N", min=1, help="Measure so often; tells the spread.")]
OrderOption = Annotated[
    Order, typer.Option(help="Of the sides; reversed turns it round every other time, and tells its effect.")
]
ErrorFlag = Annotated[bool, typer.Option("--explain-error", help="Say what the largest error is made of.")]
CheckFlag = Annotated[bool, typer.Option("--check", help="Check every element, and time nothing.")]
TypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="TYPE",
        help="Type of A and B; else f16, or what the stage is for.",
        autocompletion=choices.of_stages("dtype"),
    ),
]
AccOption = Annotated[
    str | None,
    typer.Option(
        "--acc",
        metavar="TYPE",
        help="Type sums are kept in. Default: f32, of integers s32.",
        autocompletion=choices.of_stages("acc"),
    ),
]
OutOption = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="TYPE",
        help="Of C; else that of A and B, or near it.",
        autocompletion=choices.of_stages("out"),
    ),
]
LayoutOption = Annotated[
    str,
    typer.Option(
        "--layout",
        metavar="AB",
        help="BLAS letters: tn has A and B contiguous in k.",
        autocompletion=choices.of_stages("layout"),
    ),
]
InitOption = Annotated[Init, typer.Option("--init", help="What A and B are filled with.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Of the random fills.")]
VersusOption = Annotated[Versus, typer.Option("--vs", help="What to time it against.")]


SIZES = ("m", "n", "k")
OF_A_STAGE = (*SIZES, "dtype", "acc", "out", "layout", "alpha", "beta")
"""The options of this command that are options of every stage, which --set and --sweep give, too."""

OF_TIMING = ("plot", "record", "tune", "repeat", "order", "warmup", "vs")
UNUSED_BY = {"check": OF_TIMING, "explain": (*OF_TIMING, "explain_error")}
"""What says nothing where nothing is timed, or nothing runs."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("gemm", cls=_Gemm)(gemm)


class _Gemm(Command):
    """The command; its help shows both of its forms."""

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """Write a line for each form."""
        formatter.write_usage(ctx.command_path, "(--stage NAME | --ladder | --list) [OPTIONS]")
        formatter.write_usage(ctx.command_path, "compare A B [--json] [--format FORM]", prefix=" " * 7)


def gemm(
    ctx: typer.Context,
    words: WordsArgument = None,
    *,
    stage: StageOption = None,
    ladder: LadderFlag = False,
    listing: ListFlag = False,
    m: SizeM = "4096",
    n: SizeN = "4096",
    k: SizeK = "4096",
    dtype: TypeOption = None,
    acc: AccOption = None,
    out: OutOption = None,
    layout: LayoutOption = "tn",
    alpha: AlphaOption = 1.0,
    beta: BetaOption = 0.0,
    settings: SetOption = None,
    sweep: SweepOption = None,
    init: InitOption = Init.NORMAL,
    seed: SeedOption = 0,
    vs: VersusOption = Versus.CUBLAS,
    cold: ColdFlag = True,
    warm: WarmOption = False,
    warmup: WarmupOption = 3.0,
    tune: TuneFlag = False,
    repeat: RepeatOption = 1,
    order: OrderOption = Order.FORWARD,
    check: CheckFlag = False,
    explain_error: ErrorFlag = False,
    explain: ExplainFlag = False,
    record: RecordFlag = False,
    plot: PlotOption = None,
    arch: ArchOption = None,
    device: DeviceOption = 0,
    timeout: TimeoutOption = 20.0,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Multiply matrices with a stage of the ladder: checked everywhere, timed, explained."""
    if words:
        emit(_compare(ctx, words), json=json, format=format)
        return
    sizes, lists = _sizes({"m": m, "n": n, "k": k})
    _check_together(ctx)
    elsewhere = _given_by_name(ctx, settings or [], sweep or [])
    del ladder  # all stages run where none is named
    from ptxlab.experiments.gemm.catalogue import list_record
    from ptxlab.experiments.gemm.measure import Method
    from ptxlab.experiments.gemm.run import Request

    if listing:
        emit(list_record(), json=json, format=format)
        return
    given = {name: value for name, value in (("dtype", dtype), ("acc", acc), ("out", out)) if value}
    options: dict[str, Value] = sizes | given | {"layout": layout} | {"alpha": alpha, "beta": beta}
    request = Request(
        stage=stage,
        options={name: value for name, value in options.items() if name not in elsewhere},
        settings=tuple(settings or ()),
        sweeps=(*(sweep or ()), *lists),
        init=init.value,
        seed=seed,
        method=Method(
            versus=vs.value,
            cold=cold and not warm,
            warmup_ms=1000 * warmup,
            samples=0 if check else Method.samples,
        ),
        tune=tune,
        repeat=repeat if order is Order.FORWARD else max(2, repeat),
        order=order.value,
        explain_error=explain_error,
        explain_only=explain,
        keep=record,
        arch=arch,
        device=device,
        timeout=timeout,
    )
    emit(_run(request, plot, quiet=json), json=json, format=format)


def _run(request: Request, plot: Path | None, *, quiet: bool) -> Record:
    """Return what a run gives, drawn where that is asked for: also what one that fails has reached."""
    from ptxlab.experiments.gemm.run import run_gemm
    from ptxlab.render.progress import live

    if plot:
        from ptxlab.render.plot import check_plot

        check_plot(plot)
    try:
        with live(quiet=quiet) as show:
            done = run_gemm(request, show)
    except PtxlabError as error:
        if plot and error.record:
            _draw_the_rest(error, error.record, plot)
        raise
    if plot:
        _draw(done, plot)
    return done


def _draw(done: Record, plot: Path) -> None:
    """Draw what was measured; where that fails, the result is still told, above all a check that failed."""
    from ptxlab.render.plot import remarks, save_plot

    document = done.document()
    try:
        save_plot(document, plot)
    except PtxlabError as error:
        if done.exit_code:
            done.result["notes"].append(f"{plot} is not drawn: {error.message}")
            return
        error.record = done
        raise
    done.result["notes"] += [f"{plot} is {each}" for each in remarks(document)]


def _draw_the_rest(failure: PtxlabError, reached: Record, plot: Path) -> None:
    """Draw what a run that failed has timed or found recorded, and note what the picture shows.

    Where it cannot be drawn the failure tells that, too: there may be nobody who reads the notes.
    """
    from ptxlab.render.plot import remarks, save_plot

    document = reached.document()
    try:
        save_plot(document, plot)
    except PtxlabError as error:
        note = f"{plot} is not drawn: {error.message}"
        failure.message += f"; {note}"
        failure.hint = "; ".join(filter(None, (failure.hint, error.hint)))
        reached.result["notes"].append(note)
        return
    shown = "what was timed" if reached.result["stages"] else "recordings: nothing ran here"
    notes = [f"{plot} shows {shown}", *(f"{plot} is {each}" for each in remarks(document))]
    reached.result["notes"] += notes


def _compare(ctx: typer.Context, words: list[str]) -> Record:
    """Return what ``compare A B`` finds.

    Raises:
        UsageError: it is not of that form, or an option of a run stands beside it.

    """
    if words[0] != "compare":
        raise unknown_name("gemm command", words[0], ["compare"])
    if len(words) != 3:
        raise UsageError(f"compare takes two sides, and got {len(words) - 1}", "ptxlab gemm compare A B")
    typed = typed_options(ctx)
    of_a_run = [flag for name, flag in typed.items() if name not in ("words", "json", "format", "debug")]
    if of_a_run:
        raise UsageError(f"{', '.join(of_a_run)}: compare runs no stage", "ptxlab gemm compare A B")
    from ptxlab.experiments.gemm.versus import compare_record

    return compare_record(*words[1:])


def _sizes(typed: dict[str, str]) -> tuple[dict[str, Value], list[str]]:
    """Return the sizes that are one number, and those that are several as sweeps.

    Raises:
        UsageError: one is no whole number.

    """
    single: dict[str, Value] = {}
    lists = []
    for name, text in typed.items():
        for part in text.split(","):
            if not re.fullmatch("[+-]?[0-9]{1,18}", part.strip()):
                from ptxlab.experiments.gemm.stage import LARGEST_SIZE

                legal = f"a whole number, 1 to {LARGEST_SIZE}, or several: 64,128"
                shown = shortened(part, 80)
                raise UsageError(f"'{shown}' is no value for -{name}; legal: {legal}", "ptxlab gemm --help")
        if "," in text:
            lists.append(f"{name}={text}")
        else:
            single[name] = int(text)
    return single, lists


def _given_by_name(ctx: typer.Context, settings: list[str], sweeps: list[str]) -> set[str]:
    """Return the options that --set and --sweep give: there no option of the command line counts.

    Raises:
        UsageError: one is given twice.

    """
    given = {name: flag for name, flag in typed_options(ctx).items() if name in OF_A_STAGE}
    found: set[str] = set()
    for flag, texts in (("--set", settings), ("--sweep", sweeps)):
        for text in texts:
            name = text.partition("=")[0].replace("-", "_")
            for each in SIZES if name == "size" else (name,):
                shown = f"{flag} {shortened(name, 80)}"
                if given.get(each) == shown:
                    raise UsageError(f"{shown} is given twice", "leave one of them out")
                if each in given:
                    raise UsageError(f"{given[each]} and {shown} both give {each}", "leave one of them out")
                given[each] = shown
                found.add(each)
    return found


def _check_together(ctx: typer.Context) -> None:
    """Refuse options that do not go together.

    Raises:
        UsageError: with those that were typed.

    """
    typed = typed_options(ctx)
    if len(typed.keys() & {"stage", "ladder", "listing"}) != 1:
        raise UsageError("gemm takes one of --stage NAME, --ladder and --list", "ptxlab gemm --list")
    if "tune" in typed and "stage" not in typed:
        raise UsageError("--tune times the plans of one stage", "ptxlab gemm --stage NAME --tune")
    if {"explain", "check"} <= typed.keys():
        raise UsageError("--explain runs nothing, and --check runs the stage", "leave one of them out")
    if "warm" in typed and "cold" in typed and ctx.params["cold"]:
        raise UsageError("--cold and --warm are opposites", "leave one of them out")
    for name in ("explain", "check"):
        unused = [typed[each] for each in UNUSED_BY[name] if each in typed]
        if name in typed and unused:
            raise UsageError(f"{', '.join(unused)}: {typed[name]} measures nothing", "leave one of them out")
    of_a_run = [flag for name, flag in typed.items() if name not in ("listing", "json", "format", "debug")]
    if "listing" in typed and of_a_run:
        raise UsageError(
            f"{', '.join(of_a_run)}: --list runs no stage", "leave it out, or --stage NAME runs one"
        )
