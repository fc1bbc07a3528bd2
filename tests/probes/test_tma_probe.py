"""The tma probe: the answers to the questions that people ask about tensor maps, TMA loads and stores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.record import Record
from ptxlab.isa import tma_reduce
from ptxlab.isa.tensor_map import SIZES, TensorMap

RunCli = Callable[..., CompletedProcess[str]]
MODEL = runner.Lab("sm_90a", None, None, "the model was asked for")
PROBE = registry.find_probe("tma")


def run(**params: Any) -> Record:
    """Run one point on the model."""
    return runner.run_probe(PROBE, PROBE.case("sm_90a", **params), MODEL)[0]


def failed(record: Record) -> dict[str, str]:
    """The checks that failed, with what they say."""
    return {check["name"]: check["detail"] for check in record.checks if not check["ok"]}


def cells(record: Record) -> list[list[str]]:
    """The picture of shared memory."""
    picture: dict[str, Any] = record.result["pictures"][0]
    found: list[list[str]] = picture["cells"]
    return found


def test_there_are_variants_of_every_kind() -> None:
    """Every type, rank, swizzle, fill, promotion, reduction, interleave and im2col; each once."""
    cases = list(PROBE.variants("sm_90a"))
    assert len(cases) == len({case.key for case in cases}) >= 80
    assert {case.dtype for case in cases} == set(SIZES)
    assert {case.shape.count("x") + 1 for case in cases if case.op == "load"} == {1, 2, 3, 4, 5}
    assert {case.swizzle for case in cases} == {"none", "32B", "64B", "128B"}
    assert {case.redop for case in cases if case.op == "reduce"} == set(tma_reduce.REDUCTIONS)
    assert {case.interleave for case in cases} == {"none", "16B", "32B"}
    assert {case.corners.count(",") for case in cases if case.corners} == {0, 2, 4}
    assert list(PROBE.variants("sm_100a"))
    assert not list(PROBE.variants("sm_80"))


def test_a_stride_off_16_bytes_is_named() -> None:
    """Before the driver's own error, which names nothing."""
    with pytest.raises(UsageError, match=r"stride\[0\]=200 B, not a multiple of 16"):
        PROBE.case("sm_90a", dtype="f16", shape="100x100")


def test_a_null_address_is_all_that_is_flagged() -> None:
    """The shape, the box and the swizzle are legal."""
    tensor: dict[str, Any] = {"shape": "1024x1024", "swizzle": "128B"}
    for box in ("128x64", "64x128"):  # the latter of bytes, which it suits
        with pytest.raises(UsageError, match=r"^globalAddress=0x0 is null[^;]*$"):
            PROBE.case("sm_90a", addr="0", box=box, **tensor)
    with pytest.raises(UsageError, match="globalAddress=0x8 is misaligned; legal: multiples of 16 B"):
        PROBE.case("sm_90a", addr="0x8")


DUMP = """\
TMA Desc Addr:   0x7ffd7d2800c0
format         6
dim            3
gmem_address   0
globalDim      (1024,1024,1,1,1)
globalStrides  (2,2048,2097152,0,0)
boxDim         (64,128,1,1,1)
elementStrides (1,1,1,1,1)
interleave     0
swizzle        3
l2Promotion    0
oobFill        0
"""


def test_a_dump_is_explained(tmp_path: Path) -> None:
    """The arguments, and that the address is all that is wrong with them."""
    file = tmp_path / "dump.txt"
    file.write_text(DUMP)
    record = run(explain_dump=str(file))
    assert list(failed(record)) == ["dump"]
    assert failed(record)["dump"].startswith("globalAddress=0x0 is null")
    assert {each["argument"]: each["value"] for each in record.result["dump"]}["boxDim"] == "64, 128, 1"
    m = TensorMap("f16", (8, 8), (16,), (8, 8), (1, 1), address=1 << 30)
    (tmp_path / "map").write_bytes(m.encode())
    assert failed(run(explain_dump=str(tmp_path / "map"))) == {}
    with pytest.raises(UsageError, match="cannot read"):
        PROBE.case("sm_90a", explain_dump=str(tmp_path / "none"))


def test_an_inner_box_wider_than_the_span_is_refused_with_the_split() -> None:
    """64 elements of f16 under 128B."""
    with pytest.raises(UsageError, match=r"at most 64 elements of f16: load 2 boxes, or .*3-D"):
        PROBE.case("sm_90a", box="16x128", dtype="f16", swizzle="128B")


@pytest.mark.parametrize(
    ("params", "stage", "address"),
    [({"smem_offset": 64}, 0, 64), ({"stages": 3, "stage_bytes": 48}, 1, 48)],
)
def test_a_misaligned_stage_is_named(params: dict[str, Any], stage: int, address: int) -> None:
    """A static finding; a device faults on it, and an H200 did."""
    found = failed(run(**params))
    assert list(found) == ["stage alignment"]
    assert (
        f"stage {stage} begins at byte {address}, {address % 128} beyond a multiple of 128"
        in found["stage alignment"]
    )
    fault = PROBE.fault(PROBE.case("sm_90a", **params))
    assert fault is not None
    assert fault.certain


def test_stages_that_overlap_are_refused() -> None:
    """With the least that a box takes."""
    with pytest.raises(UsageError, match="stages of 512 bytes overlap; legal: at least a box, 1024 bytes"):
        PROBE.case("sm_90a", stages=2, stage_bytes=512)


def test_a_swizzled_box_off_its_period_is_permuted_not_garbage() -> None:
    """By the phase of its base, which is told with what to align it to."""
    record = run(swizzle="128B", smem_offset=128, coord="0,0")
    detail = failed(record)["base phase"]
    assert detail.startswith("data present, permuted by base phase 1: 64 of 64 chunks")
    for period in ("128B: 1024", "64B: 512", "32B: 256"):
        assert period in detail
    assert cells(record)[0][:2] == ["0:1", "0:0"]  # the first row is XORed with 1
    assert not failed(run(swizzle="128B", smem_offset=1024, coord="0,0"))
    assert cells(run(swizzle="128B", coord="0,0"))[1][:2] == ["1:1", "1:0"]


@pytest.mark.parametrize(
    ("dtype", "columns", "beyond"),
    [
        ("i8", 466, list(range(466, 480))),
        ("i16", 470, [470, 471]),
        ("i32", 466, [466, 467]),
        ("i16", 464, []),
    ],
)
def test_a_store_clips_at_16_bytes(dtype: str, columns: int, beyond: list[int]) -> None:
    """The columns behind the tensor that a store overwrites are told before anything is stored."""
    params: dict[str, Any] = {"op": "store", "dtype": dtype, "shape": f"32x{columns}", "parent_pitch": 512}
    record = run(**params)
    assert record.result["beyond"]["columns"] == beyond
    assert list(failed(record)) == (["clipping"] if beyond else [])
    case = PROBE.case("sm_90a", **params)
    rows = PROBE.expected(case)["tensor"].reshape(32, 512, -1)[:, :, 0]
    assert np.flatnonzero((rows[:, columns:] != 7).any(axis=0)).tolist() == [c - columns for c in beyond]


def test_a_load_of_the_same_tensor_fills_from_the_edge_on() -> None:
    """It clips at the element."""
    record = run(dtype="u16", shape="32x470", parent_pitch=512, coord="448,0")
    assert {each["bytes"]: each["count"] for each in record.result["bytes"]} == {
        "the whole box": 8 * 128, "of it inside the tensor": 8 * 22 * 2, "the barrier is armed with": 8 * 128
    }  # fmt: skip


EDGE: dict[str, Any] = {"shape": "100x100", "box": "64x64", "coord": "64,64"}


def test_the_barrier_counts_what_lies_outside() -> None:
    """Armed with the box the phase ends; with the bytes inside it never does, which is reported."""
    full = run(**EDGE, expect="full")
    assert full.params["dtype"] == "f32"  # rows of 100 x f16 are no multiple of 16 bytes
    assert failed(full) == {}
    assert full.result["conclusion"].startswith(
        "Elements are f32 of 4 B, because f16 is refused here: stride[0]=200"
    )
    assert full.result["barriers"] == [
        {"stage": 0, "armed with": 16384, "phase ended": "yes", "bytes": "all came"}
    ]
    short = run(**EDGE, expect="inbounds")
    assert "armed with 5184 B, and 16384 B are counted" in failed(short)["bytes expected"]
    told = "11200 bytes more than expected came"
    assert told in failed(short)["bytes expected"]
    assert short.result["barriers"] == [
        {"stage": 0, "armed with": 5184, "phase ended": "never", "bytes": told}
    ]


@pytest.mark.parametrize("expect", ["512", "inbounds"])
def test_the_sentence_and_the_table_say_the_same_of_a_race(expect: str) -> None:
    """Fewer bytes than come, that may be met on the way: nobody knows whether the phase ends."""
    record = run(expect=expect)
    (row,) = record.result["barriers"]
    assert row["phase ended"] == "too early, or never"
    assert row["phase ended"] in record.result["conclusion"]
    assert row["bytes"] in record.result["conclusion"]


def test_bytes_are_a_number_too() -> None:
    """The same point as its name: it finds the recording of it."""
    assert failed(run(expect="1024")) == {}
    assert PROBE.identity(PROBE.case("sm_90a", expect="384")) == PROBE.identity(
        PROBE.case("sm_90a", expect="inbounds")
    )
    assert "1024 bytes are missing" in failed(run(expect="2048"))["bytes expected"]


def test_a_type_that_stands_for_f16_is_named_first() -> None:
    """Whoever loads halves must not arm a barrier with the bytes of something else."""
    told = run(box="64x128", swizzle="128B", shape="256x256").result["conclusion"]
    assert told.startswith("Elements are u8 of 1 B, because f16 is refused here: boxDim[0]=128 x 2 B = 256 B")
    assert run().result["conclusion"].startswith("The barrier counts all 1024 bytes of the box (8x64 f16)")


def test_real_tensors_are_answered_without_their_bytes() -> None:
    """16 GiB; a device would have to be given them, so it is left out and the reason told."""
    params: dict[str, Any] = {"shape": "65536x131072", "box": "64x64", "swizzle": "128B"}
    record = run(**params)
    assert "8192 bytes of the box (64x64 f16)" in record.result["conclusion"]
    chunks = record.result["chunk_map"]["chunks"]
    assert [(each["row"], each["chunk"]) for each in chunks[8 * 9 : 8 * 9 + 2]] == [(9, 1), (9, 0)]
    assert "this probe copies up to" in PROBE.not_launched(PROBE.case("sm_90a", **params))
    assert run(op="store", shape="8192x8192", box="64x64").exit_code == 0
    assert run(shape="100000000x100000000").exit_code == 0
    assert run(parent_pitch=1 << 31).exit_code == 0


def test_every_stage_is_held_against_the_pattern() -> None:
    """Stage 0 lies right, stage 1 does not."""
    for params in ({"swizzle": "128B", "stage_bytes": 1152}, {"swizzle": "64B", "stage_bytes": 640}):
        detail = failed(run(stages=3, coord="0,0", **params))["base phase"]
        assert "chunks of stage 1 lie elsewhere" in detail
        assert f"it begins at {params['stage_bytes']}" in detail


def test_what_is_not_reached_is_not_shown() -> None:
    """A fault that certainly comes leaves no phase and no bytes."""
    record = run(smem_offset=64)
    assert not {"barriers", "pictures", "chunk_map", "shared"} & set(record.result)
    assert record.result["conclusion"].startswith("Stage 0 begins at byte 64")


def test_an_older_chip_has_no_tma() -> None:
    """Before ptxas says it."""
    with pytest.raises(UsageError, match="sm_80 has no TMA; legal: sm_90 and later"):
        PROBE.case("sm_80")


def test_an_element_of_the_box_has_a_byte(run_here: RunCli) -> None:
    """As operands of wgmma in shared memory have: row 5, chunk 1 lies at chunk 1 ^ 5."""
    point = ("--box", "64x64", "--swizzle", "128B", "--shape", "4096x4096")
    done = run_here("layout", "where", "tma", "smem", "5", "9", *point)
    assert done.returncode == 0, done.stderr
    assert f"shared byte {5 * 128 + (1 ^ 5) * 16 + 2}, counted from a multiple of 1024 B" in done.stdout
    assert run_here("layout", "table", "tma").returncode == 2


def test_damaged_bytes_are_named(tmp_path: Path) -> None:
    """Bits that no argument makes."""
    data = bytearray(TensorMap("f16", (8, 8), (16,), (8, 8), (1, 1), address=1 << 30).encode())
    data[80] = 1
    (tmp_path / "map").write_bytes(data)
    assert failed(run(explain_dump=str(tmp_path / "map"))) == {
        "dump": "damaged: no arguments make word 10 (0x1)"
    }


def test_a_dump_is_all_that_is_explained(tmp_path: Path) -> None:
    """No kernel is compiled for it, and no other option goes with it."""
    (tmp_path / "dump.txt").write_text(DUMP)
    assert "sass" not in run(explain_dump=str(tmp_path / "dump.txt")).result
    with pytest.raises(UsageError, match="--box with --explain-dump; legal: --explain-dump alone"):
        run(explain_dump=str(tmp_path / "dump.txt"), box="8x8")


def test_bytes_that_may_be_met_on_the_way_are_a_race() -> None:
    """An H200 ended a phase early that was armed with 128 of 1024 bytes, and not one armed with 256."""
    case = PROBE.case("sm_90a", expect="inbounds")
    fault = PROBE.fault(case)
    assert fault is not None
    assert not fault.certain
    assert "armed with 384 B, and 1024 B are counted" in fault.reason
    assert "640 bytes more than expected came" in fault.reason
    assert PROBE.fault(PROBE.case("sm_90a", **EDGE, expect="inbounds")) is None


def test_nan_fills_what_lies_outside() -> None:
    """And nothing inside; integers have no NaN."""
    case = PROBE.case("sm_90a", dtype="f16", oob="nan")
    image = PROBE.expected(case)["image"].view(np.float16)[: 8 * 64].reshape(8, 64)
    assert np.isnan(image[:4, 48:]).all()
    assert np.isnan(image[4:]).all()
    assert not np.isnan(image[:4, :48]).any()
    with pytest.raises(UsageError, match=r"oobFill=nan with integers \(s32\); legal: zero"):
        PROBE.case("sm_90a", dtype="i32", oob="nan")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"desc_align": 64}, "aligned to 64 B; legal: multiples of 128 B"),
        ({"interleave": "16B", "rank": 2}, "interleave=16B with tensorRank=2; legal: rank 3 to 5"),
        ({"rank": 3, "shape": "8x8"}, "--rank 3 and --shape 8x8; legal: one of them"),
        ({"coord": "1,2,3"}, "legal: 2 numbers of 32 bits, innermost first, such as 0,0"),
        ({"coord": "4,0"}, "legal: multiples of 16 B, so of 8 f16 elements"),
        ({"op": "store", "coord": "0,-8"}, "a store or reduction at coordinate -8; legal: 0 and more"),
        ({"l2": "none,32"}, "unknown l2Promotion '32'; legal: none, 64, 128, 256"),
        ({"no_proxy_fence": True}, "legal: with --op store or reduce"),
        ({"offsets": "1,1"}, "--offsets without --corners"),
        ({"stages": 9}, "9 stages; legal: 1 to 8"),
        ({"box": "256x256", "dtype": "f32"}, "bytes of shared memory; legal: up to"),
        ({"box": "1000000"}, "1 sizes of the box for 2 dimensions; legal: 2"),
        ({"element_strides": "1000000"}, "1 element strides for 2 dimensions; legal: 2"),
        ({"stage_bytes": 100_000_000_000}, "--stage-bytes 100000000000; legal: 0 to 225280"),
        ({"expect": "9" * 5000}, "legal: full, inbounds, or a number of bytes"),
        ({"coord": "\u0661,0"}, "legal: 2 numbers of 32 bits"),
        ({"addr": "1_0"}, "'1_0' is no address"),
        ({"redop": "min"}, "--redop min with --op load; legal: with --op reduce"),
        ({"expect": "some"}, "--expect some; legal: full, inbounds, or a number of bytes"),
        ({"expect": "1048576"}, "--expect 1048576; legal: 0 to 1048575"),
        ({"rank": 6}, "--rank 6; legal: 1 to 5"),
        ({"shape": "4294967297x16"}, r"globalDim\[1\]=4294967297; legal: 1 to 2\^32"),
        ({"corners": "-1,-1:0,0"}, "--corners with tensorRank=2; legal: rank 3 to 5"),
        ({"smem_offset": -128}, "--smem-offset -128; legal: 0 to 225280"),
        ({"coord": "0,2147483647", "stages": 2}, "the coordinates of stage 1 leave 32 bits"),
        ({"swizzle": "128B_ATOM_32B"}, "legal: none, 32B, 64B, 128B"),
        (
            {"rank": 4, "corners": "0,0:0,0", "box": "8x16", "offsets": "-1,0"},
            "im2col offset -1 of dimension 1; legal: 0 to 255 of a 4-D map",
        ),
        ({"parent_pitch": 64}, "--parent-pitch 64; legal: at least a row, 112"),
        ({"op": "reduce", "dtype": "f64"}, "no reduction .add of f64; legal types: u32"),
        ({"addr": "here"}, "'here' is no address"),
    ],
)
def test_what_is_illegal_is_refused_with_the_legal_set(params: dict[str, Any], message: str) -> None:
    """Values, and options that do not go together."""
    with pytest.raises(UsageError, match=message):
        PROBE.case("sm_90a", **params)


def test_promotions_leave_the_same_bytes() -> None:
    """Four maps that differ, four images that do not."""
    case = PROBE.case("sm_90a", l2="none,64,128,256")
    found = PROBE.expected(case)
    names = ("none", "64", "128", "256")
    assert len({found[f"words_{name}"].tobytes() for name in names}) == 4
    assert len({found[f"image_{name}"].tobytes() for name in names}) == 1
    assert len(PROBE.geometry(case)) == 4  # type: ignore[arg-type]
    record = run(l2="none,64,128,256")
    assert failed(record) == {}
    assert any(check["name"] == "L2 promotion" for check in record.checks)


def test_a_missing_proxy_fence_is_found_in_the_code() -> None:
    """Whatever the run says: it proves nothing."""
    record = run(op="store", no_proxy_fence=True)
    assert "no FENCE between the ordinary stores (STS) and UTMASTG.2D" in failed(record)["proxy fence"]
    assert "proves nothing" in failed(record)["proxy fence"]
    if "sass" in record.result:
        assert not [name for name in record.result["sass"]["counts"] if name.startswith("FENCE")]
        fenced = run(op="store").result["sass"]["counts"]
        assert sum(count for name, count in fenced.items() if name.startswith("FENCE")) == 1


def test_every_stage_loads_a_box_of_its_own() -> None:
    """One behind the other along the outermost dimension, at multiples of the period."""
    case = PROBE.case("sm_90a", stages=3, coord="0,0", swizzle="128B")
    image = PROBE.expected(case)["image"].view(np.uint16)
    assert [int(image[stage * 512]) for stage in range(3)] == [1 + stage * 8 * 112 for stage in range(3)]


def test_both_orders_are_named() -> None:
    """Coordinates innermost first as in PTX, sizes outermost first as in numpy."""
    record = run(shape="20x112", coord="64,8")
    assert record.result["coordinates"] == {"innermost_first": [64, 8], "outermost_first": [8, 64]}
    rows = record.result["dimensions"]
    assert [(row["dimension"], row["numpy axis"], row["size"], row["coordinate"]) for row in rows] == [
        (0, 1, 112, 64), (1, 0, 20, 8)
    ]  # fmt: skip


@pytest.mark.parametrize(("typed", "meant"), [("i8", "u8"), ("s8", "u8"), ("e4m3", "u8"), ("i32", "s32")])
def test_types_that_no_map_has_are_carried_by_one_of_their_size(typed: str, meant: str) -> None:
    """TMA moves bits."""
    assert PROBE.case("sm_90a", dtype=typed).dtype == meant


def test_the_map_that_the_kernel_gets_is_the_models() -> None:
    """Its words are an output, the address counted from the tensor's."""
    case = PROBE.case("sm_90a", swizzle="64B", oob="nan")
    words = PROBE.expected(case)["words"]
    assert words[0] == 0
    found = TensorMap.decode(words.tobytes())
    assert (found.swizzle, found.oob, found.shape, found.address) == ("64B", "nan", (100, 112), 0)
    assert dataclasses.replace(found, address=1 << 30).problems() == []


def test_a_finding_ends_with_1_and_a_refusal_with_2(run_here: RunCli) -> None:
    """Without a device, too."""
    arguments = ("probe", "tma", "--backend", "model", "--json")
    assert run_here(*arguments).returncode == 0
    assert run_here(*arguments, "--coord", "-8,-3", "--oob", "nan").returncode == 0
    assert run_here(*arguments, "--smem-offset", "64").returncode == 1
    assert run_here(*arguments, "--dtype", "f16", "--shape", "100x100").returncode == 2
