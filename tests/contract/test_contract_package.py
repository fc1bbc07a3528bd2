"""What the package promises: dependencies by platform, each with its reason, and files inside."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

import ptxlab
from ptxlab import assets

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT: dict[str, Any] = tomllib.loads(TEXT)["project"]
NAMED_BY_THE_USER = {"cuda-python", "numpy", "typer", "rich", "pytest"}
NVIDIA = re.compile(r"nvidia|cuda|ncu|nvmath")


def requirements(extra: str = "") -> list[Requirement]:
    """Return the dependencies, those of an extra included."""
    lines = PROJECT["dependencies"] + (PROJECT["optional-dependencies"][extra] if extra else [])
    return [Requirement(line) for line in lines]


def needed_on(platform: str, machine: str, extra: str = "") -> set[str]:
    """Return the names that pip installs on such a machine."""
    system = {"linux": "Linux", "darwin": "Darwin", "win32": "Windows"}[platform]
    here = {
        **default_environment(),
        "sys_platform": platform,
        "platform_system": system,
        "platform_machine": machine,
        "os_name": "nt" if platform == "win32" else "posix",
    }
    return {r.name for r in requirements(extra) if r.marker is None or r.marker.evaluate(here)}


@pytest.mark.parametrize(
    ("platform", "machine"), [("darwin", "arm64"), ("darwin", "x86_64"), ("win32", "AMD64")]
)
@pytest.mark.parametrize("extra", ["", "cublas", "plot", "test"])
def test_no_nvidia_package_where_there_is_none(platform: str, machine: str, extra: str) -> None:
    """Such a machine installs what the models and recordings need, and that alone."""
    needed = needed_on(platform, machine, extra)
    assert {"numpy", "typer", "rich"} <= needed
    assert not {name for name in needed if NVIDIA.search(name)}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_linux_brings_the_whole_toolchain(machine: str) -> None:
    """Compiler, assembler, disassemblers, headers and launch, on both machines."""
    assert {
        "cuda-python",
        "nvidia-cuda-nvrtc",
        "nvidia-cuda-nvcc",
        "nvidia-cuda-cccl",
        "nvidia-cuda-nvdisasm",
        "nvidia-cuda-cuobjdump",
    } <= needed_on("linux", machine)


def test_binary_packages_have_the_lower_bound_that_avoids_placeholders() -> None:
    """Without >=13 pip chooses NVIDIA's empty packages."""
    for each in requirements():
        if each.name.startswith(("nvidia-", "cuda-")):
            assert not each.specifier.contains("12.9"), each


def test_every_dependency_has_its_reason() -> None:
    """One line, one comment, but for those that the project is made of."""
    block = TEXT.partition("\ndependencies = [")[2].partition("\n]\n")[0]
    lines = re.findall(r"""^\s*(["'])(.+)\1,(.*)$""", block, re.MULTILINE)
    assert [line for _, line, _ in lines] == PROJECT["dependencies"]
    for _, requirement, comment in lines:
        name = Requirement(requirement).name
        assert name in NAMED_BY_THE_USER or re.match(r"\s*# \w{3}", comment), requirement


def test_the_version_stands_in_two_places_alike() -> None:
    """The metadata's and the program's."""
    assert PROJECT["version"] == ptxlab.__version__


def test_kernels_and_probes_are_found() -> None:
    """From a checkout here; .ci/run asks the same of the wheel."""
    assert (assets.kernels_folder() / "include" / "ptxlab").is_dir()
    assert any(folder.glob("*/probe.py") for folder in assets.probe_folders())
