"""The launches of the check, held against the kernels that are compiled for them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from gemm_jobs import problem

from ptxlab.device.job import Argument, Launch
from ptxlab.experiments.gemm import check as module
from ptxlab.experiments.gemm.check import Check
from ptxlab.toolchain.build import Build, build_cuda

WIDTHS = {"b8": 1, "u8": 1, "u32": 4, "s32": 4, "f32": 4, "u64": 8, "s64": 8, "f64": 8}


def parameters(ptx: str, kernel: str) -> list[int]:
    """Return how many bytes each parameter of a kernel has."""
    found = re.search(rf"\.entry {kernel}\((.*?)\)", ptx, re.DOTALL)
    assert found
    return [WIDTHS[kind] for kind in re.findall(r"\.param \.(\w+)", found[1])]


def nbytes(argument: Argument) -> int:
    """Return how many bytes an argument has: that of a buffer is its address."""
    assert isinstance(argument, str) or hasattr(argument, "nbytes")
    return 8 if isinstance(argument, str) else int(argument.nbytes)


@pytest.mark.parametrize(
    "types",
    [
        {},
        {"dtype": "bf16", "out": "bf16", "alpha": 2.0, "beta": 0.5},
        {"acc": "f16", "out": "f32", "layout": "nn"},
        {"dtype": "s8", "acc": "s32", "out": "s32"},
        {"dtype": "e4m3", "out": "bf16", "bias": True, "activation": "gelu"},
    ],
)
def test_every_launch_has_the_parameters_of_its_kernel(
    monkeypatch: pytest.MonkeyPatch, types: dict[str, Any]
) -> None:
    """As many as the kernel takes, each as wide, and in a module that the job has."""
    builds: list[Build] = []

    def kept(*args: Any, **options: Any) -> Build:
        builds.append(build_cuda(*args, **options))
        return builds[-1]

    monkeypatch.setattr(module, "build_cuda", kept)
    check = Check(problem(40, 72, 48, **types), "ints", 0)
    modules = check.modules("sm_90a")
    ptx = {build.cubin: build.ptx for build in builds}
    launches = (*check.fills(), *check.refills("c"), *check.compares("c"))
    assert {launch.module for launch in launches} == set(modules)
    for launch in launches:
        assert isinstance(launch, Launch)
        expected = parameters(ptx[modules[launch.module]], launch.kernel)
        assert [nbytes(each) for each in launch.arguments] == expected, launch.kernel
