"""A film: small gray pictures of a video around a moment, from which motion is measured.

Axes: n pictures, s the side of a square picture.
"""

import io
from collections.abc import Sequence

import av
import numpy as np
from av.video.reformatter import Interpolation
from jaxtyping import UInt8
from PIL import Image

from soundspot.common.errors import MediaError
from soundspot.media import decoding
from soundspot.media.opening import Media, opened
from soundspot.media.sound import SOUND_SECONDS

SIDE = 64  # pixels
RATE = 8  # pictures a second

Film = UInt8[np.ndarray, "n s s"]


def read_films(media: Media, times: Sequence[float]) -> list[Film | None]:
    """The film of the 3 s around each moment; None for an image, and where nothing is shown."""
    with opened(media) as file:
        if file.image is not None or not times:
            return [None] * len(times)
        half = int(SOUND_SECONDS / 2 * RATE)
        films: list[Film | None] = []
        for at in times:
            moments = [at + step / RATE for step in range(-half, half + 1) if at + step / RATE >= 0]
            shown = decoding.shown(
                file.walk("video", moments[0]), moments, hold=-decoding.CLOCK_TOLERANCE
            )
            pictures = []
            try:
                for _, frame in shown:
                    pictures.append(_small(frame))
            except MediaError:  # a damaged part is only a shorter film
                pass
            films.append(np.stack(pictures) if pictures else None)
        return films


def _small(frame: av.VideoFrame) -> UInt8[np.ndarray, "s s"]:
    gray = frame.reformat(SIDE, SIDE, format="gray", interpolation=Interpolation.AREA)
    return np.asarray(decoding.turned(frame, gray.to_ndarray()))


def film_bytes(film: Film) -> bytes:
    """A film as one PNG, its pictures below each other."""
    packed = io.BytesIO()
    Image.fromarray(film.reshape(-1, film.shape[-1])).save(packed, "PNG")
    return packed.getvalue()


def decode_film(data: bytes) -> Film:
    """The film of a PNG."""
    with Image.open(io.BytesIO(data)) as image:
        pixels = np.asarray(image.convert("L"))
    side = pixels.shape[1]
    if len(pixels) % side:
        raise MediaError(f"a film of {side} pixels a side has {len(pixels)} rows: it is damaged")
    return pixels.reshape(-1, side, side)
