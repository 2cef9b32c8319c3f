"""Pictures of a localization: the heat map over its frame, and the three-part picture.

Drawn with NumPy and Pillow alone, so no extra is needed.

Axes: height width cells of the heat map.
"""

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torch.nn import functional as F

from soundspot.common.arrays import min_max
from soundspot.common.files import atomic_write
from soundspot.encoders import logmel
from soundspot.inference.maps import CONTOUR_LEVEL, PixelBox
from soundspot.inference.outputs import PICTURE_FORMATS, check_picture
from soundspot.media.decoding import Picture, Waveform

Heat = Float32[np.ndarray, "height width"]  # 0..1
Color = tuple[int, int, int]
Page = UInt8[np.ndarray, "page_height page_width 3"]

HEAT_OPACITY = 0.75
# The frame below is muted, half way to gray and darker, so that its colors are not mistaken for
# heat: a pixel keeps this much of its luma and of its color.
LUMA_KEPT, COLOR_KEPT = 0.75, 0.4
# Dark violet through red to pale yellow: equal steps of value look like equal steps of lightness.
ANCHORS = (
    (0, 0, 4), (31, 12, 72), (85, 15, 109), (136, 34, 106), (186, 54, 85),
    (227, 89, 51), (249, 140, 10), (249, 201, 50), (252, 255, 164),
)  # fmt: skip
STEPS = 1024
# Brightness, width in units of `thickness`, and opacity of the contour's two lines.
LINES = ((0, 2.4, 0.4), (255, 1.0, 0.95))
LUMA = (0.299, 0.587, 0.114)
# How the frame is muted, as rows of a matrix for Pillow.
_MIX = COLOR_KEPT * np.eye(3) + (LUMA_KEPT - COLOR_KEPT) * np.array(LUMA)
MUTED = tuple(np.c_[_MIX, np.zeros(3)].ravel().tolist())

WHITE: Color = (255, 255, 255)
INK: Color = (32, 36, 44)
GRAY: Color = (112, 118, 130)
RULE: Color = (225, 228, 233)
BLUE: Color = (58, 104, 176)
GREEN: Color = (80, 250, 160)

MARGIN, GAP = 28, 22
PANEL_WIDTH, PANEL_HEIGHT = 480, 400
LOWEST, SOUND_WIDTH = 300, 360  # a wide frame still leaves room for the sound beside it
HEADING, BODY, SMALL, SMALLEST = 17, 14, 12, 8
SHORTEST = logmel.SAMPLE_RATE // 10  # samples of a sound that can be drawn
LINE = 20  # from one line of a caption to the next


def overlay(
    frame: Picture,
    heat: Float32[np.ndarray, "h_map w_map"],
    box: PixelBox | None = None,
    strength: float = 1.0,
) -> Picture:
    """Lay a heat map over its frame, with its contour at one half and a box.

    The heat may be coarser than the frame, to save time; it is drawn with opacity `strength`.
    """
    muted = Image.fromarray(frame).convert("RGB", MUTED)
    # The colors of heat, then the dark and the bright line of the contour.
    painted = muted.copy()
    paint = Image.fromarray(colors(heat)).resize(muted.size, Image.Resampling.BILINEAR)
    painted.paste(paint, mask=_as_mask(HEAT_OPACITY * heat, muted.size))
    distance, width = _from_contour(heat), thickness(heat.shape)
    for gray, wide, opacity in LINES:
        line = opacity * np.clip((wide * width + 1) / 2 - distance, 0, 1)
        painted.paste((gray, gray, gray), mask=_as_mask(line, muted.size))
    image = painted if strength == 1 else Image.blend(muted, painted, strength)
    if box is not None:
        x1, y1, x2, y2 = box
        width = max(1, round(thickness(frame.shape)))
        ImageDraw.Draw(image).rectangle((x1, y1, x2 - 1, y2 - 1), outline=GREEN, width=width)
    return np.asarray(image)


def _as_mask(opacity: Heat, size: tuple[int, int]) -> Image.Image:
    """An opacity of 0..1 for Pillow."""
    levels = np.clip(255 * opacity, 0, 255).round().astype(np.uint8)
    return Image.fromarray(levels).resize(size, Image.Resampling.BILINEAR)


def triptych(
    frame: Picture,
    heat: Float32[np.ndarray, "_h _w"],
    waveform: Waveform,
    *,
    box: PixelBox | None = None,
    labels: Sequence[tuple[str, float]] = (),
    headings: tuple[str, str, str] = ("Frame", "Where it sounds", "Sound"),
    caption: Sequence[str] = (),
    footer: str = "",
    heard: tuple[float, float] | None = None,
    strength: float = 1.0,
) -> Image.Image:
    """The three-part picture: the frame, the map over the frame, the sound.

    The axis of the sound is `heard` in seconds, by default from 0 on; if that is shorter than the
    waveform, which then repeats it, only one round is drawn. The caption goes below the map, the
    footer in small print below the frame. `strength` is the map's opacity.
    """
    height, width = frame.shape[:2]
    scale = min(PANEL_WIDTH / width, PANEL_HEIGHT / height)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BICUBIC))
    small_heat = np.asarray(Image.fromarray(heat).resize(size, Image.Resampling.BILINEAR))
    place = _scale_box(box, frame, size)
    hot = Image.fromarray(overlay(small, np.clip(small_heat, 0, 1), place, strength))

    column, tall = max(size[0], 160), max(size[1], LOWEST)
    lefts = (MARGIN, MARGIN + column + GAP, MARGIN + 2 * (column + GAP))
    body = MARGIN + HEADING + 10
    below = body + tall + 8
    size_below = LINE * max(len(caption), 1) + GAP
    page = Image.new("RGB", (lefts[2] + SOUND_WIDTH + MARGIN, below + size_below), WHITE)
    draw = ImageDraw.Draw(page)
    for left, heading in zip(lefts, headings, strict=True):
        _write(draw, (left, MARGIN), heading, HEADING, INK, room=column)
    for left, picture in zip(lefts, (Image.fromarray(small), hot), strict=False):
        page.paste(picture, (left + (column - size[0]) // 2, body + (tall - size[1]) // 2))
    page.paste(_sound_panel(waveform, labels, tall, heard), (lefts[2], body))
    room = lefts[2] + SOUND_WIDTH - lefts[1]
    for i, line in enumerate(caption):
        _write(draw, (lefts[1], below + i * LINE), line, BODY, INK, room=room)
    _write(draw, (MARGIN, below), footer, SMALL, GRAY, room=column)
    return page


def stack(pages: Sequence[Image.Image]) -> Image.Image:
    """Stack pages vertically."""
    tops = [0, *itertools.accumulate(page.height for page in pages)]
    whole = Image.new("RGB", (max(page.width for page in pages), tops[-1]), WHITE)
    for page, top in zip(pages, tops, strict=False):
        whole.paste(page, (0, top))
    return whole


def caption_strip(height: int, width: int, lines: Sequence[str]) -> Page:
    """Lines of text to go below a picture of this height and width."""
    size = max(SMALLEST, round(min(height, width) / 20))
    pitch = round(1.5 * size)
    strip = Image.new("RGB", (width, pitch * len(lines) + size // 2), INK)
    draw = ImageDraw.Draw(strip)
    for i, line in enumerate(lines):
        at = (size // 2, size // 2 + i * pitch)
        _write(draw, at, line, size, WHITE, room=width - size)
    return np.asarray(strip)


def _scale_box(box: PixelBox | None, frame: Picture, size: tuple[int, int]) -> PixelBox | None:
    if box is None:
        return None
    x, y = size[0] / frame.shape[1], size[1] / frame.shape[0]
    x1, y1 = min(int(box[0] * x), size[0] - 1), min(int(box[1] * y), size[1] - 1)
    return x1, y1, max(x1 + 1, round(box[2] * x)), max(y1 + 1, round(box[3] * y))


def _sound_panel(
    waveform: Waveform,
    labels: Sequence[tuple[str, float]],
    height: int,
    heard: tuple[float, float] | None,
) -> Image.Image:
    """Waveform and log-mel spectrogram on one time axis, then the labels as bars."""
    panel = Image.new("RGB", (SOUND_WIDTH, height), WHITE)
    draw = ImageDraw.Draw(panel)
    row, axis = 2 * BODY, SMALL + 8
    room = height - axis - (len(labels) * row + 10 if labels else 0)
    wave_height = room // 3
    start, end = heard or (0.0, len(waveform) / logmel.SAMPLE_RATE)
    once = waveform[: max(round((end - start) * logmel.SAMPLE_RATE), SHORTEST)]
    stretched = logmel.stretch_waveform(torch.from_numpy(once)[None])
    panel.paste(_wave(stretched[0].numpy(), (SOUND_WIDTH, wave_height)), (0, 0))
    mel_size = (SOUND_WIDTH, room - wave_height - 4)
    panel.paste(_spectrogram(stretched, mel_size), (0, wave_height + 4))
    bands = f"log-mel, {logmel.LOW_HZ:.0f} Hz to {logmel.HIGH_HZ / 1000:g} kHz"
    ends = [f"{round(second, 2):g} s" for second in (start, end)]
    for x, text, anchor in ((0, ends[0], "la"), (0.5, bands, "ma"), (1, ends[1], "ra")):
        _write(draw, (x * SOUND_WIDTH, room + 5), text, SMALL, GRAY, anchor)
    for i, (name, score) in enumerate(labels):
        y = height - (len(labels) - i) * row
        _write(draw, (0, y), name, BODY, INK, room=SOUND_WIDTH - 50)
        _write(draw, (SOUND_WIDTH, y), f"{score:.2f}", BODY, GRAY, "ra")
        top, length = y + BODY + 5, round(SOUND_WIDTH * min(max(score, 0.0), 1.0))
        draw.rectangle((0, top, SOUND_WIDTH, top + 3), fill=RULE)
        draw.rectangle((0, top, length, top + 3), fill=BLUE)
    return panel


def _wave(waveform: Waveform, size: tuple[int, int]) -> Image.Image:
    """The range of the waveform in every column of pixels."""
    width, height = size
    image = Image.new("RGB", size, (246, 247, 249))
    draw = ImageDraw.Draw(image)
    for x, part in enumerate(np.array_split(waveform, width)):
        high, low = ((1 - value) / 2 * (height - 1) for value in (part.max(), part.min()))
        draw.line((x, round(float(high)), x, round(float(low))), fill=BLUE)
    return image


def _spectrogram(heard: Float[Tensor, "1 samples"], size: tuple[int, int]) -> Image.Image:
    """The log-mel spectrogram, low bands at the bottom, as long as the waveform above it."""
    # Zeros after the end: the patches would otherwise stop before it.
    padded = F.pad(heard, (0, logmel.PATCH_SAMPLES))
    patches = logmel.log_mel_patches(padded, logmel.YAMNET_OFFSET)[0]
    log_mel = patches.flatten(0, 1)[: heard.shape[1] // logmel.HOP]
    bands = min_max(log_mel.numpy(), flat=1e-6).T[::-1]
    return Image.fromarray(colors(bands)).resize(size, Image.Resampling.BICUBIC)


def _write(
    draw: ImageDraw.ImageDraw,
    at: tuple[int | float, int | float],
    text: str,
    size: int,
    fill: Color,
    anchor: str = "la",
    room: int | float = math.inf,
) -> None:
    """Write a line; if it is too wide, in a smaller font, and then cut short."""
    while draw.textlength(text, _font(size)) > room:
        if size > SMALLEST:
            size -= 1
        elif len(text) > 1:
            text = text.removesuffix("…")[:-1] + "…"
        else:
            return
    draw.text(at, text, fill=fill, font=_font(size), anchor=anchor)


@lru_cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=size)


def write_picture(path: Path, image: Image.Image) -> None:
    """Write a picture in the format that its suffix names."""
    check_picture(path)
    with atomic_write(path) as part:
        # Only PNG knows the level; the usual 6 takes three times as long and saves little.
        image.save(part, format=PICTURE_FORMATS[path.suffix.lower()], compress_level=2)


# --- the colors of heat ---


def colors(values: Float32[np.ndarray, "height width"]) -> UInt8[np.ndarray, "height width 3"]:
    """Color values of 0..1, dark to light; values outside take the color of the nearest end."""
    steps = np.clip(values * STEPS + 0.5, 0, STEPS).astype(np.int32)
    return np.asarray(_color_table()[steps])


def thickness(shape: Sequence[int]) -> float:
    """Pixels of a line that can be seen on a picture of this height and width."""
    return max(1.0, min(shape[:2]) / 180)


@lru_cache
def _color_table() -> UInt8[np.ndarray, "steps 3"]:
    stops, fine = np.linspace(0, 1, len(ANCHORS)), np.linspace(0, 1, STEPS + 1)
    channels = [np.interp(fine, stops, channel) for channel in zip(*ANCHORS, strict=True)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def _from_contour(heat: Heat) -> Heat:
    """The distance of each pixel from the contour."""
    if min(heat.shape) < 2:
        return np.full_like(heat, np.inf)
    # The height above the level divided by the slope is, to first order, the distance in pixels.
    down, right = np.gradient(heat)
    slope = np.sqrt(down * down + right * right)
    return np.asarray(np.abs(heat - CONTOUR_LEVEL) / np.maximum(slope, 1e-6))
