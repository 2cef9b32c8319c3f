"""A street and a bird's song made by formulas: no third-party picture or recording is needed."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float32
from PIL import Image, ImageDraw, ImageFilter

from soundspot.media.clips import SAMPLE_RATE, SOUND_SAMPLES, SOUND_SECONDS
from soundspot.media.decoding import Picture

SIZE, FINE = (640, 426), 2  # drawn twice as large, for smooth edges
GRAIN = 5.0  # noise in gray levels: without it the encoder takes flat areas for odd things

Color = tuple[int, int, int]
Points = Sequence[tuple[int | float, int | float]]
Pen = Callable[[str, Points, Color], None]  # a polygon, or the corners of an ellipse or rectangle


def street() -> Picture:
    """A car on a street, and a bird on the branch of a tree."""
    width, height = (FINE * side for side in SIZE)
    down = np.linspace(0, 1, height)[:, None, None]
    sky = (1 - down) * np.array([120, 175, 225]) + down * np.array([215, 232, 240])
    image = Image.fromarray(np.broadcast_to(sky, (height, width, 3)).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    _draw_background(_pen(draw))
    _draw_car(_pen(draw, (32, 234), 1.6))
    _draw_bird(_pen(draw, (360, 90), 2.0))
    smooth = image.filter(ImageFilter.GaussianBlur(1.2)).resize(SIZE, Image.Resampling.LANCZOS)
    grain = np.random.default_rng(0).normal(0, GRAIN, (*SIZE[::-1], 3))
    return np.clip(np.asarray(smooth) + grain, 0, 255).astype(np.uint8)


def _pen(draw: ImageDraw.ImageDraw, at: tuple[int, int] = (0, 0), scale: float = 1.0) -> Pen:
    """Draws shapes whose origin is `at`, in pixels of the final picture."""

    def pen(shape: str, points: Points, color: Color) -> None:
        placed = [(FINE * (at[0] + scale * x), FINE * (at[1] + scale * y)) for x, y in points]
        getattr(draw, shape)(placed, fill=color)

    return pen


def _draw_background(pen: Pen) -> None:
    for x, radius, y in ((96, 141, 264), (320, 192, 281), (544, 160, 268)):
        pen("ellipse", [(x - radius, y - 85), (x + radius, y + 170)], (96, 140, 88))
    pen("rectangle", [(0, 281), (640, 426)], (104, 106, 110))
    pen("rectangle", [(0, 273), (640, 290)], (170, 168, 160))
    for x in range(13, 640, 107):
        pen("rectangle", [(x, 362), (x + 51, 368)], (235, 235, 225))
    bark, leaves = (92, 66, 44), (58, 112, 54)
    pen("rectangle", [(512, 43), (538, 298)], bark)
    pen("polygon", [(384, 213), (525, 187), (525, 200), (384, 226)], bark)
    for x, y, across, up in ((525, 51, 102, 68), (474, 85, 64, 43), (589, 94, 77, 51)):
        pen("ellipse", [(x - across, y - up), (x + across, y + up)], leaves)


def _draw_car(pen: Pen) -> None:
    red, dark, glass = (200, 40, 45), (140, 28, 31), (185, 210, 226)
    roof = [(30, 30), (52, 8), (104, 8), (128, 30)]
    pen("polygon", [(0, 46), (4, 34), *roof, (154, 36), (158, 50), (156, 58), (2, 58)], red)
    pen("polygon", [(38, 30), (56, 12), (76, 12), (76, 30)], glass)
    pen("polygon", [(82, 12), (102, 12), (120, 30), (82, 30)], glass)
    pen("rectangle", [(78, 30), (80, 56)], dark)
    pen("rectangle", [(84, 35), (92, 37)], dark)
    pen("rectangle", [(1, 50), (157, 58)], dark)
    pen("ellipse", [(148, 38), (156, 45)], (255, 240, 180))
    pen("rectangle", [(2, 38), (7, 44)], (180, 20, 20))
    for x in (34, 124):
        for radius, color in ((15, (25, 25, 28)), (9, (170, 172, 178)), (4, (60, 60, 64))):
            pen("ellipse", [(x - radius, 58 - radius), (x + radius, 58 + radius)], color)


def _draw_bird(pen: Pen) -> None:
    back, belly, wing = (190, 70, 50), (240, 210, 180), (142, 52, 37)
    pen("polygon", [(58, 34), (100, 50), (96, 58), (56, 46)], (114, 42, 30))  # tail
    pen("ellipse", [(14, 16), (72, 60)], back)
    pen("ellipse", [(16, 28), (54, 60)], belly)
    pen("ellipse", [(4, 2), (38, 34)], back)
    pen("polygon", [(6, 14), (-10, 20), (6, 22)], (235, 160, 40))  # bill
    pen("ellipse", [(12, 10), (18, 16)], (10, 10, 10))
    pen("ellipse", [(13.5, 11), (15.5, 13)], (255, 255, 255))
    pen("polygon", [(34, 28), (76, 40), (66, 50), (40, 46)], wing)
    for x in (38, 46):
        pen("polygon", [(x - 1, 58), (x + 1, 58), (x - 1, 72), (x - 3, 72)], (120, 80, 40))


def bird_song() -> Float32[np.ndarray, "48000"]:
    """Three seconds of chirps."""
    rng = np.random.default_rng(1)
    song = rng.normal(0, 0.001, SOUND_SAMPLES)
    length = round(0.09 * SAMPLE_RATE)
    time = np.arange(length) / SAMPLE_RATE
    swell = np.sin(np.pi * np.arange(length) / length) ** 2
    at = 0.05
    while at < SOUND_SECONDS - 0.3:
        for _ in range(rng.integers(2, 5)):
            slope = rng.choice([-9000.0, 9000.0])
            pitch = rng.uniform(3200, 4200) + slope * time + 500 * np.sin(2 * np.pi * 28 * time)
            part = song[round(at * SAMPLE_RATE) :][:length]
            part += (0.3 * swell * np.sin(2 * np.pi * np.cumsum(pitch) / SAMPLE_RATE))[: len(part)]
            at += 0.12
        at += rng.uniform(0.1, 0.3)
    return song.astype(np.float32)
