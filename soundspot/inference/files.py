"""The answer for one file: what `soundspot.localize` does."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from soundspot.inference.localizer import At, Localizer
from soundspot.inference.models import load
from soundspot.inference.moments import find_events, listen, localize_best, loudest_moment
from soundspot.inference.result import Localization
from soundspot.media.clips import (
    Clip,
    heard_span,
    read_clip,
    read_frame,
    read_frames,
    read_sounds,
)
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
    with opened(path) as picture, opened(picture if audio is None else audio) as sound:
        picture.info.require_picture()
        sound.info.require_sound()
        if at == "best" and picture.info.kind == "video":
            return localize_best(localizer, picture, sound)
        if at == "best":  # a photograph has one moment, and of its sound the loudest is heard
            loudest = loudest_moment(sound)
            span = heard_span(sound, loudest.at)
            clip = Clip(read_frame(picture), loudest.waveform, None, span)
        else:
            track = None if audio is None else sound
            clip = read_clip(picture, track, None if at == "middle" else at)
    result = localizer.localize(clip.frame, clip.waveform)
    moving = picture.info.kind == "video"
    return replace(result, at=clip.at if moving else None, heard=clip.heard)


def localize_sources(
    localizer: Localizer, path: Media, audio: Media | None = None, count: int = 2
) -> list[Localization]:
    """`Localizer.localize_sources`; the files may be open already."""
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
