"""Heat maps over a frame, at the size of the page.

Axes: maps, height width pixels.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

from soundspot.inference import figures
from soundspot.inference.regions import hot_box, map_heat
from soundspot.web.comparing import Answer

LONGER_SIDE = 960  # pixels


@dataclass(frozen=True, eq=False)
class Overlays:
    """A frame no larger than the page needs, and heat maps of the same size.

    Attributes:
        frame: RGB.
        heats: Maps stretched to 0..1.
        trained: Whether the model of each map was trained.
        boxed: Whether each map gets a box: not if its source is probably not in the picture.
    """

    frame: UInt8[np.ndarray, "height width 3"]
    heats: Float32[np.ndarray, "maps height width"]
    trained: tuple[bool, ...]
    boxed: tuple[bool, ...]

    def pictures(self) -> list[UInt8[np.ndarray, "_height _width 3"]]:
        """Draw each map over the frame."""
        drawn = []
        for heat, trained, boxed in zip(self.heats, self.trained, self.boxed, strict=True):
            picture = figures.overlay(self.frame, heat, hot_box(heat) if boxed else None)
            if not trained:
                picture = figures.captioned(picture, (), trained=False)[: picture.shape[0]]
            drawn.append(picture)
        return drawn


def make_overlays(answer: Answer) -> Overlays:
    """Scale the frame and the maps of an answer to the page."""
    image = Image.fromarray(answer.results[0].frame)
    image.thumbnail((LONGER_SIDE, LONGER_SIDE), Image.Resampling.BICUBIC)
    heats = []
    for result in answer.results:
        full = Image.fromarray(result.map).resize(image.size, Image.Resampling.BILINEAR)
        heats.append(map_heat(np.asarray(full), *(answer.scale or (None, None))))
    trained = tuple(result.trained for result in answer.results)
    boxed = tuple(result.visible is not False for result in answer.results)
    return Overlays(np.asarray(image), np.stack(heats), trained, boxed)
