"""Find the moment of a video that best shows what is sounding.

The middle often shows nothing that makes a sound. Listening is cheap, so the whole sound is heard:
the loudest half second of every two seconds or so is a candidate. The video is divided into a few
equal stretches, and in each only the frame of the candidate whose sound is known best is seen. The
best of these has the highest product of the confidence in its sound and the peak of its map. If
its source is probably not in the picture, the frames around it are seen too, since a barking dog
may be hidden by the door it runs past.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32

from soundspot.common.errors import MediaError
from soundspot.common.progress import progress
from soundspot.inference.localizer import CHUNK, Localizer
from soundspot.inference.result import Localization
from soundspot.inference.sound_events import QUIET, SLICE
from soundspot.media.clips import SOUND_SECONDS, heard_span, iter_windows, read_frames, read_sounds
from soundspot.media.decoding import AnyWaveform
from soundspot.media.opening import OpenMedia
from soundspot.model.routing import Route, is_unknown

STRETCHES = 6  # of a video, and frames that are seen
PART = 2.0  # s, about: there is one candidate in each
MOST_PARTS = 10  # of a stretch
CLOSER = [step / 4 for step in range(-4, 5) if step]  # s from the best of them
# The ratio of its cIoU on anysound to that of the learned model on ESC-VOC val would be higher, but
# then a misheard typewriter outweighs the dog in one of the clips that we checked.
NAMED_TRUST = 0.22


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


def certainty(route: Route | None, score: float) -> float:
    """The confidence in a sound, whose name has this score; the label map is right less often.

    It is 0 for a sound without a counterpart.
    """
    if is_unknown(route):
        return 0.0
    trust = 1.0 if route is None else 1 - (1 - NAMED_TRUST) * route.share
    return trust * score


def merit(result: Localization) -> float:
    """How well a moment shows what sounds: the confidence in its sound, times how high its peak.

    The peak counts by how far it reaches above no similarity at all, in units of the threshold,
    since the cosines of a learned model and the probabilities of the label map differ.
    """
    peak = max(result.score, 0.0) / (result.threshold or 1.0)
    named = dict(result.labels)
    if result.route is not None:
        return peak * certainty(result.route, named.get(result.route.sound, 0.0))
    return peak * (result.labels[0][1] if result.labels else 1.0)


def worth_seeing(localizer: Localizer, sound: OpenMedia, seconds: float) -> list[Candidate]:
    """Of each stretch of a sound the candidate that is known best; silent ones have none."""
    names = localizer.class_names
    parts = min(max(round(seconds / STRETCHES / PART), 1), MOST_PARTS) if names else 1
    loudest = loudest_of_parts(sound, seconds, STRETCHES * parts)
    if parts == 1 or not loudest:
        return list(loudest.values())
    waveforms = [candidate.waveform for candidate in loudest.values()]
    known = _known(localizer, np.stack(waveforms))
    best: dict[int, tuple[float, Candidate]] = {}
    for (part, candidate), certain in zip(loudest.items(), known, strict=True):
        stretch = part // parts
        if stretch not in best or certain > best[stretch][0]:
            best[stretch] = certain, candidate
    return [candidate for _, candidate in best.values()]


def _known(localizer: Localizer, sounds: Float32[np.ndarray, "b samples"]) -> list[float]:
    """The confidence in each sound."""
    chunks = np.array_split(sounds, math.ceil(len(sounds) / CHUNK))
    scores = np.concatenate([localizer.class_scores(chunk) for chunk in chunks])
    known = []
    for row, route in zip(scores, localizer.routes(scores), strict=True):
        name = float(row.max())
        if route is not None:
            name = float(row[localizer.class_names.index(route.sound)]) if route.sound else 0.0
        known.append(certainty(route, name))
    return known


def localize_best(localizer: Localizer, video: OpenMedia, sound: OpenMedia) -> Localization:
    """The answer at the best of a few moments: the one that this moment alone would get."""
    lengths = (file.info.duration for file in (video, sound))
    seconds = min(filter(None, lengths))
    candidates = worth_seeing(localizer, sound, seconds)
    if not candidates:
        sentence = f"{sound.info.path} is silent from start to end: give another sound"
        raise MediaError(sentence, "silent")
    times = [candidate.at for candidate in candidates]
    sounds = [candidate.waveform for candidate in candidates]
    at, best = _best(times, _see(localizer, video, times, sounds))
    # The source may be hidden for a moment: see whether it shows up just before or after.
    near = [at + step for step in CLOSER if 0 <= at + step < seconds]
    if best.verdict == "not visible" and near:
        sounds = read_sounds(sound, [(moment, SOUND_SECONDS) for moment in near])
        at, best = _best([at, *near], [best, *_see(localizer, video, near, sounds)])
        times += near
    return replace(best, at=at, heard=heard_span(sound, at), moments=len(times))


def _see(
    localizer: Localizer, video: OpenMedia, times: Sequence[float], sounds: Sequence[AnyWaveform]
) -> list[Localization]:
    frames = zip(read_frames(video, times), sounds, strict=True)
    shown = progress(frames, "localizing", len(times))
    return [localizer.localize(frame, heard) for frame, heard in shown]


def _best(times: Sequence[float], results: Sequence[Localization]) -> tuple[float, Localization]:
    best = max(range(len(times)), key=lambda k: merit(results[k]))
    return times[best], results[best]
