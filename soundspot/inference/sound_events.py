"""The sound of a file -> its most salient sound events, separated by time alone.

The sound is cut into slices of half a second. A slice is a pause if it is 30 dB below the loudest
one, or too quiet to hear. Neighboring slices in which YAMNet hears much the same form one event;
a pause or a change of what is heard ends it. Louder and longer events are more salient; one that
sounds like a more salient one is taken for the same source and left out.

Axes: n slices, b slices of a chunk, classes scores of what is heard, samples at 16 kHz.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from jaxtyping import Float, Float32

from soundspot.common.errors import SoundspotError
from soundspot.common.progress import progress
from soundspot.inference.words import short_name
from soundspot.media.clips import SOUND_SECONDS, iter_windows
from soundspot.media.opening import Media

SLICE = 0.5  # s
WINDOW = 1.0  # s; what YAMNet hears around a slice, which alone is too short for it
CHUNK = 32
PAUSE_DB = 30.0  # below the loudest slice
QUIET = 1e-3  # peak amplitude (-60 dB) below which a passage counts as silent
ALIKE = 0.5  # cosine of class scores at which two sounds are taken for one

# Scores of any number of classes, or of none.
Classify = Callable[[Float32[np.ndarray, "b samples"]], Float32[np.ndarray, "b classes"]]


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


@dataclass(frozen=True)
class NamedEvent:
    """A sound from start to end in seconds, loudest at `at`."""

    start: float
    end: float
    at: float
    name: str


@dataclass(frozen=True, eq=False)
class Slices:
    """A sound of some seconds in slices: how loud each is, and its class scores."""

    seconds: float
    peak: Float[np.ndarray, "n"]
    rms: Float[np.ndarray, "n"]
    classes: Float[np.ndarray, "n classes"]


def listen(media: Media, seconds: float, classify: Classify) -> Slices:
    """Walk through the first seconds of a sound, keeping a few numbers per slice."""
    count = max(math.ceil(seconds / SLICE - 0.5), 1)  # those whose middle lies inside
    middles = (SLICE * (k + 0.5) for k in range(count))
    # None: the sound has ended, before the pictures or before the length that the file claims.
    windows = iter(partial(next, iter_windows(media, middles, (SLICE, WINDOW)), None), None)
    chunks = iter(lambda: list(itertools.islice(windows, CHUNK)), [])
    peak, rms, classes = [], [], []
    for chunk in progress(chunks, "listening", math.ceil(seconds / (SLICE * CHUNK))):
        peak += [float(np.ptp(narrow)) / 2 for narrow, _ in chunk]
        rms += [float(narrow.std()) for narrow, _ in chunk]
        classes.append(classify(np.stack([wide for _, wide in chunk])))
    if not peak:
        raise SoundspotError("the sound track is empty: there is nothing to locate")
    return Slices(
        min(seconds, len(peak) * SLICE), np.array(peak), np.array(rms), np.concatenate(classes)
    )


def find_events(slices: Slices, count: int) -> list[Event]:
    """At most `count` events that differ from each other, the most salient first."""
    if count < 1:
        raise SoundspotError(f"expected at least 1 source, got {count}")
    groups = passages(slices)
    if not groups:
        raise SoundspotError("the sound is silent from start to end")
    groups.sort(key=lambda group: -slices.rms[group].sum())  # stable: the earlier of equal ones
    chosen: list[slice] = []
    for group in groups:
        if len(chosen) < count and not any(_same_sound(slices, group, c) for c in chosen):
            chosen.append(group)
    events = []
    for group in chosen:
        loudest = (group.start + int(slices.rms[group].argmax()) + 0.5) * SLICE
        end = min(group.stop * SLICE, slices.seconds)
        events.append(Event(group.start * SLICE, end, min(loudest, slices.seconds)))
    return events


def name_events(slices: Slices, class_names: Sequence[str]) -> list[NamedEvent]:
    """All events of a sound in order of time; neighbors of one name are joined."""
    events: list[NamedEvent] = []
    loudness: list[float] = []
    for group in passages(slices):
        loudest = group.start + int(slices.rms[group].argmax())
        scores = slices.classes[group].mean(axis=0)
        best = np.argsort(-scores, kind="stable") if class_names else ()
        name = short_name([(class_names[k], float(scores[k])) for k in best])
        end = min(group.stop * SLICE, slices.seconds)
        event = NamedEvent(group.start * SLICE, end, min((loudest + 0.5) * SLICE, end), name)
        loud = float(slices.rms[loudest])
        if events and events[-1].name == name and event.start - events[-1].end <= SLICE:
            louder = event.at if loud > loudness[-1] else events[-1].at
            events[-1] = replace(events[-1], end=end, at=louder)
            loudness[-1] = max(loud, loudness[-1])
        else:
            events.append(event)
            loudness.append(loud)
    return events


def _same_sound(slices: Slices, first: slice, second: slice) -> bool:
    """Whether two events have much the same classes; without classes, never."""
    means = [slices.classes[group].mean(axis=0) for group in (first, second)]
    return slices.classes.shape[1] > 0 and _alike(*means)


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


def _alike(a: Float[np.ndarray, "classes"], b: Float[np.ndarray, "classes"]) -> bool:
    return float(a @ b) >= ALIKE * float(np.linalg.norm(a) * np.linalg.norm(b))
