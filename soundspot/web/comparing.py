"""Answer a visitor's question: locate a sound in a frame, and what it is compared with."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from jaxtyping import Float32

from soundspot.common.config import nearest
from soundspot.common.errors import SoundspotError
from soundspot.inference.demo import siren
from soundspot.inference.grids import resize_map
from soundspot.inference.localizer import Localizer
from soundspot.inference.models import DEFAULT_MODEL, UNTRAINED, load, model_names
from soundspot.inference.moments import localize_best
from soundspot.inference.result import Localization
from soundspot.media import clips as media
from soundspot.media.clips import SAMPLE_RATE, SOUND_SAMPLES, MediaInfo

NOTHING, OWN_SOUND, MODEL = "nothing", "a sound of my own", "the model "
THIS_SOUND = "this sound"
LOCATING = "Locating the sound"
ADD_OWN = "add your own sound to compare with"
ALIKE, SIMILAR = 0.9, 0.5  # correlations; of two sounds, also ratios of the peaks
# A car horn: two notes a third apart, sounded twice.
HORN_HZ, HORN_HARMONICS, HORN_BLASTS = (415.0, 495.0), 12, ((0.2, 0.9), (1.2, 2.7))

Report = Callable[[float, str], object]  # gets the share that is done, 0..1, and what is done now


@dataclass(frozen=True)
class Question:
    """What a visitor asks."""

    picture: MediaInfo  # or a video
    sound: MediaInfo | None = None  # required with a picture
    at: float | None = None  # seconds; default: the best moment of a video, the middle of a sound
    model: str = DEFAULT_MODEL
    compare: str = NOTHING  # or a ready-made sound, OWN_SOUND, or MODEL plus a model's name
    own: MediaInfo | None = None  # the sound file for OWN_SOUND

    @property
    def heard(self) -> MediaInfo:
        """The file whose sound is located."""
        return self.sound or self.picture


@dataclass(frozen=True, eq=False)
class Answer:
    """One or two maps of the same frame, each with a name."""

    results: tuple[Localization, ...]
    names: tuple[str, ...]
    same_scale: bool = True

    @property
    def scale(self) -> tuple[float, float] | None:
        """The lowest and highest value of all maps; None if each map has its own scale."""
        peak = max(result.score for result in self.results)
        return (0.0, peak) if len(self.results) > 1 and self.same_scale and peak > 0 else None

    @property
    def correlation(self) -> float | None:
        """Correlation of the two maps on the finer grid; None if there is one, or one is flat."""
        if len(self.results) < 2:
            return None
        finer = max(result.similarity.shape for result in self.results)
        first, second = (resize_map(result.similarity, *finer).ravel() for result in self.results)
        if np.ptp(first) == 0 or np.ptp(second) == 0:
            return None
        return float(np.corrcoef(first, second)[0, 1])

    @property
    def difference(self) -> str:
        """A sentence on how much the two maps differ; empty if there is only one."""
        if len(self.results) < 2:
            return ""
        r = self.correlation
        if r is None:
            return "One of the maps is flat, so there is nothing to compare."
        other, peaks, likeness = "model", "", r
        if self.same_scale:
            first, second = (max(result.score, 0.0) for result in self.results)
            other, peaks = "sound", f" and peak at {first:.2f} and {second:.2f}"
            likeness = min(r, min(first, second) / max(first, second, 1e-6))
        effects = ("gives a very different map", "changes the map", "hardly changes the map")
        effect = effects[(likeness >= SIMILAR) + (likeness >= ALIKE)]
        return (
            f"The other {other} {effect}: the two correlate at {r:.2f} "
            f"(1 is identical, 0 unrelated){peaks}."
        )

    def summary(self) -> dict[str, object]:
        """Everything but the pixels, as plain values for JSON."""
        named = zip(self.names, self.results, strict=True)
        return {
            "maps": [{"name": name, **result.summary()} for name, result in named],
            "correlation": self.correlation,
        }


@dataclass(frozen=True)
class ServedModels:
    """The models that visitors may choose, on a device; each is loaded on first use and kept."""

    names: tuple[str, ...]
    device: str = "auto"

    def get(self, name: str) -> Localizer:
        """Load a served model; anything else, such as a path on the server, is refused."""
        if name not in self.names:
            raise SoundspotError(f"no model {name!r} here: {nearest(str(name), self.names)}")
        return _load(name, self.device)

    def comparisons(self, model: str) -> list[str]:
        """What a map of a model may be compared with: sounds, and all other models."""
        others = [f"{MODEL}{name}" for name in self.names if name != model]
        return [NOTHING, *READY_SOUNDS, OWN_SOUND, *others]


def trained_models() -> tuple[str, ...]:
    """The default model, then the other trained models that ship."""
    others = [name for name in model_names() if name not in (*UNTRAINED, DEFAULT_MODEL)]
    return (DEFAULT_MODEL, *others)


@cache  # of all models that are served: with a limit, they could push each other out
def _load(name: str, device: str) -> Localizer:
    """A model with all of its parts, so that no visitor waits for one or has it fetched."""
    localizer = load(name, device)
    if localizer.router is not None:
        _ = localizer.router.bridge
    return localizer


def horn() -> Float32[np.ndarray, "48000"]:
    """Three seconds of a car horn."""
    time = np.arange(SOUND_SAMPLES) / SAMPLE_RATE
    harmonics = np.arange(1, HORN_HARMONICS + 1)[:, None]
    notes = sum((np.sin(2 * np.pi * hz * harmonics * time) / harmonics).sum(0) for hz in HORN_HZ)
    edges = [np.clip(np.minimum(time - a, b - time) / 0.02, 0, 1) for a, b in HORN_BLASTS]
    return np.asarray(0.2 * notes * sum(edges), np.float32)


READY_SOUNDS: dict[str, Callable[[], Float32[np.ndarray, "48000"]]] = {
    "a siren": siren,
    "a car horn": horn,
}


def answer_question(
    models: ServedModels, question: Question, report: Report = lambda share, words: None
) -> Answer:
    """Locate the sound, and what it is compared with, in the same frame."""
    choices = models.comparisons(question.model)
    if question.compare not in choices:
        raise SoundspotError(
            f"cannot compare with {question.compare!r}: {nearest(str(question.compare), choices)}"
        )
    if question.compare == OWN_SOUND and question.own is None:
        raise SoundspotError(ADD_OWN)
    whole = 1.0 if question.compare == NOTHING else 0.6
    report(0.0, LOCATING)
    localizer = models.get(question.model)
    first = _locate(localizer, question, lambda share: report(whole * share, LOCATING))
    if question.compare == NOTHING:
        return Answer((first,), (THIS_SOUND,))
    report(whole, "Locating what it is compared with")
    if question.compare.startswith(MODEL):
        other = question.compare.removeprefix(MODEL)
        second = models.get(other).localize(first.frame, first.waveform)
        names, same_scale = (question.model, other), False
    else:
        name, waveform = _other_sound(question)
        second = localizer.localize(first.frame, waveform)
        names, same_scale = (THIS_SOUND, name), True
    second = replace(second, at=first.at, heard=None if same_scale else first.heard)
    return Answer((first, second), names, same_scale)


def _locate(
    localizer: Localizer, question: Question, report: Callable[[float], object]
) -> Localization:
    """At the moment asked for; of a video, by default, at the best one."""
    if question.at is not None or question.picture.kind != "video":
        clip = media.read_clip(question.picture, question.sound, question.at)
        return localizer.localize_clip(clip)
    with media.opened(question.picture) as video, media.opened(question.sound or video) as sound:
        video.info.require_video()
        sound.info.require_sound()
        return localize_best(localizer, video, sound, report)[0]


def _other_sound(question: Question) -> tuple[str, Float32[np.ndarray, "48000"]]:
    if question.own is not None and question.compare == OWN_SOUND:
        return question.own.path.name, media.read_sound(question.own)
    return question.compare, READY_SOUNDS[question.compare]()
