"""How much of this machine visitors may use, and the check of every uploaded file."""

import math
from dataclasses import dataclass
from pathlib import Path

from soundspot.common.errors import SoundspotError
from soundspot.media import clips as media
from soundspot.media.clips import MediaInfo

MB = 1_000_000


@dataclass(frozen=True)
class Limits:
    """What each visitor, and all visitors together, may use."""

    upload_mb: int = 200  # one file
    seconds: float = 120.0  # a video or sound
    megapixels: float = 25.0  # a picture, or the frames of a video
    disk_mb: int = 4000  # all files together; beyond it uploads are refused
    waiting: int = 32  # requests; they are processed one at a time
    visitors: int = 64  # sessions at a time
    idle: float = 3600.0  # seconds without a sign of life after which a session ends
    unclaimed: float = 600.0  # seconds after which an upload that no session uses is removed
    kept: int = 12  # uploads, and results, per session; the oldest go first

    def __post_init__(self) -> None:
        """Refuse limits that would allow nothing."""
        for name in ("upload_mb", "seconds"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise SoundspotError(f"expected a limit above 0 for {name}, got {value}")


def check_upload(path: Path, limits: Limits) -> MediaInfo:
    """Probe an upload; refuse what is unreadable, too long or too large."""
    info = media.probe(path)
    if info.duration is not None and info.duration > limits.seconds:
        raise SoundspotError(
            f"{path.name} is {info.duration:.0f} s long, but this page accepts up to "
            f"{limits.seconds:g} s: cut it, or use `soundspot localize` for long files"
        )
    if info.size is not None and info.size[0] * info.size[1] > limits.megapixels * MB:
        width, height = info.size
        raise SoundspotError(
            f"{path.name} has {width} x {height} pixels, but this page accepts up to "
            f"{limits.megapixels:g} megapixels: make it smaller"
        )
    return info
