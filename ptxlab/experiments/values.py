"""Values of an experiment's options as a person types them: NAME=VALUE, and NAME=VALUE,VALUE of a sweep."""

from __future__ import annotations

from typing import Any

from ptxlab.errors import UsageError, is_plain_number, unknown_name
from ptxlab.experiments.base import Experiment, Option, Value

_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_LEGAL: dict[type[Any], str] = {bool: "true, false", int: "a whole number", float: "a number"}


def value_of(experiment: Experiment, text: str, flag: str) -> tuple[str, Value]:
    """Return the name and the value of "name=value" ("name" alone switches an option on).

    Args:
        experiment: whose option.
        text: what was typed.
        flag: where, for messages: "--set".

    Raises:
        UsageError: there is no such option, or its value is of another type.

    """
    name, equals, value = text.partition("=")
    name = name.replace("-", "_")
    option = _option(experiment, name)
    if not equals and not isinstance(option.default, bool):
        raise UsageError(f"{flag} {text} has no value; legal: {name}=VALUE")
    return name, _typed(option, name, value if equals else "true", f"{flag} {text}")


def values_of_sweep(
    experiment: Experiment, text: str, flag: str, *, like: str = ""
) -> tuple[str, list[Value]]:
    """Return the name and the values of "name=value,value", each value once.

    Args:
        experiment: whose option.
        text: what was typed.
        flag: where, for messages: "--sweep".
        like: the option whose values they are, where the name stands for several.

    Raises:
        UsageError: there is no such option, a value is of another type, or there is none.

    """
    name, _, values = text.partition("=")
    name = name.replace("-", "_")
    option = _option(experiment, like or name)
    if not values:
        raise UsageError(f"{flag} {text} has no values; legal: {name}=VALUE,VALUE")
    typed = [_typed(option, name, each, f"{flag} {text}") for each in values.split(",")]
    return name, list(dict.fromkeys(typed))


def _option(experiment: Experiment, name: str) -> Option:
    options = experiment.options()
    if name not in options:
        raise unknown_name(f"option of {experiment.name}", name, options)
    return options[name]


def _typed(option: Option, name: str, value: str, typed: str) -> Value:
    kind: type[Any] = type(option.default)
    try:
        return _parsed(kind, value)
    except (KeyError, ValueError):
        legal = ", ".join(map(str, option.choices)) or _LEGAL[kind]
        raise UsageError(f"{typed}: '{value}' is no value of {name}; legal: {legal}") from None


def _parsed(kind: type[Any], value: str) -> Value:
    if kind is bool:
        return _BOOLEANS[value.lower()]
    if kind in (int, float) and not is_plain_number(value):
        raise ValueError(value)
    parsed: Value = kind(value)
    return parsed
