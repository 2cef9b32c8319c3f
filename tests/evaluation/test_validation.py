from dataclasses import replace

import numpy as np
import pytest
import torch

from soundspot.common.errors import SoundspotError
from soundspot.evaluation.benchmarks import annotated_scenes
from soundspot.evaluation.predictions import cached_maps, validate
from soundspot.features.encoding import encode
from soundspot.features.spec import FeatureSpec
from soundspot.model.methods.method import Method

pytestmark = pytest.mark.usefixtures("thin_vgg16")


class Fixed(Method):
    """Answers the same map to everything."""

    def __init__(self, answer):
        super().__init__()
        self.answer = torch.nn.Parameter(torch.as_tensor(answer, dtype=torch.float32))

    def maps(self, f_v, f_a, cycles=None):
        return self.answer.expand(len(f_v), -1, -1)


@pytest.fixture(scope="module")
def cache(tiny_pairs, tmp_path_factory, thin_vgg16):
    spec = FeatureSpec(pretrained=False, views=0)
    return encode(tiny_pairs, tmp_path_factory.mktemp("cache") / "features", spec)


def test_a_deaf_map_gets_half_of_the_duets(tiny_pairs, cache):
    left = np.zeros((14, 14))
    left[5, 2] = 1
    metrics = validate(Fixed(left), cache, tiny_pairs)
    assert metrics["duets"] == 0.5
    assert set(metrics) == {"ciou", "auc", "duets"}


def test_the_truth_as_a_map_is_right_and_its_negative_is_wrong(tiny_pairs, cache):
    rows = tiny_pairs.select("val")
    box = rows[0].boxes[0][0]
    grid = np.zeros((224, 224))
    x1, y1, x2, y2 = (int(224 * v) for v in box)
    grid[y1:y2, x1:x2] = 1
    scores = {}
    for name, answer in (("right", grid), ("wrong", 1 - grid)):
        scores[name] = validate(Fixed(answer), cache, tiny_pairs)["ciou"]
    # the five validation squares move by 29 pixels a frame: 96 wide, two of them overlap enough
    assert scores == {"right": pytest.approx(0.4), "wrong": 0.0}


class Echo(Method):
    """A map that tells which frame and which sound it was made of."""

    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def maps(self, f_v, f_a, cycles=None):
        return f_v.mean(dim=1) + f_a.mean(dim=(1, 2))[:, None, None]


def test_every_pair_gets_its_own_frame_and_sound(tiny_pairs, cache):
    scenes = annotated_scenes(tiny_pairs, "val")
    maps = cached_maps(Echo(), cache, scenes)
    for scene, map in zip(scenes, maps, strict=True):
        seen, heard = cache.evaluation([scene.frame])[0], cache.sound([scene.audio])[0]
        np.testing.assert_allclose(map, seen.mean(dim=0) + heard.mean(), rtol=1e-5)
    assert len(np.unique(maps[:, 3, 3])) == len(scenes)


def changed(pairs, **fields):
    """The val split alone, with other fields."""
    return replace(pairs, pairs=tuple(replace(pair, **fields) for pair in pairs.select("val")))


@pytest.mark.parametrize(("several", "ciou", "auc"), [(False, 1.0, 10.5), (True, 1.0, 13.5)])
def test_one_annotator_is_a_union_and_several_vote(tiny_pairs, cache, several, ciou, auc):
    left, right = (0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0)
    # the left half of everything, or two votes for the left and one for the right: 1/2 or 2/3
    boxes = ((left,), (left,), (right,)) if several else ((left, right),)
    pairs = changed(tiny_pairs, boxes=boxes)
    map = np.zeros((224, 224))
    map[:, :112] = 1
    expected = {"ciou": ciou, "auc": pytest.approx(auc / 20)}
    assert validate(Fixed(map), cache, pairs) == expected


def test_a_pair_with_boxes_but_no_sound_is_refused(tiny_pairs, cache):
    with pytest.raises(SoundspotError):
        validate(Fixed(np.eye(3)), cache, changed(tiny_pairs, audio=None))
