"""Examples that fill the page with one click.

The dog's photograph and its bark come from the cache of `weights`, as in `soundspot demo`; all else
is computed, so soundspot ships no picture or sound.
"""

import base64
import io
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from soundspot.common.errors import SoundspotError
from soundspot.encoders import weights
from soundspot.inference.demo import siren
from soundspot.media.clips import (
    SAMPLE_RATE,
    flac_bytes,
    jpeg_bytes,
    read_frame,
    read_waveform,
    write_video,
)
from soundspot.media.decoding import AnyWaveform, Picture
from soundspot.web.comparing import NOTHING, horn
from soundspot.web.drawings import bird_song, street

WIDTH, FPS = 640, 10.0
THUMBNAIL = 96, 72
PAUSE = np.zeros(SAMPLE_RATE // 2, np.float32)


@dataclass(frozen=True)
class Example:
    """A picture with a sound, or both as a video.

    Attributes:
        title: What the page calls it.
        file: Name of its files, without the suffix.
        picture: Makes the picture.
        sounds: Make the sounds; those of a video follow each other.
        moving: Whether it is a video.
        compare: What it is compared with.
    """

    title: str
    file: str
    picture: Callable[[], Picture]
    sounds: Sequence[Callable[[], AnyWaveform]]
    moving: bool = True
    compare: str = NOTHING


@lru_cache(1)
def _dog() -> Picture:
    image = Image.fromarray(read_frame(weights.media("demo-dog-photo")))
    image.thumbnail((WIDTH, WIDTH))
    return np.asarray(image)


def _bark() -> AnyWaveform:
    return read_waveform(weights.media("demo-dog-bark"))


EXAMPLES = {
    "dog": Example("A dog barks", "dog", _dog, (_bark,)),
    "dog-siren": Example("A dog, then a siren", "dog-and-siren", _dog, (_bark, siren)),
    "compare": Example("Bark or siren?", "dog", _dog, (_bark,), False, "a siren"),
    "street": Example("A bird, then a horn", "street", street, (bird_song, horn)),
    "bird": Example("Bird or car horn?", "street", street, (bird_song,), False, "a car horn"),
}


@lru_cache(len(EXAMPLES))
def example_files(key: str) -> dict[str, bytes]:
    """The files of an example by name: a video, or a picture and a sound.

    Raises:
        SoundspotError: The dog is not in the cache and cannot be fetched.
    """
    example = EXAMPLES[key]
    picture = example.picture()
    parts = [part for sound in example.sounds for part in (PAUSE, sound())][1:]
    waveform = np.concatenate(parts)
    if not example.moving:
        files = {f"{example.file}.jpg": jpeg_bytes(picture)}
        return files | {f"{example.file}.flac": flac_bytes(waveform)}
    with tempfile.TemporaryDirectory() as folder:
        video = Path(folder) / f"{example.file}.mp4"
        even = picture[: picture.shape[0] // 2 * 2, : picture.shape[1] // 2 * 2]
        write_video(video, [even] * round(len(waveform) / SAMPLE_RATE * FPS), waveform, FPS)
        return {video.name: video.read_bytes()}


def thumbnail(key: str) -> str | None:
    """A small picture of an example as a data address; None if there is none (yet)."""
    try:
        if EXAMPLES[key].picture is _dog:
            weights.path("demo-dog-photo")  # a server that starts does not wait for a download
        image = Image.fromarray(EXAMPLES[key].picture())
    except SoundspotError:
        return None
    image.thumbnail(THUMBNAIL)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
