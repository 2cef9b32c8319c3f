"""Draw the picture in README: a scene and a sound made here, and what the model makes of them.

    python docs/build_picture.py

No photograph or recording of others may be in the repository, so a bird is drawn and its song
computed; the model was trained on photographs and recordings only.
"""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

import soundspot

OUT = Path(__file__).parent / "figures" / "at-work.jpg"
SIZE, FINE = (480, 360), 4  # drawn four times as large, for smooth edges
RATE = 16_000


def draw_scene():
    """A small bird on a branch before a sunset."""
    width, height = (side * FINE for side in SIZE)
    down = np.linspace(0, 1, height)[:, None, None]
    sky = (1 - down) * np.array([120, 170, 225]) + down * np.array([245, 225, 200])
    image = Image.fromarray(np.broadcast_to(sky, (height, width, 3)).astype(np.uint8))
    draw = ImageDraw.Draw(image)

    def shape(kind, points, color):
        scaled = [(FINE * x, FINE * y) for x, y in points]
        if kind == "ellipse":
            draw.ellipse([*scaled[0], *scaled[1]], fill=color)
        else:
            draw.polygon(scaled, fill=color)

    brown, dark = (92, 64, 44), (58, 42, 32)
    shape("polygon", [(0, 300), (480, 250), (480, 262), (0, 316)], brown)
    shape("polygon", [(330, 266), (400, 190), (406, 194), (345, 266)], brown)
    for x, y in ((395, 190), (415, 205), (380, 210), (60, 285), (85, 275)):
        shape("ellipse", [(x - 16, y - 9), (x + 16, y + 9)], (70, 120, 60))
    red, gray, cream = (190, 90, 50), (120, 105, 90), (235, 220, 195)
    shape("polygon", [(118, 232), (52, 262), (60, 276), (126, 254)], dark)  # tail
    shape("ellipse", [(100, 160), (220, 268)], gray)  # body
    shape("ellipse", [(140, 175), (222, 262)], red)  # breast
    shape("ellipse", [(150, 225), (205, 270)], cream)
    shape("ellipse", [(170, 120), (236, 186)], gray)  # head
    shape("ellipse", [(186, 134), (236, 190)], red)
    shape("polygon", [(108, 200), (185, 195), (170, 240), (96, 250)], dark)  # wing
    shape("polygon", [(108, 212), (170, 208), (160, 232), (104, 240)], (95, 80, 68))
    shape("polygon", [(232, 142), (262, 152), (233, 158)], (70, 60, 50))  # bill
    shape("polygon", [(232, 158), (256, 164), (230, 168)], (50, 42, 36))
    shape("ellipse", [(206, 138), (220, 152)], (15, 12, 10))  # eye
    shape("ellipse", [(214, 140), (218, 144)], (255, 255, 255))
    for x in (158, 178):  # legs
        shape("polygon", [(x, 262), (x + 4, 262), (x + 2, 290), (x - 2, 290)], dark)
    image = image.filter(ImageFilter.GaussianBlur(FINE))
    image = image.resize(SIZE, Image.Resampling.LANCZOS)
    grain = np.random.default_rng(0).normal(0, 6, (*SIZE[::-1], 3))
    return np.clip(np.asarray(image) + grain, 0, 255).astype(np.uint8)


def sing():
    """Three seconds of bird song: short falling and rising whistles."""
    rng = np.random.default_rng(1)
    song = np.zeros(3 * RATE)
    start = 0.1
    while start < 2.7:
        length = rng.uniform(0.06, 0.16)
        time = np.arange(int(length * RATE)) / RATE
        low, high = rng.uniform(2500, 3500), rng.uniform(4000, 6000)
        sweep = low + (high - low) * (time / length if rng.random() < 0.5 else 1 - time / length)
        sweep = sweep + 150 * np.sin(2 * np.pi * 40 * time)
        note = np.sin(2 * np.pi * np.cumsum(sweep) / RATE) * np.hanning(len(time))
        begin = int(start * RATE)
        song[begin : begin + len(note)] += 0.5 * note
        start += length + rng.uniform(0.02, 0.15)
    return (song + rng.normal(0, 0.002, len(song))).astype(np.float32)


def main():
    """Localize the song in the scene."""
    result = soundspot.load(device="cpu").localize(draw_scene(), sing())
    print(result.describe())  # noqa: T201
    result.save(OUT)


if __name__ == "__main__":
    main()
