"""Evidence for where a sound comes from, and for whether its source is in the picture.

What is known is added up on one grid, each term weighed by how sure its source is: the learned map,
the map by the sound's name (see `model.methods.names`), motion, and a weak prior of place. How sure
the learned model is follows from YAMNet's scores of the sounds it was trained on or related ones,
and from how much more the picture answers to this sound than to white noise; how sure the name is,
from the best score of any other name. Names that white noise gets too do not count.

The map is the sum, stretched to 0..1, times the probability that the source is visible.
The weights are in evidence.json; benchmarks/fit_evidence.py fits them.

Axes: b samples, h w the grid, s sounds that have a name, t terms, f facts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from soundspot.common.config import parse_json, read_bytes
from soundspot.model.label_map import LabelMap

WEIGHTS = Path(__file__).with_name("evidence.json")
VISIBLE = 0.5  # probability from which a source counts as visible
DOUBT = 0.35  # from which that cannot be told
NOISE_NAME = 0.2  # score under white noise from which a name does not count
UNKNOWN = 0.1  # how sure "nothing is known" is: raises the share of neither
TERMS = ("learned", "learned, unknown", "named", "motion", "place")
FACTS = ("constant", "above noise", "peak, learned", "peak, named", "unknown", "recorded")


class SoundTable(NamedTuple):
    """Which sounds a learned model was trained on or related ones, and which have another name."""

    learned: tuple[int, ...]
    named: tuple[int, ...]


class Shares(NamedTuple):
    """How sure each source is: parts that add up to 1."""

    learned: float
    named: float
    neither: float

    def describe(self) -> str:
        """In a few words."""
        words = ("what it learned", "the sound's name", "motion and place")
        return ", ".join(f"{share:.0%} {word}" for share, word in zip(self, words, strict=True))


@dataclass(frozen=True, eq=False)
class Known:
    """All that is known of a batch of pictures and their sounds.

    Attributes:
        learned: The learned map S.
        named: The map by the sound's name.
        motion: What moves, 0..1; zeros where nothing is known of it.
        noise: The peak of the learned map under white noise.
        threshold: The peak from which the learned model alone calls a source visible.
        sure: The best score of a learned or related sound, and of another name.
        recorded: Whether picture and sound were recorded together, as in a video.
    """

    learned: Float[Tensor, "b h w"]
    named: Float[Tensor, "b h w"]
    motion: Float[Tensor, "b h w"]
    noise: Float[Tensor, "b"]
    threshold: float
    sure: Float[Tensor, "b 2"]
    recorded: Bool[Tensor, "b"]


class Weights(NamedTuple):
    """The weights of the terms of the map, and of the facts by which a source is visible."""

    terms: tuple[float, ...]
    facts: tuple[float, ...]


@cache
def read_weights() -> Weights:
    """The weights that ship."""
    stored = parse_json(read_bytes(WEIGHTS))
    return Weights(*(tuple(map(float, stored[key].values())) for key in ("terms", "facts")))


def sound_table(labels: LabelMap) -> SoundTable:
    """The table of a label map; what the learned model takes does not count as named."""
    other = {*labels.learned, *labels.related, *labels.broad}
    named = sorted({sound for thing in labels.things for sound in thing.sounds} - other)
    return SoundTable((*labels.learned, *labels.related), tuple(named))


def how_sure(
    scores: Float[Tensor, "b s"], noise: Float[Tensor, "s"], table: SoundTable
) -> Float[Tensor, "b 2"]:
    """The best score of a learned sound and of another name, without those of white noise."""
    counted = scores * (noise < NOISE_NAME)

    def best(sounds: Sequence[int]) -> Float[Tensor, "b"]:
        return counted[:, list(sounds)].amax(dim=1) if sounds else counted[:, 0] * 0

    return torch.stack([best(table.learned), best(table.named)], dim=1)


def shares_of(known: Known) -> Float[Tensor, "b 3"]:
    """How sure the learned model, the name, and neither of them is."""
    above = (known.learned.amax(dim=(1, 2)) - known.noise).clamp_min(0)
    learned, named = (known.sure[:, 0] + above) / 2, known.sure[:, 1]
    parts = torch.stack([learned, named, torch.full_like(learned, UNKNOWN)], dim=1)
    return parts / parts.sum(dim=1, keepdim=True)


def terms_of(known: Known) -> Float[Tensor, "b t h w"]:
    """The terms of the map, before their weights."""
    learned, named, neither = shares_of(known)[:, :, None, None].unbind(dim=1)
    own = stretch(known.learned)
    rest = 1 - learned
    return torch.stack(
        [
            learned * own,
            neither * own,
            named * stretch(known.named),
            rest * known.motion,
            rest**3 * place(known.learned),  # it must not outweigh a thing that is recognized
        ],
        dim=1,
    )


def facts_of(known: Known) -> Float[Tensor, "b f"]:
    """What speaks for a visible source, before the weights."""
    learned, _, neither = shares_of(known).unbind(dim=1)
    peak = known.learned.amax(dim=(1, 2))
    above = (peak - known.noise) / known.threshold
    facts = (
        torch.ones_like(peak),
        above,
        learned * peak / known.threshold,
        (1 - learned) * known.named.amax(dim=(1, 2)),
        neither,
        known.recorded.to(peak),
    )
    return torch.stack(facts, dim=1)


def combine(known: Known, weights: Weights) -> Float[Tensor, "b h w"]:
    """The map: where the source is, times the probability that it is visible."""
    terms, facts = (known.learned.new_tensor(part) for part in weights)
    summed = torch.einsum("t,bthw->bhw", terms, terms_of(known))
    return torch.sigmoid(facts_of(known) @ facts)[:, None, None] * stretch(summed)


def stretch(maps: Float[Tensor, "b h w"]) -> Float[Tensor, "b h w"]:
    """Each map from 0 to 1; a flat one becomes 0."""
    low, high = maps.amin(dim=(1, 2), keepdim=True), maps.amax(dim=(1, 2), keepdim=True)
    return (maps - low) / (high - low).clamp_min(1e-6)


def place(maps: Float[Tensor, "b h w"], width: float = 0.35) -> Float[Tensor, "h w"]:
    """A wide hill in the middle of the frame, on the grid of maps."""
    rows, columns = (
        torch.arange(cells, device=maps.device).add(0.5) / cells - 0.5 for cells in maps.shape[1:]
    )
    return torch.exp(-(rows[:, None] ** 2 + columns**2) / (2 * width**2)).to(maps)
