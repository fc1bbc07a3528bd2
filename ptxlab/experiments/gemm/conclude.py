"""The sentences of ``ptxlab gemm``: what a check found, what limits a stage, what to keep in mind."""

from __future__ import annotations

from typing import Any

from ptxlab.experiments.gemm.reference import BLIND_INITS

CLOSE = 90
"""Percent of the predicted limit from which on nothing much is left to account for."""

NOT_VERIFIED = "results that are not verified:"


def notes(init: str) -> list[str]:
    """Return what has to be said of inputs that are not random normal numbers."""
    if init == "normal":
        return []
    power = "they draw other power, so clock and TFLOP/s are not those of real data"
    lines = [f"the inputs are {init}, not random normal numbers: {power}"]
    if init in BLIND_INITS:
        lines.append(f"{init} look alike after any permutation: a wrong layout would pass")
    return lines


def hot_note(row: dict[str, Any], memory_rate: float | None) -> str:
    """Return what has to be said of a hot run that moves bytes faster than device memory could."""
    moved = row["bytes_per_second"]
    if row["l2"] != "hot" or moved is None or memory_rate is None or moved <= memory_rate:
        return ""
    return (
        f"{row['stage']} {row['problem']}: {moved / 1e12:.2f} TB/s are more than device memory delivers "
        f"({memory_rate / 1e12:.2f} TB/s): the inputs came from the L2. Quote the time "
        "of a run with --cold instead"
    )


def verification(row: dict[str, Any]) -> str:
    """Return what the check found in a stage's result."""
    total = row["m"] * row["n"]
    failures = [
        (row["wrong"], "wrong"),
        (row["overflow"], _overflow(row)),
        (row["infinite_references"], "with an infinite reference"),
        (row["nan_references"], "whose reference is NaN"),
    ]
    counted = [f"{count} {what}" for count, what in failures if count]
    parts = [f"{_failed_run(row)}{row['verified_elements']} of {total} elements verified against float64"]
    parts += [", ".join(counted)] if counted else []
    parts += [f"{row['infinite_inputs']} inputs are infinite"] if row["infinite_inputs"] else []
    parts += [_first_wrong(row), _in_common(row)] if row["first_wrong"] else [error_text(row)]
    return "; ".join(part for part in [*parts, *row["damage"]] if part)


def _failed_run(row: dict[str, Any]) -> str:
    """Return which of repeated runs the row tells of, where one failed."""
    failed = row["repeats"]["failed"] if row["repeats"] else []
    if not failed:
        return ""
    more = f" (runs {', '.join(map(str, failed))} failed)" if len(failed) > 1 else ""
    return f"run {failed[0]} of {len(row['repeats']['runs'])}{more}: "


def _overflow(row: dict[str, Any]) -> str:
    if row["acc"] == "f32" and row["out"] == "f16":
        return "overflow f16 (--out f32 holds more)"
    return f"overflow {row['acc']}"


def _first_wrong(row: dict[str, Any]) -> str:
    first = row["first_wrong"][0]
    return (
        f"the first wrong one is row {first['row']}, column {first['col']}: "
        f"{first['result']:.8g} where {first['low']:.8g} to {first['high']:.8g} is right"
    )


def _in_common(row: dict[str, Any]) -> str:
    shape = row["wrong_shape"]
    if not shape:
        return ""
    return "; ".join(filter(None, (_by_rank(shape["ranks"]), shape["common"])))


def _by_rank(ranks: list[dict[str, Any]]) -> str:
    """Return how many elements of each block of a cluster are wrong."""
    counts = ", ".join(f"{each['wrong']} in rank {each['rank']}" for each in ranks)
    return f"by cluster rank: {counts}" if ranks else ""


def error_text(row: dict[str, Any]) -> str:
    """Return how large the largest error is, and whether it is more than output rounding."""
    worst = row["max_error_at"]
    if not worst:
        return ""
    if row["max_error"] == 0:
        return "no error"
    text = f"largest error {row['max_error']:.3g} at {worst['reference']:.6g}"
    text += f" = {worst['ulps']:.2g} ulp of {row['out']} ({worst['permitted']:.2g} permitted)"
    rounding = row["verified"] and worst["ulps"] <= 1
    return text + (": output rounding, not a bug" if rounding else "")


def error_explained(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the largest error is made of, and a sentence on it; None where no error is finite.

    ``of_output`` is what rounding to the output type alone may add there: half an ulp.
    """
    worst = row["max_error_at"]
    if not worst:
        return None
    places = {name: worst[name] for name in ("row", "col", "result", "reference", "ulp", "ulps", "permitted")}
    told = {"stage": row["stage"], "problem": row["problem"], "error": row["max_error"], **places}
    return told | {"of_output": worst["ulp"] / 2, "sentence": _on_error(row, worst)}


def _on_error(row: dict[str, Any], worst: dict[str, Any]) -> str:
    out = row["out"]
    if not row["verified"]:
        return "not all elements are verified: see the checks before reading anything into this error"
    if row["max_error"] == 0:
        return "every element is the exact sum, rounded"
    if worst["ulps"] <= 1:
        return (
            f"<= 1 ulp of {out} output; not a bug: one ulp of {out} at {worst['reference']:.6g} is "
            f"{worst['ulp']:.3g}, and rounding the exact sum alone may cost half of it"
        )
    return (
        f"more than 1 ulp of {out}, within what {row['acc']} sums of {row['k']} products may cost; not a bug"
    )


def conclude(result: dict[str, Any]) -> str:
    """Return the conclusion: what a sweep found, or a sentence or two for each point."""
    explained = {_point(each): each for each in result["explanations"]}
    if result["sweep"]:
        return _swept(result["sweep"])
    if any(row["gain"] for row in result["stages"]):
        return _climbed(result["stages"])
    if result["stages"]:
        return " ".join(_measured(row, explained[_point(row)]) for row in result["stages"])
    problems = dict.fromkeys(each["problem"] for each in explained.values())
    by_problem = [[each for each in explained.values() if each["problem"] == name] for name in problems]
    told = [_best_recorded(of_one) for of_one in by_problem]
    return told[0] if len(told) == 1 else " ".join(map("{}: {}".format, problems, told))


def _best_recorded(explained: list[dict[str, Any]]) -> str:
    """Return what is expected of one point, or of several of a problem the fastest that was recorded."""
    if len(explained) == 1:
        return _predicted(explained[0])
    ran = [each for each in explained if each["recorded"]]
    if not ran:
        return f"Nothing is recorded of these {len(explained)} points."
    best = max(ran, key=lambda each: float(each["recorded"]["tflops"]))
    row = best["recorded"]
    if len(ran) == 1:
        same = [each for each in explained if each["stage"] == best["stage"]]
        told = " ".join([best["stage"], *(f"{k}={v}" for k, v in differing(best, same).items())])
        return f"Of {len(explained)} points {told} alone is recorded, {row['tflops']:.1f} TFLOP/s."
    return f"Of {len(ran)} recorded points {best['stage']} was the fastest, {row['tflops']:.1f} TFLOP/s."


def differing(point: dict[str, Any], same: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the options of a point in which others of its stage differ."""
    own = point.get("options", {})
    return {name: own[name] for name in own if len({each["options"].get(name) for each in same}) > 1}


def _climbed(rows: list[dict[str, Any]]) -> str:
    """Return for each problem the best rung, and those that gain nothing over the one below."""
    return " ".join(
        _best_rung([row for row in rows if row["problem"] == problem])
        for problem in dict.fromkeys(row["problem"] for row in rows)
    )


def _best_rung(rows: list[dict[str, Any]]) -> str:
    wrong = [row["stage"] for row in rows if not row["verified"]]
    rows = [row for row in rows if row["verified"]]
    if not rows:
        return f"No rung is compared: {NOT_VERIFIED} {', '.join(wrong)}."
    best = max(rows, key=lambda row: float(row["tflops"]))
    text = f"{best['problem']}: {best['stage']} is the fastest with {best['tflops']:.1f} TFLOP/s"
    shares = [
        f"{best[key]:.1f} % of {of}"
        for key, of in (
            ("percent_of_cublas", best["baseline"]),
            ("percent_of_measured_peak", f"the {best['peak']['ceiling']} ceiling" if best["peak"] else ""),
        )
        if best[key] is not None
    ]
    flat = [row for row in rows if row["gain"] and row["gain"]["verdict"] != "faster"]
    told = [f"{row['stage']} ({row['gain']['verdict']}) over {row['gain']['over']}" for row in flat]
    text += f", {', '.join(shares)}" if shares else ""
    climbs = ". Each rung gains over the one below." if any(row["gain"] for row in rows) else "."
    text += f". No gain: {'; '.join(told)}." if told else climbs
    return text + (f" Not compared, {NOT_VERIFIED} {', '.join(wrong)}." if wrong else "")


def _point(row: dict[str, Any]) -> tuple[str, ...]:
    return (row["stage"], row["problem"], str(row["options"]))


def _swept(sweep: dict[str, Any]) -> str:
    """Return which points are the fastest, as far as they can be told apart, and the one most behind."""
    points = [point for point in sweep["points"] if point["verdict"]]
    wrong = [_values(point) for point in sweep["points"] if not point["verified"]]
    left_out = f" Not compared, {NOT_VERIFIED} {'; '.join(wrong)}." if wrong else ""
    if not points:
        return f"{len(sweep['points'])} points ran; none has another of its problem beside it.{left_out}"
    best = [_values(point) for point in points if point["verdict"] == "fastest"]
    equal = [_values(point) for point in points if point["verdict"] == "indistinguishable"]
    slower = [point for point in points if point["verdict"] == "slower"]
    text = f"Fastest: {'; '.join(best)}."
    text += f" Not to be told from it: {'; '.join(equal)}." if equal else ""
    if slower:
        last = max(slower, key=lambda point: float(point["difference_percent"]))
        text += f" {len(slower)} are slower, {_values(last)} by {last['difference_percent']:.1f} %."
    return text + left_out


def _values(point: dict[str, Any]) -> str:
    values = " ".join(f"{name}={value}" for name, value in point["values"].items())
    return f"{point['stage']} {values}"


def _measured(row: dict[str, Any], explained: dict[str, Any]) -> str:
    checked = f"{row['verified_elements']} of {row['m'] * row['n']} elements verified"
    if row["tflops"] is None:
        return f"{row['stage']}: {checked}; not timed."
    if not row["verified"]:
        return (
            f"{row['stage']}: NOT VERIFIED ({checked}; see the checks), so its {row['tflops']:.1f} TFLOP/s "
            "count for nothing."
        )
    sentence = f"{row['stage']} reaches {row['tflops']:.1f} TFLOP/s"
    if row["percent_of_cublas"] is not None:
        sentence += f", {row['percent_of_cublas']:.1f} % of {row['baseline']} ({row['verdict']})"
    if row["percent_of_measured_peak"] is not None:
        sentence += f", {row['percent_of_measured_peak']:.1f} % of the {row['peak']['ceiling']} ceiling"
    limit = explained["limiter"]
    if limit is None:
        return f"{sentence}."
    permitted, clock = limit["tflops"], ""
    if limit["at_mhz"] and row["clock_mhz"]:
        permitted *= row["clock_mhz"] / limit["at_mhz"]
        clock = f" at {row['clock_mhz']:.0f} MHz"
    return (
        f"{sentence}. What limits it is expected to be {_cause(limit)}: that permits "
        f"{permitted:.1f} TFLOP/s{clock}, of which it reaches {100 * row['tflops'] / permitted:.0f} %."
    )


def _predicted(explained: dict[str, Any]) -> str:
    limit = explained["limiter"]
    if limit is None:
        return _undecided(explained)
    clock = f" at {limit['at_mhz']} MHz" if limit["at_mhz"] else ""
    return (
        f"{explained['stage']} on {explained['machine']} is expected to be limited by "
        f"{_cause(limit)}: at most {limit['tflops']:.1f} TFLOP/s{clock} without any idle time"
        f"{_reached(explained['recorded'])}."
    )


def _reached(row: dict[str, Any] | None) -> str:
    """Return what was recorded beside what is predicted."""
    if row is None:
        return "; nothing is recorded of this kernel for this problem"
    text = f"; recorded: {row['tflops']:.1f} TFLOP/s"
    if row["percent"] is None:
        return f"{text}, at a clock that was not counted ({row['date']})"
    clock = f" at {row['mhz']} MHz" if row["mhz"] else ""
    text += f"{clock}, {row['percent']:.0f} % of that ({row['date']})"
    return text + ("; see kernel.cu and stage.py for what takes the rest" if row["percent"] < CLOSE else "")


def _undecided(explained: dict[str, Any]) -> str:
    """Return what can be told where the rate of a resource, or of all, is not known."""
    known = [row for row in explained["bounds"] if row["per_second"] is not None]
    if not known:
        return f"{explained['stage']}: no rates are known for this GPU, so no limit is predicted."
    unknown = [row for row in explained["bounds"] if row["per_second"] is None]
    return (
        f"{explained['stage']} on {explained['machine']}: the rate of {', '.join(map(_cause, unknown))} is "
        f"unknown on this GPU and may be what limits it, so no limiter is predicted; the rates that are "
        f"known permit at most {known[0]['tflops']:.1f} TFLOP/s ({known[0]['resource']})."
    )


def _cause(limit: dict[str, Any]) -> str:
    return f"{limit['resource']} ({limit['reason']})" if limit["reason"] else str(limit["resource"])
