"""Many visitors at once, then hostile ones: is anything lost, and do memory and disk come back?

    python benchmarks/serve_load.py [--visitors N] [--rounds R] [--mixed M] [-o FILE.json]

This program starts `soundspot serve` as a separate process. In each round it calls it from N
clients at the same time, each with its own session and clip; every second pair of clips is
identical byte by byte. A visitor counts as answered if it gets the same numbers as the same clip
alone. Two warm-up rounds are not counted; after each round all visitors leave. Then M mixed
requests follow, six at a time: clips and pictures of many sizes, broken files, calls whose answer
nobody reads, addresses, bodies that are too long. Memory is the server's resident set, the disk
what its folder holds, looked at all the time; `Limits.disk_mb` limits it. The files left are those
in the folder after the visitors have left.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from gradio_client import Client, handle_file

from soundspot.media import clips as media
from soundspot.web.limits import MB, Limits

SECONDS, FPS, BLOCK = 4, 10, 40
SIZES = ((640, 360), (320, 240), (1920, 1080), (400, 800))
WARM_UP = 2


@dataclass
class Server:
    """The server under load."""

    process: subprocess.Popen[str]
    url: str
    folder: Path
    fullest: int = 0  # bytes

    def resident(self) -> float:
        """The resident set, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return round(int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024, 1)

    def files(self) -> list[Path]:
        return [Path(root, name) for root, _, names in os.walk(self.folder) for name in names]

    def watch(self, until: threading.Event) -> None:
        """Note how full the disk gets."""
        while not until.wait(0.02):
            sizes = 0
            for path in self.files():
                try:
                    sizes += path.stat().st_size
                except OSError:
                    continue
            self.fullest = max(self.fullest, sizes)


@contextmanager
def started(folder: Path, port: int) -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, "-m", "soundspot", "serve", "--port", str(port)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
    )
    done = threading.Event()
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        (files,) = folder.glob("soundspot-web-*")
        server = Server(process, url, files)
        threading.Thread(target=server.watch, args=(done,), daemon=True).start()
        yield server
    finally:
        done.set()
        process.terminate()
        process.wait()


def make_frame(size: tuple[int, int], seed: int) -> Any:
    blocks = np.random.default_rng(seed).integers(
        0, 256, (size[1] // BLOCK, size[0] // BLOCK, 3), dtype=np.uint8
    )
    return np.kron(blocks, np.ones((BLOCK, BLOCK, 1), np.uint8))


def make_clip(path: Path, seed: int, size: tuple[int, int] = SIZES[0]) -> Path:
    sound = np.random.default_rng(seed).normal(0, 0.1, SECONDS * media.SAMPLE_RATE)
    frames = [make_frame(size, seed)] * (SECONDS * FPS)
    media.write_video(path, frames, sound.astype(np.float32), float(FPS))
    return path


def visit(url: str, clip: Path, together: Callable[[], object] = lambda: None) -> float:
    """The score that a new visitor gets for a clip."""
    client = Client(url, verbose=False)
    asked = {"sound": None, "at": None, "model": None, "compare": "nothing", "own": None}
    try:
        together()
        numbers, _ = client.predict(file=handle_file(str(clip)), **asked, api_name="/localize")
        return float(numbers["maps"][0]["score"])
    finally:
        client.close()


def storm(url: str, clips: list[Path], expected: dict[Path, float]) -> tuple[int, float]:
    """Send all visitors at once; returns how many got the expected score, and the seconds."""
    barrier = threading.Barrier(len(clips))
    start = time.perf_counter()
    with ThreadPoolExecutor(len(clips)) as pool:
        visits = [pool.submit(visit, url, clip, barrier.wait) for clip in clips]
        answers = [done.exception() or done.result() for done in visits]
    for error in {repr(answer)[:200] for answer in answers if isinstance(answer, BaseException)}:
        print(f"lost: {error}")
    right = sum(
        isinstance(answer, float) and abs(answer - expected[clip]) < 1e-4
        for clip, answer in zip(clips, answers, strict=True)
    )
    return right, round(time.perf_counter() - start, 1)


def left_behind(server: Server) -> int:
    """How many of the visitors' files remain, once the server has noticed that they left."""
    for _ in range(100):
        if not server.files():
            break
        time.sleep(0.1)
    time.sleep(0.5)  # for the memory
    return len(server.files())


class Mixture:
    """Requests of programs that behave, and of some that do not."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.api = f"{server.url}gradio_api"
        self.clips = [make_clip(folder / f"m{k}.mp4", k, size) for k, size in enumerate(SIZES)]
        self.pictures = [folder / f"m{k}.jpg" for k in range(3)]
        for path, size in zip(self.pictures, (SIZES[0], SIZES[2], (4000, 3000)), strict=True):
            media.write_jpeg(path, make_frame(size, 1))
        self.sound, self.broken, self.cut = (folder / name for name in ("s.flac", "b.mp4", "c.mp4"))
        media.write_flac(self.sound, np.random.default_rng(0).normal(0, 0.1, 48_000).astype("f4"))
        self.broken.write_bytes(random.Random(0).randbytes(300_000))
        whole = self.clips[2].read_bytes()
        self.cut.write_bytes(whole[: len(whole) // 2])

    def request(self, number: int) -> str:
        """Make one request; returns what came of it."""
        draw = random.Random(number)
        kind = draw.choice(
            ["clip"] * 4 + ["picture"] * 3 + ["broken", "cut", "unread", "address", "long"]
        )
        with httpx.Client(timeout=600) as client:
            if kind == "address":
                answer = client.get(f"{self.api}/file/http://example.org/x")
                return f"{kind} {answer.status_code}"
            if kind == "long":
                answer = client.post(f"{self.api}/queue/join", content=bytes(2 * MB))
                return f"{kind} {answer.status_code}"
            named = {"broken": self.broken, "cut": self.cut, "picture": draw.choice(self.pictures)}
            file = self._upload(client, named.get(kind, draw.choice(self.clips)))
            sound = self._upload(client, self.sound) if kind == "picture" else None
            compare = draw.choice(["nothing", "a siren", "a car horn"])
            data = [file, sound, None, None, compare, None]
            called = client.post(f"{self.api}/call/localize", json={"data": data})
            if kind == "unread" or called.status_code != 200:
                return f"{kind} {called.status_code}"
            answer = client.get(f"{self.api}/call/localize/{called.json()['event_id']}")
            return f"{kind} {'answered' if 'event: complete' in answer.text else 'refused'}"

    def _upload(self, client: httpx.Client, path: Path) -> dict[str, Any]:
        answer = client.post(f"{self.api}/upload", files={"files": (path.name, path.read_bytes())})
        return {"path": answer.json()[0], "meta": {"_type": "gradio.FileData"}}


def measure(visitors: int, rounds: int, mixed: int, port: int, folder: Path) -> dict[str, Any]:
    clips = [make_clip(folder / f"{k}.mp4", seed=k // 2) for k in range(visitors)]
    for k in range(0, visitors - 1, 4):  # same name too: gradio would store such files once
        (folder / f"twin{k}").mkdir()
        clips[k + 1] = clips[k].rename(folder / f"twin{k}" / "same.mp4")
        clips[k] = clips[k + 1]
    with started(folder, port) as server:
        expected = {clip: visit(server.url, clip) for clip in set(clips)}
        for _ in range(WARM_UP):
            storm(server.url, clips, expected)
            remaining = left_behind(server)
        memory, answered = [server.resident()], []
        for number in range(rounds):
            right, took = storm(server.url, clips, expected)
            answered.append(right)
            remaining = left_behind(server)
            memory.append(server.resident())
            print(
                f"round {number + 1}: {right} of {visitors} in {took} s, {memory[-1]} MB",
                flush=True,
            )
        mixture, outcomes, mixed_memory = Mixture(server, folder), Counter[str](), []
        with ThreadPoolExecutor(6) as pool:
            for start in range(0, mixed, 50):
                outcomes.update(pool.map(mixture.request, range(start, min(start + 50, mixed))))
                mixed_memory.append(server.resident())
                print(f"{min(start + 50, mixed)} mixed requests: {mixed_memory[-1]} MB", flush=True)
    return {
        "visitors": visitors,
        "answered": answered,
        "memory_mb": memory,
        "mixed_memory_mb": mixed_memory,
        "mixed": dict(sorted(outcomes.items())),
        "disk_mb": round(server.fullest / MB, 1),
        "disk_limit_mb": Limits().disk_mb,
        "files_left": remaining,
        "folder_removed": not server.folder.exists(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--visitors", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--mixed", type=int, default=500)
    parser.add_argument("--port", type=int, default=7990)
    parser.add_argument("-o", "--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(given.visitors, given.rounds, given.mixed, given.port, Path(folder))
    before, *after = measured["memory_mb"]
    lost = sum(given.visitors - right for right in measured["answered"])
    change = 100 * (after[-1] / before - 1) if after else 0.0
    print(f"lost: {lost}; memory {before} -> {(after or [before])[-1]} MB ({change:+.1f} %)")
    print(f"mixed requests: {measured['mixed']}")
    print(f"fullest disk: {measured['disk_mb']} of {measured['disk_limit_mb']} MB")
    print(f"files left: {measured['files_left']}; folder removed: {measured['folder_removed']}")
    if given.out is not None:
        given.out.write_text(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main()
