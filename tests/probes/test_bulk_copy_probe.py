"""The bulk-copy probe: which bytes move, what a barrier counts, and what a wait means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.record import Record

PROBE = registry.find_probe("bulk-copy")


def run(**params: Any) -> Record:
    """Run one point on the model."""
    lab = runner.Lab("sm_90a", None, None, "the model was asked for")
    return runner.run_probe(PROBE, PROBE.case("sm_90a", **params), lab)[0]


def expected(**params: Any) -> dict[str, Any]:
    """Return what the model says of one point."""
    return dict(PROBE.expected(PROBE.case("sm_90a", **params)))


def failed(record: Record) -> dict[str, str]:
    """Return the checks that failed, with their details."""
    return {check["name"]: check["detail"] for check in record.checks if not check["ok"]}


@pytest.mark.parametrize(
    ("op", "opcode"),
    [("load", "UBLKCP.S.G"), ("prefetch", "UBLKPF.L2"), ("send", "UBLKCP.S.S"), ("store", "UBLKCP.G.S"),
     ("reduce", "UBLKRED.G.S.ADD"), ("send-reduce", "UBLKRED.S.S.ADD")],
)  # fmt: skip
def test_every_direction_is_one_opcode(op: str, opcode: str) -> None:
    """And the point is sound."""
    record = run(op=op)
    assert record.exit_code == 0
    assert record.result["sass"]["counts"][opcode] == 1


def test_bytes_beside_the_copy_do_not_change() -> None:
    """From 16 to 48: 208 bytes, and poison before and behind."""
    after = expected(src_offset=16, dst_offset=48, bytes=208)["after"][0]
    words = after[48 : 48 + 208].view(np.uint32)
    assert words.tolist() == list(range(5, 57))
    assert (after[:48] == 0xA5).all()
    assert (after[256:] == 0xA5).all()


def test_each_block_gets_what_the_one_before_it_sends() -> None:
    """A ring of four."""
    case = PROBE.case("sm_90a", op="send", cluster=4)
    sent, after = PROBE.inputs(case)["source"], PROBE.expected(case)["after"]
    for block in range(4):
        assert (after[block, :1024] == sent[block - 1, :1024]).all()


@pytest.mark.parametrize(
    ("params", "words"),
    [({"expect": 2048}, "2048 B, and 1024 B are counted: 1024 bytes are missing; the phase never ends"),
     ({"expect": 1000}, "are counted: 24 bytes more than expected came; the phase never ends"),
     ({"expect": 0}, "are counted: 1024 bytes more than expected came; the phase ended too early"),
     ({"op": "send", "expect": 1040}, "1024 B are counted: 16 bytes are missing; the phase never ends")],
)  # fmt: skip
def test_a_wrong_byte_count_is_a_finding(params: dict[str, Any], words: str) -> None:
    """Reported by a bounded wait: exit 1, and no hang."""
    record = run(**params)
    assert record.exit_code == 1
    assert words in failed(record)["bytes expected"]


def test_a_count_that_the_bytes_may_pass_through_is_left_to_chance() -> None:
    """With 512 of 1024 bytes a phase ends early, or never: both were seen."""
    fault = PROBE.fault(PROBE.case("sm_90a", expect=512))
    assert fault is not None
    assert not fault.certain
    record = run(expect=512)
    assert record.exit_code == 1
    (row,) = record.result["barriers"]
    assert (row["phase ended"], row["bytes"]) == ("too early, or never", "512 bytes more than expected came")
    assert row["phase ended"] in record.result["conclusion"]
    assert row["bytes"] in record.result["conclusion"]


@pytest.mark.parametrize("pending", [0, 1, 3])
def test_what_a_wait_for_groups_means(pending: int) -> None:
    """All but the latest are read, or written; of the others nothing is known."""
    for wait, words in (("read", "its source may be overwritten"), ("written", "its data is there")):
        rows = run(op="store", groups=4, pending=pending, wait=wait).result["groups"]
        assert [row["after the wait"] for row in rows] == [words] * (4 - pending) + ["not known"] * pending


def test_what_is_not_known_is_not_read_back() -> None:
    """The output keeps its poison there."""
    found = expected(op="store", groups=4, pending=1)["readback"]
    assert (found[3 * 1024 :] == 0xFF).all()
    assert found[: 3 * 1024].view(np.uint32).tolist() == list(range(1, 769))


def test_an_end_without_a_wait_is_a_race() -> None:
    """Shared memory may be given away while it is read."""
    record = run(op="store", wait="none")
    assert record.exit_code == 1
    assert "wait_group.read" in failed(record)["source released"]


@pytest.mark.parametrize(
    ("params", "words"),
    [({"bytes": 24}, "a copy of 24 bytes; legal: multiples of 16 from 0 to 1048560"),
     ({"bytes": 0}, "this probe takes 16 to 114560"), ({"bytes": 131_072}, "this probe takes 16 to 114560"),
     ({"bytes": 1 << 20}, "to 1048560"), ({"src_offset": 8}, "src offset of 8 bytes; legal: multiples of 16"),
     ({"dst_offset": 136}, "legal: multiples of 16"), ({"dst_offset": 128}, "this probe takes 0 to 112"),
     ({"op": "reduce", "redop": "min", "dtype": "f32"}, "legal types: u32, s32, u64, s64, f16, bf16"),
     ({"op": "send-reduce", "dtype": "f32"}, "in shared memory; legal types: u32, s32, u64"),
     ({"op": "send", "cluster": 9}, "this probe takes 1 to 8"),
     ({"groups": 2}, "legal: with store and reduce"),
     ({"op": "store", "expect": 16}, "with what has a barrier"), ({"expect": 1 << 20}, "legal: 0 to 1048575"),
     ({"op": "store", "groups": 2, "pending": 3}, "legal: 0 to 2"),
     ({"op": "store", "groups": 200}, "this probe takes 1 to 111"),
     ({"cluster": 99}, "--cluster 99 with --op load; legal: with send"),
     ({"redop": "min", "dtype": "f64"}, "with --op load; legal: with reduce and send-reduce"),
     ({"op": "store", "dtype": "f64"}, "with --op store; legal: with reduce and send-reduce")],
)  # fmt: skip
def test_every_limit_is_refused_with_what_is_legal(params: dict[str, Any], words: str) -> None:
    """One line, with the value and the legal set."""
    with pytest.raises(UsageError, match=words):
        PROBE.case("sm_90a", **params)


def test_older_chips_have_none() -> None:
    """Exit 2, and the architectures that do."""
    with pytest.raises(UsageError, match="legal: sm_90 and later"):
        PROBE.case("sm_80")
