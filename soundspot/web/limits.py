"""How much of this machine the page lends out, and the check of every file that comes in."""

import math
from dataclasses import dataclass
from pathlib import Path

from soundspot.common.errors import SoundspotError
from soundspot.media import clips as media
from soundspot.media.clips import MediaInfo

MB = 1_000_000


@dataclass(frozen=True)
class Limits:
    """What all visitors together, and each of them, may use.

    Attributes:
        upload_mb: Of one file.
        seconds: Of a video or a sound.
        megapixels: Of a picture, or of a video's pictures.
        disk_mb: Of all files together; no upload is taken above it.
        waiting: Requests that may wait; the work itself is done one by one.
        visitors: Sessions at a time.
        idle: Seconds after which a session without a sign of life is over.
        unclaimed: Seconds for which an upload waits to be used.
        kept: Uploads, and results, that a session keeps; the oldest go first.
    """

    upload_mb: int = 200
    seconds: float = 120.0
    megapixels: float = 25.0
    disk_mb: int = 4000
    waiting: int = 32
    visitors: int = 64
    idle: float = 3600.0
    unclaimed: float = 600.0
    kept: int = 12

    def __post_init__(self) -> None:
        """Refuse limits under which nothing could be done."""
        for name in ("upload_mb", "seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise SoundspotError(
                    f"expected a limit above 0 for {name}, not {getattr(self, name)}"
                )


def check(path: Path, limits: Limits) -> MediaInfo:
    """Say what an upload holds; refuse what is unreadable, too long or too large."""
    info = media.probe(path)
    if info.duration is not None and info.duration > limits.seconds:
        raise SoundspotError(
            f"{path.name} is {info.duration:.0f} s long; this page takes up to "
            f"{limits.seconds:g} s: cut it, or use `soundspot localize` for long files"
        )
    if info.size is not None and info.size[0] * info.size[1] > limits.megapixels * MB:
        width, height = info.size
        raise SoundspotError(
            f"{path.name} is {width} x {height} pixels large; this page takes up to "
            f"{limits.megapixels:g} megapixels: make it smaller"
        )
    return info
