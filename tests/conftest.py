"""Fixtures: seeds, the development data where they are present, and a tiny pair set."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from soundspot.encoders import products, vgg16

# On a busy machine two threads that wait for each other are slower than one by far.
torch.set_num_threads(1)

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=[False, True], ids=["torch", "onednn"])
def either_library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiply float32 by either library, whatever the processor is."""
    if request.param and not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this torch was built without oneDNN")
    monkeypatch.setattr(products, "_onednn_is_faster", lambda: request.param)


@pytest.fixture(scope="module")
def thin_vgg16() -> Iterator[None]:
    """A random VGG16 with few channels inside, for tests to which its features mean nothing."""
    thin = (8, 8, None, 8, 8, None, 8, 8, 8, None, 8, 8, 8, None, 8, 8, vgg16.CHANNELS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vgg16, "LAYOUT", thin)
        yield


@pytest.fixture
def shared_data() -> Path:
    if not SHARED.is_dir():
        pytest.skip(f"the development data are not at {SHARED}")
    return SHARED


@pytest.fixture(scope="session")
def tiny_pairs(tmp_path_factory):
    """A pair set in two classes: a bright square that hums high, a dark one that hums low.

    Eleven training frames, five for validation with boxes, one duet. Do not write into it.
    """
    from soundspot.data.pair_set import Pair, PairSet, Sound
    from soundspot.data.writer import PairWriter

    root = tmp_path_factory.mktemp("tiny") / "pairs"
    writer = PairWriter(root, "tiny", "class", {})
    writer.begin()
    rng = np.random.default_rng(0)

    def frame(cls, at):
        image = rng.integers(90, 110, (256, 256, 3), dtype=np.uint8)
        image[64:192, at : at + 96] = 250 if cls == "high" else 10
        return image

    def tone(cls, k):
        t = np.arange(48_000) / 16_000
        return (
            0.5 * np.sin(2 * np.pi * (1700 if cls == "high" else 230) * t * (1 + k / 50))
        ).astype(np.float32)

    classes, pairs, sounds = ("high", "low"), [], []
    for split in ("train", "val"):
        for k in range(4):
            cls = classes[k % 2]
            key = f"{split}-{k}"
            detune = k if split == "train" else k + 7
            audio = writer.add_sound(key, lambda c=cls, k=detune: tone(c, k))
            sounds.append(Sound(key, audio, split, cls))
    for k in range(11):
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
