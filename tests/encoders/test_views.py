import numpy as np
import pytest
import torch

from soundspot.common.errors import SoundspotError
from soundspot.encoders import views
from soundspot.encoders.views import AUGMENTATIONS, evaluation_view, random_view, view_generator
from soundspot.media.resizing import resize_tensor


class Fixed(np.random.Generator):
    """A generator that answers what it is told."""

    def __init__(self, random=0.0, uniform=0.0, integers=0):
        super().__init__(np.random.PCG64(0))
        self._random, self._uniform, self._integers = random, uniform, integers
        self.bounds = []

    def random(self):
        return self._random

    def uniform(self, low, high, size=None):
        self.bounds.append((low, high))
        return self._uniform if size is None else np.full(size, self._uniform)

    def integers(self, low, high=None, size=None):
        return self._integers if size is None else np.full(size, self._integers)

    def permutation(self, n):
        return np.arange(n)


def frame():
    return torch.from_numpy(
        np.random.default_rng(0).integers(0, 256, (3, 256, 256), dtype=np.uint8)
    )


def picture(h=5, w=7):
    return torch.rand(3, h, w)


def test_evaluation_view_keeps_the_whole_frame_and_uses_imagenet_statistics():
    gray = torch.full((3, 90, 331), 128, dtype=torch.uint8)
    view = evaluation_view(gray)
    assert view.shape == (3, 224, 224)
    expected = (128 / 255 - np.array(views.IMAGENET_MEAN)) / np.array(views.IMAGENET_STD)
    np.testing.assert_allclose(view.mean(dim=(1, 2)), expected, atol=1e-5)
    left = torch.zeros(3, 64, 64, dtype=torch.uint8)
    left[:, :, :32] = 255
    halves = evaluation_view(left)
    assert (halves[:, :, :100] > halves[:, :, 124:]).all()


@pytest.mark.parametrize("size", [224, 448])
def test_views_have_the_size_that_their_encoder_asks_for(size):
    gray = torch.full((3, 90, 331), 128, dtype=torch.uint8)
    assert evaluation_view(gray, size).shape == (3, size, size)
    for names in ((), ("crop",)):
        view = random_view(gray, names, view_generator(0, 0, 0), size)
        assert view.shape == (3, size, size)


@pytest.mark.parametrize("offset", [0, 22])
def test_crop_cuts_224_of_246_anywhere(offset):
    grid = torch.arange(246 * 246.0).view(1, 246, 246).repeat(3, 1, 1)
    view = AUGMENTATIONS["crop"](grid, Fixed(integers=offset))
    assert view.shape == (3, 224, 224)
    assert view[0, 0, 0] == offset * 246 + offset


@pytest.mark.parametrize(("name", "axis"), [("horizontal_flip", 2), ("vertical_flip", 1)])
def test_flips_happen_below_one_half(name, axis):
    x = picture()
    assert torch.equal(AUGMENTATIONS[name](x, Fixed(random=0.49)), x.flip(axis))
    assert torch.equal(AUGMENTATIONS[name](x, Fixed(random=0.5)), x)


def test_translation_moves_and_fills_with_black():
    x = picture(10, 20)
    moved = AUGMENTATIONS["translation"](x, Fixed(uniform=0.2))
    assert torch.equal(moved[:, 2:, 4:], x[:, :8, :16])
    assert (moved[:, :2] == 0).all()
    assert (moved[:, :, :4] == 0).all()
    back = AUGMENTATIONS["translation"](x, Fixed(uniform=-0.2))
    assert torch.equal(back[:, :8, :16], x[:, 2:, 4:])


@pytest.mark.parametrize("quarter", range(4))
def test_rotation_is_by_quarters(quarter):
    x = picture(5, 5)
    assert torch.equal(
        AUGMENTATIONS["rotation"](x, Fixed(integers=quarter)), torch.rot90(x, quarter, (1, 2))
    )


def test_grayscale_is_luma_in_all_channels():
    x = picture()
    gray = AUGMENTATIONS["grayscale"](x, Fixed(random=0.19))
    expected = 0.299 * x[0] + 0.587 * x[1] + 0.114 * x[2]
    for channel in gray:
        torch.testing.assert_close(channel, expected)
    assert torch.equal(AUGMENTATIONS["grayscale"](x, Fixed(random=0.2)), x)


def test_blur_keeps_the_mean_and_spreads_a_point():
    point = torch.zeros(3, 31, 31)
    point[:, 15, 15] = 1
    blurred = AUGMENTATIONS["gaussian_blur"](point, Fixed(random=0.4, uniform=1.0))
    assert blurred.sum().item() == pytest.approx(3, abs=1e-4)
    assert blurred[0, 15, 15].item() == pytest.approx(1 / (2 * np.pi), rel=0.01)
    assert blurred[0, 15, 16] == blurred[0, 16, 15]
    assert torch.equal(AUGMENTATIONS["gaussian_blur"](point, Fixed(random=0.5)), point)


def test_hue_agrees_with_the_standard_library():
    import colorsys

    x = picture(1, 11)
    ours = views._shift_hue(x, 0.07)
    for i in range(11):
        hue, saturation, value = colorsys.rgb_to_hsv(*x[:, 0, i].tolist())
        expected = colorsys.hsv_to_rgb((hue + 0.07) % 1, saturation, value)
        np.testing.assert_allclose(ours[:, 0, i], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("translation", [(-0.2, 0.2), (-0.2, 0.2)]),
        ("gaussian_blur", [(0.1, 2.0)]),
        ("color_jitter", [(0.6, 1.4), (-0.1, 0.1)]),
    ],
)
def test_the_ranges_are_those_of_table_s2(name, bounds):
    rng = Fixed(random=0.1, uniform=0.5)
    AUGMENTATIONS[name](picture(31, 31), rng)
    assert rng.bounds == bounds


def test_jitter_by_hand():
    """Half brightness, then half contrast, then half saturation, then half a turn of the hue."""
    x = torch.tensor([[[0.8, 0.4]], [[0.4, 0.4]], [[0.0, 0.4]]])
    bright = x / 2
    luma = 0.299 * bright[0] + 0.587 * bright[1] + 0.114 * bright[2]
    contrast = bright / 2 + luma.mean() / 2
    luma = 0.299 * contrast[0] + 0.587 * contrast[1] + 0.114 * contrast[2]
    expected = views._shift_hue(contrast / 2 + luma / 2, 0.5)
    jittered = AUGMENTATIONS["color_jitter"](x, Fixed(random=0.1, uniform=0.5))
    torch.testing.assert_close(jittered, expected)
    assert not torch.allclose(jittered, x)


def test_degradation_blurs_adds_noise_compresses_or_keeps():
    x, degrade = torch.rand(3, 20, 20), AUGMENTATIONS["degradation"]
    point = torch.zeros(3, 31, 31)
    point[:, 15, 15] = 1
    # At most four pixels of a view of 224, and in proportion on other sizes.
    strength = (224 / 31 - 1) / 3
    seen = degrade(point, Fixed(random=strength, integers=0))
    assert seen[0, 15, 15].item() == pytest.approx(1 / (2 * np.pi), rel=0.01)
    for changed in (1, 2):
        worse = degrade(x, Fixed(random=1.0, integers=changed))
        assert worse.shape == x.shape and worse.min() >= 0 and worse.max() <= 1
        assert 0.02 < (worse - x).abs().mean() < 0.3
    for kept in (3, 4, 5):
        assert torch.equal(degrade(x, Fixed(integers=kept)), x)


STATISTICS = (views.IMAGENET_MEAN, views.IMAGENET_STD)
MOVING = tuple(sorted(views.MOVING))


def test_a_map_is_seen_like_its_frame():
    heat = views._resized(torch.rand(1, 5, 5).repeat(3, 1, 1), 256)
    gray = (heat * 255).to(torch.uint8)
    names = (*MOVING, "color_jitter", "gaussian_blur", "degradation")
    moved = 0
    for index in range(12):
        seen = views.view_of_map(heat[0], names, view_generator(0, 0, index), 14)
        shown = random_view(gray, MOVING, view_generator(0, 0, index), 224)
        again = views.view_of_map(heat[0], MOVING, view_generator(0, 0, index), 14)
        mean, std = (torch.tensor(x)[:, None, None] for x in STATISTICS)
        small = torch.nn.functional.avg_pool2d(shown * std + mean, 16)[0]
        # Where a smaller view stands on its ground, only the map is empty.
        assert (again - small).abs()[again > 0.1].median() < 0.02
        moved += not torch.allclose(seen, views._resized(heat, 14)[0], atol=0.1)
    assert moved > 6


@pytest.mark.parametrize("names", [("crop",), ("crop", "horizontal_flip"), tuple(AUGMENTATIONS)])
def test_views_are_a_function_of_seed_epoch_and_index(names):
    one = random_view(frame(), names, view_generator(1, 2, 3))
    assert one.shape == (3, 224, 224)
    assert torch.equal(one, random_view(frame(), names, view_generator(1, 2, 3)))
    others = [view_generator(2, 2, 3), view_generator(1, 3, 3), view_generator(1, 2, 4)]
    assert all(not torch.equal(one, random_view(frame(), names, rng)) for rng in others)


def test_an_unknown_augmentation_is_refused():
    with pytest.raises(SoundspotError) as caught:
        random_view(frame(), ("crop", "zoom"), view_generator(0, 0, 0))
    assert "zoom" in str(caught.value)


def test_the_evaluation_view_sees_what_a_pair_set_stores():
    """A frame is squashed to 256 x 256 first: from a file it gives the map of its stored copy."""
    large = torch.from_numpy(
        np.random.default_rng(1).integers(0, 256, (3, 331, 499), dtype=np.uint8)
    )
    stored = resize_tensor(large, 256, 256)
    assert torch.equal(evaluation_view(large), evaluation_view(stored))
    direct = views.normalize(resize_tensor(large, 224, 224).float() / 255)
    assert not torch.allclose(evaluation_view(large), direct, atol=0.05)
