"""The wgmma probe: the answers to the questions that people ask about wgmma."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.record import Record
from ptxlab.sass.report import kernels
from ptxlab.toolchain.build import build_cuda

MODEL = runner.Lab("sm_90a", None, None, "the model was asked for")
PROBE = registry.find_probe("wgmma")


def run(arch: str = "sm_90a", **params: Any) -> Record:
    """Run one point on the model."""
    return runner.run_probe(PROBE, PROBE.case(arch, **params), MODEL)[0]


def stored(record: Record) -> dict[tuple[str, str], int]:
    """The descriptors' fields as they are stored."""
    return {(each["operand"], each["field"]): each["stored"] for each in record.result["descriptors"]}


def test_there_are_variants_of_every_kind() -> None:
    """Every N, type, major and swizzle, A from both places, several steps and warpgroups; each once."""
    cases = list(PROBE.variants("sm_90a"))
    assert len(cases) == len({case.key for case in cases}) >= 130
    assert {f"m64n{n}k16" for n in range(8, 257, 8)} <= {case.shape for case in cases}
    layouts = {(c.major, c.major_b, c.swizzle) for c in cases if c.dtype == "f16" and c.shape == "m64n72k16"}
    assert len(layouts) >= 4 * 4
    assert {case.dtype for case in cases if case.a == "reg"} == set(PROBE.options()["dtype"].choices)
    assert {case.warpgroups for case in cases} == {1, 2}
    assert not list(PROBE.variants("sm_100a"))


def test_the_instruction_reads_what_the_host_laid_out() -> None:
    """On every variant, A and B come back out of the bytes that the descriptors read."""
    for case in PROBE.variants("sm_90a"):
        record = Record()
        PROBE.examine(case, PROBE.expected(case), record)
        assert [check for check in record.checks if not check["ok"]] == [], case.key
        assert len(record.checks) == 2


def test_no_two_variants_of_a_layout_have_the_same_memory() -> None:
    """Majors and swizzles really move bytes: what is multiplied is the same, where it lies is not."""
    cases = [
        PROBE.case("sm_90a", major=m, swizzle=s) for m in ("K", "MN") for s in ("none", "32B", "64B", "128B")
    ]
    memories = {PROBE.inputs(case)["memory"].tobytes() for case in cases}
    assert len(memories) == len(cases)
    first = PROBE.expected(cases[0])["accumulators"]
    for case in cases:
        np.testing.assert_array_equal(PROBE.expected(case)["accumulators"], first)


@pytest.mark.parametrize(("swizzle", "sbo"), [("128B", 64), ("64B", 32), ("32B", 16)])
def test_descriptor_fields(swizzle: str, sbo: int) -> None:
    """C53: SBO fields of K-major operands; LBO is marked as ignored."""
    record = run(desc=True, major="K", swizzle=swizzle)
    fields = stored(record)
    assert fields["A", "SBO"] == fields["B", "SBO"] == sbo
    notes = {each["is"] for each in record.result["descriptors"] if each["field"] == "LBO"}
    assert notes == {"ignored"}
    assert f"SBO {16 * sbo}, LBO ignored" in record.result["conclusion"]


@pytest.mark.parametrize("swizzle", ["32B", "64B", "128B"])
def test_results_do_not_depend_on_lbo(swizzle: str) -> None:
    """C53: fields of 0, 1 and 16 give the same D; other descriptors are what the device gets."""
    cases = [PROBE.case("sm_90a", shape="m64n32k16", swizzle=swizzle, lbo=16 * field) for field in (0, 1, 16)]
    words = {PROBE.inputs(case)["descriptors"].tobytes() for case in cases}
    assert len(words) == 3
    results = {PROBE.expected(case)["accumulators"].tobytes() for case in cases}
    assert len(results) == 1


def test_a_wrong_sbo_is_explained() -> None:
    """Half the stride: rows 8 to 15 are read out of row 4 on, and the run fails."""
    record = run(sbo=512)
    assert record.exit_code == 1
    assert record.result["conclusion"].startswith("Other elements of A are read than were meant")


def test_a_descriptor_that_reaches_too_far_is_refused() -> None:
    """C54: 16 times too far leaves the bytes that hold the operands."""
    with pytest.raises(UsageError, match=r"SBO 16384.*legal: within the 16384 bytes"):
        PROBE.case("sm_90a", sbo=16384)


def test_bytes_without_the_shift_are_named(run_here: Any) -> None:
    """C54: decoded, with the mistake by name, and a failing exit code."""
    done = run_here("probe", "wgmma", "--decode-desc", "0x4000040000010040", "--backend", "model")
    assert done.returncode == 1
    assert "SBO = 16384 B, expected 1024: forgot >>4?" in done.stdout
    record = run(decode_desc="0x4000004000010040")
    assert record.exit_code == 0
    fields = {each["field"]: (each["stored"], each["bytes"]) for each in record.result["decoded"]}
    assert fields["SBO"] == (64, 1024)
    assert fields["start"] == (64, 1024)
    assert "sound K-major descriptor" in record.result["conclusion"]


@pytest.mark.parametrize("text", ["0x", "-1", "1" + "0" * 20, "swizzle"])
def test_what_is_no_descriptor(text: str) -> None:
    """64 bits, in any base that Python reads."""
    with pytest.raises(UsageError, match="legal: 64 bits"):
        PROBE.case("sm_90a", decode_desc=text)


@pytest.mark.parametrize(("dtype", "k"), [("f16", 16), ("e4m3", 32), ("tf32", 8)])
def test_advance_along_k(dtype: str, k: int) -> None:
    """C56: +2 units a step inside the atom, the next atom 2048 on for 256 rows, 512 for 64."""
    record = run(dtype=dtype, shape=f"m64n256k{k}", k_advance=True)
    rows = record.result["k_advance"]
    assert [row["B"] for row in rows] == [0, 2, 4, 6, 2048, 2050, 2052, 2054]
    assert [row["A"] for row in rows] == [0, 2, 4, 6, 512, 514, 516, 518]
    assert [row["k"] for row in rows] == [k * step for step in range(8)]


def test_warpgroups_own_rows() -> None:
    """Warps 4 to 7 are the second warpgroup; its rows are 64 to 127, of D and of A alike."""
    record = run(warpgroups=2, a="reg", shape="m64n8k16")
    for name in ("A", "D"):
        rows = {entry["row"] for entry in record.result[name] if entry["warp"] >= 4}
        assert rows == set(range(64, 128))
        assert record.result["shapes"][name]["rows"] == 128


def test_operands_in_registers_alone_have_maps() -> None:
    """B never does, A when it comes in registers, D always."""
    assert {"A", "D"} <= set(run(a="reg").result)
    record = run()
    assert not {"A", "B"} & set(record.result)
    assert len(record.result["D"]) == 64 * 64


def test_measured_coordinates_come_from_the_accumulators() -> None:
    """With outputs of a device, each entry has what it shows: row and column of itself, or of another."""
    case = PROBE.case("sm_90a", shape="m64n8k16", a="reg")
    outputs = {"accumulators": PROBE.expected(case)["accumulators"].copy()}
    result = PROBE.report(case, outputs, measured=True)
    for entry in (*result["A"], *result["D"]):
        assert entry["value"] == entry["row"] << 8 | entry["col"]
    outputs["accumulators"][:, 0, 1, 5, [0, 1]] = outputs["accumulators"][:, 0, 1, 5, [1, 0]]
    changed = [
        e for e in PROBE.report(case, outputs, measured=True)["D"] if e["value"] != e["row"] << 8 | e["col"]
    ]
    assert {(e["warp"], e["lane"], e["register"]) for e in changed} == {(1, 5, 0), (1, 5, 1)}


def test_a_cutlass_name_is_the_same_point() -> None:
    """An atom's name stands for a shape, types and where A is."""
    named = PROBE.case("sm_90a", layout="SM90_64x256x16_F32BF16BF16F32_SS")
    typed = PROBE.case("sm_90a", shape="m64n256k16", dtype="bf16", acc="f32", dtype_b="bf16")
    assert PROBE.macros(named) == PROBE.macros(typed)
    assert {**named.params, "layout": ""} == typed.params
    with pytest.raises(UsageError, match="--shape says m64n8k16"):
        PROBE.case("sm_90a", layout="SM90_64x256x16_F32BF16BF16F32_SS", shape="m64n8k16")


def test_the_sass_claim_is_checked() -> None:
    """One HGMMA, QGMMA or IGMMA of the claimed shape; one fence; one wait; no advisory."""
    for params, opcode in (
        ({"dtype": "bf16"}, "HGMMA.64x64x16.F32.BF16"),
        ({"dtype": "e4m3", "dtype_b": "e5m2", "shape": "m64n32k32"}, "QGMMA.64x32x32.F32.E4M3.E5M2"),
        ({"dtype": "s8", "shape": "m64n256k32"}, "IGMMA.64x256x32.S8.S8"),
    ):
        record = run(**params)
        assert record.result["sass"]["counts"][opcode] == 1
        assert record.result["sass"]["counts"]["WARPGROUP.ARRIVE"] == 1
        assert record.result["sass"]["advisories"] == record.result["sass"]["warnings"] == []
        assert record.exit_code == 0


def test_the_rules_are_shown() -> None:
    """C59: what fence, commit and wait are for, and what nothing checks."""
    rules = {each["instruction"]: each["rule"] for each in run().result["rules"]}
    assert {"wgmma.fence", "wgmma.commit_group", "wgmma.wait_group N", "fence.proxy.async"} <= rules.keys()
    assert "not checked by anything" in rules["release of shared memory"]


@pytest.mark.parametrize(
    ("arch", "params", "words", "hint"),
    [("sm_120a", {}, "exists only on sm_90a", "mma.sync"),
     ("sm_100a", {}, "exists only on sm_90a", "tcgen05"), ("sm_90", {}, "exists only on sm_90a", "sm_90a"),
     ("sm_90a", {"shape": "m64n12k16"}, "legal: m64nNk16 with N of 8 to 256", "next larger N"),
     ("sm_90a", {"dtype": "e4m3", "major_b": "MN"}, "legal MN-major: f16, bf16", "transpose"),
     ("sm_90a", {"dtype": "tf32", "major": "MN"}, "legal MN-major: f16, bf16", "transpose"),
     ("sm_90a", {"dtype": "bf16", "acc": "f16"}, "legal: f32", "f16 and 8-bit floats"),
     ("sm_90a", {"k_step": 9}, "9 steps along K; legal: 1 to 8", ""),
     ("sm_90a", {"lbo": 8}, "LBO of 8 bytes; legal: multiples of 16", "")],
)  # fmt: skip
def test_illegal_points(arch: str, params: dict[str, Any], words: str, hint: str) -> None:
    """C57, C68, C69: the reason, the legal set and the way out."""
    with pytest.raises(UsageError, match=words) as caught:
        PROBE.case(arch, **params)
    assert hint in (caught.value.hint or "")


STEPS = {
    "fence": 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");',
    "mma": 'asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0; '
           'wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %4, p, 1, 1, 0, 0;}" '
           ': "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a));',
    "commit": 'asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");',
    "wait": 'asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");',
    "advance": "a += 2;",
    "touch": "d[0] += 1;",
    "store": 'asm volatile("st.shared.u32 [%0], %0;" :: "r"((unsigned)a) : "memory");',
}  # fmt: skip
"""What kernels of wgmma are made of; four accumulators d, one descriptor a."""


def compiled(name: str, steps: str) -> dict[str, Any]:
    """Compile a kernel that takes these steps, and return what its SASS holds."""
    body = "\n".join(STEPS[step] for step in steps.split())
    source = (
        f'extern "C" __global__ void {name}(float *p, unsigned long long a) {{ float d[4];\n'
        f"for (int i = 0; i < 4; ++i) d[i] = p[i];\n{body}\nfor (int i = 0; i < 4; ++i) p[i] = d[i]; }}"
    )
    report: dict[str, Any] = kernels(build_cuda(source, name=f"/sources/{name}.cu", arch="sm_90a"))[0]
    return report


def test_a_missing_fence_is_reported_where_ptxas_says_so() -> None:
    """C59: C7519 by name from a ptxas that gives it; from others nothing, and nothing is claimed of it."""
    report = compiled("unfenced", "mma commit wait")
    assert report["counts"].get("WARPGROUP.ARRIVE", 0) == 1  # put in by ptxas, said or not
    assert all("C7519" in each for each in report["advisories"])
    if not report["advisories"]:
        pytest.skip("this ptxas puts the fence in without saying so")


def test_a_missing_wait_is_reported() -> None:
    """C59: C7517, and the wait that was put in."""
    report = compiled("unwaited", "fence mma commit")
    assert any("C7517" in each for each in report["advisories"])
    assert report["counts"]["WARPGROUP.DEPBAR.LE"] == 1


def test_touching_accumulators_in_flight_is_reported() -> None:
    """C59: between two wgmma, without a wait before and a fence after."""
    report = compiled("touched", "fence mma commit touch mma commit wait")
    assert any("C7517" in each for each in report["advisories"])


def test_a_release_too_early_is_not_diagnosed() -> None:
    """C59: shared memory is overwritten before the wait and nobody says a word, which is why the rules do."""
    report = compiled("early", "fence mma commit store wait")
    assert report["families"]["STS"] == 1
    assert report["advisories"] == report["warnings"] == []


def test_two_identical_wgmma() -> None:
    """C61: a ptxas that keeps one of two is found out by the counts; different descriptors keep both."""
    report = compiled("twice", "fence mma mma commit wait")
    kept = report["tensor_ops"]
    assert kept in (1, 2)
    said = [each for each in report["warnings"] if "2 wgmma.mma_async in PTX, 1 in SASS" in each]
    assert bool(said) == (kept == 1)
    different = compiled("different", "fence mma advance mma commit wait")
    assert different["tensor_ops"] == 2
    assert different["warnings"] == []
