"""Twenty visitors at once: does the web page answer them all, and is the memory returned?

    python benchmarks/serve_load.py [--visitors N] [--rounds R] [-o FILE.json]

This program starts `soundspot serve` as a separate process and calls it from N clients at the same
time, each with its own session and clip; every second pair of clips is identical byte by byte. A
visitor counts as answered if it gets the same numbers as the same clip alone. One warm-up round is
not counted; after each round all visitors leave. Memory is the server's resident set; the files
left are those in its folder after the visitors have left.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from gradio_client import Client, handle_file

from soundspot.media import clips as media

SECONDS, FPS, WIDTH, HEIGHT = 4, 10, 640, 360


def make_clip(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (9, 16, 3), dtype=np.uint8)
    frame = np.kron(blocks, np.ones((40, 40, 1), np.uint8))
    sound = rng.normal(0, 0.1, SECONDS * media.SAMPLE_RATE).astype(np.float32)
    media.write_video(path, [frame] * (SECONDS * FPS), sound, FPS)


def resident(process: subprocess.Popen[str]) -> float:
    """The resident set of a process, in MB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


def visit(url: str, clip: Path, together: Callable[[], object] = lambda: None) -> float:
    """The score that a new visitor gets for a clip."""
    client = Client(url, verbose=False)
    try:
        together()
        numbers, _ = client.predict(
            file=handle_file(str(clip)),
            sound=None,
            at=None,
            model=None,
            compare="nothing",
            own=None,
            api_name="/localize",
        )
        return float(numbers["maps"][0]["score"])
    finally:
        client.close()


def storm(url: str, clips: list[Path], expected: dict[Path, float]) -> tuple[int, float]:
    """Send all visitors at once; returns how many got the expected score, and the seconds."""
    barrier = threading.Barrier(len(clips))
    start = time.perf_counter()
    with ThreadPoolExecutor(len(clips)) as pool:
        visits = [pool.submit(visit, url, clip, barrier.wait) for clip in clips]
        answers = [None if done.exception() else done.result() for done in visits]
    right = sum(
        answer is not None and abs(answer - expected[clip]) < 1e-4
        for clip, answer in zip(clips, answers, strict=True)
    )
    return right, time.perf_counter() - start


def left_behind(folder: Path) -> int:
    """How many of the visitors' files remain, once the server has noticed that they left."""
    for _ in range(100):
        count = sum(len(names) for _, _, names in os.walk(folder))
        if not count:
            break
        time.sleep(0.1)
    return count


def measure(visitors: int, rounds: int, folder: Path) -> dict[str, Any]:
    clips = [folder / f"{k}.mp4" for k in range(visitors)]
    for k, clip in enumerate(clips):
        make_clip(clip, seed=k // 2)
    for k in range(0, visitors - 1, 4):  # same name too: gradio stores such files once
        (folder / f"twin{k}").mkdir()
        clips[k + 1] = clips[k].rename(folder / f"twin{k}" / "same.mp4")
        clips[k] = clips[k + 1]
    server = subprocess.Popen(
        [sys.executable, "-m", "soundspot", "serve", "--port", "7990"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert server.stdout is not None
        url = server.stdout.readline().split()[-1]
        (files,) = folder.glob("soundspot-web-*")
        expected = {clip: visit(url, clip) for clip in set(clips)}
        storm(url, clips, expected)
        left_behind(files)
        memory, answered, seconds = [resident(server)], [], []
        for _ in range(rounds):
            right, took = storm(url, clips, expected)
            answered.append(right)
            seconds.append(round(took, 1))
            remaining = left_behind(files)
            memory.append(resident(server))
    finally:
        server.terminate()
        server.wait()
    return {
        "visitors": visitors,
        "answered": answered,
        "seconds": seconds,
        "memory_mb": [round(value, 1) for value in memory],
        "files_left": remaining,
        "folder_removed": not files.exists(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--visitors", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(given.visitors, given.rounds, Path(folder))
    before, *after = measured["memory_mb"]
    for right, took, memory in zip(measured["answered"], measured["seconds"], after, strict=True):
        print(
            f"{right} of {measured['visitors']} visitors answered in {took:.1f} s; "
            f"memory {before:.1f} -> {memory:.1f} MB"
        )
    print(f"files left: {measured['files_left']}; folder removed: {measured['folder_removed']}")
    if given.out is not None:
        given.out.write_text(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main()
