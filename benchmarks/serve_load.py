"""Twenty visitors at once: does the web page answer them all, and is its memory given back?

    python benchmarks/serve_load.py [--visitors N] [--rounds R] [-o FILE.json]

This program starts `soundspot serve` as a process of its own, and visits it as N programs at the
same time, each with its own session and its own clip, of which every second pair is equal byte by
byte. A visitor counts as answered if its numbers are those that the same clip got alone. One round
comes before the count, so that what is loaded once is loaded; after each round all visitors leave.
Memory is the server's resident set, disk what lies in its folder after the visitors have left.
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
    """In MB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


def visit(url: str, clip: Path, together: Callable[[], object] = lambda: None) -> float:
    """The score that a visitor of its own gets for a clip."""
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
    """Send all visitors at once; how many got what they should, in how many seconds."""
    barrier = threading.Barrier(len(clips))
    start = time.perf_counter()
    with ThreadPoolExecutor(len(clips)) as pool:
        visits = [pool.submit(visit, url, clip, barrier.wait) for clip in clips]
        answers = [None if one.exception() else one.result() for one in visits]
    right = sum(
        answer is not None and abs(answer - expected[clip]) < 1e-4
        for clip, answer in zip(clips, answers, strict=True)
    )
    return right, time.perf_counter() - start


def left_behind(folder: Path) -> int:
    """Files of visitors, once those who left have been noticed."""
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
    for k in range(0, visitors - 1, 4):  # equal in name too: gradio takes such files for one
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
        found = measure(given.visitors, given.rounds, Path(folder))
    before, *after = found["memory_mb"]
    for right, took, memory in zip(found["answered"], found["seconds"], after, strict=True):
        print(
            f"{right} of {found['visitors']} visitors answered in {took:.1f} s; "
            f"memory {before:.1f} -> {memory:.1f} MB"
        )
    print(f"files left: {found['files_left']}; folder removed: {found['folder_removed']}")
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
