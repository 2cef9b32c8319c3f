"""The work behind the buttons: a question with its files in; maps, drawings and a video out.

Axes: height width pixels, samples at 16 kHz.
"""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

from soundspot.common.config import nearest
from soundspot.common.errors import SoundspotError
from soundspot.inference import figures
from soundspot.inference.demo import siren
from soundspot.inference.localizer import DEFAULT_MODEL, UNTRAINED, Localizer, load, model_names
from soundspot.inference.regions import PixelBox, hot_box, map_heat
from soundspot.inference.result import Localization
from soundspot.inference.video import MAPS_PER_SECOND, VideoMoment, render_video
from soundspot.media import clips as media
from soundspot.media.clips import SAMPLE_RATE, SOUND_SAMPLES
from soundspot.web.limits import Limits

NOTHING, OWN_SOUND, MODEL = "nothing", "a sound of my own", "the model "
LARGEST = 960  # pixels of the longer side of a drawing
COLUMNS = 240  # of the waveform
# A car's horn: two notes a third apart, blown twice.
HORN_HZ, HORN_HARMONICS, HORN_BLOWS = (415.0, 495.0), 12, ((0.2, 0.9), (1.2, 2.7))

Waveform = Float32[np.ndarray, "samples"]


class Stopped(SoundspotError):
    """The visitor does not want it any more."""


@dataclass(frozen=True)
class Question:
    """What a visitor asks.

    Attributes:
        picture: A video or an image.
        sound: A sound file, needed with an image.
        at: Seconds; default: the middle.
        model: One of those served.
        compare: NOTHING, the name of a ready sound, OWN_SOUND, or MODEL and a model's name.
        own: The sound of OWN_SOUND.
    """

    picture: Path
    sound: Path | None = None
    at: float | None = None
    model: str = DEFAULT_MODEL
    compare: str = NOTHING
    own: Path | None = None

    @property
    def heard(self) -> Path:
        """The file whose sound is located."""
        return self.sound or self.picture


@dataclass(frozen=True, eq=False)
class Answer:
    """The maps of one frame, one or two, with what tells them apart."""

    found: tuple[Localization, ...]
    names: tuple[str, ...]
    same_scale: bool = True

    @property
    def scale(self) -> tuple[float, float] | None:
        """The cosines that are coldest and hottest in all maps; None: each has its own."""
        peak = max(one.score for one in self.found)
        return (0.0, peak) if len(self.found) > 1 and self.same_scale and peak > 0 else None

    @property
    def correlation(self) -> float | None:
        """Of the two maps; None if there is one map, or a flat one."""
        if len(self.found) < 2:
            return None
        first, second = (one.similarity.ravel() for one in self.found)
        if np.ptp(first) == 0 or np.ptp(second) == 0:
            return None
        return float(np.corrcoef(first, second)[0, 1])


@dataclass(frozen=True, eq=False)
class Drawing:
    """A frame no larger than the page needs, and heat maps of its size, to be drawn again."""

    frame: UInt8[np.ndarray, "height width 3"]
    heats: tuple[Float32[np.ndarray, "height width"], ...]
    boxes: tuple[PixelBox | None, ...]
    trained: tuple[bool, ...]

    def pictures(self, strength: float) -> list[UInt8[np.ndarray, "_height _width 3"]]:
        """The maps over the frame."""
        drawn = []
        for heat, box, trained in zip(self.heats, self.boxes, self.trained, strict=True):
            picture = figures.overlay(self.frame, heat, box, strength)
            drawn.append(picture if trained else figures.captioned(picture, (), trained=False))
        return drawn

    def save(self, path: Path) -> None:
        """Keep it for the next change of strength."""
        boxes = [box or (-1,) * 4 for box in self.boxes]
        heats, trained = np.stack(self.heats), list(self.trained)
        np.savez(path, frame=self.frame, heats=heats, boxes=boxes, trained=trained)

    @staticmethod
    def read(path: Path) -> "Drawing":
        """What `save` kept."""
        with np.load(path) as kept:
            boxes = tuple(_box(row) for row in kept["boxes"].tolist())
            trained = tuple(kept["trained"].tolist())
            return Drawing(kept["frame"], tuple(kept["heats"]), boxes, trained)


def _box(row: Sequence[int]) -> PixelBox | None:
    x1, y1, x2, y2 = row
    return None if x1 < 0 else (x1, y1, x2, y2)


@dataclass(frozen=True)
class Models:
    """The models that are served; each is loaded when it is first asked for, and kept."""

    names: tuple[str, ...]

    def get(self, name: str) -> Localizer:
        """One of them; a path of the server is refused like any other unknown name."""
        if name not in self.names:
            raise SoundspotError(f"no model {name!r} here: {nearest(str(name), self.names)}")
        return _load(name)

    def comparisons(self) -> list[str]:
        """What a map may be compared with."""
        models = [f"{MODEL}{name}" for name in self.names] if len(self.names) > 1 else []
        return [NOTHING, *READY_SOUNDS, OWN_SOUND, *models]


def trained_models() -> tuple[str, ...]:
    """The default model, then the other trained ones that ship."""
    others = (name for name in model_names() if name not in (*UNTRAINED, DEFAULT_MODEL))
    return (DEFAULT_MODEL, *others)


@lru_cache(maxsize=4)
def _load(name: str) -> Localizer:
    return load(name)


def horn() -> Float32[np.ndarray, "48000"]:
    """Three seconds of a car that hoots."""
    time = np.arange(SOUND_SAMPLES) / SAMPLE_RATE
    harmonics = np.arange(1, HORN_HARMONICS + 1)[:, None]
    notes = sum((np.sin(2 * np.pi * hz * harmonics * time) / harmonics).sum(0) for hz in HORN_HZ)
    edges = [np.clip(np.minimum(time - a, b - time) / 0.02, 0, 1) for a, b in HORN_BLOWS]
    return np.asarray(0.2 * notes * sum(edges), np.float32)


READY_SOUNDS: dict[str, Callable[[], Waveform]] = {"a siren": siren, "a car horn": horn}


def answer(models: Models, question: Question) -> Answer:
    """Locate the sound, and what it is to be compared with, in the same frame."""
    choices = models.comparisons()
    if question.compare not in choices:
        raise SoundspotError(
            f"cannot compare with {question.compare!r}: {nearest(str(question.compare), choices)}"
        )
    localizer = models.get(question.model)
    clip = media.read_clip(question.picture, question.sound, question.at)
    first = localizer.localize_clip(clip)
    if question.compare == NOTHING:
        return Answer((first,), ("this sound",))
    if question.compare.startswith(MODEL):
        other = question.compare.removeprefix(MODEL)
        second = models.get(other).localize_clip(clip)
        return Answer((first, second), (question.model, other), same_scale=False)
    name, sound = question.compare, READY_SOUNDS.get(question.compare)
    if sound is not None:
        waveform = sound()
    elif question.own is None:
        raise SoundspotError("give the sound of your own to compare with")
    else:
        name, waveform = question.own.name, media.read_sound(question.own)
    second = replace(localizer.localize(clip.frame, waveform), at=clip.at)
    return Answer((first, second), ("this sound", name))


def difference(found: Answer) -> str:
    """How far the two maps differ, in a sentence; empty if there is one map."""
    if len(found.found) < 2:
        return ""
    together = found.correlation
    if together is None:
        return "One of the maps is flat, so that there is nothing to compare."
    what = "sound" if found.same_scale else "model"
    if together < 0.5:
        words = f"the other {what} gives quite another map"
    elif together < 0.9:
        words = f"the other {what} changes the map"
    else:
        words = f"the other {what} hardly changes the map"
    return f"The two maps correlate by {together:.2f}: {words} (1 is the same map, 0 unrelated)."


def summary(found: Answer) -> dict[str, object]:
    """Everything but the pixels, as plain values for JSON."""
    return {
        "maps": [
            {"name": name, **one.summary()}
            for name, one in zip(found.names, found.found, strict=True)
        ],
        "correlation": found.correlation,
    }


def drawing(found: Answer) -> Drawing:
    """What the page shows of an answer, before it is drawn."""
    image = Image.fromarray(found.found[0].frame)
    image.thumbnail((LARGEST, LARGEST), Image.Resampling.BICUBIC)
    heats, boxes = [], []
    for one in found.found:
        full = Image.fromarray(one.map).resize(image.size, Image.Resampling.BILINEAR)
        heat = map_heat(np.asarray(full), *(found.scale or (None, None)))
        heats.append(heat)
        boxes.append(hot_box(heat))
    trained = tuple(one.trained for one in found.found)
    return Drawing(np.asarray(image), tuple(heats), tuple(boxes), trained)


def waveform(path: Path, seconds: float) -> Float32[np.ndarray, "columns 2"]:
    """The lowest and highest sample in every column of a sound, in constant memory."""
    step = seconds / COLUMNS
    middles = [(k + 0.5) * step for k in range(COLUMNS)]
    columns = np.zeros((COLUMNS, 2), np.float32)
    length = max(step, 1 / SAMPLE_RATE)
    for k, part in enumerate(media.iter_sound(path, middles, length)):
        if part is not None:
            columns[k] = part.min(), part.max()
    return columns


def moving(
    localizer: Localizer,
    question: Question,
    out: Path,
    limits: Limits,
    stop: threading.Event,
    tell: Callable[[float], object],
) -> None:
    """Write the video with the moving map.

    Args:
        localizer: The model.
        question: Whose video and sound are meant.
        out: The file to write.
        limits: A file may be longer than it announces: it is stopped there too.
        stop: Ends the work when it is set.
        tell: Takes the share that is done, 0..1.
    """
    info = media.probe(question.picture)
    if info.kind != "video":
        raise SoundspotError("a moving heat map needs a video; a picture has one map")
    if not media.probe(question.heard).has_sound:
        raise SoundspotError(f"{question.heard.name} has no sound to locate: give another video")
    total = max(1, math.ceil((info.duration or 0) * MAPS_PER_SECOND))

    def note(moment: VideoMoment) -> None:
        if stop.is_set():
            raise Stopped("Stopped: no video was made.")
        if moment.at > limits.seconds:
            raise SoundspotError(
                f"{question.picture.name} is longer than the {limits.seconds:g} s of this page"
            )
        tell(min(1.0, (round(moment.at * MAPS_PER_SECOND) + 1) / total))

    render_video(localizer, question.picture, out, audio=question.sound, note=note)
