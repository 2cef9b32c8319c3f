"""What the first look sees: pictures without wide plain borders, and blurred ones at half the size.

A picture within wide plain borders (an upright video between black bars, a small photo on a page)
would fill few cells of the grid, so it is cropped out first. A blurred picture is unlike those
that encoders were trained on; at half the size its edges are sharp again.

Axes: h w pixels of the picture.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

from soundspot.encoders.views import STORED_SIZE
from soundspot.media.decoding import AnyPicture
from soundspot.media.resizing import resize_frame

BORDER_TOLERANCE = 5  # grey levels that a plain border may differ from its colour
PLAIN = 0.995  # share of a line's pixels that must be of that colour
# The share of the frame, set on the val split: photographs that fill more than half of a white page
# are localised just as well with their borders.
LARGEST_CONTENT = 0.5
SMALLEST_SIDE = 1 / 8  # of the frame's; smaller content is a speck
# The share of the contrast that is lost at half the size, set on the val split: photographs lose
# 0.033 or more; blurred with a radius of 4 of 256 pixels they lose 0.025 at most.
LEAST_SHARPNESS = 0.03


class Sight(NamedTuple):
    """The part of a picture that is looked at.

    Attributes:
        rows: Pixel rows.
        columns: Pixel columns.
        blurred: Whether it is to be seen at half the size.
    """

    rows: slice
    columns: slice
    blurred: bool

    def part(self, picture: AnyPicture) -> AnyPicture:
        """Its pixels."""
        return picture[self.rows, self.columns]


def sight_of(picture: AnyPicture) -> Sight:
    """Choose the part of a picture to look at, and whether at half the size."""
    height, width = picture.shape[:2]
    small = resize_frame(picture, min(height, STORED_SIZE), min(width, STORED_SIZE))
    rows, columns = content(small)
    area = (rows.stop - rows.start) * (columns.stop - columns.start)
    if area > LARGEST_CONTENT * small.shape[0] * small.shape[1]:
        rows, columns = slice(0, small.shape[0]), slice(0, small.shape[1])
    seen = resize_frame(small[rows, columns], STORED_SIZE, STORED_SIZE)  # as encoders see it
    return Sight(
        _scaled(rows, height / small.shape[0]),
        _scaled(columns, width / small.shape[1]),
        sharpness(seen) < LEAST_SHARPNESS,
    )


def content(picture: AnyPicture) -> tuple[slice, slice]:
    """Rows and columns within the plain borders; all of them if nothing, or a speck, is within."""
    height, width = picture.shape[:2]
    top, bottom = _plain_lines(picture), _plain_lines(picture[::-1])
    if height - top - bottom >= max(SMALLEST_SIDE * height, 1):
        middle = picture[top : height - bottom].swapaxes(0, 1)
        left, right = _plain_lines(middle), _plain_lines(middle[::-1])
        if width - left - right >= max(SMALLEST_SIDE * width, 1):
            return slice(top, height - bottom), slice(left, width - right)
    return slice(0, height), slice(0, width)


def _plain_lines(picture: AnyPicture) -> int:
    """How many rows, from the first on, have the colour of the first and nothing else."""
    colour = np.median(picture[0], axis=0).astype(np.int16)
    off = np.abs(picture - colour).max(axis=2) > BORDER_TOLERANCE
    plain = off.mean(axis=1) <= 1 - PLAIN
    return len(plain) if plain.all() else int(plain.argmin())


def sharpness(picture: AnyPicture) -> float:
    """The share of the contrast that is lost at half the size; 1 for a picture without contrast."""
    grey = torch.from_numpy(picture.mean(axis=2, dtype=np.float32))[None, None]
    height, width = picture.shape[:2]
    if float(grey.std()) == 0:
        return 1.0
    half = F.interpolate(grey, (height // 2, width // 2), mode="bilinear", antialias=True)
    again = F.interpolate(half, (height, width), mode="bicubic")
    return float((grey - again).std() / grey.std())


def _scaled(part: slice, factor: float) -> slice:
    return slice(round(part.start * factor), round(part.stop * factor))
