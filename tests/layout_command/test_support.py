"""Facts about what ptxas makes of an instruction form, as ``ptxlab layout support`` reports them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from ptxlab.errors import ToolError, UsageError
from ptxlab.experiments import support
from ptxlab.isa.forms import Form, every_form
from ptxlab.render.show import text_of
from ptxlab.toolchain import cache

RunCli = Callable[..., CompletedProcess[str]]
Matrix = dict[str, dict[str, dict[str, str]]]
SINCE_80 = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_103a", "sm_120a")
SINCE_90 = SINCE_80[3:]
BLACKWELL = SINCE_80[5:]


def silent(what: str, done: int, total: int) -> None:
    """Take reports of progress."""
    del what, done, total


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """Form -> architecture -> cell, for all of them."""
    record = support.support_record([], "", silent)
    return {form["ptx"]: form["support"] for form in record.result["forms"]}


def having(matrix: Matrix, form: str, status: str) -> tuple[str, ...]:
    """Return the architectures on which a form has this status."""
    return tuple(arch for arch, cell in matrix[form].items() if cell["status"] == status)


def mma(shape: str, types: str, tail: str = "") -> str:
    """Return the text of a dense mma."""
    return f"mma.sync.aligned.{shape}.row.col.{types}{tail}"


def test_every_cell_says_what_it_is(matrix: Matrix) -> None:
    """A form is code, or it has a reason; and no form is refused everywhere but by mistake in its text."""
    assert len(matrix) == len({form.label for form in every_form()}) > 250
    for form, cells in matrix.items():
        assert tuple(cells) == support.ARCHS
        for cell in cells.values():
            assert cell["status"] in ("native", "emulated", "rejected")
            assert bool(cell["sass"]) == (cell["status"] != "rejected")
            assert bool(cell["reason"]) == (cell["status"] == "rejected")
        assert len(having(matrix, form, "rejected")) < len(support.ARCHS), (form, cells)


def test_reasons_are_about_the_architecture(matrix: Matrix) -> None:
    """A syntax error in a form's own text would be told otherwise."""
    reasons = {cell["reason"] for cells in matrix.values() for cell in cells.values() if cell["reason"]}
    assert [reason for reason in reasons if ".target" not in reason] == []


@pytest.mark.parametrize(
    ("form", "opcode"),
    [
        (mma("m16n8k16", "f32.f16.f16.f32"), "HMMA.16816.F32"),
        (mma("m16n8k16", "f32.bf16.bf16.f32"), "HMMA.16816.F32.BF16"),
        (mma("m16n8k8", "f32.tf32.tf32.f32"), "HMMA.1688.F32.TF32"),
        (mma("m16n8k4", "f32.tf32.tf32.f32"), "HMMA.1684.F32.TF32"),
        (mma("m16n8k16", "s32.s8.s8.s32"), "IMMA.16816.S8.S8"),
        (mma("m16n8k32", "s32.u8.s8.s32"), "IMMA.16832.U8.S8"),
    ],
)
def test_native_from_ampere_on(matrix: Matrix, form: str, opcode: str) -> None:
    """One operation of the chip, the same on each, and Turing refuses."""
    assert having(matrix, form, "native") == SINCE_80
    assert {matrix[form][arch]["sass"] for arch in SINCE_80} == {opcode}
    assert "requires .target sm_80" in matrix[form]["sm_75"]["reason"]


def test_native_everywhere(matrix: Matrix) -> None:
    """What Turing had stays; Blackwell does m8n8k16 with its operation of twice the height."""
    half, byte = mma("m16n8k8", "f32.f16.f16.f32"), mma("m8n8k16", "s32.s8.s8.s32")
    assert having(matrix, half, "native") == having(matrix, byte, "native") == support.ARCHS
    assert matrix[byte]["sm_90a"]["sass"] == "IMMA.8816.S8.S8"
    assert {matrix[byte][arch]["sass"] for arch in BLACKWELL} == {"IMMA.16816.S8.S8"}


@pytest.mark.parametrize("types", ["f32.e4m3.e4m3.f32", "f32.e5m2.e4m3.f32", "f16.e5m2.e5m2.f16"])
@pytest.mark.parametrize("k", [16, 32])
def test_fp8_is_native_on_ada_and_on_consumer_blackwell_alone(matrix: Matrix, types: str, k: int) -> None:
    """Hopper and data-centre Blackwell unpack to f16 and multiply twice."""
    form = mma(f"m16n8k{k}", types)
    assert having(matrix, form, "native") == ("sm_89", "sm_120a")
    assert having(matrix, form, "emulated") == ("sm_90", "sm_90a", "sm_100a", "sm_103a")
    acc, a, b, _ = types.upper().split(".")
    assert matrix[form]["sm_89"]["sass"] == matrix[form]["sm_120a"]["sass"] == f"QMMA.168{k}.{acc}.{a}.{b}"
    made = matrix[form]["sm_90a"]["sass"]
    assert made.startswith(f"2 HMMA.{'1688' if k == 16 else '16816'}.{acc} + ")
    unpacked = re.findall(r"(\d+) F2FP\.F16\.E\wM\w\.UNPACK_B", made)
    assert sum(map(int, unpacked)) == (6 if k == 16 else 12)


def test_volta_s_mma_is_native_on_turing_alone(matrix: Matrix) -> None:
    """Four steps there; later no tensor operation at all, but a call."""
    form = mma("m8n8k4", "f32.f16.f16.f32")
    assert having(matrix, form, "native") == ("sm_75",)
    steps = matrix[form]["sm_75"]["sass"].split(" + ")
    assert steps == [f"1 HMMA.884.F32.F32.STEP{number}" for number in range(4)]
    for arch in SINCE_80:
        assert matrix[form][arch]["status"] == "emulated"
        assert not re.search(r"\b[HIBDQ]MMA", matrix[form][arch]["sass"])
        assert "CALL" in matrix[form][arch]["sass"]


@pytest.mark.parametrize(("k", "smaller"), [(4, 2), (8, 4), (16, 8)])
def test_large_f64_shapes_are_hopper_s(matrix: Matrix, k: int, smaller: int) -> None:
    """Refused before, one operation there, several small ones on Blackwell."""
    form = mma(f"m16n8k{k}", "f64.f64.f64.f64")
    for arch in ("sm_75", "sm_80", "sm_86", "sm_89"):
        assert "requires .target sm_90 or higher" in matrix[form][arch]["reason"]
    assert {matrix[form][arch]["sass"] for arch in ("sm_90", "sm_90a")} == {f"DMMA.16x8x{k}"}
    assert having(matrix, form, "emulated") == BLACKWELL
    assert {matrix[form][arch]["sass"] for arch in BLACKWELL} == {f"{smaller} DMMA.8x8x4"}
    small = matrix[mma("m8n8k4", "f64.f64.f64.f64")]
    assert (small["sm_80"]["sass"], small["sm_90a"]["sass"]) == ("DMMA.884", "DMMA.8x8x4")


def test_four_bit_integers_end_with_ada(matrix: Matrix) -> None:
    """From Hopper on two 8-bit operations and what unpacks for them."""
    form = mma("m16n8k64", "s32.s4.s4.s32")
    assert having(matrix, form, "native") == ("sm_80", "sm_86", "sm_89")
    assert matrix[form]["sm_80"]["sass"] == "IMMA.16864.S4.S4"
    assert having(matrix, form, "emulated") == SINCE_90
    for arch in SINCE_90:
        assert matrix[form][arch]["sass"].startswith("2 IMMA.16832.S8.S8 + ")


def test_every_form_of_wmma_is_asked(matrix: Matrix) -> None:
    """All shapes of 16-bit types and bytes, and both kinds of 4-bit integers."""
    asked = [form for form in matrix if form.startswith("wmma.mma.")]
    for shape in ("m16n16k16", "m32n8k16", "m8n32k16"):
        for types in ("f32.f32", "f16.f16", "f32.bf16.bf16.f32", "s32.s8.s8.s32", "s32.u8.u8.s32"):
            form = f"wmma.mma.sync.aligned.row.col.{shape}.{types}"
            assert matrix[form]["sm_90a"]["status"] == "native"
    assert sum(".s4." in form or ".u4." in form for form in asked) == 2
    assert len(asked) == 21


def test_single_bits_end_with_hopper(matrix: Matrix) -> None:
    """There .and alone is native; Blackwell multiplies bytes."""
    both = {op: mma("m16n8k256", "s32.b1.b1.s32", f".{op}.popc") for op in ("and", "xor")}
    assert having(matrix, both["and"], "native") == ("sm_80", "sm_86", "sm_89", "sm_90", "sm_90a")
    assert having(matrix, both["xor"], "native") == ("sm_80", "sm_86", "sm_89")
    assert matrix[both["xor"]]["sm_90a"]["sass"].startswith("2 BMMA.168256.AND.POPC + ")
    for form in both.values():
        assert matrix[form]["sm_100a"]["sass"].startswith("8 IMMA.16832.U8.U8 + ")


def test_wgmma_is_on_one_architecture(matrix: Matrix) -> None:
    """Newer is no superset, and sm_90 without its suffix has none either."""
    forms = [form for form in matrix if form.startswith("wgmma")]
    assert len(forms) > 20
    for form in forms:
        assert having(matrix, form, "native") == ("sm_90a",), form
        assert having(matrix, form, "emulated") == ()
        assert "not supported on .target 'sm_100a'" in matrix[form]["sm_100a"]["reason"]
    assert {matrix[form]["sm_90a"]["sass"].partition(".")[0] for form in forms} == {
        "HGMMA", "QGMMA", "IGMMA", "BGMMA",
    }  # fmt: skip
    half = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
    assert matrix[half]["sm_90a"]["sass"] == "HGMMA.64x64x16.F32"


def test_tcgen05_is_data_centre_blackwell_s(matrix: Matrix) -> None:
    """Its integers are on the first of them alone."""
    half, byte = ("tcgen05.mma.cta_group::1.kind::" + kind for kind in ("f16", "i8"))
    assert having(matrix, half, "native") == ("sm_100a", "sm_103a")
    assert matrix[half]["sm_100a"]["sass"] == "UTCHMMA"
    assert having(matrix, byte, "native") == ("sm_100a",)


def test_block_scales_are_consumer_blackwell_s(matrix: Matrix) -> None:
    """mma.sync with scales exists on sm_120a, as one operation."""
    scaled = [form for form in matrix if form.startswith("mma.") and "block_scale" in form]
    assert len(scaled) > 10
    for form in scaled:
        assert having(matrix, form, "native") == ("sm_120a",), form
        assert matrix[form]["sm_120a"]["sass"].startswith(("QMMA.SF.", "OMMA.SF.")), form


def test_ordered_metadata_spares_blackwell_a_detour(matrix: Matrix) -> None:
    """The same tensor operation, with code before it that puts the metadata in order unless told not to."""
    plain = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    ordered = plain.replace("mma.sp", "mma.sp::ordered_metadata")
    assert having(matrix, ordered, "native") == SINCE_80
    assert having(matrix, plain, "native") == SINCE_80[:5]
    assert matrix[ordered]["sm_100a"]["sass"] == "HMMA.SP.16832.F32"
    assert matrix[plain]["sm_100a"]["sass"].startswith("1 HMMA.SP.16832.F32 + ")


def test_matrices_move_from_turing_on(matrix: Matrix) -> None:
    """Loading and transposing are old, storing is Hopper's, and 8-bit transposes are Blackwell's."""
    load, store, move = (
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
        "stmatrix.sync.aligned.m8n8.x4.shared.b16",
        "movmatrix.sync.aligned.m8n8.trans.b16",
    )
    assert having(matrix, load, "native") == having(matrix, move, "native") == support.ARCHS
    assert having(matrix, store, "native") == SINCE_90
    assert [matrix[form]["sm_90a"]["sass"] for form in (load, store, move)] == [
        "LDSM.16.MT88.4", "STSM.16.M88.4", "MOVM.16.MT88",
    ]  # fmt: skip
    bytes_ = "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8"
    assert having(matrix, bytes_, "native") == BLACKWELL
    assert matrix[bytes_]["sm_100a"]["sass"] == "LDSM.8.MT1616.2"


def test_copies_and_barriers(matrix: Matrix) -> None:
    """Ampere's copies, Hopper's bulk copies and its barriers in hardware."""
    copies = {form: cells for form, cells in matrix.items() if form.startswith("cp.async.c")}
    assert {cells["sm_80"]["sass"] for cells in copies.values()} == {
        "LDGSTS.E", "LDGSTS.E.64", "LDGSTS.E.128", "LDGSTS.E.BYPASS.128", "LDGDEPBAR",
    }  # fmt: skip
    tensor = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
    assert having(matrix, tensor, "native") == SINCE_90
    assert matrix[tensor]["sm_90a"]["sass"] == "UTMALDG.2D"
    wait = "mbarrier.{}_wait.parity.shared::cta.b64"
    assert having(matrix, wait.format("try"), "native") == SINCE_90
    assert matrix[wait.format("try")]["sm_90a"]["sass"] == "SYNCS.PHASECHK.TRANS64.TRYWAIT"
    assert having(matrix, wait.format("test"), "emulated") == ("sm_80", "sm_86", "sm_89")


def test_a_column_comes_out_of_the_cache(matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time nothing is assembled, and the answer is the same."""
    monkeypatch.setattr(support, "assemble", pytest.fail)
    record = support.support_record(["sm_90a"], "ldmatrix", silent)
    assert record.arch == "sm_90a"
    assert {form["ptx"]: form["support"]["sm_90a"] for form in record.result["forms"]} == {
        form: cells["sm_90a"] for form, cells in matrix.items() if form.startswith("ldmatrix")
    }


def test_a_damaged_column_is_made_again(matrix: Matrix) -> None:
    """The cache notices; the answer is right."""
    del matrix
    forms = [Form("movmatrix", "movmatrix.sync.aligned.m8n8.trans.b16", "o, i", ("MOVM",))]
    first = support.column(forms, "sm_90a")
    (kept,) = (
        file for file in cache.cache_folder().glob("builds/*/support.json") if len(file.read_bytes()) < 200
    )
    kept.write_text("{}")
    assert support.column(forms, "sm_90a") == first


def test_a_form_that_is_refused_late_does_not_sink_the_others() -> None:
    """Text is checked first, then the target: ptxas runs several times, and each form has its own reason."""
    forms = [
        Form("movmatrix", "movmatrix.sync.aligned.m8n8.trans.b16", "o, i", ("MOVM",)),
        Form("mistake", "mma.nonsense", "o4, i4"),
        Form("wgmma", "wgmma.fence.sync.aligned", ""),
    ]
    found = support.column(forms, "sm_80")
    assert [cell["status"] for cell in found.values()] == ["native", "rejected", "rejected"]
    assert len({cell["reason"] for cell in found.values()}) == 3


def test_where_nothing_is_accepted() -> None:
    """A column of refusals is an answer, too."""
    forms = [Form("wgmma", "wgmma.fence.sync.aligned", "")]
    assert support.column(forms, "sm_80")["wgmma.fence.sync.aligned"]["status"] == "rejected"


def test_a_complaint_about_no_form_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a ptxas that is older than the PTX version of the module."""
    monkeypatch.setattr(support, "PTX_VERSION", "99.0")
    with pytest.raises(ToolError, match=r"Unsupported \.version"):
        support.column(every_form()[:1], "sm_90a")


def test_unknown_names_are_answered_with_the_legal_ones() -> None:
    """Before anything is compiled."""
    with pytest.raises(UsageError, match=r"legal: mma, mma\.sp, "):
        support.support_record([], "hmma", silent)
    with pytest.raises(UsageError, match="legal: sm_75"):
        support.support_record(["sm_91"], "", silent)


def test_the_matrix_reads_well(matrix: Matrix, run_here: RunCli) -> None:
    """A word for those that are alike, SASS at the end, and ptxas' reasons once each."""
    del matrix
    words = ("layout", "support", "--only", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3")
    done = run_here(*words)
    assert done.returncode == 0
    (row,) = (line.split() for line in done.stdout.splitlines() if line.startswith(" mma.sync"))
    assert " PTX sm_75-86 sm_89 sm_90-103a sm_120a refused SASS" in map(_spaced, done.stdout.splitlines())
    assert row[1:5] == ["-", "native", "emulated", "native"]
    whole = run_here(*words, "--format", "csv").stdout
    assert ",,,native,emulated,emulated,emulated,emulated,native," in whole
    assert "from sm_90: 2 HMMA.16816.F32 + 12 F2FP.F16.E4M3.UNPACK_B + 4 FADD" in " ".join(row)
    assert "requires .target sm_89 or higher" in done.stdout


def _spaced(line: str) -> str:
    """Return the line with single spaces."""
    return f" {' '.join(line.split())}"


def test_the_matrix_fits_a_terminal(matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    """The 22 forms of s4 in 100 columns: of each a line for the chips and one or two for the SASS."""
    del matrix
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    document = support.support_record([], "s4", silent).document()
    lines = text_of(document | {"command": ["layout", "support"]}, "table").splitlines()
    assert len(document["result"]["forms"]) == 22
    assert len(lines) < 120


def test_progress_is_told_column_by_column() -> None:
    """What a long run shows on stderr."""
    said: list[str] = []
    record = support.support_record(
        ["sm_75", "sm_90a"], "ldmatrix", lambda what, done, total: said.append(f"{what} {done}/{total}")
    )
    assert record.result["archs"] == ["sm_75", "sm_90a"]
    assert said == ["assembling for sm_75 0/2", "assembling for sm_90a 1/2"]


def test_forms_are_found_by_what_they_hold(matrix: Matrix, run_here: RunCli) -> None:
    """A type in the middle of the text; but where forms begin so, just those."""
    del matrix
    record = support.support_record(["sm_90a"], "s4", silent)
    assert len(record.result["forms"]) > 10
    assert all(".s4" in form["ptx"] for form in record.result["forms"])
    names = {
        form["instruction"] for form in support.support_record(["sm_90a"], "mma", silent).result["forms"]
    }
    assert names == {"mma", "mma.sp", "mma.kind"}
    assert "forms that begin so" in run_here("layout", "support", "--help").stdout


def test_refusals_are_whole_sentences_that_rows_refer_to(matrix: Matrix, run_here: RunCli) -> None:
    """Each row that is refused somewhere has the number of the reason."""
    del matrix
    lines = run_here("layout", "support", "--only", "mma.sync.aligned.m16n8k64").stdout.splitlines()
    reasons = {}
    for line in lines[lines.index("refused by ptxas") + 3 :]:
        if not line.strip():
            break
        number, *words = line.split()
        reasons[number] = " ".join(words)
    assert len(reasons) == 2
    assert not any(
        text.endswith(("on .target that", "on .target")) or "target that" in text for text in reasons.values()
    )
    rows, at = [], 0
    for words in map(str.split, lines):
        at = words.index("refused") if words[:1] == ["PTX"] else at
        if words and words[0].startswith("mma.sync"):
            rows.append((words[0], words[at]))
    assert {number for _, number in rows} == set(reasons)
    blocked = next(row for row in rows if "mxf4" in row[0])
    assert "'mma with block scale' not supported" in reasons[blocked[1]]


def test_the_answer_is_one_sentence() -> None:
    """Which architectures have how many of the forms."""
    told = support.support_record([], "s4", silent).result["conclusion"]
    assert "sm_80, sm_86, sm_89: 22 native; sm_90, sm_90a" in told
    assert told.startswith("Of 22 forms, sm_75: 4 native and 18 refused;")
    one = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    assert (
        support.support_record(["sm_80"], one, silent).result["conclusion"] == "Of 1 form, sm_80: 1 native."
    )
