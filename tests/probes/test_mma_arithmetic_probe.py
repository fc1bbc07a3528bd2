"""The arithmetic probe: its measurements find whatever rule made the results, and tell rules apart."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxlab.errors import UsageError
from ptxlab.experiments import registry, runner
from ptxlab.experiments.base import Case
from ptxlab.experiments.record import Record
from ptxlab.isa.accumulate import DOWNWARD, NEAREST

MODEL = runner.Lab("sm_90a", None, None, "the model was asked for")
PROBE = registry.find_probe("mma-arithmetic")
module = sys.modules[type(PROBE).__module__]
CASES = list(PROBE.variants("sm_90a"))


def planted(case: Case, **changes: Any) -> tuple[dict[str, Any], str]:
    """Return what silicon would answer if it summed by another rule, and that rule."""
    rule = replace(module.rule_of(case), **changes)
    form = module.form_of(case)
    (words,) = module.computed(case, [rule])
    return {"d": module.packed(form.mma.c_map, words, form.registers("C"))}, str(rule)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.key)
def test_the_measurements_find_the_rule(case: Case) -> None:
    """Bits kept, direction, steps, bits and rounding of the result, from the results alone."""
    found = module.properties(case, PROBE.expected(case))
    assert {what: found[what] for what in module.stated(case)} == module.stated(case)


@pytest.mark.parametrize(
    "changes",
    [{"fraction_bits": 24}, {"fraction_bits": 23, "alignment": NEAREST}, {"alignment": DOWNWARD},
     {"rounding": NEAREST}, {"rounding": DOWNWARD}, {"step": 8}, {"step": 8, "interleaved": True},
     {"fraction_bits": 24, "step": 8}, {"result_bits": 22}, {"adds_c_last": True}, {"zero_counts": True},
     {"negative_zero": True}, {"saturates": True}],
    ids=str,
)  # fmt: skip
def test_another_rule_is_noticed_and_named(changes: dict[str, Any]) -> None:
    """One run on silicon is enough to correct the table: the rule that fits is in the check."""
    case = PROBE.case("sm_90a", dtype="bf16", shape="m16n8k16")
    outputs, rule = planted(case, **changes)
    record = Record()
    PROBE.examine(case, outputs, record)
    assert not record.checks[0]["ok"]
    assert record.result["candidates"][-1] == {"misses": 0, "rule": rule}
    assert rule in record.checks[0]["detail"]


@pytest.mark.parametrize(
    ("dtype", "changes", "what", "value"),
    [("e4m3", {"fraction_bits": 25, "result_bits": 23}, "KEPT", "25"),
     ("e4m3", {"result_bits": 23}, "RESULT", "15"),
     ("f16", {"step": 8}, "STEPS", "0-7, then 8-15"),
     ("f16", {"step": 8, "interleaved": True}, "STEPS", "0-1 of each four, then 2-3"),
     ("tf32", {"step": 4, "interleaved": True}, "STEPS", "0-1 of each four, then 2-3"),
     ("bf16", {"step": 4, "interleaved": True}, "STEPS",
      "0-1, 4-5, then 8-9, 12-13, then 2-3, 6-7, then 10-11, 14-15"),
     ("bf16", {"rounding": DOWNWARD}, "SUM", DOWNWARD), ("bf16", {"alignment": NEAREST}, "LOST", NEAREST),
     ("bf16", {"alignment": DOWNWARD}, "LOST", DOWNWARD), ("tf32", {"adds_c_last": True}, "WITH_C", NEAREST),
     ("tf32", {"zero_counts": True}, "KEPT_ZERO", "25")],
)  # fmt: skip
def test_wgmma_measurements_follow_the_silicon(
    dtype: str, changes: dict[str, Any], what: str, value: str
) -> None:
    """A property changes with the rule that made the results, not with the model's."""
    shape = {"e4m3": "m64n8k32", "tf32": "m64n8k8"}.get(dtype, "m64n8k16")
    case = PROBE.case("sm_90a", dtype=dtype, shape=shape)
    outputs, _ = planted(case, **changes)
    assert module.properties(case, outputs)[getattr(module, what)] == value


def test_results_that_follow_no_rule_are_said_to() -> None:
    """Damage in one sum leaves a mismatch that no candidate explains, and no crash."""
    case = PROBE.case("sm_90a")
    outputs = {"d": PROBE.expected(case)["d"] ^ np.uint32(1 << 22)}
    record = Record()
    PROBE.examine(case, outputs, record)
    assert not record.checks[0]["ok"]
    assert record.result["candidates"][-1]["misses"] > 0


@pytest.mark.parametrize(
    ("changes", "steps"),
    [({}, "0" * 16), ({"step": 8}, "0" * 8 + "1" * 8), ({"step": 8, "interleaved": True}, "0011" * 4)],
    ids=str,
)  # fmt: skip
def test_the_picture_shows_the_steps(changes: dict[str, Any], steps: str) -> None:
    """Each product along k with the step in which the outputs show it to be added."""
    case = PROBE.case("sm_90a")
    (drawn,) = PROBE.report(case, planted(case, **changes)[0], measured=True)["pictures"]
    assert drawn["cells"] == [list(steps)]
    assert drawn["colours"] == [[int(step) for step in steps]]


def test_results_in_no_order_are_drawn_without_steps() -> None:
    """Nothing is made up where the results show no order."""
    case = PROBE.case("sm_90a")
    outputs = {"d": PROBE.expected(case)["d"] ^ np.uint32(1 << 22)}
    (drawn,) = PROBE.report(case, outputs, measured=True)["pictures"]
    assert set(drawn["cells"][0]) == {"?"}


def test_what_no_silicon_has_shown_is_a_claim() -> None:
    """13 bits on Ada are derived from Hopper's; on Hopper they are measured."""
    for arch, dtype, shape, claimed in (("sm_89", "e4m3", "", True), ("sm_90a", "e4m3", "m64n8k32", False)):
        lab = replace(MODEL, arch=arch)
        record, _ = runner.run_probe(PROBE, PROBE.case(arch, dtype=dtype, shape=shape), lab)
        assert "keeps 13 fraction bits" in record.result["conclusion"]
        assert (f"(claimed for {arch}, not measured)" in record.result["conclusion"]) == claimed


def test_every_instruction_that_multiplies_floats_is_asked() -> None:
    """mma.sync and wgmma, five types of factors, both accumulators; f16 alone on Turing."""
    assert len(CASES) == 24
    assert {case.dtype for case in CASES} == {"f16", "bf16", "tf32", "e4m3", "e5m2"}
    assert {case.shape[:3] for case in CASES} == {"m16", "m64"}
    assert {case.dtype for case in PROBE.variants("sm_75")} == {"f16"}
    assert not [case for case in PROBE.variants("sm_100a") if case.shape.startswith("m64")]


@pytest.mark.parametrize(
    ("arch", "params", "reason"),
    [("sm_80", {"dtype": "e4m3"}, "needs sm_89 or later"),
     ("sm_100a", {"shape": "m64n8k16"}, "sm_90a alone"),
     ("sm_90a", {"dtype": "bf16", "acc": "f16"}, "does not exist"),
     ("sm_90a", {"shape": "m16n8k4"}, "does not exist")],
)  # fmt: skip
def test_an_illegal_form_names_the_legal_ones(arch: str, params: dict[str, str], reason: str) -> None:
    """With the reason and the architecture."""
    with pytest.raises(UsageError, match=reason) as caught:
        PROBE.case(arch, **params)
    assert "m16n8k8 f16 f32" in str(caught.value)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.key)
def test_operands_arrive_where_the_instruction_looks(case: Case) -> None:
    """Registers and shared memory, read back element by element, hold A and B."""
    form, inputs = module.form_of(case), PROBE.inputs(case)
    a, b, _ = (module.bits_of(m, t) for m, t in zip(module.data_of(case), form.stored, strict=True))
    where = form.mma.a_map
    assert np.array_equal(where.slots_of(inputs["a"][-1]), a[-1][where.place["row"], where.place["col"]])
    if not form.wgmma:
        where = form.mma.b_map
        assert np.array_equal(where.slots_of(inputs["b"][-1]), b[-1][where.place["row"], where.place["col"]])
        return
    memory, size = inputs["b"][-1].tobytes(), 32 // form.mma.k
    for k in range(form.mma.k):
        for n in range(8):
            at = k * size // 16 * 128 + n * 16 + k * size % 16
            assert int.from_bytes(memory[at : at + size], "little") == b[-1][k, n]


def test_it_says_it_in_a_sentence() -> None:
    """The answer, without a manual: FP8 wgmma keeps 13 bits, f16 mma.sync 25."""
    fp8 = runner.run_probe(PROBE, PROBE.case("sm_90a", dtype="e4m3", shape="m64n8k32"), MODEL)[0]
    assert "keeps 13 fraction bits" in fp8.result["conclusion"]
    f16 = runner.run_probe(PROBE, PROBE.case("sm_90a"), MODEL)[0]
    assert "keeps 25 fraction bits" in f16.result["conclusion"]
    assert "products summed at once: 0-15" in f16.result["conclusion"]
    assert f16.exit_code == 0


def concluded(**params: Any) -> Record:
    """What is reported and concluded of a point, on the model."""
    case = PROBE.case("sm_90a", **params)
    record = Record(result=PROBE.report(case, PROBE.expected(case), measured=False))
    record.result["conclusion"] = PROBE.conclude(case, record)
    return record


def test_an_emulation_is_named_with_the_way_to_the_real_thing() -> None:
    """FP8 by mma.sync on Hopper; wgmma is the tensor core's own, and of f16 there is nothing to say."""
    told = concluded(dtype="e4m3").result["conclusion"]
    assert told.endswith(
        "Emulated on sm_90a: the numbers are those of f16 products. The fp8 tensor core: --shape m64n8k32."
    )
    assert "Emulated" not in concluded(dtype="e4m3", shape="m64n8k32").result["conclusion"]
    assert "Emulated" not in concluded(dtype="f16").result["conclusion"]


def test_a_number_that_is_open_has_a_footnote() -> None:
    """What "28 or more" means."""
    (note,) = concluded(dtype="e4m3").result["notes"]
    assert note.startswith("28 or more: the smallest term that is tried")


def test_there_is_no_lane_to_choose(run_here: Any) -> None:
    """It reports no register map: the option is not there, and is refused."""
    assert "--lane" not in run_here("probe", "mma-arithmetic", "--help").stdout
    done = run_here("probe", "mma-arithmetic", "--lane", "3")
    assert done.returncode == 2
    assert "unknown" in done.stderr
