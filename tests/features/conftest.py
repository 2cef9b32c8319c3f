"""A small feature cache, made once with random encoders."""

import shutil
from pathlib import Path

import pytest

from soundspot.features.encoding import encode
from soundspot.features.spec import FeatureSpec

SPEC = FeatureSpec(pretrained=False, views=2)


@pytest.fixture(scope="module")
def made(tiny_pairs, tmp_path_factory, thin_vgg16):
    """A complete cache; copy it before breaking it."""
    folder = tmp_path_factory.mktemp("cache") / "features"
    done = []
    cache = encode(tiny_pairs, folder, SPEC, advance=done.append)
    return cache, folder, sum(done)


@pytest.fixture
def copied(made, tmp_path):
    """A copy of the cache's folder, to break."""
    return Path(shutil.copytree(made[1], tmp_path / "copied"))
