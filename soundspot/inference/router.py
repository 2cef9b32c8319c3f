"""A learned model and the bridge by names as one model: the sound decides which makes its map.

Axes: b pairs, h w the grid of the map, p audio patches, a audio channels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32
from torch import Tensor

from soundspot.common.errors import SoundspotError
from soundspot.encoders import weights
from soundspot.encoders.mobilenetv2 import class_names
from soundspot.inference.grids import resize_map
from soundspot.media.decoding import AnyPicture
from soundspot.model.bridge import BRIDGE, Bridge, read_bridge
from soundspot.model.checkpoint import Card
from soundspot.model.routing import Route, RouteTable, choose_route

# Times a learned model's threshold for kin; set for soundspot-v1 by benchmarks/route_sounds.py. For
# soundspot-v2 that suggests 0.79, which denies more of the voices that are in the picture.
KIN = 0.53
NAMES = "names"  # the bridge by names, built from the weights of its encoders
Grid = Float32[np.ndarray, "h w"]


class Found(NamedTuple):
    """What a model finds in a frame.

    Attributes:
        similarity: The map S on the grid.
        labels: What is heard, best first, with scores of 0..1.
        threshold: The lowest peak of a visible source, if the model was calibrated.
        route: Who made the map, and why; None if there was no choice.
    """

    similarity: Grid
    labels: list[tuple[str, float]]
    threshold: float | None = None
    route: Route | None = None


@runtime_checkable  # the tests check types as they run
class Locates(Protocol):
    """What is needed of a Localizer."""

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of its maps."""

    @property
    def threshold(self) -> float | None:
        """The lowest peak of a visible source, if that is known."""

    def maps(
        self, frames: Sequence[AnyPicture], f_a: Float[Tensor, "b p a"], cycles: int | None = None
    ) -> Float32[np.ndarray, "b h w"]:
        """Its own maps."""

    def labels(self, f_a: Float[Tensor, "p a"]) -> list[tuple[str, float]]:
        """What is heard, best first."""

    def name_scores(self, f_a: Float[Tensor, "b p a"]) -> Float32[np.ndarray, "b classes"]:
        """Scores of all sounds that have a name."""


@dataclass(frozen=True, eq=False)
class Router:
    """The rule's table, and the bridge, which is loaded when a sound first needs it."""

    table: RouteTable
    load_bridge: Callable[[], Locates]

    @cached_property
    def bridge(self) -> Locates:
        """The bridge by names."""
        return self.load_bridge()

    def locate(
        self,
        own: Locates,
        frames: Sequence[AnyPicture],
        f_a: Float[Tensor, "b p a"],
        cycles: int | None,
    ) -> list[Found]:
        """The maps of frames under their sounds, each by who the sound chooses, on one grid."""
        routes = [choose_route(heard, self.table) for heard in own.name_scores(f_a)]
        learned = [k for k, route in enumerate(routes) if route.share < 1]
        bridged = [k for k, route in enumerate(routes) if route.share > 0]
        maps: list[dict[int, Grid]] = []
        for model, chosen in ((own, learned), (self.bridge if bridged else own, bridged)):
            made = model.maps([frames[k] for k in chosen], f_a[chosen], cycles) if chosen else ()
            maps.append({k: resize_map(s, *own.grid) for k, s in zip(chosen, made, strict=True)})
            cycles = None  # the bridge has no PCM
        found = []
        for k, route in enumerate(routes):
            s = blend(maps[0].get(k), maps[1].get(k), route.share)
            threshold = self._threshold(own, route)
            found.append(Found(s, own.labels(f_a[k]), threshold, route))
        return found

    def _threshold(self, own: Locates, route: Route) -> float | None:
        learned = own.threshold
        bridged = None if route.share == 0 else self.bridge.threshold
        return None if learned is None else joined_threshold(learned, bridged, route)


def joined_threshold(learned: float, bridged: float | None, route: Route) -> float:
    """The thresholds of both, weighed like their maps; lower for sounds that were not learned."""
    own = KIN * learned if route.by == "kin" else learned
    return own if bridged is None else (1 - route.share) * own + route.share * bridged


def blend(
    own: Float32[np.ndarray, "h w"] | None,
    bridged: Float32[np.ndarray, "h_names w_names"] | None,
    share: float,
) -> Float32[np.ndarray, "h_out w_out"]:
    """A learned map and one of the bridge, whose share is given, on the learned map's grid."""
    if own is None or bridged is None:
        only = bridged if own is None else own
        assert only is not None  # one of the two is always made
        return only
    return np.asarray((1 - share) * own + share * resize_map(bridged, *own.shape), np.float32)


def is_bridge(name: str) -> bool:
    """Whether a model is a bridge: the one that ships, or your own file."""
    return name == NAMES or Path(name).suffix in (".yaml", ".yml")


def split_name(chosen: str) -> tuple[str, str | None]:
    """The parts of MODEL+names or MODEL+mine.yaml; any other name has no bridge."""
    learned, _, bridge = chosen.rpartition("+")
    return (learned, bridge) if learned and is_bridge(bridge) else (chosen, None)


def check_names_sounds(card: Card, name: str) -> None:
    """Refuse a model that cannot name what it hears, which the bridge needs."""
    if card.features.audio != "yamnet" or card.features.pretrained is False:
        raise SoundspotError(
            f"{name}: a bridge by names needs a model on pretrained YAMNet, which names sounds"
        )


def open_bridge(name: str) -> Bridge:
    """The bridge of that name; only the names of sounds are needed, no visual weights."""
    names = weights.class_names(), class_names()
    own = read_bridge(BRIDGE if name == NAMES else Path(name), *names)
    if own.learned:
        return own
    shipped = read_bridge(BRIDGE, *names)  # what models have learned is the same
    return own._replace(learned=shipped.learned, kin=shipped.kin, wide=shipped.wide)
