"""What README.md says of hopper and hopper-fp8 beside the faster library, made of recordings."""

from __future__ import annotations

from itertools import product
from statistics import geometric_mean

from readme_rows import COLD, HOT, Row, cell, problem, quoted, source, table

SIZES = (1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
KINDS = tuple(product(("bf16", "f16"), (COLD, HOT)))

TOKENS = (1, 16, 64, 128, 512, 4096)
WEIGHTS = ((4096, 7168), (7168, 2048), (2112, 7168), (24576, 1536), (576, 7168), (32768, 512))
ALONE = ((512, 4096, 16384), (576, 4096, 7168))

FLOAT8_SIZES = (4096, 8192)

NONE = "Not recorded yet: hopper beside the libraries, `ptxlab gemm --stage hopper --record` on a GPU.\n"


def blocks() -> list[str]:
    """Return what was recorded: cubes, shapes of language models, 8-bit floats."""
    return list(filter(None, (cubes(), shapes(), float8()))) or [NONE]


def cubes() -> str:
    """Return hopper by size, each type and state of the L2 in a column."""
    rows = quoted("hopper")
    found = {
        (size, kind): rows[problem(size, size, size, kind[0], kind[0]), kind[1]]
        for size, kind in product(SIZES, KINDS)
        if (problem(size, size, size, kind[0], kind[0]), kind[1]) in rows
    }
    if not found:
        return ""
    sizes = [size for size in SIZES if any(size == each for each, _ in found)]
    kinds = [kind for kind in KINDS if any(kind == each for _, each in found)]
    lines = [["m = n = k", *(", ".join(kind) for kind in kinds)]]
    lines += [[str(size), *(cell(found.get((size, kind))) for kind in kinds)] for size in sizes]
    return f"hopper, tn: TFLOP/s (% of the faster library) MHz.\n{source(found.values())}.\n\n{table(lines)}"


def shapes() -> str:
    """Return hopper at the shapes of language models: percent of the faster library, cold / hot."""
    rows, asked = quoted("hopper"), [*((m, *w) for m, w in product(TOKENS, WEIGHTS)), *ALONE]
    found: dict[str, dict[tuple[int, int, int], Row]] = {}
    for shape, l2 in product(asked, (COLD, HOT)):
        row = rows.get((problem(*shape, "bf16", "bf16"), l2))
        if row and row["percent_of_cublas"]:
            found.setdefault(l2, {})[shape] = row
    if not found:
        return ""
    shares = {l2: {shape: row["percent_of_cublas"] for shape, row in of.items()} for l2, of in found.items()}
    lines = [["m", *(f"{n} x {k}" for n, k in WEIGHTS)]]
    lines += [[str(m), *(_shares(shares, (m, *w)) for w in WEIGHTS)] for m in TOKENS]
    alone = ", ".join(f"{' x '.join(map(str, shape))}: {_shares(shares, shape)}" for shape in ALONE)
    told = "".join(f"{_summary(l2, each)}\n" for l2, each in shares.items())
    where = source(row for of in found.values() for row in of.values())
    head = "hopper at shapes of language models, m down, n x k across; bf16 tn: % of the faster library"
    return f"{head}, {' / '.join(found)}.\n{where}.\n{told}{alone}.\n\n{table(lines)}"


def _shares(shares: dict[str, dict[tuple[int, int, int], float]], shape: tuple[int, int, int]) -> str:
    return " / ".join(f"{each[shape]:.1f}" if shape in each else "-" for each in shares.values())


def _summary(l2: str, shares: dict[tuple[int, int, int], float]) -> str:
    """Return the mean and the ends of all shapes."""
    least, most = (pick(shares, key=lambda shape: shares[shape]) for pick in (min, max))
    ends = [
        f"{word} {shares[each]:.1f} at {' x '.join(map(str, each))}"
        for word, each in (("least", least), ("most", most))
    ]
    mean = geometric_mean(shares.values())
    return f"{l2.capitalize()}, {len(shares)} shapes: geometric mean {mean:.1f}, {', '.join(ends)}."


def float8() -> str:
    """Return hopper-fp8 beside the faster library in the same accumulation."""
    rows, lines, shown = quoted("hopper-fp8"), [["sums", *(f"{size}³" for size in FLOAT8_SIZES)]], []
    for name, promoted in (("fast", False), ("promoted", True)):
        names = [problem(size, size, size, "e4m3", "bf16", promoted=promoted) for size in FLOAT8_SIZES]
        found = [rows.get((name, COLD)) for name in names]
        lines.append([name, *map(cell, found)])
        shown += [row for row in found if row]
    if not shown:
        return ""
    head = "hopper-fp8, e4m3 tn, bf16 out, cold: TFLOP/s (% of the faster library, which sums alike) MHz."
    return f"{head}\n{source(shown)}.\n\n{table(lines)}"
