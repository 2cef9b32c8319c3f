"""Set the thresholds of routing and of the verdict, and report the verdict by group.

    python benchmarks/route_sounds.py --escvoc data/escvoc --anysound data/anysound [-o FILE]

Everything is chosen on ESC-VOC val and anysound's development half, with negatives that are made:
every frame is shown again with the sound of another class. The groups are

    learned   ESC-VOC val
    kin       its frames under speech, which no model heard: those of persons are positive
    names     anysound
    unknown   ESC-VOC val under white noise, hum and tones, all negative

"cannot tell" denies nothing, so it counts as "visible" where F1 is reckoned. The constant answer is
"visible". --split test reports ESC-VOC's test split by the thresholds of the code.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from soundspot.inference.router import blend, joined_threshold
from soundspot.inference.visibility import is_visible
from torch import Tensor

from soundspot.data.pair_set import PairSet
from soundspot.encoders import weights
from soundspot.evaluation import predictions
from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.benchmarks import annotated_scenes
from soundspot.evaluation.metrics import auc, ciou_at, truth_maps
from soundspot.evaluation.protocols import score
from soundspot.evaluation.rows import MAIN
from soundspot.inference.models import DEFAULT_MODEL, NAMES_THRESHOLD
from soundspot.media.clips import SOUND_SAMPLES, read_waveform
from soundspot.model import routing

ENDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
SPEECH = "speech"


class Shown(NamedTuple):
    """Frames under sounds: both maps, what is heard, and whether the source is visible."""

    learned: Any
    bridged: Any
    heard: Tensor
    positive: Any


def show(
    model: predictions.EvaluatedModel,
    features: predictions.RoutedFeatures,
    frames: Sequence[str],
    f_a: Tensor,
    positive: Sequence[bool],
) -> Shown:
    """The maps of both models, before any routing."""
    assert model.bridge is not None
    alone = replace(model, bridge=None)
    learned = predictions.maps_by_cycle(alone, features.own, frames, f_a)[-1]
    (bridged,) = predictions.maps_by_cycle(model.bridge, features.bridge, frames, f_a)
    return Shown(learned, bridged, f_a, np.array(positive))


def with_negatives(show: Any, scenes: Sequence[BenchmarkItem], features: Any) -> Shown:
    """Scenes, then the same frames under sounds of other classes."""
    rng = np.random.default_rng(0)
    others = []
    for scene in scenes:
        choices = sorted({other.audio for other in scenes if other.cls != scene.cls})
        others.append(choices[int(rng.integers(len(choices)))])
    frames = [scene.frame for scene in scenes]
    heard = features.sound([*(scene.audio for scene in scenes), *others])
    return show([*frames, *frames], heard, [True] * len(frames) + [False] * len(frames))


def made_sounds() -> tuple[Tensor, Tensor]:
    """Windows of speech, and sounds that nobody has a name for."""
    speech = read_waveform(weights.media(SPEECH))
    windows = [speech[start : start + SOUND_SAMPLES] for start in (0, len(speech) - SOUND_SAMPLES)]
    rng, time = np.random.default_rng(0), np.arange(SOUND_SAMPLES) / 16_000
    unknown = [rng.uniform(-0.1, 0.1, SOUND_SAMPLES), 0.3 * np.sin(2 * np.pi * 50 * time)]
    unknown += [0.3 * np.sin(2 * np.pi * hz * time) for hz in (440, 3000)]
    stacked = (np.stack(sounds).astype(np.float32) for sounds in (windows, unknown))
    first, second = (torch.from_numpy(sounds) for sounds in stacked)
    return first, second


def f1(positive: Any, said_visible: Any) -> float:
    """F1 of "visible"."""
    true = int(np.count_nonzero(positive & said_visible))
    return 2 * true / max(int(np.count_nonzero(positive)) + int(np.count_nonzero(said_visible)), 1)


def best_threshold(peaks: Any, positive: Any, weight: int = 1) -> tuple[float, float]:
    """The threshold of the highest F1, positives counted `weight` times, and that F1."""
    repeated = np.concatenate([peaks, *[peaks[positive]] * (weight - 1)])
    truth = np.concatenate([positive, *[positive[positive]] * (weight - 1)])
    scored = [(f1(truth, repeated >= t), float(t)) for t in np.unique(repeated)]
    found = max(scored)
    return found[1], found[0]


def choose_blend(sets: Sequence[tuple[Shown, Any]], table: Any, scores: Any) -> list[Any]:
    """Every pair of ends of the blend with the mean AUC of both sets, the best first."""
    results = []
    for own, bridged in product(ENDS, ENDS):
        if own >= bridged:
            continue
        routing.OWN, routing.BRIDGED = own, bridged
        aucs, cious = [], []
        for shown, truths in sets:
            n = len(truths)
            routes = [routing.choose_route(s, table) for s in scores(shown.heard[:n])]
            shares = [route.share for route in routes]
            maps = np.stack(list(map(blend, shown.learned[:n], shown.bridged[:n], shares)))
            per_pair = score(maps, truths)[MAIN]
            aucs.append(auc(per_pair))
            cious.append(ciou_at(per_pair))
        results.append((round(float(np.mean(aucs)), 4), own, bridged, np.round(cious, 3).tolist()))
    return sorted(results, reverse=True)


def judge(shown: Shown, table: Any, scores: Any, threshold: float) -> tuple[Any, list[str]]:
    """What is said of every pair (visible: True, False or None), and by whom."""
    said, by = [], []
    heard = scores(shown.heard)
    for learned, bridged, names in zip(shown.learned, shown.bridged, heard, strict=True):
        route = routing.choose_route(names, table)
        peak = float(blend(learned, bridged, route.share).max())
        said.append(is_visible(peak, joined_threshold(threshold, NAMES_THRESHOLD, route), route))
        by.append(route.by)
    return said, by


def report(groups: dict[str, Shown], table: Any, scores: Any, threshold: float) -> dict[str, Any]:
    """F1 by group beside the constant answer and the two answers of the learned model alone."""
    lines = {}
    judged = {name: judge(shown, table, scores, threshold) for name, shown in groups.items()}
    for name, shown in groups.items():
        said, by = judged[name]
        visible = np.array([answer is not False for answer in said])
        answered = np.array([answer is not None for answer in said])
        alone = shown.learned.max(axis=(1, 2)) >= threshold
        lines[name] = {
            "pairs": len(said),
            "positive": int(shown.positive.sum()),
            "F1": round(f1(shown.positive, visible), 3),
            "F1 of always visible": round(f1(shown.positive, np.ones_like(visible)), 3),
            "F1 of the learned model alone": round(f1(shown.positive, alone), 3),
            "visible sources denied": int(np.count_nonzero(shown.positive & ~visible)),
            "answered": round(float(answered.mean()), 3),
            "routes": {route: by.count(route) for route in sorted(set(by))},
        }
    routes = np.concatenate([by for _, by in judged.values()])
    visible = np.array([answer is not False for said, _ in judged.values() for answer in said])
    positive = np.concatenate([shown.positive for shown in groups.values()])
    for route in sorted(set(routes.tolist())):
        part = routes == route
        lines[f"route {route}, all groups"] = {
            "pairs": int(part.sum()),
            "positive": int(positive[part].sum()),
            "F1": round(f1(positive[part], visible[part]), 3),
            "F1 of always visible": round(f1(positive[part], np.ones_like(visible[part])), 3),
        }
    return lines


def measure(escvoc: Path, anysound: Path, split: str, name: str) -> dict[str, Any]:
    """Everything, as plain values."""
    torch.set_num_threads(1)
    model = predictions.open_model(name, "cpu")
    hearing = model.encoders.audio

    def scores(f_a: Tensor) -> Any:
        with torch.inference_mode():
            return hearing.classify(f_a).mean(dim=1).numpy()

    sets: list[tuple[Shown, Any]] = []
    parts: dict[str, Any] = {}
    for folder, chosen in ((escvoc, split), (anysound, "val")):
        pairs = PairSet.open(folder)
        scenes = annotated_scenes(pairs, chosen)
        frames, sounds = [s.frame for s in scenes], [s.audio for s in scenes]
        features = predictions.open_features(model, pairs, frames, sounds)
        shower = partial(show, model, features)
        sets.append(
            (with_negatives(shower, scenes, features), truth_maps([s.boxes for s in scenes]))
        )
        parts[folder.name] = (shower, scenes, frames)
    with torch.inference_mode():
        speech, unknown = (hearing(sounds) for sounds in made_sounds())
    shower, scenes, frames = parts[escvoc.name]
    under = partial(lambda sounds: sounds[torch.arange(len(frames)) % len(sounds)])
    kin = shower(frames, under(speech), [scene.cls == "person" for scene in scenes])
    groups = {"learned": sets[0][0], "kin": kin, "names": sets[1][0]}
    groups["unknown"] = shower(frames, under(unknown), [False] * len(frames))
    threshold = model.card.calibration["threshold"]
    lines = report(groups, model.table, scores, threshold)
    if split != "val":
        return lines
    known = [
        sorted({*model.table.learned, *model.table.kin, *model.table.named, *model.table.wide})
    ]
    heard = np.concatenate([scores(shown.heard[: len(t)])[:, known[0]].max(1) for shown, t in sets])
    bridged, names_f1 = best_threshold(sets[1][0].bridged.max(axis=(1, 2)), sets[1][0].positive)
    ratio = round(np.count_nonzero(~kin.positive) / max(np.count_nonzero(kin.positive), 1))
    lowered, kin_f1 = best_threshold(kin.learned.max(axis=(1, 2)), kin.positive, ratio)
    return {
        "KNOWN, 2 % of the sounds lie below": round(float(np.quantile(heard, 0.02)), 3),
        "NAMES_THRESHOLD": [round(bridged, 3), f"F1 {names_f1:.3f}"],
        "KIN": [round(lowered / threshold, 2), f"F1 {kin_f1:.3f}, as many negatives as positives"],
        "verdict": lines,
        "OWN and BRIDGED, mean AUC and both cIoU": choose_blend(sets, model.table, scores),
    }


def main() -> None:
    """Print the measurement, and write it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--escvoc", type=Path, default=Path("data/escvoc"))
    parser.add_argument("--anysound", type=Path, default=Path("data/anysound"))
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--split", default="val", choices=("val", "test"))
    parser.add_argument("-o", "--out", type=Path)
    options = parser.parse_args()
    found = measure(options.escvoc, options.anysound, options.split, options.model)
    text = json.dumps(found, indent=1) + "\n"
    sys.stdout.write(text)
    if options.out is not None:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
