"""Sounds, pictures and a pair set that tests make, and the files of a folder to compare."""

import importlib.util
import os
import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import av
import numpy as np
import yaml

from soundspot.cli import main
from soundspot.common.config import to_dict
from soundspot.data.pair_set import Pair, PairSet, Sound
from soundspot.data.writer import PairWriter
from soundspot.features.spec import FeatureSpec
from soundspot.media.clips import write_video
from soundspot.model import checkpoint
from soundspot.model.methods.sspl import SSPLConfig

# A random VGG16 with few channels inside, where its features mean nothing.
THIN_VGG16 = (*(8, 8, None) * 2, *(8, 8, 8, None) * 2, 8, 8, 512)


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


def install(folder: Path, group: str, line: str) -> None:
    """What an installed package leaves behind that has one entry point."""
    info = folder / "toybox-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toybox\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[soundspot.{group}]\n{line}\n")


@contextmanager
def limited(what: int, most: int) -> Iterator[None]:
    """Of a resource, such as the size of files, this process has no more."""
    before = resource.getrlimit(what)
    resource.setrlimit(what, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(what, before)


def small_model(
    folder: Path, seed: int = 0, provenance: dict | None = None, name: str = "best", **changes: Any
) -> str:
    """Write a checkpoint that needs no pretrained encoders; its folder as text."""
    config = to_dict(SSPLConfig(c_a=1024, hidden=29, projection=31, **changes))
    spec = FeatureSpec(pretrained=False, seed=seed)
    card = checkpoint.Card("sspl", config, spec, provenance=provenance or {})
    checkpoint.save(folder / f"{name}.safetensors", checkpoint.build_method("sspl", config), card)
    return str(folder)


def tiny_recipe(path: Path, pairs: Path | str, model: dict | None = None, **train: Any) -> Path:
    """A recipe for the tiny pair set, on encoders that need no weights."""
    values = {
        "pairs": str(pairs),
        "model": {"projection": 7, "hidden": 13, **(model or {})},
        "features": {"pretrained": False, "views": 2},
        "train": {"epochs": 2, "batch": 4, **train},
    }
    path.write_text(yaml.safe_dump(values))
    return path


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


def write_clip(
    path: Path,
    *,
    pictures: Sequence[np.ndarray] = (),
    sound: np.ndarray | None = None,
    video_codec: str = "libx264",
    sound_codec: str = "aac",
    times: Sequence[int] | None = None,
    rate: int = 44_100,
    sound_times: dict[int, int] | None = None,
    key_frames: int = 7,
    b_frames: int = 2,
    turn: tuple[float, bool, bool] | None = None,
    options: dict[str, str] | None = None,
) -> Path:
    """Encode pictures (at times in tenths of a second) and sound (channels x samples or mono).

    `sound_times` maps a sample's number to its place in time, from which on the sound goes on.
    """
    with av.open(str(path), "w", options=options or {}) as output:
        packets: list[Any] = []
        if len(pictures):
            video: Any = output.add_stream(video_codec, rate=10)
            video.height, video.width = pictures[0].shape[:2]
            video.pix_fmt = "yuvj420p" if video_codec == "mjpeg" else "yuv420p"
            video.gop_size, video.bit_rate = key_frames, 4_000_000
            if video_codec == "libx264":
                video.max_b_frames = b_frames
            if turn is not None:
                video.set_display_rotation(turn[0], hflip=turn[1], vflip=turn[2])
        if sound is not None:
            channels = np.atleast_2d(sound)
            layout = {1: "mono", 2: "stereo"}[len(channels)]
            # AAC's noise substitution is drawn by the decoder, from wherever it started.
            exact = {"aac_pns": "0"} if sound_codec == "aac" else {}
            audio: Any = output.add_stream(sound_codec, rate=rate, layout=layout, options=exact)
        for index, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, "rgb24")
            frame.pts = index if times is None else times[index]
            frame.time_base = Fraction(1, 10)
            packets += video.encode(frame)
        if len(pictures):
            packets += video.encode(None)
        if sound is not None:
            shift = 0
            for start in range(0, channels.shape[1], 1024):
                for place, time in (sound_times or {}).items():
                    if start <= place < start + 1024:
                        shift = time - start
                block = np.ascontiguousarray(channels[:, start : start + 1024])
                samples = av.AudioFrame.from_ndarray(block, "fltp", layout)
                samples.sample_rate = rate
                samples.pts, samples.time_base = start + shift, Fraction(1, rate)
                packets += audio.encode(samples)
            packets += audio.encode(None)
        # Interleave by time, as a real file is.
        for packet in sorted(packets, key=lambda p: p.dts * p.time_base):
            output.mux(packet)
    return path


def write_media(path: Path, video: str | None, sound: str) -> None:
    """Two seconds of a tone, with pictures or without."""
    before = None
    if hasattr(os, "sched_setscheduler"):  # neither macOS nor Windows
        before = os.sched_getscheduler(0), os.sched_getparam(0)
    picture = np.random.default_rng(0).integers(0, 64, (64, 64, 3), np.uint8)  # AV1 is no smaller
    write_clip(
        path,
        pictures=[picture + np.uint8(k) for k in range(20)] if video else (),
        sound=tone(382, 2, 48_000),
        video_codec=video or "",
        sound_codec=sound,
        rate=48_000,
    )
    # SVT-AV1 gives root's thread that encodes a real-time priority, which all that it starts later
    # would inherit; two such processes that wait for others stop a machine of two cores.
    if before is not None:
        os.sched_setscheduler(0, *before)


def one_color(path: Path, shade: int, sound: np.ndarray | None = None, seconds: int = 4) -> None:
    """A small video of one color, with the given sound or a hum."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frames = [np.full((48, 64, 3), shade, np.uint8)] * (5 * seconds)
    write_video(path, frames, tone(200.0 + shade, seconds) if sound is None else sound, 5.0)
