"""``ptxlab gemm``: runs the stages of the GEMM ladder, checks every element, compares with cuBLAS."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

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
from ptxlab.cli.parsing import typed_options
from ptxlab.errors import UsageError

if TYPE_CHECKING:
    from ptxlab.experiments.base import Value


class Init(StrEnum):
    """What A and B are filled with."""

    NORMAL = "normal"
    INTS = "ints"
    SEQ = "seq"
    ONES = "ones"
    ZEROS = "zeros"


class Versus(StrEnum):
    """What a stage is timed against."""

    CUBLAS = "cublas"
    NONE = "none"


StageOption = Annotated[
    str | None,
    typer.Option("--stage", metavar="NAME", help="Run this stage.", autocompletion=choices.stages),
]
LadderFlag = Annotated[bool, typer.Option("--ladder", help="Run every stage that the device can.")]
ListFlag = Annotated[bool, typer.Option("--list", help="List the stages; needs no GPU.")]
ExplainFlag = Annotated[bool, typer.Option("--explain", help="Say what limits it, without running it.")]
RecordFlag = Annotated[bool, typer.Option("--record", help="Keep the result beside the stage.")]
SizeM = Annotated[int, typer.Option("-m", help="Rows of A and C.")]
SizeN = Annotated[int, typer.Option("-n", help="Columns of B and C.")]
SizeK = Annotated[int, typer.Option("-k", help="Columns of A, rows of B.")]
TypeOption = Annotated[
    str,
    typer.Option(
        "--dtype", metavar="TYPE", help="Type of A and B.", autocompletion=choices.of_stages("dtype")
    ),
]
AccOption = Annotated[
    str,
    typer.Option(
        "--acc", metavar="TYPE", help="Type sums are kept in.", autocompletion=choices.of_stages("acc")
    ),
]
OutOption = Annotated[
    str,
    typer.Option("--out", metavar="TYPE", help="Type of C.", autocompletion=choices.of_stages("out")),
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


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("gemm")(gemm)


def gemm(
    ctx: typer.Context,
    *,
    stage: StageOption = None,
    ladder: LadderFlag = False,
    listing: ListFlag = False,
    m: SizeM = 4096,
    n: SizeN = 4096,
    k: SizeK = 4096,
    dtype: TypeOption = "f16",
    acc: AccOption = "f32",
    out: OutOption = "f16",
    layout: LayoutOption = "tn",
    init: InitOption = Init.NORMAL,
    seed: SeedOption = 0,
    vs: VersusOption = Versus.CUBLAS,
    explain: ExplainFlag = False,
    record: RecordFlag = False,
    arch: ArchOption = None,
    device: DeviceOption = 0,
    timeout: TimeoutOption = 20.0,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Multiply matrices with a stage of the ladder: checked everywhere, timed, explained."""
    _check_together(ctx)
    del ladder  # all stages run where none is named
    from ptxlab.experiments.gemm.catalogue import list_record
    from ptxlab.experiments.gemm.run import Request, run_gemm
    from ptxlab.render.progress import reporter

    if listing:
        emit(list_record(), json=json, format=format)
        return
    sizes: dict[str, Value] = {"m": m, "n": n, "k": k}
    types: dict[str, Value] = {"dtype": dtype, "acc": acc, "out": out, "layout": layout}
    request = Request(
        stage=stage,
        options=sizes | types,
        init=init.value,
        seed=seed,
        versus=vs.value,
        explain_only=explain,
        keep=record,
        arch=arch,
        device=device,
        timeout=timeout,
    )
    with reporter(quiet=json) as progress:
        done = run_gemm(request, progress)
    emit(done, json=json, format=format)


def _check_together(ctx: typer.Context) -> None:
    """Refuse options that do not go together.

    Raises:
        UsageError: with those that were typed.

    """
    typed = typed_options(ctx)
    if len(typed.keys() & {"stage", "ladder", "listing"}) != 1:
        raise UsageError("gemm takes one of --stage NAME, --ladder and --list", "ptxlab gemm --list")
    if "explain" in typed and "record" in typed:
        raise UsageError("--record keeps what was measured, and --explain measures nothing")
    of_a_run = [flag for name, flag in typed.items() if name not in ("listing", "json", "format", "debug")]
    if "listing" in typed and of_a_run:
        raise UsageError(
            f"{', '.join(of_a_run)}: --list runs no stage", "leave it out, or --stage NAME runs one"
        )
