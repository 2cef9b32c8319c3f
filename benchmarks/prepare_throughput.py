"""Videos per second of `soundspot prepare` and of calling the ffmpeg program, in one run.

    python benchmarks/prepare_throughput.py [--ffmpeg PATH] [--clips FOLDER] [-o FILE.json]

The clips are synthetic (10 s of a moving scene at 640x360 and 25 frames per second, H.264 and AAC),
or the videos of a folder. Published pipelines call the ffmpeg program twice per video, once for the
pictures and once for the sound, in one of four ways:

- usual: seek to the middle, one picture; the whole sound as WAV, to be cut later. This is the
  headline number, because it extracts only what is needed and uses no obscure option.
- seek: the same picture, and only the 3 s of sound. The best that ffmpeg calls can do.
- whole: decode up to the middle, one picture; the whole sound.
- frames: all pictures at 25 frames per second, of which VGG-SS uses 125.jpg; the whole sound.

All of them use the same number of processes and write 256x256 JPEG and 16 kHz sound; ours also
writes the manifest and waits until each file is on disk. Importing our modules, a few seconds per
run, is not counted; starting the processes is. The sides take turns, and the median of the rounds
is reported. Absolute rates depend on the machine; the ratios matter. On a busy machine, CPU time
per video is the fairer measure, because ffmpeg's many threads get a larger share of the cores. The
table at the end is computed from it, for otherwise idle nodes with the same number of cores.
"""

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from soundspot.data.corpus_files import CorpusItem
from soundspot.data.options import Options
from soundspot.data.preparation import PreparePlan, run_plan
from soundspot.media import clips as media
from soundspot.media.resizing import resize_frame
from soundspot.parallel.processes import process_count

SECONDS, FPS, WIDTH, HEIGHT = 10, 25, 640, 360
SIZES = {"10k": 10_000, "144k": 144_000, "2M": 2_000_000}
NODES = (1, 4, 16, 64)
HEADLINE = "usual"
WAYS = (HEADLINE, "seek", "whole", "frames")


class Timing(NamedTuple):
    rate: float  # videos per second
    cpu: float  # seconds per video, of this process and the programs it called
    stored: float  # bytes per video


def make_clip(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    width = WIDTH + 2 * SECONDS * FPS
    scene = resize_frame(rng.integers(0, 256, (23, 71, 3), dtype=np.uint8), HEIGHT, width)
    scene = np.minimum(scene, 240) + rng.integers(0, 12, scene.shape, dtype=np.uint8)
    frames = (scene[:, 2 * n : 2 * n + WIDTH] for n in range(SECONDS * FPS))
    wave = np.cumsum(rng.standard_normal(SECONDS * media.SAMPLE_RATE) * 0.003)
    media.write_video(path, frames, np.sin(wave).astype(np.float32), float(FPS))


def call_ffmpeg(program: str, way: str, out: Path, video: Path, middle: float) -> None:
    quiet = [program, "-nostdin", "-loglevel", "error", "-y"]
    scale = "scale=256:256:flags=bicubic"
    moment, one = ["-ss", f"{middle}"], ["-frames:v", "1", "-vf", scale, "-q:v", "2"]
    picture, sound = out / f"{video.stem}.jpg", out / f"{video.stem}.flac"
    resampled = ["-vn", "-ac", "1", "-ar", "16000"]
    mono = [*resampled, sound]
    calls: dict[str, tuple[list[str | Path], list[str | Path]]] = {
        "usual": (
            [*moment, "-i", video, *one, picture],
            ["-i", video, *resampled, sound.with_suffix(".wav")],
        ),
        "seek": (
            [*moment, "-i", video, *one, picture],
            ["-ss", f"{middle - 1.5}", "-t", "3", "-i", video, *mono],
        ),
        "whole": (["-i", video, *moment, *one, picture], ["-i", video, *mono]),
        "frames": (
            ["-i", video, "-vf", f"fps=25,{scale}", "-q:v", "2", out / f"{video.stem}-%03d.jpg"],
            ["-i", video, *mono],
        ),
    }
    for call in calls[way]:
        subprocess.run([*quiet, *call], check=True)


def run_ffmpeg(
    program: str, way: str, jobs: int, videos: list[tuple[Path, float]], out: Path
) -> None:
    out.mkdir()
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda video: call_ffmpeg(program, way, out, *video), videos))


def run_ours(jobs: int, tar: bool, videos: list[tuple[Path, float]], out: Path) -> None:
    items = [CorpusItem(path.name, path.stem, "train", ((path.name,),)) for path, _ in videos]
    plan = PreparePlan("benchmark", videos[0][0].parent, {}, items, copies=True)
    summary = run_plan(plan, out, Options(jobs=jobs, tar=tar))
    assert not summary.losses, summary.losses[0]


def cpu_seconds() -> float:
    """CPU time of this process and the programs it called."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def timed(work: Callable[[Path], None], videos: int) -> Timing:
    with tempfile.TemporaryDirectory() as folder:
        begin, cpu = time.perf_counter(), cpu_seconds()
        work(Path(folder) / "out")
        rate = videos / (time.perf_counter() - begin)
        spent = (cpu_seconds() - cpu) / videos
        stored = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return Timing(rate, spent, stored / videos)


def duration(hours: float) -> str:
    return f"{hours * 60:.1f} min" if hours < 1 else f"{hours:.1f} h"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ffmpeg", default=shutil.which("ffmpeg"))
    parser.add_argument("--clips", type=Path)
    parser.add_argument("--videos", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=process_count(None))
    parser.add_argument("-o", "--out", type=Path)
    arguments = parser.parse_args()
    jobs, count = arguments.jobs, arguments.videos
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch)
        if arguments.clips is None:
            clips = [made / f"made-{seed}.mp4" for seed in range(12)]
            for seed, clip in enumerate(clips):
                make_clip(clip, seed)
        else:
            clips = sorted(path for path in arguments.clips.iterdir() if path.is_file())
        corpus = made / "corpus"
        corpus.mkdir()
        videos = []
        for number in range(count):
            clip = clips[number % len(clips)]
            link = corpus / f"{number:05d}{clip.suffix}"
            link.symlink_to(clip.resolve())
            videos.append((link, (media.probe(clip).duration or 0) / 2))
        sides: dict[str, Callable[[Path], None]] = {
            "ours": partial(run_ours, jobs, False, videos),
            "ours, tar": partial(run_ours, jobs, True, videos),
            "ours, alone": partial(run_ours, 1, False, videos),
        }
        if arguments.ffmpeg is None:
            print("there is no ffmpeg program on this machine: only our own rate is measured")
        else:
            for way in WAYS:
                sides[f"ffmpeg, {way}"] = partial(run_ffmpeg, arguments.ffmpeg, way, jobs, videos)
        timed(partial(run_ours, jobs, False, videos[:jobs]), jobs)  # warm-up
        rounds = [
            {name: timed(work, count) for name, work in sides.items()}
            for _ in range(arguments.rounds)
        ]
        size = sum(path.stat().st_size for path in clips) / len(clips)

    def middle(of: Callable[[dict[str, Timing]], float]) -> float:
        return median(of(found) for found in rounds)

    rates = {name: middle(lambda found, n=name: found[n].rate) for name in sides}
    called = [name for name in sides if name.startswith("ffmpeg")]
    cpu = {
        name: middle(lambda found, n=name: found[n].cpu) * 1e3 for name in ("ours, alone", *called)
    }
    faster = {
        name: middle(lambda found, n=name: found["ours"].rate / found[n].rate) for name in called
    }
    thriftier = {
        name: middle(lambda found, n=name: found[n].cpu / found["ours, alone"].cpu)
        for name in called
    }
    stored = rounds[0]["ours"].stored
    print(f"{count} videos of {size / 1e6:.2f} MB, {jobs} processes, {arguments.rounds} rounds")
    for name, rate in rates.items():
        spent = f"{cpu[name]:6.0f} ms of CPU" if name in cpu else ""
        line = f"{name:<15} {rate:6.1f} videos/s  {spent}"
        if name in faster:
            line += f"   ours: {faster[name]:.1f} x as fast, {thriftier[name]:.1f} x less CPU"
        print(line)
    if called:
        name = f"ffmpeg, {HEADLINE}"
        print(
            f"headline: {faster[name]:.1f} x as fast, {thriftier[name]:.1f} x less CPU than {name}"
        )
    idle = jobs * 1e3 / cpu["ours, alone"]
    print(f"stored: {stored / 1e3:.0f} kB per pair")
    print(f"computed: {idle:.1f} videos/s on {jobs} otherwise idle cores\n")
    nodes = "".join(f" {n} node{'s' if n > 1 else ''} |" for n in NODES)
    print(f"| pairs | videos read | pairs stored |{nodes}\n|---|---|---|{'---|' * len(NODES)}")
    for name, pairs in SIZES.items():
        hours = pairs / idle / 3600
        cells = "".join(f" {duration(hours / n)} |" for n in NODES)
        print(f"| {name} | {pairs * size / 1e9:,.0f} GB | {pairs * stored / 1e9:,.1f} GB |{cells}")
    if arguments.out is not None:
        found = {
            "command": "python benchmarks/prepare_throughput.py --ffmpeg FFMPEG"
            f"{'' if arguments.clips is None else ' --clips CLIPS'}"
            f" --videos {count} --rounds {arguments.rounds} -o {arguments.out}",
            "machine": f"{platform.machine()}, {process_count(None)} threads",
            "load_average_at_the_end": round(os.getloadavg()[1], 1),
            "processes": jobs,
            "clips": "made" if arguments.clips is None else arguments.clips.name,
            "headline": f"ffmpeg, {HEADLINE}",
            "videos": count,
            "bytes_a_video": round(size),
            "bytes_a_pair": round(stored),
            "videos_a_second": {name: round(rate, 2) for name, rate in rates.items()},
            "cpu_ms_a_video": {name: round(spent, 1) for name, spent in cpu.items()},
            "times_as_fast": {name: round(ratio, 2) for name, ratio in faster.items()},
            "times_less_cpu": {name: round(ratio, 2) for name, ratio in thriftier.items()},
        }
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
