"""Heat maps over a frame, kept so that they can be drawn again at another strength.

Axes: maps, height width pixels.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

from soundspot.inference import figures
from soundspot.inference.regions import hot_box, map_heat
from soundspot.web.comparing import Answer

LONGER_SIDE = 960  # pixels


@dataclass(frozen=True, eq=False)
class Overlays:
    """A frame no larger than the page needs, and heat maps of the same size."""

    frame: UInt8[np.ndarray, "height width 3"]
    heats: Float32[np.ndarray, "maps height width"]
    trained: tuple[bool, ...]

    def pictures(self, strength: float) -> list[UInt8[np.ndarray, "_height _width 3"]]:
        """Draw each map over the frame."""
        drawn = []
        for heat, trained in zip(self.heats, self.trained, strict=True):
            picture = figures.overlay(self.frame, heat, hot_box(heat), strength)
            drawn.append(picture if trained else figures.captioned(picture, (), trained=False))
        return drawn

    def save(self, path: Path) -> None:
        """Keep them for the next change of strength."""
        np.savez(path, frame=self.frame, heats=self.heats, trained=self.trained)

    @staticmethod
    def read(path: Path) -> "Overlays":
        """Read what `save` wrote."""
        with np.load(path) as saved:
            return Overlays(saved["frame"], saved["heats"], tuple(saved["trained"].tolist()))


def make_overlays(answer: Answer) -> Overlays:
    """Scale the frame and the maps of an answer to the page."""
    image = Image.fromarray(answer.results[0].frame)
    image.thumbnail((LONGER_SIDE, LONGER_SIDE), Image.Resampling.BICUBIC)
    heats = []
    for result in answer.results:
        full = Image.fromarray(result.map).resize(image.size, Image.Resampling.BILINEAR)
        heats.append(map_heat(np.asarray(full), *(answer.scale or (None, None))))
    trained = tuple(result.trained for result in answer.results)
    return Overlays(np.asarray(image), np.stack(heats), trained)
