"""The setmaxnreg probe: when registers move, and when the compiler ignores it."""

from __future__ import annotations

from typing import Any

import pytest

from ptxlab.errors import ToolError, UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.record import Record
from ptxlab.isa import setmaxnreg
from ptxlab.toolchain.arch import ARCHS
from ptxlab.toolchain.build import build_ptx

MODEL = runner.Lab("sm_90a", None, None, "the model was asked for")
PROBE = registry.find_probe("setmaxnreg")
PTX = """.version {version}
.target {arch}
.address_size 64
.visible .entry k() .maxntid 384 .minnctapersm 1 {{ setmaxnreg.inc.sync.aligned.u32 240; ret; }}
"""


def run(**params: Any) -> Record:
    """Run one point on the model."""
    return runner.run_probe(PROBE, PROBE.case("sm_90a", **params), MODEL)[0]


def test_a_thread_holds_more_than_it_started_with() -> None:
    """200 values in registers where 168 were at launch, and no spill."""
    record = run()
    assert record.exit_code == 0
    assert record.result["sass"]["registers"] == 168
    assert record.result["sass"]["families"]["USETMAXREG"] == 2
    assert record.result["sass"]["spill_bytes"] == 0
    assert "32 more than it had registers" in record.result["conclusion"]


@pytest.mark.parametrize("bound", ["max-threads", "none"])
def test_without_a_bound_on_the_blocks_it_is_ignored(bound: str) -> None:
    """No USETMAXREG, the advisory, and the cure; the values come through all the same."""
    record = run(bound=bound)
    assert record.exit_code == 0
    assert "USETMAXREG" not in record.result["sass"]["families"]
    assert "C7508" in record.result["conclusion"]
    assert "__launch_bounds__(threads, 1)" in record.result["conclusion"]


def test_more_than_the_pool_holds_is_a_finding() -> None:
    """40 and twice 240 is 520 of 504: the last warpgroup waits for ever."""
    record = run(dec=40, inc=240)
    failed = [check for check in record.checks if not check["ok"]]
    assert [check["name"] for check in failed] == ["register pool"]
    assert "legal: --inc up to 232" in failed[0]["detail"]
    told = "want 40 + 240 + 240 = 520 registers together, and have 3 x 168 = 504: 1 of 2 inc wait for ever"
    assert told in failed[0]["detail"]
    assert [row["afterwards"] for row in record.result["warpgroups"]] == [
        40,
        "240, or waits",
        "240, or waits",
    ]
    assert record.exit_code == 1
    assert [row[1] for row in record.result["pictures"][0]["cells"]] == ["40", *["240, or waits"] * 2]


def test_numbers_have_their_unit() -> None:
    """A thread's registers, summed over warpgroups, and those of all threads of the block."""
    record = run()
    assert record.result["titles"]["warpgroups"] == "registers of one thread of each warpgroup"
    assert record.result["pool"][0] == {
        "when": "all have at launch", "of one thread of each": 504, "of all threads": 64512
    }  # fmt: skip


@pytest.mark.parametrize(
    ("params", "words"),
    [({"dec": 42}, "multiples of 8 from 24 to 256"), ({"dec": 16}, "multiples of 8"),
     ({"inc": 264}, "multiples of 8"),
     ({"dec": 176}, "dec to at most 168"), ({"hold": 230}, "legal: 9 to 200"),
     ({"bound": "none", "hold": 200}, "legal: 9 to 96"), ({"bound": "all"}, "legal: min-blocks")],
)  # fmt: skip
def test_bad_numbers_name_the_legal_ones(params: dict[str, Any], words: str) -> None:
    """One line, with the value and what would be legal."""
    with pytest.raises(UsageError, match=words):
        PROBE.case("sm_90a", **params)


@pytest.mark.parametrize("arch", ARCHS)
def test_who_has_it(arch: str) -> None:
    """The model and the assembler refuse the same targets."""
    source = PTX.format(version="9.4" if arch.startswith("sm_107") else "9.0", arch=arch)
    try:
        setmaxnreg.check_arch(arch)
    except UsageError as error:
        assert "legal: sm_90a" in error.message  # noqa: PT017 - the other way is tried as well
        with pytest.raises(ToolError):
            build_ptx(source, name="form.ptx", arch=arch)
    else:
        build_ptx(source, name="form.ptx", arch=arch)
