"""Behaviours of ptxlab.toolchain.cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptxlab.errors import UsageError
from ptxlab.toolchain import cache

ROOT = Path(__file__).resolve().parents[2]
FILES = {"kernel.cubin": b"machine code", "log.txt": b""}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test a cache of its own."""
    monkeypatch.setenv("PTXLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PTXLAB_CACHE_LIMIT_MB", raising=False)
    monkeypatch.setattr(cache, "_warned", False)
    return tmp_path / "cache"


def key(number: int) -> str:
    """Return one of many keys."""
    return cache.key_of(number=number)


def test_what_was_stored_is_loaded() -> None:
    """Files, facts and folder; an unknown key has no entry."""
    stored = cache.store(key(1), FILES, {"arch": "sm_90a"})
    entry = cache.load(key(1))
    assert entry is not None
    assert (entry.folder, entry.files, entry.facts) == (stored, FILES, {"arch": "sm_90a"})
    assert cache.load(key(2)) is None


def test_the_key_does_not_depend_on_the_order_of_its_parts() -> None:
    """But on every part's value."""
    assert cache.key_of(a=1, b=["x"]) == cache.key_of(b=["x"], a=1)
    assert cache.key_of(a=1, b=["x"]) != cache.key_of(a=1, b=["y"])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(min_size=1, max_size=60), st.data())
def test_any_damage_to_any_file_is_noticed(data: bytes, choice: st.DataObject) -> None:
    """Cut, changed or gone: the entry is removed."""
    folder = cache.store(key(1), {"kernel.cubin": data, "log.txt": b"text"}, {"arch": "sm_90a"})
    assert folder is not None
    file = folder / choice.draw(st.sampled_from(["kernel.cubin", "log.txt", "manifest.json"]))
    whole = file.read_bytes()
    damaged = choice.draw(st.sampled_from(["cut", "gone", "changed"]))
    if damaged == "gone":
        file.unlink()
    elif damaged == "cut":
        file.write_bytes(whole[: choice.draw(st.integers(0, len(whole) - 1))])
    else:
        place = choice.draw(st.integers(0, len(whole) - 1))
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :])
    assert cache.load(key(1)) is None
    assert not folder.exists()


def test_the_least_recently_used_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading is using; the size stays under the limit."""
    monkeypatch.setenv("PTXLAB_CACHE_LIMIT_MB", "1")
    large = {"kernel.cubin": bytes(300_000)}
    for number in range(3):
        folder = cache.store(key(number), large, {})
        assert folder is not None
        os.utime(folder / "manifest.json", (number, number))
    assert cache.load(key(0)) is not None  # used now, so that 1 is the oldest
    cache.store(key(3), large, {})
    assert [cache.load(key(number)) is not None for number in range(4)] == [True, False, True, True]
    assert cache.info()["bytes"] <= cache.limit_bytes()


def test_an_entry_larger_than_the_limit_is_kept_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was just built is never evicted by itself."""
    monkeypatch.setenv("PTXLAB_CACHE_LIMIT_MB", "0")
    cache.store(key(1), FILES, {})
    assert cache.store(key(2), FILES, {}) is not None
    assert [cache.load(key(number)) is not None for number in (1, 2)] == [False, True]


@pytest.mark.parametrize("text", ["many", "-1", "1.5", " ", "\u0664\u0662", "9" * 5000])
def test_a_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Exit code 2 with the variable's name, before anything is built, whether the entry is there or not."""
    cache.store(key(1), FILES, {})
    monkeypatch.setenv("PTXLAB_CACHE_LIMIT_MB", text)
    for use in (cache.limit_bytes, lambda: cache.load(key(1)), lambda: cache.load(key(2))):
        with pytest.raises(UsageError, match="PTXLAB_CACHE_LIMIT_MB"):
            use()
    assert cache.clear()["entries"] == 1


def test_an_empty_limit_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of any other variable: the default holds."""
    monkeypatch.setenv("PTXLAB_CACHE_LIMIT_MB", "")
    assert cache.limit_bytes() == 512_000_000


def test_what_a_killed_process_left_goes_when_it_is_old(folder: Path) -> None:
    """Half-written and half-removed folders go after an hour, by whatever command comes next."""
    names = (folder / "builds" / ".new-old", folder / ".old-old", folder / "builds" / ".new-young")
    commands: tuple[Callable[[], object], ...] = (lambda: cache.store(key(2), FILES, {}), cache.clear)
    for command in commands:
        cache.store(key(1), FILES, {})
        for scratch in names:
            (scratch / "builds").mkdir(parents=True, exist_ok=True)
        for scratch in names[:2]:
            os.utime(scratch, (0, 0))
        command()
        assert [scratch.exists() for scratch in names] == [False, False, True]


def test_a_cache_that_cannot_be_written_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """On stderr, once, and the build goes on."""
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PTXLAB_CACHE", str(tmp_path / "file" / "cache"))
    for _ in range(2):
        assert cache.load(key(1)) is None
        assert cache.store(key(1), FILES, {}) is None
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert str(tmp_path / "file" / "cache") in err


def locked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every folder one that this user may not read; tests may run as root, who may read all."""

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)


@pytest.mark.parametrize("command", ["info", "clear"])
@pytest.mark.parametrize("fault", ["locked", "too long", "a file"])
def test_the_command_says_why_a_cache_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_here: Any, command: str, fault: str
) -> None:
    """Exit code 3 with the reason."""
    cache.store(key(1), FILES, {})
    if fault == "locked":
        locked(monkeypatch)
    elif fault == "too long":
        monkeypatch.setenv("PTXLAB_CACHE", str(tmp_path / ("x" * 300)))
    else:
        (tmp_path / "file").touch()
        monkeypatch.setenv("PTXLAB_CACHE", str(tmp_path / "file"))
    reasons = {"locked": "Permission denied", "too long": "File name too long", "a file": "Not a directory"}
    done = run_here("cache", command)
    assert done.returncode == 3
    assert f"cannot be used: {reasons[fault]}" in done.stderr
    assert "PTXLAB_CACHE" in done.stderr


@pytest.mark.usefixtures("folder")
def test_a_current_folder_that_was_removed_costs_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """When the cache's path is relative to it."""
    monkeypatch.setenv("PTXLAB_CACHE", "cache")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert cache.load(key(1)) is None
    assert cache.store(key(1), FILES, {}) is None
    assert "warning" in capfd.readouterr().err


def test_clear_takes_what_the_cache_wrote_and_nothing_else(folder: Path) -> None:
    """$PTXLAB_CACHE may be a folder with other things in it."""
    cache.store(key(1), FILES, {})
    (folder / "notes.txt").write_text("the user's own")
    removed = cache.clear()
    assert removed["entries"] == 1
    assert removed["bytes"] > len(FILES["kernel.cubin"])
    (folder / ".old-letters").mkdir()
    os.utime(folder / ".old-letters", (0, 0))
    assert cache.clear() == {"entries": 0, "bytes": 0}
    assert {path.name for path in folder.iterdir()} == {"notes.txt", ".old-letters", "builds"}
    assert not list((folder / "builds").iterdir())


@pytest.mark.usefixtures("folder")
def test_clear_takes_damaged_entries_too() -> None:
    """Such as one without a manifest."""
    stored = cache.store(key(1), FILES, {})
    assert stored is not None
    (stored / "manifest.json").unlink()
    cache.clear()
    assert not stored.exists()


def test_a_memo_for_an_entry_that_was_evicted_is_dropped_silently(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Another process may evict at any moment."""
    folder = cache.store(key(1), FILES, {})
    assert folder is not None
    shutil.rmtree(folder)
    assert not cache.store_memo(folder, "answer", 42)
    assert cache.load_memo(folder, "answer") is None
    assert not folder.exists()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("fails", ["write_text", "replace"])
def test_a_memo_that_cannot_be_written_leaves_nothing_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], fails: str
) -> None:
    """On a full disk: a warning, the answer that it is not kept, and an earlier one stays."""
    stored = cache.store(key(1), FILES, {})
    assert stored is not None
    assert cache.store_memo(stored, "answer", 41)
    before = sorted(folder.rglob("*"))

    def full(path: Path, *_: Any, **__: Any) -> None:
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, fails, full)
    assert not cache.store_memo(stored, "answer", 42)
    assert sorted(folder.rglob("*")) == before
    assert cache.load_memo(stored, "answer") == 41
    assert "No space left on device" in capfd.readouterr().err


WORK = """
import random, sys
from ptxlab.toolchain import cache
random.seed(int(sys.argv[1]))
for _ in range(40):
    key = cache.key_of(number=random.randrange(6))
    entry = cache.load(key)
    if entry is None:
        assert cache.store(key, {"kernel.cubin": key.encode() * 4000}, {"key": key}) is not None
        entry = cache.load(key)
    if sys.argv[2] == "clear" and random.random() < 0.3:
        cache.clear()
    if entry is not None:  # another process may have evicted it already
        assert entry.files["kernel.cubin"] == entry.facts["key"].encode() * 4000
        assert entry.facts["key"] == key
        cache.store_memo(entry.folder, "memo", key)
        assert cache.load_memo(entry.folder, "memo") in (key, None)
"""


@pytest.mark.parametrize("clearing", ["clear", "keep"])
def test_many_processes_store_load_evict_and_clear(
    folder: Path, monkeypatch: pytest.MonkeyPatch, clearing: str
) -> None:
    """Sixteen processes under a limit that is too small: whole entries or none, and no warning."""
    monkeypatch.setenv("PTXLAB_CACHE_LIMIT_MB", "1")  # room for three of the six
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WORK, str(seed), clearing], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        for seed in range(16)
    ]
    errors = [process.communicate(timeout=120)[1] for process in running]
    assert [process.returncode for process in running] == [0] * 16, errors
    assert errors == [""] * 16
    assert not list(folder.rglob(".new-*"))
    assert not list(folder.glob(".old-*"))


@pytest.mark.usefixtures("folder")
def test_an_edited_manifest_is_not_trusted() -> None:
    """Facts and file digests are covered by the manifest's own digest."""
    stored = cache.store(key(1), FILES, {"arch": "sm_90a"})
    assert stored is not None
    manifest = stored / "manifest.json"
    for edit in (("sm_90a", "sm_80a"), ("arch", "arcx"), ('"digest"', '"other"')):
        stored = cache.store(key(1), FILES, {"arch": "sm_90a"})
        manifest.write_text(manifest.read_text().replace(*edit))
        assert cache.load(key(1)) is None
        assert not manifest.exists()
    cache.store(key(1), FILES, {"arch": "sm_90a"})
    manifest.write_text("[" * 100_000)
    assert cache.load(key(1)) is None
