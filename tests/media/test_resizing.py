import numpy as np
import torch
from PIL import Image

from soundspot.media.resizing import resize_frame, resize_tensor


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
