"""The answer: where a sound comes from, in numbers, words and pictures.

Axes: h w the grid of the map, height width pixels of the frame.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float32, UInt8
from PIL import Image

from soundspot.common.errors import SoundspotError
from soundspot.common.files import write_text
from soundspot.inference import figures, maps, outputs
from soundspot.inference.outlines import Polygon, glow, polygons, run_lengths
from soundspot.model.evidence import Shares

Verdict = Literal["visible", "not visible", "unknown"]
Labels = Sequence[tuple[str, float]]

FAINT = 0.4  # strength of a map that is no answer
CAPTION_LABELS = 3
WORTH_SAYING = 0.1  # the lowest score of a name that captions list
SURE = 1.6  # times the threshold: a peak this high is quite sure,
SURE_NAME = 0.5  # if the name of the sound is
# Names that say little where a more particular one is nearly as likely.
BROAD = frozenset((
    "Animal", "Domestic animals, pets", "Livestock, farm animals, working animals", "Wild animals",
    "Vehicle", "Alarm", "Sound effect", "Inside, small room", "Inside, large room or hall",
    "Inside, public space", "Outside, urban or manmade", "Outside, rural or natural",
))  # fmt: skip
NEARLY = 0.6  # of the score of the best name
UNNAMED = "A sound"
SILENCE = "Silence"  # of the pauses around a short sound; what is heard has another name
VOICES = frozenset(("Speech", "Conversation", "Narration", "Child speech", "Singing", "Shout"))


@dataclass(frozen=True, eq=False)
class Localization:
    """Where a sound comes from.

    A pickled result leaves frame and waveform out unless `keep_frame` is set.

    Attributes:
        similarity: The map S of the paper, on the grid of the visual feature: cosines, or roots of
            probabilities if the sound was located by its name.
        labels: What is heard, best first, with scores of 0..1; empty if the audio encoder is not
            a classifier.
        model: Name of the model.
        trained: False if the model was never trained: then the map means nothing.
        threshold: The lowest score of a visible source, if the model was calibrated.
        doubt: The lowest score from which it cannot be told whether the source is visible.
        shares: How sure each source of evidence is; None if there is only one.
        frame: The frame as it was seen, RGB.
        waveform: The 3 s that were heard, mono 16 kHz.
        at: Seconds into the video; None for a photograph or an array.
        span: Start and end in seconds of the sound event that was heard, if events were separated.
        heard: Start and end in seconds of the sound in the waveform, which repeats it if it is
            shorter than 3 s; None for an array.
        moments: How many moments of a video were compared to choose this one.
        keep_frame: Whether a pickled result holds frame and waveform.
        size: Height and width of the frame; known even if the frame was left out.
        mask: The pixels of the thing that sounds, if it was outlined.
    """

    similarity: Float32[np.ndarray, "h w"] = field(repr=False)
    labels: list[tuple[str, float]]
    model: str
    trained: bool = True
    threshold: float | None = None
    doubt: float | None = None
    shares: Shares | None = None
    frame: UInt8[np.ndarray, "height width 3"] | None = field(default=None, repr=False)
    waveform: Float32[np.ndarray, "samples"] | None = field(default=None, repr=False)
    at: float | None = None
    span: tuple[float, float] | None = None
    heard: tuple[float, float] | None = None
    moments: int = 1
    keep_frame: bool = False
    size: tuple[int, int] | None = None
    mask: Bool[np.ndarray, "height width"] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """The size of the frame outlives it."""
        if self.frame is not None:
            object.__setattr__(self, "size", self.frame.shape[:2])

    def __getstate__(self) -> dict[str, Any]:
        left_out = () if self.keep_frame else ("frame", "waveform")
        cached = ("map", "heat")
        state = {name: value for name, value in self.__dict__.items() if name not in cached}
        return state | dict.fromkeys(left_out)

    @property
    def score(self) -> float:
        """The peak of S, in -1..1."""
        return float(self.similarity.max())

    @cached_property
    def map(self) -> Float32[np.ndarray, "height width"]:
        """The similarity of every pixel to what is heard: the grid, resized bilinearly."""
        return maps.resize_map(self.similarity, *(self.size or self.similarity.shape))

    @cached_property
    def heat(self) -> Float32[np.ndarray, "height width"]:
        """The map stretched to 0..1; a flat map is 0 everywhere."""
        return maps.map_heat(self.map)

    @property
    def verdict(self) -> Verdict:
        """Whether the source is in the picture; "unknown" if that cannot be told."""
        if self.threshold is None:
            return "unknown"
        if self.score >= self.threshold:
            return "visible"
        return "not visible" if self.doubt is None or self.score < self.doubt else "unknown"

    @property
    def box(self) -> maps.PixelBox | None:
        """x1, y1, x2, y2 in pixels around the mask or, without one, around the largest hot region.

        Hot is heat of at least one half; x2 and y2 are exclusive. None unless the verdict is
        "visible", or if the map is flat.
        """
        if self.verdict != "visible":
            return None
        return maps.hot_box(self.heat) if self.mask is None else maps.box_around(self.mask)

    @property
    def outline(self) -> list[Polygon]:
        """The borders of the mask, x and y in pixels; holes run the other way round."""
        return [] if self.mask is None else polygons(self.mask)

    @property
    def strength(self) -> float:
        """How strongly the map is drawn: faintly unless its source is in the picture."""
        return 1.0 if self.verdict == "visible" or self.threshold is None else FAINT

    def picture(self, scale: tuple[float, float] | None = None) -> Image.Image:
        """The frame, the map over it, and the sound, side by side.

        Args:
            scale: The values drawn coldest and hottest, to make pictures comparable; by default
                the lowest and highest of the map.
        """
        if self.frame is None or self.waveform is None:
            raise SoundspotError("this result was stored without its frame", "no-picture")
        heat, box = self.heat, self.box
        if scale is not None:
            heat = maps.map_heat(self.map, *scale)
            box = box and maps.hot_box(heat)
        elif self.mask is not None:
            heat = glow(self.mask, self.similarity)
        place = "" if box is None else "   ·   box {}, {}, {}, {}".format(*box)
        return figures.triptych(
            self.frame,
            heat,
            self.waveform,
            box=box,
            labels=self.labels,
            headings=self._headings(),
            caption=(self.caption,),
            footer=self.model + place,
            heard=self.heard,
            strength=self.strength,
        )

    def _headings(self) -> tuple[str, str, str]:
        frame = "Frame" if self.at is None else f"Frame at {self.at:.2f} s"
        sound = "Sound"
        if self.span is not None:
            start, end = self.heard or self.span
            part = end - start < self.span[1] - self.span[0] - 0.01
            words = "The middle of the sound" if part else "Sound"
            sound = "{} from {:.2f} to {:.2f} s".format(words, *self.span)
        return frame, "Where it sounds", sound

    def save(self, path: str | Path) -> None:
        """Write the picture; the suffix of the path names its format."""
        figures.write_picture(Path(path), self.picture())

    def save_mask(self, path: str | Path) -> None:
        """Write the mask as a picture, white where it sounds; black if there is none."""
        mask = (
            np.zeros(self.size or self.similarity.shape, bool) if self.mask is None else self.mask
        )
        figures.write_picture(Path(path), Image.fromarray(mask))

    def save_json(self, path: str | Path) -> None:
        """Write the summary as JSON."""
        outputs.check_file(Path(path))
        write_text(Path(path), json.dumps(self.summary()) + "\n")

    def summary(self) -> dict[str, Any]:
        """Everything except the pixels, as plain values for JSON."""
        height, width = self.map.shape
        return {
            "model": self.model,
            "trained": self.trained,
            "at": self.at,
            "span": None if self.span is None else list(self.span),
            "width": width,
            "height": height,
            "score": self.score,
            "verdict": self.verdict,
            "caption": self.caption,
            "evidence": None if self.shares is None else self.shares._asdict(),
            "threshold": self.threshold,
            "box": None if self.box is None else list(self.box),
            "mask": None if self.mask is None else run_lengths(self.mask),
            "labels": [{"name": name, "score": score} for name, score in self.labels],
            "map": {
                "min": float(self.map.min()),
                "max": float(self.map.max()),
                "mean": float(self.map.mean()),
                "area": float((self.heat >= maps.CONTOUR_LEVEL).mean()),
            },
            "similarity": self.similarity.round(5).tolist(),
        }

    @property
    def caption(self) -> str:
        """What is heard, and whether it is in the picture, in one line."""
        return caption(self.labels, self.verdict, self.score, self.threshold)

    def describe(self, details: bool = False) -> str:
        """The answer in a sentence; with `details`, followed by the numbers behind it."""
        if not details:
            return self.caption
        named = ", ".join(f"{name} {score:.2f}" for name, score in worth_saying(self.labels))
        needed = "" if self.threshold is None else f" (visible from {self.threshold:.3f})"
        facts = {
            "model": self.model,
            "heard": named,
            "found": "" if self.shares is None else f"by {self.shares.describe()}",
            "moment": "" if self.at is None else f"{self.at:.2f} s, best of {self.moments}",
            "box": "" if self.box is None else "{}, {}, {}, {}".format(*self.box),
            "peak": f"{self.score:.3f}{needed}",
        }
        return "\n".join(
            [self.caption, *(f"{key}: {value}" for key, value in facts.items() if value)]
        )


def worth_saying(labels: Labels) -> list[tuple[str, float]]:
    """The labels that probably name the sound: at most three, none that is a mere guess."""
    return [label for label in labels[:CAPTION_LABELS] if label[1] >= WORTH_SAYING]


def short_name(labels: Labels) -> str:
    """What a sound probably is, in a word or two; "A sound" if that is a mere guess."""
    labels = [label for label in labels if label[0] != SILENCE]
    if not labels or labels[0][1] < WORTH_SAYING:
        return UNNAMED
    likely = [name for name, score in labels if score >= NEARLY * labels[0][1]]
    name = next((name for name in likely if name not in BROAD), likely[0])
    return name.partition(",")[0]


def caption(labels: Labels, verdict: Verdict, score: float, threshold: float | None) -> str:
    """One line: what is heard, and whether its source is in the picture."""
    name = short_name(labels)
    if verdict == "unknown":
        known = "" if name == UNNAMED else f"{name}, perhaps. "
        return f"{known}Cannot tell where this sound comes from."
    if verdict == "not visible":
        absent = "nobody in the picture seems to be speaking"
        if name not in VOICES:
            absent = "nothing in the picture seems to be making it"
        return f"{name}, but {absent}."
    own = (score for label, score in labels if label.partition(",")[0] == name)
    if max(own, default=0.0) < SURE_NAME:  # of what is said, not of what is heard best
        return f"{name}{'' if name == UNNAMED else ', perhaps'}. It seems to come from here."
    sure = threshold is not None and score >= SURE * threshold
    return f"{name}. {'Quite sure.' if sure else 'Fairly sure.'}"
