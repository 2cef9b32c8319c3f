"""How much of this machine visitors may use, and the check of every uploaded file."""

import math
from dataclasses import dataclass
from pathlib import Path

from soundspot.common.errors import SoundspotError
from soundspot.media import clips as media
from soundspot.media import deadline
from soundspot.media.clips import MediaInfo

MB = 1_000_000


@dataclass(frozen=True)
class Limits:
    """What each visitor, and all visitors together, may use."""

    upload_mb: int = 200  # one file
    seconds: float = 120.0  # a video or sound
    megapixels: float = 25.0  # a picture, or the frames of a video
    disk_mb: int = 4000  # all files together
    for_uploads: float = 0.9  # the share of the disk that uploads may fill; results get the rest
    waiting: int = 64  # requests; they are processed one at a time
    visitors: int = 64  # sessions at a time
    idle: float = 3600.0  # seconds without a sign of life after which a session ends
    unclaimed: float = 600.0  # seconds after which an upload that no session uses is removed
    kept: int = 12  # uploads, and results, per session; the oldest go first
    hung: int = 2  # decoders that damaged files keep busy, each of which takes a core

    def __post_init__(self) -> None:
        """Refuse limits that would allow nothing."""
        for name in ("upload_mb", "seconds"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise SoundspotError(f"expected a limit above 0 for {name}, got {value}")


def check_upload(path: Path, limits: Limits) -> MediaInfo:
    """Probe an upload; refuse what is unreadable, too long or too large before decoding it."""
    most = round(limits.megapixels * MB)
    with media.opened(path, most) as file:
        if file.info.kind == "video" and deadline.hung() >= limits.hung:
            raise SoundspotError(
                "damaged videos keep this server's decoders busy: try again later, or restart it"
            )
        duration, size = file.info.duration, file.announced_size()
        if duration is not None and duration > limits.seconds:
            raise SoundspotError(
                f"{path.name} is {duration:.0f} s long, but this page accepts up to "
                f"{limits.seconds:g} s: cut it, or use `soundspot localize` for long files"
            )
        if size is not None and size[0] * size[1] > most:
            raise SoundspotError(
                f"{path.name} has {size[0]} x {size[1]} pixels, but this page accepts up to "
                f"{limits.megapixels:g} megapixels: make it smaller"
            )
        return media.probe(file)
