"""The cp-async probe: what has arrived after a wait, and what becomes of what is left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.record import Record

PROBE = registry.find_probe("cp-async")


def run(arch: str = "sm_90a", **params: Any) -> Record:
    """Run one point on the model."""
    lab = runner.Lab(arch, None, None, "the model was asked for")
    return runner.run_probe(PROBE, PROBE.case(arch, **params), lab)[0]


def failed(record: Record) -> dict[str, str]:
    """Return the checks that failed, with their details."""
    return {check["name"]: check["detail"] for check in record.checks if not check["ok"]}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("size", "cache", "opcode"),
    [(4, "ca", "LDGSTS.E"), (8, "ca", "LDGSTS.E.64"), (16, "ca", "LDGSTS.E.128"),
     (16, "cg", "LDGSTS.E.BYPASS.128")],
)  # fmt: skip
def test_every_form_is_what_sass_says(arch: str, size: int, cache: str, opcode: str) -> None:
    """The opcode tells bytes and cache; .ZFILL stands for a src-size."""
    assert run(arch, size=size, cache=cache).result["sass"]["counts"][opcode] == 2
    filled = run(arch, size=size, cache=cache, src_size="lane % 5").result
    assert filled["sass"]["counts"][f"{opcode}.ZFILL"] == 2


def test_a_src_size_is_the_number_of_bytes_that_arrive() -> None:
    """The picture shows 0 to 16, lane by lane."""
    record = run(src_size="lane % 17")
    cells = [int(n) for row in record.result["pictures"][0]["cells"] for n in row]
    assert cells == [lane % 17 for lane in range(32)]
    assert record.exit_code == 0


def test_lanes_that_ignore_their_source_get_zeros() -> None:
    """And no others."""
    outputs = PROBE.expected(PROBE.case("sm_90a", ignore="lane % 2"))
    assert (outputs["settled"][:, 1::2] == 0).all()
    assert (outputs["settled"][:, ::2] != 0).all()


@pytest.mark.parametrize(
    ("params", "there"),
    [
        ({"pending": 1}, ["there", "there", "there", "not known"]),
        ({"groups": "3,0,2", "pending": 2}, ["there", "empty", "not known"]),
        ({"groups": "1,1", "loose": 2}, ["there", "there", "not known"]),
        ({"groups": "1,1", "loose": 2, "wait": "all"}, ["there"] * 3),
        ({"groups": "1,1", "loose": 2, "wait": "mbarrier"}, ["there"] * 3),
    ],
)
def test_what_is_there_after_the_wait(params: dict[str, Any], there: list[str]) -> None:
    """Group by group; empty groups count, and copies in no group are waited for by the other waits alone."""
    assert [row["after the wait"] for row in run(**params).result["groups"]] == there


def test_only_what_is_there_is_read() -> None:
    """The output keeps its poison where nothing is known, so that a wrong answer cannot pass by luck."""
    arrived = PROBE.expected(PROBE.case("sm_90a", pending=3))["arrived"]
    assert (arrived[1:] == 0xFF).all()
    assert (arrived[0] != 0xFF).all()


def test_sass_counts_no_more_than_63_groups() -> None:
    """For a larger number ptxas puts 63, which leaves less."""
    assert run(pending=100).result["wait"][0]["SASS"] == "DEPBAR.LE SB0, 0x3f"


@pytest.mark.parametrize(("wait", "right"), [("mbarrier", 32), ("mbarrier-inc", 1)])
def test_a_barrier_that_counts_too_many_arrivals_is_a_finding(wait: str, right: int) -> None:
    """With noinc an arrival is one of those it was initialised for; the other form brings its own."""
    assert run(wait=wait).exit_code == 0
    record = run(wait=wait, arrivals=right + 1)
    assert record.exit_code == 1
    assert f"initialise it for {right}" in failed(record)["arrivals"]
    assert record.result["wait"][0]["copies that are there"] == 0


def test_a_barrier_that_counts_too_few_stops_the_kernel() -> None:
    """32 arrivals at a count of 31."""
    fault = PROBE.fault(PROBE.case("sm_90a", wait="mbarrier", arrivals=31))
    assert fault is not None
    assert (fault.name, fault.certain) == ("arrivals", True)


def test_addresses_that_are_not_aligned() -> None:
    """A fault on either side; but with a src-size other bytes arrive in silence, which is a finding."""
    for params, name in (
        ({"source_offset": 4}, "source alignment"),
        ({"target_offset": 8}, "target alignment"),
    ):
        assert name in failed(run(**params))
    assert PROBE.fault(PROBE.case("sm_90a", source_offset=8, size=8)) is None
    record = run(source_offset=4, src_size="16")
    assert "source alignment" in failed(record)
    assert record.exit_code == 1


@pytest.mark.parametrize(
    ("params", "words"),
    [({"cache": "cg", "size": 8}, r"legal bytes: \.ca: 4, 8, 16; \.cg: 16"),
     ({"size": 12}, "legal: 4, 8, 16"),
     ({"src_size": "lane"}, "legal: 0 to 16"), ({"src_size": "4", "ignore": "1"}, "legal: one of them"),
     ({"groups": "1,x"}, "such as 1,1,0,2"), ({"groups": "0"}, "legal: 1 to 32"),
     ({"pending": -1}, "legal: 0 and more"), ({"pending": 1, "wait": "all"}, "with --wait group"),
     ({"arrivals": 5}, "--wait mbarrier"), ({"source_offset": 16}, "legal: 0 to 15"),
     ({"wait": "none"}, "legal: group, all")],
)  # fmt: skip
def test_what_does_not_exist_is_refused_with_what_does(params: dict[str, Any], words: str) -> None:
    """One line, with the value and the legal set."""
    with pytest.raises(UsageError, match=words):
        PROBE.case("sm_90a", **params)


def test_every_byte_of_the_source_is_told_from_zero_and_poison() -> None:
    """Neither of the two stands for data."""
    memory = PROBE.inputs(PROBE.case("sm_90a", groups="8,8"))["memory"]
    assert not np.isin(memory, (0, 0xA5, 0xFF)).any()


def test_the_command_line(run_cli: Any) -> None:
    """An illegal form is exit 2."""
    done = run_cli("probe", "cp-async", "--cache", "cg", "--size", "4")
    assert done.returncode == 2
    assert "legal bytes" in done.stderr
