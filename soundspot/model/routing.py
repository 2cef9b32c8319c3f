"""Which model makes the map of a sound: the learned one, the label map, both or neither.

Only what YAMNet hears decides this. A learned model does well on the sounds it was trained on and
on related ones, the label map (see `model.methods.names`) on other sounds that have a name.

Axes: s sounds that have a name.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from soundspot.model.label_map import LabelMap

By = Literal["learned", "related", "both", "named", "unknown"]

# Set by benchmarks/route_sounds.py on ESC-VOC val and anysound dev.
KNOWN = 0.1  # the lowest score of a name that counts as heard
# Best score of the named sounds over that of the learned ones: the ends of the blend.
LEARNED, NAMED = 0.5, 1.0


class Route(NamedTuple):
    """Which model makes the map of a sound, and why.

    Attributes:
        by: "learned" and "related" are the learned model alone, "named" is the label map alone.
        share: The label map's share of the map.
        sound: The name of the sound that decided it.
    """

    by: By
    share: float
    sound: str

    def describe(self) -> str:
        """The reason in a few words, for a caption."""
        name = f'"{self.sound.lower()}"'
        return {
            "learned": f"by what it learned of {name}",
            "related": f"by what it learned of sounds related to {name}",
            "both": f"by what it learned and by the name {name}",
            "named": f"by the name {name}",
            "unknown": "a sound without a known counterpart",
        }[self.by]


def is_unknown(route: Route | None) -> bool:
    """Whether no model can locate the sound."""
    return route is not None and route.by == "unknown"


@dataclass(frozen=True)
class RouteTable:
    """What the rule looks at: the numbers of sounds, and their names."""

    learned: tuple[int, ...]
    related: tuple[int, ...]
    named: tuple[int, ...]
    broad: tuple[int, ...]
    sound_names: tuple[str, ...]


def route_table(labels: LabelMap, sound_names: Sequence[str]) -> RouteTable:
    """The table of a label map; what the learned model takes does not count as named."""
    other = {*labels.learned, *labels.related, *labels.broad}
    named = tuple(sorted({sound for thing in labels.things for sound in thing.sounds} - other))
    return RouteTable(labels.learned, labels.related, named, labels.broad, tuple(sound_names))


def choose_route(scores: Float[np.ndarray, "s"], table: RouteTable) -> Route:
    """Decide by the scores of the named sounds, each 0..1, of one sound."""
    groups = {"learned": table.learned, "related": table.related, "named": table.named}
    best = {by: _best(scores, sounds) for by, sounds in groups.items()}
    own = max(("learned", "related"), key=lambda by: best[by][0])
    (learned, learned_name), (named, name) = best[own], best["named"]
    if max(learned, named, _best(scores, table.broad)[0]) < KNOWN:
        return Route("unknown", 0.0, "")
    ratio = math.log(max(named, 1e-6) / max(learned, 1e-6))
    share = (ratio - math.log(LEARNED)) / (math.log(NAMED) - math.log(LEARNED))
    share = min(max(share, 0.0), 1.0)
    by = own if share == 0 else "named" if share == 1 else "both"
    number = learned_name if share < 0.5 else name
    return Route(by, share, table.sound_names[number])  # type: ignore[arg-type]


def _best(scores: Float[np.ndarray, "s"], sounds: Sequence[int]) -> tuple[float, int]:
    """The highest score of some sounds, and which one has it."""
    if not sounds:
        return 0.0, 0
    number = max(sounds, key=lambda sound: float(scores[sound]))
    return float(scores[number]), number
