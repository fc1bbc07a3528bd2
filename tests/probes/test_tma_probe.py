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
    assert cells(record)[0][:2] == ["0.1", "0.0"]  # the first row is XORed with 1
    assert not failed(run(swizzle="128B", smem_offset=1024, coord="0,0"))
    assert cells(run(swizzle="128B", coord="0,0"))[1][:2] == ["1.1", "1.0"]


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
    assert full.result["barriers"] == [{"stage": 0, "phase ended": True, "bytes expected still": 0}]
    short = run(**EDGE, expect="inbounds")
    assert "armed with 5184 B, and 16384 B are counted" in failed(short)["bytes expected"]
    assert short.result["barriers"] == [
        {"stage": 0, "phase ended": False, "bytes expected still": 5184 - 16384}
    ]


def test_bytes_that_may_be_met_on_the_way_are_a_race() -> None:
    """An H200 ended a phase early that was armed with 128 of 1024 bytes, and not one armed with 256."""
    case = PROBE.case("sm_90a", expect="inbounds")
    fault = PROBE.fault(case)
    assert fault is not None
    assert not fault.certain
    assert "armed with 384 B, and 1024 B are counted" in fault.reason
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
        ({"shape": "65536x65536"}, "a tensor of 8589934592 bytes; legal: up to"),
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
