"""Shades of a colour: what recolouring keeps, and what it changes.

Works in OKLab (https://bottosson.github.io/posts/oklab/), in which equal steps look equal: a shade of
a thing keeps its lightness relative to the rest of the thing, and takes the named colour's hue.
Colours are 8-bit sRGB triples; lightness runs from 0 to 1, hue from 0 to 1 around the circle.
"""

import numpy as np

_TO_LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
STEPS = 256  # of a ramp
# How far a shade may be from the colour itself, darker and lighter, in lightness. Most of a thing is
# near the middle of its ramp; were all of it this dark, orange would be called brown.
DARKER, LIGHTER = 0.17, 0.11


def oklab(rgb: np.ndarray) -> np.ndarray:
    """`(..., 3)` sRGB in [0, 255] to `(..., 3)` lightness, green to red, blue to yellow."""
    share = np.asarray(rgb, float) / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return np.cbrt(linear @ _TO_LMS.T) @ _TO_LAB.T


def contrast(a: tuple[int, int, int], b: tuple[int, int, int]) -> float:
    """The contrast ratio of two sRGB colours by WCAG 2, from 1 (the same light) to 21."""
    share = np.asarray((a, b)) / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    low, high = sorted(linear @ (0.2126, 0.7152, 0.0722))
    return float((high + 0.05) / (low + 0.05))


def srgb(lab: np.ndarray) -> np.ndarray:
    """The inverse of `oklab`: `(..., 3)` uint8; what no screen shows is clipped."""
    linear = (lab @ np.linalg.inv(_TO_LAB).T) ** 3 @ np.linalg.inv(_TO_LMS).T
    linear = linear.clip(0, 1)
    share = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return (255 * share).round().astype(np.uint8)


def lightness_and_hue(rgb: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`(lightness, chroma, hue)` of `(..., 3)` sRGB, each `(...)`."""
    lab = oklab(rgb)
    hue = np.arctan2(lab[..., 2], lab[..., 1]) / (2 * np.pi) % 1
    return lab[..., 0], np.hypot(lab[..., 1], lab[..., 2]), hue


def ramp(rgb: tuple[int, int, int], depth: float) -> np.ndarray:
    """`(STEPS, 3)` uint8: `rgb` in the middle, darker before it, lighter after it.

    `depth` scales how far: 0 gives the colour itself everywhere, 1 the most that it bears.
    """
    lab = oklab(np.asarray(rgb))
    steps = np.linspace(-1, 1, STEPS)[:, None]
    reach = depth * np.where(steps < 0, DARKER, LIGHTER)
    shades = np.repeat(lab[None], STEPS, 0)
    shades[:, :1] = (lab[0] + steps * reach).clip(0.05, 1)
    return srgb(shades)
