"""The answer for one file: what `soundspot.localize` does."""

import logging
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import torch

from soundspot.common.errors import SoundspotError
from soundspot.inference.localizer import Localizer
from soundspot.inference.models import load
from soundspot.inference.moments import (
    films_around,
    find_events,
    listen,
    localize_best,
    loudest_moment,
)
from soundspot.inference.outlines import load_outliner
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

At = float | Literal["best", "middle"]  # a moment of a video
Model = str | Path | Localizer | None

log = logging.getLogger(__name__)


def localize(
    path: Media,
    audio: Media | None = None,
    *,
    at: At = "best",
    outline: bool = True,
    model: Model = None,
    device: str = AUTO,
) -> Localization:
    """Find where the sound of a video, or of a sound file in a photo, comes from.

    Args:
        path: A video, or an image.
        audio: A sound file; required with an image, replaces the sound of a video.
        at: Seconds into the video, its "best" moment or, much faster, its "middle". With an image,
            seconds into the sound, its loudest part or its middle.
        outline: Outline the thing that sounds, which takes about as long as localizing it.
        model: As `load` takes it, or a loaded model. Default: the best that ships; it is kept for
            the next call.
        device: As `load` takes it.

    Example:
        >>> soundspot.localize("clip.mp4").verdict in ("visible", "not visible", "unknown")
        True
    """
    localizer = _loaded(model, device)
    with opened(path) as picture, opened(picture if audio is None else audio) as sound:
        picture.info.require_picture()
        sound.info.require_sound()
        moving = picture.info.kind == "video"
        if at == "best" and moving:
            best = localize_best(localizer, picture, sound)
            return add_mask(best, localizer.device) if outline else best
        if at == "best":  # a photograph has one moment, and of its sound the loudest is heard
            loudest = loudest_moment(sound)
            span = heard_span(sound, loudest.at)
            clip = Clip(read_frame(picture), loudest.waveform, None, span)
        else:
            track = None if audio is None else sound
            clip = read_clip(picture, track, None if at == "middle" else at)
        times = [clip.at] if moving and clip.at is not None else []
        films = films_around(localizer, picture, times)
    (result,) = localizer.localize_batch([clip.frame], [clip.waveform], films=films)
    result = replace(result, at=clip.at if moving else None, heard=clip.heard)
    return add_mask(result, localizer.device) if outline else result


def add_mask(result: Localization, device: torch.device) -> Localization:
    """Outline what sounds, if it is in the picture; without the weights, the map has to serve."""
    if result.verdict != "visible" or result.frame is None:
        return result
    try:
        outliner = load_outliner(device)
    except SoundspotError as error:
        log.warning("no outline: %s", error)
        return result
    return replace(result, mask=outliner.outline(outliner.see(result.frame), result.similarity))


def localize_sources(
    path: Media,
    audio: Media | None = None,
    *,
    count: int = 2,
    outline: bool = True,
    model: Model = None,
    device: str = AUTO,
) -> list[Localization]:
    """Separate the sounds of a file by time, and find where each comes from.

    Each map shows the frame at the loudest moment of a sound event (see `moments`) and hears
    nothing but that event, which is its `span`. Simultaneous sounds are one event.

    Args:
        path: A video, or an image.
        audio: A sound file; required with an image, replaces the sound of a video.
        count: How many events at most, the most salient first; there may be fewer.
        outline: As `localize` takes it.
        model: As `localize` takes it.
        device: As `load` takes it.
    """
    localizer = _loaded(model, device)
    with opened(path) as picture, opened(picture if audio is None else audio) as sound:
        picture.info.require_picture()
        sound.info.require_sound()
        lengths = (file.info.duration for file in (picture, sound))
        seconds = min(filter(None, lengths))
        slices = listen(sound, seconds, lambda s: localizer.name_scores(localizer.hear(list(s))))
        events = find_events(slices, count)
        heard = read_sounds(sound.info, [(event.middle, event.heard) for event in events])
        times = [event.at for event in events]
        frames, films = read_frames(picture, times), films_around(localizer, picture, times)
        moving = picture.info.kind == "video"
    answers = localizer.localize_batch(frames, heard, films=films)
    results = [
        replace(
            result,
            at=event.at if moving else None,
            span=(event.start, event.end),
            heard=(event.middle - event.heard / 2, event.middle + event.heard / 2),
        )
        for event, result in zip(events, answers, strict=True)
    ]
    return [add_mask(result, localizer.device) for result in results] if outline else results


def _loaded(model: Model, device: str) -> Localizer:
    return model if isinstance(model, Localizer) else _load_once(model, device)


@lru_cache(maxsize=2)
def _load_once(model: str | Path | None, device: str) -> Localizer:
    return load(model, device)
