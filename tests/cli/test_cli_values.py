"""Values that are empty, out of range or none of the legal ones, and options that do not go together."""

import json
from typing import Any

import pytest

EMPTY = [
    ("gemm --stage", "legal: ampere, "),
    ("gemm --stage wmma-naive --dtype", "legal: f16"),
    ("gemm --stage hopper --dtype", "legal: f16, bf16, tf32, s8, e4m3, e5m2"),
    ("gemm --stage wmma-naive --init", "legal: normal, ints, naturals, seq, ones, zeros"),
    ("probe ldmatrix --arch", "legal: sm_75, sm_80, "),
    ("probe ldmatrix --num", "legal: x1, x2, x4"),
    ("probe ldmatrix --tile", "legal: ROWSxCOLS"),
    ("probe ldmatrix --format", "legal: table, csv, md"),
    ("probe ldmatrix --svg", "legal: "),
    ("probe verify --only", "legal: banks, bulk-copy, "),
    ("sass probe:ldmatrix -D", "legal: NAME[=VALUE]"),
    ("sass probe:ldmatrix -O", "legal: 0, 1, 2, 3"),
    ("sass probe:ldmatrix --kernel", "legal: NAME"),
    ("sass", "A .cu, .ptx or .cubin file, probe:NAME, or gemm:STAGE."),
    ("swizzle solve --tile", "legal: ROWSxCOLS"),
    ("swizzle check", "none, 32B, 64B, 128B, or B,M,S in elements."),
    ("layout support --only", "legal: mma, "),
    ("profile probe:ldmatrix --metrics", "legal: default, counts, "),
    ("profile probe:ldmatrix --option", "legal: num=x1, "),
    ("gemm --stage wmma-warptile --sweep", "tile_k=16, tile_k=32, tile_k=64"),
    ("profile", "probe:NAME or NAME, gemm:STAGE"),
]


@pytest.mark.parametrize(("line", "legal"), EMPTY, ids=[line for line, _ in EMPTY])
def test_an_empty_value_is_none(run_here: Any, line: str, legal: str) -> None:
    """It means neither the default nor everything, and the next option is no value."""
    done = run_here(*line.split(), "")
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs a value; " in done.stderr
    assert legal in done.stderr
    if line.rsplit(maxsplit=1)[-1].startswith("-"):
        assert run_here(*line.split(), "--json").stderr == done.stderr
        assert run_here(*line.split()).stderr == done.stderr


@pytest.mark.parametrize("define", [" ", "=3", "9A", "A B", "-DX"])
def test_a_macro_has_a_name(run_here: Any, root: Any, define: str) -> None:
    """The compiler would take the option after a blank one for the macro."""
    kernel = root / "probes" / "ldmatrix" / "kernel.cu"
    done = run_here("sass", str(kernel), "-D", define)
    assert done.returncode == 2
    assert done.stderr.endswith("defines no macro; legal: NAME, NAME=VALUE\n")


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e10", "86401", "0", "-1", "soon"])
@pytest.mark.parametrize(
    "line", ["probe ldmatrix", "probe verify", "gemm --ladder", "doctor", "profile probe:ldmatrix"]
)
def test_a_time_limit_is_a_limit(run_here: Any, line: str, value: str) -> None:
    """A clock knows neither infinity nor ages."""
    done = run_here(*line.split(), "--timeout", value)
    assert done.returncode == 2
    assert f"'{value}' is no value for --timeout; legal: 0.001 to 86400" in done.stderr


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        (
            "gemm --stage wmma-naive --init one",
            "--init 'one'; legal: normal, ints, naturals, seq",
            "mean ones?",
        ),
        ("probe list --format cvs", "--format 'cvs'; legal: table, csv, md", "did you mean csv?"),
        ("probe ldmatrix --backend gpu", "--backend 'gpu'; legal: auto, device, model", "ldmatrix --help"),
        ("probe movmatrix --times one", "--times 'one'; legal: 1, 2", "ptxlab probe movmatrix --help"),
        ("probe ldmatrix --lane 32", "'32' is no value for --lane; legal: 0 to 31", "ldmatrix --help"),
        (
            "probe ldmatrix --lane \u0663",
            "'\u0663' is no value for --lane; legal: 0 to 31",
            "ldmatrix --help",
        ),
        ("probe ldmatrix --lane 1_0", "'1_0' is no value for --lane; legal: 0 to 31", "ldmatrix --help"),
        ("layout where mma A 1_0 5", "'1_0' is no value for row; legal: a whole number", "where mma --help"),
        ("gemm --list --device -1", "'-1' is no value for --device; legal: at least 0", "gemm --help"),
        ("gemm --list -m many", "'many' is no value for -m; legal: a whole number", "ptxlab gemm --help"),
        ("layout where mma A x 5", "'x' is no value for row; legal: a whole number", "where mma --help"),
        ("layout where ldmatrix registers", "ptxlab layout where ldmatrix needs row", "ldmatrix --help"),
        ("swizzle solve", "ptxlab swizzle solve needs --tile; legal: ROWSxCOLS", "swizzle solve --help"),
    ],
)
def test_a_wrong_value_is_told_with_the_legal_ones(run_here: Any, line: str, message: str, hint: str) -> None:
    """And the nearest, or the page that tells more."""
    done = run_here(*line.split())
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert message in first
    assert second.endswith(hint)


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("gemm --list --record", "--record"),
        ("gemm --list -m 64 --explain", "-m, --explain"),
        ("gemm --list --arch sm_90a --timeout 3 --seed 1", "--seed, --arch, --timeout"),
        ("gemm --list --ladder", "gemm takes one of"),
        ("gemm --stage wmma-naive --explain --record", "--record"),
        ("profile --option num=x2 -- true", "--option"),
        ("profile -m 64 --arch sm_90 -- true", "-m, --arch"),
        ("profile old.ncu-rep -k 64", "-k"),
    ],
)
def test_options_that_do_not_go_together_are_refused(run_here: Any, line: str, asked: str) -> None:
    """What would be passed over in silence is not taken."""
    done = run_here(*line.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"ptxlab: {asked}")


def test_a_list_takes_a_form(run_here: Any) -> None:
    """--json, --format and --debug belong to every command."""
    assert json.loads(run_here("gemm", "--list", "--json", "--debug").stdout)["result"]["available"]
    assert run_here("gemm", "--list", "--format", "csv").stdout.startswith("# stages; recorded: ")


@pytest.mark.parametrize(
    ("untyped", "typed"), [("b8", "e4m3"), ("b16", "f16"), ("b32", "tf32"), ("b64", "f64")]
)
def test_a_tile_may_be_known_by_its_width(run_here: Any, untyped: str, typed: str) -> None:
    """As ldmatrix itself knows no more of its elements."""
    question = ("swizzle", "solve", "--tile", "16x64", "--json", "--dtype")
    found, same = (json.loads(run_here(*question, each).stdout)["result"] for each in (untyped, typed))
    found["conclusion"] = found["conclusion"].replace(f"of {untyped} elements", f"of {typed} elements")
    assert found == same
    assert run_here("swizzle", "check", "128B", "--tile", "16x64", "--dtype", "b16").returncode == 0


@pytest.mark.parametrize("flag", ["--set", "--sweep"])
@pytest.mark.parametrize("value", [(), ("",), ("--json",)])
def test_what_is_legal_is_what_the_stage_on_the_line_takes(
    run_here: Any, flag: str, value: tuple[str, ...]
) -> None:
    """No other stage's options: wmma-naive has none of its own."""
    told = run_here("gemm", "--stage", "wmma-naive", flag, *value).stderr
    assert "layout=tt, alpha=, beta=\n" in told


@pytest.mark.parametrize(("name", "guess"), [("spilts", "did you mean splits?"), ("nonsense", "")])
def test_a_guess_is_near_or_there_is_none(run_here: Any, name: str, guess: str) -> None:
    """What has a few letters in common with an option is not what was meant."""
    done = run_here("gemm", "--stage", "hopper", "--set", f"{name}=3", "--json")
    assert json.loads(done.stdout)["error"]["hint"] == guess


def test_the_help_of_gemm_shows_both_of_its_forms(run_here: Any) -> None:
    """Also where compare stands before --help."""
    for words in ((), ("compare",)):
        usage = run_here("gemm", *words, "--help").stdout.splitlines()[:2]
        assert [" ".join(line.split()) for line in usage] == [
            "Usage: ptxlab gemm (--stage NAME | --ladder | --list) [OPTIONS]",
            "ptxlab gemm compare A B [--json] [--format FORM]",
        ]
