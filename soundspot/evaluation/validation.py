"""Score a method on the annotated splits of a pair set, from cached features.

Axes: n pairs, h w the map as the method made it.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import Pair, PairSet
from soundspot.evaluation import predictions
from soundspot.evaluation.benchmarks import side_of
from soundspot.evaluation.listening import peak_on_side
from soundspot.evaluation.metrics import Truths, auc, ciou_at, truth_maps
from soundspot.evaluation.predictions import Features
from soundspot.evaluation.protocols import score
from soundspot.features.cache import AnyCache
from soundspot.inference.localizer import Localizer, Part
from soundspot.model.checkpoint import Card
from soundspot.model.methods.method import Method


def validate(method: Method, cache: AnyCache, pairs: PairSet) -> dict[str, float]:
    """The numbers that select an epoch: cIoU@0.5 and AUC (`sspl`) on val, and duets if present.

    The cache must hold the evaluation views and the sounds.
    """
    rows = pairs.select("val")
    scores = score(cached_maps(method, cache, rows), pair_truths(rows))["sspl"]
    metrics = {"ciou": ciou_at(scores), "auc": auc(scores)}
    if "duets-val" in pairs.splits():
        duets = pairs.select("duets-val")
        right = peak_on_side(cached_maps(method, cache, duets), [side_of(pair) for pair in duets])
        metrics["duets"] = float(right.mean())
    return metrics


def cached_maps(
    method: Method, cache: AnyCache, pairs: Sequence[Pair]
) -> Float[np.ndarray, "n h w"]:
    """The maps of annotated pairs with their own sounds."""
    part = Part(method, Card("", {}, cache.spec), next(method.parameters()).device)
    frames, f_a = [pair.frame for pair in pairs], cache.sound([_sound(pair) for pair in pairs])
    features = Features({cache.spec: cache})
    return predictions.maps_of(Localizer("the epoch", part), features, frames, f_a)


def pair_truths(pairs: Sequence[Pair]) -> Truths:
    """Consensus maps: the union of a single annotator's boxes, or two votes among several."""
    several = any(len(pair.boxes or ()) > 1 for pair in pairs)
    return truth_maps([pair.boxes or () for pair in pairs], needed=2 if several else 1)


def _sound(pair: Pair) -> str:
    if pair.audio is None:
        raise SoundspotError(f"pair {pair.id!r} has boxes but no sound to evaluate it with")
    return pair.audio
