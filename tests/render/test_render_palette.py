"""The 32 colours: told apart by eye, legible, and unambiguous on a terminal with 256 colours."""

from itertools import combinations

import pytest
from rich.color import Color, ColorSystem

from ptxlab.render.palette import COUNT, colour, contrast


def oklab(paper: str) -> tuple[float, float, float]:
    """Return lightness, a and b of "#rrggbb" (the inverse of what the palette computes)."""
    channels = [int(paper[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    l_ = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    m_ = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    s_ = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * l_ + 0.7936177850 * m_ - 0.0040720468 * s_,
        1.9779984951 * l_ - 2.4285922050 * m_ + 0.4505937099 * s_,
        0.0259040371 * l_ + 0.7827717662 * m_ - 0.8086757660 * s_,
    )


def test_any_two_colours_differ_to_the_eye() -> None:
    """0.02 in OKLab is about the least difference that is noticed (CSS Color 4, section 13)."""
    papers = [oklab(colour(number).paper) for number in range(COUNT)]
    nearest = min(
        sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5
        for one, other in combinations(papers, 2)
    )
    assert nearest >= 2 * 0.02


@pytest.mark.parametrize("number", range(COUNT))
def test_the_ink_is_legible(number: int) -> None:
    """WCAG 2 asks for a contrast of 4.5 (level AA, normal text)."""
    assert contrast(colour(number).paper, colour(number).ink) >= 4.5


def test_contrast_of_black_and_white_is_the_greatest() -> None:
    """The scale runs from 1 to 21."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#777777") == pytest.approx(1.0)


def test_256_colours_keep_all_lanes_apart() -> None:
    """Such a terminal rounds each colour to one of its own; no two lanes may merge."""
    rounded = [
        Color.parse(colour(number).paper).downgrade(ColorSystem.EIGHT_BIT).number for number in range(COUNT)
    ]
    assert len(set(rounded)) == COUNT


def test_numbers_beyond_the_last_lane_begin_again() -> None:
    """Bank 32 is bank 0."""
    assert colour(COUNT + 5) == colour(5)


# How eyes see that lack one kind of cone, as matrices of linear sRGB. Source: G. Machado, M. Oliveira,
# L. Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency", 2009, severity 1.
DEFICIENCIES = {
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def seen(paper: str, deficiency: str) -> str:
    """Return the colour that such an eye takes "#rrggbb" for."""
    channels = [int(paper[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    mixed = (
        min(1.0, max(0.0, sum(factor * part for factor, part in zip(row, linear, strict=True))))
        for row in DEFICIENCIES[deficiency]
    )
    gamma = (12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055 for c in mixed)
    return "#" + "".join(f"{round(255 * c):02x}" for c in gamma)


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_any_two_colours_differ_to_eyes_that_lack_a_cone(deficiency: str) -> None:
    """By well more than the least difference that is noticed."""
    papers = [oklab(seen(colour(number).paper, deficiency)) for number in range(COUNT)]
    nearest = min(
        sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5
        for one, other in combinations(papers, 2)
    )
    assert nearest >= 1.4 * 0.02
