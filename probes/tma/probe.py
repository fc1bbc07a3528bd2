"""Which element of a tensor lands where in shared memory, and what does a store write?

Method: every element of the tensor carries its own number, and shared memory is poisoned before; after a load
all of it is written out. For stores and reductions every element of shared memory carries its number, and the
whole tensor is the output, with what lies around the box. The map is the driver's; the kernel writes out its
bytes, so that they are compared too. Waits are bounded: a wrong byte count is reported, and nothing hangs.
Counting: one instruction a stage; bytes as the barrier counts them; a chunk is 16 bytes.
Source: PTX ISA, "Tensors" and "Data movement and conversion instructions: cp.async.bulk.tensor".
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Hashable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxlab.device.job import MapArgument
from ptxlab.errors import UsageError
from ptxlab.experiments.base import Case, Macros, Value, bits_of, flag, option, sizes
from ptxlab.experiments.probe import Arrays, Fault, Geometry, Output, Probe
from ptxlab.experiments.record import Record
from ptxlab.isa import mbarrier, tensor_map, tma, tma_reduce
from ptxlab.isa.tensor_map import CHUNK, PERIODS, SIZES, SPANS, Corners, TensorMap
from ptxlab.isa.tensor_map_dump import maps_of
from ptxlab.isa.tma_data import Chunk, Numbered, chunks, located, numbered, operands

OPS = {"load": 0, "prefetch": 1, "im2col": 2, "store": 3, "reduce": 4}
LONG_SIZES = "[1-9][0-9]{0,18}(x[1-9][0-9]{0,18})*"
INTEGERS = " *-?[0-9]{1,18} *(, *-?[0-9]{1,18} *)*"
EXPECT = ("full", "inbounds")
POISON = 0xA5
PARENT = 7  # every byte of a tensor before a store
RANKS_OF_COLUMNS = (3, 4, 5)
LINE = 128  # bytes that all 32 banks hold
MOST_STAGES = 8
MOST_COORDINATE = (1 << 31) - 1
MOST_SIDE = 1024  # rows or columns that are told element by element
MOST_TENSOR = 1 << 26  # bytes that are copied to a device and back
MOST_SHARED = 220 << 10
ADDRESS = 1 << 40  # stands for the tensor's in what is judged before there is one
SHAPES = {1: "1000", 2: "100x112", 3: "6x20x112", 4: "3x6x20x112", 5: "2x3x6x20x112"}
USUAL_TYPES = ("f16", "f32", "u8")
SAME_BITS = {
    "s8": "u8", "i8": "u8", "e4m3": "u8", "e5m2": "u8", "s16": "u16", "i16": "u16", "i32": "s32",
    "i64": "s64",
}  # fmt: skip
"""Types that no map has, and those that carry the same bits."""


class TmaProbe(Probe):
    maps = False
    in_memory = True
    findings = ("base phase", "bytes expected", "clipping", "dump", "L2 promotion")

    op = option("load", choices=("load", "store", "reduce", "prefetch"), help="what is done with a box")
    redop = option("add", choices=tuple(tma_reduce.REDUCTIONS), help="operation of a reduce", maps=False)
    dtype = option("", choices=(*SIZES, *SAME_BITS), help="left out: f16; where that is illegal f32 or u8")
    shape = option("", metavar="ROWSxCOLS", help="of the tensor, outermost first: 1 to 5 sizes")
    box = option("", metavar="ROWSxCOLS", help="outermost first; im2col: PIXELSxCHANNELS")
    coord = option("", metavar="C0,C1", help="where the box begins, INNERMOST first; left out: the last tile")
    swizzle = option("none", choices=tuple(SPANS), help="of shared memory")
    oob = option(
        "zero", choices=tensor_map.FILLS, help="what stands for elements outside the tensor", maps=False
    )
    element_strides = option("", metavar="RxC", help="every how many elements of the box, outermost first")
    interleave = option(
        "none", choices=tensor_map.INTERLEAVES, help="dimension 0 counts slices of so many bytes"
    )
    l2 = option(
        "none",
        metavar="none|64|128|256",
        help="L2 promotion; several (none,64,128,256) are compared",
        maps=False,
    )
    rank = option(0, metavar="1-5", help="dimensions, where --shape is left out")
    corners = option("", metavar="L,L:U,U", help="load by im2col: lower and upper corners, INNERMOST first")
    offsets = option("", metavar="W,H", help="im2col offsets of the instruction, INNERMOST first")
    parent_pitch = option(0, metavar="N", help="elements from one row to the next; left out: no gap")
    smem_offset = option(0, metavar="BYTES", help="of stage 0 from a multiple of 1024")
    stages = option(1, metavar="N", help="boxes in a row along the outermost dimension, each with a barrier")
    stage_bytes = option(0, metavar="BYTES", help="from stage to stage; left out: a box, up to a period")
    expect = option(
        "full", metavar="full|inbounds|BYTES", help="bytes that the barrier is armed with", maps=False
    )
    addr = option(
        "", metavar="0x…", help="judge the map for a tensor at this address; it runs at its own", maps=False
    )
    desc_align = option(
        tensor_map.ALIGNMENT, metavar="BYTES", help="alignment of the map object, to be judged", maps=False
    )
    no_proxy_fence = option(
        default=False, help="leave out the fence between ordinary stores and TMA", maps=False
    )
    explain_dump = option(
        "", metavar="FILE", help="explain a map: 128 bytes, or the text of a failed encoding", maps=False
    )

    def complete(self, params: dict[str, Value]) -> None:
        """Write every point in one way, whichever way it was typed, so that it finds its recording."""
        others = [name for name, each in self.options().items() if params[name] != each.default]
        if params["explain_dump"] and len(others) > 1:
            raise UsageError(f"--{flag(others[0])} with --explain-dump; legal: --explain-dump alone")
        if params["rank"] not in (0, *SHAPES):
            raise UsageError(f"--rank {params['rank']}; legal: 1 to {tensor_map.MOST_RANK}")
        params["shape"] = params["shape"] or SHAPES[int(params["rank"] or 2)]
        shape = numbers(str(params["shape"]), "shape")
        if params["rank"] not in (0, len(shape)):
            raise UsageError(f"--rank {params['rank']} and --shape {params['shape']}; legal: one of them")
        params["rank"] = 0
        params["dtype"] = SAME_BITS.get(str(params["dtype"]), params["dtype"]) or suiting(params, shape)
        params["box"] = params["box"] or "x".join(map(str, usual_box(params, shape)))
        steps = str(params["element_strides"])
        params["element_strides"] = "" if set(steps) <= set("1x") else steps
        params["coord"] = params["coord"] or ",".join(map(str, last_tile(params, shape)))
        if params["expect"] not in EXPECT and not re.fullmatch("[0-9]{1,9}", str(params["expect"])):
            raise UsageError(f"--expect {params['expect']}; legal: {', '.join(EXPECT)}, or a number of bytes")

    def check(self, case: Case) -> None:
        if case.explain_dump:
            dumped(case.explain_dump)
        tma.check_arch(case.arch)
        if case.desc_align % tensor_map.ALIGNMENT or case.desc_align <= 0:
            raise UsageError(
                f"a map object aligned to {case.desc_align} B; legal: multiples of {tensor_map.ALIGNMENT} B: "
                "cuda.h of CUDA 13 declares CUtensorMap so (that of CUDA 12: 64)"
            )
        check_op(case)
        for promotion in promotions(case):
            map_of(case, promotion).check()
        tma.check_start(map_of(case), start(case), store=writes(case))
        tma.check_offsets(map_of(case), shift(case))
        if not writes(case) and expected_bytes(case) > mbarrier.MOST:
            raise UsageError(f"--expect {case.expect}; legal: 0 to {mbarrier.MOST}, what a barrier counts")
        check_room(case)
        if start(case, case.stages - 1)[-1] > MOST_COORDINATE:
            raise UsageError(f"the coordinates of stage {case.stages - 1} leave 32 bits; legal: below 2^31")

    def not_launched(self, case: Case) -> str:
        nbytes = tensor_bytes(case)
        told = f"a tensor of {nbytes} B; this probe copies up to {MOST_TENSOR} B to a device"
        return told if nbytes > MOST_TENSOR else ""

    def has_kernel(self, case: Case) -> bool:
        return not case.explain_dump

    def identity(self, case: Case) -> Hashable:
        """One number of bytes may be typed in three ways."""
        params = case.params | {"expect": expected_bytes(case)}
        return tuple(params.items())

    def variants(self, arch: str) -> Iterator[Case]:
        if int(arch.strip("sm_af")) >= 90:
            for params in (*loads(), *edges(), *columns(), *memories(), *stores(), *reductions()):
                yield self.case(arch, **params)

    def macros(self, case: Case) -> Macros:
        keyword = "_" if case.redop in ("and", "or", "xor") else ""  # C++ has them
        return {
            "OP": OPS[mode(case)], "RANK": map_of(case).rank, "PROXY_FENCE": int(not case.no_proxy_fence),
            "REDUCE": case.redop + keyword if case.op == "reduce" else "add",
        }  # fmt: skip

    def claims(self, case: Case) -> dict[str, int]:
        rank = map_of(case).rank
        found = {tma.sass(mode(case), rank, case.redop): 1}
        if case.op == "prefetch":
            found[tma.sass("load", rank)] = 1
        if writes(case):
            found |= {"UTMACMDFLUSH": 1, "FENCE.VIEW.ASYNC": int(not case.no_proxy_fence)}
        return found

    def inputs(self, case: Case) -> Arrays:
        name = "before" if writes(case) else "tensor"
        return {"places": instructions(case), "source": shared_before(case), name: tensor_before(case)}

    def outputs(self, case: Case) -> dict[str, Output]:
        found = {}
        for name in names(case):
            found[f"words{name}"] = Output((16,), np.uint64, ("word",))
            if not writes(case):
                found[f"image{name}"] = Output((shared_bytes(case),), np.uint8, ("byte",))
                found[f"phases{name}"] = Output((case.stages, 2), np.int32, ("stage", "fact"))
        if writes(case) and not self.not_launched(case):
            found["tensor"] = Output((tensor_bytes(case),), np.uint8, ("byte",))
        return found

    def geometry(self, case: Case) -> tuple[Geometry, ...]:
        stores = writes(case)
        counts = (
            tensor_bytes(case) // CHUNK if stores else 0, shared_bytes(case) // CHUNK, case.stages,
            case.smem_offset, stage_bytes(case), expected_bytes(case),
        )  # fmt: skip
        return tuple(
            Geometry(
                arguments=(
                    MapArgument(map_of(case, promotion), "tensor"), "tensor",
                    "before" if stores else "source", "places", "source",
                    "source" if stores else f"image{name}", f"words{name}",
                    "places" if stores else f"phases{name}", *(np.uint32(each) for each in counts),
                ),
                block=(128, 1, 1),
                shared_bytes=shared_bytes(case) + 1024 - CHUNK,
            )
            for name, promotion in names(case).items()
        )  # fmt: skip

    def expected(self, case: Case) -> Arrays:
        found: dict[str, NDArray[Any]] = {}
        if writes(case) and not self.not_launched(case):
            found["tensor"] = after_stores(case)
        for name, promotion in names(case).items():
            m = dataclasses.replace(map_of(case, promotion), address=0)  # counted from the tensor's
            found[f"words{name}"] = np.frombuffer(m.encode(), dtype=np.uint64)
            if not writes(case):
                found[f"image{name}"] = after_loads(case)
                found[f"phases{name}"] = np.array([phase(case)] * case.stages, dtype=np.int32)
        return found

    def fault(self, case: Case) -> Fault | None:
        for stage, address in enumerate(addresses(case)):
            if address % tma.ALIGNMENT:
                return Fault(
                    "stage alignment",
                    f"stage {stage} begins at byte {address}, {address % tma.ALIGNMENT} beyond a multiple of "
                    f"{tma.ALIGNMENT}: make --smem-offset and --stage-bytes multiples of {tma.ALIGNMENT}",
                )
        if case.no_proxy_fence:
            opcode = tma.sass(mode(case), map_of(case).rank, case.redop)
            return Fault(
                "proxy fence",
                f"no FENCE between the ordinary stores (STS) and {opcode}: each thread that wrote needs "
                "fence.proxy.async before the barrier; a run that went well proves nothing",
                certain=False,
            )
        if may_end_early(case):
            return Fault(
                "bytes expected",
                f"{armed(case)}; the phase ends {mbarrier.MAY_END}",
                certain=False,
            )
        return None

    def examine(self, case: Case, outputs: Arrays, record: Record) -> None:
        if case.explain_dump:
            problems = [problem for _, problem in problems_of(case.explain_dump)]
            record.check("dump", ok=not problems, detail="; ".join(problems) or "nothing is wrong with it")
            return
        if map_of(case).swizzle != "none":
            record.check("base phase", *base_phase(case))
        if writes(case):
            record.check("clipping", *clipping(case))
        elif not may_end_early(case):
            record.check("bytes expected", *bytes_expected(case, outputs))
        if len(names(case)) > 1:
            images = {outputs[f"image{name}"].tobytes() for name in names(case)}
            told = f"{len(names(case))} promotions leave {len(images)} different image(s) in shared memory"
            record.check("L2 promotion", ok=len(images) == 1, detail=told)

    def report(self, case: Case, outputs: Arrays, *, measured: bool) -> dict[str, Any]:
        if case.explain_dump:
            return explained(case.explain_dump)
        m = map_of(case)
        result: dict[str, Any] = {
            "ptx": tma.ptx(mode(case), m.rank, case.redop),
            "map": tensor_map.arguments(m, "" if case.addr else "the tensor's own"),
            "dimensions": dimensions(case),
            "bytes": counted(case),
            "coordinates": {"innermost_first": list(start(case)), "outermost_first": list(start(case)[::-1])},
        }
        fault = self.fault(case)
        if fault and fault.certain:
            return result  # nothing else is reached
        if writes(case):
            result["beyond"] = {"columns": clipped(case)}
        else:
            phases = outputs[first_of(case, "phases")].tolist()
            unsure = may_end_early(case) and not measured
            result["barriers"] = [
                {
                    "stage": i,
                    "armed with": expected_bytes(case),
                    "phase ended": mbarrier.MAY_END if unsure else mbarrier.ended(done=bool(done), left=left),
                    "bytes": mbarrier.account(left),
                }
                for i, (done, left) in enumerate(phases)
            ]
        found = held(case, outputs)
        return result | {
            "pictures": [picture(case, found)],
            "chunk_map": {"chunks": [dataclasses.asdict(each) for each in found]},
            **in_memory(case),
        }

    def conclude(self, case: Case, record: Record) -> str:
        if case.explain_dump:
            failed = [each["detail"] for each in record.checks if not each["ok"]]
            return f"{failed[0]}." if failed else "The driver takes these maps."
        return f"{not_f16(case)}{concluded(case, record)}"


def concluded(case: Case, record: Record) -> str:
    """Return what a load or store does, or what is wrong with it."""
    failed = [each["detail"] for each in record.checks if not each["ok"]]
    if failed:
        return f"{failed[0][0].upper()}{failed[0][1:]}."
    m = map_of(case)
    lies = "the rows lie one behind the other"
    if m.swizzle != "none":
        lies = f"chunk c of row r lies at chunk c ^ {xor_of(m)}"
    box = f"{'x'.join(map(str, m.box))} {m.dtype}"
    if writes(case):
        return f"{tma.box_bytes(m)} bytes ({box}) go from shared memory, where {lies}, into the tensor."
    outside = tma.box_bytes(m) - tma.inside_bytes(m, start(case), shift(case))
    fill = {"zero": "zeros", "nan": "NaNs"}[case.oob]
    filled = f"; {outside} of them are {fill} from outside the tensor" if outside else ""
    told = f"The barrier counts all {tma.box_bytes(m)} bytes of the box ({box}){filled}."
    return f"{told} In shared memory {lies}."


def not_f16(case: Case) -> str:
    """Return why elements are not the usual f16, where that is not legal."""
    usual = USUAL_TYPES[0]
    if case.dtype not in USUAL_TYPES[1:]:
        return ""
    problems = dataclasses.replace(
        map_of(case), dtype=usual, strides=strides_of(case, SIZES[usual])
    ).problems()
    if not problems:
        return ""
    why = problems[0].partition(";")[0]
    return f"Elements are {case.dtype} of {SIZES[case.dtype]} B, because {usual} is refused here: {why}. "


def _of(**params: Value) -> dict[str, Value]:
    return params


def loads() -> Iterator[dict[str, Value]]:
    """Yield every type, rank and swizzle."""
    for dtype in SIZES:
        yield _of(dtype=dtype)
    for rank in (1, 3, 4, 5):
        yield _of(rank=rank)
        yield _of(rank=rank, op="prefetch") if rank % 2 else _of(rank=rank, swizzle="64B")
    for swizzle in ("32B", "64B", "128B"):
        yield _of(swizzle=swizzle, box=f"16x{SPANS[swizzle] // 2}")
        yield _of(swizzle=swizzle, box="16x8")  # rows shorter than the span
    yield _of(op="prefetch")


def edges() -> Iterator[dict[str, Value]]:
    """Yield boxes that reach out of the tensor on every side, fills, strides, interleave and im2col."""
    yield _of(shape="100x100", box="64x64", coord="64,64", dtype="f32")
    yield _of(shape="100x100", box="64x64", coord="64,64", dtype="f32", expect="inbounds")
    for dtype in ("f16", "bf16", "f32", "f64", "tf32"):
        yield _of(dtype=dtype, oob="nan")
    yield _of(coord="-8,-3")
    yield _of(coord="-24,97", swizzle="128B", oob="nan")
    yield _of(coord="200,300")
    yield _of(coord="-16,5", dtype="u8")
    for strides in ("2x1", "3x1", "8x1", "1x2"):
        yield _of(element_strides=strides, box="16x64", coord="0,2")
    yield _of(shape="4x12x64", box="3x5x64", element_strides="2x3x1", coord="8,1,1", swizzle="128B")
    yield _of(shape="100x112", l2="none,64,128,256", swizzle="128B")
    for interleave in ("16B", "32B"):
        sliced = _of(interleave=interleave, swizzle="32B", dtype="f16")
        yield sliced | _of(shape="6x20x16", box="2x4x8", coord="-3,1,1", oob="nan", swizzle="none")
        yield sliced | _of(shape="2x3x9x16", box="2x2x4x8", coord="1,7,2,0")


def columns() -> Iterator[dict[str, Value]]:
    """Yield im2col loads of every rank that has them."""
    four = _of(shape="2x6x7x32", box="24x16", dtype="f16")
    five = _of(shape="2x4x5x6x32", box="40x16", dtype="f16")
    yield four | _of(corners="-1,-1:-1,-1", coord="0,-1,-1,0")
    yield four | _of(corners="-1,-1:-1,-1", coord="16,2,0,0", offsets="2,1")
    yield four | _of(corners="-1,0:0,-1", coord="0,-1,0,0", element_strides="1x2x2x1", offsets="1,0")
    yield four | _of(
        corners="-1,-1:1,1", coord="0,0,1,0", element_strides="1x2x3x1", offsets="0,1", oob="nan"
    )
    yield four | _of(
        shape="2x6x7x64", box="24x64", corners="0,-2:1,-1", coord="0,3,0,1", offsets="0,1", swizzle="128B"
    )
    yield _of(shape="2x20x32", box="16x16", corners="-1:-1", coord="0,-1,0", dtype="f16")
    yield five | _of(corners="-1,-1,0:-1,0,-1", coord="0,-1,-1,0,0", offsets="1,2,1")


def memories() -> Iterator[dict[str, Value]]:
    """Yield destinations inside the pattern of a swizzle, several stages, and misaligned ones."""
    for swizzle, offsets in (("128B", (128, 256, 512)), ("64B", (128, 256)), ("32B", (128,))):
        for offset in offsets:
            yield _of(swizzle=swizzle, smem_offset=offset)
    yield _of(smem_offset=640)
    yield _of(stages=3, coord="0,0", swizzle="128B")
    yield _of(smem_offset=64)
    yield _of(stages=3, stage_bytes=1040, coord="0,0")


def stores() -> Iterator[dict[str, Value]]:
    """Yield stores of full boxes, clipped ones, and ones out of the swizzle's pattern."""
    for dtype, columns in (("u8", 466), ("u16", 470), ("s32", 466), ("f16", 464)):
        yield _of(op="store", dtype=dtype, shape=f"32x{columns}", parent_pitch=512)
    yield _of(op="store", shape="20x72", swizzle="128B", coord="16,3")
    yield _of(op="store", shape="20x72", swizzle="128B", box="8x24", coord="48,14")
    yield _of(op="reduce", dtype="u32", shape="32x45", parent_pitch=64, coord="32,2")
    yield _of(op="store", shape="3x6x72", box="2x3x64", coord="16,4,2")
    yield _of(op="store", shape="20x72", swizzle="64B", smem_offset=128, coord="32,16")
    yield _of(op="store", shape="20x64", element_strides="2x1", coord="0,0")
    yield _of(op="store", no_proxy_fence=True)


def reductions() -> Iterator[dict[str, Value]]:
    """Yield every operation, and every type of those that have many."""
    for redop, types in tma_reduce.REDUCTIONS.items():
        for dtype in types if redop in ("add", "min") else types[:1]:
            yield _of(op="reduce", redop=redop, dtype=dtype, shape="12x48", coord="16,4")
    yield _of(op="reduce", redop="xor", dtype="u64", shape="12x48", swizzle="128B", coord="16,4")
    yield _of(op="reduce", dtype="f32", shape="2x2x2x4x24", coord="8,2,0,0,0")


def numbers(text: str, what: str) -> tuple[int, ...]:
    """Return the sizes of "100x112", of which there are 1 to 5."""
    parts = text.lower().count("x") + 1
    if parts > tensor_map.MOST_RANK:
        raise UsageError(f"{what} {text} has {parts} dimensions; legal: 1 to {tensor_map.MOST_RANK}")
    if re.fullmatch(LONG_SIZES, text):  # which the map's own limits judge
        return tuple(map(int, text.split("x")))
    return sizes(text, parts=parts, what=what)


def integers(text: str, count: int, what: str) -> tuple[int, ...]:
    """Return the numbers of "64,-3", of which there must be ``count``."""
    found = tuple(int(each) for each in text.split(",")) if re.fullmatch(INTEGERS, text) else ()
    if len(found) != count or any(abs(each) > MOST_COORDINATE for each in found):
        example = ",".join(["0"] * count)
        raise UsageError(
            f"{what} '{text}'; legal: {count} numbers of 32 bits, innermost first, such as {example}"
        )
    return found


def suiting(params: dict[str, Value], shape: tuple[int, ...]) -> str:
    """Return the first usual type with which rows and box are legal, or f16."""
    for dtype in USUAL_TYPES:
        row = int(params["parent_pitch"] or 0) or shape[-1]
        inner = numbers(str(params["box"]), "box")[-1] * SIZES[dtype] if params["box"] else CHUNK
        span = SPANS.get(str(params["swizzle"]), 0) or inner
        if (len(shape) == 1 or row * SIZES[dtype] % CHUNK == 0) and inner % CHUNK == 0 and inner <= span:
            return dtype
    return USUAL_TYPES[0]


def usual_box(params: dict[str, Value], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the box when none is given: a line of banks or a span of the swizzle, 8 rows, 2 of the rest."""
    size = SIZES.get(str(params["dtype"]), 1)
    inner = (SPANS.get(str(params["swizzle"]), 0) or LINE) // size if params["interleave"] == "none" else 8
    if params["corners"]:
        return (16, inner)
    return (*(2 for _ in shape[:-2]), *(8 for _ in shape[-2:-1]), inner)


def last_tile(params: dict[str, Value], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the coordinates of the last of the boxes that cover the tensor, innermost first."""
    box = numbers(str(params["box"]), "box")
    if params["corners"]:
        return (0, *corners_of(str(params["corners"]), len(shape)).lower[::-1], 0)
    if len(box) != len(shape):
        return (0,) * len(shape)
    return tuple(
        min(extent - 1, MOST_COORDINATE) // step * step
        for extent, step in zip(reversed(shape), reversed(box), strict=True)
    )


def bytes_of(file: str) -> bytes:
    """Return what a dump holds."""
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error


@lru_cache(maxsize=64)
def dumped(file: str) -> list[TensorMap]:
    """Return the maps of a dump."""
    return maps_of(bytes_of(file))


def problems_of(file: str) -> Iterator[tuple[int, str]]:
    """Yield what is wrong with dumped maps: words that no arguments make, and what the driver refuses."""
    data = bytes_of(file)
    if len(data) == tensor_map.NBYTES and (words := tensor_map.unexplained(data)):
        held = ", ".join(f"{i} (0x{int.from_bytes(data[8 * i : 8 * i + 8], 'little'):x})" for i in words)
        yield 0, f"damaged: no arguments make word {held}"
    for i, m in enumerate(dumped(file)):
        yield from ((i, each) for each in m.problems())


def check_op(case: Case) -> None:
    """Refuse what an instruction does not have."""
    if case.op == "reduce":
        tma_reduce.check_reduction(case.redop, case.dtype)
    if case.corners and case.op != "load":
        raise UsageError(f"--corners with --op {case.op}; legal: load")
    if case.redop != "add" and case.op != "reduce":
        raise UsageError(f"--redop {case.redop} with --op {case.op}; legal: with --op reduce")
    if case.offsets and not case.corners:
        raise UsageError("--offsets without --corners; legal: together, of an im2col load")
    if writes(case) and (case.expect != "full" or len(promotions(case)) > 1):
        raise UsageError(f"--expect and several --l2 are of loads; --op is {case.op}")
    if case.no_proxy_fence and not writes(case):
        raise UsageError(
            "--no-proxy-fence; legal: with --op store or reduce, of shared memory that threads wrote"
        )


def check_room(case: Case) -> None:
    """Refuse stages and tensors that do not fit."""
    if not 1 <= case.stages <= MOST_STAGES:
        raise UsageError(f"{case.stages} stages; legal: 1 to {MOST_STAGES}, which this probe takes")
    for name, most in (("smem_offset", MOST_SHARED), ("stage_bytes", MOST_SHARED), ("parent_pitch", 1 << 40)):
        value = int(case.params[name] or 0)
        if not 0 <= value <= most:
            raise UsageError(f"--{flag(name)} {value}; legal: 0 to {most}")
    if case.parent_pitch and case.parent_pitch < map_of(case).shape[-1]:
        raise UsageError(
            f"--parent-pitch {case.parent_pitch}; legal: at least a row, {map_of(case).shape[-1]}"
        )
    if shared_bytes(case) > MOST_SHARED:
        raise UsageError(
            f"the boxes take {shared_bytes(case)} bytes of shared memory; legal: up to {MOST_SHARED}"
        )
    aligned = all(address % tma.ALIGNMENT == 0 for address in addresses(case))
    least = tma.room(map_of(case))
    if aligned and case.stages > 1 and stage_bytes(case) < least:
        raise UsageError(f"stages of {stage_bytes(case)} bytes overlap; legal: at least a box, {least} bytes")


def mode(case: Case) -> str:
    """Return which instruction it is: a key of OPS."""
    return "im2col" if case.corners else str(case.op)


def writes(case: Case) -> bool:
    """Say whether the tensor is written."""
    return case.op in ("store", "reduce")


def promotions(case: Case) -> list[str]:
    """Return the L2 promotions that are asked for."""
    return str(case.l2).split(",")


def names(case: Case) -> dict[str, str]:
    """Return what the outputs of each launch end with, and its L2 promotion."""
    found = promotions(case)
    return {f"_{each}" if len(found) > 1 else "": each for each in found}


@lru_cache(maxsize=256)
def map_of(case: Case, promotion: str = "") -> TensorMap:
    """Return the map, of a tensor at the address that was given or at one that is legal."""
    shape = numbers(case.shape, "shape")
    unit = {"16B": 16, "32B": 32}.get(case.interleave, SIZES.get(case.dtype, 1))
    steps = numbers(case.element_strides, "element strides") if case.element_strides else (1,) * len(shape)
    return TensorMap(
        dtype=case.dtype,
        shape=shape,
        strides=strides_of(case, unit),
        box=numbers(case.box, "box"),
        element_strides=steps,
        interleave=case.interleave,
        swizzle=case.swizzle,
        l2=promotion or promotions(case)[0],
        oob=case.oob,
        address=address_of(case.addr) if case.addr else ADDRESS,
        corners=corners_of(case.corners, len(shape)) if case.corners else None,
    )


def strides_of(case: Case, unit: int) -> tuple[int, ...]:
    """Return the strides of the tensor if a unit of dimension 0 has so many bytes."""
    return tensor_map.packed(numbers(case.shape, "shape"), unit, case.parent_pitch * unit)


def address_of(text: str) -> int:
    """Return the number of "0x7f0000000000" or "0"."""
    address = bits_of(text)
    if address < 0:
        raise UsageError(f"'{text}' is no address; legal: a number such as 0x7f0000000000")
    return address


def corners_of(text: str, rank: int) -> Corners:
    """Return the corners of "-1,-1:0,0", which are written innermost first."""
    lower, colon, upper = text.partition(":")
    if not colon:
        raise UsageError(f"corners '{text}'; legal: lower and upper ones, such as -1,-1:0,0")
    if rank not in RANKS_OF_COLUMNS:
        raise UsageError(
            f"--corners with tensorRank={rank}; legal: rank 3 to 5, such as --rank 4 --corners -1,-1:0,0"
        )
    found = [integers(each, rank - 2, "corners")[::-1] for each in (lower, upper)]
    return Corners(*found)


def start(case: Case, stage: int = 0) -> tuple[int, ...]:
    """Return the coordinates of a stage's box, innermost first."""
    m = map_of(case)
    first = integers(case.coord, m.rank, "coord")
    return (*first[:-1], first[-1] + stage * (m.box[0] if m.corners is None else 1))


def shift(case: Case) -> tuple[int, ...]:
    """Return the im2col offsets, of dimension 1 first."""
    m = map_of(case)
    if m.corners is None:
        return ()
    return integers(case.offsets, m.rank - 2, "offsets") if case.offsets else (0,) * (m.rank - 2)


def instructions(case: Case) -> NDArray[np.int32]:
    """Return coordinates and offsets of each stage as the kernel reads them."""
    found = np.zeros((case.stages, 8), dtype=np.int32)
    for stage in range(case.stages):
        found[stage, : map_of(case).rank] = start(case, stage)
        found[stage, 5 : 5 + len(shift(case))] = shift(case)
    return found


def stage_bytes(case: Case) -> int:
    """Return the bytes from one stage to the next."""
    period = max(PERIODS[case.swizzle], tma.ALIGNMENT)
    return case.stage_bytes or -(-tma.room(map_of(case)) // period) * period


def addresses(case: Case) -> list[int]:
    """Return where each stage begins, from a multiple of 1024."""
    return [case.smem_offset + stage * stage_bytes(case) for stage in range(case.stages)]


def shared_bytes(case: Case) -> int:
    """Return the bytes of shared memory that are looked at: all lines that a box touches, and one more."""
    return (-(-(addresses(case)[-1] + tma.room(map_of(case))) // LINE) + 1) * LINE


def tensor_bytes(case: Case) -> int:
    """Return the bytes of global memory: whole rows, the gaps behind them included."""
    m = map_of(case)
    row = -(-m.shape[-1] * tma.unit_bytes(m) // CHUNK) * CHUNK
    last = sum((extent - 1) * stride for extent, stride in zip(m.shape[:-1], m.strides, strict=True))
    return max(last + row, m.shape[0] * m.strides[0] if m.strides else 0)


def expected_bytes(case: Case) -> int:
    """Return the bytes that the barrier of a stage is armed with."""
    m = map_of(case)
    if case.expect == "full":
        return tma.box_bytes(m)
    return tma.inside_bytes(m, start(case), shift(case)) if case.expect == "inbounds" else int(case.expect)


def phase(case: Case) -> tuple[int, int]:
    """Return whether a stage's phase ends, and how many bytes are expected still (below 0: too many came)."""
    left = expected_bytes(case) - tma.box_bytes(map_of(case))
    return int(left == 0 or expected_bytes(case) == 0), left


def may_end_early(case: Case) -> bool:
    """Say whether the bytes that landed so far may at some time equal those that the barrier expects.

    An H200 counted them in amounts that are multiples of a row or of 128 bytes (2026-11-30): with 128 and 512
    of 1024 bytes a phase ended early, with 256 not, and with amounts in between never.
    """
    amount = min(tma.row_bytes(map_of(case)), LINE)
    short = 0 < expected_bytes(case) < tma.box_bytes(map_of(case))
    return not writes(case) and short and expected_bytes(case) % amount == 0


def armed(case: Case) -> str:
    """Return what the barrier is told and what it counts, and the cure where they differ."""
    whole, expected = tma.box_bytes(map_of(case)), expected_bytes(case)
    told = f"armed with {expected} B, and {whole} B are counted"
    if whole == expected:
        return told
    outside = whole != tma.inside_bytes(map_of(case), start(case), shift(case))
    included = ", elements outside the tensor included" if outside else ""
    return f"{told}{included}: {mbarrier.account(expected - whole)}, so arm with the whole box"


def first_of(case: Case, name: str) -> str:
    """Return the name of an output of the first launch."""
    return name + next(iter(names(case)))


@lru_cache(maxsize=8)
def tensor_before(case: Case) -> NDArray[np.uint8]:
    """Return global memory before: numbered elements, or what a store or a reduction meets."""
    nbytes = tensor_bytes(case)
    if case.op == "store":
        return np.full(nbytes, PARENT, dtype=np.uint8)
    return operands(case.dtype, nbytes, 1) if case.op == "reduce" else numbered(case.dtype, nbytes)


@lru_cache(maxsize=8)
def shared_before(case: Case) -> NDArray[np.uint8]:
    """Return shared memory before: poison, or numbered elements to be stored from it."""
    nbytes = shared_bytes(case)
    if case.op == "reduce":
        return operands(case.dtype, nbytes, 2)
    return numbered(case.dtype, nbytes) if case.op == "store" else np.full(nbytes, POISON, dtype=np.uint8)


@lru_cache(maxsize=8)
def after_loads(case: Case) -> NDArray[np.uint8]:
    """Return shared memory after the loads of all stages."""
    m, memory, image = map_of(case), Numbered(case.dtype), shared_before(case)
    for stage, address in enumerate(addresses(case)):
        image = tma.load(m, memory, start(case, stage), image, address, shift(case))
    return image


@lru_cache(maxsize=8)
def after_stores(case: Case) -> NDArray[np.uint8]:
    """Return the tensor after the stores or reductions of all stages."""
    m, memory, image = map_of(case), tensor_before(case), shared_before(case)
    for stage, address in enumerate(addresses(case)):
        if case.op == "store":
            memory = tma.store(m, memory, start(case, stage), image, address)
        else:
            memory = tma.reduce(m, case.redop, memory, start(case, stage), image, address)
    return memory


def clipped(case: Case) -> list[int]:
    """Return the columns beyond the tensor that a store writes."""
    m = map_of(case)
    written = tma.coordinates(m, start(case))[-1][tma.reached(m, start(case))]
    return sorted({int(each) for each in written[written >= m.shape[-1]]})


def clipping(case: Case) -> tuple[bool, str]:
    """Say whether a store writes beyond the tensor."""
    beyond = clipped(case)
    told = f"writes {len(beyond)} columns beyond the tensor, {beyond[0]}-{beyond[-1]}" if beyond else "exact"
    return not beyond, f"{told}: a store clips at 16 bytes of global memory, a load at the element"


def base_phase(case: Case) -> tuple[bool, str]:
    """Say whether every box lies where the swizzle's pattern begins."""
    m = map_of(case)
    period = PERIODS[m.swizzle]
    for stage, base in enumerate(addresses(case)):
        moved, of = tma.moved_chunks(m, base)
        if moved:
            return False, (
                f"data present, permuted by base phase {base % period // LINE}: {moved} of {of} chunks of "
                f"stage {stage} lie elsewhere than the formula relative to the buffer says; it begins at "
                f"{base}: put each at a multiple of {period} (128B: 1024, 64B: 512, 32B: 256)"
            )
    return True, f"the pattern begins with each box, at a multiple of {period}"


def bytes_expected(case: Case, outputs: Arrays) -> tuple[bool, str]:
    """Say whether the first barrier was armed with what it counts."""
    done, left = outputs[first_of(case, "phases")][0].tolist()
    if left:
        return False, f"{armed(case)}; the phase {'ended too early' if done else 'never ends'}"
    return bool(done), f"{armed(case)}; the phase ended"


def held(case: Case, outputs: Arrays) -> list[Chunk]:
    """Return which chunks of stage 0's box lie where in shared memory."""
    m, first = map_of(case), addresses(case)[0]
    if not writes(case):
        image = outputs[first_of(case, "image")]
        return chunks(m, image, first, Numbered(case.dtype), start(case), shift(case))
    ordered = shared_before(case)[tma.places(m, first)].ravel()
    return located(m, shared_before(case), first, ordered, [True] * (len(ordered) // CHUNK))


def picture(case: Case, found: list[Chunk]) -> dict[str, Any]:
    """Draw the lines of shared memory that stage 0 takes: row:chunk of the box in each 16 bytes."""
    first, pieces = addresses(case)[0] // LINE, LINE // CHUNK
    lines = -(-(addresses(case)[0] + tma.room(map_of(case))) // LINE) - first
    cells = [[""] * pieces for _ in range(lines)]
    colours: list[list[int | None]] = [[None] * pieces for _ in range(lines)]
    for each in found:
        line, piece = divmod(each.address // CHUNK - first * pieces, pieces)
        cells[line][piece] = "fill" if each.row is None else f"{each.row}:{each.chunk}"
        colours[line][piece] = each.chunk
    return {
        "title": "shared memory: row:chunk of the box in each 16 bytes, coloured by chunk; by four banks",
        "cells": cells,
        "colours": colours,
        "row_names": [f"+{(first + line) * LINE}" for line in range(lines)],
        "column_names": [f"{4 * piece}-{4 * piece + 3}" for piece in range(pieces)],
    }


def in_memory(case: Case) -> dict[str, Any]:
    """Return where in shared memory each element of stage 0's box lies, all outer dimensions as its rows."""
    m = map_of(case)
    rows, cols = math.prod(tma.counts(m)[:-1]), tma.counts(m)[-1]
    if max(rows, cols) > MOST_SIDE:
        return {}
    byte = tma.places(m, addresses(case)[0])[..., 0].reshape(rows, cols)
    where = f"counted from a multiple of {PERIODS['128B']} B; the box begins at {addresses(case)[0]}"
    return {
        "shapes": {"smem": {"rows": rows, "cols": cols}},
        "shared": {"smem": {"bytes": byte.tolist(), "where": where}},
    }


def dimensions(case: Case) -> list[dict[str, Any]]:
    """Return one row a dimension, in both orders."""
    m = map_of(case)
    strides = (*m.strides, tma.unit_bytes(m))
    box = tma.counts(m) if m.corners is None else ("",) * m.rank
    return [
        {
            "dimension": i, "numpy axis": m.rank - 1 - i, "size": m.shape[-1 - i],
            "stride in bytes": strides[-1 - i], "coordinate": start(case)[i], "of the box": box[-1 - i],
        }
        for i in range(m.rank)
    ]  # fmt: skip


def counted(case: Case) -> list[dict[str, Any]]:
    """Return the bytes of a box, and those that a barrier is armed with."""
    m = map_of(case)
    rows = [("the whole box", tma.box_bytes(m))]
    rows.append(("of it inside the tensor", tma.inside_bytes(m, start(case), shift(case))))
    if not writes(case):
        rows.append(("the barrier is armed with", expected_bytes(case)))
    return [{"bytes": what, "count": count} for what, count in rows]


def explained(file: str) -> dict[str, Any]:
    """Return the arguments of dumped maps, and what is wrong with them."""
    rows = [{"map": i, **row} for i, m in enumerate(dumped(file)) for row in tensor_map.arguments(m)]
    problems = [{"map": i, "problem": each} for i, each in problems_of(file)]
    return {"ptx": "a tensor map", "dump": rows, "problems": problems}


def xor_of(m: TensorMap) -> str:
    """Return what the chunk's number is XORed with, by the row of 128 bytes."""
    rows, mask = LINE // SPANS[m.swizzle], SPANS[m.swizzle] // CHUNK - 1
    row = "r" if rows == 1 else f"r // {rows}"
    return (
        f"({row} % {mask + 1})" if m.inner_bytes == SPANS[m.swizzle] else f"(address // {LINE} % {mask + 1})"
    )
