"""The result of a localisation: where a sound comes from, in numbers, words and pictures."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

from soundspot.common.files import write_text
from soundspot.inference import figures, outputs
from soundspot.inference.regions import CONTOUR_LEVEL, PixelBox, hot_box, map_heat
from soundspot.inference.visibility import answer, is_visible, verdict
from soundspot.model.routing import Route, is_unknown

CAPTION_LABELS = 3
UNNAMED = "nothing it can name"
FAINT = 0.4  # strength of a map that is no answer
WORTH_SAYING = 0.1  # the lowest score of a name that captions list


@dataclass(frozen=True, eq=False)
class Localization:
    """Where a sound comes from.

    Attributes:
        map: How much every pixel looks like what is heard: the grid, resized bilinearly. A cosine,
            or a root of a probability if the sound was located by its name.
        similarity: The map S of the paper, on the grid of the visual feature.
        box: x1, y1, x2, y2 in pixels around the largest connected region where the map, stretched
            to 0..1, is at least one half; x2 and y2 are exclusive. None if the map is flat, or the
            sound unknown.
        score: The peak of S, in -1..1.
        labels: What is heard, best first, with scores of 0..1; empty if the audio encoder is not
            a classifier.
        model: Name of the model.
        trained: False if the model was never trained: then the map means nothing.
        frame: The frame as it was seen, RGB.
        waveform: The 3 s that were heard, mono 16 kHz.
        at: Seconds into the video; None for a photograph or an array.
        threshold: The lowest score of a visible source, if the model was calibrated.
        span: Start and end in seconds of the sound event that was heard, if events were separated.
        heard: Start and end in seconds of the sound in the waveform, which repeats it if it is
            shorter than 3 s; None for an array.
        route: Who made the map, and why; None if the model has no bridge by names.
    """

    map: Float32[np.ndarray, "height width"] = field(repr=False)
    similarity: Float32[np.ndarray, "h w"] = field(repr=False)
    box: PixelBox | None
    score: float
    labels: list[tuple[str, float]]
    model: str
    trained: bool
    frame: UInt8[np.ndarray, "height width 3"] = field(repr=False)
    waveform: Float32[np.ndarray, "samples"] = field(repr=False)
    at: float | None = None
    threshold: float | None = None
    span: tuple[float, float] | None = None
    heard: tuple[float, float] | None = None
    route: Route | None = None

    @property
    def heat(self) -> Float32[np.ndarray, "height width"]:
        """The map stretched to 0..1; a flat map is 0 everywhere."""
        return map_heat(self.map)

    @property
    def visible(self) -> bool | None:
        """Whether the source is probably in the picture; None if that cannot be told."""
        return is_visible(self.score, self.threshold, self.route)

    @property
    def verdict(self) -> str:
        """The same in words, with the numbers."""
        return verdict(self.score, self.threshold, self.route)

    @property
    def strength(self) -> float:
        """How strongly the map is drawn: faintly if the sound is unknown."""
        return FAINT if is_unknown(self.route) else 1.0

    def picture(self, scale: tuple[float, float] | None = None) -> Image.Image:
        """The frame, the map over it, and the sound, side by side.

        The box is left out if the source is probably not in the picture.

        Args:
            scale: The values drawn coldest and hottest, to make pictures comparable; by default
                the lowest and highest of the map.
        """
        heat = self.heat if scale is None else map_heat(self.map, *scale)
        box = self.box if scale is None or is_unknown(self.route) else hot_box(heat)
        box = None if self.visible is False else box
        frame = "Frame" if self.at is None else f"Frame at {self.at:.2f} s"
        sound = "Sound"
        if self.span is not None:
            start, end = self.heard or self.span
            part = end - start < self.span[1] - self.span[0] - 0.01
            words = "The middle of the sound" if part else "Sound"
            sound = "{} from {:.2f} to {:.2f} s".format(words, *self.span)
        place = "" if box is None else "   ·   box {}, {}, {}, {}".format(*box)
        return figures.triptych(
            self.frame,
            heat,
            self.waveform,
            box=box,
            labels=self.labels,
            headings=(frame, "Where it sounds", sound),
            caption=(heard_line(self.labels, self.route), self.verdict),
            footer=self.model + place,
            trained=self.trained,
            heard=self.heard,
            strength=self.strength,
        )

    def save(self, path: str | Path) -> None:
        """Write the picture; the suffix of the path names its format."""
        figures.write_picture(Path(path), self.picture())

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
            "visible": self.visible,
            "verdict": answer(self.score, self.threshold, self.route),
            "route": None if self.route is None else self.route._asdict(),
            "threshold": self.threshold,
            "box": None if self.box is None else list(self.box),
            "labels": [{"name": name, "score": score} for name, score in self.labels],
            "map": {
                "min": float(self.map.min()),
                "max": float(self.map.max()),
                "mean": float(self.map.mean()),
                "area": float((self.heat >= CONTOUR_LEVEL).mean()),
            },
            "similarity": self.similarity.round(5).tolist(),
        }

    def describe(self) -> str:
        """A few lines for people."""
        lines = [f"model: {self.model}" + ("" if self.trained else f" ({figures.WARNING})")]
        if self.labels:
            named = [f"{name} {score:.2f}" for name, score in worth_saying(self.labels)]
            lines.append(f"heard: {', '.join(named) or UNNAMED}")
        if self.route is not None:
            lines.append(f"found: {self.route.describe()}")
        place = f"box {self.box}" if self.box is not None else "nowhere (the map is flat)"
        if is_unknown(self.route):
            place = "unknown"
        elif self.visible is False:
            place = f"probably nowhere; the best guess is {place}" if self.box else place
        return "\n".join([*lines, f"where: {place}", f"score: {self.verdict}"])


def worth_saying(labels: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """The labels that probably name the sound: at most three, none that is a mere guess."""
    return [label for label in labels[:CAPTION_LABELS] if label[1] >= WORTH_SAYING]


def heard_line(labels: Sequence[tuple[str, float]], route: Route | None = None) -> str:
    """What is heard and who located it, in one line; empty if the model cannot name sounds."""
    names = ", ".join(name for name, _ in worth_saying(labels))
    found = "" if route is None else f"   ·   {route.describe()}"
    return f"heard: {names or UNNAMED}{found}" if labels else ""
