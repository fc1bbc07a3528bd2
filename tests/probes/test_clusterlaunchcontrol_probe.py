"""The clusterlaunchcontrol probe: all work is done, and who has the instruction."""

from __future__ import annotations

import pytest

from ptxlab.errors import ToolError, UsageError
from ptxlab.experiments import registry, runner
from ptxlab.isa import clusterlaunchcontrol as isa
from ptxlab.toolchain.arch import ARCHS
from ptxlab.toolchain.build import build_ptx

PROBE = registry.find_probe("clusterlaunchcontrol")
MODEL = runner.Lab("sm_100a", None, None, "the model was asked for")
PTX = """.version {version}
.target {arch}
.address_size 64
.visible .entry k() {{
    .reg .b32 r<2>;
    mov.u32 r0, 0;
    mov.u32 r1, 64;
    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes{form}.b128 [r0], [r1];
    ret;
}}
"""


@pytest.mark.parametrize("cluster", [1, 2, 4, 8])
def test_one_request_in_the_loop(cluster: int) -> None:
    """Its answer goes to one block, or to all of the cluster; nothing here proves it on silicon."""
    record = runner.run_probe(PROBE, PROBE.case("sm_100a", cluster=cluster), MODEL)[0]
    assert record.exit_code == 0
    assert record.result["sass"]["counts"][isa.sass(cluster)] == 1
    assert record.result["work"] == [{"done": "once", "blocks": 4096}]
    assert "Not proven on silicon" in record.result["unproven"]
    assert "Not proven" not in record.result["conclusion"]


@pytest.mark.parametrize(
    ("params", "words"),
    [({"blocks": 0}, "legal: multiples of the 1"), ({"blocks": 9, "cluster": 2}, "multiples of the 2 blocks"),
     ({"cluster": 3}, "legal: 1, 2, 4, 8"), ({"blocks": 10**11}, "this probe takes up to 1048576")],
)  # fmt: skip
def test_a_grid_is_whole_clusters(params: dict[str, int], words: str) -> None:
    """And not empty."""
    with pytest.raises(UsageError, match=words):
        PROBE.case("sm_100a", **params)


def test_hopper_has_none() -> None:
    """The hint is a command that works."""
    with pytest.raises(UsageError, match="legal: sm_100 and later") as caught:
        PROBE.case("sm_90a")
    assert caught.value.hint == "--arch sm_100a"


@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("arch", ARCHS)
def test_who_has_it(arch: str, cluster: int) -> None:
    """The model and the assembler refuse the same targets."""
    version = "9.4" if arch.startswith("sm_107") else "9.0"
    form = "" if cluster == 1 else ".multicast::cluster::all"
    source = PTX.format(version=version, arch=arch, form=form)
    if isa.exists_on(arch, cluster):
        build_ptx(source, name="form.ptx", arch=arch)
    else:
        with pytest.raises(ToolError):
            build_ptx(source, name="form.ptx", arch=arch)
