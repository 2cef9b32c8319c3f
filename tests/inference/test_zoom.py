"""zoom.py: small hot parts are enlarged and encoded again."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from soundspot.common.config import to_dict
from soundspot.evaluation import predictions
from soundspot.evaluation.predictions import EncodedFeatures, Features
from soundspot.features.spec import Encoders, FeatureSpec
from soundspot.inference.localizer import Localizer, Part, Pictures
from soundspot.inference.maps import Window, cut, find_windows, join, tighten, zoom
from soundspot.model.checkpoint import Card
from soundspot.model.methods.method import Method
from soundspot.model.methods.sspl import SSPLConfig


def bump(row: int, column: int, h: int = 7, w: int = 11) -> np.ndarray:
    """A map that is hot in one cell."""
    s = np.zeros((h, w), np.float32)
    s[row, column] = 1
    return s


def test_only_small_hot_parts_have_a_window_around_their_peak():
    wide = np.zeros((7, 11), np.float32)
    wide[:4] = 1
    flat = np.full((7, 11), 0.3, np.float32)
    maps = np.stack([wide, bump(3, 5), flat, bump(0, 10), bump(6, 0)])
    # On a grid of 14 x 22, the middle of cell (3, 5) is (7, 11): a window of 7 x 11 around it.
    expected = {1: Window(4, 6), 3: Window(0, 11), 4: Window(7, 0)}
    assert find_windows(maps, 0.2) == expected
    assert find_windows(maps, 1 / 77) == {}, "as large as the limit is not small"
    assert 0 in find_windows(maps, 0.6)


def test_a_window_cuts_half_of_every_side_of_its_picture():
    picture = np.arange(28 * 44 * 3, dtype=np.int64).reshape(28, 44, 3).astype(np.uint8)
    part = cut(picture, Window(4, 6), (7, 11))
    np.testing.assert_array_equal(part, picture[8:22, 12:34])
    assert cut(picture, Window(7, 11), (7, 11)).shape == (14, 22, 3)
    tiny = cut(np.zeros((1, 1, 3), np.uint8), Window(0, 0), (7, 11))
    assert tiny.shape == (1, 1, 3)


def test_joined_maps_are_averaged_in_the_window_alone():
    maps = np.stack([np.zeros((7, 11), np.float32), np.full((7, 11), 0.5, np.float32)])
    closer = np.full((1, 7, 11), 0.3, np.float32)
    fine = join(maps, {1: Window(4, 6)}, closer)
    assert fine.shape == (2, 14, 22)
    assert (fine[0] == 0).all()
    inside = np.zeros((14, 22), bool)
    inside[4:11, 6:17] = True
    np.testing.assert_allclose(fine[1][inside], 0.4)
    np.testing.assert_allclose(fine[1][~inside], 0.5)


def test_parts_are_seen_under_the_sounds_of_their_maps():
    maps = np.stack([np.ones((7, 11), np.float32) * np.arange(11, dtype=np.float32), bump(3, 5)])
    asked = []

    def maps_of(parts, rows):
        asked.append(([part.shape for part in parts], list(rows)))
        return np.full((len(parts), 7, 11), 9, np.float32)

    pictures = [np.zeros((70, 110, 3), np.uint8), np.zeros((140, 220, 3), np.uint8)]
    fine = zoom(maps, 0.2, pictures.__getitem__, maps_of)
    assert asked == [([(70, 110, 3)], [1])]
    assert fine[1].max() == pytest.approx((9 + 1) / 2, abs=0.5)
    blunt = join(maps, {1: Window(4, 6)}, np.full((1, 7, 11), 9, np.float32))
    np.testing.assert_array_equal(fine, tighten(blunt, 0.2))
    assert fine[0].max() == pytest.approx(10)
    zoom(maps[:1], 0.2, pictures.__getitem__, maps_of)
    assert len(asked) == 1, "nothing small, nothing seen again"


def test_small_hot_parts_are_drawn_tighter_and_keep_their_range():
    ramp = np.linspace(-1, 3, 20, dtype=np.float32)[None].repeat(3, axis=0)
    level = np.array([0.5, 0.55, 0.6, 0.9])
    tiny = np.full((3, 20), -1.0, np.float32)
    tiny[0, :4] = -1 + 4 * level
    tiny[2, 7] = 3
    tight = tighten(np.stack([ramp, tiny]), 0.5)
    np.testing.assert_allclose(tight[0], ramp, atol=1e-6, err_msg="half of it is hot")
    # 5 of 60 cells are hot: a sixth of the limit, so 0.5 + 0.1 * 5 / 6 becomes one half.
    power = np.log(0.5) / np.log(0.5 + 0.1 * 5 / 6)
    np.testing.assert_allclose(tight[1][0, :4], -1 + 4 * level**power, rtol=1e-5)
    assert (tight[1].min(), tight[1].max()) == (-1, 3)
    flat = np.full((1, 3, 5), 0.7, np.float32)
    np.testing.assert_array_equal(tighten(flat, 0.5), flat)


class Bright(Method):
    """The map is how bright each cell is, and a little of the sound."""

    config = SSPLConfig()

    def maps(self, f_v, f_a, cycles=None):
        return f_v.mean(dim=1) + f_a.mean(dim=(1, 2))[:, None, None]


class Cells(torch.nn.Module):
    """A visual encoder: the mean color of each cell of 16 pixels."""

    def forward(self, view):
        return torch.nn.functional.avg_pool2d(view, 16)


class Loudness(torch.nn.Module):
    """An audio encoder: the sound's mean in three patches."""

    def forward(self, waveform):
        return waveform.view(len(waveform), 3, -1).mean(dim=2, keepdim=True)


def test_a_localizer_and_an_evaluation_make_the_same_maps():
    card = Card("sspl", to_dict(SSPLConfig()), FeatureSpec(), zoom=0.2)
    place = torch.device("cpu")
    part = Part(Bright(), card, place, Encoders(Cells(), Loudness(), place))
    model = Localizer("m", part)
    rng = np.random.default_rng(0)
    frames = {
        "plain": np.full((256, 256, 3), 90, np.uint8),
        "spot": np.zeros((256, 256, 3), np.uint8),
    }
    frames["plain"][:, :128] = 200
    frames["spot"][60:100, 150:180] = 255
    sounds = rng.uniform(-0.1, 0.1, (2, 48_000)).astype(np.float32)
    f_a = model.hear(list(sounds))
    located = [found.similarity for found in model.answer(Pictures(list(frames.values())), f_a)]
    assert all(s.shape == (28, 28) for s in located)

    seen = {name: part.see([frame])[0].half() for name, frame in frames.items()}
    encoded = EncodedFeatures(seen, {}, {}, frames.__getitem__)
    features = Features({card.features: encoded})
    maps = predictions.maps_of(model, features, list(frames), f_a)
    np.testing.assert_allclose(maps, np.stack(located), atol=2e-3)
    # The spot is 4 of 14 x 14 cells; enlarged, it is sharper than an enlarged map.
    once = replace(part, card=replace(card, zoom=0.0))
    spot = Pictures([frames["spot"]])
    coarse = once.maps(spot.features(once), f_a[1:2], spot)
    enlarged = join(coarse, {}, coarse[:0])[0]
    assert not np.allclose(enlarged, located[1], atol=0.05)
    truth = frames["spot"].mean(axis=2)
    truth = torch.nn.functional.adaptive_avg_pool2d(torch.from_numpy(truth)[None], 28)[0].numpy()
    assert (
        np.corrcoef(located[1].ravel(), truth.ravel())[0, 1]
        > np.corrcoef(enlarged.ravel(), truth.ravel())[0, 1]
    )
