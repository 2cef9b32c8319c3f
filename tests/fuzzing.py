"""Damage files of every kind, and see that reading them gives a result or one sentence.

    python tests/fuzzing.py --count 2000 --seed 0

Every file is read in a child process, which is killed after a minute. What soundspot makes of a
file must be a result or a SoundspotError; anything else, a hang, a dead process or more than 2 GB
of memory, is printed, and the damaged file is kept.
"""

import argparse
import json
import multiprocessing
import os
import re
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SECONDS, MEGABYTES = 60, 2_000
WIDTH, HEIGHT = 64, 64  # AV1 is no smaller
IMAGES = ("jpg", "png", "webp", "bmp", "tiff", "gif", "ppm", "avif")
EXTREMES = (b"\x00" * 4, b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x00\x00\x00\x80", b"\x80\x00\x00\x00")
WORDS = ("-1", "0", "1e9", "1e40", "1e999", ".nan", "null", "true", "'x'", "[]", "{}", "\x00", "é")
NUMBER = re.compile(rb"-?\d+(\.\d+)?")

Rng = np.random.Generator


@dataclass(frozen=True)
class Kind:
    """A kind of file: how an intact one is made in a folder, and how soundspot reads it there.

    Attributes:
        make: Writes what is needed into the folder, and returns the file to damage.
        read: Reads that file.
        text: Whether numbers and words are damaged as well as bytes.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], object]
    text: bool = False


class Outcome(NamedTuple):
    """What came of one damaged file; `trouble` is None if all is well."""

    kind: str
    number: int
    answer: str
    trouble: str | None


def damage(data: bytes, rng: Rng, text: bool) -> bytes:
    """One to four small injuries."""
    for _ in range(rng.integers(1, 5)):
        data = _injure(bytearray(data), rng, text)
    return data


def _injure(data: bytearray, rng: Rng, text: bool) -> bytes:
    if not data:
        return bytes(data)
    at = int(rng.integers(len(data)))
    if rng.random() < 0.5:
        at = int(rng.integers(min(len(data), 512)))  # headers decide most
    size = int(rng.integers(1, 64))
    match rng.integers(8 if text else 6):
        case 0:
            data[at] ^= 1 << int(rng.integers(8))
        case 1:
            data[at : at + size] = rng.bytes(min(size, len(data) - at))
        case 2:
            del data[at:]
        case 3:
            del data[at : at + size]
        case 4:
            data[at:at] = data[at : at + size] * int(rng.integers(1, 4))
        case 5:
            data[at : at + 4] = EXTREMES[rng.integers(len(EXTREMES))]
        case 6:
            numbers = list(NUMBER.finditer(data))
            if numbers:
                span = numbers[rng.integers(len(numbers))].span()
                data[slice(*span)] = WORDS[rng.integers(len(WORDS))].encode()
        case 7:
            data[at:at] = b"[" * 5000 if rng.random() < 0.5 else b"&a [*a, *a, *a]\n"
    return bytes(data)


def _moving(count: int) -> list[np.ndarray]:
    pictures = np.random.default_rng(0).integers(0, 255, (count, HEIGHT, WIDTH, 3), dtype=np.uint8)
    return list(pictures // 4 + np.arange(count, dtype=np.uint8)[:, None, None, None])


def _tone(rate: int) -> np.ndarray:
    return (0.5 * np.sin(np.arange(2 * rate) / 20)).astype(np.float32)


def _add_sound(output: Any, codec: str) -> Any:
    return output.add_stream(codec, rate=48_000, layout="mono")


def _encode_tone(output: Any, stream: Any) -> None:
    import av

    block = av.AudioFrame.from_ndarray(_tone(stream.rate)[None], "fltp", "mono")
    block.sample_rate, block.pts = stream.rate, 0
    resampler = av.AudioResampler(stream.format, "mono", stream.rate, stream.frame_size or 1024)
    for part in [*resampler.resample(block), *resampler.resample(None)]:
        output.mux(stream.encode(part))
    output.mux(stream.encode(None))


@contextmanager
def _as_urgent_as_before() -> Iterator[None]:
    """Take back the real-time priority that SVT-AV1 gives to root's thread that encodes.

    Whatever it starts later would inherit it, and two such processes that wait for others in a loop
    stop a machine of two cores.
    """
    if not hasattr(os, "sched_setscheduler"):  # neither macOS nor Windows
        yield
        return
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def _video(suffix: str, video: str, sound: str) -> Kind:
    def make(folder: Path) -> Path:
        import av

        path = folder / f"v.{suffix}"
        with _as_urgent_as_before(), av.open(str(path), "w") as output:
            pictures: Any = output.add_stream(video, rate=10)
            pictures.width, pictures.height = WIDTH, HEIGHT
            pictures.pix_fmt = "yuvj420p" if video == "mjpeg" else "yuv420p"
            heard = _add_sound(output, sound)
            packets = []
            for number, picture in enumerate(_moving(20)):
                frame = av.VideoFrame.from_ndarray(picture, "rgb24")
                frame.pts, frame.time_base = number, Fraction(1, 10)
                packets += pictures.encode(frame)
            packets += pictures.encode(None)
            output.mux(packets)
            _encode_tone(output, heard)
        return path

    return Kind(make, _watch)


def _watch(path: Path) -> object:
    from soundspot.inference.moments import listen
    from soundspot.media import clips

    clip = clips.read_clip(path)
    frames = list(islice(clips.iter_frames(path, 4.0), 40))
    listen(path, 1e6, lambda sounds: np.ones((len(sounds), 1), np.float32))
    return clip, frames


def _sound(suffix: str, codec: str) -> Kind:
    def make(folder: Path) -> Path:
        import av

        path = folder / f"s.{suffix}"
        with av.open(str(path), "w") as output:
            _encode_tone(output, _add_sound(output, codec))
        return path

    def hear(path: Path) -> object:
        from soundspot.media import clips

        return clips.read_waveform(path), clips.read_sound(path)

    return Kind(make, hear)


def _image(suffix: str) -> Kind:
    def make(folder: Path) -> Path:
        from PIL import Image

        path = folder / f"i.{suffix}"
        Image.fromarray(_moving(1)[0]).save(path)
        return path

    def look(path: Path) -> object:
        from soundspot.media import clips

        return clips.read_frame(path)

    return Kind(make, look)


def _recipe(folder: Path) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(
        "pairs: pairs\nmethod: sspl\nmodel: {pcm: true, cycles: 3, alignment: 1.5}\n"
        "features: {visual: vgg16, audio: yamnet, views: 2}\n"
        "train: {epochs: 2, batch: 4, lr: 5e-4, seed: 3, select: ciou}\n"
    )
    return path


def _read_recipe(path: Path) -> object:
    from soundspot.model.checkpoint import build_method
    from soundspot.training.recipe import read_recipe

    recipe = read_recipe(path)
    return build_method(recipe.method, {**recipe.model, "c_v": 5, "c_a": 3})


def _pair_set(folder: Path) -> Path:
    from soundspot.data.pair_set import Pair
    from soundspot.data.writer import PairWriter

    root = folder / "pairs"
    writer = PairWriter(root, "made", "event", {})
    writer.begin()
    picture = np.full((256, 256, 3), 99, np.uint8)
    pairs = []
    for number, split in enumerate(("train", "train", "val")):
        frame = writer.add_frame(f"f{number}", lambda: picture)
        sound = writer.add_sound(f"s{number}", lambda: _tone(16_000).repeat(2)[:48_000])
        boxes = ((0.1, 0.2, 0.5, 0.75),)
        pairs.append(Pair(f"p{number}", frame, sound, split, "a", (boxes,)))
    writer.finish(pairs, [], ())
    return root


def _part_of_pair_set(name: str) -> Kind:
    def read(path: Path) -> object:
        from soundspot.data.pair_set import PairSet, find_problems

        return find_problems(PairSet.open(path.parent))

    return Kind(lambda folder: _pair_set(folder) / name, read, text=True)


def _part_of_cache(name: str) -> Kind:
    def make(folder: Path) -> Path:
        from soundspot.data.pair_set import PairSet
        from soundspot.features.encoding import encode
        from soundspot.features.spec import FeatureSpec

        pairs = PairSet.open(_pair_set(folder))
        spec = FeatureSpec(pretrained=False, views=2)
        return encode(pairs, pairs.root / "features" / "made", spec).folder / name

    def read(path: Path) -> object:
        from soundspot.data.pair_set import PairSet
        from soundspot.features.cache import FeatureCache
        from soundspot.features.spec import FeatureSpec

        pairs = PairSet.open(path.parents[2])
        cache = FeatureCache.open(path.parent, pairs, FeatureSpec(pretrained=False, views=2))
        return cache.evaluation([pair.frame for pair in pairs.select("val")])

    return Kind(make, read, text=name.endswith("json"))


def _checkpoint(folder: Path) -> Path:
    from soundspot.features.spec import FeatureSpec
    from soundspot.model import checkpoint

    method = checkpoint.build_method("sspl", {"c_v": 5, "c_a": 3, "projection": 7, "hidden": 11})
    path = folder / "model.safetensors"
    card = checkpoint.Card("sspl", vars(method.config), replace(FeatureSpec(), pretrained=False))
    checkpoint.save(path, method, card)
    return path


def _read_checkpoint(path: Path) -> object:
    from soundspot.model import checkpoint

    return checkpoint.load(path)


def _parts_of_run() -> tuple[Any, Any, Any]:
    from soundspot.model.methods.sspl import SSPL, SSPLConfig
    from soundspot.training.average import WeightAverage
    from soundspot.training.optimizer import make_optimizer
    from soundspot.training.recipe import TrainConfig

    method = SSPL(SSPLConfig(c_v=5, c_a=3, projection=7, hidden=11))
    return method, WeightAverage(method, 0.5), make_optimizer(method, TrainConfig())


def _state(folder: Path) -> Path:
    from soundspot.training.state import TrainState, save_state

    save_state(folder / "state.pt", TrainState(step=3), *_parts_of_run())
    return folder / "state.pt"


def _read_state(path: Path) -> object:
    import torch

    from soundspot.training.state import load_state

    return load_state(path, *_parts_of_run(), torch.device("cpu"), steps_per_epoch=2)


def _bridge(folder: Path) -> Path:
    path = folder / "bridge.yaml"
    path.write_text("dog: Bark; Dog -> beagle ... husky\nclock: Tick -> clock\n")
    return path


def _read_bridge(path: Path) -> object:
    from soundspot.model.bridge import read_bridge

    return read_bridge(path, ("Bark", "Dog", "Tick"), ("beagle", "husky", "clock"))


def _ids(folder: Path) -> Path:
    path = folder / "ids.csv"
    path.write_text("---g-f_I2yQ,1,a\n--0PQM4-hqg,30,b\n")
    return path


def _read_ids(path: Path) -> object:
    from soundspot.common.id_lists import read_ids

    return read_ids(path)


def _maps(folder: Path) -> Path:
    path = folder / "maps.npz"
    np.savez(path, a=np.ones((14, 14), np.float32), b=np.zeros((14, 14), np.float32))
    return path


def _read_maps(path: Path) -> object:
    from soundspot.evaluation.saved_maps import SavedMaps

    return SavedMaps(path.parent).read(["a", "b"])


def _results(folder: Path) -> Path:
    source = Path(__file__).parents[1] / "results" / "reproduce" / "fusion.json"
    path = folder / "fusion.json"
    path.write_text(json.dumps(json.loads(source.read_text()), indent=1))
    return path


def _read_results(path: Path) -> object:
    from soundspot.reproduce.results import read_results

    return read_results(path)


KINDS: dict[str, Kind] = {
    "mp4": _video("mp4", "libx264", "aac"),
    "mkv": _video("mkv", "libx264", "aac"),
    "mov": _video("mov", "mjpeg", "aac"),
    "webm": _video("webm", "libvpx", "libopus"),
    "av1": _video("webm", "libsvtav1", "libopus"),
    "avi": _video("avi", "mpeg4", "mp2"),
    "flv": _video("flv", "flv1", "aac"),
    "ts": _video("ts", "libx264", "aac"),
    "wav": _sound("wav", "pcm_s16le"),
    "flac": _sound("flac", "flac"),
    "mp3": _sound("mp3", "libmp3lame"),
    "ogg": _sound("ogg", "libopus"),
    "m4a": _sound("m4a", "aac"),
    **{suffix: _image(suffix) for suffix in IMAGES},
    "recipe": Kind(_recipe, _read_recipe, text=True),
    "pairset.json": _part_of_pair_set("pairset.json"),
    "pairs.jsonl": _part_of_pair_set("pairs.jsonl"),
    "features.json": _part_of_cache("features.json"),
    "eval-00000.npy": _part_of_cache("eval-00000.npy"),
    "checkpoint": Kind(_checkpoint, _read_checkpoint, text=True),
    "state": Kind(_state, _read_state),
    "bridge": Kind(_bridge, _read_bridge, text=True),
    "ids": Kind(_ids, _read_ids, text=True),
    "maps": Kind(_maps, _read_maps),
    "results": Kind(_results, _read_results, text=True),
}


def read_damaged(kind: Kind, path: Path) -> str:
    """Read a damaged file: "read", "refused", or the traceback."""
    from soundspot.common.errors import SoundspotError

    try:
        kind.read(path)
    except SoundspotError as error:
        return "refused" if "\n" not in str(error) else f"several lines: {error}"
    except Exception:
        return traceback.format_exc()
    return "read"


def _child(pipe: Any) -> None:
    """Read what the parent names until it says nothing more."""
    sys.stderr = open("/dev/null", "w")  # noqa: PTH123, SIM115
    while (job := pipe.recv()) is not None:
        name, path = job
        answer = read_damaged(KINDS[name], Path(path))
        pipe.send((answer, _peak_megabytes()))


def _peak_megabytes() -> int:
    # getrusage would count what the parent had when it started this process.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) // 1024


class Reader:
    """A child process that is replaced if it hangs, dies or grows."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_child, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def stop(self) -> None:
        self.process.kill()
        self.process.join()

    def read(self, name: str, path: Path) -> tuple[str, str | None]:
        """The answer, and what is wrong with it."""
        try:
            self.pipe.send((name, str(path)))
            if not self.pipe.poll(SECONDS):
                trouble = f"no answer in {SECONDS} s"
            else:
                answer, megabytes = self.pipe.recv()
                if megabytes <= MEGABYTES:
                    return answer, None if answer in ("read", "refused") else answer
                trouble = f"{megabytes} MB of memory"
        except (EOFError, OSError):
            trouble = "the process died"
        self.stop()
        self._start()
        return trouble, trouble


def fuzz(names: list[str], count: int, seed: int, keep: Path) -> Iterator[Outcome]:
    """Damage `count` files, in turns of every kind, in two processes."""
    intact = {}
    for name in names:
        folder = keep / "intact" / name
        folder.mkdir(parents=True, exist_ok=True)
        intact[name] = KINDS[name].make(folder)
        answer = read_damaged(KINDS[name], intact[name])
        if answer != "read":
            raise RuntimeError(f"the intact {name} is not read: {answer}")

    def lane(first: int) -> Iterator[Outcome]:
        reader = Reader()
        try:
            for number in range(first, count, 2):
                name = names[number % len(names)]
                original = intact[name]
                whole = original.read_bytes()
                damaged = damage(whole, np.random.default_rng([seed, number]), KINDS[name].text)
                place = _beside(original, keep, first)
                place.write_bytes(damaged)
                answer, trouble = reader.read(name, place)
                if trouble is not None:
                    (keep / f"{number}-{original.name}").write_bytes(damaged)
                yield Outcome(name, number, answer, trouble)
        finally:
            reader.stop()

    with ThreadPoolExecutor(2) as pool:
        for outcomes in pool.map(lambda first: list(lane(first)), range(2)):
            yield from outcomes


def _beside(original: Path, keep: Path, lane: int) -> Path:
    """The same file in this lane's copy of the folder, so that lanes do not disturb each other."""
    import shutil

    intact = keep / "intact"
    mine = keep / f"lane-{lane}"
    place = mine / original.relative_to(intact)
    if not place.parent.exists():
        top = original.relative_to(intact).parts[0]
        shutil.copytree(intact / top, mine / top)
    return place


def main() -> int:
    """Fuzz, print what happened, and return 1 if anything was wrong."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--count", type=int, default=2000)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--kind", action="append", choices=list(KINDS))
    words.add_argument("--keep", type=Path, default=None, help="folder for files that broke it")
    given = words.parse_args()
    keep = given.keep or Path(tempfile.mkdtemp(prefix="soundspot-fuzz-"))
    counted: Counter[tuple[str, str]] = Counter()
    bad = 0
    for outcome in fuzz(given.kind or list(KINDS), given.count, given.seed, keep):
        answer = outcome.answer if outcome.trouble is None else "BROKEN"
        counted[outcome.kind, answer] += 1
        if outcome.trouble is not None:
            bad += 1
            print(f"--- {outcome.kind}, file {outcome.number}:\n{outcome.trouble}")
    for name in given.kind or list(KINDS):
        row = {answer: n for (kind, answer), n in counted.items() if kind == name}
        print(f"{name:16}", ", ".join(f"{answer} {n}" for answer, n in sorted(row.items())))
    print(f"{given.count} files, {bad} broke it; seed {given.seed}, files in {keep}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
