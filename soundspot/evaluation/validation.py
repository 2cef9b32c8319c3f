"""Score a method on the annotated splits of a pair set, from cached features.

Axes: n pairs, h w the map as the method made it.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from soundspot.data.pair_set import PairSet
from soundspot.evaluation import predictions
from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.benchmarks import annotated_scenes
from soundspot.evaluation.listening import peak_on_side
from soundspot.evaluation.metrics import auc, ciou_at, truth_maps
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
    scenes = annotated_scenes(pairs, "val")
    # Two votes among several annotators, or the union of what a single one drew.
    several = any(len(scene.boxes) > 1 for scene in scenes)
    truths = truth_maps([scene.boxes for scene in scenes], needed=2 if several else 1)
    scores = score(cached_maps(method, cache, scenes), truths, ["sspl"])["sspl"]
    metrics = {"ciou": ciou_at(scores), "auc": auc(scores)}
    if "duets-val" in pairs.splits():
        duets = annotated_scenes(pairs, "duets-val")
        sides = [duet.side for duet in duets if duet.side is not None]
        metrics["duets"] = float(peak_on_side(cached_maps(method, cache, duets), sides).mean())
    return metrics


def cached_maps(
    method: Method, cache: AnyCache, scenes: Sequence[BenchmarkItem]
) -> Float[np.ndarray, "n h w"]:
    """The maps of annotated scenes with their own sounds."""
    part = Part(method, Card("", {}, cache.spec), next(method.parameters()).device)
    frames, f_a = [scene.frame for scene in scenes], cache.sound([scene.audio for scene in scenes])
    features = Features({cache.spec: cache})
    return predictions.maps_of(Localizer("the epoch", part), features, frames, f_a)
