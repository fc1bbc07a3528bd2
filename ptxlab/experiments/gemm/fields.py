"""What the fields of a row hold: files of results are read again, and anybody may have written into them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

Kind = Callable[[Any], bool]
"""Says whether a field holds what it should; one that is not there comes as ``...``."""


def lacking(row: Mapping[str, Any], fields: Mapping[str, Kind]) -> str:
    """Return the name of the first field that a row lacks, or holds as something else; "" if none."""
    return next((name for name, kind in fields.items() if not kind(row.get(name, ...))), "")


def as_damage(field: str) -> str:
    """Return what is told of a row that lacks a field, "" if it lacks none."""
    return f"has no {field} such as gemm writes" if field else ""


def is_text(value: Any) -> bool:
    """Say whether it is text."""
    return isinstance(value, str)


def is_number(value: Any) -> bool:
    """Say whether it is a finite number that a float can hold; a flag is none."""
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return is_one and abs(value) <= sys.float_info.max  # NaN is never less


def is_positive(value: Any) -> bool:
    """Say whether it is a number above zero."""
    return is_number(value) and value > 0


def is_not_negative(value: Any) -> bool:
    """Say whether it is a number, at least zero."""
    return is_number(value) and value >= 0


def is_size(value: Any) -> bool:
    """Say whether it is a whole number, at least one."""
    return is_positive(value) and isinstance(value, int)


def is_plain(value: Any) -> bool:
    """Say whether it is what an option can be: text, a flag or a number."""
    return isinstance(value, str | bool) or is_number(value)


def are_options(value: Any) -> bool:
    """Say whether it is a plain value for each name."""
    return isinstance(value, dict) and all(map(is_plain, value.values()))


def are_times(value: Any) -> bool:
    """Say whether it is a median in its interval, all longer than nothing."""
    return _are_ordered(value, ("low", "median", "high")) and bool(value["low"] > 0)


def is_interval(value: Any) -> bool:
    """Say whether it is an interval of shares, above zero."""
    return _are_ordered(value, ("low", "high")) and bool(value["low"] > 0)


def is_gain(value: Any) -> bool:
    """Say whether it is a gain over another stage, in percent with its interval: none loses all of it."""
    ends = _are_ordered(value, ("low", "high")) and value["low"] > -100
    return bool(ends) and is_text(value.get("over")) and is_number(value.get("percent"))


def _are_ordered(value: Any, names: tuple[str, ...]) -> bool:
    """Say whether it holds numbers of these names, none less than the one before."""
    if not isinstance(value, dict):
        return False
    found: list[Any] = [value.get(name) for name in names]
    return all(map(is_number, found)) and found == sorted(found)


def or_none(kind: Kind) -> Kind:
    """Return the kind of a field that is there, and may be None."""
    return lambda value: value is None or kind(value)


def if_there(kind: Kind) -> Kind:
    """Return the kind of a field that may be missing."""
    return lambda value: value is ... or value is None or kind(value)


def each(kind: Kind) -> Kind:
    """Return the kind of a list of such."""
    return lambda value: isinstance(value, list) and all(map(kind, value))


def holding(fields: Mapping[str, Kind]) -> Kind:
    """Return the kind of what has such fields."""
    return lambda value: isinstance(value, dict) and not lacking(value, fields)


PEAK: dict[str, Kind] = {
    **dict.fromkeys(("ceiling", "dtype"), is_text),
    **dict.fromkeys(("tflops", "flop_per_clock_and_sm", "sm_mhz"), is_positive),
    "clock_mhz": or_none(is_positive),
    "power_w": or_none(is_not_negative),
}
"""What a recorded ceiling says that is read again."""

LIBRARY: dict[str, Kind] = {
    "name": is_text,
    "milliseconds": are_times,
    "tflops": is_positive,
    "clock_mhz": or_none(is_positive),
    "power_w": or_none(is_not_negative),
    "verified": lambda value: isinstance(value, bool),
}
"""The same of a library that ran beside a stage."""

RECORDED: dict[str, Kind] = {
    **dict.fromkeys(("stage", "problem", "init", "l2", "dtype", "acc", "out", "layout"), is_text),
    **dict.fromkeys(("m", "n", "k", "samples"), is_size),
    "options": are_options,
    "milliseconds": are_times,
    "tflops": is_positive,
    **dict.fromkeys(("percent_of_cublas", "clock_mhz", "nvml_mhz"), or_none(is_positive)),
    **dict.fromkeys(("max_error", "power_w"), or_none(is_not_negative)),
    **dict.fromkeys(("percent_of_measured_peak", "percent_of_tensor_peak_at_clock"), if_there(is_positive)),
    "clock_source": if_there(is_text),
    "throttle": each(is_text),
    "throttled_samples": lambda value: value == 0 or is_size(value),
    "verdict": or_none(is_text),
    "percent_interval": if_there(is_interval),
    "gain": or_none(is_gain),
    "verified": lambda value: value is True,  # nothing else is ever kept
    "libraries": each(holding(LIBRARY)),
    "peak": or_none(holding(PEAK)),
}
"""What a row of a recording says that is read again."""

COMPARED: dict[str, Kind] = {
    "stage": is_text,
    **dict.fromkeys(("m", "n", "k", "dtype", "acc", "out", "layout"), if_there(is_plain)),
    **dict.fromkeys(("alpha", "beta", "init", "l2", "time", "device", "driver", "cuda"), if_there(is_plain)),
    "options": if_there(are_options),
    "milliseconds": are_times,
    "tflops": is_positive,
    **dict.fromkeys(("percent_of_cublas", "clock_mhz"), if_there(is_positive)),
    **dict.fromkeys(("noise_floor_percent", "power_w"), if_there(is_not_negative)),
    "verified": if_there(lambda value: isinstance(value, bool)),
}
"""What a row that was timed says to ``gemm compare``: results of older versions do not say all of it."""


def wrong_in_recorded(row: Mapping[str, Any]) -> str:
    """Return the first field of a recorded row that cannot be shown, or ""."""
    counted = row.get("clock_source") == "SM"
    return lacking(row, RECORDED | ({"clock_mhz": is_positive} if counted else {}))


def wrong_in_compared(row: Mapping[str, Any]) -> str:
    """Return the first field of a row that cannot be compared, or ""; one that was not timed is left out."""
    return "" if row.get("milliseconds") is None else lacking(row, COMPARED)
