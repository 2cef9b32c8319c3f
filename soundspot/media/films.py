"""A film: small gray pictures of a video around a moment, from which motion is measured.

Axes: n pictures, s the side of a square picture.
"""

import io
import itertools
from collections import deque
from collections.abc import Iterator, Sequence

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

Film = UInt8[np.ndarray, "_n _s _s"]


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


def walk_films(media: Media, rate: float) -> Iterator[Film | None]:
    """The films around 0, 1/rate, 2/rate, ... s of a video without end, in constant memory."""
    half = SOUND_SECONDS / 2
    with opened(media) as file:
        times = (k / RATE for k in itertools.count())
        shown = decoding.shown(file.walk("video"), times, hold=-decoding.CLOCK_TOLERANCE)
        kept: deque[tuple[float, UInt8[np.ndarray, "s s"]]] = deque()
        for at in (k / rate for k in itertools.count()):
            while not kept or kept[-1][0] < at + half:
                if (coming := next(shown, None)) is None:
                    break
                kept.append((coming[0], _small(coming[1])))
            while kept and kept[0][0] < at - half:
                kept.popleft()
            yield np.stack([picture for _, picture in kept]) if kept else None


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
    try:
        with Image.open(io.BytesIO(data)) as image:
            pixels = np.asarray(image.convert("L"))
        return pixels.reshape(-1, SIDE, SIDE)
    except Exception as error:  # Pillow reports a broken file as almost anything
        raise MediaError(f"a film of the pair set is damaged ({error})", "damaged") from error
