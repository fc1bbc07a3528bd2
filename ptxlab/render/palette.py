"""One colour for each of 32 lanes or banks: hue for the group of four, lightness within it.

A lane's colour is a background with its own ink on it: it reads alike on dark and light terminals.
They are computed in OKLCH (B. Ottosson, "A perceptual color space for image processing", 2020), where equal
steps look equally large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

COUNT = 32
_GROUP = 4
# Chosen by search (simulated annealing): the two nearest colours lie as far apart as was found, to the usual
# eye and to those that lack one kind of cone, while inks stay legible and all 32 stay distinct on a terminal
# with 256 colours. Eyes that lack a cone see little of hue, so groups differ in lightness too.
_HUES = (37, 94, 120, 171, 198, 269, 320, 353)  # degrees, of each group
_SHIFTS = (0.013, 0.070, -0.013, 0.008, 0.069, -0.054, 0.011, -0.063)  # of each group's lightness
_LIGHTNESS = (0.848, 0.737, 0.611, 0.474)
_CHROMA = (0.080, 0.117, 0.098, 0.137)
_DARK, _LIGHT = "#111111", "#ffffff"


@dataclass(frozen=True)
class Colour:
    """A background and the ink that is legible on it, both as "#rrggbb"."""

    paper: str
    ink: str


@cache
def colour(number: int) -> Colour:
    """Return the colour of a lane or bank; numbers from 32 on begin again."""
    group, member = divmod(number % COUNT, _GROUP)
    hue = math.radians(_HUES[group])
    lightness, chroma = _LIGHTNESS[member] + _SHIFTS[group], _CHROMA[member]
    while not all(0.0 <= part <= 1.0 for part in _linear_rgb(lightness, chroma, hue)):
        chroma -= 0.005  # outside what a screen shows: the same colour, paler
    linear = _linear_rgb(lightness, chroma, hue)
    paper = "#" + "".join(f"{round(255 * _gamma(part)):02x}" for part in linear)
    return Colour(paper, max((_DARK, _LIGHT), key=lambda ink: contrast(paper, ink)))


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours, 1 to 21 (WCAG 2, "contrast ratio")."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _linear_rgb(lightness: float, chroma: float, hue: float) -> tuple[float, float, float]:
    """Return an OKLCH colour (hue in radians) as linear sRGB, outside 0..1 if unshowable."""
    a, b = chroma * math.cos(hue), chroma * math.sin(hue)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )


def _gamma(part: float) -> float:
    """Return the sRGB value of a linear one."""
    return 12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055


def _luminance(colour: str) -> float:
    """Return the relative luminance of "#rrggbb"."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * p for weight, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
