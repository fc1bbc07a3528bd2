"""Experiments are found in folders; a broken one is an entry with its problem, never a crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ptxlab.errors import PtxlabError, ToolError, UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.catalogue import list_record, new_record, probe_record
from ptxlab.experiments.probe import Probe

BROKEN = {
    "syntax": '"""A question?"""\ndef f(:\n',
    "raises": '"""A question?"""\n\nraise RuntimeError("no")\n',
    "leaves": '"""A question?"""\nraise SystemExit(0)\n',
    "interrupts": '"""A question?"""\nraise KeyboardInterrupt\n',
    "empty": '"""A question?"""\n',
    "nested": '"""A question?"""\nx = ' + "(" * 5000 + ")" * 5000 + "\n",
    "binary": "x = '\0'\n",
}
"""Reading tells that they cannot be used."""

HEAD = '"""A question?"""\nimport sys\nfrom ptxlab.experiments.base import option\n'
HEAD += "from ptxlab.experiments.probe import Probe\n"

UNLOADABLE = {
    "imports": (HEAD + "import no_such_module_at_all\nclass Own(Probe): pass\n", "5: ModuleNotFoundError"),
    "exits": (HEAD + "class Own(Probe): pass\nsys.exit(0)\n", "6: SystemExit: 0"),
    "interrupts": (
        HEAD + "class Own(Probe): pass\nif True:\n    raise KeyboardInterrupt\n",
        "7: KeyboardInterrupt",
    ),
    "two": (HEAD + "class Own(Probe): pass\nclass Other(Probe): pass\n", "must define exactly one Probe"),
    "other": (HEAD + "class Own: pass\n", "must define exactly one Probe; it defines none"),
    "unmakeable": (HEAD + "class Own(Probe):\n    def __init__(self, more): pass\n", "TypeError"),
    "unsayable": (
        HEAD
        + "class Odd(Exception):\n    def __str__(self): return 1\nraise Odd\n"
        + "class Own(Probe): pass",
        "7: Odd",
    ),
    "hiding": (
        HEAD + 'class Own(Probe):\n    recordings = option(1, help="x")\n',
        "no option can be called recordings",
    ),
    "params": (
        HEAD + 'class Own(Probe):\n    arch = option("x", help="x")\n',
        "no option can be called arch",
    ),
    "default": (HEAD + 'class Own(Probe):\n    x = option([1], help="x")\n', "6: TypeError: the default of"),
    "choices": (
        HEAD + 'class Own(Probe):\n    x = option("a", choices="ab", help="x")\n',
        "6: TypeError: choices are 'ab'",
    ),
    "mixed": (
        HEAD + 'class Own(Probe):\n    x = option("1", choices=(1, 2), help="x")\n',
        "6: TypeError: choices",
    ),
    "silent": (HEAD + 'class Own(Probe):\n    x = option(1, help="")\n', "6: TypeError: help"),
}
"""Only running them tells: file, and what the message says after the file's name."""


def test_built_in_probes_are_found() -> None:
    """Every folder of probes/ with a probe.py is a probe of that name."""
    for entry in registry.probe_entries():
        assert entry.said.problem == ""
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


def write_probe(folder: Path, text: str) -> Path:
    """Write the file of a probe, with a kernel beside it, and return it."""
    folder.mkdir()
    (folder / "kernel.cu").write_text('extern "C" __global__ void KERNEL() {}\n')
    (folder / "probe.py").write_text(text)
    return folder / "probe.py"


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_broken_probe_is_a_row(own_probes: Path, name: str) -> None:
    """The list shows it with its problem, the others work on, and asking for it says what is wrong."""
    file = write_probe(own_probes / name, BROKEN[name])
    rows = {row["name"]: row for row in list_record().result["probes"]}
    assert str(file) in rows[name]["problem"]
    assert any(not row["problem"] for row in rows.values())
    with pytest.raises(ToolError, match=str(file)):
        registry.find_probe(name)


@pytest.mark.parametrize("name", ["verify", "--json", "two\nlines"])
def test_a_name_that_nobody_can_ask_for_is_told_in_the_row(
    own_probes: Path, run_here: Any, name: str
) -> None:
    """A command's own, one that looks like an option, one that no line holds; help leaves it out."""
    write_probe(own_probes / name, HEAD + "class Own(Probe): pass\n")
    (row,) = [row for row in list_record().result["probes"] if row["name"] == name]
    assert "another name" in row["problem"] or "cannot be typed" in row["problem"]
    helped = run_here("probe", "--help").stdout.splitlines()
    shown = [line for line in helped if line.split()[:1] == name.split()[:1]]
    assert len(shown) == (name == "verify")


@pytest.mark.parametrize("name", sorted(UNLOADABLE))
def test_a_probe_that_does_not_load_is_told_with_its_line(own_probes: Path, name: str) -> None:
    """By whoever runs it; what runs all of them goes on with the others."""
    text, words = UNLOADABLE[name]
    file = write_probe(own_probes / name, text)
    with pytest.raises(ToolError) as caught:
        registry.find_probe(name)
    assert caught.value.message.startswith(str(file))
    assert words in caught.value.message
    found = list(registry.usable_probes())
    assert [each.message for each in found if isinstance(each, PtxlabError)] == [caught.value.message]
    assert len([each for each in found if isinstance(each, Probe)]) == len(found) - 1 > 0


@pytest.mark.parametrize(
    "words",
    [("probe", "list"), ("probe", "--help"), ("layout", "where", "--help"), ("probe", "nonsense"),
     ("sass", "nonsense"), ("gemm", "--list")],
    ids=" ".join,
)  # fmt: skip
def test_what_lists_probes_runs_none(own_probes: Path, run_here: Any, words: tuple[str, ...]) -> None:
    """Names, questions and options are read; the code of a probe runs when the probe does."""
    trace = own_probes / "it-ran"
    write_probe(own_probes / "mine", f"{HEAD}import os\nos.mkdir({str(trace)!r})\nclass Own(Probe): pass\n")
    run_here(*words)
    assert not trace.exists()
    registry.find_probe("mine")
    assert trace.exists()


@pytest.mark.parametrize("words", [("probe",), ("layout", "where")], ids=" ".join)
def test_one_broken_probe_takes_nothing_away(own_probes: Path, run_here: Any, words: tuple[str, ...]) -> None:
    """Help shows the others; the broken one says its line when it is called."""
    file = write_probe(own_probes / "mine", UNLOADABLE["imports"][0])
    name = "ldmatrix"  # which has register maps
    helped = run_here(*words, "--help")
    assert helped.returncode == 0
    assert name in helped.stdout
    assert run_here(*words, name, "--help").returncode == 0
    called = run_here(*words, "mine", "--help")
    assert called.returncode == 4
    assert called.stderr.startswith(f"ptxlab: {file}:5: ModuleNotFoundError")


def test_tab_completes_beside_a_broken_probe(own_probes: Path, run_cli: Any) -> None:
    """The names that begin so, and nothing on stderr, which would land in the user's line."""
    write_probe(own_probes / "mine", UNLOADABLE["imports"][0])
    name = "ldmatrix"  # which has register maps
    for words, offered in ((f"probe {name[:2]}", name), ("probe mine --n", ""), ("layout where mi", "mine")):
        env = {
            "PTXLAB_PROBES": str(own_probes),
            "_PTXLAB_COMPLETE": "complete_bash",
            "COMP_WORDS": f"ptxlab {words}",
            "COMP_CWORD": str(words.count(" ") + 1),
        }
        done = run_cli(env=env)
        assert done.stderr == ""
        assert offered in done.stdout.split() if offered else done.stdout.strip() == ""


def test_the_list_reads_options_and_recordings(own_probes: Path) -> None:
    """What a class declares with option(...) is in its row; built-in ones name the card."""
    new_record("mine", own_probes)
    rows = {row["name"]: row for row in list_record().result["probes"]}
    assert rows["mine"]["options"] == ["mask"]
    assert rows["mine"]["recordings"] == []
    for name, row in rows.items():
        assert row["options"] == list(registry.find_probe(name).options())
        on_hopper = list(registry.find_probe(name).variants("sm_90a"))
        assert bool(row["recordings"]) == bool(on_hopper and name != "mine")


def refuse(monkeypatch: pytest.MonkeyPatch, method: str, path: Path) -> None:
    """Let a method of Path be refused for one path, as the system would refuse it to others than root."""
    usual = getattr(Path, method)

    def refused(self: Path) -> Any:
        if self == path:
            raise PermissionError(13, "Permission denied", str(path))
        return usual(self)

    monkeypatch.setattr(Path, method, refused)


def test_a_closed_folder_of_probes_is_a_row(
    own_probes: Path, monkeypatch: pytest.MonkeyPatch, run_here: Any
) -> None:
    """With the reason; help and the other probes go on."""
    refuse(monkeypatch, "is_dir", own_probes)
    refuse(monkeypatch, "iterdir", own_probes)
    (row,) = [row for row in list_record().result["probes"] if row["problem"]]
    assert row["problem"] == f"{own_probes} cannot be read: Permission denied"
    name = registry.probe_entries()[-1].name
    assert name in run_here("probe", "--help").stdout
    assert run_here("probe", name, "--help").returncode == 0


def test_a_closed_probe_is_a_row(own_probes: Path, monkeypatch: pytest.MonkeyPatch, run_here: Any) -> None:
    """One folder among others that cannot be looked into."""
    new_record("mine", own_probes)
    new_record("other", own_probes)
    refuse(monkeypatch, "is_file", own_probes / "mine" / "probe.py")
    rows = {row["name"]: row for row in list_record().result["probes"]}
    assert rows["mine"]["problem"] == f"{own_probes / 'mine'} cannot be read: Permission denied"
    assert rows["other"]["problem"] == ""
    assert "other" in run_here("probe", "--help").stdout


def test_closed_recordings_are_told_in_the_row(own_probes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not taken for none."""
    new_record("mine", own_probes)
    refuse(monkeypatch, "iterdir", own_probes / "mine" / "recordings")
    (row,) = [row for row in list_record().result["probes"] if row["name"] == "mine"]
    assert row["problem"] == f"{own_probes / 'mine' / 'recordings'} cannot be read: Permission denied"


def test_a_folder_of_probes_that_leads_to_itself_is_told_or_passed_over(own_probes: Path) -> None:
    """A link in a circle: Python versions differ in what they make of it."""
    own_probes.rmdir()
    own_probes.symlink_to(own_probes)
    rows = list_record().result["probes"]
    assert len([row for row in rows if row["problem"]]) <= 1
    assert any(row["recordings"] for row in rows)


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


def test_names_that_differ_in_punctuation_are_two_probes(own_probes: Path) -> None:
    """Loading one leaves the other as it is."""
    for name in ("a-b", "a_b"):
        write_probe(own_probes / name, HEAD.replace("A question", name) + "class Own(Probe): pass\n")
    first, second = (registry.find_probe(name) for name in ("a-b", "a_b"))
    assert (first.summary, second.summary) == ("a-b?", "a_b?")


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


def test_what_a_probe_prints_does_not_reach_stdout(own_probes: Path, run_cli: Any) -> None:
    """Stdout holds one document, whatever a user's file says while it is loaded and run."""
    new_record("mine", own_probes)
    path = own_probes / "mine" / "probe.py"
    path.write_text(path.read_text() + '\n\nprint("loading")\n')
    done = run_cli("probe", "mine", "--json", env={"PTXLAB_PROBES": str(own_probes)})
    assert json.loads(done.stdout)["result"]["conclusion"]
    assert "loading" in done.stderr


@pytest.mark.parametrize(
    ("declared", "flag"),
    [
        ('backend = option("", help="x")', "--backend"),
        ('debug = option("", help="x")', "--debug"),
        ('more = option("", help="x", alias="--json")', "--json"),
        ('more = option("", help="x", alias="--mask")', "--mask"),
    ],
)
def test_an_option_that_is_there_already_is_refused(
    own_probes: Path, run_here: Any, declared: str, flag: str
) -> None:
    """One of the two would hide the other."""
    new_record("mine", own_probes)
    path = own_probes / "mine" / "probe.py"
    path.write_text(path.read_text().replace("    mask = ", f"    {declared}\n    mask = "))
    done = run_here("probe", "mine")
    assert done.returncode == 4
    assert f"probe.py: there is a {flag} already" in done.stderr


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


def test_a_probe_without_maps_says_so_to_whoever_reads(own_probes: Path) -> None:
    """``maps = False`` in the class; everything else reports some, as far as reading tells."""
    new_record("plain", own_probes)
    file = own_probes / "plain" / "probe.py"
    file.write_text(file.read_text().replace("(Probe):\n", "(Probe):\n    maps = False\n\n"))
    said = {entry.name: entry.said.maps for entry in registry.probe_entries()}
    assert said["plain"] is False
    assert sum(not maps for maps in said.values()) == 1 + sum(
        not probe.maps
        for probe in registry.usable_probes()
        if isinstance(probe, Probe) and probe.name != "plain"
    )


def test_an_option_may_have_another_flag(own_probes: Path, run_here: Any) -> None:
    """Both mean the same."""
    new_record("plain", own_probes)
    file = own_probes / "plain" / "probe.py"
    file.write_text(file.read_text().replace('help="bits', 'alias="--flips", help="bits'))
    told = [
        run_here("probe", "plain", flag, "4", "--backend", "model").stdout for flag in ("--mask", "--flips")
    ]
    assert "i ^ 4" in told[0]
    assert told[0] == told[1]
