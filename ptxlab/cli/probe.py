"""``ptxlab probe``: list, new, verify, and one command for every probe that is found in the folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ptxlab.cli import choices
from ptxlab.cli.common import (
    ArchOption,
    Backend,
    BackendOption,
    DeviceOption,
    Format,
    FormatOption,
    JsonFlag,
    TimeoutOption,
    emit,
)
from ptxlab.cli.options import LaneOption, probe_group
from ptxlab.cli.parsing import App


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = App(cls=probe_group(_run))
    group.command("list")(list_probes)
    group.command("new")(new_probe)
    group.command("verify")(verify_probes)
    app.add_typer(group, name="probe", help="Ask the model and silicon what one instruction does.")


def list_probes(json: JsonFlag = False, format: FormatOption = Format.TABLE) -> None:
    """List the probes that there are, and what reading them tells is wrong with them; none is run."""
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


OnlyOption = Annotated[
    list[str],
    typer.Option("--only", metavar="NAME", help="Just this probe.", autocompletion=choices.probes),
]


def verify_probes(
    only: OnlyOption = [],  # noqa: B006 - typer copies it
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


FullFlag = Annotated[
    bool, typer.Option("--full", help="Print the registers of every lane, and large matrices whole.")
]
RecordFlag = Annotated[bool, typer.Option("--record", help="Keep the device's answer.")]


def _run(
    probe: Any,  # a Probe: naming the class here would import numpy for every --help
    own: dict[str, Any],
    *,
    arch: ArchOption = None,
    backend: BackendOption = Backend.AUTO,
    lane: LaneOption = None,
    full: FullFlag = False,
    record: RecordFlag = False,
    device: DeviceOption = 0,
    timeout: TimeoutOption = 20.0,
) -> Any:
    from ptxlab.experiments.catalogue import probe_record

    with _lab(backend, arch, device, timeout) as lab:
        done = probe_record(probe, own, lab, lane=lane, keep=record, named=arch is not None)
    done.params["full"] = full
    return done


def _lab(backend: Backend, arch: str | None, device: int, timeout: float) -> Any:
    """Open the place where probes run; the worker ends with it."""
    from ptxlab.experiments.runner import open_lab
    from ptxlab.toolchain.arch import parse_arch

    return open_lab(backend.value, parse_arch(arch) if arch else None, device, timeout)
