"""What the warps of a block do, and the picture of it: the description is run, so it can be wrong."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from ptxlab.errors import PtxlabError
from ptxlab.experiments.base import Case
from ptxlab.experiments.gemm import GemmStage
from ptxlab.experiments.gemm.explain import explain
from ptxlab.experiments.gemm.machine import MACHINES, REGISTERS, machine
from ptxlab.experiments.gemm.pipeline import (
    EMPTY,
    FULL,
    Act,
    Pipeline,
    Warpgroups,
    described,
    taking_turns,
)
from ptxlab.experiments.gemm.timeline import BEFORE, MOST_STAGES, MOST_STEPS, WINDOW, Pace, simulate
from ptxlab.experiments.registry import find_stage, stage_entries
from ptxlab.render.blocks import Block, Table
from ptxlab.render.terminal import to_terminal
from ptxlab.render.views.pipeline import pipeline_blocks

STAGES = [entry.name for entry in stage_entries()]
PACES = [Pace(*pace) for pace in product((1, 2, 7), (1, 9))]
CHOICES = ("roles", "cluster_shape", "share", "schedule", "accumulate", "turns", "stages", "adding")
"""Options that may change who does what."""


def arch_of(stage: GemmStage) -> str:
    """Return an architecture that the stage is for."""
    return stage.only or "sm_90a"


def lines(name: str) -> list[tuple[Case, Pipeline]]:
    """Return the points of a stage at which warps may do other things, each with its pipeline."""
    stage, found = find_stage(name), []
    for option, each in stage.options().items():
        for value in (each.choices or ()) if option in CHOICES else ():
            try:
                case = stage.case(arch_of(stage), m=1024, n=1024, k=1024, **{option: value})
            except PtxlabError:
                continue
            found.append((case, stage.pipeline(case)))
    case = stage.case(arch_of(stage))
    return [(case, line) for case, line in [*found, (case, stage.pipeline(case))] if line]


def ring(parties: Any, *, stages: int = 4, steps: int = 16, tiles: int = 3) -> Pipeline:
    """Return a pipeline of these roles."""
    return Pipeline(stages, steps, tiles, *parties, 1, 1, "TMA", "wgmma", "st.global")


PING_PONG = ring(Warpgroups(4, 1, 2, 1, goes_on=True).parties())
COOPERATIVE = ring(Warpgroups(4, 1, 2, 2, goes_on=True).parties())


def busy(line: Pipeline, pace: Pace) -> str:
    """Return the columns of the tensor cores, a dot where they do nothing."""
    return "".join(text or "." for text in simulate(line, pace).rows["tensor cores"])


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_says_what_its_warps_do(name: str) -> None:
    """At the least at its default; the threads of the roles are those of a block."""
    stage = find_stage(name)
    for case, line in lines(name):
        assert sum(role.threads for role in line.roles) == stage.threads(case), case.key
        assert line.steps * stage.pieces(case) >= stage.steps(case)


@pytest.mark.parametrize("name", STAGES)
def test_nobody_waits_for_ever_and_nothing_is_overwritten(name: str) -> None:
    """However long copies and writing take: each tile comes to its end, and the model finds no fault."""
    for (case, line), pace in product(lines(name), PACES):
        short = replace(line, steps=min(line.steps, 9), tiles=min(line.tiles, 3))
        seen = simulate(short, pace)
        assert seen.findings == [], case.key
        assert sorted(seen.tile_ends) == list(range(short.tiles)), case.key


@pytest.mark.parametrize("name", STAGES)
def test_buffers_are_as_many_as_the_ring_has_stages(name: str) -> None:
    """The description and the shared-memory budget of a ring say the same number."""
    stage = find_stage(name)
    for case, line in lines(name):
        told = [re.match(r"(\d+) tiles? of A", buffer) for buffer in stage.shared(case)]
        assert all(int(match[1]) == line.stages for match in told if match), case.key


@pytest.mark.parametrize("name", STAGES)
def test_registers_that_change_hands_are_those_of_the_kernel(name: str) -> None:
    """As its macros say, and no more than a block is launched with."""
    stage = find_stage(name)
    for case, line in lines(name):
        changed = [role for role in line.roles if role.registers]
        assert bool(changed) == bool(stage.claims(case).get("USETMAXREG")), case.key
        macros = stage.macros(case)
        for role in changed:
            of = "CONSUMER_REGISTERS" if role.does("multiply") else "PRODUCER_REGISTERS"
            assert role.registers == macros[of], case.key
        assert sum(role.threads * (role.registers or 0) for role in line.roles) <= REGISTERS, case.key


def test_consumers_that_take_turns_keep_the_tensor_cores_busy() -> None:
    """One writes while the other multiplies: no gap. Where they share a tile both write, and there is one."""
    pace = Pace(2, 9)
    assert "." not in busy(PING_PONG, pace).strip(".")
    gaps = re.findall(r"\.+", busy(COOPERATIVE, pace).strip("."))
    assert len(gaps) == 2
    assert all(pace.writing - 2 <= len(gap) <= pace.writing for gap in gaps)  # one still has products left


@pytest.mark.parametrize(("stages", "idle"), [(2, True), (4, False)])
def test_more_stages_hide_the_copies(stages: int, *, idle: bool) -> None:
    """A stage is multiplied for two columns and filled for three: two stages are too few."""
    line = ring(Warpgroups(stages, 1, 2, 2, goes_on=True).parties(), stages=stages, tiles=1)
    assert ("." in busy(line, Pace(3, 1)).strip(".")) == idle


def test_warps_that_copy_and_multiply_by_turns_wait_for_each_copy() -> None:
    """One place: after each product comes a wait of as many columns as a copy takes."""
    line = ring(taking_turns("8 warps", 256, stages=1, ahead=0), stages=1, steps=3, tiles=1)
    assert busy(line, Pace(3, 1)).rstrip(".") == "...0...0...0"
    assert "".join(simulate(line, Pace(3, 1)).rows["stage 0"]).rstrip() == ">>>*>>>*>>>*"


def test_what_waits_is_shown_by_what_it_waits_for() -> None:
    """The producer for an empty stage once all are full, consumers for the first tiles, one for its turn."""
    rows = simulate(PING_PONG, Pace(2, 9)).rows
    assert rows["producer"][:3] == ["3", "e", "e"]
    assert rows["consumer 0"][:4] == ["f", "f", "0", "1"]
    assert set(rows["consumer 1"][:16]) == {"t"}


def test_too_many_arrivals_expected_is_a_deadlock() -> None:
    """Of a barrier that no phase of ever ends: the producer waits in the second lap, and then everybody."""
    barriers = tuple(
        replace(each, arrivals=each.arrivals + 1) if each.name == EMPTY else each
        for each in COOPERATIVE.barriers
    )
    found = simulate(replace(COOPERATIVE, barriers=barriers), PACES[0]).findings
    assert found[0] == "producer waits for ever: wait empty 4"
    assert len(found) == 3


def test_too_few_arrivals_expected_are_too_many_for_the_barrier() -> None:
    """The second consumer of a block finds nothing pending."""
    barriers = tuple(
        replace(each, arrivals=3) if each.name == EMPTY else each for each in COOPERATIVE.barriers
    )
    (found,) = simulate(replace(COOPERATIVE, barriers=barriers), PACES[0]).findings
    assert "3 pending" in found


def test_a_stage_given_back_before_it_is_read_is_overwritten() -> None:
    """The step's own stage, instead of that of the step before, whose products are finished."""
    roles = tuple(
        replace(
            role,
            step=tuple(replace(act, ahead=0) if act.does == "arrive" else act for act in role.step),
            end=(),
        )
        for role in COOPERATIVE.roles
    )
    found = simulate(replace(COOPERATIVE, roles=roles, steps=64, tiles=1), Pace(1, 1)).findings
    assert any("is overwritten" in each for each in found)


def test_products_without_a_wait_for_full_are_found() -> None:
    """They would read what was there before."""
    roles = tuple(
        replace(role, step=tuple(act for act in role.step if act != Act("wait", FULL)))
        for role in COOPERATIVE.roles
    )
    found = simulate(replace(COOPERATIVE, roles=roles), PACES[0]).findings
    assert "consumer 0 reads stage 0 without its tiles" in found


def test_barriers_say_who_waits_for_whom() -> None:
    """In a cluster of two the consumers of both blocks empty a stage: eight warps each."""
    line = ring(Warpgroups(4, 1, 2, 2, 2, (40, 232), goes_on=True).parties())
    told = described(line, 168)
    full, empty = told["barriers"]
    assert (full["arrived_at_by"], full["waited_for_by"]) == (["producer"], ["consumer 0", "consumer 1"])
    assert (empty["arrived_at_by"], empty["waited_for_by"]) == (["consumer 0", "consumer 1"], ["producer"])
    assert (empty["number"], empty["arrivals"], empty["blocks"]) == (4, 16, 2)
    producer, consumer, _ = told["roles"]
    assert producer["step"] == ["wait empty[s]", "TMA into s"]
    assert consumer["step"] == ["wait full[s]", "wgmma s", "until s-1 is multiplied", "arrive empty[s-1]"]
    assert [role["registers_in_all"] for role in told["roles"]] == [5120, 29696, 29696]
    assert told["registers_at_launch"] == 384 * 168 == 64512


def explained(name: str, **options: Any) -> dict[str, Any]:
    """Return the explanation of a stage's pipeline."""
    stage = find_stage(name)
    case = stage.case(arch_of(stage), **options)
    said = explain(stage, case, machine(case.arch), {"registers": 168}, draw=True)
    found: dict[str, Any] = said["pipeline"]
    return found


def test_a_column_is_what_the_tensor_cores_take() -> None:
    """64x256 by 64 of k: 512 cycles at 2048 multiply-adds a cycle, which wgmma alone nearly reaches."""
    told = explained("cluster", m=4096, n=4096, k=4096)
    assert told["column_cycles"] == pytest.approx(64 * 256 * 64 / 2048, rel=0.1)
    assert (told["drawn_steps"], told["drawn_tiles"]) == (MOST_STEPS, 2)
    assert told["findings"] == []


def test_columns_go_by_the_rate_of_the_type() -> None:
    """8-bit products of twice the depth take as long as 16-bit ones."""
    half, bytes_ = (explained("hopper", m=4096, n=4096, k=4096, dtype=each) for each in ("f16", "e4m3"))
    assert bytes_["column_cycles"] == pytest.approx(half["column_cycles"], rel=0.1)


def test_pictures_show_the_start_and_the_end_of_a_tile() -> None:
    """As many columns each, rows for roles, tensor cores and stages; colours are stages."""
    first, second = explained("cluster")["pictures"]
    for picture in (first, second):
        assert picture["row_names"] == [
            *("producer", "consumer 0", "consumer 1", "tensor cores"),
            *(f"stage {stage}" for stage in range(4)),
        ]
        assert {len(row) for row in picture["cells"]} == {WINDOW}
        pairs = zip(picture["cells"], picture["colours"], strict=True)
        for texts, colours in list(pairs)[:4]:
            digits = [int(text) if text.isdigit() else None for text in texts]
            assert colours == digits
    assert "w" in second["cells"][1]
    assert "w" not in first["cells"][1]


def test_a_picture_begins_shortly_before_the_first_product_and_shows_eight_stages() -> None:
    """Of a ring of 25 stages, whose products are so short that copies take 60 of them to land."""
    told = explained("hopper", m=16, n=7168, k=4096, block="8x64")
    first = told["pictures"][0]
    assert told["stages"] > MOST_STAGES
    assert first["title"].endswith(f"{MOST_STAGES} of {told['stages']} stages")
    assert sum(name.startswith("stage ") for name in first["row_names"]) == MOST_STAGES
    products = first["cells"][first["row_names"].index("tensor cores")]
    assert products[:BEFORE] == [""] * BEFORE
    assert products[BEFORE] == "0"


def test_without_a_gpu_that_is_known_the_roles_are_told_and_nothing_is_drawn() -> None:
    """No rate, no time: neither for an unknown card nor where nobody asked for a picture."""
    stage = find_stage("cluster")
    case = stage.case("sm_90a")
    told = explain(stage, case, None, None, draw=True)["pipeline"]
    assert [role["registers"] for role in told["roles"]] == [40, 232, 232]
    assert "pictures" not in told
    assert "pictures" not in explain(stage, case, MACHINES[90], {"registers": 168})["pipeline"]


class Screen(io.StringIO):
    """A stdout that says it is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def shown(view: list[Block], width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what a terminal of a width shows, without its colours."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys, "stdout", Screen())
    return re.sub(r"\x1b\[[0-9;]*m", "", to_terminal(view))


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_the_pictures_in_one_piece(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every line fits, and no picture is continued in another one."""
    text = shown(pipeline_blocks(explained(name)), width, monkeypatch)
    assert max(map(len, text.splitlines())) <= width
    assert "continued" not in text
    assert "pipeline: the start, columns " in text
    assert "who waits for whom" in text


def test_the_register_split_is_a_share_of_the_sm() -> None:
    """Before and after registers have changed hands, and what is left."""
    tables = [block for block in pipeline_blocks(explained("cluster")) if isinstance(block, Table)]
    (registers,) = (table for table in tables if table.title.startswith("registers"))
    assert [row[:3] for row in registers.rows] == [
        ("at launch", 64512, "98.4"),
        ("producer: 128 x 40", 5120, "7.8"),
        ("consumer 0: 128 x 232", 29696, "45.3"),
        ("consumer 1: 128 x 232", 29696, "45.3"),
        ("left", 1024, "1.6"),
    ]
    assert registers.rows[0][3] == "█" * 30
