"""Many visitors at once, then hostile ones: is anything lost, and do memory and disk come back?

    python benchmarks/serve_load.py [--quick] [--visitors N] [--rounds R] [--mixed M] [-o FILE.json]

This program starts `soundspot serve` as a separate process. In each round it calls it from N
clients at the same time, each with its own session and clip; two clips each are
identical byte by byte. A visitor counts as answered if it gets the same numbers as the same clip
alone. After each round all visitors leave. Then M mixed requests follow, six at a time: clips and
pictures of many sizes, broken files, calls whose answer nobody reads, addresses, bodies that are
too long. With --quick, visitors ask for one moment and the fastest model (a few minutes of CPU).

Memory is the server's resident set once it has nothing left to do. Before it is first looked at,
every model is used once, and a round and some mixed requests pass: weights are mapped, transformed
and kept when they are first used. The disk is what the server's folder holds, looked at all the
time; `Limits.disk_mb` limits it. The files left are those of the visitors of a round after they
have left. The exit code is 1 if anything was lost or left, if the disk became fuller than it may,
or if memory did not come back to within 5 %, after the rounds and after the mixed requests.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from gradio_client import Client, handle_file

from soundspot.media import clips as media
from soundspot.training.provenance import git_commit
from soundspot.web.comparing import trained_models
from soundspot.web.limits import MB, Limits

SECONDS, FPS, BLOCK = 4, 5, 40
SIZES = ((640, 360), (320, 240), (1920, 1080), (400, 800))
WARM_UP = 24  # mixed requests
BATCH = 50  # mixed requests between two looks at the memory
MOST_CHANGE = 5.0  # % of the memory
FASTEST = "names"
IDLE = 0.05  # s of CPU time in a second
PATIENCE = 600.0  # s, for busy machines


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

    def cpu_seconds(self) -> float:
        """The CPU time it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def settle(self) -> None:
        """Wait until there is nothing left to do."""
        before = -1.0
        while (now := self.cpu_seconds()) - before > IDLE:
            before = now
            time.sleep(1)

    def files(self) -> set[Path]:
        return {Path(root, name) for root, _, names in os.walk(self.folder) for name in names}

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


@dataclass(frozen=True)
class Asked:
    """What visitors ask for beside their clip."""

    at: float | None = None  # default: the best moment
    model: str | None = None  # default: the page's


def visit(
    url: str, clip: Path, asked: Asked, together: Callable[[], object] = lambda: None
) -> float:
    """The score that a new visitor gets for a clip."""
    # By default a client takes a server that is silent for 20 s for dead, and leaves.
    client = Client(url, verbose=False, httpx_kwargs={"timeout": PATIENCE})
    rest = {"sound": None, "compare": "nothing", "own": None, **asdict(asked)}
    try:
        together()
        numbers, _ = client.predict(file=handle_file(str(clip)), **rest, api_name="/localize")
        return float(numbers["maps"][0]["score"])
    finally:
        client.close()


def storm(
    url: str, clips: list[Path], asked: Asked, expected: dict[Path, float]
) -> tuple[int, float]:
    """Send all visitors at once; returns how many got the expected score, and the seconds."""
    barrier = threading.Barrier(len(clips))
    start = time.perf_counter()
    with ThreadPoolExecutor(len(clips)) as pool:
        visits = [pool.submit(visit, url, clip, asked, barrier.wait) for clip in clips]
        answers = [done.exception() or done.result() for done in visits]
    for error in {repr(answer)[:200] for answer in answers if isinstance(answer, BaseException)}:
        print(f"lost: {error}")
    right = sum(
        isinstance(answer, float) and abs(answer - expected[clip]) < 1e-4
        for clip, answer in zip(clips, answers, strict=True)
    )
    return right, round(time.perf_counter() - start, 1)


def left_behind(server: Server, before: set[Path]) -> int:
    """How many of the visitors' files remain, once the server has noticed that they left."""
    for _ in range(100):
        if not server.files() - before:
            break
        time.sleep(0.1)
    server.settle()
    return len(server.files() - before)


class Mixture:
    """Requests of programs that behave, and of some that do not."""

    def __init__(self, server: Server, folder: Path, asked: Asked) -> None:
        self.api = f"{server.url}gradio_api"
        self.asked = asked
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
        with httpx.Client(timeout=PATIENCE) as client:
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
            data = [file, sound, self.asked.at, self.asked.model, compare, None]
            called = client.post(f"{self.api}/call/localize", json={"data": data})
            if kind == "unread" or called.status_code != 200:
                return f"{kind} {called.status_code}"
            answer = client.get(f"{self.api}/call/localize/{called.json()['event_id']}")
            return f"{kind} {'answered' if 'event: complete' in answer.text else 'refused'}"

    def _upload(self, client: httpx.Client, path: Path) -> dict[str, Any]:
        answer = client.post(f"{self.api}/upload", files={"files": (path.name, path.read_bytes())})
        return {"path": answer.json()[0], "meta": {"_type": "gradio.FileData"}}


def make_clips(folder: Path, count: int, size: tuple[int, int]) -> list[Path]:
    """Clips in pairs of the same content: one file, or two, in turns."""
    clips = []
    for k in range(0, count, 2):
        path = make_clip(folder / f"{k}.mp4", k, size)
        twin = path if k % 4 == 0 else Path(shutil.copy(path, folder / f"{k + 1}.mp4"))
        clips += [path, twin][: count - k]
    return clips


def mix(mixture: Mixture, server: Server, numbers: range) -> tuple[Counter[str], float]:
    """Make mixed requests; returns what came of them, and the memory afterwards."""
    with ThreadPoolExecutor(6) as pool:
        outcomes = Counter(pool.map(mixture.request, numbers))
    server.settle()
    visit(server.url, mixture.clips[1], mixture.asked)  # it still answers, and tidies up
    server.settle()
    return outcomes, server.resident()


def measure(
    visitors: int, rounds: int, mixed: int, asked: Asked, port: int, folder: Path
) -> dict[str, Any]:
    clips = make_clips(folder, visitors, SIZES[0] if asked.model is None else SIZES[1])
    with started(folder, port) as server:
        launched = server.resident()
        for model in trained_models():
            visit(server.url, clips[0], Asked(model=model))
        expected = {clip: visit(server.url, clip, asked) for clip in sorted(set(clips))}
        mixture = Mixture(server, folder, asked)
        storm(server.url, clips, asked, expected)
        _, before = mix(mixture, server, range(WARM_UP))
        print(f"{launched} MB when launched, {before} MB when warm", flush=True)
        memory, answered, remaining = [before], [], 0
        for number in range(rounds):
            files = server.files()
            right, took = storm(server.url, clips, asked, expected)
            answered.append(right)
            remaining += left_behind(server, files)
            memory.append(server.resident())
            print(
                f"round {number + 1}: {right} of {visitors} in {took} s, {memory[-1]} MB",
                flush=True,
            )
        outcomes, mixed_memory = Counter[str](), []
        for start in range(0, mixed, BATCH):
            numbers = range(start, min(start + BATCH, mixed))
            some, resident = mix(mixture, server, numbers)
            outcomes += some
            mixed_memory.append(resident)
            print(f"{numbers.stop} mixed requests: {resident} MB", flush=True)
        cpu = server.cpu_seconds()
    return {
        "visitors": visitors,
        "answered": answered,
        "launched_mb": launched,
        "memory_mb": memory,
        "mixed_memory_mb": mixed_memory,
        "mixed": dict(sorted(outcomes.items())),
        "disk_mb": round(server.fullest / MB, 1),
        "disk_limit_mb": Limits().disk_mb,
        "files_left": remaining,
        "folder_removed": not server.folder.exists(),
        "server_cpu_s": round(cpu),
    }


def change(before: float, after: list[float]) -> float:
    """By how many percent memory differs at the end."""
    return 100 * (after[-1] / before - 1) if after else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--visitors", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--mixed", type=int, default=500)
    parser.add_argument("--port", type=int, default=7990)
    parser.add_argument("-o", "--out", type=Path)
    given = parser.parse_args()
    asked = Asked(at=SECONDS / 2, model=FASTEST) if given.quick else Asked()
    load = given.visitors, given.rounds, given.mixed
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(*load, asked, given.port, Path(folder))
    before, *after = measured["memory_mb"]
    changes = change(before, after), change(before, measured["mixed_memory_mb"])
    lost = sum(given.visitors - right for right in measured["answered"])
    print(f"lost: {lost}; memory {changes[0]:+.1f} % after rounds, {changes[1]:+.1f} % after mixed")
    print(f"mixed requests: {measured['mixed']}")
    print(f"fullest disk: {measured['disk_mb']} of {measured['disk_limit_mb']} MB")
    print(f"files left: {measured['files_left']}; folder removed: {measured['folder_removed']}")
    if given.out is not None:
        origin = {"command": " ".join(["python", *sys.argv]), "commit": git_commit()}
        given.out.write_text(json.dumps({**origin, **measured}, indent=2) + "\n")
    left = measured["files_left"] or not measured["folder_removed"]
    full = measured["disk_mb"] > measured["disk_limit_mb"]
    return int(lost > 0 or max(changes) > MOST_CHANGE or full or left)


if __name__ == "__main__":
    sys.exit(main())
