"""The cost of a training step: PCM plain and fast, on-line and cached, in one run.

    python benchmarks/train_throughput.py [-o results/train_throughput.json]

- PCM: forward and backward with PyTorch's own operations alone, against today's, whose step up to a
  finer grid is one matrix product (soundspot.model.fast_convolutions); the peak memory of each.
  Winograd transforms of the other convolutions, in 300 lines that hid Algorithm S1, were given up:
  they took 0.65 of today's time in float32 and 0.83 in bfloat16 (86 against 132, 56 against 68 ms
  an item at a batch of 16, the plain form 149 and 84).
- Steps: the on-line step encodes two views and the sound of every pair with PyTorch's own
  operations in its default memory layout, as the released code does; the cached one reads the
  features. The on-line step with our faster convolutions and the cached one in bfloat16 (train.amp)
  stand beside them, so that it can be told what each brings.

All times are CPU times of one thread, the two sides of a ratio in turns, and the middle one of
several: other work on the machine then matters little. Absolute times depend on the machine; the
ratios and the fraction of the sgemm peak measured in the same run are what counts. Random encoder
weights: they cost what trained ones cost.
"""

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F

from soundspot.data.pair_set import Pair, PairSet
from soundspot.data.writer import PairWriter
from soundspot.encoders.table import build_encoder
from soundspot.features.cache import FeatureCache, cache_folder
from soundspot.features.encoding import encode
from soundspot.features.spec import FeatureSpec
from soundspot.model.fast_convolutions import plain_upsampled_conv3x3
from soundspot.model.methods.method import Batch
from soundspot.model.methods.sspl import SSPL, SSPLConfig
from soundspot.model.pcm import PCM
from soundspot.training.data import TrainingData, batches
from soundspot.training.optimizer import make_optimizer
from soundspot.training.recipe import TrainConfig

C_V, C_A, GRID = 512, 1024, 14
# Multiply-adds: VGG16's thirteen convolutions at 224, and the plain PCM's five passes on a 14 x 14
# grid (two 3x3 convolutions at full size, two at a half or a quarter; the rest is small).
VGG16_MACS = 15.3e9
PCM_MACS = 5 * (2 * 14 * 14 + 7 * 7 + 3 * 3) * 512 * 512 * 9


def as_computed(plain):
    """The PCM as it is, or with PyTorch's own operations alone."""
    where = "soundspot.model.pcm.upsampled_conv3x3"
    return patch(where, plain_upsampled_conv3x3) if plain else nullcontext()


def cpu_time(work):
    start = time.process_time()
    work()
    return time.process_time() - start


def sgemm_peak(size=2048, repeats=5):
    """GFLOP/s of a large matrix product, best of a few."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2 * size**3 / min(cpu_time(lambda: a @ b) for _ in range(repeats)) / 1e9


def make_pcm_step(plain, batch):
    """Forward and backward of a PCM as it is trained; returns the CPU seconds of each."""
    torch.manual_seed(0)
    module = PCM(C_V, C_A).to(memory_format=torch.channels_last)
    f_v = torch.rand(batch, C_V, GRID, GRID).to(memory_format=torch.channels_last)
    f_a = F.normalize(torch.rand(batch, C_A), dim=1)
    weights = torch.randn(batch, C_V, GRID, GRID).to(memory_format=torch.channels_last)

    def step():
        module.zero_grad(set_to_none=True)
        start = time.process_time()
        with as_computed(plain):
            loss = (module(f_v, f_a).f_v * weights).mean()
        middle = time.process_time()
        loss.backward()
        return middle - start, time.process_time() - middle

    return step


def compare_pcm(batch, repeats):
    """Milliseconds an item and their ratios, plain and fast in turns."""
    steps = {"plain": make_pcm_step(True, batch), "fast": make_pcm_step(False, batch)}
    for step in steps.values():
        step()
    times = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            times[name].append(step())
    ms = {name: 1e3 * median(map(sum, runs)) / batch for name, runs in times.items()}
    turns = list(zip(times["plain"], times["fast"], strict=True))
    return {
        "batch": batch,
        "plain_ms_an_item": round(ms["plain"], 1),
        "fast_ms_an_item": round(ms["fast"], 1),
        "speedup_forward": round(median(plain[0] / fast[0] for plain, fast in turns), 2),
        "speedup_backward": round(median(plain[1] / fast[1] for plain, fast in turns), 2),
        "speedup": round(median(sum(plain) / sum(fast) for plain, fast in turns), 2),
    }


def peak_memory(name, batch):
    """Megabytes that two PCM steps need at most, in a process of their own."""
    command = [sys.executable, __file__, "--memory-of", name, "--batch", str(batch)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_peak_memory(name, batch):
    step = make_pcm_step(name == "plain", batch)
    step(), step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


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


def make_step(config, channels_last, amp=False):
    model = SSPL(config)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    optimizer = make_optimizer(model, TrainConfig())

    def step(batch):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=amp):
            output = model(batch)
        output.loss.backward()
        optimizer.step()

    return step


def online(config, pairs, plain):
    """Seconds a pair when everything is encoded in the step, in the default layout."""
    default = torch.contiguous_format
    visual = build_encoder("vgg16", None).to(memory_format=default)
    audio = build_encoder("yamnet", None).to(memory_format=default)
    step = make_step(config, channels_last=False)
    views = [torch.randn(pairs, 3, 224, 224) for _ in range(2)]
    waves = torch.rand(pairs, 48_000) * 2 - 1

    def whole():
        with as_computed(plain):
            with torch.no_grad():
                f_v1, f_v2 = (visual(view) for view in views)
                f_a = audio(waves)
            step(Batch(f_v1, f_v2, f_a, torch.full((pairs,), -1)))

    whole()
    return median(cpu_time(whole) for _ in range(3)) / pairs


def cached(config, data, batch, amp=False):
    """Seconds a pair from the cache, reading included, and the share spent waiting for data."""
    step = make_step(config, channels_last=True, amp=amp)
    for epoch in range(2):  # the first one warms up
        used, waited = [], 0.0
        start = mark = time.perf_counter()
        began = time.process_time()
        for current in batches(data, epoch, batch):
            waited += time.perf_counter() - mark
            step(current)
            used.append(time.process_time() - began)
            mark, began = time.perf_counter(), time.process_time()
        total = time.perf_counter() - start
    return median(used) / batch, waited / total


def compare_steps(many, few, peak):
    """On-line against cached, with and without PCM."""
    without, pcm = SSPLConfig(c_a=C_A), SSPLConfig(c_a=C_A, pcm=True)
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        pairs: PairSet = tiny_set(Path(folder) / "pairs", 2 * many)
        spec = FeatureSpec(pretrained=False, views=2)
        encode(pairs, cache_folder(pairs, spec), spec)
        cache = FeatureCache.open(cache_folder(pairs, spec), pairs, spec)
        data = TrainingData(pairs, "train", cache, None, 0)
        for name, config in (("without PCM", without), ("with PCM", pcm)):
            batch = many // 4 if config.pcm else many
            fast, waiting = cached(config, data, batch)
            rounded, _ = cached(config, data, batch, amp=True)
            plain = online(config, few, plain=True)
            ours = online(config, few, plain=False)
            macs = 2 * VGG16_MACS + (6 * PCM_MACS if config.pcm else 0)
            row = {
                "cached_batch": batch,
                "online_ms_a_pair": round(1e3 * plain, 2),
                "online_fast_convolutions_ms_a_pair": round(1e3 * ours, 2),
                "cached_ms_a_pair": round(1e3 * fast, 2),
                "cached_amp_ms_a_pair": round(1e3 * rounded, 2),
                "speedup": round(plain / fast, 1),
                "speedup_over_fast_convolutions": round(ours / fast, 1),
                "speedup_amp": round(plain / rounded, 1),
                "waiting_for_data": round(waiting, 4),
                "online_share_of_sgemm": round(2 * macs / plain / 1e9 / peak, 3),
            }
            rows[name] = row
            print(name, row, flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="smaller batches")
    parser.add_argument("--pcm-only", action="store_true", help="leave out on-line against cached")
    parser.add_argument("--memory-of", choices=("plain", "fast"), help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.memory_of:
        print_peak_memory(arguments.memory_of, arguments.batch)
        return
    few, many = (4, 32) if arguments.quick else (16, 128)
    peak = sgemm_peak()
    result = {
        "command": " ".join(["python", *sys.argv]),
        "machine": f"{platform.machine()}, CPU time of 1 thread",
        "torch": torch.__version__,
        "sgemm_gflops": round(peak),
        "pcm": compare_pcm(many // 4, 3 if arguments.quick else 7),
    }
    print("PCM", result["pcm"], flush=True)
    memory = {f"{name}_mb": peak_memory(name, many) for name in ("plain", "fast")}
    result["pcm_peak_memory"] = {"batch": many, **memory}
    if not arguments.pcm_only:
        result["online_batch"] = few
        result["steps"] = compare_steps(many, few, peak)
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
