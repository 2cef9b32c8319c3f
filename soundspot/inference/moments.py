"""Find the moment of a video that best shows what is sounding.

The middle often shows nothing that makes a sound. Listening is cheap, so the whole sound is heard:
the loudest half second of every two seconds or so is a candidate. The video is divided into a few
equal stretches, and in each only the frame of the candidate whose sound is known best is seen. The
best of these has the highest product of how surely its sound is known and the peak of its map. If
its source is probably not in the picture, the frames around it are seen too, since a barking dog
may be hidden by the door it runs past.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from soundspot.common.progress import progress
from soundspot.inference.sound_events import QUIET, SLICE
from soundspot.media.clips import (
    SOUND_SECONDS,
    heard_span,
    iter_windows,
    read_frames,
    read_sounds,
)
from soundspot.media.decoding import AnyWaveform, MediaError
from soundspot.media.opening import OpenMedia
from soundspot.model.routing import Route, is_unknown

if TYPE_CHECKING:
    from soundspot.inference.localizer import Localizer
    from soundspot.inference.result import Localization

LOOKS = 6  # stretches of a video, and frames that are seen
PART = 2.0  # s, about: there is one candidate in each
MOST_PARTS = 10  # of a stretch
CLOSER = [step / 4 for step in range(-4, 5) if step]  # s from the best of them
FIRST = 0.6  # of the work, if a closer look is needed
# The ratio of its cIoU on anysound to that of the learned model on ESC-VOC val would be higher, but
# then a misheard typewriter outweighs the dog in one of the clips that we checked.
BRIDGE_TRUST = 0.22


@dataclass(frozen=True, eq=False)
class Candidate:
    """A loud moment: its second, how loud it is, and the 3 s around it."""

    at: float
    rms: float
    waveform: AnyWaveform


def loudest_of_parts(sound: OpenMedia, seconds: float, parts: int) -> dict[int, Candidate]:
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
    return best


def certainty(route: Route | None, labels: Sequence[tuple[str, float]]) -> float:
    """How surely a sound is known; the bridge is right less often than a learned model.

    It is 1 where the model cannot name sounds, and 0 for a sound without a counterpart.
    """
    if is_unknown(route):
        return 0.0
    if route is None:
        return labels[0][1] if labels else 1.0
    trust = 1 - (1 - BRIDGE_TRUST) * route.share
    return trust * dict(labels).get(route.sound, 0.0)


def merit(result: "Localization") -> float:
    """How well a moment shows what sounds: how surely its sound is known, times how high its peak.

    The peak counts by how far it reaches above no likeness at all, in units of the threshold, since
    the cosines of a learned model and the probabilities of the bridge by names differ.
    """
    peak = max(result.score, 0.0) / (result.threshold or 1.0)
    return peak * certainty(result.route, result.labels)


def worth_seeing(localizer: "Localizer", sound: OpenMedia, seconds: float) -> list[Candidate]:
    """Of each stretch of a sound the candidate that is known most surely; silent ones have none."""
    parts = min(max(round(seconds / LOOKS / PART), 1), MOST_PARTS) if localizer.class_names else 1
    loudest = loudest_of_parts(sound, seconds, LOOKS * parts)
    if parts == 1:
        return list(loudest.values())
    heard = localizer.name_sounds([candidate.waveform for candidate in loudest.values()])
    best: dict[int, tuple[float, Candidate]] = {}
    for (part, candidate), (labels, route) in zip(loudest.items(), heard, strict=True):
        stretch, known = part // parts, certainty(route, labels)
        if stretch not in best or known > best[stretch][0]:
            best[stretch] = known, candidate
    return [candidate for _, candidate in best.values()]


def localize_best(
    localizer: "Localizer",
    video: OpenMedia,
    sound: OpenMedia,
    report: Callable[[float], object] = lambda share: None,
) -> tuple["Localization", Sequence[float]]:
    """The map of the best of a few moments, and all moments looked at.

    It is the one that `Localizer.localize_file` makes of that moment. `report` is told before every
    frame which share of them has been seen, and may raise to stop.
    """

    def look(
        times: Sequence[float], sounds: Sequence[AnyWaveform], begin: float, end: float
    ) -> list["Localization"]:
        results: list[Localization] = []
        for frame, heard in zip(read_frames(video, times), sounds, strict=True):
            report(begin + (end - begin) * len(results) / len(times))
            results += localizer.localize_batch([frame], [heard])
        return results

    lengths = (file.info.duration for file in (video, sound))
    seconds = min(filter(None, lengths))
    candidates = worth_seeing(localizer, sound, seconds)
    if not candidates:
        sentence = f"{sound.info.path} is silent from start to end: give another sound"
        raise MediaError(sentence, "silent")
    times = [candidate.at for candidate in candidates]
    sounds = [candidate.waveform for candidate in candidates]
    at, best = _best(times, look(times, sounds, 0.0, FIRST))
    near = [at + step for step in CLOSER if 0 <= at + step < seconds]
    if best.visible is False and near:
        sounds = read_sounds(sound, [(moment, SOUND_SECONDS) for moment in near])
        at, best = _best([at, *near], [best, *look(near, sounds, FIRST, 1.0)])
        times += near
    return replace(best, at=at, heard=heard_span(sound, at)), times


def _best(
    times: Sequence[float], results: Sequence["Localization"]
) -> tuple[float, "Localization"]:
    best = max(range(len(times)), key=lambda k: merit(results[k]))
    return times[best], results[best]
