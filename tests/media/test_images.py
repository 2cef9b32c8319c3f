"""images.py: one list of formats; whatever else a file claims to be is not opened."""

import io
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image

from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import ItemError, decode_frame
from soundspot.media import clips as media
from soundspot.media.images import FORMATS
from soundspot.media.resizing import resize_frame, resize_tensor

EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 20 20
%%EndComments
20 20 scale
showpage
%%EOF
"""


def encoded(kind: str) -> bytes:
    memory = io.BytesIO()
    ramp = np.arange(256 * 256 * 3, dtype=np.uint32).reshape(256, 256, 3)
    Image.fromarray((ramp % 251).astype(np.uint8)).save(memory, kind)
    return memory.getvalue()


def test_postscript_never_reaches_its_interpreter(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_: pytest.fail("ran Ghostscript"))
    path = tmp_path / "photo.jpg"
    path.write_bytes(EPS)
    for read in (media.probe, media.read_frame, media.read_clip):
        with pytest.raises(SoundspotError):
            read(path)
    with pytest.raises(ItemError):
        decode_frame(EPS, "photo.jpg")


@pytest.mark.parametrize("kind", ["QOI", "PCX", "SGI", "TGA", "ICO", "JPEG2000"])
def test_formats_that_are_not_listed_are_no_images(tmp_path: Path, kind: str):
    path = tmp_path / "photo.png"
    data = encoded(kind)
    path.write_bytes(data)
    with pytest.raises(SoundspotError):
        media.read_frame(path)
    with pytest.raises(ItemError):
        decode_frame(data, "photo.png")


@pytest.mark.parametrize("kind", FORMATS)
def test_listed_formats_are_read_and_their_damage_is_one_sentence(tmp_path: Path, kind: str):
    data = encoded(kind)
    path = tmp_path / "photo"
    path.write_bytes(data)
    assert media.read_frame(path).shape == (256, 256, 3)
    draw = random.Random(7)
    for _ in range(40):
        broken = bytearray(data[: draw.randrange(1, len(data))])
        broken[draw.randrange(len(broken))] = draw.randrange(256)
        path.write_bytes(broken)
        try:
            media.read_frame(path)
        except SoundspotError as error:
            assert "\n" not in str(error)


def test_a_plug_in_that_breaks_in_a_new_way_is_one_sentence(tmp_path: Path, monkeypatch):
    path = tmp_path / "photo.png"
    Image.new("L", (5, 3)).save(path)

    def break_down(self):
        raise IndexError("index out of range")

    monkeypatch.setattr(Image.Image, "convert", lambda *_: break_down(None))
    with pytest.raises(SoundspotError):
        media.read_frame(path)


def bicubic(frame: np.ndarray, height: int, width: int) -> np.ndarray:
    resized = Image.fromarray(frame).resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(resized).astype(int)


def test_resizing_is_within_one_gray_level_of_pillow() -> None:
    frame = np.random.default_rng(0).integers(0, 256, (251, 257, 3), dtype=np.uint8)
    ours = resize_frame(frame, 241, 239)
    assert ours.shape == (241, 239, 3)
    assert np.abs(ours - bicubic(frame, 241, 239)).max() <= 1


def test_tensors_and_arrays_give_the_same_bytes() -> None:
    frame = np.random.default_rng(0).integers(0, 256, (61, 97, 3), dtype=np.uint8)
    tensor = torch.from_numpy(frame).permute(2, 0, 1).contiguous()
    ours = resize_tensor(tensor, 31, 23).permute(1, 2, 0).numpy()
    np.testing.assert_array_equal(ours, resize_frame(frame, 31, 23))


def test_a_frame_of_the_right_size_is_not_touched() -> None:
    frame = np.zeros((61, 97, 3), np.uint8)
    assert resize_frame(frame, 61, 97) is frame
