"""The probe of bank conflicts: patterns packed into counters, what the cards counted, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import recording, registry, runner

PROBE = registry.find_probe("banks")
MODEL = runner.Lab("sm_90a", None, None, "the model was asked for")


def test_the_bytes_of_a_counter_are_the_wavefronts_of_its_patterns() -> None:
    """240 patterns in 80 launches, none of which can reach 256."""
    case = PROBE.case("sm_90a", width="128", random=240)
    counters = PROBE.expected(case)["wavefronts"]
    assert counters.shape == (80,)
    found = counters.astype("<u8").view(np.uint8).reshape(80, 8)
    assert found[:, 3:].max() == 0
    assert found[:, :3].min() >= 1
    assert len(np.unique(found[:, :3])) > 8  # patterns of many costs


@pytest.mark.parametrize(
    ("addr", "wavefronts"), [("lane * 16", 4), ("lane * 128", 32), ("lane // 2 * 16", 2)]
)
def test_an_h200_counted_just_these(addr: str, wavefronts: int) -> None:
    """LDS.128: four wavefronts are no conflict, a column takes 32, and neighbours that share take 2."""
    case = PROBE.case("sm_90a", width="128", addr=addr)
    (kept,) = recording.recordings(PROBE)
    variant = kept.find(PROBE, case)
    assert variant is not None
    assert recording.arrays_of(variant)["wavefronts"].tolist() == [256 * wavefronts]
    record, _ = runner.run_probe(PROBE, case, MODEL)
    assert record.result["wavefronts"] == wavefronts
    assert record.result["recordings"]


def test_predicated_off_lanes() -> None:
    """--mask takes part in the addresses, and ldmatrix has none."""
    record, _ = runner.run_probe(PROBE, PROBE.case("sm_90a", addr="lane * 128", mask="0-3"), MODEL)
    assert record.result["wavefronts"] == 4
    with pytest.raises(UsageError, match="LDSM needs the whole warp"):
        PROBE.case("sm_90a", width="ldmatrix.x4", addr="lane * 16", mask="0-3")


def test_what_does_not_exist_is_refused() -> None:
    """The architecture, the cache and the range of addresses."""
    with pytest.raises(UsageError, match=r"sm_80 has no stmatrix\.x4; legal: sm_90 and later"):
        PROBE.case("sm_80", width="stmatrix.x4", addr="lane * 16")
    with pytest.raises(UsageError, match=r"cp\.async\.cg copies 16 bytes, not 4"):
        PROBE.case("sm_90a", width="cp.async.4", cache="cg")
    with pytest.raises(UsageError, match="lies beyond shared memory"):
        PROBE.case("sm_90a", addr="lane * 8192")
