"""How many maps per second: sspl on VGG16, and the models with MobileNetV2.

    python benchmarks/localize_speed.py [--video SECONDS] [-o results/localize_speed.json]

Everything runs in one process on one thread, the contenders take turns, and each counts by the CPU
time of its fastest round: so the ratios hold on a busy machine too. A map is made as `localize`
makes it, from a decoded frame and its 3 s of sound: views, both encoders, heads and labels.

`--video` also renders a 720p clip that moves, with ten maps per second on all cores, by
sspl (only a tenth of it) and by soundspot-fast: seconds of work per second of video.

The encoders use PyTorch's own convolutions. Winograd's F(4 x 4, 3 x 3) with products by oneDNN took
120 ms per view of VGG16 where conv2d takes 132 (1.10 times as fast; 1.07 in batches of four), and
7.4 ms per sound of YAMNet where conv2d in channels_last takes 8.0: too little for 200 lines and a
private operator of PyTorch (AMD EPYC with AVX512, one thread, torch 2.13).
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

import soundspot
from soundspot.encoders import weights
from soundspot.media.clips import read_frame, read_waveform, write_video
from soundspot.media.resizing import resize_frame

LOAD = round(os.getloadavg()[0], 1)  # above 0.x, others were at work too
ROUNDS = 5
FRAMES = 4
MODELS = ("sspl", "soundspot", "soundspot-fast", "names")
MAPS_PER_SECOND, PICTURES_PER_SECOND = 10.0, 25


def cpu_seconds(run: Callable[[], object]) -> float:
    """CPU seconds of one run."""
    start = time.process_time()
    with torch.inference_mode():
        run()
    return time.process_time() - start


def measure() -> dict[str, float]:
    """The CPU milliseconds of every contender, and their ratios to sspl."""
    torch.set_num_threads(1)
    photo = read_frame(weights.media("demo-dog-photo"))
    bark = read_waveform(weights.media("demo-dog-bark"))[:48_000]
    frames = [np.ascontiguousarray(np.roll(photo, 40 * k, axis=1)) for k in range(FRAMES)]
    sounds = [np.resize(bark, 48_000).astype(np.float32)] * FRAMES
    models = {name: soundspot.load(name) for name in MODELS}
    visual = models["sspl"].learned.encoders.visual
    picture = torch.zeros(1, 3, 224, 224).contiguous(memory_format=torch.channels_last)
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        took = {"vgg16": cpu_seconds(lambda: visual(picture))}
        for name, model in models.items():
            took[name] = cpu_seconds(partial(model.localize_batch, frames, sounds)) / FRAMES
        best = {name: min(value, best.get(name, value)) for name, value in took.items()}
    return {
        **{f"{name}: ms": round(1000 * value, 1) for name, value in best.items()},
        **{
            f"{name}: times as many maps": round(best["sspl"] / best[name], 2)
            for name in MODELS[1:]
        },
    }


def measure_video(seconds: float) -> dict[str, float]:
    """Seconds of work per second of video, and the CPU seconds of it."""
    torch.set_num_threads(os.cpu_count() or 1)
    photo = resize_frame(read_frame(weights.media("demo-dog-photo")), 720, 1280)
    bark = read_waveform(weights.media("demo-dog-bark"))
    found = {"seconds of the 720p video": seconds}
    with tempfile.TemporaryDirectory() as folder:
        for name, length in (("sspl", seconds / 10), ("soundspot-fast", seconds)):
            clip, out = Path(folder) / "clip.mp4", Path(folder) / "out.mp4"
            count = round(length * PICTURES_PER_SECOND)
            moving = (np.roll(photo, 4 * k, axis=1) for k in range(count))
            sound = np.resize(bark, round(length * 16_000)).astype(np.float32)
            write_video(clip, moving, sound, PICTURES_PER_SECOND)
            model = soundspot.load(name)
            model.localize(photo, bark)  # the first call of all takes longer
            start, busy = time.perf_counter(), time.process_time()
            soundspot.render_video(model, clip, out, maps_per_second=MAPS_PER_SECOND)
            took = time.perf_counter() - start, time.process_time() - busy
            found[f"720p video, {name}: s per s"] = round(took[0] / length, 2)
            found[f"720p video, {name}: CPU s per s"] = round(took[1] / length, 2)
    return found


def main() -> None:
    """Print the measurement, and write it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--video", type=float, metavar="SECONDS")
    given = parser.parse_args()
    found: dict[str, object] = {**measure()}
    if given.video:
        found |= measure_video(given.video)
    found["load of the machine before and after"] = [LOAD, round(os.getloadavg()[0], 1)]
    text = json.dumps(found, indent=1) + "\n"
    sys.stdout.write(text)
    if given.out is not None:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
