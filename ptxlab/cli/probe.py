"""``ptxlab probe``: list, new, verify, and one command for every probe that is found in the folders."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.main

from ptxlab.cli.common import (
    ArchOption,
    Backend,
    BackendOption,
    DeviceOption,
    Format,
    FormatOption,
    Group,
    JsonFlag,
    TimeoutOption,
    command_line,
    emit,
)
from ptxlab.files import write_whole

if TYPE_CHECKING:
    from ptxlab.experiments.base import Option
    from ptxlab.experiments.probe import Probe
    from ptxlab.experiments.record import Record


class _Probes(Group):
    """The fixed commands, and the probes: each is loaded when it is asked for and no sooner."""

    def list_commands(self, ctx):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typer keeps these types to itself
        from ptxlab.experiments.registry import probe_entries

        del ctx
        return [*self.commands, *(entry.name for entry in probe_entries() if not entry.problem)]

    def get_command(self, ctx, cmd_name):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        from ptxlab.experiments.registry import find_probe, probe_entries

        del ctx
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        if cmd_name not in [entry.name for entry in probe_entries()]:
            return None
        return probe_command(find_probe(cmd_name))


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = typer.Typer(cls=_Probes, no_args_is_help=True)
    group.command("list")(list_probes)
    group.command("new")(new_probe)
    group.command("verify")(verify_probes)
    app.add_typer(group, name="probe", help="Ask the model and silicon what one instruction does.")


def list_probes(json: JsonFlag = False, format: FormatOption = Format.TABLE) -> None:
    """List the probes that there are, broken ones with what is wrong with them."""
    from ptxlab.experiments.catalogue import list_record

    emit(list_record(), json=json, format=format)


def new_probe(
    name: Annotated[str, typer.Argument(help="Name of the probe and of its folder.")],
    folder: Annotated[Path, typer.Option("--into", help="Where the folder is made.")] = Path("probes"),
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Make a folder with a probe that works, to be changed into your own."""
    from ptxlab.experiments.catalogue import new_record

    emit(new_record(name, folder), json=json, format=format)


def verify_probes(
    only: Annotated[list[str], typer.Option("--only", metavar="NAME", help="Just this probe.")] = [],  # noqa: B006 - typer copies it
    record: Annotated[bool, typer.Option("--record", help="Keep the device's answers.")] = False,
    arch: ArchOption = None,
    backend: BackendOption = Backend.AUTO,
    device: DeviceOption = 0,
    timeout: TimeoutOption = 20.0,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Run every variant of every probe, and hold the model against silicon or its recordings."""
    from ptxlab.experiments.catalogue import verify_record
    from ptxlab.render.progress import reporter

    with _lab(backend, arch, device, timeout) as lab, reporter(quiet=json) as progress:
        done = verify_record(only, lab, progress, keep=record)
    emit(done, json=json, format=format)


def probe_command(probe: Probe) -> Any:
    """Return the command of one probe: its own options, then those that every probe has."""
    options = probe.options()

    def run(**given: Any) -> None:
        own = {name: given.pop(name) for name in options}
        _run(probe, own, **given)

    run.__doc__ = probe.summary
    shared = inspect.signature(_run, eval_str=True).parameters
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_parameter(name, each) for name, each in options.items()]
        + [p for p in shared.values() if p.name not in ("probe", "own")]
    )
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(probe.name)(run)
    return typer.main.get_command(app)


def _parameter(name: str, option: Option) -> inspect.Parameter:
    """Return the option of a probe as typer reads it from a signature."""
    flag = f"--{name.replace('_', '-')}"
    flags = (f"{flag}/--no-{flag[2:]}",) if option.default is True else (flag,)
    choices = "|".join(map(str, option.choices))
    short = len(choices) < 40
    declared = typer.Option(
        *flags,
        help=option.help if short else f"{option.help} ({', '.join(map(str, option.choices))})",
        metavar=option.metavar or (choices if short else "") or None,
        show_default=option.default not in ("", False),
    )
    kind = type(option.default)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=option.default,
        annotation=Annotated[kind, declared],
    )


LaneOption = Annotated[
    int | None, typer.Option("--lane", metavar="N", min=0, max=31, help="Show just this lane.")
]
SvgOption = Annotated[Path | None, typer.Option("--svg", help="Draw the picture into this file.")]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", help="Write a page on which a lane lights up everywhere.")
]
RecordFlag = Annotated[bool, typer.Option("--record", help="Keep the device's answer.")]


def _run(
    probe: Any,  # a Probe: naming the class here would import numpy for every --help
    own: dict[str, Any],
    *,
    arch: ArchOption = None,
    backend: BackendOption = Backend.AUTO,
    lane: LaneOption = None,
    svg: SvgOption = None,
    html: HtmlOption = None,
    record: RecordFlag = False,
    device: DeviceOption = 0,
    timeout: TimeoutOption = 20.0,
    json: JsonFlag = False,
    format: FormatOption = Format.TABLE,
) -> None:
    from ptxlab.experiments.catalogue import probe_record

    with _lab(backend, arch, device, timeout) as lab:
        done = probe_record(probe, own, lab, lane=lane, keep=record)
    done.command = command_line()
    for path, draw in ((svg, _svg), (html, _html)):
        if path:
            write_whole(path, draw(done))
    emit(done, json=json, format=format)


def _lab(backend: Backend, arch: str | None, device: int, timeout: float) -> Any:
    """Open the place where probes run; the worker ends with it."""
    from ptxlab.experiments.runner import open_lab
    from ptxlab.toolchain.arch import parse_arch

    return open_lab(backend.value, parse_arch(arch) if arch else None, device, timeout)


def _svg(record: Record) -> str:
    from ptxlab.render.show import blocks
    from ptxlab.render.svg import draw

    return draw(blocks(record.document()))


def _html(record: Record) -> str:
    from ptxlab.render.html import page
    from ptxlab.render.show import blocks

    return page(blocks(record.document()))
