"""StillScenes of video.py: what is encoded again, and what is not."""

import torch
from torch import nn

from soundspot.inference.video import StillScenes


class Counting(nn.Module):
    """Counts its calls; the feature is the mean color."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, *views: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return views[0].mean(dim=(2, 3))


def test_noise_of_compression_is_still_and_one_moving_patch_is_not() -> None:
    encoder = Counting()
    scenes, rng = StillScenes(encoder), torch.Generator().manual_seed(0)
    view = torch.randn(1, 3, 64, 64, generator=rng)
    first = scenes(view)
    noisy = view + 0.02 * torch.randn(1, 3, 64, 64, generator=rng)
    assert torch.equal(scenes(noisy), first)
    assert (encoder.calls, scenes.reused) == (1, 1)
    moved = view.clone()
    moved[:, :, 20:24, 40:44] += 0.2
    assert not torch.equal(scenes(moved), first)
    assert (encoder.calls, scenes.reused) == (2, 1)


def test_a_frame_and_the_part_that_gets_a_second_look_are_both_remembered() -> None:
    encoder = Counting()
    scenes = StillScenes(encoder)
    frame, part = torch.zeros(1, 3, 32, 32), torch.ones(1, 3, 32, 32)
    for _ in range(3):
        assert scenes(frame).mean() == 0
        assert scenes(part).mean() == 1
    assert (encoder.calls, scenes.reused) == (2, 4)


def test_slow_changes_add_up() -> None:
    encoder = Counting()
    scenes = StillScenes(encoder)
    for step in range(10):
        scenes(torch.full((1, 3, 32, 32), 0.02 * step))
    assert encoder.calls == 4  # 0, 0.06, 0.12, 0.18


def test_another_size_or_number_of_pictures_is_encoded() -> None:
    encoder = Counting()
    scenes = StillScenes(encoder)
    for shape in ((1, 3, 32, 32), (2, 3, 32, 32), (2, 3, 64, 64)):
        assert len(scenes(torch.zeros(shape))) == shape[0]
    assert encoder.calls == 3
