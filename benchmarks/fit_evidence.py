"""Fit the weights of the evidence, and say what each term brings.

    python benchmarks/fit_evidence.py --data data --cache FOLDER [-o FILE] [--write]

Chosen on val and development sets only: ESC-VOC val, its duets, anysound, realclips and twoclass,
as pair sets in one folder. The weights of the map make it most probable that its peak lies in the
true box, and in no other box of the picture; those of the verdict are a logistic regression on
true pairs, sounds of other classes and white noise. No set counts more because it is larger. What
is known of every pair is kept in the cache, since to encode the pictures takes long.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from soundspot.common.progress import progress
from soundspot.data.pair_set import PairSet
from soundspot.evaluation import predictions
from soundspot.evaluation.benchmarks import annotated_scenes
from soundspot.evaluation.metrics import truth_maps
from soundspot.evaluation.predictions import StoredScenes
from soundspot.evaluation.protocols import score
from soundspot.inference.localizer import Localizer
from soundspot.inference.models import open_model
from soundspot.media.sound import SOUND_SAMPLES, mix
from soundspot.model import evidence
from soundspot.model.evidence import FACTS, TERMS, WEIGHTS, Known, Weights, facts_of, terms_of

# Pair set, split, and the sounds that are played: their own, of another class, noise, own in noise.
SETS = {
    "val": ("escvoc", "val", ("true", "other", "noise", "in noise")),
    "duets": ("escvoc", "duets-val", ("true",)),
    "anysound": ("anysound", "val", ("true", "other", "noise", "in noise")),
    "realclips": ("realclips", "val", ("true", "noise", "in noise")),
    "twoclass": ("twoclass", "val", ("true",)),
}
PLACED = ("val true", "val in noise", "duets true", "anysound true", "realclips true")
PLACED = (*PLACED, "twoclass true")
JUDGED = {  # how much each set counts for the verdict
    "val true": 1.0, "val in noise": 0.5, "val other": 0.5, "val noise": 0.5,
    "anysound true": 1.0, "anysound other": 1.0, "anysound noise": 0.5,
    "realclips true": 3.0, "realclips noise": 0.5,
}  # fmt: skip
SHARP = 2.0  # the map's probabilities are a softmax of the sum times this
RIDGE = 3e-4, 1e-3  # of the weights of the map and of the verdict
LARGE = 0.03  # of the frame
NOISES = 16
BATCH = 8

Table = Mapping[str, Any]


def play(pairs: PairSet, split: str, kind: str) -> list[np.ndarray]:
    """What is played to every pair of a split."""
    scenes = annotated_scenes(pairs, split)
    rng = np.random.default_rng(1)
    waves = []
    for number, scene in enumerate(scenes):
        own = pairs.waveform(scene.audio)
        if kind == "other":
            others = sorted({one.audio for one in scenes if one.cls != scene.cls})
            own = pairs.waveform(others[int(rng.integers(len(others)))])
        elif kind == "noise":
            draw = np.random.default_rng([7, number % NOISES])
            own = draw.uniform(-0.1, 0.1, SOUND_SAMPLES).astype(np.float32)
        elif kind == "in noise":
            white = np.random.default_rng([0, number]).standard_normal(len(own))
            own = mix(own, white.astype(np.float32))
        waves.append(own)
    return waves


def gather(model: Localizer, pairs: PairSet, split: str, kind: str) -> dict[str, np.ndarray]:
    """What is known of every pair of a split under one kind of sound."""
    scenes = annotated_scenes(pairs, split)
    frames = [scene.frame for scene in scenes]
    features = predictions.open_features(model, pairs, frames, [scenes[0].audio])
    waves = play(pairs, split, kind)
    heard = torch.cat([model.hear([wave]) for wave in progress(waves, f"hearing {kind}")])
    numbers = [str(number) for number in range(len(waves))]
    features = replace(features, waveform=lambda number: waves[int(number)])
    parts = []
    for start in progress(range(0, len(scenes), BATCH), f"{split}, {kind}"):
        part = slice(start, start + BATCH)
        parts.append(model.known(StoredScenes(features, frames[part], numbers[part]), heard[part]))
    tensors = [field.name for field in fields(Known) if field.name != "threshold"]
    return {
        "threshold": np.array(parts[0].threshold),
        **{name: torch.cat([getattr(one, name) for one in parts]).numpy() for name in tensors},
    }


def truths_of(pairs: PairSet, split: str) -> dict[str, Any]:
    """The boxes of a split: which grid cells they cover, and which those of the other sounds do."""
    scenes = annotated_scenes(pairs, split)
    truths = truth_maps([scene.boxes for scene in scenes]).astype(bool)
    groups = [scene.group or scene.id for scene in scenes]
    others = np.zeros_like(truths)
    for a, b in combinations(range(len(scenes)), 2):
        if groups[a] == groups[b]:
            others[a] |= truths[b]
            others[b] |= truths[a]
    visible = np.array([scene.visible for scene in scenes])
    return {"truths": truths, "others": others, "groups": groups, "visible": visible}


class Group:
    """A set under one kind of sound: what is known, and what is true."""

    def __init__(self, known: Mapping[str, np.ndarray], truth: Table, kind: str) -> None:
        values = {name: torch.from_numpy(np.asarray(known[name])) for name in known}
        values["threshold"] = float(known["threshold"])
        self.known = Known(**values)  # type: ignore[arg-type]
        self.terms, self.facts = terms_of(self.known), facts_of(self.known)
        side = self.terms.shape[-1]
        at = ((np.arange(side) + 0.5) / side * truth["truths"].shape[-1]).astype(int)
        self.own = torch.from_numpy(truth["truths"][:, at][:, :, at])
        self.other = torch.from_numpy(truth["others"][:, at][:, :, at])
        self.truth, self.visible = truth, torch.from_numpy(truth["visible"])
        self.positive = self.visible & (kind in ("true", "in noise"))


def minimize(loss: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """The weights with the least loss."""
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(weights)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[arg-type]
    return weights.detach()


def fit_terms(groups: Mapping[str, Group], used: Tensor) -> Tensor:
    """The weights of the map; those of terms that are not used stay 0."""

    def loss(weights: Tensor) -> Tensor:
        total = RIDGE[0] * (weights**2).mean()
        for name in PLACED:
            g = groups[name]
            summed = torch.einsum("t,bthw->bhw", weights * used, g.terms[g.visible])
            likely = (SHARP * summed).flatten(1).softmax(dim=1)
            own, other = g.own[g.visible].flatten(1), g.other[g.visible].flatten(1)
            gain = (likely * own).sum(dim=1) - (likely * (other & ~own)).sum(dim=1)
            total = total - gain.mean() / len(PLACED)
        return total

    return minimize(loss, torch.full((len(TERMS),), 5.0)) * used


def fit_facts(groups: Mapping[str, Group]) -> Tensor:
    """The weights of the verdict."""

    def loss(weights: Tensor) -> Tensor:
        total = RIDGE[1] * (weights**2).mean()
        for name, share in JUDGED.items():
            g = groups[name]
            answer = g.facts @ weights
            wrong = F.binary_cross_entropy_with_logits(answer, g.positive.to(answer))
            total = total + wrong * share / sum(JUDGED.values())
        return total

    return minimize(loss, torch.zeros(len(FACTS)))


def measure(groups: Mapping[str, Group], weights: Weights) -> dict[str, Any]:
    """The figures of every set: peak in the box, cIoU, flips, and the verdict."""
    return {name: _figures(g, evidence.combine(g.known, weights)) for name, g in groups.items()}


def _figures(g: Group, maps: Tensor) -> dict[str, Any]:
    peak = maps.flatten(1).argmax(dim=1, keepdim=True)
    right = g.own.flatten(1).gather(1, peak)[:, 0]
    stray = g.other.flatten(1).gather(1, peak)[:, 0]
    shown = g.visible.numpy()
    probable = maps.amax(dim=(1, 2))
    said = probable >= evidence.VISIBLE
    found: dict[str, Any] = {
        "pairs": len(said),
        "called visible": _round(said),
        "called unknown": _round((probable >= evidence.DOUBT) & ~said),
    }
    if not bool(g.positive.any()):
        return found
    found["verdict right"] = int((said == g.visible).sum())
    found["peak in box"] = _round(right[g.visible])
    scores = score(maps.numpy()[shown], g.truth["truths"][shown])["sspl"]
    found["cIoU"], found["mean IoU"] = _round(scores >= 0.5), round(float(scores.mean()), 3)
    area = g.truth["truths"].mean(axis=(1, 2))
    names, flips = g.truth["groups"], []
    for a in range(len(names)):
        for b in range(a + 1, len(names)):
            if names[a] == names[b]:
                both = bool(right[a] and right[b] and not stray[a] and not stray[b])
                flips.append((both, min(area[a], area[b]) >= LARGE))
    if flips:
        found["flips"] = _round([both for both, _ in flips])
        found["peak in box, large"] = _round(right.numpy()[area >= LARGE])
        found["flips, large"] = _round([both for both, large in flips if large])
    return found


def _round(values: Any) -> float:
    return round(float(np.asarray(values, np.float64).mean()), 3)


def gather_all(data: Path, cache: Path, model_name: str | None) -> dict[str, Group]:
    """Every set under every kind of sound, from the cache as far as it goes."""
    groups: dict[str, Group] = {}
    model = None
    for name, (folder, split, kinds) in SETS.items():
        pairs = PairSet.open(data / folder)
        truth = truths_of(pairs, split)
        for kind in kinds:
            file = cache / f"{name} {kind}.npz"
            if not file.exists():
                model = model or open_model(model_name, "cpu")
                np.savez(file, **gather(model, pairs, split, kind))  # type: ignore[arg-type]
            groups[f"{name} {kind}"] = Group(dict(np.load(file)), truth, kind)
    return groups


def main() -> None:
    """Print what was found, and write it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--model", help="MODEL+names; default: the default model")
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--write", action="store_true", help="replace evidence.json")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    groups = gather_all(options.data, options.cache, options.model)
    used = torch.ones(len(TERMS))
    terms, facts = fit_terms(groups, used), fit_facts(groups)
    fitted = Weights(tuple(terms.tolist()), tuple(facts.tolist()))
    found: dict[str, Any] = {"command": " ".join(["python", *sys.argv])}
    found["weights"] = {
        "terms": dict(zip(TERMS, (round(w, 2) for w in fitted.terms), strict=True)),
        "facts": dict(zip(FACTS, (round(w, 2) for w in fitted.facts), strict=True)),
    }
    found["all"] = measure(groups, fitted)
    for row, term in enumerate(TERMS):
        some = used.clone()
        some[row] = 0
        without = Weights(tuple(fit_terms(groups, some).tolist()), fitted.facts)
        found[f"without {term}"] = measure({name: groups[name] for name in PLACED}, without)
    text = json.dumps(found, indent=1) + "\n"
    sys.stdout.write(text)
    if options.out is not None:
        options.out.write_text(text)
    if options.write:
        WEIGHTS.write_text(json.dumps(found["weights"], indent=1) + "\n")


if __name__ == "__main__":
    main()
