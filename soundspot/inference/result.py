"""What comes out of a localisation, and the forms in which a frame and a sound may go in.

Axes: h w the grid of the map, height width pixels of the frame.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from soundspot.common.errors import SoundspotError
from soundspot.common.files import write_text
from soundspot.inference import figures
from soundspot.inference.figures import CONTOUR_LEVEL
from soundspot.inference.regions import Box, largest_region
from soundspot.media.clips import SOUND_SAMPLES, cut, is_silent

FLAT = 1e-6  # a map whose cosines differ by less points nowhere
CAPTION_LABELS = 3

FrameLike = NDArray[Any] | Image.Image | Tensor
WaveformLike = NDArray[Any] | Tensor


@dataclass(frozen=True, eq=False)
class Localization:
    """Where a sound comes from.

    Attributes:
        map: Cosine similarity of the sound with every pixel: the grid, resized bilinearly.
        similarity: The map S of the paper, on the grid of the visual feature.
        box: x1, y1, x2, y2 in pixels around the largest connected region where the map, stretched
            to 0..1, is at least one half; x2 and y2 lie just outside. None if the map is flat.
        score: The peak of S, in -1..1.
        labels: What is heard, best first, with scores of 0..1; empty if the audio encoder is not
            a classifier.
        model: Name of the model.
        trained: False if the model was never trained: then the map means nothing.
        frame: The frame as it was seen, RGB.
        waveform: The 3 s that were heard, mono 16 kHz.
        at: Seconds into the video; None for a photograph or an array.
        threshold: The score that tells sounds with a visible source from others best, if the
            model was calibrated.
        span: Seconds of the sound event that was heard, where events were told apart.
    """

    map: Float32[np.ndarray, "height width"] = field(repr=False)
    similarity: Float32[np.ndarray, "h w"] = field(repr=False)
    box: Box | None
    score: float
    labels: list[tuple[str, float]]
    model: str
    trained: bool
    frame: UInt8[np.ndarray, "height width 3"] = field(repr=False)
    waveform: Float32[np.ndarray, "samples"] = field(repr=False)
    at: float | None = None
    threshold: float | None = None
    span: tuple[float, float] | None = None

    @property
    def heat(self) -> Float32[np.ndarray, "height width"]:
        """The map stretched to 0..1; a flat map is 0 everywhere."""
        return stretched(self.map)

    @property
    def visible(self) -> bool | None:
        """Whether the source is probably in the picture; None if the model is not calibrated."""
        return None if self.threshold is None else self.score >= self.threshold

    @property
    def verdict(self) -> str:
        """The same in words, with the number it rests on."""
        return verdict(self.score, self.threshold)

    def picture(self, scale: tuple[float, float] | None = None) -> Image.Image:
        """The frame, the map over it, and the sound, side by side.

        Args:
            scale: The cosines that are coldest and hottest, so that pictures can be compared; by
                default the lowest and highest of the map.
        """
        heat, box = self.heat, self.box
        if scale is not None:
            heat = stretched(self.map, *scale)
            box = hot_box(heat)
        return figures.triptych(
            self.frame,
            heat,
            self.waveform,
            box=box,
            labels=self.labels,
            headings=self._headings(),
            caption=(heard_line(self.labels), self.verdict),
            footer=self._footer(box),
            trained=self.trained,
        )

    def save(self, path: str | Path) -> None:
        """Write the picture; the ending of the path names its format."""
        figures.write_picture(Path(path), self.picture())

    def save_json(self, path: str | Path) -> None:
        """Write the summary as JSON."""
        figures.check_file(Path(path))
        write_text(Path(path), json.dumps(self.summary()) + "\n")

    def summary(self) -> dict[str, Any]:
        """Everything but the pixels, as plain values for JSON."""
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
            heard = ", ".join(f"{name} {score:.2f}" for name, score in self.labels)
            lines.append(f"heard: {heard}")
        place = "nowhere (the map is flat)" if self.box is None else f"box {self.box}"
        lines.append(f"where: {place}")
        lines.append(f"score: {self.verdict}")
        return "\n".join(lines)

    def _headings(self) -> tuple[str, str, str]:
        frame = "Frame" if self.at is None else f"Frame at {self.at:.2f} s"
        sound = "Sound"
        if self.span is not None:
            sound = "Sound from {:.2f} to {:.2f} s".format(*self.span)
        return frame, "Where it sounds", sound

    def _footer(self, box: Box | None) -> str:
        parts = [self.model]
        if box is not None:
            parts.append("box {}, {}, {}, {}".format(*box))
        return "   ·   ".join(parts)


def as_frame(frame: FrameLike) -> UInt8[np.ndarray, "height width 3"]:
    """The pixels of a frame in any of the accepted forms."""
    if isinstance(frame, Image.Image):
        frame = np.asarray(frame.convert("RGB"))
    elif isinstance(frame, Tensor):
        if frame.ndim != 3 or frame.shape[0] != 3:
            raise SoundspotError(
                f"expected a frame tensor of shape 3 x H x W, not {tuple(frame.shape)}"
            )
        frame = frame.detach().cpu().permute(1, 2, 0).numpy()
    elif not isinstance(frame, np.ndarray):
        raise SoundspotError(
            f"expected a frame as NumPy array, PIL image or tensor, not {type(frame).__name__}"
        )
    if frame.dtype != np.uint8:
        raise SoundspotError(f"expected a frame of uint8 values 0..255, not {frame.dtype}")
    if frame.ndim != 3 or frame.shape[2] != 3 or 0 in frame.shape:
        raise SoundspotError(f"expected a frame of shape H x W x 3, not {frame.shape}")
    return frame


def as_waveform(waveform: WaveformLike) -> Float32[np.ndarray, "48000"]:
    """The 3 s that are heard of a waveform in any of the accepted forms."""
    if isinstance(waveform, Tensor):
        waveform = waveform.detach().cpu().numpy()
    elif not isinstance(waveform, np.ndarray):
        raise SoundspotError(
            f"expected a waveform as NumPy array or tensor, not {type(waveform).__name__}"
        )
    if not np.issubdtype(waveform.dtype, np.floating):
        raise SoundspotError(f"expected a waveform of floats in -1..1, not {waveform.dtype}")
    if waveform.ndim != 1 or waveform.size == 0:
        raise SoundspotError(f"expected a mono waveform of one axis, not {waveform.shape}")
    if not np.isfinite(waveform).all():
        raise SoundspotError("expected a waveform of finite numbers, but it holds NaN or infinity")
    sound = cut(waveform.astype(np.float32), None, SOUND_SAMPLES)
    if is_silent(sound):
        raise SoundspotError("expected a sound, but the waveform is silent: nothing can be located")
    return sound


def stretched(
    values: Float32[np.ndarray, "height width"],
    low: float | None = None,
    high: float | None = None,
) -> Float32[np.ndarray, "height width"]:
    """Eq. 5 on the full map; resizing leaves rounding errors on a flat one, which are no map.

    Args:
        values: Cosines.
        low: Becomes 0, as does what lies below it; default: the lowest.
        high: Becomes 1, as does what lies above it; default: the highest.
    """
    low = float(values.min()) if low is None else low
    high = float(values.max()) if high is None else high
    if high - low < FLAT:
        return np.zeros_like(values)
    heat: Float32[np.ndarray, "height width"] = np.clip((values - low) / (high - low), 0, 1)
    return heat


def hot_box(heat: Float32[np.ndarray, "height width"]) -> Box | None:
    """The box around the largest region inside the contour."""
    return largest_region(heat >= CONTOUR_LEVEL)


def verdict(score: float, threshold: float | None) -> str:
    """Whether the source is in the picture, in words; only the peak if nothing was calibrated."""
    peak = f"peak cosine {score:.3f}"
    if threshold is None:
        return peak
    words = "probably visible" if score >= threshold else "maybe not in the picture"
    return f"the source is {words} ({peak}, threshold {threshold:.3f})"


def heard_line(labels: Sequence[tuple[str, float]]) -> str:
    """The best labels as one line; empty if nothing can be named."""
    names = ", ".join(name for name, _ in labels[:CAPTION_LABELS])
    return f"heard: {names}" if names else ""
