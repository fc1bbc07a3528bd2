"""The dsmem probe: addresses, byte accounts, and leaving too early."""

from __future__ import annotations

import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import recording, registry, runner
from ptxlab.experiments.base import Value
from ptxlab.experiments.record import Record
from ptxlab.isa import dsmem as isa

PROBE = registry.find_probe("dsmem")
LAB = runner.Lab("sm_90a", None, None, "the model was asked for")


def ran(**params: Value) -> Record:
    """What the model says of a point."""
    return runner.run_probe(PROBE, PROBE.case("sm_90a", **params), LAB)[0]


def failed(record: Record) -> list[str]:
    """Return the names of the checks that failed."""
    return [check["name"] for check in record.checks if not check["ok"]]


@pytest.mark.parametrize("op", ["ld", "st", "st.async", "atom"])
def test_leaving_while_a_peer_reads_is_a_finding(op: str) -> None:
    """Without the barrier at the end; with it nothing is wrong."""
    record = ran(op=op, size=2, exit_barrier="no")
    assert failed(record) == ["exit barrier"]
    assert "barrier.cluster.arrive and .wait" in record.result["conclusion"]
    assert failed(ran(op=op, size=2)) == []


@pytest.mark.parametrize("params", [{"op": "mapa"}, {"size": 1}, {"op": "atom", "size": 1}])
def test_leaving_early_harms_nobody_who_is_not_reached_into(params: dict[str, Value]) -> None:
    """An address is computed by mapa, and a block alone touches just its own memory."""
    assert failed(ran(exit_barrier="no", **params)) == []


def test_an_h200_ended_with_a_launch_failure() -> None:
    """Each recorded early exit did, and the variants after it were recorded all the same."""
    kept = recording.recordings(PROBE)[0]
    early = [each for each in kept.variants.values() if each["params"]["exit_barrier"] == "no"]
    assert len(early) == 4
    assert all("CUDA_ERROR_LAUNCH_FAILED" in each["result"]["device_fault"] for each in early)


def test_addresses() -> None:
    """The rank lies from bit 24 up, the offset begins after the system's kilobyte."""
    rows = ran(op="mapa", size=2).result["addresses"]
    assert [(row["own address"], row["mapa"], row["getctarank"]) for row in rows] == [
        ("0x00000400", "0x00000400", 0),
        ("0x00000400", "0x01000400", 1),
        ("0x01000400", "0x00000400", 0),
        ("0x01000400", "0x01000400", 1),
    ]


@pytest.mark.parametrize(
    ("expect", "names"), [(-1, []), (512, []), (1024, ["bytes expected"]), (0, ["bytes expected"])]
)
def test_the_bytes_of_st_async(expect: int, names: list[str]) -> None:
    """512 land in each of 4 blocks: 32 lanes of 4 blocks with 4 bytes each."""
    record = ran(op="st.async", expect=expect)
    assert failed(record) == names
    assert {row["bytes that land"] for row in record.result["barriers"]} == {512}


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"size": 9}, "this probe takes 1 to 8"),
        ({"op": "atom", "words": 2}, "legal: with ld, st, st.async"),
        ({"op": "ld", "redop": "xor"}, "legal: with atom, red, red.async"),
        ({"op": "st", "expect": 4}, "with st.async and red.async"),
        ({"op": "push"}, "legal: mapa, ld"),
    ],
)
def test_what_does_not_exist_is_refused(params: dict[str, Value], words: str) -> None:
    """With the legal set."""
    with pytest.raises(UsageError, match=words):
        PROBE.case("sm_90a", **params)


def test_the_sentence_and_the_table_say_the_same_of_a_race() -> None:
    """Fewer bytes are expected than come: too many came, and nobody knows how the phase ends."""
    record = ran(op="st.async", expect=128)
    told = "384 bytes more than expected came"
    assert told in record.result["conclusion"]
    assert {(row["phase ended"], row["bytes"]) for row in record.result["barriers"]} == {
        ("too early, or never", told)
    }


def test_the_words_of_the_picture_are_explained() -> None:
    """Block, slot, lane and number: lane 5's word of block 2, as it was before."""
    (note,) = ran().result["notes"]
    assert note.startswith("The bytes of a word, from the highest: the block")
    assert isa.before("ld", 4, 1)[2, 0, 5, 0] == 0x80000000 | 2 << 24 | 5 << 8
