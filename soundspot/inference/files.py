"""The answer for one file: what `soundspot.localize` does."""

import logging
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

import torch

from soundspot.common.errors import SoundspotError
from soundspot.inference import moments
from soundspot.inference.localizer import Localizer
from soundspot.inference.models import load
from soundspot.inference.outlines import load_outliner
from soundspot.inference.result import Localization
from soundspot.inference.sources import hear_events, share_out
from soundspot.media.clips import (
    Clip,
    heard_span,
    read_clip,
    read_frame,
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
            best = moments.localize_best(localizer, picture, sound)
            return add_mask(best, localizer.device) if outline else best
        if at == "best":  # a photograph has one moment, and of its sound the loudest is heard
            loudest = moments.loudest_moment(sound)
            span = heard_span(sound, loudest.at)
            clip = Clip(read_frame(picture), loudest.waveform, None, span)
        else:
            track = None if audio is None else sound
            clip = read_clip(picture, track, None if at == "middle" else at)
        times = [clip.at] if moving and clip.at is not None else []
        films = moments.films_around(localizer, picture, times)
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
    """Separate the sounds of a file, and find where each comes from.

    Its sound is cut in time where another sound begins (see `moments`), and what sounds at once is
    split by what is heard (see `sources`). Each map shows the frame at the loudest moment of its
    sound event, which is its `span`.

    Args:
        path: A video, or an image.
        audio: A sound file; required with an image, replaces the sound of a video.
        count: How many sounds at most, the most salient first; there may be fewer.
        outline: As `localize` takes it.
        model: As `localize` takes it.
        device: As `load` takes it.
    """
    localizer = _loaded(model, device)
    found = partial(moments.find_events, count=count)
    events = list(hear_events(localizer, path, audio, found))
    sounds = [event.sounds(localizer) if count > 1 else [] for event in events]
    results: list[Localization] = []
    for event, own, chosen in zip(events, sounds, share_out(sounds, count), strict=True):
        if chosen or not own:
            # One of several sounds is heard without the others; the only one as it is.
            results += event.answers(localizer, chosen, alone=len(own) > 1)
    return [add_mask(one, localizer.device) if outline else one for one in results[:count]]


def localize_timeline(
    path: Media,
    audio: Media | None = None,
    *,
    count: int = 1,
    model: Model = None,
    device: str = AUTO,
) -> list[Localization]:
    """Find what sounds from when to when, and where: a result for each passage, with its `span`.

    Args:
        path: A video, or an image.
        audio: A sound file; required with an image, replaces the sound of a video.
        count: How many sounds at once to tell apart.
        model: As `localize` takes it.
        device: As `load` takes it.
    """
    localizer = _loaded(model, device)
    results: list[Localization] = []
    for event in hear_events(localizer, path, audio, moments.cut_passages):
        chosen = event.sounds(localizer)[:count] if count > 1 else []
        results += event.answers(localizer, chosen, alone=len(chosen) > 1)
    return results


def _loaded(model: Model, device: str) -> Localizer:
    return model if isinstance(model, Localizer) else _load_once(model, device)


@lru_cache(maxsize=2)
def _load_once(model: str | Path | None, device: str) -> Localizer:
    return load(model, device)
