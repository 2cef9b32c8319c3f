"""Sounds, pictures and a pair set that tests make, and the files of a folder to compare."""

import importlib.util
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import av
import numpy as np

from soundspot.cli import main
from soundspot.common.config import to_dict
from soundspot.data.pair_set import Pair, PairSet, Sound
from soundspot.data.writer import PairWriter
from soundspot.features.spec import FeatureSpec
from soundspot.model import checkpoint
from soundspot.model.methods.sspl import SSPLConfig


def tree(root: Path) -> dict[str, bytes]:
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def load_script(path: Path) -> ModuleType:
    """A script outside of the package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def refused(capsys: Any, *words: object) -> str:
    """The one sentence with which the command line refuses."""
    assert main([str(word) for word in words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("soundspot: ") and said.err.count("\n") == 1
    return said.err


@contextmanager
def limited(what: int, most: int) -> Iterator[None]:
    """Of a resource, such as the size of files, this process has no more."""
    before = resource.getrlimit(what)
    resource.setrlimit(what, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(what, before)


def small_model(folder: Path, seed: int = 0, provenance: dict | None = None, **changes: Any) -> str:
    """Write a checkpoint that needs no pretrained encoders; its folder as text."""
    config = to_dict(SSPLConfig(c_a=1024, hidden=29, projection=31, **changes))
    spec = FeatureSpec(pretrained=False, seed=seed)
    card = checkpoint.Card("sspl", config, spec, provenance=provenance or {})
    checkpoint.save(folder / "best.safetensors", checkpoint.build_method("sspl", config), card)
    return str(folder)


def save_maps(folder: Path, maps: dict[str, np.ndarray]) -> Path:
    """A new folder with a file for each map."""
    folder.mkdir()
    for name, values in maps.items():
        np.save(folder / f"{name}.npy", values)
    return folder


def tone(hertz: float, seconds: float, rate: int = 16_000) -> np.ndarray:
    times = np.arange(round(seconds * rate)) / rate
    return (0.5 * np.sin(2 * np.pi * hertz * times)).astype(np.float32)


def tiny_pair_set(root: Path, train: int = 11) -> PairSet:
    """A pair set in two classes: a bright square that hums high, a dark one that hums low.

    `train` training frames, five for validation with boxes, one duet.
    """
    writer = PairWriter(root, "tiny", "class", {})
    writer.begin()
    rng = np.random.default_rng(0)

    def frame(cls, at):
        image = rng.integers(90, 110, (256, 256, 3), dtype=np.uint8)
        image[64:192, at : at + 96] = 250 if cls == "high" else 10
        return image

    def hum(cls, k):
        return tone((1700 if cls == "high" else 230) * (1 + k / 50), 3)

    classes, pairs, sounds = ("high", "low"), [], []
    for split in ("train", "val"):
        for k in range(4):
            cls = classes[k % 2]
            key = f"{split}-{k}"
            detune = k if split == "train" else k + 7
            audio = writer.add_sound(key, lambda c=cls, k=detune: hum(c, k))
            sounds.append(Sound(key, audio, split, cls))
    for k in range(train):
        name = writer.add_frame(f"train-{k}", lambda k=k: frame(classes[k % 2], 13 * k))
        pairs.append(Pair(f"train-{k}", name, None, "train", classes[k % 2]))
    for k in range(5):
        left = 29 * k
        name = writer.add_frame(f"val-{k}", lambda k=k, x=left: frame(classes[k % 2], x))
        box = (left / 256, 0.25, (left + 96) / 256, 0.75)
        audio = f"sounds/val-{k % 4}.flac"
        pairs.append(Pair(f"val-{k}", name, audio, "val", classes[k % 2], ((box,),)))

    def duet():
        image = frame("high", 16)
        image[64:192, 144:240] = 10
        return image

    name = writer.add_frame("duet", duet)
    for side, cls, x, k in (("left", "high", 16, 0), ("right", "low", 144, 1)):
        box = (x / 256, 0.25, (x + 96) / 256, 0.75)
        pairs.append(
            Pair(f"duet-{side}", name, f"sounds/val-{k}.flac", "duets-val", cls, ((box,),), "duet")
        )
    writer.finish(pairs, sounds, ())
    return PairSet.open(root)


def write_media(path: Path, video: str | None, sound: str) -> None:
    """Two seconds of a tone, with pictures or without."""
    before = None
    if hasattr(os, "sched_setscheduler"):  # neither macOS nor Windows
        before = os.sched_getscheduler(0), os.sched_getparam(0)
    with av.open(str(path), "w") as output:
        seen: Any = output.add_stream(video, rate=10) if video else None
        heard: Any = output.add_stream(sound, rate=48_000, layout="mono")
        picture = np.random.default_rng(0).integers(0, 64, (64, 64, 3), np.uint8)
        if video:
            seen.width = seen.height = 64  # AV1 is no smaller
            seen.pix_fmt = "yuvj420p" if video == "mjpeg" else "yuv420p"
            for number in range(20):
                frame = av.VideoFrame.from_ndarray(picture + np.uint8(number), "rgb24")
                frame.pts, frame.time_base = number, Fraction(1, 10)
                output.mux(seen.encode(frame))
            output.mux(seen.encode(None))
        tone = (0.5 * np.sin(np.arange(96_000) / 20)).astype(np.float32)
        block = av.AudioFrame.from_ndarray(tone[None], "fltp", "mono")
        block.sample_rate, block.pts = 48_000, 0
        resampler = av.AudioResampler(heard.format, "mono", 48_000, heard.frame_size or 1024)
        for part in [*resampler.resample(block), *resampler.resample(None), None]:
            output.mux(heard.encode(part))
    # SVT-AV1 gives root's thread that encodes a real-time priority, which all that it starts later
    # would inherit; two such processes that wait for others stop a machine of two cores.
    if before is not None:
        os.sched_setscheduler(0, *before)
