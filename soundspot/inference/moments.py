"""Look over a video for the moment that shows best what is sounding.

Its middle often shows nothing that sounds. The sound is cheap to walk through: the loudest half
second of each of a few equal parts is a candidate, and only their frames are seen. The best one has
a sound that is surely known and a high peak of the map: their product wins.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from soundspot.common.progress import progress
from soundspot.inference.sound_events import QUIET, SLICE
from soundspot.media.clips import SOUND_SECONDS, heard_span, iter_windows, read_frames
from soundspot.media.decoding import AnyWaveform, MediaError
from soundspot.media.opening import OpenMedia
from soundspot.model.routing import is_unknown

if TYPE_CHECKING:
    from soundspot.inference.localizer import Localizer
    from soundspot.inference.result import Localization

LOOKS = 6  # frames that are seen
BRIDGE_TRUST = 0.22  # its cIoU on anysound over that of the learned model on ESC-VOC val


@dataclass(frozen=True, eq=False)
class Candidate:
    """A loud moment: its second, how loud it is, and the 3 s around it."""

    at: float
    rms: float
    waveform: AnyWaveform


def loudest_of_parts(sound: OpenMedia, seconds: float, parts: int = LOOKS) -> list[Candidate]:
    """The loudest half second of each part of the first seconds of a sound; silent parts have none.

    Args:
        sound: The sound.
        seconds: How much of it to hear.
        parts: Number of equal parts.
    """
    count = max(math.ceil(seconds / SLICE - 0.5), 1)  # those whose middle lies inside
    middles = [min(SLICE * (k + 0.5), seconds) for k in range(count)]
    windows = iter_windows(sound, middles, (SLICE, SOUND_SECONDS))
    best: dict[int, Candidate] = {}
    for k, window in enumerate(progress(windows, "listening", count)):
        if window is None:  # the sound has ended, before the pictures
            break
        narrow, wide = window
        part, rms = k * parts // count, float(narrow.std())
        audible = float(np.ptp(narrow)) / 2 >= QUIET
        if audible and (part not in best or rms > best[part].rms):
            best[part] = Candidate(middles[k], rms, wide)
    return list(best.values())


def merit(result: "Localization") -> float:
    """How well a moment shows what sounds: how surely its sound is known, times how high its peak.

    The peak counts by how far it reaches above no likeness at all, in units of the threshold, since
    the cosines of a learned model and of the bridge by names differ; the bridge is right less
    often. Where the model cannot name sounds, the peak decides alone.
    """
    peak = max(result.score, 0.0) / (result.threshold or 1.0)
    if is_unknown(result.route):
        return 0.0
    if result.route is None:
        return peak if not result.labels else peak * result.labels[0][1]
    trust = 1 - (1 - BRIDGE_TRUST) * result.route.share
    return trust * peak * dict(result.labels).get(result.route.sound, 0.0)


def localize_best(
    localizer: "Localizer", video: OpenMedia, sound: OpenMedia
) -> tuple["Localization", Sequence[float]]:
    """The map of the best of a few loud moments, and all moments looked at.

    It is the one that `Localizer.localize_file` makes of that moment.
    """
    lengths = (file.info.duration for file in (video, sound))
    candidates = loudest_of_parts(sound, min(filter(None, lengths)))
    if not candidates:
        sentence = f"{sound.info.path} is silent from start to end: give another sound"
        raise MediaError(sentence, "silent")
    times = [candidate.at for candidate in candidates]
    frames = read_frames(video, times)
    results = localizer.localize_batch(frames, [candidate.waveform for candidate in candidates])
    best = max(range(len(results)), key=lambda k: merit(results[k]))
    return replace(results[best], at=times[best], heard=heard_span(sound, times[best])), times
