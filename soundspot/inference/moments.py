"""Which moments of a file are worth seeing and hearing, told by its sound.

The best moment of a video: the middle often shows nothing that makes a sound, and listening is
cheap, so the whole sound is heard. The loudest half second of every two seconds or so is a
candidate, unless it is far below the loudest of all. The video is divided into a few equal
stretches, and in each only the frame of the candidate whose sound is known best is seen. The best
of these is the one whose source is most probably in the picture. Unless that is quite sure, the
frames around it are seen too, since a barking dog may be hidden by the door it runs past.

The sound events of a file: its sound is cut into slices of half a second. A slice is a pause if it
is 30 dB below the loudest one, or too quiet to hear. Neighboring slices in which YAMNet hears much
the same form one event; a pause or a change of what is heard ends it. Louder and longer events are
more salient; one that sounds like a more salient one is taken for the same source and left out.

Axes: n slices, b slices of a chunk, classes scores of what is heard, samples at 16 kHz.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from soundspot.common.errors import MediaError, SoundspotError
from soundspot.common.progress import progress
from soundspot.inference.localizer import Localizer, Pictures
from soundspot.inference.result import SURE, Localization
from soundspot.media.clips import SOUND_SECONDS, heard_span, iter_windows, read_frames, read_sounds
from soundspot.media.decoding import AnyWaveform
from soundspot.media.films import Film, read_films
from soundspot.media.opening import Media, OpenMedia
from soundspot.model.evidence import how_sure

SLICE = 0.5  # s
QUIET = 1e-3  # peak amplitude (-60 dB) below which a passage counts as silent

STRETCHES = 6  # of a video, and frames that are seen
PART = 2.0  # s, about: there is one candidate in each
MOST_PARTS = 10  # of a stretch
CLOSER = [step / 4 for step in range(-4, 5) if step]  # s from the best of them
FAINTER_DB = 10.0  # below the loudest half second: what is heard there is not the event

WINDOW = 1.0  # s; what YAMNet hears around a slice, which alone is too short for it
CHUNK = 32
PAUSE_DB = 30.0  # below the loudest slice
LONGEST = 10  # slices of one entry of a timeline
ALIKE = 0.5  # cosine of class scores at which two sounds are taken for one

# Scores of any number of classes, or of none.
Classify = Callable[[Float32[np.ndarray, "b samples"]], Float32[np.ndarray, "b classes"]]


def _middles(seconds: float) -> Iterator[float]:
    """The middle of each slice of the first seconds of a sound; a file may claim any number."""
    count = max(math.ceil(seconds / SLICE - 0.5), 1)  # those whose middle lies inside
    return (min(SLICE * (k + 0.5), seconds) for k in range(count))


# --- the best moment of a video ---


@dataclass(frozen=True, eq=False)
class Candidate:
    """A loud moment: its second, how loud it is, the 3 s around it, and their features f_a."""

    at: float
    rms: float
    waveform: AnyWaveform
    f_a: Float[Tensor, "1 p a"] | None = None


def localize_best(localizer: Localizer, video: OpenMedia, sound: OpenMedia) -> Localization:
    """The answer at the best of a few moments: the one that this moment alone would get."""
    seconds = min(filter(None, (file.info.duration for file in (video, sound))))
    candidates = worth_seeing(localizer, sound, seconds)
    if not candidates:
        raise _all_silent(sound)
    results = _see(localizer, video, candidates)
    loudest = max(candidate.rms for candidate in candidates)
    merits = [
        merit(result, candidate.rms / loudest)
        for result, candidate in zip(results, candidates, strict=True)
    ]
    chosen = int(np.argmax(merits))
    best, loudness = results[chosen], candidates[chosen].rms / loudest
    # The source may be hidden for a moment: see whether it shows better just before or after.
    at = best.at or 0.0
    near = [at + step for step in CLOSER if 0 <= at + step < seconds]
    if not is_sure(best) and near:
        sounds = read_sounds(sound, [(moment, SOUND_SECONDS) for moment in near])
        rms = candidates[chosen].rms
        around = [Candidate(t, rms, heard) for t, heard in zip(near, sounds, strict=False)]
        results += _see(localizer, video, around)
        best = max([best, *results[len(candidates) :]], key=lambda one: merit(one, loudness))
    span = heard_span(sound, best.at)
    return replace(best, heard=span, moments=len(results))


def worth_seeing(localizer: Localizer, sound: OpenMedia, seconds: float) -> list[Candidate]:
    """Of each stretch of a sound the candidate that is known best; faint ones have none."""
    named = bool(localizer.class_names)
    parts = min(max(round(seconds / STRETCHES / PART), 1), MOST_PARTS) if named else 1
    loudest = loudest_of_parts(sound, seconds, STRETCHES * parts)
    if parts == 1:
        return list(loudest.values())
    best: dict[int, tuple[float, Candidate]] = {}
    for part, candidate in loudest.items():
        f_a = localizer.hear([candidate.waveform])
        known, stretch = _known(localizer, f_a), part // parts
        if stretch not in best or known > best[stretch][0]:
            best[stretch] = known, replace(candidate, f_a=f_a)
    return [candidate for _, candidate in best.values()]


def loudest_of_parts(sound: OpenMedia, seconds: float, parts: int) -> dict[int, Candidate]:
    """The loudest half second of each equal part of a sound's first seconds, unless it is faint."""
    middles = list(_middles(seconds))
    windows = iter_windows(sound, middles, (SLICE, SOUND_SECONDS))
    best: dict[int, Candidate] = {}
    for k, window in enumerate(progress(windows, "listening", len(middles))):
        if window is None:  # the sound has ended, before the pictures
            break
        narrow, wide = window
        part, rms = k * parts // len(middles), float(narrow.std())
        if _audible(narrow) and (part not in best or rms > best[part].rms):
            best[part] = Candidate(middles[k], rms, wide)
    least = 10 ** (-FAINTER_DB / 20) * max((one.rms for one in best.values()), default=0.0)
    return {part: one for part, one in best.items() if one.rms >= least}


def loudest_moment(sound: OpenMedia) -> Candidate:
    """The loudest 3 s of a sound that goes with a photograph; of equal ones the first."""
    middles = list(_middles(sound.sound_seconds()))
    windows = iter_windows(sound, middles, (SOUND_SECONDS,))
    best: Candidate | None = None
    for at, window in zip(middles, windows, strict=False):
        if window is None:
            break
        (heard,) = window
        if _audible(heard) and (best is None or heard.std() > best.rms):
            best = Candidate(at, float(heard.std()), heard)
    if best is None:
        raise _all_silent(sound)
    return best


def merit(result: Localization, loudness: float = 1.0) -> float:
    """How well a moment shows what sounds: by the probability that its source is visible.

    Without a label map, by the confidence in its name and the peak in units of the threshold. The
    root of the loudness counts too: what is heard clearly is more likely what one wants to see.

    Args:
        result: The answer at the moment.
        loudness: Its amplitude, as a share of that of the loudest moment.
    """
    weight = math.sqrt(loudness)
    if result.shares is not None:
        return weight * result.score
    peak = max(result.score, 0.0) / (result.threshold or 1.0)
    return weight * peak * (result.labels[0][1] if result.labels else 1.0)


def is_sure(result: Localization) -> bool:
    """Whether a caption may say so, or the model cannot tell at all."""
    return result.threshold is None or result.score >= SURE * result.threshold


def _known(localizer: Localizer, f_a: Float[Tensor, "1 p a"]) -> float:
    """The confidence in a sound before any picture is seen."""
    scores = localizer.name_scores(f_a)
    if localizer.table is None:
        return float(scores.max())
    noise = torch.from_numpy(localizer.noise_scores)
    return float(how_sure(torch.from_numpy(scores), noise, localizer.table).max())


def _see(
    localizer: Localizer, video: OpenMedia, candidates: Sequence[Candidate]
) -> list[Localization]:
    """The answers at some moments."""
    times = [candidate.at for candidate in candidates]
    frames, films = read_frames(video, times), films_around(localizer, video, times)
    results = []
    pairs = zip(candidates, frames, films, strict=True)
    for moment, frame, film in progress(pairs, "localizing", len(candidates)):
        f_a = localizer.hear([moment.waveform]) if moment.f_a is None else moment.f_a
        (found,) = localizer.answer(Pictures([frame], [film], [moment.waveform]), f_a)
        results.append(replace(found, frame=frame, waveform=moment.waveform, at=moment.at))
    return results


def films_around(
    localizer: Localizer, video: OpenMedia, times: Sequence[float]
) -> list[Film | None]:
    """The film around each moment, if the model looks at motion."""
    return [None] * len(times) if localizer.table is None else read_films(video, times)


def _audible(waveform: AnyWaveform) -> bool:
    return float(np.ptp(waveform)) / 2 >= QUIET


def _all_silent(sound: OpenMedia) -> SoundspotError:
    message = f"{sound.info.path} is silent from start to end: give another sound"
    return MediaError(message, "silent")


# --- the sound events of a file ---


@dataclass(frozen=True)
class Event:
    """One sound, from start to end in seconds, loudest at `at`."""

    start: float
    end: float
    at: float

    @property
    def heard(self) -> float:
        """How many seconds of it are heard."""
        return min(self.end - self.start, SOUND_SECONDS)

    @property
    def middle(self) -> float:
        """The middle of what is heard: the loudest moment, as far as the event's ends allow."""
        return min(max(self.at, self.start + self.heard / 2), self.end - self.heard / 2)


@dataclass(frozen=True, eq=False)
class Slices:
    """A sound of some seconds in slices: how loud each is, and its class scores."""

    seconds: float
    peak: Float[np.ndarray, "n"]
    rms: Float[np.ndarray, "n"]
    classes: Float[np.ndarray, "n classes"]


def listen(media: Media, seconds: float, classify: Classify) -> Slices:
    """Walk through the first seconds of a sound, keeping a few numbers per slice."""
    # None: the sound has ended, before the pictures or before the length that the file claims.
    walk = iter_windows(media, _middles(seconds), (SLICE, WINDOW))
    windows = iter(partial(next, walk, None), None)
    chunks = iter(lambda: list(itertools.islice(windows, CHUNK)), [])
    peak, rms, classes = [], [], []
    for chunk in progress(chunks, "listening", math.ceil(seconds / (SLICE * CHUNK))):
        peak += [float(np.ptp(narrow)) / 2 for narrow, _ in chunk]
        rms += [float(narrow.std()) for narrow, _ in chunk]
        classes.append(classify(np.stack([wide for _, wide in chunk])))
    if not peak:
        raise SoundspotError("the sound track is empty: there is nothing to locate", "no-sound")
    return Slices(
        min(seconds, len(peak) * SLICE), np.array(peak), np.array(rms), np.concatenate(classes)
    )


def find_events(slices: Slices, count: int) -> list[Event]:
    """At most `count` events that differ from each other, the most salient first."""
    if count < 1:
        raise SoundspotError(f"expected at least 1 source, got {count}")
    groups = passages(slices)
    if not groups:
        raise SoundspotError("the sound is silent from start to end", "silent")
    groups.sort(key=lambda group: -slices.rms[group].sum())  # stable: the earlier of equal ones
    chosen: list[slice] = []
    for group in groups:
        if len(chosen) < count and not any(_same_sound(slices, group, c) for c in chosen):
            chosen.append(group)
    return [_event(slices, group) for group in chosen]


def cut_passages(slices: Slices) -> list[Event]:
    """All passages in their order; long ones are cut, since what sounds may move."""
    events = []
    for group in passages(slices):
        parts = math.ceil((group.stop - group.start) / LONGEST)
        ends = [group.start + (group.stop - group.start) * k // parts for k in range(parts + 1)]
        events += [_event(slices, slice(*both)) for both in itertools.pairwise(ends)]
    return events


def _event(slices: Slices, group: slice) -> Event:
    loudest = (group.start + int(slices.rms[group].argmax()) + 0.5) * SLICE
    end = min(group.stop * SLICE, slices.seconds)
    return Event(group.start * SLICE, end, min(loudest, slices.seconds))


def passages(slices: Slices) -> list[slice]:
    """Runs of slices that are alike, without the pauses between them; none if all is silent."""
    pause = (slices.rms < slices.rms.max() * 10 ** (-PAUSE_DB / 20)) | (slices.peak < QUIET)
    groups: list[slice] = []
    so_far = np.zeros(slices.classes.shape[1])  # scores of the last group, added up
    for k in np.nonzero(~pause)[0].tolist():
        if groups and groups[-1].stop == k and _alike(so_far, slices.classes[k]):
            groups[-1] = slice(groups[-1].start, k + 1)
            so_far = so_far + slices.classes[k]
        else:
            groups.append(slice(k, k + 1))
            so_far = slices.classes[k]
    return groups


def _same_sound(slices: Slices, first: slice, second: slice) -> bool:
    """Whether two events have much the same classes; without classes, never."""
    means = [slices.classes[group].mean(axis=0) for group in (first, second)]
    return slices.classes.shape[1] > 0 and _alike(*means)


def _alike(a: Float[np.ndarray, "classes"], b: Float[np.ndarray, "classes"]) -> bool:
    return float(a @ b) >= ALIKE * float(np.linalg.norm(a) * np.linalg.norm(b))
