"""The answer for one file: what `soundspot.localize` does."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from soundspot.inference.localizer import At, Localizer
from soundspot.inference.models import load
from soundspot.inference.moments import localize_best
from soundspot.inference.result import Localization
from soundspot.inference.sound_events import find_events, listen
from soundspot.media.clips import read_clip, read_frames, read_sounds
from soundspot.media.opening import Media, opened
from soundspot.parallel.devices import AUTO


def localize(
    path: str | Path,
    audio: str | Path | None = None,
    *,
    at: At = "best",
    model: "str | Path | Localizer | None" = None,
    device: str = AUTO,
) -> Localization:
    """Find where the sound of a video, or of a sound file in a photo, comes from.

    Args:
        path: A video, or an image.
        audio: A sound file; required with an image, replaces the sound of a video.
        at: Seconds into the video, its "best" moment or, much faster, its "middle".
        model: As `load` takes it, or a loaded model. Default: the best that ships; it is kept for
            the next call.
        device: As `load` takes it.

    Example:
        >>> soundspot.localize("clip.mp4").verdict in ("visible", "not visible", "unknown")
        True
    """
    loaded = model if isinstance(model, Localizer) else _loaded(model, device)
    return localize_media(loaded, path, audio, at)


@lru_cache(maxsize=2)
def _loaded(model: str | Path | None, device: str) -> Localizer:
    return load(model, device)


def localize_media(
    localizer: Localizer, path: Media, audio: Media | None = None, at: At = "best"
) -> Localization:
    """`localize` with a loaded model; the files may be open already."""
    with opened(path) as picture:
        if at == "best" and picture.info.kind == "video":
            with opened(picture if audio is None else audio) as sound:
                picture.info.require_picture()
                sound.info.require_sound()
                return localize_best(localizer, picture, sound)
        clip = read_clip(picture, audio, None if isinstance(at, str) else at)
    result = localizer.localize(clip.frame, clip.waveform)
    return replace(result, at=clip.at, heard=clip.heard)


def localize_sources(
    localizer: Localizer, path: Media, audio: Media | None = None, count: int = 2
) -> list[Localization]:
    """Separate the sounds of a video by time, and find where each comes from.

    Each map shows the frame at the loudest moment of a sound event (see `sound_events`) and
    hears nothing but that event, which is its `span`. Simultaneous sounds are one event.

    Args:
        localizer: The model.
        path: A video, or an image.
        audio: A sound file; required with an image, replaces the sound of a video.
        count: How many events at most, the most salient first; there may be fewer.
    """
    with opened(path) as picture, opened(picture if audio is None else audio) as sound:
        picture.info.require_picture()
        sound.info.require_sound()
        lengths = (file.info.duration for file in (picture, sound))
        slices = listen(sound, min(filter(None, lengths)), localizer.class_scores)
        events = find_events(slices, count)
        heard = read_sounds(sound.info, [(event.middle, event.heard) for event in events])
        frames = read_frames(picture, [event.at for event in events])
        moving = picture.info.kind == "video"
    results = localizer.localize_batch(frames, heard)
    return [
        replace(
            result,
            at=event.at if moving else None,
            span=(event.start, event.end),
            heard=(event.middle - event.heard / 2, event.middle + event.heard / 2),
        )
        for event, result in zip(events, results, strict=True)
    ]
