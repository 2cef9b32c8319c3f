"""Damage files of every kind, and see that reading them gives a result or one sentence.

    PYTHONPATH=tests python .ci/fuzz.py --count 2000 --seed 0

Every file is read in a child process, which is killed after a minute. What soundspot makes of a
file must be a result or a SoundspotError; anything else, a hang, a dead process or more than 2 GB
of memory, is printed, and the damaged file is kept.
"""

import argparse
import multiprocessing
import re
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from made_files import tiny_pair_set, write_media
from soundspot.common.errors import SoundspotError
from soundspot.common.id_lists import read_ids
from soundspot.data.pair_set import PairSet, find_problems
from soundspot.evaluation.saved_maps import SavedMaps
from soundspot.features.cache import FeatureCache
from soundspot.features.encoding import encode
from soundspot.features.spec import FeatureSpec
from soundspot.inference.moments import listen
from soundspot.media import clips
from soundspot.model import checkpoint
from soundspot.model.label_map import read_label_map
from soundspot.reproduce.results import read_results
from soundspot.training.optimizer import WeightAverage, make_optimizer
from soundspot.training.recipe import TrainConfig, read_recipe
from soundspot.training.run_folder import TrainState, load_state, save_state

ROOT = Path(__file__).parents[1]
SECONDS, MOST_KILOBYTES = 60, 2_000_000
IMAGES = ("jpg", "png", "webp", "bmp", "tiff", "gif", "ppm", "avif")
FINE = ("read", "refused")
PICTURE = np.random.default_rng(0).integers(0, 64, (64, 64, 3), np.uint8)
EXTREMES = (b"\x00" * 4, b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x00\x00\x00\x80", b"\x80\x00\x00\x00")
WORDS = ("-1", "0", "1e9", "1e40", "1e999", ".nan", "null", "true", "'x'", "[]", "{}", "\x00", "é")
NUMBER = re.compile(rb"-?\d+(\.\d+)?")
SPEC = FeatureSpec(visual="mobilenetv2", pretrained=False, views=2)
SMALL = {"c_v": 5, "c_a": 3, "projection": 7, "hidden": 11}
LABEL_MAP = "dog: Bark; Dog -> beagle ... husky\nclock: Tick -> clock\n"
LABELS = ("Bark", "Dog", "Tick"), ("beagle", "husky", "clock")


class Kind(NamedTuple):
    """A kind of file: what it is called, what writes an intact one, and what reads it."""

    file: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]
    text: bool = False  # numbers and words are damaged as well as bytes


def make(name: str, folder: Path) -> Path:
    """Write an intact file of a kind into a new folder."""
    folder.mkdir()
    KINDS[name].write(folder / KINDS[name].file)
    return folder / KINDS[name].file


def damage(data: bytes, seed: Sequence[int], text: bool) -> bytes:
    """One to four small injuries."""
    rng = np.random.default_rng(seed)
    for _ in range(rng.integers(1, 5)):
        data = _injure(bytearray(data), rng, text)
    return data


def _injure(data: bytearray, rng: np.random.Generator, text: bool) -> bytes:
    if not data:
        return b""
    at = int(rng.integers(min(len(data), rng.choice([512, len(data)]))))  # headers decide most
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
        case 6 if numbers := list(NUMBER.finditer(data)):
            span = numbers[rng.integers(len(numbers))].span()
            data[slice(*span)] = WORDS[rng.integers(len(WORDS))].encode()
        case 7:
            data[at:at] = b"[" * 5000 if rng.random() < 0.5 else b"&a [*a, *a, *a]\n"
    return bytes(data)


def _media(suffix: str, video: str | None, sound: str) -> Kind:
    read = _watch if video else lambda p: (clips.read_waveform(p), clips.read_sound(p))
    return Kind(f"clip.{suffix}", partial(write_media, video=video, sound=sound), read)


def _watch(path: Path) -> object:
    listen(path, 1e6, lambda sounds: np.ones((len(sounds), 1), np.float32))
    return clips.read_clip(path), list(islice(clips.iter_frames(path, 4.0), 40))


def _text(name: str, text: str, read: Callable[[Path], object]) -> Kind:
    return Kind(name, lambda path: path.write_text(text), read, text=True)


def _part_of_pair_set(name: str) -> Kind:
    def read(path: Path) -> object:
        return find_problems(PairSet.open(path.parent))

    return Kind(f"pairs/{name}", lambda path: tiny_pair_set(path.parent), read, text=True)


def _part_of_cache(name: str, text: bool) -> Kind:
    def write(path: Path) -> None:
        encode(tiny_pair_set(path.parents[2], train=1), path.parent, SPEC)

    def read(path: Path) -> object:
        pairs = PairSet.open(path.parents[2])
        frames = [pair.frame for pair in pairs.select("val")]
        return FeatureCache.open(path.parent, pairs, SPEC).evaluation(frames)

    return Kind(f"pairs/features/made/{name}", write, read, text)


def _write_checkpoint(path: Path) -> None:
    method = checkpoint.build_method("sspl", SMALL)
    checkpoint.save(path, method, checkpoint.Card("sspl", vars(method.config), SPEC))


def _run() -> tuple[Any, Any, Any]:
    method = checkpoint.build_method("sspl", SMALL)
    return method, WeightAverage(method, 0.5), make_optimizer(method, TrainConfig())


def _read_state(path: Path) -> object:
    return load_state(path, *_run(), torch.device("cpu"), steps_per_epoch=2)


def _write_maps(path: Path) -> None:
    np.savez(path, a=np.ones((14, 14), np.float32), b=np.zeros((14, 14), np.float32))


def _read_recipe(path: Path) -> object:
    recipe = read_recipe(path)
    return checkpoint.build_method(recipe.method, {**recipe.model, "c_v": 5, "c_a": 3})


KINDS: dict[str, Kind] = {
    "mp4": _media("mp4", "libx264", "aac"),
    "mkv": _media("mkv", "libx264", "aac"),
    "mov": _media("mov", "mjpeg", "aac"),
    "webm": _media("webm", "libvpx", "libopus"),
    "av1": _media("webm", "libsvtav1", "libopus"),
    "avi": _media("avi", "mpeg4", "mp2"),
    "flv": _media("flv", "flv1", "aac"),
    "ts": _media("ts", "libx264", "aac"),
    "wav": _media("wav", None, "pcm_s16le"),
    "flac": _media("flac", None, "flac"),
    "mp3": _media("mp3", None, "libmp3lame"),
    "ogg": _media("ogg", None, "libopus"),
    "m4a": _media("m4a", None, "aac"),
    **{
        image: Kind(f"i.{image}", Image.fromarray(PICTURE).save, clips.read_frame)
        for image in IMAGES
    },
    "recipe": _text(
        "recipe.yaml", (ROOT / "recipes/escvoc_sspl_pcm.yaml").read_text(), _read_recipe
    ),
    "pairset.json": _part_of_pair_set("pairset.json"),
    "pairs.jsonl": _part_of_pair_set("pairs.jsonl"),
    "features.json": _part_of_cache("features.json", text=True),
    "eval-00000.npy": _part_of_cache("eval-00000.npy", text=False),
    "checkpoint": Kind("m.safetensors", _write_checkpoint, checkpoint.load, text=True),
    "state": Kind("state.pt", lambda p: save_state(p, TrainState(step=3), *_run()), _read_state),
    "label map": _text("labels.yaml", LABEL_MAP, lambda path: read_label_map(path, *LABELS)),
    "ids": _text("ids.csv", "---g-f_I2yQ,1,a\n--0PQM4-hqg,30,b\n", read_ids),
    "maps": Kind("maps.npz", _write_maps, lambda path: SavedMaps(path.parent).read(["a", "b"])),
    "results": _text(
        "fusion.json", (ROOT / "results/reproduce/fusion.json").read_text(), read_results
    ),
}


def read_damaged(name: str, path: Path) -> str:
    """Read a damaged file: "read", "refused", or what is wrong."""
    try:
        KINDS[name].read(path)
    except SoundspotError as error:
        return "refused" if "\n" not in str(error) else f"several lines: {error}"
    except Exception:
        return traceback.format_exc()
    return "read"


class Reader:
    """A process that reads files, and is replaced if it hangs, dies or grows."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin anew, with nothing that hangs."""
        self.pool = multiprocessing.get_context("spawn").Pool(1)
        self.pool.apply(int)  # until all is imported

    def read(self, name: str, path: Path) -> str:
        """Says "read", "refused", or what is wrong."""
        try:
            answer, kilobytes = self.pool.apply_async(_read_and_weigh, (name, path)).get(SECONDS)
            trouble = f"{kilobytes} KB of memory" if kilobytes > MOST_KILOBYTES else ""
        except multiprocessing.TimeoutError:  # a process that died does not answer either
            trouble = f"no answer in {SECONDS} s"
        if trouble:
            self.pool.terminate()
            self.start()
        return trouble or answer


def _read_and_weigh(name: str, path: Path) -> tuple[str, int]:
    answer = read_damaged(name, path)
    # getrusage would count what the parent had when it started this process.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return answer, int(status.partition("VmHWM:")[2].split()[0])


def main() -> int:
    """Fuzz, print what happened, and return 1 if anything was wrong."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--count", type=int, default=2000)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--kind", action="append", choices=list(KINDS))
    given = words.parse_args()
    names, reader, broken = given.kind or list(KINDS), Reader(), 0
    keep = Path(tempfile.mkdtemp(prefix="soundspot-fuzz-"))
    for first, name in enumerate(names):
        path, answers = make(name, keep / name), Counter[str]()
        assert reader.read(name, path) == "read", f"the intact {name} is not read"
        whole = path.read_bytes()
        for number in range(first, given.count, len(names)):
            path.write_bytes(damage(whole, (given.seed, number), KINDS[name].text))
            answer = reader.read(name, path)
            answers[answer if answer in FINE else "BROKEN"] += 1
            if answer not in FINE:
                shutil.copy(path, keep / f"{number}-{path.name}")
                print(f"--- {name}, file {number}:\n{answer}", flush=True)
        print(f"{name:16}", dict(answers), flush=True)
        broken += answers["BROKEN"]
    print(f"{given.count} files, {broken} broke it; seed {given.seed}, files in {keep}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
