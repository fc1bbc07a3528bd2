"""What tests of a user's own probes share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def own_probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's own probes, on $PTXLAB_PROBES."""
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.setenv("PTXLAB_PROBES", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder
