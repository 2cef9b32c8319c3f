"""cache.py: what is read back, and what is refused."""

import json
import shutil

import numpy as np
import pytest
import torch

from soundspot.common.errors import SoundspotError
from soundspot.features.cache import FeatureCache
from soundspot.features.encoding import encode
from soundspot.features.spec import FeatureSpec

SPEC = FeatureSpec(pretrained=False, views=2)


def test_features_come_in_channels_last(made):
    feature = made[0].view(["frames/train-0.jpg", "frames/train-1.jpg"], [0, 1])
    assert feature.shape == (2, 512, 14, 14)
    assert feature.is_contiguous(memory_format=torch.channels_last)


def test_a_stale_cache_is_refused_with_the_reason(tiny_pairs, made, tmp_path):
    folder = tmp_path / "stale"
    shutil.copytree(made[1], folder)
    other = FeatureSpec(pretrained=False, seed=3)
    with pytest.raises(SoundspotError, match="stale: its spec"):
        FeatureCache.open(folder, tiny_pairs, other)
    with pytest.raises(SoundspotError, match="stale: its weights"):
        FeatureCache.open(folder, tiny_pairs, SPEC, digest="other")
    description = json.loads((folder / "features.json").read_text())
    description["pairs"] = "another pair set"
    (folder / "features.json").write_text(json.dumps(description))
    with pytest.raises(SoundspotError, match="stale: its pairs"):
        encode(tiny_pairs, folder, SPEC)


@pytest.mark.parametrize("keep", [0, 40, 5000])
def test_a_torn_shard_is_refused_by_name(tiny_pairs, made, tmp_path, keep):
    folder = tmp_path / "torn"
    shutil.copytree(made[1], folder)
    shard = folder / "view00-00000.npy"
    shard.write_bytes(shard.read_bytes()[:keep])
    with pytest.raises(SoundspotError, match="view00-00000.npy is damaged"):
        FeatureCache.open(folder, tiny_pairs, SPEC)


def test_a_cache_with_two_grids_is_refused(tiny_pairs, made, tmp_path):
    folder = tmp_path / "mixed"
    shutil.copytree(made[1], folder)
    np.save(folder / "view01-00000.npy", np.zeros((11, 7, 7, 512), np.float16))
    with pytest.raises(SoundspotError, match=r"two sizes \(14x14x512 and 7x7x512\); delete it"):
        FeatureCache.open(folder, tiny_pairs, SPEC)


def test_no_cache_says_how_to_make_one(tiny_pairs, tmp_path):
    with pytest.raises(SoundspotError, match="soundspot encode"):
        FeatureCache.open(tmp_path, tiny_pairs, SPEC)
