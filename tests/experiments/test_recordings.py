"""Recordings: packed arrays, staleness by digest, whole files, and refusals."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ptxlab.assets import include_folder
from ptxlab.device.job import DeviceInfo, JobResult
from ptxlab.errors import MissingError, ToolError
from ptxlab.experiments import recording, registry, runner, verify
from ptxlab.experiments.base import Case
from ptxlab.experiments.catalogue import probe_record
from ptxlab.experiments.probe import Probe
from ptxlab.experiments.unit import digest, own_sources


@given(
    arrays.arrays(
        st.sampled_from([np.uint8, np.uint32, np.float16, np.int64]),
        arrays.array_shapes(max_dims=4, max_side=5),
    )
)
def test_packing_keeps_every_bit(array: np.ndarray) -> None:
    """Pack and unpack are inverse, through JSON, NaN payloads included."""
    back = recording.unpack(json.loads(json.dumps(recording.pack(array))))
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()


@pytest.fixture
def copy(tmp_path: Path) -> Probe:
    """A copy of a built-in probe, without recordings, that a test may change."""
    probe = registry.find_probe("ldmatrix")
    shutil.copytree(probe.folder, tmp_path / probe.name, ignore=shutil.ignore_patterns("recordings"))
    probe.folder = tmp_path / probe.name
    return probe


@pytest.fixture
def case(copy: Probe) -> Case:
    """The default point."""
    return copy.case("sm_90a")


def save(probe: Probe, case: Case) -> Path:
    """Record the prediction, as if a device had answered it."""
    kept = recording.start(probe, "Test Card 1", {"driver": "0"})
    kept.add(probe, case, probe.expected(case))
    return recording.save(probe, kept)


def test_a_recording_comes_back(copy: Probe, case: Case) -> None:
    """What was saved is found again at the same point and at no other."""
    assert save(copy, case).name == "test-card-1.json"
    (kept,) = recording.recordings(copy)
    assert (kept.device, kept.environment["driver"]) == ("Test Card 1", "0")
    variant = kept.find(copy, case)
    assert variant is not None
    for name, array in copy.expected(case).items():
        assert np.array_equal(recording.unpack(variant["arrays"][name]), array)
    assert kept.find(copy, copy.case("sm_80")) is None


@pytest.mark.parametrize(
    ("name", "params"),
    [("wgmma", {"desc": True}), ("wgmma", {"decode_desc": "0x4000004000010040"}),
     ("wgmma", {"layout": "SM90_64x256x16_F32BF16BF16F32_SS"}), ("wgmma", {"sbo": 1024, "major_b": "K"}),
     ("mma", {"perm_a": "0,1,2,3"}), ("mma", {"shape": "m16n8k16", "perm_a": "0, 2, 1, 3"}),
     ("ldmatrix", {"dtype": "f16"}), ("ldmatrix", {"dtype": "s8"}), ("ldmatrix", {"tile": "16x16"}),
     ("ldmatrix", {"tile": "16x64", "swizzle": "128B"}), ("ldmatrix", {"pitch": 32}),
     ("ldmatrix", {"addr": "lane % 16 * 32 + lane // 16 * 16"}), ("stmatrix", {"tile": "16x16"})],
    ids=str,
)  # fmt: skip
def test_the_same_kernel_and_data_are_the_same_point(name: str, params: dict[str, Any]) -> None:
    """However it was typed, and whatever of it shall be shown: the H200's answer is found."""
    probe = registry.find_probe(name)
    (kept,) = recording.recordings(probe)
    assert kept.find(probe, probe.case("sm_90a", **params)) is not None


@pytest.mark.parametrize(
    ("name", "params"),
    [("wgmma", {"sbo": 512}), ("mma", {"perm_b": "1,0"}), ("ldmatrix", {"pitch": 64}),
     ("ldmatrix", {"addr": "lane % 8 * 32"}), ("stmatrix", {"tile": "32x16"})],
    ids=str,
)  # fmt: skip
def test_other_data_are_another_point(name: str, params: dict[str, Any]) -> None:
    """What the device would be given differs from all that was recorded."""
    probe = registry.find_probe(name)
    (kept,) = recording.recordings(probe)
    assert kept.find(probe, probe.case("sm_90a", **params)) is None


def test_recorded_again_it_takes_the_place_of_the_old(copy: Probe, case: Case) -> None:
    """Typed in another way, a point still has one recording; another point has its own."""
    save(copy, case)
    kept = recording.recordings(copy)[0]
    again = recording.Recording(kept.device, kept.date)
    for params in ({"tile": "16x16"}, {"pitch": 64}):
        same = copy.case("sm_90a", **params)
        again.add(copy, same, copy.expected(same))
    fresh = recording.start(copy, kept.device, {})
    fresh.merge(copy, again)
    assert len(fresh.variants) == 2
    assert fresh.variants["sm_90a num=x4"]["params"]["tile"] == "16x16"


def test_recordings_outlive_changes_of_the_options(copy: Probe, case: Case) -> None:
    """An option that came later was left out then; a variant with one that is gone is no point any more."""
    older = {name: value for name, value in case.params.items() if name != "swizzle"}
    gone = ({"gone": 1}, {"self": 1}, {"arch": "sm_90a"}, {"num": {}}, {"num": 4}, {"num": None})
    for params, found in ((older, True), *(({**case.params, **each}, False) for each in gone)):
        variants = {"sm_90a then": {"params": params}}
        kept = recording.Recording("Test Card 1", "2026-01-01", {}, variants)
        assert (kept.find(copy, case) is not None) == found


def test_a_changed_kernel_makes_it_stale(copy: Probe, case: Case) -> None:
    """The digest holds the kernel's source, its own headers, the macros and the architecture."""
    save(copy, case)
    variant = recording.recordings(copy)[0].find(copy, case)
    assert variant is not None
    assert not recording.is_stale(copy, case, variant)
    copy.source.write_text(copy.source.read_text() + "static int one_more;\n")
    assert recording.is_stale(copy, case, variant)


def test_a_changed_comment_does_not(copy: Probe, case: Case) -> None:
    """What a measurement said is written into comments after it: neither they nor blank lines are code."""
    before = digest(copy, case)
    lines = ["// measured: 1", "", *copy.source.read_text().split("\n"), "/* and so", " on */  "]
    copy.source.write_text("\n".join(f"{line}  // here" if line.endswith(";") else line for line in lines))
    assert digest(copy, case) == before


@pytest.mark.parametrize("line", ["static int n;", 'static const char* s = "// no comment";'])
def test_code_is_told_from_comments(copy: Probe, case: Case, line: str) -> None:
    """A line of code counts, with what looks like a comment in a string."""
    before = digest(copy, case)
    text = copy.source.read_text()
    copy.source.write_text(f"{text}{line}\n")
    with_it = digest(copy, case)
    copy.source.write_text(f"{text}{line.replace('no comment', '')}\n")
    assert before != with_it
    assert (digest(copy, case) != with_it) == ("//" in line)


def test_the_digest_follows_own_headers(copy: Probe, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header of ptxlab that the kernel includes is part of the digest; CUDA's are not."""
    sources = own_sources(copy.source)
    assert sources[0] == copy.source
    assert any(include_folder() in path.parents for path in sources[1:])
    before = digest(copy, case)
    monkeypatch.setattr(copy, "macros", lambda case: {"OTHER": 1})
    assert digest(copy, case) != before


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"schema": "other/9"}', '{"schema": "ptxlab.recording/1"}']
)
def test_a_damaged_file_is_named(copy: Probe, case: Case, damage: str) -> None:
    """A recording that cannot be read is a ToolError that names the file."""
    path = save(copy, case)
    path.write_text(damage)
    with pytest.raises(ToolError, match=path.name):
        recording.recordings(copy)


@pytest.mark.parametrize("missing", ["digest", "params", "arrays", "result"])
def test_a_variant_without_a_part_is_damaged(copy: Probe, case: Case, missing: str) -> None:
    """Each variant must hold all of its parts."""
    path = save(copy, case)
    text = json.loads(path.read_text())
    del next(iter(text["variants"].values()))[missing]
    path.write_text(json.dumps(text))
    with pytest.raises(ToolError, match="damaged"):
        recording.recordings(copy)


def test_a_recording_that_is_no_file_is_damaged(copy: Probe) -> None:
    """A folder, or a link to itself, in a recording's place is told in one line."""
    copy.recordings.mkdir()
    (copy.recordings / "card.json").mkdir()
    with pytest.raises(ToolError, match=r"card\.json is damaged"):
        recording.recordings(copy)
    (copy.recordings / "card.json").rmdir()
    (copy.recordings / "card.json").symlink_to(copy.recordings / "card.json")
    with pytest.raises(ToolError, match=r"card\.json is damaged"):
        recording.recordings(copy)


def test_damaged_data_is_found(copy: Probe, case: Case) -> None:
    """A flipped character in packed data does not pass."""
    path = save(copy, case)
    text = json.loads(path.read_text())
    packed = next(iter(next(iter(text["variants"].values()))["arrays"].values()))
    packed["data"] = packed["data"][:40] + ("A" if packed["data"][40] != "A" else "B") + packed["data"][41:]
    path.write_text(json.dumps(text))
    with pytest.raises(ToolError, match="damaged"):
        recording.recordings(copy)


def put_beside(path: Path) -> bytes:
    """Return the bytes that are kept of a damaged file."""
    return path.with_name("test-card-1.json.damaged").read_bytes()


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"schema": "ptxlab.recording/1"}'])
def test_recording_again_replaces_a_damaged_file(
    copy: Probe, case: Case, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the error says that it would; its bytes are kept beside it, and a warning names both."""
    path = save(copy, case)
    path.write_text(damage)
    assert save(copy, case) == path
    assert recording.load(path).find(copy, case) is not None
    assert put_beside(path) == damage.encode()
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(f"ptxlab: warning: {path} is damaged: ")
    assert told.endswith("; it is kept as test-card-1.json.damaged, and recorded anew")
    save(copy, case)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", ["probe", "verify"])
def test_a_run_that_records_is_not_stopped_by_the_damage(
    copy: Probe, case: Case, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """It holds what the device answers against recordings, too."""
    path = save(copy, case)
    path.write_text("{")
    bits = {name: array.reshape(-1).view("u1") for name, array in copy.expected(case).items()}
    worker: Any = SimpleNamespace(run=lambda job: JobResult(bits, []))
    lab = runner.Lab("sm_90a", worker, DeviceInfo("Test Card 1", "sm_90a", 132, 1, 1, 1, "1.2", "13.0"), "")
    if command == "probe":
        probe_record(copy, {}, lab, lane=None, keep=True)
    else:
        monkeypatch.setattr(copy, "variants", lambda arch: iter([case] if arch == case.arch else []))
        verify.verify([copy], lab, lambda *_: None, keep=True)
    assert recording.load(path).find(copy, case) is not None


def test_what_is_no_file_is_put_aside_too(copy: Probe) -> None:
    """A folder in a recording's place; where that cannot be done nothing is measured in vain."""
    path = recording.recording_file(copy, "Test Card 1")
    path.mkdir(parents=True)
    recording.put_aside(copy, "Test Card 1")
    assert not path.exists()
    path.write_text("{")
    with pytest.raises(MissingError, match=f"cannot write {path}: Is a directory"):
        recording.put_aside(copy, "Test Card 1")


def test_sound_variants_of_a_damaged_file_stay(copy: Probe, case: Case) -> None:
    """With the date and the environment that they were recorded in."""
    path = save(copy, case)
    text = json.loads(path.read_text())
    (name,) = text["variants"]
    text |= {"date": "2026-01-01"}
    text["variants"]["sm_90a wrong"] = text["variants"][name]
    path.write_text(json.dumps(text))
    before = path.read_bytes()
    recording.put_aside(copy, "Test Card 1", lambda each, _: "is wrong" if "wrong" in each else "")
    kept = recording.load(path)
    assert (list(kept.variants), kept.date, kept.environment) == ([name], "2026-01-01", {"driver": "0"})
    assert put_beside(path) == before


def test_too_large_is_refused(copy: Probe, case: Case) -> None:
    """Recordings travel in the wheel: a file above the limit is not written."""
    kept = recording.start(copy, "Test Card 1", {})
    kept.add(copy, case, {"noise": np.random.default_rng(0).integers(0, 256, 400_000, dtype=np.uint8)})
    with pytest.raises(ToolError, match="legal: at most 300000"):
        recording.save(copy, kept)
    assert not list(copy.folder.rglob("*.json"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(copy: Probe, case: Case) -> None:
    """The refusal names the file, and nothing is left half-written."""
    copy.folder.chmod(0o500)
    with pytest.raises(MissingError, match="cannot write"):
        save(copy, case)


def test_a_file_in_the_way(copy: Probe, case: Case) -> None:
    """A recordings path that is no folder cannot be written either."""
    copy.recordings.write_text("in the way")
    with pytest.raises(MissingError, match="cannot write"):
        save(copy, case)
