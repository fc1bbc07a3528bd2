"""What the tests of the GEMM bench share: a run on a stand-in for the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gemm_stand_in import H200, StandIn

from ptxlab.experiments.gemm import run
from ptxlab.experiments.gemm.run import Request, run_gemm
from ptxlab.experiments.record import Record
from ptxlab.experiments.runner import Lab


@pytest.fixture
def history(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the history of one test."""
    monkeypatch.setenv("PTXLAB_HISTORY", str(tmp_path / "history" / "gemm.jsonl"))
    return tmp_path / "history" / "gemm.jsonl"


@pytest.fixture
def gemm(monkeypatch: pytest.MonkeyPatch, history: Path) -> Any:
    """Return a function that runs a request on a stand-in, with a history of its own."""
    del history

    def runs(request: Request, show: Any = lambda *_: None, **how: Any) -> tuple[Record, StandIn]:
        stand_in = StandIn(request, **how)
        lab = Lab("sm_90a", stand_in, H200, "")  # type: ignore[arg-type]
        monkeypatch.setattr(run, "open_lab", lambda *_: lab)
        return run_gemm(request, show), stand_in

    return runs
