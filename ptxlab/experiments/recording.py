"""Recordings: what real silicon answered, kept beside the experiment so that every machine can compare.

One JSON file a card: ``recordings/nvidia-h200.json``. Arrays are packed (zlib, base64). Each variant holds
the digest of the kernel that made it; a kernel that changed makes its recordings stale, and the cure is to
record again on a device, never to edit the file.
"""

from __future__ import annotations

import base64
import datetime
import functools
import json
import os
import re
import sys
import zlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.device.job import DeviceInfo
from ptxlab.errors import MissingError, PtxlabError, ToolError, UsageError, one_line
from ptxlab.experiments.base import Case, Experiment, Value
from ptxlab.experiments.unit import digest
from ptxlab.files import is_file, write_whole
from ptxlab.toolchain.arch import ARCHS

SCHEMA = "ptxlab.recording/1"
LIMIT_BYTES = 300_000
"""The largest file: recordings travel in the wheel."""

Damage = Callable[[str, Mapping[str, Any]], str]
"""Returns what is wrong with a variant of that name, or ""."""


@dataclass
class Recording:
    """What one card answered.

    Attributes:
        device: its name.
        date: when, as YYYY-MM-DD.
        environment: driver, compilers, and whatever else the run knew.
        variants: by name (architecture and the options that differ from their defaults).
        file: where it is kept, or None.
        names: (architecture, identity, condition) -> the name of the variant that was recorded there, once
            it was asked.

    """

    device: str
    date: str
    environment: dict[str, Any] = field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    file: Path | None = None
    names: dict[Hashable, str] = field(default_factory=dict, repr=False, compare=False)

    def add(
        self,
        experiment: Experiment,
        case: Case,
        arrays: Mapping[str, NDArray[Any]],
        result: Mapping[str, Any] | None = None,
        condition: str = "",
    ) -> None:
        """Put in what the device answered at one point: raw arrays, and numbers as JSON.

        A condition is a word for what differed from the usual run; each keeps an answer of its own.
        """
        variant = {
            "digest": digest(experiment, case),
            "params": dict(case.params),
            "arrays": {name: pack(array) for name, array in arrays.items()},
            "result": dict(result or {}),
        }
        if condition:
            variant["condition"] = condition
        self._put(experiment, variant_name(case, condition), variant)

    def merge(self, experiment: Experiment, other: Recording) -> None:
        """Put in the variants of another recording."""
        for name, variant in other.variants.items():
            self._put(experiment, name, variant)

    def find(self, experiment: Experiment, case: Case, condition: str = "") -> dict[str, Any] | None:
        """Return what was recorded at this very point, however it was typed then, or None.

        It is what the usual run recorded, or one under a condition.
        """
        named = self.variants.get(variant_name(case, condition))
        if named and named["params"] == case.params:
            return named
        try:
            name = self._names(experiment).get((case.arch, experiment.identity(case), condition))
        except UsageError:  # there is no such point on the recording's architecture
            return None
        return self.variants[name] if name else None

    def _put(self, experiment: Experiment, name: str, variant: dict[str, Any]) -> None:
        """Put a variant in the place of the one that was recorded at the same point."""
        point = _recorded_at(experiment, name, variant)
        own = self._names(experiment).setdefault(point, name) if point is not None else name
        self.variants[own] = variant

    def _names(self, experiment: Experiment) -> dict[Hashable, str]:
        if not self.names:
            for name, variant in self.variants.items():
                if (point := _recorded_at(experiment, name, variant)) is not None:
                    self.names.setdefault(point, name)
        return self.names


def _recorded_at(experiment: Experiment, name: str, variant: Mapping[str, Any]) -> Hashable:
    """Return a variant's architecture, identity and condition; None if there is no such point any more."""
    case = point_of(experiment, name, variant)
    try:
        return case and (case.arch, experiment.identity(case), str(variant.get("condition", "")))
    except UsageError:
        return None


def arch_of(name: str) -> str:
    """Return the architecture that a variant was recorded on."""
    return name.partition(" ")[0]


def point_of(experiment: Experiment, name: str, variant: Mapping[str, Any]) -> Case | None:
    """Return the point that a variant was recorded at, legal or not; None if there is no such one any more.

    Options come and go, and so do their values and types.
    """
    options, params = experiment.options(), variant["params"]
    known = all(each in options and _fits(options[each].default, params[each]) for each in params)
    try:
        return experiment.point(arch_of(name), **params) if known and arch_of(name) in ARCHS else None
    except UsageError:
        return None


def _fits(default: Value, value: object) -> bool:
    """Say whether a recorded value is of the type that the option has now."""
    return type(value) is type(default) or (type(default) is float and type(value) is int)


def variant_name(case: Case, condition: str = "") -> str:
    """Return what a variant is called in a recording."""
    return " ".join(filter(None, (case.arch, case.key, condition)))


def pack(array: NDArray[Any]) -> dict[str, Any]:
    """Return an array as JSON: its type, its shape, and its bytes packed."""
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 9)).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "data": data}


def unpack(packed: Mapping[str, Any]) -> NDArray[Any]:
    """Return the array that ``pack`` made into JSON."""
    raw = zlib.decompress(base64.b64decode(packed["data"], validate=True))
    return np.frombuffer(raw, dtype=packed["dtype"]).reshape(packed["shape"])


def arrays_of(variant: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a variant."""
    return {name: unpack(packed) for name, packed in variant["arrays"].items()}


def has_run(experiment: Experiment, case: Case) -> bool:
    """Say whether some recording holds an answer of this very kernel, to whatever data."""
    wanted = digest(experiment, case)
    return any(v["digest"] == wanted for kept in recordings(experiment) for v in kept.variants.values())


def is_stale(experiment: Experiment, case: Case, variant: Mapping[str, Any]) -> bool:
    """Say whether the kernel has changed since this variant was recorded."""
    return bool(variant["digest"] != digest(experiment, case))


def is_past(experiment: Experiment, name: str, variant: Mapping[str, Any]) -> bool:
    """Say whether the kernel has changed since, or the experiment takes no such point any more.

    Raises:
        ToolError: the kernel cannot be read, which makes nothing stale.

    """
    case = point_of(experiment, name, variant)
    try:
        if case:
            experiment.check(case)
    except (UsageError, MissingError):  # it is illegal, or not for that architecture
        return True
    return case is None or is_stale(experiment, case, variant)


def recordings(experiment: Experiment) -> list[Recording]:
    """Return every recording of an experiment, the newest first; raises as recordings_in does."""
    return recordings_in(experiment.recordings)


def recordings_in(folder: Path) -> list[Recording]:
    """Return every recording in a folder, the newest first.

    Raises:
        ToolError: a file is damaged, or the folder cannot be read; the message names it.

    """
    try:
        files = sorted(each for each in folder.iterdir() if each.suffix == ".json")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ToolError(f"{folder} cannot be read: {error.strerror}") from error
    return sorted(map(load, files), key=lambda each: each.date, reverse=True)


def load(path: Path) -> Recording:
    """Return the recording in a file, which callers must not change.

    Raises:
        ToolError: it is not a recording, or it is damaged.

    """
    try:
        state = path.stat()
        return _load(path, state.st_mtime_ns, state.st_size)
    except PtxlabError:
        raise
    except Exception as error:  # whatever json, zlib and numpy say of bytes that are none of theirs
        raise damaged(path, f"{type(error).__name__}: {error}") from error


@functools.lru_cache(maxsize=64)  # verify asks for the same file once for every variant
def _load(path: Path, modified: int, size: int) -> Recording:
    del modified, size  # a changed file is another question
    text = json.loads(path.read_text(encoding="utf-8"))
    if text["schema"] != SCHEMA:
        raise ToolError(f"{path}: schema is {text['schema']}; this version reads {SCHEMA}")
    for variant in text["variants"].values():
        str(variant["digest"]), {**variant["params"]}, {**variant["result"]}
        for packed in variant["arrays"].values():
            unpack(packed)
    return Recording(
        str(text["device"]), str(text["date"]), dict(text["environment"]), text["variants"], file=path
    )


def damaged(path: Path | None, what: str) -> ToolError:
    """Return the error for a recording that is not what it should be."""
    return ToolError(f"{path} is damaged: {what}", "record it again: --record on a GPU")


def recording_file(experiment: Experiment, device: str) -> Path:
    """Return where the recording of a card belongs."""
    slug = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return experiment.recordings / f"{slug}.json"


def start(experiment: Experiment, device: str, environment: Mapping[str, Any]) -> Recording:
    """Return a recording to add to: what the card's file holds, dated today; a damaged one is put aside."""
    put_aside(experiment, device)
    path = recording_file(experiment, device)
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    kept = dict(load(path).variants) if is_file(path) else {}
    return Recording(device, today, dict(environment), kept, file=path)


def put_aside(experiment: Experiment, device: str, damage_of: Damage = lambda *_: "") -> None:
    """Make a damaged file of a card one that can be added to: what is recorded takes its place.

    The file as it was stays beside it, as NAME.json.damaged, which a warning on stderr tells. A run that
    records does this before it measures, for it reads recordings, too.

    Args:
        experiment: whose recordings they are.
        device: the card.
        damage_of: judges the variants; those that are sound stay in the file.

    Raises:
        MissingError: the folder cannot be written.

    """
    path = recording_file(experiment, device)
    if not os.path.lexists(path):
        return
    sound, wrong = _sorted_out(path, damage_of)
    if wrong:
        _move_aside(path, wrong)
        if sound.variants:
            save(experiment, replace(sound, device=device))


def _sorted_out(path: Path, damage_of: Damage) -> tuple[Recording, str]:
    """Return what is sound of a recording, and the first thing that is wrong in it or ""."""
    try:
        whole = load(path)
    except ToolError as error:
        return Recording("", ""), error.message.removeprefix(f"{path} is damaged: ")
    found = {name: damage_of(name, variant) for name, variant in whole.variants.items()}
    sound = {name: whole.variants[name] for name, damage in found.items() if not damage}
    wrong = next((f"'{name}' {damage}" for name, damage in found.items() if damage), "")
    return replace(whole, variants=sound, names={}), wrong


def _move_aside(path: Path, why: str) -> None:
    beside = path.with_name(f"{path.name}.damaged")
    try:
        path.replace(beside)
    except OSError as error:
        raise _unwritable(path, error) from error
    told = one_line(f"{path} is damaged: {why}; it is kept as {beside.name}, and recorded anew")
    sys.stderr.write(f"ptxlab: warning: {told}\n")


def _unwritable(path: Path, error: OSError) -> MissingError:
    return MissingError(f"cannot write {path}: {error.strerror}", "choose a folder that can be written")


def _text(kept: dict[str, Any]) -> str:
    """Return a recording as JSON: a line for each variant, so that a difference shows which ones changed."""
    lines = {name: _line(value) for name, value in kept.items() if name != "variants"}
    variants = [f"{_line(name)}:{_line(kept['variants'][name])}" for name in sorted(kept["variants"])]
    lines["variants"] = "{\n" + ",\n".join(variants) + "\n}"
    return "{\n" + ",\n".join(f'"{name}":{lines[name]}' for name in sorted(lines)) + "\n}\n"


def _line(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def save(experiment: Experiment, recording: Recording) -> Path:
    """Write the recording, whole or not at all, and return the file.

    Raises:
        ToolError: it is larger than recordings may be.
        MissingError: the folder cannot be written.

    """
    path = recording_file(experiment, recording.device)
    kept = {name: value for name, value in vars(recording).items() if name not in ("file", "names")}
    text = _text({"schema": SCHEMA, **kept})
    if len(text) > LIMIT_BYTES:
        raise ToolError(f"{path} would take {len(text)} bytes; legal: at most {LIMIT_BYTES}")
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error
    write_whole(path, text)
    return path


def silicon(device: DeviceInfo) -> dict[str, Any]:
    """Return what a recording says of the machine that made it."""
    from ptxlab.toolchain.nvrtc import nvrtc_version

    return {
        "arch": device.arch,
        "driver": device.driver,
        "nvrtc": ".".join(map(str, nvrtc_version())),
    }
