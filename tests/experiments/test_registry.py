"""Experiments are found in folders; a broken one is an entry with its problem, never a crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ptxlab.errors import ToolError, UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.catalogue import list_record, new_record, probe_record, verify_record
from ptxlab.experiments.probe import Probe

BROKEN = {
    "syntax": '"""A question?"""\ndef f(:\n',
    "raises": '"""A question?"""\n\nraise RuntimeError("no")\n',
    "empty": '"""A question?"""\n',
    "imports": "import no_such_module_at_all\n",
    "leaves": '"""A question?"""\nraise SystemExit(0)\n',
    "unmakeable": (
        '"""A question?"""\nfrom ptxlab.experiments.probe import Probe\n'
        "class Own(Probe):\n    def __init__(self, more): pass\n"
    ),
    "nested": '"""A question?"""\nx = ' + "(" * 5000 + ")" * 5000 + "\n",
}


@pytest.fixture
def own_probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's own probes, on $PTXLAB_PROBES."""
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.setenv("PTXLAB_PROBES", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def test_built_in_probes_are_found() -> None:
    """Every folder of probes/ with a probe.py is a probe of that name."""
    for entry in registry.probe_entries():
        assert not entry.problem
        assert registry.find_probe(entry.name).name == entry.name


def test_a_new_probe_is_found_and_complete(own_probes: Path) -> None:
    """`probe new` makes a folder that is found at once and predicts something."""
    record = new_record("mine", own_probes)
    assert record.result["files"] == ["kernel.cu", "probe.py"]
    probe = registry.find_probe("mine")
    assert probe.summary.endswith("?")
    case = probe.case("sm_90a", mask=4)
    assert probe.expected(case)["received"].tolist() == [lane ^ 4 for lane in range(32)]


def test_a_taken_name_is_refused(own_probes: Path) -> None:
    """A probe of that name, a reserved word, and an existing folder are refused; nothing is overwritten."""
    new_record("mine", own_probes)
    kernel = own_probes / "mine" / "kernel.cu"
    kernel.write_text("// changed")
    for name, words in (
        ("mine", "already"),
        ("verify", "is a command"),
        ("../up", "no name"),
        ("9lives", "no name"),
    ):
        with pytest.raises(UsageError, match=words):
            new_record(name, own_probes)
    assert kernel.read_text() == "// changed"


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_broken_probe_is_a_row(own_probes: Path, name: str) -> None:
    """The list shows it with its problem, the others work on, and asking for it says what is wrong."""
    folder = own_probes / name
    folder.mkdir()
    (folder / "probe.py").write_text(BROKEN[name])
    rows = {row["name"]: row for row in list_record().result["probes"]}
    assert rows[name]["problem"]
    assert any(not row["problem"] for row in rows.values())
    with pytest.raises(ToolError, match=str(folder / "probe.py")):
        registry.find_probe(name)


def test_the_line_that_fails_is_named(own_probes: Path) -> None:
    """An exception while loading is told with the line of the user's file."""
    folder = own_probes / "late"
    folder.mkdir()
    (folder / "probe.py").write_text('"""Why?"""\n\n\nraise ValueError("wrong table")\n')
    with pytest.raises(ToolError, match="line 4: ValueError: wrong table"):
        registry.find_probe("late")


def test_unknown_names_have_neighbours() -> None:
    """The refusal holds the legal names, and the hint the nearest."""
    name = registry.probe_entries()[0].name
    with pytest.raises(UsageError, match=f"unknown probe '{name}x'; legal: .*{name}") as caught:
        registry.find_probe(name + "x")
    assert caught.value.hint == f"did you mean {name}?"
    with pytest.raises(UsageError, match="unknown stage"):
        registry.find_stage("no-such-stage")


def test_stages_are_found() -> None:
    """Every folder of kernels/gemm/ with a stage.py is a stage of that name."""
    for entry in registry.stage_entries():
        assert registry.find_stage(entry.name).name == entry.name


def test_options_reach_the_case() -> None:
    """Options are attributes of the class and of the case; unknown names and values are refused."""
    probe = next(p for p in registry.usable_probes() if isinstance(p, Probe))
    name, first = next((n, o) for n, o in probe.options().items() if o.choices)
    assert getattr(probe.case("sm_90a"), name) in first.choices
    with pytest.raises(UsageError, match="legal: "):
        probe.case("sm_90a", **{name: "nonsense"})
    with pytest.raises(UsageError, match="unknown option"):
        probe.case("sm_90a", no_such_option=1)


def test_an_own_probe_hides_a_built_in_one(own_probes: Path) -> None:
    """What is being edited is what runs: a user's folder comes before the package's."""
    name = registry.probe_entries()[0].name
    new_record("mine", own_probes)
    (own_probes / "mine").rename(own_probes / name)
    assert registry.find_probe(name).folder == (own_probes / name).resolve()


def test_a_probe_without_a_kernel_is_a_row_with_a_problem(own_probes: Path) -> None:
    """The list names the missing file."""
    new_record("mine", own_probes)
    (own_probes / "mine" / "kernel.cu").unlink()
    (row,) = [row for row in list_record().result["probes"] if row["name"] == "mine"]
    assert row["problem"].endswith("kernel.cu does not exist")


def test_a_new_probe_elsewhere_says_how_it_is_found(own_probes: Path, tmp_path: Path) -> None:
    """A folder that nothing looks into is named in the next steps."""
    seen = new_record("mine", own_probes).result["next"]
    unseen = new_record("other", tmp_path / "elsewhere").result["next"]
    assert not any("PTXLAB_PROBES" in step for step in seen)
    assert f"export PTXLAB_PROBES={tmp_path / 'elsewhere'}" in unseen[0]


FAULTS = {
    'return {"received": 1 / 0}': r"probe\.py:\d+: ZeroDivisionError: division by zero",
    "raise SystemExit(3)": r"probe\.py:\d+: SystemExit: 3",
    'return {"received": np.arange(16, dtype=np.uint32)}': r"is uint32\[16\], outputs\(\) says uint32\[32\]",
    "return None": r"AttributeError",
    "return {}": r"expected\(\) has \[\], outputs\(\) has \['received'\]",
}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_fault_of_a_users_probe_is_told_as_theirs(own_probes: Path, fault: str) -> None:
    """With the file and the line, or what does not fit; verify goes on with the other probes."""
    new_record("mine", own_probes)
    path = own_probes / "mine" / "probe.py"
    text = path.read_text()
    right = next(line for line in text.splitlines() if "np.uint32(case.mask)" in line)
    path.write_text(text.replace(right.strip(), fault))
    probe = registry.find_probe("mine")
    lab = runner.Lab("sm_90a", None, None, "no GPU in this test")
    with pytest.raises(ToolError, match=FAULTS[fault]):
        probe_record(probe, {}, lab, lane=None, keep=False)
    with pytest.raises(ToolError, match=FAULTS[fault]) as caught:
        verify_record([], lab, lambda *_: None, keep=False)
    assert caught.value.record is not None
    assert caught.value.record.result["agree"] > 0, "the other probes were compared"


def test_what_a_probe_prints_does_not_reach_stdout(own_probes: Path, run_cli: Any) -> None:
    """Stdout holds one document, whatever a user's file says while it is loaded and run."""
    new_record("mine", own_probes)
    path = own_probes / "mine" / "probe.py"
    path.write_text(path.read_text() + '\n\nprint("loading")\n')
    done = run_cli("probe", "mine", "--json", env={"PTXLAB_PROBES": str(own_probes)})
    assert json.loads(done.stdout)["result"]["conclusion"]
    assert "loading" in done.stderr


def test_an_option_that_every_probe_has_is_refused(own_probes: Path, run_cli: Any) -> None:
    """An own option called arch would hide --arch."""
    new_record("mine", own_probes)
    path = own_probes / "mine" / "probe.py"
    path.write_text(
        path.read_text().replace("    mask = option", '    arch = option("", help="no")\n    mask = option')
    )
    done = run_cli("probe", "mine", env={"PTXLAB_PROBES": str(own_probes)})
    assert done.returncode == 4
    assert "every probe has --arch already" in done.stderr


@pytest.mark.parametrize(
    ("kernel", "words"),
    [("__global__ void KERNEL() {}\n", "defines no kernel mine_MASK1"), (b"\xff\xfe", "UTF-8")],
)
def test_a_kernel_that_is_none_is_named(own_probes: Path, kernel: str | bytes, words: str) -> None:
    """A kernel.cu without KERNEL, and one that is no text, are told in one line."""
    new_record("mine", own_probes)
    (own_probes / "mine" / "kernel.cu").write_bytes(kernel if isinstance(kernel, bytes) else kernel.encode())
    lab = runner.Lab("sm_90a", None, None, "no GPU in this test")
    with pytest.raises(ToolError, match=words):
        probe_record(registry.find_probe("mine"), {}, lab, lane=None, keep=False)
