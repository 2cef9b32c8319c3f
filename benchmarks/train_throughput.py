"""Pairs per second of a training step: online or cached, with and without PCM, in one run.

    python benchmarks/train_throughput.py [-o results/train_throughput.json]

The online step encodes two views and the sound of every pair in PyTorch's default memory layout, as
the released code does; otherwise the steps are the same. Absolute times depend on the machine; the
ratios matter, and the fraction of the sgemm peak measured in the same run. The encoders have
random weights, which does not change the cost.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from soundspot.data.pair_set import Pair, PairSet
from soundspot.data.writer import PairWriter
from soundspot.encoders.table import build_encoder
from soundspot.features.cache import FeatureCache, cache_folder
from soundspot.features.encoding import encode
from soundspot.features.spec import FeatureSpec
from soundspot.model.methods.method import Batch
from soundspot.model.methods.sspl import SSPL, SSPLConfig
from soundspot.training.data import TrainingData, batches
from soundspot.training.optimiser import make_optimiser
from soundspot.training.recipe import TrainConfig

# Multiply-adds: VGG16's thirteen convolutions at 224, and the PCM's five cycles on a 14 x 14 grid
# (three 3x3 convolutions at full size, two at half or quarter size, and small ones).
VGG16_MACS = 15.3e9
PCM_MACS = 5 * (2 * 14 * 14 + 7 * 7 + 3 * 3) * 512 * 512 * 9


def sgemm_peak(size=2048, repeats=5):
    """GFLOP/s of a large matrix product, the best of several."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    best = min(timed(lambda: a @ b) for _ in range(repeats))
    return 2 * size**3 / best / 1e9


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def tiny_set(folder, count):
    """Random frames and sounds: the content does not change the cost."""
    writer = PairWriter(folder, "throughput", "event", {})
    writer.begin()
    rng = np.random.default_rng(0)
    rows = []
    for k in range(count):
        frame = writer.add_frame(
            f"f{k}", lambda: rng.integers(0, 256, (256, 256, 3), dtype=np.uint8)
        )
        sound = writer.add_sound(f"s{k}", lambda: rng.uniform(-1, 1, 48_000).astype(np.float32))
        rows.append(Pair(f"p{k}", frame, sound, "train"))
    return writer.finish(rows, (), ()).pairset


def make_step(config, channels_last):
    model = SSPL(config)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    optimiser = make_optimiser(model, TrainConfig())

    def step(batch):
        optimiser.zero_grad(set_to_none=True)
        model(batch).loss.backward()
        optimiser.step()

    return step


def online(config, pairs):
    """Seconds per pair if everything is encoded in the step, in the default layout."""
    visual, audio = build_encoder("vgg16", None), build_encoder("yamnet", None)
    step = make_step(config, channels_last=False)
    views = [torch.randn(pairs, 3, 224, 224) for _ in range(2)]
    waves = torch.rand(pairs, 48_000) * 2 - 1

    def whole():
        with torch.no_grad():
            f_v1, f_v2 = (visual(view) for view in views)
            f_a = audio(waves)
        step(Batch(f_v1, f_v2, f_a, torch.full((pairs,), -1)))

    whole()
    return sum(timed(whole) for _ in range(3)) / 3 / pairs


def cached(config, data, batch):
    """Seconds per pair from the cache, including reading, and the share spent waiting for data."""
    step = make_step(config, channels_last=True)
    waited, steps = 0.0, 0
    for epoch in range(2):
        stream = iter(batches(data, epoch, batch))
        start = mark = time.perf_counter()
        waited = steps = 0
        for current in stream:
            waited += time.perf_counter() - mark
            step(current)
            steps += 1
            mark = time.perf_counter()
        total = time.perf_counter() - start
    return total / steps / batch, waited / total


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="smaller batches")
    arguments = parser.parse_args()
    few, many = (4, 32) if arguments.quick else (16, 128)
    plain, pcm = SSPLConfig(c_a=1024), SSPLConfig(c_a=1024, pcm=True)
    with tempfile.TemporaryDirectory() as folder:
        pairs: PairSet = tiny_set(Path(folder) / "pairs", 4 * many)
        spec = FeatureSpec(pretrained=False, views=2)
        encode(pairs, cache_folder(pairs, spec), spec)
        cache = FeatureCache.open(cache_folder(pairs, spec), pairs, spec)
        data = TrainingData(pairs, "train", cache, None, 0)
        peak = sgemm_peak()
        rows = {}
        for name, config in (("without PCM", plain), ("with PCM", pcm)):
            slow = online(config, few)
            batch = many if config is plain else many // 4
            fast, waiting = cached(config, data, batch)
            macs = 2 * VGG16_MACS + (6 * PCM_MACS if config.pcm else 0)
            cached_macs = 6 * PCM_MACS if config.pcm else None
            rows[name] = {
                "cached_batch": batch,
                "online_ms_a_pair": round(1e3 * slow, 2),
                "cached_ms_a_pair": round(1e3 * fast, 2),
                "speedup": round(slow / fast, 1),
                "waiting_for_data": round(waiting, 4),
                "online_share_of_sgemm": round(2 * macs / slow / 1e9 / peak, 3),
                "cached_share_of_sgemm": cached_macs
                and round(2 * cached_macs / fast / 1e9 / peak, 3),
            }
            print(name, rows[name], flush=True)
    result = {
        "command": " ".join(["python", *sys.argv]),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "torch": torch.__version__,
        "sgemm_gflops": round(peak),
        "online_batch": few,
        "steps": rows,
    }
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
