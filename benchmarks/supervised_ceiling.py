"""How well the same frozen features do if trained on boxes: an upper bound, never shipped.

    python benchmarks/supervised_ceiling.py data/escvoc [-o results/supervised_ceiling.json]

The network is that of the contrastive reference (g and a 1x1 convolution), but it learns from the
boxes of the training photographs: the target at every location is the share covered by a box for
the pair's own sound, and 0 for a sound of another class. The epoch is chosen on val and scored on
test once.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn

from soundspot.data.pair_set import PairSet, draw_sounds
from soundspot.encoders.views import IMAGENET_MEAN, IMAGENET_STD, random_view, view_generator
from soundspot.evaluation.benchmarks import BENCHMARKS, annotated_scenes
from soundspot.evaluation.intervals import bootstrap
from soundspot.evaluation.listening import mean_of_group, peak_on_side
from soundspot.evaluation.metrics import auc, ciou_at
from soundspot.evaluation.predictions import cached_maps, validate
from soundspot.evaluation.protocols import score
from soundspot.features.cache import FeatureCache, cache_folder
from soundspot.features.spec import FeatureSpec
from soundspot.model.methods.contrastive import Contrastive, ContrastiveConfig
from soundspot.training.run_folder import git_commit

BATCH = 128
CELL = 16  # pixels of a view per location of the grid


def box_shares(pairs, rows, spec, boxes):
    """The share of every location covered by a box, per view, in the view's geometry."""
    shares = np.empty((spec.views, len(rows), 14, 14), np.float32)
    for i, row in enumerate(rows):
        mask = torch.zeros(3, 256, 256, dtype=torch.uint8)
        for x1, y1, x2, y2 in boxes[row.id]:
            mask[:, round(256 * y1) : round(256 * y2), round(256 * x1) : round(256 * x2)] = 255
        for view in range(spec.views):
            drawn = random_view(mask, spec.augmentations, view_generator(spec.seed, view, i))
            plain = drawn[:1] * IMAGENET_STD[0] + IMAGENET_MEAN[0]
            shares[view, i] = F.avg_pool2d(plain[None], CELL)[0, 0].clamp(0, 1).numpy()
    return torch.from_numpy(shares)


class Supervised(nn.Module):
    """The reference's network; a scale and an offset turn its cosine into a probability."""

    def __init__(self, c_a):
        super().__init__()
        self.method = Contrastive(ContrastiveConfig(c_a=c_a))
        self.scale = nn.Parameter(torch.tensor(10.0))
        self.offset = nn.Parameter(torch.tensor(-1.0))

    def forward(self, f_v, f_a, shares):
        logits = self.scale * self.method.maps(f_v, f_a) + self.offset
        return F.binary_cross_entropy_with_logits(logits, shares)


def train(pairs, cache, epochs, rate, seed, say):
    """The network of the best epoch on val, and the training history."""
    torch.manual_seed(seed)
    boxes = {}
    for line in (pairs.root / "train_boxes.jsonl").read_text().splitlines():
        entry = json.loads(line)
        boxes[entry["id"]] = entry["boxes"]
    everything = pairs.select("train")
    for row in everything:  # a photograph without boxes keeps its row, but is not learned from
        boxes.setdefault(row.id, [])
    shares = box_shares(pairs, everything, cache.spec, boxes)
    known = np.array([i for i, row in enumerate(everything) if boxes[row.id]])
    classes = np.array([row.cls for row in everything])
    model = Supervised(cache.spec.c_a)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=1e-4)
    best, kept, course = -1.0, None, []
    for epoch in range(epochs):
        rng = np.random.default_rng([seed, epoch])
        sounds = [sound.audio for sound in draw_sounds(pairs, "train", epoch, seed)]
        model.train()
        for part in np.array_split(rng.permutation(known), len(known) // BATCH):
            views = rng.integers(0, cache.spec.views, len(part))
            f_v = cache.view([everything[i].frame for i in part], views.tolist())
            f_a = cache.sound([sounds[i] for i in part])
            truth = shares[torch.from_numpy(views), torch.from_numpy(part)]
            order = rng.permutation(len(part))
            other = torch.from_numpy(classes[part] != classes[part[order]])
            loss = model(f_v, f_a, truth)
            loss = loss + model(f_v[other], f_a[order][other], torch.zeros_like(truth[other]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        found = validate(model.method, cache, pairs)
        course.append(found)
        say(f"epoch {epoch + 1}  {found}")
        if (mean := (found["ciou"] + found["duets"]) / 2) > best:
            best = mean
            kept = {name: value.clone() for name, value in model.method.state_dict().items()}
    model.method.load_state_dict(kept)
    return model.method, course


def test(method, cache, pairs):
    """cIoU, AUC and duets on the test split, with intervals."""
    scenes, duets = annotated_scenes(pairs, "test"), annotated_scenes(pairs, "duets-test")
    scores = score(cached_maps(method, cache, scenes), BENCHMARKS["escvoc"].truths(scenes))["sspl"]
    sides = peak_on_side(cached_maps(method, cache, duets), [duet.side for duet in duets])
    heard = mean_of_group(sides, [duet.group for duet in duets])
    success, listened = bootstrap((scores >= 0.5).astype(np.float64)), bootstrap(heard)
    return {
        "ciou": ciou_at(scores),
        "ciou_interval": [success.low, success.high],
        "auc": auc(scores),
        "peak_side": float(heard.mean()),
        "peak_side_interval": [listened.low, listened.high],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--views", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--out", type=Path)
    asked = parser.parse_args()
    pairs = PairSet.open(asked.pairs)
    spec = FeatureSpec(views=asked.views)
    cache = FeatureCache.open(cache_folder(pairs, spec), pairs, spec)
    say = Console(stderr=True).print
    method, course = train(pairs, cache, asked.epochs, asked.rate, asked.seed, say)
    result = {
        "command": " ".join(["python", *sys.argv]),
        "commit": git_commit(),
        "seed": asked.seed,
        "data_fingerprint": pairs.fingerprint()[:16],
        "val": course,
        "test": test(method, cache, pairs),
    }
    text = json.dumps(result, indent=1) + "\n"
    if asked.out is not None:
        asked.out.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
