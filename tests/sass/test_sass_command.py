"""Behaviours of ``ptxlab sass`` and ``ptxlab cache`` as a user meets them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, NoReturn

import pytest
import sass_sources as sources

from ptxlab.errors import MissingError
from ptxlab.experiments import registry, sass
from ptxlab.experiments.record import Record
from ptxlab.experiments.sass import sass_record
from ptxlab.toolchain.options import Options
from ptxlab.toolchain.tools import locate

RunCli = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write one file of each kind that the command takes, and some that it must refuse."""
    folder = tmp_path_factory.mktemp("sources")
    (folder / "loops.cu").write_text(sources.LOOPS)
    (folder / "wgmma.cu").write_text(sources.WGMMA)
    (folder / "names.cu").write_text(sources.NAMES)
    (folder / "host.cu").write_text("#include <cstdio>\nint main() { return 0; }\n")
    (folder / "volta.ptx").write_text(sources.module("sm_75", sources.VOLTA))
    (folder / "junk.cubin").write_text("junk")
    (folder / "bad.cu").write_text("\n\n__global__ void k() { missing(); }\n")
    (folder / "f64.ptx").write_text(sources.module("sm_90", sources.F64))
    return folder


def document(done: CompletedProcess[str]) -> dict[str, Any]:
    """Return the JSON document on stdout."""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_several_architectures_at_once(run_here: RunCli, files: Path) -> None:
    """Four steps on Turing; on Hopper no tensor operation, and a note."""
    done = run_here("sass", str(files / "volta.ptx"), "--arch", "sm_75,sm_90", "--json")
    assert done.returncode == 0
    found = document(done)
    assert (found["arch"], found["params"]["arch"]) == ("", ["sm_75", "sm_90"])
    kernels = {each["arch"]: each for each in found["result"]["kernels"]}
    assert {arch: each["tensor_ops"] for arch, each in kernels.items()} == {"sm_75": 4, "sm_90": 0}
    assert [entry["ptx"] for entry in kernels["sm_90"]["emulated"]] == [sources.VOLTA.opcode]


def test_the_table_shows_what_an_engineer_looks_for(run_here: RunCli, files: Path) -> None:
    """Every opcode, the loops and the padding of the chosen kernel, and of no other."""
    done = run_here("sass", str(files / "loops.cu"), "--arch", "sm_90", "--kernel", "by_four")
    assert done.returncode == 0
    for text in ("by_four", "HMMA.16816.F32", "loops of by_four", "padding", "Counts are static"):
        assert text in done.stdout
    assert "not_unrolled" not in done.stdout


def test_emulation_and_advisories_are_shown(run_here: RunCli, files: Path) -> None:
    """People see them too, with what would help."""
    volta = run_here("sass", str(files / "volta.ptx"), "--arch", "sm_90").stdout
    assert "emulated in volta (sm_90)" in volta
    wgmma = run_here("sass", str(files / "wgmma.cu")).stdout
    assert "__launch_bounds__(threads, 1)" in wgmma


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("junk.cubin",), 4, "nvdisasm"),
        (("none.cu",), 2, "none.cu does not exist"),
        (("loops.cu", "--arch", "sm_91"), 2, "legal: sm_75"),
        (("names.cu", "--kernel", "sized<3>"), 2, "there are: "),
        (("loops.cu", "--arch", "sm_90,"), 2, "unknown architecture ''"),
        (("loops.cu", "--arch", "sm_90", "--kernel", "many"), 2, "there is no kernel 'many'; there are: not"),
        (("loops.cu", "-O", "9"), 2, "legal: 0, 1, 2, 3"),
        (("bad.cu",), 4, 'bad.cu:3: error: identifier "missing" is undefined'),
        (("wgmma.cu", "--arch", "sm_90"), 4, "hint: use sm_90a"),
        (("files.txt",), 2, "legal: a .cu, .ptx, .cubin file, probe:"),
    ],
)
def test_bad_input_is_one_line_and_the_right_code(
    run_here: RunCli, files: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """One line, at most one hint, the exit code of the contract, and the document that says the same."""
    done = run_here("sass", str(files / arguments[0]), *arguments[1:], "--json")
    assert done.returncode == code
    assert said in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert document(done)["error"]["exit"] == code


def test_the_whole_log_of_the_compiler_is_in_the_document(run_here: RunCli, files: Path) -> None:
    """The one line points; the compiler's own words are there to read."""
    done = run_here("sass", str(files / "bad.cu"), "--json")
    assert "1 error detected" in document(done)["result"]["log"]
    assert "1 error detected" in run_here("sass", str(files / "bad.cu")).stdout


def test_what_compiles_is_reported_beside_what_does_not(run_here: RunCli, files: Path) -> None:
    """One architecture refuses, with its reason; the other's answer is there."""
    done = run_here("sass", str(files / "wgmma.cu"), "--arch", "sm_120a,sm_90a", "--json")
    found = document(done)
    assert done.returncode == found["error"]["exit"] == 4
    assert {each["arch"] for each in found["result"]["kernels"]} == {"sm_90a"}
    assert [each["case"] for each in found["skipped"]] == ["sm_120a"]
    assert "wgmma exists on sm_90a alone" in found["error"]["hint"]


def test_every_experiment_s_claims_hold() -> None:
    """The target names a probe or a stage; its claims are checked kernel by kernel."""
    targets: list[tuple[str, list[str]]] = []
    for entry in registry.probe_entries():
        probe = registry.find_probe(entry.name)
        arch = next(each for each in ("sm_90a", "sm_100a") if any(probe.variants(each)))
        targets.append((f"probe:{entry.name}", [arch]))
    stages = [registry.find_stage(each.name) for each in registry.stage_entries()]
    targets += [(f"gemm:{stage.name}", [stage.only or "sm_90a"]) for stage in stages]
    assert targets
    for target, archs in targets:
        record = sass_record(target, archs, Options())
        assert len(record.checks) >= len(record.result["kernels"]) > 0
        assert [check for check in record.checks if not check["ok"]] == []


def test_a_claim_that_fails_is_exit_1(
    run_here: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's probe whose kernel has no LDSM does not hold its claim of one."""
    folder = tmp_path / "wrong"
    folder.mkdir()
    (folder / "kernel.cu").write_text('extern "C" __global__ void KERNEL(int* p) { *p = 1; }\n')
    (folder / "probe.py").write_text(
        '"""Does it hold?"""\n'
        "from ptxlab.experiments.probe import Probe\n"
        "class Wrong(Probe):\n"
        "    def inputs(self, case): return {}\n"
        "    def expected(self, case): return {}\n"
        "    def conclude(self, case, record): return ''\n"
        "    def claims(self, case): return {'LDSM': 1}\n"
    )
    monkeypatch.setenv("PTXLAB_PROBES", str(tmp_path))
    done = run_here("sass", "probe:wrong", "--json")
    assert done.returncode == 1, done.stderr
    failed = [check for check in document(done)["checks"] if not check["ok"]]
    assert ["SASS holds 1 LDSM" in check["name"] for check in failed] == [True]


def test_a_probe_without_a_legal_variant_is_no_success(
    run_here: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 0 never means that nothing could be done."""
    folder = tmp_path / "nowhere"
    folder.mkdir()
    (folder / "kernel.cu").write_text('extern "C" __global__ void KERNEL() {}\n')
    (folder / "probe.py").write_text(
        "from ptxlab.experiments.probe import Probe\n"
        "class Nowhere(Probe):\n"
        "    def variants(self, arch): return iter(())\n"
        "    def inputs(self, case): return {}\n"
        "    def expected(self, case): return {}\n"
        "    def conclude(self, case, record): return ''\n"
    )
    monkeypatch.setenv("PTXLAB_PROBES", str(tmp_path))
    done = run_here("sass", "probe:nowhere", "--arch", "sm_80")
    assert done.returncode == 2
    assert "nowhere has no variant that is legal on sm_80" in done.stderr


def test_options_of_the_compiler_are_for_files(run_here: RunCli) -> None:
    """A probe's macros are its own; -O has nothing to act on."""
    done = run_here("sass", f"probe:{registry.probe_entries()[0].name}", "-O", "1")
    assert done.returncode == 2
    assert "does not apply to a probe" in done.stderr


def test_the_record_names_what_made_the_code(files: Path) -> None:
    """The compiler's version, and the folder with source, PTX and cubin."""
    record: Record = sass_record(str(files / "loops.cu"), ["sm_90"], Options())
    (build,) = record.result["builds"]
    assert build["compiler"].startswith("NVRTC 13.")
    assert record.environment["compiler"] == build["compiler"]
    assert Path(build["folder"], "kernel.ptx").is_file()


def test_the_cache_can_be_looked_at_and_emptied(
    run_here: RunCli, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was built is counted; clear removes it and says how much that was."""
    monkeypatch.setenv("PTXLAB_CACHE", str(tmp_path / "cache"))
    assert run_here("sass", str(files / "volta.ptx"), "--arch", "sm_75").returncode == 0
    info = document(run_here("cache", "info", "--json"))["result"]
    assert info["folder"] == str(tmp_path / "cache")
    assert info["entries"] == 1
    assert 0 < info["bytes"] < info["limit_bytes"] == 512_000_000
    assert str(tmp_path / "cache") in run_here("cache", "info").stdout
    removed = document(run_here("cache", "clear", "--json"))["result"]["removed"]
    assert removed["entries"] == 1
    assert document(run_here("cache", "info", "--json"))["result"]["entries"] == 0
    assert "0 builds" in run_here("cache", "clear").stdout


def test_ptx_is_reported_for_its_own_target(run_here: RunCli, files: Path) -> None:
    """One that is for an older chip than the default is not turned into something else."""
    assert document(run_here("sass", str(files / "volta.ptx"), "--json"))["arch"] == "sm_75"
    assert document(run_here("sass", str(files / "f64.ptx"), "--json"))["arch"] == "sm_90"
    assert ".target" in run_here("sass", "--help").stdout


@pytest.mark.parametrize(
    ("kernel", "symbols"),
    [
        ("spill", ["_Z5spillPf"]),
        ("_Z5spillPf", ["_Z5spillPf"]),
        ("ns::inner::deep", ["_ZN2ns5inner4deepEPf"]),
        ("sized", ["_ZN2ns5sizedILi3EEEvPf", "_ZN2ns5sizedILi4EEEvPf"]),
        ("_ZN2ns5sizedILi4EEEvPf", ["_ZN2ns5sizedILi4EEEvPf"]),
    ],
)
def test_a_kernel_is_chosen_by_its_name_in_the_source(
    run_here: RunCli, files: Path, kernel: str, symbols: list[str]
) -> None:
    """Nobody types a mangled name; the name of a template means all its instances."""
    found = document(run_here("sass", str(files / "names.cu"), "--kernel", kernel, "--json"))
    assert [each["name"] for each in found["result"]["kernels"]] == symbols


def test_the_table_has_names_that_can_be_read(run_here: RunCli, files: Path) -> None:
    """Only where several share one the symbols stand."""
    shown = run_here("sass", str(files / "names.cu")).stdout
    for name in (" spill ", " ns::inner::deep ", " hidden ", " _ZN2ns5sizedILi3EEEvPf "):
        assert name in shown
    assert "_Z5spillPf" not in shown


def test_a_name_takes_few_lines_of_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns the numbers leave the names of a probe's kernels a quarter of the width."""
    from ptxlab.render.terminal import to_terminal
    from ptxlab.render.views.sass import view

    shown = sass_record("probe:ldmatrix", [], Options()).document()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    overview, *_ = view(shown)
    lines = to_terminal([overview]).splitlines()[3:]
    assert len(lines) <= 3 * len(shown["result"]["kernels"])


def test_variants_of_a_stage_are_told_apart_by_their_options(run_here: RunCli) -> None:
    """Their names hold every macro, and on a terminal all begin alike; what stands there chooses one, too."""
    shown = run_here("sass", "gemm:wmma-naive").stdout
    assert " default " in shown
    assert " dtype=bf16 out=bf16 " in shown
    assert "wmma_naive_TYPE" not in shown
    chosen = run_here("sass", "gemm:wmma-naive", "--kernel", "dtype=bf16 out=bf16", "--json")
    (kernel,) = document(chosen)["result"]["kernels"]
    assert kernel["name"].startswith("wmma_naive_TYPE__nv_bfloat16_")
    wrong = run_here("sass", "gemm:wmma-naive", "--kernel", "dtype=f64").stderr
    assert "there are: default, " in wrong


def test_a_stage_is_compiled_in_units_and_each_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its kernels are there, in the order and with the checks of a single unit."""
    whole = sass_record("gemm:wmma-naive", [], Options())
    monkeypatch.setattr(sass, "OF_A_UNIT", 4)
    told: list[tuple[str, int, int]] = []
    record = sass_record("gemm:wmma-naive", [], Options(), report=lambda *what: told.append(what))
    names = [each["name"] for each in record.result["kernels"]]
    units = -(-len(names) // 4)
    assert units > 1
    assert told == [("compiling wmma-naive for sm_90a", done, units) for done in range(units)]
    assert names == [each["name"] for each in whole.result["kernels"]]
    assert record.checks == whole.checks
    assert (len(record.result["builds"]), record.arch) == (units, "sm_90a")


@pytest.mark.parametrize(("more", "drawn"), [((), True), (("--json",), False)])
def test_a_bar_is_shown_to_people(
    run_here: RunCli, files: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], drawn: bool
) -> None:
    """On a terminal alone, and on stderr: a stage takes half a minute to compile."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    done = run_here("sass", str(files / "loops.cu"), *more)
    assert ("compiling " in done.stderr) == drawn
    assert "compiling " not in done.stdout


def test_wgmma_without_a_fence_is_told_and_what_is_not_checked(run_here: RunCli, files: Path) -> None:
    """Whatever ptxas says of it; and that nobody looks at the release of shared memory."""
    done = run_here("sass", str(files / "wgmma.cu"), "--kernel", "no_fence")
    assert "wgmma.fence in PTX: none, WARPGROUP.ARRIVE in SASS: 1, injected by ptxas" in done.stdout
    assert "release of shared memory: not checked here" in done.stdout
    assert "release of shared memory" not in run_here("sass", str(files / "loops.cu")).stdout


def test_flop_of_the_tensor_instructions(run_here: RunCli, files: Path) -> None:
    """4096 of one HMMA.16816 of a warp; of wgmma by a whole warpgroup; of other kernels none."""
    found = document(run_here("sass", str(files / "loops.cu"), "--arch", "sm_90", "--flops", "--json"))
    kernels = {each["name"]: each["flops"] for each in found["result"]["kernels"]}
    (by_four,) = kernels["fully"]
    assert by_four == {
        "opcode": "HMMA.16816.F32", "count": 16, "flop": 4096, "by": "warp", "total": 16 * 4096,
    }  # fmt: skip
    assert kernels["nested"] == []
    shown = run_here("sass", str(files / "wgmma.cu"), "--kernel", "good", "--flops").stdout
    assert "warpgroup of 4 warps" in shown
    assert (
        "flops" not in document(run_here("sass", str(files / "loops.cu"), "--json"))["result"]["kernels"][0]
    )


def test_dummies_are_told_apart(run_here: RunCli, files: Path) -> None:
    """What looks like a tensor operation and is none is explained."""
    shown = run_here("sass", str(files / "wgmma.cu"), "--kernel", "empty_groups").stdout
    assert "tensor operations: 1; 2 more are dummies injected by ptxas" in shown
    assert "dummies" not in run_here("sass", str(files / "wgmma.cu"), "--kernel", "good").stdout


def test_of_host_code_the_command_that_works_is_shown(
    run_here: RunCli, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be pasted: the nvcc that is here by its path; without one, what brings it."""
    nvcc, source = locate("nvcc")[0], files / "host.cu"
    assert (
        f"{nvcc} -arch=sm_90a -lineinfo -cubin {source} -o host.cubin && ptxlab sass host.cubin"
        in run_here("sass", str(source)).stderr
    )
    assert "-arch=sm_80 " in run_here("sass", str(source), "--arch", "sm_80").stderr
    monkeypatch.setattr("ptxlab.toolchain.messages.locate", no_tool)
    hint = run_here("sass", str(source)).stderr
    assert f"nvcc -arch=sm_90a -lineinfo -cubin {source} -o host.cubin" in hint
    assert "(the command that brings it)" in hint


def no_tool(name: str) -> NoReturn:
    """Say that there is none."""
    raise MissingError(f"no {name}", "the command that brings it")
