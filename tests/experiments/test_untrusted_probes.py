"""A user's probe may raise and return anything: it ends in exit 4 with its file, and the others go on."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.errors import PtxlabError, ToolError
from ptxlab.experiments import registry, runner, verify
from ptxlab.experiments.catalogue import TEMPLATE, new_record, probe_record
from ptxlab.experiments.probe import Geometry, Output, Probe

Rewrite = Callable[[str, str], Path]
MODEL = runner.Lab("sm_90a", None, None, "no GPU in this test")

EXPECTED = 'return {"received": np.arange(32, dtype=np.uint32) ^ np.uint32(case.mask)}'
REPORT = 'return {"lanes": rows}'
CONCLUDE = 'return f"Lane i holds the value of lane i ^ {case.mask}."'
CLAIMS = 'return {"SHFL.BFLY": 1}'
MACROS = 'return {"MASK": case.mask}'
VARIANTS = "yield self.case(arch, mask=mask)"

RAISED = {
    "1 / 0": r"probe\.py:\d+: ZeroDivisionError: division by zero",
    "raise SystemExit(3)": r"probe\.py:\d+: SystemExit: 3",
    "raise KeyboardInterrupt": r"probe\.py:\d+: KeyboardInterrupt",
    "raise GeneratorExit": r"probe\.py:\d+: GeneratorExit",
    "raise NotImplementedError": r"probe\.py:\d+: NotImplementedError",
    "return self.expected(case)": r"probe\.py:\d+: RecursionError",
    "return super().expected(case)": r"probe\.py:\d+: NotImplementedError: expected\(\) is missing",
    "class Odd(Exception): __str__ = None\n        raise Odd": r"probe\.py:\d+: Odd",
}

NEXT = "def conclude"
EXAMINED = "def examine(self, case, outputs, record):\n        {}\n\n    def conclude"
MAP = '{"lane": 0, "register": 0, "slot": 0, "row": 0, "col": 0}'
HOLDS = '{"lane": 0, "register": 0, "slot": 0, "tile_row": 0, "tile_col": 0}'
DRAWN = f'"registers": [{MAP}], "matrix": {{"rows": 8, "cols": 8}}, "formulas": {{}}, "holds": [{HOLDS}]'
PICTURE = (
    'return {{"pictures": [{{"title": "t", "cells": [[{0}, "b"]], "colours": [[{1}]], "row_names": ["r"], '
    '"column_names": ["c", "d"]}}]}}'
)
SHARED = 'return {"shapes": {"A": {"rows": 1, "cols": 2}}, "shared": {"A": {"bytes": [[0]], "where": ""}}}'


def drawn(old: str, new: str) -> str:
    """Return the line that reports a register map in which something is otherwise."""
    assert old in DRAWN
    return f"return {{{DRAWN.replace(old, new)}}}"


SAID = [
    (EXPECTED, "return None", "AttributeError"),
    (EXPECTED, "return {}", "expected() has [], outputs() has ['received']"),
    (EXPECTED, 'return {"received": [1]}', "AttributeError"),
    (
        EXPECTED,
        'return {"received": np.arange(16, dtype=np.uint32)}',
        r"is uint32[16], outputs() says uint32[32]",
    ),
    (CONCLUDE, "return None", "conclude() returns None; legal: a sentence"),
    (CONCLUDE, 'return ""', "conclude() returns ''; legal: a sentence"),
    (CONCLUDE, 'record.result = None\n        return "x"', "what it returns"),
    (CLAIMS, "return None", "claims() returns None; legal: a dict"),
    (CLAIMS, 'return {"SHFL.BFLY": "1"}', "legal: a dict of opcode prefix"),
    (MACROS, "return None", "AttributeError"),
    (VARIANTS, "yield None", "AttributeError"),
    (REPORT, "return None", "report() is a NoneType; legal: a dict"),
    (REPORT, 'return {"seen": {1}}', "report() has no JSON as 'seen' (a set)"),
    (REPORT, 'return {"seen": b"raw"}', "report() has no JSON as 'seen' (a bytes)"),
    (REPORT, 'return {"seen": [{"x": {1}}]}', "report() has no JSON as 'seen' (a set)"),
    (REPORT, 'return {"seen": {(1, 2): 3}}', "report() has no JSON as 'seen'"),
    (REPORT, 'return {"seen": 10**5000}', "report() has no JSON as 'seen'"),
    (REPORT, 'return {"seen": [{"x": 10**5000}]}', "report() has no JSON as 'seen'"),
    (REPORT, 'rows.append({"more": rows})\n        return {"lanes": {"in": rows}}', "Circular reference"),
    (REPORT, "return {5: 1}", "report() has 5; legal"),
    (REPORT, 'return {"files": []}', "report() has 'files'; legal: any other name"),
    (REPORT, 'return {"ptx": 5}', "report() has 5 as 'ptx'; legal: text"),
    (REPORT, 'return {"rows": [{"a": 1}, {"b": 2}]}', "differ in their fields; legal: ['a'] in each"),
    (REPORT, 'return {"rows": [{"a": 1}, 2]}', "differ in their fields"),
    (REPORT, 'return {"rows": [{1: 1}]}', "has [1] as the fields of 'rows'; legal: text"),
    (REPORT, 'return {"formulas": ["x"]}', "has 'formulas' that are none"),
    (REPORT, 'return {"formulas": {"row": 1}}', "has 'formulas' that are none"),
    (REPORT, 'return {"shapes": 1}', "has 1 as 'shapes'"),
    (REPORT, 'return {"A": []}', "has no register map as 'A'; legal: a list of {lane, register, slot"),
    (REPORT, f'return {{"A": [{MAP}]}}', "has None as shapes['A']; legal: {'rows', 'cols'} of 1 to 1024"),
    (REPORT, 'return {"registers": None}', "has no register map as 'registers'"),
    (REPORT, drawn('"matrix"', '"matrices"'), "has None as 'matrix'; legal: {'rows', 'cols'}"),
    (REPORT, drawn('"rows": 8', '"rows": 0'), "as 'matrix'; legal: {'rows', 'cols'} of 1 to 1024"),
    (REPORT, drawn('"rows": 8', '"rows": "8"'), "as 'matrix'; legal: {'rows', 'cols'} of 1 to 1024"),
    (REPORT, drawn('"formulas"', '"forms"'), "has 'registers' and no 'formulas'"),
    (REPORT, drawn('"holds"', '"held"'), "has 'registers' and not what they hold"),
    (REPORT, drawn('[{"lane": 0', '[{"lane": 32'),
     "has a lane in 'registers' that is none; legal: 0 to 31"),
    (REPORT, drawn('"row": 0', '"row": 8'), "has row 8 in 'registers'; legal: 0 to 7, as 'matrix' says"),
    (REPORT, drawn('"row": 0', '"row": -1'), "has a row in 'registers' that is none"),
    (REPORT, drawn('"row": 0', '"row": "0"'), "has a row in 'registers' that is none"),
    (REPORT, drawn(HOLDS, f'{HOLDS}, {HOLDS.replace("0", "1")}'),
     "'holds' in which some lane lacks a register"),
    (REPORT, drawn('"holds"', '"banks": {"wavefronts": 1}, "holds"'), "has 'banks', and None as 'addresses'"),
    (NEXT, EXAMINED.format('record.check("x", True, None)'), "examine() adds the check {'name': 'x'"),
    (NEXT, EXAMINED.format('record.check(1, True, "x")'), "examine() adds the check"),
    (NEXT, EXAMINED.format('record.checks.append("x")'), "examine() adds the check 'x'"),
    (NEXT, EXAMINED.format("record.checks.clear()"), "examine() changes checks that are not its own"),
    (NEXT, EXAMINED.format("record.checks = None"), "examine() changes checks that are not its own"),
    (NEXT, EXAMINED.format('record.check("recording", True, "x")'), "adds a check 'recording'"),
    (NEXT, EXAMINED.format("record.skip(1, 2)"), "as skipped; legal: record.skip(text, text)"),
    (NEXT, EXAMINED.format('record.result["x"] = {1}'), "has no JSON as 'x' (a set)"),
    (NEXT, "def complete(self, params):\n        params.clear()\n\n    def conclude",
     "complete() leaves"),
    (NEXT, 'def complete(self, params):\n        params["mask"] = [1]\n\n    def conclude',
     "complete() leaves"),
    (REPORT, 'return {"notes": "one"}', "has 'one' as 'notes'; legal: a list of text"),
    (REPORT, 'return {"titles": {"a": 1}}', "as 'titles'; legal: a dict of name -> text"),
    (REPORT, 'return {"minor": [1]}', "as 'minor'; legal: a list of names of columns"),
    (REPORT, 'return {"shown": ["that"]}', "has ['that'] as 'shown'; legal: a list of names in the result"),
    (REPORT, 'return {"pictures": [{"title": "t"}]}', "has a picture that is none"),
    (REPORT, PICTURE.format('"a"', "0"), "row_names, column_names, row by row"),
    (REPORT, PICTURE.format("1", "0, 0"), "text in its cells"),
    (REPORT, SHARED, "has no bytes of 'A' in 'shared'"),
]  # fmt: skip
"""What the template says, what stands there instead, and the words that tell of it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all of these tests, so that the template's kernel is compiled once."""
    into = tmp_path_factory.mktemp("probes")
    new_record("mine", into)
    return into


@pytest.fixture
def rewrite(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Rewrite:
    """Return a function that makes the template's probe say something else, and returns its file."""
    monkeypatch.setenv("PTXLAB_PROBES", str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it would outlive a change within a second
    template = (TEMPLATE / "probe.py").read_text()

    def change(old: str, new: str) -> Path:
        assert template.count(old) == 1
        file = folder / "mine" / "probe.py"
        file.write_text(template.replace(old, new))
        return file

    return change


def check_blamed(done: Any, file: Path, words: str) -> None:
    """Check that a command ended with exit 4 and one line that names the file."""
    assert done.returncode == 4, done.stdout + done.stderr
    assert done.stderr.startswith(f"ptxlab: {file}")
    assert re.search(words, done.stderr)
    assert "fault of ptxlab" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("old", "new", "words"), SAID, ids=[new.replace("\n", " ") for _, new, _ in SAID])
def test_what_a_probe_must_not_say_is_its_files_fault(
    rewrite: Rewrite, run_here: Any, old: str, new: str, words: str
) -> None:
    """And is told before anything of it is shown."""
    file = rewrite(old, new)
    done = run_here("probe", "mine", "--backend", "model")
    assert done.stdout == ""
    check_blamed(done, file, re.escape(words))


@pytest.mark.parametrize("fault", sorted(RAISED))
def test_what_a_probe_raises_is_its_files_fault(rewrite: Rewrite, run_here: Any, fault: str) -> None:
    """With the line that raised it."""
    file = rewrite(EXPECTED, fault)
    check_blamed(run_here("probe", "mine", "--backend", "model"), file, RAISED[fault])


def test_a_probe_may_end_with_an_error_of_its_own(rewrite: Rewrite, run_here: Any) -> None:
    """In its own words, whatever they are made of."""
    rewrite(EXPECTED, "from ptxlab.errors import ToolError; raise ToolError(5, 6)")
    done = run_here("probe", "mine", "--backend", "model")
    assert (done.returncode, done.stderr) == (4, "ptxlab: 5\nhint: 6\n")


@pytest.mark.parametrize(
    ("words", "old"),
    [
        (("sass", "probe:mine"), CLAIMS),
        (("sass", "probe:mine"), MACROS),
        (("sass", "probe:mine"), VARIANTS),
        (("profile", "mine"), EXPECTED),
        (("profile", "mine"), REPORT),
        (("profile", "mine"), 'return Geometry(arguments=("given", "received"), block=(32, 1, 1))'),
        (("layout", "where", "mine", "registers", "0", "0"), EXPECTED),
        (("layout", "table", "mine"), REPORT),
        (("probe", "verify", "--only", "mine"), CONCLUDE),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value.split("(")[0],
)
@pytest.mark.parametrize("fault", ["return 1 / 0", "return None"])
def test_every_command_blames_the_file(
    rewrite: Rewrite, run_here: Any, words: tuple[str, ...], old: str, fault: str
) -> None:
    """Not just the one that runs the probe."""
    file = rewrite(old, fault.replace("return", "yield") if old == VARIANTS else fault)
    check_blamed(run_here(*words), file, r"probe\.py")


def test_whatever_a_command_asks_a_probe_is_blamed_on_its_file(rewrite: Rewrite, run_here: Any) -> None:
    """Also what is asked long after the probe was run."""
    file = rewrite(REPORT, f"return {{{DRAWN}}}")
    file.write_text(file.read_text().replace("    mask = ", "    hints = 5\n    mask = "))
    assert run_here("layout", "where", "mine", "registers", "0", "0").returncode == 0
    check_blamed(run_here("layout", "where", "mine", "A", "0", "0"), file, "what it returns.: AttributeError")


def test_detail_of_a_register_map_blames_the_file(rewrite: Rewrite, run_here: Any) -> None:
    """The kernel's claims are asked for after the map has been read."""
    file = rewrite(REPORT, f"return {{{DRAWN}}}")
    assert run_here("layout", "detail", "mine").returncode == 0
    file.write_text(file.read_text().replace(CLAIMS, "return [1 / 0]"))
    check_blamed(run_here("layout", "detail", "mine"), file, "ZeroDivisionError")


@pytest.mark.parametrize("words", [("probe", "mine"), ("layout", "table", "mine")], ids=" ".join)
@pytest.mark.parametrize("picture", [False, True])
def test_what_no_view_can_be_made_of_is_its_files_fault(
    rewrite: Rewrite, run_here: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    words: tuple[str, ...], picture: bool,
) -> None:  # fmt: skip
    """Whatever the reports of today's probes hold; of the package's own probe it is a fault of ptxlab."""
    file = rewrite(REPORT, f"return {{{DRAWN}}}")
    views = importlib.import_module(f"ptxlab.render.views.{words[0]}")
    monkeypatch.setattr(views, "view", lambda document: document["result"]["pictures of mine"])
    drawn = ("--svg", str(tmp_path / "x.svg")) if picture else ()
    check_blamed(run_here(*words, *drawn), file, r"what it returns.: KeyError: 'pictures of mine'")
    own = "ldmatrix"  # which has register maps
    assert "this is a fault of ptxlab" in run_here(*words[:-1], own, *drawn).stderr


def test_an_option_that_typer_cannot_take_is_its_files_fault(rewrite: Rewrite, run_here: Any) -> None:
    """A name that is no name of a parameter."""
    text = "class ShuffleProbe(Probe):\n"
    file = rewrite(text, f'{text}    locals()["a b"] = option(1, help="x")\n')
    check_blamed(run_here("probe", "mine"), file, "a b")


def test_the_keyboard_still_interrupts(rewrite: Rewrite, run_here: Any) -> None:
    """Ctrl-C while a probe computes ends the command, and is not told as the probe's fault."""
    rewrite(EXPECTED, "import signal; signal.raise_signal(signal.SIGINT)")
    done = run_here("probe", "mine", "--backend", "model")
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal to one process there")
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_ends_the_program_in_the_midst_of_a_probe(
    rewrite: Rewrite, run_cli: Any, name: str, code: int
) -> None:
    """It is not the probe's fault, wherever in its code the signal comes."""
    rewrite(EXPECTED, f"import signal\n        raise ValueError(signal.raise_signal(signal.{name}))")
    done = run_cli("probe", "mine", "--backend", "model", "--json")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


@pytest.mark.parametrize(
    "fault", ["return 1 / 0", 'from ptxlab import errors; raise errors.DeviceError("no")']
)
def test_verify_goes_on_with_the_other_probes(rewrite: Rewrite, fault: str) -> None:
    """A probe that fails by itself, or makes the device fail, is told after all have run."""
    rewrite(EXPECTED, fault)
    others = [each for each in registry.usable_probes() if isinstance(each, Probe) and each.name != "mine"]
    other = min(others, key=lambda probe: len(list(probe.variants("sm_90a"))))
    probes = [registry.find_probe("mine"), other]
    with pytest.raises(PtxlabError) as caught:
        verify.verify(probes, MODEL, lambda *_: None, keep=False)
    record = caught.value.record
    assert record is not None
    assert record.result["agree"] == len(list(other.variants("sm_90a")))
    assert [check["name"] for check in record.checks if not check["ok"]] == ["probe runs"]


def told(probe: Probe) -> Any:
    """Return the record of the probe's default point, from the model."""
    return probe_record(probe, {}, MODEL, lane=None, keep=False)


def test_what_ptxlab_found_stands_whatever_the_probe_does_to_the_record(rewrite: Rewrite) -> None:
    """It gets a copy; what it adds under names of its own is taken over."""
    sabotage = "record.backend = record.environment = record.params = None; record.result |= "
    sabotage += '{"sass": 5, "claims": 5, "recordings": 5, "own": 5}'
    rewrite(NEXT, EXAMINED.format(sabotage))
    record = told(registry.find_probe("mine"))
    assert (record.backend, record.params["mask"], record.result["own"]) == ("model", 1, 5)
    assert record.result["sass"]["counts"]["SHFL.BFLY"] == 1
    assert (record.result["claims"], record.result["recordings"]) == ({"SHFL.BFLY": 1}, [])


@pytest.mark.parametrize("form", ["json", "table", "csv", "md"])
def test_what_numpy_counts_with_may_be_said(rewrite: Rewrite, run_here: Any, form: str) -> None:
    """Numpy's own numbers and arrays, paths, and what is no number; and a map that is drawn."""
    entry = 'np.int64(0), "value": np.float32("nan")'
    odd = DRAWN.replace('"slot": 0, "row": 0', f'"slot": {entry}, "row": 0')
    rewrite(
        REPORT,
        f'return {{{odd}, "array": outputs["received"], "at": self.folder, "x": float("inf")}}',
    )
    args = ("--json",) if form == "json" else ("--format", form)
    done = run_here("probe", "mine", "--backend", "model", *args)
    assert done.returncode == 0, done.stderr
    if form == "json":
        result = json.loads(done.stdout)["result"]
        assert result["registers"][0]["value"] is None
        assert result["array"] == [lane ^ 1 for lane in range(32)]


@pytest.mark.parametrize(
    ("method", "value", "words"),
    [
        ("inputs", {"given": [1]}, r"inputs\(\)\['given'\] is no numpy array"),
        ("inputs", {"given": np.array([None])}, r"inputs\(\)\['given'\] is no numpy array"),
        ("outputs", {"received": Output((-1,), np.uint32, ("lane",))}, r"outputs\(\)\['received'\] is"),
        ("outputs", {"received": Output((2**3, 0), np.uint32, ("lane",))}, r"outputs\(\)\['received'\] is"),
        ("geometry", Geometry(("given",), grid=(0, 1, 1)), "geometry.. has .0, 1, 1. as a size"),
        ("geometry", Geometry(("given",), block=(32,)), "geometry.. has .32,. as a size"),
        ("geometry", Geometry(("given",), cluster=("1", 1, 1)), "as a size; legal: three numbers"),
        ("geometry", Geometry(("given",), shared_bytes=-1), "asks for -1 bytes"),
        ("geometry", Geometry(("taken",)), "argument 'taken'; legal: given, received, or a numpy scalar"),
        ("geometry", Geometry((5,)), "argument 5; legal: given, received, or a numpy scalar"),
    ],
)
def test_a_launch_that_the_worker_would_choke_on_is_refused_before(
    rewrite: Rewrite, monkeypatch: pytest.MonkeyPatch, method: str, value: Any, words: str
) -> None:
    """As the probe's fault, and not as a device that died."""
    rewrite(REPORT, REPORT)
    probe = registry.find_probe("mine")
    case = probe.case("sm_90a")
    build = runner.build_unit(probe, [case], "sm_90a")
    assert runner.probe_job(probe, case, build).buffers[0].name == "given"
    monkeypatch.setattr(probe, method, lambda case: value)
    with pytest.raises(ToolError, match=words):
        runner.probe_job(probe, case, build)
