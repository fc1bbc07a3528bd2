"""What ``ptxlab gemm --explain`` shows of a stage: work, shared memory, pipeline, occupancy, limits."""

from __future__ import annotations

from typing import Any

from ptxlab.render.blocks import Block, Cell, Table
from ptxlab.render.views.pipeline import pipeline_blocks
from ptxlab.render.views.profile import bar


def explanation(each: dict[str, Any], *, asked: bool) -> list[Block]:
    """Return the explanation of one stage as small tables; where it was asked for, all of it."""
    return [
        Table("work", ("quantity", "value"), _work(each)),
        Table("shared memory of a block", ("buffer", "bytes", "%", ""), _shared(each["shared"])),
        *_tensor_memory(each["tensor_memory"]),
        *(pipeline_blocks(each["pipeline"]) if asked and each["pipeline"] else []),
        *_occupancy(each),
        *_bounds(each),
        *(_legal(each) if asked else []),
    ]


def _legal(each: dict[str, Any]) -> list[Block]:
    """Return what else the stage can do: the options of its own."""
    rows: list[tuple[Cell, ...]] = [
        (said["option"], said["help"], ", ".join(map(str, said["values"])) or "any") for said in each["legal"]
    ]
    title = "options of its own: --set NAME=VALUE"
    return [Table(title, ("option", "what it is", "legal"), rows)] if rows else []


def _work(each: dict[str, Any]) -> list[tuple[Cell, ...]]:
    tiles, work = each["tiles"], each["work"]
    size = "x".join(map(str, tiles["tile"]))
    return [
        ("stage", each["stage"]),
        ("problem", each["problem"]),
        *_options(each),
        ("GPU", each["machine"]),
        ("tile of a block (rows x columns x depth)", size),
        ("threads of a block", tiles["threads"]),
        *_blocks(each),
        ("steps along k of a tile", tiles["steps"]),
        ("FLOP", work["flop"]),
        ("bytes, each matrix once", work["bytes"]),
        ("FLOP per byte", f"{work['flop_per_byte']:.1f}"),
        *_roofline(each["roofline"]),
        ("bytes of A and B that all blocks load", work["loaded_bytes"]),
        ("FLOP per byte loaded", f"{work['flop_per_loaded_byte']:.1f}"),
        *([("bytes that blocks send on to each other", work["sent_bytes"])] if work["sent_bytes"] else []),
        *_products(work),
        ("mnk / 2048, without the padding of tiles", f"{work['mma_of_whole_tiles']:.10g}"),
        ("useful part of the tiles, %", f"{work['useful_percent']:.1f}"),
    ]


def _options(each: dict[str, Any]) -> list[tuple[Cell, ...]]:
    """Return the options of the stage's own, and how its blocks start where that is not the plain way."""
    launch, rows = each["launch"], list[tuple[Cell, ...]]()
    if each["options"]:
        rows.append(("options", ", ".join(f"{name}={value}" for name, value in each["options"].items())))
    if launch["cluster"] > 1:
        rows.append(("blocks of a cluster", launch["cluster"]))
    if launch["programmatic"]:
        rows.append(("starts while the kernel ahead still runs", "yes"))
    return rows


def _blocks(each: dict[str, Any]) -> list[tuple[Cell, ...]]:
    """Return the blocks that are launched, and the tiles, and parts of them, where those are not as many."""
    tiles = each["tiles"]
    rows: list[tuple[Cell, ...]] = [("blocks", tiles["blocks"])]
    if tiles["tiles"] != tiles["blocks"]:
        rows.append(("tiles of C", tiles["tiles"]))
    if tiles["work"] not in (tiles["tiles"], tiles["blocks"]):
        rows.append(("pieces of work: parts of tiles along k", tiles["work"]))
    return rows


def _products(work: dict[str, Any]) -> list[tuple[Cell, ...]]:
    """Return the instructions that run, and the products that they are where each is several."""
    products: list[tuple[Cell, ...]] = [("products m16n8k16, counted per warp", work["mma"])]
    if not work["opcode"]:
        return products
    run = (f"warp instructions {work['opcode']} that run", work["instructions"])
    return [run] if work["instructions"] == work["mma"] else [*products, run]


def _roofline(place: dict[str, Any] | None) -> list[tuple[Cell, ...]]:
    if place is None:
        return []
    clock = f", at {place['at_mhz']} MHz" if place["at_mhz"] else ""
    side = "right" if place["flop_per_byte"] >= place["ridge"] else "left"
    where = (
        f"{side} of the ridge at {place['ridge']:.0f}: under {place['roof']}, {place['tflops']:.1f} TFLOP/s "
        f"({place['source']}{clock})"
    )
    return [("place under the roofline", where)]


def _shared(shared: dict[str, Any]) -> list[tuple[Cell, ...]]:
    """Return the budget, each buffer as a share of what a block can have."""
    most = shared["most"]
    named = {**shared["buffers"], "kept by CUDA": shared["reserved"]}
    named["all"] = shared["bytes"] + shared["reserved"]
    if most is not None:
        named["of an SM"] = most + shared["reserved"]
    whole = named.get("of an SM")
    if not whole:
        return [(name, count, None, None) for name, count in named.items()]
    return [(name, n, f"{100 * n / whole:.1f}", bar(100 * n / whole)) for name, n in named.items()]


def _tensor_memory(held: dict[str, int]) -> list[Block]:
    rows: list[tuple[Cell, ...]] = list(held.items())
    return [Table("tensor memory of a block", ("what", "columns"), rows)] if rows else []


def _occupancy(each: dict[str, Any]) -> list[Block]:
    held, filled = each["occupancy"], each["waves"]
    if not held or not filled:
        return []
    what = "blocks"
    if filled["stay"]:
        what = "tiles" if each["tiles"]["work"] == each["tiles"]["tiles"] else "pieces of work"
    rows: list[tuple[Cell, ...]] = [(f"blocks of an SM by {k}", v) for k, v in held["by"].items()]
    rows += [
        ("registers of a thread", held["registers"]),
        ("blocks of an SM", held["blocks"]),
        ("limited by", held["limiter"]),
        ("warps of an SM", held["warps"]),
        ("of the warps it can hold, %", f"{held['percent']:.0f}"),
        ("blocks that all SMs hold at once", filled["slots"]),
        (f"waves of {what}: the blocks stay" if filled["stay"] else "waves", f"{filled['waves']:.2f}"),
        (f"{what} of the last wave{', in even shares' if filled['even'] else ''}", filled["last_blocks"]),
        ("mean filling of the waves, %", f"{filled['percent']:.0f}"),
    ]
    return [Table("occupancy and waves", ("quantity", "value"), rows)]


def _bounds(each: dict[str, Any]) -> list[Block]:
    columns = ("resource", "needs", "rate", "at MHz", "at least ms", "at most TFLOP/s", "source")
    rows = [
        (row["resource"], f"{row['amount']:.4g} {row['unit']}".rstrip(), *_rate(row))
        for row in each["bounds"]
    ]
    return [Table("limits, the tightest first", columns, rows)] if rows else []


def _rate(row: dict[str, Any]) -> tuple[Cell, ...]:
    if row["per_second"] is None:
        return "rate unknown on this GPU", None, None, None, "may be the limiter"
    rate = f"{row['per_second']:.4g} {row['unit']}/s"
    return rate, row["at_mhz"], f"{row['milliseconds']:.4g}", f"{row['tflops']:.1f}", row["source"]
