"""How many maps a second: VGG16 with and without Winograd, and MobileNetV2 in its place.

    python benchmarks/localize_speed.py [-o results/localize_speed.json]

Everything runs in one process on one thread, the contenders take turns, and each counts by the CPU
time of its fastest round: so the ratios hold on a busy machine too. A map is made as `localize`
makes it, from a decoded frame and its 3 s of sound: views, both encoders, heads and labels.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

import soundspot
from soundspot.common.config import to_dict
from soundspot.encoders import weights
from soundspot.encoders.winograd import plain_operations
from soundspot.features.spec import FeatureSpec, load_encoders
from soundspot.inference.localizer import Localizer
from soundspot.media.clips import read_frame, read_waveform
from soundspot.model.checkpoint import Card, build_method
from soundspot.model.methods.contrastive import ContrastiveConfig

ROUNDS = 5
FRAMES = 4


def mobilenet_heads(like: Localizer) -> Localizer:
    """soundspot-v1's heads, untrained, on MobileNetV2: the weights do not change the time."""
    features = FeatureSpec(visual="mobilenetv2")
    config = replace(ContrastiveConfig(c_v=1280, c_a=1024), self_attention=0.2)
    method = build_method("contrastive", to_dict(config)).eval()
    card = Card("contrastive", to_dict(config), features, trained=False)
    visual = load_encoders(features).visual
    return replace(like, name="mobilenetv2 + heads", method=method, visual=visual, card=card)


def cpu_seconds(run: Callable[[], object]) -> float:
    """CPU seconds of one run."""
    start = time.process_time()
    with torch.inference_mode():
        run()
    return time.process_time() - start


def measure() -> dict[str, float]:
    """The CPU milliseconds of every contender, their ratios, and how far the maps differ."""
    torch.set_num_threads(1)
    today = soundspot.load("soundspot-v1")
    photo = read_frame(weights.media("demo-dog-photo"))
    bark = read_waveform(weights.media("demo-dog-bark"))[:48_000]
    frames = [np.ascontiguousarray(np.roll(photo, 40 * k, axis=1)) for k in range(FRAMES)]
    sounds = [np.resize(bark, 48_000).astype(np.float32)] * FRAMES
    small, names = mobilenet_heads(today), soundspot.load("names")
    picture = torch.zeros(1, 3, 224, 224).contiguous(memory_format=torch.channels_last)
    transforming = cpu_seconds(lambda: today.visual(picture))  # the first call of all
    transforming -= min(cpu_seconds(lambda: today.visual(picture)) for _ in range(ROUNDS))
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        with plain_operations():
            took = {"vgg16, plain": cpu_seconds(lambda: today.visual(picture))}
            run = partial(today.locate, frames, sounds)
            took["soundspot-v1, plain"] = cpu_seconds(run) / FRAMES
        took["vgg16"] = cpu_seconds(lambda: today.visual(picture))
        for name, model in (("soundspot-v1", today), (small.name, small), ("names", names)):
            took[name] = cpu_seconds(partial(model.locate, frames, sounds)) / FRAMES
        best = {name: min(value, best.get(name, value)) for name, value in took.items()}
    fast = today.locate(frames, sounds)
    with plain_operations():
        plain = today.locate(frames, sounds)
    apart = max(float(np.abs(a - b).max()) for (a, _), (b, _) in zip(fast, plain, strict=True))
    before, made = best["soundspot-v1, plain"], ("soundspot-v1", small.name, "names")
    return {
        **{f"{name}: ms": round(1000 * value, 1) for name, value in best.items()},
        **{f"{name}: times as many maps": round(before / best[name], 2) for name in made},
        "vgg16: times as many frames": round(best["vgg16, plain"] / best["vgg16"], 2),
        "ms to transform the weights, once": round(1000 * transforming, 1),
        "largest difference of two maps": apart,
    }


def main() -> None:
    """Print the measurement, and write it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path)
    out = parser.parse_args().out
    text = json.dumps(measure(), indent=1) + "\n"
    sys.stdout.write(text)
    if out is not None:
        out.write_text(text)


if __name__ == "__main__":
    main()
