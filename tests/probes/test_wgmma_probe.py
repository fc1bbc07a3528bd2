"""The wgmma probe: the answers to the questions that people ask about wgmma."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.record import Record
from ptxlab.isa.wgmma import ACCUMULATORS
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
    assert {case.dtype for case in cases if case.a == "reg"} == set(ACCUMULATORS)
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
    """SBO fields of K-major operands; LBO is marked as ignored."""
    record = run(desc=True, major="K", swizzle=swizzle)
    fields = stored(record)
    assert fields["A", "SBO"] == fields["B", "SBO"] == sbo
    notes = {each["is"] for each in record.result["descriptors"] if each["field"] == "LBO"}
    assert notes == {"ignored"}
    assert f"SBO {16 * sbo}, LBO ignored" in record.result["conclusion"]


@pytest.mark.parametrize("swizzle", ["32B", "64B", "128B"])
def test_results_do_not_depend_on_lbo(swizzle: str) -> None:
    """Fields of 0, 1 and 16 give the same D; other descriptors are what the device gets."""
    cases = [PROBE.case("sm_90a", shape="m64n32k16", swizzle=swizzle, lbo=16 * field) for field in (0, 1, 16)]
    words = {PROBE.inputs(case)["descriptors"].tobytes() for case in cases}
    assert len(words) == 3
    results = {PROBE.expected(case)["accumulators"].tobytes() for case in cases}
    assert len(results) == 1


def test_a_wrong_sbo_is_explained() -> None:
    """Half the stride: the first eight rows are right, row 8 is read out of row 4, and the run fails."""
    record = run(sbo=512)
    assert record.exit_code == 1
    assert record.result["conclusion"].startswith(
        "Other elements of A are read than were meant: 896 of 1024 are read from elsewhere (rows 8-63, "
        "columns 0-15); SBO is 512, expected SBO 1024; [8,0] is read from the place of A[4,0]; elements of B"
    )


@pytest.mark.parametrize(
    ("params", "wrong"),
    [({"swizzle": "none", "lbo": 0},
      {"A": ("512 of 1024", "rows 0-63, columns 8-15", "LBO is 0, expected LBO 1024"),
       "B": ("512 of 1024", "rows 8-15, columns 0-63", "LBO is 0, expected LBO 1024")}),
     ({"swizzle": "64B", "major": "MN", "lbo": 0}, {"A": ("512 of 1024", "rows 32-63", "expected LBO 1024"),
                                                    "B": ("512 of 1024", "columns 32-63", "LBO 1024")}),
     ({"a": "reg", "sbo": 512}, {"B": ("896 of 1024", "rows 0-15, columns 8-63", "expected SBO 1024")}),
     ({"major_b": "MN", "swizzle": "64B", "lbo": 512, "shape": "m64n256k16"},
      {"B": ("3584 of 4096", "rows 0-15, columns 32-255", "LBO is 512, expected LBO 1024")})],
    ids=str,
)  # fmt: skip
def test_wrong_strides_are_told_of_the_operands_that_they_damage(
    params: dict[str, Any], wrong: dict[str, tuple[str, ...]]
) -> None:
    """How many elements, which, and the stride that was to be expected; the other operand is right."""
    checks = {each["name"]: each for each in run(**params).checks}
    for name in ("A", "B"):
        check = checks[f"elements of {name}"]
        assert check["ok"] == (name not in wrong)
        assert all(words in check["detail"] for words in wrong.get(name, ()))


def test_where_wrong_strides_read_is_what_d_must_show() -> None:
    """A device that answers otherwise is not told of by addresses that it did not use."""
    case = PROBE.case("sm_90a", sbo=512)
    outputs = {"accumulators": PROBE.expected(case)["accumulators"] ^ np.uint32(1)}
    record = Record()
    PROBE.examine(case, outputs, record)
    assert [check["ok"] for check in record.checks] == [False, False]
    assert all("D is not the product of what these descriptors read" in c["detail"] for c in record.checks)


def test_a_descriptor_that_reaches_too_far_is_refused() -> None:
    """16 times too far leaves the bytes that hold the operands."""
    with pytest.raises(UsageError, match=r"SBO 16384.*legal: within the 16384 bytes"):
        PROBE.case("sm_90a", sbo=16384)
    with pytest.raises(UsageError, match=r"B is K-major \(SBO 2048, LBO ignored\) and read up to byte 23550"):
        PROBE.case("sm_90a", sbo=2048)


def test_bytes_without_the_shift_are_named(run_here: Any) -> None:
    """Decoded, with the mistake by name, and a failing exit code."""
    done = run_here("probe", "wgmma", "--decode-desc", "0x4000040000010040", "--backend", "model")
    assert done.returncode == 1
    assert "SBO = 16384 B, expected 1024: forgot >>4?" in done.stdout
    record = run(decode_desc="0x4000004000010040")
    assert record.exit_code == 0
    fields = {each["field"]: (each["stored"], each["bytes"]) for each in record.result["decoded"]}
    assert fields["SBO"] == (64, 1024)
    assert fields["start"] == (64, 1024)
    assert "sound K-major descriptor" in record.result["conclusion"]


def test_a_descriptor_of_b_is_judged_as_one() -> None:
    """32 columns, MN-major, 64 bytes each: one span, whose LBO is not looked at; as A it is another."""
    word = "0x8000002004000040"
    params = {"decode_desc": word, "shape": "m64n32k16", "major": "K", "major_b": "MN", "swizzle": "64B"}
    of_b = run(**params, decode_as="B")
    assert of_b.exit_code == 0
    assert of_b.result["conclusion"] == f"{word} is a sound MN-major descriptor of B, swizzle 64B."
    wider = run(**params | {"shape": "m64n64k16"}, decode_as="B")
    assert "LBO = 16384 B, expected 1024: forgot >>4?" in wider.result["conclusion"]
    assert "K-major descriptor of A" in run(**params, decode_as="A").result["conclusion"]


def test_another_swizzle_than_was_asked_for_is_told() -> None:
    """--swizzle 64B beside a word of 128B; left out, any swizzle is legal and the sentence names it."""
    word = "0x4000004000010040"
    record = run(decode_desc=word, swizzle="64B")
    assert record.exit_code == 1
    assert record.result["conclusion"].startswith("its swizzle is 128B, expected 64B")
    assert run(decode_desc="0x8000002000010040").result["conclusion"].endswith("of A, swizzle 64B.")


@pytest.mark.parametrize("text", ["0x", "-1", "1" + "0" * 20, "swizzle"])
def test_what_is_no_descriptor(text: str) -> None:
    """64 bits, in any base that Python reads."""
    with pytest.raises(UsageError, match="legal: 64 bits"):
        PROBE.case("sm_90a", decode_desc=text)


@pytest.mark.parametrize(("dtype", "k"), [("f16", 16), ("e4m3", 32), ("tf32", 8)])
def test_advance_along_k(dtype: str, k: int) -> None:
    """+2 units a step inside the atom, the next atom 2048 on for 256 rows, 512 for 64."""
    record = run(dtype=dtype, shape=f"m64n256k{k}", k_advance=True)
    rows = record.result["k_advance"]
    assert [row["B"] for row in rows] == [0, 2, 4, 6, 2048, 2050, 2052, 2054]
    assert [row["A"] for row in rows] == [0, 2, 4, 6, 512, 514, 516, 518]
    assert [row["k"] for row in rows] == [k * step for step in range(8)]
    assert record.params["k_step"] == 1  # one instruction runs: the others are just shown
    assert len(run(dtype=dtype, k_step=3, k_advance=True).result["k_advance"]) == 3


def test_warpgroups_own_rows() -> None:
    """Each has four warps; rows 64 to 127 are the second warpgroup's, of D and of A alike."""
    record = run(warpgroups=2, a="reg", shape="m64n8k16")
    for name in ("A", "D"):
        entries = record.result[name]
        assert {entry["row"] for entry in entries if entry["warpgroup"] == 1} == set(range(64, 128))
        assert {entry["warp"] for entry in entries} == {0, 1, 2, 3}
        assert record.result["shapes"][name]["rows"] == 128
        formulas = {
            each: compile(text, each, "eval") for each, text in record.result["formulas"][name].items()
        }
        for entry in entries:
            assert all(eval(code, dict(entry)) == entry[each] for each, code in formulas.items())  # noqa: S307
    assert "warpgroup" not in run().result["D"][0]


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


@pytest.mark.parametrize(
    ("typed", "meant"),
    [({"trans_b": True}, {"major_b": "MN"}), ({"trans_a": True}, {"major": "MN", "major_b": "K"}),
     ({"trans_a": True, "trans_b": True}, {"major": "MN"}),
     ({"a": "reg", "trans_b": True}, {"a": "reg", "major_b": "MN"})],
    ids=str,
)  # fmt: skip
def test_transposes_are_majors(typed: dict[str, Any], meant: dict[str, Any]) -> None:
    """By PTX's name; bf16 may be transposed, and the same point is meant."""
    assert PROBE.identity(PROBE.case("sm_90a", dtype="bf16", **typed)) == PROBE.identity(
        PROBE.case("sm_90a", dtype="bf16", **meant)
    )


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
    """What fence, commit and wait are for, and what nothing checks."""
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
     ("sm_90a", {"dtype": "e4m3", "trans_b": True}, "legal MN-major: f16, bf16", "transpose"),
     ("sm_90a", {"trans_b": True, "major_b": "K"}, "--trans-b is --major-b MN", "leave one"),
     ("sm_90a", {"dtype": "b1"}, "wgmma of b1 exists .* not modelled here; modelled: f16", "layout support"),
     ("sm_90a", {"lbo": 8}, "LBO of 8 bytes; legal: multiples of 16", "")],
)  # fmt: skip
def test_illegal_points(arch: str, params: dict[str, Any], words: str, hint: str) -> None:
    """The reason, the legal set and the way out."""
    with pytest.raises(UsageError, match=words) as caught:
        PROBE.case(arch, **params)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    "params",
    [{}, {"swizzle": "none"}, {"swizzle": "64B", "major": "MN"}, {"k_step": 5, "dtype": "e4m3"},
     {"swizzle": "32B", "warpgroups": 2}],
    ids=str,
)  # fmt: skip
def test_every_element_in_shared_memory_has_its_byte(params: dict[str, Any]) -> None:
    """What the closed form says is where the descriptors read, and no two elements share a byte."""
    case = PROBE.case("sm_90a", **params)
    result = PROBE.report(case, PROBE.expected(case), measured=False)
    for name in "AB":
        found = np.array(result["shared"][name]["bytes"])
        assert found.shape == tuple(result["shapes"][name].values())
        row, col = np.indices(found.shape)
        told = eval(result["formulas"][name]["byte"], {}, {"row": row, "col": col})  # noqa: S307 - our own text
        np.testing.assert_array_equal(told, found)
        assert len(np.unique(found)) == found.size


def test_the_atom_is_drawn() -> None:
    """Eight rows of 128 bytes: chunk c of row r lies where c ^ r says; A and B alike in one picture."""
    (picture,) = run(dtype="bf16").result["pictures"]
    assert picture["title"].startswith("A and B in shared memory: 128B atom, 8 lines of 128 bytes")
    for row in range(8):
        assert picture["cells"][row] == [f"{8 * (c ^ row)}-{8 * (c ^ row) + 7}" for c in range(8)]
    plain, transposed = run(swizzle="none", major_b="MN").result["pictures"]
    assert plain["cells"] == [["0-7"]] * 8
    assert (plain["row_names"][1], transposed["row_names"][1]) == ("row 1, +16", "k 1, +16")


def test_a_in_registers_is_hinted_at() -> None:
    """Where A is in shared memory; and where it is not, it has no bytes."""
    assert "--a reg shows A in registers." in run().result["notes"]
    result = run(a="reg").result
    assert list(result["shared"]) == ["B"]
    assert result["notes"] == []


def test_what_is_asked_for_alone_is_shown(run_here: Any) -> None:
    """The five lines of a descriptor, not the whole of D before them."""
    done = run_here("probe", "wgmma", "--decode-desc", "0x4000004000010000", "--backend", "model")
    lines = done.stdout.splitlines()
    assert lines[1].startswith("0x4000004000010000 is a sound K-major descriptor")
    assert len(lines) < 20
    assert not any(word in done.stdout for word in ("D, 64 x 64", "wgmma.fence", "SASS:"))
    for flag in ("--desc", "--k-advance"):
        shown = run_here("probe", "wgmma", flag, "--backend", "model").stdout
        assert "D, 64 x 64" not in shown
        assert "Operands begin at multiples of 1024 bytes" in shown
        assert shown.splitlines()[1].startswith("In shared memory A is K-major (SBO 1024, LBO ignored) and B")


def test_descriptors_of_every_step() -> None:
    """Of four steps and two warpgroups: eight pairs; A's differ by step and warpgroup, B's by step."""
    rows = run(desc=True, k_step=4, warpgroups=2).result["descriptor_words"]
    assert [(row["step"], row["warpgroup"]) for row in rows] == [(s, g) for s in range(4) for g in range(2)]
    assert [row["start of B"] - rows[0]["start of B"] for row in rows[::2]] == [0, 32, 64, 96]
    assert rows[1]["start of A"] - rows[0]["start of A"] == 64 * 128
    assert rows[0]["B"] == rows[1]["B"]
    assert int(rows[2]["A"], 16) - int(rows[0]["A"], 16) == 2


def test_an_advance_has_units_and_says_where_it_ends() -> None:
    """In 16-byte units, in bytes, inside the atom or at the next; and in the sentence."""
    record = run(dtype="bf16", shape="m64n256k16", k_advance=True)
    rows = record.result["k_advance"]
    assert [row["A_bytes"] for row in rows] == [16 * row["A"] for row in rows]
    inside = ["inside the atom"] * 3
    assert [row["A_is"] for row in rows] == ["the start", *inside, "atom 1", *inside]
    assert (
        "A + 2 a step of 16, at step 4 512 from the first; B + 2 a step of 16, at step 4 2048"
        in (record.result["conclusion"])
    )


def test_a_cutlass_name_is_explained(run_here: Any) -> None:
    """Each field; under both flags, and in both spellings of CUTLASS."""
    outputs = [
        run_here("probe", "wgmma", flag, name, "--backend", "model").stdout
        for flag in ("--layout", "--atom")
        for name in ("SM90_64x256x16_F32BF16BF16_SS", "MMA_64x256x16_F32BF16BF16_SS")
    ]
    for text in outputs:
        assert "is m64n256k16: D is f32, A bf16, B bf16; SS: A and B both from shared memory" in text
    assert outputs[0] == outputs[2]


def test_help_shows_no_sentinels(run_here: Any) -> None:
    """What leaving an option out means stands in its help."""
    assert "-1" not in run_here("probe", "wgmma", "--help").stdout


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
    """C7519 by name from a ptxas that gives it; from others nothing, and nothing is claimed of it."""
    report = compiled("unfenced", "mma commit wait")
    assert report["counts"].get("WARPGROUP.ARRIVE", 0) == 1  # put in by ptxas, said or not
    assert all("C7519" in each for each in report["advisories"])
    if not report["advisories"]:
        pytest.skip("this ptxas puts the fence in without saying so")


def test_a_missing_wait_is_reported() -> None:
    """C7517, and the wait that was put in."""
    report = compiled("unwaited", "fence mma commit")
    assert any("C7517" in each for each in report["advisories"])
    assert report["counts"]["WARPGROUP.DEPBAR.LE"] == 1


def test_touching_accumulators_in_flight_is_reported() -> None:
    """Between two wgmma, without a wait before and a fence after."""
    report = compiled("touched", "fence mma commit touch mma commit wait")
    assert any("C7517" in each for each in report["advisories"])


def test_a_release_too_early_is_not_diagnosed() -> None:
    """Shared memory is overwritten before the wait and nobody says a word, which is why the rules do."""
    report = compiled("early", "fence mma commit store wait")
    assert report["families"]["STS"] == 1
    assert report["advisories"] == report["warnings"] == []


def test_two_identical_wgmma() -> None:
    """A ptxas that keeps one of two is found out by the counts; different descriptors keep both."""
    report = compiled("twice", "fence mma mma commit wait")
    kept = report["tensor_ops"]
    assert kept in (1, 2)
    said = [each for each in report["warnings"] if "2 wgmma.mma_async in PTX, 1 in SASS" in each]
    assert bool(said) == (kept == 1)
    different = compiled("different", "fence mma advance mma commit wait")
    assert different["tensor_ops"] == 2
    assert different["warnings"] == []
